//! Sealing a batch: trains are cut into trains of datagrams, lone packets are sealed where they are.

use std::time::Instant;

use trieste_packet::segment::{self, Segmenter};
use trieste_packet::wire;
use trieste_packet::{CableId, Checksum, DropReason, Layout, LayoutKind, Outer, Packet};

use super::pairs::{Choice, Pairs};
use super::{HEAD_BYTES, sealed_bytes};
use crate::boundary::{CableStats, Jobs};
use crate::held::{HELD_AGE, Held};
use crate::seal_train::SealTrain;

/// One batch being sealed.
pub(super) struct Sealing<'a> {
    pairs: &'a mut Pairs,
    held: &'a mut Held,
    train: SealTrain,
    outer: Outer,
    cable: CableId,
    stats: &'a mut CableStats,
    now: Instant,
}

impl<'a> Sealing<'a> {
    pub(super) fn new(
        pairs: &'a mut Pairs,
        held: &'a mut Held,
        outer: Outer,
        cable: CableId,
        stats: &'a mut CableStats,
        now: Instant,
    ) -> Self {
        Self { pairs, held, train: SealTrain::new(outer, cable), outer, cable, stats, now }
    }

    /// Seals what was held, oldest first, until one has to wait on.
    pub(super) fn release(&mut self, jobs: &mut Jobs<'_>) {
        while let Some((packet, since)) = self.held.front() {
            let is_fresh = self.now.saturating_duration_since(since) <= HELD_AGE;
            if is_fresh && self.pairs.choose(packet, self.now) == Choice::Wait {
                return;
            }
            // `None` when nothing is left; what is too old is dropped on the way.
            let Some(packet) = self.held.pop(jobs.pool, self.cable, jobs.drops, self.now) else { return };
            self.seal(packet, None, jobs);
        }
    }

    /// Seals a packet or train. `next` is what follows it.
    pub(super) fn seal(&mut self, mut packet: Packet, next: Option<&Packet>, jobs: &mut Jobs<'_>) {
        packet.decision.cable = self.cable;
        if packet.layout.kind == LayoutKind::Packets {
            // Packets side by side may be for different pairs. Nobody seals them before they are trains again.
            return jobs.drops.discard(packet, DropReason::MalformedHeader, jobs.pool);
        }
        let index = match self.pairs.choose(packet.bytes(), self.now) {
            Choice::Seal(index) => index,
            Choice::Wait => return self.held.push(packet, jobs.pool, self.cable, jobs.drops, self.now),
            Choice::Refuse(reason) => return jobs.drops.discard(packet, reason, jobs.pool),
        };
        let tos = wire::tos(packet.bytes()) & 3;
        self.train.set_tos(tos, jobs);
        self.outer.tos = tos;
        if packet.layout.kind == LayoutKind::Single {
            self.seal_single(index, packet, next, jobs);
        } else {
            self.seal_train(index, &mut packet, jobs);
            jobs.pool.recycle(packet.buf);
        }
    }

    fn seal_single(&mut self, index: u8, mut packet: Packet, next: Option<&Packet>, jobs: &mut Jobs<'_>) {
        if let Err(reason) = segment::finish_single(&mut packet) {
            return jobs.drops.discard(packet, reason, jobs.pool);
        }
        let inner_bytes = packet.buf.len();
        let bytes = sealed_bytes(inner_bytes);
        let tail_bytes = bytes - HEAD_BYTES - inner_bytes;
        let is_lone = !self.train.accepts(bytes) && !next.is_some_and(|next| is_alike(next, bytes));
        if is_lone && packet.buf.headroom() >= HEAD_BYTES && packet.buf.tailroom() >= tail_bytes {
            packet.buf.prepend(HEAD_BYTES);
            packet.buf.extend(tail_bytes);
            return self.seal_in_place(index, packet, inner_bytes, jobs);
        }
        self.append(index, inner_bytes, jobs, |space| space.copy_from_slice(packet.bytes()));
        jobs.pool.recycle(packet.buf);
    }

    fn seal_in_place(&mut self, index: u8, mut packet: Packet, inner_bytes: usize, jobs: &mut Jobs<'_>) {
        let Some(pair) = self.pairs.touch(index) else {
            return jobs.drops.discard(packet, DropReason::SealFailed, jobs.pool);
        };
        if !pair.outbound.seal(packet.buf.bytes_mut(), inner_bytes) {
            return jobs.drops.discard(packet, DropReason::SealFailed, jobs.pool);
        }
        pair.tally.seal(inner_bytes);
        self.stats.tx_packets += 1;
        self.stats.tx_bytes += packet.buf.len() as u64;
        packet.layout = Layout::SINGLE;
        packet.checksum = Checksum::Unchecked;
        packet.outer = self.outer;
        self.train.flush(jobs);
        jobs.emit(packet, self.cable);
    }

    fn seal_train(&mut self, index: u8, packet: &mut Packet, jobs: &mut Jobs<'_>) {
        let segments = packet.segments();
        match Segmenter::new(packet) {
            Ok(mut segmenter) => {
                while let Some(cut) = segmenter.next_cut() {
                    self.append(index, cut.bytes, jobs, |space| segmenter.write(cut, space));
                }
            }
            Err(reason) => jobs.drops.count(self.cable, reason, segments),
        }
    }

    /// Seals a packet of `inner_bytes`, which `write` puts behind those of the open train; the copy is what cutting costs
    /// anyway.
    #[inline]
    fn append(&mut self, index: u8, inner_bytes: usize, jobs: &mut Jobs<'_>, write: impl FnOnce(&mut [u8])) {
        let bytes = sealed_bytes(inner_bytes);
        let Some(pair) = self.pairs.touch(index) else {
            return jobs.drops.count(self.cable, DropReason::SealFailed, 1);
        };
        let is_sealed = self.train.append(bytes, jobs, |message| {
            let Some(place) = message.get_mut(HEAD_BYTES..HEAD_BYTES + inner_bytes) else { return false };
            write(place);
            pair.outbound.seal(message, inner_bytes)
        });
        if is_sealed {
            pair.tally.seal(inner_bytes);
            self.stats.tx_packets += 1;
            self.stats.tx_bytes += bytes as u64;
        }
    }

    /// Hands the open train to the output.
    pub(super) fn finish(mut self, jobs: &mut Jobs<'_>) {
        self.train.flush(jobs);
    }
}

/// Whether a packet becomes a message as long as this one: then both leave in one train, which saves more than the copy
/// costs.
fn is_alike(packet: &Packet, bytes: usize) -> bool {
    packet.layout.kind == LayoutKind::Single && sealed_bytes(packet.buf.len()) == bytes
}
