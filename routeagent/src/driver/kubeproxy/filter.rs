//! The sets of the packet filters, and exceptions in other programs' filters.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::intra;
use crate::admit::Admission;
use crate::condition::Condition;
use crate::constants::{DEFAULT_CABLE_PORT, DEFAULT_NATT_PORT, TABLE_DELIVERY, VX_DEVICE, VX_PORT};
use crate::driver::Desired;
use crate::family::Family;
use crate::hostnet::{Delivery, Guard, Pass};
use crate::state::{ClusterState, Endpoint};
use crate::vxlan::{Mac, OVERHEAD_V4};

/// Upstream's fixed allowance for the headers of IPsec and WireGuard, bytes.
const CABLE_OVERHEAD: u32 = 120;
/// Bytes of the IPv4 and TCP headers.
const TCP_IPV4: u32 = 20 + 20;

/// Adds the packet filter, and what other programs' filters have to let through.
pub(super) fn add(
    desired: &mut Desired,
    state: &ClusterState,
    admission: &Admission,
    gateways: &BTreeSet<IpAddr>,
) {
    let own = state.own_endpoint();
    let delivery = match (own, state.tun(), intra::plugin_delivers_here(state)) {
        (Some(_), None, _) => Delivery::Ipsec,
        (None, _, Some(why)) => {
            desired.conditions.insert(Condition::PluginDelivers { why });
            Delivery::Plugin
        }
        _ => Delivery::Inlets,
    };
    let ports = own.map_or((DEFAULT_CABLE_PORT, DEFAULT_NATT_PORT), |own| (own.cable_port, own.natt_port));
    let has_vxlan = desired.hostnet.vxlan.is_some();
    let notices = own.filter(|_| has_vxlan && state.has_notices());
    let notices = notices.map(|_| state.node.notice_port).filter(|port| *port != 0);
    let vxlan: BTreeSet<u16> = has_vxlan.then_some(VX_PORT).into_iter().chain(notices).collect();
    let (onward, behind) = (onward(state, admission), behind(state, desired));
    desired.hostnet.guard = Some(Guard {
        inlets: state.tun().into_iter().chain([VX_DEVICE, "lo"]).map(str::to_owned).collect(),
        uplinks: if intra::plugin_takes_none(state) { state.uplinks() } else { BTreeSet::new() },
        remote: disjoint(admission.remote()),
        local: disjoint(state.local_networks().chain(own_cluster(state).flat_map(|e| &e.subnets))),
        node: disjoint(&admission.carved),
        gateways: gateways.clone(),
        ports: [ports.0, ports.1].into_iter().filter(|port| *port != 0).collect(),
        vxlan: vxlan.clone(),
        onward,
        behind,
        siblings: siblings(state, own),
        nodes: if has_vxlan { nodes(state) } else { BTreeSet::new() },
        sources: Family::ALL.iter().filter_map(|family| state.source_address(*family)).collect(),
        clamp: clamp(state),
        delivery,
        loosened: std::collections::BTreeMap::new(),
    });
    let gateways_device = own.and_then(|_| state.tun());
    let devices: BTreeSet<String> =
        gateways_device.into_iter().chain(has_vxlan.then_some(VX_DEVICE)).map(str::to_owned).collect();
    desired.hostnet.pass = Pass { outward: devices.clone(), inward: devices, ports: vxlan };
}

fn own_cluster(state: &ClusterState) -> impl Iterator<Item = &Endpoint> {
    state.endpoints.iter().filter(|e| e.cluster == state.node.cluster).chain(&state.members)
}

/// Returns where packets go that only pass through this node, where it is one of several gateways: to remote clusters.
pub(super) fn onward(state: &ClusterState, admission: &Admission) -> BTreeSet<IpNet> {
    if passes(state) { disjoint(admission.routed()) } else { BTreeSet::new() }
}

/// Returns where else they go: to other nodes' pods.
fn behind(state: &ClusterState, desired: &Desired) -> BTreeSet<IpNet> {
    let delivered = desired.hostnet.routes.iter().filter(|route| route.table == TABLE_DELIVERY);
    if passes(state) { disjoint(delivered.map(|route| &route.destination)) } else { BTreeSet::new() }
}

fn passes(state: &ClusterState) -> bool {
    state.has_several_gateways() && state.own_endpoint().is_some()
}

/// Returns how the other gateways send over the VXLAN between nodes, where this node is one.
fn siblings(state: &ClusterState, own: Option<&Endpoint>) -> BTreeSet<Mac> {
    let others = own.into_iter().flat_map(|_| intra::other_gateways(state));
    others.filter_map(Endpoint::private_address).map(Mac::of_node).collect()
}

/// Returns who may send over the VXLAN between nodes.
fn nodes(state: &ClusterState) -> BTreeSet<IpAddr> {
    let registered = state.nodes.iter().flat_map(|node| &node.addresses).copied();
    registered.chain(own_cluster(state).filter_map(Endpoint::private_address)).collect()
}

/// Returns the fixed size of TCP segments over IPv4: what the node's annotation says, else, where global addresses
/// hide the real path from the kernel, upstream's allowance, and the headers that it omits.
fn clamp(state: &ClusterState) -> Option<u16> {
    let annotated = state.own_node().and_then(|node| node.clamp_mss);
    let computed = || {
        let is_vxlan = state.any_gateway().is_some_and(|active| active.backends().any(|one| one == "vxlan"));
        let overhead = if is_vxlan { OVERHEAD_V4 } else { CABLE_OVERHEAD };
        u16::try_from(state.underlay_mtu().saturating_sub(overhead + TCP_IPV4)).ok()
    };
    annotated.or_else(|| state.node.has_globalnet.then(computed).flatten())
}

/// Merges networks, because an interval set refuses overlapping ones.
pub(super) fn disjoint<'a>(networks: impl IntoIterator<Item = &'a IpNet>) -> BTreeSet<IpNet> {
    IpNet::aggregate(&networks.into_iter().copied().collect()).into_iter().collect()
}
