//! Where stations are: addresses on both overlays, and what frames add to a packet.

use std::net::{IpAddr, Ipv4Addr};

use crate::mac::Mac;

/// First octet of an address on the VXLAN between a cluster's nodes, as upstream.
pub const VTEP_NODES: u8 = 240;
/// First octet of an address on the VXLAN between gateways of clusters, as upstream.
pub const VTEP_GATEWAYS: u8 = 241;
/// Addresses of the VXLAN between a cluster's nodes; never a remote subnet.
pub const VX_PREFIX: &str = "240.0.0.0/8";
/// UDP port of the VXLAN between a cluster's nodes, as upstream.
pub const VX_PORT: u16 = 4800;

/// Bytes that VXLAN adds to a packet over IPv4: the inner Ethernet header, VXLAN, UDP, IPv4.
pub const OVERHEAD_V4: u32 = 14 + 8 + 8 + 20;
/// Bytes that VXLAN adds to a packet over IPv6.
pub const OVERHEAD_V6: u32 = OVERHEAD_V4 + 20;

/// Returns the VTEP address of the gateway or node at `underlay`: its own with another first octet, [`VTEP_NODES`] or
/// [`VTEP_GATEWAYS`].
#[must_use]
pub const fn vtep(first: u8, underlay: Ipv4Addr) -> Ipv4Addr {
    let [_, b, c, d] = underlay.octets();
    Ipv4Addr::new(first, b, c, d)
}

/// Returns the next hop on the VXLAN between nodes to the one that is reached at `underlay`, for packets of a family; `None` for
/// IPv4 where nodes have IPv6 addresses only.
#[must_use]
pub fn next_hop(underlay: IpAddr, is_ipv6: bool) -> Option<IpAddr> {
    match (underlay, is_ipv6) {
        (_, true) => Some(Mac::of_node(underlay).link_local().into()),
        (IpAddr::V4(address), false) => Some(vtep(VTEP_NODES, address).into()),
        (IpAddr::V6(_), false) => None,
    }
}

#[cfg(test)]
mod tests {
    use ipnet::Ipv4Net;

    use super::*;

    #[test]
    fn addresses_are_derived_from_the_node() {
        let node = Ipv4Addr::new(172, 18, 0, 5);
        assert_eq!(vtep(VTEP_GATEWAYS, node), Ipv4Addr::new(241, 18, 0, 5));
        assert_eq!(vtep(VTEP_NODES, node), Ipv4Addr::new(240, 18, 0, 5));
        let network: Ipv4Net = VX_PREFIX.parse().unwrap();
        assert_eq!(network, Ipv4Net::new(Ipv4Addr::new(VTEP_NODES, 0, 0, 0), 8).unwrap());
    }

    #[test]
    fn next_hops_are_vtep_addresses_or_link_local_ones() {
        let (v4, v6): (IpAddr, IpAddr) = ("172.31.1.11".parse().unwrap(), "fd31::11".parse().unwrap());
        assert_eq!(next_hop(v4, false), "240.31.1.11".parse().ok());
        assert_eq!(next_hop(v4, true), "fe80::54:acff:fe1f:10b".parse().ok());
        assert_eq!(next_hop(v6, false), None);
        assert_eq!(next_hop(v6, true), "fe80::444:daff:fead:440".parse().ok());
    }
}
