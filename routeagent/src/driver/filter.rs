//! The packet filter's sets that every driver has alike. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_vxlan::OVERHEAD_V4;

use crate::admit::Admission;
use crate::constants::{DEFAULT_CABLE_PORT, DEFAULT_NATT_PORT};
use crate::family::Family;
use crate::hostnet::{Delivery, Guard};
use crate::networks::disjoint;
use crate::state::{ClusterState, Endpoint};
use crate::takeover::Takeover;

/// Upstream's fixed allowance for the headers of IPsec and WireGuard, bytes.
const CABLE_OVERHEAD: u32 = 120;
/// Bytes of the IPv4 and TCP headers.
pub(super) const TCP_IPV4: u32 = 20 + 20;

/// Returns the filter of a node whose packets for remote clusters leave by `inlets`, which packets from there enter by as well.
pub(super) fn guard<'a>(
    state: &ClusterState,
    admission: &Admission,
    gateways: &BTreeSet<IpAddr>,
    inlets: impl IntoIterator<Item = &'a str>,
) -> Guard {
    let own = state.own_endpoint();
    let ports = own.map_or((DEFAULT_CABLE_PORT, DEFAULT_NATT_PORT), |own| (own.cable_port, own.natt_port));
    Guard {
        inlets: inlets.into_iter().map(str::to_owned).collect(),
        remote: disjoint(admission.remote()),
        local: disjoint(state.local_networks().chain(own_cluster(state).flat_map(|e| &e.subnets))),
        beside: disjoint(state.node.extra_networks.iter().filter(|net| has_router(state, net))),
        routers: Family::ALL.iter().filter_map(|family| state.default_route(*family)?.via).collect(),
        node: disjoint(&admission.carved),
        gateways: gateways.clone(),
        ports: [ports.0, ports.1].into_iter().filter(|port| *port != 0).collect(),
        sources: Family::ALL.iter().filter_map(|family| state.source_address(*family)).collect(),
        is_translated_elsewhere: state.node.has_globalnet && own.is_some_and(|own| !own.is_triestes),
        clamp: clamp(state),
        delivery: Delivery::Inlets,
        loosened: BTreeMap::new(),
        ..Guard::default()
    }
}

/// Returns `true` unless the default route of a network's family leads to no router: then it cannot be seen of a packet whether
/// it leaves by that route.
fn has_router(state: &ClusterState, network: &IpNet) -> bool {
    state.default_route(Family::of_net(network)).is_none_or(|route| route.via.is_some())
}

/// Returns whose place ours have taken on this node: a running route agent that of Submariner's, and a gateway that says of itself
/// what Submariner's cannot say.
pub(super) fn takeover(state: &ClusterState) -> Takeover {
    let is_here = |endpoint: &&Endpoint| endpoint.hostname == state.node.hostname;
    let active = state.active_endpoint();
    match (state.own_endpoint(), active) {
        // Newer than what a gateway of ours has left here.
        _ if active.filter(is_here).is_some_and(|own| !own.is_triestes) => Takeover::Agent,
        (Some(own), _) if own.is_triestes => Takeover::Gateway,
        (None, Some(_)) => Takeover::Elsewhere,
        _ => Takeover::Agent,
    }
}

/// Returns all of the own cluster's Endpoints.
pub(super) fn own_cluster(state: &ClusterState) -> impl Iterator<Item = &Endpoint> {
    state.endpoints.iter().filter(|e| e.cluster == state.node.cluster).chain(&state.members)
}

/// Returns the fixed size of TCP segments over IPv4: what the node's annotation says, else, where global addresses
/// hide the real path from the kernel, upstream's allowance, and the headers that it omits.
fn clamp(state: &ClusterState) -> Option<u16> {
    let annotated = state.own_node().and_then(|node| node.clamp_mss);
    let computed = || {
        let is_vxlan = state.any_gateway().is_some_and(|active| active.backends().any(|one| one == "vxlan"));
        let overhead = if is_vxlan { OVERHEAD_V4 } else { CABLE_OVERHEAD };
        u16::try_from(state.underlay_mtu().saturating_sub(overhead + TCP_IPV4)).ok()
    };
    annotated.or_else(|| state.node.has_globalnet.then(computed).flatten())
}
