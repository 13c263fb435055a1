//! Which clusters' networks are reached by all gateways of this cluster, and by which next hops.

use std::collections::BTreeMap;
use std::net::IpAddr;

use trieste_control::notice::GatewayKey;

use super::{intra, source};
use crate::admit::{Accepted, Admission};
use crate::driver::Desired;
use crate::hostnet::{Family, Hop, VX_DEVICE};
use crate::nexthops::{Role, Spread, group_id};
use crate::state::{ClusterState, Endpoint};
use crate::vxlan::next_hop;

/// Adds next hops and groups, where this cluster has several gateways and the kernel knows groups. Of a family of which no
/// remote network is accepted there are none: the devices may have it turned off, and take none.
pub(super) fn add(desired: &mut Desired, state: &ClusterState, admission: &Admission) {
    if !state.has_several_gateways() || !state.has_nexthops || desired.hostnet.vxlan.is_none() {
        return;
    }
    let mut spread = Spread::default();
    let is_used = |family: &Family| admission.accepted.keys().any(|net| Family::of_net(net) == *family);
    for family in Family::ALL.into_iter().filter(is_used) {
        spread.add_others(family, &vias(state, family));
        if let Some((own, tun)) = state.own_endpoint().zip(state.tun()) {
            spread.add_own(family, own.key(), tun);
        }
    }
    desired.hostnet.groups = spread.groups(&state.live());
    desired.hostnet.spread = spread;
}

/// Returns `true` if a network is reached by all gateways, where this cluster has several: its cluster takes packets by any of
/// them, or is our own.
pub(super) fn is_for_all(state: &ClusterState, admission: &Admission, accepted: &Accepted) -> bool {
    accepted.cluster == state.node.cluster || admission.multipath.contains(&accepted.cluster)
}

/// Returns the way to the other gateways: the group of those that live, or the first of them where there are no groups.
pub(super) fn way_to_others(
    desired: &Desired,
    state: &ClusterState,
    role: Role,
    family: Family,
) -> Option<Hop> {
    let (id, source) = (group_id(role, family), source(state, family));
    if desired.hostnet.groups.contains_key(&id) {
        return Some(Hop::Group { id, source });
    }
    let vias = vias(state, family);
    let live = state.live();
    let first = vias.iter().find(|(key, _)| live.contains(key)).or_else(|| vias.iter().next());
    first.map(|(_, via)| Hop::Via { name: VX_DEVICE.to_owned(), via: *via, source })
}

/// Returns the other gateways' next hops.
fn vias(state: &ClusterState, family: Family) -> BTreeMap<GatewayKey, IpAddr> {
    let others = intra::other_gateways(state);
    let via = |gateway: &Endpoint| {
        Some((gateway.key(), next_hop(gateway.private_address()?, family == Family::V6)?))
    };
    others.filter_map(via).collect()
}

#[cfg(test)]
mod tests;
