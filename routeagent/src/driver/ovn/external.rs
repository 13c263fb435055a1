//! The external bridge of the gateway's node, where `trieste-plugin-sync` builds the original proposal's topology.
//!
//! ```text
//!   pod ─▶ ovn_cluster_router ─▶ submariner_router (.7) ─▶ ext_NODE ─▶ br-local (.1) of the gateway's node ─▶ table 150 ─▶ TUN
//!   TUN ─▶ table 149, via .7 ─▶ br-local ─▶ ext_NODE ─▶ submariner_router ─▶ OVN: load balancer or pod, on whatever node
//! ```
//!
//! The bridge may filter strictly by reverse path, although the main table leads to pods by the management port: of a packet
//! that is forwarded to the TUN the kernel looks up the way back as if it came by that, which is by table 149.
//!
//! Nothing that a node or an object shows tells this topology from the other one before its rows are there, and with
//! OVN-Kubernetes' local gateways the bridge is there in both. So route agents have the worker's own setting.

use std::net::IpAddr;

use ipnet::IpNet;

use super::address::address_of;
use crate::constants::{EXTERNAL_BRIDGE, MANAGEMENT_PORT, SUBMARINER_ROUTER_HOSTS};
use crate::family::Family;
use crate::state::ClusterState;

/// Returns the bridge, where this node is a gateway's and meets `submariner_router` by it.
pub(super) fn bridge(state: &ClusterState) -> Option<&'static str> {
    let is_met = state.node.has_submariner_router && state.own_endpoint().is_some();
    is_met.then_some(EXTERNAL_BRIDGE)
}

/// Returns the address of `submariner_router` on a bridge's network: the worker gives it .7, or the next one if that is the
/// node's own.
pub(super) fn router(state: &ClusterState, bridge: &str, family: Family) -> Option<IpAddr> {
    let own = &address_of(state, bridge, family)?.network;
    let mut hosts = SUBMARINER_ROUTER_HOSTS.filter_map(|number| address_at(own, number));
    hosts.find(|address| *address != own.addr())
}

/// Returns the MTU of routes by the bridge, where pods' network carries less.
pub(super) fn mtu(state: &ClusterState, bridge: &str) -> Option<u32> {
    let port = state.mtus.get(MANAGEMENT_PORT).copied();
    port.filter(|port| state.mtus.get(bridge).is_none_or(|bridge| port < bridge))
}

/// Returns the address `number` places after the network's own, unless that is outside or the broadcast address.
fn address_at(network: &IpNet, number: u32) -> Option<IpAddr> {
    let address = match network.network() {
        IpAddr::V4(base) => IpAddr::from(u32::from(base).checked_add(number)?.to_be_bytes()),
        IpAddr::V6(base) => IpAddr::from(u128::from(base).checked_add(number.into())?.to_be_bytes()),
    };
    (network.contains(&address) && address != network.broadcast()).then_some(address)
}
