//! Caches of the store's objects and their parsed form, so that the cost of an event follows the change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;
use trieste_control::api::{self, EndpointSpec, Kind, Object, Resource};
use trieste_control::store::{Cache, ParsedCache, StoreError, StoreEvent};

use super::parse::{created, members, view};
use crate::cilium::CiliumNodes;
use crate::clusterset::follow::Origin;
use crate::condition::Condition;
use crate::nodes::Nodes;
use crate::state::{ClusterNode, Endpoint};
use crate::view::ClusterView;

/// The published state of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreState {
    /// Input of drivers; `None` until every kind was listed.
    pub view: Option<ClusterView>,
    /// Why the store cannot be read at present.
    pub store_error: Option<String>,
}

/// The node that reads the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reader {
    /// Namespace of the objects.
    pub namespace: String,
    /// ID of the own cluster.
    pub cluster: String,
    /// The own node's host name.
    pub hostname: String,
    /// Name of the own Node object, if there is one.
    pub node_name: Option<String>,
    /// Where clusterset IPs come from.
    pub clusterset: Origin,
    /// Whether gateways send packets for services to the nodes that have back ends ([`Promise::services`]).
    ///
    /// [`Promise::services`]: trieste_control::requirements::Promise::services
    pub delivers_services: bool,
    /// Whether the network plugin is Cilium, whose objects say which networks nodes' pods have.
    pub has_cilium: bool,
}

/// Ours: largest number of API servers.
const MAX_SERVERS: usize = 64;

/// Returns the addresses of an EndpointSlice.
fn servers(slice: &Object) -> impl Iterator<Item = IpAddr> {
    let endpoints = slice.body.get("endpoints").and_then(Value::as_array).into_iter().flatten();
    let addresses = endpoints.flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten());
    addresses.filter_map(|address| address.as_str()?.parse().ok()).take(MAX_SERVERS)
}

/// The caches, by kind.
#[derive(Default)]
pub(super) struct Caches {
    endpoints: ParsedCache<Part>,
    clusters: ParsedCache<Part>,
    nodes: Nodes,
    /// Read where the network plugin is Cilium.
    cilium: CiliumNodes,
    members: Cache,
    is_asked_for_members: bool,
    /// Addresses of the API servers themselves; `None` before their first event.
    servers: Option<BTreeSet<IpAddr>>,
    store_error: BTreeMap<Kind, String>,
    /// Kinds that may not be read. Upstream's rights let a route agent read Endpoints and Nodes, but no Clusters (api
    /// §13): Endpoints hold all that routes need. A kind that the server has not is one of them.
    forbidden: BTreeMap<Kind, String>,
}

impl Caches {
    /// Applies an event; returns `true` if the view may have changed.
    pub(super) fn take(&mut self, kind: Kind, event: &StoreEvent) -> bool {
        let has_changed = match kind {
            Kind::Endpoint => self.endpoints.apply(event),
            Kind::Cluster => self.clusters.apply(event),
            Kind::Node => self.nodes.take(event),
            Kind::CiliumNode => self.cilium.take(event),
            Kind::Gateway | _ => false,
        };
        let before = (self.store_error.get(&kind).cloned(), self.forbidden.get(&kind).cloned());
        match event {
            StoreEvent::Unavailable(error) => {
                let is_unserved = kind == Kind::CiliumNode && error.is_unserved();
                if is_unserved || matches!(error, StoreError::Forbidden { .. }) {
                    self.forbidden.insert(kind, error.to_string());
                }
                self.store_error.insert(kind, error.to_string());
            }
            StoreEvent::Listed(_) => {
                self.forbidden.remove(&kind);
                self.store_error.remove(&kind);
            }
            // An outage in between changes no rights.
            StoreEvent::Applied(_) | StoreEvent::Deleted(_) | _ => drop(self.store_error.remove(&kind)),
        }
        has_changed || before != (self.store_error.get(&kind).cloned(), self.forbidden.get(&kind).cloned())
    }

    /// Applies an event of the namespace of further Endpoints; returns `true` if the view may have changed. Where it may not be
    /// read or does not exist, there are none.
    pub(super) fn take_member(&mut self, event: &StoreEvent) -> bool {
        let is_first = !std::mem::replace(&mut self.is_asked_for_members, true);
        self.members.apply(event) || is_first
    }

    /// Applies an event of the API servers' EndpointSlice; returns `true` if the view may have changed. Where it may not be
    /// read, nodes' addresses serve instead.
    pub(super) fn take_servers(&mut self, event: &StoreEvent) -> bool {
        let known = match event {
            StoreEvent::Listed(objects) => objects.iter().flat_map(servers).collect(),
            StoreEvent::Applied(object) => servers(object).collect(),
            // Deleted, it is written again by the next API server.
            StoreEvent::Deleted(_) | StoreEvent::Unavailable(_) | _ => {
                self.servers.clone().unwrap_or_default()
            }
        };
        let has_changed = self.servers.as_ref() != Some(&known);
        self.servers = Some(known);
        has_changed
    }

    pub(super) fn read(&mut self, reader: &Reader) -> StoreState {
        // Nothing is done before it is known whether there are several, and what nobody may claim.
        let is_asked = self.is_asked_for_members && self.servers.is_some();
        let view = self.view(reader).filter(|_| is_asked);
        StoreState { view, store_error: self.store_error().cloned() }
    }

    /// Returns why the store cannot be read; kinds that are optional do not count.
    pub(super) fn store_error(&self) -> Option<&String> {
        let kinds = [Kind::Endpoint, Kind::Cluster, Kind::Node, Kind::CiliumNode].into_iter();
        let missed = kinds.filter(|kind| *kind == Kind::Endpoint || !self.forbidden.contains_key(kind));
        missed.into_iter().find_map(|kind| self.store_error.get(&kind))
    }

    /// Returns the view, once every kind was listed.
    pub(super) fn view(&mut self, reader: &Reader) -> Option<ClusterView> {
        for objects in [&mut self.endpoints, &mut self.clusters] {
            objects.refresh(|object| Part::read(&reader.cluster, object));
        }
        let is_known = |is_complete, kind| is_complete || self.forbidden.contains_key(&kind);
        if !(self.endpoints.is_complete()
            && is_known(self.clusters.is_complete(), Kind::Cluster)
            && is_known(self.nodes.is_complete(), Kind::Node)
            && is_known(self.cilium.is_complete() || !reader.has_cilium, Kind::CiliumNode))
        {
            return None;
        }
        let mut view = ClusterView::default();
        let parts = self.endpoints.read().chain(self.clusters.read());
        parts.for_each(|(_, part)| part.add_to(&mut view));
        view.members = members(&reader.cluster, self.members.objects(), &mut view.conditions);
        let is_own = |endpoint: &Endpoint| endpoint.cluster == reader.cluster;
        let has_gateway = view.endpoints.iter().any(is_own) || !view.members.is_empty();
        view.services.is_wanted = reader.delivers_services && has_gateway;
        view.services.is_asymmetric = view.members.len() > 1;
        view.servers = self.servers.clone().unwrap_or_default();
        view.nodes = self.nodes.iter().cloned().collect();
        if reader.has_cilium {
            self.take_ciliums(&mut view);
        }
        view.conditions.extend(self.nodes.conditions());
        view.conditions.extend(self.claim_own_node(&mut view.nodes, reader));
        view.conditions.extend(self.store_error().map(|error| Condition::StoreAway { error: error.clone() }));
        let forbidden = self.forbidden.get(&Kind::Node);
        view.conditions.extend(forbidden.map(|error| Condition::NodesForbidden { error: error.clone() }));
        Some(view)
    }

    /// Sets the networks of nodes' pods to those that Cilium has given them, as far as that is known.
    fn take_ciliums(&self, view: &mut ClusterView) {
        let forbidden = self.forbidden.get(&Kind::CiliumNode);
        for node in &mut view.nodes {
            node.pod_networks = self.cilium.networks(&node.name);
        }
        view.conditions.extend(self.cilium.conditions());
        view.conditions.extend(forbidden.map(|error| Condition::CiliumNodesAway { error: error.clone() }));
    }

    /// Sets the host name of the own node, found by the name of its object, to the configured one, whatever its label is.
    fn claim_own_node(&self, nodes: &mut [ClusterNode], reader: &Reader) -> Option<Condition> {
        let name = reader.node_name.as_ref()?;
        if let Some(own) = nodes.iter_mut().find(|node| node.name == *name) {
            own.hostname.clone_from(&reader.hostname);
            return None;
        }
        self.nodes.is_complete().then(|| Condition::NoSuchNode { name: name.clone() })
    }

    /// Returns the newest Endpoint of each other cluster, unchanged, sorted by cluster. Those with an invalid field are left
    /// out: only the content of Endpoints that parse is bounded.
    pub(super) fn remotes(&self) -> Vec<&EndpointSpec> {
        let mut newest: BTreeMap<&str, ((i128, &str), &EndpointSpec)> = BTreeMap::new();
        for (name, part) in self.endpoints.read() {
            let Some((created, spec)) = &part.remote else { continue };
            let age = (*created, name);
            let slot = newest.entry(&spec.cluster_id).or_insert((age, spec));
            if slot.0 < age {
                *slot = (age, spec);
            }
        }
        newest.into_values().map(|(_, spec)| spec).collect()
    }
}

/// The parsed content of one Endpoint or Cluster.
#[derive(Default)]
struct Part {
    view: ClusterView,
    /// The Endpoint of another cluster, and its creation time.
    remote: Option<(i128, EndpointSpec)>,
}

impl Part {
    fn read(own: &str, object: &Object) -> Self {
        let remote =
            (object.kind == Kind::Endpoint).then(|| api::Endpoint::from_object(object).ok()).flatten();
        let remote = remote.map(|endpoint| endpoint.spec);
        let remote = remote.filter(|spec| spec.cluster_id != own && spec.parse().is_ok());
        Self { view: view(own, [object]), remote: remote.map(|spec| (created(object), spec)) }
    }

    fn add_to(&self, view: &mut ClusterView) {
        view.endpoints.extend(self.view.endpoints.iter().cloned());
        view.clusters.extend(self.view.clusters.iter().cloned());
        view.conditions.extend(self.view.conditions.iter().cloned());
        if self.view.own_networks.is_some() {
            view.own_networks.clone_from(&self.view.own_networks);
        }
    }
}
