//! One pass over an inner packet's headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{
    IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, TCP_HEADER_BYTES, UDP_HEADER_BYTES, be16, protocol, tcp, version,
};
use crate::{DropReason, FlowKey};

/// Most IPv6 extension headers that are walked; a longer chain is dropped.
/// Ours: real chains have one or two, and the walk must be bounded.
const MAX_EXTENSION_HEADERS: usize = 8;

/// What stands behind the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP, header complete.
    Tcp {
        /// Bytes of the TCP header, options included.
        header_bytes: u16,
        /// The flags byte.
        flags: u8,
    },
    /// UDP, header complete.
    Udp,
    /// An ICMP or ICMPv6 message of at least eight bytes.
    Icmp,
    /// A fragment other than the first, or a first fragment (ports are known for the latter only).
    Fragment {
        /// Whether this one starts at offset 0.
        first: bool,
    },
    /// Anything else, by addresses only.
    Other,
}

/// The headers of one inner IP packet, checked against its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Inner {
    /// Addresses, protocol and ports.
    pub flow: FlowKey,
    /// Bytes of the IP packet by its own header; at most the bytes given.
    pub total_bytes: u16,
    /// Offset of the transport header.
    pub transport_offset: u16,
    /// What is there.
    pub transport: Transport,
    /// Whether routers may not fragment: DF, or IPv6.
    pub dont_fragment: bool,
}

impl Inner {
    /// Checks the headers of the IP packet at the start of `bytes`. Trailing bytes are allowed.
    ///
    /// # Errors
    /// The reason for which the packet has to be dropped.
    pub fn parse(bytes: &[u8]) -> Result<Self, DropReason> {
        match version(bytes) {
            4 => Self::parse_v4(bytes),
            6 => Self::parse_v6(bytes),
            _ => Err(DropReason::NotIp),
        }
    }

    fn parse_v4(bytes: &[u8]) -> Result<Self, DropReason> {
        if bytes.len() < IPV4_HEADER_BYTES {
            return Err(DropReason::MalformedHeader);
        }
        let header_bytes = usize::from(bytes[0] & 0x0f) * 4;
        let total_bytes = be16(bytes, 2);
        if header_bytes < IPV4_HEADER_BYTES
            || usize::from(total_bytes) < header_bytes
            || usize::from(total_bytes) > bytes.len()
        {
            return Err(DropReason::MalformedHeader);
        }
        let fragment = be16(bytes, 6);
        let source = Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15]);
        let destination = Ipv4Addr::new(bytes[16], bytes[17], bytes[18], bytes[19]);
        let packet = &bytes[..usize::from(total_bytes)];
        let is_fragment = fragment & 0x3fff != 0;
        let first = fragment & 0x1fff == 0;
        let addresses = (IpAddr::V4(source), IpAddr::V4(destination));
        let mut inner = Self::with_transport(packet, addresses, header_bytes, bytes[9], is_fragment, first)?;
        inner.dont_fragment = fragment & 0x4000 != 0;
        Ok(inner)
    }

    fn parse_v6(bytes: &[u8]) -> Result<Self, DropReason> {
        if bytes.len() < IPV6_HEADER_BYTES {
            return Err(DropReason::MalformedHeader);
        }
        let total = IPV6_HEADER_BYTES + usize::from(be16(bytes, 4));
        if total > bytes.len() || total > usize::from(u16::MAX) {
            return Err(DropReason::MalformedHeader);
        }
        let packet = &bytes[..total];
        let (offset, next, fragment) = walk_extension_headers(packet)?;
        let address = |at: usize| {
            let octets: [u8; 16] = packet[at..at + 16].try_into().expect("the fixed header is complete");
            IpAddr::V6(Ipv6Addr::from(octets))
        };
        let addresses = (address(8), address(24));
        let is_fragment = fragment.is_some_and(|field| field & 0xfff9 != 0);
        let first = fragment.is_none_or(|field| field & 0xfff8 == 0);
        let mut inner = Self::with_transport(packet, addresses, offset, next, is_fragment, first)?;
        inner.dont_fragment = true;
        Ok(inner)
    }

    /// The flow by which the packet's way is chosen. That of fragments has no ports, though the first one knows them: all
    /// have to go the same way, or no kernel behind it puts them together again.
    #[must_use]
    pub fn way(&self) -> FlowKey {
        match self.transport {
            Transport::Fragment { .. } => self.flow.without_ports(),
            Transport::Tcp { .. } | Transport::Udp | Transport::Icmp | Transport::Other => self.flow,
        }
    }

    fn with_transport(
        packet: &[u8],
        (source, destination): (IpAddr, IpAddr),
        offset: usize,
        proto: u8,
        is_fragment: bool,
        first: bool,
    ) -> Result<Self, DropReason> {
        let rest = &packet[offset..];
        let (transport, ports) = if is_fragment && !first {
            (Transport::Fragment { first }, (0, 0))
        } else {
            let (transport, ports) = parse_transport(rest, proto, is_fragment)?;
            (if is_fragment { Transport::Fragment { first } } else { transport }, ports)
        };
        let narrow = |value: usize| u16::try_from(value).map_err(|_| DropReason::MalformedHeader);
        Ok(Self {
            flow: FlowKey::new(source, destination, proto, ports.0, ports.1),
            total_bytes: narrow(packet.len())?,
            transport_offset: narrow(offset)?,
            transport,
            dont_fragment: true,
        })
    }

    /// Bytes of the IP and transport headers together; the IP header alone where there is no TCP or UDP.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        let transport = match self.transport {
            Transport::Tcp { header_bytes, .. } => usize::from(header_bytes),
            Transport::Udp => UDP_HEADER_BYTES,
            Transport::Icmp | Transport::Fragment { .. } | Transport::Other => 0,
        };
        usize::from(self.transport_offset) + transport
    }
}

/// Where the transport header starts, its protocol, and the fragment header's offset field if there is one.
fn walk_extension_headers(packet: &[u8]) -> Result<(usize, u8, Option<u16>), DropReason> {
    let mut offset = IPV6_HEADER_BYTES;
    let mut next = packet[6];
    let mut fragment = None;
    for _ in 0..MAX_EXTENSION_HEADERS {
        let bytes = match next {
            // Hop-by-hop, routing, destination options, mobility: length in 8-byte units beyond the first.
            0 | 43 | 60 | 135 => {
                let len = packet.get(offset + 1).ok_or(DropReason::ExtensionHeaders)?;
                (usize::from(*len) + 1) * 8
            }
            // Authentication header: length in 4-byte units beyond the first two.
            51 => {
                let len = packet.get(offset + 1).ok_or(DropReason::ExtensionHeaders)?;
                (usize::from(*len) + 2) * 4
            }
            44 => {
                if packet.len() < offset + 8 {
                    return Err(DropReason::ExtensionHeaders);
                }
                let field = be16(packet, offset + 2);
                fragment = Some(field);
                if field & 0xfff8 != 0 {
                    // What follows is the middle of something; no header can be read there.
                    return Ok((offset + 8, packet[offset], fragment));
                }
                8
            }
            _ => return Ok((offset, next, fragment)),
        };
        next = packet[offset];
        offset += bytes;
        if offset > packet.len() {
            return Err(DropReason::ExtensionHeaders);
        }
    }
    Err(DropReason::ExtensionHeaders)
}

fn parse_transport(rest: &[u8], proto: u8, is_fragment: bool) -> Result<(Transport, (u16, u16)), DropReason> {
    match proto {
        protocol::TCP => {
            if rest.len() < TCP_HEADER_BYTES {
                return Err(DropReason::MalformedHeader);
            }
            let header_bytes = tcp::header_bytes(rest);
            if usize::from(header_bytes) < TCP_HEADER_BYTES
                || (usize::from(header_bytes) > rest.len() && !is_fragment)
            {
                return Err(DropReason::MalformedHeader);
            }
            let transport = Transport::Tcp { header_bytes, flags: rest[13] };
            Ok((transport, (be16(rest, 0), be16(rest, 2))))
        }
        protocol::UDP => {
            if rest.len() < UDP_HEADER_BYTES {
                return Err(DropReason::MalformedHeader);
            }
            Ok((Transport::Udp, (be16(rest, 0), be16(rest, 2))))
        }
        protocol::ICMP | protocol::ICMPV6 => {
            if rest.len() < 8 {
                return Err(DropReason::MalformedHeader);
            }
            // Queries are told apart by their identifier; errors by nothing.
            let is_query = match proto {
                protocol::ICMP => matches!(rest[0], 0 | 8 | 13 | 14),
                _ => matches!(rest[0], 128 | 129),
            };
            let id = if is_query { be16(rest, 4) } else { 0 };
            Ok((Transport::Icmp, (id, id)))
        }
        _ => Ok((Transport::Other, (0, 0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn udp4() -> Vec<u8> {
        let mut bytes = Vec::new();
        PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 2], 64)
            .udp(1000, 2000)
            .write(&mut bytes, b"hello")
            .unwrap();
        bytes
    }

    #[test]
    fn udp_over_ipv4_is_read() {
        let inner = Inner::parse(&udp4()).unwrap();
        assert_eq!(inner.transport, Transport::Udp);
        assert_eq!(inner.flow.source(), "10.1.0.1".parse::<IpAddr>().unwrap());
        assert_eq!((inner.flow.source_port, inner.flow.destination_port), (1000, 2000));
        assert_eq!(inner.header_bytes(), 28);
        assert_eq!(inner.total_bytes, 33);
    }

    #[test]
    fn trailing_bytes_do_not_belong_to_the_packet() {
        let mut bytes = udp4();
        bytes.extend([0; 11]);
        assert_eq!(Inner::parse(&bytes).unwrap().total_bytes, 33);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let mut tcp6 = Vec::new();
        PacketBuilder::ipv6([1; 16], [2; 16], 64).tcp(1, 2, 3, 4).write(&mut tcp6, b"abc").unwrap();
        for bytes in [udp4(), tcp6] {
            for len in 0..bytes.len() {
                assert!(Inner::parse(&bytes[..len]).is_err(), "{len} of {}", bytes.len());
            }
        }
    }

    #[test]
    fn extension_headers_are_walked_up_to_a_bound() {
        let mut bytes = Vec::new();
        PacketBuilder::ipv6([1; 16], [2; 16], 64).udp(7, 8).write(&mut bytes, b"x").unwrap();
        let chain = |headers: usize| {
            let mut packet = bytes[..40].to_vec();
            packet[6] = if headers > 0 { 60 } else { 17 };
            for left in (0..headers).rev() {
                packet.extend([if left > 0 { 60 } else { 17 }, 0, 1, 4, 0, 0, 0, 0]);
            }
            packet.extend(&bytes[40..]);
            let payload = u16::try_from(packet.len() - 40).unwrap();
            super::super::put16(&mut packet, 4, payload);
            packet
        };
        let inner = Inner::parse(&chain(3)).unwrap();
        assert_eq!((inner.transport, inner.transport_offset), (Transport::Udp, 64));
        assert_eq!(inner.flow.destination_port, 8);
        assert_eq!(Inner::parse(&chain(9)).unwrap_err(), DropReason::ExtensionHeaders);
    }

    #[test]
    fn later_fragments_have_no_ports() {
        let mut bytes = udp4();
        super::super::put16(&mut bytes, 6, 0x0010);
        let inner = Inner::parse(&bytes).unwrap();
        assert_eq!(inner.transport, Transport::Fragment { first: false });
        assert_eq!(inner.flow.source_port, 0);
        assert!(!inner.dont_fragment);
    }

    #[test]
    fn all_fragments_of_a_packet_go_the_same_way() {
        let (mut first, mut later) = (udp4(), udp4());
        super::super::put16(&mut first, 6, 0x2000);
        super::super::put16(&mut later, 6, 0x0010);
        let [whole, first, later] = [udp4(), first, later].map(|bytes| Inner::parse(&bytes).unwrap());
        assert_eq!(first.transport, Transport::Fragment { first: true });
        assert_eq!((first.flow, first.way()), (whole.flow, later.way()));
        assert_eq!(whole.way(), whole.flow);
    }
}
