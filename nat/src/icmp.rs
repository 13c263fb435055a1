//! ICMP errors: a message about another packet, which is quoted, and which has to be translated with it.
//!
//! ```text
//!  IP header │ type code sum │ rest │ quoted IP header │ ≥ 8 bytes of its transport │ … │ extensions (RFC 4884)
//!  addresses                         addresses, sum      port or id, sum                as they are
//! ```
//!
//! The quoted packet went the other way. Turned round ([`Quote::answer`]) it is a packet that goes the error's way, so
//! the translation of that packet, mirrored, is the translation of the quoted one: one rule for errors from outside
//! (the packet quoted is one that we sent), from inside (it is one that we delivered) and hairpinned ones (both).
//!
//! Sessions are looked up for errors, never made, refreshed or ended: see
//! [`Nat::peek_outbound`](crate::Nat::peek_outbound) and [`Nat::peek_inbound`](crate::Nat::peek_inbound).
//! Which errors this gateway may make itself is said by [`Refusal::is_told`](crate::Refusal::is_told) and
//! `trieste_packet::icmp::may_answer`.

use std::net::Ipv4Addr;

use trieste_packet::checksum::{Sum, transport_is_valid};
use trieste_packet::wire::{
    IPV4_HEADER_BYTES, Inner, Transport, be16, be32, protocol, put16, put32, version,
};
use trieste_packet::{Checksum, DropReason, Packet};

use crate::facts::{Facts, Kind};
use crate::rewrite::{Delta, Field, Rewrite};

/// Types of errors that are translated (RFC 792, RFC 1812): destination unreachable, time exceeded, parameter problem.
const DESTINATION_UNREACHABLE: u8 = 3;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// Bytes of an ICMP header.
const ICMP_HEADER_BYTES: usize = 8;
/// Bytes of the quoted packet's transport header that every error has (RFC 792).
const QUOTED_TRANSPORT_BYTES: usize = 8;
//= https://www.rfc-editor.org/rfc/rfc4884#section-5.5
//# When the ICMP Extension Structure is appended to an ICMP message and
//# that ICMP message contains an "original datagram" field, the
//# "original datagram" field MUST contain at least 128 octets.
/// Bytes of the quoted packet in front of extensions, at least: a smaller length is no length.
const QUOTED_BEFORE_EXTENSIONS: usize = 128;

/// An ICMP error that has been checked, and where in it is what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quote {
    /// The quoted packet turned round: a packet that goes the error's way. Its translation is the error's.
    pub answer: Facts,
    /// The ICMP header.
    message: usize,
    /// The quoted IP header.
    header: usize,
    /// The quoted transport header.
    transport: usize,
    /// The end of what is there of the quoted packet, without padding and extensions.
    end: usize,
}

impl Quote {
    /// Whether a packet is an ICMP message that is no query: what [`Self::read`] is for.
    #[must_use]
    pub fn is_error(packet: &[u8], inner: &Inner) -> bool {
        let icmp_type = packet.get(usize::from(inner.transport_offset)).copied();
        inner.flow.is_ipv4()
            && inner.flow.protocol == protocol::ICMP
            && inner.transport != (Transport::Fragment { first: false })
            && icmp_type.is_some_and(|icmp_type| Kind::of_icmp(icmp_type).is_none())
    }

    /// Reads the error in `packet`, which `inner` describes.
    ///
    /// # Errors
    /// [`DropReason::NatUntranslatable`]: it is none that is translated, a fragment, its checksum is wrong, or what it
    /// quotes is no packet whose session could be found. Such messages are dropped without a word.
    pub fn read(packet: &Packet, inner: &Inner) -> Result<Self, DropReason> {
        let total = usize::from(inner.total_bytes).min(packet.bytes().len());
        if packet.layout.is_train() || matches!(packet.checksum, Checksum::Partial { .. }) {
            return Err(DropReason::NatUntranslatable);
        }
        Self::read_bytes(&packet.bytes()[..total], inner).ok_or(DropReason::NatUntranslatable)
    }

    fn read_bytes(packet: &[u8], inner: &Inner) -> Option<Self> {
        let message = usize::from(inner.transport_offset);
        if !inner.flow.is_ipv4()
            || inner.transport != Transport::Icmp
            || inner.flow.protocol != protocol::ICMP
        {
            return None;
        }
        //= https://www.rfc-editor.org/rfc/rfc5508#section-8
        //# A NAT device MAY drop or appropriately handle Non-
        //# QueryError ICMP messages.
        // Redirects and source quenches (RFC 6633) among them: no router of another cluster has a say in ours.
        if !matches!(packet[message], DESTINATION_UNREACHABLE | TIME_EXCEEDED | PARAMETER_PROBLEM) {
            return None;
        }
        //= https://www.rfc-editor.org/rfc/rfc5508#section-4.1
        //# When an ICMP Error packet is received, if the ICMP checksum
        //# fails to validate, the NAT SHOULD silently drop the ICMP Error
        //# packet.
        if !transport_is_valid(packet, message) {
            return None;
        }
        let header = message + ICMP_HEADER_BYTES;
        let quoted = Quoted::read(&packet[header..quoted_end(packet, message)])?;
        // An error is sent to whoever sent what it quotes, and to nobody else.
        if be32(packet, 16) != u32::from(quoted.facts.source) {
            return None;
        }
        Some(Self {
            answer: quoted.facts.reversed(),
            message,
            header,
            transport: header + quoted.header_bytes,
            end: header + quoted.bytes,
        })
    }

    /// Translates the error with the translation of [`Self::answer`].
    ///
    /// Type and code stay, and the lengths of everything; so do extensions, which have a checksum of their own. An error
    /// about a hairpinned packet goes the way of such packets: outbound, then read again and inbound.
    pub fn apply(&self, packet: &mut Packet, rewrite: &Rewrite) {
        let bytes = packet.buf.bytes_mut();
        //= https://www.rfc-editor.org/rfc/rfc5508#section-4.2.1
        //# a) Revert the IP and transport headers of the embedded IP packet to
        //# their original form, using the matching mapping; and
        let mut writer = Writer { bytes, delta: Delta::NONE };
        self.apply_to_quoted(&mut writer, rewrite);
        //# b) Leave the ICMP Error type and code unchanged; and
        let delta = writer.delta;
        let sum = delta.checksum(be16(bytes, self.message + 2));
        put16(bytes, self.message + 2, sum);
        //# c) Modify the destination IP address of the outer IP header to be
        //# same as the source IP address of the embedded packet after
        //# translation.
        //= https://www.rfc-editor.org/rfc/rfc5508#section-4.2.2
        //# In all other cases, translate the
        //# source IP address of the ICMP Error packet with its own public
        //# IP address.
        // Both are the same step: an error that travels to the side that is translated gets the quoted source, one
        // that comes from there gets the quoted destination, whoever inside has sent it.
        let at = rewrite.side.address_at();
        let old = Ipv4Addr::from(be32(bytes, at));
        put32(bytes, at, u32::from(rewrite.address));
        let sum = Delta::NONE.address(old, rewrite.address).checksum(be16(bytes, 10));
        put16(bytes, 10, sum);
    }

    fn apply_to_quoted(&self, writer: &mut Writer<'_>, answer: &Rewrite) {
        let side = answer.side.other();
        let protocol = self.answer.protocol;
        let mut delta = Delta::NONE.address(answer.old_address, answer.address);
        let address = u32::from(answer.address).to_be_bytes();
        writer.put(self.header + side.address_at(), be16(&address, 0));
        writer.put(self.header + side.address_at() + 2, be16(&address, 2));
        let sum = delta.checksum(be16(writer.bytes, self.header + 10));
        writer.put(self.header + 10, sum);
        let field = Field::of(protocol);
        if field.is_some_and(|field| !field.covers_addresses) {
            delta = Delta::NONE;
        }
        if let Some(at) = side.port_at(protocol)
            && answer.port != answer.old_port
        {
            writer.put(self.transport + at, answer.port);
            delta = delta.word(answer.old_port, answer.port);
        }
        // As far as it is quoted: of TCP only the first eight bytes may be there.
        if let Some(field) = field
            && self.transport + field.at + 2 <= self.end
        {
            let old = be16(writer.bytes, self.transport + field.at);
            let new = if protocol == protocol::UDP { delta.udp_checksum(old) } else { delta.checksum(old) };
            writer.put(self.transport + field.at, new);
        }
    }
}

/// Where the quoted packet ends at the latest.
fn quoted_end(packet: &[u8], message: usize) -> usize {
    //= https://www.rfc-editor.org/rfc/rfc5508#section-4.1
    //# d) If the ICMP Error payload contains ICMP extensions [ICMP-EXT],
    //# the NAT device MUST exclude the optional zero-padding and the ICMP
    //# extensions when evaluating transport checksum for the embedded
    //# packet.
    // The length is in 32-bit words; zero from who knows no extensions.
    let length = usize::from(packet[message + 5]) * 4;
    let end = message + ICMP_HEADER_BYTES + length;
    if length >= QUOTED_BEFORE_EXTENSIONS && end <= packet.len() { end } else { packet.len() }
}

/// The packet that an error quotes, in its own direction.
struct Quoted {
    facts: Facts,
    header_bytes: usize,
    bytes: usize,
}

impl Quoted {
    fn read(quote: &[u8]) -> Option<Self> {
        if quote.len() < IPV4_HEADER_BYTES || version(quote) != 4 {
            return None;
        }
        //= https://www.rfc-editor.org/rfc/rfc5508#section-4.1
        //# b) If the embedded packet includes IP options, the NAT device MUST
        //# traverse past the IP options to locate the start of the transport
        //# header for the embedded packet; and
        let header_bytes = usize::from(quote[0] & 0x0f) * 4;
        let total = usize::from(be16(quote, 2));
        let header = quote.get(..header_bytes).filter(|header| header.len() >= IPV4_HEADER_BYTES)?;
        //= https://www.rfc-editor.org/rfc/rfc5508#section-4.1
        //# a) If the IP checksum of the embedded packet fails to validate, the
        //# NAT SHOULD silently drop the Error packet; and
        if total < header_bytes || Sum::ZERO.bytes(header).folded() != u16::MAX {
            return None;
        }
        // No error is made for a later fragment (RFC 1812 section 4.3.2.7), and nobody could say whose it was.
        if be16(quote, 6) & 0x1fff != 0 {
            return None;
        }
        let quote = &quote[..quote.len().min(total)];
        //= https://www.rfc-editor.org/rfc/rfc5508#section-4.1
        //# c) The NAT device SHOULD NOT validate the transport checksum of the
        //# embedded packet within an ICMP Error message, even when it is
        //# possible to do so; and
        let facts = read_facts(quote, &quote[header_bytes..])?;
        Some(Self { facts, header_bytes, bytes: quote.len() })
    }
}

/// Addresses, ports and kind, from as much of the transport header as errors quote.
fn read_facts(header: &[u8], transport: &[u8]) -> Option<Facts> {
    let protocol = header[9];
    let has_ports = matches!(protocol, protocol::TCP | protocol::UDP | protocol::ICMP);
    if has_ports && transport.len() < QUOTED_TRANSPORT_BYTES {
        return None;
    }
    let (kind, source_port, destination_port) = match protocol {
        protocol::TCP => (Kind::Tcp(0), be16(transport, 0), be16(transport, 2)),
        protocol::UDP => (Kind::Udp, be16(transport, 0), be16(transport, 2)),
        protocol::ICMP => {
            // Errors about errors are never made (RFC 1122 section 3.2.2).
            let kind = Kind::of_icmp(transport[0])?;
            (kind, be16(transport, 4), be16(transport, 4))
        }
        _ => (Kind::Other, 0, 0),
    };
    let (source, destination) = (Ipv4Addr::from(be32(header, 12)), Ipv4Addr::from(be32(header, 16)));
    Some(Facts { source, destination, source_port, destination_port, protocol, kind })
}

/// Changes words of an ICMP message and keeps account of what that does to its checksum.
struct Writer<'a> {
    bytes: &'a mut [u8],
    delta: Delta,
}

impl Writer<'_> {
    /// Writes a word at an even offset of the message.
    fn put(&mut self, at: usize, value: u16) {
        self.delta = self.delta.word(be16(self.bytes, at), value);
        put16(self.bytes, at, value);
    }
}

#[cfg(test)]
mod tests;
