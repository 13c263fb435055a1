//! Packets for services, from a peer's cable to the nodes that serve them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use etherparse::PacketBuilder;
use trieste_packet::checksum::{fill_ipv4_header, transport_is_valid};
use trieste_packet::wire::{be16, put16};
use trieste_packet::{Checksum, FlowKey, Layout, LayoutKind, Packet};
use trieste_pipeline::TraceQuestion;
use trieste_pipeline::services::{Backends, Frontend, ServiceNode, Services, ServicesBuilder};
use trieste_vxlan::{HEAD_BYTES, Head, Mac, Protocol, Vni};

use crate::support::{A, End, POD_A, carry, pair, udp4};

/// A service that nodes 2 to 4 have back ends of.
pub(crate) const AWAY: [u8; 4] = [10, 2, 96, 10];
/// A service of this gateway's own node.
pub(crate) const HERE: [u8; 4] = [10, 2, 96, 11];
pub(crate) const PORT: u16 = 2;

fn node(index: u8) -> ServiceNode {
    ServiceNode { address: [172, 31, 9, index].into(), mac: Mac([2, 0x54, 172, 31, 9, index]) }
}

/// Two ends, the second of which is a gateway of node 1.
pub(crate) fn ends() -> (End, End, Arc<Services>) {
    let (a, mut b) = pair();
    let networks = ["10.2.96.0/20".parse().expect("a network")];
    let mut builder = ServicesBuilder::new(&networks, node(1), (1..=4).map(node), 4800);
    for (address, nodes) in [(AWAY, 2..=4), (HERE, 1..=1)] {
        for protocol in [6, 17] {
            let used: BTreeMap<IpAddr, u32> = nodes.clone().map(|index| (node(index).address, 1)).collect();
            let frontend = Frontend { address: address.into(), protocol, port: PORT };
            builder.set(frontend, &Backends { used, ..Backends::default() });
        }
    }
    let services = Arc::new(builder.build(1));
    b.line.follow_services(Arc::new(ArcSwap::new(Arc::clone(&services))));
    (a, b, services)
}

/// What an end has for nodes: the node's address, the head, and the packets, trains cut.
pub(crate) fn framed(end: &mut End) -> Vec<(IpAddr, Head, Vec<u8>)> {
    let sent: Vec<Packet> = end.line.to_wire.drain().collect();
    end.line.sent(sent.iter().map(Packet::segments).sum());
    let mut all = Vec::new();
    for packet in sent {
        assert_eq!((packet.outer.peer.port(), packet.outer.local), (4800, Some(node(1).address)));
        let stride = usize::from(packet.layout.stride_bytes).max(1);
        let stride = if packet.layout.kind == LayoutKind::Single { packet.bytes().len() } else { stride };
        for datagram in packet.bytes().chunks(stride) {
            let (head, inner) = Head::parse(datagram).expect("a VXLAN datagram");
            all.push((packet.outer.peer.ip(), head, inner.to_vec()));
        }
    }
    all
}

fn tcp(source_port: u16, payload: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ipv4(POD_A, AWAY, 64)
        .tcp(source_port, PORT, 1000, 64_000)
        .ack(1)
        .write(&mut bytes, &vec![7; payload])
        .expect("room in memory");
    bytes
}

fn node_of(services: &Services, protocol: u8, source_port: u16) -> IpAddr {
    services.node_of(&FlowKey::new(POD_A.into(), AWAY.into(), protocol, source_port, PORT)).expect("a node")
}

#[test]
fn a_packet_goes_unchanged_to_a_node_with_a_back_end_or_to_this_nodes_kernel() {
    let (mut a, mut b, services) = ends();
    let (away, here) = (udp4(POD_A, AWAY, 100), udp4(POD_A, HERE, 100));
    let (unknown, pod) = (udp4(POD_A, [10, 2, 96, 99], 100), udp4(POD_A, [10, 2, 0, 9], 100));
    let packets = [&away, &here, &unknown, &pod].map(|bytes| a.packet(bytes)).into();
    a.send(packets);
    carry(&mut a, &mut b, A, |_| {});
    let to = node_of(&services, 17, 1);
    let IpAddr::V4(v4) = to else { panic!("{to}") };
    let [_, _, _, last] = v4.octets();
    let head =
        Head { vni: Vni::NODES, destination: node(last).mac, source: node(1).mac, protocol: Protocol::Ipv4 };
    assert_eq!(b.line.to_wire.len(), 1);
    assert_eq!(framed(&mut b), [(to, head, away)]);
    assert_eq!(b.delivered(), [here, unknown, pod]);
    assert_eq!(b.line.counters.services_out, 1);
    b.assert_balanced();
}

#[test]
fn trace_says_which_node_a_service_is_at() {
    let (_, mut b, services) = ends();
    let mut ask = |destination: [u8; 4]| {
        let flow = FlowKey::new(POD_A.into(), destination.into(), 6, 4000, PORT);
        let trace = b.trace(&TraceQuestion { flow, is_outbound: false, is_answer: false });
        assert_eq!(trace.result, Some(flow));
        let step = trace.steps.into_iter().find(|step| step.stage == "deliver").expect("it is delivered");
        format!("{}: {}", step.decision, step.why)
    };
    let node = node_of(&services, 6, 4000);
    assert!(ask(AWAY).starts_with(&format!("to node {node} over the VXLAN")), "{}", ask(AWAY));
    assert!(ask(HERE).contains("a back end on this node"), "{}", ask(HERE));
    assert!(ask([10, 2, 96, 99]).contains("for kube-proxy"), "{}", ask([10, 2, 96, 99]));
    assert!(ask([10, 2, 0, 9]).starts_with("to the TUN device: from cluster"), "{}", ask([10, 2, 0, 9]));
}

#[test]
fn flows_are_spread_over_the_nodes_and_each_stays_where_it_is() {
    let (mut a, mut b, services) = ends();
    let mut seen = BTreeMap::new();
    for round in 0..2 {
        for source_port in 1000..1060 {
            let packet = a.packet(&tcp(source_port, round));
            a.send(vec![packet]);
        }
        carry(&mut a, &mut b, A, |_| {});
        for (to, _, inner) in framed(&mut b) {
            let port = be16(&inner, 20);
            assert_eq!(*seen.entry(port).or_insert(to), to);
            assert_eq!(to, node_of(&services, 6, port));
        }
    }
    assert_eq!(seen.len(), 60);
    b.assert_balanced();
}

#[test]
fn a_train_of_tcp_is_cut_into_frames_with_right_checksums() {
    let (mut a, mut b, _) = ends();
    let mut train = a.packet(&tcp(1234, 5 * 1000));
    train.layout = Layout::train(LayoutKind::Tcp, 40, 1000, 5);
    train.checksum = Checksum::Partial { start: 20, field: 36 };
    a.send(vec![train]);
    carry(&mut a, &mut b, A, |_| {});
    assert!(b.line.to_wire.as_slice().iter().any(|packet| packet.layout.is_train()), "they leave as one");
    let frames = framed(&mut b);
    assert_eq!(frames.len(), 5);
    for (_, _, inner) in &frames {
        assert_eq!(inner.len(), 1040);
        assert!(transport_is_valid(inner, 20));
    }
    assert!(b.line.to_tun.is_empty());
    b.assert_balanced();
}

#[test]
fn fragments_follow_their_first_and_errors_the_answers_they_are_about() {
    let (mut a, mut b, services) = ends();
    let mut whole = udp4(POD_A, AWAY, 2000);
    put16(&mut whole, 6, 0);
    fill_ipv4_header(&mut whole);
    let mut pool = trieste_packet::Pool::new(trieste_packet::PoolConfig { slots: 8, slot_bytes: 4096 });
    let mut pieces = Vec::new();
    trieste_packet::fragment::fragment_v4(&whole, 1000, &mut pool, |buf| pieces.push(buf.bytes().to_vec()))
        .unwrap();
    assert_eq!(pieces.len(), 3);
    // A later fragment whose first nobody has seen.
    let mut stray = pieces[1].clone();
    put16(&mut stray, 4, 4711);
    fill_ipv4_header(&mut stray);
    let packets = pieces.iter().chain([&stray]).map(|bytes| a.packet(bytes)).collect();
    a.send(packets);
    carry(&mut a, &mut b, A, |_| {});
    let to = node_of(&services, 17, 1);
    let frames: Vec<_> = framed(&mut b).into_iter().map(|(to, _, inner)| (to, inner)).collect();
    assert_eq!(frames, pieces.into_iter().map(|piece| (to, piece)).collect::<Vec<_>>());
    assert_eq!(b.delivered(), [stray]);

    let mut answer = Vec::new();
    PacketBuilder::ipv4(AWAY, POD_A, 64).tcp(PORT, 1234, 1, 1).write(&mut answer, &[1; 8]).unwrap();
    let mut error = Vec::new();
    let unreachable = etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1280 };
    PacketBuilder::ipv4(POD_A, AWAY, 64)
        .icmpv4(etherparse::Icmpv4Type::DestinationUnreachable(unreachable))
        .write(&mut error, &answer[..28])
        .unwrap();
    let packet = a.packet(&error);
    a.send(vec![packet]);
    carry(&mut a, &mut b, A, |_| {});
    let frames = framed(&mut b);
    assert_eq!(frames.len(), 1);
    assert_eq!((frames[0].0, &frames[0].2), (node_of(&services, 6, 1234), &error));
    assert_eq!(HEAD_BYTES, 22);
    b.assert_balanced();
}
