//! Outer headers of frames: read on the way in, written on the way out.
//!
//! ```text
//!  | Ethernet 14 | IPv4 20, IPv6 40 | UDP 8 or nothing | what a socket would hand over: a datagram's payload, or ESP |
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use trieste_packet::checksum::Sum;
use trieste_packet::wire::{
    IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, UDP_HEADER_BYTES, be16, protocol, put16, tos, version,
};
use trieste_packet::{DropReason, Outer};

use super::filter::{ETHERNET_BYTES, ETHERNET_IPV4, ETHERNET_IPV6};

/// Hops that a packet of ours may take, as the kernel's.
const HOPS: u8 = 64;
/// DF in the field of the fragment's offset.
const DONT_FRAGMENT: u16 = 0x4000;

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) outer: Outer,
    /// Where the datagram's payload, or the ESP packet, starts.
    pub(super) start: usize,
    /// Its bytes.
    pub(super) bytes: usize,
    /// Whether the sender's kernel left the checksum to a device that never came.
    pub(super) is_partial: bool,
}

/// Reads a frame that the filter took for ours.
///
/// # Errors
/// The reason for which the kernel would drop it as well.
pub(super) fn parse(frame: &[u8], zero_checksum6: bool) -> Result<Parsed, DropReason> {
    let packet = frame.get(ETHERNET_BYTES..).ok_or(DropReason::MalformedHeader)?;
    let (header_bytes, total, proto) = match version(packet) {
        4 => ipv4(packet)?,
        6 => ipv6(packet)?,
        _ => return Err(DropReason::NotIp),
    };
    let rest = packet.get(header_bytes..total).ok_or(DropReason::MalformedHeader)?;
    let (source, local) = addresses(packet);
    if !is_possible(source) || source == local {
        return Err(DropReason::MalformedHeader);
    }
    let start = ETHERNET_BYTES + header_bytes;
    let outer = |port| Outer { peer: SocketAddr::new(source, port), local: Some(local), tos: tos(packet) };
    match proto {
        protocol::ESP => Ok(Parsed { outer: outer(0), start, bytes: rest.len(), is_partial: false }),
        protocol::UDP => {
            let (bytes, is_partial) = udp(packet, rest, zero_checksum6)?;
            let start = start + UDP_HEADER_BYTES;
            Ok(Parsed { outer: outer(be16(rest, 0)), start, bytes, is_partial })
        }
        _ => Err(DropReason::UnknownDatagram),
    }
}

/// Returns the header's bytes, the packet's, and the protocol.
fn ipv4(packet: &[u8]) -> Result<(usize, usize, u8), DropReason> {
    let header = packet.get(..IPV4_HEADER_BYTES).ok_or(DropReason::MalformedHeader)?;
    let is_plain = header[0] == 0x45 && be16(header, 6) & !DONT_FRAGMENT == 0;
    if !is_plain || Sum::ZERO.bytes(header).folded() != 0xffff {
        return Err(DropReason::MalformedHeader);
    }
    Ok((IPV4_HEADER_BYTES, usize::from(be16(header, 2)), header[9]))
}

fn ipv6(packet: &[u8]) -> Result<(usize, usize, u8), DropReason> {
    let header = packet.get(..IPV6_HEADER_BYTES).ok_or(DropReason::MalformedHeader)?;
    Ok((IPV6_HEADER_BYTES, IPV6_HEADER_BYTES + usize::from(be16(header, 4)), header[6]))
}

/// Returns source and destination of a packet whose header has been checked.
fn addresses(packet: &[u8]) -> (IpAddr, IpAddr) {
    if version(packet) == 4 {
        let at = |at: usize| Ipv4Addr::from([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
        return (at(12).into(), at(16).into());
    }
    let at = |at: usize| Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|index| packet[at + index]));
    (at(8).into(), at(24).into())
}

/// Returns `true` for what the kernel takes for a source outside of the machine: also IPv6's unspecified address.
fn is_possible(source: IpAddr) -> bool {
    let is_refused = match source {
        IpAddr::V4(v4) => v4.is_broadcast() || v4.octets()[0] == 0,
        // Of an IPv4 address: it would be taken for that peer.
        IpAddr::V6(v6) => v6.to_ipv4_mapped().is_some(),
    };
    !(source.is_loopback() || source.is_multicast() || is_refused)
}

/// Returns the payload's bytes, and whether the checksum is one that a device should have finished.
fn udp(packet: &[u8], rest: &[u8], zero_checksum6: bool) -> Result<(usize, bool), DropReason> {
    if rest.len() < UDP_HEADER_BYTES {
        return Err(DropReason::MalformedHeader);
    }
    let length = be16(rest, 4);
    let datagram = rest.get(..usize::from(length)).ok_or(DropReason::MalformedHeader)?;
    let bytes = datagram.len().checked_sub(UDP_HEADER_BYTES).ok_or(DropReason::MalformedHeader)?;
    // Port 0 stands for ESP inside of the gateway.
    if be16(rest, 0) == 0 {
        return Err(DropReason::MalformedHeader);
    }
    let field = be16(datagram, 6);
    if field == 0 {
        let is_allowed = version(packet) == 4 || zero_checksum6;
        return if is_allowed { Ok((bytes, false)) } else { Err(DropReason::OuterChecksum) };
    }
    let pseudo = pseudo_sum(packet, length);
    if pseudo.bytes(datagram).folded() == 0xffff {
        return Ok((bytes, false));
    }
    if field == pseudo.folded() { Ok((bytes, true)) } else { Err(DropReason::OuterChecksum) }
}

fn pseudo_sum(packet: &[u8], length: u16) -> Sum {
    let addresses = if version(packet) == 4 { 12..20 } else { 8..40 };
    Sum::ZERO.bytes(&packet[addresses]).word(u16::from(protocol::UDP)).word(length)
}

/// Where frames for a peer go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hop {
    /// The next hop's station.
    pub(super) to: [u8; 6],
    /// Our station.
    pub(super) from: [u8; 6],
    /// Our address.
    pub(super) source: IpAddr,
    /// The largest packet that the path takes, in bytes.
    pub(super) mtu_bytes: usize,
}

/// What a frame's headers say besides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) peer: SocketAddr,
    /// Our port; without meaning for ESP.
    pub(super) port: u16,
    pub(super) tos: u8,
    /// Identifies the packet among fragments.
    pub(super) identification: u16,
    pub(super) dont_fragment: bool,
}

impl Header {
    /// Returns the bytes of IP and transport headers.
    pub(super) fn packet_bytes(&self) -> usize {
        let ip = if self.peer.is_ipv4() { IPV4_HEADER_BYTES } else { IPV6_HEADER_BYTES };
        ip + if self.is_esp() { 0 } else { UDP_HEADER_BYTES }
    }

    /// Returns the bytes of all headers.
    pub(super) fn frame_bytes(&self) -> usize {
        ETHERNET_BYTES + self.packet_bytes()
    }

    fn is_esp(&self) -> bool {
        self.peer.port() == 0
    }

    /// Writes the headers of a frame with `payload_bytes` bytes of payload, whose sum is `payload`, into `space`, which has
    /// [`Self::frame_bytes`]. `None` if the packet cannot be that long.
    pub(super) fn write(
        &self,
        space: &mut [u8],
        hop: &Hop,
        payload: Sum,
        payload_bytes: usize,
    ) -> Option<()> {
        let (ethernet, packet) = space.split_at_mut_checked(ETHERNET_BYTES)?;
        let total = u16::try_from(self.packet_bytes() + payload_bytes).ok()?;
        ethernet[..6].copy_from_slice(&hop.to);
        ethernet[6..12].copy_from_slice(&hop.from);
        let proto = if self.is_esp() { protocol::ESP } else { protocol::UDP };
        let ip_bytes = match (hop.source, self.peer.ip()) {
            (IpAddr::V4(source), IpAddr::V4(peer)) => {
                put16(ethernet, 12, ETHERNET_IPV4);
                self.write_ipv4(packet, total, proto, source, peer);
                IPV4_HEADER_BYTES
            }
            (IpAddr::V6(source), IpAddr::V6(peer)) => {
                put16(ethernet, 12, ETHERNET_IPV6);
                self.write_ipv6(packet, total, proto, source, peer);
                IPV6_HEADER_BYTES
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return None,
        };
        if !self.is_esp() {
            let length = total - u16::try_from(ip_bytes).ok()?;
            let pseudo = pseudo_sum(packet, length);
            let udp = &mut packet[ip_bytes..];
            put16(udp, 0, self.port);
            put16(udp, 2, self.peer.port());
            put16(udp, 4, length);
            put16(udp, 6, 0);
            let checksum = pseudo.bytes(udp).plus(payload).checksum();
            put16(udp, 6, if checksum == 0 { 0xffff } else { checksum });
        }
        Some(())
    }

    fn write_ipv4(&self, packet: &mut [u8], total: u16, proto: u8, source: Ipv4Addr, peer: Ipv4Addr) {
        packet[..IPV4_HEADER_BYTES].fill(0);
        (packet[0], packet[1]) = (0x45, self.tos);
        put16(packet, 2, total);
        put16(packet, 4, self.identification);
        put16(packet, 6, if self.dont_fragment { DONT_FRAGMENT } else { 0 });
        (packet[8], packet[9]) = (HOPS, proto);
        packet[12..16].copy_from_slice(&source.octets());
        packet[16..20].copy_from_slice(&peer.octets());
        let checksum = Sum::ZERO.bytes(&packet[..IPV4_HEADER_BYTES]).checksum();
        put16(packet, 10, checksum);
    }

    fn write_ipv6(&self, packet: &mut [u8], total: u16, proto: u8, source: Ipv6Addr, peer: Ipv6Addr) {
        packet[..4].copy_from_slice(&[0x60 | (self.tos >> 4), self.tos << 4, 0, 0]);
        put16(packet, 4, total.saturating_sub(40));
        (packet[6], packet[7]) = (proto, HOPS);
        packet[8..24].copy_from_slice(&source.octets());
        packet[24..40].copy_from_slice(&peer.octets());
    }
}

#[cfg(test)]
mod tests;
