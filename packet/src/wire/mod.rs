//! Wire formats of inner packets: IPv4, IPv6 with extension headers, TCP with options, UDP, ICMP.
//!
//! [`Inner::parse`] is the one place that turns untrusted bytes into something that cannot be wrong; what comes
//! behind works on offsets it has checked. Multi-byte fields are big-endian on the wire and host order in types.

mod health_check;
mod inner;
pub mod tcp;

pub use health_check::{first_header, is_health_check, is_health_check_at};
pub use inner::{Inner, Transport};

/// Internet protocol numbers that the packet path looks into.
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ESP.
    pub const ESP: u8 = 50;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
}

/// Bytes of an IPv4 header without options.
pub const IPV4_HEADER_BYTES: usize = 20;
/// Bytes of the fixed IPv6 header.
pub const IPV6_HEADER_BYTES: usize = 40;
/// Bytes of a UDP header.
pub const UDP_HEADER_BYTES: usize = 8;
/// Bytes of a TCP header without options.
pub const TCP_HEADER_BYTES: usize = 20;

/// Reads a big-endian 16-bit field. The caller has checked that `at + 2` bytes are there.
#[must_use]
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Reads a big-endian 32-bit field. The caller has checked that `at + 4` bytes are there.
#[must_use]
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Writes a big-endian 16-bit field.
pub fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes a big-endian 32-bit field.
pub fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// The IP version nibble, or 0 for no bytes at all.
#[must_use]
pub fn version(bytes: &[u8]) -> u8 {
    bytes.first().map_or(0, |first| first >> 4)
}

/// The TOS or traffic class byte of an IP packet whose header has been checked.
#[must_use]
pub fn tos(bytes: &[u8]) -> u8 {
    if version(bytes) == 6 { (bytes[0] << 4) | (bytes[1] >> 4) } else { bytes[1] }
}

/// Replaces the two ECN bits, and repairs the IPv4 header checksum (RFC 1624).
pub fn set_ecn(bytes: &mut [u8], ecn: u8) {
    if version(bytes) == 6 {
        bytes[1] = (bytes[1] & !0x30) | ((ecn & 3) << 4);
        return;
    }
    let old = be16(bytes, 0);
    bytes[1] = (bytes[1] & !3) | (ecn & 3);
    let new = be16(bytes, 0);
    let sum = crate::checksum::update16(be16(bytes, 10), old, new);
    put16(bytes, 10, sum);
}
