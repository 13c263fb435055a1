//! Network plugins of clouds, for which upstream has no names: members have them as any other.
//!
//! Pods have addresses of the cloud's own network, which takes packets to them: what comes from remote clusters as well, where
//! Kubernetes does not assign networks to nodes. Networks come from the sources that all plugins have.

use serde_json::Value;

use super::flags::variable;
use super::found::Found;
use super::{GENERIC, Observed};

/// Where clouds run their plugins.
const NAMESPACE: &str = "kube-system";
/// The DaemonSet of AWS' plugin.
const AWS: &str = "aws-node";
/// Those of Azure's plugin: the one that gives out addresses, and the one that enforces network policies.
const AZURE: [&str; 2] = ["azure-cns", "azure-npm"];
/// Those of GKE: Dataplane V2, which is Cilium, and what every cluster with addresses of the VPC has.
const GKE: [(&str, &str); 2] = [("anetd", "GKE Dataplane V2"), ("netd", "GKE")];
/// Labels of Azure's nodes whose pods have addresses of an overlay instead of the VNet's.
const OVERLAY: [(&str, &str); 2] =
    [("kubernetes.azure.com/podnetwork-type", "overlay"), ("kubernetes.azure.com/azure-cni-overlay", "true")];

/// A cloud's plugin.
struct Cloud {
    called: &'static str,
    set: &'static str,
    /// Whose addresses pods have.
    of: &'static str,
    /// What `--clustercidr` has to name.
    range: &'static str,
    /// What has to be changed for the cloud's network to deliver what comes from remote clusters; `None` where the gateway's node
    /// hands it over.
    delivery: Option<&'static str>,
}

impl Cloud {
    fn found(&self) -> Found {
        let Self { called, set, of, range, delivery } = self;
        let mut found = Found::new(GENERIC, format!("{called}: DaemonSet {NAMESPACE}/{set}"));
        found.plugin.called = Some(called);
        let delivery = delivery.map_or_else(String::new, |delivery| {
            format!(
                ". That network delivers what comes from remote clusters: have one gateway active (--active-gateways one), {delivery}"
            )
        });
        found.warning = Some(format!(
            "{called} was found, with which this version was not tried: pods have addresses of {of}; say {range} as \
             --clustercidr{delivery}"
        ));
        found
    }
}

/// Returns the first one that is there.
pub(super) fn find(observed: &Observed) -> Option<Found> {
    [aws, azure, gke].into_iter().find_map(|cloud| cloud(observed))
}

fn aws(observed: &Observed) -> Option<Found> {
    let set = daemon_set(observed, AWS)?;
    let cloud = Cloud {
        called: "AWS VPC CNI",
        set: AWS,
        of: "the VPC",
        range: "its networks with pods in them",
        delivery: Some(
            "switch the source/destination check of gateways' instances off, and let security groups of nodes and pods pass remote CIDRs",
        ),
    };
    let mut found = cloud.found();
    let is_external = |value: &str| value.eq_ignore_ascii_case("true");
    if variable(set, "AWS_VPC_K8S_CNI_EXTERNALSNAT").is_some_and(is_external) {
        found.warning = found.warning.map(|text| {
            format!(
                "{text}. With AWS_VPC_K8S_CNI_EXTERNALSNAT packets of pods on further interfaces go by tables of these, past the \
                 node's routes, and are dropped: set it to false"
            )
        });
    }
    Some(found)
}

fn azure(observed: &Observed) -> Option<Found> {
    let set = AZURE.into_iter().find(|set| daemon_set(observed, set).is_some())?;
    let is_of_overlay = |node: &Value| {
        let labels = &node["metadata"]["labels"];
        OVERLAY.iter().any(|(key, value)| labels[*key] == *value)
    };
    let is_overlay = observed.nodes.iter().any(is_of_overlay);
    let (of, range) = match is_overlay {
        true => ("an overlay network of Azure's", "its CIDR (the cluster's podCidr)"),
        false => ("the VNet", "its subnets with pods in them"),
    };
    let delivery = "switch IP forwarding of gateways' network interfaces on, and let network security groups pass remote CIDRs";
    let delivers = !is_overlay || lacks_networks(observed);
    Some(Cloud { called: "Azure CNI", set, of, range, delivery: delivers.then_some(delivery) }.found())
}

fn gke(observed: &Observed) -> Option<Found> {
    let (set, called) = GKE.into_iter().find(|(set, _)| daemon_set(observed, set).is_some())?;
    let delivery = "switch IP forwarding of gateways' instances on, and let firewall rules pass remote CIDRs";
    let cloud = Cloud {
        called,
        set,
        of: "the VPC",
        range: "its range for pods",
        delivery: lacks_networks(observed).then_some(delivery),
    };
    Some(cloud.found())
}

/// Returns `true` unless Kubernetes assigns networks to all nodes, by which the gateway's node hands packets over.
fn lacks_networks(observed: &Observed) -> bool {
    let lacks = |node: &Value| node["spec"]["podCIDR"].as_str().is_none_or(str::is_empty);
    observed.nodes.is_empty() || observed.nodes.iter().any(lacks)
}

fn daemon_set<'a>(observed: &'a Observed, name: &str) -> Option<&'a Value> {
    let is_it = |set: &&Value| set["metadata"]["namespace"] == NAMESPACE && set["metadata"]["name"] == name;
    observed.daemon_sets.iter().find(is_it)
}
