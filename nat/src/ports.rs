//! Ports of global addresses: which are in use, and which one a new mapping gets.

use std::net::Ipv4Addr;

use hashbrown::HashMap;
use trieste_packet::KeyedState;
use trieste_packet::wire::protocol;

use crate::index::at;
use crate::owner::{BUCKETS, Bucket};
use crate::session::End;
use crate::share::{SLOTS, Share};

/// Words of a bucket's bitmap: 1024 ports.
const WORDS: usize = 16;
/// In each bucket, the first sixteen ports are below 1024.
const LOW: u64 = 0xffff;

/// Which part of a bucket a port is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Ports below 1024.
    Low,
    /// Ports from 1024 on.
    High,
    /// ICMP identifiers have no classes.
    Any,
}

impl Class {
    //= https://www.rfc-editor.org/rfc/rfc4787#section-4.2.1
    //# If the host's source port was in the range 0-1023, it is
    //# RECOMMENDED the NAT's source port be in the same range.
    pub(crate) fn of(end: &End) -> Self {
        match end.protocol {
            protocol::ICMP => Self::Any,
            _ if end.port < 1024 => Self::Low,
            _ => Self::High,
        }
    }

    /// The bits of a bitmap's word that belong to it.
    fn mask(self, word: usize) -> u64 {
        match (self, word) {
            (Self::Any, _) => u64::MAX,
            (Self::Low, 0) => LOW,
            (Self::Low, _) => 0,
            (Self::High, 0) => !LOW,
            (Self::High, _) => u64::MAX,
        }
    }

    /// First port of a bucket that belongs to it, as a position in the bucket, and how many there are.
    fn range(self) -> (u64, u64) {
        match self {
            Self::Low => (0, 16),
            Self::High => (16, 1008),
            Self::Any => (0, 1024),
        }
    }

    /// How many ports of a bucket belong to it and to the share: every slot has as many of them.
    fn count(self, share: Share) -> u32 {
        u32::try_from(self.range().1).expect("at most 1024") / u32::from(SLOTS) * share.count()
    }
}

/// Where a new mapping's port is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) bucket: Bucket,
    /// Where in it the search begins, any number.
    pub(crate) start: u64,
    /// The ports that this gateway gives out.
    pub(crate) share: Share,
}

/// Ports in use of one address and protocol: per bucket a bitmap, by the port's upper ten bits.
#[derive(Debug, Clone)]
struct Bitmap([[u64; WORDS]; BUCKETS]);

impl Bitmap {
    fn place(port: u16) -> (usize, usize, u64) {
        let position = usize::from(port >> 6);
        (Bucket::of_port(port).index(), position / 64, 1 << (position % 64))
    }

    fn is_used(&self, port: u16) -> bool {
        let (bucket, word, bit) = Self::place(port);
        self.0[bucket][word] & bit != 0
    }

    fn set(&mut self, port: u16) {
        let (bucket, word, bit) = Self::place(port);
        self.0[bucket][word] |= bit;
    }

    fn clear(&mut self, port: u16) {
        let (bucket, word, bit) = Self::place(port);
        self.0[bucket][word] &= !bit;
    }

    /// How many of the class's ports in a share are in use.
    fn used(&self, bucket: Bucket, class: Class, share: Share) -> u32 {
        let words = self.0[bucket.index()].iter().enumerate();
        words.map(|(word, bits)| (bits & class.mask(word) & share.word()).count_ones()).sum()
    }

    /// The same port as inside if that is possible, else a free one of its class.
    fn choose(&self, inside: &End, place: Place) -> Option<u16> {
        let Place { bucket, share, .. } = place;
        let is_ours = Bucket::of_port(inside.port) == bucket && share.has_port(inside.port);
        if is_ours && !self.is_used(inside.port) {
            return Some(inside.port);
        }
        self.free(Class::of(inside), place)
    }

    /// A free port of the class, the first from where the search begins.
    fn free(&self, class: Class, Place { bucket, start, share }: Place) -> Option<u16> {
        let (first, count) = class.range();
        let place = first + start % count;
        let (start_word, start_bit) = (usize::try_from(place / 64).ok()?, place % 64);
        let words = &self.0[bucket.index()];
        for step in 0..=WORDS {
            let word = (start_word + step) % WORDS;
            let from = match step {
                0 => u64::MAX << start_bit,
                WORDS => !(u64::MAX << start_bit),
                _ => u64::MAX,
            };
            let free = !words[word] & class.mask(word) & share.word() & from;
            if free != 0 {
                return Some(port_at(bucket, word * 64 + at(free.trailing_zeros())));
            }
        }
        None
    }
}

fn port_at(bucket: Bucket, position: usize) -> u16 {
    u16::try_from(position * BUCKETS + bucket.index()).expect("1024 positions of 64 ports")
}

/// The port of the class where the search begins, whether used or not. `None` when the share is empty.
pub(crate) fn any_port(class: Class, place: Place) -> Option<u16> {
    let (first, count) = class.range();
    let position = place.share.nearest(first + place.start % count)?;
    Some(port_at(place.bucket, usize::try_from(position).expect("below 1024")))
}

/// What is in use of one global address.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) address: Ipv4Addr,
    /// Sessions with the address; 0 in a slot that waits to be used again.
    pub(crate) sessions: u32,
    /// Ports that wait to be free.
    waiting: u32,
    /// TCP, UDP, ICMP; made when the first port is taken.
    bitmaps: [Option<Box<Bitmap>>; 3],
    pub(crate) used: [u32; 3],
}

/// Everything that is in use of global addresses.
#[derive(Debug)]
pub(crate) struct Pools {
    pools: Vec<Pool>,
    by_address: HashMap<Ipv4Addr, u32, KeyedState>,
    free: Vec<u32>,
    /// Bitmaps of addresses that nobody uses at present, all clear.
    spare: Vec<Box<Bitmap>>,
    /// Ports that several mappings have: how many more than one.
    shared: HashMap<(Ipv4Addr, u16), u32, KeyedState>,
}

impl Pools {
    pub(crate) fn new(state: &KeyedState) -> Self {
        Self {
            pools: Vec::new(),
            by_address: HashMap::with_hasher(state.clone()),
            free: Vec::new(),
            spare: Vec::new(),
            shared: HashMap::with_hasher(state.clone()),
        }
    }

    /// The pool of an address; made when there is none.
    pub(crate) fn of(&mut self, address: Ipv4Addr) -> u32 {
        if let Some(&pool) = self.by_address.get(&address) {
            return pool;
        }
        let fresh = Pool { address, sessions: 0, waiting: 0, bitmaps: [None, None, None], used: [0; 3] };
        let pool = match self.free.pop() {
            Some(pool) => {
                self.pools[at(pool)] = fresh;
                pool
            }
            None => {
                self.pools.push(fresh);
                u32::try_from(self.pools.len() - 1).expect("no more than there are IPv4 addresses")
            }
        };
        self.by_address.insert(address, pool);
        pool
    }

    /// The pools in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter().filter(|pool| pool.sessions > 0)
    }

    /// How many mappings have a port that another one has, too.
    pub(crate) fn shared(&self) -> u64 {
        u64::try_from(self.shared.len()).unwrap_or(u64::MAX)
    }

    /// Counts a session in.
    pub(crate) fn enter(&mut self, pool: u32) {
        self.pools[at(pool)].sessions += 1;
    }

    /// Counts a session out; the address's memory is used for another one after the last. Its ports are free then.
    pub(crate) fn leave(&mut self, pool: u32) {
        self.pools[at(pool)].sessions -= 1;
        self.retire(pool);
    }

    /// Gives a pool back that nobody uses.
    pub(crate) fn retire(&mut self, pool: u32) {
        let slot = &mut self.pools[at(pool)];
        if slot.sessions > 0 || slot.waiting > 0 || self.by_address.get(&slot.address) != Some(&pool) {
            return;
        }
        self.by_address.remove(&slot.address);
        self.spare.extend(slot.bitmaps.iter_mut().filter_map(Option::take));
        self.free.push(pool);
    }

    /// Whether a port is in use.
    pub(crate) fn is_used(&self, end: &End) -> bool {
        let Some(&pool) = self.by_address.get(&end.address) else { return false };
        let bitmap = kind(end.protocol).and_then(|kind| self.pools[at(pool)].bitmaps[kind].as_ref());
        bitmap.is_some_and(|bitmap| bitmap.is_used(end.port))
    }

    /// How much of what may be given out of a bucket's ports is in use, in percent; rounded down.
    pub(crate) fn fill_percent(&self, pool: u32, protocol: u8, place: Place, class: Class) -> u32 {
        let Place { bucket, share, .. } = place;
        let bitmap = kind(protocol).and_then(|kind| self.pools[at(pool)].bitmaps[kind].as_ref());
        bitmap.map_or(0, |bitmap| bitmap.used(bucket, class, share) * 100 / class.count(share).max(1))
    }

    /// A free port in a bucket for an inside end: its own if that is possible, else the first free one
    /// from where the search begins.
    pub(crate) fn choose(&mut self, pool: u32, inside: &End, place: Place) -> Option<u16> {
        let Some(kind) = kind(inside.protocol) else { return Some(0) };
        self.bitmap(pool, kind).choose(inside, place)
    }

    /// A port that [`choose`](Self::choose) might find; changes nothing.
    pub(crate) fn free_port(&self, global: Ipv4Addr, inside: &End, place: Place) -> Option<u16> {
        let Some(kind) = kind(inside.protocol) else { return Some(0) };
        let pool = self.by_address.get(&global).and_then(|&pool| self.pools.get(at(pool)));
        match pool.and_then(|pool| pool.bitmaps[kind].as_ref()) {
            Some(bitmap) => bitmap.choose(inside, place),
            None => any_port(Class::of(inside), place),
        }
    }

    /// Takes a port. One that is in use is shared from then on.
    pub(crate) fn take(&mut self, pool: u32, end: &End) {
        let Some(kind) = kind(end.protocol) else { return };
        let bitmap = self.bitmap(pool, kind);
        if bitmap.is_used(end.port) {
            *self.shared.entry((end.address, end.port)).or_insert(0) += 1;
            return;
        }
        bitmap.set(end.port);
        self.pools[at(pool)].used[kind] += 1;
    }

    /// Gives a port back. One that others have, too, stays in use.
    pub(crate) fn give_back(&mut self, pool: u32, end: &End) {
        let Some(kind) = kind(end.protocol) else { return };
        if end.protocol == protocol::TCP
            && let Some(more) = self.shared.get_mut(&(end.address, end.port))
        {
            *more -= 1;
            if *more == 0 {
                self.shared.remove(&(end.address, end.port));
            }
            return;
        }
        self.bitmap(pool, kind).clear(end.port);
        self.pools[at(pool)].used[kind] -= 1;
    }

    /// A port waits to be free: it stays in use, and its pool there.
    pub(crate) fn hold(&mut self, pool: u32) {
        self.pools[at(pool)].waiting += 1;
    }

    /// A port that waited is free, or somebody's again who takes it next.
    pub(crate) fn let_go(&mut self, pool: u32, end: &End) {
        self.pools[at(pool)].waiting -= 1;
        self.give_back(pool, end);
        self.retire(pool);
    }

    fn bitmap(&mut self, pool: u32, kind: usize) -> &mut Bitmap {
        let spare = &mut self.spare;
        self.pools[at(pool)].bitmaps[kind].get_or_insert_with(|| {
            let mut bitmap = spare.pop().unwrap_or_else(|| Box::new(Bitmap([[0; WORDS]; BUCKETS])));
            // Port 0 is no port of TCP and UDP; 0 is an ICMP identifier like any other.
            if kind == ICMP {
                bitmap.clear(0);
            } else {
                bitmap.set(0);
            }
            bitmap
        })
    }
}

const TCP: usize = 0;
const UDP: usize = 1;
const ICMP: usize = 2;

/// Which bitmap a protocol has; `None` where there are no ports to take.
fn kind(protocol: u8) -> Option<usize> {
    match protocol {
        protocol::TCP => Some(TCP),
        protocol::UDP => Some(UDP),
        protocol::ICMP => Some(ICMP),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(protocol: u8, port: u16) -> End {
        End { protocol, address: Ipv4Addr::new(242, 1, 0, 1), port }
    }

    fn place(bucket: Bucket, start: u64) -> Place {
        Place { bucket, start, share: Share::ALL }
    }

    fn pools() -> (Pools, u32) {
        let mut pools = Pools::new(&KeyedState::new(1));
        let pool = pools.of(Ipv4Addr::new(242, 1, 0, 1));
        (pools, pool)
    }

    #[test]
    fn every_port_of_a_bucket_and_class_is_found_once() {
        for (protocol, inside, ports) in [(17, 5, 16), (17, 5000, 1008), (1, 5, 1024)] {
            let (mut pools, pool) = pools();
            let bucket = Bucket::of_port(9);
            let mut found = Vec::new();
            while let Some(port) = pools.choose(pool, &end(protocol, inside), place(bucket, 12_345)) {
                assert_eq!(Bucket::of_port(port), bucket);
                pools.take(pool, &end(protocol, port));
                found.push(port);
            }
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), ports);
            assert!(protocol == 1 || found.iter().all(|&port| (port < 1024) == (inside < 1024)));
        }
    }

    #[test]
    fn a_share_finds_its_ports_and_no_others() {
        for (bits, slots) in [(0b0000_0001, 1), (0b1000_0010, 2), (0b0111_1111, 7), (0, 0)] {
            let share = Share::from_bits(bits);
            for (protocol, inside, of_slot) in [(17, 1000, 2), (6, 5000, 126), (1, 5, 128)] {
                let (mut pools, pool) = pools();
                let bucket = Bucket::of_port(9);
                let place = Place { bucket, start: 777, share };
                let mut found = 0;
                while let Some(port) = pools.choose(pool, &end(protocol, inside), place) {
                    assert!(share.has_port(port) && Bucket::of_port(port) == bucket);
                    assert_eq!(protocol != 1 && inside < 1024, protocol != 1 && port < 1024);
                    pools.take(pool, &end(protocol, port));
                    found += 1;
                }
                assert_eq!(found, of_slot * slots, "{bits:08b}");
                let class = Class::of(&end(protocol, inside));
                assert_eq!(pools.fill_percent(pool, protocol, place, class), if slots > 0 { 100 } else { 0 });
                assert!(any_port(class, place).is_none_or(|port: u16| share.has_port(port)));
            }
        }
    }

    #[test]
    fn a_port_of_another_share_is_not_kept() {
        let (mut pools, pool) = pools();
        let inside = end(17, 5001);
        let bucket = Bucket::of_port(5001);
        let share = Share::ALL.without(Share::of_slot(crate::share::slot_of(5001)));
        let port = pools.choose(pool, &inside, Place { bucket, start: 7, share }).unwrap();
        assert!(port != 5001 && share.has_port(port));
    }

    #[test]
    fn port_0_is_an_identifier_but_no_port() {
        let (mut pools, pool) = pools();
        let bucket = Bucket::of_port(0);
        for (protocol, ports) in [(6, 15), (17, 15), (1, 1024)] {
            let mut zero = false;
            let mut count = 0;
            while let Some(port) = pools.choose(pool, &end(protocol, 1), place(bucket, 0)) {
                pools.take(pool, &end(protocol, port));
                zero |= port == 0;
                count += 1;
            }
            assert_eq!((zero, count), (protocol == 1, ports));
        }
    }

    #[test]
    fn the_same_port_is_kept_where_its_bucket_allows() {
        let (mut pools, pool) = pools();
        let inside = end(17, 5001);
        assert_eq!(pools.choose(pool, &inside, place(Bucket::of_port(5001), 7)), Some(5001));
        pools.take(pool, &inside);
        assert_ne!(pools.choose(pool, &inside, place(Bucket::of_port(5001), 7)), Some(5001));
    }

    #[test]
    fn a_shared_port_is_free_when_the_last_has_given_it_back() {
        let (mut pools, pool) = pools();
        let shared = end(6, 5001);
        for _ in 0..3 {
            pools.take(pool, &shared);
        }
        assert_eq!((pools.shared(), pools.pools[at(pool)].used[TCP]), (1, 1));
        for _ in 0..3 {
            assert!(pools.is_used(&shared));
            pools.give_back(pool, &shared);
        }
        assert!(!pools.is_used(&shared));
        assert_eq!((pools.shared(), pools.pools[at(pool)].used[TCP]), (0, 0));
    }

    #[test]
    fn memory_of_an_address_is_used_again() {
        let (mut pools, pool) = pools();
        pools.take(pool, &end(17, 5001));
        pools.enter(pool);
        pools.give_back(pool, &end(17, 5001));
        pools.leave(pool);
        assert_eq!((pools.spare.len(), pools.iter().count()), (1, 0));
        let other = pools.of(Ipv4Addr::new(242, 1, 0, 2));
        assert_eq!(other, pool);
        let inside = End { address: Ipv4Addr::new(10, 0, 0, 1), ..end(1, 0) };
        assert_eq!(
            pools.choose(other, &inside, place(Bucket::of_port(0), 0)),
            Some(0),
            "also for another protocol"
        );
        assert!(pools.spare.is_empty());
    }
}
