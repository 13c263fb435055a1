//! DP-1..12 and ST-1: every placement, protocol, size and family, with the source address as the server sees it.

use std::net::{IpAddr, SocketAddr};

use anyhow::Context;
use trieste_tests::capture::Capture;
use trieste_tests::clusters::RESPONDER_PORT;
use trieste_tests::lab::Lab;
use trieste_tests::table::Table;
use trieste_tests::wait::eventually;

use super::{connection, gateways, is_active};
use crate::shared::{AT_ONCE, SOON, in_parallel};
use crate::sides::{Actor, SERVICE_PORT, Side};

/// Payload bytes: small, nearly a packet, and what has to be cut in pieces.
const SIZES: [usize; 4] = [64, 1400, 3000, 9000];

/// What one row does.
struct Flow<'a> {
    id: &'static str,
    what: &'static str,
    client: &'a Actor<'a>,
    server: &'a Actor<'a>,
    /// Where the client sends to, each family's.
    to: Vec<SocketAddr>,
}

/// All of them, some at the same time, and each one's families too: they mostly wait for answers.
pub(crate) fn run(lab: &Lab, sides: &[Side<'_>; 2], table: &Table) {
    for (side, other) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
        let what = format!("{} is connected, with a round trip", side.cluster.name());
        table.row("ST-1", &what, || eventually(&what, SOON, || status(side, other)));
    }
    table.row("DP-12", "pod nGW → pods of a headless service", || headless(lab, sides));
    for some in all(sides).chunks(AT_ONCE) {
        in_parallel(some, |flow| table.row(flow.id, flow.what, || flow.check(lab)));
    }
}

/// Every gateway node has its Gateway; one is active, and knows how long the way to the other cluster is.
fn status(side: &Side<'_>, other: &Side<'_>) -> anyhow::Result<String> {
    let gateways = gateways(side.cluster)?;
    let active = gateways.iter().filter(|gateway| is_active(gateway)).count();
    let (labelled, _) = side.cluster.gateways_and_workers()?;
    anyhow::ensure!(gateways.len() == labelled.len() && active == 1, "{gateways:?}");
    let connection = connection(side.cluster, other.cluster)?;
    let rtt = &connection["latencyRTT"];
    let values: Option<Vec<_>> =
        ["min", "average", "max"].into_iter().map(|name| milliseconds(rtt[name].as_str()?)).collect();
    let values = values.with_context(|| format!("strange round trips: {rtt}"))?;
    anyhow::ensure!(values.is_sorted() && values[0] > 0.0, "strange round trips: {rtt}");
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

/// Every address that Kubernetes names behind a headless service, which a name would stand for.
fn headless(lab: &Lab, [east, west]: &[Side<'_>; 2]) -> anyhow::Result<String> {
    let server = &west.on_worker;
    let to = west.cluster.start_headless("headless", &server.pod.name)?;
    anyhow::ensure!(to.len() == 2 && to.iter().all(|to| server.pod.responders().contains(to)), "{to:?}");
    Flow { id: "DP-12", what: "", client: &east.on_worker, server, to }.check(lab)
}

/// Pods of the first side ask the services of the second.
pub(crate) fn to_services(lab: &Lab, sides: &[Side<'_>; 2], table: &Table) {
    let services = all(sides).into_iter().filter(|flow| flow.is_from(&sides[0]) && flow.is_to_service());
    let services: Vec<_> = services.map(|flow| Flow { id: "SV-1", ..flow }).collect();
    in_parallel(&services, |flow| table.row(flow.id, flow.what, || flow.check(lab)));
    let (client, server) = (&sides[0].on_worker, &sides[1].host_on_worker);
    table.row("SV-5", "pod nGW → service of a back end in the host's network", || to_host(client, server));
}

/// TCP, which sees the client, and UDP to a socket that binds any address, which does not.
fn to_host(client: &Actor<'_>, server: &Actor<'_>) -> anyhow::Result<String> {
    let mut seen = Vec::new();
    for to in server.service.iter().map(|ip| SocketAddr::new(*ip, SERVICE_PORT)) {
        client.expects(client.pod.tcp(to, SIZES[1])?.seen_as.ip())?;
        for bytes in SIZES {
            let by = client.pod.udp(to, bytes)?.seen_as.ip();
            anyhow::ensure!(server.node.addresses().contains(&by), "UDP to {to} is seen as {by}");
            seen.push(by);
        }
    }
    seen.dedup();
    Ok(format!("UDP seen as {seen:?}"))
}

fn all<'a>(sides: &'a [Side<'a>; 2]) -> Vec<Flow<'a>> {
    let [east, west] = sides;
    let pod = |id, what, client, server: &'a Actor<'a>| Flow {
        id,
        what,
        client,
        server,
        to: server.pod.responders(),
    };
    let service = |id, what, client, server: &'a Actor<'a>| {
        let to = server.service.iter().map(|ip| SocketAddr::new(*ip, SERVICE_PORT)).collect();
        Flow { id, what, client, server, to }
    };
    vec![
        pod("DP-1", "pod nGW → pod nGW", &east.on_worker, &west.on_worker),
        pod("DP-2", "pod nGW → pod GW", &east.on_worker, &west.on_gateway),
        pod("DP-3", "pod GW → pod nGW", &east.on_gateway, &west.on_worker),
        pod("DP-4", "pod GW → pod GW", &east.on_gateway, &west.on_gateway),
        pod("DP-11", "pod nGW → pod nGW, the other way", &west.on_worker, &east.on_worker),
        service("DP-5", "pod nGW → service nGW", &east.on_worker, &west.on_worker),
        service("DP-6", "pod nGW → service GW", &east.on_worker, &west.on_gateway),
        service("DP-7", "pod GW → service nGW", &east.on_gateway, &west.on_worker),
        service("DP-8", "pod GW → service GW", &east.on_gateway, &west.on_gateway),
        service("DP-5'", "pod nGW → service nGW, the other way", &west.on_worker, &east.on_worker),
        pod("DP-9", "host nGW → pod nGW", &east.host_on_worker, &west.on_worker),
        pod("DP-10", "host GW → pod nGW", &east.host_on_gateway, &west.on_worker),
    ]
}

impl Flow<'_> {
    fn is_from(&self, side: &Side<'_>) -> bool {
        side.actors().iter().any(|(_, actor)| std::ptr::eq(*actor, self.client))
    }

    fn is_to_service(&self) -> bool {
        self.to.iter().all(|to| to.port() == SERVICE_PORT)
    }

    /// TCP, UDP and, to pods, ICMP.
    fn check(&self, lab: &Lab) -> anyhow::Result<String> {
        let results = in_parallel(&self.to, |to| self.check_one(lab, *to));
        let seen: Vec<_> =
            results.into_iter().map(|seen| Ok(seen?.to_string())).collect::<anyhow::Result<_>>()?;
        Ok(format!("seen as {}", seen.join(", ")))
    }

    fn check_one(&self, lab: &Lab, to: SocketAddr) -> anyhow::Result<IpAddr> {
        let seen = self.client.pod.tcp(to, SIZES[0])?.seen_as.ip();
        self.client.expects(seen)?;
        self.client.pod.exchange(to, &SIZES, seen)?;
        if to.port() == RESPONDER_PORT {
            self.ping(lab, to.ip(), seen)?;
        }
        Ok(seen)
    }

    /// Pings of all sizes; tcpdump in the server says where they came from.
    fn ping(&self, lab: &Lab, ip: IpAddr, seen: IpAddr) -> anyhow::Result<()> {
        let filter = format!("dst host {ip} and {}", if ip.is_ipv4() { "icmp" } else { "icmp6" });
        let capture = Capture::start(lab, self.server.pod.netns(), "any", &format!("dst host {ip}"))?;
        let mut sent = 0;
        for bytes in SIZES {
            sent += self.client.pod.ping(ip, bytes)?.sent as usize;
        }
        let frames = capture.finish()?;
        // Later fragments have no ICMP header; what has one, or is one, must come from there.
        let (ours, all) = (frames.count(&format!("src host {seen}"))?, frames.count(&filter)?);
        anyhow::ensure!(ours >= sent, "of {sent} pings and {all} ICMP packets, {ours} came from {seen}");
        Ok(())
    }
}
