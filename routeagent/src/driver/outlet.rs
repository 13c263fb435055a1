//! Out of a gateway's node into its cables: rules, hops and the settings of its device. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::admit::Admission;
use crate::condition::Condition;
use crate::driver::Desired;
use crate::family::Family;
use crate::hostnet::{Hop, Route, Rule, Sysctl};
use crate::state::{ClusterState, Endpoint};

/// Largest outer headers: 40 bytes of IPv6, 8 of UDP.
const OUTER_OVERHEAD: u32 = 48;
/// Overhead of WireGuard, bytes.
const WIREGUARD_OVERHEAD: u32 = 32;
/// Largest overhead of our ESP, bytes: SPI, sequence number, IV, trailer and ICV.
const ESP_OVERHEAD: u32 = 37;
/// Bytes that the VXLAN cable adds: its header and an Ethernet one. Upstream's device, without an interface's name in its
/// Endpoint, has an MTU of its own.
const VXLAN_OVERHEAD: u32 = 22;

/// Adds the rules of a node that has the table for remote networks, and its exceptions.
pub(super) fn add_table(desired: &mut Desired, admission: &Admission) {
    for family in Family::ALL {
        desired.hostnet.rules.extend([Rule::mark(family), Rule::gateway(family)]);
    }
    for network in &admission.carved {
        desired.hostnet.routes.insert(Route::gateway(*network, Hop::Throw));
    }
}

/// Adds the settings of a gateway's device; the routes lead out by [`hop_out`].
pub(super) fn add(desired: &mut Desired, state: &ClusterState, own: &Endpoint, admission: &Admission) {
    if let Some(tun) = state.tun() {
        desired.hostnet.sysctls.extend(device_settings(state, tun, admission));
    }
    // With globalnet it is a global address, which the gateway translates to one of this node.
    let is_foreign = |address: &IpAddr| !state.node.has_globalnet && !state.is_own_address(*address);
    let unknown = own.health_check.filter(is_foreign);
    desired.conditions.extend(unknown.map(Condition::ForeignHealthCheck));
}

/// Returns this gateway's own hop to a remote network; `None` where upstream's gateway programs that route.
pub(super) fn hop_out(state: &ClusterState, own: &Endpoint, network: &IpNet) -> Option<Hop> {
    let source = state.source_address(Family::of_net(network));
    match state.tun() {
        // Upstream's VXLAN cable: table 100, which the kernel consults before ours.
        Some(_) if own.backend == "vxlan" && own.interface.is_none() => None,
        Some(tun) => Some(Hop::Device { name: tun.to_owned(), source }),
        None => hop_into_ipsec(state, network, source),
    }
}

/// Returns the hop of packets that IPsec in the kernel picks up: out of the default route's device, or, where the remote
/// gateway's address is inside the network, the hop to that address (upstream's #1106).
fn hop_into_ipsec(state: &ClusterState, network: &IpNet, source: Option<IpAddr>) -> Option<Hop> {
    let gateways = state.remote_endpoints().filter(|e| e.subnets.contains(network));
    let inside = gateways.filter_map(|e| e.addresses.last()).find(|address| network.contains(*address));
    let route = match inside {
        Some(address) => state.resolved_routes.get(address),
        None => state.default_route(Family::of_net(network)),
    }?;
    let name = route.device.clone();
    Some(match route.via.filter(|via| inside.is_some() && Family::of(*via) == Family::of_net(network)) {
        Some(via) => Hop::Via { name, via, source },
        None => Hop::Device { name, source },
    })
}

/// Makes a route into the cables. IPv6 routes have the path's MTU: where bridges pass packets to the packet filter, the
/// kernel reassembles fragments without keeping their size, and fragments again by the route's MTU alone. All other packets
/// are left to the gateway, which has each path's MTU.
pub(super) fn with_mtu(mtu: Option<u32>, network: IpNet, hop: Hop) -> Route {
    Route::gateway(network, hop).with_mtu(mtu.filter(|_| Family::of_net(&network) == Family::V6))
}

/// Returns the settings of the TUN device. The gateway writes the first three as well.
fn device_settings(state: &ClusterState, tun: &str, admission: &Admission) -> BTreeMap<Sysctl, u32> {
    let mut settings = BTreeMap::from([
        // Answers made by the gateway carry an address of this node; without it the kernel calls them martians.
        (Sysctl::of(Family::V4, tun, "accept_local"), 1),
        // Off, as the gateway checks sources: on a device without an address even the loose filter drops packets with a
        // source of this node, such as those answers. Loose on a node with strict filters: with several gateways the
        // route back may be by another one.
        (
            Sysctl::of(Family::V4, tun, "rp_filter"),
            if state.is_strict && state.has_several_gateways() { 2 } else { 0 },
        ),
        (Sysctl::of(Family::V4, tun, "forwarding"), 1),
        // A dead gateway leaves the device without carrier: with this the lookup goes on to `unreachable`.
        (Sysctl::of(Family::V4, tun, "ignore_routes_with_linkdown"), 1),
        (Sysctl::of(Family::V6, tun, "ignore_routes_with_linkdown"), 1),
        (Sysctl::of(Family::V6, tun, "forwarding"), 1),
    ]);
    if admission.accepted.keys().any(|net| Family::of_net(net) == Family::V6) {
        // Inherited as 1 where `net.ipv6.conf.default` says so; the device could then carry no IPv6 route.
        settings.insert(Sysctl::of(Family::V6, tun, "disable_ipv6"), 0);
    }
    settings
}

/// Returns the MTU of the way to other clusters as far as it is known here: what the cable leaves of the underlay's. The
/// nodes' underlays are taken to be alike. `None` with other cables, whose overhead varies; upstream's IPsec, which has
/// no device, is one of them.
pub(super) fn path_mtu(state: &ClusterState) -> Option<u32> {
    let active = state.any_gateway()?;
    let overhead_of = |backend| match (backend, &active.interface) {
        ("wireguard", _) => Some(WIREGUARD_OVERHEAD),
        ("libreswan", Some(_)) => Some(ESP_OVERHEAD),
        ("vxlan", Some(_)) => Some(VXLAN_OVERHEAD),
        _ => None,
    };
    let overheads: Option<Vec<_>> = active.backends().map(overhead_of).collect();
    let overhead = overheads?.into_iter().max()?;
    Some(state.underlay_mtu().saturating_sub(OUTER_OVERHEAD + overhead))
}
