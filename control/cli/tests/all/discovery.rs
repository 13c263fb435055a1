//! Service discovery from a directory of objects.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::command::{location, stderr, stdout, trieste};

/// Where objects are, by namespace, plural and name.
pub(crate) const OBJECTS: &[(&str, &str)] = &[
    (
        "submariner-operator/gateways/gw1",
        r#"{"apiVersion": "submariner.io/v1", "kind": "Gateway", "status": {"haStatus": "active", "version": "v",
        "statusFailure": "", "localEndpoint": ENDPOINT west END, "connections": [{"status": "connected",
        "statusMessage": "", "endpoint": ENDPOINT east END}]}}"#,
    ),
    (
        "shop/serviceexports/web",
        r#"{"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport", "status": {"conditions": [
        {"type": "Valid", "status": "True", "reason": "Valid", "message": "", "lastTransitionTime": "2026-11-27T10:00:00Z"},
        {"type": "Ready", "status": "True", "reason": "Exported", "message": "",
        "lastTransitionTime": "2026-11-27T10:00:00Z"}]}}"#,
    ),
    (
        "shop/serviceimports/web",
        r#"{"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport", "spec": {"type": "ClusterSetIP",
        "ports": [{"name": "http", "protocol": "TCP", "port": 80}]}, "status": {"clusters": [{"cluster": "west"},
        {"cluster": "east"}]}}"#,
    ),
    ("shop/endpointslices/web-west", "SLICE west 10.1.0.1"),
    ("shop/endpointslices/web-east", "SLICE east 10.2.0.1"),
];

/// A store with these objects.
fn store() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in OBJECTS {
        write(root.path(), path, &document(path, text));
    }
    root
}

pub(crate) fn document(path: &str, text: &str) -> Value {
    let endpoint = |cluster: &str| {
        json!({"cluster_id": cluster, "cable_name": "c", "hostname": "h", "subnets": [], "backend": "wireguard",
            "private_ip": "10.0.0.1", "public_ip": "", "nat_enabled": false, "backend_config": {}})
        .to_string()
    };
    let mut object = match text.strip_prefix("SLICE ").and_then(|text| text.split_once(' ')) {
        Some((cluster, address)) => json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "addressType": "IPv4", "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
            "ports": [{"name": "http", "protocol": "TCP", "port": 80}],
            "metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": "lighthouse-agent.submariner.io",
                "multicluster.kubernetes.io/service-name": "web", "lighthouse.submariner.io/sourceNamespace": "shop",
                "multicluster.kubernetes.io/source-cluster": cluster}}}),
        None => {
            let text = ["west", "east"].into_iter().fold(text.to_owned(), |text, cluster| {
                text.replace(&format!("ENDPOINT {cluster} END"), &endpoint(cluster))
            });
            serde_json::from_str(&text).unwrap()
        }
    };
    let mut parts = path.split('/');
    object["metadata"]["namespace"] = parts.next().into();
    object["metadata"]["name"] = parts.next_back().into();
    object
}

fn write(root: &Path, path: &str, object: &Value) {
    let path = root.join(format!("{path}.yaml"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, serde_saphyr::to_string(object).unwrap()).unwrap();
}

#[test]
fn services_are_shown_in_every_format_and_among_all() {
    let root = store();
    let store = location(root.path());
    let table = trieste(&["show", "services", "--store", &store]);
    assert_eq!(
        stdout(&table),
        "Cluster \"west\"\n • Showing Services  ...\n ✓ Showing Services\n\
         SERVICE    TYPE           PORTS    CLUSTERS                     ANSWERS   \n\
         shop/web   ClusterSetIP   80/TCP   east 1/1, west 1/1 (local)   west      \n\n"
    );
    assert_eq!((table.status.code(), stderr(&table)), (Some(0), String::new()));
    let json = trieste(&["show", "services", "-o", "json", "--store", &store]);
    let rows: Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!((&rows[0]["name"], &rows[0]["answers"]["a"]), (&json!("web"), &json!(["west"])));
    let yaml = trieste(&["show", "all", "-o", "yaml", "--store", &store]);
    let all: Value = serde_saphyr::from_str(&stdout(&yaml)).unwrap();
    assert_eq!(all["services"], rows);
    let all = stdout(&trieste(&["show", "all", "--store", &store]));
    assert!(
        all.ends_with("shop/web   ClusterSetIP   80/TCP   east 1/1, west 1/1 (local)   west      \n\n\n"),
        "{all}"
    );
    for path in ["serviceexports", "serviceimports", "endpointslices"] {
        fs::remove_dir_all(root.path().join("shop").join(path)).unwrap();
    }
    let none = stdout(&trieste(&["show", "services", "--store", &store]));
    assert!(none.contains(" ✓ No services are exported or imported\n"), "{none}");
    assert!(!stdout(&trieste(&["show", "all", "--store", &store])).contains("Services"), "all is as without");
}

#[test]
fn a_gateways_socket_does_not_know_services() {
    let output = trieste(&["show", "services", "--socket", "/nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("a gateway does not know the services of the set"),
        "{}",
        stderr(&output)
    );
}
