//! Probes of a path between two real lines with real cables, joined back to back; time goes by in steps.
#![expect(clippy::disallowed_methods, reason = "boringtun reads the real clock")]

use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use trieste_packet::{Batch, CableId, DropReason, Packet};
use trieste_pipeline::health::Watch;
use trieste_pipeline::inside::{self, Kind};
use trieste_pipeline::{LaneCommand, PathState};

use crate::support::{self, A, B, End, POD_A, POD_B, pair, udp4};

const CABLE: CableId = CableId(1);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Two gateways and the wire between them.
struct Wire {
    ends: [End; 2],
    now: Instant,
    /// Whether nothing gets through from the first to the second, and back.
    is_cut: [bool; 2],
    /// Largest datagram that gets through whole.
    size: usize,
}

impl Wire {
    fn new() -> Self {
        Self::between(false)
    }

    /// Two gateways of one cluster, or of two.
    fn between(is_sibling: bool) -> Self {
        let (a, b) = pair();
        let mut wire = Self { ends: [a, b], now: Instant::now(), is_cut: [false; 2], size: 2000 };
        for (index, (from, to)) in
            [("10.1.0.0", "10.2.0.0"), ("10.2.0.0", "10.1.0.0")].into_iter().enumerate()
        {
            let watch = Watch {
                from: from.parse().unwrap(),
                to: to.parse().unwrap(),
                most_bytes: support::MTU,
                is_sibling,
            };
            let end = &mut wire.ends[index];
            end.line.command(LaneCommand::Watch { lane: end.lane, watch: Some(watch) }, wire.now);
        }
        wire
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.now += ms(1);
            for from in 0..2 {
                self.ends[from].line.handle_probes(self.now);
                self.carry(from);
            }
        }
    }

    fn carry(&mut self, from: usize) {
        let sent: Vec<Packet> = self.ends[from].line.to_wire.drain().collect();
        let line = &mut self.ends[from].line;
        line.sent(sent.iter().map(Packet::segments).sum());
        let mut batch = Batch::with_limit(2048);
        for packet in sent {
            if self.is_cut[from] || (packet.is_whole && packet.bytes().len() > self.size) {
                continue;
            }
            let to = &mut self.ends[1 - from].line;
            let mut copy = Packet::new(to.pool.alloc_copy(packet.bytes()).unwrap());
            copy.layout = packet.layout;
            copy.outer.peer = if from == 0 { A } else { B }.parse().unwrap();
            batch.push(copy).unwrap();
        }
        if !batch.is_empty() {
            self.ends[1 - from].line.inbound(&mut batch, self.now);
        }
    }

    fn states(&self) -> [PathState; 2] {
        [0, 1].map(|end: usize| self.ends[end].line.board().state(CABLE))
    }

    fn assert_balanced(&self) {
        for end in &self.ends {
            end.assert_balanced();
        }
    }
}

#[test]
fn probes_go_both_ways_and_never_reach_the_inside() {
    let mut wire = Wire::new();
    assert_eq!(wire.states(), [PathState::Down; 2]);
    wire.run(ms(500));
    assert_eq!(wire.states(), [PathState::Up; 2]);
    for end in &mut wire.ends {
        let board = end.line.board();
        assert_eq!(board.mtu(CABLE), Some(support::MTU));
        assert!(board.rtt(CABLE).is_some());
        let counters = end.line.counters;
        assert!((20..=40).contains(&counters.path_probes_out), "{counters:?}");
        assert!(counters.path_probes_in.abs_diff(counters.path_probes_out) <= 2, "{counters:?}");
        assert_eq!(end.delivered(), Vec::<Vec<u8>>::new());
        assert_eq!(end.line.drops.total(), 0);
        let report = end.line.reports(wire.now).next().unwrap().health.unwrap();
        assert_eq!((report.state, report.transitions, report.missing), (PathState::Up, 1, 0));
    }
    wire.assert_balanced();
}

#[test]
fn packets_among_probes_are_delivered_in_order_and_whole() {
    let mut wire = Wire::new();
    wire.run(ms(100));
    let mut got = Vec::new();
    for round in 0..50 {
        let packets: Vec<Packet> = (0..4)
            .map(|n| {
                let mut bytes = udp4(POD_A, POD_B, 100);
                bytes[40] = round * 4 + n;
                wire.ends[0].packet(&bytes)
            })
            .collect();
        let mut batch = Batch::new();
        for packet in packets {
            batch.push(packet).unwrap();
        }
        let now = wire.now;
        wire.ends[0].line.outbound(&mut batch, now);
        // The probes that are due join what is for the wire.
        wire.run(ms(7));
        got.extend(wire.ends[1].delivered().iter().map(|bytes| bytes[40]));
    }
    assert_eq!(got, (0..200).collect::<Vec<u8>>());
    wire.assert_balanced();
}

#[test]
fn a_cut_either_way_takes_the_path_down_at_both_ends_and_nothing_is_lost_unseen() {
    for cut in [[true, false], [false, true], [true, true]] {
        let mut wire = Wire::new();
        wire.run(ms(11_000));
        let generation = wire.ends[0].line.board().generation();
        wire.is_cut = cut;
        let mut took = 0;
        while wire.states() != [PathState::Down; 2] {
            let now = wire.now;
            for (index, (from, to)) in [(POD_A, POD_B), (POD_B, POD_A)].into_iter().enumerate() {
                let packet = wire.ends[index].packet(&udp4(from, to, 100));
                let mut batch = Batch::new();
                batch.push(packet).unwrap();
                wire.ends[index].line.outbound(&mut batch, now);
            }
            wire.run(ms(1));
            took += 1;
            assert!(took < 95, "{cut:?}: {:?} after {took} ms", wire.states());
        }
        assert!(wire.ends[0].line.board().generation() > generation);
        wire.is_cut = [false; 2];
        wire.run(ms(300));
        assert_eq!(wire.states(), [PathState::Held; 2]);
        wire.run(ms(1300));
        assert_eq!(wire.states(), [PathState::Up; 2]);
        for end in &mut wire.ends {
            end.delivered();
        }
        wire.assert_balanced();
    }
}

#[test]
fn a_path_that_comes_back_after_long_is_no_stall_of_ours() {
    let mut wire = Wire::new();
    wire.run(ms(3000));
    wire.is_cut = [true; 2];
    wire.run(ms(30_000));
    assert_eq!(wire.states(), [PathState::Down; 2]);

    // What the search for its size has waited with since is due now, and was not late.
    wire.is_cut = [false; 2];
    wire.run(ms(2000));
    assert_eq!(wire.states(), [PathState::Up; 2]);
    for end in 0..2 {
        assert_eq!(wire.ends[end].line.stalls(), (0, Duration::ZERO));
        let before = wire.ends[end].line.counters.path_probes_out;
        wire.run(ms(2000));
        let sent = wire.ends[end].line.counters.path_probes_out - before;
        assert!((9..=15).contains(&sent), "{sent} probes in two seconds, one every 200 ms");
    }
    wire.assert_balanced();
}

#[test]
fn a_siblings_path_is_probed_quickly_while_another_path_of_the_gateway_carries_packets() {
    let mut wire = Wire::between(true);
    let fast = |wire: &Wire| [0, 1].map(|end: usize| report(wire, end).is_fast);
    wire.run(ms(12_000));
    assert_eq!((fast(&wire), report(&wire, 0).timeout), ([false; 2], ms(600)));
    for _ in 0..40 {
        wire.ends[0].line.board().note_use();
        wire.run(ms(10));
    }
    assert_eq!(
        (fast(&wire), report(&wire, 0).timeout, report(&wire, 1).timeout),
        ([true; 2], ms(75), ms(75))
    );
    wire.is_cut = [true; 2];
    wire.run(ms(95));
    assert_eq!(wire.states(), [PathState::Down; 2]);
    wire.is_cut = [false; 2];
    wire.run(ms(3_000));
    assert_eq!(fast(&wire), [false; 2], "nobody uses any path");
    assert!(report(&wire, 0).state == PathState::Up);
}

#[test]
fn whoever_pings_has_a_path_that_is_probed_quickly_and_health_checks_do_not() {
    // `ping` sends 56 bytes of data unless told otherwise, health checks send 24.
    for (data, is_reply, is_fast) in
        [(56, false, true), (56, true, true), (8, false, true), (24, false, false), (24, true, false)]
    {
        let mut wire = Wire::new();
        wire.run(ms(12_000));
        for _ in 0..50 {
            let packet = wire.ends[0].packet(&echo(data, is_reply));
            let mut batch = Batch::new();
            batch.push(packet).unwrap();
            wire.ends[0].line.outbound(&mut batch, wire.now);
            wire.run(ms(10));
        }
        assert_eq!(wire.ends[1].delivered().len(), 50);
        let fast = [0, 1].map(|end: usize| report(&wire, end).is_fast);
        assert_eq!(fast, [is_fast; 2], "{data} bytes, reply: {is_reply}");
        let timeout = if is_fast { ms(75) } else { ms(600) };
        assert_eq!(report(&wire, 1).timeout, timeout, "{data} bytes, reply: {is_reply}");
    }
}

fn echo(data: usize, is_reply: bool) -> Vec<u8> {
    let builder = PacketBuilder::ipv4(POD_A, POD_B, 64);
    let mut bytes = Vec::new();
    if is_reply {
        builder.icmpv4_echo_reply(7, 1).write(&mut bytes, &vec![3; data]).unwrap();
    } else {
        builder.icmpv4_echo_request(7, 1).write(&mut bytes, &vec![3; data]).unwrap();
    }
    bytes
}

#[test]
fn padded_probes_are_marked_whole_and_find_the_size_of_the_path() {
    let mut wire = Wire::new();
    // WireGuard adds 32 bytes.
    wire.size = 1332;
    wire.run(ms(15_000));
    for end in &wire.ends {
        let mtu = end.line.board().mtu(CABLE).unwrap();
        assert!((1292..=1300).contains(&mtu), "{mtu}");
    }
}

#[test]
fn draining_is_seen_at_the_far_end_and_a_drained_lane_is_forgotten() {
    let mut wire = Wire::new();
    wire.run(ms(100));
    let now = wire.now;
    wire.ends[0].line.command(LaneCommand::Draining(true), now);
    wire.run(ms(2));
    assert_eq!(wire.states(), [PathState::Up, PathState::Draining]);
    let lane = wire.ends[1].lane;
    wire.ends[1].line.command(LaneCommand::Drain { lane, until: now + ms(3000) }, now);
    assert_eq!(wire.states()[1], PathState::Unwatched);
}

#[test]
fn a_far_end_that_is_not_watched_swallows_probes_and_malformed_messages_are_counted() {
    let mut wire = Wire::new();
    let (lane, now) = (wire.ends[1].lane, wire.now);
    wire.ends[1].line.command(LaneCommand::Watch { lane, watch: None }, now);
    wire.run(ms(200));
    assert_eq!(wire.states(), [PathState::Down, PathState::Unwatched]);
    assert!(wire.ends[1].line.counters.path_probes_in > 5);
    assert_eq!(wire.ends[1].delivered(), Vec::<Vec<u8>>::new());

    // What a line would never make, sealed all the same: a peer that went wrong.
    let ends = ("10.1.0.0".parse().unwrap(), "10.2.0.0".parse().unwrap());
    for body in [&[][..], &[0xff; 7], &[0; 64]] {
        let mut buf = wire.ends[0].line.pool.alloc().unwrap();
        assert!(inside::emit(ends, Kind::PathProbe, body, 0, &mut buf));
        let mut packet = Packet::new(buf);
        packet.decision.lane = wire.ends[0].lane;
        let handoff = trieste_pipeline::Handoff {
            to: trieste_packet::WorkerId(0),
            kind: trieste_pipeline::HandoffKind::Seal,
            packet,
        };
        let now = wire.now;
        wire.ends[0].line.handed_over([handoff], now);
        wire.carry(0);
    }
    assert_eq!(wire.ends[1].dropped(DropReason::BadControl), 3);
    assert_eq!(wire.ends[1].delivered(), Vec::<Vec<u8>>::new());
    wire.ends[1].assert_balanced();
}

#[test]
fn pods_cannot_speak_for_a_gateway() {
    let mut wire = Wire::new();
    wire.run(ms(100));
    let before = wire.ends[1].line.counters.path_probes_in;
    let mut buf = wire.ends[0].line.pool.alloc().unwrap();
    assert!(inside::emit((POD_A.into(), POD_B.into()), Kind::PathProbe, &[0; 32], 0, &mut buf));
    wire.ends[0].send(vec![Packet::new(buf)]);
    assert_eq!(wire.ends[0].dropped(DropReason::ReservedProtocol), 1);
    wire.carry(0);
    assert_eq!(wire.ends[1].line.counters.path_probes_in, before);
    wire.assert_balanced();
}

fn report(wire: &Wire, end: usize) -> trieste_pipeline::health::Report {
    wire.ends[end].line.reports(wire.now).next().unwrap().health.unwrap()
}
