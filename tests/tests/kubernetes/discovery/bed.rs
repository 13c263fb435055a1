//! Two API servers with what agents of service discovery need of them.

use std::time::Duration;

use serde_json::{Value, json};
use trieste_control::api::{Kind, Object, annotation, label};
use trieste_control::runner::Fence;
use trieste_control::store::kube::{Access, ServerSettings};
use trieste_control::store::{KubeStore, Store as _};
use trieste_discovery_agent::{AgentConfig, AgentHandle, spawn};
use trieste_tests::cluster::NAMESPACE;
use trieste_tests::kubernetes::{ApiServer, Client, Faults};

pub(super) const BROKER: &str = "submariner-k8s-broker";
/// Longer than anything takes that works at all.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Opens a server's objects through a relay, with the rights of an agent.
pub(super) fn store(server: &ApiServer, relay: &Faults) -> KubeStore {
    let settings = ServerSettings {
        server: relay.server(),
        token: Some(server.token(NAMESPACE, "agent", None).unwrap()),
        ca_file: Some(server.ca_file()),
        ..ServerSettings::default()
    };
    KubeStore::new(Access::server(settings).unwrap())
}

pub(super) fn spawn_agent(cluster: &str, local: &KubeStore, broker: &KubeStore) -> AgentHandle {
    // The set's ranges: without one nothing of IPv6 is taken.
    let clusterset_ip_ranges = ["243.0.0.0/8", "fd00:243::/64"].map(|range| range.parse().unwrap()).to_vec();
    let config =
        AgentConfig { namespace: NAMESPACE.to_owned(), clusterset_ip_ranges, ..AgentConfig::new(cluster) };
    spawn(local.clone(), broker.clone(), config, Fence::Open)
}

pub(super) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{what} is not so"));
}

pub(super) async fn slices(store: &KubeStore, namespace: &str) -> Vec<Object> {
    let mut slices = store.list(Kind::EndpointSlice, namespace).await.unwrap();
    slices.retain(|slice| slice.metadata.labels.contains_key(label::SOURCE_CLUSTER));
    slices
}

/// Puts an import of another cluster on the broker, with clusterset IPs of both families.
pub(super) async fn put_import(store: &KubeStore) {
    let import = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
        "metadata": {"name": "api-shop", "namespace": BROKER, "annotations": {
            label::SERVICE_NAME: "api", label::SOURCE_NAMESPACE: "shop",
            annotation::USE_CLUSTERSET_IP: "true", annotation::CLUSTERSET_IPV6: "fd00:243::1",
            format!("{}north", annotation::TIMESTAMP_PREFIX): "1"}},
        "spec": {"type": "ClusterSetIP", "ips": ["243.0.0.1"], "ports": []}});
    store.create(Object::from_value(import).unwrap()).await.unwrap();
}

/// Exports a service with virtual addresses, and a headless one.
pub(super) async fn export(store: &KubeStore) {
    let create = async |value: Value| drop(store.create(Object::from_value(value).unwrap()).await.unwrap());
    let slice = |service: &str, endpoint: Value| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "addressType": "IPv4", "endpoints": [endpoint], "ports": [{"name": "http", "port": 8080}],
        "metadata": {"name": format!("{service}-1"), "namespace": "shop", "labels": {"kubernetes.io/service-name": service}}})
    };
    for (name, spec) in [
        ("web", json!({"ports": [{"name": "http", "port": 80}], "sessionAffinity": "ClientIP"})),
        ("db", json!({"clusterIP": "None", "ports": [{"name": "sql", "port": 5432}]})),
    ] {
        create(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"}, "spec": spec})).await;
        create(slice(name, json!({"addresses": ["10.1.0.1"], "hostname": format!("{name}-0"), "conditions": {"ready": true}}))).await;
        create(json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
            "metadata": {"name": name, "namespace": "shop"}}))
        .await;
    }
}

/// Installs namespaces, definitions of one version and the agent's account.
pub(super) fn install(client: &Client, version: &str) {
    // As newer definitions have it.
    let reason =
        json!({"type": "string", "minLength": 1, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"});
    install_with(client, version, &reason);
}

/// The same, as upstream installs it: conditions may have an empty reason.
pub(super) fn install_as_upstream(client: &Client) {
    install_with(client, "v1alpha1", &json!({"type": "string"}));
}

fn install_with(client: &Client, version: &str, reason: &Value) {
    for namespace in [NAMESPACE, BROKER, "shop"] {
        client.create_namespace(namespace).unwrap();
    }
    let text = || json!({"type": "string"});
    let port = json!({"type": "object", "required": ["port"], "properties": {
        "name": text(), "protocol": text(), "appProtocol": text(), "port": {"type": "integer", "format": "int32"}}});
    let client_ip =
        json!({"type": "object", "properties": {"timeoutSeconds": {"type": "integer", "format": "int32"}}});
    let mut spec = json!({"type": "object", "required": ["ports", "type"], "properties": {
        "type": {"type": "string", "enum": ["ClusterSetIP", "Headless"]},
        "ips": {"type": "array", "maxItems": 1, "items": text()}, "ports": {"type": "array", "items": port},
        "sessionAffinity": text(),
        "sessionAffinityConfig": {"type": "object", "properties": {"clientIP": client_ip}}}});
    if version == "v1beta1" {
        spec["properties"]["ips"]["maxItems"] = json!(2);
        spec["properties"]["ipFamilies"] = json!({"type": "array", "maxItems": 2, "items": text()});
        spec["properties"]["internalTrafficPolicy"] = text();
        spec["properties"]["trafficDistribution"] = text();
    }
    let cluster = json!({"type": "object", "required": ["cluster"], "properties": {"cluster": text()}});
    let status = json!({"type": "object", "properties": {"clusters": {"type": "array", "items": cluster,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["cluster"]}}});
    let condition = json!({"type": "object", "required": ["type", "status", "reason", "message", "lastTransitionTime"],
        "properties": {"type": text(), "status": text(), "reason": reason, "message": text(),
            "lastTransitionTime": {"type": "string", "format": "date-time"}}});
    let conditions =
        json!({"type": "object", "properties": {"conditions": {"type": "array", "items": condition}}});
    let nothing = json!({"type": "object"});
    for (kind, spec, status) in [("ServiceImport", spec, status), ("ServiceExport", nothing, conditions)] {
        let plural = format!("{}s", kind.to_lowercase());
        let schema = json!({"type": "object", "properties": {"apiVersion": text(), "kind": text(),
            "metadata": {"type": "object"}, "spec": spec, "status": status}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.multicluster.x-k8s.io")},
            "spec": {"group": "multicluster.x-k8s.io", "scope": "Namespaced",
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": version, "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema}}]}});
        client.apply(&definition).unwrap();
    }
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let (read, write) = (["list", "watch"], ["list", "watch", "create", "update", "delete"]);
    let rules = [
        rule("", &["services", "namespaces"], &read),
        rule("discovery.k8s.io", &["endpointslices", "endpointslices/restricted"], &write),
        rule("multicluster.x-k8s.io", &["serviceexports"], &read),
        // On the broker; here nobody has defined the kind.
        rule("submariner.io", &["clusters"], &read),
        rule("multicluster.x-k8s.io", &["serviceexports/status", "serviceimports/status"], &["update"]),
        rule("multicluster.x-k8s.io", &["serviceimports"], &write),
    ];
    let rbac = "rbac.authorization.k8s.io";
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "agent", "namespace": NAMESPACE}}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "agent"}, "rules": rules}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "agent"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "agent"},
            "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": NAMESPACE}]}),
    ] {
        client.apply(&object).unwrap();
    }
    for plural in ["serviceimports", "serviceexports"] {
        let path =
            format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.multicluster.x-k8s.io");
        let is_served = |object: &Value| {
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions
                .iter()
                .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
        };
        client.wait(&path, PATIENCE, is_served).unwrap();
    }
}
