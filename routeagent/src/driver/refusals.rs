//! Refusals: the `unreachable` routes of every node, and which remote gateways they would be in the way of.

use std::collections::BTreeSet;
use std::net::IpAddr;

use trieste_control::network_map::NetworkMap;

use crate::admit::Admission;
use crate::constants::{TABLE_GATEWAY, TABLE_MAIN};
use crate::hostnet::{HostNet, Route};
use crate::state::ClusterState;

/// Adds the `unreachable` routes: in the main table for every node, and behind the routes of the table for remote networks
/// where a node has that, as gateways do.
///
/// A remote network that holds a remote gateway's own address gets none in a gateway's main table, because that is
/// where marked sockets look for the way to it. The gateway table alone fails it closed.
pub(super) fn fail_closed(
    hostnet: &mut HostNet,
    admission: &Admission,
    has_table: bool,
    gateways: &BTreeSet<IpAddr>,
) {
    for network in admission.remote() {
        if has_table {
            hostnet.routes.insert(Route::unreachable(TABLE_GATEWAY, *network));
            if gateways.range(network.network()..=network.broadcast()).next().is_some() {
                continue;
            }
        }
        hostnet.routes.insert(Route::unreachable(TABLE_MAIN, *network));
    }
}

/// Adds an `unreachable` route behind that of each network of this node's own pods, where anything is closed at all.
///
/// A pod whose packet is refused gets an ICMP error that quotes it. While the plugin's bridge is down, this keeps the
/// error from the default route.
pub(super) fn close_bridges(hostnet: &mut HostNet, state: &ClusterState) {
    if hostnet.routes.iter().all(|route| route.table != TABLE_MAIN) {
        return;
    }
    for network in state.bridged_networks().into_iter().chain(state.unplugged.iter().copied()) {
        hostnet.routes.insert(Route::unreachable(TABLE_MAIN, network));
    }
}

/// Returns the addresses of remote gateways that lie inside a remote network; none on other nodes, which have
/// no cables.
pub(super) fn gateways_inside(state: &ClusterState, admission: &Admission) -> BTreeSet<IpAddr> {
    if state.own_endpoint().is_none() {
        return BTreeSet::new();
    }
    let remote: NetworkMap<()> = admission.remote().copied().collect();
    let addresses = state.remote_endpoints().flat_map(|e| &e.addresses).copied();
    addresses.filter(|address| remote.contains(*address)).collect()
}
