//! Opening a batch: trains and lone datagrams where they are, runs of datagrams side by side in one buffer, so that
//! they become trains again. What a message is says an [`Opener`].

use trieste_packet::wire::{self, IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, be16};
use trieste_packet::{CableId, DropReason, Layout, LayoutKind, Outer, Packet};

use crate::boundary::Jobs;
use crate::prefetch::prefetch_next;

/// Most packets in one opened train: the width of its presence bitmap.
const MAX_OPENED: u16 = 64;
/// Datagrams below this length are not put side by side: what they hold rarely makes a train.
const MIN_GATHERED_BYTES: usize = 512;

/// Opens one message in place.
pub(crate) trait Opener {
    /// Bytes in front of the packet in a message that has been opened.
    const HEAD_BYTES: usize;
    /// Opens a message that `from` sent.
    fn open(&mut self, message: &mut [u8], from: &Outer) -> Fate;
}

/// What became of a message.
pub(crate) enum Fate {
    /// A packet of this many bytes, behind the head.
    Packet(usize),
    /// In order, and without a packet.
    Consumed,
    /// Kept by the opener.
    Held,
    /// Of no use.
    Lost(DropReason),
}

/// One batch being opened.
pub(crate) struct Opening<O> {
    opener: O,
    cable: CableId,
    /// Messages side by side, opened.
    gathered: Option<Packet>,
    /// Whether a shorter message ended them.
    is_closed: bool,
}

impl<O: Opener> Opening<O> {
    /// Opens all datagrams of `jobs.input` into `jobs.output`, and gives the opener back.
    pub(crate) fn batch(opener: O, cable: CableId, jobs: &mut Jobs<'_>) -> O {
        let mut input = std::mem::take(jobs.input);
        let mut this = Self { opener, cable, gathered: None, is_closed: false };
        let mut packets = input.drain(..);
        while let Some(packet) = packets.next() {
            prefetch_next(packets.as_slice());
            this.open(packet, packets.as_slice().first(), jobs);
        }
        drop(packets);
        this.flush(jobs);
        *jobs.input = input;
        this.opener
    }

    /// Opens a datagram or train of datagrams. `next` is what follows it.
    fn open(&mut self, mut packet: Packet, next: Option<&Packet>, jobs: &mut Jobs<'_>) {
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
        packet.buf.advance(O::HEAD_BYTES);
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
                layout: Layout { count: MAX_OPENED, ..packet.layout },
                checksum: packet.checksum,
                outer: packet.outer,
                decision: packet.decision,
                ..Packet::new(packet.buf.split_to(front_bytes))
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
        self.emit(packet, present, jobs);
    }

    /// Opens a message in place. `Some` with the inner packet's length when it holds one; all else is accounted for here.
    #[inline]
    fn open_message(&mut self, message: &mut [u8], from: &Outer, jobs: &mut Jobs<'_>) -> Option<usize> {
        match self.opener.open(message, from) {
            Fate::Packet(bytes) => Some(bytes),
            Fate::Consumed => {
                *jobs.consumed += 1;
                None
            }
            Fate::Held => None,
            Fate::Lost(reason) => {
                jobs.drops.lose(self.cable, reason, message);
                None
            }
        }
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
            self.emit(packet, present, jobs);
        }
    }

    /// Hands opened messages to the output as packets, those whose bit is set.
    fn emit(&self, mut packet: Packet, present: u64, jobs: &mut Jobs<'_>) {
        // One that was opened is longer than its head.
        if present == 0 || packet.buf.len() < O::HEAD_BYTES {
            return jobs.pool.recycle(packet.buf);
        }
        packet.buf.advance(O::HEAD_BYTES);
        packet.layout = Layout { kind: LayoutKind::Packets, header_bytes: 0, present, ..packet.layout };
        jobs.emit(packet, self.cable);
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

/// The packet in front of what may be padding, by its own header; its version is what the header before it said.
#[inline]
pub(crate) fn inner_packet(version: u8, text: &[u8]) -> Option<&[u8]> {
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
