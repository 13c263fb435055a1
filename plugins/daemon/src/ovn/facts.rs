//! What objects of the cluster say of remote networks, gateways and zones. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use serde_json::Value;
use trieste_control::api::limits::MAX_CIDRS;
use trieste_control::api::{
    ClusterNetworks, Kind, Object, RouteSpec, annotation, ensure_valid_name, has_closed_routes, label,
};
use trieste_control::store::{StoreError, StoreEvent};
use trieste_ovn::Wanted;
use trieste_ovn::constants::MAX_NETWORKS;
use trieste_ovn::wanted::{Input, RouteKind, RouteObject, Topology, Zone};

/// OVN-Kubernetes': the node's networks, of which its management port has the second address.
const SUBNETS: &str = "k8s.ovn.org/node-subnets";
/// Ours: longest annotation that is read, bytes.
const MAX_ANNOTATION: usize = 4096;
/// Ours: how long a network stays closed after no object names it any more, as on nodes: what is still sent there does not
/// leave in clear, and an uninstall removes what leads to the gateway before it opens nodes.
const CLOSE_GRACE: Duration = Duration::from_secs(600);
/// Ours: longest part of an error that is shown, characters: it may quote the object.
const MAX_ERROR: usize = 200;
/// The kinds that are read.
pub(super) const KINDS: [Kind; 5] =
    [Kind::GatewayRoute, Kind::NonGatewayRoute, Kind::Endpoint, Kind::Node, Kind::Cluster];

/// What is known of the cluster.
#[derive(Debug)]
pub struct Facts {
    cluster: String,
    node: String,
    /// The own cluster's networks: those of the start, until its Cluster object is read.
    networks: Vec<IpNet>,
    topology: Topology,
    routes: BTreeMap<(Kind, String), RouteObject>,
    /// The own cluster's Endpoints by name: when each was made, and its host name.
    endpoints: BTreeMap<String, (i128, String)>,
    nodes: BTreeMap<String, Node>,
    listed: BTreeSet<Kind>,
    /// The gateway's node when there last was one: its zone stays the gateway's until another is.
    gateway: Option<String>,
    problems: BTreeMap<String, String>,
    /// Networks that objects named and name no more, and until when they stay closed.
    vanished: BTreeMap<IpNet, Instant>,
}

/// What matters of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Node {
    hostname: String,
    zone: Option<String>,
    management_port: Vec<IpAddr>,
}

impl Facts {
    /// Knows nothing of its cluster yet.
    #[must_use]
    pub fn new(cluster: &str, node: &str, networks: Vec<IpNet>, topology: Topology) -> Self {
        Self {
            cluster: cluster.to_owned(),
            node: node.to_owned(),
            networks,
            topology,
            routes: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            nodes: BTreeMap::new(),
            listed: BTreeSet::new(),
            gateway: None,
            problems: BTreeMap::new(),
            vanished: BTreeMap::new(),
        }
    }

    /// Takes in an event; returns `true` if something that rows follow from has changed.
    pub fn take(&mut self, kind: Kind, event: &StoreEvent, now: Instant) -> bool {
        let has_changed = match event {
            StoreEvent::Listed(objects) => {
                let mut listed: BTreeSet<&str> = BTreeSet::new();
                let mut has_changed = self.listed.insert(kind);
                for object in objects {
                    listed.insert(&object.metadata.name);
                    has_changed |= self.put(kind, object, now);
                }
                has_changed | self.retain(kind, now, |name| listed.contains(name))
            }
            StoreEvent::Applied(object) => self.put(kind, object, now),
            StoreEvent::Deleted(object) => self.retain(kind, now, |name| name != object.metadata.name),
            // With the rights of an earlier version the networks of the start count.
            StoreEvent::Unavailable(StoreError::Forbidden { .. }) if kind == Kind::Cluster => {
                self.listed.insert(kind)
            }
            StoreEvent::Unavailable(_) | _ => false,
        };
        if has_changed {
            self.gateway = self.gateway_node().or_else(|| self.gateway.take());
        }
        has_changed
    }

    fn put(&mut self, kind: Kind, object: &Object, now: Instant) -> bool {
        let name = object.metadata.name.clone();
        if kind == Kind::Node {
            let node = Node::read(object);
            return self.nodes.insert(name, node.clone()).as_ref() != Some(&node);
        }
        if kind == Kind::Cluster {
            return self.put_networks(object);
        }
        if kind != Kind::Endpoint {
            return self.put_route(kind, object, now);
        }
        match endpoint(object, &self.cluster) {
            Some(endpoint) => self.endpoints.insert(name, endpoint.clone()).as_ref() != Some(&endpoint),
            None => self.endpoints.remove(&name).is_some(),
        }
    }

    /// Takes over what the own cluster announces, which may change at any time.
    fn put_networks(&mut self, object: &Object) -> bool {
        let id = object.body.get("spec").and_then(|spec| spec.get("cluster_id")).and_then(Value::as_str);
        let is_own = id == Some(&*self.cluster) && object.metadata.name == ensure_valid_name(&self.cluster);
        let announced = is_own.then(|| ClusterNetworks::announced(object)).flatten();
        let Some(ClusterNetworks { pods, services, .. }) = announced else { return false };
        let networks = [pods, services].concat();
        let has_changed = networks != self.networks;
        self.networks = networks;
        has_changed
    }

    fn put_route(&mut self, kind: Kind, object: &Object, now: Instant) -> bool {
        let name = object.metadata.name.clone();
        let subject = format!("{kind} {name}");
        let spec = object.body.get("spec").cloned().unwrap_or_default();
        let spec: RouteSpec = match serde_json::from_value(spec) {
            Ok(spec) => spec,
            Err(error) => {
                let error: String = error.to_string().chars().take(MAX_ERROR).collect();
                self.problems.insert(subject, format!("cannot be read: {error}"));
                // Its networks are there all the same; the way to them is not known.
                let Some(route) = self.routes.get_mut(&(kind, name)) else { return false };
                return !std::mem::take(&mut route.next_hops).is_empty();
            }
        };
        self.problems.remove(&subject);
        let route = RouteObject {
            cluster: name.clone(),
            kind: if kind == Kind::GatewayRoute { RouteKind::Gateway } else { RouteKind::NonGateway },
            next_hops: spec.next_hops,
            remote_cidrs: spec.remote_cidrs,
        };
        let before = self.routes.insert((kind, name), route.clone());
        let has_changed = before.as_ref() != Some(&route);
        let before = before.filter(|_| has_changed);
        self.close(before.iter().flat_map(networks_of), now);
        has_changed
    }

    fn retain(&mut self, kind: Kind, now: Instant, is_there: impl Fn(&str) -> bool) -> bool {
        let before = (self.nodes.len(), self.endpoints.len(), self.routes.len());
        if kind == Kind::Node {
            self.nodes.retain(|name, _| is_there(name));
        } else if kind == Kind::Endpoint {
            self.endpoints.retain(|name, _| is_there(name));
        } else if kind != Kind::Cluster {
            let is_gone = |(of, name): &&(Kind, String)| *of == kind && !is_there(name);
            let gone: Vec<(Kind, String)> = self.routes.keys().filter(is_gone).cloned().collect();
            for key in gone {
                let route = self.routes.remove(&key);
                self.close(route.iter().flat_map(networks_of), now);
            }
            let prefix = format!("{kind} ");
            self.problems.retain(|subject, _| subject.strip_prefix(&prefix).is_none_or(&is_there));
        }
        before != (self.nodes.len(), self.endpoints.len(), self.routes.len())
    }

    /// Returns the name of the active gateway's node: that of the cluster's newest Endpoint.
    fn gateway_node(&self) -> Option<String> {
        let newest = self.endpoints.iter().max_by_key(|(name, (created, _))| (*created, *name));
        let (_, (_, hostname)) = newest?;
        let by_host = self.nodes.iter().find(|(_, node)| node.hostname == *hostname);
        Some(by_host.map_or_else(|| hostname.clone(), |(name, _)| name.clone()))
    }

    /// Returns the zone that this node's database is of, as far as it can be told: nodes without zones are all in one.
    fn zone(&self) -> Zone {
        let zone = |name: &str| self.nodes.get(name).and_then(|node| node.zone.as_deref());
        let gateways = self.gateway.as_deref().and_then(zone);
        match (zone(&self.node), gateways) {
            (Some(own), Some(gateways)) if own != gateways => Zone::Other,
            _ => Zone::Gateway,
        }
    }

    /// Returns the addresses of the gateway's management port: what its node says, else what its GatewayRoutes do.
    fn management_port(&self) -> Vec<IpAddr> {
        let node = self.gateway.as_ref().and_then(|name| self.nodes.get(name));
        let known = node.map(|node| node.management_port.clone()).filter(|known| !known.is_empty());
        let named = || {
            let routes = self.routes.values().filter(|route| route.kind == RouteKind::Gateway);
            routes.flat_map(|route| &route.next_hops).filter_map(|text| text.parse().ok()).collect()
        };
        known.unwrap_or_else(named)
    }

    /// Returns what is wanted of the database; `None` before everything was listed.
    pub fn wanted(&mut self, now: Instant) -> Option<Wanted> {
        self.vanished.retain(|_, until| *until > now);
        if self.listed.len() < KINDS.len() {
            return None;
        }
        // What no cluster has comes last: it may not take room from what one has.
        let (nobodys, routes): (Vec<&RouteObject>, Vec<&RouteObject>) =
            self.routes.values().partition(|route| has_closed_routes(&route.cluster));
        let named: BTreeSet<IpNet> = routes.iter().copied().flat_map(networks_of).collect();
        let nobodys = nobodys.into_iter().flat_map(networks_of).chain(self.vanished.keys().copied());
        let closed: BTreeSet<IpNet> = nobodys.filter(|network| !named.contains(network)).collect();
        let closed: Vec<IpNet> = closed.into_iter().collect();
        let routes: Vec<RouteObject> = routes.into_iter().cloned().collect();
        let gateway = self.gateway_node();
        Some(Wanted::new(&Input {
            topology: self.topology,
            zone: self.zone(),
            routes: &routes,
            is_complete: true,
            closed: &closed,
            own: &self.networks,
            // The route agent has refused what holds addresses that are nobody's to claim.
            protected: &[],
            gateway_node: gateway.as_deref(),
            management_port: &self.management_port(),
            version: concat!("v", env!("CARGO_PKG_VERSION")),
        }))
    }

    /// Returns when a network that nobody names any more need not be closed any longer.
    #[must_use]
    pub fn next_end(&self) -> Option<Instant> {
        self.vanished.values().min().copied()
    }

    /// Keeps networks closed for a while unless an object names them: those of an object that is gone or says something else,
    /// and those that the database closes at the start, of which an earlier process knew.
    pub fn close(&mut self, networks: impl IntoIterator<Item = IpNet>, now: Instant) {
        for network in networks {
            if self.vanished.len() < MAX_NETWORKS || self.vanished.contains_key(&network) {
                self.vanished.insert(network, now + CLOSE_GRACE);
            }
        }
    }

    /// Returns objects that cannot be read, and why.
    #[must_use]
    pub fn problems(&self) -> &BTreeMap<String, String> {
        &self.problems
    }
}

/// Returns an object's networks, as far as they are any.
fn networks_of(route: &RouteObject) -> impl Iterator<Item = IpNet> + '_ {
    let networks = route.remote_cidrs.iter().take(MAX_CIDRS).filter_map(|text| text.parse::<IpNet>().ok());
    networks.map(|network| network.trunc())
}

impl Node {
    fn read(object: &Object) -> Self {
        let metadata = &object.metadata;
        let read = |key: &str| metadata.annotations.get(key).filter(|text| text.len() <= MAX_ANNOTATION);
        Self {
            hostname: metadata.labels.get(label::HOSTNAME).unwrap_or(&metadata.name).clone(),
            zone: read(annotation::OVN_ZONE).cloned(),
            management_port: read(SUBNETS).map(|text| management_port(text)).unwrap_or_default(),
        }
    }
}

/// Returns the own cluster's Endpoint's time and host name.
fn endpoint(object: &Object, cluster: &str) -> Option<(i128, String)> {
    let spec = object.body.get("spec")?;
    let is_own = spec.get("cluster_id").and_then(Value::as_str) == Some(cluster);
    let hostname = spec.get("hostname").and_then(Value::as_str)?.to_owned();
    let created = object.metadata.creation_timestamp.map_or(i128::MIN, |at| at.as_nanosecond());
    is_own.then_some((created, hostname))
}

/// Reads `{"default":["10.244.1.0/24","fd00:10:244:2::/64"]}`, of older versions `{"default":"10.244.1.0/24"}`; returns the
/// second host address of each network.
fn management_port(text: &str) -> Vec<IpAddr> {
    let read: Value = serde_json::from_str(text).unwrap_or_default();
    let of_default = &read["default"];
    let texts = of_default.as_array().into_iter().flatten().chain(Some(of_default)).filter_map(Value::as_str);
    let networks = texts.filter_map(|text| text.parse::<IpNet>().ok()).map(|network| network.trunc());
    networks.filter_map(|network| network.hosts().filter(|host| *host != network.network()).nth(1)).collect()
}

#[cfg(test)]
mod tests;
