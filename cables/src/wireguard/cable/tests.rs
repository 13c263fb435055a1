//! Two tunnels in memory, as responder and initiator, with nothing between them but vectors.

#![expect(clippy::disallowed_methods, reason = "boringtun reads the real clock, so its tests do")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use trieste_packet::{
    Batch, CableId, Checksum, DropReason, Drops, LaneId, Layout, LayoutKind, Outer, Packet, Pool, PoolConfig,
};

use crate::boundary::{Admission, CableEvent, CableKind as _, Gate, Jobs, LaneConfig, Message, Tunnel};
use crate::keys;
use crate::wireguard::WireguardKind;
use crate::wireguard::gate::{LIMIT_PER_SECOND, SHARE_PER_SECOND};
use crate::wireguard::message;

/// One end of a cable.
struct End {
    kind: Arc<WireguardKind>,
    gate: Box<dyn Gate>,
    tunnel: Box<dyn Tunnel>,
    pool: Pool,
    drops: Drops,
    consumed: u64,
    address: &'static str,
}

const A: &str = "192.0.2.1:4500";
const B: &str = "192.0.2.2:4500";

fn outer(address: &str) -> Outer {
    Outer { peer: address.parse().unwrap(), local: None, tos: 0 }
}

fn kind(psk: &str) -> Arc<WireguardKind> {
    Arc::new(WireguardKind::new(WireguardKind::generate_private_key(), psk, "submariner", Instant::now()))
}

fn end(
    kind: &Arc<WireguardKind>,
    other: &WireguardKind,
    address: &'static str,
    peer: Option<&str>,
    now: Instant,
) -> End {
    let peer = peer.map(|peer| peer.parse().unwrap());
    let config = LaneConfig::new(LaneId(0x0001_0200), CableId(1), peer, other.backend_config());
    End {
        kind: Arc::clone(kind),
        gate: kind.gate(),
        tunnel: kind.connect(&config, now).unwrap(),
        pool: Pool::new(PoolConfig { slots: 32, ..PoolConfig::default() }),
        drops: Drops::default(),
        consumed: 0,
        address,
    }
}

fn pair(now: Instant) -> (End, End) {
    let (first, second) = (kind("psk"), kind("psk"));
    (end(&first, &second, A, Some(B), now), end(&second, &first, B, None, now))
}

impl End {
    fn seal(&mut self, packets: Vec<Packet>, now: Instant) -> Vec<Packet> {
        let mut input = packets;
        let mut output = Batch::with_limit(512);
        let mut jobs = Jobs {
            input: &mut input,
            output: &mut output,
            pool: &mut self.pool,
            drops: &mut self.drops,
            consumed: &mut self.consumed,
        };
        self.tunnel.seal(&mut jobs, now);
        output.drain().collect()
    }

    fn open(&mut self, datagrams: Vec<Packet>, now: Instant) -> Vec<Packet> {
        let mut input = datagrams;
        let mut output = Batch::with_limit(512);
        let mut jobs = Jobs {
            input: &mut input,
            output: &mut output,
            pool: &mut self.pool,
            drops: &mut self.drops,
            consumed: &mut self.consumed,
        };
        self.tunnel.open(&mut jobs, now);
        output.drain().collect()
    }

    /// Takes a datagram as the pipeline does: data to the lane, the rest through the gate to the slow half.
    fn receive(&mut self, datagram: &[u8], from: &str, now: Instant) {
        match self.gate.classify(datagram, &outer(from)) {
            Message::Data(_) => {
                let packet = self.datagram(datagram, from);
                self.open(vec![packet], now);
            }
            Message::Control(_) | Message::Greeting => {
                let from = outer(from);
                match self.gate.admit(datagram, &from, now) {
                    Admission::Pass(_) => self.tunnel.handle_datagram(datagram, &from, now, &mut self.drops),
                    Admission::Reply(_) | Admission::Taken => {}
                    Admission::Refuse(reason) => self.drops.count(CableId(0), reason, 1),
                }
            }
            Message::Negotiation | Message::Keepalive | Message::Stranger | Message::Unknown => {
                self.drops.count(CableId(0), DropReason::UnknownDatagram, 1)
            }
        }
    }

    fn datagram(&mut self, bytes: &[u8], from: &str) -> Packet {
        let mut packet = Packet::new(self.pool.alloc_copy(bytes).unwrap());
        packet.outer = outer(from);
        packet
    }

    fn inner(&mut self, payload: &[u8]) -> Packet {
        let mut bytes = Vec::new();
        PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 1], 64).udp(1, 2).write(&mut bytes, payload).unwrap();
        let mut packet = Packet::new(self.pool.alloc_copy(&bytes).unwrap());
        packet.decision.mtu_bytes = 1420;
        packet
    }
}

/// Exchanges control messages until neither side has more to say.
fn exchange(a: &mut End, b: &mut End, now: Instant) {
    loop {
        let mut is_quiet = true;
        while let Some(transmit) = a.tunnel.poll_transmit() {
            is_quiet = false;
            b.receive(&transmit.payload, a.address, now);
        }
        while let Some(transmit) = b.tunnel.poll_transmit() {
            is_quiet = false;
            a.receive(&transmit.payload, b.address, now);
        }
        if is_quiet {
            return;
        }
    }
}

fn connected(now: Instant) -> (End, End) {
    let (mut a, mut b) = pair(now);
    exchange(&mut a, &mut b, now);
    assert!(a.tunnel.stats(now).is_up && b.tunnel.stats(now).is_up);
    (a, b)
}

fn payloads(opened: &[Packet]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for packet in opened {
        assert_eq!(packet.layout.kind, LayoutKind::Packets);
        for index in 0..usize::from(packet.layout.count) {
            if packet.layout.present & (1 << index) != 0 {
                let (start, end) = packet.segment_range(index);
                all.push(packet.bytes()[start + 28..end - message::OVERHEAD_BYTES].to_vec());
            }
        }
    }
    all
}

#[test]
fn a_responder_learns_where_the_initiator_is() {
    let now = Instant::now();
    let (a, b) = connected(now);
    assert_eq!(b.tunnel.stats(now).peer, Some(A.parse().unwrap()));
    assert_eq!(a.tunnel.stats(now).handshakes, 1);
    assert_eq!((a.drops.total(), b.drops.total()), (0, 0));
}

#[test]
fn packets_held_for_the_handshake_go_first_and_in_order() {
    let now = Instant::now();
    let (mut a, mut b) = pair(now);
    let waiting: Vec<_> = (0..3).map(|number| a.inner(&[number; 20])).collect();
    assert!(a.seal(waiting, now).is_empty());
    assert_eq!(a.tunnel.stats(now).held, 3);
    exchange(&mut a, &mut b, now);
    let last = a.inner(&[3; 20]);
    let sealed = a.seal(vec![last], now);
    assert_eq!(a.tunnel.stats(now).held, 0);
    let sealed = sealed.into_iter().map(|packet| b.datagram_of(&packet, A)).collect();
    let opened = b.open(sealed, now);
    let first: Vec<u8> = payloads(&opened).iter().map(|payload| payload[0]).collect();
    assert_eq!(first, [0, 1, 2, 3]);
}

impl End {
    fn datagram_of(&mut self, packet: &Packet, from: &str) -> Packet {
        let mut copy = Packet::new(self.pool.alloc_copy(packet.bytes()).unwrap());
        copy.layout = packet.layout;
        copy.outer = outer(from);
        copy
    }
}

#[test]
fn a_train_is_sealed_and_opened_segment_by_segment() {
    let now = Instant::now();
    let (mut a, mut b) = connected(now);
    let payload: Vec<u8> = (0..60_000u32).map(|byte| (byte % 251) as u8).collect();
    let mut bytes = Vec::new();
    PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 1], 64)
        .tcp(1, 2, 3, 4)
        .ack(9)
        .write(&mut bytes, &payload)
        .unwrap();
    let mut train = Packet::new(a.pool.alloc_copy(&bytes).unwrap());
    train.layout = Layout::train(LayoutKind::Tcp, 40, 1380, 44);
    train.checksum = Checksum::Partial { start: 20, field: 36 };
    train.decision.mtu_bytes = 1420;
    let sealed = a.seal(vec![train], now);
    assert_eq!(sealed.iter().map(Packet::segments).sum::<u64>(), 44);
    let sealed = sealed.into_iter().map(|packet| b.datagram_of(&packet, A)).collect();
    let opened = b.open(sealed, now);
    let mut trains = Vec::new();
    for packet in opened {
        trieste_packet::coalesce::coalesce(packet, |packet| trains.push(packet));
    }
    assert_eq!(trains.len(), 1);
    assert_eq!(trains[0].segments(), 44);
    assert_eq!(b.tunnel.stats(now).rx_packets, 44);
    assert_eq!(b.drops.total(), 0);
}

#[test]
fn replayed_and_spoiled_messages_are_dropped_and_the_rest_goes_on() {
    let now = Instant::now();
    let (mut a, mut b) = connected(now);
    let packets: Vec<_> = (0..3).map(|number| a.inner(&[number; 64])).collect();
    let sealed = a.seal(packets, now).remove(0);
    let (start, end) = sealed.segment_range(1);
    let mut bytes = sealed.bytes().to_vec();
    bytes[start + 40] ^= 1;
    let mut spoiled = Packet::new(b.pool.alloc_copy(&bytes).unwrap());
    spoiled.layout = sealed.layout;
    spoiled.outer = outer(A);
    assert_eq!(payloads(&b.open(vec![spoiled], now)).len(), 2);
    assert_eq!(b.drops.of(DropReason::BadTag), 1);
    let good = b.datagram(&sealed.bytes()[start..end], A);
    assert_eq!(payloads(&b.open(vec![good], now)).len(), 1);
    let again = b.datagram_of(&sealed, A);
    assert!(b.open(vec![again], now).is_empty());
    assert_eq!(b.drops.of(DropReason::Replay), 3);
}

#[test]
fn counters_near_the_end_are_refused_before_boringtun_sees_them() {
    let now = Instant::now();
    let (mut a, mut b) = connected(now);
    let packet = a.inner(&[0; 20]);
    let mut bytes = a.seal(vec![packet], now).remove(0).bytes().to_vec();
    bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    let hostile = b.datagram(&bytes, A);
    assert!(b.open(vec![hostile], now).is_empty());
    assert_eq!(b.drops.of(DropReason::Replay), 1);
}

#[test]
fn the_peer_is_followed_to_a_new_address() {
    let now = Instant::now();
    let (mut a, mut b) = connected(now);
    let packet = a.inner(&[0; 20]);
    let sealed = a.seal(vec![packet], now).remove(0);
    let moved = b.datagram(sealed.bytes(), "198.51.100.7:9999");
    assert_eq!(b.open(vec![moved], now).len(), 1);
    assert_eq!(b.tunnel.stats(now).peer, Some("198.51.100.7:9999".parse().unwrap()));
    // What is not authentic moves nothing.
    let forged = b.datagram(
        &[4, 0, 0, 0, 0, 2, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6],
        "203.0.113.1:1",
    );
    b.open(vec![forged], now);
    assert_eq!(b.tunnel.stats(now).peer, Some("198.51.100.7:9999".parse().unwrap()));
}

#[test]
fn single_packets_are_padded_to_sixteen_bytes() {
    let now = Instant::now();
    let (mut a, _b) = connected(now);
    for (payload, expected) in
        [(1usize, 32), (4, 32), (5, 48), (1392 - 28, 1392), (1393 - 28, 1408), (1420 - 28, 1420)]
    {
        let packet = a.inner(&vec![0; payload]);
        let sealed = a.seal(vec![packet], now).remove(0);
        assert_eq!(sealed.bytes().len(), expected + message::OVERHEAD_BYTES, "payload {payload}");
    }
}

#[test]
fn another_psk_or_an_unknown_key_does_not_connect() {
    let now = Instant::now();
    let (first, second) = (kind("psk"), kind("other"));
    let (mut a, mut b) = (end(&first, &second, A, Some(B), now), end(&second, &first, B, Some(A), now));
    exchange(&mut a, &mut b, now);
    assert!(!a.tunnel.stats(now).is_up && !b.tunnel.stats(now).is_up);
    assert!(a.drops.of(DropReason::BadHandshake) + b.drops.of(DropReason::BadHandshake) > 0);
}

#[test]
fn a_first_handshake_that_nobody_answered_is_begun_again_soon() {
    let now = Instant::now();
    let (mut a, mut b) = pair(now);
    // The peer does not know us yet.
    while a.tunnel.poll_transmit().is_some() {}
    a.tunnel.handle_timeout(now + Duration::from_millis(300), &mut a.drops);
    exchange(&mut a, &mut b, now);
    assert!(a.tunnel.stats(now).is_up);
}

#[test]
fn a_flood_is_answered_with_cookies_and_a_source_has_only_its_share() {
    let now = Instant::now();
    let (mut a, mut b) = pair(now);
    let initiation = a.tunnel.poll_transmit().unwrap().payload;
    let (mut passed, mut cookies, mut refused) = (0u64, 0u64, 0u64);
    for round in 0..400u64 {
        let source = outer(&format!("203.0.113.{}:4500", round % 200));
        match b.gate.admit(&initiation, &source, now) {
            Admission::Pass(identity) => {
                assert_eq!(keys::emit(&identity.unwrap()), a.kind.public_key());
                passed += 1;
            }
            Admission::Reply(cookie) => {
                assert_eq!(cookie.len(), message::COOKIE_BYTES);
                cookies += 1;
            }
            Admission::Refuse(_) | Admission::Taken => refused += 1,
        }
    }
    assert_eq!((passed, cookies + passed), (LIMIT_PER_SECOND, 400));
    assert_eq!(refused, 0);
    // Whoever takes part in the cookie exchange gets through, up to its share.
    let owner = outer("192.0.2.99:4500");
    let Admission::Reply(cookie) = b.gate.admit(&initiation, &owner, now) else { panic!("a cookie is due") };
    a.tunnel.handle_datagram(&cookie, &outer(B), now, &mut a.drops);
    a.tunnel.rekey(now);
    let with_cookie = a.tunnel.poll_transmit().unwrap().payload;
    let verdicts: Vec<_> =
        (0..2 * SHARE_PER_SECOND).map(|_| b.gate.admit(&with_cookie, &owner, now)).collect();
    let passed = verdicts.iter().filter(|verdict| matches!(verdict, Admission::Pass(Some(_)))).count();
    let limited = Admission::Refuse(DropReason::HandshakeLimit);
    assert_eq!(passed, SHARE_PER_SECOND as usize);
    assert_eq!(verdicts.last(), Some(&limited));
    let mut spoiled = initiation;
    spoiled[100] ^= 1;
    assert_eq!(
        b.gate.admit(&spoiled, &outer("192.0.2.50:4500"), now),
        Admission::Refuse(DropReason::BadHandshake)
    );
}

#[test]
fn garbage_with_a_peers_address_does_not_use_up_its_share() {
    let now = Instant::now();
    let (mut a, mut b) = pair(now);
    let initiation = a.tunnel.poll_transmit().unwrap().payload;
    let mut garbage = vec![0u8; message::INITIATION_BYTES];
    garbage[0] = 1;
    let address = outer(A);
    for _ in 0..10_000 {
        assert_eq!(b.gate.admit(&garbage, &address, now), Admission::Refuse(DropReason::BadHandshake));
    }
    assert!(matches!(b.gate.admit(&initiation, &address, now), Admission::Pass(Some(_))));
}

#[test]
fn a_restarted_peer_is_taken_back() {
    let now = Instant::now();
    let (mut a, mut b) = connected(now);
    let mut fresh = end(&b.kind, &a.kind, B, Some(A), now);
    std::mem::swap(&mut b, &mut fresh);
    exchange(&mut a, &mut b, now);
    assert!(b.tunnel.stats(now).is_up);
    let packet = a.inner(&[9; 20]);
    let sealed = a.seal(vec![packet], now).remove(0);
    let sealed = b.datagram_of(&sealed, A);
    assert_eq!(payloads(&b.open(vec![sealed], now)), [vec![9; 20]]);
}

#[test]
fn an_initiation_is_answered_where_it_comes_from_and_only_what_is_sealed_with_its_keys_moves_the_peer() {
    const ELSEWHERE: &str = "198.51.100.9:4500";
    let now = Instant::now();
    let (mut a, mut b) = pair(now);
    exchange(&mut a, &mut b, now);
    a.tunnel.rekey(now);
    let initiation = a.tunnel.poll_transmit().expect("an initiation").payload;

    // Somebody repeats it, or the peer has moved: who answers cannot tell.
    b.receive(&initiation, ELSEWHERE, now);
    let answer = b.tunnel.poll_transmit().expect("an answer");
    assert_eq!(answer.outer.peer, ELSEWHERE.parse().unwrap());
    assert_eq!(b.tunnel.stats(now).peer, Some(A.parse().unwrap()), "an initiation has moved the peer");

    // It has moved: what it seals now says so.
    a.receive(&answer.payload, B, now);
    let confirmation = a.tunnel.poll_transmit().expect("a keepalive").payload;
    b.receive(&confirmation, ELSEWHERE, now);
    assert_eq!(b.tunnel.stats(now).peer, Some(ELSEWHERE.parse().unwrap()));
}

/// Lets virtual time go by for an end whose peer does not answer; gives the initiations with their times.
fn run_alone(end: &mut End, from: Instant, span: Duration) -> Vec<(Instant, Vec<u8>)> {
    let (mut now, mut sent) = (from, Vec::new());
    loop {
        while let Some(transmit) = end.tunnel.poll_transmit() {
            assert_eq!(transmit.payload.len(), message::INITIATION_BYTES);
            sent.push((now, transmit.payload));
        }
        let due = end.tunnel.poll_timeout().unwrap();
        if due > from + span {
            return sent;
        }
        assert!(due > now, "a time-out at which nothing is due");
        now = due;
        end.tunnel.handle_timeout(now, &mut end.drops);
    }
}

fn events(end: &mut End) -> Vec<CableEvent> {
    std::iter::from_fn(|| end.tunnel.poll_event()).collect()
}

const TEN_MINUTES: Duration = Duration::from_secs(600);
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_peer_that_never_answers_is_tried_for_ninety_seconds_and_then_more_rarely() {
    let start = Instant::now();
    let (mut a, _) = pair(start);
    let sent = run_alone(&mut a, start, TEN_MINUTES);
    let within = |from: u64, to: u64| {
        let (from, to) = (start + Duration::from_secs(from), start + Duration::from_secs(to));
        sent.iter().filter(|(at, _)| *at >= from && *at < to).count()
    };
    assert_eq!(within(0, 5), 5, "at once, after 0.25, 0.75, 1.75 and 3.75 s");
    assert!((16..=18).contains(&within(5, 90)), "every five seconds");
    assert!((22..=26).contains(&within(90, 600)), "every twenty: {}", within(90, 600));
    assert_eq!(events(&mut a), [CableEvent::Down], "said once");
    let stats = a.tunnel.stats(start + TEN_MINUTES);
    assert!(stats.is_silent && !stats.is_up);
}

#[test]
fn a_peer_that_starts_after_ten_minutes_is_up_with_its_first_round_trip() {
    let start = Instant::now();
    let (mut a, mut b) = pair(start);
    run_alone(&mut a, start, TEN_MINUTES);
    let now = start + TEN_MINUTES;
    let mut late = end(&b.kind, &a.kind, B, Some(A), now);
    std::mem::swap(&mut b, &mut late);
    exchange(&mut a, &mut b, now);
    let stats = a.tunnel.stats(now);
    assert!(stats.is_up && b.tunnel.stats(now).is_up && !stats.is_silent);
    assert_eq!(events(&mut a), [CableEvent::Down, CableEvent::LaneUp]);
    // From here on its timers are boringtun's.
    assert!(a.tunnel.poll_timeout().unwrap() <= now + Duration::from_millis(250));
}

#[test]
fn a_peer_that_only_answers_is_up_within_the_longest_interval() {
    let start = Instant::now();
    let (mut a, mut b) = pair(start);
    run_alone(&mut a, start, TEN_MINUTES);
    let sent = run_alone(&mut a, start + TEN_MINUTES, Duration::from_secs(22));
    let (at, initiation) = sent.last().unwrap();
    b.receive(initiation, A, *at);
    exchange(&mut a, &mut b, *at);
    assert!(a.tunnel.stats(*at).is_up && b.tunnel.stats(*at).is_up);
}

#[test]
fn a_packet_for_a_silent_peer_has_it_tried_at_once_and_a_health_check_does_not() {
    let start = Instant::now();
    let (mut a, _) = pair(start);
    run_alone(&mut a, start, TEN_MINUTES);
    // Five seconds after an attempt.
    let last = run_alone(&mut a, start + TEN_MINUTES, Duration::from_secs(22)).last().unwrap().0;
    let now = last + Duration::from_secs(6);
    let mut bytes = Vec::new();
    PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 1], 64)
        .icmpv4_echo_request(1, 1)
        .write(&mut bytes, &[0; 24])
        .unwrap();
    let check = Packet::new(a.pool.alloc_copy(&bytes).unwrap());
    a.seal(vec![check], now);
    assert!(a.tunnel.poll_transmit().is_none(), "a health check");
    for _ in 0..10 {
        let packet = a.inner(&[1; 20]);
        a.seal(vec![packet], now);
    }
    assert!(a.tunnel.poll_transmit().is_some(), "a packet");
    assert!(a.tunnel.poll_transmit().is_none(), "once");
    assert_eq!(a.tunnel.stats(now).held, 11);
    // What nobody came for in five seconds is dropped then, not in half a minute.
    let sent = run_alone(&mut a, now, Duration::from_secs(6));
    assert!(sent.len() == 1 && sent[0].0 >= now + Duration::from_secs(5), "{}", sent.len());
    assert_eq!((a.tunnel.stats(now).held, a.drops.of(DropReason::HeldExpired)), (0, 11));
}

#[test]
fn a_peer_that_has_moved_is_tried_at_once() {
    let start = Instant::now();
    let (mut a, _) = pair(start);
    run_alone(&mut a, start, TEN_MINUTES);
    let now = start + TEN_MINUTES;
    a.tunnel.set_peer(Some("192.0.2.9:4500".parse().unwrap()), now);
    let sent = run_alone(&mut a, now, Duration::from_secs(30));
    assert_eq!(sent.iter().filter(|(at, _)| *at < now + Duration::from_secs(5)).count(), 5);
    assert!(!a.tunnel.stats(now).is_silent);
    a.tunnel.set_peer(Some("192.0.2.9:4500".parse().unwrap()), now + Duration::from_secs(30));
    assert!(a.tunnel.poll_transmit().is_none(), "it is there already");
}

#[test]
fn what_a_stranger_sends_to_a_silent_lane_changes_nothing() {
    let start = Instant::now();
    let (mut a, b) = pair(start);
    run_alone(&mut a, start, TEN_MINUTES);
    let now = start + TEN_MINUTES;
    let due = a.tunnel.poll_timeout();
    // It has the public keys and not the secret: it can make what passes the gate.
    let public_only = kind("psk of others");
    let mut stranger = end(&public_only, &a.kind, "203.0.113.5:4500", Some(A), now);
    let initiation = stranger.tunnel.poll_transmit().unwrap().payload;
    let recorded = {
        let mut older = end(&b.kind, &a.kind, B, Some(A), now);
        let mut bytes = older.tunnel.poll_transmit().unwrap().payload;
        bytes[60] ^= 1;
        bytes
    };
    let mut answer = vec![0u8; message::RESPONSE_BYTES];
    answer[0] = 2;
    let mut data = vec![0u8; 64];
    data[0] = 4;
    for datagram in [initiation, recorded, answer, data] {
        for from in ["203.0.113.5:4500", B] {
            a.receive(&datagram, from, now);
            assert!(a.tunnel.poll_transmit().is_none(), "it is made to send");
        }
    }
    assert!(a.tunnel.stats(now).is_silent);
    assert_eq!(a.tunnel.poll_timeout(), due);
    assert_eq!(events(&mut a), [CableEvent::Down]);
}

#[test]
fn a_thousand_silent_peers_cost_as_many_handshakes_as_three_hundred() {
    let start = Instant::now();
    let others: Vec<_> = (0..8).map(|_| kind("psk")).collect();
    let per_minute = [100, 320, 1000].map(|count: usize| {
        let own = kind("psk");
        let mut lanes: Vec<End> =
            (0..count).map(|lane| end(&own, &others[lane % 8], A, Some(B), start)).collect();
        let mut queue: BTreeSet<(Instant, usize)> =
            lanes.iter().enumerate().map(|(lane, end)| (end.tunnel.poll_timeout().unwrap(), lane)).collect();
        let (from, mut sent) = (start + Duration::from_secs(300), 0);
        while let Some((now, lane)) = queue.pop_first().filter(|(now, _)| *now <= from + MINUTE) {
            let end = &mut lanes[lane];
            while end.tunnel.poll_transmit().is_some() {}
            end.tunnel.handle_timeout(now, &mut end.drops);
            while end.tunnel.poll_transmit().is_some() {
                sent += u64::from(now > from);
            }
            queue.insert((end.tunnel.poll_timeout().unwrap(), lane));
        }
        assert!(lanes.iter().all(|end| end.tunnel.stats(from).is_silent));
        sent
    });
    assert!((285..=300).contains(&per_minute[0]), "{per_minute:?}");
    assert!(per_minute[1..].iter().all(|sent| (900..=961).contains(sent)), "{per_minute:?}");
}
