//! Ethernet addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// First two bytes of an address made from an IPv4 address, which follows: unicast, locally administered. The second one is
/// ours (`T`), so that it is not mistaken for one that another program made of the same address.
const PREFIX_V4: [u8; 2] = [0x02, b'T'];
/// First byte of an address made from an IPv6 address; 40 bits of its hash follow.
const PREFIX_V6: u8 = 0x06;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// All stations.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// No station: what stands in an ARP request for the address that is asked for.
    pub const ZERO: Self = Self([0; 6]);
    /// In a forwarding entry: every address without an entry of its own.
    pub const ANY: Self = Self::ZERO;

    /// Returns the address of the gateway with this VTEP address: locally administered, the same at every start, and different
    /// for different VTEPs.
    #[must_use]
    pub const fn of_vtep(vtep: Ipv4Addr) -> Self {
        Self::of_ipv4(vtep)
    }

    /// Returns the address of the node that is reached at `underlay`, on the VXLAN between nodes, where our route agent made the
    /// device. It follows from the node's address, so that nobody has to ask.
    #[must_use]
    pub fn of_node(underlay: IpAddr) -> Self {
        match underlay {
            IpAddr::V4(address) => Self::of_ipv4(address),
            IpAddr::V6(address) => {
                let [_, _, _, b, c, d, e, f] = fnv1a(address.octets()).to_be_bytes();
                Self([PREFIX_V6, b, c, d, e, f])
            }
        }
    }

    const fn of_ipv4(address: Ipv4Addr) -> Self {
        let ([a, b], [c, d, e, f]) = (PREFIX_V4, address.octets());
        Self([a, b, c, d, e, f])
    }

    /// Returns `true` if a group of stations is meant, or all.
    #[inline]
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns `true` if this can be the address of one station.
    #[inline]
    #[must_use]
    pub fn is_station(self) -> bool {
        !self.is_group() && self != Self::ZERO
    }

    /// Returns the link-local address that the kernel makes from it (modified EUI-64).
    #[must_use]
    pub fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0.map(u16::from);
        Ipv6Addr::new(0xfe80, 0, 0, 0, (a ^ 2) << 8 | b, c << 8 | 0xff, 0xfe00 | d, e << 8 | f)
    }
}

/// Computes FNV-1a, 64 bits. `trieste_control::hash` has the same, for names; this one is part of what nodes agree on.
fn fnv1a(bytes: [u8; 16]) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// No Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidMac;

impl FromStr for Mac {
    type Err = InvalidMac;

    fn from_str(text: &str) -> Result<Self, InvalidMac> {
        let octets: Result<Vec<u8>, _> = text.split(':').map(|octet| u8::from_str_radix(octet, 16)).collect();
        octets.ok().and_then(|octets| octets.try_into().ok()).map(Self).ok_or(InvalidMac)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn of_node(text: &str) -> Mac {
        Mac::of_node(text.parse().unwrap())
    }

    #[test]
    fn mac_addresses_are_unicast_locally_administered_and_differ() {
        let macs: BTreeSet<Mac> =
            ["172.31.1.11", "10.31.1.11", "fd31::11", "fd31::12"].into_iter().map(of_node).collect();
        assert_eq!(macs.len(), 4);
        assert!(macs.iter().all(|mac| mac.is_station() && mac.0[0] & 3 == 2));
    }

    #[test]
    fn of_an_address_every_release_makes_the_same() {
        let vtep = Ipv4Addr::new(241, 18, 0, 5);
        assert_eq!(Mac::of_vtep(vtep).to_string(), "02:54:f1:12:00:05");
        assert_eq!(Mac::of_node(vtep.into()), Mac::of_vtep(vtep));
        assert_eq!(of_node("172.31.1.11").to_string(), "02:54:ac:1f:01:0b");
        assert_eq!(of_node("fd31::11").to_string(), "06:44:da:ad:04:40");
        assert_eq!(of_node("fd31::12").to_string(), "06:44:da:ad:09:59");
    }

    #[test]
    fn groups_and_nobody_are_no_stations() {
        let group = Mac([0x33, 0x33, 0, 0, 0, 1]);
        assert!(group.is_group() && !group.is_station());
        assert!(Mac::BROADCAST.is_group() && !Mac::BROADCAST.is_station());
        assert!(!Mac::ZERO.is_group() && !Mac::ZERO.is_station());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mac = of_node("172.31.1.11");
        assert_eq!("02:54:ac:1f:01:0b".parse(), Ok(mac));
        assert_eq!(format!("{mac:?}"), "02:54:ac:1f:01:0b");
        for wrong in ["", "02:54:ac:1f:01", "02:54:ac:1f:01:0b:00", "02:54:ac:1f:01:100", "02-54-ac-1f-01-0b"]
        {
            assert_eq!(wrong.parse::<Mac>(), Err(InvalidMac), "{wrong}");
        }
        assert_eq!(serde_json::to_string(&mac).unwrap(), "[2,84,172,31,1,11]");
        assert_eq!(serde_json::from_str::<Mac>("[2,84,172,31,1,11]").unwrap(), mac);
    }

    #[test]
    fn link_local_addresses_are_the_ones_that_the_kernel_makes() {
        assert_eq!(of_node("172.31.1.11").link_local().to_string(), "fe80::54:acff:fe1f:10b");
    }
}
