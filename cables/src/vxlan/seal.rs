//! Sealing a batch: trains are cut into trains of datagrams, lone packets get their head where they are.

use trieste_packet::segment::{self, Segmenter};
use trieste_packet::wire;
use trieste_packet::{CableId, Checksum, DropReason, Layout, LayoutKind, Outer, Packet};
use trieste_vxlan::{HEAD_BYTES, Head, Mac, Protocol, Vni};

use crate::boundary::{CableStats, Jobs};
use crate::seal_train::SealTrain;

/// What stands in front of the packets for one station.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    v4: [u8; HEAD_BYTES],
    v6: [u8; HEAD_BYTES],
}

impl Heads {
    pub(super) fn new(source: Mac, destination: Mac) -> Self {
        let head = |protocol| Head { vni: Vni::GATEWAYS, destination, source, protocol }.emit();
        Self { v4: head(Protocol::Ipv4), v6: head(Protocol::Ipv6) }
    }

    fn of(&self, packet: &[u8]) -> Option<&[u8; HEAD_BYTES]> {
        match wire::version(packet) {
            4 => Some(&self.v4),
            6 => Some(&self.v6),
            _ => None,
        }
    }
}

/// One batch being sealed.
pub(super) struct Sealing<'a> {
    heads: Heads,
    train: SealTrain,
    outer: Outer,
    cable: CableId,
    stats: &'a mut CableStats,
}

impl<'a> Sealing<'a> {
    pub(super) fn new(heads: Heads, outer: Outer, cable: CableId, stats: &'a mut CableStats) -> Self {
        Self { heads, train: SealTrain::new(outer, cable), outer, cable, stats }
    }

    /// Seals a packet or train. `next` is what follows it.
    pub(super) fn seal(&mut self, mut packet: Packet, next: Option<&Packet>, jobs: &mut Jobs<'_>) {
        packet.decision.cable = self.cable;
        let Some(head) = self.heads.of(packet.bytes()).copied() else {
            return jobs.drops.discard(packet, DropReason::NotIp, jobs.pool);
        };
        // As the kernel's device does: the congestion mark, and not the rest.
        let tos = wire::tos(packet.bytes()) & 3;
        self.train.set_tos(tos, jobs);
        self.outer.tos = tos;
        match packet.layout.kind {
            LayoutKind::Single => self.seal_single(&head, packet, next, jobs),
            LayoutKind::Tcp | LayoutKind::Udp => {
                self.seal_train(&head, &mut packet, jobs);
                jobs.pool.recycle(packet.buf);
            }
            LayoutKind::Datagrams | LayoutKind::Packets => {
                jobs.drops.discard(packet, DropReason::MalformedHeader, jobs.pool);
            }
        }
    }

    fn seal_single(
        &mut self,
        head: &[u8; HEAD_BYTES],
        mut packet: Packet,
        next: Option<&Packet>,
        jobs: &mut Jobs<'_>,
    ) {
        if let Err(reason) = segment::finish_single(&mut packet) {
            return jobs.drops.discard(packet, reason, jobs.pool);
        }
        let bytes = HEAD_BYTES + packet.buf.len();
        let is_alike =
            |next: &Packet| next.layout.kind == LayoutKind::Single && HEAD_BYTES + next.buf.len() == bytes;
        // Datagrams of one length leave in one train, which saves more than the copy costs.
        if self.train.accepts(bytes) || next.is_some_and(is_alike) || packet.buf.headroom() < HEAD_BYTES {
            self.append(head, packet.buf.len(), jobs, |space| space.copy_from_slice(packet.bytes()));
            return jobs.pool.recycle(packet.buf);
        }
        packet.buf.prepend(HEAD_BYTES).copy_from_slice(head);
        self.count(bytes);
        packet.layout = Layout::SINGLE;
        packet.checksum = Checksum::Unchecked;
        packet.outer = self.outer;
        self.train.flush(jobs);
        jobs.emit(packet, self.cable);
    }

    fn seal_train(&mut self, head: &[u8; HEAD_BYTES], packet: &mut Packet, jobs: &mut Jobs<'_>) {
        let segments = packet.segments();
        match Segmenter::new(packet) {
            Ok(mut segmenter) => {
                while let Some(cut) = segmenter.next_cut() {
                    self.append(head, cut.bytes, jobs, |space| segmenter.write(cut, space));
                }
            }
            Err(reason) => jobs.drops.count(self.cable, reason, segments),
        }
    }

    /// Puts a packet of `inner_bytes`, which `write` writes, behind those of the open train.
    #[inline]
    fn append(
        &mut self,
        head: &[u8; HEAD_BYTES],
        inner_bytes: usize,
        jobs: &mut Jobs<'_>,
        write: impl FnOnce(&mut [u8]),
    ) {
        let bytes = HEAD_BYTES + inner_bytes;
        let is_sealed = self.train.append(bytes, jobs, |space| {
            let Some((front, place)) = space.split_first_chunk_mut::<HEAD_BYTES>() else { return false };
            *front = *head;
            write(place);
            true
        });
        if is_sealed {
            self.count(bytes);
        }
    }

    fn count(&mut self, bytes: usize) {
        self.stats.tx_packets += 1;
        self.stats.tx_bytes += bytes as u64;
    }

    /// Hands the open train to the output.
    pub(super) fn finish(mut self, jobs: &mut Jobs<'_>) {
        self.train.flush(jobs);
    }
}
