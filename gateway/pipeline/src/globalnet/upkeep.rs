//! What translation does besides packets in hand: handed-over ones, expiry, late answers.

use std::time::Instant;

use trieste_nat::Unsolicited;
use trieste_packet::{Batch, Checksum, DropReason, Packet, icmp};

use super::in2out;
use crate::owner::Crossing;
use crate::pipeline::Pipeline;
use crate::steer::Steering;
use crate::tables::Tables;

/// Late answers at once. Ours: their number is bounded by what may be held, and this spreads them over batches.
const LATE_ANSWERS: usize = 16;

impl Pipeline {
    /// Carries on what other workers handed over for translation, and what goes back inside.
    pub(crate) fn take_arrivals(&mut self, tables: &Tables, now: Instant) {
        if self.arrivals.is_empty() {
            return;
        }
        if let Some(rules) = tables.rules() {
            self.begin_translating(now);
            for crossing in Crossing::ALL {
                let mut batch = std::mem::replace(&mut self.inner, Batch::with_limit(0));
                self.gather_arrivals(&mut batch, crossing, rules, now);
                match crossing {
                    Crossing::Out | Crossing::RelayedOut => {
                        self.carry_out(&mut batch, crossing, tables, now);
                    }
                    Crossing::In | Crossing::RelayedIn | Crossing::Back | Crossing::RelayedBack => {
                        self.carry_in(&mut batch, crossing, tables, now);
                    }
                }
                self.inner = batch;
            }
        }
        // Globalnet was turned off while they were on their way.
        for handoff in self.arrivals.drain(..) {
            self.drops.discard(handoff.packet, DropReason::NoMapping, &mut self.pool);
        }
    }

    /// Removes what has expired, a bounded number at a time.
    pub(crate) fn expire_translations(&mut self, budget: usize, now: Instant) {
        let Some(translator) = self.translator.as_deref_mut() else { return };
        self.counters.sessions_expired += translator.nat.expire(now, budget) as u64;
        let (drops, pool) = (&mut self.drops, &mut self.pool);
        translator.fragments.expire(now, |packet| drops.discard(packet, DropReason::NatFragment, pool));
    }

    /// Answers the first packets of connections that nobody has waited for in the meantime.
    pub(crate) fn answer_unsolicited(&mut self, now: Instant) {
        let tables = self.begin(now);
        let Some(rules) = tables.rules() else { return };
        for _ in 0..LATE_ANSWERS {
            let Some(translator) = self.translator.as_deref_mut() else { return };
            let Some(unsolicited) = translator.nat.poll_unsolicited(rules, now) else { return };
            self.answer_late(&unsolicited, &tables, now);
        }
    }

    fn answer_late(&mut self, unsolicited: &Unsolicited, tables: &Tables, now: Instant) {
        let error = unsolicited.flow.reversed();
        let Some(decision) = in2out::back_to_peer(&Steering { tables, board: &self.config.board }, &error)
        else {
            return;
        };
        if !self.limiter.take(now) {
            return;
        }
        let Some(mut buf) = self.pool.alloc() else { return };
        //= https://www.rfc-editor.org/rfc/rfc5382#section-4.3
        //# a NAT MUST NOT respond to an unsolicited inbound SYN packet for at least 6 seconds
        if !icmp::port_unreachable(unsolicited.packet(), error.source, error.destination, &mut buf) {
            self.pool.recycle(buf);
            return;
        }
        let mut packet = Packet::new(buf);
        packet.checksum = Checksum::Verified;
        packet.decision = decision;
        self.counters.made += 1;
        self.ready.push(packet);
    }

    /// Fragments that wait for their first.
    pub(crate) fn waiting_fragments(&self) -> u64 {
        self.translator.as_ref().map_or(0, |translator| translator.fragments.waiting() as u64)
    }

    /// Translated flows that are remembered.
    pub(crate) fn translated_flows(&self) -> u64 {
        self.translator.as_ref().map_or(0, |translator| translator.memo.len() as u64)
    }
}
