//! The sets of the packet filters, and exceptions in other programs' filters.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_vxlan::{Mac, VX_PORT};

use super::intra;
use crate::admit::Admission;
use crate::condition::Condition;
use crate::constants::{TABLE_DELIVERY, VX_DEVICE};
use crate::driver::Desired;
use crate::driver::filter::{guard, own_cluster, takeover};
use crate::hostnet::{Delivery, Guard, Pass};
use crate::networks::disjoint;
use crate::state::{ClusterState, Endpoint};

/// Adds the packet filter, and what other programs' filters have to let through.
pub(super) fn add(
    desired: &mut Desired,
    state: &ClusterState,
    admission: &Admission,
    gateways: &BTreeSet<IpAddr>,
) {
    let own = state.own_endpoint();
    let delivery = match (own, state.tun(), intra::plugin_delivers_here(state)) {
        (Some(_), None, _) => Delivery::Ipsec,
        (None, _, Some(why)) => {
            desired.conditions.insert(Condition::PluginDelivers { why });
            Delivery::Plugin
        }
        _ => Delivery::Inlets,
    };
    let has_vxlan = desired.hostnet.vxlan.is_some();
    let notices = own.filter(|_| has_vxlan && state.has_notices());
    let notices = notices.map(|_| state.node.notice_port).filter(|port| *port != 0);
    let vxlan: BTreeSet<u16> = has_vxlan.then_some(VX_PORT).into_iter().chain(notices).collect();
    let gateways_device = own.and_then(|_| state.tun());
    let devices: BTreeSet<String> =
        gateways_device.into_iter().chain(has_vxlan.then_some(VX_DEVICE)).map(str::to_owned).collect();
    let (onward, behind) = (onward(state, admission), behind(state, desired));
    let inlets = state.tun().into_iter().chain([VX_DEVICE, "lo"]);
    desired.hostnet.guard = Some(Guard {
        tunnels: if delivery == Delivery::Plugin { BTreeSet::new() } else { devices.clone() },
        uplinks: if intra::plugin_takes_none(state) { state.uplinks() } else { BTreeSet::new() },
        vxlan: vxlan.clone(),
        onward,
        behind,
        siblings: siblings(state, own),
        nodes: if has_vxlan { nodes(state) } else { BTreeSet::new() },
        delivery,
        ..guard(state, admission, gateways, inlets)
    });
    desired.hostnet.takeover = takeover(state);
    desired.hostnet.pass = Pass { outward: devices.clone(), inward: devices, ports: vxlan };
}

/// Returns where packets go that only pass through this node, where it is one of several gateways: to remote clusters.
pub(super) fn onward(state: &ClusterState, admission: &Admission) -> BTreeSet<IpNet> {
    if passes(state) { disjoint(admission.routed()) } else { BTreeSet::new() }
}

/// Returns where else they go: to other nodes' pods.
fn behind(state: &ClusterState, desired: &Desired) -> BTreeSet<IpNet> {
    let delivered = desired.hostnet.routes.iter().filter(|route| route.table == TABLE_DELIVERY);
    if passes(state) { disjoint(delivered.map(|route| &route.destination)) } else { BTreeSet::new() }
}

fn passes(state: &ClusterState) -> bool {
    state.has_several_gateways() && state.own_endpoint().is_some()
}

/// Returns how the other gateways send over the VXLAN between nodes, where this node is one.
fn siblings(state: &ClusterState, own: Option<&Endpoint>) -> BTreeSet<Mac> {
    let others = own.into_iter().flat_map(|_| intra::other_gateways(state));
    others.filter_map(Endpoint::private_address).map(Mac::of_node).collect()
}

/// Returns who may send over the VXLAN between nodes.
fn nodes(state: &ClusterState) -> BTreeSet<IpAddr> {
    let registered = state.nodes.iter().flat_map(|node| &node.addresses).copied();
    registered.chain(own_cluster(state).filter_map(Endpoint::private_address)).collect()
}
