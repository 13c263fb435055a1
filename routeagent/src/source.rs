//! The store's objects, followed and parsed into what drivers need.
//!
//! Nothing is published before both kinds were listed, and an unreadable store keeps what was known: an empty cluster
//! set would open what is to stay closed.
//!
//! An object that cannot be used costs only itself, and as little of that as possible: of an Endpoint with one bad
//! field the good networks are still failed closed, though not routed.

use std::collections::BTreeSet;

use futures::StreamExt;
use futures::stream::select;
use ipnet::IpNet;
use tokio::sync::watch;
use tracing::warn;
use trieste_control::api::{self, Kind, Object, Resource, backend_config, parse_cidrs};
use trieste_control::store::{Mirror, Store, StoreError, StoreEvent};

use crate::condition::Condition;
use crate::hostnet::{DEFAULT_CABLE_PORT, DEFAULT_NATT_PORT};
use crate::reconcile::ClusterView;
use crate::state::{Cluster, Endpoint};

/// Longest device name, in bytes (`IFNAMSIZ` less the terminator).
const MAX_DEVICE_NAME: usize = 15;

/// Follows a store for ever and publishes every new view.
pub async fn follow(store: &impl Store, namespace: &str, views: watch::Sender<Option<ClusterView>>) {
    let endpoints = store.list_watch(Kind::Endpoint, namespace).map(|event| (Kind::Endpoint, event));
    let clusters = store.list_watch(Kind::Cluster, namespace).map(|event| (Kind::Cluster, event));
    let mut events = select(endpoints, clusters);
    let mut known = Known::default();
    while let Some((kind, event)) = events.next().await {
        known.take(kind, &event);
        match known.view() {
            Some(view) => {
                // Says nothing when nothing follows from the change, such as another annotation.
                views.send_if_modified(|last| {
                    let is_news = last.as_ref() != Some(&view);
                    *last = Some(view);
                    is_news
                });
            }
            None => {
                if let Some(away) = known.away() {
                    warn!("{away}");
                }
            }
        }
    }
}

/// Reads a store once.
///
/// # Errors
///
/// The store cannot be read.
pub async fn read(store: &impl Store, namespace: &str) -> Result<ClusterView, StoreError> {
    let endpoints = store.list(Kind::Endpoint, namespace).await?;
    let clusters = match store.list(Kind::Cluster, namespace).await {
        Err(StoreError::Forbidden { .. }) => Vec::new(),
        clusters => clusters?,
    };
    Ok(view(endpoints.iter().chain(&clusters)))
}

/// What is known of a store.
#[derive(Default)]
struct Known {
    endpoints: Mirror,
    clusters: Mirror,
    endpoints_away: Option<String>,
    clusters_away: Option<String>,
    /// Upstream's rights let a route agent read Endpoints alone (api §13): those say all that routes need.
    clusters_forbidden: bool,
}

impl Known {
    fn take(&mut self, kind: Kind, event: &StoreEvent) {
        let (mirror, away) = if kind == Kind::Endpoint {
            (&mut self.endpoints, &mut self.endpoints_away)
        } else {
            (&mut self.clusters, &mut self.clusters_away)
        };
        mirror.apply(event);
        if kind == Kind::Cluster {
            match event {
                StoreEvent::Unavailable(StoreError::Forbidden { .. }) => self.clusters_forbidden = true,
                StoreEvent::Listed(_) => self.clusters_forbidden = false,
                // An outage in between changes no rights.
                StoreEvent::Applied(_) | StoreEvent::Deleted(_) | StoreEvent::Unavailable(_) | _ => {}
            }
        }
        *away = if let StoreEvent::Unavailable(error) = event { Some(error.to_string()) } else { None };
    }

    fn away(&self) -> Option<Condition> {
        let of_clusters = self.clusters_away.as_ref().filter(|_| !self.clusters_forbidden);
        let error = self.endpoints_away.as_ref().or(of_clusters)?;
        Some(Condition::StoreAway { error: error.clone() })
    }

    /// Returns the view, once both kinds were listed.
    fn view(&self) -> Option<ClusterView> {
        if !(self.endpoints.is_complete() && (self.clusters.is_complete() || self.clusters_forbidden)) {
            return None;
        }
        let mut view = view(self.endpoints.objects().chain(self.clusters.objects()));
        view.conditions.extend(self.away());
        Some(view)
    }
}

/// Parses all Endpoints and Clusters of a store. Other kinds are ignored.
#[must_use]
pub fn view<'a>(objects: impl IntoIterator<Item = &'a Object>) -> ClusterView {
    let mut view = ClusterView::default();
    for object in objects {
        match object.kind {
            Kind::Endpoint => add_endpoint(object, &mut view),
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

fn add_endpoint(object: &Object, view: &mut ClusterView) {
    let endpoint = match api::Endpoint::from_object(object) {
        Ok(endpoint) => endpoint,
        Err(error) => return complain(object, &error.to_string(), &mut view.conditions),
    };
    match endpoint.spec.parse() {
        Ok(facts) => {
            let interface = interface(object, &endpoint.spec, &mut view.conditions);
            view.endpoints.push(Endpoint {
                name: object.metadata.name.clone(),
                cluster: facts.cluster_id,
                hostname: facts.hostname,
                created: created(object),
                subnets: facts.subnets,
                addresses: [Some(facts.private_ip), facts.public_ip].into_iter().flatten().collect(),
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
fn interface(
    object: &Object,
    spec: &api::EndpointSpec,
    conditions: &mut BTreeSet<Condition>,
) -> Option<String> {
    let name = spec.backend_config.get(backend_config::INTERFACE_NAME)?;
    if is_device_name(name) {
        return Some(name.clone());
    }
    let field = backend_config::INTERFACE_NAME;
    complain(object, &format!("spec.backend_config.{field}: `{name}` is not a device name"), conditions);
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
        let view = view([&endpoint(&json!({}), &json!({"udp-port": "4501", "interface-name": "cable7"}))]);
        let endpoint = &view.endpoints[0];
        assert_eq!((endpoint.cable_port, endpoint.natt_port), (4501, 4490));
        assert_eq!(endpoint.interface.as_deref(), Some("cable7"));
        assert_eq!(endpoint.addresses, ["172.31.2.11".parse::<std::net::IpAddr>().unwrap()]);
        assert!(view.conditions.is_empty(), "{:?}", view.conditions);
    }

    #[test]
    fn of_an_endpoint_with_a_bad_network_the_good_ones_are_claimed_but_not_routed() {
        let view = view([&endpoint(&json!({"subnets": ["10.2.0.0/16", "10.3.0.0/33"]}), &json!({}))]);
        assert!(view.endpoints.is_empty());
        assert_eq!(view.clusters[0].networks, ["10.2.0.0/16".parse::<IpNet>().unwrap()]);
        let text = view.conditions.iter().map(ToString::to_string).collect::<String>();
        assert!(text.contains("Endpoint ns/b-cable") && text.contains("spec.subnets[1]"), "{text}");
    }

    #[test]
    fn a_device_name_that_leaves_its_directory_is_not_used() {
        let view = view([&endpoint(&json!({}), &json!({"interface-name": "../all"}))]);
        assert_eq!(view.endpoints[0].interface, None);
        assert_eq!(view.conditions.len(), 1);
    }

    #[test]
    fn a_cluster_claims_its_global_networks_alone_if_it_has_any() {
        let networks = |global: serde_json::Value| {
            let spec = json!({"cluster_id": "b", "service_cidr": ["100.2.0.0/16"], "cluster_cidr": ["10.2.0.0/16"],
                              "global_cidr": global});
            view([&object("Cluster", "b", &spec)]).clusters[0].networks.len()
        };
        assert_eq!((networks(json!([])), networks(json!(["242.1.0.0/16"]))), (2, 1));
    }

    #[test]
    fn nothing_is_known_before_both_kinds_were_listed_and_a_store_that_goes_away_is_remembered() {
        let mut known = Known::default();
        let listed = |object| StoreEvent::Listed(vec![object]);
        known.take(Kind::Endpoint, &listed(endpoint(&json!({}), &json!({}))));
        assert_eq!(known.view(), None);
        known.take(Kind::Cluster, &StoreEvent::Listed(Vec::new()));
        let before = known.view().unwrap();
        assert_eq!(before.endpoints.len(), 1);

        let source = std::io::Error::other("gone");
        let doing = "read directory /x".to_owned();
        known.take(Kind::Endpoint, &StoreEvent::Unavailable(StoreError::Unavailable { doing, source }));
        let after = known.view().unwrap();
        assert_eq!(after.endpoints, before.endpoints);
        assert!(after.conditions.iter().any(|c| c.to_string().contains("cannot read directory /x: gone")));
    }

    #[test]
    fn clusters_that_may_not_be_read_are_done_without_also_after_an_outage() {
        let away = |error: fn(String, std::io::Error) -> StoreError| {
            StoreEvent::Unavailable(error("list clusters".to_owned(), std::io::Error::other("no")))
        };
        let mut known = Known::default();
        known.take(Kind::Cluster, &away(|doing, source| StoreError::Forbidden { doing, source }));
        known.take(Kind::Cluster, &away(|doing, source| StoreError::Unavailable { doing, source }));
        known.take(Kind::Endpoint, &StoreEvent::Listed(vec![endpoint(&json!({}), &json!({}))]));
        let view = known.view().unwrap();
        assert_eq!((view.endpoints.len(), view.conditions.len()), (1, 0));
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
