//! Orders of the slow half, and what it is told.

use super::*;

/// Seals a packet from this end's subnets to the other's.
fn one(from: &mut End, now: Instant) -> Vec<Packet> {
    let (own, other) = if from.address == A { (1, 2) } else { (2, 1) };
    let packet = from.packet(&udp4_between([10, own, 0, 1], [10, other, 0, 1], &[1; 100]));
    from.seal(vec![packet], now)
}

/// The number of the pair that sealed one packet; 0 when none did.
fn sealer(from: &mut End, now: Instant) -> u8 {
    one(from, now).first().map_or(0, |packet| packet.bytes()[3])
}

/// Carries one packet from one end to the other; says whether it arrived.
fn carry(from: &mut End, to: &mut End, now: Instant) -> bool {
    let sealed = one(from, now);
    let received = to.receive(&sealed, from.address);
    !to.open(received, now).is_empty()
}

#[test]
fn packets_held_for_keys_go_first_and_in_order() {
    let now = start();
    let (mut a, mut b) = (end(A, B, now), end(B, A, now));
    let bytes: Vec<Vec<u8>> = (0..4u8).map(|number| udp4(&[number; 100])).collect();
    let waiting = bytes[..3].iter().map(|bytes| a.packet(bytes)).collect();
    assert!(a.seal(waiting, now).is_empty());
    let stats = a.cable.stats(now);
    assert_eq!((stats.held, stats.is_up), (3, false));

    add(&mut a, &mut b, &recipe(1, now), now);

    assert_eq!(a.events(), [CableEvent::LaneUp]);
    let last = a.packet(&bytes[3]);
    let sealed = a.seal(vec![last], now);
    let received = b.receive(&sealed, A);
    assert_eq!(inner_packets(b.open(received, now)), bytes);
    assert_eq!((a.cable.stats(now).held, a.cable.stats(now).is_up), (0, true));
}

#[test]
fn nothing_is_sent_before_it_is_known_where_to() {
    let now = start();
    let (link, port, _news) = link::link(LANE);
    let mut a = end(A, B, now);
    a.cable = EspCable::new(EspCableConfig { lane: LANE, cable: CableId(1), port }, now);
    a.link = link;
    let (child, _) = recipe(1, now).children(now);
    a.order(LaneOrder::Add(Box::new(child)), now);
    assert!(one(&mut a, now).is_empty() && a.events().is_empty());
    a.order(LaneOrder::Path(EspPath { outer: outer(B), may_move: false }), now);
    assert_eq!((a.events(), a.seal(Vec::new(), now).len()), (vec![CableEvent::LaneUp], 1));
}

#[test]
fn what_is_held_is_dropped_when_the_peer_is_given_up() {
    let now = start();
    let mut a = end(A, B, now);
    one(&mut a, now);
    a.order(LaneOrder::Down, now);
    assert_eq!((a.events(), a.drops.of(DropReason::HeldExpired)), (vec![CableEvent::Down], 1));
}

#[test]
fn the_answering_side_of_a_rekeying_seals_with_the_new_pair_when_the_first_packet_came() {
    let now = start();
    let (mut a, mut b) = connected(&recipe(1, now), now);
    let (left, _) = recipe(2, now).children(now);
    let (_, right) = Recipe { activation: Outbound::AfterInbound, ..recipe(2, now) }.children(now);
    let meter = Arc::clone(&right.meter);
    b.order(LaneOrder::Add(Box::new(right)), now);
    // The order comes before the answer that makes the peer use the new pair.
    assert!(carry(&mut b, &mut a, now), "the old pair seals on");
    a.order(LaneOrder::Add(Box::new(left)), now);
    assert!(!meter.is_sealing.load(Ordering::Relaxed));
    assert!(carry(&mut a, &mut b, now));
    assert!(meter.is_sealing.load(Ordering::Relaxed));
    assert_eq!(sealer(&mut b, now), 2);
}

#[test]
fn the_newest_pair_that_may_seals() {
    let now = start();
    let mut a = end(A, B, now);
    let mut b = end(B, A, now);
    let (first, _) = add(&mut a, &mut b, &recipe(1, now), now);
    assert_eq!(sealer(&mut a, now), 1);
    let (second, _) =
        add(&mut a, &mut b, &Recipe { activation: Outbound::AfterInbound, ..recipe(2, now) }, now);
    assert_eq!(sealer(&mut a, now), 1);
    let is_sealing = |meter: &ChildMeter| meter.is_sealing.load(Ordering::Relaxed);
    assert!(is_sealing(&first) && !is_sealing(&second));
    a.order(LaneOrder::Seal(Spi::new(LANE, 2)), now);
    assert_eq!(sealer(&mut a, now), 2);
    assert!(!is_sealing(&first) && is_sealing(&second));
    a.order(LaneOrder::Retire(Spi::new(LANE, 2)), now);
    assert_eq!(sealer(&mut a, now), 1, "the older one is still there");
    assert_eq!(b.drops.total(), 0);
}

#[test]
fn retiring_the_old_pair_lets_the_waiting_one_seal() {
    let now = start();
    for order in [LaneOrder::Retire(Spi::new(LANE, 1)), LaneOrder::Remove(Spi::new(LANE, 1))] {
        let mut a = end(A, B, now);
        let mut b = end(B, A, now);
        add(&mut a, &mut b, &recipe(1, now), now);
        add(&mut a, &mut b, &Recipe { activation: Outbound::AfterInbound, ..recipe(2, now) }, now);
        a.order(order, now);
        assert_eq!(sealer(&mut a, now), 2);
    }
}

#[test]
fn a_retired_pair_opens_until_it_is_removed() {
    let now = start();
    let (mut a, mut b) = connected(&recipe(1, now), now);
    add(&mut a, &mut b, &recipe(2, now), now);
    b.order(LaneOrder::Retire(Spi::new(LANE, 1)), now);
    a.order(LaneOrder::Retire(Spi::new(LANE, 2)), now);
    assert!(carry(&mut a, &mut b, now));
    b.order(LaneOrder::Remove(Spi::new(LANE, 1)), now);
    assert!(!carry(&mut a, &mut b, now));
    assert_eq!(b.drops.of(DropReason::NoSession), 1);
}

#[test]
fn a_pair_that_is_added_again_does_not_begin_its_numbers_again() {
    let now = start();
    let (mut a, _) = connected(&recipe(1, now), now);
    let iv = |packet: &Packet| packet.bytes()[8..16].to_vec();
    let first = iv(&one(&mut a, now)[0]);
    let (child, _) = recipe(1, now).children(now);
    a.order(LaneOrder::Add(Box::new(child)), now);
    assert_ne!(iv(&one(&mut a, now)[0]), first);
}

#[test]
fn packets_wait_when_the_only_pair_for_them_must_wait() {
    let now = start();
    let (mut a, mut b) = connected(&Recipe { remote: &["10.3.0.0/16"], ..recipe(1, now) }, now);
    add(&mut a, &mut b, &Recipe { activation: Outbound::AfterInbound, ..recipe(2, now) }, now);
    assert!(one(&mut a, now).is_empty());
    assert_eq!(a.cable.stats(now).held, 1);
    a.order(LaneOrder::Seal(Spi::new(LANE, 2)), now);
    assert_eq!(a.seal(Vec::new(), now).len(), 1);
}

#[test]
fn packets_that_no_pair_is_for_are_dropped() {
    let now = start();
    let (mut a, _) = connected(&recipe(1, now), now);
    for (source, destination) in [([10, 1, 0, 1], [10, 3, 0, 1]), ([10, 4, 0, 1], [10, 2, 0, 1])] {
        let packet = a.packet(&udp4_between(source, destination, &[1; 100]));
        assert!(a.seal(vec![packet], now).is_empty());
    }
    assert_eq!((a.drops.of(DropReason::NoSelector), a.cable.stats(now).held), (2, 0));
}

#[test]
fn soft_limits_are_told_once_and_hard_ones_end_the_pair() {
    let now = start();
    let limits = Limits { soft_packets: 3, hard_packets: 5, ..no_limits(now) };
    let (mut a, mut b) = connected(&Recipe { limits, ..recipe(1, now) }, now);
    let worn = [LaneNews::Worn { child: Spi::new(LANE, 1) }];
    for number in 1..=5 {
        assert!(carry(&mut a, &mut b, now));
        let expected = if number == 3 { &worn[..] } else { &[] };
        assert_eq!((&a.news()[..], &b.news()[..]), (expected, expected), "after packet {number}");
    }
    assert!(!carry(&mut a, &mut b, now));
    assert_eq!((a.drops.of(DropReason::SaExpired), b.drops.total()), (1, 0));
    let limits = Limits { soft_bytes: 100, hard_bytes: 200, ..no_limits(now) };
    let (mut a, mut b) = connected(&Recipe { limits, ..recipe(1, now) }, now);
    let arrived = (0..5).filter(|_| carry(&mut a, &mut b, now)).count();
    assert_eq!((arrived, &a.news()[..]), (2, &worn[..]), "the packet that crosses the limit is the last");
}

#[test]
fn a_pair_past_its_time_neither_seals_nor_opens() {
    let now = start();
    let limits = Limits { hard_time: now + Duration::from_secs(10), ..no_limits(now) };
    let (mut a, mut b) = connected(&Recipe { limits, ..recipe(1, now) }, now);
    let (just, late) = (now + Duration::from_millis(9_999), now + Duration::from_secs(10));
    assert!(carry(&mut a, &mut b, just));
    let sealed = one(&mut a, just);
    let received = b.receive(&sealed, A);
    assert!(b.open(received, late).is_empty() && one(&mut a, late).is_empty());
    assert_eq!((b.drops.of(DropReason::NoSession), a.drops.of(DropReason::SaExpired)), (1, 1));
    a.cable.handle_timeout(late, &mut a.drops);
    assert!(!a.cable.stats(late).is_up);
    add(&mut a, &mut b, &recipe(2, late), late);
    assert!(carry(&mut a, &mut b, late));
}

#[test]
fn an_authentic_newest_packet_from_elsewhere_is_followed() {
    let now = start();
    let (mut a, mut b) = connected(&recipe(1, now), now);
    let other = "198.51.100.7:31000";
    let mut sealed = one(&mut a, now);
    sealed.extend(one(&mut a, now));
    b.events();
    // The second of them, from elsewhere.
    let second = b.datagram(&datagrams(&sealed[1..])[0], other);
    assert_eq!(b.open(vec![second], now).len(), 1);
    assert_eq!(b.events(), [CableEvent::Roamed(other.parse().unwrap())]);
    assert_eq!(b.news(), [LaneNews::Moved { lane: LANE, from: outer(other) }]);
    assert_eq!(b.cable.stats(now).peer, Some(other.parse().unwrap()));
    // An older one, and one that does not verify, are not.
    let first = b.datagram(&datagrams(&sealed[..1])[0], A);
    let mut spoiled = datagrams(&one(&mut a, now))[0].clone();
    spoiled[30] ^= 1;
    let spoiled = b.datagram(&spoiled, A);
    assert_eq!(b.open(vec![first], now).len(), 1);
    assert!(b.open(vec![spoiled], now).is_empty());
    assert_eq!((b.events(), b.news()), (Vec::new(), Vec::new()));
}

#[test]
fn a_peer_that_may_not_move_is_not_followed() {
    let now = start();
    let (mut a, mut b) = connected(&recipe(1, now), now);
    b.order(LaneOrder::Path(EspPath { outer: outer(A), may_move: false }), now);
    let sealed = one(&mut a, now);
    let datagram = b.datagram(&datagrams(&sealed)[0], "198.51.100.7:31000");
    assert_eq!(b.open(vec![datagram], now).len(), 1);
    assert_eq!((b.news(), b.cable.stats(now).peer), (Vec::new(), Some(A.parse().unwrap())));
}

#[test]
fn raw_esp_goes_to_port_zero() {
    let now = start();
    let (mut a, _) = connected(&recipe(1, now), now);
    a.order(LaneOrder::Path(EspPath { outer: outer("192.0.2.2:0"), may_move: false }), now);
    assert_eq!(one(&mut a, now)[0].outer.peer.port(), 0);
}

#[test]
fn only_the_peers_subnets_come_in() {
    let now = start();
    let (mut a, mut b) = connected(&recipe(1, now), now);
    // End A believes in more than end B.
    let wide = Recipe { local: &["0.0.0.0/0"], remote: &["0.0.0.0/0"], ..recipe(2, now) };
    let (child, _) = wide.children(now);
    a.order(LaneOrder::Add(Box::new(child)), now);
    let (_, child) = recipe(2, now).children(now);
    b.order(LaneOrder::Add(Box::new(child)), now);
    for (source, destination) in [([10, 9, 0, 1], [10, 2, 0, 1]), ([10, 1, 0, 1], [10, 9, 0, 1])] {
        let packet = a.packet(&udp4_between(source, destination, &[1; 100]));
        let sealed = a.seal(vec![packet], now);
        let received = b.receive(&sealed, A);
        assert!(b.open(received, now).is_empty());
    }
    assert_eq!(b.drops.of(DropReason::SelectorMismatch), 2);
    assert!(carry(&mut a, &mut b, now));
}

/// Packets that `from` seals with a pair which only it has so far, as `to` receives them, and the pair of `to`.
fn early(from: &mut End, to: &mut End, count: u8, now: Instant) -> (Vec<Packet>, ChildSa) {
    let (left, right) = recipe(2, now).children(now);
    from.order(LaneOrder::Add(Box::new(left)), now);
    let packets: Vec<Packet> = (0..count).map(|number| from.packet(&udp4(&[number; 100]))).collect();
    let sealed = from.seal(packets, now);
    (to.receive_singly(&sealed, from.address), right)
}

fn wanted(count: u8) -> Vec<Vec<u8>> {
    (0..count).map(|number| udp4(&[number; 100])).collect()
}

#[test]
fn packets_that_come_before_the_answer_that_makes_their_keys_are_opened_in_order() {
    let now = start();
    let (mut a, mut b) = connected(&recipe(1, now), now);
    b.order(LaneOrder::Expect(Spi::new(LANE, 2)), now);
    let (mut received, right) = early(&mut a, &mut b, 5, now);
    let last = received.split_off(3);
    assert!(b.open(received, now).is_empty());
    assert_eq!((b.cable.stats(now).held, b.cable.has_openable()), (3, false));

    b.order(LaneOrder::Add(Box::new(right)), now);

    assert!(b.cable.has_openable());
    let opened = b.open(last, now + Duration::from_millis(600));
    assert_eq!(inner_packets(opened), wanted(5));
    assert_eq!((b.cable.stats(now).held, b.cable.has_openable(), b.drops.total()), (0, false, 0));
}

#[test]
fn keys_open_what_waits_for_them_though_nothing_more_comes() {
    let now = start();
    let (mut a, mut b) = connected(&recipe(1, now), now);
    b.order(LaneOrder::Expect(Spi::new(LANE, 2)), now);
    let (received, right) = early(&mut a, &mut b, 2, now);
    assert!(b.open(received, now).is_empty());
    b.order(LaneOrder::Add(Box::new(right)), now);
    assert_eq!(inner_packets(b.open(Vec::new(), now)), wanted(2));
    assert_eq!(b.drops.total(), 0);
}

#[test]
fn what_waits_for_keys_is_bounded_in_number_and_time_and_by_where_the_peer_is() {
    let now = start();
    let (mut a, mut b) = connected(&recipe(1, now), now);
    let (received, _) = early(&mut a, &mut b, 1, now);
    b.open(received, now);
    assert_eq!(b.drops.of(DropReason::NoSession), 1, "nobody has asked for it");

    b.order(LaneOrder::Expect(Spi::new(LANE, 2)), now);
    let (received, _) = early(&mut a, &mut b, 100, now);
    b.open(received, now);
    assert_eq!((b.cable.stats(now).held, b.drops.of(DropReason::HeldOverflow)), (64, 36));
    let mut strangers = early(&mut a, &mut b, 1, now).0;
    strangers.iter_mut().for_each(|packet| packet.outer.peer = "198.51.100.9:4500".parse().unwrap());
    b.open(strangers, now);
    assert_eq!(b.drops.of(DropReason::NoSession), 2, "from elsewhere");

    let later = now + Duration::from_secs(6);
    b.cable.handle_timeout(later, &mut b.drops);
    assert_eq!((b.cable.stats(later).held, b.drops.of(DropReason::HeldExpired)), (0, 64));
    let (received, _) = early(&mut a, &mut b, 3, later);
    b.open(received, later);
    b.order(LaneOrder::Abandon(Spi::new(LANE, 2)), later);
    assert_eq!((b.cable.stats(later).held, b.drops.of(DropReason::HeldExpired)), (0, 67));
    assert!(!b.cable.has_openable());
}
