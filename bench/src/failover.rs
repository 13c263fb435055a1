//! What the loss of one of several active gateways costs the flows that used it, and everybody else.
//!
//! Two clusters of several gateways each, all active, pods on gateway nodes and on workers. Many flows of a datagram a
//! millisecond go through all of it, beside TCP streams at a share of what the path carries. Gateways are killed, stopped, cut
//! off, drained, again and again; each time it is noted which flows the gateway carried at that moment. What those flows miss
//! is the figure; the others must miss nothing. In the same run a pair of wireguard-go gateways suffers the same in the same
//! place: with one gateway each it has to wait for the fault's end, and then for its protocol.

mod baseline;
mod results;
mod strain;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use trieste_tests::flow::{Echo, FlowSpec, Probing};
use trieste_tests::interrupt::pause;
use trieste_tests::lab::Lab;
use trieste_tests::mesh::Mesh;
use trieste_tests::mesh::carriers::Carriers;
use trieste_tests::mesh::load::{self, Load};
use trieste_tests::mesh::scenario::{Scenario, Target, Trial};
use trieste_tests::topology::{Families, Topology};

use crate::machine::Circumstances;
use crate::report;
use results::Report;

/// UDP port of the echo in every pod.
const PORT: u16 = 7777;
/// First own port of the probed flows; each trial takes new ones, so that flows spread anew.
const FIRST_PORT: u16 = 20_000;

/// Options of `failover`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What is done: kill, stop, cut, deaf, mute, node, flap, drain, restart.
    #[arg(long = "scenario", value_delimiter = ',', value_parser = Scenario::parse,
        default_values_t = Scenario::ALL)]
    scenarios: Vec<Scenario>,
    /// How often each of them is done.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Flows that are probed at once.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    flows: u16,
    /// Gateways of each cluster.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    gateways: u8,
    /// Workers of each cluster.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4))]
    workers: u8,
    /// Traffic beside the probes, in percent of what TCP carries beside them, which is measured first.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u8).range(0..=100))]
    load: u8,
    /// Milliseconds that flows are watched for after it was done.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u64).range(200..))]
    watch: u64,
    /// Everything is started anew after so many trials: a path that failed often is kept back for long.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    fresh: u32,
    /// Seconds that pass before the next trial after all paths of a gateway that was started are good: for its first ten
    /// seconds a path is judged cautiously, by a time-out of 250 ms.
    #[arg(long, default_value_t = 11)]
    calm: u64,
    /// Instead of all this, for so many seconds: a gateway stands still for 50 ms again and again, another one's packets are
    /// 100 ms late, and no path may be taken for dead.
    #[arg(long, value_name = "SECONDS")]
    strain: Option<u64>,
    /// Further lines for the gateways' configuration, `key: value`.
    #[arg(long = "set", value_name = "LINE")]
    settings: Vec<String>,
    /// Leaves wireguard-go out.
    #[arg(long)]
    no_baseline: bool,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Measures and prints. Says on standard error how far it is.
///
/// # Errors
/// When this is not root, a program is missing, or a scenario cannot be done.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let circumstances = Circumstances::read();
    if let Some(seconds) = options.strain {
        return strain(options, Duration::from_secs(seconds), circumstances);
    }
    let mut report = Report::new(circumstances, options);
    if !options.no_baseline {
        for scenario in options.scenarios.iter().copied() {
            let Some(measured) = baseline::run(scenario)? else { continue };
            eprintln!("wireguard-go {}: {:.0} ms", scenario.name(), measured);
            report.baseline(scenario, measured);
        }
    }
    let load = capacity(options)?.inspect(|gbit_s| report.load(*gbit_s));
    // Scenarios take turns, so that what disturbs one disturbs all; so do the gateways.
    let mut trials = Vec::new();
    for round in 0..options.rounds {
        trials.extend(options.scenarios.iter().map(|scenario| (round, *scenario)));
    }
    let mut port = FIRST_PORT;
    for (number, chunk) in trials.chunks(options.fresh as usize).enumerate() {
        let mut bed = Bed::start(options, load, Duration::from_secs(options.calm))?;
        for (index, (round, scenario)) in chunk.iter().enumerate() {
            let target = options.target(*round as usize + number + index);
            if index > 0 {
                bed.settle(options)?;
            }
            let timeouts = bed.mesh.timeouts(&target)?;
            let trial = bed.trial(*scenario, &target, options, &mut port)?;
            eprintln!(
                "{}/{} {} {}-gw{}: {}; time-outs of its paths were {} ms",
                number * options.fresh as usize + index + 1,
                trials.len(),
                scenario.name(),
                target.cluster,
                target.gateway + 1,
                trial.line(),
                timeouts.iter().map(|ms| format!("{ms:.0}")).collect::<Vec<_>>().join(", ")
            );
            report.add(*scenario, &trial);
        }
        drop(bed.load.take());
        bed.lab.remove()?;
    }
    if options.json { report::print_json(&report) } else { report::print(&report.text()) }
}

/// The run in which nobody dies.
fn strain(options: &Options, duration: Duration, circumstances: Circumstances) -> anyhow::Result<()> {
    // Paths are not known yet when it begins: from the first late packets they learn what is usual here.
    let load = capacity(options)?;
    let mut bed = Bed::start(options, load, Duration::ZERO)?;
    let flows = bed.flows(options.flows, &mut { FIRST_PORT })?;
    let strained = strain::run(&bed.mesh, &flows, duration).inspect_err(|_| bed.lab.show_logs())?;
    if let Some(load) = bed.load.take() {
        load.check().context("the load's TCP connections did not survive")?;
    }
    let mut report = Report::new(circumstances, options);
    load.iter().for_each(|gbit_s| report.load(*gbit_s));
    report.strained(strained);
    bed.lab.remove()?;
    if options.json { report::print_json(&report) } else { report::print(&report.text()) }
}

/// What TCP carries at most in Gbit/s beside the probes, if there is to be a load. Measured with gateways of its own: paths
/// remember for ten minutes how late packets were while everything was full.
fn capacity(options: &Options) -> anyhow::Result<Option<f64>> {
    if options.load == 0 {
        return Ok(None);
    }
    let bed = Bed::start(options, None, Duration::ZERO)?;
    let probing = Probing::start(&bed.flows(options.flows, &mut { FIRST_PORT })?)?;
    let gbit_s = load::capacity(&bed.mesh)?;
    let _ = probing.finish();
    bed.lab.remove()?;
    Ok(Some(gbit_s))
}

impl Options {
    /// Clusters whose gateways have found one another.
    fn mesh(&self, lab: &Lab) -> anyhow::Result<Mesh> {
        let topology = Topology::two_clusters()
            .with_underlay(Families::V4)
            .with_nodes(self.gateways, self.workers)
            .with_pods(2);
        let settings: Vec<&str> = self.settings.iter().map(String::as_str).collect();
        let mesh = Mesh::connected(lab, &topology, &settings)?;
        mesh.settle().inspect_err(|_| lab.show_logs())?;
        Ok(mesh)
    }

    /// Whose turn it is: one cluster's gateway after the other's.
    fn target(&self, turn: usize) -> Target {
        let cluster = if turn.is_multiple_of(2) { "east" } else { "west" };
        Target { cluster: cluster.to_owned(), gateway: turn / 2 % usize::from(self.gateways) }
    }
}

/// Clusters with everything that is needed to look at them. Fields are in the order in which they have to end.
struct Bed {
    load: Option<Load>,
    _echoes: Vec<Echo>,
    carriers: Carriers,
    /// Whether the last trial has left a gateway that is known for a moment only.
    is_new: bool,
    mesh: Mesh,
    lab: Lab,
}

impl Bed {
    /// Starts everything, with the load's share of what the path carries, and lets it be for `calm`.
    fn start(options: &Options, gbit_s: Option<f64>, calm: Duration) -> anyhow::Result<Self> {
        let lab = Lab::new()?;
        let mesh = options.mesh(&lab)?;
        let settled = Instant::now();
        let mut echoes = Vec::new();
        for node in mesh.plan.clusters.iter().flat_map(|cluster| &cluster.nodes) {
            echoes.push(Echo::start(&node.pods[0].namespace, PORT)?);
        }
        let carriers = Carriers::watch(&mesh, PORT)?;
        let share = gbit_s.map(|gbit_s| gbit_s * f64::from(options.load) / 100.0);
        let load = share.map(|gbit_s| Load::start(&mesh, gbit_s)).transpose()?;
        pause(calm.saturating_sub(settled.elapsed()))?;
        Ok(Self { load, _echoes: echoes, carriers, is_new: false, mesh, lab })
    }

    fn trial(
        &mut self,
        scenario: Scenario,
        target: &Target,
        options: &Options,
        port: &mut u16,
    ) -> anyhow::Result<Trial> {
        let flows = self.flows(options.flows, port)?;
        let watched = Duration::from_millis(options.watch);
        let trial = self.mesh.trial(scenario, target, &flows, Some(&self.carriers), watched);
        let trial = trial.inspect_err(|_| self.lab.show_logs())?;
        if let Some(load) = &self.load {
            load.check().context("the load's TCP connections did not survive")?;
        }
        self.is_new = scenario.starts_anew();
        Ok(trial)
    }

    /// Waits until everything is as it was before the last trial.
    fn settle(&self, options: &Options) -> anyhow::Result<()> {
        self.mesh.settle().inspect_err(|_| self.lab.show_logs())?;
        let calm = if self.is_new { options.calm } else { 0 };
        pause(Duration::from_secs(calm))
    }

    /// Flows from every node of each cluster to every node of the other, again and again until there are enough.
    fn flows(&self, count: u16, port: &mut u16) -> anyhow::Result<Vec<FlowSpec>> {
        let ways = self.mesh.ways();
        let mut flows = Vec::new();
        for (from, to) in ways.iter().cycle().take(usize::from(count)) {
            let address = to.pods[0].v4().context("flows go over IPv4")?;
            flows.push(FlowSpec {
                name: format!("{} to {}", from.name, to.name),
                from: from.pods[0].namespace.clone(),
                to: SocketAddr::new(address, PORT),
                port: *port,
            });
            *port = if *port >= 32_000 { FIRST_PORT } else { *port + 1 };
        }
        Ok(flows)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn every_gateway_has_its_turn() {
        let options = Line::parse_from(["failover", "--gateways", "2"]).options;
        let turns: Vec<_> = (0..4).map(|turn| options.target(turn)).collect();
        for cluster in ["east", "west"] {
            for gateway in 0..2 {
                assert!(turns.contains(&Target { cluster: cluster.to_owned(), gateway }));
            }
        }
        assert_eq!(options.scenarios.len(), Scenario::ALL.len());
    }
}
