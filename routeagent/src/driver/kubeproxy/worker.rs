//! What only the other nodes have: routes to the active gateway's node.

use super::{intra, source};
use crate::admit::Admission;
use crate::condition::Condition;
use crate::driver::Desired;
use crate::hostnet::{Family, Hop, Route, TABLE_MAIN, VX_DEVICE};
use crate::state::{ClusterState, Endpoint};
use crate::vxlan::next_hop;

/// Adds a route for every network that a gateway of its cluster offers, before the one that refuses it.
pub(super) fn add(desired: &mut Desired, state: &ClusterState, admission: &Admission) {
    if let Some(other) = intra::misnamed(state) {
        let (endpoint, node) = (other.hostname.clone(), state.node.hostname.clone());
        desired.conditions.insert(Condition::OtherName { endpoint, node });
        return;
    }
    let gateway = state.active_endpoint().and_then(Endpoint::private_address);
    let Some(gateway) = gateway.filter(|_| desired.hostnet.vxlan.is_some()) else { return };
    for network in admission.routed() {
        let family = Family::of_net(network);
        match next_hop(gateway, family == Family::V6) {
            Some(via) => {
                let hop = Hop::Via { name: VX_DEVICE.to_owned(), via, source: source(state, family) };
                let route = Route::leading(TABLE_MAIN, *network, hop).with_mtu(intra::path_mtu(state));
                desired.hostnet.routes.insert(route);
            }
            None => {
                desired.conditions.insert(Condition::NoIpv4BetweenNodes);
            }
        }
    }
}
