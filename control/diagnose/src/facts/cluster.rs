//! What the objects of a cluster say of it as a whole: its ID, networks, nodes and gateways.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node as KubeNode, Pod};
use serde_json::Value;
use trieste_control::api::label::HOSTNAME;
use trieste_control::api::{Cluster as ClusterObject, Endpoint, Gateway, HaStatus};
use trieste_control::members::paths_namespace;
use trieste_control::requirements::{Deliverer, promise};

use super::pods::not_ready;
use super::{FactError, Source};
use crate::path::evidence::{Cluster, GatewayNode, Node};

/// Ours: a gateway that has not written its object for so long is none. It writes every five seconds; clocks differ.
const STALE_SECONDS: i64 = 60;
/// Ours: gateways of a cluster that are looked at.
const MAX_GATEWAYS: usize = 8;
/// The label of a node that a gateway runs on.
const GATEWAY_LABEL: &str = "submariner.io/gateway";
/// The label of copies of other clusters' objects.
const ORIGIN_LABEL: &str = "submariner-io/clusterID";

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
    notes.extend(stale.map(|gateway| stale_note(&cluster.id, gateway)));
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

fn stale_note(cluster: &str, gateway: &Gateway) -> String {
    format!(
        "cluster {cluster}: gateway {} has not written its object for over a minute",
        gateway.metadata.name
    )
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
    plugin.filter(|plugin| promise(plugin).delivery == Deliverer::Plugin).unwrap_or_default().to_owned()
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
    let is_it =
        |node: &&KubeNode| node.metadata.name.as_ref() == Some(host) || label(node, HOSTNAME) == Some(host);
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use trieste_control::requirements::PLUGINS;

    #[test]
    fn plugin_promises_are_what_diagnosis_goes_by_with_each_plugin() {
        for (plugin, _) in PLUGINS {
            let delivers = promise(plugin).delivery == Deliverer::Plugin;
            for part in ["status", "spec"] {
                let special = special_plugin(&[json!({part: {"networkPlugin": plugin}})]);
                assert_eq!(special, if delivers { plugin } else { "" });
            }
        }
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
}
