//! All pairs of a peer: found by SPI where packets are opened, chosen by selectors where they are sealed.

use std::time::Instant;

use trieste_packet::DropReason;

use super::guard::{Direction, Ends};
use super::pair::{Pair, State};
use crate::ipsec::{ChildSa, LaneNews, LanePort, Spi};

/// Pairs have numbers of eight bits, in their inbound SPIs.
const SLOTS: usize = 256;

/// What is to be done with a packet that is to be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// The pair of this number seals it.
    Seal(u8),
    /// A pair for it is on its way.
    Wait,
    /// None is, or none may.
    Refuse(DropReason),
}

/// The pairs.
pub(super) struct Pairs {
    slots: Box<[Option<Box<Pair>>; SLOTS]>,
    /// Their numbers, the newest last.
    order: Vec<u8>,
    /// Those that seal, the newest first.
    sealing: Vec<u8>,
    /// Those whose meters are to be written.
    touched: Vec<u8>,
    /// The choice made last, where nothing but the ends decided it.
    chosen: Option<(Ends, u8)>,
    /// How many have ever been added.
    pub(super) added: u64,
    /// Whether a pair has been asked for that may be for more packets.
    pub(super) is_expecting: bool,
}

impl Default for Pairs {
    fn default() -> Self {
        let room = || Vec::with_capacity(SLOTS);
        Self {
            slots: Box::new([const { None }; SLOTS]),
            order: room(),
            sealing: room(),
            touched: room(),
            chosen: None,
            added: 0,
            is_expecting: false,
        }
    }
}

impl Pairs {
    /// Adds a pair, in the place of the one with the same inbound SPI. One that has the same key to seal with is the
    /// same pair: it stays, because its sequence numbers must not begin again.
    pub(super) fn add(&mut self, child: &ChildSa) {
        let index = child.inbound.index();
        let present = self.slots[usize::from(index)].as_ref();
        if present.is_some_and(|pair| pair.seals_with_key_of(child)) {
            return;
        }
        let Some(pair) = Pair::new(child) else { return };
        self.take(index);
        self.slots[usize::from(index)] = Some(Box::new(pair));
        self.order.push(index);
        self.added += 1;
        self.refresh();
    }

    /// Lets a pair seal that waited for the peer.
    pub(super) fn activate(&mut self, spi: Spi) {
        if let Some(pair) = self.find(spi)
            && pair.state == State::Pending
        {
            pair.state = State::Active;
            self.refresh();
        }
    }

    /// Lets a pair seal no more.
    pub(super) fn retire(&mut self, spi: Spi) {
        if let Some(pair) = self.find(spi) {
            pair.state = State::Retired;
            self.succeed(spi.index());
            self.refresh();
        }
    }

    /// Takes a pair away.
    pub(super) fn remove(&mut self, spi: Spi) {
        if self.find(spi).is_some() {
            self.succeed(spi.index());
            self.take(spi.index());
            self.refresh();
        }
    }

    fn take(&mut self, index: u8) {
        if let Some(pair) = self.slots[usize::from(index)].take() {
            pair.show_sealing(false);
        }
        self.order.retain(|number| *number != index);
        self.touched.retain(|number| *number != index);
    }

    /// Where a pair goes that sealed, and nobody else seals the same packets, the newest that waits does from here on.
    fn succeed(&mut self, gone: u8) {
        let Some(left) = self.slots[usize::from(gone)].as_deref() else { return };
        let rivals = || {
            let others = self.order.iter().rev().filter(|number| **number != gone);
            others.filter(|number| {
                self.slots[usize::from(**number)]
                    .as_deref()
                    .is_some_and(|pair| pair.selectors.overlap(&left.selectors))
            })
        };
        let state = |number: u8| self.slots[usize::from(number)].as_deref().map(|pair| pair.state);
        if rivals().any(|number| state(*number) == Some(State::Active)) {
            return;
        }
        let heir = rivals().copied().find(|number| state(*number) == Some(State::Pending));
        if let Some(pair) = heir.and_then(|number| self.slots[usize::from(number)].as_deref_mut()) {
            pair.state = State::Active;
        }
    }

    /// Works out anew who seals.
    fn refresh(&mut self) {
        self.chosen = None;
        self.sealing.clear();
        for &number in self.order.iter().rev() {
            let Some(pair) = self.slots[usize::from(number)].as_deref() else { continue };
            let has_successor = self.sealing.iter().any(|newer| {
                self.slots[usize::from(*newer)]
                    .as_deref()
                    .is_some_and(|newer| newer.selectors.include(&pair.selectors))
            });
            pair.show_sealing(pair.state == State::Active && !has_successor);
            if pair.state == State::Active {
                self.sealing.push(number);
            }
        }
    }

    fn find(&mut self, spi: Spi) -> Option<&mut Pair> {
        self.slots[usize::from(spi.index())].as_deref_mut().filter(|pair| pair.name == spi)
    }

    /// The pair of a number, whose meter is written at the end of the batch.
    #[inline]
    pub(super) fn touch(&mut self, index: u8) -> Option<&mut Pair> {
        let pair = self.slots[usize::from(index)].as_deref_mut()?;
        if !std::mem::replace(&mut pair.tally.is_listed, true) {
            self.touched.push(index);
        }
        Some(pair)
    }

    /// The pair that opens what has this SPI.
    #[inline]
    pub(super) fn touch_spi(&mut self, spi: Spi) -> Option<&mut Pair> {
        self.touch(spi.index()).filter(|pair| pair.name == spi)
    }

    /// Which pair seals a packet (or the train that it heads): the newest that may, and is for it.
    #[inline]
    pub(super) fn choose(&mut self, packet: &[u8], now: Instant) -> Choice {
        let Some(ends) = Ends::read(packet) else { return Choice::Refuse(DropReason::NotIp) };
        if let Some((last, index)) = &self.chosen
            && *last == ends
            && self.slots[usize::from(*index)].as_ref().is_some_and(|pair| pair.is_alive(now))
        {
            return Choice::Seal(*index);
        }
        self.search(ends, packet, now)
    }

    fn search(&mut self, ends: Ends, packet: &[u8], now: Instant) -> Choice {
        let admits = |pair: &Pair| pair.guard.admits(Direction::Outbound, &ends, packet);
        let (mut is_expired, mut is_narrow) = (false, false);
        for &index in &self.sealing {
            let Some(pair) = self.slots[usize::from(index)].as_deref() else { continue };
            is_narrow |= pair.guard.is_narrow();
            if !admits(pair) {
                continue;
            }
            if pair.is_alive(now) {
                self.chosen = (!is_narrow && !is_expired).then_some((ends, index));
                return Choice::Seal(index);
            }
            is_expired = true;
        }
        if is_expired {
            return Choice::Refuse(DropReason::SaExpired);
        }
        let is_known =
            self.order.iter().any(|index| self.slots[usize::from(*index)].as_deref().is_some_and(admits));
        let is_on_its_way = is_known || self.order.is_empty() || self.is_expecting;
        if is_on_its_way { Choice::Wait } else { Choice::Refuse(DropReason::NoSelector) }
    }

    /// Returns `true` if there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Whether any pair can seal.
    pub(super) fn can_seal(&self, now: Instant) -> bool {
        let mut sealing = self.sealing.iter();
        sealing.any(|index| self.slots[usize::from(*index)].as_deref().is_some_and(|pair| pair.is_alive(now)))
    }

    /// When the newest pair was made.
    pub(super) fn newest(&self) -> Option<Instant> {
        self.order.iter().filter_map(|index| Some(self.slots[usize::from(*index)].as_deref()?.made())).max()
    }

    /// Writes the meters of all pairs that did something, and tells which are worn.
    pub(super) fn write_meters(&mut self, port: &LanePort, now: Instant) {
        for index in self.touched.drain(..) {
            if let Some(pair) = self.slots[usize::from(index)].as_deref_mut()
                && pair.write_meter(now)
            {
                port.tell(LaneNews::Worn { child: pair.name });
            }
        }
    }
}
