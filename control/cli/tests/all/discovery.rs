//! Service discovery from a directory of objects: shown, walked, asked for at a server on loopback, and traced by name.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use trieste_control::api::{Kind, Object};
use trieste_discovery::dns::snapshot::Snapshot;
use trieste_discovery::dns::udp;
use trieste_dns::{Label, Settings, Zone};

use crate::command::{Gateway, answer, location, stderr, stdout, trieste};

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

/// A DNS server of cluster west on loopback that knows these objects.
pub(crate) fn server() -> (Vec<udp::Worker>, SocketAddr) {
    let objects: Vec<Object> =
        OBJECTS.iter().map(|(path, text)| Object::from_value(document(path, text)).unwrap()).collect();
    let of = |kind: Kind| -> Vec<Object> {
        objects.iter().filter(|object| object.kind == kind).cloned().collect()
    };
    let snapshot = Snapshot::new(
        Label::new("west").unwrap(),
        &of(Kind::ServiceImport),
        &of(Kind::EndpointSlice),
        &of(Kind::Gateway),
    );
    let settings = Settings::new(vec![Zone::new("clusterset.local").unwrap()], 5).unwrap();
    let workers =
        udp::begin("127.0.0.1:0".parse().unwrap(), 1, snapshot.records(), &Arc::new(settings)).unwrap();
    let address = workers[0].address();
    (workers, address)
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

#[test]
fn the_walk_ends_with_a_real_question() {
    let root = store();
    let (workers, address) = server();
    let (store, address) = (location(root.path()), address.to_string());
    let words = ["diagnose", "service-discovery", "shop/web", "--store", &store, "--server", &address];
    let well = trieste(&words);
    assert_eq!(
        stdout(&well),
        "Cluster \"west\"\n\
         \x20• Checking exports and imports  ...\n ✓ Checking exports and imports\n\
         \x20• Checking the conditions of exports  ...\n ✓ Checking the conditions of exports\n\
         \x20  Checking the agent: not applicable without Kubernetes\n\
         \x20• Checking that the broker has the exports  ...\n ✓ Checking that the broker has the exports\n\
         \x20• Checking the imports  ...\n ✓ Checking the imports\n\
         \x20• Checking that endpoints are ready  ...\n ✓ Checking that endpoints are ready\n\
         \x20• Checking that gateways are connected to exporting clusters  ...\n \
         ✓ Checking that gateways are connected to exporting clusters\n\
         \x20  Checking the DNS server: not applicable without Kubernetes\n\
         \x20  Checking that the cluster's DNS forwards to the DNS server: not applicable without Kubernetes\n\
         \x20• Asking the DNS  ...\n ✓ Asking the DNS\n\n"
    );
    assert_eq!(well.status.code(), Some(0), "{}", stderr(&well));
    write(
        root.path(),
        "shop/endpointslices/web-west",
        &document("shop/endpointslices/web-west", "SLICE west 10.1.0.9"),
    );
    let other = trieste(&words);
    assert_eq!(other.status.code(), Some(1));
    let text = stdout(&other);
    assert!(
        text.contains(" ✗ Asking the DNS\n ✗ shop/web: web.shop.svc.clusterset.local A is 10.1.0.1 at "),
        "{text}"
    );
    workers.into_iter().for_each(udp::Worker::stop);
    let away = stdout(&trieste(&words));
    assert!(
        away.contains("✗ shop/web: web.shop.svc.clusterset.local A has no answer: cannot ask "),
        "{away}"
    );
    fs::remove_file(root.path().join("shop/serviceimports/web.yaml")).unwrap();
    let broken = trieste(&words[..5]);
    let text = stdout(&broken);
    assert!(text.contains(" ✗ Checking the imports\n ✗ shop/web: the broker has the export"), "{text}");
    assert!(text.contains("   Asking the DNS: not reached\n"), "{text}");
    assert_eq!(broken.status.code(), Some(1));
}

#[test]
fn a_trace_takes_a_name_and_says_what_it_is() {
    let root = store();
    let gateway = Gateway::serve(|path, stream| {
        assert!(path.starts_with("/v1/trace?from=10.1.0.5&to=10.2.0.1&"), "{path}");
        let body = json!({"request": {"from": "10.1.0.5", "to": "10.2.0.1", "proto": "tcp", "sport": 40000,
            "dport": 80, "direction": "outbound"}, "worker": 0, "is_live": false, "steps": []});
        answer(stream, "200 OK", body.to_string().as_bytes());
    });
    let store = location(root.path());
    let trace =
        |name: &str| trieste(&["trace", "10.1.0.5", name, "--store", &store, "--socket", gateway.socket()]);
    let output = trace("east.web.shop.svc.clusterset.local");
    assert!(
        stdout(&output).starts_with(
            "east.web.shop.svc.clusterset.local is 10.2.0.1 of cluster east\noutbound tcp 10.1.0.5:40000 -> 10.2.0.1:80\n"
        ),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    let unknown = trace("new.shop.svc.clusterset.local");
    assert_eq!(unknown.status.code(), Some(1));
    assert!(
        stderr(&unknown).contains("service shop/new is not imported in this cluster"),
        "{}",
        stderr(&unknown)
    );
}
