//! ICMP made here: "packet too big" errors for IPv4 (RFC 792, RFC 1191) and IPv6 (RFC 4443), "administratively
//! prohibited" for IPv4, and echo replies.

use std::net::{IpAddr, Ipv4Addr};

use crate::checksum::{self, Sum};
use crate::pool::PacketBuf;
use crate::wire::{
    IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, Inner, Transport, be16, protocol, put16, put32, version,
};

/// Longest IPv4 error: "not exceed 576 bytes" (RFC 1812 section 4.3.2.3).
const MAX_V4_BYTES: usize = 576;
/// Longest IPv6 error: the minimum MTU (RFC 4443 section 3.2).
const MAX_V6_BYTES: usize = 1280;
/// Bytes of an ICMP header.
const ICMP_HEADER_BYTES: usize = 8;
/// Code of "port unreachable" (RFC 792).
const PORT_UNREACHABLE: u8 = 3;
/// Code of "fragmentation needed and DF set" (RFC 792).
const TOO_BIG: u8 = 4;
/// Code of "communication administratively prohibited" (RFC 1812 section 5.2.7.1).
const PROHIBITED: u8 = 13;
/// TTL and hop limit of what is made here.
const HOP_LIMIT: u8 = 64;

/// Whether an ICMP error may be made for `packet` (RFC 1122 section 3.2.2, RFC 4443 section 2.4(e)): not for an
/// ICMP error, not for a later fragment, not for a source that is no single host.
#[must_use]
pub fn may_answer(packet: &[u8], inner: &Inner) -> bool {
    let source = inner.flow.source();
    let source_is_host = match source {
        IpAddr::V4(v4) => {
            !(v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified() || v4.is_loopback())
        }
        IpAddr::V6(v6) => !(v6.is_multicast() || v6.is_unspecified() || v6.is_loopback()),
    };
    let icmp_type = packet.get(usize::from(inner.transport_offset)).copied();
    let is_error = match (inner.flow.protocol, icmp_type) {
        (protocol::ICMP, Some(kind)) => !matches!(kind, 0 | 8 | 13 | 14),
        (protocol::ICMPV6, Some(kind)) => kind < 128 || kind == 137,
        (protocol::ICMP | protocol::ICMPV6, None) => true,
        _ => false,
    };
    source_is_host && !is_error && !matches!(inner.transport, Transport::Fragment { first: false })
}

/// Writes into the empty buffer `out` the error that tells the source of `packet` to send at most `mtu_bytes`:
/// type 3 code 4 for IPv4, type 2 for IPv6. `from` is our address; it must be of the packet's family.
/// Returns `false` when it is not, or when the buffer is too small.
pub fn too_big(packet: &[u8], inner: &Inner, from: IpAddr, mtu_bytes: u16, out: &mut PacketBuf) -> bool {
    let total = usize::from(inner.total_bytes).min(packet.len());
    match (from, inner.flow.source()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            unreachable_v4(&packet[..total], (from, to), TOO_BIG, mtu_bytes, out)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let quoted = total.min(MAX_V6_BYTES - IPV6_HEADER_BYTES - ICMP_HEADER_BYTES);
            let length = IPV6_HEADER_BYTES + ICMP_HEADER_BYTES + quoted;
            if out.tailroom() < length {
                return false;
            }
            let bytes = out.extend(length);
            bytes.fill(0);
            bytes[0] = 0x60;
            put16(bytes, 4, u16::try_from(length - IPV6_HEADER_BYTES).unwrap_or(u16::MAX));
            bytes[6] = protocol::ICMPV6;
            bytes[7] = HOP_LIMIT;
            bytes[8..24].copy_from_slice(&from.octets());
            bytes[24..40].copy_from_slice(&to.octets());
            let icmp = &mut bytes[IPV6_HEADER_BYTES..];
            icmp[0] = 2;
            put32(icmp, 4, u32::from(mtu_bytes));
            icmp[ICMP_HEADER_BYTES..].copy_from_slice(&packet[..quoted]);
            let icmp_bytes = icmp.len();
            let sum = checksum::pseudo_sum(bytes, protocol::ICMPV6, icmp_bytes)
                .bytes(&bytes[IPV6_HEADER_BYTES..])
                .checksum();
            put16(bytes, IPV6_HEADER_BYTES + 2, sum);
            true
        }
        _ => false,
    }
}

/// Writes into the empty buffer `out` the error that tells the source of an IPv4 `packet` that it is not let through:
/// type 3 code 13, which RFC 5508 section 6 (REQ-8) asks of a NAT whose resources are gone. Returns `false` for IPv6, or
/// when the buffer is too small.
pub fn prohibited(packet: &[u8], inner: &Inner, from: IpAddr, out: &mut PacketBuf) -> bool {
    let total = usize::from(inner.total_bytes).min(packet.len());
    match (from, inner.flow.source()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            unreachable_v4(&packet[..total], (from, to), PROHIBITED, 0, out)
        }
        _ => false,
    }
}

/// Writes into the empty buffer `out` the error that tells `to` that nobody listens on the port of its packet, whose
/// first bytes are `quoted`: type 3 code 3. Returns `false` when the buffer is too small.
pub fn port_unreachable(quoted: &[u8], from: Ipv4Addr, to: Ipv4Addr, out: &mut PacketBuf) -> bool {
    unreachable_v4(quoted, (from, to), PORT_UNREACHABLE, 0, out)
}

/// Destination unreachable for IPv4; `mtu_bytes` is 0 but for "fragmentation needed".
fn unreachable_v4(
    packet: &[u8],
    (from, to): (Ipv4Addr, Ipv4Addr),
    code: u8,
    mtu_bytes: u16,
    out: &mut PacketBuf,
) -> bool {
    let quoted = packet.len().min(MAX_V4_BYTES - IPV4_HEADER_BYTES - ICMP_HEADER_BYTES);
    let length = IPV4_HEADER_BYTES + ICMP_HEADER_BYTES + quoted;
    if out.tailroom() < length {
        return false;
    }
    let bytes = out.extend(length);
    bytes.fill(0);
    bytes[0] = 0x45;
    // Internetwork control, as routers mark their errors (RFC 1812 section 4.3.2.5).
    bytes[1] = 0xc0;
    put16(bytes, 2, u16::try_from(length).unwrap_or(u16::MAX));
    bytes[8] = HOP_LIMIT;
    bytes[9] = protocol::ICMP;
    bytes[12..16].copy_from_slice(&from.octets());
    bytes[16..20].copy_from_slice(&to.octets());
    checksum::fill_ipv4_header(bytes);
    let icmp = &mut bytes[IPV4_HEADER_BYTES..];
    icmp[0] = 3;
    icmp[1] = code;
    put16(icmp, 6, mtu_bytes);
    icmp[ICMP_HEADER_BYTES..].copy_from_slice(&packet[..quoted]);
    let sum = Sum::ZERO.bytes(icmp).checksum();
    put16(icmp, 2, sum);
    true
}

/// Whether `packet`, described by `inner`, is an echo request that [`echo_reply`] answers if its checksums are right.
#[must_use]
pub fn is_echo_request(packet: &[u8], inner: &Inner) -> bool {
    let (header_bytes, request) = match (inner.flow.protocol, inner.flow.is_ipv4()) {
        (protocol::ICMP, true) => (IPV4_HEADER_BYTES, 8),
        (protocol::ICMPV6, false) => (IPV6_HEADER_BYTES, 128),
        _ => return false,
    };
    inner.transport == Transport::Icmp
        && usize::from(inner.total_bytes) == packet.len()
        && usize::from(inner.transport_offset) == header_bytes
        && packet[header_bytes..header_bytes + 2] == [request, 0]
        && may_answer(packet, inner)
}

/// Turns an echo request into its reply, in place: addresses swapped, hop limit 64, everything that the sender put
/// into it returned. `inner` describes `packet`, which has no trailing bytes.
///
/// Returns `false` and changes nothing for what is no whole and right echo request: another message, a fragment, a
/// header with options or extension headers (which would have to be turned round as well), a wrong checksum, or a
/// source that is no single host.
#[must_use]
pub fn echo_reply(packet: &mut [u8], inner: &Inner) -> bool {
    let header_bytes = usize::from(inner.transport_offset);
    if !is_echo_request(packet, inner) || !is_intact(packet, header_bytes) {
        return false;
    }
    //= https://www.rfc-editor.org/rfc/rfc792#page-14
    //# To form an echo reply message, the source and destination addresses are simply reversed,
    //# the type code changed to 0, and the checksum recomputed.
    if version(packet) == 4 {
        let (sources, destinations) = packet[12..20].split_at_mut(4);
        sources.swap_with_slice(destinations);
        // Congestion was marked on the way of the request; DSCP is kept, as hosts do.
        packet[1] &= !3;
        // One packet, never to be fragmented: its identification means nothing (RFC 6864 section 4.1).
        put16(packet, 4, 0);
        put16(packet, 6, 0x4000);
        packet[8] = HOP_LIMIT;
        checksum::fill_ipv4_header(packet);
    } else {
        let (sources, destinations) = packet[8..40].split_at_mut(16);
        sources.swap_with_slice(destinations);
        packet[1] &= !0x30;
        packet[7] = HOP_LIMIT;
    }
    // The pseudo-header's sum does not know which address comes first.
    let (request, reply): (u8, u8) = if version(packet) == 4 { (8, 0) } else { (128, 129) };
    let at = header_bytes + 2;
    let sum = checksum::update16(be16(packet, at), u16::from(request) << 8, u16::from(reply) << 8);
    packet[header_bytes] = reply;
    put16(packet, at, sum);
    true
}

/// Whether the checksums of an IP packet with an ICMP message behind `header_bytes` are right.
fn is_intact(packet: &[u8], header_bytes: usize) -> bool {
    let has_right_header =
        version(packet) == 6 || Sum::ZERO.bytes(&packet[..header_bytes]).folded() == u16::MAX;
    has_right_header && checksum::transport_is_valid(packet, header_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Pool, PoolConfig};
    use crate::wire::be32;
    use etherparse::PacketBuilder;

    fn error_for(packet: &[u8], from: &str) -> Vec<u8> {
        let mut pool = Pool::new(PoolConfig { slots: 1, slot_bytes: 2048 });
        let mut out = pool.alloc().unwrap();
        let inner = Inner::parse(packet).unwrap();
        assert!(may_answer(packet, &inner));
        assert!(too_big(packet, &inner, from.parse().unwrap(), 1420, &mut out));
        out.bytes().to_vec()
    }

    #[test]
    fn ipv4_says_fragmentation_needed_with_the_mtu() {
        let mut packet = Vec::new();
        PacketBuilder::ipv4([10, 1, 0, 9], [10, 2, 0, 9], 64)
            .udp(1, 2)
            .write(&mut packet, &[7; 1472])
            .unwrap();
        let error = error_for(&packet, "10.1.0.1");
        assert_eq!(error.len(), 576);
        assert_eq!((error[20], error[21], be16(&error, 26)), (3, 4, 1420));
        assert_eq!(error[16..20], [10, 1, 0, 9]);
        assert_eq!(error[28..48], packet[..20]);
        assert!(checksum::transport_is_valid(&error, 20));
    }

    #[test]
    fn ipv6_says_packet_too_big_with_the_mtu() {
        let mut packet = Vec::new();
        PacketBuilder::ipv6([0xfd; 16], [0xfe; 16], 64).udp(1, 2).write(&mut packet, &[7; 1452]).unwrap();
        let error = error_for(&packet, "fd00::1");
        assert_eq!(error.len(), 1280);
        assert_eq!((error[40], error[41], be32(&error, 44)), (2, 0, 1420));
        assert!(checksum::transport_is_valid(&error, 40));
    }

    #[test]
    fn errors_are_not_answered_with_errors() {
        let mut packet = Vec::new();
        PacketBuilder::ipv4([10, 1, 0, 9], [10, 2, 0, 9], 64)
            .icmpv4_raw(3, 4, [0; 4])
            .write(&mut packet, &[0; 28])
            .unwrap();
        assert!(!may_answer(&packet, &Inner::parse(&packet).unwrap()));
        let mut query = Vec::new();
        PacketBuilder::ipv4([10, 1, 0, 9], [10, 2, 0, 9], 64)
            .icmpv4_echo_request(1, 2)
            .write(&mut query, &[])
            .unwrap();
        assert!(may_answer(&query, &Inner::parse(&query).unwrap()));
    }

    #[test]
    fn a_nat_without_resources_says_prohibited_and_quotes_the_packet() {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ipv4([10, 1, 0, 9], [10, 2, 0, 9], 64).udp(1, 2);
        builder.write(&mut packet, &[7; 100]).unwrap();
        let inner = Inner::parse(&packet).unwrap();
        let mut pool = Pool::new(PoolConfig { slots: 1, slot_bytes: 2048 });
        let mut out = pool.alloc().unwrap();
        assert!(!prohibited(&packet, &inner, "fd00::1".parse().unwrap(), &mut out));
        assert!(prohibited(&packet, &inner, "10.1.0.1".parse().unwrap(), &mut out));
        let error = out.bytes();
        assert_eq!((error[20], error[21], be32(error, 24)), (3, 13, 0));
        assert_eq!((&error[12..16], &error[16..20]), (&[10, 1, 0, 1][..], &[10, 1, 0, 9][..]));
        assert_eq!(error[28..], packet);
        assert!(is_intact(error, 20));
    }

    fn echo4(options: bool) -> Vec<u8> {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ipv4([192, 0, 2, 7], [10, 2, 0, 1], 61);
        builder.icmpv4_echo_request(9, 1).write(&mut packet, &[5; 25]).unwrap();
        if options {
            packet[0] = 0x46;
            packet.splice(20..20, [1, 1, 1, 1]);
            let length = u16::try_from(packet.len()).unwrap();
            put16(&mut packet, 2, length);
            put16(&mut packet, 10, 0);
            let sum = Sum::ZERO.bytes(&packet[..24]).checksum();
            put16(&mut packet, 10, sum);
        }
        packet
    }

    #[test]
    fn an_echo_request_becomes_its_reply() {
        let mut packet = echo4(false);
        packet[1] = 0xb9;
        checksum::fill_ipv4_header(&mut packet);
        let request = packet.clone();
        let inner = Inner::parse(&packet).unwrap();
        assert!(echo_reply(&mut packet, &inner));
        assert_eq!(
            (packet[12..16].to_vec(), packet[16..20].to_vec()),
            (vec![10, 2, 0, 1], vec![192, 0, 2, 7])
        );
        assert_eq!((packet[1], be16(&packet, 6), packet[8]), (0xb8, 0x4000, 64));
        assert_eq!((packet[20], packet[21]), (0, 0));
        assert_eq!(packet[24..], request[24..]);
        assert!(is_intact(&packet, 20));

        let mut packet = Vec::new();
        PacketBuilder::ipv6([0xfd; 16], [0xfe; 16], 3)
            .icmpv6_echo_request(9, 1)
            .write(&mut packet, &[5; 24])
            .unwrap();
        let inner = Inner::parse(&packet).unwrap();
        assert!(echo_reply(&mut packet, &inner));
        assert_eq!((packet[8], packet[24], packet[7], packet[40]), (0xfe, 0xfd, 64, 129));
        assert!(is_intact(&packet, 40));
    }

    #[test]
    fn what_is_no_right_echo_request_is_left_alone() {
        let spoil = |at: usize, value: u8| {
            let mut packet = echo4(false);
            packet[at] ^= value;
            packet
        };
        let fill = |mut packet: Vec<u8>| {
            checksum::fill_ipv4_header(&mut packet);
            packet
        };
        let cases = [
            ("a reply", spoil(20, 8)),
            ("another code", spoil(21, 1)),
            ("wrong data", spoil(30, 1)),
            ("wrong header sum", spoil(8, 1)),
            ("a first fragment", fill(spoil(6, 0x20))),
            ("a later fragment", fill(spoil(7, 0x01))),
            ("ICMPv6 in IPv4", fill(spoil(9, 1 ^ 58))),
            ("UDP", fill(spoil(9, 1 ^ 17))),
            ("IP options", echo4(true)),
        ];
        for (name, mut packet) in cases {
            let Ok(inner) = Inner::parse(&packet) else { continue };
            let before = packet.clone();
            assert!(!echo_reply(&mut packet, &inner), "{name}");
            assert_eq!(packet, before, "{name}");
        }
    }
}
