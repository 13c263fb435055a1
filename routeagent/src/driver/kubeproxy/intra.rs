//! The device between the cluster's nodes, and who is reached over it.

use std::net::IpAddr;

use ipnet::IpNet;
use trieste_control::requirements::{Deliverer, promise};
use trieste_vxlan::Vxlan;

use crate::admit::Admission;
use crate::condition::Condition;
use crate::constants::VX_DEVICE;
use crate::driver::Desired;
use crate::family::Family;
use crate::hostnet::Sysctl;
use crate::state::{ClusterNode, ClusterState, Endpoint};

/// Adds the device where there is a node to reach by it.
pub(super) fn add(desired: &mut Desired, state: &ClusterState, admission: &Admission) {
    let gateways: Vec<IpAddr> = match state.own_endpoint() {
        None if misnamed(state).is_some() => Vec::new(),
        _ => other_gateways(state).filter_map(Endpoint::private_address).collect(),
    };
    if gateways.is_empty() && state.other_nodes().next().is_none() {
        return;
    }
    let Some(local) = state.underlay_address() else {
        desired.conditions.insert(Condition::NoUnderlay);
        return;
    };
    let mut vxlan = Vxlan::new(local, state.underlay_mtu());
    let is_reachable =
        |address: &IpAddr| Family::of(*address) == Family::of(local) && !state.is_own_address(*address);
    for peer in gateways.into_iter().filter(is_reachable) {
        vxlan.add_peer(peer);
    }
    if state.own_endpoint().is_some() {
        for peer in state.other_nodes().filter_map(|node| address(state, node)) {
            vxlan.add_peer(peer);
        }
    }
    // Former and coming gateways: what they ask and send is answered without asking everybody.
    let own_cluster = state.endpoints.iter().filter(|e| e.cluster == state.node.cluster);
    for known in own_cluster.filter_map(Endpoint::private_address).filter(is_reachable) {
        vxlan.add_known(known);
    }
    let has_ipv6 = admission.remote().any(|net| Family::of_net(net) == Family::V6);
    if !has_ipv6 {
        vxlan.neighbours.clear();
    }
    desired.hostnet.sysctls.extend(settings(has_ipv6));
    desired.hostnet.vxlan = Some(vxlan);
}

/// Returns the gateways of this cluster on other nodes.
pub(super) fn other_gateways(state: &ClusterState) -> impl Iterator<Item = &Endpoint> {
    let own = state.own_endpoint().map(Endpoint::key);
    state.gateways().into_iter().filter(move |gateway| Some(gateway.key()) != own)
}

/// Returns an active gateway's Endpoint if it has this node's address, but not its name.
pub(super) fn misnamed(state: &ClusterState) -> Option<&Endpoint> {
    let is_here = |active: &&Endpoint| active.private_address().is_some_and(|own| state.is_own_address(own));
    let others = state.gateways().into_iter().filter(|active| active.hostname != state.node.hostname);
    others.filter(|_| state.own_endpoint().is_none()).find(is_here)
}

/// Returns the device's settings.
fn settings(has_ipv6: bool) -> Vec<(Sysctl, u32)> {
    let mut settings = vec![
        (Sysctl::of(Family::V4, VX_DEVICE, "forwarding"), 1),
        // Loose: the way back to a pod on another node is the network plugin's, not this device.
        (Sysctl::of(Family::V4, VX_DEVICE, "rp_filter"), 2),
        // Without use for it, IPv6 only sends solicitations to every peer.
        (Sysctl::of(Family::V6, VX_DEVICE, "disable_ipv6"), u32::from(!has_ipv6)),
    ];
    if has_ipv6 {
        settings.push((Sysctl::of(Family::V6, VX_DEVICE, "forwarding"), 1));
    }
    settings
}

/// Returns the address at which a node is reached from this one.
pub(super) fn address(state: &ClusterState, node: &ClusterNode) -> Option<IpAddr> {
    let family = state.underlay_address().map(Family::of)?;
    node.addresses.iter().copied().find(|address| Family::of(*address) == family)
}

/// Returns a node's pod networks, as far as they are the cluster's.
pub(super) fn pod_networks<'a>(
    state: &'a ClusterState,
    node: &'a ClusterNode,
) -> impl Iterator<Item = &'a IpNet> {
    let clusters = &state.node.pod_networks;
    node.pod_networks.iter().filter(|net| clusters.iter().any(|all| all.contains(*net)))
}

/// Returns why the network plugin delivers packets of remote clusters to the pods of this cluster's nodes; `None` if it does not.
pub(super) fn plugin_delivers(state: &ClusterState) -> Option<&'static str> {
    let active = state.any_gateway();
    if active.is_some_and(|active| active.device(&state.node.tun).is_none()) {
        return Some("the active gateway is upstream's with IPsec, which has no device");
    }
    (promise(&state.node.plugin).delivery == Deliverer::Plugin)
        .then_some("it gives pods addresses that Kubernetes does not assign by node")
}

/// Returns why the network plugin delivers packets of remote clusters to this node's pods; `None` if it does not.
pub(super) fn plugin_delivers_here(state: &ClusterState) -> Option<&'static str> {
    if state.own_endpoint().is_some() {
        return None;
    }
    let is_unknown = !state.nodes.is_empty() && !state.own_node().is_some_and(|own| is_known(state, own));
    let by_others = "the gateway's node still has another route agent than Trieste's, which does not send to the other nodes itself";
    plugin_delivers(state)
        .or_else(|| state.is_agent_foreign.then_some(by_others))
        .or_else(|| is_unknown.then_some("this node's pod network is not known"))
}

/// Returns `true` if nothing of a remote cluster is left to the network plugin here: neither what is for this node's pods, nor,
/// on the gateway node, what is for those of others.
pub(super) fn plugin_takes_none(state: &ClusterState) -> bool {
    match state.own_endpoint() {
        None => plugin_delivers_here(state).is_none(),
        Some(_) => plugin_delivers(state).is_none() && state.other_nodes().all(|node| is_known(state, node)),
    }
}

fn is_known(state: &ClusterState, node: &ClusterNode) -> bool {
    pod_networks(state, node).next().is_some()
}
