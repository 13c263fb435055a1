//! Probes from a peer's tunnel address: answered through the tunnel, and never seen by the host.
#![expect(clippy::disallowed_methods, reason = "boringtun reads the real clock")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use proptest::prelude::*;
use trieste_cables::{CableKind as _, LaneConfig};
use trieste_packet::checksum::transport_is_valid;
use trieste_packet::{CableId, DropReason, LaneId, Packet};
use trieste_pipeline::{LaneCommand, TablesBuilder};

use crate::support::{self, A, B, End, MTU, POD_A, carry, end};

/// The prober's addresses: what its tunnel has, one that looks like it and is not, and its health-check address.
const PRIVATE_A: [u8; 4] = [172, 31, 1, 11];
const PUBLIC_A: [u8; 4] = [198, 51, 100, 1];
const VTEP_A: [u8; 4] = [241, 31, 1, 11];
const STRANGER: [u8; 4] = [172, 31, 1, 12];
/// Our health-check address.
const HEALTH_B: [u8; 4] = [10, 2, 0, 1];
const HEALTH_B6: &str = "fd02::1";
const PRIVATE_A6: &str = "2001:db8::11";

/// A prober that may send anything, and a gateway that knows its tunnel addresses.
fn prober_and_gateway() -> (End, End) {
    let (mut a, mut b) = (end(1), end(2));
    let (a_public, b_public) = (a.kind.backend_config(), b.kind.backend_config());
    b.tunnels = [PRIVATE_A, PUBLIC_A, VTEP_A].map(|octets| IpAddr::from(Ipv4Addr::from(octets))).into();
    b.tunnels.push(PRIVATE_A6.parse().unwrap());
    let (subnets_b, subnets_a) = (["10.2.0.0/16", "fd02::/64"], ["10.1.0.0/16", "fd01::/64"]);
    b.know(&subnets_b, &["10.2.0.1", HEALTH_B6], &subnets_a, &a_public, None);
    let everything_else = ["0.0.0.0/5", "128.0.0.0/1", "10.1.0.0/16", "2001:db8::/32", "fd01::/64"];
    a.know(&everything_else, &[], &subnets_b, &b_public, Some(B));
    for _ in 0..4 {
        carry(&mut a, &mut b, A, |_| {});
        carry(&mut b, &mut a, B, |_| {});
    }
    (a, b)
}

fn echo4(source: [u8; 4], destination: [u8; 4], payload: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ipv4(source, destination, 61).icmpv4_echo_request(7, 9);
    builder.write(&mut bytes, &vec![3; payload]).unwrap();
    bytes
}

fn echo6(source: &str, destination: &str) -> Vec<u8> {
    let octets = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ipv6(octets(source), octets(destination), 61).icmpv6_echo_request(7, 9);
    builder.write(&mut bytes, &[3; 24]).unwrap();
    bytes
}

/// Sends packets from `a` to `b`.
fn exchange(a: &mut End, b: &mut End, packets: &[Vec<u8>]) {
    let packets = packets.iter().map(|bytes| a.packet(bytes)).collect();
    a.send(packets);
    carry(a, b, A, |_| {});
}

/// Opens at `a` what `b` has sealed.
fn replies(a: &mut End, b: &mut End) -> Vec<Vec<u8>> {
    carry(b, a, B, |_| {});
    a.delivered()
}

#[test]
fn a_probe_from_a_tunnel_address_is_answered_through_the_tunnel() {
    let (mut a, mut b) = prober_and_gateway();
    for source in [PRIVATE_A, PUBLIC_A, VTEP_A] {
        let request = echo4(source, HEALTH_B, 24);
        exchange(&mut a, &mut b, std::slice::from_ref(&request));
        assert!(b.delivered().is_empty(), "the host never sees it");
        let answers = replies(&mut a, &mut b);
        assert_eq!(answers.len(), 1);
        assert_eq!((&answers[0][12..16], &answers[0][16..20]), (&HEALTH_B[..], &source[..]));
        assert_eq!((answers[0][8], answers[0][20]), (64, 0));
        assert_eq!(answers[0][24..], request[24..]);
        assert!(transport_is_valid(&answers[0], 20));
    }
    exchange(&mut a, &mut b, &[echo6(PRIVATE_A6, HEALTH_B6)]);
    let answers = replies(&mut a, &mut b);
    assert_eq!((answers[0][7], answers[0][40]), (64, 129));
    assert!(transport_is_valid(&answers[0], 40));
    assert_eq!((b.line.counters.probes_answered, b.line.drops.total()), (4, 0));
    a.assert_balanced();
    b.assert_balanced();
}

#[test]
fn a_probe_from_inside_the_peers_subnets_goes_to_the_host() {
    let (mut a, mut b) = prober_and_gateway();
    let request = echo4(POD_A, HEALTH_B, 24);
    exchange(&mut a, &mut b, std::slice::from_ref(&request));
    assert_eq!(b.delivered(), [request]);
    assert_eq!(b.line.counters.probes_answered, 0);
    b.assert_balanced();
}

#[test]
fn everything_else_from_a_tunnel_address_is_dropped() {
    let (mut a, mut b) = prober_and_gateway();
    let mut fragment = echo4(PRIVATE_A, HEALTH_B, 24);
    fragment[6] = 0x20;
    trieste_packet::checksum::fill_ipv4_header(&mut fragment);
    let mut spoiled = echo4(PRIVATE_A, HEALTH_B, 24);
    spoiled[30] ^= 1;
    let cases = [
        ("udp", support::udp4(PRIVATE_A, HEALTH_B, 10)),
        ("a stranger's probe", echo4(STRANGER, HEALTH_B, 24)),
        ("a probe of a pod", echo4(PRIVATE_A, [10, 2, 0, 9], 24)),
        ("a fragment", fragment),
        ("a wrong checksum", spoiled),
    ];
    for (name, bytes) in cases {
        let before = b.dropped(DropReason::SourceNotAllowed);
        exchange(&mut a, &mut b, &[bytes]);
        assert!(b.delivered().is_empty(), "{name}");
        assert!(b.line.to_wire.is_empty(), "{name}");
        assert_eq!(b.dropped(DropReason::SourceNotAllowed), before + 1, "{name}");
    }
    assert_eq!(b.line.counters.probes_answered, 0);
    b.assert_balanced();
}

#[test]
fn a_probe_that_does_not_fit_the_path_back_is_dropped() {
    let (mut a, mut b) = prober_and_gateway();
    let fits = echo4(PRIVATE_A, HEALTH_B, usize::from(MTU) - 28);
    exchange(&mut a, &mut b, &[fits]);
    assert_eq!(replies(&mut a, &mut b)[0].len(), usize::from(MTU));

    // The way back becomes narrower than the way here.
    let net = |text: &str| text.parse().unwrap();
    let mut builder = TablesBuilder::new(9, &[net("10.2.0.0/16")], &[IpAddr::from(HEALTH_B)]);
    let cluster = builder.cluster("other", &[net("10.1.0.0/16")]).unwrap();
    builder.path(cluster, b.lane, CableId(1), MTU - 1).unwrap();
    builder.tunnel_address(b.lane, IpAddr::from(PRIVATE_A));
    b.tables.store(Arc::new(builder.build()));
    exchange(&mut a, &mut b, &[echo4(PRIVATE_A, HEALTH_B, usize::from(MTU) - 28)]);
    assert!(b.line.to_wire.is_empty() && b.delivered().is_empty());
    assert_eq!(b.dropped(DropReason::SourceNotAllowed), 1);
    b.assert_balanced();
}

#[test]
fn a_flood_of_probes_is_answered_within_the_limit_and_counted() {
    let (mut a, mut b) = prober_and_gateway();
    // One received train, mixed with data for a pod.
    let mut packets = vec![echo4(VTEP_A, HEALTH_B, 24); 50];
    packets.push(support::udp4(POD_A, [10, 2, 0, 9], 24));
    exchange(&mut a, &mut b, &packets);
    assert_eq!(b.delivered().len(), 1);
    let (answered, refused) = (b.line.counters.probes_answered, b.dropped(DropReason::IcmpLimit));
    assert_eq!(answered + refused, 50);
    assert!((20..25).contains(&answered), "{answered}");
    assert_eq!(replies(&mut a, &mut b).len() as u64, answered);
    b.assert_balanced();
}

#[test]
fn a_worker_that_gets_many_cables_at_once_greets_every_peer_and_drops_nothing() {
    let (mut b, others) = (end(0), end(1));
    let start = Instant::now();
    for lane in 0..800u32 {
        let (lane, cable) = (LaneId(lane << 8), CableId(u16::try_from(lane + 1).unwrap()));
        let peer = Some(format!("192.0.2.9:{}", 1000 + lane.0 / 256).parse().unwrap());
        let config = LaneConfig::new(lane, cable, peer, others.kind.backend_config());
        let tunnel = b.kind.connect(&config, start).unwrap();
        b.line.command(LaneCommand::Add { lane, cable, tunnel, watch: None }, start);
    }
    let mut greeted = std::collections::BTreeSet::new();
    let mut send = |b: &mut End| {
        assert!(b.line.to_wire.len() <= 64, "{} at once", b.line.to_wire.len());
        let sent: Vec<Packet> = b.line.to_wire.drain().collect();
        b.line.sent(sent.len() as u64);
        for packet in sent {
            greeted.insert(packet.outer.peer);
            b.line.pool.recycle(packet.buf);
        }
        greeted.len()
    };
    let mut turns = 0;
    while send(&mut b) < 800 {
        turns += 1;
        assert!(turns < 30, "all are greeted in less than 0.3 s");
        let due = b.line.poll_timeout().unwrap();
        assert!(due <= start + Duration::from_millis(10) * (turns + 1));
        b.line.handle_timeout(due);
    }
    assert_eq!(b.line.drops.total(), 0);
    b.assert_balanced();
}

/// Packets of all sorts from a tunnel address, whole and cut, to addresses of all sorts.
fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let source = prop_oneof![Just(PRIVATE_A), Just(PUBLIC_A), Just(VTEP_A)];
    let destination =
        prop_oneof![Just(HEALTH_B), any::<[u8; 2]>().prop_map(|[c, d]| [10, 2, c, d]), any::<[u8; 4]>(),];
    let transport = prop::collection::vec(any::<u8>(), 0..80);
    let protocol = prop_oneof![Just(1u8), Just(6), Just(17), any::<u8>()];
    (source, destination, protocol, transport, any::<u16>(), any::<bool>()).prop_map(
        |(source, destination, protocol, rest, fragment, is_echo)| {
            let mut bytes = echo4(source, destination, rest.len());
            bytes[9] = protocol;
            if !is_echo {
                bytes.truncate(20);
                bytes.extend_from_slice(&rest);
                let length = u16::try_from(bytes.len()).unwrap();
                bytes[2..4].copy_from_slice(&length.to_be_bytes());
                bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
            }
            trieste_packet::checksum::fill_ipv4_header(&mut bytes);
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_packet_from_a_tunnel_address_ever_reaches_the_host(
        packets in prop::collection::vec(any_packet(), 1..40),
    ) {
        let (mut a, mut b) = prober_and_gateway();
        exchange(&mut a, &mut b, &packets);
        prop_assert!(b.delivered().is_empty());
        let answered = b.line.counters.probes_answered;
        let answers = replies(&mut a, &mut b);
        prop_assert_eq!(answers.len() as u64, answered);
        for reply in answers {
            prop_assert_eq!((&reply[12..16], reply[9], reply[20]), (&HEALTH_B[..], 1, 0));
        }
        let counters = b.line.snapshot(Instant::now());
        prop_assert!(counters.conservation().holds(), "{:?}", counters);
    }
}
