//! What runs in a cluster, as its API server tells it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::api::{Api, text};
use super::output::remark;
use trieste_control::api::{Kind, Object, Resource};
use trieste_deploy::objects::names;

/// Upstream's group of the kinds that describe an installation.
const OPERATOR_GROUP: &str = "/apis/submariner.io/v1alpha1";

/// The components that a version is shown of, in upstream's order, and ours behind.
const DAEMON_SETS: [&str; 5] =
    [names::GATEWAY, names::ROUTE_AGENT, names::GLOBALNET, "submariner-metrics-proxy", names::PLUGIN_SYNC];
const DEPLOYMENTS: [&str; 5] = [
    "submariner-operator",
    names::DISCOVERY_AGENT,
    names::DISCOVERY_DNS,
    names::PLUGIN_SYNC,
    names::SPIDERPOOL_SYNC,
];

/// A workload of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Workload {
    pub(super) name: String,
    /// The first container's image.
    pub(super) image: String,
    /// The architectures of the nodes that its pods run on, each once; `None` if no pod runs.
    pub(super) running: Option<Vec<String>>,
}

/// Reads an installation in a namespace.
pub(super) struct Installation<'a> {
    pub(super) api: &'a Api,
    pub(super) namespace: &'a str,
}

impl Installation<'_> {
    /// Every object of a kind of `submariner.io/v1` that can be read; of the others is said why not.
    pub(super) async fn list<R: Resource>(&self) -> anyhow::Result<Vec<R>> {
        let (version, plural) = (R::KIND.api_version(), R::KIND.plural());
        let path = format!("/apis/{version}/namespaces/{}/{plural}", self.namespace);
        let objects = self.api.items(&path).await?;
        Ok(objects.into_iter().filter_map(|value| typed(R::KIND, value)).collect())
    }

    /// The Broker objects of all namespaces.
    pub(super) async fn brokers(&self) -> anyhow::Result<Vec<Value>> {
        self.api.items(&format!("{OPERATOR_GROUP}/brokers")).await
    }

    /// The Submariner object, which says that connectivity is installed, and how.
    pub(super) async fn submariner(&self) -> anyhow::Result<Option<Value>> {
        let path = format!("{OPERATOR_GROUP}/namespaces/{}/submariners", self.namespace);
        let found = self.api.items(&path).await?;
        let is_named = |object: &&Value| text(object, "/metadata/name") == names::SUBMARINER;
        Ok(found.iter().find(is_named).or_else(|| found.first()).cloned())
    }

    /// The workloads there are, in upstream's order.
    pub(super) async fn workloads(&self) -> anyhow::Result<Vec<Workload>> {
        let base = format!("/apis/apps/v1/namespaces/{}", self.namespace);
        let sets = self.api.items(&format!("{base}/daemonsets")).await?;
        let deployments = self.api.items(&format!("{base}/deployments")).await?;
        let running = self.running().await?;
        let named = |objects: &[Value], name: &str| {
            objects.iter().find(|object| text(object, "/metadata/name") == name).map(|object| Workload {
                name: name.to_owned(),
                image: text(object, "/spec/template/spec/containers/0/image").to_owned(),
                running: running.get(name).cloned(),
            })
        };
        let sets = DAEMON_SETS.iter().filter_map(|name| named(&sets, name));
        let deployments = DEPLOYMENTS.iter().filter_map(|name| named(&deployments, name));
        Ok(sets.chain(deployments).collect())
    }

    /// The architectures of running pods, by the workload that made them.
    async fn running(&self) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        let mut running: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let pods = self.api.items(&format!("/api/v1/namespaces/{}/pods", self.namespace)).await?;
        if pods.is_empty() {
            return Ok(running);
        }
        let nodes = self.api.items("/api/v1/nodes").await?;
        let architecture = |name: &str| {
            let node = nodes.iter().find(|node| text(node, "/metadata/name") == name);
            node.map(|node| text(node, "/status/nodeInfo/architecture").to_owned())
        };
        for pod in pods.iter().filter(|pod| text(pod, "/status/phase") == "Running") {
            let of = running.entry(workload_of(pod)).or_default();
            let architecture = architecture(text(pod, "/spec/nodeName")).unwrap_or_default();
            if !architecture.is_empty() && !of.contains(&architecture) {
                of.push(architecture);
            }
        }
        Ok(running)
    }
}

/// What made a pod: its label, or what owns it without a ReplicaSet's suffix.
pub(super) fn workload_of(pod: &Value) -> String {
    for label in ["app", "name"] {
        let name = text(pod, &format!("/metadata/labels/{label}"));
        if !name.is_empty() {
            return name.to_owned();
        }
    }
    let owner = text(pod, "/metadata/ownerReferences/0/name");
    match text(pod, "/metadata/ownerReferences/0/kind") {
        "ReplicaSet" => owner.rsplit_once('-').map_or(owner, |(name, _)| name).to_owned(),
        _ => owner.to_owned(),
    }
}

fn typed<R: Resource>(kind: Kind, value: Value) -> Option<R> {
    let name = text(&value, "/metadata/name").to_owned();
    let read = Object::from_value(value).and_then(|object| R::from_object(&object));
    read.map_err(|error| remark(&format!("warning: {kind} {name}: {error}; ignored"))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_is_of_the_workload_that_its_label_or_its_owner_names() {
        for (metadata, name) in [
            (json!({"labels": {"app": "submariner-gateway"}}), "submariner-gateway"),
            (json!({"labels": {"name": "submariner-operator"}}), "submariner-operator"),
            (json!({"ownerReferences": [{"kind": "ReplicaSet", "name": "dns-5c9f"}]}), "dns"),
            (json!({"ownerReferences": [{"kind": "DaemonSet", "name": "a-b"}]}), "a-b"),
            (json!({}), ""),
        ] {
            assert_eq!(workload_of(&json!({"metadata": metadata})), name);
        }
    }
}
