//! What an operator, a kubelet and a DaemonSet would have made: definitions, nodes, pods.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::Client;
use super::rbac;
use crate::cluster::NAMESPACE;
use crate::topology::NodePlan;

/// The label of gateway nodes.
pub const GATEWAY_LABEL: &str = "submariner.io/gateway";

/// How long the server may take to serve a new kind.
const ESTABLISH: Duration = Duration::from_secs(30);

/// Installs the definitions of `submariner.io/v1`, those that this project generates, and waits until they are served.
///
/// # Errors
/// If the server refuses one or does not establish it.
pub fn install_definitions(client: &Client) -> anyhow::Result<()> {
    install(client, &trieste_control::api::crd::definitions())
}

/// Installs the definition of ServiceExport, which is the multi-cluster services' own, as far as anybody here needs it, and
/// waits until it is served.
///
/// # Errors
/// If the server refuses it or does not establish it.
pub fn install_service_exports(client: &Client) -> anyhow::Result<()> {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "serviceexports.multicluster.x-k8s.io"},
        "spec": {
            "group": "multicluster.x-k8s.io",
            "scope": "Namespaced",
            "names": {"kind": "ServiceExport", "listKind": "ServiceExportList", "plural": "serviceexports",
                "singular": "serviceexport"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}],
        },
    });
    install(client, &[definition])
}

fn install(client: &Client, definitions: &[Value]) -> anyhow::Result<()> {
    for definition in definitions {
        client.apply(definition)?;
    }
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        client.wait(&path, ESTABLISH, |object| {
            let conditions = object["status"]["conditions"].as_array();
            conditions
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
        })?;
    }
    Ok(())
}

/// Makes the Node object of a node, as its kubelet would: addresses, pod CIDRs, ready; with the gateway's label if
/// `is_gateway`, and these annotations.
///
/// # Errors
/// If the server refuses.
pub fn create_node(
    client: &Client,
    node: &NodePlan,
    is_gateway: bool,
    annotations: &BTreeMap<String, String>,
) -> anyhow::Result<()> {
    let mut labels = json!({"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux"});
    if is_gateway {
        labels[GATEWAY_LABEL] = json!("true");
    }
    let cidrs: Vec<String> = node.bridge.iter().map(|address| address.trunc().to_string()).collect();
    let mut addresses: Vec<Value> = node
        .underlay
        .iter()
        .map(|address| json!({"type": "InternalIP", "address": address.addr()}))
        .collect();
    addresses.push(json!({"type": "Hostname", "address": node.name}));
    client.apply(&json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels, "annotations": annotations},
        "spec": {"podCIDR": cidrs.first(), "podCIDRs": cidrs},
    }))?;
    let status = json!({
        "addresses": addresses,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Lab", "message": "there is no kubelet"}],
    });
    client.patch(&format!("{}/status", node_path(&node.name)), &json!({"status": status})).map(drop)
}

/// Sets or removes (`None`) the gateway's label of a node.
///
/// # Errors
/// If the server refuses.
pub fn label_gateway(client: &Client, node: &str, value: Option<&str>) -> anyhow::Result<()> {
    client.patch(&node_path(node), &json!({"metadata": {"labels": {GATEWAY_LABEL: value}}})).map(drop)
}

/// The API path of a node.
pub fn node_path(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

/// The API path of a pod of the operator's namespace.
pub fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}")
}

/// The name of the gateway's pod on a node.
pub fn gateway_pod(node: &str) -> String {
    format!("{}-{node}", rbac::GATEWAY)
}

/// Makes the gateway's Pod object of a node, as upstream's DaemonSet and a kubelet would, running.
///
/// # Errors
/// If the server refuses.
pub fn create_gateway_pod(client: &Client, node: &NodePlan) -> anyhow::Result<()> {
    let name = gateway_pod(&node.name);
    let object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": NAMESPACE, "name": name, "labels": {"app": rbac::GATEWAY}},
        "spec": {
            "nodeName": node.name,
            "hostNetwork": true,
            "serviceAccountName": rbac::GATEWAY,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": rbac::GATEWAY, "image": "lab"}],
        },
    });
    client.apply(&object)?;
    let ips: Vec<Value> = node.underlay.iter().map(|address| json!({"ip": address.addr()})).collect();
    let status = json!({"phase": "Running", "hostIP": node.underlay_address(),
        "podIP": node.underlay_address(), "podIPs": ips});
    client.patch(&format!("{}/status", pod_path(&name)), &json!({"status": status})).map(drop)
}
