//! XT-1..: a host outside of the clusters, in a network that the node of east's gateway is in as well. East has joined with
//! that network among its own, as upstream has it for such hosts.
//!
//! ```text
//!  host 172.20.1.50 ── 172.20.1.2 gateway of east ══ cable ══ gateway of west ── pods, services
//! ```

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use ipnet::IpNet;
use trieste_tests::clusters::{Cluster, MEMBER, RESPONDER_PORT};
use trieste_tests::globalnet::{Actors, Client, Flow, SIZES, Site};
use trieste_tests::netns::Namespace;
use trieste_tests::table::Table;
use trieste_tests::traffic::{self, Responder};
use trieste_tests::wait::eventually;

use crate::shared::{SOON, Two};
use crate::sides::{Actor, SERVICE_PORT, Side};

/// Networks that a member may have (`trieste_control::claims`), the node's address in each, and the host's.
const NETWORKS: [[&str; 3]; 2] =
    [["172.20.1.0/24", "172.20.1.2", "172.20.1.50"], ["fd00:50::/64", "fd00:50::2", "fd00:50::50"]];
/// The node's device in them.
const DEVICE: &str = "outside0";
/// The longest until the first answer: routes and cables are there.
const FIRST: Duration = Duration::from_secs(30);
/// The longest that one exchange may take.
const TRAFFIC: Duration = Duration::from_secs(30);

/// The host, which asks and answers.
struct Host {
    netns: Namespace,
    responder: Responder,
    addresses: Vec<IpAddr>,
}

/// Between the host and pods, nodes and services of west, both ways, with the source addresses that each must see.
pub(crate) fn of_sides(two: &Two, sides: &[Side<'_>; 2], table: &Table) {
    let west = &sides[1];
    let service = |actor: &Actor<'_>| -> Vec<_> {
        actor.service.iter().map(|ip| SocketAddr::new(*ip, SERVICE_PORT)).collect()
    };
    beside_east(two, 2, &[two.west().pod_nets(), two.west().service_nets()].concat(), |host| {
        let to = |all: &[SocketAddr]| all.iter().map(|to| host.asks(*to)).collect::<anyhow::Result<Vec<_>>>();
        let from = |actor: &Actor<'_>| host.is_asked_by(actor);
        table.row("XT-1", "host outside → pod nGW", || seen(&to(&west.on_worker.pod.responders())?));
        table.row("XT-2", "host outside → pod GW", || seen(&to(&west.on_gateway.pod.responders())?));
        table.row("XT-3", "host outside → service nGW", || seen(&to(&service(&west.on_worker))?));
        table.row("XT-4", "host outside → service GW", || seen(&to(&service(&west.on_gateway))?));
        table.row("XT-5", "pod nGW → host outside", || seen(&from(&west.on_worker)?));
        table.row("XT-6", "pod GW → host outside", || seen(&from(&west.on_gateway)?));
        table.row("XT-7", "host nGW → host outside", || seen(&from(&west.host_on_worker)?));
        table.row("XT-8", "host GW → host outside", || seen(&from(&west.host_on_gateway)?));
    });
}

/// The same where addresses are translated: the host is known by one of its cluster's global IPs. It has none of its own by
/// which others could ask it.
pub(crate) fn of_sites(two: &Two, [east, west]: [&Site; 2], table: &Table) {
    beside_east(two, 1, &["242.0.0.0/8".parse().unwrap()], |host| {
        let leaves_as = east.gateway.plain.leaves_as.clone();
        let client = Client { name: "a host outside".to_owned(), netns: host.netns.clone(), leaves_as };
        let row = |id, what, server: &Actors, is_headless| {
            let (client, server) = (&client, &server.server);
            let flow = Flow { id, what, client, server, is_headless };
            let first = || client.tcp(if is_headless { server.headless } else { server.service }, 1);
            table.row(id, what, || {
                eventually("the first answer", FIRST, first)?;
                Ok(format!("seen as {}", flow.check(&two.lab)?))
            });
        };
        row("XT-9", "host outside → service nGW", &west.worker, false);
        row("XT-10", "host outside → service GW", &west.gateway, false);
        row("XT-11", "host outside → headless pod nGW", &west.worker, true);
    });
}

/// Does something with a host beside east's gateway, in so many of the networks, that sends there what is for `remote`; then
/// host and networks go again.
fn beside_east(two: &Two, families: usize, remote: &[IpNet], work: impl FnOnce(&Host)) {
    let networks = &NETWORKS[..families];
    let host = Host::start(two, networks, remote).unwrap();
    let east = two.east();
    let nets: Vec<_> = east.pod_nets().iter().map(ToString::to_string).collect();
    let nets = nets.iter().map(String::as_str).chain(networks.iter().map(|[net, ..]| *net));
    let nets = nets.collect::<Vec<_>>().join(",");
    two.set.join_with(east, &["--air-gapped", "--clustercidr", &nets]).unwrap();
    settled(two, east);
    work(&host);
    two.set.join(east).unwrap();
    settled(two, east);
    two.east().node(2).netns().ip(&format!("link del {DEVICE}")).unwrap();
    two.say("a host outside");
}

/// Waits until the gateways run as they were set up, and carry traffic.
fn settled(two: &Two, cluster: &Cluster) {
    cluster.wait_rollout(MEMBER, "daemonset/submariner-gateway").unwrap();
    for cluster in two.set.clusters.all() {
        cluster.wait("the gateways to be ready", SOON, || cluster.gateways_carry()).unwrap();
    }
}

impl Host {
    fn start(two: &Two, networks: &[[&str; 3]], remote: &[IpNet]) -> anyhow::Result<Self> {
        let netns = two.lab.namespace("outside")?;
        let node = two.east().node(2).netns();
        node.ip(&format!(
            "link add {DEVICE} type veth peer name eth0 netns {}\nlink set {DEVICE} up",
            netns.name()
        ))?;
        netns.ip("link set lo up\nlink set eth0 up")?;
        let mut addresses = Vec::new();
        for [net, near, own] in networks {
            let (_, length) = net.split_once('/').unwrap_or((net, "0"));
            let nodad = if own.contains(':') { " nodad" } else { "" };
            node.ip(&format!("address add {near}/{length} dev {DEVICE}{nodad}"))?;
            netns.ip(&format!("address add {own}/{length} dev eth0{nodad}"))?;
            let own: IpAddr = own.parse()?;
            for net in remote.iter().filter(|net| net.addr().is_ipv4() == own.is_ipv4()) {
                netns.ip(&format!("route add {net} via {near}"))?;
            }
            addresses.push(own);
        }
        Ok(Self { responder: Responder::start_on(&netns, RESPONDER_PORT)?, netns, addresses })
    }

    /// Asks with every size, TCP and UDP; the server has to see the host's own address, which is given.
    fn asks(&self, to: SocketAddr) -> anyhow::Result<IpAddr> {
        eventually("the first answer", FIRST, || traffic::send_tcp(&self.netns, to, b"?", TRAFFIC))?;
        for size in SIZES {
            let bytes = traffic::pattern(size);
            traffic::send_tcp(&self.netns, to, &bytes, TRAFFIC)?.check(&bytes)?;
            traffic::send_udp(&self.netns, to, &bytes, TRAFFIC)?.check(&bytes)?;
        }
        let own = self.addresses.iter().find(|own| own.is_ipv4() == to.is_ipv4());
        own.copied().context("the host has no such address")
    }

    /// Is asked at each of its addresses, with every size; it has to see the pod, or the node, as other clusters do.
    fn is_asked_by(&self, actor: &Actor<'_>) -> anyhow::Result<Vec<IpAddr>> {
        let ask = |ip: &IpAddr| {
            let to = SocketAddr::new(*ip, self.responder.port());
            let seen = eventually("the first answer", FIRST, || actor.pod.tcp(to, 1))?.seen_as.ip();
            actor.expects(seen)?;
            actor.pod.exchange(to, &SIZES, seen)?;
            Ok(seen)
        };
        self.addresses.iter().map(ask).collect()
    }
}

fn seen(addresses: &[IpAddr]) -> anyhow::Result<String> {
    let all: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    Ok(format!("seen as {}", all.join(", ")))
}
