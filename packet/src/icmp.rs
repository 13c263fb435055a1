//! ICMP errors made here: "packet too big" for IPv4 (RFC 792, RFC 1191) and IPv6 (RFC 4443).

use std::net::IpAddr;

use crate::checksum::{self, Sum};
use crate::pool::PacketBuf;
use crate::wire::{IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, Inner, Transport, protocol, put16, put32};

/// Longest IPv4 error: "not exceed 576 bytes" (RFC 1812 section 4.3.2.3).
const MAX_V4_BYTES: usize = 576;
/// Longest IPv6 error: the minimum MTU (RFC 4443 section 3.2).
const MAX_V6_BYTES: usize = 1280;
/// Bytes of an ICMP header.
const ICMP_HEADER_BYTES: usize = 8;
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
            let quoted = total.min(MAX_V4_BYTES - IPV4_HEADER_BYTES - ICMP_HEADER_BYTES);
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
            icmp[1] = 4;
            put16(icmp, 6, mtu_bytes);
            icmp[ICMP_HEADER_BYTES..].copy_from_slice(&packet[..quoted]);
            let sum = Sum::ZERO.bytes(icmp).checksum();
            put16(icmp, 2, sum);
            true
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Pool, PoolConfig};
    use crate::wire::{be16, be32};
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
}
