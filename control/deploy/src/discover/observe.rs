//! What an API server has that says something about networks.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::server::Server;

/// Objects that say something about networks, unread.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// All nodes.
    pub nodes: Vec<Value>,
    /// Pods of the control plane and of kube-proxy, and those of network plugins in `kube-system`.
    pub pods: Vec<Value>,
    /// DaemonSets everywhere.
    pub daemon_sets: Vec<Value>,
    /// ConfigMaps that exist, by `namespace/name`.
    pub config_maps: BTreeMap<String, Value>,
    /// Objects of other kinds that exist, by their kind: `ServiceCIDR`, `Network` (OpenShift), `IPPool` (Calico),
    /// `CiliumPodIPPool`, `SpiderCoordinator` and `SpiderIPPool` (Spiderpool).
    pub others: BTreeMap<&'static str, Vec<Value>>,
    /// Services in front of databases of OVN-Kubernetes, in any namespace.
    pub services: Vec<Value>,
    /// Pods of a database of OVN-Kubernetes for all nodes, in any namespace.
    pub database_pods: Vec<Value>,
    /// What the API server says when a Service asks for an address outside of the range; older ones name the range.
    pub refusal: Option<String>,
}

/// The name of OVN-Kubernetes' Service in front of a database for all nodes, and the `name` label of its pods.
pub(super) const OVN_DATABASE: &str = "ovnkube-db";

/// ConfigMaps that a plugin or kubeadm writes.
const CONFIG_MAPS: [(&str, &str); 9] = [
    ("kube-system", "kubeadm-config"),
    ("kube-system", "kube-proxy"),
    ("kube-system", "canal-config"),
    ("kube-system", "calico-config"),
    ("kube-system", "kube-flannel-cfg"),
    ("kube-flannel", "kube-flannel-cfg"),
    ("kube-system", "cilium-config"),
    ("ovn-kubernetes", "ovn-config"),
    ("openshift-ovn-kubernetes", "ovnkube-config"),
];

/// Kinds whose objects name CIDRs or tell what there is, and the versions that servers have of them.
const OTHERS: [(&str, &[&str]); 6] = [
    ("ServiceCIDR", &["networking.k8s.io/v1", "networking.k8s.io/v1beta1"]),
    ("Network", &["config.openshift.io/v1"]),
    ("IPPool", &["crd.projectcalico.org/v1", "projectcalico.org/v3"]),
    ("CiliumPodIPPool", &["cilium.io/v2alpha1", "cilium.io/v2"]),
    ("SpiderCoordinator", &["spiderpool.spidernet.io/v2beta1"]),
    ("SpiderIPPool", &["spiderpool.spidernet.io/v2beta1"]),
];

/// Reads all of it.
///
/// # Errors
/// [`DeployError::Api`] if nodes cannot be read. What else cannot be read is not there: its sources are silent.
pub async fn observe(server: &Server) -> Result<Observed, DeployError> {
    let mut observed = Observed { nodes: server.list("v1", "Node", None, "").await?, ..Observed::default() };
    observed.pods = readable(server.list("v1", "Pod", Some("kube-system"), "").await)?;
    observed.daemon_sets = readable(server.list("apps/v1", "DaemonSet", None, "").await)?;
    for (namespace, name) in CONFIG_MAPS {
        let place = ObjectRef::namespaced("v1", "ConfigMap", namespace, name);
        if let Some(map) = readable(server.find(&place).await)? {
            observed.config_maps.insert(format!("{namespace}/{name}"), map);
        }
    }
    for (kind, versions) in OTHERS {
        for version in versions {
            let found = readable(server.list(version, kind, None, "").await)?;
            if !found.is_empty() {
                observed.others.insert(kind, found);
                break;
            }
        }
    }
    let named = format!("fieldSelector=metadata.name%3D{OVN_DATABASE}");
    observed.services = readable(server.list("v1", "Service", None, &named).await)?;
    let labelled = format!("labelSelector=name%3D{OVN_DATABASE}");
    observed.database_pods = readable(server.list("v1", "Pod", None, &labelled).await)?;
    if !observed.others.contains_key("ServiceCIDR") {
        observed.refusal = provoke(server).await;
    }
    Ok(observed)
}

/// What may not be read is as if it were not there; a server that is away is an error.
fn readable<T: Default>(answer: Result<T, DeployError>) -> Result<T, DeployError> {
    match answer {
        Err(DeployError::Api { code: Some(400..=428 | 430..=499), .. }) => Ok(T::default()),
        answer => answer,
    }
}

/// Upstream's trick for servers before 1.33: a Service with an address that no range has. Nothing is stored.
async fn provoke(server: &Server) -> Option<String> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "default", "name": "trieste-service-range"},
        "spec": {"clusterIP": "1.1.1.1", "ports": [{"port": 443}]},
    });
    let path = "/api/v1/namespaces/default/services?dryRun=All";
    let body = Some(("application/json", &service));
    match server.call(http::Method::POST, path, body, "asking for the range of services").await {
        Err(DeployError::Api { code: Some(_), reason, .. }) => Some(reason),
        _ => None,
    }
}
