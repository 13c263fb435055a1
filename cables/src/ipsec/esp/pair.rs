//! The two SAs of a child, and what they have done in this batch.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use sha2::{Digest, Sha256};

use super::guard::{Direction, Ends, Guard};
use super::key::EspKey;
use super::sa::{InboundSa, OutboundSa};
use crate::ipsec::{ChildMeter, ChildSa, EspKeys, Outbound, Selectors, Spi};

/// Whether a pair may seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Not until the peer is known to have it.
    Pending,
    /// Yes.
    Active,
    /// Not any more.
    Retired,
}

/// The SAs of one child.
pub(super) struct Pair {
    pub(super) name: Spi,
    pub(super) outbound: OutboundSa,
    pub(super) inbound: InboundSa,
    pub(super) guard: Guard,
    pub(super) selectors: Selectors,
    pub(super) state: State,
    pub(super) hard_time: Instant,
    pub(super) tally: Tally,
    /// Ends of the packet that was opened last, if nothing more has to be looked at.
    opened_last: Option<Ends>,
    meter: Arc<ChildMeter>,
    fingerprint: [u8; 32],
}

/// What happened since the meter was written.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Whether the pair is on the list of those whose meter is to be written.
    pub(super) is_listed: bool,
    sealed: [u64; 2],
    opened: [u64; 2],
    /// Whether anything authentic came, dummy packets included.
    pub(super) has_heard: bool,
    pub(super) bad: u64,
    pub(super) replayed: u64,
}

impl Tally {
    #[inline]
    pub(super) fn seal(&mut self, bytes: usize) {
        self.sealed[0] += 1;
        self.sealed[1] += bytes as u64;
    }

    #[inline]
    pub(super) fn open(&mut self, bytes: usize) {
        self.opened[0] += 1;
        self.opened[1] += bytes as u64;
    }
}

impl Pair {
    /// `None` when a key has not the length that the suite wants.
    pub(super) fn new(child: &ChildSa) -> Option<Self> {
        let inbound = EspKey::new(child.suite, &child.inbound_keys)?;
        let outbound = EspKey::new(child.suite, &child.outbound_keys)?;
        Some(Self {
            name: child.inbound,
            outbound: OutboundSa::new(outbound, child.outbound, child.has_esn, child.limits),
            inbound: InboundSa::new(inbound, child.inbound, child.has_esn, child.limits),
            guard: Guard::new(&child.selectors),
            selectors: child.selectors.clone(),
            state: if child.activation == Outbound::Now { State::Active } else { State::Pending },
            hard_time: child.limits.hard_time,
            tally: Tally::default(),
            opened_last: None,
            meter: Arc::clone(&child.meter),
            fingerprint: fingerprint(&child.outbound_keys),
        })
    }

    /// Whether the child has the key that this one seals with.
    pub(super) fn seals_with_key_of(&self, child: &ChildSa) -> bool {
        self.fingerprint == fingerprint(&child.outbound_keys)
    }

    /// Whether it can seal one packet more.
    #[inline]
    pub(super) fn is_alive(&self, now: Instant) -> bool {
        now < self.hard_time && !self.outbound.is_used_up()
    }

    /// Whether an opened packet is one that the pair is for.
    #[inline]
    pub(super) fn admits_opened(&mut self, packet: &[u8]) -> bool {
        let Some(ends) = Ends::read(packet) else { return false };
        if self.opened_last.as_ref() == Some(&ends) {
            return true;
        }
        let is_admitted = self.guard.admits(Direction::Inbound, &ends, packet);
        if is_admitted && !self.guard.is_narrow() {
            self.opened_last = Some(ends);
        }
        is_admitted
    }

    /// When it was made.
    pub(super) fn made(&self) -> Instant {
        self.meter.made()
    }

    /// Says in the meter whether the pair seals.
    pub(super) fn show_sealing(&self, is_sealing: bool) {
        self.meter.is_sealing.store(is_sealing, Ordering::Relaxed);
    }

    /// Writes the meter. Returns whether a soft limit has been passed, which is said once for each direction.
    pub(super) fn write_meter(&mut self, now: Instant) -> bool {
        let tally = std::mem::take(&mut self.tally);
        if tally.sealed[0] > 0 {
            self.meter.sealed(tally.sealed[0], tally.sealed[1], now);
        }
        if tally.has_heard {
            self.meter.opened(tally.opened[0], tally.opened[1], now);
        }
        if tally.bad + tally.replayed > 0 {
            self.meter.refused(tally.bad, tally.replayed);
        }
        // Both are asked.
        self.outbound.has_worn() | self.inbound.has_worn()
    }
}

/// Tells keys apart without keeping them.
fn fingerprint(keys: &EspKeys) -> [u8; 32] {
    Sha256::new().chain_update(&*keys.key).chain_update(keys.salt).finalize().into()
}
