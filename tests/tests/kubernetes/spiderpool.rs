//! Spiderpool's objects in a real API server: the route agent of the leading gateway's node, with upstream's rights, writes which
//! networks are remote, and the worker, with the rights that `join` gives, keeps them in the lists.

use std::time::Duration;

use serde_json::{Value, json};
use trieste_deploy::objects::names::SPIDERPOOL_SYNC;
use trieste_deploy::objects::{example, member};
use trieste_tests::cluster::NAMESPACE;
use trieste_tests::daemon::Daemon;
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{Client, KubernetesLab};
use trieste_tests::programs;
use trieste_tests::wait::eventually;

use crate::routeagent::{endpoint, own_spec, remote_spec};

/// Longer than anything takes that works at all.
const PATIENCE: Duration = Duration::from_secs(90);
const COORDINATOR: &str = "/apis/spiderpool.spidernet.io/v2beta1/spidercoordinators";
const CONFIGS: &str = "/apis/spiderpool.spidernet.io/v2beta1/namespaces/kube-system/spidermultusconfigs";
const POOLS: &str = "/apis/spiderpool.spidernet.io/v2beta1/spiderippools";

/// Returns a definition with the fields that matter, of Spiderpool's types: a server drops all others.
fn definition(kind: &str, scope: &str, spec: &Value) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.spiderpool.spidernet.io")},
        "spec": {
            "group": "spiderpool.spidernet.io", "scope": scope,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v2beta1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object",
                    "properties": {"spec": {"type": "object", "properties": spec}, "status": status}}}}],
        },
    })
}

/// Returns the fields of a coordinator's settings, with the list under its present name or the one before version 0.8.
fn settings(list: &str) -> Value {
    let strings = json!({"type": "array", "items": {"type": "string"}});
    json!({
        "mode": {"type": "string", "enum": ["auto", "underlay", "overlay", "disabled"], "default": "auto"},
        "podCIDRType": {"type": "string", "enum": ["auto", "cluster", "calico", "cilium", "none"]},
        "hostRuleTable": {"type": "integer", "default": 500},
        "tunePodRoutes": {"type": "boolean", "default": true},
        list: strings,
    })
}

fn install(client: &Client, list: &str) {
    let config = json!({
        "cniType": {"type": "string", "enum": ["macvlan", "ipvlan", "sriov", "ovs", "ib-sriov", "custom"]},
        "macvlan": {"type": "object", "properties": {"master": {"type": "array", "items": {"type": "string"}}}},
        "enableCoordinator": {"type": "boolean", "default": true},
        "coordinator": {"type": "object", "properties": settings(list)},
    });
    let pool = json!({"subnet": {"type": "string"}, "ips": {"type": "array", "items": {"type": "string"}}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for definition in [
        definition("SpiderCoordinator", "Cluster", &settings(list)),
        definition("SpiderMultusConfig", "Namespaced", &config),
        definition("SpiderIPPool", "Cluster", &pool),
    ] {
        client.post(definitions, &definition).unwrap();
    }
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let serve = |path: &str, object: Value| {
        eventually("the kind to be served", PATIENCE, || client.post(path, &object).map(drop)).unwrap();
    };
    let theirs = json!({"podCIDRType": "auto", list: ["169.254.0.0/16"]});
    serve(COORDINATOR, object("SpiderCoordinator", "default", theirs));
    let macvlan = |settings: Value| json!({"cniType": "macvlan", "macvlan": {"master": ["eth0"]}, "coordinator": settings});
    serve(CONFIGS, object("SpiderMultusConfig", "own", macvlan(json!({list: ["192.0.2.0/24"]}))));
    serve(CONFIGS, object("SpiderMultusConfig", "shared", macvlan(json!({"mode": "underlay"}))));
    serve(POOLS, object("SpiderIPPool", "vlan", json!({"subnet": "192.168.7.0/24"})));
}

/// Gives worker and route agents the rights that `join` gives.
fn grant(client: &Client) {
    let mut options = example();
    options.has_spiderpool = true;
    NAMESPACE.clone_into(&mut options.namespace);
    for manifest in member(&options) {
        let is_right = manifest.kind() == "ServiceAccount"
            || manifest.kind().contains("Role") && manifest.name().contains("trieste");
        if is_right && manifest.name().contains("trieste") {
            client.apply(manifest.as_value()).unwrap();
        }
    }
}

/// Starts a worker, or an uninstall.
fn worker(lab: &KubernetesLab, name: &str, task: &[&str]) -> Daemon {
    let node = lab.gateway_node("east", 0);
    let server = &lab.cluster("east").server;
    let kubeconfig = server.kubeconfig_of(NAMESPACE, SPIDERPOOL_SYNC).unwrap();
    let files = lab.lab.directory().join(format!("{name}.json"));
    let run = node
        .namespace
        .run("env")
        .arg(programs::path("trieste-plugin-sync").unwrap())
        .args(["--network-plugin=spiderpool", "--identity", name, "--namespace", NAMESPACE])
        .arg(format!("--store=kube:{}", kubeconfig.display()))
        .arg(format!("--pass-file={}", files.display()))
        .args(task);
    Daemon::start(&lab.lab, name, &run).unwrap()
}

fn until(client: &Client, path: &str, pointer: &str, expected: &[&str]) -> Value {
    let is_as_expected = |object: &Value| object.pointer(pointer) == Some(&json!(expected));
    client.wait(path, PATIENCE, is_as_expected).unwrap()
}

#[test]
fn plugin_spiderpool_its_lists_follow_clusters_and_are_left_as_they_were() {
    let name = "plugin_spiderpool_its_lists_follow_clusters_and_are_left_as_they_were";
    let Some(_turn) = root_test(name) else { return };
    let lab = KubernetesLab::start(1).unwrap();
    let east = lab.cluster("east");
    let client = east.server.client();
    let node = lab.gateway_node("east", 0);
    install(client, "hijackCIDR");
    grant(client);
    client.apply(&endpoint("west", &remote_spec())).unwrap();
    client.apply(&endpoint("own", &own_spec(&node.name))).unwrap();
    let pod = lab.route_agent("east", node).unwrap();
    let variables = [
        ("TRIESTE_ALLOW_REMOTE_CIDRS", "10.0.0.0/8,100.2.0.0/16"),
        ("TRIESTE_SPIDERPOOL", "true"),
        ("TRIESTE_CLOSE_GRACE", "0"),
    ];
    let _agent = pod.start(&variables).unwrap();
    let worker = worker(&lab, "worker", &[]);

    let (default, own) = (format!("{COORDINATOR}/default"), format!("{CONFIGS}/own"));
    let (list, own_list) = ("/spec/hijackCIDR", "/spec/coordinator/hijackCIDR");
    let networks = remote_spec()["subnets"].clone();
    let mut networks: Vec<&str> = networks.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    networks.sort_unstable();
    let with = |theirs: &'static str| [&[theirs][..], &networks].concat();
    let found = until(client, &default, list, &with("169.254.0.0/16"));
    assert_eq!(found["spec"]["hostRuleTable"], 500, "other fields stay: {found}");
    let record = found["metadata"]["annotations"]["trieste.io/hijack-cidrs"].as_str().unwrap();
    assert!(networks.iter().all(|network| record.contains(network)), "{record}");
    until(client, &own, own_list, &with("192.0.2.0/24"));
    let shared = client.get(&format!("{CONFIGS}/shared")).unwrap();
    assert!(shared.pointer(own_list).is_none(), "{shared}");
    // A change by hand is repaired; nothing is written without a reason.
    client.patch(&default, &json!({"spec": {"hijackCIDR": ["169.254.0.0/16"]}})).unwrap();
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let repaired = version(&until(client, &default, list, &with("169.254.0.0/16")));
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(version(&client.get(&default).unwrap()), repaired);
    // The cluster leaves.
    client.delete(&format!("/apis/submariner.io/v1/namespaces/{NAMESPACE}/endpoints/west")).unwrap();
    until(client, &default, list, &["169.254.0.0/16"]);
    client.apply(&endpoint("west", &remote_spec())).unwrap();
    until(client, &own, own_list, &with("192.0.2.0/24"));

    // As uninstall does it: workers and next hops go first.
    assert!(worker.stop().unwrap());
    let removal = self::worker(&lab, "removal", &["--uninstall"]);
    until(client, &default, list, &["169.254.0.0/16"]);
    let left = until(client, &own, own_list, &["192.0.2.0/24"]);
    assert!(left["metadata"]["annotations"].get("trieste.io/hijack-cidrs").is_none(), "{left}");
    eventually("the removal to end", PATIENCE, || match removal.check() {
        Ok(()) => anyhow::bail!("it is still running"),
        Err(_) => Ok(()),
    })
    .unwrap();
}

#[test]
fn plugin_spiderpool_a_server_that_drops_the_field_is_named_and_not_written_to_again_and_again() {
    let name = "plugin_spiderpool_a_server_that_drops_the_field_is_named_and_not_written_to_again_and_again";
    let Some(_turn) = root_test(name) else { return };
    let lab = KubernetesLab::start(1).unwrap();
    let client = lab.cluster("east").server.client();
    install(client, "extraCIDR");
    grant(client);
    let hops = json!({"nextHops": ["172.31.1.1"], "remoteCIDRs": ["10.2.0.0/16"]});
    client
        .apply(&json!({"apiVersion": "submariner.io/v1", "kind": "GatewayRoute",
            "metadata": {"name": "west", "namespace": NAMESPACE}, "spec": hops}))
        .unwrap();
    let worker = worker(&lab, "worker", &[]);
    worker.wait_log("older than version 0.8", PATIENCE).unwrap();
    let generation =
        || client.get(&format!("{COORDINATOR}/default")).unwrap()["metadata"]["resourceVersion"].clone();
    let before = generation();
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(generation(), before, "{}", worker.log_text());
}
