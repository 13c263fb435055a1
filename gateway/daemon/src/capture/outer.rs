//! Outer headers for captures. The line sees a datagram's payload and, beside it, whom it came from or goes to; a
//! capture wants the packet that was on the wire. That is a UDP datagram; with a peer of port 0 it is raw ESP (IP
//! protocol 50).
//!
//! Unknown fields have usual values: 64 hops, no flow label, identification 0, not fragmented.
//! Lengths and checksums are right.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use trieste_packet::checksum::{self, Sum};
use trieste_packet::wire::{IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, UDP_HEADER_BYTES, protocol, put16};
use trieste_packet::{DropReason, Outer};

use super::pcapng::Direction;

const HOPS: u8 = 64;
/// Longest payload whose lengths fit the 16-bit fields of either family; ours, so that no frame is over 64 KiB.
const MAX_PAYLOAD_BYTES: usize = u16::MAX as usize - IPV6_HEADER_BYTES - UDP_HEADER_BYTES;

/// This gateway's end of every cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalEnd {
    /// The address to show where ours is unknown.
    pub address: IpAddr,
    /// The UDP port of the cables.
    pub port: u16,
}

/// Both ends of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The sender.
    pub source: SocketAddr,
    /// The receiver.
    pub destination: SocketAddr,
    /// TOS or traffic class.
    pub tos: u8,
    /// Whether it is ESP with no UDP around it: both ports are 0.
    pub is_esp: bool,
}

impl Ends {
    /// Returns the ends of a datagram in this direction, both of the peer's family: a local address of the other one cannot
    /// have been on the wire, and is shown as unspecified.
    #[must_use]
    pub fn new(outer: &Outer, direction: Direction, local: LocalEnd) -> Self {
        let peer = SocketAddr::new(outer.peer.ip().to_canonical(), outer.peer.port());
        let address = outer.local.unwrap_or(local.address).to_canonical();
        let address = match (peer.ip(), address) {
            (IpAddr::V4(_), IpAddr::V6(_)) => Ipv4Addr::UNSPECIFIED.into(),
            (IpAddr::V6(_), IpAddr::V4(_)) => Ipv6Addr::UNSPECIFIED.into(),
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => address,
        };
        let is_esp = peer.port() == 0 && !peer.ip().is_unspecified();
        let here = SocketAddr::new(address, if is_esp { 0 } else { local.port });
        let (source, destination) =
            if direction == Direction::Outbound { (here, peer) } else { (peer, here) };
        Self { source, destination, tos: outer.tos, is_esp }
    }

    /// Returns the ends of a datagram whose peer is unknown: 0.0.0.0 port 0, or `::`.
    #[must_use]
    pub fn without_peer(direction: Direction, local: LocalEnd) -> Self {
        let unspecified = match local.address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let outer = Outer { peer: SocketAddr::new(unspecified, 0), local: None, tos: 0 };
        Self::new(&outer, direction, local)
    }
}

/// Returns the datagram as a packet, cut after `snap_bytes`, and its full length in bytes.
#[must_use]
pub fn datagram(ends: &Ends, payload: &[u8], snap_bytes: usize) -> (Vec<u8>, usize) {
    let payload = &payload[..payload.len().min(MAX_PAYLOAD_BYTES)];
    let mut header = [0u8; IPV6_HEADER_BYTES + UDP_HEADER_BYTES];
    let udp_bytes = if ends.is_esp { 0 } else { UDP_HEADER_BYTES };
    let ip_bytes = write_ip(&mut header, ends, udp_bytes + payload.len());
    let total = ip_bytes + udp_bytes + payload.len();
    let header = &mut header[..ip_bytes + udp_bytes];
    if !ends.is_esp {
        write_udp(header, ip_bytes, ends, payload);
    }
    let mut frame = Vec::with_capacity(total.min(snap_bytes));
    frame.extend_from_slice(&header[..header.len().min(snap_bytes)]);
    frame.extend_from_slice(&payload[..payload.len().min(snap_bytes - frame.len())]);
    (frame, total)
}

/// Writes the IP header and returns its length.
fn write_ip(header: &mut [u8], ends: &Ends, payload_bytes: usize) -> usize {
    let protocol = if ends.is_esp { protocol::ESP } else { protocol::UDP };
    match (ends.source.ip(), ends.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            header[0] = 0x45;
            header[1] = ends.tos;
            put16(header, 2, narrow(IPV4_HEADER_BYTES + payload_bytes));
            header[8] = HOPS;
            header[9] = protocol;
            header[12..16].copy_from_slice(&source.octets());
            header[16..20].copy_from_slice(&destination.octets());
            checksum::fill_ipv4_header(header);
            IPV4_HEADER_BYTES
        }
        (source, destination) => {
            put16(header, 0, 0x6000 | u16::from(ends.tos) << 4);
            put16(header, 4, narrow(payload_bytes));
            header[6] = protocol;
            header[7] = HOPS;
            header[8..24].copy_from_slice(&octets(source));
            header[24..40].copy_from_slice(&octets(destination));
            IPV6_HEADER_BYTES
        }
    }
}

fn write_udp(header: &mut [u8], at: usize, ends: &Ends, payload: &[u8]) {
    let udp_bytes = UDP_HEADER_BYTES + payload.len();
    put16(header, at, ends.source.port());
    put16(header, at + 2, ends.destination.port());
    put16(header, at + 4, narrow(udp_bytes));
    let pseudo = checksum::pseudo_sum(header, protocol::UDP, udp_bytes);
    let sum = pseudo.plus(Sum::ZERO.bytes(&header[at..])).bytes(payload).checksum();
    put16(header, at + 6, if sum == 0 { 0xffff } else { sum });
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn narrow(value: usize) -> u16 {
    u16::try_from(value).expect("payloads are cut to what a length field can say")
}

/// The kind of a dropped packet's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remains {
    /// An IP packet, or what was taken for one.
    Inner(Direction),
    /// A datagram's payload.
    Datagram(Direction),
}

impl Remains {
    /// Judges by the reason; where both can be dropped for it, by the bytes: no message of a cable begins like an
    /// IP header.
    #[must_use]
    pub fn new(reason: DropReason, bytes: &[u8]) -> Self {
        use Direction::{Inbound, Outbound, Unknown};
        match reason {
            DropReason::UnknownDatagram
            | DropReason::UnknownReceiver
            | DropReason::BadHandshake
            | DropReason::UnknownPeer
            | DropReason::HandshakeLimit
            | DropReason::Replay
            | DropReason::BadTag
            | DropReason::OtherStation
            | DropReason::OwnStation
            | DropReason::OuterChecksum => Self::Datagram(Inbound),
            DropReason::SocketWrite | DropReason::SocketFull => Self::Datagram(Outbound),
            DropReason::NoRoute
            | DropReason::SourceNotLocal
            | DropReason::NoLane
            | DropReason::HeldOverflow
            | DropReason::HeldExpired
            | DropReason::TooBig
            | DropReason::CannotFragment
            | DropReason::SealFailed
            | DropReason::NoSelector
            | DropReason::SaExpired
            | DropReason::ReservedProtocol
            | DropReason::NoGlobalIp => Self::by_bytes(bytes, Outbound),
            DropReason::SourceNotAllowed
            | DropReason::DestinationNotLocal
            | DropReason::Loop
            | DropReason::NoOwnPath
            | DropReason::NoSession
            | DropReason::BadInner
            | DropReason::SelectorMismatch
            | DropReason::EcnNotCapable
            | DropReason::NodeNotReady
            | DropReason::TunWrite
            | DropReason::TunFull
            | DropReason::BadControl
            | DropReason::NoMapping
            | DropReason::NatFiltered => Self::by_bytes(bytes, Inbound),
            DropReason::MalformedHeader
            | DropReason::NotIp
            | DropReason::ExtensionHeaders
            | DropReason::NotUnicast
            | DropReason::NoBuffer
            | DropReason::HandoffFull
            | DropReason::WorkerPanic
            | DropReason::Stopped
            | DropReason::NatExhausted
            | DropReason::NatNotReady
            | DropReason::NatSessionLimit
            | DropReason::NatSourceLimit
            | DropReason::NatFragment
            | DropReason::NatUntranslatable
            | DropReason::IcmpLimit => Self::by_bytes(bytes, Unknown),
        }
    }

    fn by_bytes(bytes: &[u8], direction: Direction) -> Self {
        match trieste_packet::wire::version(bytes) {
            4 | 6 => Self::Inner(direction),
            _ => Self::Datagram(direction),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieste_packet::wire::Inner;

    const LOCAL: LocalEnd = LocalEnd { address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), port: 4500 };

    fn outer(peer: &str, local: Option<&str>) -> Outer {
        Outer {
            peer: peer.parse().unwrap(),
            local: local.map(|local| local.parse().unwrap()),
            tos: 0x2e << 2 | 1,
        }
    }

    #[test]
    fn rebuilt_headers_are_valid_for_both_families_and_odd_lengths() {
        for (peer, local) in [("192.0.2.9:51820", None), ("[2001:db8::9]:51820", Some("2001:db8::1"))] {
            for len in [0, 1, 32, 1452] {
                let ends = Ends::new(&outer(peer, local), Direction::Inbound, LOCAL);
                let (frame, total) = datagram(&ends, &vec![7; len], usize::MAX);
                let inner = Inner::parse(&frame).unwrap();
                assert_eq!((frame.len(), usize::from(inner.total_bytes)), (total, total));
                assert_eq!((inner.flow.source_port, inner.flow.destination_port), (51820, 4500));
                assert!(checksum::transport_is_valid(&frame, usize::from(inner.transport_offset)));
                assert_eq!(trieste_packet::wire::tos(&frame), 0x2e << 2 | 1);
                if inner.flow.is_ipv4() {
                    assert_eq!(Sum::ZERO.bytes(&frame[..20]).folded(), 0xffff);
                }
            }
        }
    }

    #[test]
    fn raw_esp_has_no_udp_header_in_either_family() {
        for (peer, local) in [("192.0.2.9:0", Some("192.0.2.7")), ("[2001:db8::9]:0", Some("2001:db8::1"))] {
            for direction in [Direction::Inbound, Direction::Outbound] {
                let ends = Ends::new(&outer(peer, local), direction, LOCAL);
                let esp = [0xc1, 0x43, 0xa4, 0x13, 0, 0, 0, 1, 9, 9];
                let (frame, total) = datagram(&ends, &esp, usize::MAX);
                let inner = Inner::parse(&frame).unwrap();
                assert_eq!((frame.len(), usize::from(inner.total_bytes)), (total, total));
                assert_eq!(inner.flow.protocol, 50);
                assert_eq!(frame[frame.len() - esp.len()..], esp);
                assert_eq!(total - esp.len(), if inner.flow.is_ipv4() { 20 } else { 40 });
                assert_eq!(trieste_packet::wire::tos(&frame), 0x2e << 2 | 1);
                let peer: SocketAddr = peer.parse().unwrap();
                let far = if direction == Direction::Inbound {
                    inner.flow.source()
                } else {
                    inner.flow.destination()
                };
                assert_eq!(far, peer.ip());
                assert_eq!((ends.source.port(), ends.destination.port()), (0, 0));
                if inner.flow.is_ipv4() {
                    assert_eq!(Sum::ZERO.bytes(&frame[..20]).folded(), 0xffff);
                }
                assert_eq!(datagram(&ends, &esp, 23), (frame[..23].to_vec(), total));
            }
        }
        assert!(!Ends::without_peer(Direction::Inbound, LOCAL).is_esp, "nobody knows");
    }

    #[test]
    fn a_cut_frame_keeps_the_whole_ones_checksum() {
        let ends = Ends::new(&outer("192.0.2.9:51820", None), Direction::Outbound, LOCAL);
        let (whole, total) = datagram(&ends, &[9; 500], usize::MAX);
        for snap in [0, 10, 27, 28, 29, 400] {
            assert_eq!(datagram(&ends, &[9; 500], snap), (whole[..snap].to_vec(), total));
        }
    }

    #[test]
    fn our_end_is_where_the_direction_puts_it() {
        let known = outer("192.0.2.9:51820", Some("192.0.2.7"));
        let ends = Ends::new(&known, Direction::Outbound, LOCAL);
        assert_eq!(ends.source, "192.0.2.7:4500".parse().unwrap());
        assert_eq!(ends.destination, "192.0.2.9:51820".parse().unwrap());
        let mapped = Ends::new(&outer("[::ffff:192.0.2.9]:51820", None), Direction::Inbound, LOCAL);
        assert_eq!(mapped.source, "192.0.2.9:51820".parse().unwrap());
        assert_eq!(mapped.destination, "192.0.2.1:4500".parse().unwrap());
        let other = Ends::new(&outer("[2001:db8::9]:1", None), Direction::Inbound, LOCAL);
        assert_eq!(other.destination, "[::]:4500".parse().unwrap());
        assert_eq!(Ends::without_peer(Direction::Inbound, LOCAL).source, "0.0.0.0:0".parse().unwrap());
    }

    #[test]
    fn a_payload_too_long_for_any_datagram_is_cut() {
        let ends = Ends::new(&outer("[2001:db8::9]:1", None), Direction::Inbound, LOCAL);
        let (frame, _) = datagram(&ends, &vec![0; 70_000], usize::MAX);
        assert!(Inner::parse(&frame).is_ok());
    }

    #[test]
    fn dropped_bytes_are_told_apart_by_reason_and_first_nibble() {
        let message = [4, 0, 0, 0];
        let packet = [0x45, 0, 0, 20];
        assert_eq!(Remains::new(DropReason::Replay, &packet), Remains::Datagram(Direction::Inbound));
        assert_eq!(Remains::new(DropReason::NoRoute, &packet), Remains::Inner(Direction::Outbound));
        assert_eq!(Remains::new(DropReason::NoSession, &message), Remains::Datagram(Direction::Inbound));
        assert_eq!(Remains::new(DropReason::NotIp, &message), Remains::Datagram(Direction::Unknown));
    }
}
