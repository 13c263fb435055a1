//! Reads what a capture sees and writes what a probe sends: IP, ICMP, UDP, and VXLAN around them. Sans-IO.
//!
//! Whatever is not whole, not understood or not ours is `None`: the bytes come from the wire and say what they like.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use trieste_vxlan::{HEAD_BYTES, VX_PORT};

use super::token::{MARK_LEN, Mark, Run};

// From the specifications: RFC 791, 792, 4443, 8200.
const ICMP: u8 = 1;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const IPV4_HEADER_LEN: usize = 20;
const IPV6_HEADER_LEN: usize = 40;
const ECHO_HEADER_LEN: usize = 8;
const UDP_HEADER_LEN: usize = 8;
/// Smallest probe in bytes, either family.
pub const MIN_PROBE_BYTES: u16 = 66;
/// Ours: most identifiers after a run's base that are still taken for probes of it.
const MAX_PROBES: u16 = 256;

/// What kind of packet was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum What {
    /// A question.
    EchoRequest,
    /// Its answer.
    EchoReply,
    /// A datagram.
    Udp {
        /// Where from.
        source_port: u16,
        /// Where to.
        destination_port: u16,
    },
    /// Somebody refuses a probe.
    Error {
        /// Why.
        reason: Refusal,
        /// The largest packet that would do, in bytes; with [`Refusal::TooBig`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mtu: Option<u32>,
        /// Where the probe was going to.
        probed: IpAddr,
    },
}

/// Why somebody refuses a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// No way leads there.
    Unreachable,
    /// Nobody listens.
    PortUnreachable,
    /// A filter says no.
    Prohibited,
    /// It does not fit.
    TooBig,
    /// It went on for too long.
    TimeExceeded,
    /// Something else.
    Other,
}

/// The datagram around a packet between two nodes of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carrier {
    /// The node that it comes from.
    pub source: IpAddr,
    /// The node that it goes to.
    pub destination: IpAddr,
}

/// One of our probes, or an answer to one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Which probe.
    pub probe: u16,
    /// Which packet of it; absent where only its beginning is quoted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    /// Who sent it: of an error, who refuses.
    pub source: IpAddr,
    /// Where to.
    pub destination: IpAddr,
    /// Hops left.
    pub ttl: u8,
    /// The IP packet's length in bytes, without what is around it.
    pub length: u32,
    /// What it is.
    #[serde(flatten)]
    pub what: What,
    /// The datagram around it; absent for a packet on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carrier: Option<Carrier>,
}

/// A datagram on its way between two addresses; what is in it does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Outer {
    /// Where from.
    pub source: IpAddr,
    /// Where to.
    pub destination: IpAddr,
    /// The port that it comes from.
    pub source_port: u16,
    /// The port that it goes to.
    pub destination_port: u16,
}

/// An IP packet, as far as is needed.
struct Ip<'a> {
    source: IpAddr,
    destination: IpAddr,
    ttl: u8,
    length: u32,
    protocol: u8,
    payload: &'a [u8],
}

/// Reads an IP packet (of which the end may be cut off) and says which probe of the run it is.
#[must_use]
pub fn seen(packet: &[u8], run: Run) -> Option<Seen> {
    let ip = parse_ip(packet)?;
    if ip.protocol == UDP && word(ip.payload, 2)? == VX_PORT {
        let carried = carried(&ip).and_then(|inner| own(&inner, run));
        if let Some(mut seen) = carried {
            seen.carrier = Some(Carrier { source: ip.source, destination: ip.destination });
            return Some(seen);
        }
    }
    own(&ip, run)
}

/// Reads an IP packet and says between which UDP ports it goes; `None` if it is no UDP.
#[must_use]
pub fn outer(packet: &[u8]) -> Option<Outer> {
    let ip = parse_ip(packet)?;
    (ip.protocol == UDP).then_some(())?;
    Some(Outer {
        source: ip.source,
        destination: ip.destination,
        source_port: word(ip.payload, 0)?,
        destination_port: word(ip.payload, 2)?,
    })
}

/// The packet inside of a VXLAN datagram.
fn carried<'a>(ip: &Ip<'a>) -> Option<Ip<'a>> {
    parse_ip(ip.payload.get(UDP_HEADER_LEN + HEAD_BYTES..)?)
}

fn own(ip: &Ip<'_>, run: Run) -> Option<Seen> {
    let (what, probe, number) = match ip.protocol {
        ICMP => icmp(ip.payload, run, [8, 0], v4_refusal)?,
        ICMPV6 => icmp(ip.payload, run, [128, 129], v6_refusal)?,
        UDP => {
            let mark = marked(ip.payload.get(UDP_HEADER_LEN..)?, run)?;
            let (source_port, destination_port) = (word(ip.payload, 0)?, word(ip.payload, 2)?);
            (What::Udp { source_port, destination_port }, mark.probe, Some(mark.number))
        }
        _ => return None,
    };
    let (source, destination) = (ip.source, ip.destination);
    Some(Seen { probe, number, source, destination, ttl: ip.ttl, length: ip.length, what, carrier: None })
}

type Explained = (What, u16, Option<u16>);
type Refuse = fn(u8, u8, &[u8]) -> Option<(Refusal, Option<u32>)>;

fn icmp(message: &[u8], run: Run, [request, reply]: [u8; 2], refuse: Refuse) -> Option<Explained> {
    let (kind, code) = (*message.first()?, *message.get(1)?);
    if kind == request || kind == reply {
        let mark = marked(message.get(ECHO_HEADER_LEN..)?, run)?;
        let what = if kind == request { What::EchoRequest } else { What::EchoReply };
        return Some((what, mark.probe, Some(mark.number)));
    }
    let (reason, mtu) = refuse(kind, code, message)?;
    let quoted = parse_ip(message.get(ECHO_HEADER_LEN..)?)?;
    let (probe, number) = quoted_probe(&quoted, run)?;
    Some((What::Error { reason, mtu, probed: quoted.destination }, probe, number))
}

/// An error quotes eight bytes of what the IP packet carries, or more.
fn quoted_probe(quoted: &Ip<'_>, run: Run) -> Option<(u16, Option<u16>)> {
    if let Some(mark) = quoted.payload.get(8..).and_then(|payload| marked(payload, run)) {
        return Some((mark.probe, Some(mark.number)));
    }
    let at = match quoted.protocol {
        ICMP | ICMPV6 => 4,
        UDP => 0,
        _ => return None,
    };
    let probe = word(quoted.payload, at)?.wrapping_sub(run.base());
    (quoted.payload.len() < 8 + MARK_LEN && probe < MAX_PROBES).then_some((probe, None))
}

fn marked(payload: &[u8], run: Run) -> Option<Mark> {
    Mark::parse(payload).filter(|mark| mark.run == run)
}

fn v4_refusal(kind: u8, code: u8, message: &[u8]) -> Option<(Refusal, Option<u32>)> {
    match (kind, code) {
        (3, 3) => Some((Refusal::PortUnreachable, None)),
        (3, 4) => Some((Refusal::TooBig, word(message, 6).map(u32::from))),
        (3, 9 | 10 | 13) => Some((Refusal::Prohibited, None)),
        (3, _) => Some((Refusal::Unreachable, None)),
        (11, _) => Some((Refusal::TimeExceeded, None)),
        (12, _) => Some((Refusal::Other, None)),
        _ => None,
    }
}

fn v6_refusal(kind: u8, code: u8, message: &[u8]) -> Option<(Refusal, Option<u32>)> {
    match (kind, code) {
        (1, 1 | 5 | 6) => Some((Refusal::Prohibited, None)),
        (1, 4) => Some((Refusal::PortUnreachable, None)),
        (1, _) => Some((Refusal::Unreachable, None)),
        (2, _) => {
            let mtu = message.get(4..8)?.first_chunk().copied().map(u32::from_be_bytes);
            Some((Refusal::TooBig, mtu))
        }
        (3, _) => Some((Refusal::TimeExceeded, None)),
        (4, _) => Some((Refusal::Other, None)),
        _ => None,
    }
}

/// Reads an IP header. Fragments but the first, and IPv6 with extension headers, are nobody's probes.
fn parse_ip(packet: &[u8]) -> Option<Ip<'_>> {
    match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 0xf) * 4;
            if header < IPV4_HEADER_LEN || word(packet, 6)? & 0x1fff != 0 {
                return None;
            }
            let address = |at: usize| -> Option<IpAddr> {
                packet.get(at..at + 4)?.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes))
            };
            Some(Ip {
                source: address(12)?,
                destination: address(16)?,
                ttl: *packet.get(8)?,
                length: u32::from(word(packet, 2)?),
                protocol: *packet.get(9)?,
                payload: packet.get(header..)?,
            })
        }
        6 => {
            let address = |at: usize| -> Option<IpAddr> {
                packet.get(at..at + 16)?.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes))
            };
            Some(Ip {
                source: address(8)?,
                destination: address(24)?,
                ttl: *packet.get(7)?,
                length: u32::from(word(packet, 4)?) + 40,
                protocol: *packet.get(6)?,
                payload: packet.get(IPV6_HEADER_LEN..)?,
            })
        }
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at.checked_add(2)?)?.first_chunk().copied().map(u16::from_be_bytes)
}

/// A probe, before it is bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Which packet of which probe.
    pub mark: Mark,
    /// Who is said to send it.
    pub source: IpAddr,
    /// Where to, of the same family.
    pub destination: IpAddr,
    /// Source and destination port; `None` for an ICMP echo request.
    pub ports: Option<(u16, u16)>,
    /// Length of the whole IP packet in bytes; at least [`MIN_PROBE_BYTES`].
    pub length: u16,
}

impl Probe {
    /// The whole IP packet, never to be fragmented; `None` if the addresses are of two families.
    #[must_use]
    pub fn emit(&self) -> Option<Vec<u8>> {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(self.emit_v4(source, destination)),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(self.emit_v6(source, destination)),
            _ => None,
        }
    }

    /// The ICMP message alone, for sockets that add the rest; its checksum is the kernel's to fill in.
    #[must_use]
    pub fn emit_message(&self) -> Vec<u8> {
        let (is_v6, header) = match self.destination {
            IpAddr::V4(_) => (false, IPV4_HEADER_LEN),
            IpAddr::V6(_) => (true, IPV6_HEADER_LEN),
        };
        self.emit_payload(is_v6, header)
    }

    fn emit_v4(&self, source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
        let mut payload = self.emit_payload(false, IPV4_HEADER_LEN);
        let mut packet = vec![0; IPV4_HEADER_LEN];
        let length = u16::try_from(IPV4_HEADER_LEN + payload.len()).unwrap_or(u16::MAX);
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet[4..6].copy_from_slice(&self.mark.number.to_be_bytes());
        packet[6] = 0x40; // don't fragment
        packet[8] = 64;
        packet[9] = if self.ports.is_some() { UDP } else { ICMP };
        packet[12..16].copy_from_slice(&source.octets());
        packet[16..20].copy_from_slice(&destination.octets());
        let sum = checksum(&packet, 0);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let pseudo = if self.ports.is_some() { pseudo(&packet[12..20], UDP, payload.len()) } else { 0 };
        fill_checksum(&mut payload, self.ports.is_some(), pseudo);
        packet.extend(payload);
        packet
    }

    fn emit_v6(&self, source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
        let mut payload = self.emit_payload(true, IPV6_HEADER_LEN);
        let mut packet = vec![0; IPV6_HEADER_LEN];
        let protocol = if self.ports.is_some() { UDP } else { ICMPV6 };
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&u16::try_from(payload.len()).unwrap_or(u16::MAX).to_be_bytes());
        packet[6] = protocol;
        packet[7] = 64;
        packet[8..24].copy_from_slice(&source.octets());
        packet[24..40].copy_from_slice(&destination.octets());
        let pseudo = pseudo(&packet[8..40], protocol, payload.len());
        fill_checksum(&mut payload, self.ports.is_some(), pseudo);
        packet.extend(payload);
        packet
    }

    /// Both kinds have a header of eight bytes, of which the checksum is left out.
    fn emit_payload(&self, is_v6: bool, header: usize) -> Vec<u8> {
        let length = usize::from(self.length.max(MIN_PROBE_BYTES)) - header;
        let mut payload = vec![0x74; length];
        payload[..8].fill(0);
        match self.ports {
            Some((source, destination)) => {
                payload[..2].copy_from_slice(&source.to_be_bytes());
                payload[2..4].copy_from_slice(&destination.to_be_bytes());
                payload[4..6].copy_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
            }
            None => {
                payload[0] = if is_v6 { 128 } else { 8 };
                payload[4..6].copy_from_slice(&self.mark.run.identifier(self.mark.probe).to_be_bytes());
                payload[6..8].copy_from_slice(&self.mark.number.to_be_bytes());
            }
        }
        payload[8..8 + MARK_LEN].copy_from_slice(&self.mark.emit());
        payload
    }
}

fn fill_checksum(payload: &mut [u8], is_udp: bool, pseudo: u32) {
    let at = if is_udp { 6 } else { 2 };
    let sum = match checksum(payload, pseudo) {
        // UDP's zero means that there is none (RFC 768).
        0 if is_udp => 0xffff,
        sum => sum,
    };
    payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// The sum over the pseudo header: both addresses, protocol and length.
fn pseudo(addresses: &[u8], protocol: u8, length: usize) -> u32 {
    sum(addresses) + u32::from(protocol) + u32::try_from(length).unwrap_or_default()
}

fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    words.map(u32::from).sum()
}

/// RFC 1071.
fn checksum(bytes: &[u8], start: u32) -> u16 {
    let mut total = sum(bytes) + start;
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !u16::try_from(total).unwrap_or_default()
}

#[cfg(test)]
mod tests;
