//! What has to be written into every packet of a flow, and writing it.
//!
//! A [`Rewrite`] is compiled once per flow; what changes in checksums is known then, so that a packet costs a few
//! additions however long it is, and a train as much as a packet: it has one header.
//!
//! | protocol | besides the address | checksum |
//! |---|---|---|
//! | TCP, UDP | the port | with the pseudo-header; UDP's zero means none and stays |
//! | ICMP queries | the identifier | its own, without a pseudo-header |
//! | UDP-Lite, DCCP | nothing | with the pseudo-header |
//! | SCTP and all others | nothing | none that knows addresses |
//! | later fragments of any | nothing | none |
//!
//! Nothing is verified and nothing computed afresh: a checksum that was right is right afterwards, and one that was
//! wrong is wrong by the same amount, so that whoever gets the packet notices. The one exception is a trait of the sum: a
//! field of all ones (minus zero), which no TCP, ICMP or IP that follows RFC 1071 sends, comes back from a translation
//! and its inverse as zero, which means the same.

use std::net::Ipv4Addr;

use trieste_packet::wire::{IPV4_HEADER_BYTES, Inner, Transport, be16, protocol, put16, put32, version};
use trieste_packet::{Checksum, DropReason, LayoutKind, Packet};

/// UDP-Lite (RFC 3828), whose checksum is where UDP's is and covers a pseudo-header.
const UDP_LITE: u8 = 136;
/// DCCP (RFC 4340), whose checksum is there too.
const DCCP: u8 = 33;

/// Which end of a packet is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The source: outbound.
    Source,
    /// The destination: inbound.
    Destination,
}

impl Side {
    /// The other end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }

    /// Where the address is in an IPv4 header.
    pub(crate) const fn address_at(self) -> usize {
        match self {
            Self::Source => 12,
            Self::Destination => 16,
        }
    }

    /// Where the port is in a transport header of `protocol`, if that is translated.
    pub(crate) const fn port_at(self, protocol: u8) -> Option<usize> {
        match (protocol, self) {
            (protocol::TCP | protocol::UDP, Self::Source) => Some(0),
            (protocol::TCP | protocol::UDP, Self::Destination) => Some(2),
            // The identifier of a query.
            (protocol::ICMP, _) => Some(4),
            _ => None,
        }
    }
}

/// New address and port for one end of a packet, and what that does to checksums (RFC 1624).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewrite {
    /// Which end.
    pub side: Side,
    /// The address that is there before.
    pub old_address: Ipv4Addr,
    /// The address that is written.
    pub address: Ipv4Addr,
    /// The port or ICMP identifier that is there before, host order; 0 where there is none.
    pub old_port: u16,
    /// The port or ICMP identifier that is written, host order; equal to `old_port` where it stays.
    pub port: u16,
    /// One's complement sum of the new address minus the old one: for the IP header and pseudo-header.
    address_delta: Delta,
    /// One's complement sum of the new port minus the old one: for TCP, UDP and ICMP.
    port_delta: Delta,
}

impl Rewrite {
    /// Rewrites one end from `old` to `new`, each an address and a port or ICMP identifier in host order.
    #[must_use]
    pub fn new(side: Side, old: (Ipv4Addr, u16), new: (Ipv4Addr, u16)) -> Self {
        Self {
            side,
            old_address: old.0,
            address: new.0,
            old_port: old.1,
            port: new.1,
            address_delta: Delta::NONE.address(old.0, new.0),
            port_delta: Delta::NONE.word(old.1, new.1),
        }
    }

    /// The rewrite that undoes this one, on the same side.
    #[must_use]
    pub fn inverse(&self) -> Self {
        Self::new(self.side, (self.address, self.port), (self.old_address, self.old_port))
    }

    /// The same for packets that go the other way: what is a flow's source is the destination of its answers.
    #[must_use]
    pub const fn mirrored(&self) -> Self {
        Self { side: self.side.other(), ..*self }
    }

    /// Translates a packet or a train of the flow that this was compiled for, which `inner` describes. A
    /// later fragment has its address translated alone.
    ///
    /// # Errors
    /// [`DropReason::MalformedHeader`], with nothing changed, when the packet is not IPv4, wants its checksum finished
    /// at a place where its transport has none, or is a row of packets (`LayoutKind::Packets`), which have many headers.
    #[inline]
    pub fn apply(&self, packet: &mut Packet, inner: &Inner) -> Result<(), DropReason> {
        if matches!(packet.layout.kind, LayoutKind::Packets | LayoutKind::Datagrams) {
            return Err(DropReason::MalformedHeader);
        }
        let checksum = packet.checksum;
        self.apply_to(packet.buf.bytes_mut(), inner, checksum)
    }

    /// The same for the bytes of a packet and what is known of their transport checksum.
    ///
    /// # Errors
    /// As [`Self::apply`].
    #[inline]
    pub fn apply_to(&self, bytes: &mut [u8], inner: &Inner, checksum: Checksum) -> Result<(), DropReason> {
        let start = usize::from(inner.transport_offset);
        if version(bytes) != 4 || start < IPV4_HEADER_BYTES || start > bytes.len() {
            return Err(DropReason::MalformedHeader);
        }
        let (header, segment) = bytes.split_at_mut(start);
        let field = checksum_field(inner, segment.len());
        let is_partial = match checksum {
            Checksum::Unchecked | Checksum::Verified => false,
            Checksum::Partial { start: from, field: at } => {
                let is_there = field.is_some_and(|field| {
                    field.covers_addresses
                        && usize::from(from) == start
                        && usize::from(at) == start + field.at
                });
                if !is_there {
                    return Err(DropReason::MalformedHeader);
                }
                true
            }
        };
        let at = self.side.address_at();
        put32(header, at, u32::from(self.address));
        let sum = self.address_delta.checksum(be16(header, 10));
        put16(header, 10, sum);
        if let Some(field) = field {
            self.apply_to_transport(segment, inner.flow.protocol, field, is_partial);
        }
        Ok(())
    }

    /// Port and checksum of a transport header that has been found complete.
    fn apply_to_transport(&self, segment: &mut [u8], protocol: u8, field: Field, is_partial: bool) {
        let mut delta = if field.covers_addresses { self.address_delta } else { Delta::NONE };
        if let Some(at) = self.side.port_at(protocol)
            && self.port != self.old_port
        {
            put16(segment, at, self.port);
            // What is still to be finished will cover the port as it is then.
            delta = if is_partial { delta } else { delta.plus(self.port_delta) };
        }
        let old = be16(segment, field.at);
        let new = match (is_partial, protocol) {
            (true, _) => delta.sum(old),
            (false, protocol::UDP) => delta.udp_checksum(old),
            (false, _) => delta.checksum(old),
        };
        put16(segment, field.at, new);
    }
}

/// Where a transport's checksum is, and what of the IP header it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    /// Bytes from the start of the transport header.
    pub(crate) at: usize,
    /// Whether it covers a pseudo-header.
    pub(crate) covers_addresses: bool,
}

impl Field {
    /// The checksum of `protocol`, if it has one that translation changes.
    pub(crate) const fn of(protocol: u8) -> Option<Self> {
        match protocol {
            protocol::TCP => Some(Self { at: 16, covers_addresses: true }),
            protocol::UDP | UDP_LITE | DCCP => Some(Self { at: 6, covers_addresses: true }),
            protocol::ICMP => Some(Self { at: 2, covers_addresses: false }),
            _ => None,
        }
    }
}

/// The checksum of the transport header that `inner` found, if it is complete as far as that.
fn checksum_field(inner: &Inner, segment_bytes: usize) -> Option<Field> {
    if inner.transport == (Transport::Fragment { first: false }) {
        return None;
    }
    Field::of(inner.flow.protocol).filter(|field| field.at + 2 <= segment_bytes)
}

/// The difference of two one's complement sums, folded. Never all ones, which is another zero: a difference of nothing
/// changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Delta(u16);

impl Delta {
    /// No difference.
    pub(crate) const NONE: Self = Self(0);

    /// With one more word that changes.
    #[must_use]
    pub(crate) const fn word(self, from: u16, to: u16) -> Self {
        Self::folded(self.0 as u32 + !from as u32 + to as u32)
    }

    /// With an address that changes.
    #[must_use]
    pub(crate) fn address(self, from: Ipv4Addr, to: Ipv4Addr) -> Self {
        let (from, to) = (from.octets(), to.octets());
        self.word(be16(&from, 0), be16(&to, 0)).word(be16(&from, 2), be16(&to, 2))
    }

    /// Both differences.
    #[must_use]
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self::folded(self.0 as u32 + other.0 as u32)
    }

    const fn folded(sum: u32) -> Self {
        match fold(sum) {
            u16::MAX => Self(0),
            sum => Self(sum),
        }
    }

    /// A checksum after the change.
    #[must_use]
    pub(crate) const fn checksum(self, old: u16) -> u16 {
        //= https://www.rfc-editor.org/rfc/rfc1624#section-3
        //# HC' = ~(~HC + ~m + m')
        !self.sum(!old)
    }

    /// A sum after the change: a checksum that somebody has still to finish.
    #[must_use]
    pub(crate) const fn sum(self, old: u16) -> u16 {
        fold(old as u32 + self.0 as u32)
    }

    /// UDP's checksum after the change.
    #[must_use]
    pub(crate) const fn udp_checksum(self, old: u16) -> u16 {
        //= https://www.rfc-editor.org/rfc/rfc768
        //# An all zero transmitted checksum
        //# value means that the transmitter generated no checksum
        if old == 0 {
            return 0;
        }
        //= https://www.rfc-editor.org/rfc/rfc768
        //# If the computed checksum is zero, it is transmitted as all ones
        match self.checksum(old) {
            0 => u16::MAX,
            sum => sum,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "three words fold to 16 bits in two steps")]
const fn fold(sum: u32) -> u16 {
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

#[cfg(test)]
mod tests;
