//! What a handler has taken in: the state that its callbacks see, and that the next difference is made with.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::entry::{Entry, Failure};
use crate::state::{ClusterNode, Endpoint};

/// What a handler has taken in. In a callback that is with the event that it is called for.
#[derive(Debug, Clone)]
pub struct Taken {
    pub(super) hostname: String,
    /// By name.
    pub(super) nodes: BTreeMap<String, Entry<ClusterNode>>,
    /// By the names of their cables.
    pub(super) locals: BTreeMap<String, Entry<Endpoint>>,
    /// By cluster.
    pub(super) remotes: BTreeMap<String, Entry<Endpoint>>,
    pub(super) pods: Entry<BTreeSet<IpNet>>,
    pub(super) services: Entry<BTreeSet<IpNet>>,
    /// Whether the last transition was to a gateway.
    pub(super) role: Entry<bool>,
}

impl Taken {
    /// Begins with nothing.
    pub(super) fn nothing() -> Self {
        Self {
            hostname: String::new(),
            nodes: BTreeMap::new(),
            locals: BTreeMap::new(),
            remotes: BTreeMap::new(),
            pods: Entry::whole(BTreeSet::new()),
            services: Entry::whole(BTreeSet::new()),
            role: Entry::whole(false),
        }
    }

    /// Returns `true` if this node is an active gateway.
    #[must_use]
    pub fn is_on_gateway(&self) -> bool {
        self.local_endpoints().any(|endpoint| endpoint.hostname == self.hostname)
    }

    /// Returns the own cluster's active gateways, by the names of their cables.
    pub fn local_endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        there(&self.locals)
    }

    /// Returns the active gateway of each remote cluster, by cluster.
    pub fn remote_endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        there(&self.remotes)
    }

    /// Returns the active gateway of a remote cluster.
    #[must_use]
    pub fn remote_endpoint(&self, cluster: &str) -> Option<&Endpoint> {
        self.remotes.get(cluster).filter(|entry| entry.is_there()).map(|entry| &entry.value)
    }

    /// Returns the nodes of the own cluster, by name; none where the handler does not want them.
    pub fn nodes(&self) -> impl Iterator<Item = &ClusterNode> {
        there(&self.nodes)
    }

    /// Returns the own cluster's pod networks.
    #[must_use]
    pub fn pod_networks(&self) -> &BTreeSet<IpNet> {
        &self.pods.value
    }

    /// Returns the own cluster's service networks.
    #[must_use]
    pub fn service_networks(&self) -> &BTreeSet<IpNet> {
        &self.services.value
    }

    /// Returns what is refused at present, and whether it is not tried any more.
    pub(super) fn failures(&self) -> impl Iterator<Item = &Failure> {
        let nodes = self.nodes.values().filter_map(|entry| entry.failure.as_ref());
        let endpoints = self.locals.values().chain(self.remotes.values());
        let networks = [&self.pods, &self.services];
        nodes
            .chain(networks.into_iter().filter_map(|entry| entry.failure.as_ref()))
            .chain(self.role.failure.as_ref())
            .chain(endpoints.filter_map(|entry| entry.failure.as_ref()))
    }
}

fn there<V: Clone + PartialEq>(entries: &BTreeMap<String, Entry<V>>) -> impl Iterator<Item = &V> {
    entries.values().filter(|entry| entry.is_there()).map(|entry| &entry.value)
}
