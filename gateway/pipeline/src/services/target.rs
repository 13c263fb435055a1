//! What a packet says about the service it is for: its flow, the flow that an ICMP error is about, or which packet it is a
//! fragment of. Read from its bytes, since translation may have changed its destination since its headers were read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use trieste_packet::FlowKey;
use trieste_packet::wire::{
    IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, Inner, Transport, be16, be32, protocol, tcp, version,
};

/// SCTP, whose ports are where TCP's are.
const SCTP: u8 = 132;
/// Bytes of an ICMP header in front of what it quotes, and of an IPv6 fragment header.
const ICMP_HEADER_BYTES: usize = 8;
const FRAGMENT_HEADER_BYTES: usize = 8;

/// What the fragments of one packet have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PieceKey {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    identification: u32,
}

/// How to find the node for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// It is of this flow.
    Flow(FlowKey),
    /// It begins a connection, of this flow.
    Opening(FlowKey),
    /// It is an error about an answer of this flow.
    About(FlowKey),
    /// It is the first fragment of a packet of this flow.
    First(FlowKey, PieceKey),
    /// It is a later fragment.
    Later(PieceKey),
    /// The kernel has it.
    Kernel,
}

/// The destination of an IP packet whose headers have been checked.
pub(super) fn destination(bytes: &[u8]) -> Option<IpAddr> {
    addresses(bytes).map(|(_, destination)| destination)
}

/// Reads a packet that is for the address of a service.
pub(super) fn read(bytes: &[u8], inner: &Inner) -> Target {
    let Some((source, destination)) = addresses(bytes) else { return Target::Kernel };
    let (proto, at) = (inner.flow.protocol, usize::from(inner.transport_offset));
    let piece =
        || PieceKey { source, destination, protocol: proto, identification: identification(bytes, at) };
    let flow = ports(bytes, proto, at).map(|(from, to)| FlowKey::new(source, destination, proto, from, to));
    match (inner.transport, flow) {
        (Transport::Fragment { first: false }, _) => Target::Later(piece()),
        (Transport::Fragment { first: true }, Some(flow)) => Target::First(flow, piece()),
        (Transport::Icmp, _) => about(bytes, proto, at, destination).map_or(Target::Kernel, Target::About),
        (Transport::Tcp { flags, .. }, Some(flow)) if flags & (tcp::SYN | tcp::ACK) == tcp::SYN => {
            Target::Opening(flow)
        }
        (Transport::Tcp { .. } | Transport::Udp | Transport::Other, Some(flow)) => Target::Flow(flow),
        (Transport::Tcp { .. } | Transport::Udp | Transport::Other | Transport::Fragment { .. }, None) => {
            Target::Kernel
        }
    }
}

fn addresses(bytes: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match version(bytes) {
        4 => {
            let header = bytes.first_chunk::<IPV4_HEADER_BYTES>()?;
            let at = |at: usize| IpAddr::V4(Ipv4Addr::from_bits(be32(header, at)));
            Some((at(12), at(16)))
        }
        6 => {
            let header = bytes.first_chunk::<IPV6_HEADER_BYTES>()?;
            let at = |at: usize| {
                let octets: [u8; 16] = header[at..at + 16].try_into().ok()?;
                Some(IpAddr::V6(Ipv6Addr::from(octets)))
            };
            Some((at(8)?, at(24)?))
        }
        _ => None,
    }
}

fn ports(bytes: &[u8], proto: u8, at: usize) -> Option<(u16, u16)> {
    let has_ports = matches!(proto, protocol::TCP | protocol::UDP | SCTP);
    let header = bytes.get(at..at + 4).filter(|_| has_ports)?;
    Some((be16(header, 0), be16(header, 2)))
}

fn identification(bytes: &[u8], transport: usize) -> u32 {
    if version(bytes) == 4 {
        return u32::from(be16(bytes, 4));
    }
    // The fragment header ends where the transport header begins.
    let header = transport.checked_sub(FRAGMENT_HEADER_BYTES).and_then(|at| bytes.get(at..transport));
    header.map_or(0, |header| be32(header, 4))
}

/// The flow that an ICMP error is about, as seen from its client: the error quotes an answer that the service sent.
fn about(bytes: &[u8], proto: u8, at: usize, service: IpAddr) -> Option<FlowKey> {
    let kind = *bytes.get(at)?;
    let is_error = match proto {
        protocol::ICMP => matches!(kind, 3 | 11 | 12),
        _ => (1..=4).contains(&kind),
    };
    let quoted = bytes.get(at + ICMP_HEADER_BYTES..).filter(|_| is_error)?;
    let (source, client) = addresses(quoted).filter(|(source, _)| *source == service)?;
    let (proto, transport) = match version(quoted) {
        4 => (quoted[9], usize::from(quoted[0] & 15) * 4),
        _ => (quoted[6], IPV6_HEADER_BYTES),
    };
    let (from, to) = ports(quoted, proto, transport)?;
    Some(FlowKey::new(client, source, proto, to, from))
}
