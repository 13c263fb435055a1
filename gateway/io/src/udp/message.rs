//! The two things besides payload that a message carries through the kernel: a socket address and control data.
//! Both are plain bytes here, so that no pointer is followed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::c_int;
use trieste_packet::Outer;

/// Bytes of the largest address: `struct sockaddr_in6`.
pub(super) const NAME_BYTES: usize = size_of::<libc::sockaddr_in6>();
const NAME_V4_BYTES: usize = size_of::<libc::sockaddr_in>();
/// Bytes for control data in either direction; what is sent or asked for here needs at most 88.
pub(super) const CONTROL_BYTES: usize = 128;
/// Bytes of `struct cmsghdr`: length, level, type.
const CONTROL_HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
const _: () =
    assert!(CONTROL_HEADER_BYTES == 16 && size_of::<usize>() == 8, "control data are laid out for 64 bits");

/// `UDP_SEGMENT` and `UDP_GRO` of `linux/udp.h`.
pub(super) const UDP_SEGMENT: c_int = 103;
pub(super) const UDP_GRO: c_int = 104;
/// `UDP_NO_CHECK6_RX` of `linux/udp.h`.
pub(super) const UDP_NO_CHECK6_RX: c_int = 102;

/// A socket address as the kernel reads and writes it.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub(super) struct Name(pub(super) [u8; NAME_BYTES]);

impl Name {
    pub(super) const EMPTY: Self = Self([0; NAME_BYTES]);

    /// Writes `address` and returns the number of bytes used.
    pub(super) fn set(&mut self, address: SocketAddr) -> usize {
        let bytes = &mut self.0;
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => {
                bytes[..2].copy_from_slice(&family_bytes(libc::AF_INET));
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                bytes[8..NAME_V4_BYTES].fill(0);
                NAME_V4_BYTES
            }
            SocketAddr::V6(v6) => {
                bytes[..2].copy_from_slice(&family_bytes(libc::AF_INET6));
                bytes[4..8].fill(0);
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                NAME_BYTES
            }
        }
    }

    /// Returns the address in the first `len` bytes, if it is one that a packet can have come from.
    pub(super) fn address(&self, len: usize) -> Option<SocketAddr> {
        let bytes = self.0.get(..len)?;
        let family = bytes.get(..2)?;
        let port = u16::from_be_bytes(*bytes.get(2..4)?.first_chunk()?);
        if family == family_bytes(libc::AF_INET) {
            let octets: [u8; 4] = *bytes.get(4..8)?.first_chunk()?;
            return Some(SocketAddrV4::new(Ipv4Addr::from(octets), port).into());
        }
        if family == family_bytes(libc::AF_INET6) {
            let octets: [u8; 16] = *bytes.get(8..24)?.first_chunk()?;
            let scope = u32::from_ne_bytes(*bytes.get(24..28)?.first_chunk()?);
            let address = Ipv6Addr::from(octets);
            // Sockets of IPv6 get nothing that came as IPv4: a stranger has written this into an IPv6 header, past all that checks
            // the sources of IPv4, and would be taken for the peer that has the address.
            let is_genuine = address.to_ipv4_mapped().is_none();
            return is_genuine.then(|| SocketAddrV6::new(address, port, 0, scope).into());
        }
        None
    }
}

fn family_bytes(family: c_int) -> [u8; 2] {
    u16::try_from(family).expect("address families are small").to_ne_bytes()
}

/// Control data of one message.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub(super) struct Control(pub(super) [u8; CONTROL_BYTES]);

impl Control {
    pub(super) const EMPTY: Self = Self([0; CONTROL_BYTES]);

    /// Writes what `outer` wants (our address, TOS) and the segment size, and returns the number of bytes used.
    pub(super) fn set(&mut self, outer: &Outer, segment_bytes: Option<u16>) -> usize {
        let mut at = 0;
        match (outer.peer, outer.local) {
            (SocketAddr::V4(_), Some(IpAddr::V4(local))) => {
                // struct in_pktinfo: interface index, address to send from, address of the header.
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&local.octets());
                self.put(&mut at, libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            (SocketAddr::V6(_), Some(IpAddr::V6(local))) => {
                // struct in6_pktinfo: address, interface index.
                let mut info = [0; 20];
                info[..16].copy_from_slice(&local.octets());
                self.put(&mut at, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
            _ => {}
        }
        if outer.tos != 0 {
            let (level, kind) = match outer.peer {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            };
            self.put(&mut at, level, kind, &c_int::from(outer.tos).to_ne_bytes());
        }
        if let Some(bytes) = segment_bytes {
            self.put(&mut at, libc::SOL_UDP, UDP_SEGMENT, &bytes.to_ne_bytes());
        }
        at
    }

    fn put(&mut self, at: &mut usize, level: c_int, kind: c_int, data: &[u8]) {
        let len = CONTROL_HEADER_BYTES + data.len();
        let slot = &mut self.0[*at..*at + len.next_multiple_of(8)];
        slot[..8].copy_from_slice(&len.to_ne_bytes());
        slot[8..12].copy_from_slice(&level.to_ne_bytes());
        slot[12..16].copy_from_slice(&kind.to_ne_bytes());
        slot[16..len].copy_from_slice(data);
        slot[len..].fill(0);
        *at += slot.len();
    }

    /// What the kernel wrote into the first `len` bytes.
    pub(super) fn read(&self, len: usize) -> Received {
        let mut received = Received::default();
        let mut rest = &self.0[..len.min(CONTROL_BYTES)];
        while let Some((header, _)) = rest.split_first_chunk::<CONTROL_HEADER_BYTES>() {
            let (bytes, level, kind) = (
                usize::from_ne_bytes(*header.first_chunk().expect("eight of sixteen")),
                c_int::from_ne_bytes(*header[8..].first_chunk().expect("four of eight")),
                c_int::from_ne_bytes(*header[12..].first_chunk().expect("four of four")),
            );
            let Some(data) = rest.get(CONTROL_HEADER_BYTES..bytes) else { break };
            received.take(level, kind, data);
            rest = rest.get(bytes.next_multiple_of(8)..).unwrap_or(&[]);
        }
        received
    }
}

/// What control data say about a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Received {
    /// The address it was sent to.
    pub(super) local: Option<IpAddr>,
    /// TOS or traffic class byte.
    pub(super) tos: u8,
    /// Bytes of every datagram but the last, when several came as one.
    pub(super) segment_bytes: Option<u16>,
}

impl Received {
    fn take(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let local = data.get(4..8).and_then(|data| data.first_chunk::<4>());
                self.local = local.map(|&octets| Ipv4Addr::from(octets).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                self.local = data.first_chunk::<16>().map(|&octets| Ipv6Addr::from(octets).into());
            }
            // IPv4 sends one byte, IPv6 an int.
            (libc::IPPROTO_IP, libc::IP_TOS) => self.tos = data.first().copied().unwrap_or(0),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                let value = data.first_chunk::<4>().map_or(0, |&bytes| c_int::from_ne_bytes(bytes));
                self.tos = u8::try_from(value).unwrap_or(0);
            }
            (libc::SOL_UDP, UDP_GRO) => {
                let value = data.first_chunk::<4>().map_or(0, |&bytes| c_int::from_ne_bytes(bytes));
                self.segment_bytes = u16::try_from(value).ok().filter(|&bytes| bytes > 0);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        for text in ["10.1.2.3:4500", "[fd00::1]:4500", "[fe80::1%7]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut name = Name([0xff; NAME_BYTES]);
            let len = name.set(address);
            assert_eq!(name.address(len), Some(address));
            assert_eq!(name.address(len - 1).is_some(), len == NAME_V4_BYTES);
        }
        assert_eq!(Name::EMPTY.address(NAME_BYTES), None);
        assert_eq!(Name::EMPTY.address(1000), None);
    }

    #[test]
    fn control_data_carry_address_tos_and_segment_size() {
        let cases = [("10.0.0.1:1", "10.0.0.9", 80), ("[fd00::1]:1", "fd00::9", 88)];
        for (peer, local, bytes) in cases {
            let outer = Outer { peer: peer.parse().unwrap(), local: Some(local.parse().unwrap()), tos: 0xb9 };
            let mut control = Control([0xff; CONTROL_BYTES]);
            assert_eq!(control.set(&outer, Some(1452)), bytes);
            let received = control.read(bytes);
            assert_eq!(received.local, outer.local);
            // What the kernel sends back differs in type for two of three, so only IPv6 reads its own.
            assert_eq!(received.tos, 0xb9);
            assert_eq!(received.segment_bytes, None);
            let silent = Outer { local: None, tos: 0, ..outer };
            assert_eq!(control.set(&silent, None), 0);
        }
    }

    #[test]
    fn an_address_of_the_other_family_is_left_out() {
        let outer =
            Outer { peer: "10.0.0.1:1".parse().unwrap(), local: Some("fd00::1".parse().unwrap()), tos: 0 };
        assert_eq!(Control::EMPTY.clone().set(&outer, None), 0);
    }

    #[test]
    fn a_coalesced_size_is_read() {
        let mut control = Control::EMPTY;
        let mut at = 0;
        control.put(&mut at, libc::SOL_UDP, UDP_GRO, &1452i32.to_ne_bytes());
        control.put(&mut at, libc::SOL_SOCKET, 99, &[1, 2, 3]);
        control.put(&mut at, libc::IPPROTO_IP, libc::IP_TOS, &[0x2e]);
        let expected = Received { local: None, tos: 0x2e, segment_bytes: Some(1452) };
        assert_eq!(control.read(at), expected);
    }

    proptest! {
        #[test]
        fn no_control_data_make_reading_panic(bytes in proptest::collection::vec(any::<u8>(), CONTROL_BYTES), len in 0usize..200) {
            let _ = Control(bytes.try_into().unwrap()).read(len);
        }
    }
}
