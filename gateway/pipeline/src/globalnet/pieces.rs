//! Fragments find their flow before anything is decided: later ones are told by their first what it is of.
//!
//! All fragments of a packet go to one worker, named by what they have in common; there a later one waits for its first,
//! for a bounded time and with a bounded number of others. From there on a fragment is a packet of its flow like any
//! other: what is known of it goes along to the flow's owner.

use std::time::Instant;

use trieste_nat::{Facts, FragmentKey, Fragments, Kind, Rules};
use trieste_packet::wire::{Inner, Transport};
use trieste_packet::{Batch, DropReason, Drops, Packet, Pool, WorkerId};

use super::memo::Memo;
use super::{Flow, is_piece};
use crate::classify;
use crate::owner::{Crossing, Handoff, HandoffKind};
use crate::pipeline::Pipeline;

/// Packets that come from a device or another worker, on their way into a batch whose flows are known.
struct Weaver<'a> {
    worker: WorkerId,
    workers: u16,
    crossing: Crossing,
    fragments: &'a mut Fragments<Facts>,
    memo: &'a Memo,
    rules: &'a Rules,
    batch: &'a mut Batch,
    headers: &'a mut Vec<Inner>,
    known: &'a mut Vec<Flow>,
    released: &'a mut Vec<Packet>,
    to_workers: &'a mut Vec<Handoff>,
    pool: &'a mut Pool,
    drops: &'a mut Drops,
    now: Instant,
}

impl Pipeline {
    /// Fills `known` for a batch that has been parsed. Fragments that are other workers' or wait leave it, and those
    /// that have waited long enough come into it, behind their first.
    pub(crate) fn know(&mut self, batch: &mut Batch, crossing: Crossing, rules: &Rules, now: Instant) {
        self.begin_translating(now);
        let Some(translator) = self.translator.as_deref_mut() else { return };
        self.known.clear();
        let mut has_pieces = false;
        for (packet, inner) in batch.as_slice().iter().zip(&self.headers) {
            has_pieces |= is_piece(inner);
            self.known.push(Flow::of(packet.bytes(), inner, crossing, &translator.memo));
        }
        translator.fetch_ahead(&self.known);
        if !has_pieces {
            return;
        }
        let mut packets = std::mem::take(&mut self.loose);
        batch.move_to(&mut packets);
        let headers = std::mem::take(&mut self.headers);
        let known = std::mem::take(&mut self.known);
        let Some(mut weaver) = self.weaver(batch, crossing, rules, now) else { return };
        for (packet, (inner, flow)) in packets.drain(..).zip(headers.into_iter().zip(known)) {
            if is_piece(&inner) { weaver.piece(packet, inner) } else { weaver.add(packet, inner, flow) }
        }
        self.loose = packets;
    }

    /// Moves what other workers handed over for `crossing` into `batch`, with all that is known of it.
    pub(crate) fn gather_arrivals(
        &mut self,
        batch: &mut Batch,
        crossing: Crossing,
        rules: &Rules,
        now: Instant,
    ) {
        self.headers.clear();
        self.known.clear();
        let mut arrivals = std::mem::take(&mut self.arrivals);
        if let Some(mut weaver) = self.weaver(batch, crossing, rules, now) {
            let is_one = |handoff: &mut Handoff| handoff.kind.crossing() == Some(crossing);
            for handoff in arrivals.extract_if(.., is_one) {
                weaver.arrive(handoff);
            }
        }
        self.arrivals = arrivals;
    }

    fn weaver<'a>(
        &'a mut self,
        batch: &'a mut Batch,
        crossing: Crossing,
        rules: &'a Rules,
        now: Instant,
    ) -> Option<Weaver<'a>> {
        let translator = self.translator.as_deref_mut()?;
        Some(Weaver {
            worker: self.config.worker,
            workers: self.config.workers,
            crossing,
            fragments: &mut translator.fragments,
            memo: &translator.memo,
            rules,
            batch,
            headers: &mut self.headers,
            known: &mut self.known,
            released: &mut self.released,
            to_workers: &mut self.to_workers,
            pool: &mut self.pool,
            drops: &mut self.drops,
            now,
        })
    }
}

impl Weaver<'_> {
    fn add(&mut self, packet: Packet, inner: Inner, flow: Flow) {
        self.batch.append(packet);
        self.headers.push(inner);
        self.known.push(flow);
    }

    fn arrive(&mut self, handoff: Handoff) {
        let facts = match handoff.kind {
            HandoffKind::Translate(_, facts) => facts,
            HandoffKind::Seal
            | HandoffKind::Open
            | HandoffKind::Control(_)
            | HandoffKind::Sessions { .. } => None,
        };
        let mut packet = handoff.packet;
        match (classify::parse_packet(&mut packet), facts) {
            (Ok(inner), Some(facts)) => self.add(packet, inner, Flow::known(facts, self.crossing, self.memo)),
            (Ok(inner), None) if is_piece(&inner) => self.piece(packet, inner),
            (Ok(inner), None) => {
                let flow = Flow::of(packet.bytes(), &inner, self.crossing, self.memo);
                self.add(packet, inner, flow);
            }
            (Err(reason), _) => self.drops.discard(packet, reason, self.pool),
        }
    }

    /// Takes in a fragment of which nobody has said yet what it is of.
    fn piece(&mut self, packet: Packet, inner: Inner) {
        let key = match FragmentKey::of(packet.bytes(), &inner) {
            Ok(Some(key)) => key,
            Ok(None) => return self.add(packet, inner, Flow::Foreign),
            Err(reason) => return self.drops.discard(packet, reason, self.pool),
        };
        let keeper = self.keeper(&key);
        if keeper != self.worker {
            let kind = HandoffKind::Translate(self.crossing, None);
            self.to_workers.push(Handoff { to: keeper, kind, packet });
            return;
        }
        if inner.transport == (Transport::Fragment { first: true }) {
            self.first(packet, inner, key);
        } else {
            let (drops, pool) = (&mut *self.drops, &mut *self.pool);
            let lose = |packet| drops.discard(packet, DropReason::NatFragment, pool);
            if let Some((facts, packet)) = self.fragments.follow(key, packet, self.now, lose) {
                self.add(packet, inner, Flow::known(facts, self.crossing, self.memo));
            }
        }
    }

    fn first(&mut self, packet: Packet, inner: Inner, key: FragmentKey) {
        let Some(facts) = Facts::of(packet.bytes(), &inner) else {
            // Of an ICMP error only a whole one can be translated.
            return self.drops.discard(packet, DropReason::NatUntranslatable, self.pool);
        };
        self.add(packet, inner, Flow::known(facts, self.crossing, self.memo));
        let (drops, pool) = (&mut *self.drops, &mut *self.pool);
        let lose = |packet| drops.discard(packet, DropReason::NatFragment, pool);
        let released = &mut *self.released;
        self.fragments.settle(key, facts, self.now, |packet| released.push(packet), lose);
        for packet in std::mem::take(self.released) {
            match Inner::parse(packet.bytes()) {
                Ok(inner) => self.add(packet, inner, Flow::known(facts, self.crossing, self.memo)),
                Err(reason) => self.drops.discard(packet, reason, self.pool),
            }
        }
    }

    /// The worker that the fragments of a packet gather at.
    fn keeper(&self, key: &FragmentKey) -> WorkerId {
        // What names the owner of a flow names the keeper of a packet as well, its identification in the port's place.
        let facts = Facts {
            source: key.source,
            destination: key.destination,
            source_port: key.identification,
            destination_port: 0,
            protocol: key.protocol,
            kind: Kind::Udp,
        };
        let keeper = self.rules.owner_outbound(&facts);
        if keeper.0 < self.workers { keeper } else { self.worker }
    }
}
