//! Facts about this node: name, addresses, underlay.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use trieste_control::devices::{UPSTREAM_VXLAN_CABLE, VX_DEVICE};

/// MTU assumed where the underlay's cannot be read (Ethernet).
const ETHERNET_MTU: u16 = 1500;

/// Returns the node's host name.
#[must_use]
pub fn hostname() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| "localhost".to_owned())
}

/// Returns the source address that the kernel selects for a well-known address, of each family in turn. Nothing is sent.
#[must_use]
pub fn default_source() -> Option<IpAddr> {
    let targets: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(8, 8, 8, 8).into()),
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888).into()),
    ];
    targets.into_iter().find_map(|(local, target)| {
        let socket = UdpSocket::bind(SocketAddr::new(local, 0)).ok()?;
        socket.connect(SocketAddr::new(target, 53)).ok()?;
        let address = socket.local_addr().ok()?.ip();
        (!address.is_unspecified()).then_some(address)
    })
}

/// An address of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAddress {
    /// The interface.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
}

/// Returns all addresses of interfaces that are up, in the kernel's order, without loopback and link-local ones.
#[must_use]
pub fn addresses() -> Vec<HostAddress> {
    let Ok(list) = getifaddrs() else { return Vec::new() };
    list.filter(|entry| {
        entry.flags.contains(InterfaceFlags::IFF_UP) && !entry.flags.contains(InterfaceFlags::IFF_LOOPBACK)
    })
    .filter_map(|entry| {
        let storage = entry.address?;
        let v4 = storage.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        let address = v4.or_else(|| storage.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))?;
        let is_link_local = match address {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        (!is_link_local).then_some(HostAddress { interface: entry.interface_name, address })
    })
    .collect()
}

/// Returns the first address inside `subnets`, of each family: the target of health checks and the source of ICMP errors.
#[must_use]
pub fn inside(addresses: &[HostAddress], subnets: &[IpNet]) -> Vec<IpAddr> {
    let is_inside = |address: &IpAddr| subnets.iter().any(|subnet| subnet.contains(address));
    let mut found: Vec<IpAddr> = Vec::new();
    for host in addresses {
        if is_inside(&host.address) && found.iter().all(|other| other.is_ipv4() != host.address.is_ipv4()) {
            found.push(host.address);
        }
    }
    found.sort_by_key(IpAddr::is_ipv6);
    found
}

/// Returns the addresses of this node, without those of the gateway's `tun` and of VXLAN devices.
pub fn outside_tunnels<'a>(addresses: &'a [HostAddress], tun: &'a str) -> impl Iterator<Item = IpAddr> + 'a {
    let is_tunnel = move |name: &str| name == tun || [VX_DEVICE, UPSTREAM_VXLAN_CABLE].contains(&name);
    addresses.iter().filter(move |host| !is_tunnel(&host.interface)).map(|host| host.address)
}

/// Returns the MTU of the interface that has `address`, in bytes.
#[must_use]
pub fn underlay_mtu(addresses: &[HostAddress], address: IpAddr) -> u16 {
    let interface = addresses.iter().find(|host| host.address == address).map(|host| host.interface.as_str());
    let mtu = interface.and_then(|name| trieste_io::link::mtu(name).ok());
    mtu.and_then(|mtu| u16::try_from(mtu).ok()).unwrap_or(ETHERNET_MTU)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_address_of_each_family_inside_the_subnets_is_found() {
        let host = |interface: &str, address: &str| HostAddress {
            interface: interface.to_owned(),
            address: address.parse().unwrap(),
        };
        let addresses = [
            host("eth0", "192.0.2.1"),
            host("cni0", "fd01::1"),
            host("cni0", "10.1.0.1"),
            host("cni1", "10.1.0.2"),
        ];
        let subnets = ["10.1.0.0/16".parse().unwrap(), "fd01::/64".parse().unwrap()];
        let expected: Vec<IpAddr> = vec!["10.1.0.1".parse().unwrap(), "fd01::1".parse().unwrap()];
        assert_eq!(inside(&addresses, &subnets), expected);
    }

    #[test]
    fn addresses_of_tunnels_are_not_the_nodes_own() {
        let host = |interface: &str, address: &str| HostAddress {
            interface: interface.to_owned(),
            address: address.parse().unwrap(),
        };
        let addresses =
            [host("vx-submariner", "240.0.2.1"), host("submariner", "10.9.9.9"), host("eth0", "192.0.2.1")];
        let expected: Vec<IpAddr> = vec!["192.0.2.1".parse().unwrap()];
        assert_eq!(outside_tunnels(&addresses, "submariner").collect::<Vec<_>>(), expected);
    }
}
