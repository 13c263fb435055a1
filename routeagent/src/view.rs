//! The objects of the store as the source hands them to the loop.

use std::collections::BTreeSet;
use std::net::IpAddr;

use trieste_control::api::ClusterNetworks;
use trieste_reconcile::renew;

use crate::clusterset::Clusterset;
use crate::condition::Condition;
use crate::state::{Cluster, ClusterNode, Endpoint, Services};

/// The objects of the store, parsed: everything a driver needs but the node itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Endpoints of all clusters.
    pub endpoints: Vec<Endpoint>,
    /// The own cluster's active gateways, from their further Endpoints; empty if only one is active.
    pub members: Vec<Endpoint>,
    /// Clusters of the set.
    pub clusters: Vec<Cluster>,
    /// The own cluster's networks, once its gateways have announced them.
    pub own_networks: Option<ClusterNetworks>,
    /// Nodes of the own cluster, sorted.
    pub nodes: Vec<ClusterNode>,
    /// Addresses of the own cluster's API servers.
    pub servers: BTreeSet<IpAddr>,
    /// Whether the active gateway's node is another one and has another route agent than ours (`deliverer.rs`).
    pub is_agent_foreign: bool,
    /// Services with back ends on this node. Gateways send their packets here as long as the kernel has the table.
    pub services: Services,
    /// Where clusterset IPs lead.
    pub clusterset: Clusterset,
    /// Conditions: objects that could not be used.
    pub conditions: BTreeSet<Condition>,
}

impl ClusterView {
    /// Takes over a newer view, copying only objects that have changed; returns `true` if anything has.
    pub fn renew(&mut self, newer: &Self) -> bool {
        let Self {
            endpoints,
            members,
            clusters,
            own_networks,
            nodes,
            servers,
            is_agent_foreign,
            services,
            clusterset,
            conditions,
        } = newer;
        let endpoints: Vec<&Endpoint> = endpoints.iter().collect();
        let clusters: Vec<&Cluster> = clusters.iter().collect();
        let nodes: Vec<&ClusterNode> = nodes.iter().collect();
        let members: Vec<&Endpoint> = members.iter().collect();
        let changed = [
            renew(&mut self.endpoints, &endpoints, Endpoint::in_order),
            renew(&mut self.clusters, &clusters, Cluster::in_order),
            renewed(&mut self.own_networks, own_networks),
            renew(&mut self.nodes, &nodes, Ord::cmp),
            renew(&mut self.members, &members, Endpoint::in_order),
            renewed(&mut self.servers, servers),
            renewed(&mut self.is_agent_foreign, is_agent_foreign),
            renewed(&mut self.services, services),
            renewed(&mut self.clusterset, clusterset),
            renewed(&mut self.conditions, conditions),
        ];
        changed.contains(&true)
    }
}

/// Takes over a newer value; returns `true` if it has changed.
fn renewed<T: Clone + PartialEq>(value: &mut T, newer: &T) -> bool {
    let has_changed = value != newer;
    if has_changed {
        value.clone_from(newer);
    }
    has_changed
}
