//! The store's objects, followed and parsed into what drivers need.
//!
//! Nothing is published before every kind was listed, and an unreadable store keeps what was known: an empty cluster
//! set would open what is to stay closed.
//!
//! An object that cannot be used costs only itself, and as little of that as possible: of an Endpoint with one bad
//! field the good networks are still failed closed, though not routed.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use futures::stream::select;
use ipnet::IpNet;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep_until;
use tracing::warn;
use trieste_control::api::{
    self, EndpointFacts, EndpointSpec, Kind, Object, ObjectKey, Resource, backend_config, parse_cidrs,
};
use trieste_control::members::{MOST_PATHS, Member, paths_namespace};
use trieste_control::services::{self, Followed, Frontend, Service};
use trieste_control::store::{Mirror, Store, StoreError, StoreEvent};

use crate::agent::Report;
use crate::condition::Condition;
use crate::deliverer;
use crate::departures::Departures;
use crate::hostnet::{DEFAULT_CABLE_PORT, DEFAULT_NATT_PORT};
use crate::nodes::{Nodes, shown};
use crate::reconcile::ClusterView;
use crate::state::{Cluster, ClusterNode, Endpoint};

/// Longest device name, in bytes (`IFNAMSIZ` less the terminator).
const MAX_DEVICE_NAME: usize = 15;

/// Ours: most of the own cluster's gateways that are looked at: twice what a cluster may have, for those that are gone.
const MOST_MEMBERS: usize = 2 * MOST_PATHS;

/// What is published of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// What drivers need; `None` until every kind was listed.
    pub view: Option<ClusterView>,
    /// The Endpoint of every other cluster, the newest where it has several, by cluster; word for word.
    pub remotes: Vec<EndpointSpec>,
    /// Why the store cannot be read at present.
    pub away: Option<String>,
}

/// Who reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reader {
    /// Namespace of the objects.
    pub namespace: String,
    /// Own cluster.
    pub cluster: String,
    /// The own node's host name.
    pub hostname: String,
    /// Name of the own Node object, if there is one.
    pub node_name: Option<String>,
}

/// The ends of the channels by which a store's news go out.
#[derive(Debug)]
pub struct Feed {
    /// What drivers need; `None` until every kind was listed.
    pub views: watch::Sender<Option<ClusterView>>,
    /// See [`Known::remotes`].
    pub remotes: watch::Sender<Vec<EndpointSpec>>,
    /// See [`Known::away`].
    pub away: watch::Sender<Option<String>>,
    /// What the last pass found, which says whether services matter.
    pub reports: watch::Receiver<Report>,
}

/// Follows a store for ever and publishes what is new.
pub async fn follow(store: &impl Store, reader: &Reader, mut feed: Feed) {
    let namespace = reader.namespace.as_str();
    let endpoints = store.list_watch(Kind::Endpoint, namespace).map(|event| (Kind::Endpoint, event));
    let clusters = store.list_watch(Kind::Cluster, namespace).map(|event| (Kind::Cluster, event));
    let nodes = store.list_watch(Kind::Node, "").map(|event| (Kind::Node, event));
    let mut events = select(select(endpoints, clusters), nodes);
    let members = paths_namespace(namespace);
    let mut members = pin!(store.list_watch(Kind::Endpoint, &members));
    // From the specification of Kubernetes: where its API servers themselves listen, whatever Service leads to them.
    let servers = ObjectKey::new(Kind::EndpointSlice, "default", "kubernetes");
    let mut servers = pin!(store.watch_one(&servers));
    let mut departures = Departures::default();
    let (gateway, gateways) = watch::channel(None);
    let (foreign, mut is_foreign) = watch::channel(false);
    let look = deliverer::follow(store, namespace, gateways, &foreign);
    let mut look = pin!(look);
    let (served, mut is_served) = watch::channel(Here::default());
    let (wanted, is_wanted) = watch::channel(false);
    let mut serve = pin!(serve(store, reader, is_wanted, &served));
    let mut known = Mirrors::default();
    let mut had_table = false;
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some((kind, event)) if known.take(kind, &event) => {}
                Some(_) => continue,
                None => return,
            },
            event = members.next() => match event {
                Some(event) if known.take_member(&event) => {}
                Some(_) => continue,
                None => return,
            },
            event = servers.next() => match event {
                Some(event) if known.take_servers(&event) => {}
                Some(_) => continue,
                None => return,
            },
            () = until(departures.poll_timeout()) => {}
            // It never ends, since this end of its channel is here.
            () = &mut look => return,
            _ = is_foreign.changed() => {}
            () = &mut serve => return,
            _ = is_served.changed() => {}
            () = told(&mut feed.reports, had_table) => {}
        }
        had_table = feed.reports.borrow_and_update().serving.has_table;
        let Known { mut view, remotes, away } = known.read(reader);
        if let Some(view) = &mut view {
            departures.update(&reader.cluster, &reader.hostname, view, Instant::now());
            view.is_agent_foreign = *is_foreign.borrow_and_update();
            publish(&gateway, deliverer::gateways_node(view, &reader.cluster, &reader.hostname));
            publish(&wanted, view.services.is_wanted || had_table);
            let here = is_served.borrow_and_update().clone();
            view.services.here = here.services;
            view.conditions.extend(here.away.map(|error| Condition::ServicesAway { error }));
        }
        if let (None, Some(error)) = (&view, &away) {
            warn!("{}", Condition::StoreAway { error: error.clone() });
        }
        // Each says nothing when nothing follows from the change, such as another annotation.
        if view.is_some() {
            publish(&feed.views, view);
            publish(&feed.remotes, remotes);
        }
        publish(&feed.away, away);
    }
}

/// What is known of the services with back ends on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Here {
    services: Option<Arc<BTreeMap<Frontend, Service>>>,
    away: Option<String>,
}

/// Follows services while somebody wants to know, and publishes what of them is on this node. A node without a name has
/// none.
async fn serve(
    store: &impl Store,
    reader: &Reader,
    mut is_wanted: watch::Receiver<bool>,
    served: &watch::Sender<Here>,
) {
    let Some(node) = &reader.node_name else { return pending().await };
    loop {
        if is_wanted.wait_for(|wanted| *wanted).await.is_err() {
            return pending().await;
        }
        let (known, mut news) = watch::channel(Followed::default());
        let mut follower = pin!(services::follow(store, &known));
        loop {
            tokio::select! {
                () = &mut follower => return,
                ended = is_wanted.wait_for(|wanted| !*wanted) => if ended.is_ok() { break } else { return },
                _ = news.changed() => {}
            }
            let Followed { catalogue, away } = news.borrow_and_update().clone();
            let services = catalogue.map(|catalogue| Arc::new(catalogue.on_node(node)));
            publish(served, Here { services, away });
        }
        publish(served, Here::default());
    }
}

/// Waits until a pass has found something else about the table of services than was acted upon.
async fn told(reports: &mut watch::Receiver<Report>, had_table: bool) {
    if reports.wait_for(|report| report.serving.has_table != had_table).await.is_err() {
        pending::<()>().await;
    }
}

fn publish<T: PartialEq>(channel: &watch::Sender<T>, value: T) {
    channel.send_if_modified(|last| {
        let is_news = *last != value;
        *last = value;
        is_news
    });
}

/// Reads a store once.
///
/// # Errors
///
/// The store cannot be read.
pub async fn read(store: &impl Store, reader: &Reader) -> Result<ClusterView, StoreError> {
    let namespace = reader.namespace.as_str();
    let mut known = Mirrors::default();
    known.take(Kind::Endpoint, &StoreEvent::Listed(store.list(Kind::Endpoint, namespace).await?));
    for (kind, namespace) in [(Kind::Cluster, namespace), (Kind::Node, "")] {
        let event = match store.list(kind, namespace).await {
            Err(error @ StoreError::Forbidden { .. }) => StoreEvent::Unavailable(error),
            objects => StoreEvent::Listed(objects?),
        };
        known.take(kind, &event);
    }
    // Without them one gateway is active.
    if let Ok(members) = store.list(Kind::Endpoint, &paths_namespace(namespace)).await {
        known.take_member(&StoreEvent::Listed(members));
    }
    let mut view = known.view(reader).unwrap_or_default();
    view.services.here = here(store, reader).await?;
    if let Some(node) = deliverer::gateways_node(&view, &reader.cluster, &reader.hostname) {
        view.is_agent_foreign = deliverer::look(store, namespace, &node).await.unwrap_or_default();
    }
    Ok(view)
}

/// Reads the services with back ends on this node; `None` where they may not be read, or the node has no name.
async fn here(
    store: &impl Store,
    reader: &Reader,
) -> Result<Option<Arc<BTreeMap<Frontend, Service>>>, StoreError> {
    let Some(node) = &reader.node_name else { return Ok(None) };
    let mut book = services::Book::default();
    for kind in [Kind::Service, Kind::EndpointSlice] {
        match store.list(kind, "").await {
            Ok(objects) => drop(book.take(kind, &StoreEvent::Listed(objects))),
            Err(StoreError::Forbidden { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(Arc::new(book.catalogue().on_node(node))))
}

/// Ours: most API servers that are looked at.
const MOST_SERVERS: usize = 64;

/// Returns the addresses of an EndpointSlice.
fn servers(slice: &Object) -> impl Iterator<Item = IpAddr> {
    let endpoints = slice.body.get("endpoints").and_then(Value::as_array).into_iter().flatten();
    let addresses = endpoints.flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten());
    addresses.filter_map(|address| address.as_str()?.parse().ok()).take(MOST_SERVERS)
}

/// What is known of a store.
#[derive(Default)]
struct Mirrors {
    endpoints: Mirror,
    clusters: Mirror,
    nodes: Nodes,
    members: Mirror,
    is_asked_for_members: bool,
    /// Addresses of the API servers themselves; `None` before anything was said of them.
    servers: Option<BTreeSet<IpAddr>>,
    away: BTreeMap<Kind, String>,
    /// Kinds that may not be read. Upstream's rights let a route agent read Endpoints and Nodes, but no Clusters (api
    /// §13): the first say all that routes need.
    forbidden: BTreeMap<Kind, String>,
}

impl Mirrors {
    /// Takes in an event; gives `true` if something may follow from it.
    fn take(&mut self, kind: Kind, event: &StoreEvent) -> bool {
        let is_news = match kind {
            Kind::Endpoint => self.endpoints.apply(event),
            Kind::Cluster => self.clusters.apply(event),
            Kind::Node => self.nodes.take(event),
            Kind::Gateway | _ => false,
        };
        let before = (self.away.get(&kind).cloned(), self.forbidden.get(&kind).cloned());
        match event {
            StoreEvent::Unavailable(error) => {
                if let StoreError::Forbidden { .. } = error {
                    self.forbidden.insert(kind, error.to_string());
                }
                self.away.insert(kind, error.to_string());
            }
            StoreEvent::Listed(_) => {
                self.forbidden.remove(&kind);
                self.away.remove(&kind);
            }
            // An outage in between changes no rights.
            StoreEvent::Applied(_) | StoreEvent::Deleted(_) | _ => drop(self.away.remove(&kind)),
        }
        is_news || before != (self.away.get(&kind).cloned(), self.forbidden.get(&kind).cloned())
    }

    /// Takes in an event of the namespace in which this cluster's gateways tell of themselves; gives `true` if something
    /// may follow from it. Where it may not be read or does not exist, there are none.
    fn take_member(&mut self, event: &StoreEvent) -> bool {
        let is_first = !std::mem::replace(&mut self.is_asked_for_members, true);
        self.members.apply(event) || is_first
    }

    /// Takes in an event of the EndpointSlice of the API servers; gives `true` if something may follow from it. Where it may
    /// not be read, nodes' addresses have to do.
    fn take_servers(&mut self, event: &StoreEvent) -> bool {
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

    fn read(&self, reader: &Reader) -> Known {
        // Nothing is done before it is known whether there are several, and what nobody may claim.
        let is_asked = self.is_asked_for_members && self.servers.is_some();
        let view = self.view(reader).filter(|_| is_asked);
        Known { view, remotes: self.remotes(&reader.cluster), away: self.away().cloned() }
    }

    /// Why the store is away, but for kinds that it is done without.
    fn away(&self) -> Option<&String> {
        let kinds = [Kind::Endpoint, Kind::Cluster, Kind::Node].into_iter();
        let missed = kinds.filter(|kind| *kind == Kind::Endpoint || !self.forbidden.contains_key(kind));
        missed.into_iter().find_map(|kind| self.away.get(&kind))
    }

    /// Returns the view, once every kind was listed.
    fn view(&self, reader: &Reader) -> Option<ClusterView> {
        let is_known = |is_complete, kind| is_complete || self.forbidden.contains_key(&kind);
        if !(self.endpoints.is_complete()
            && is_known(self.clusters.is_complete(), Kind::Cluster)
            && is_known(self.nodes.is_complete(), Kind::Node))
        {
            return None;
        }
        let mut view = view(&reader.cluster, self.endpoints.objects().chain(self.clusters.objects()));
        view.members = members(&reader.cluster, self.members.objects(), &mut view.conditions);
        // Only several of them send packets for services to the nodes that serve them.
        view.services.is_wanted = view.members.len() > 1;
        view.servers = self.servers.clone().unwrap_or_default();
        view.nodes = self.nodes.iter().cloned().collect();
        view.conditions.extend(self.nodes.conditions());
        view.conditions.extend(self.claim_own_node(&mut view.nodes, reader));
        view.conditions.extend(self.away().map(|error| Condition::StoreAway { error: error.clone() }));
        let forbidden = self.forbidden.get(&Kind::Node);
        view.conditions.extend(forbidden.map(|error| Condition::NodesForbidden { error: error.clone() }));
        Some(view)
    }

    /// The own node is known by the name of its object: whatever its label says, it calls itself what it does.
    fn claim_own_node(&self, nodes: &mut [ClusterNode], reader: &Reader) -> Option<Condition> {
        let name = reader.node_name.as_ref()?;
        if let Some(own) = nodes.iter_mut().find(|node| node.name == *name) {
            own.hostname.clone_from(&reader.hostname);
            return None;
        }
        self.nodes.is_complete().then(|| Condition::NoSuchNode { name: name.clone() })
    }

    /// Endpoints with a field that makes no sense are left out: what their author may fill them with is bounded only
    /// where they parse.
    fn remotes(&self, cluster: &str) -> Vec<EndpointSpec> {
        let mut newest: BTreeMap<String, ((i128, &str), EndpointSpec)> = BTreeMap::new();
        for object in self.endpoints.objects() {
            let Ok(endpoint) = api::Endpoint::from_object(object) else { continue };
            if endpoint.spec.cluster_id == cluster || endpoint.spec.parse().is_err() {
                continue;
            }
            let age = (created(object), object.metadata.name.as_str());
            let slot = newest.entry(endpoint.spec.cluster_id.clone());
            let slot = slot.or_insert_with(|| (age, endpoint.spec.clone()));
            if slot.0 < age {
                *slot = (age, endpoint.spec);
            }
        }
        newest.into_values().map(|(_, spec)| spec).collect()
    }
}

/// Parses all Endpoints and Clusters of a store, as cluster `own` sees them. Other kinds are ignored.
#[must_use]
pub fn view<'a>(own: &str, objects: impl IntoIterator<Item = &'a Object>) -> ClusterView {
    let mut view = ClusterView::default();
    for object in objects {
        match object.kind {
            Kind::Endpoint => add_endpoint(own, object, &mut view),
            Kind::Cluster => add_cluster(object, &mut view),
            Kind::Gateway | _ => {}
        }
    }
    view
}

/// Says whether the kernel would take a name for a device.
#[must_use]
pub fn is_device_name(name: &str) -> bool {
    (1..=MAX_DEVICE_NAME).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
}

fn add_endpoint(own: &str, object: &Object, view: &mut ClusterView) {
    let endpoint = match api::Endpoint::from_object(object) {
        Ok(endpoint) => endpoint,
        Err(error) => return complain(object, &error.to_string(), &mut view.conditions),
    };
    match endpoint.spec.parse() {
        Ok(facts) => {
            let endpoint = gateway(own, object, &endpoint.spec, facts, &mut view.conditions);
            view.endpoints.push(endpoint);
        }
        Err(error) => {
            complain(object, &format!("{error}; its networks are refused, not routed"), &mut view.conditions);
            let networks = usable(&endpoint.spec.subnets);
            view.clusters.push(Cluster { id: endpoint.spec.cluster_id, created: created(object), networks });
        }
    }
}

/// Returns the own cluster's gateways, as their further Endpoints tell; at most one for each cable.
fn members<'a>(
    own: &str,
    objects: impl Iterator<Item = &'a Object>,
    conditions: &mut BTreeSet<Condition>,
) -> Vec<Endpoint> {
    let mut members = Vec::new();
    for object in objects.take(MOST_MEMBERS) {
        let Some(member) = Member::read(object).filter(|member| member.cluster_id() == own) else { continue };
        match member.endpoint.spec.parse() {
            Ok(facts) => members.push(gateway(own, object, &member.endpoint.spec, facts, conditions)),
            Err(error) => complain(object, &format!("{error}; this gateway is not used"), conditions),
        }
    }
    members
}

fn gateway(
    own: &str,
    object: &Object,
    spec: &EndpointSpec,
    facts: EndpointFacts,
    conditions: &mut BTreeSet<Condition>,
) -> Endpoint {
    // Which device of this node is whose is said by its own cluster alone.
    let is_own = facts.cluster_id == own;
    let interface = is_own.then(|| interface(object, spec, conditions)).flatten();
    Endpoint {
        name: object.metadata.name.clone(),
        cluster: facts.cluster_id,
        hostname: facts.hostname,
        created: created(object),
        subnets: facts.subnets,
        addresses: [Some(facts.private_ip), facts.public_ip].into_iter().flatten().collect(),
        former_backend: spec.drivers().nth(1),
        backend: facts.backend,
        health_check: facts.health_check_ip,
        interface,
        cable_port: facts.udp_port.unwrap_or(DEFAULT_CABLE_PORT),
        natt_port: facts.nat_discovery_port.unwrap_or(DEFAULT_NATT_PORT),
        cable_name: facts.cable_name,
        knows_paths: spec.knows_paths(),
        notice_key: spec.notice_key(),
    }
}

async fn until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when.into()).await,
        None => pending().await,
    }
}

fn add_cluster(object: &Object, view: &mut ClusterView) {
    let cluster = match api::Cluster::from_object(object) {
        Ok(cluster) => cluster,
        Err(error) => return complain(object, &error.to_string(), &mut view.conditions),
    };
    let networks = match cluster.spec.parse() {
        Ok(facts) => facts.published_subnets(),
        Err(error) => {
            complain(object, &error.to_string(), &mut view.conditions);
            let spec = &cluster.spec;
            let published = if spec.global_cidr.is_empty() {
                [spec.service_cidr.clone(), spec.cluster_cidr.clone()].concat()
            } else {
                spec.global_cidr.clone()
            };
            usable(&published)
        }
    };
    view.clusters.push(Cluster { id: cluster.spec.cluster_id, created: created(object), networks });
}

/// Returns the published device, if it can be one.
fn interface(object: &Object, spec: &EndpointSpec, conditions: &mut BTreeSet<Condition>) -> Option<String> {
    let name = spec.backend_config.get(backend_config::INTERFACE_NAME)?;
    if is_device_name(name) {
        return Some(name.clone());
    }
    let field = backend_config::INTERFACE_NAME;
    complain(
        object,
        &format!("spec.backend_config.{field}: `{}` is not a device name", shown(name)),
        conditions,
    );
    None
}

/// Returns the networks of a list that are well-formed.
fn usable(texts: &[String]) -> Vec<IpNet> {
    texts.iter().filter_map(|text| parse_cidrs("", std::slice::from_ref(text)).ok()).flatten().collect()
}

fn created(object: &Object) -> i128 {
    object.metadata.creation_timestamp.map_or(i128::MIN, |at| at.as_nanosecond())
}

fn complain(object: &Object, problem: &str, conditions: &mut BTreeSet<Condition>) {
    conditions.insert(Condition::BadObject { object: object.key().to_string(), problem: problem.to_owned() });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_endpoint_is_read_with_its_ports_and_device() {
        let object = endpoint(&json!({}), &json!({"udp-port": "4501", "interface-name": "cable7"}));
        let view = view("b", [&object]);
        let endpoint = &view.endpoints[0];
        assert_eq!((endpoint.cable_port, endpoint.natt_port), (4501, 4490));
        assert_eq!(endpoint.interface.as_deref(), Some("cable7"));
        assert_eq!(endpoint.addresses, ["172.31.2.11".parse::<IpAddr>().unwrap()]);
        assert!(view.conditions.is_empty(), "{:?}", view.conditions);
        assert_eq!(
            super::view("a", [&object]).endpoints[0].interface,
            None,
            "a remote cluster names our devices"
        );
    }

    #[test]
    fn of_an_endpoint_with_a_bad_network_the_good_ones_are_claimed_but_not_routed() {
        let view = view("a", [&endpoint(&json!({"subnets": ["10.2.0.0/16", "10.3.0.0/33"]}), &json!({}))]);
        assert!(view.endpoints.is_empty());
        assert_eq!(view.clusters[0].networks, ["10.2.0.0/16".parse::<IpNet>().unwrap()]);
        let text = view.conditions.iter().map(ToString::to_string).collect::<String>();
        assert!(text.contains("Endpoint ns/b-cable") && text.contains("spec.subnets[1]"), "{text}");
    }

    #[test]
    fn a_device_name_that_leaves_its_directory_is_not_used() {
        let view = view("b", [&endpoint(&json!({}), &json!({"interface-name": "../all"}))]);
        assert_eq!(view.endpoints[0].interface, None);
        assert_eq!(view.conditions.len(), 1);
    }

    #[test]
    fn what_a_peer_writes_is_shown_short_and_on_one_line() {
        let name = format!("x\n{}", "y".repeat(100_000));
        let view = view("b", [&endpoint(&json!({}), &json!({"interface-name": name}))]);
        let text = view.conditions.iter().map(ToString::to_string).collect::<String>();
        assert!(text.len() < 500 && !text.contains('\n'), "{} bytes", text.len());
    }

    #[test]
    fn a_cluster_claims_its_global_networks_alone_if_it_has_any() {
        let networks = |global: Value| {
            let spec = json!({"cluster_id": "b", "service_cidr": ["100.66.0.0/16"], "cluster_cidr": ["10.2.0.0/16"],
                              "global_cidr": global});
            view("a", [&object("Cluster", "b", &spec)]).clusters[0].networks.len()
        };
        assert_eq!((networks(json!([])), networks(json!(["242.1.0.0/16"]))), (2, 1));
    }

    #[test]
    fn nothing_is_known_before_every_kind_was_listed_and_a_store_that_goes_away_is_remembered() {
        let mut known = Mirrors::default();
        let listed = |object| StoreEvent::Listed(vec![object]);
        known.take(Kind::Endpoint, &listed(endpoint(&json!({}), &json!({}))));
        known.take(Kind::Cluster, &StoreEvent::Listed(Vec::new()));
        assert_eq!(known.view(&Reader::default()), None);
        known.take(Kind::Node, &StoreEvent::Listed(Vec::new()));
        let before = known.view(&Reader::default()).unwrap();
        assert_eq!(before.endpoints.len(), 1);

        let source = std::io::Error::other("gone");
        let doing = "read directory /x".to_owned();
        known.take(Kind::Endpoint, &StoreEvent::Unavailable(StoreError::Unavailable { doing, source }));
        let after = known.view(&Reader::default()).unwrap();
        assert_eq!(after.endpoints, before.endpoints);
        assert!(after.conditions.iter().any(|c| c.to_string().contains("cannot read directory /x: gone")));
    }

    #[test]
    fn clusters_that_may_not_be_read_are_done_without_also_after_an_outage() {
        let away = |error: fn(String, std::io::Error) -> StoreError| {
            StoreEvent::Unavailable(error("list clusters".to_owned(), std::io::Error::other("no")))
        };
        let mut known = Mirrors::default();
        known.take(Kind::Cluster, &away(|doing, source| StoreError::Forbidden { doing, source }));
        known.take(Kind::Cluster, &away(|doing, source| StoreError::Unavailable { doing, source }));
        known.take(Kind::Node, &StoreEvent::Listed(Vec::new()));
        known.take(Kind::Endpoint, &StoreEvent::Listed(vec![endpoint(&json!({}), &json!({}))]));
        let view = known.view(&Reader::default()).unwrap();
        assert_eq!((view.endpoints.len(), view.conditions.len()), (1, 0));
    }

    #[test]
    fn nodes_that_may_not_be_read_are_a_condition_and_their_heartbeats_wake_nobody() {
        let node = |beat: &str| {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
                "status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": beat}]}});
            Object::from_value(node).unwrap()
        };
        let source = std::io::Error::other("no");
        let forbidden = StoreError::Forbidden { doing: "list nodes".to_owned(), source };
        let mut known = Mirrors::default();
        known.take(Kind::Endpoint, &StoreEvent::Listed(Vec::new()));
        known.take(Kind::Cluster, &StoreEvent::Listed(Vec::new()));
        assert!(known.take(Kind::Node, &StoreEvent::Unavailable(forbidden)));
        let text = known
            .view(&Reader::default())
            .unwrap()
            .conditions
            .iter()
            .map(ToString::to_string)
            .collect::<String>();
        assert!(text.contains("may not list nodes") && known.away().is_none(), "{text}");

        assert!(known.take(Kind::Node, &StoreEvent::Listed(vec![node("1")])));
        let view = known.view(&Reader::default()).unwrap();
        assert_eq!((view.nodes.len(), view.conditions.len()), (1, 0));
        assert!(!known.take(Kind::Node, &StoreEvent::Applied(node("2"))));

        let own = |name: &str| {
            let node_name = Some(name.to_owned());
            known.view(&Reader { hostname: "h".to_owned(), node_name, ..Reader::default() }).unwrap()
        };
        assert_eq!((own("n1").nodes[0].hostname.as_str(), own("n1").conditions.len()), ("h", 0));
        assert_eq!(own("n2").conditions, [Condition::NoSuchNode { name: "n2".to_owned() }].into());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_pass_has_found_before_somebody_waits_for_it_is_not_missed() {
        let (reports, mut told_of) = watch::channel(Report::default());
        reports.send_modify(|report| report.serving.has_table = true);
        // Seen for another reason, and not acted upon.
        drop(told_of.borrow_and_update());
        let wait = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(wait, told(&mut told_of, false)).await.is_ok());
        assert!(tokio::time::timeout(wait, told(&mut told_of, true)).await.is_err(), "it is no news");
    }

    #[test]
    fn of_every_other_cluster_the_newest_endpoint_is_told_word_for_word() {
        let at = |name: &str, cluster: &str, second: u8| {
            let mut object = endpoint(&json!({"cluster_id": cluster, "hostname": name}), &json!({"k": "v"}));
            object.metadata.name = name.to_owned();
            object.metadata.creation_timestamp = format!("2026-11-21T05:48:{second:02}Z").parse().ok();
            object
        };
        let mut bad = at("c-bad", "c", 9);
        bad.body["spec"]["subnets"] = json!(["10.3.0.0/33"]);
        let mut known = Mirrors::default();
        let all = vec![at("b-1", "b", 2), at("b-2", "b", 1), at("own", "a", 3), at("c-1", "c", 1), bad];
        known.take(Kind::Endpoint, &StoreEvent::Listed(all));
        let remotes = known.remotes("a");
        let told: Vec<_> = remotes.iter().map(|spec| (spec.hostname.as_str(), spec.subnets.len())).collect();
        assert_eq!(told, [("b-1", 1), ("c-1", 1)]);
        assert_eq!(remotes[0].backend_config["k"], "v");
    }

    fn endpoint(fields: &Value, backend_config: &Value) -> Object {
        let mut spec = json!({
            "cluster_id": "b", "cable_name": "cable", "hostname": "b-gw1", "subnets": ["10.2.0.0/16"],
            "private_ip": "172.31.2.11", "public_ip": "", "backend": "wireguard",
            "backend_config": backend_config,
        });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        object("Endpoint", "b-cable", &spec)
    }

    fn object(kind: &str, name: &str, spec: &Value) -> Object {
        Object::from_value(json!({
            "apiVersion": "submariner.io/v1", "kind": kind,
            "metadata": {"name": name, "namespace": "ns"}, "spec": spec,
        }))
        .unwrap()
    }
}
