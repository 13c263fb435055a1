//! The half of a preparation that is in the cluster: which nodes are gateways, and OpenShift's sets of machines for them.

use std::fmt;

use serde_json::{Map, Value, json};
use trieste_control::requirements::is_ovn_kubernetes;
use trieste_deploy::discover::{Given, discover};
use trieste_deploy::join::more_gateways;
use trieste_deploy::objects::names::GATEWAY_LABEL;
use trieste_deploy::{ObjectRef, Server};

use crate::CloudError;
use crate::rules::Ports;

/// The annotation of nodes that a preparation has labelled as gateways: its end takes the label off these, and off no others.
pub const LABELLED_BY: &str = "trieste.io/gateway-labelled-by";
/// Its value.
pub const CLOUD_PREPARE: &str = "cloud-prepare";
/// OpenShift's kind, its version and its namespace.
const MACHINE_SET: (&str, &str, &str) =
    ("machine.openshift.io/v1beta1", "MachineSet", "openshift-machine-api");
/// Kubernetes' labels of nodes.
const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
/// OpenShift's annotation of nodes with their machine: its namespace and its name.
const MACHINE: &str = "machine.openshift.io/machine";

/// A node, as its cloud and the preparation see it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What the cloud calls its machine, as in `aws:///eu-west-1a/i-0f1e2d3c`; empty if Kubernetes has not been told.
    pub provider_id: String,
    /// Its zone; empty if it has none.
    pub zone: String,
    /// Its region; empty if it has none.
    pub region: String,
    /// The name of OpenShift's machine that it is; empty if it is none.
    pub machine: String,
    /// Whether it has the label of gateways.
    pub is_gateway: bool,
    /// Whether a preparation has given it that label, which an uninstallation may have taken off since.
    pub is_labelled_here: bool,
}

/// What of a cluster is seen.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// All nodes, by name.
    pub nodes: Vec<Node>,
    /// OpenShift's sets of machines; `None` if the cluster has no such kind, and so is none of OpenShift's.
    pub machine_sets: Option<Vec<Value>>,
    /// What OpenShift's installer calls the cluster's infrastructure; `None` elsewhere.
    pub infra_id: Option<String>,
    /// Whether pods have addresses of AWS's VPC: its network plugin is there.
    pub has_vpc_cni: bool,
    objects: Vec<Value>,
}

impl Cluster {
    /// Reads a cluster.
    ///
    /// # Errors
    /// [`CloudError::Cluster`].
    pub async fn read(server: &Server) -> Result<Self, CloudError> {
        let nodes = server.list("v1", "Node", None, "").await?;
        let (version, kind, namespace) = MACHINE_SET;
        let machine_sets = server.list_if_served(version, kind, Some(namespace), "").await?;
        let infrastructure = ObjectRef::cluster_wide("config.openshift.io/v1", "Infrastructure", "cluster");
        let infrastructure = server.find(&infrastructure).await?.unwrap_or_default();
        let plugin = "fieldSelector=metadata.name%3Daws-node";
        let plugin = server.list("apps/v1", "DaemonSet", Some("kube-system"), plugin).await?;
        Ok(Self {
            infra_id: infrastructure["status"]["infrastructureName"].as_str().map(str::to_owned),
            has_vpc_cni: !plugin.is_empty(),
            ..Self::of(nodes, machine_sets)
        })
    }

    /// Returns what is seen of these objects.
    pub fn of(objects: Vec<Value>, machine_sets: Option<Vec<Value>>) -> Self {
        let mut nodes: Vec<Node> = objects.iter().map(node).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Self { nodes, machine_sets, objects, ..Self::default() }
    }

    /// Returns `true` if machines are made by sets of OpenShift's.
    pub const fn is_openshift(&self) -> bool {
        self.machine_sets.is_some()
    }

    /// Returns the gateways' nodes.
    pub fn gateways(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.is_gateway)
    }

    /// Returns the nodes that are to be labelled so that there are `wanted` gateways, spread over zones: workers before the control
    /// plane, as `join` chooses them.
    pub fn more_gateways(&self, wanted: usize) -> Vec<NodeChange> {
        let chosen = more_gateways(&self.objects, wanted);
        chosen.into_iter().map(|node| NodeChange::Label { node }).collect()
    }

    /// Returns the changes that make nodes what they were before a preparation.
    pub fn fewer_gateways(&self) -> Vec<NodeChange> {
        let ours = self.nodes.iter().filter(|node| node.is_labelled_here);
        ours.map(|node| NodeChange::Unlabel { node: node.name.clone() }).collect()
    }

    /// Returns a set of machines by its name.
    pub fn machine_set(&self, name: &str) -> Option<&Value> {
        self.machine_sets.iter().flatten().find(|set| set["metadata"]["name"] == name)
    }

    /// Returns the sets of machines that a preparation, ours or upstream's, has made for gateways of `infra_id`.
    pub fn gateway_sets<'a>(&'a self, infra_id: &str) -> impl Iterator<Item = &'a str> {
        let prefix = format!("{infra_id}-submariner-gw-");
        let names = self.machine_sets.iter().flatten().filter_map(|set| set["metadata"]["name"].as_str());
        names.filter(move |name| name.starts_with(&prefix))
    }

    /// Returns the gateways whose machines no such set has made.
    pub fn other_gateways(&self, infra_id: &str) -> impl Iterator<Item = &Node> {
        let is_of =
            |set: &str, node: &Node| node.machine.strip_prefix(set).is_some_and(|rest| rest.starts_with('-'));
        self.gateways().filter(move |node| !self.gateway_sets(infra_id).any(|set| is_of(set, node)))
    }

    /// Returns what somebody should see to where there are more gateways than are wanted, or not nodes enough.
    pub fn remark(&self, wanted: usize, chosen: usize) -> Option<String> {
        let there = self.gateways().count();
        if wanted > 0 && there > wanted {
            return Some(format!(
                "there are {there} gateways, and {wanted} are wanted: none is removed, since it may carry traffic; drain one \
                 (trieste drain NODE), then take the label {GATEWAY_LABEL} off its node"
            ));
        }
        let reached = there + chosen;
        (reached < wanted)
            .then(|| format!("{wanted} gateways are wanted, and the cluster has nodes for {reached}"))
    }

    /// Returns the first of the cluster's own sets of worker machines: what a gateway's machine has in common with it, such as its
    /// image, is read there.
    pub fn worker_set(&self, infra_id: &str) -> Option<&Value> {
        let role = "/spec/template/metadata/labels/machine.openshift.io~1cluster-api-machine-role";
        let is_worker = |set: &&Value| set.pointer(role).is_some_and(|role| role == "worker");
        let name = |set: &Value| set["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let prefix = format!("{infra_id}-submariner-gw-");
        let sets = self.machine_sets.iter().flatten().filter(is_worker);
        sets.filter(|set| !name(set).starts_with(&prefix)).min_by_key(|set| name(set))
    }
}

/// Returns the UDP port of the route agents' VXLAN, or 0 where the network plugin leads to gateways itself, as OVN-Kubernetes does.
///
/// # Errors
/// [`CloudError::Cluster`].
pub async fn vxlan_port(server: &Server) -> Result<u16, CloudError> {
    let network = discover(server, &Given::default()).await?;
    let is_led = is_ovn_kubernetes(&network.plugin.name);
    Ok(if is_led { 0 } else { Ports::default().vxlan })
}

/// Returns the name of the set of machines for gateways in a zone, which is upstream's.
pub fn machine_set_name(infra_id: &str, zone: &str) -> String {
    format!("{infra_id}-submariner-gw-{zone}")
}

/// Returns a set of one machine for a gateway: labelled as one, taking none but pods that tolerate gateways' taint, as upstream's.
pub fn machine_set(infra_id: &str, zone: &str, provider: &Value) -> Value {
    let (version, kind, namespace) = MACHINE_SET;
    let name = machine_set_name(infra_id, zone);
    let cluster = json!({"machine.openshift.io/cluster-api-cluster": infra_id});
    let with = |more: &[(&str, &str)]| {
        let mut labels = cluster.as_object().cloned().unwrap_or_else(Map::new);
        labels.extend(more.iter().map(|(key, value)| ((*key).to_owned(), json!(value))));
        labels
    };
    let set = ("machine.openshift.io/cluster-api-machineset", name.as_str());
    let role = ("machine.openshift.io/cluster-api-machine-role", "worker");
    let type_ = ("machine.openshift.io/cluster-api-machine-type", "worker");
    json!({
        "apiVersion": version, "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": cluster},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": with(&[set])},
            "template": {
                "metadata": {"labels": with(&[role, type_, set])},
                "spec": {
                    "metadata": {"labels": {GATEWAY_LABEL: "true"}},
                    "taints": [{"effect": "NoSchedule", "key": "node-role.submariner.io/gateway"}],
                    "providerSpec": {"value": provider},
                },
            },
        },
    })
}

/// Returns `true` if everything that is wanted stands in what was found, whatever else does.
pub fn has(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| found.get(key).is_some_and(|found| has(found, value)))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| has(found, wanted))
        }
        _ => found == wanted,
    }
}

/// A change in the cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeChange {
    /// Labels a node as a gateway.
    Label {
        /// The node.
        node: String,
    },
    /// Takes the label off.
    Unlabel {
        /// The node.
        node: String,
    },
    /// Makes a set of machines, or changes it.
    ApplySet(Value),
    /// Removes a set of machines, and its machines.
    DeleteSet {
        /// Its name.
        name: String,
    },
}

impl fmt::Display for NodeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label { node } => write!(f, "label node {node} as a gateway"),
            Self::Unlabel { node } => write!(f, "take the label of gateways off node {node}"),
            Self::ApplySet(set) => {
                let name = set["metadata"]["name"].as_str().unwrap_or_default();
                write!(f, "apply MachineSet {name}, whose machine is a gateway")
            }
            Self::DeleteSet { name } => write!(f, "delete MachineSet {name} and its machine"),
        }
    }
}

impl NodeChange {
    /// Returns the node that it labels.
    pub fn labels(&self) -> Option<&str> {
        match self {
            Self::Label { node } => Some(node),
            Self::Unlabel { .. } | Self::ApplySet(_) | Self::DeleteSet { .. } => None,
        }
    }

    /// Makes the change.
    ///
    /// # Errors
    /// [`CloudError::Cluster`].
    pub async fn apply(&self, server: &Server) -> Result<(), CloudError> {
        let mark = |label: Value, by: Value| json!({"metadata": {"labels": {GATEWAY_LABEL: label}, "annotations": {LABELLED_BY: by}}});
        let of_node = |node: &str| ObjectRef::cluster_wide("v1", "Node", node);
        match self {
            Self::Label { node } => {
                server.merge(&of_node(node), &mark(json!("true"), json!(CLOUD_PREPARE))).await?;
            }
            Self::Unlabel { node } => {
                server.merge(&of_node(node), &mark(Value::Null, Value::Null)).await?;
            }
            Self::ApplySet(set) => {
                // Upstream's tool may have made it, whose fields it then takes over.
                server.clone().forcing_conflicts(true).apply(set).await?;
            }
            Self::DeleteSet { name } => {
                let (version, kind, namespace) = MACHINE_SET;
                server.delete(&ObjectRef::namespaced(version, kind, namespace, name)).await?;
            }
        }
        Ok(())
    }
}

fn node(object: &Value) -> Node {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let label = |key: &str| object["metadata"]["labels"][key].as_str().unwrap_or_default().to_owned();
    let is_gateway = label(GATEWAY_LABEL) == "true";
    let machine = object["metadata"]["annotations"][MACHINE].as_str().unwrap_or_default();
    Node {
        name: text("/metadata/name"),
        provider_id: text("/spec/providerID"),
        zone: label(ZONE),
        region: label(REGION),
        machine: machine.rsplit('/').next().unwrap_or_default().to_owned(),
        is_gateway,
        is_labelled_here: object["metadata"]["annotations"][LABELLED_BY] == CLOUD_PREPARE,
    }
}
