//! The store's objects, followed and parsed into what drivers need.
//!
//! Nothing is published before every kind was listed, and an unreadable store keeps what was known: an empty cluster
//! set would open what is to stay closed.
//!
//! An object that cannot be used costs only itself, and as little of that as possible: of an Endpoint with one bad
//! field the good networks are still failed closed, though not routed.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use futures::StreamExt;
use futures::stream::select;
use ipnet::IpNet;
use tokio::sync::watch;
use tracing::warn;
use trieste_control::api::{self, EndpointSpec, Kind, Object, Resource, backend_config, parse_cidrs};
use trieste_control::store::{Mirror, Store, StoreError, StoreEvent};

use crate::condition::Condition;
use crate::deliverer;
use crate::hostnet::{DEFAULT_CABLE_PORT, DEFAULT_NATT_PORT};
use crate::nodes::{Nodes, shown};
use crate::reconcile::ClusterView;
use crate::state::{Cluster, ClusterNode, Endpoint};

/// Longest device name, in bytes (`IFNAMSIZ` less the terminator).
const MAX_DEVICE_NAME: usize = 15;

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
}

/// Follows a store for ever and publishes what is new.
pub async fn follow(store: &impl Store, reader: &Reader, feed: Feed) {
    let namespace = reader.namespace.as_str();
    let endpoints = store.list_watch(Kind::Endpoint, namespace).map(|event| (Kind::Endpoint, event));
    let clusters = store.list_watch(Kind::Cluster, namespace).map(|event| (Kind::Cluster, event));
    let nodes = store.list_watch(Kind::Node, "").map(|event| (Kind::Node, event));
    let mut events = select(select(endpoints, clusters), nodes);
    let (gateway, gateways) = watch::channel(None);
    let (foreign, mut is_foreign) = watch::channel(false);
    let look = deliverer::follow(store, namespace, gateways, &foreign);
    let mut look = pin!(look);
    let mut known = Mirrors::default();
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some((kind, event)) if known.take(kind, &event) => {}
                Some(_) => continue,
                None => return,
            },
            // It never ends, since this end of its channel is here.
            () = &mut look => return,
            _ = is_foreign.changed() => {}
        }
        let Known { mut view, remotes, away } = known.read(reader);
        if let Some(view) = &mut view {
            view.is_agent_foreign = *is_foreign.borrow_and_update();
            publish(&gateway, deliverer::gateways_node(view, &reader.cluster, &reader.hostname));
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
    let mut view = known.view(reader).unwrap_or_default();
    if let Some(node) = deliverer::gateways_node(&view, &reader.cluster, &reader.hostname) {
        view.is_agent_foreign = deliverer::look(store, namespace, &node).await.unwrap_or_default();
    }
    Ok(view)
}

/// What is known of a store.
#[derive(Default)]
struct Mirrors {
    endpoints: Mirror,
    clusters: Mirror,
    nodes: Nodes,
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

    fn read(&self, reader: &Reader) -> Known {
        Known { view: self.view(reader), remotes: self.remotes(&reader.cluster), away: self.away().cloned() }
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
            // Which device of this node is whose is said by its own cluster alone.
            let is_own = facts.cluster_id == own;
            let interface = is_own.then(|| interface(object, &endpoint.spec, &mut view.conditions)).flatten();
            view.endpoints.push(Endpoint {
                name: object.metadata.name.clone(),
                cluster: facts.cluster_id,
                hostname: facts.hostname,
                created: created(object),
                subnets: facts.subnets,
                addresses: [Some(facts.private_ip), facts.public_ip].into_iter().flatten().collect(),
                backend: facts.backend,
                health_check: facts.health_check_ip,
                interface,
                cable_port: facts.udp_port.unwrap_or(DEFAULT_CABLE_PORT),
                natt_port: facts.nat_discovery_port.unwrap_or(DEFAULT_NATT_PORT),
            });
        }
        Err(error) => {
            complain(object, &format!("{error}; its networks are refused, not routed"), &mut view.conditions);
            let networks = usable(&endpoint.spec.subnets);
            view.clusters.push(Cluster { id: endpoint.spec.cluster_id, created: created(object), networks });
        }
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
        assert_eq!(endpoint.addresses, ["172.31.2.11".parse::<std::net::IpAddr>().unwrap()]);
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
        let networks = |global: serde_json::Value| {
            let spec = json!({"cluster_id": "b", "service_cidr": ["100.2.0.0/16"], "cluster_cidr": ["10.2.0.0/16"],
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

    fn endpoint(fields: &serde_json::Value, backend_config: &serde_json::Value) -> Object {
        let mut spec = json!({
            "cluster_id": "b", "cable_name": "cable", "hostname": "b-gw1", "subnets": ["10.2.0.0/16"],
            "private_ip": "172.31.2.11", "public_ip": "", "backend": "wireguard",
            "backend_config": backend_config,
        });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        object("Endpoint", "b-cable", &spec)
    }

    fn object(kind: &str, name: &str, spec: &serde_json::Value) -> Object {
        Object::from_value(json!({
            "apiVersion": "submariner.io/v1", "kind": kind,
            "metadata": {"name": name, "namespace": "ns"}, "spec": spec,
        }))
        .unwrap()
    }
}
