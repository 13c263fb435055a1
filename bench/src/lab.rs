//! Whole gateways between network namespaces: ours, and other people's in the same place.
//!
//! Two clusters with one pod each. A candidate's gateways are started by its script (`tests/peers/NAME.sh`), carry
//! the cases one after the other, and are ended again; in every round each candidate has its turn. No candidate is
//! pinned to CPUs: both gateways, both ends of iperf3 and the kernel share the machine, and its scheduler decides
//! for all of them alike.

mod load;
mod packets;
mod results;
mod run;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use trieste_tests::lab::Lab;
use trieste_tests::topology::{Families, Topology};

use crate::machine::Circumstances;
use crate::report;
use packets::Sizes;
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
    /// Cases: tcp1, tcp4 (streams) or udp1, each also with `-reverse` (the server sends); small64, small256 and mix: the highest
    /// rate without loss of packets of 64 bytes, 256, or of several sizes.
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
    /// Seconds of each trial in the search for that rate. RFC 2544 has 60; on a quiet machine longer trials find lower rates.
    #[arg(long, default_value_t = 1.0, value_parser = trial_seconds)]
    trial_seconds: f64,
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

/// Reads the length of a trial.
fn trial_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.1..=60.0).contains(&seconds) { Ok(seconds) } else { Err("it is 0.1 to 60".to_owned()) }
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// A stream of iperf3's.
    Stream(Stream),
    /// The highest rate of packets without loss.
    Packets(Sizes),
}

/// What iperf3 is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stream {
    is_udp: bool,
    streams: u8,
    is_reverse: bool,
}

impl Case {
    fn parse(name: &str) -> Result<Self, String> {
        if let Some(sizes) = Sizes::ALL.into_iter().find(|sizes| sizes.name() == name) {
            return Ok(Self::Packets(sizes));
        }
        let (stem, is_reverse) = match name.strip_suffix("-reverse") {
            Some(stem) => (stem, true),
            None => (name, false),
        };
        let (is_udp, streams) = match stem {
            "tcp1" => (false, 1),
            "tcp4" => (false, 4),
            "udp1" => (true, 1),
            _ => {
                let known = "tcp1, tcp4 and udp1, each also with -reverse, and small64, small256 and mix";
                return Err(format!("cases are {known}"));
            }
        };
        Ok(Self::Stream(Stream { is_udp, streams, is_reverse }))
    }

    fn name(self) -> String {
        match self {
            Self::Packets(sizes) => sizes.name().to_owned(),
            Self::Stream(Stream { is_udp, streams, is_reverse }) => {
                let kind = if is_udp { "udp" } else { "tcp" };
                format!("{kind}{streams}{}", if is_reverse { "-reverse" } else { "" })
            }
        }
    }

    /// Whether it has a congestion control.
    fn is_tcp(self) -> bool {
        matches!(self, Self::Stream(Stream { is_udp: false, .. }))
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
            if case.is_tcp() {
                jobs.extend(self.congestion.iter().map(|name| Job { case, congestion: Some(name.clone()) }));
            } else {
                jobs.push(Job { case, congestion: None });
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
    let field =
        Field { lab: &lab, plan: &plan, seconds: options.seconds, trial_seconds: options.trial_seconds };
    let candidates: Vec<Candidate<'_>> =
        options.names.iter().map(|name| options.candidate(name)).collect::<anyhow::Result<_>>()?;
    for round in 0..options.rounds as usize {
        for turn in 0..options.names.len() {
            let index = (turn + round) % options.names.len();
            let name = &options.names[index];
            let contest = field.start(&candidates[index]).inspect_err(|_| lab.show_logs())?;
            for (job, measured) in jobs.iter().zip(&mut measured) {
                let result = contest.measure(job).inspect_err(|_| lab.show_logs())?;
                let rate = result.packets_s.map_or(String::new(), |rate| format!("{rate:.0} packets/s, "));
                eprintln!(
                    "round {}/{} {name} {} {}: {rate}{:.2} Gbit/s, {:.2} CPU s/GB, other load {:.1} %",
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
        for name in ["tcp1", "tcp4-reverse", "udp1", "udp1-reverse", "small64", "small256", "mix"] {
            assert_eq!(Case::parse(name).unwrap().name(), name);
        }
        assert!(Case::parse("tcp3").is_err() && Case::parse("mix-reverse").is_err());
    }
}
