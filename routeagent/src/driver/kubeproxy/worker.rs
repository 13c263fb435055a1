//! The part of nodes without an active gateway: routes to the active gateways' nodes.

use std::collections::BTreeMap;

use trieste_vxlan::next_hop;

use super::{intra, nexthop_groups};
use crate::admit::Admission;
use crate::condition::Condition;
use crate::constants::{TABLE_MAIN, VX_DEVICE};
use crate::driver::Desired;
use crate::driver::outlet::path_mtu;
use crate::family::Family;
use crate::hostnet::{Hop, Route};
use crate::nexthops::Role;
use crate::state::{ClusterState, Endpoint};

/// Adds a route for every network that a gateway of its cluster offers, before the one that refuses it.
pub(super) fn add(desired: &mut Desired, state: &ClusterState, admission: &Admission) {
    if let Some(other) = intra::misnamed(state) {
        let (endpoint, node) = (other.hostname.clone(), state.node.hostname.clone());
        desired.conditions.insert(Condition::OtherName { endpoint, node });
        return;
    }
    let (routes, condition) = routes(desired, state, admission);
    desired.hostnet.routes.extend(routes);
    desired.conditions.extend(condition);
}

/// Returns the routes to remote networks, once it is decided which groups of next hops there are, and why there are none.
pub(super) fn routes(
    desired: &Desired,
    state: &ClusterState,
    admission: &Admission,
) -> (Vec<Route>, Option<Condition>) {
    let (mut routes, mut condition) = (Vec::new(), None);
    let vxlan = desired.hostnet.vxlan.as_ref().filter(|_| intra::misnamed(state).is_none());
    let Some(is_ipv6_only) = vxlan.map(|vxlan| vxlan.local.is_ipv6()) else {
        return (routes, condition);
    };
    let (mtu, has_several) = (path_mtu(state), state.has_several_gateways());
    // Very many networks share few hops.
    let mut hops: BTreeMap<(bool, Family), Option<Hop>> = BTreeMap::new();
    for (network, accepted) in admission.accepted.iter().filter(|(_, accepted)| accepted.has_gateway) {
        let family = Family::of_net(network);
        let is_for_all = has_several && nexthop_groups::is_for_all(state, admission, accepted);
        let hop = hops.entry((is_for_all, family)).or_insert_with(|| match is_for_all {
            true => nexthop_groups::hop_to_others(desired, state, Role::Others, family),
            false => hop_to_leader(state, family),
        });
        match hop.clone() {
            Some(hop) => routes.push(Route::leading(TABLE_MAIN, *network, hop).with_mtu(mtu)),
            // Without a gateway there is no hop; the `unreachable` route refuses the packets.
            None if is_ipv6_only && family == Family::V4 && !state.gateways().is_empty() => {
                condition = Some(Condition::NoIpv4BetweenNodes);
            }
            None => {}
        }
    }
    (routes, condition)
}

/// Returns the hop to the leader, the only gateway that upstream's members use.
pub(super) fn hop_to_leader(state: &ClusterState, family: Family) -> Option<Hop> {
    let leader = state.active_endpoint().and_then(Endpoint::private_address)?;
    let via = next_hop(leader, family == Family::V6)?;
    Some(Hop::Via { name: VX_DEVICE.to_owned(), via, source: state.source_address(family) })
}
