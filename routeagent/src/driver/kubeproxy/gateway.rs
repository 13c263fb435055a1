//! The part of an active gateway's node: rules, the gateway table, the gateway's device, delivery to other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_vxlan::{VTEP_NODES, next_hop, vtep};

use super::{intra, nexthop_groups, worker};
use crate::admit::Admission;
use crate::condition::Condition;
use crate::constants::{TABLE_DELIVERY, VX_DEVICE};
use crate::driver::Desired;
use crate::driver::outlet::{self, hop_out, path_mtu, with_mtu};
use crate::family::Family;
use crate::hostnet::{Hop, Route, Rule};
use crate::nexthops::{Role, group_id};
use crate::state::{ClusterState, Endpoint};

/// Adds the routes, rules and settings of an active gateway's node.
pub(super) fn add(desired: &mut Desired, state: &ClusterState, own: &Endpoint, admission: &Admission) {
    outlet::add_table(desired, admission);
    outlet::add(desired, state, own, admission);
    let routes = routes(desired, state, own, admission);
    desired.hostnet.routes.extend(routes);
    if let Some(tun) = state.tun() {
        deliver(desired, state, admission, tun);
    }
}

/// Returns the routes to remote networks, once it is decided which groups of next hops there are.
pub(super) fn routes(
    desired: &Desired,
    state: &ClusterState,
    own: &Endpoint,
    admission: &Admission,
) -> Vec<Route> {
    let (mtu, has_several, tun) = (path_mtu(state), state.has_several_gateways(), state.tun());
    // Very many networks share few hops, except where the kernel's IPsec picks packets up.
    let mut cache: BTreeMap<(bool, Family), (Option<Hop>, Option<Hop>)> = BTreeMap::new();
    let mut routes = Vec::new();
    for (network, accepted) in admission.accepted.iter().filter(|(_, accepted)| accepted.has_gateway) {
        let is_for_all = has_several && nexthop_groups::is_for_all(state, admission, accepted);
        let hops = || hops(desired, state, own, (network, is_for_all));
        let (first, second) = match tun {
            Some(_) => cache.entry((is_for_all, Family::of_net(network))).or_insert_with(hops).clone(),
            None => hops(),
        };
        let route = |hop| with_mtu(mtu, *network, hop);
        routes.extend(first.map(route));
        routes.extend(second.map(route).map(Route::as_second));
    }
    routes
}

/// Returns the hop of packets for a remote network, and a second one in case that is down: the other gateways, where the
/// cluster has several. A peer that supports one gateway per cluster is reached by the leader alone.
fn hops(
    desired: &Desired,
    state: &ClusterState,
    own: &Endpoint,
    (network, is_for_all): (&IpNet, bool),
) -> (Option<Hop>, Option<Hop>) {
    let family = Family::of_net(network);
    if !is_for_all {
        let is_leader = state.active_endpoint().is_none_or(|leader| leader.key() == own.key());
        let is_between_nodes = desired.hostnet.vxlan.is_some();
        return match is_leader || !is_between_nodes {
            true => (hop_out(state, own, network), None),
            false => (worker::hop_to_leader(state, family), None),
        };
    }
    let second = desired.hostnet.vxlan.as_ref();
    let second = second.and_then(|_| nexthop_groups::hop_to_others(desired, state, Role::Others, family));
    let group = group_id(Role::First, family);
    let first = match desired.hostnet.groups.contains_key(&group) {
        true => Some(Hop::Group { id: group, source: state.source_address(family) }),
        false => hop_out(state, own, network),
    };
    (first, second)
}

/// Adds routes to the other nodes' pods for packets of remote clusters. They have to enter a node by the device between
/// nodes, since on any other the source guard takes their source for forged.
fn deliver(desired: &mut Desired, state: &ClusterState, admission: &Admission, tun: &str) {
    if intra::plugin_delivers(state).is_some() {
        return;
    }
    // Each address and each network has one owner; this node comes first.
    let is_v4 = |address: IpAddr| {
        if let IpAddr::V4(address) = address { Some(vtep(VTEP_NODES, address)) } else { None }
    };
    let mut vteps: BTreeSet<_> = state.underlay_address().and_then(is_v4).into_iter().collect();
    let own_pods = state.own_node().into_iter().flat_map(|own| intra::pod_networks(state, own));
    let mut pods: BTreeSet<IpNet> = own_pods.copied().collect();
    // No packets come of a family that no remote cluster has, and the device may refuse its routes.
    let expected: BTreeSet<Family> = admission.remote().map(Family::of_net).collect();
    let mut families = BTreeSet::new();
    for node in state.other_nodes() {
        let Some(underlay) = intra::address(state, node) else { continue };
        if let Some(address) = is_v4(underlay).filter(|address| !vteps.insert(*address)) {
            let (node, address) = (node.name.clone(), address.into());
            desired.conditions.insert(Condition::SameVtep { node, address });
            continue;
        }
        for network in intra::pod_networks(state, node) {
            let family = Family::of_net(network);
            if !pods.insert(*network) {
                let (node, network) = (node.name.clone(), *network);
                desired.conditions.insert(Condition::SamePods { node, network });
                continue;
            }
            if !expected.contains(&family) {
                continue;
            }
            let Some(via) = next_hop(underlay, family == Family::V6) else { continue };
            let hop = Hop::Via { name: VX_DEVICE.to_owned(), via, source: None };
            desired.hostnet.routes.insert(Route::leading(TABLE_DELIVERY, *network, hop));
            families.insert(family);
        }
    }
    desired.hostnet.rules.extend(families.into_iter().map(|family| Rule::delivery(family, tun)));
}
