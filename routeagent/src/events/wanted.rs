//! What a state wants handlers to have taken in.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use crate::state::{ClusterNode, ClusterState, Endpoint, active_endpoints};

/// A state, sorted once for all handlers.
pub(super) struct Wanted<'a> {
    /// This node's host name.
    pub(super) hostname: &'a str,
    /// By name.
    pub(super) nodes: BTreeMap<&'a str, &'a ClusterNode>,
    /// Active gateways of the own cluster, as drivers see them, by the names of their cables.
    pub(super) locals: BTreeMap<&'a str, &'a Endpoint>,
    /// The newest Endpoint of each remote cluster, by cluster.
    pub(super) remotes: BTreeMap<&'a str, &'a Endpoint>,
    /// Names and creation times of remote Endpoints that are there and not the newest.
    pub(super) older: BTreeSet<(&'a str, i128)>,
    pub(super) pods: BTreeSet<IpNet>,
    pub(super) services: BTreeSet<IpNet>,
}

impl<'a> Wanted<'a> {
    /// Sorts a state.
    pub(super) fn of(state: &'a ClusterState) -> Self {
        let locals = state.gateways().into_iter().map(|gateway| (gateway.cable_name.as_str(), gateway));
        let remotes = active_endpoints(state.remote_endpoints());
        let is_newest = |endpoint: &Endpoint| {
            remotes.get(endpoint.cluster.as_str()).is_some_and(|newest| std::ptr::eq(*newest, endpoint))
        };
        let older = state.remote_endpoints().filter(|endpoint| !is_newest(endpoint));
        let older = older.map(|endpoint| (endpoint.name.as_str(), endpoint.created)).collect();
        Self {
            hostname: &state.node.hostname,
            nodes: state.nodes.iter().map(|node| (node.name.as_str(), node)).collect(),
            locals: locals.collect(),
            remotes,
            older,
            pods: state.node.pod_networks.iter().copied().collect(),
            services: state.node.service_networks.iter().copied().collect(),
        }
    }

    /// Returns `true` if this node is an active gateway.
    pub(super) fn is_on_gateway(&self) -> bool {
        self.locals.values().any(|gateway| gateway.hostname == self.hostname)
    }
}
