//! The objects of the store as the source hands them to the loop.

use std::collections::BTreeSet;
use std::net::IpAddr;

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
    /// Nodes of the own cluster, sorted.
    pub nodes: Vec<ClusterNode>,
    /// Addresses of the own cluster's API servers.
    pub servers: BTreeSet<IpAddr>,
    /// Whether the active gateway's node is another one and has another route agent than ours (`deliverer.rs`).
    pub is_agent_foreign: bool,
    /// Services with back ends on this node. Gateways send their packets here as long as the kernel has the table.
    pub services: Services,
    /// Conditions: objects that could not be used.
    pub conditions: BTreeSet<Condition>,
}
