//! The pings of health checks, upstream's and ours, by their shape.

use super::{IPV6_HEADER_BYTES, be16, protocol, version};

/// Length of a health check's ICMP message in bytes (upstream's, as measured).
const HEALTH_CHECK_BYTES: usize = 32;
/// Types of echo messages: reply and request (RFC 792), request and reply (RFC 4443).
const ECHO: [u8; 4] = [0, 8, 128, 129];

/// Returns the protocol and the length in bytes of a packet's first header; the protocol is `None` if it is cut off.
#[must_use]
pub fn first_header(packet: &[u8]) -> (Option<u8>, usize) {
    match version(packet) {
        4 => (packet.get(9).copied(), packet.first().map_or(0, |first| usize::from(first & 0xf) * 4)),
        _ => (packet.get(6).copied(), IPV6_HEADER_BYTES),
    }
}

/// Returns `true` if an IP packet, of any bytes, is a health check's ping or an answer to one.
#[must_use]
pub fn is_health_check(packet: &[u8]) -> bool {
    let (first, header_bytes) = first_header(packet);
    matches!(first, Some(protocol::ICMP | protocol::ICMPV6)) && is_health_check_at(packet, header_bytes)
}

/// Returns `true` if an ICMP packet, whose message begins after `header_bytes`, has the shape of health checks: echo of 8
/// bytes of header and 24 of data, which no usual `ping` sends.
#[must_use]
pub fn is_health_check_at(packet: &[u8], header_bytes: usize) -> bool {
    // Cables pad: the header tells the length.
    let word = |at: usize| packet.get(at..at + 2).map_or(0, |_| usize::from(be16(packet, at)));
    let length = if version(packet) == 4 { word(2) } else { IPV6_HEADER_BYTES + word(4) };
    length == header_bytes + HEALTH_CHECK_BYTES
        && packet.get(header_bytes).is_some_and(|message_type| ECHO.contains(message_type))
}
