//! The virtio network header: what the kernel says about a packet, translated to [`Layout`] and [`Checksum`], and
//! back.
//!
//! Its fields are little trusted: header lengths are taken from the packet's own headers, and what does not agree
//! with them makes the packet malformed.

use trieste_packet::wire::{IPV6_HEADER_BYTES, Inner, Transport, protocol, put16, tcp, version};
use trieste_packet::{Checksum, DropReason, Layout, LayoutKind, checksum};

/// Bytes of `struct virtio_net_hdr`.
pub(super) const HEADER_BYTES: usize = 10;

// From the virtio specification 1.2, section 5.1.6.
const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The header's fields, in host order. The device is used in its legacy form, where the wire order is the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Header {
    flags: u8,
    gso_type: u8,
    header_bytes: u16,
    gso_bytes: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl Header {
    pub(super) fn parse(bytes: [u8; HEADER_BYTES]) -> Self {
        let field = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            header_bytes: field(2),
            gso_bytes: field(4),
            checksum_start: field(6),
            checksum_offset: field(8),
        }
    }

    pub(super) fn emit(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        let fields = [self.header_bytes, self.gso_bytes, self.checksum_start, self.checksum_offset];
        for (slot, field) in bytes[2..].chunks_exact_mut(2).zip(fields) {
            slot.copy_from_slice(&field.to_ne_bytes());
        }
        bytes
    }

    /// What the header says about the IP packet `bytes`, checked against it.
    pub(super) fn translate(self, bytes: &[u8]) -> Result<(Layout, Checksum), DropReason> {
        let checksum = self.checksum(bytes)?;
        let (kind, family) = match self.gso_type & !GSO_ECN {
            GSO_NONE => return Ok((Layout::SINGLE, checksum)),
            GSO_TCP_V4 => (LayoutKind::Tcp, Some(4)),
            GSO_TCP_V6 => (LayoutKind::Tcp, Some(6)),
            GSO_UDP => (LayoutKind::Udp, None),
            _ => return Err(DropReason::MalformedHeader),
        };
        if self.gso_bytes == 0 || family.is_some_and(|family| family != version(bytes)) {
            return Err(DropReason::MalformedHeader);
        }
        let inner = Inner::parse(bytes)?;
        if let Checksum::Partial { start, field } = checksum
            && (start != inner.transport_offset || field != start + checksum_offset(kind))
        {
            return Err(DropReason::MalformedHeader);
        }
        Ok((self.train(bytes, kind, &inner)?, checksum))
    }

    fn checksum(self, bytes: &[u8]) -> Result<Checksum, DropReason> {
        if self.flags & NEEDS_CHECKSUM != 0 {
            let field = usize::from(self.checksum_start) + usize::from(self.checksum_offset);
            if field + 2 > bytes.len() {
                return Err(DropReason::MalformedHeader);
            }
            let field = u16::try_from(field).map_err(|_| DropReason::MalformedHeader)?;
            return Ok(Checksum::Partial { start: self.checksum_start, field });
        }
        let is_verified = self.flags & DATA_VALID != 0;
        Ok(if is_verified { Checksum::Verified } else { Checksum::Unchecked })
    }

    fn train(self, bytes: &[u8], kind: LayoutKind, inner: &Inner) -> Result<Layout, DropReason> {
        let is_kind = match inner.transport {
            Transport::Tcp { .. } => kind == LayoutKind::Tcp,
            Transport::Udp => kind == LayoutKind::Udp,
            Transport::Icmp | Transport::Fragment { .. } | Transport::Other => false,
        };
        if !is_kind || usize::from(inner.total_bytes) != bytes.len() {
            return Err(DropReason::MalformedHeader);
        }
        let header_bytes = inner.header_bytes();
        let payload_bytes = bytes.len().checked_sub(header_bytes).ok_or(DropReason::MalformedHeader)?;
        if payload_bytes <= usize::from(self.gso_bytes) {
            return Ok(Layout::SINGLE);
        }
        let narrow = |value: usize| u16::try_from(value).map_err(|_| DropReason::MalformedHeader);
        let count = narrow(payload_bytes.div_ceil(usize::from(self.gso_bytes)))?;
        Ok(Layout::train(kind, narrow(header_bytes)?, self.gso_bytes, count))
    }

    /// The header of a single packet.
    pub(super) fn single(checksum: Checksum) -> Self {
        Self::default().with_checksum(checksum)
    }

    /// The header of a TCP or UDP train whose transport checksum is partial; `bytes` start with its headers.
    pub(super) fn of_train(layout: Layout, checksum: Checksum, bytes: &[u8]) -> Self {
        let is_tcp = layout.kind == LayoutKind::Tcp;
        let mut gso_type = match (is_tcp, version(bytes)) {
            (true, 6) => GSO_TCP_V6,
            (true, _) => GSO_TCP_V4,
            (false, _) => GSO_UDP,
        };
        if let Checksum::Partial { start, .. } = checksum
            && is_tcp
            && bytes.get(usize::from(start) + 13).is_some_and(|flags| flags & tcp::CWR != 0)
        {
            gso_type |= GSO_ECN;
        }
        let (header_bytes, gso_bytes) = (layout.header_bytes, layout.segment_bytes);
        Self { gso_type, header_bytes, gso_bytes, ..Self::default() }.with_checksum(checksum)
    }

    fn with_checksum(mut self, checksum: Checksum) -> Self {
        if let Checksum::Partial { start, field } = checksum {
            self.flags = NEEDS_CHECKSUM;
            self.checksum_start = start;
            self.checksum_offset = field.saturating_sub(start);
        }
        self
    }
}

/// Where the checksum is in the transport header of a train of `kind`.
fn checksum_offset(kind: LayoutKind) -> u16 {
    if kind == LayoutKind::Tcp { 16 } else { 6 }
}

/// Makes the common header of a train what a device expects that cuts it: lengths of the whole, the IPv4 header's
/// checksum, and the pseudo-header's sum in the transport checksum. Trains that were received or coalesced with a
/// partial checksum are so already; this is for those whose checksum somebody finished.
///
/// `total_bytes` is the length of the super-packet without gaps between its segments. Returns the new state of the
/// checksum, or `None` when headers and layout do not agree.
pub(super) fn prepare_train(bytes: &mut [u8], layout: Layout, total_bytes: usize) -> Option<Checksum> {
    let header = bytes.get_mut(..usize::from(layout.header_bytes))?;
    let fixed_v6 = u16::try_from(IPV6_HEADER_BYTES).expect("a small constant");
    let (at, uncounted) = if version(header) == 6 { (4, fixed_v6) } else { (2, 0) };
    let total = u16::try_from(total_bytes).ok()?.checked_sub(uncounted)?;
    let alone = layout.header_bytes.checked_sub(uncounted)?;
    // The parser wants the packet to be as long as it says, so it sees the header alone first.
    header.get_mut(at..at + 2)?.copy_from_slice(&alone.to_be_bytes());
    let inner = Inner::parse(header).ok()?;
    put16(header, at, total);
    checksum::fill_ipv4_header(header);

    let start = inner.transport_offset;
    let transport_bytes = u16::try_from(total_bytes).ok()?.checked_sub(start)?;
    let proto = match (layout.kind, inner.transport) {
        (LayoutKind::Tcp, Transport::Tcp { .. }) => protocol::TCP,
        (LayoutKind::Udp, Transport::Udp) => {
            put16(header, usize::from(start) + 4, transport_bytes);
            protocol::UDP
        }
        _ => return None,
    };
    if inner.header_bytes() != header.len() {
        return None;
    }
    let field = start + checksum_offset(layout.kind);
    let pseudo = checksum::pseudo_sum(header, proto, usize::from(transport_bytes)).folded();
    put16(header, usize::from(field), pseudo);
    Some(Checksum::Partial { start, field })
}

#[cfg(test)]
mod tests;
