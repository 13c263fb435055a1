//! The driver for clusters whose service traffic is handled by kube-proxy (every plugin but OVN-Kubernetes).
//!
//! Every node fails closed and filters. An active gateway's node has rules and routes into the gateway's device, and
//! hands what comes from remote clusters to the other nodes; those send what is for remote clusters to it, or to all
//! active gateways alike. Between them is the VXLAN `vx-submariner`.

mod filter;
mod gateway;
mod intra;
mod nexthop_groups;
mod serve;
mod worker;

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::admit::{Admission, admit};
use crate::constants::{TABLE_GATEWAY, TABLE_MAIN};
use crate::driver::{Desired, Driver};
use crate::family::Family;
use crate::hostnet::{HostNet, Route};
use crate::networks::Networks;
use crate::state::ClusterState;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct KubeProxy;

impl Driver for KubeProxy {
    fn name(&self) -> &'static str {
        "kubeproxy"
    }

    fn desired(&self, state: &ClusterState) -> Desired {
        let admission = admit(state);
        let gateways = gateways_inside(state, &admission);
        let mut desired = Desired { conditions: admission.refused.clone(), ..Desired::default() };
        let own = state.own_endpoint();
        fail_closed(&mut desired.hostnet, &admission, own.is_some(), &gateways);
        close_bridges(&mut desired.hostnet, state);
        intra::add(&mut desired, state, &admission);
        nexthop_groups::add(&mut desired, state, &admission);
        match own {
            Some(own) => gateway::add(&mut desired, state, own, &admission),
            None => worker::add(&mut desired, state, &admission),
        }
        if intra::plugin_delivers_here(state).is_some() {
            // Packets of remote clusters come by a device that the way back does not lead out of.
            let plugins = state.plugin_address(Family::V4);
            desired.hostnet.loose_rp_filter = plugins.map(|own| own.device.clone()).into_iter().collect();
        }
        filter::add(&mut desired, state, &admission, &gateways);
        serve::add(&mut desired, state, &admission);
        desired
    }
}

/// Adds the `unreachable` routes: in the main table for every node, on a gateway also behind the TUN's routes.
///
/// A remote network that holds a remote gateway's own address gets none in a gateway's main table, because that is
/// where marked sockets look for the way to it. The gateway table alone fails it closed.
fn fail_closed(hostnet: &mut HostNet, admission: &Admission, is_gateway: bool, gateways: &BTreeSet<IpAddr>) {
    for network in admission.remote() {
        if is_gateway {
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
fn close_bridges(hostnet: &mut HostNet, state: &ClusterState) {
    if hostnet.routes.iter().all(|route| route.table != TABLE_MAIN) {
        return;
    }
    for network in state.bridged_networks().into_iter().chain(state.unplugged.iter().copied()) {
        hostnet.routes.insert(Route::unreachable(TABLE_MAIN, network));
    }
}

/// Returns the addresses of remote gateways that lie inside a remote network; none on other nodes, which have
/// no cables.
fn gateways_inside(state: &ClusterState, admission: &Admission) -> BTreeSet<IpAddr> {
    if state.own_endpoint().is_none() {
        return BTreeSet::new();
    }
    let remote: Networks<()> = admission.remote().copied().collect();
    let addresses = state.remote_endpoints().flat_map(|e| &e.addresses).copied();
    addresses.filter(|address| remote.contains(*address)).collect()
}

#[cfg(test)]
mod tests;
