//! What makes packets one flow, and the hashes of it.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};

use crate::keyed_hash::fold;

/// Addresses, protocol and ports of a packet, in its own direction. ICMP queries carry their identifier as both
/// ports; later fragments and other protocols carry 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowKey {
    source: [u8; 16],
    destination: [u8; 16],
    /// Source port, host order.
    pub source_port: u16,
    /// Destination port, host order.
    pub destination_port: u16,
    /// Internet protocol number.
    pub protocol: u8,
    family: u8,
}

/// Five words instead of the bytes one by one: tables hash a key for every packet. Addresses and ports are whoever's sends
/// the packet: tables are to use [`KeyedState`](crate::KeyedState).
impl Hash for FlowKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(u128::from_ne_bytes(self.source));
        state.write_u128(u128::from_ne_bytes(self.destination));
        let ports = u64::from(self.source_port) << 32 | u64::from(self.destination_port) << 16;
        state.write_u64(ports | u64::from(self.protocol) << 8 | u64::from(self.family));
    }
}

impl FlowKey {
    /// Builds a key. Both addresses are of one family.
    #[must_use]
    pub fn new(
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        source_port: u16,
        destination_port: u16,
    ) -> Self {
        let family = if source.is_ipv4() { 4 } else { 6 };
        Self {
            source: octets(source),
            destination: octets(destination),
            source_port,
            destination_port,
            protocol,
            family,
        }
    }

    /// Source address.
    #[must_use]
    pub fn source(&self) -> IpAddr {
        self.address(self.source)
    }

    /// Destination address.
    #[must_use]
    pub fn destination(&self) -> IpAddr {
        self.address(self.destination)
    }

    /// Whether the packet is IPv4.
    #[must_use]
    pub fn is_ipv4(&self) -> bool {
        self.family == 4
    }

    /// The same flow seen from the other end.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..*self
        }
    }

    /// The same addresses and protocol, without ports.
    #[must_use]
    pub fn without_ports(&self) -> Self {
        Self { source_port: 0, destination_port: 0, ..*self }
    }

    /// A hash that both directions share and every gateway computes alike; for steering. Not keyed: an attacker
    /// can choose colliding flows, which costs balance and nothing else.
    #[must_use]
    pub fn symmetric_hash(&self) -> u64 {
        let a = endpoint_hash(&self.source, self.source_port);
        let b = endpoint_hash(&self.destination, self.destination_port);
        // Addition commutes, so the direction does not matter; the outer mix spreads the sum.
        fold(a.wrapping_add(b) ^ u64::from(self.protocol), 0x9e37_79b9_7f4a_7c15)
    }

    /// A hash of the source address, port and protocol alone: what decides who owns an inside endpoint's
    /// translation, whatever it talks to.
    #[must_use]
    pub fn inside_source_hash(&self) -> u64 {
        fold(endpoint_hash(&self.source, self.source_port) ^ u64::from(self.protocol), 0xd6e8_feb8_6659_fd93)
    }

    fn address(&self, octets: [u8; 16]) -> IpAddr {
        let address = Ipv6Addr::from(octets);
        match (self.family, address.to_ipv4_mapped()) {
            (4, Some(v4)) => IpAddr::V4(v4),
            _ => IpAddr::V6(address),
        }
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn endpoint_hash(address: &[u8; 16], port: u16) -> u64 {
    let value = u128::from_be_bytes(*address);
    let high = (value >> 64) as u64;
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    let low = value as u64;
    fold(high ^ 0xa076_1d64_78bd_642f, low ^ (u64::from(port) << 48) ^ 0xe703_7ed1_a0b4_28db)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(source: &str, destination: &str, source_port: u16, destination_port: u16) -> FlowKey {
        FlowKey::new(source.parse().unwrap(), destination.parse().unwrap(), 6, source_port, destination_port)
    }

    #[test]
    fn both_directions_hash_alike_and_ports_matter() {
        let forward = key("10.1.0.1", "10.2.0.1", 1234, 80);
        assert_eq!(forward.symmetric_hash(), forward.reversed().symmetric_hash());
        assert_ne!(forward.symmetric_hash(), key("10.1.0.1", "10.2.0.1", 1235, 80).symmetric_hash());
        assert_ne!(forward.symmetric_hash(), key("10.1.0.1", "10.2.0.1", 80, 1234).symmetric_hash());
    }

    #[test]
    fn the_inside_hash_ignores_the_far_end() {
        let a = key("10.1.0.1", "10.2.0.1", 1234, 80);
        let b = key("10.1.0.1", "10.9.0.9", 1234, 443);
        assert_eq!(a.inside_source_hash(), b.inside_source_hash());
    }

    #[test]
    fn hashes_spread_over_few_buckets() {
        let mut buckets = [0u32; 4];
        for port in 0..4000 {
            buckets[(key("10.1.0.1", "10.2.0.1", port, 80).symmetric_hash() % 4) as usize] += 1;
        }
        assert!(buckets.iter().all(|&count| (800..1200).contains(&count)), "{buckets:?}");
    }

    #[test]
    fn addresses_come_back_in_their_family() {
        let v6 = key("::ffff:10.0.0.1", "fd00::1", 0, 0);
        assert!(!v6.is_ipv4());
        assert!(v6.source().is_ipv6());
        assert_eq!(key("10.0.0.1", "10.0.0.2", 0, 0).destination(), "10.0.0.2".parse::<IpAddr>().unwrap());
    }
}
