//! The VXLAN between a cluster's nodes: what its device, forwarding entries and neighbours should be. Pure.
//!
//! Workers send what is for remote clusters to their gateway over it, and a gateway what came from remote clusters to
//! the workers. IPv4 is as upstream has it on the wire: a node's address there is 240.x, with the last three octets of
//! its own. IPv6 is ours alone: next hops are link-local addresses made from the node's MAC address there.
//!
//! A node's MAC address follows from its address, so every node can compute every other's, and nothing is
//! flooded: each peer has a forwarding entry. Upstream's route agents have random ones, so IPv4 peers are still asked
//! (ARP) rather than written down, and as upstream does it, a frame without an entry of its own, which only ARP and
//! frames for upstream's nodes are, goes to every peer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use trieste_control::devices::vx_mac;

use crate::constants::VX_DEVICE;

/// Bytes that VXLAN adds to a packet over IPv4: the inner Ethernet header, VXLAN, UDP, IPv4.
pub const OVERHEAD_V4: u32 = 14 + 8 + 8 + 20;
/// Bytes that VXLAN adds to a packet over IPv6.
pub const OVERHEAD_V6: u32 = OVERHEAD_V4 + 20;
/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Stands for every address without an entry of its own.
    pub const ANY: Self = Self([0; 6]);

    /// Returns the address of the node that is reached at `underlay`.
    #[must_use]
    pub fn of_node(underlay: IpAddr) -> Self {
        Self(vx_mac(underlay))
    }

    /// Returns the link-local address that the kernel makes from it (modified EUI-64).
    #[must_use]
    pub fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0.map(u16::from);
        Ipv6Addr::new(0xfe80, 0, 0, 0, (a ^ 2) << 8 | b, c << 8 | 0xff, 0xfe00 | d, e << 8 | f)
    }
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

/// Returns the address on the VXLAN of the node that is reached at `underlay`, as upstream: the first octet is 240.
#[must_use]
pub fn vtep(underlay: Ipv4Addr) -> Ipv4Addr {
    let [_, b, c, d] = underlay.octets();
    Ipv4Addr::new(240, b, c, d)
}

/// Returns the next hop on the VXLAN to the node that is reached at `underlay`, for packets of a family; `None` for
/// IPv4 where nodes have IPv6 addresses only.
#[must_use]
pub fn next_hop(underlay: IpAddr, is_ipv6: bool) -> Option<IpAddr> {
    match (underlay, is_ipv6) {
        (_, true) => Some(Mac::of_node(underlay).link_local().into()),
        (IpAddr::V4(address), false) => Some(vtep(address).into()),
        (IpAddr::V6(_), false) => None,
    }
}

/// A forwarding entry: frames for this MAC address go to that node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forward {
    /// The MAC address; [`Mac::ANY`] for all others.
    pub mac: Mac,
    /// The node's address.
    pub to: IpAddr,
}

/// The device and everything on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vxlan {
    /// This node's address, the source of what the device sends.
    pub local: IpAddr,
    /// Bytes of IP packet.
    pub mtu: u32,
    /// Forwarding entries.
    pub forwards: BTreeSet<Forward>,
    /// Neighbours that are known without asking.
    pub neighbours: BTreeMap<IpAddr, Mac>,
}

impl Vxlan {
    /// Returns the device of a node with the address `local`, over a device of that MTU, without any peer.
    #[must_use]
    pub fn new(local: IpAddr, underlay_mtu: u32) -> Self {
        let overhead = if local.is_ipv4() { OVERHEAD_V4 } else { OVERHEAD_V6 };
        let mtu = underlay_mtu.saturating_sub(overhead);
        Self { local, mtu, forwards: BTreeSet::new(), neighbours: BTreeMap::new() }
    }

    /// Adds a node that frames for all unknown MAC addresses go to, and that packets are sent to.
    pub fn add_peer(&mut self, underlay: IpAddr) {
        self.add_known(underlay);
        self.forwards.insert(Forward { mac: Mac::ANY, to: underlay });
    }

    /// Adds a node that packets are sent to if its MAC address is as ours are.
    pub fn add_known(&mut self, underlay: IpAddr) {
        let mac = Mac::of_node(underlay);
        self.forwards.insert(Forward { mac, to: underlay });
        self.neighbours.insert(mac.link_local().into(), mac);
    }

    /// Returns the device's MAC address.
    #[must_use]
    pub fn mac(&self) -> Mac {
        Mac::of_node(self.local)
    }

    /// Returns the device's own IPv4 address; `None` where nodes have IPv6 addresses only.
    #[must_use]
    pub fn address(&self) -> Option<IpNet> {
        match self.local {
            IpAddr::V4(local) => Ipv4Net::new(vtep(local), 8).ok().map(IpNet::V4),
            IpAddr::V6(_) => None,
        }
    }
}

/// A change of the device between nodes or of what is on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VxlanChange {
    /// Creates the device, without peers.
    Make(Vxlan),
    /// Makes upstream's device ours: its own address, no peer and no learning. Nothing that leads there is lost.
    Convert(Vxlan),
    /// Sets its MTU and MAC address, sets it up, and tells all nodes the MAC address by gratuitous ARP.
    Adjust(Vxlan),
    /// Removes it.
    Remove,
    /// Adds an address to it.
    AddAddress(IpNet),
    /// Removes an address from it.
    RemoveAddress(IpNet),
    /// Adds a forwarding entry to it.
    AddForward(Forward),
    /// Removes a forwarding entry from it.
    RemoveForward(Forward),
    /// Writes a permanent neighbour on it.
    SetNeighbour(IpAddr, Mac),
    /// Removes a permanent neighbour from it.
    RemoveNeighbour(IpAddr),
}

impl fmt::Display for VxlanChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Make(vxlan) => write!(f, "make {VX_DEVICE} local {}", vxlan.local),
            Self::Adjust(vxlan) => {
                write!(f, "set {VX_DEVICE} mtu {} address {} up", vxlan.mtu, vxlan.mac())
            }
            Self::Convert(vxlan) => write!(f, "set {VX_DEVICE} local {}, without peers", vxlan.local),
            Self::Remove => write!(f, "remove {VX_DEVICE}"),
            Self::AddAddress(address) => write!(f, "add address {address} to {VX_DEVICE}"),
            Self::RemoveAddress(address) => write!(f, "remove address {address} from {VX_DEVICE}"),
            Self::AddForward(entry) => write!(f, "add {VX_DEVICE} entry {} to {}", entry.mac, entry.to),
            Self::RemoveForward(entry) => write!(f, "remove {VX_DEVICE} entry {} to {}", entry.mac, entry.to),
            Self::SetNeighbour(address, mac) => write!(f, "set {VX_DEVICE} neighbour {address} at {mac}"),
            Self::RemoveNeighbour(address) => write!(f, "remove {VX_DEVICE} neighbour {address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_address_on_the_vxlan_is_upstreams() {
        assert_eq!(vtep(Ipv4Addr::new(172, 31, 1, 11)), Ipv4Addr::new(240, 31, 1, 11));
        let vxlan = Vxlan::new("172.31.1.11".parse().unwrap(), 1500);
        assert_eq!(vxlan.address().unwrap().to_string(), "240.31.1.11/8");
        assert_eq!(vxlan.mtu, 1450);
    }

    #[test]
    fn mac_addresses_are_unicast_locally_administered_and_differ() {
        let macs: BTreeSet<Mac> = ["172.31.1.11", "10.31.1.11", "fd31::11", "fd31::12"]
            .iter()
            .map(|text| Mac::of_node(text.parse().unwrap()))
            .collect();
        assert_eq!(macs.len(), 4);
        assert!(macs.iter().all(|mac| mac.0[0] & 3 == 2));
    }

    #[test]
    fn link_local_addresses_are_the_ones_that_the_kernel_makes() {
        let mac = Mac::of_node("172.31.1.11".parse().unwrap());
        assert_eq!(mac.to_string(), "02:54:ac:1f:01:0b");
        assert_eq!("02:54:ac:1f:01:0b".parse(), Ok(mac));
        assert_eq!("02:54:ac:1f:01".parse::<Mac>(), Err(InvalidMac));
        assert_eq!(mac.link_local().to_string(), "fe80::54:acff:fe1f:10b");
    }

    #[test]
    fn over_ipv6_the_device_is_smaller_and_carries_ipv6_only() {
        let vxlan = Vxlan::new("fd31::11".parse().unwrap(), 1500);
        assert_eq!((vxlan.mtu, vxlan.address()), (1430, None));
        assert_eq!(next_hop(vxlan.local, false), None);
        assert_eq!(next_hop(vxlan.local, true), Some(vxlan.mac().link_local().into()));
    }
}
