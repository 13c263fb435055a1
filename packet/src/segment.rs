//! Cutting a train into packets, in place.
//!
//! Whoever seals a segment needs it in one piece: header and payload side by side. The payloads of a train
//! already are; the header of each segment is written over the end of the payload before it, which has been
//! used by then:
//!
//! ```text
//!  | hdr | payload 0 | payload 1 | payload 2 |
//!  [------ segment 0 ]
//!              [ hdr'| payload 1 ]
//!                          [ hdr"| payload 2 ]
//! ```

use std::ops::Range;

use crate::checksum::{self, Sum};
use crate::packet::{Checksum, LayoutKind, Packet};
use crate::wire::{self, IPV6_HEADER_BYTES, Inner, Transport, be16, be32, protocol, put16, put32, tcp};
use crate::{DropReason, Layout};

/// Longest common header of a train: 60 bytes of IP, 60 of TCP, and some extension headers.
pub const MAX_HEADER_BYTES: usize = 192;

/// Yields the packets of a train one after the other, each complete with lengths and checksums. What has been
/// yielded is overwritten by the next call. A single packet is yielded once, its checksum finished.
#[derive(Debug)]
pub struct Segmenter<'a> {
    bytes: &'a mut [u8],
    layout: Layout,
    next: usize,
    header: [u8; MAX_HEADER_BYTES],
    fixed: Fixed,
}

/// What all segments share, computed once per train.
#[derive(Debug, Clone, Copy, Default)]
struct Fixed {
    is_v6: bool,
    is_tcp: bool,
    transport: usize,
    ip_sum: Sum,
    transport_sum: Sum,
    identification: u16,
    sequence: u32,
    tcp_flags: u8,
}

/// A packet of a train that has not been written yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    index: usize,
    /// Bytes of the packet, headers included.
    pub bytes: usize,
}

/// Finishes the checksum of a single packet, which needs no cutting.
///
/// # Errors
/// The reason to drop the packet when the place of its checksum lies outside of it.
pub fn finish_single(packet: &mut Packet) -> Result<(), DropReason> {
    if let Checksum::Partial { start, field } = packet.checksum
        && !checksum::finish_partial(packet.buf.bytes_mut(), usize::from(start), usize::from(field))
    {
        return Err(DropReason::MalformedHeader);
    }
    packet.checksum = Checksum::Verified;
    Ok(())
}

impl<'a> Segmenter<'a> {
    /// Prepares to cut `packet`.
    ///
    /// # Errors
    /// The reason to drop the packet when its layout and its headers do not agree.
    pub fn new(packet: &'a mut Packet) -> Result<Self, DropReason> {
        let layout = packet.layout;
        if layout.kind == LayoutKind::Single {
            finish_single(packet)?;
        }
        let bytes = packet.buf.bytes_mut();
        let mut this =
            Self { bytes, layout, next: 0, header: [0; MAX_HEADER_BYTES], fixed: Fixed::default() };
        match layout.kind {
            LayoutKind::Tcp | LayoutKind::Udp => this.prepare()?,
            LayoutKind::Single | LayoutKind::Packets => {}
            LayoutKind::Datagrams => return Err(DropReason::MalformedHeader),
        }
        packet.checksum = Checksum::Verified;
        Ok(this)
    }

    fn prepare(&mut self) -> Result<(), DropReason> {
        let header_bytes = usize::from(self.layout.header_bytes);
        let last = usize::from(self.layout.count).checked_sub(1).ok_or(DropReason::MalformedHeader)?;
        let last_start = header_bytes + last * usize::from(self.layout.stride_bytes);
        if header_bytes > MAX_HEADER_BYTES
            || self.layout.segment_bytes == 0
            || self.layout.stride_bytes < self.layout.segment_bytes
            || last_start >= self.bytes.len()
        {
            return Err(DropReason::MalformedHeader);
        }
        self.header[..header_bytes].copy_from_slice(&self.bytes[..header_bytes]);
        self.fixed = Fixed::new(&mut self.header[..header_bytes], self.layout.kind)?;
        Ok(())
    }

    /// The next packet, or `None` after the last.
    pub fn next_segment(&mut self) -> Option<&[u8]> {
        if self.next >= usize::from(self.layout.count) {
            return None;
        }
        let index = self.next;
        self.next += 1;
        match self.layout.kind {
            LayoutKind::Single => Some(self.bytes),
            LayoutKind::Packets => self.next_whole(index),
            LayoutKind::Tcp | LayoutKind::Udp | LayoutKind::Datagrams => Some(self.cut_in_place(index)),
        }
    }

    fn next_whole(&mut self, mut index: usize) -> Option<&[u8]> {
        while index < 64 && self.layout.present & (1 << index) == 0 {
            index += 1;
        }
        self.next = index + 1;
        if index >= usize::from(self.layout.count) {
            return None;
        }
        let start = index * usize::from(self.layout.stride_bytes);
        let slot = &self.bytes[start..self.bytes.len().min(start + usize::from(self.layout.stride_bytes))];
        let total = Inner::parse(slot).map_or(slot.len(), |inner| usize::from(inner.total_bytes));
        Some(&slot[..total])
    }

    fn cut_in_place(&mut self, index: usize) -> &[u8] {
        let header_bytes = usize::from(self.layout.header_bytes);
        let (start, end) = (index * usize::from(self.layout.stride_bytes), self.payload(index).end);
        let segment = &mut self.bytes[start..end];
        segment[..header_bytes].copy_from_slice(&self.header[..header_bytes]);
        let payload_sum = Sum::ZERO.bytes(&segment[header_bytes..]);
        self.fixed.finish(segment, payload_sum, index, &self.layout);
        segment
    }

    /// Where the payload of a TCP or UDP train's segment is.
    fn payload(&self, index: usize) -> Range<usize> {
        let start = usize::from(self.layout.header_bytes) + index * usize::from(self.layout.stride_bytes);
        start..(start + usize::from(self.layout.segment_bytes)).min(self.bytes.len())
    }

    /// The next packet of a TCP or UDP train, to be written elsewhere by [`Self::write`]; `None` after the last, and for
    /// other layouts. For who has to copy anyway: the checksum is computed on the way.
    pub fn next_cut(&mut self) -> Option<Cut> {
        let is_train = matches!(self.layout.kind, LayoutKind::Tcp | LayoutKind::Udp);
        if !is_train || self.next >= usize::from(self.layout.count) {
            return None;
        }
        let index = self.next;
        self.next += 1;
        Some(Cut { index, bytes: usize::from(self.layout.header_bytes) + self.payload(index).len() })
    }

    /// Writes a packet to `space`, which has its length.
    ///
    /// # Panics
    /// When it has not.
    pub fn write(&self, cut: Cut, space: &mut [u8]) {
        let (header, payload) = space.split_at_mut(usize::from(self.layout.header_bytes));
        header.copy_from_slice(&self.header[..header.len()]);
        let payload_sum = Sum::ZERO.copied_bytes(&self.bytes[self.payload(cut.index)], payload);
        self.fixed.finish(space, payload_sum, cut.index, &self.layout);
    }
}

impl Fixed {
    /// Reads the common header and clears in it what differs from segment to segment.
    fn new(header: &mut [u8], kind: LayoutKind) -> Result<Self, DropReason> {
        let is_v6 = wire::version(header) == 6;
        let is_tcp = kind == LayoutKind::Tcp;
        let transport = transport_offset(header, is_v6, is_tcp)?;
        let mut fixed = Self { is_v6, is_tcp, transport, ..Self::default() };
        if is_v6 {
            put16(header, 4, 0);
        } else {
            fixed.identification = be16(header, 4);
            put16(header, 2, 0);
            put16(header, 4, 0);
            put16(header, 10, 0);
            fixed.ip_sum = Sum::ZERO.bytes(&header[..transport]);
        }
        let proto = if is_tcp { protocol::TCP } else { protocol::UDP };
        if is_tcp {
            fixed.sequence = be32(header, transport + 4);
            fixed.tcp_flags = header[transport + 13];
            put32(header, transport + 4, 0);
            header[transport + 13] = 0;
            put16(header, transport + 16, 0);
        } else {
            put16(header, transport + 4, 0);
            put16(header, transport + 6, 0);
        }
        fixed.transport_sum =
            checksum::address_sum(header).word(u16::from(proto)).bytes(&header[transport..]);
        Ok(fixed)
    }

    /// Fills in what differs: lengths, identification, sequence number, flags, checksums.
    fn finish(&self, segment: &mut [u8], payload_sum: Sum, index: usize, layout: &Layout) {
        let segment_bytes = usize::from(layout.segment_bytes);
        let is_last = index + 1 == usize::from(layout.count);
        let total = narrow(segment.len());
        if self.is_v6 {
            put16(segment, 4, total - narrow(IPV6_HEADER_BYTES));
        } else {
            let identification = self.identification.wrapping_add(narrow(index));
            put16(segment, 2, total);
            put16(segment, 4, identification);
            put16(segment, 10, self.ip_sum.word(total).word(identification).checksum());
        }
        let transport_bytes = total - narrow(self.transport);
        let mut sum = self.transport_sum.word(transport_bytes).plus(payload_sum);
        if self.is_tcp {
            #[expect(clippy::cast_possible_truncation, reason = "sequence numbers are modulo 2^32")]
            let sequence = self.sequence.wrapping_add((index * segment_bytes) as u32);
            let mut flags = self.tcp_flags;
            if !is_last {
                flags &= !(tcp::FIN | tcp::PSH);
            }
            if index > 0 {
                flags &= !tcp::CWR;
            }
            put32(segment, self.transport + 4, sequence);
            segment[self.transport + 13] = flags;
            sum = sum.double(sequence).word(u16::from(flags));
            put16(segment, self.transport + 16, sum.checksum());
        } else {
            put16(segment, self.transport + 4, transport_bytes);
            sum = sum.word(transport_bytes);
            let checksum = sum.checksum();
            put16(segment, self.transport + 6, if checksum == 0 { 0xffff } else { checksum });
        }
    }
}

/// Where the transport header of a train starts. Its header must reach exactly to the end of `header`.
fn transport_offset(header: &[u8], is_v6: bool, is_tcp: bool) -> Result<usize, DropReason> {
    let offset = if is_v6 {
        // A copy whose length field fits the header alone, so that the one parser can be used.
        let mut copy = [0u8; MAX_HEADER_BYTES];
        copy[..header.len()].copy_from_slice(header);
        let payload = header.len().checked_sub(IPV6_HEADER_BYTES).ok_or(DropReason::MalformedHeader)?;
        put16(&mut copy, 4, narrow(payload));
        let inner = Inner::parse(&copy[..header.len()])?;
        if matches!(inner.transport, Transport::Tcp { .. }) != is_tcp {
            return Err(DropReason::MalformedHeader);
        }
        usize::from(inner.transport_offset)
    } else {
        if header.len() < wire::IPV4_HEADER_BYTES || wire::version(header) != 4 {
            return Err(DropReason::MalformedHeader);
        }
        usize::from(header[0] & 0x0f) * 4
    };
    let rest = header.len().checked_sub(offset).ok_or(DropReason::MalformedHeader)?;
    let fits = if is_tcp {
        rest >= wire::TCP_HEADER_BYTES && usize::from(tcp::header_bytes(&header[offset..])) == rest
    } else {
        rest == wire::UDP_HEADER_BYTES
    };
    if offset >= wire::IPV4_HEADER_BYTES && fits { Ok(offset) } else { Err(DropReason::MalformedHeader) }
}

fn narrow(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Pool, PoolConfig};
    use etherparse::PacketBuilder;

    fn train(payload: &[u8], mss: u16, is_v6: bool) -> Packet {
        let mut pool = Pool::new(PoolConfig { slots: 1, ..PoolConfig::default() });
        let mut bytes = Vec::new();
        if is_v6 {
            PacketBuilder::ipv6([1; 16], [2; 16], 64)
                .tcp(1, 2, 0xffff_ff00, 4)
                .psh()
                .fin()
                .write(&mut bytes, payload)
                .unwrap();
        } else {
            PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
                .tcp(1, 2, 0xffff_ff00, 4)
                .psh()
                .fin()
                .write(&mut bytes, payload)
                .unwrap();
        }
        let header = u16::try_from(bytes.len() - payload.len()).unwrap();
        let mut packet = Packet::new(pool.alloc_copy(&bytes).unwrap());
        let count = u16::try_from(payload.len().div_ceil(usize::from(mss))).unwrap();
        packet.layout = Layout::train(LayoutKind::Tcp, header, mss, count);
        packet
    }

    #[test]
    fn a_train_becomes_valid_packets_that_carry_the_stream() {
        for is_v6 in [false, true] {
            let payload: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
            let mut packet = train(&payload, 1380, is_v6);
            let mut copies = Vec::new();
            let mut segmenter = Segmenter::new(&mut packet).unwrap();
            while let Some(cut) = segmenter.next_cut() {
                let mut copy = vec![0; cut.bytes];
                segmenter.write(cut, &mut copy);
                copies.push(copy);
            }
            let mut packet = train(&payload, 1380, is_v6);
            let mut segmenter = Segmenter::new(&mut packet).unwrap();
            let mut stream = Vec::new();
            let mut count = 0;
            while let Some(segment) = segmenter.next_segment() {
                let inner = Inner::parse(segment).unwrap();
                let offset = usize::from(inner.transport_offset);
                assert!(checksum::transport_is_valid(segment, offset));
                if !is_v6 {
                    assert_eq!(Sum::ZERO.bytes(&segment[..20]).folded(), 0xffff);
                }
                let expected = 0xffff_ff00u32.wrapping_add(u32::try_from(stream.len()).unwrap());
                assert_eq!(be32(segment, offset + 4), expected);
                stream.extend(&segment[inner.header_bytes()..]);
                assert_eq!(copies.get(count).map(Vec::as_slice), Some(segment));
                count += 1;
                let is_last = stream.len() == payload.len();
                assert_eq!(segment[offset + 13] & (tcp::FIN | tcp::PSH) != 0, is_last);
            }
            assert_eq!((stream, count), (payload, 4));
        }
    }

    #[test]
    fn layouts_that_do_not_fit_the_bytes_are_refused() {
        for (header, segment, count) in
            [(41, 100, 2), (40, 0, 2), (40, 100, 0), (40, 100, 9), (400, 10, 1), (39, 10, 1)]
        {
            let mut packet = train(&[7; 300], 100, false);
            packet.layout = Layout::train(LayoutKind::Tcp, header, segment, count);
            assert!(Segmenter::new(&mut packet).is_err(), "{header} {segment} {count}");
        }
    }
}
