//! Whole gateways between network namespaces: ours, and other people's in the same place.
//!
//! Two clusters with one pod each. A candidate's gateways are started by its script (`tests/peers/NAME.sh`), carry
//! the cases one after the other, and are ended again; in every round each candidate has its turn. No candidate is
//! pinned to CPUs: both gateways, both ends of iperf3 and the kernel share the machine, and its scheduler decides
//! for all of them alike.

mod load;
mod results;
mod run;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use trieste_tests::lab::Lab;
use trieste_tests::topology::{Families, Topology};

use crate::machine::Circumstances;
use crate::report;
use results::{Measured, Report};
use run::{Candidate, Field};

/// Who runs unless `--name` says otherwise.
const NAMES: [&str; 6] =
    ["trieste-wireguard", "trieste-esp", "trieste-plain", "wireguard-go", "boringtun-cli", "strongswan"];
/// IP MTU of the underlay.
const UNDERLAY_MTU: u16 = 1500;

/// Options of `lab`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Cases: tcp1, tcp4 (streams) or udp1, each also with `-reverse` (the server sends).
    #[arg(long = "case", value_delimiter = ',', value_parser = Case::parse,
        default_values = ["tcp1", "tcp1-reverse", "tcp4", "tcp4-reverse", "udp1", "udp1-reverse"])]
    cases: Vec<Case>,
    /// Congestion controls of the TCP cases.
    #[arg(long, value_delimiter = ',', default_values = ["cubic", "bbr"])]
    congestion: Vec<String>,
    /// Candidates: names of scripts in tests/peers; `NAME@BUILD` is our gateway of another build.
    #[arg(long = "name", value_delimiter = ',', default_values = NAMES)]
    names: Vec<String>,
    /// Other builds of ours: the folder with the programs of each.
    #[arg(long = "build", value_delimiter = ',', value_name = "BUILD=FOLDER", value_parser = Build::parse)]
    builds: Vec<Build>,
    /// Rounds.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of traffic for each case in each round.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Our programs as they were built from another commit.
#[derive(Debug, Clone)]
struct Build {
    name: String,
    programs: PathBuf,
}

impl Build {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, folder) = text.split_once('=').ok_or("a build is BUILD=FOLDER")?;
        let programs = Path::new(folder)
            .canonicalize()
            .map_err(|error| format!("the folder of the build {name:?}: {folder}: {error}"))?;
        Ok(Self { name: name.to_owned(), programs })
    }
}

/// What iperf3 is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    is_udp: bool,
    streams: u8,
    is_reverse: bool,
}

impl Case {
    fn parse(name: &str) -> Result<Self, String> {
        let (stem, is_reverse) = match name.strip_suffix("-reverse") {
            Some(stem) => (stem, true),
            None => (name, false),
        };
        let (is_udp, streams) = match stem {
            "tcp1" => (false, 1),
            "tcp4" => (false, 4),
            "udp1" => (true, 1),
            _ => return Err("cases are tcp1, tcp4 and udp1, each also with -reverse".to_owned()),
        };
        Ok(Self { is_udp, streams, is_reverse })
    }

    fn name(self) -> String {
        let kind = if self.is_udp { "udp" } else { "tcp" };
        format!("{kind}{}{}", self.streams, if self.is_reverse { "-reverse" } else { "" })
    }
}

/// A case with its congestion control.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Job {
    case: Case,
    congestion: Option<String>,
}

impl Options {
    fn candidate<'a>(&'a self, name: &'a str) -> anyhow::Result<Candidate<'a>> {
        let Some((script, build)) = name.split_once('@') else {
            return Ok(Candidate { name, script: name, programs: None });
        };
        let found = self.builds.iter().find(|known| known.name == build);
        let programs = found
            .with_context(|| format!("{name}: give the folder of that build, --build {build}=FOLDER"))?;
        Ok(Candidate { name, script, programs: Some(&programs.programs) })
    }

    fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for &case in &self.cases {
            if case.is_udp {
                jobs.push(Job { case, congestion: None });
            } else {
                jobs.extend(self.congestion.iter().map(|name| Job { case, congestion: Some(name.clone()) }));
            }
        }
        jobs
    }
}

/// Measures and prints. Says on standard error how far it is.
///
/// # Errors
/// When this is not root, a program is missing, or a candidate carries nothing.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let circumstances = Circumstances::read();
    let jobs = options.jobs();
    let mut measured = vec![vec![Vec::<Measured>::new(); options.names.len()]; jobs.len()];
    let lab = Lab::new()?;
    let plan = lab.build(
        &Topology { underlay_mtu: UNDERLAY_MTU, ..Topology::two_clusters() }.with_underlay(Families::V4),
    )?;
    let field = Field { lab: &lab, plan: &plan, seconds: options.seconds };
    let candidates: Vec<Candidate<'_>> =
        options.names.iter().map(|name| options.candidate(name)).collect::<anyhow::Result<_>>()?;
    for round in 0..options.rounds as usize {
        for turn in 0..options.names.len() {
            let index = (turn + round) % options.names.len();
            let name = &options.names[index];
            let contest = field.start(&candidates[index]).inspect_err(|_| lab.show_logs())?;
            for (job, measured) in jobs.iter().zip(&mut measured) {
                let result = contest.measure(job).inspect_err(|_| lab.show_logs())?;
                eprintln!(
                    "round {}/{} {name} {} {}: {:.2} Gbit/s, {:.2} CPU s/GB, other load {:.1} %",
                    round + 1,
                    options.rounds,
                    job.case.name(),
                    job.congestion.as_deref().unwrap_or("-"),
                    result.gbit_s,
                    result.cpu_s_per_gb,
                    result.other_load * 100.0
                );
                measured[index].push(result);
            }
        }
    }
    lab.remove()?;
    let report = Report::new(circumstances, options.rounds, &options.names, &jobs, &measured);
    if options.json { report::print_json(&report) } else { report::print(&report.text()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_by_the_names_that_they_print() {
        for name in ["tcp1", "tcp4-reverse", "udp1", "udp1-reverse"] {
            assert_eq!(Case::parse(name).unwrap().name(), name);
        }
        assert!(Case::parse("tcp3").is_err());
    }
}
