//! What is between gateways: links that are cut or slow, and since when each is as it is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use trieste_packet::Packet;

/// How long a datagram is under way.
const DELAY: Duration = Duration::from_micros(700);

/// One way between two gateways.
#[derive(Debug, Clone, Copy)]
struct Way {
    cuts: u32,
    delays: u32,
    extra: Duration,
    /// The last datagram's arrival: they do not overtake each other.
    last: Instant,
}

/// All links.
pub(crate) struct Network {
    count: usize,
    ways: Vec<Way>,
    flying: BTreeMap<(Instant, u64), (usize, usize, Packet)>,
    number: u64,
}

impl Network {
    pub(crate) fn new(count: usize, now: Instant) -> Self {
        let way = Way { cuts: 0, delays: 0, extra: Duration::ZERO, last: now };
        Self { count, ways: vec![way; count * count], flying: BTreeMap::new(), number: 0 }
    }

    fn way(&mut self, from: usize, to: usize) -> &mut Way {
        &mut self.ways[from * self.count + to]
    }

    pub(crate) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.ways[from * self.count + to].cuts > 0
    }

    pub(crate) fn is_slow(&self, from: usize, to: usize) -> bool {
        self.ways[from * self.count + to].delays > 0
    }

    /// Cuts one way, or takes one cut back.
    pub(crate) fn cut(&mut self, from: usize, to: usize, is_cut: bool) {
        let way = self.way(from, to);
        way.cuts = if is_cut { way.cuts + 1 } else { way.cuts - 1 };
    }

    /// Makes one way slow, or takes that back.
    pub(crate) fn delay(&mut self, from: usize, to: usize, extra: Duration, is_slow: bool) {
        let way = self.way(from, to);
        way.delays = if is_slow { way.delays + 1 } else { way.delays - 1 };
        way.extra = if way.delays == 0 { Duration::ZERO } else { extra };
    }

    /// Sends a datagram; the way is not cut.
    pub(crate) fn send(&mut self, from: usize, to: usize, packet: Packet, now: Instant) {
        let way = self.way(from, to);
        let at = (now + DELAY + way.extra).max(way.last);
        way.last = at;
        self.number += 1;
        self.flying.insert((at, self.number), (from, to, packet));
    }

    /// When the next datagram arrives.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.flying.first_key_value().map(|((at, _), _)| *at)
    }

    /// A datagram that has arrived.
    pub(crate) fn arrived(&mut self, now: Instant) -> Option<(usize, usize, Packet)> {
        let entry = self.flying.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }
}
