//! Packets that wait for keys.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use trieste_packet::{CableId, Checksum, Decision, DropReason, Drops, Layout, Packet, Pool};

/// Most packets (segments of trains) held per lane. Ours: what the kernel's WireGuard stages.
pub const HELD_PACKETS: u64 = 128;
/// Most bytes held per lane.
pub const HELD_BYTES: usize = 256 * 1024;

/// How long a packet may wait. Ours: what is older is of no use to anybody any more, or has been sent again.
pub const HELD_AGE: Duration = Duration::from_secs(5);

/// A bounded queue of packets awaiting keys. The oldest is pushed out by the newest: what is freshest is most
/// likely still wanted. Packets are copied out of the pool, so that a peer that is away cannot empty it.
#[derive(Debug, Default)]
pub struct Held {
    queue: VecDeque<HeldPacket>,
    packets: u64,
    bytes: usize,
}

#[derive(Debug)]
struct HeldPacket {
    bytes: Box<[u8]>,
    layout: Layout,
    checksum: Checksum,
    decision: Decision,
    segments: u64,
    since: Instant,
}

impl Held {
    /// Number of packets held.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Whether none is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The bytes of the oldest packet, and since when it has been held.
    #[must_use]
    pub fn front(&self) -> Option<(&[u8], Instant)> {
        self.queue.front().map(|held| (&*held.bytes, held.since))
    }

    /// Adds a packet at the end, and drops from the front what is over the limits.
    pub fn push(&mut self, packet: Packet, pool: &mut Pool, cable: CableId, drops: &mut Drops, now: Instant) {
        let held = HeldPacket {
            bytes: packet.bytes().into(),
            layout: packet.layout,
            checksum: packet.checksum,
            decision: packet.decision,
            segments: packet.segments(),
            since: now,
        };
        pool.recycle(packet.buf);
        self.packets += held.segments;
        self.bytes += held.bytes.len();
        self.queue.push_back(held);
        while (self.packets > HELD_PACKETS || self.bytes > HELD_BYTES) && self.queue.len() > 1 {
            self.drop_front(cable, DropReason::HeldOverflow, drops);
        }
    }

    /// Takes the oldest packet back into a pool buffer; `None` when there is none. What is older than [`HELD_AGE`]
    /// is dropped, and so is a packet for which there is no buffer.
    pub fn pop(
        &mut self,
        pool: &mut Pool,
        cable: CableId,
        drops: &mut Drops,
        now: Instant,
    ) -> Option<Packet> {
        loop {
            let held = self.queue.pop_front()?;
            self.packets -= held.segments;
            self.bytes -= held.bytes.len();
            if now.saturating_duration_since(held.since) > HELD_AGE {
                drops.count(cable, DropReason::HeldExpired, held.segments);
                continue;
            }
            let Some(buf) = pool.alloc_copy(&held.bytes) else {
                drops.count(cable, DropReason::NoBuffer, held.segments);
                continue;
            };
            let mut packet = Packet::new(buf);
            packet.layout = held.layout;
            packet.checksum = held.checksum;
            packet.decision = held.decision;
            return Some(packet);
        }
    }

    /// Drops what is older than [`HELD_AGE`].
    pub fn expire(&mut self, cable: CableId, drops: &mut Drops, now: Instant) {
        while self.front().is_some_and(|(_, since)| now.saturating_duration_since(since) > HELD_AGE) {
            self.drop_front(cable, DropReason::HeldExpired, drops);
        }
    }

    /// Drops everything.
    pub fn clear(&mut self, cable: CableId, reason: DropReason, drops: &mut Drops) {
        while !self.queue.is_empty() {
            self.drop_front(cable, reason, drops);
        }
    }

    fn drop_front(&mut self, cable: CableId, reason: DropReason, drops: &mut Drops) {
        if let Some(held) = self.queue.pop_front() {
            self.packets -= held.segments;
            self.bytes -= held.bytes.len();
            drops.count(cable, reason, held.segments);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieste_packet::PoolConfig;

    #[expect(clippy::disallowed_methods, reason = "an Instant cannot be made from a number")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn packets_that_waited_too_long_are_dropped() {
        let mut pool = Pool::new(PoolConfig { slots: 2, slot_bytes: 2048 });
        let (mut drops, mut held, now) = (Drops::default(), Held::default(), start());
        for seconds in [0, 6] {
            let packet = Packet::new(pool.alloc_copy(&[0; 100]).unwrap());
            held.push(packet, &mut pool, CableId(1), &mut drops, now + Duration::from_secs(seconds));
        }
        let later = now + Duration::from_secs(8);
        assert!(held.pop(&mut pool, CableId(1), &mut drops, later).is_some());
        assert_eq!((drops.of(DropReason::HeldExpired), held.is_empty()), (1, true));
    }

    #[test]
    fn the_oldest_makes_room_and_every_packet_is_accounted_for() {
        let mut pool = Pool::new(PoolConfig { slots: 2, slot_bytes: 2048 });
        let mut drops = Drops::default();
        let mut held = Held::default();
        let now = start();
        for number in 0..200u8 {
            let packet = Packet::new(pool.alloc_copy(&[number; 100]).unwrap());
            held.push(packet, &mut pool, CableId(1), &mut drops, now);
        }
        assert_eq!(held.packets() + drops.of(DropReason::HeldOverflow), 200);
        assert_eq!(held.packets(), HELD_PACKETS);
        let first = held.pop(&mut pool, CableId(1), &mut drops, now).unwrap();
        assert_eq!(first.bytes()[0], 72);
        held.clear(CableId(1), DropReason::HeldExpired, &mut drops);
        assert_eq!(drops.total(), 199);
        assert!(held.is_empty() && held.packets() == 0 && held.bytes == 0);
    }
}
