//! Upstream's rights, and no more: what its operator gives the gateway and the route agent, and its broker the
//! clusters. A gateway that works here works wherever upstream's does.

use serde_json::{Value, json};

use super::client::Client;
use crate::cluster::{BROKER_NAMESPACE, NAMESPACE};

/// The gateway's service account, in [`NAMESPACE`].
pub const GATEWAY: &str = "submariner-gateway";
/// The route agent's service account, in [`NAMESPACE`].
pub const ROUTE_AGENT: &str = "submariner-routeagent";
/// The service account of Globalnet's own process, in [`NAMESPACE`].
pub const GLOBALNET: &str = "submariner-globalnet";
/// The Role that every cluster has on the broker, in [`BROKER_NAMESPACE`].
pub const BROKER_ROLE: &str = "submariner-k8s-broker-cluster";

/// The service account of a cluster, on the broker.
pub fn cluster_account(cluster_id: &str) -> String {
    format!("cluster-{cluster_id}")
}

/// Makes the operator's namespace with the accounts and rights of gateway and route agent.
///
/// # Errors
/// If the server refuses.
pub fn prepare_cluster(client: &Client) -> anyhow::Result<()> {
    client.create_namespace(NAMESPACE)?;
    let full = ["get", "list", "watch", "create", "update", "delete"];
    let gateway = [
        rule("", &["pods"], &["get", "update", "patch"]),
        rule("submariner.io", &["clusters", "endpoints", "gateways"], &full),
        rule("coordination.k8s.io", &["leases"], &full),
    ];
    let gateway_everywhere = [
        rule("", &["configmaps"], &["get"]),
        rule("", &["pods", "services", "nodes"], &["get", "list", "watch"]),
    ];
    let route_agent = [
        rule("submariner.io", &["endpoints"], &["get", "list", "watch"]),
        rule("submariner.io", &["gatewayroutes", "nongatewayroutes"], &full),
        rule("submariner.io", &["routeagents"], &["get", "list", "create", "update", "delete"]),
    ];
    let mut ovn_certificate = rule("", &["secrets"], &["get"]);
    ovn_certificate["resourceNames"] = json!(["ovn-cert"]);
    let pools = ["get", "create", "delete", "update", "deletecollection"];
    let route_agent_everywhere = [
        rule("", &["pods", "services", "configmaps", "endpoints"], &["get", "list"]),
        ovn_certificate,
        rule("", &["nodes"], &["get", "list", "watch"]),
        rule("config.openshift.io", &["networks", "clusters"], &["get"]),
        rule("projectcalico.org", &["ippools"], &pools),
    ];
    account(client, NAMESPACE, GATEWAY, &gateway, &gateway_everywhere)?;
    account(client, NAMESPACE, ROUTE_AGENT, &route_agent, &route_agent_everywhere)
}

/// Makes the account of Globalnet's own process, with upstream's rights.
///
/// # Errors
/// If the server refuses.
pub fn prepare_globalnet(client: &Client) -> anyhow::Result<()> {
    let follow = ["get", "list", "watch"];
    let full = ["get", "list", "watch", "create", "update", "delete"];
    let here = [
        rule("submariner.io", &["gateways"], &["get", "list", "watch", "update"]),
        rule("coordination.k8s.io", &["leases"], &full),
    ];
    let kinds = ["clusterglobalegressips", "globalegressips", "globalingressips"];
    let statuses = kinds.map(|kind| format!("{kind}/status"));
    let all: Vec<&str> = kinds.into_iter().chain(statuses.iter().map(String::as_str)).collect();
    let everything = ["get", "list", "watch", "create", "update", "delete", "deletecollection", "patch"];
    let everywhere = [
        rule("", &["pods"], &follow),
        rule("", &["services", "endpoints"], &full),
        rule("submariner.io", &["clusters", "endpoints"], &follow),
        rule("submariner.io", &all, &everything),
        rule("multicluster.x-k8s.io", &["serviceexports"], &follow),
        rule("network.openshift.io", &["service/externalips"], &["create"]),
    ];
    account(client, NAMESPACE, GLOBALNET, &here, &everywhere)
}

/// Lets gateways do Globalnet's work themselves, as those that `join` installs do: by the rights of its own process.
///
/// # Errors
/// If the server refuses.
pub fn may_do_globalnet(client: &Client) -> anyhow::Result<()> {
    prepare_globalnet(client)?;
    let name = format!("{GATEWAY}-globalnet");
    client.apply(&binding(Some(NAMESPACE), &name, GLOBALNET, (NAMESPACE, GATEWAY)))?;
    client.apply(&binding(None, &name, GLOBALNET, (NAMESPACE, GATEWAY))).map(drop)
}

/// Lets route agents update Nodes, as `join --node-taint` does.
///
/// # Errors
/// If the server refuses.
pub fn may_update_nodes(client: &Client) -> anyhow::Result<()> {
    let name = format!("{ROUTE_AGENT}-taint");
    client.apply(&role(None, &name, &[rule("", &["nodes"], &["update"])]))?;
    client.apply(&binding(None, &name, &name, (NAMESPACE, ROUTE_AGENT))).map(drop)
}

/// Lets route agents read what Cilium says of nodes, as `join` does where it finds Cilium.
///
/// # Errors
/// If the server refuses.
pub fn may_read_ciliums(client: &Client) -> anyhow::Result<()> {
    let name = format!("{ROUTE_AGENT}-cilium");
    client.apply(&role(None, &name, &[rule("cilium.io", &["ciliumnodes"], &["list", "watch"])]))?;
    client.apply(&binding(None, &name, &name, (NAMESPACE, ROUTE_AGENT))).map(drop)
}

/// Makes the broker's namespace and the Role of its clusters.
///
/// # Errors
/// If the server refuses.
pub fn prepare_broker(client: &Client) -> anyhow::Result<()> {
    client.create_namespace(BROKER_NAMESPACE)?;
    let full = ["create", "get", "list", "watch", "patch", "update", "delete"];
    let rules = [
        rule("submariner.io", &["clusters", "endpoints"], &full),
        rule("submariner.io", &["brokers"], &["get", "list"]),
        rule("multicluster.x-k8s.io", &["serviceimports", "serviceimports/status"], &full),
        rule("discovery.k8s.io", &["endpointslices", "endpointslices/restricted"], &full),
        rule("", &["secrets"], &["get", "list", "watch"]),
        rule("", &["serviceaccounts"], &["get", "list"]),
    ];
    client.apply(&role(Some(BROKER_NAMESPACE), BROKER_ROLE, &rules)).map(drop)
}

/// Lets a cluster join the broker: its service account and what binds that to the clusters' Role.
///
/// # Errors
/// If the server refuses.
pub fn join_broker(client: &Client, cluster_id: &str) -> anyhow::Result<()> {
    let name = cluster_account(cluster_id);
    client.apply(&service_account(BROKER_NAMESPACE, &name))?;
    client.apply(&binding(Some(BROKER_NAMESPACE), &name, BROKER_ROLE, (BROKER_NAMESPACE, &name))).map(drop)
}

/// A service account with a Role in its namespace and a ClusterRole, both called as it is.
fn account(
    client: &Client,
    namespace: &str,
    name: &str,
    here: &[Value],
    everywhere: &[Value],
) -> anyhow::Result<()> {
    client.apply(&service_account(namespace, name))?;
    client.apply(&role(Some(namespace), name, here))?;
    client.apply(&binding(Some(namespace), name, name, (namespace, name)))?;
    client.apply(&role(None, name, everywhere))?;
    client.apply(&binding(None, name, name, (namespace, name))).map(drop)
}

fn service_account(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": name}})
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// A Role, or a ClusterRole without a namespace.
fn role(namespace: Option<&str>, name: &str, rules: &[Value]) -> Value {
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    let mut object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "rules": rules});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

/// A RoleBinding, or a ClusterRoleBinding without a namespace.
fn binding(namespace: Option<&str>, name: &str, role: &str, account: (&str, &str)) -> Value {
    let prefix = if namespace.is_some() { "" } else { "Cluster" };
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": format!("{prefix}RoleBinding"),
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": format!("{prefix}Role"), "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": account.0, "name": account.1}],
    });
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}
