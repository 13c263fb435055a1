//! What a large cluster set costs: two clusters that talk, and so many more members, with four networks each, whose gateways
//! answer nobody, or some of which do. All of them share a broker, a directory or an API server.
//!
//! How long it takes until every network has its route on every node of one cluster, and what one more and one changed member
//! cost then; what gateway and route agent use at rest; what is left for the traffic of the two; how long a gateway that is
//! killed and started again is away; and what it costs that all the others leave.

mod answering;
mod exports;
mod figures;
mod members;
mod plot;
mod report;
mod results;
mod routes;
mod store;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use trieste_control::sync::SyncConfig;
use trieste_tests::flow::{Echo, FlowSpec, Probing};
use trieste_tests::interrupt::{self, pause};
use trieste_tests::lab::Lab;
use trieste_tests::mesh::Mesh;
use trieste_tests::topology::{Families, Topology};
use trieste_tests::traffic;

use crate::machine::Circumstances;
use answering::Answering;
pub(crate) use answering::{Options as AnsweringOptions, run as answer};
pub(crate) use figures::{Bar, Figure, Growth, Point};
use members::NETWORKS;
pub(crate) use report::Report;
use results::{Row, Used};
use routes::Routes;
use store::{Broker, StoreKind};

/// UDP port of the echo in a pod.
const PORT: u16 = 7777;
/// How often reports of routes are read.
const TICK: Duration = Duration::from_millis(5);

/// Options of `scale`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Members beside the two, one run for each number; there are networks for 4,000.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 100, 300, 1000],
        value_parser = clap::value_parser!(u32).range(..=4000))]
    members: Vec<u32>,
    /// So many of the members do answer, in a process of their own.
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(..=answering::MOST))]
    answering: u32,
    /// Measures exported services of a cluster with globalnet in place of members, one run for each number.
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with_all = ["members", "answering"],
        value_parser = clap::value_parser!(u32).range(..=20_000))]
    exports: Vec<u32>,
    /// So many endpoints of these services, shared out among them; the cluster has two gateways then.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "exports",
        value_parser = clap::value_parser!(u32).range(..=60_000))]
    endpoints: u32,
    /// Cable drivers, one after the other: each is that of all members.
    #[arg(long, value_delimiter = ',', default_value = "wireguard",
        value_parser = ["wireguard", "libreswan", "vxlan"])]
    cable_driver: Vec<String>,
    /// What the broker and each cluster's own store are, one after the other.
    #[arg(long, value_delimiter = ',', default_value = "directory")]
    store: Vec<StoreKind>,
    /// Seconds that everything rests before it is measured at rest, and for as long again.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..))]
    rest: u64,
    /// Seconds of each TCP stream.
    #[arg(long, default_value_t = 8)]
    stream: u32,
    /// Seconds that routes may take.
    #[arg(long, default_value_t = 300)]
    patience: u64,
    /// Seconds that traffic is watched for after the others have left; memory is looked at then.
    #[arg(long, default_value_t = 60)]
    after: u64,
    /// Draws each figure over the size of the set into this file (SVG).
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Measures and prints; says on standard error how far it is. A bar that is missed is printed and fails nothing, and so is a
/// size that cannot be measured.
///
/// # Errors
/// When this is not root, a program is missing, or nothing could be measured at all.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    anyhow::ensure!(
        options.endpoints == 0 || options.store == [StoreKind::Directory],
        "--endpoints needs directories (--store directory): with API servers the clusters have one active gateway"
    );
    let mut report = Report::new(Circumstances::read());
    for &store in &options.store {
        for driver in &options.cable_driver {
            measure_sizes(options, &mut report, (driver, store))?;
        }
    }
    anyhow::ensure!(!report.is_empty(), "nothing could be measured:\n{}", report.text());
    if let Some(file) = &options.plot {
        std::fs::write(file, report.svg()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if options.json {
        crate::report::print_json(&report.json())
    } else {
        crate::report::print(&report.text())
    }
}

/// Measures all sizes with a cable and a store.
fn measure_sizes(
    options: &Options,
    report: &mut Report,
    (driver, store): (&str, StoreKind),
) -> anyhow::Result<()> {
    let title = format!("{driver}, {}", store.name());
    if options.exports.is_empty() {
        report.begin(title, "members");
        for &members in &options.members {
            let row = in_lab(|lab| Bed::start(lab, options, driver, store)?.measure(members))?;
            report.take(members, row, Row::point)?;
        }
        return Ok(());
    }
    let endpoints = match options.endpoints {
        0 => String::new(),
        count => format!(", {count} endpoints"),
    };
    report.begin(format!("{title}, globalnet{endpoints}"), "exports");
    for &exports in &options.exports {
        let row = in_lab(|lab| exports::Bed::start(lab, options, driver, store)?.measure(exports))?;
        report.take(exports, row, exports::Row::point)?;
    }
    Ok(())
}

/// Measures something in a lab of its own. The inner error is of the measurement, the outer one ends the run.
///
/// # Errors
/// If there can be no lab, it cannot be removed, or a signal has come.
pub(crate) fn in_lab<R>(
    measure: impl FnOnce(&Lab) -> anyhow::Result<R>,
) -> anyhow::Result<anyhow::Result<R>> {
    let lab = Lab::new()?;
    let row = measure(&lab);
    interrupt::check()?;
    let row = row.inspect_err(|_| lab.show_logs());
    lab.remove()?;
    Ok(row)
}

/// Two clusters that talk, and where the others are written to. Fields are in the order in which they have to end.
struct Bed<'a> {
    options: &'a Options,
    driver: &'a str,
    echo: Echo,
    /// Of every node of east.
    routes: Vec<Routes>,
    answering: Option<Answering>,
    mesh: Mesh,
    broker: Broker,
    lab: Lab,
}

impl<'a> Bed<'a> {
    fn start(lab: &Lab, options: &'a Options, driver: &'a str, store: StoreKind) -> anyhow::Result<Self> {
        let topology = Topology::two_clusters().with_underlay(Families::V4).with_nodes(1, 1);
        let (mesh, broker) = store::start(lab, &topology, store, store::settings(lab, driver))?;
        mesh.wait_traffic()?;
        let echo = Echo::start(&mesh.pod("west", 1, 0).namespace, PORT)?;
        let nodes = mesh.plan.cluster("east").nodes.iter();
        let routes = nodes.map(|node| Routes::follow(lab, &node.namespace)).collect::<anyhow::Result<_>>()?;
        Ok(Self { options, driver, echo, routes, answering: None, mesh, broker, lab: lab.clone() })
    }

    fn measure(mut self, members: u32) -> anyhow::Result<Row> {
        let alone_gbit_s = self.stream()?;
        let before = self.usage()?;
        let answering = members.min(self.options.answering);
        if answering > 0 {
            self.answering = Some(Answering::start(&self.lab, &self.mesh, self.driver, answering)?);
        }
        let began = Instant::now();
        let names: Vec<String> =
            (0..members).map(|member| self.publish(member, NETWORKS)).collect::<anyhow::Result<_>>()?;
        let written = began.elapsed();
        let last_route = self.wait_routes(members * NETWORKS)?;
        let up = last_route + answering::wait_up(&self.mesh, answering, self.patience())?;
        let one_more = self.publish(members, NETWORKS - 1)?;
        let one_more_route = self.wait_routes(members * NETWORKS + NETWORKS - 1)?;
        let one_changed = self.publish(members, NETWORKS)?;
        let one_changed_route = self.wait_routes((members + 1) * NETWORKS)?;
        assert_eq!(one_more, one_changed, "it is the same member");
        let rest = self.rest()?;
        let connected = answering::connected(&self.mesh)?;
        let gbit_s = self.stream()?;
        let restart = self.restart()?;
        self.wait_routes((members + 1) * NETWORKS)?;
        let removal = self.remove(names.into_iter().chain([one_more]))?;
        let after = self.usage()?;
        Ok(Row {
            members,
            answering,
            up_s: up.as_secs_f64(),
            connected,
            rest_s: self.options.rest as f64,
            written_s: written.as_secs_f64(),
            last_route_s: last_route.as_secs_f64(),
            one_more_s: one_more_route.as_secs_f64(),
            one_changed_s: one_changed_route.as_secs_f64(),
            rest,
            alone_gbit_s,
            gbit_s,
            restart_s: restart.as_secs_f64(),
            removing_s: removal.removing.as_secs_f64(),
            removed_s: removal.removed.as_secs_f64(),
            departure_s: SyncConfig::new("", Vec::new()).departure_wait.as_secs_f64(),
            removal_lost: removal.lost,
            removal_longest_ms: removal.longest.as_secs_f64() * 1e3,
            before_mib: before.mib(),
            after_mib: after.mib(),
        })
    }

    /// What is used at rest.
    fn rest(&self) -> anyhow::Result<Used> {
        pause(Duration::from_secs(self.options.rest))?;
        let before = self.usage()?;
        pause(Duration::from_secs(self.options.rest))?;
        Ok(self.usage()?.since(&before))
    }

    /// Writes a member with so many of its networks: the first ones are those that answer.
    fn publish(&self, member: u32, networks: u32) -> anyhow::Result<String> {
        let spec = if self.answering.is_some() && member < self.options.answering {
            answering::spec(member, networks, self.driver)?
        } else {
            members::silent(member, networks, self.driver)?
        };
        self.broker.publish(&spec)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.options.patience)
    }

    /// Waits until every node of east has this many routes to the others' networks; returns for how long.
    fn wait_routes(&mut self, count: u32) -> anyhow::Result<Duration> {
        let (began, count) = (Instant::now(), count as usize);
        loop {
            let mut is_there = true;
            let took = began.elapsed();
            for routes in &mut self.routes {
                is_there &= routes.has(count)?;
            }
            if is_there {
                return Ok(took);
            }
            let patience = self.patience();
            if took >= patience {
                let counts: Vec<usize> = self.routes.iter().map(Routes::networks).collect();
                anyhow::bail!("after {patience:?} there are {counts:?} of {count} routes");
            }
            pause(TICK)?;
        }
    }

    fn usage(&self) -> anyhow::Result<Used> {
        Used::of_side(self.mesh.side("east"))
    }

    /// One TCP stream from a pod of east's worker to one of west's, Gbit/s.
    fn stream(&self) -> anyhow::Result<f64> {
        let [from, to] = ["east", "west"].map(|cluster| self.mesh.pod(cluster, 1, 0));
        traffic::iperf3(&self.lab, &from.namespace, (&to.namespace, to.ips()[0]), self.options.stream, &[])
    }

    /// Kills east's gateway and starts it again; returns how long until a pod is answered.
    fn restart(&mut self) -> anyhow::Result<Duration> {
        self.mesh.side_mut("east").kill_gateway(0)?;
        let began = Instant::now();
        self.mesh.side_mut("east").start_gateway(0)?;
        let probing = Probing::start_every(Duration::from_millis(10), &[self.flow()])?;
        probing.wait_through(Duration::from_secs(60))?;
        let took = began.elapsed();
        let _ = probing.finish();
        Ok(took)
    }

    fn flow(&self) -> FlowSpec {
        let [from, to] = ["east", "west"].map(|cluster| self.mesh.pod(cluster, 1, 0));
        FlowSpec {
            name: "east to west".to_owned(),
            from: from.namespace.clone(),
            to: SocketAddr::new(to.ips()[0], self.echo.port()),
            port: 20_000,
        }
    }

    /// Takes all others out of the set under traffic. Those that answered have ended then.
    fn remove(&mut self, names: impl Iterator<Item = String>) -> anyhow::Result<Removal> {
        let probing = Probing::start_every(Duration::from_millis(10), &[self.flow()])?;
        probing.wait_through(Duration::from_secs(10))?;
        probing.mark();
        if let Some(answering) = self.answering.take() {
            answering.check()?;
        }
        let began = Instant::now();
        for name in names {
            self.broker.withdraw(&name)?;
        }
        let removing = began.elapsed();
        let removed = self.wait_routes(0)?;
        pause(Duration::from_secs(self.options.after).saturating_sub(removed))?;
        let outages = probing.finish();
        let flow = &outages.flows[0];
        Ok(Removal { removing, removed, lost: flow.lost, longest: flow.longest() })
    }
}

/// What it took that all others leave.
struct Removal {
    /// For how long they were taken away.
    removing: Duration,
    /// How long routes stayed after that.
    removed: Duration,
    /// What was lost between the two.
    lost: u32,
    /// The longest silence between them.
    longest: Duration,
}
