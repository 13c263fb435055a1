//! What a large cluster set costs: two clusters that talk, and so many more members, with four networks each, whose gateways
//! answer nobody. All of them share a directory as their broker.
//!
//! How long it takes until every network has its route on every node of one cluster, and what one more and one changed member
//! cost then; what gateway and route agent use at rest; what is left for the traffic of the two; how long a gateway that is
//! killed and started again is away; and what it costs that all the others leave.

mod results;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use ipnet::{IpNet, Ipv4Net};
use trieste_control::api::EndpointSpec;
use trieste_tests::broker;
use trieste_tests::cluster::Settings;
use trieste_tests::flow::{Echo, FlowSpec, Probing};
use trieste_tests::interrupt::pause;
use trieste_tests::lab::Lab;
use trieste_tests::mesh::Mesh;
use trieste_tests::netns::Namespace;
use trieste_tests::topology::{Families, Topology};
use trieste_tests::traffic;

use crate::machine::Circumstances;
use crate::report;
use results::{Report, Row, Usage};

/// Networks of each member.
const NETWORKS: u32 = 4;
/// UDP port of the echo in a pod.
const PORT: u16 = 7777;
/// How often routes are looked for.
const TICK: Duration = Duration::from_millis(20);
/// How long traffic is watched for after the others have left.
const AFTER: Duration = Duration::from_secs(60);

/// Options of `scale`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Members beside the two, one run for each number; there are networks for 4,000.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 100, 300, 1000],
        value_parser = clap::value_parser!(u32).range(..=4000))]
    members: Vec<u32>,
    /// Cable driver of all of them.
    #[arg(long, default_value = "wireguard")]
    cable_driver: String,
    /// Seconds that everything rests before it is measured at rest, and for as long again.
    #[arg(long, default_value_t = 15)]
    rest: u64,
    /// Seconds of each TCP stream.
    #[arg(long, default_value_t = 8)]
    stream: u32,
    /// Seconds that routes may take.
    #[arg(long, default_value_t = 300)]
    patience: u64,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Measures and prints. Says on standard error how far it is.
///
/// # Errors
/// When this is not root, a program is missing, or the two clusters do not talk.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut report = Report::new(Circumstances::read(), options.cable_driver.clone());
    for &members in &options.members {
        let lab = Lab::new()?;
        let row = Bed::start(&lab, options)?.measure(members).inspect_err(|_| lab.show_logs())?;
        eprintln!("{row}");
        report.add(row);
        lab.remove()?;
    }
    if options.json { report::print_json(&report) } else { report::print(&report.text()) }
}

/// Two clusters that talk, and where the others are written to. Fields are in the order in which they have to end.
struct Bed<'a> {
    options: &'a Options,
    echo: Echo,
    mesh: Mesh,
    broker: PathBuf,
    lab: Lab,
}

impl<'a> Bed<'a> {
    fn start(lab: &Lab, options: &'a Options) -> anyhow::Result<Self> {
        let topology = Topology::two_clusters().with_underlay(Families::V4).with_nodes(1, 1);
        let driver = format!("cable-driver: {}", options.cable_driver);
        let mesh = Mesh::connected(lab, &topology, &[&driver])?;
        let broker = Settings::of(lab).broker.context("a lab has a broker")?;
        let echo = Echo::start(&mesh.pod("west", 1, 0).namespace, PORT)?;
        Ok(Self { options, echo, mesh, broker, lab: lab.clone() })
    }

    fn measure(mut self, members: u32) -> anyhow::Result<Row> {
        let alone_gbit_s = self.stream()?;
        let before = self.usage()?;
        let began = Instant::now();
        let files: Vec<PathBuf> =
            (0..members).map(|member| self.publish(member, NETWORKS)).collect::<anyhow::Result<_>>()?;
        let written = began.elapsed();
        let last_route = self.wait_routes(members * NETWORKS)?;
        let one_more = self.publish(members, NETWORKS - 1)?;
        let one_more_route = self.wait_routes(members * NETWORKS + NETWORKS - 1)?;
        let one_changed = self.publish(members, NETWORKS)?;
        let one_changed_route = self.wait_routes((members + 1) * NETWORKS)?;
        assert_eq!(one_more, one_changed, "it is the same member");
        pause(Duration::from_secs(self.options.rest))?;
        let rest = self.usage()?;
        pause(Duration::from_secs(self.options.rest))?;
        let rest = self.usage()?.since(&rest);
        let gbit_s = self.stream()?;
        let restart = self.restart()?;
        self.wait_routes((members + 1) * NETWORKS)?;
        let (removed, lost, longest) = self.remove(files.into_iter().chain([one_more]))?;
        let after = self.usage()?;
        Ok(Row {
            members,
            written_s: written.as_secs_f64(),
            last_route_s: last_route.as_secs_f64(),
            one_more_s: one_more_route.as_secs_f64(),
            one_changed_s: one_changed_route.as_secs_f64(),
            rest,
            alone_gbit_s,
            gbit_s,
            restart_s: restart.as_secs_f64(),
            removed_s: removed.as_secs_f64(),
            removal_lost: lost,
            removal_longest_ms: longest.as_secs_f64() * 1e3,
            before_mib: before.mib(),
            after_mib: after.mib(),
        })
    }

    /// Writes a member with so many of its networks.
    fn publish(&self, member: u32, networks: u32) -> anyhow::Result<PathBuf> {
        let subnets: Vec<IpNet> = (0..networks).map(|network| network_of(member, network)).collect();
        broker::publish(&self.broker, &spec(member, &subnets, &self.options.cable_driver)?)
    }

    /// Waits until every node of east has this many routes to the others' networks; returns for how long.
    fn wait_routes(&self, count: u32) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let nodes: Vec<&Namespace> =
            self.mesh.plan.cluster("east").nodes.iter().map(|node| &node.namespace).collect();
        loop {
            let counts: Vec<usize> = nodes.iter().map(|node| routes(node)).collect::<anyhow::Result<_>>()?;
            if counts.iter().all(|found| *found == count as usize) {
                return Ok(began.elapsed());
            }
            let patience = Duration::from_secs(self.options.patience);
            anyhow::ensure!(
                began.elapsed() < patience,
                "after {patience:?} there are {counts:?} of {count} routes"
            );
            pause(TICK)?;
        }
    }

    fn usage(&self) -> anyhow::Result<Usage> {
        let east = self.mesh.side("east");
        Usage::of(east.gateway(0)?.id(), east.agent(0)?.id(), east.agent(1)?.id())
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

    /// Takes all others out of the set under traffic; returns how long their routes stay, what is lost, and the longest silence.
    fn remove(&self, files: impl Iterator<Item = PathBuf>) -> anyhow::Result<(Duration, u32, Duration)> {
        let probing = Probing::start_every(Duration::from_millis(10), &[self.flow()])?;
        probing.wait_through(Duration::from_secs(10))?;
        probing.mark();
        for file in files {
            std::fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
        }
        let took = self.wait_routes(0)?;
        pause(AFTER.saturating_sub(took))?;
        let outages = probing.finish();
        let flow = &outages.flows[0];
        Ok((took, flow.lost, flow.longest()))
    }
}

/// A network of a member: 100.64.0.0/24 and those after it.
fn network_of(member: u32, network: u32) -> IpNet {
    let address =
        Ipv4Addr::from(u32::from(Ipv4Addr::new(100, 64, 0, 0)) + ((member * NETWORKS + network) << 8));
    IpNet::V4(Ipv4Net::new_assert(address, 24))
}

/// A member whose gateway is where nobody is.
fn spec(member: u32, subnets: &[IpNet], driver: &str) -> anyhow::Result<EndpointSpec> {
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 1)) + member);
    let mut key = [7_u8; 32];
    key[..4].copy_from_slice(&member.to_be_bytes());
    let cluster = format!("member-{member}");
    let spec = serde_json::json!({
        "cluster_id": cluster,
        "cable_name": format!("submariner-cable-{cluster}-{}", address.to_string().replace('.', "-")),
        "hostname": format!("{cluster}-gw1"),
        "subnets": subnets,
        "private_ip": address,
        "public_ip": "",
        "nat_enabled": false,
        "backend": driver,
        "backend_config": { "publicKey": base64(&key), "udp-port": "4500", "natt-discovery-port": "4490" },
    });
    Ok(serde_json::from_value(spec)?)
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Whether a route is to one of the others' networks, of up to 4,096 members.
fn is_theirs(line: &str) -> bool {
    line.strip_prefix("100.").is_some_and(|rest| !rest.starts_with("127."))
}

/// How many of the others' networks a node has a route for that leads somewhere.
fn routes(node: &Namespace) -> anyhow::Result<usize> {
    let told = node.run("ip").args(["-4", "route", "show", "table", "all"]).stdout()?;
    let mut nets: Vec<&str> = told
        .lines()
        .filter(|line| is_theirs(line) && (line.contains(" dev ") || line.contains(" nhid ")))
        .filter_map(|line| line.split(' ').next())
        .collect();
    nets.sort_unstable();
    nets.dedup();
    Ok(nets.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_differ_in_everything() {
        let [one, other] = [0, 2999].map(|member| {
            let nets: Vec<IpNet> = (0..NETWORKS).map(|network| network_of(member, network)).collect();
            spec(member, &nets, "vxlan").unwrap()
        });
        assert_eq!(one.subnets[3].to_string(), "100.64.3.0/24");
        assert_ne!((&one.cluster_id, &one.private_ip), (&other.cluster_id, &other.private_ip));
        assert_ne!(one.backend_config["publicKey"], other.backend_config["publicKey"]);
    }
}
