//! Reads what the API server of a cluster knows: objects of the cluster set, nodes, pods, policies.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use futures::TryFutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node as KubeNode, Pod, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;
use trieste_control::api::{
    Cluster as ClusterObject, Endpoint, Gateway, GlobalIngressIp, HaStatus, RouteAgent,
};
use trieste_control::members::paths_namespace;

use crate::path::evidence::{Cluster, GatewayNode, Node, PodFacts, PolicyFacts};

/// Ours: how long an API server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Ours: a gateway that has not written its object for so long is none. It writes every five seconds; clocks differ.
const STALE_SECONDS: i64 = 60;
/// Ours: gateways of a cluster that are looked at.
const MAX_GATEWAYS: usize = 8;
/// The label of a node that a gateway runs on.
const GATEWAY_LABEL: &str = "submariner.io/gateway";
/// The label of copies of other clusters' objects.
const ORIGIN_LABEL: &str = "submariner-io/clusterID";
/// The Secret with the preshared key.
const KEY_SECRET: &str = "submariner-ipsec-psk";

/// Why facts cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FactError {
    /// The API server refuses or fails.
    #[error("{what} cannot be read: {why}")]
    Api {
        /// What was asked for.
        what: String,
        /// The API server's word.
        why: String,
    },
}

/// A cluster's API server, and where to look.
#[derive(Clone)]
pub struct Source {
    /// The client.
    pub client: Client,
    /// The namespace of gateways and their objects.
    pub namespace: String,
}

impl Source {
    /// Objects of a kind of the cluster set; `None` where the kind is not known. What cannot be read is left out.
    ///
    /// # Errors
    /// When the API server refuses or fails.
    pub async fn list<T: DeserializeOwned>(
        &self,
        kind: &str,
        plural: &str,
    ) -> Result<Option<Vec<T>>, FactError> {
        self.list_in(kind, plural, "v1", &self.namespace).await
    }

    pub(crate) async fn list_in<T: DeserializeOwned>(
        &self,
        kind: &str,
        plural: &str,
        version: &str,
        namespace: &str,
    ) -> Result<Option<Vec<T>>, FactError> {
        let resource = resource(kind, plural, version);
        let objects = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &resource);
        readable(&format!("{plural} of namespace {namespace}"), &objects).await
    }

    async fn list_all<T: DeserializeOwned>(
        &self,
        kind: &str,
        plural: &str,
        version: &str,
    ) -> Result<Option<Vec<T>>, FactError> {
        let objects = Api::<DynamicObject>::all_with(self.client.clone(), &resource(kind, plural, version));
        readable(plural, &objects).await
    }

    /// Returns the global addresses of exported services and their pods, of one namespace or of all.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub(crate) async fn global_ingress_ips(
        &self,
        namespace: Option<&str>,
    ) -> Result<Vec<GlobalIngressIp>, FactError> {
        let found = match namespace {
            Some(namespace) => self.list_in("GlobalIngressIP", "globalingressips", "v1", namespace).await?,
            None => self.list_all("GlobalIngressIP", "globalingressips", "v1").await?,
        };
        Ok(found.unwrap_or_default())
    }

    /// Endpoints; `None` if the cluster is no member of a set.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub async fn endpoints(&self) -> Result<Option<Vec<Endpoint>>, FactError> {
        self.list("Endpoint", "endpoints").await
    }

    /// Gateways.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub async fn gateways(&self) -> Result<Vec<Gateway>, FactError> {
        Ok(self.list("Gateway", "gateways").await?.unwrap_or_default())
    }

    /// Route agents.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub async fn route_agents(&self) -> Result<Vec<RouteAgent>, FactError> {
        Ok(self.list("RouteAgent", "routeagents").await?.unwrap_or_default())
    }

    /// Nodes.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub async fn nodes(&self) -> Result<Vec<KubeNode>, FactError> {
        let nodes = Api::<KubeNode>::all(self.client.clone());
        Ok(match within("nodes", nodes.list(&ListParams::default())).await? {
            Found::There(list) => list.items,
            Found::Missing => Vec::new(),
        })
    }

    /// Pods of the own namespace with a label.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub async fn pods(&self, labels: &str) -> Result<Vec<Pod>, FactError> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
        Ok(match within("pods", pods.list(&ListParams::default().labels(labels))).await? {
            Found::There(list) => list.items,
            Found::Missing => Vec::new(),
        })
    }

    /// A pod of any namespace.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub async fn pod(&self, namespace: &str, name: &str) -> Result<Option<Pod>, FactError> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
        Ok(match within(&format!("pod {namespace}/{name}"), pods.get(name)).await? {
            Found::There(pod) => Some(pod),
            Found::Missing => None,
        })
    }

    /// The pod that has an address, not counting those with their node's.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub async fn pod_at(&self, address: IpAddr) -> Result<Option<Pod>, FactError> {
        let pods = Api::<Pod>::all(self.client.clone());
        let params = ListParams::default().fields(&format!("status.podIP={address}"));
        Ok(match within("pods", pods.list(&params)).await? {
            Found::There(list) => list.items.into_iter().find(|pod| !is_host_network(pod)),
            Found::Missing => None,
        })
    }

    /// Calico's address pools; none without Calico.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub(crate) async fn pools(&self) -> Result<Vec<Value>, FactError> {
        let resource = ApiResource {
            group: "crd.projectcalico.org".to_owned(),
            version: "v1".to_owned(),
            api_version: "crd.projectcalico.org/v1".to_owned(),
            kind: "IPPool".to_owned(),
            plural: "ippools".to_owned(),
        };
        let pools = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        Ok(match within("Calico's pools", pools.list(&ListParams::default())).await? {
            Found::There(list) => {
                list.items.iter().filter_map(|pool| serde_json::to_value(pool).ok()).collect()
            }
            Found::Missing => Vec::new(),
        })
    }

    /// The preshared key, for comparison only.
    pub(crate) async fn preshared_key(&self) -> Option<Vec<u8>> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        match within("the preshared key", secrets.get(KEY_SECRET)).await {
            Ok(Found::There(secret)) => secret.data?.remove("psk").map(|bytes| bytes.0),
            Ok(Found::Missing) | Err(_) => None,
        }
    }
}

/// Something that was asked for by name.
pub(crate) enum Found<T> {
    There(T),
    Missing,
}

/// Asks, with an end.
pub(crate) async fn within<T>(
    what: &str,
    asked: impl Future<Output = Result<T, kube::Error>>,
) -> Result<Found<T>, FactError> {
    let fail = |why: String| FactError::Api { what: what.to_owned(), why };
    let asked = asked.map_ok(Found::There).or_else(async |error| {
        let kube::Error::Api(status) = &error else { return Err(fail(error.to_string())) };
        if status.code == 404 {
            return Ok(Found::Missing);
        }
        Err(fail(format!("{} ({})", status.message, status.code)))
    });
    match timeout(PATIENCE, asked).await {
        Ok(found) => found,
        Err(_) => Err(fail(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

fn resource(kind: &str, plural: &str, version: &str) -> ApiResource {
    ApiResource {
        group: "submariner.io".to_owned(),
        version: version.to_owned(),
        api_version: format!("submariner.io/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// Lists objects and reads those that can be; `None` where their kind is not known.
async fn readable<T: DeserializeOwned>(
    what: &str,
    objects: &Api<DynamicObject>,
) -> Result<Option<Vec<T>>, FactError> {
    let Found::There(list) = within(what, objects.list(&ListParams::default())).await? else {
        return Ok(None);
    };
    let read = |object: DynamicObject| serde_json::from_value(serde_json::to_value(object).ok()?).ok();
    Ok(Some(list.items.into_iter().filter_map(read).collect()))
}

/// Reads everything but the pod at the connection's end.
///
/// # Errors
/// When the API server refuses or fails for what nothing can be said without.
pub async fn cluster(source: &Source, kubectl: &str, notes: &mut Vec<String>) -> Result<Cluster, FactError> {
    let mut cluster = Cluster {
        visible: true,
        kubectl: kubectl.to_owned(),
        namespace: source.namespace.clone(),
        ..Cluster::default()
    };
    let paths = paths_namespace(&source.namespace);
    let (nodes, endpoints, gateways, clusters, members, pods, further) = futures::join!(
        source.nodes(),
        source.endpoints(),
        source.gateways(),
        source.list::<ClusterObject>("Cluster", "clusters"),
        source.list_in::<Value>("Submariner", "submariners", "v1alpha1", &source.namespace),
        source.pods("app=submariner-gateway"),
        source.list_in::<Endpoint>("Endpoint", "endpoints", "v1", &paths),
    );
    let nodes = nodes?;
    cluster.nodes = nodes.iter().filter_map(node).collect();
    cluster.gateway_nodes = nodes
        .iter()
        .filter(|node| is_gateway_node(node))
        .filter_map(|node| node.metadata.name.clone())
        .collect();
    let Some(endpoints) = endpoints? else { return Ok(cluster) };
    let (gateways, pods) = (gateways?, pods?);
    let (clusters, members) = (clusters?.unwrap_or_default(), members?.unwrap_or_default());
    cluster.id = own_id(&gateways, &members, &endpoints);
    cluster.joined = !cluster.id.is_empty();
    cluster.network_plugin = special_plugin(&members);
    cluster.networks = networks(&clusters, &cluster.id);
    cluster.is_global = clusters
        .iter()
        .any(|object| object.spec.cluster_id == cluster.id && !object.spec.global_cidr.is_empty());
    let now = Timestamp::now();
    let is_fresh = |gateway: &Gateway| {
        gateway.updated().is_none_or(|updated| now.as_second() - updated.as_second() < STALE_SECONDS)
    };
    let stale = gateways.iter().filter(|gateway| !is_fresh(gateway));
    notes.extend(stale.map(|gateway| {
        format!(
            "cluster {}: gateway {} has not written its object for over a minute",
            cluster.id, gateway.metadata.name
        )
    }));
    cluster.gateway = gateway_node(&endpoints, &gateways, &nodes, &pods, &cluster.id);
    cluster.active_gateways =
        active_gateways(cluster.gateway.as_deref(), gateways.iter().filter(|g| is_fresh(g)), &nodes);
    cluster.gateway_pods = pods.iter().filter_map(gateway_pod).collect();
    cluster.gateways = gateways.into_iter().filter(is_fresh).map(|gateway| gateway.status).collect();
    let newest_last = |endpoint: &Endpoint| endpoint.metadata.creation_timestamp;
    let mut endpoints = endpoints;
    endpoints.sort_by_key(newest_last);
    cluster.endpoints = endpoints.into_iter().rev().map(|endpoint| endpoint.spec).collect();
    // Those of this cluster's gateways that do not lead.
    let own = further.unwrap_or_default().into_iter().flatten().map(|endpoint| endpoint.spec);
    cluster.endpoints.extend(own.filter(|endpoint| endpoint.cluster_id == cluster.id));
    notes.extend(cluster.unpublished().into_iter().map(|(node, net)| {
        format!("cluster {} does not publish {net}, the network of pods on node {node}", cluster.id)
    }));
    Ok(cluster)
}

fn node(node: &KubeNode) -> Option<(String, Node)> {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    let not_ready = ready.filter(|condition| condition.status != "True").map(|condition| {
        condition
            .message
            .clone()
            .or_else(|| condition.reason.clone())
            .unwrap_or_else(|| "its kubelet is silent".to_owned())
    });
    let addresses = status.and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    let internal = addresses.iter().filter(|address| address.type_ == "InternalIP");
    let addresses = internal.filter_map(|address| address.address.parse().ok()).collect();
    let spec = node.spec.as_ref();
    let listed = spec.and_then(|spec| spec.pod_cidrs.as_deref()).unwrap_or_default();
    let single = spec.and_then(|spec| spec.pod_cidr.as_ref()).filter(|_| listed.is_empty());
    let pod_networks = listed.iter().chain(single).filter_map(|net| net.parse().ok()).collect();
    Some((node.metadata.name.clone()?, Node { not_ready, addresses, pod_networks, ..Node::default() }))
}

fn is_gateway_node(node: &KubeNode) -> bool {
    label(node, GATEWAY_LABEL) == Some("true")
}

fn label<'a>(node: &'a KubeNode, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// The cluster's own ID: as its gateways say, else as it was joined, else by the one Endpoint that is no copy.
fn own_id(gateways: &[Gateway], members: &[Value], endpoints: &[Endpoint]) -> String {
    let by_gateway = gateways.first().map(|gateway| gateway.status.local_endpoint.cluster_id.clone());
    let by_member =
        || members.iter().find_map(|member| Some(member.pointer("/spec/clusterID")?.as_str()?.to_owned()));
    let by_endpoint = || {
        let own = endpoints.iter().find(|endpoint| !endpoint.metadata.labels.contains_key(ORIGIN_LABEL));
        own.map(|endpoint| endpoint.spec.cluster_id.clone())
    };
    by_gateway.filter(|id| !id.is_empty()).or_else(by_member).or_else(by_endpoint).unwrap_or_default()
}

/// The network plugin, if it is one that delivers packets from the gateway on its own.
fn special_plugin(members: &[Value]) -> String {
    let plugin = members.iter().find_map(|member| {
        let plugin =
            member.pointer("/status/networkPlugin").or_else(|| member.pointer("/spec/networkPlugin"));
        plugin?.as_str()
    });
    let special = ["calico", "weave-net", "OVNKubernetes"];
    plugin.filter(|plugin| special.contains(plugin)).unwrap_or_default().to_owned()
}

fn networks(clusters: &[ClusterObject], id: &str) -> Vec<ipnet::IpNet> {
    let Some(own) = clusters.iter().find(|cluster| cluster.spec.cluster_id == id) else { return Vec::new() };
    // With Globalnet the own networks may be anybody's.
    let texts: Vec<&String> = if own.spec.global_cidr.is_empty() {
        own.spec.service_cidr.iter().chain(&own.spec.cluster_cidr).collect()
    } else {
        own.spec.global_cidr.iter().collect()
    };
    texts.into_iter().filter_map(|text| text.parse().ok()).collect()
}

/// The node of the active gateway: by its Endpoint's host name, else by the label of its pod.
fn gateway_node(
    endpoints: &[Endpoint],
    gateways: &[Gateway],
    nodes: &[KubeNode],
    pods: &[Pod],
    id: &str,
) -> Option<String> {
    let newest = endpoints
        .iter()
        .filter(|endpoint| endpoint.spec.cluster_id == id)
        .max_by_key(|endpoint| endpoint.metadata.creation_timestamp);
    let active = gateways.iter().find(|gateway| gateway.status.ha_status == HaStatus::Active);
    let hosts = newest
        .map(|endpoint| &endpoint.spec.hostname)
        .into_iter()
        .chain(active.map(|gateway| &gateway.status.local_endpoint.hostname));
    let labelled = || {
        let is_active = |pod: &&Pod| {
            let labels = pod.metadata.labels.as_ref();
            labels
                .and_then(|labels| labels.get("gateway.submariner.io/status"))
                .is_some_and(|status| status == "active")
        };
        pods.iter().find(is_active)?.spec.as_ref()?.node_name.clone()
    };
    hosts.into_iter().find_map(|host| node_of(host, nodes)).or_else(labelled)
}

/// Returns the name of the node with this host name.
fn node_of(host: &String, nodes: &[KubeNode]) -> Option<String> {
    let is_it = |node: &&KubeNode| {
        node.metadata.name.as_ref() == Some(host) || label(node, "kubernetes.io/hostname") == Some(host)
    };
    nodes.iter().find(is_it)?.metadata.name.clone()
}

/// Returns the gateways that say that they carry traffic, the leader first. A gateway that stands by is none.
fn active_gateways<'a>(
    leader: Option<&str>,
    gateways: impl Iterator<Item = &'a Gateway>,
    nodes: &[KubeNode],
) -> Vec<GatewayNode> {
    let of = |gateway: &Gateway| {
        let hostname = gateway.status.local_endpoint.hostname.clone();
        Some(GatewayNode { node: node_of(&hostname, nodes)?, hostname })
    };
    let active = gateways.filter(|gateway| gateway.status.ha_status == HaStatus::Active);
    let mut all: Vec<GatewayNode> = active.filter_map(of).take(MAX_GATEWAYS).collect();
    all.sort_by_key(|gateway| (Some(gateway.node.as_str()) != leader, gateway.node.clone()));
    all
}

fn gateway_pod(pod: &Pod) -> Option<(String, Option<String>)> {
    let node = pod.spec.as_ref()?.node_name.clone().unwrap_or_else(|| "none yet".to_owned());
    Some((node, not_ready(pod)))
}

/// Why a pod is not ready; `None` if it is.
pub(crate) fn not_ready(pod: &Pod) -> Option<String> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted".to_owned());
    }
    let Some(status) = &pod.status else { return Some("it has no status".to_owned()) };
    let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
    if ready.is_some_and(|condition| condition.status == "True") {
        return None;
    }
    let phase = status.phase.clone().unwrap_or_else(|| "Unknown".to_owned());
    let reason = status.container_statuses.iter().flatten().find_map(|container| {
        let state = container.state.as_ref()?;
        let waiting = state.waiting.as_ref().and_then(|waiting| waiting.reason.clone());
        waiting.or_else(|| state.terminated.as_ref()?.reason.clone())
    });
    let message = ready.and_then(|condition| condition.message.clone());
    Some(match reason.or(message) {
        Some(reason) => format!("it is {phase} ({reason})"),
        None => format!("it is {phase}"),
    })
}

pub(crate) fn is_host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false)
}

/// The pod at the connection's end, with everything about it.
pub(crate) fn pod_facts(pod: &Pod) -> PodFacts {
    let name = format!(
        "{}/{}",
        pod.metadata.namespace.as_deref().unwrap_or_default(),
        pod.metadata.name.as_deref().unwrap_or_default()
    );
    let status = pod.status.clone().unwrap_or_default();
    let all = status.pod_ips.into_iter().flatten().map(|one| one.ip).chain(status.pod_ip);
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in all.filter_map(|text| text.parse().ok()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    PodFacts {
        name,
        missing: false,
        not_ready: not_ready(pod),
        address: addresses.first().copied(),
        addresses,
        outside: None,
        host_network: is_host_network(pod),
        known: true,
    }
}

impl Source {
    /// Network policies that choose a pod.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub(crate) async fn policies(&self, pod: &Pod) -> Result<Vec<PolicyFacts>, FactError> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let policies = Api::<NetworkPolicy>::namespaced(self.client.clone(), namespace);
        let found = within("network policies", policies.list(&ListParams::default())).await?;
        let Found::There(list) = found else { return Ok(Vec::new()) };
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        Ok(list.items.iter().filter_map(|policy| policy_facts(policy, namespace, &labels)).collect())
    }
}

fn policy_facts(
    policy: &NetworkPolicy,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> Option<PolicyFacts> {
    let spec = policy.spec.as_ref()?;
    let chooses = spec.pod_selector.as_ref().is_none_or(|selector| selects(selector, labels));
    chooses.then_some(())?;
    let types = spec.policy_types.as_deref().unwrap_or_default();
    let rules = |word: &str| types.iter().any(|each| each == word);
    Some(PolicyFacts {
        name: format!("{namespace}/{}", policy.metadata.name.as_deref().unwrap_or_default()),
        ingress: types.is_empty() || rules("Ingress"),
        egress: rules("Egress") || (types.is_empty() && spec.egress.is_some()),
    })
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let wanted = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    wanted
        && selector.match_expressions.iter().flatten().all(|expression| {
            let value = labels.get(&expression.key);
            let is_in =
                value.is_some_and(|value| expression.values.iter().flatten().any(|each| each == value));
            match expression.operator.as_str() {
                "In" => is_in,
                "NotIn" => !is_in,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_policy_that_chooses_the_pod_is_found_with_its_directions() {
        let policy: NetworkPolicy = serde_json::from_value(json!({"metadata": {"name": "deny"}, "spec": {
            "podSelector": {"matchLabels": {"app": "web"},
                "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["db"]}]},
            "policyTypes": ["Ingress", "Egress"]}}))
        .unwrap();
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let found = policy_facts(&policy, "shop", &labels(&[("app", "web")])).unwrap();
        assert_eq!((found.name.as_str(), found.ingress, found.egress), ("shop/deny", true, true));
        assert_eq!(policy_facts(&policy, "shop", &labels(&[("app", "web"), ("tier", "db")])), None);
        assert_eq!(policy_facts(&policy, "shop", &labels(&[])), None);
    }

    #[test]
    fn a_node_that_is_not_ready_says_why() {
        let object: KubeNode = serde_json::from_value(json!({"metadata": {"name": "w1"}, "status": {
            "conditions": [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}],
            "addresses": [{"type": "InternalIP", "address": "172.18.0.3"}, {"type": "Hostname", "address": "w1"}]},
            "spec": {"podCIDR": "10.1.1.0/24", "podCIDRs": ["10.1.1.0/24", "fd00:1::/64"]}}))
        .unwrap();
        let (name, node) = node(&object).unwrap();
        assert_eq!(node.pod_networks.len(), 2);
        assert_eq!((name.as_str(), node.addresses.len()), ("w1", 1));
        assert!(node.not_ready.unwrap().contains("stopped posting"));
    }

    #[test]
    fn a_pod_that_is_not_ready_says_why() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "False", "message": "containers with unready status: [web]"}]}}))
        .unwrap();
        assert_eq!(not_ready(&pod).unwrap(), "it is Running (containers with unready status: [web])");
    }
}
