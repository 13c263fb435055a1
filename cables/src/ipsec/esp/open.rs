//! Opening a batch: trains and lone datagrams where they are, runs of datagrams side by side in one buffer, so that
//! they become trains again.

use std::time::Instant;

use trieste_packet::wire::{self, IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, be16};
use trieste_packet::{CableId, DropReason, Layout, LayoutKind, Outer, Packet};

use super::HEAD_BYTES;
use super::pair::State;
use super::pairs::Pairs;
use super::sa::{Opened, Refusal};
use crate::boundary::{CableStats, Jobs};
use crate::ipsec::Spi;

/// Most packets in one opened train: the width of its presence bitmap.
const MAX_OPENED: u16 = 64;
/// Datagrams below this length are not put side by side: what they hold rarely makes a train.
const MIN_GATHERED_BYTES: usize = 512;

/// What was learnt from a batch besides its packets.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Where the newest authentic packet of an SA came from.
    pub(super) newest_from: Option<Outer>,
    /// A pair that waited for a first packet, and has got it.
    pub(super) first_of: Option<Spi>,
}

/// What became of a message.
enum Fate {
    /// A packet of this many bytes, behind the head.
    Packet(usize),
    /// Authentic, and without a packet.
    Consumed,
    Lost(DropReason),
}

/// One batch being opened.
pub(super) struct Opening<'a> {
    pairs: &'a mut Pairs,
    cable: CableId,
    stats: &'a mut CableStats,
    now: Instant,
    heard: Heard,
    /// Messages side by side, opened.
    gathered: Option<Packet>,
    /// Whether a shorter message ended them.
    is_closed: bool,
}

impl<'a> Opening<'a> {
    pub(super) fn new(pairs: &'a mut Pairs, cable: CableId, stats: &'a mut CableStats, now: Instant) -> Self {
        Self { pairs, cable, stats, now, heard: Heard::default(), gathered: None, is_closed: false }
    }

    /// Opens a datagram or train of datagrams. `next` is what follows it.
    pub(super) fn open(&mut self, mut packet: Packet, next: Option<&Packet>, jobs: &mut Jobs<'_>) {
        packet.decision.cable = self.cable;
        match packet.layout.kind {
            LayoutKind::Single => {
                let bytes = packet.buf.len();
                let is_lone = !self.accepts(bytes, &packet.outer)
                    && !next.is_some_and(|next| continues(next, bytes, &packet.outer));
                if is_lone || !self.gather(&packet, jobs) {
                    self.flush(jobs);
                    self.open_single(packet, jobs);
                } else {
                    jobs.pool.recycle(packet.buf);
                }
            }
            LayoutKind::Datagrams => {
                self.flush(jobs);
                self.open_long_train(packet, jobs);
            }
            LayoutKind::Tcp | LayoutKind::Udp | LayoutKind::Packets => {
                jobs.drops.discard(packet, DropReason::MalformedHeader, jobs.pool);
            }
        }
    }

    fn open_single(&mut self, mut packet: Packet, jobs: &mut Jobs<'_>) {
        let outer = packet.outer;
        let Some(bytes) = self.open_message(packet.buf.bytes_mut(), &outer, jobs) else {
            return jobs.pool.recycle(packet.buf);
        };
        packet.buf.advance(HEAD_BYTES);
        packet.buf.truncate(bytes);
        jobs.emit(packet, self.cable);
    }

    /// Opens a train of any length, in pieces that a presence bitmap has room for.
    fn open_long_train(&mut self, mut packet: Packet, jobs: &mut Jobs<'_>) {
        while packet.layout.count > MAX_OPENED {
            let front_bytes = usize::from(MAX_OPENED) * usize::from(packet.layout.stride_bytes);
            if front_bytes >= packet.buf.len() {
                return jobs.drops.discard(packet, DropReason::MalformedHeader, jobs.pool);
            }
            let front = Packet {
                buf: packet.buf.split_to(front_bytes),
                layout: Layout { count: MAX_OPENED, ..packet.layout },
                checksum: packet.checksum,
                outer: packet.outer,
                decision: packet.decision,
            };
            packet.layout.count -= MAX_OPENED;
            self.open_train(front, jobs);
        }
        self.open_train(packet, jobs);
    }

    /// The train becomes packets at the same places, less the first head.
    fn open_train(&mut self, mut packet: Packet, jobs: &mut Jobs<'_>) {
        let (count, outer) = (packet.layout.count, packet.outer);
        let mut present = 0u64;
        for index in 0..count {
            let (start, end) = packet.segment_range(usize::from(index));
            let Some(message) = packet.buf.bytes_mut().get_mut(start..end) else {
                jobs.drops.count(self.cable, DropReason::MalformedHeader, 1);
                continue;
            };
            if self.open_message(message, &outer, jobs).is_some() {
                present |= 1 << index;
            }
        }
        emit_opened(packet, present, self.cable, jobs);
    }

    /// Opens a message in place. `Some` with the inner packet's length when it holds one; all else is accounted for here.
    #[inline]
    fn open_message(&mut self, message: &mut [u8], from: &Outer, jobs: &mut Jobs<'_>) -> Option<usize> {
        match self.verify(message, from) {
            Fate::Packet(bytes) => Some(bytes),
            Fate::Consumed => {
                *jobs.consumed += 1;
                None
            }
            Fate::Lost(reason) => {
                jobs.drops.lose(self.cable, reason, message);
                None
            }
        }
    }

    #[inline]
    fn verify(&mut self, message: &mut [u8], from: &Outer) -> Fate {
        let Some(spi) = message.first_chunk::<4>() else { return Fate::Lost(DropReason::MalformedHeader) };
        let spi = Spi::from_bytes(*spi);
        let Some(pair) = self.pairs.touch_spi(spi) else { return Fate::Lost(DropReason::NoSession) };
        if self.now >= pair.hard_time {
            return Fate::Lost(DropReason::NoSession);
        }
        let message_bytes = message.len() as u64;
        let (opened, is_newest) = match pair.inbound.open(message) {
            Ok(opened) => opened,
            Err(refusal) => {
                pair.tally.bad += u64::from(refusal == Refusal::Forged);
                pair.tally.replayed += u64::from(matches!(refusal, Refusal::Replay(_)));
                return Fate::Lost(refusal.reason());
            }
        };
        pair.tally.has_heard = true;
        self.stats.rx_bytes += message_bytes;
        if is_newest {
            self.heard.newest_from = Some(*from);
        }
        if pair.state == State::Pending {
            self.heard.first_of = Some(spi);
        }
        let (version, text) = match opened {
            Opened::Packet(version, text) => (version, text),
            Opened::Dummy => return Fate::Consumed,
            Opened::Malformed => return Fate::Lost(DropReason::BadInner),
        };
        let Some(packet) = inner_packet(version, text) else { return Fate::Lost(DropReason::BadInner) };
        //= https://www.rfc-editor.org/rfc/rfc4301#section-5.2
        //# If an IPsec system receives an inbound packet on an SA and the packet's header fields are not consistent
        //# with the selectors for the SA, it MUST discard the packet.
        if !pair.admits_opened(packet) {
            return Fate::Lost(DropReason::SelectorMismatch);
        }
        pair.tally.open(packet.len());
        self.stats.rx_packets += 1;
        Fate::Packet(packet.len())
    }

    fn accepts(&self, bytes: usize, from: &Outer) -> bool {
        self.gathered.as_ref().is_some_and(|packet| {
            !self.is_closed
                && bytes <= usize::from(packet.layout.stride_bytes)
                && packet.layout.count < MAX_OPENED
                && packet.outer == *from
                && packet.buf.tailroom() >= bytes
        })
    }

    /// Copies a datagram beside those before it and opens it there. `false`, with nothing done, when there is no room.
    fn gather(&mut self, packet: &Packet, jobs: &mut Jobs<'_>) -> bool {
        let bytes = packet.buf.len();
        if !self.accepts(bytes, &packet.outer) {
            self.flush(jobs);
            self.gathered = start(packet, jobs);
            self.is_closed = false;
        }
        let Some(mut gathered) = self.gathered.take() else { return false };
        self.is_closed = bytes < usize::from(gathered.layout.stride_bytes);
        let message = gathered.buf.extend(bytes);
        message.copy_from_slice(packet.bytes());
        if self.open_message(message, &packet.outer, jobs).is_some() {
            gathered.layout.present |= 1 << gathered.layout.count;
        }
        gathered.layout.count += 1;
        self.gathered = Some(gathered);
        true
    }

    fn flush(&mut self, jobs: &mut Jobs<'_>) {
        if let Some(packet) = self.gathered.take() {
            let present = packet.layout.present;
            emit_opened(packet, present, self.cable, jobs);
        }
    }

    /// Hands what is open to the output.
    pub(super) fn finish(mut self, jobs: &mut Jobs<'_>) -> Heard {
        self.flush(jobs);
        self.heard
    }
}

impl Refusal {
    fn reason(self) -> DropReason {
        match self {
            Self::Short => DropReason::MalformedHeader,
            Self::Replay(_) => DropReason::Replay,
            Self::UsedUp => DropReason::NoSession,
            Self::Forged => DropReason::BadTag,
        }
    }
}

/// A buffer for messages side by side, as long as `first`. `None` when there is none, or not of that length.
fn start(first: &Packet, jobs: &mut Jobs<'_>) -> Option<Packet> {
    let bytes = first.buf.len();
    let stride = u16::try_from(bytes).ok()?;
    let buf = jobs.pool.alloc_output()?;
    if buf.tailroom() < bytes {
        jobs.pool.recycle(buf);
        return None;
    }
    let mut packet = Packet::new(buf);
    packet.layout = Layout { count: 0, present: 0, ..Layout::datagrams(stride, 0) };
    packet.outer = first.outer;
    packet.decision = first.decision;
    Some(packet)
}

/// Whether a datagram goes beside one of `bytes` in front of it.
fn continues(next: &Packet, bytes: usize, outer: &Outer) -> bool {
    next.layout.kind == LayoutKind::Single
        && bytes >= MIN_GATHERED_BYTES
        && next.buf.len() <= bytes
        && next.outer == *outer
}

/// Hands opened messages to the output as packets, those whose bit is set.
fn emit_opened(mut packet: Packet, present: u64, cable: CableId, jobs: &mut Jobs<'_>) {
    // One that was opened is longer than its head.
    if present == 0 || packet.buf.len() < HEAD_BYTES {
        return jobs.pool.recycle(packet.buf);
    }
    packet.buf.advance(HEAD_BYTES);
    packet.layout = Layout { kind: LayoutKind::Packets, header_bytes: 0, present, ..packet.layout };
    jobs.emit(packet, cable);
}

/// The packet in front of what may be TFC padding, by its own header; its version is what the next header said.
#[inline]
fn inner_packet(version: u8, text: &[u8]) -> Option<&[u8]> {
    if wire::version(text) != version {
        return None;
    }
    let (header, total) = if version == 4 {
        (IPV4_HEADER_BYTES, usize::from(be16(text.get(2..4)?, 0)))
    } else {
        (IPV6_HEADER_BYTES, IPV6_HEADER_BYTES + usize::from(be16(text.get(4..6)?, 0)))
    };
    if total < header { None } else { text.get(..total) }
}
