//! What a store of fragments does, and what it never holds.

use proptest::prelude::*;
use trieste_packet::wire::put16;
use trieste_packet::{Pool, PoolConfig, checksum};

use super::*;

const SOURCE: Ipv4Addr = Ipv4Addr::new(242, 1, 0, 1);

fn key(source: Ipv4Addr, identification: u16) -> FragmentKey {
    FragmentKey { source, destination: Ipv4Addr::new(242, 0, 0, 9), identification, protocol: protocol::UDP }
}

/// A store with its pool, and what came out of it, as the first bytes of packets.
struct Bed {
    pool: Pool,
    store: Fragments<u8>,
    now: Instant,
    lost: Vec<u8>,
}

impl Bed {
    fn new(limits: FragmentLimits) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "a point to count from; the time itself does not matter"
        )]
        let now = Instant::now();
        let pool = Pool::new(PoolConfig { slots: 256, slot_bytes: 256 });
        Self { pool, store: Fragments::new(limits, 7), now, lost: Vec::new() }
    }

    fn follow(&mut self, key: FragmentKey, tag: u8) -> Option<u8> {
        let packet = Packet::new(self.pool.alloc_copy(&[tag]).expect("the pool is large"));
        let (lost, pool) = (&mut self.lost, &mut self.pool);
        let lose = |packet: Packet| {
            lost.push(packet.bytes()[0]);
            pool.recycle(packet.buf);
        };
        let (outcome, packet) = self.store.follow(key, packet, self.now, lose)?;
        assert_eq!(packet.bytes()[0], tag, "the packet that follows is the one that came");
        self.pool.recycle(packet.buf);
        Some(outcome)
    }

    fn settle(&mut self, key: FragmentKey, outcome: u8) -> Vec<u8> {
        let mut released = Vec::new();
        let lost = &mut self.lost;
        let (mut free, mut gone) = (Vec::new(), Vec::new());
        let release = |packet: Packet| {
            released.push(packet.bytes()[0]);
            free.push(packet.buf);
        };
        let lose = |packet: Packet| {
            lost.push(packet.bytes()[0]);
            gone.push(packet.buf);
        };
        self.store.settle(key, outcome, self.now, release, lose);
        free.into_iter().chain(gone).for_each(|buf| self.pool.recycle(buf));
        released
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        let (lost, pool) = (&mut self.lost, &mut self.pool);
        self.store.expire(self.now, |packet| {
            lost.push(packet.bytes()[0]);
            pool.recycle(packet.buf);
        });
    }
}

fn bed() -> Bed {
    Bed::new(FragmentLimits::default())
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-11
//= type=test
//# REQ-14:  A NAT MUST support receiving in-order and out-of-order
//# fragments, so it MUST have "Received Fragment Out of Order" behavior.
#[test]
fn rfc4787_req14_fragments_follow_their_first_in_and_out_of_order() {
    let mut bed = bed();
    assert_eq!(bed.settle(key(SOURCE, 1), 9), Vec::<u8>::new());
    assert_eq!(bed.follow(key(SOURCE, 1), 2), Some(9), "in order");
    assert_eq!(bed.follow(key(SOURCE, 2), 3), None, "the first is still to come");
    assert_eq!(bed.follow(key(SOURCE, 2), 4), None);
    assert_eq!(bed.settle(key(SOURCE, 2), 8), [3, 4], "out of order, released in the order they came");
    assert_eq!(bed.follow(key(SOURCE, 2), 5), Some(8), "and what comes behind follows");
    assert!(bed.lost.is_empty());
    let counters = bed.store.counters();
    assert_eq!((counters.settled, counters.followed, counters.waited), (2, 4, 2));
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-11
//= type=test
//# a)  A NAT's out-of-order fragment processing mechanism MUST be
//# designed so that fragmentation-based DoS attacks do not
//# compromise the NAT's ability to process in-order and
//# unfragmented IP packets.
#[test]
fn rfc4787_req14a_a_flood_of_fragments_without_firsts_is_bounded_and_does_not_touch_those_in_order() {
    let mut bed = bed();
    let limits = FragmentLimits::default();
    let mut good = 0_u16;
    for number in 0..20_000_u32 {
        // Every packet from another source and with another identification, as cheap as an attack can be.
        let source = Ipv4Addr::from(0xf202_0000 | (number & 0xffff));
        assert_eq!(bed.follow(key(source, 1), 0), None);
        assert!(bed.store.waiting() <= limits.waiting);
        if number % 10 == 0 {
            good = good.wrapping_add(1);
            bed.settle(key(SOURCE, good), 7);
            assert_eq!(bed.follow(key(SOURCE, good), 1), Some(7), "in order, while the flood goes on");
        }
    }
    let available = bed.pool.available();
    assert!(available >= 256 - limits.waiting, "buffers held are bounded: {available} are left");
    bed.pass(limits.wait);
    assert_eq!((bed.store.waiting(), bed.pool.available()), (0, 256), "and all come back");
    assert_eq!(bed.lost.len(), 20_000);
    assert!(bed.lost.iter().all(|&tag| tag == 0));
}

#[test]
fn one_source_cannot_take_more_than_its_row() {
    let mut bed = bed();
    let limits = FragmentLimits::default();
    for identification in 0..1000 {
        bed.follow(key(SOURCE, identification), 0);
    }
    assert!(bed.store.waiting() <= limits.waiting_per_row);
    let other = (1..=255).map(|last| Ipv4Addr::new(10, 9, 9, last));
    let other =
        other.into_iter().find(|&other| bed.store.row(&key(other, 1)) != bed.store.row(&key(SOURCE, 1)));
    let other = other.expect("some source has another row");
    assert_eq!(bed.follow(key(other, 1), 5), None);
    assert_eq!(bed.settle(key(other, 1), 6), [5], "others have room to wait");
}

#[test]
fn a_first_that_does_not_come_in_time_costs_its_fragments() {
    let mut bed = bed();
    bed.follow(key(SOURCE, 1), 2);
    assert_eq!(bed.store.poll_timeout(), Some(bed.now + WAIT));
    bed.pass(WAIT - Duration::from_millis(1));
    assert!(bed.lost.is_empty());
    bed.pass(Duration::from_millis(1));
    assert_eq!(bed.lost, [2]);
    assert_eq!(bed.store.poll_timeout(), None);
    assert!(bed.settle(key(SOURCE, 1), 3).is_empty(), "nothing is left to be released");
    assert_eq!(bed.store.counters().expired, 1);
}

#[test]
fn what_was_settled_long_ago_is_not_followed() {
    let mut bed = bed();
    bed.settle(key(SOURCE, 1), 3);
    bed.pass(FOLLOW - Duration::from_millis(1));
    assert_eq!(bed.follow(key(SOURCE, 1), 0), Some(3));
    bed.pass(Duration::from_millis(1));
    assert_eq!(bed.follow(key(SOURCE, 1), 1), None, "it waits for a new first");
    assert_eq!(bed.settle(key(SOURCE, 1), 4), [1]);
}

#[test]
fn an_identification_that_comes_again_follows_its_newest_first() {
    let mut bed = bed();
    bed.settle(key(SOURCE, 1), 3);
    bed.settle(key(SOURCE, 1), 4);
    assert_eq!(bed.follow(key(SOURCE, 1), 1), Some(4));
}

#[test]
fn a_row_that_is_full_forgets_its_oldest_packet() {
    let mut bed = bed();
    let places = u16::try_from(FragmentLimits::default().packets_per_row).unwrap();
    bed.follow(key(SOURCE, 0), 77);
    for identification in 1..=places {
        bed.now += Duration::from_millis(1);
        bed.settle(key(SOURCE, identification), 1);
    }
    assert_eq!(bed.lost, [77], "with what waited for it");
    for identification in 1..=places {
        assert_eq!(bed.follow(key(SOURCE, identification), 0), Some(1));
    }
    bed.now += Duration::from_millis(1);
    bed.settle(key(SOURCE, places + 1), 1);
    assert_eq!(bed.follow(key(SOURCE, 2), 0), Some(1));
    assert_eq!(bed.follow(key(SOURCE, 1), 0), None, "forgotten");
}

#[test]
fn all_four_parts_of_the_key_count() {
    let mut bed = bed();
    let settled = key(SOURCE, 1);
    bed.settle(settled, 3);
    let others = [
        FragmentKey { source: Ipv4Addr::new(242, 1, 0, 2), ..settled },
        FragmentKey { destination: Ipv4Addr::new(242, 0, 0, 8), ..settled },
        FragmentKey { identification: 2, ..settled },
        FragmentKey { protocol: protocol::TCP, ..settled },
    ];
    for other in others {
        assert_eq!(bed.follow(other, 1), None, "{other:?}");
    }
}

fn fragment(protocol: u8, field: u16, payload: usize) -> Vec<u8> {
    let mut bytes = vec![0_u8; 20 + payload];
    bytes[0] = 0x45;
    let total = u16::try_from(bytes.len()).unwrap();
    put16(&mut bytes, 2, total);
    put16(&mut bytes, 4, 0x1234);
    put16(&mut bytes, 6, field);
    bytes[8] = 64;
    bytes[9] = protocol;
    bytes[12..20].copy_from_slice(&[242, 1, 0, 1, 242, 0, 0, 9]);
    if protocol == protocol::TCP {
        bytes[32] = 0x50;
    }
    checksum::fill_ipv4_header(&mut bytes);
    bytes
}

#[test]
fn keys_are_read_from_fragments_alone() {
    let read = |bytes: &[u8]| FragmentKey::of(bytes, &Inner::parse(bytes).unwrap());
    let expected = FragmentKey { identification: 0x1234, ..key(SOURCE, 0) };
    assert_eq!(read(&fragment(protocol::UDP, 0x2000, 24)), Ok(Some(expected)), "a first");
    assert_eq!(read(&fragment(protocol::UDP, 0x2003, 24)), Ok(Some(expected)), "one in the middle");
    assert_eq!(read(&fragment(protocol::UDP, 0x0003, 24)), Ok(Some(expected)), "the last");
    assert_eq!(read(&fragment(protocol::UDP, 0x4000, 24)), Ok(None), "no fragment");
}

#[test]
fn a_fragment_that_would_write_over_tcp_flags_is_refused() {
    let read = |bytes: &[u8]| FragmentKey::of(bytes, &Inner::parse(bytes).unwrap());
    assert_eq!(read(&fragment(protocol::TCP, 0x2001, 24)), Err(DropReason::NatFragment));
    assert!(
        read(&fragment(protocol::UDP, 0x2001, 24)).is_ok(),
        "UDP has nothing behind its first eight bytes"
    );
    assert!(read(&fragment(protocol::TCP, 0x2002, 24)).is_ok());
}

proptest! {
    /// Packets cut in pieces, all shuffled together: each piece ends with its own packet's outcome, once.
    #[test]
    fn every_fragment_gets_the_outcome_of_its_first_in_any_order(
        order in Just((0_u8..40).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let mut bed = bed();
        let mut seen = [0_u32; 40];
        // Piece n is number n % 8 of packet n / 8; piece 0 of each is the first.
        for piece in order {
            let packet = u16::from(piece / 8);
            if piece % 8 == 0 {
                seen[usize::from(piece)] += 1;
                let outcome = piece / 8;
                for released in bed.settle(key(SOURCE, packet), outcome) {
                    prop_assert_eq!(released / 8, outcome);
                    seen[usize::from(released)] += 1;
                }
            } else if let Some(outcome) = bed.follow(key(SOURCE, packet), piece) {
                prop_assert_eq!(outcome, piece / 8);
                seen[usize::from(piece)] += 1;
            }
        }
        prop_assert!(bed.lost.is_empty() && seen.iter().all(|&times| times == 1), "{:?}", seen);
        prop_assert_eq!(bed.pool.available(), 256);
    }
}
