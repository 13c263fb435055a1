//! What has to be written into every packet of a flow.

use std::net::Ipv4Addr;

/// Which end of a packet is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The source: outbound.
    Source,
    /// The destination: inbound.
    Destination,
}

/// New address and port for one end of a packet, and what that does to checksums (RFC 1624).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewrite {
    /// Which end.
    pub side: Side,
    /// The address that is there before.
    pub old_address: Ipv4Addr,
    /// The address that is written.
    pub address: Ipv4Addr,
    /// The port or ICMP identifier that is there before, host order; 0 where there is none.
    pub old_port: u16,
    /// The port or ICMP identifier that is written, host order; equal to `old_port` where it stays.
    pub port: u16,
    /// One's complement sum of the new address minus the old one: for the IP header and pseudo-header.
    pub address_delta: u16,
    /// One's complement sum of the new port minus the old one: for TCP, UDP and ICMP.
    pub port_delta: u16,
}

impl Rewrite {
    /// Rewrites one end from `old` to `new`, each an address and a port or ICMP identifier in host order.
    #[must_use]
    pub fn new(side: Side, old: (Ipv4Addr, u16), new: (Ipv4Addr, u16)) -> Self {
        let [old_high, old_low] = halves(old.0);
        let [new_high, new_low] = halves(new.0);
        Self {
            side,
            old_address: old.0,
            address: new.0,
            old_port: old.1,
            port: new.1,
            address_delta: delta(&[(old_high, new_high), (old_low, new_low)]),
            port_delta: delta(&[(old.1, new.1)]),
        }
    }

    /// The rewrite that undoes this one, on the same side.
    #[must_use]
    pub fn inverse(&self) -> Self {
        Self::new(self.side, (self.address, self.port), (self.old_address, self.old_port))
    }
}

fn halves(address: Ipv4Addr) -> [u16; 2] {
    let [a, b, c, d] = address.octets();
    [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
}

/// The one's complement sum of `~old + new` over all pairs, folded to 16 bits.
fn delta(pairs: &[(u16, u16)]) -> u16 {
    let mut sum: u32 = pairs.iter().map(|&(old, new)| u32::from(!old) + u32::from(new)).sum();
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    u16::try_from(sum).expect("folded twice")
}
