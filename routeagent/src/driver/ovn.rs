//! The driver for OVN-Kubernetes: OVN brings pods' packets for remote clusters to the gateway's node and packets from there to
//! pods and services, through each node's management port.
//!
//! ```text
//!   pod ─▶ ovn_cluster_router ─(policies: trieste-plugin-sync)─▶ ovn-k8s-mp0 of the gateway's node ─▶ table 150 ─▶ TUN
//!   TUN ─▶ table 149 ─▶ ovn-k8s-mp0 ─▶ OVN: load balancer or pod, on whatever node
//!   another node's own packets ─▶ table 150 ─▶ ovn-k8s-mp0 ─▶ OVN ─▶ as a pod's
//! ```
//!
//! Or, with the original proposal's topology, through an external bridge of the gateway's node (`external.rs`).
//!
//! Nothing goes over `vx-submariner`. Every node has the table 150 for remote networks, as upstream's have with this plugin: in
//! the main table routes to the management port are OVN-Kubernetes' own. What is for a remote cluster leaves a gateway by the
//! TUN alone and other nodes by the management port alone; both refuse it otherwise. On a gateway the table leads to the TUN
//! and never to OVN, so that a pod's packet is not sent back: upstream's, whose default route leads there, is saved by IPsec's
//! policies, which come before routing. A pod's packets need not pass a node's own routes at all: OVN itself drops what is for
//! a closed network (`trieste-ovn`).

mod address;
mod external;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::memory::{Parts, Remembered, Routes};
use super::outlet::{self, hop_out, path_mtu, with_mtu};
use super::refusals::{close_bridges, fail_closed, gateways_inside};
use super::{Desired, Driver, Memory, Plugins, filter};
use crate::admit::{Admission, admit};
use crate::condition::Condition;
use crate::constants::{MANAGEMENT_PORT, TABLE_DELIVERY};
use crate::family::Family;
use crate::hostnet::{Delivery, Guard, Hop, Pass, Route, Rule};
use crate::state::{ClusterState, DeviceAddress, Endpoint};
use crate::zone::Hops;
use address::address_of;

/// What a change of remote clusters concerns.
const PARTS: Parts = Parts { routes, has_table: |_| true, onward: |_, _| BTreeSet::new(), hops };

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ovn;

impl Driver for Ovn {
    fn name(&self) -> &'static str {
        "ovn-kubernetes"
    }

    fn plugins(&self) -> Plugins {
        Plugins::Named(&["OVNKubernetes"])
    }

    fn device_to_gateway(&self) -> &'static str {
        MANAGEMENT_PORT
    }

    fn lookups(&self, state: &ClusterState) -> BTreeSet<IpAddr> {
        state.node.pod_networks.iter().map(far_address).collect()
    }

    fn desired(&self, state: &ClusterState) -> Desired {
        let admission = admit(state);
        let gateways = gateways_inside(state, &admission);
        let mut desired = Desired { conditions: admission.refused.clone(), ..Desired::default() };
        let own = state.own_endpoint();
        fail_closed(&mut desired.hostnet, &admission, true, &gateways);
        close_bridges(&mut desired.hostnet, state);
        outlet::add_table(&mut desired, &admission);
        if let Some(own) = own {
            outlet::add(&mut desired, state, own, &admission);
            deliver(&mut desired, state);
        }
        let (routes, condition) = routes(&desired, state, &admission);
        desired.hostnet.routes.extend(routes);
        desired.conditions.extend(condition);
        desired.conditions.extend(missing_ports(state, &admission));
        // OVN sends a remote network's packets to one next hop.
        if state.has_several_gateways() {
            desired.conditions.insert(Condition::OneGatewayOnly { driver: self.name() });
        }
        filter(&mut desired, state, &admission, &gateways);
        desired
    }

    fn remember(&self, state: ClusterState, desired: Desired) -> Box<dyn Memory> {
        Box::new(Remembered::new(PARTS, state, desired))
    }
}

/// Returns the routes to remote networks: out of the gateway's device, or to OVN.
fn routes(_: &Desired, state: &ClusterState, admission: &Admission) -> Routes {
    let own = state.own_endpoint();
    let has_gateway = state.any_gateway().is_some();
    // Very many networks share few hops, except where the kernel's IPsec picks packets up.
    let mut cache: BTreeMap<Family, Option<Hop>> = BTreeMap::new();
    let mtu = path_mtu(state);
    let mut routes = Vec::new();
    for network in admission.routed() {
        let family = Family::of_net(network);
        let route = match own {
            Some(own) => {
                let hop = || hop_out(state, own, network);
                let hop = match state.tun() {
                    Some(_) => cache.entry(family).or_insert_with(hop).clone(),
                    None => hop(),
                };
                hop.map(|hop| with_mtu(mtu, *network, hop))
            }
            None => {
                let hop = cache.entry(family).or_insert_with(|| to_ovn(state, family)).clone();
                let hop = hop.filter(|_| has_gateway);
                hop.map(|hop| Route::gateway(*network, hop).with_mtu(port_mtu(state, mtu)))
            }
        };
        routes.extend(route);
    }
    (routes, None)
}

/// Adds the routes by which what comes from remote clusters enters OVN: to pods, and to services, which OVN translates. The
/// main table has one to services as well, which leads to the node's external bridge and makes this node the source.
fn deliver(desired: &mut Desired, state: &ClusterState) {
    let Some(tun) = state.tun() else { return };
    let bridge = external::bridge(state);
    let mtu = bridge.and_then(|bridge| external::mtu(state, bridge));
    let mut families = BTreeSet::new();
    // The cluster's other networks are reached by the underlay.
    for network in state.node.pod_networks.iter().chain(&state.node.service_networks) {
        let family = Family::of_net(network);
        let Some(via) = entrance(state, family) else { continue };
        let hop = Hop::Via { name: bridge.unwrap_or(MANAGEMENT_PORT).to_owned(), via, source: None };
        desired.hostnet.routes.insert(Route::leading(TABLE_DELIVERY, *network, hop).with_mtu(mtu));
        families.insert(family);
    }
    desired.hostnet.rules.extend(families.into_iter().map(|family| Rule::delivery(family, tun)));
}

/// Returns the next hop by which this node's packets enter OVN, out of the external bridge or the management port.
fn entrance(state: &ClusterState, family: Family) -> Option<IpAddr> {
    match external::bridge(state) {
        Some(bridge) => external::router(state, bridge, family),
        None => next_hop(state, family),
    }
}

/// Adds the packet filter, and what other programs' filters have to let through.
fn filter(desired: &mut Desired, state: &ClusterState, admission: &Admission, gateways: &BTreeSet<IpAddr>) {
    let own = state.own_endpoint();
    let way = if own.is_some() { state.tun() } else { Some(MANAGEMENT_PORT) };
    let base = filter::guard(state, admission, gateways, way.into_iter().chain(["lo"]));
    let devices: BTreeSet<String> = own.and_then(|_| state.tun()).into_iter().map(str::to_owned).collect();
    let (delivery, clamp) = (delivery(state, own), clamp(state, base.clamp));
    desired.hostnet.guard =
        Some(Guard { tunnels: devices.clone(), uplinks: state.uplinks(), delivery, clamp, ..base });
    desired.hostnet.takeover = filter::takeover(state);
    desired.hostnet.pass = Pass { outward: devices.clone(), inward: devices, ports: BTreeSet::new() };
}

/// Returns the size of segments: where it is computed from the underlay, no more than the management port carries, which with a
/// cable of little overhead is less.
fn clamp(state: &ClusterState, size: Option<u16>) -> Option<u16> {
    let is_annotated = state.own_node().is_some_and(|node| node.clamp_mss.is_some());
    let port = state.mtus.get(MANAGEMENT_PORT).filter(|_| !is_annotated);
    let port = port.and_then(|mtu| u16::try_from(mtu.saturating_sub(filter::TCP_IPV4)).ok());
    size.map(|size| port.map_or(size, |port| port.min(size)))
}

fn delivery(state: &ClusterState, own: Option<&Endpoint>) -> Delivery {
    match (own, state.tun()) {
        (Some(_), None) => Delivery::Ipsec,
        _ => Delivery::Inlets,
    }
}

/// Returns the hop of this node's own packets to its logical switch.
fn to_ovn(state: &ClusterState, family: Family) -> Option<Hop> {
    let via = next_hop(state, family)?;
    Some(Hop::Via { name: MANAGEMENT_PORT.to_owned(), via, source: state.source_address(family) })
}

/// Returns the address of OVN's router on this node's logical switch.
fn next_hop(state: &ClusterState, family: Family) -> Option<IpAddr> {
    let own = port_address(state, family)?.network;
    let far = state.node.pod_networks.iter().filter(|net| Family::of_net(net) == family).map(far_address);
    let resolved = far.filter_map(|address| state.resolved_routes.get(&address));
    let known = resolved.filter(|route| route.device == MANAGEMENT_PORT).find_map(|route| route.via);
    // Where no route names it: the router's port has the first address of each node's network.
    let first = || own.trunc().hosts().find(|address| *address != own.network());
    known.or_else(first).filter(|via| *via != own.addr())
}

/// Returns the management port's address.
#[must_use]
pub fn port_address(state: &ClusterState, family: Family) -> Option<&DeviceAddress> {
    address_of(state, MANAGEMENT_PORT, family)
}

/// Returns a family of remote networks that the management port has no address of, or the external bridge in its place.
fn missing_ports(state: &ClusterState, admission: &Admission) -> Option<Condition> {
    // All that are accepted, as the memory knows of these whether their families have changed.
    let wanted: BTreeSet<Family> = admission.accepted.keys().map(Family::of_net).collect();
    let is_own = |family: &Family| state.node.pod_networks.iter().any(|net| Family::of_net(net) == *family);
    let missing = wanted.into_iter().filter(is_own).find(|family| entrance(state, *family).is_none())?;
    let device = external::bridge(state).unwrap_or(MANAGEMENT_PORT).to_owned();
    Some(Condition::NoManagementPort { device, family: missing })
}

/// Returns how other nodes' pods reach the gateway, where this node has the leading one.
fn hops(state: &ClusterState) -> Option<Hops> {
    let is_here = state.active_endpoint().is_some_and(|leader| leader.hostname == state.node.hostname);
    let own = Family::ALL.iter().filter_map(|family| port_address(state, *family));
    let own = own.map(|address| address.network.addr()).collect();
    let others = state.own_node().map(|node| node.transit_addresses.iter().copied().collect());
    is_here.then(|| Hops { own, others: others.unwrap_or_default() })
}

/// Returns the MTU of a route by the management port, where the way to other clusters carries less than the port.
fn port_mtu(state: &ClusterState, path: Option<u32>) -> Option<u32> {
    let port = state.mtus.get(MANAGEMENT_PORT);
    path.filter(|path| port.is_none_or(|port| path < port))
}

/// Returns a pod address that is hardly this node's, to find the way to all of them by.
fn far_address(network: &IpNet) -> IpAddr {
    match network {
        IpNet::V4(net) if net.prefix_len() < 31 => {
            IpAddr::V4((u32::from(net.broadcast()).saturating_sub(1)).into())
        }
        IpNet::V4(_) | IpNet::V6(_) => network.broadcast(),
    }
}

#[cfg(test)]
mod tests;
