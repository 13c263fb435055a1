//! Groups of next hops, and the networks of remote clusters whose routes use them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use trieste_control::notice::GatewayKey;
use trieste_vxlan::next_hop;

use super::intra;
use crate::admit::{Accepted, Admission};
use crate::constants::VX_DEVICE;
use crate::driver::Desired;
use crate::family::Family;
use crate::hostnet::Hop;
use crate::nexthops::{NexthopGroups, Role, group_id};
use crate::state::{ClusterState, Endpoint};

/// Adds next hops and groups, where this cluster has several gateways and the kernel supports groups. A family without
/// accepted remote networks gets none: devices on which it is disabled refuse them.
pub(super) fn add(desired: &mut Desired, state: &ClusterState, admission: &Admission) {
    if !state.has_several_gateways() || !state.has_nexthops || desired.hostnet.vxlan.is_none() {
        return;
    }
    let mut nexthop_groups = NexthopGroups::default();
    let is_used = |family: &Family| admission.accepted.keys().any(|net| Family::of_net(net) == *family);
    for family in Family::ALL.into_iter().filter(is_used) {
        nexthop_groups.add_others(family, &vias(state, family));
        if let Some((own, tun)) = state.own_endpoint().zip(state.tun()) {
            nexthop_groups.add_own(family, own.key(), tun);
        }
    }
    desired.hostnet.groups = nexthop_groups.groups(&state.live());
    desired.hostnet.nexthop_groups = nexthop_groups;
}

/// Returns `true` if any gateway of this cluster may carry packets for a network: its cluster accepts them from each, or is
/// our own.
pub(super) fn is_for_all(state: &ClusterState, admission: &Admission, accepted: &Accepted) -> bool {
    accepted.cluster == state.node.cluster || admission.multipath.contains(&accepted.cluster)
}

/// Returns the hop to the other gateways: the group of the live ones, or the first live one where there are no groups.
pub(super) fn hop_to_others(
    desired: &Desired,
    state: &ClusterState,
    role: Role,
    family: Family,
) -> Option<Hop> {
    let (id, source) = (group_id(role, family), state.source_address(family));
    if desired.hostnet.groups.contains_key(&id) {
        return Some(Hop::Group { id, source });
    }
    let vias = vias(state, family);
    let live = state.live();
    let first = vias.iter().find(|(key, _)| live.contains(key)).or_else(|| vias.iter().next());
    first.map(|(_, via)| Hop::Via { name: VX_DEVICE.to_owned(), via: *via, source })
}

/// Returns the next hop to each other gateway.
fn vias(state: &ClusterState, family: Family) -> BTreeMap<GatewayKey, IpAddr> {
    let others = intra::other_gateways(state);
    let via = |gateway: &Endpoint| {
        Some((gateway.key(), next_hop(gateway.private_address()?, family == Family::V6)?))
    };
    others.filter_map(via).collect()
}

#[cfg(test)]
mod tests;
