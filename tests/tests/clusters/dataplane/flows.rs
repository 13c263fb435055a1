//! DP-1..11 and ST-1: every placement, protocol, size and family, with the source address as the server sees it.

use std::net::{IpAddr, SocketAddr};

use anyhow::Context;
use trieste_tests::capture::Capture;
use trieste_tests::clusters::{Node, Pod, RESPONDER_PORT};
use trieste_tests::table::Table;

use super::{Scene, Side, is_active};

/// Payload bytes: small, nearly a packet, and what has to be cut in pieces.
const SIZES: [usize; 4] = [64, 1400, 3000, 9000];

/// What one row does.
struct Flow<'a> {
    id: &'static str,
    what: &'static str,
    client: &'a Pod,
    server: &'a Pod,
    /// Where the client sends to, each family's.
    to: Vec<SocketAddr>,
    source: Source<'a>,
}

/// Whose address the server has to see.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// The client's own.
    Own,
    /// One of the node's in its pod network, for what has no address there.
    PodNetworkOf(&'a Node),
}

/// All of them; each one's families at the same time.
pub(crate) fn run(scene: &Scene<'_>, table: &mut Table) {
    for (side, other) in scene.sides() {
        let what = format!("{} is connected, with a round trip", side.cluster.name());
        table.row("ST-1", &what, || status(side, other));
    }
    for flow in all(scene) {
        table.row(flow.id, flow.what, || flow.check(scene));
    }
}

/// Every gateway node has its Gateway; one is active, and knows how long the way to the other cluster is.
fn status(side: &Side<'_>, other: &Side<'_>) -> anyhow::Result<String> {
    let gateways = side.gateways()?;
    let active = gateways.iter().filter(|gateway| is_active(gateway)).count();
    let (labelled, _) = side.cluster.gateways_and_workers()?;
    anyhow::ensure!(gateways.len() == labelled.len() && active == 1, "{gateways:?}");
    let connection = side.connection(other)?;
    let rtt = &connection["latencyRTT"];
    let values: Option<Vec<_>> =
        ["min", "average", "max"].into_iter().map(|name| milliseconds(rtt[name].as_str()?)).collect();
    let values = values.with_context(|| format!("strange round trips: {rtt}"))?;
    anyhow::ensure!(
        values.is_sorted() && values[0] > 0.0 && values[2] < 5000.0,
        "strange round trips: {rtt}"
    );
    Ok(format!("{:.2} ms on average", values[1]))
}

/// A duration as Go writes it, below a minute.
fn milliseconds(text: &str) -> Option<f64> {
    for (unit, factor) in [("µs", 1e-3), ("us", 1e-3), ("ms", 1.0), ("ns", 1e-6), ("s", 1e3)] {
        if let Some(number) = text.strip_suffix(unit) {
            return number.parse::<f64>().ok().map(|number| number * factor);
        }
    }
    None
}

fn all<'a>(scene: &'a Scene<'_>) -> Vec<Flow<'a>> {
    let (east, west) = (&scene.east, &scene.west);
    let pods = [
        ("DP-1", "pod nGW → pod nGW", &east.on_worker, &west.on_worker),
        ("DP-2", "pod nGW → pod GW", &east.on_worker, &west.on_gateway),
        ("DP-3", "pod GW → pod nGW", &east.on_gateway, &west.on_worker),
        ("DP-4", "pod GW → pod GW", &east.on_gateway, &west.on_gateway),
        ("DP-11", "pod nGW → pod nGW, the other way", &west.on_worker, &east.on_worker),
    ];
    let services = [
        ("DP-5", "pod nGW → service nGW", &east.on_worker, &west.on_worker, &west.service_of_worker),
        ("DP-6", "pod nGW → service GW", &east.on_worker, &west.on_gateway, &west.service_of_gateway),
        ("DP-7", "pod GW → service nGW", &east.on_gateway, &west.on_worker, &west.service_of_worker),
        ("DP-8", "pod GW → service GW", &east.on_gateway, &west.on_gateway, &west.service_of_gateway),
        (
            "DP-5'",
            "pod nGW → service nGW, the other way",
            &west.on_worker,
            &east.on_worker,
            &east.service_of_worker,
        ),
    ];
    let hosts = [
        ("DP-9", "host nGW → pod nGW", &east.host_on_worker, &west.on_worker, east.worker),
        ("DP-10", "host GW → pod nGW", &east.host_on_gateway, &west.on_worker, east.gateway),
    ];
    let pods = pods.map(|(id, what, client, server)| Flow {
        id,
        what,
        client,
        server,
        to: server.responders(),
        source: Source::Own,
    });
    let services = services.map(|(id, what, client, server, service)| {
        let to = service.iter().map(|ip| SocketAddr::new(*ip, 80)).collect();
        Flow { id, what, client, server, to, source: Source::Own }
    });
    let hosts = hosts.map(|(id, what, client, server, node)| Flow {
        id,
        what,
        client,
        server,
        to: server.responders(),
        source: Source::PodNetworkOf(node),
    });
    pods.into_iter().chain(services).chain(hosts).collect()
}

impl Flow<'_> {
    /// TCP, UDP and, to pods, ICMP.
    fn check(&self, scene: &Scene<'_>) -> anyhow::Result<String> {
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                self.to.iter().map(|to| scope.spawn(|| self.check_one(scene, *to))).collect();
            threads.into_iter().map(|thread| thread.join().expect("checks return errors")).collect()
        });
        let mut seen = Vec::new();
        for result in results {
            seen.push(result?.to_string());
        }
        Ok(format!("seen as {}", seen.join(", ")))
    }

    fn check_one(&self, scene: &Scene<'_>, to: SocketAddr) -> anyhow::Result<IpAddr> {
        let seen = self.client.tcp(to, SIZES[0])?.seen_as.ip();
        self.expects(seen)?;
        self.client.exchange(to, &SIZES, seen)?;
        if to.port() == RESPONDER_PORT {
            self.ping(scene, to.ip(), seen)?;
        }
        Ok(seen)
    }

    fn expects(&self, seen: IpAddr) -> anyhow::Result<()> {
        let is_right = match self.source {
            Source::Own => self.client.address_like(seen)? == seen,
            Source::PodNetworkOf(node) => node.pod_cidrs().iter().any(|net| net.contains(&seen)),
        };
        anyhow::ensure!(is_right, "the server sees {seen}");
        Ok(())
    }

    /// Pings of all sizes; tcpdump in the server says where they came from.
    fn ping(&self, scene: &Scene<'_>, ip: IpAddr, seen: IpAddr) -> anyhow::Result<()> {
        let filter = format!("dst host {ip} and {}", if ip.is_ipv4() { "icmp" } else { "icmp6" });
        let capture = Capture::start(scene.lab, self.server.netns(), "any", &format!("dst host {ip}"))?;
        let mut sent = 0;
        for bytes in SIZES {
            sent += self.client.ping(ip, bytes)?.sent as usize;
        }
        let frames = capture.finish()?;
        // Later fragments have no ICMP header; what has one, or is one, must come from there.
        let (ours, all) = (frames.count(&format!("src host {seen}"))?, frames.count(&filter)?);
        anyhow::ensure!(ours >= sent, "of {sent} pings and {all} ICMP packets, {ours} came from {seen}");
        Ok(())
    }
}
