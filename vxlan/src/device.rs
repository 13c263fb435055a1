//! The kernel's device between a cluster's nodes: what it, its forwarding entries and neighbours should be.
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
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use crate::address::{OVERHEAD_V4, OVERHEAD_V6, VTEP_NODES, vtep};
use crate::mac::Mac;

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
    /// Neighbours that nobody asks for.
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
            IpAddr::V4(local) => Ipv4Net::new(vtep(VTEP_NODES, local), 8).ok().map(IpNet::V4),
            IpAddr::V6(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::next_hop;

    #[test]
    fn a_nodes_address_on_the_vxlan_is_upstreams() {
        let vxlan = Vxlan::new("172.31.1.11".parse().unwrap(), 1500);
        assert_eq!(vxlan.address().unwrap().to_string(), "240.31.1.11/8");
        assert_eq!(vxlan.mtu, 1450);
    }

    #[test]
    fn over_ipv6_the_device_is_smaller_and_carries_ipv6_only() {
        let vxlan = Vxlan::new("fd31::11".parse().unwrap(), 1500);
        assert_eq!((vxlan.mtu, vxlan.address()), (1430, None));
        assert_eq!(next_hop(vxlan.local, false), None);
        assert_eq!(next_hop(vxlan.local, true), Some(vxlan.mac().link_local().into()));
    }

    #[test]
    fn a_peer_has_entries_for_its_own_address_and_for_all_others() {
        let mut vxlan = Vxlan::new("172.31.1.11".parse().unwrap(), 1500);
        let [peer, other]: [IpAddr; 2] = ["172.31.1.12", "172.31.1.13"].map(|text| text.parse().unwrap());
        vxlan.add_peer(peer);
        vxlan.add_known(other);
        let entry = |mac, to| Forward { mac, to };
        let (of_peer, of_other) = (Mac::of_node(peer), Mac::of_node(other));
        let entries = [entry(of_peer, peer), entry(Mac::ANY, peer), entry(of_other, other)];
        assert_eq!(vxlan.forwards, entries.into());
        let neighbours = [of_peer, of_other].map(|mac| (IpAddr::from(mac.link_local()), mac));
        assert_eq!(vxlan.neighbours, neighbours.into());
    }
}
