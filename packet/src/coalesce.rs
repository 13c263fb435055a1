//! Building trains from packets that a lane opened side by side.
//!
//! Packets of one flow whose payloads continue one another become one train with a common header; the kernel
//! then handles them as one. A packet joins only if its transport checksum was verified and the kernel, cutting
//! the train again, would produce the same packets: what is wrong stays wrong, and stays alone.

use crate::checksum::{self, Sum};
use crate::packet::{Checksum, Layout, LayoutKind, Packet};
use crate::wire::{
    self, IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, Inner, Transport, UDP_HEADER_BYTES, be16, be32, protocol,
    put16, tcp,
};

/// Largest IP packet that a train may stand for, in bytes (the length field of IPv4).
const MAX_TRAIN_BYTES: usize = 65_535;

/// Takes a packet of layout [`LayoutKind::Packets`] apart and emits trains and single packets in order.
/// Packets of other layouts are emitted as they are.
pub fn coalesce(packet: Packet, mut emit: impl FnMut(Packet)) {
    if packet.layout.kind != LayoutKind::Packets {
        emit(packet);
        return;
    }
    let count = usize::from(packet.layout.count).min(64);
    let stride = usize::from(packet.layout.stride_bytes);
    let present = packet.layout.present;
    let mut rest = Cutter { packet, consumed: 0, stride };
    let mut open: Option<Open> = None;
    for index in 0..count {
        if present & (1 << index) == 0 {
            rest.close(open.take(), &mut emit);
            continue;
        }
        let slot = rest.slot(index);
        let Some(member) = Member::read(slot) else {
            let bytes = Inner::parse(slot).map_or(slot.len(), |inner| usize::from(inner.total_bytes));
            rest.close(open.take(), &mut emit);
            rest.emit(index, bytes, Layout::SINGLE, Checksum::Unchecked, &mut emit);
            continue;
        };
        if let Some(train) = open.as_mut()
            && train.accepts(&member, rest.slot(train.first), rest.slot(index))
        {
            train.append(&member);
            continue;
        }
        rest.close(open.take(), &mut emit);
        open = Some(Open::start(index, member));
    }
    rest.close(open, &mut emit);
}

/// A packet that could be part of a train: plain TCP data or UDP with a right checksum.
#[derive(Debug, Clone, Copy)]
struct Member {
    kind: LayoutKind,
    header_bytes: usize,
    transport: usize,
    payload_bytes: usize,
    sequence: u32,
    is_pushed: bool,
}

impl Member {
    fn read(slot: &[u8]) -> Option<Self> {
        let inner = Inner::parse(slot).ok()?;
        let bytes = &slot[..usize::from(inner.total_bytes)];
        let transport = usize::from(inner.transport_offset);
        let plain = if wire::version(bytes) == 6 { IPV6_HEADER_BYTES } else { IPV4_HEADER_BYTES };
        let header_bytes = inner.header_bytes();
        let payload_bytes = bytes.len().checked_sub(header_bytes)?;
        if transport != plain || payload_bytes == 0 {
            return None;
        }
        let (kind, sequence, is_pushed) = match inner.transport {
            Transport::Tcp { flags, .. } if flags & !tcp::PSH == tcp::ACK => {
                (LayoutKind::Tcp, be32(bytes, transport + 4), flags & tcp::PSH != 0)
            }
            Transport::Udp
                if usize::from(be16(bytes, transport + 4)) == payload_bytes + UDP_HEADER_BYTES
                    && be16(bytes, transport + 6) != 0 =>
            {
                (LayoutKind::Udp, 0, false)
            }
            Transport::Tcp { .. }
            | Transport::Udp
            | Transport::Icmp
            | Transport::Fragment { .. }
            | Transport::Other => return None,
        };
        // An IPv4 header that is wrong must not be replaced by one that is right.
        if plain == IPV4_HEADER_BYTES && Sum::ZERO.bytes(&bytes[..plain]).folded() != 0xffff {
            return None;
        }
        if !checksum::transport_is_valid(bytes, transport) {
            return None;
        }
        Some(Self { kind, header_bytes, transport, payload_bytes, sequence, is_pushed })
    }
}

/// A train that may still grow.
#[derive(Debug)]
struct Open {
    first: usize,
    count: usize,
    member: Member,
    total_bytes: usize,
    next_sequence: u32,
    last_bytes: usize,
    is_closed: bool,
}

impl Open {
    fn start(first: usize, member: Member) -> Self {
        let mut open = Self {
            first,
            count: 0,
            member,
            total_bytes: member.header_bytes,
            next_sequence: member.sequence,
            last_bytes: 0,
            is_closed: false,
        };
        open.append(&member);
        open
    }

    fn append(&mut self, member: &Member) {
        self.count += 1;
        self.total_bytes += member.payload_bytes;
        self.last_bytes = member.payload_bytes;
        let bytes = u32::try_from(member.payload_bytes).unwrap_or(0);
        self.next_sequence = self.next_sequence.wrapping_add(bytes);
        self.is_closed = member.is_pushed || member.payload_bytes < self.member.payload_bytes;
        self.member.is_pushed |= member.is_pushed;
    }

    fn accepts(&self, next: &Member, first: &[u8], slot: &[u8]) -> bool {
        let mine = &self.member;
        !self.is_closed
            && next.kind == mine.kind
            && next.header_bytes == mine.header_bytes
            && next.transport == mine.transport
            && next.payload_bytes <= mine.payload_bytes
            && (next.kind == LayoutKind::Udp || next.sequence == self.next_sequence)
            && self.total_bytes + next.payload_bytes <= MAX_TRAIN_BYTES
            && self.has_same_ip_header(first, slot)
            && has_same_transport_header(mine, first, slot)
    }

    fn has_same_ip_header(&self, first: &[u8], slot: &[u8]) -> bool {
        if wire::version(first) == 6 {
            // Version, class and label; next header, hop limit and addresses. The length may differ.
            return first[..4] == slot[..4] && first[6..40] == slot[6..40];
        }
        let dont_fragment = first[6] & 0x40 != 0;
        // The kernel counts the identification up from the first packet's. With DF it has no meaning (RFC 6864).
        let offset = u16::try_from(self.count).unwrap_or(u16::MAX);
        let follows = be16(slot, 4) == be16(first, 4).wrapping_add(offset);
        first[..2] == slot[..2]
            && first[6..10] == slot[6..10]
            && first[12..20] == slot[12..20]
            && (dont_fragment || follows)
    }
}

fn has_same_transport_header(mine: &Member, first: &[u8], slot: &[u8]) -> bool {
    let a = &first[mine.transport..mine.header_bytes];
    let b = &slot[mine.transport..mine.header_bytes];
    if mine.kind == LayoutKind::Udp {
        return a[..4] == b[..4];
    }
    // Ports; acknowledgement and data offset; window; urgent pointer and options. Flags were looked at before.
    a[..4] == b[..4] && a[8..13] == b[8..13] && a[14..16] == b[14..16] && a[18..] == b[18..]
}

/// Takes pieces off the front of the opened buffer.
struct Cutter {
    packet: Packet,
    consumed: usize,
    stride: usize,
}

impl Cutter {
    /// The bytes of slot `index`, which has not been taken yet.
    fn slot(&self, index: usize) -> &[u8] {
        let bytes = self.packet.bytes();
        let start = index * self.stride - self.consumed;
        &bytes[start..bytes.len().min(start + self.stride)]
    }

    fn close(&mut self, open: Option<Open>, emit: &mut impl FnMut(Packet)) {
        let Some(train) = open else { return };
        let member = train.member;
        if train.count == 1 {
            self.emit(train.first, train.total_bytes, Layout::SINGLE, Checksum::Verified, emit);
            return;
        }
        let narrow = |value: usize| u16::try_from(value).unwrap_or(u16::MAX);
        let layout = Layout {
            kind: member.kind,
            header_bytes: narrow(member.header_bytes),
            segment_bytes: narrow(member.payload_bytes),
            stride_bytes: narrow(self.stride),
            count: narrow(train.count),
            present: 0,
        };
        let field = member.transport + if member.kind == LayoutKind::Tcp { 16 } else { 6 };
        let checksum = Checksum::Partial { start: narrow(member.transport), field: narrow(field) };
        let bytes = member.header_bytes + (train.count - 1) * self.stride + train.last_bytes;
        self.emit(train.first, bytes, layout, checksum, &mut |mut packet| {
            write_train_header(packet.buf.bytes_mut(), &member, train.total_bytes, field);
            emit(packet);
        });
    }

    fn emit(
        &mut self,
        first: usize,
        bytes: usize,
        layout: Layout,
        checksum: Checksum,
        emit: &mut impl FnMut(Packet),
    ) {
        self.packet.buf.advance(first * self.stride - self.consumed);
        self.consumed = first * self.stride;
        let taken = bytes.next_multiple_of(self.stride).min(self.packet.buf.len());
        let mut buf = self.packet.buf.split_to(taken);
        self.consumed += taken;
        buf.truncate(bytes);
        let Packet { outer, decision, .. } = self.packet;
        emit(Packet { layout, checksum, outer, decision, ..Packet::new(buf) });
    }
}

/// Makes the first packet's header that of the whole train, ready for a device that cuts it again: total length,
/// header checksum, PSH of the last, and the pseudo-header's sum in the transport checksum.
fn write_train_header(bytes: &mut [u8], member: &Member, total_bytes: usize, field: usize) {
    let narrow = |value: usize| u16::try_from(value).unwrap_or(u16::MAX);
    if wire::version(bytes) == 6 {
        put16(bytes, 4, narrow(total_bytes - IPV6_HEADER_BYTES));
    } else {
        put16(bytes, 2, narrow(total_bytes));
        checksum::fill_ipv4_header(bytes);
    }
    let transport_bytes = total_bytes - member.transport;
    let proto = if member.kind == LayoutKind::Tcp { protocol::TCP } else { protocol::UDP };
    if member.kind == LayoutKind::Tcp {
        if member.is_pushed {
            bytes[member.transport + 13] |= tcp::PSH;
        }
    } else {
        put16(bytes, member.transport + 4, narrow(transport_bytes));
    }
    let pseudo = checksum::pseudo_sum(bytes, proto, transport_bytes).folded();
    put16(bytes, field, pseudo);
}

#[cfg(test)]
mod tests;
