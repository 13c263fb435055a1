//! Packets for services, which gateways send to the nodes that have back ends.
//!
//! ```text
//!   gateway ── VXLAN, destination: the cluster IP ──▶ node: to a pod of its own
//!      ▲                                                │
//!      └───────── vx-submariner, source: the cluster IP ┘  not tracked on the gateway's node, which sees this half alone
//! ```
//!
//! Where one gateway is active, it sees both halves of all other flows, and they are tracked there as ever: services that
//! have back ends on none of these nodes are translated there by kube-proxy.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::admit::Admission;
use crate::constants::{TABLE_DELIVERY, VX_DEVICE};
use crate::driver::Desired;
use crate::family::Family;
use crate::hostnet::{HostNet, Sysctl};
use crate::networks::disjoint;
use crate::services::{DesiredServices, ServiceRules};
use crate::state::ClusterState;

/// Adds the table for them. Before the services are known it stays as it is.
pub(super) fn add(desired: &mut Desired, state: &ClusterState, admission: &Admission) {
    let hostnet = &mut desired.hostnet;
    // kube-proxy's IPVS mode gives every node the cluster IPs; without it the kernel calls answers of services, which come to
    // the gateway's node with such a source, martians. The table drops what comes with other addresses of the node.
    let accept_local = Sysctl::of(Family::V4, VX_DEVICE, "accept_local");
    let has_device = hostnet.vxlan.is_some();
    if !state.services.is_wanted {
        hostnet.sysctls.extend(has_device.then_some((accept_local, 0)));
        return;
    }
    let (Some(services), Some(at)) = (&state.services.here, address(hostnet, state)) else {
        hostnet.services = DesiredServices::AsItIs;
        return;
    };
    let tun = state.own_endpoint().and_then(|_| state.tun());
    let [own, relayed] = untracked(hostnet, state);
    let rules = ServiceRules {
        inlets: tun.into_iter().chain([VX_DEVICE]).map(str::to_owned).collect(),
        remote: disjoint(admission.remote()),
        served: disjoint(&state.node.service_networks),
        own,
        relayed,
        services: (**services).clone(),
    };
    hostnet.sysctls.extend(has_device.then_some((accept_local, 1)));
    hostnet.services = DesiredServices::Rules { at, rules };
}

/// Returns the address at which the node takes packets for services: the one of the device between nodes, and on a gateway's
/// node that has no others, its own.
fn address(hostnet: &HostNet, state: &ClusterState) -> Option<IpAddr> {
    let between_nodes = hostnet.vxlan.as_ref().map(|vxlan| vxlan.local);
    between_nodes.or_else(|| state.own_endpoint().and_then(|_| state.underlay_address()))
}

/// Returns the networks from which, and those to which, packets only pass through this node's gateway untracked.
fn untracked(hostnet: &HostNet, state: &ClusterState) -> [BTreeSet<IpNet>; 2] {
    if !state.services.is_asymmetric {
        return [disjoint(&state.node.service_networks), BTreeSet::new()];
    }
    let relayed = hostnet.routes.iter().filter(|route| route.table == TABLE_DELIVERY);
    [disjoint(state.local_networks()), disjoint(relayed.map(|route| &route.destination))]
}
