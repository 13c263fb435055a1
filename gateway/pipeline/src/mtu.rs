//! Packets and the size of the path: MSS clamped, too-big packets answered or fragmented.

use trieste_packet::fragment::fragment_v4;
use trieste_packet::segment::Segmenter;
use trieste_packet::wire::{Inner, Transport, tcp, version};
use trieste_packet::{Batch, Checksum, Decision, DropReason, Drops, Packet, Pool, icmp};

use crate::answers::Answers;
use crate::board::Board;
use crate::counters::Counters;
use crate::quote;

/// Bytes of IPv4 and TCP headers without options.
const TCP4_HEADER_BYTES: u16 = 40;
/// Bytes of IPv6 and TCP headers without options.
const TCP6_HEADER_BYTES: u16 = 60;

/// Lowers the MSS in every SYN to what fits the path, in either direction.
pub(crate) fn clamp_mss(batch: &mut Batch, headers: &[Inner], board: &Board, counters: &mut Counters) {
    for (packet, inner) in batch.as_mut_slice().iter_mut().zip(headers) {
        let Transport::Tcp { flags, .. } = inner.transport else { continue };
        if flags & tcp::SYN == 0 || packet.layout.is_train() {
            continue;
        }
        let headers = if inner.flow.is_ipv4() { TCP4_HEADER_BYTES } else { TCP6_HEADER_BYTES };
        let Decision { cable, mtu_bytes, .. } = packet.decision;
        let limit = board.mtu(cable).map_or(mtu_bytes, |found| found.min(mtu_bytes)).saturating_sub(headers);
        let has_full_checksum = !matches!(packet.checksum, Checksum::Partial { .. });
        let segment = &mut packet.buf.bytes_mut()[usize::from(inner.transport_offset)..];
        if tcp::clamp_mss(segment, limit, has_full_checksum) {
            counters.mss_clamped += 1;
        }
    }
}

/// What fitting needs besides the packets.
pub(crate) struct Fit<'a> {
    pub(crate) answers: Answers<'a>,
    pub(crate) pool: &'a mut Pool,
    pub(crate) drops: &'a mut Drops,
}

fn fits(packet: &Packet) -> bool {
    packet.largest_packet_bytes() <= usize::from(packet.decision.mtu_bytes)
}

impl Fit<'_> {
    /// Moves every packet that fits its path to `ready`, in order. Too big ones are fragmented where the sender
    /// allows it, and answered where not.
    pub(crate) fn run(&mut self, batch: &mut Batch, headers: &[Inner], ready: &mut Vec<Packet>) {
        if batch.as_slice().iter().all(fits) {
            batch.move_to(ready);
            return;
        }
        for (packet, inner) in batch.drain().zip(headers) {
            if fits(&packet) {
                ready.push(packet);
            } else if inner.dont_fragment {
                self.refuse(packet, inner);
            } else {
                self.fragment(packet, ready);
            }
        }
    }

    fn refuse(&mut self, mut packet: Packet, inner: &Inner) {
        let mtu = packet.decision.mtu_bytes;
        // The quoted header is that of the packet as the source sent it; for a train, its first segment's fields are
        // those of the train but for the length, which senders do not look at.
        quote::restore(&mut packet, inner);
        let is_told = self.answers.tell(&packet, inner, self.pool, |from, out| {
            icmp::too_big(packet.bytes(), inner, from, mtu, out)
        });
        self.answers.counters.too_big += u64::from(is_told);
        self.drops.discard(packet, DropReason::TooBig, self.pool);
    }

    fn fragment(&mut self, mut packet: Packet, ready: &mut Vec<Packet>) {
        let decision = packet.decision;
        let segments = packet.segments();
        let mut done = 0;
        // Whole segments first: fragments are cut from packets with finished checksums.
        match Segmenter::new(&mut packet) {
            Ok(mut segmenter) => {
                while let Some(segment) = segmenter.next_segment() {
                    done += 1;
                    self.fragment_one(segment, decision.mtu_bytes, |mut fragment| {
                        fragment.decision = decision;
                        ready.push(fragment);
                    });
                }
            }
            Err(reason) => {
                self.drops.discard(packet, reason, self.pool);
                return;
            }
        }
        debug_assert_eq!(done, segments, "a train yields as many packets as it says");
        self.pool.recycle(packet.buf);
    }

    fn fragment_one(&mut self, bytes: &[u8], mtu: u16, mut emit: impl FnMut(Packet)) {
        if version(bytes) != 4 {
            self.drops.lose(trieste_packet::CableId(0), DropReason::CannotFragment, bytes);
            return;
        }
        let mut count = 0;
        let result = fragment_v4(bytes, mtu, self.pool, |buf| {
            count += 1;
            emit(Packet::new(buf));
        });
        // One packet came in; `count` go on.
        match result {
            Ok(_) => {
                self.answers.counters.made += count - 1;
                self.answers.counters.fragmented += u64::from(count > 1);
            }
            Err(reason) => {
                self.answers.counters.made += count;
                self.drops.lose(trieste_packet::CableId(0), reason, bytes);
            }
        }
    }
}
