//! A connection in which all is well, to break one thing of it:
//!
//! ```text
//!   a: pod 10.1.1.5 on a-w1 ─ vx ─ a-gw1 ═ cable ═ b-gw1 ─ vx ─ b-w1: pod 10.2.1.7
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::json;
use trieste_control::admin::{BrokerLink, CableStatus, DiscoveryStatus, GatewayStatus};
use trieste_control::api::{Connection, ConnectionStatus, EndpointSpec, HaStatus, PublishedStatus};
use trieste_control::devices::VX_DEVICE;

use crate::node::document::{Link, Neighbour, NodeReport, Route, Rule};
use crate::node::wire::{Carrier, Seen, What};
use crate::node::{Direction, DropRule, Filters, Match, SendReport, SentPacket, Sighting, WatchReport};
use crate::path::evidence::{Cluster, Evidence, GatewayNode, Node, PodFacts, Side, probe};
use crate::path::trace::Place;
use crate::path::verdict::Way;

pub(super) const POD_A: &str = "10.1.1.5";
pub(super) const POD_B: &str = "10.2.1.7";
pub(super) const TUN: &str = "submariner";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// All is well.
pub(super) fn healthy() -> Evidence {
    let mut evidence = Evidence {
        source: cluster("a", "172.31.1", POD_A, "10.1.0.0/16", "10.2.0.0/16"),
        destination: cluster("b", "172.31.2", POD_B, "10.2.0.0/16", "10.1.0.0/16"),
        same_preshared_key: Some(true),
        ..Evidence::default()
    };
    let (a, b) = (evidence.source.endpoints[0].clone(), evidence.destination.endpoints[0].clone());
    evidence.source.endpoints.push(b.clone());
    evidence.destination.endpoints.push(a.clone());
    connect(&mut evidence.source, &b);
    connect(&mut evidence.destination, &a);
    evidence.probes.insert(probe::PING, Ok(answered(3)));
    for number in [probe::CABLE_THERE, probe::CABLE_BACK, probe::DISCOVERY_THERE, probe::DISCOVERY_BACK] {
        evidence.probes.insert(number, Ok(SendReport { sent: vec![sent(1, 120)], ..SendReport::default() }));
    }
    for number in [probe::UNDERLAY_THERE, probe::UNDERLAY_BACK] {
        evidence.probes.insert(number, Ok(answered(3)));
    }
    let sizes = [1000, 1400].map(|size| SentPacket { answered_us: Some(500), ..sent(1, size) });
    evidence.probes.insert(probe::SIZES, Ok(SendReport { sent: sizes.to_vec(), ..SendReport::default() }));
    see_all(&mut evidence);
    evidence
}

/// Adds a gateway to a side, by which the probe goes in some of its ways.
pub(super) fn add_gateway(evidence: &mut Evidence, side: Side, ways: &[Way]) {
    let kinds: Vec<What> = ways.iter().map(|way| kind(*way)).collect();
    let cluster = side_mut(evidence, side);
    let first = cluster.gateway.clone().unwrap();
    let name = format!("{}-gw2", cluster.id);
    let mut node = cluster.nodes[&first].clone();
    let sights = |node: &mut Node, keep: &dyn Fn(&What) -> bool| {
        node.watch.as_mut().unwrap().sights.retain(|sight| keep(&sight.seen.what));
    };
    sights(&mut node, &|what| kinds.contains(what));
    sights(cluster.nodes.get_mut(&first).unwrap(), &|what| !kinds.contains(what));
    cluster.nodes.insert(name.clone(), node);
    let further = EndpointSpec { hostname: name.clone(), ..cluster.endpoints[0].clone() };
    cluster.endpoints.push(further);
    cluster.active_gateways =
        [first, name].map(|name| GatewayNode { node: name.clone(), hostname: name }).to_vec();
}

fn kind(way: Way) -> What {
    match way {
        Way::There => What::EchoRequest,
        Way::Back => What::EchoReply,
    }
}

fn sent(number: u16, size: u16) -> SentPacket {
    SentPacket { number, size, ..SentPacket::default() }
}

pub(super) fn answered(count: u16) -> SendReport {
    let packets = (1..=count).map(|number| SentPacket { answered_us: Some(700), ..sent(number, 100) });
    SendReport { source: None, sent: packets.collect() }
}

pub(super) fn unanswered() -> SendReport {
    SendReport { source: None, sent: (1..=3).map(|number| sent(number, 100)).collect() }
}

fn endpoint(id: &str, net: &str, own: &str) -> EndpointSpec {
    EndpointSpec {
        cluster_id: id.to_owned(),
        cable_name: format!("submariner-cable-{id}"),
        hostname: format!("{id}-gw1"),
        subnets: vec![own.to_owned()],
        private_ip: format!("{net}.11"),
        public_ip: format!("{net}.11"),
        health_check_ip: "10.9.9.9".to_owned(),
        backend: "wireguard".to_owned(),
        backend_config: BTreeMap::from([
            ("udp-port".to_owned(), "4500".to_owned()),
            ("natt-discovery-port".to_owned(), "4490".to_owned()),
            ("interface-name".to_owned(), TUN.to_owned()),
        ]),
        ..EndpointSpec::default()
    }
}

fn cluster(id: &str, net: &str, pod: &str, own: &str, remote: &str) -> Cluster {
    let endpoint = endpoint(id, net, own);
    let (worker, gateway) = (format!("{id}-w1"), format!("{id}-gw1"));
    let addresses = [format!("{net}.21"), format!("{net}.11")];
    let node = |address: &str, report: NodeReport| Node {
        addresses: vec![ip(address)],
        before: Some(report.clone()),
        after: Some(report),
        watch: Some(WatchReport::default()),
        ..Node::default()
    };
    let worker_report = worker_report(&worker, remote, &addresses[1]);
    let gateway_report = gateway_report(&gateway, own, remote, &addresses[0], &endpoint);
    Cluster {
        visible: true,
        id: id.to_owned(),
        kubectl: format!(" --context {id}"),
        namespace: "submariner-operator".to_owned(),
        joined: true,
        pod: PodFacts {
            name: format!("shop/web-{id}"),
            address: Some(ip(pod)),
            known: true,
            ..PodFacts::default()
        },
        nodes: BTreeMap::from([
            (worker.clone(), node(&addresses[0], worker_report)),
            (gateway.clone(), node(&addresses[1], gateway_report)),
        ]),
        worker: Some(worker),
        gateway: Some(gateway.clone()),
        gateway_nodes: vec![gateway.clone()],
        gateway_pods: vec![(gateway, None)],
        gateways: vec![PublishedStatus {
            version: "1".to_owned(),
            ha_status: HaStatus::Active,
            local_endpoint: endpoint.clone(),
            status_failure: String::new(),
            connections: Vec::new(),
            extra: serde_json::Map::new(),
        }],
        networks: vec![own.parse().unwrap()],
        endpoints: vec![endpoint],
        ..Cluster::default()
    }
}

fn link(name: &str, kind: &str, mtu: u32) -> Link {
    let (name, kind) = (name.to_owned(), kind.to_owned());
    Link { name, kind, mtu, up: true, carrier: true, ..Link::default() }
}

fn route(table: &str, destination: &str, device: &str) -> Route {
    Route {
        table: table.to_owned(),
        kind: "unicast".to_owned(),
        destination: destination.parse().unwrap(),
        via: None,
        device: Some(device.to_owned()),
        source: None,
        metric: 0,
        protocol: "static".to_owned(),
        flags: Vec::new(),
    }
}

fn base(name: &str, towards: &str) -> NodeReport {
    let sysctls = [
        ("ipv4/ip_forward", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/vx-submariner/rp_filter", "2"),
        ("ipv4/conf/submariner/rp_filter", "0"),
    ];
    NodeReport {
        hostname: name.to_owned(),
        links: vec![link("eth0", "", 1500), link(VX_DEVICE, "vxlan", 1450)],
        routes: vec![route("main", "0.0.0.0/0", "eth0")],
        neighbours: vec![Neighbour { node: Some(ip(towards)), ..Neighbour::default() }],
        sysctls: sysctls.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        counters: BTreeMap::from([("IPReversePathFilter".to_owned(), 0)]),
        filters: Filters { readable: true, ..Filters::default() },
        ..NodeReport::default()
    }
}

fn worker_report(name: &str, remote: &str, gateway: &str) -> NodeReport {
    let mut report = base(name, gateway);
    report.routes.push(route("main", remote, VX_DEVICE));
    report
}

fn gateway_report(name: &str, own: &str, remote: &str, worker: &str, endpoint: &EndpointSpec) -> NodeReport {
    let mut report = base(name, worker);
    report.links.push(link(TUN, "tun", 1500));
    report.routes.push(route("150", remote, TUN));
    report.routes.push(route("149", own, VX_DEVICE));
    let rule = |table: &str, priority: u32| Rule { table: table.to_owned(), priority, ..Rule::default() };
    report.rules = vec![rule("150", 150), rule("149", 149)];
    let mut status: GatewayStatus = serde_json::from_value(json!({
        "version": "1", "pid": 1, "started": "2026-11-21T05:48:28Z", "cluster": endpoint.cluster_id,
        "hostname": name, "haStatus": "active", "endpoint": endpoint}))
    .unwrap();
    status.broker.state = BrokerLink::Synced;
    report.gateway = Some(status);
    report
}

fn connect(cluster: &mut Cluster, to: &EndpointSpec) {
    let connection = Connection {
        status: ConnectionStatus::Connected,
        endpoint: to.clone(),
        using_ip: to.private_ip.clone(),
        ..Connection::default()
    };
    let discovery = Some(DiscoveryStatus { state: "private".to_owned(), message: String::new() });
    let cable = CableStatus { connection, discovery, ..CableStatus::default() };
    statuses(cluster, |status| status.connections = vec![cable.clone()]);
}

/// Changes the gateway's status in both reports.
pub(super) fn statuses(cluster: &mut Cluster, change: impl Fn(&mut GatewayStatus)) {
    let gateway = cluster.gateway.clone().unwrap();
    reports(cluster, &gateway, |report| {
        if let Some(status) = report.gateway.as_mut() {
            change(status);
        }
    });
}

/// Changes both reports of a node.
pub(super) fn reports(cluster: &mut Cluster, node: &str, change: impl Fn(&mut NodeReport)) {
    let node = cluster.nodes.get_mut(node).unwrap();
    node.before.iter_mut().chain(&mut node.after).for_each(change);
}

/// Changes the newer report of a node: what grew while probes were on their way.
pub(super) fn later(cluster: &mut Cluster, node: &str, change: impl Fn(&mut NodeReport)) {
    cluster.nodes.get_mut(node).unwrap().after.iter_mut().for_each(change);
}

/// A rule that drops UDP to a port at a hook.
pub(super) fn drops_port(hook: &str, port: u16) -> DropRule {
    let ask =
        |field: &str, value: String| Match { field: field.to_owned(), negated: false, values: vec![value] };
    DropRule {
        chain: format!("inet firewall {hook}"),
        hooks: [hook.to_owned()].into(),
        matches: vec![ask("protocol", "udp".to_owned()), ask("dport", port.to_string())],
        text: format!("udp dport {port} drop"),
        handle: 7,
        packets: None,
    }
}

/// A rule that drops ICMP at a hook.
pub(super) fn drops_pings(hook: &str) -> DropRule {
    let mut rule = drops_port(hook, 0);
    rule.matches[0].values = vec!["icmp".to_owned()];
    rule.matches.pop();
    rule
}

fn see_all(evidence: &mut Evidence) {
    for way in [Way::There, Way::Back] {
        for place in PLACES {
            see(evidence, way, place);
        }
    }
    for (number, side) in [
        (probe::CABLE_THERE, Side::Source),
        (probe::CABLE_BACK, Side::Destination),
        (probe::DISCOVERY_THERE, Side::Source),
        (probe::DISCOVERY_BACK, Side::Destination),
    ] {
        for (side, way) in [(side, Direction::Out), (side.other(), Direction::In)] {
            let what = What::Udp { source_port: 9, destination_port: 9 };
            let sight = sighting(number, what, "eth0", way, None);
            let gateway = side_mut(evidence, side).gateway.clone().unwrap();
            push(evidence, side, &gateway, sight);
        }
    }
}

const PLACES: [Place; 12] = [
    Place::LeavesWorker,
    Place::LeavesCarried,
    Place::ArrivesCarried,
    Place::EntersGateway,
    Place::EntersTunnel,
    Place::LeavesTunnel,
    Place::LeavesGateway,
    Place::ForwardedCarried,
    Place::ReceivedCarried,
    Place::EntersWorker,
    Place::Delivered,
    Place::Answered,
];

fn side_mut(evidence: &mut Evidence, side: Side) -> &mut Cluster {
    match side {
        Side::Source => &mut evidence.source,
        Side::Destination => &mut evidence.destination,
    }
}

fn push(evidence: &mut Evidence, side: Side, node: &str, sight: Sighting) {
    let node = side_mut(evidence, side).nodes.get_mut(node).unwrap();
    node.watch.as_mut().unwrap().sights.push(sight);
}

fn sighting(number: u16, what: What, device: &str, way: Direction, carrier: Option<Carrier>) -> Sighting {
    let (source, destination) = match what {
        What::EchoReply => (POD_B, POD_A),
        What::EchoRequest | What::Udp { .. } | What::Error { .. } => (POD_A, POD_B),
    };
    let (source, destination) = (ip(source), ip(destination));
    let seen =
        Seen { probe: number, number: Some(1), source, destination, ttl: 60, length: 100, what, carrier };
    Sighting { time: Timestamp::UNIX_EPOCH, device: device.to_owned(), way, seen }
}

/// Where a place is: of which side, on the gateway or not, by which device, in or out.
fn see(evidence: &mut Evidence, way: Way, place: Place) {
    let from = if way == Way::There { Side::Source } else { Side::Destination };
    let (is_sender, is_gateway, device, direction, is_carried) = match place {
        Place::Start => return,
        Place::LeavesWorker => (true, false, VX_DEVICE, Direction::Out, false),
        Place::LeavesCarried => (true, false, "eth0", Direction::Out, true),
        Place::ArrivesCarried => (true, true, "eth0", Direction::In, true),
        Place::EntersGateway => (true, true, VX_DEVICE, Direction::In, false),
        Place::EntersTunnel => (true, true, TUN, Direction::Out, false),
        Place::LeavesTunnel => (false, true, TUN, Direction::In, false),
        Place::LeavesGateway => (false, true, VX_DEVICE, Direction::Out, false),
        Place::ForwardedCarried => (false, true, "eth0", Direction::Out, true),
        Place::ReceivedCarried => (false, false, "eth0", Direction::In, true),
        Place::EntersWorker => (false, false, VX_DEVICE, Direction::In, false),
        Place::Delivered => (false, false, "veth1", Direction::Out, false),
        Place::Answered => {
            if way == Way::There {
                let sight = sighting(probe::PING, What::EchoReply, "veth1", Direction::In, None);
                let worker = evidence.destination.worker.clone().unwrap();
                push(evidence, Side::Destination, &worker, sight);
            }
            return;
        }
    };
    let side = if is_sender { from } else { from.other() };
    let cluster = side_mut(evidence, side);
    let node = if is_gateway { &cluster.gateway } else { &cluster.worker }.clone().unwrap();
    let what = if way == Way::There { What::EchoRequest } else { What::EchoReply };
    let carrier = is_carried.then(|| Carrier { source: ip("172.31.1.21"), destination: ip("172.31.1.11") });
    push(evidence, side, &node, sighting(probe::PING, what, device, direction, carrier));
}

/// The pings get no further than before this place.
pub(super) fn lost_before(evidence: &mut Evidence, way: Way, place: Place) {
    for side in [Side::Source, Side::Destination] {
        for node in side_mut(evidence, side).nodes.values_mut() {
            node.watch.as_mut().unwrap().sights.retain(|sight| sight.seen.probe != probe::PING);
        }
    }
    evidence.probes.insert(probe::PING, Ok(unanswered()));
    evidence.probes.remove(&probe::SIZES);
    let until = |evidence: &mut Evidence, way: Way, end: Option<Place>| {
        PLACES
            .into_iter()
            .filter(|each| end.is_none_or(|end| *each < end))
            .for_each(|each| see(evidence, way, each));
    };
    match way {
        Way::There => until(evidence, Way::There, Some(place)),
        Way::Back => {
            until(evidence, Way::There, None);
            until(evidence, Way::Back, Some(place));
        }
    }
}

/// The datagrams of a probe do not arrive.
pub(super) fn lose_datagrams(evidence: &mut Evidence, number: u16) {
    for side in [Side::Source, Side::Destination] {
        for node in side_mut(evidence, side).nodes.values_mut() {
            let sights = &mut node.watch.as_mut().unwrap().sights;
            sights.retain(|sight| sight.seen.probe != number || sight.way == Direction::Out);
        }
    }
}

pub(super) const GLOBAL_A: &str = "242.1.0.3";
pub(super) const GLOBAL_B: &str = "242.2.0.5";

/// Both clusters publish global networks alone: packets have a global source in the other cluster, and routes lead to global
/// addresses.
pub(super) fn globalnet(evidence: &mut Evidence) {
    let networks = [("10.1.0.0/16", "242.1.0.0/16"), ("10.2.0.0/16", "242.2.0.0/16")];
    let global =
        |net: &str| networks.iter().find(|(own, _)| *own == net).map_or(net, |(_, net)| *net).to_owned();
    for side in [Side::Source, Side::Destination] {
        let cluster = side_mut(evidence, side);
        cluster.is_global = true;
        cluster.networks =
            cluster.networks.iter().map(|net| global(&net.to_string()).parse().unwrap()).collect();
        for subnet in cluster.endpoints.iter_mut().flat_map(|endpoint| &mut endpoint.subnets) {
            *subnet = global(subnet);
        }
        let reports =
            cluster.nodes.values_mut().flat_map(|node| node.before.iter_mut().chain(&mut node.after));
        for route in reports.flat_map(|report| &mut report.routes).filter(|route| route.table != "149") {
            route.destination = global(&route.destination.to_string()).parse().unwrap();
        }
        let sights = cluster.nodes.values_mut().flat_map(|node| &mut node.watch.as_mut().unwrap().sights);
        for seen in sights.map(|sight| &mut sight.seen) {
            match (side, seen.what) {
                (Side::Source, What::EchoRequest) => seen.destination = ip(GLOBAL_B),
                (Side::Source, What::EchoReply) => seen.source = ip(GLOBAL_B),
                (Side::Destination, What::EchoRequest) => seen.source = ip(GLOBAL_A),
                (Side::Destination, What::EchoReply) => seen.destination = ip(GLOBAL_A),
                _ => {}
            }
        }
    }
    evidence.destination.pod.outside = Some(ip(GLOBAL_B));
}

/// A pod has its node's network: there is no device towards it.
pub(super) fn on_host_network(evidence: &mut Evidence, side: Side) {
    let cluster = side_mut(evidence, side);
    cluster.pod.host_network = true;
    let worker = cluster.worker.clone().unwrap();
    let node = cluster.nodes.get_mut(&worker).unwrap();
    node.watch.as_mut().unwrap().sights.retain(|sight| sight.device != "veth1");
}

/// Every sight of the ping has this source: it got it on the first node.
pub(super) fn translated(evidence: &mut Evidence, source: &str) {
    for side in [Side::Source, Side::Destination] {
        for node in side_mut(evidence, side).nodes.values_mut() {
            for sight in &mut node.watch.as_mut().unwrap().sights {
                if sight.seen.what == What::EchoRequest {
                    sight.seen.source = ip(source);
                }
            }
        }
    }
}
