//! The driver for clusters whose service traffic is handled by kube-proxy (every plugin but OVN-Kubernetes).
//!
//! On every node: fail closed. On a gateway node also: rules, and routes to the gateway's TUN device.
//! Not here yet: the other nodes' way to the gateway over `vx-submariner`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::{Desired, Driver};
use crate::admit::{Admission, admit};
use crate::condition::Condition;
use crate::hostnet::{
    DEFAULT_CABLE_PORT, DEFAULT_NATT_PORT, Family, Guard, Hop, HostNet, Route, Rule, Sysctl, TABLE_GATEWAY,
    TABLE_MAIN, VX_DEVICE,
};
use crate::state::{ClusterState, Endpoint};

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
        let own = state.own_endpoint();
        let mut hostnet = HostNet::default();
        let mut conditions = admission.refused.clone();
        fail_closed(&mut hostnet, &admission, own.is_some(), &gateways);
        hostnet.guard = Some(guard(state, &admission, own, &gateways));
        if let Some(own) = own {
            hostnet.sysctls = device_settings(state.tun(), &admission);
            for family in Family::ALL {
                hostnet.rules.extend([Rule::mark(family), Rule::gateway(family)]);
            }
            gateway_routes(&mut hostnet, state, own, &admission);
            let unknown = own.health_check.filter(|address| !state.is_own_address(*address));
            conditions.extend(unknown.map(Condition::ForeignHealthCheck));
        }
        Desired { hostnet, conditions }
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
            if gateways.iter().any(|address| network.contains(address)) {
                continue;
            }
        }
        hostnet.routes.insert(Route::unreachable(TABLE_MAIN, *network));
    }
}

/// Adds what leads from a gateway node into the cables.
fn gateway_routes(hostnet: &mut HostNet, state: &ClusterState, own: &Endpoint, admission: &Admission) {
    for network in &admission.carved {
        hostnet.routes.insert(Route::gateway(*network, Hop::Throw));
    }
    for network in admission.routed() {
        let source = source(state, own, Family::of_net(network));
        let hop = Hop::Device { name: state.tun().to_owned(), source };
        hostnet.routes.insert(Route::gateway(*network, hop));
    }
}

/// Returns the source address for the gateway node's own packets of a family: the health-check address, else the
/// node's first address in a pod network, which is what the peers accept. The kernel refuses one that is not its own.
fn source(state: &ClusterState, own: &Endpoint, family: Family) -> Option<IpAddr> {
    let health_check = own.health_check.filter(|address| state.is_own_address(*address));
    let in_pod_network = state
        .own_networks()
        .map(|own| own.network.addr())
        .filter(|address| state.node.pod_networks.iter().any(|net| net.contains(address)));
    health_check.into_iter().chain(in_pod_network).find(|address| Family::of(*address) == family)
}

/// Returns the settings of the TUN device. The gateway writes the first three as well; whoever comes first.
fn device_settings(tun: &str, admission: &Admission) -> BTreeMap<Sysctl, u32> {
    let mut settings = BTreeMap::from([
        // Answers made by the gateway carry an address of this node; without it the kernel calls them martians.
        (Sysctl::of(Family::V4, tun, "accept_local"), 1),
        // Off, as the gateway checks whose a source is: on a device without an address even the loose filter drops
        // what has a source of this node, such as those answers.
        (Sysctl::of(Family::V4, tun, "rp_filter"), 0),
        (Sysctl::of(Family::V4, tun, "forwarding"), 1),
        // A dead gateway leaves the device without carrier: with this the lookup goes on to `unreachable`.
        (Sysctl::of(Family::V4, tun, "ignore_routes_with_linkdown"), 1),
        (Sysctl::of(Family::V6, tun, "ignore_routes_with_linkdown"), 1),
        (Sysctl::of(Family::V6, tun, "forwarding"), 1),
    ]);
    if admission.accepted.keys().any(|net| Family::of_net(net) == Family::V6) {
        // Inherited as 1 where `net.ipv6.conf.default` says so; the device could then carry no IPv6 route.
        settings.insert(Sysctl::of(Family::V6, tun, "disable_ipv6"), 0);
    }
    settings
}

/// Returns the addresses of remote gateways that lie inside a remote network; none on other nodes, which have
/// no cables.
fn gateways_inside(state: &ClusterState, admission: &Admission) -> BTreeSet<IpAddr> {
    if state.own_endpoint().is_none() {
        return BTreeSet::new();
    }
    let addresses = state.remote_endpoints().flat_map(|e| &e.addresses).copied();
    addresses.filter(|address| admission.remote().any(|net| net.contains(address))).collect()
}

fn guard(
    state: &ClusterState,
    admission: &Admission,
    own: Option<&Endpoint>,
    gateways: &BTreeSet<IpAddr>,
) -> Guard {
    let ports = own.map_or((DEFAULT_CABLE_PORT, DEFAULT_NATT_PORT), |own| (own.cable_port, own.natt_port));
    Guard {
        inlets: [state.tun(), VX_DEVICE, "lo"].map(str::to_owned).into(),
        remote: disjoint(admission.remote()),
        node: disjoint(&admission.carved),
        gateways: gateways.clone(),
        ports: [ports.0, ports.1].into_iter().filter(|port| *port != 0).collect(),
    }
}

/// Merges networks, because an interval set refuses overlapping ones.
fn disjoint<'a>(networks: impl IntoIterator<Item = &'a IpNet>) -> BTreeSet<IpNet> {
    IpNet::aggregate(&networks.into_iter().copied().collect()).into_iter().collect()
}

#[cfg(test)]
mod tests;
