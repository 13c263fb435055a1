//! Two whole lines joined back to back, with real WireGuard cables between them.
#![expect(clippy::disallowed_methods, reason = "boringtun reads the real clock")]

use std::sync::Arc;
use std::time::Instant;

use etherparse::{PacketBuilder, TcpOptionElement};
use trieste_cables::{CableKind as _, LaneConfig};
use trieste_packet::checksum::{Sum, transport_is_valid};
use trieste_packet::wire::{be16, be32, put16, set_ecn};
use trieste_packet::{Batch, CableId, Checksum, DropReason, LaneId, Layout, LayoutKind, Packet};
use trieste_pipeline::{LaneCommand, TablesBuilder};

use crate::support::{A, B, MTU, POD_A, POD_B, carry, end, joined, pair, udp4};

#[test]
fn packets_of_both_families_arrive_unchanged() {
    let (mut a, mut b) = pair();
    let v4 = udp4(POD_A, POD_B, 100);
    let mut v6 = Vec::new();
    let address = |net: u8| [0xfd, net, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    PacketBuilder::ipv6(address(1), address(2), 64).udp(1, 2).write(&mut v6, &[5; 77]).unwrap();
    let packets = vec![a.packet(&v4), a.packet(&v6)];
    a.send(packets);
    carry(&mut a, &mut b, A, |_| {});
    assert_eq!(b.delivered(), [v4, v6]);
    a.assert_balanced();
    b.assert_balanced();
}

#[test]
fn a_hostile_peer_cannot_send_from_or_to_what_is_not_its_own() {
    // This end believes that it has every address, and the other everything.
    let (mut a, mut b) = joined(&["0.0.0.0/1", "128.0.0.0/2"], &["192.0.0.0/3"]);
    let b_public = b.kind.backend_config();
    a.know(&["10.1.0.0/16", "10.99.0.0/16", "172.16.0.0/12"], &[], &["10.2.0.0/16"], &b_public, Some(B));
    for _ in 0..4 {
        carry(&mut a, &mut b, A, |_| {});
        carry(&mut b, &mut a, B, |_| {});
    }
    let spoofed = a.packet(&udp4([10, 99, 0, 1], POD_B, 10));
    let from_b = a.packet(&udp4([172, 16, 0, 1], POD_B, 10));
    a.send(vec![spoofed, from_b]);
    carry(&mut a, &mut b, A, |_| {});
    assert!(b.delivered().is_empty());
    assert_eq!(b.dropped(DropReason::SourceNotAllowed), 2);
    b.assert_balanced();
}

#[test]
fn packets_for_a_remote_cluster_or_for_nobody_are_not_delivered() {
    let (mut a, mut b) = pair();
    let b_public = b.kind.backend_config();
    // The peer routes more to us than is ours: its own addresses, and a stranger's.
    a.know(&["10.1.0.0/17"], &[], &["10.1.128.0/17", "192.0.2.0/24"], &b_public, Some(B));
    for _ in 0..4 {
        carry(&mut a, &mut b, A, |_| {});
        carry(&mut b, &mut a, B, |_| {});
    }
    let back = a.packet(&udp4(POD_A, [10, 1, 128, 1], 10));
    let astray = a.packet(&udp4(POD_A, [192, 0, 2, 77], 10));
    a.send(vec![back, astray]);
    carry(&mut a, &mut b, A, |_| {});
    assert!(b.delivered().is_empty());
    assert_eq!((b.dropped(DropReason::Loop), b.dropped(DropReason::DestinationNotLocal)), (1, 1));
    b.assert_balanced();
}

#[test]
fn outbound_packets_that_may_not_cross_are_dropped_with_the_reason() {
    let (mut a, _b) = pair();
    let mut short = udp4(POD_A, POD_B, 10);
    short.truncate(15);
    let cases = [
        (udp4(POD_A, [10, 3, 0, 1], 10), DropReason::NoRoute),
        (udp4([192, 0, 2, 9], POD_B, 10), DropReason::SourceNotLocal),
        (udp4(POD_A, [224, 0, 0, 5], 10), DropReason::NotUnicast),
        (udp4(POD_A, [255, 255, 255, 255], 10), DropReason::NotUnicast),
        (short, DropReason::MalformedHeader),
        (vec![0x12; 40], DropReason::NotIp),
    ];
    for (bytes, reason) in &cases {
        let packet = a.packet(bytes);
        let before = a.dropped(*reason);
        a.send(vec![packet]);
        assert_eq!(a.dropped(*reason), before + 1, "{reason:?}");
    }
    assert!(a.line.to_wire.is_empty());
    a.assert_balanced();
}

#[test]
fn congestion_marks_of_the_underlay_reach_the_pod() {
    let (mut a, mut b) = pair();
    let mut capable = udp4(POD_A, POD_B, 10);
    set_ecn(&mut capable, 2);
    let packets = vec![a.packet(&capable), a.packet(&udp4(POD_A, POD_B, 10))];
    a.send(packets);
    // The outer header carries the inner field.
    let outer: Vec<u8> = a.line.to_wire.as_slice().iter().map(|packet| packet.outer.tos & 3).collect();
    assert_eq!(outer, [2, 0]);
    carry(&mut a, &mut b, A, |packet| packet.outer.tos |= 3);
    let delivered = b.delivered();
    assert_eq!(delivered.len(), 1);
    assert_eq!(delivered[0][1] & 3, 3);
    assert_eq!(Sum::ZERO.bytes(&delivered[0][..20]).folded(), 0xffff);
    assert_eq!(b.dropped(DropReason::EcnNotCapable), 1);
    b.assert_balanced();
}

#[test]
fn too_big_packets_with_df_are_answered_and_without_it_fragmented() {
    let (mut a, mut b) = pair();
    let with_df = |mut bytes: Vec<u8>, df: bool| {
        put16(&mut bytes, 6, if df { 0x4000 } else { 0 });
        put16(&mut bytes, 10, 0);
        let sum = Sum::ZERO.bytes(&bytes[..20]).checksum();
        put16(&mut bytes, 10, sum);
        bytes
    };
    let fits = with_df(udp4(POD_A, POD_B, usize::from(MTU) - 28), true);
    let too_big = with_df(udp4(POD_A, POD_B, usize::from(MTU) - 27), true);
    let free = with_df(udp4(POD_A, POD_B, 3000), false);
    let mut v6 = Vec::new();
    let address = |net: u8| [0xfd, net, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    PacketBuilder::ipv6(address(1), address(2), 64).udp(1, 2).write(&mut v6, &[5; 1400]).unwrap();
    let packets = [&fits, &too_big, &free, &v6].map(|bytes| a.packet(bytes)).into();
    a.send(packets);
    let errors = a.delivered();
    assert_eq!(errors.len(), 2);
    assert_eq!((errors[0][20], errors[0][21], be16(&errors[0], 26)), (3, 4, MTU));
    assert_eq!((errors[0][12..16].to_vec(), errors[0][16..20].to_vec()), (vec![10, 1, 0, 1], POD_A.to_vec()));
    assert_eq!((errors[1][40], be32(&errors[1], 44)), (2, u32::from(MTU)));
    carry(&mut a, &mut b, A, |_| {});
    let delivered = b.delivered();
    assert_eq!(delivered[0], fits);
    let payload: Vec<u8> = delivered[1..].iter().flat_map(|fragment| fragment[20..].to_vec()).collect();
    assert_eq!(payload, free[20..]);
    assert_eq!(delivered.len(), 4);
    a.assert_balanced();
    b.assert_balanced();
}

#[test]
fn the_mss_is_clamped_on_both_gateways() {
    let (mut a, mut b) = pair();
    let mut syn = Vec::new();
    PacketBuilder::ipv4(POD_A, POD_B, 64)
        .tcp(1, 2, 3, 4)
        .syn()
        .options(&[TcpOptionElement::MaximumSegmentSize(1460)])
        .unwrap()
        .write(&mut syn, &[])
        .unwrap();
    let packet = a.packet(&syn);
    a.send(vec![packet]);
    carry(&mut a, &mut b, A, |_| {});
    let delivered = b.delivered();
    assert_eq!(be16(&delivered[0], 42), MTU - 40);
    assert!(transport_is_valid(&delivered[0], 20));
    assert_eq!((a.line.counters.mss_clamped, b.line.counters.mss_clamped), (1, 0));
}

#[test]
fn a_received_train_of_mixed_messages_is_sorted_one_by_one() {
    let (mut a, mut b) = pair();
    let packets = (0..3).map(|_| a.packet(&udp4(POD_A, POD_B, 36))).collect();
    a.send(packets);
    // The second datagram of the train is for nobody.
    carry(&mut a, &mut b, A, |packet| {
        assert_eq!(packet.layout.count, 3);
        let (start, _) = packet.segment_range(1);
        packet.buf.bytes_mut()[start + 5] ^= 0x55;
    });
    assert_eq!(b.delivered().len(), 2);
    assert_eq!(b.dropped(DropReason::UnknownReceiver), 1);
    b.assert_balanced();
}

#[test]
fn a_train_is_carried_as_a_train() {
    let (mut a, mut b) = pair();
    let payload: Vec<u8> = (0..40_000u32).map(|byte| (byte % 253) as u8).collect();
    let mut bytes = Vec::new();
    PacketBuilder::ipv4(POD_A, POD_B, 64).tcp(1, 2, 3, 4).ack(1).write(&mut bytes, &payload).unwrap();
    let mut train = a.packet(&bytes);
    train.layout = Layout::train(LayoutKind::Tcp, 40, 1380, 29);
    train.checksum = Checksum::Partial { start: 20, field: 36 };
    a.send(vec![train]);
    carry(&mut a, &mut b, A, |_| {});
    assert_eq!(b.line.to_tun.len(), 1);
    let joined: Vec<u8> = b.delivered().iter().flat_map(|segment| segment[40..].to_vec()).collect();
    assert_eq!(joined, payload);
    a.assert_balanced();
    b.assert_balanced();
}

#[test]
fn a_panic_in_the_middle_of_a_batch_is_accounted_for() {
    let (mut a, _b) = pair();
    let held = a.packet(&udp4(POD_A, POD_B, 10));
    let mut batch = Batch::new();
    batch.push(held).unwrap();
    a.line.counters.tun_in += 3;
    batch.drain();
    a.line.recover(Instant::now());
    assert_eq!(a.dropped(DropReason::WorkerPanic), 3);
    a.assert_balanced();
}

#[test]
fn a_handshake_that_completes_in_the_middle_of_a_batch_touches_no_other_lane() {
    let (mut a, mut b) = pair();
    let mut c = end(3);
    let lane_c = LaneId(0x0900);
    c.know(&["10.3.0.0/16"], &[], &["10.2.0.0/16"], &b.kind.backend_config(), None);
    // The second cluster joins at `b`, which begins the handshake.
    let net = |text: &str| text.parse().unwrap();
    let mut builder = TablesBuilder::new(2, &[net("10.2.0.0/16")], &[]);
    let first = builder.cluster("a", &[net("10.1.0.0/16")]).unwrap();
    builder.path(first, b.lane, CableId(1), MTU).unwrap();
    let second = builder.cluster("c", &[net("10.3.0.0/16")]).unwrap();
    builder.path(second, lane_c, CableId(2), MTU).unwrap();
    b.tables.store(Arc::new(builder.build()));
    let peer = Some("192.0.2.3:4500".parse().unwrap());
    let config = LaneConfig::new(lane_c, CableId(2), peer, c.kind.backend_config());
    let tunnel = b.kind.connect(&config, Instant::now()).unwrap();
    b.line.command(LaneCommand::Add { lane: lane_c, cable: CableId(2), tunnel, watch: None }, Instant::now());
    carry(&mut b, &mut c, B, |_| {});
    let answer = c.line.to_wire.drain().next().unwrap();

    // One batch: data from a, the answer of c, data from a.
    let mut batch = Batch::new();
    for index in 0..3 {
        let bytes = if index == 1 {
            answer.bytes().to_vec()
        } else {
            let packet = a.packet(&udp4(POD_A, POD_B, 20 + index));
            a.send(vec![packet]);
            a.line.to_wire.drain().next().unwrap().bytes().to_vec()
        };
        let mut datagram = Packet::new(b.line.pool.alloc_copy(&bytes).unwrap());
        datagram.outer.peer = if index == 1 { "192.0.2.3:4500" } else { A }.parse().unwrap();
        batch.push(datagram).unwrap();
    }
    b.line.inbound(&mut batch, Instant::now());
    assert_eq!(b.delivered().len(), 2);
    // To c goes the keepalive that confirms the handshake, and nothing else.
    let to_c: Vec<usize> = b.line.to_wire.as_slice().iter().map(|packet| packet.bytes().len()).collect();
    assert_eq!(to_c, [32]);
    b.assert_balanced();
}
