//! Translation without a gateway around it: one worker's share of it, with packets as bytes. What the kernel's NAT
//! is compared with, and what a fuzzer drives.

pub mod packets;

use std::time::Instant;

use trieste_nat::{
    Config, Facts, FragmentKey, FragmentLimits, Fragments, Nat, Quote, Refusal, Rewrite, Rules, Translation,
};
use trieste_packet::wire::{Inner, Transport};
use trieste_packet::{Checksum, DropReason, Packet, Pool, PoolConfig};

/// Longest packet with its headroom: what tests send is short, and a fuzzer makes many of these.
const SLOT_BYTES: usize = 4096;

/// From where to where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Way {
    /// From the cluster to another one.
    Outbound,
    /// From another cluster.
    Inbound,
}

/// What became of a packet that was not handed on at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The translation refused it.
    Refused(Refusal),
    /// It has to be dropped for another reason.
    Dropped(DropReason),
    /// An ICMP error about a packet of no session.
    Unasked,
    /// A fragment that waits for its first, or that was lost waiting.
    Waits,
}

/// A worker's translation with its fragments. Call it with times that do not go back.
#[derive(Debug)]
pub struct Translator {
    /// The translation itself.
    pub nat: Nat,
    rules: Rules,
    fragments: [Fragments<Facts>; 2],
    pool: Pool,
    released: Vec<Packet>,
    lost: Vec<Packet>,
}

impl Translator {
    /// Nothing translated yet.
    #[must_use]
    pub fn new(config: Config, rules: Rules, seed: u64, now: Instant) -> Self {
        let limits = FragmentLimits::default();
        let fragments = [Fragments::new(limits, seed), Fragments::new(limits, seed)];
        let pool = Pool::new(PoolConfig { slots: 2 * limits.waiting + 8, slot_bytes: SLOT_BYTES });
        let nat = Nat::new(config, seed, now);
        Self { nat, rules, fragments, pool, released: Vec::new(), lost: Vec::new() }
    }

    /// The rules in use.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Other rules from here on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Lets time pass: sessions and fragments expire.
    pub fn expire(&mut self, now: Instant, budget: usize) {
        self.nat.expire(now, budget);
        for store in &mut self.fragments {
            store.expire(now, |packet| self.lost.push(packet));
        }
        self.recycle();
    }

    /// Translates a packet: what is handed on, itself first and then fragments that had waited for it.
    ///
    /// # Errors
    /// What became of it instead.
    pub fn carry(&mut self, way: Way, bytes: &[u8], now: Instant) -> Result<Vec<Vec<u8>>, Fate> {
        self.carry_as(way, bytes, Checksum::Unchecked, now)
    }

    /// The same, with what is known of its transport checksum.
    ///
    /// # Errors
    /// As [`Self::carry`].
    pub fn carry_as(
        &mut self,
        way: Way,
        bytes: &[u8],
        checksum: Checksum,
        now: Instant,
    ) -> Result<Vec<Vec<u8>>, Fate> {
        let inner = Inner::parse(bytes).map_err(Fate::Dropped)?;
        let whole = &bytes[..usize::from(inner.total_bytes)];
        let buf = self.pool.alloc_copy(whole).ok_or(Fate::Dropped(DropReason::NoBuffer))?;
        let packet = Packet { checksum, ..Packet::new(buf) };
        let out = self.translate(way, packet, &inner, now);
        self.recycle();
        out
    }

    fn translate(
        &mut self,
        way: Way,
        packet: Packet,
        inner: &Inner,
        now: Instant,
    ) -> Result<Vec<Vec<u8>>, Fate> {
        let key = FragmentKey::of(packet.bytes(), inner).map_err(Fate::Dropped)?;
        let store = &mut self.fragments[way as usize];
        if let (Some(key), Transport::Fragment { first: false }) = (key, inner.transport) {
            let lose = |packet| self.lost.push(packet);
            let (flow, packet) = store.follow(key, packet, now, lose).ok_or(Fate::Waits)?;
            return Ok(vec![self.write(way, packet, &flow, now)?]);
        }
        let Some(flow) = Facts::of(packet.bytes(), inner) else {
            return Ok(vec![self.write_error(way, packet, inner, now)?]);
        };
        let mut out = vec![self.write(way, packet, &flow, now)];
        if let Some(key) = key {
            let (released, lost) = (&mut self.released, &mut self.lost);
            let store = &mut self.fragments[way as usize];
            store.settle(key, flow, now, |packet| released.push(packet), |packet| lost.push(packet));
            for packet in std::mem::take(&mut self.released) {
                out.push(self.write(way, packet, &flow, now));
            }
        }
        out.into_iter().collect()
    }

    /// A packet of a flow, translated.
    fn write(&mut self, way: Way, mut packet: Packet, flow: &Facts, now: Instant) -> Result<Vec<u8>, Fate> {
        let decided = self.ask(way, flow, now).map_err(Fate::Refused);
        let result = decided.and_then(|translation| {
            let inner = Inner::parse(packet.bytes()).map_err(Fate::Dropped)?;
            translation.rewrite.apply(&mut packet, &inner).map_err(Fate::Dropped)
        });
        let bytes = self.finish(packet);
        result.map(|()| bytes)
    }

    /// An ICMP error, translated with what it quotes.
    fn write_error(
        &mut self,
        way: Way,
        mut packet: Packet,
        inner: &Inner,
        now: Instant,
    ) -> Result<Vec<u8>, Fate> {
        let result = Quote::read(&packet, inner).map_err(Fate::Dropped).and_then(|quote| {
            let rewrite = self.peek(way, &quote.answer, now).ok_or(Fate::Unasked)?;
            quote.apply(&mut packet, &rewrite);
            Ok(())
        });
        let bytes = self.finish(packet);
        result.map(|()| bytes)
    }

    fn finish(&mut self, packet: Packet) -> Vec<u8> {
        let bytes = packet.bytes().to_vec();
        self.pool.recycle(packet.buf);
        bytes
    }

    /// What is decided for a flow.
    ///
    /// # Errors
    /// Why not.
    pub fn ask(&mut self, way: Way, flow: &Facts, now: Instant) -> Result<Translation, Refusal> {
        match way {
            Way::Outbound => self.nat.in2out(flow, &self.rules, now),
            Way::Inbound => self.nat.out2in(flow, &self.rules, now),
        }
    }

    /// What is known of a flow, without making anything.
    #[must_use]
    pub fn peek(&self, way: Way, flow: &Facts, now: Instant) -> Option<Rewrite> {
        match way {
            Way::Outbound => self.nat.peek_outbound(flow, &self.rules, now),
            Way::Inbound => self.nat.peek_inbound(flow, &self.rules, now),
        }
    }

    fn recycle(&mut self) {
        for packet in self.lost.drain(..).chain(self.released.drain(..)) {
            self.pool.recycle(packet.buf);
        }
    }
}
