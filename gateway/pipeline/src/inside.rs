//! What Trieste gateways say to each other inside a cable: the frame of all such messages.
//!
//! ```text
//!   IPv4 or IPv6 header, protocol 253 │ "TRST" │ version │ kind │ body bytes │ body … │ padding …
//!                                     │    4   │    1    │   1  │     2      │
//! ```
//!
//! Source and destination are addresses that the cable takes (first addresses of published subnets), so that no cable
//! has to know of these messages. They never leave the gateway: after a lane has opened them they are taken out of the
//! line, before packets are classified; and the line takes nothing of protocol 253 from the inside, so that no pod can
//! speak for a gateway. A peer's authenticity is that of its cable.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use trieste_packet::checksum::fill_ipv4_header;
use trieste_packet::wire::{IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, be16, put16, version};
use trieste_packet::{DropReason, PacketBuf};

/// The protocol number: for experiments (RFC 3692).
pub const PROTOCOL: u8 = 253;
/// Bytes of the frame's header behind the IP header.
pub const HEADER_BYTES: usize = 8;
/// What every message begins with.
const MAGIC: [u8; 4] = *b"TRST";
/// The format described above.
const VERSION: u8 = 1;
/// Ours: as fresh packets of the kernel.
const HOP_LIMIT: u8 = 64;
/// DSCP "network control" (RFC 4594), as BFD is sent: a full queue is no lost path.
const TOS: u8 = 48 << 2;

/// What a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Health of the path ([`crate::health`]).
    PathProbe,
    /// Sessions of translation, between gateways of one cluster (`globalnet`).
    Sessions,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::PathProbe, Self::Sessions];

    /// Its number in the frame.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::PathProbe => 1,
            Self::Sessions => 2,
        }
    }
}

/// Whether this opened packet is a message between gateways, well-formed or not. Looks at its first bytes only.
#[must_use]
pub fn is_message(packet: &[u8]) -> bool {
    let (protocol, header_bytes) = match (version(packet), packet.get(9), packet.get(6)) {
        (4, Some(&protocol), _) => (protocol, usize::from(packet[0] & 0xf) * 4),
        (6, _, Some(&protocol)) => (protocol, IPV6_HEADER_BYTES),
        _ => return false,
    };
    protocol == PROTOCOL && packet.get(header_bytes..).is_some_and(|payload| payload.starts_with(&MAGIC))
}

/// Takes a message apart: its kind and its body.
///
/// # Errors
/// [`DropReason::BadControl`] when it is malformed or of a kind or version that is not known.
pub fn parse(packet: &[u8]) -> Result<(Kind, &[u8]), DropReason> {
    read(packet).ok_or(DropReason::BadControl)
}

fn read(packet: &[u8]) -> Option<(Kind, &[u8])> {
    let payload = match version(packet) {
        // Without options and in one piece: nobody else makes them.
        4 => {
            let (header, _) = packet.split_at_checked(IPV4_HEADER_BYTES)?;
            let total = usize::from(be16(header, 2));
            let is_plain = header[0] == 0x45 && be16(header, 6) & 0x3fff == 0 && header[9] == PROTOCOL;
            packet.get(IPV4_HEADER_BYTES..total).filter(|_| is_plain)?
        }
        6 => {
            let (header, _) = packet.split_at_checked(IPV6_HEADER_BYTES)?;
            let total = IPV6_HEADER_BYTES + usize::from(be16(header, 4));
            packet.get(IPV6_HEADER_BYTES..total).filter(|_| header[6] == PROTOCOL)?
        }
        _ => return None,
    };
    let (header, rest) = payload.split_at_checked(HEADER_BYTES)?;
    if header[..4] != MAGIC || header[4] != VERSION {
        return None;
    }
    let kind = Kind::ALL.into_iter().find(|kind| kind.number() == header[5])?;
    Some((kind, rest.get(..usize::from(be16(header, 6)))?))
}

/// Writes a message from `ends.0` to `ends.1` into the empty buffer `out`, padded to `total_bytes` of IP packet if it
/// is shorter. Returns `false`, and leaves `out` as it was, when the ends are of two families or it does not fit.
#[must_use]
pub fn emit(
    ends: (IpAddr, IpAddr),
    kind: Kind,
    body: &[u8],
    total_bytes: usize,
    out: &mut PacketBuf,
) -> bool {
    let header_bytes = if ends.0.is_ipv4() { IPV4_HEADER_BYTES } else { IPV6_HEADER_BYTES };
    let total = (header_bytes + HEADER_BYTES + body.len()).max(total_bytes);
    let sizes = [total, total - header_bytes, body.len()].map(u16::try_from);
    let [Ok(total16), Ok(payload16), Ok(body16)] = sizes else { return false };
    if out.tailroom() < total || ends.0.is_ipv4() != ends.1.is_ipv4() {
        return false;
    }
    let bytes = out.extend(total);
    bytes.fill(0);
    match ends {
        (IpAddr::V4(from), IpAddr::V4(to)) => ipv4_header(bytes, from, to, total16),
        (IpAddr::V6(from), IpAddr::V6(to)) => ipv6_header(bytes, from, to, payload16),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    }
    let payload = &mut bytes[header_bytes..];
    payload[..4].copy_from_slice(&MAGIC);
    payload[4] = VERSION;
    payload[5] = kind.number();
    put16(payload, 6, body16);
    payload[HEADER_BYTES..][..body.len()].copy_from_slice(body);
    true
}

fn ipv4_header(bytes: &mut [u8], from: Ipv4Addr, to: Ipv4Addr, total: u16) {
    bytes[0] = 0x45;
    bytes[1] = TOS;
    put16(bytes, 2, total);
    // Don't fragment: whoever cannot carry it whole is to lose it.
    put16(bytes, 6, 0x4000);
    bytes[8] = HOP_LIMIT;
    bytes[9] = PROTOCOL;
    bytes[12..16].copy_from_slice(&from.octets());
    bytes[16..20].copy_from_slice(&to.octets());
    fill_ipv4_header(bytes);
}

fn ipv6_header(bytes: &mut [u8], from: Ipv6Addr, to: Ipv6Addr, payload: u16) {
    bytes[0] = 0x60 | (TOS >> 4);
    bytes[1] = TOS << 4;
    put16(bytes, 4, payload);
    bytes[6] = PROTOCOL;
    bytes[7] = HOP_LIMIT;
    bytes[8..24].copy_from_slice(&from.octets());
    bytes[24..40].copy_from_slice(&to.octets());
}

#[cfg(test)]
mod tests {
    use trieste_packet::{Pool, PoolConfig};

    use super::*;

    fn ends(a: &str, b: &str) -> (IpAddr, IpAddr) {
        (a.parse().unwrap(), b.parse().unwrap())
    }

    fn message(ends: (IpAddr, IpAddr), body: &[u8], total: usize) -> Option<Vec<u8>> {
        let mut buf = Pool::new(PoolConfig { slots: 1, slot_bytes: 2048 }).alloc().unwrap();
        let is_made = emit(ends, Kind::PathProbe, body, total, &mut buf);
        assert!(is_made || buf.is_empty());
        is_made.then(|| buf.bytes().to_vec())
    }

    #[test]
    fn a_message_is_read_as_it_was_written_in_both_families() {
        for (ends, header) in [(ends("10.1.0.0", "10.2.0.0"), 20), (ends("fd01::", "fd02::"), 40)] {
            for (total, expected) in [(0, header + 8 + 3), (1200, 1200)] {
                let bytes = message(ends, b"abc", total).unwrap();
                assert_eq!(bytes.len(), expected);
                assert!(is_message(&bytes));
                assert_eq!(parse(&bytes), Ok((Kind::PathProbe, &b"abc"[..])));
                let inner = trieste_packet::wire::Inner::parse(&bytes).unwrap();
                assert_eq!((inner.flow.source(), inner.flow.destination()), ends);
                assert_eq!((inner.flow.protocol, usize::from(inner.total_bytes)), (PROTOCOL, expected));
                assert!(inner.dont_fragment);
            }
        }
    }

    #[test]
    fn what_cannot_be_written_leaves_the_buffer_empty() {
        assert_eq!(message(ends("10.1.0.0", "fd02::"), b"abc", 0), None);
        assert_eq!(message(ends("10.1.0.0", "10.2.0.0"), b"abc", 4000), None);
        assert_eq!(message(ends("10.1.0.0", "10.2.0.0"), &[0; 70_000], 0), None);
    }

    #[test]
    fn every_cut_and_every_changed_byte_of_the_frame_is_refused_or_read_without_a_panic() {
        for ends in [ends("10.1.0.0", "10.2.0.0"), ends("fd01::", "fd02::")] {
            let bytes = message(ends, b"abc", 0).unwrap();
            for cut in 0..bytes.len() {
                let _ = is_message(&bytes[..cut]);
                assert_eq!(parse(&bytes[..cut]), Err(DropReason::BadControl));
            }
            let frame = bytes.len() - 11;
            for at in frame..frame + 7 {
                let mut changed = bytes.clone();
                changed[at] ^= 0x40;
                assert_eq!(parse(&changed), Err(DropReason::BadControl), "byte {at}");
            }
        }
    }

    #[test]
    fn a_fragment_is_no_whole_message() {
        let mut bytes = message(ends("10.1.0.0", "10.2.0.0"), b"abc", 0).unwrap();
        bytes[6] |= 0x20;
        assert!(is_message(&bytes));
        assert_eq!(parse(&bytes), Err(DropReason::BadControl));
    }

    #[test]
    fn other_packets_are_no_messages() {
        let mut bytes = message(ends("10.1.0.0", "10.2.0.0"), b"abc", 0).unwrap();
        bytes[20] = b't';
        assert!(!is_message(&bytes), "the magic is another");
        bytes[20] = b'T';
        bytes[9] = 17;
        assert!(!is_message(&bytes), "the protocol is another");
        assert!(!is_message(&[]) && !is_message(&[0x45; 19]) && !is_message(&[0x60; 39]));
    }
}
