//! What the way of a packet costs hop by hop: pods of two real clusters, on gateway nodes and on other nodes.
//!
//! ```text
//!  east-2 ─ vx-submariner ─ east-1 ═ cable ═ west-1 ─ vx-submariner ─ west-2
//!  worker                   gateway         gateway                   worker
//! ```
//!
//! The clusters run our image of this build, installed by `deploy-broker` and `join`. In every round each path has its turn.
//! Nobody is pinned to CPUs: all nodes share the machine, and its scheduler decides for all paths alike.

mod paths;
mod results;

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::json;
use trieste_tests::clusters::{ClusterSet, ClusterShape, MEMBER, Pod, PodShape};
use trieste_tests::lab::Lab;
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

use crate::machine::Circumstances;
use crate::report;
use paths::{Load, Path};
use results::{Measured, Report};

/// Pings per path and round, 50 ms apart.
const PINGS: u32 = 40;
/// For how long the machine is watched without traffic in each round.
const IDLE: Duration = Duration::from_secs(2);
/// How long pods may take to answer once everything is ready.
const CONNECT: Duration = Duration::from_secs(30);

/// Options of `clusters`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Rounds.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of traffic for each path in each round.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Streams of TCP.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    streams: u8,
    /// Congestion control.
    #[arg(long, default_value = "cubic")]
    congestion: String,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Measures and prints. Says on standard error how far it is.
///
/// # Errors
/// When this is not root, the clusters do not come up, or a path carries nothing.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let circumstances = Circumstances::read();
    let lab = Lab::new()?;
    eprintln!("two clusters of two nodes, our image, deploy-broker, two joins ...");
    let set = ClusterSet::joined(&lab, &ClusterShape::two())?;
    let pods = Pods::start(&set)?;
    let mut measured = vec![Vec::<Measured>::new(); Path::ALL.len()];
    for round in 0..options.rounds as usize {
        let idle = Load::watch(IDLE)?;
        for turn in 0..Path::ALL.len() {
            let index = (turn + round) % Path::ALL.len();
            let path = Path::ALL[index];
            let result = pods.measure(&lab, path, options, &idle)?;
            eprintln!(
                "round {}/{} {}: {:.2} Gbit/s, {:.2} CPU s/GB, ping {:.3} ms, idle load {:.1} %",
                round + 1,
                options.rounds,
                path.name(),
                result.gbit_s,
                result.cpu_s_per_gb,
                result.ping_ms,
                result.idle_load * 100.0
            );
            measured[index].push(result);
        }
    }
    drop(set);
    lab.remove()?;
    let report = Report::new(circumstances, options.rounds, &measured);
    if options.json { report::print_json(&report) } else { report::print(&report.text()) }
}

/// A pod on each node.
struct Pods {
    east: [Pod; 2],
    west: [Pod; 2],
}

impl Pods {
    /// Starts them, unpins the gateways' workers, and waits until every path answers.
    fn start(set: &ClusterSet) -> anyhow::Result<Self> {
        let of = |name: &str| -> anyhow::Result<[Pod; 2]> {
            let cluster = set.clusters.cluster(name);
            // Each gateway pins its first worker to the first CPU by default, and here two of them share a machine.
            let environment = json!([{"name": "TRIESTE_CPUS", "value": "off"}]);
            let containers = json!([{"name": "submariner-gateway", "env": environment}]);
            let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}}).to_string();
            let patch = ["-n", MEMBER, "patch", "daemonset", "submariner-gateway", "-p", &patch];
            cluster.kubectl(&patch)?.success()?;
            cluster.wait_rollout(MEMBER, "daemonset/submariner-gateway")?;
            let (gateways, workers) = cluster.gateways_and_workers()?;
            let gateway = gateways.first().with_context(|| format!("{name} has no gateway"))?;
            let worker = workers.first().with_context(|| format!("{name} has no worker"))?;
            let shapes = [PodShape::on(gateway, "at-gateway"), PodShape::on(worker, "at-worker")];
            let pods = cluster.start_pods(&shapes)?;
            pods.try_into().map_err(|_| anyhow::anyhow!("two pods were asked for"))
        };
        let pods = Self { east: of("east")?, west: of("west")? };
        for path in Path::ALL {
            let (from, to) = pods.ends(path);
            eventually(&format!("an answer on the path {}", path.name()), CONNECT, || {
                from.ping(to.addresses[0], 56)
            })?;
        }
        Ok(pods)
    }

    fn ends(&self, path: Path) -> (&Pod, &Pod) {
        let [gateway, worker] = &self.east;
        let [other_gateway, other_worker] = &self.west;
        match path {
            Path::GatewayToGateway => (gateway, other_gateway),
            Path::WorkerToGateway => (worker, other_gateway),
            Path::GatewayToWorker => (gateway, other_worker),
            Path::WorkerToWorker => (worker, other_worker),
            Path::OwnCluster => (worker, gateway),
        }
    }

    fn measure(&self, lab: &Lab, path: Path, options: &Options, idle: &Load) -> anyhow::Result<Measured> {
        let (from, to) = self.ends(path);
        let address = to.addresses[0];
        let ping = traffic::ping(from.netns(), to.addresses[0], PINGS, &[])?;
        let ping_ms = ping.average_ms.with_context(|| format!("{}: no ping was answered", path.name()))?;
        let streams = options.streams.to_string();
        let flags = ["--parallel", &streams, "--congestion", &options.congestion];
        let load = Load::begin()?;
        let gbit_s = traffic::iperf3(lab, from.netns(), (to.netns(), address), options.seconds, &flags)
            .with_context(|| path.name())?;
        let load = load.end()?;
        let gigabytes = gbit_s * f64::from(options.seconds) / 8.0;
        anyhow::ensure!(gigabytes > 0.0, "{}: not a byte arrived", path.name());
        let cpu_s_per_gb = (load.busy - idle.busy / idle.wall * load.wall) / gigabytes;
        Ok(Measured { gbit_s, cpu_s_per_gb, ping_ms, idle_load: idle.share() })
    }
}
