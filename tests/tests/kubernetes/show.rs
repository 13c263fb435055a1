//! `trieste show` on real API servers that hold what was recorded from upstream: the output is upstream's, to the byte.
//!
//! ```text
//!   trieste show all ── KUBECONFIG=b:a ──► API server b (cluster-b: one gateway)
//!                                     └──► API server a (cluster-a: an active gateway and a passive one)
//! ```

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use trieste_control::api::GoDuration;
use trieste_tests::cluster::{BROKER_NAMESPACE, NAMESPACE};
use trieste_tests::command::{Output, Run};
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{ApiServer, Client, Faults, Mode, credentials, objects};
use trieste_tests::lab::Lab;
use trieste_tests::programs;

const RECORDED: &str = include_str!("../../../control/tests/golden/cli/show-all.txt");
const A_GATEWAYS: &str = include_str!("../../../control/tests/golden/plain/a-gateways.yaml");
const B_GATEWAYS: &str = include_str!("../../../control/tests/golden/plain/b-gateways.yaml");
const A_ROUTE_AGENTS: &str = include_str!("../../../control/tests/golden/plain/a-routeagents.yaml");
/// As long as the one of the recording, in which it was replaced afterwards, without regard to columns.
const REGISTRY: &str = "quay.io";
const TIMEOUT: Duration = Duration::from_secs(90);

/// A cluster whose API server holds what a recording tells.
struct Cluster {
    server: ApiServer,
    /// The way to it from here; it ends with this.
    relay: Faults,
    kubeconfig: PathBuf,
}

#[test]
fn all_of_two_clusters_is_shown_as_upstream_shows_it() {
    let Some(_turn) = root_test("all_of_two_clusters_is_shown_as_upstream_shows_it") else { return };
    let lab = Lab::new().unwrap();
    let mut b = Cluster::start(&lab, "cluster-b", B_GATEWAYS, "278.367µs", ("10.2.0.0/16", "100.2.0.0/16"));
    let a = Cluster::start(&lab, "cluster-a", A_GATEWAYS, "283.485µs", ("10.1.0.0/16", "100.1.0.0/16"));

    let shown = trieste(&[&b, &a], &["show", "all"]);
    assert_eq!((shown.stdout.replace(REGISTRY, "REGISTRY").as_str(), shown.stderr.as_str()), (RECORDED, ""));

    one_part_of_one_cluster_is_upstreams_block(&a);
    programs_get_one_document_of_both(&b, &a);
    brokers_and_route_agents_are_shown_where_they_are(&b, &a);
    who_may_see_a_part_is_shown_that_part(&a);
    a_cluster_without_gateways_says_so(&lab);
    a_cluster_that_is_away_does_not_hide_the_other(&mut b, &a);
}

fn one_part_of_one_cluster_is_upstreams_block(a: &Cluster) {
    let shown = trieste(&[a], &["show", "gateways", "--context", "cluster-a"]).stdout;
    let table = "NODE    HA STATUS   SUMMARY                               \n\
                 a-gw1   active      All connections (1) are established   \n\
                 a-gw2   passive     There are no connections              \n";
    let steps = " • Showing Gateways  ...\n ✓ Showing Gateways\n";
    assert_eq!(shown, format!("Cluster \"cluster-a\"\n{steps}{table}\n"));
}

fn programs_get_one_document_of_both(b: &Cluster, a: &Cluster) {
    let shown = trieste(&[b, a], &["show", "all", "-o", "json"]);
    let views: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown.stderr, "");
    assert_eq!((&views[0]["cluster"], &views[1]["context"]), (&json!("cluster-b"), &json!("cluster-a")));
    assert_eq!(views[1]["connections"][0]["rttAverage"], "283.485µs");
    assert_eq!(views[1]["networks"]["networkPlugin"], "generic");
    assert_eq!(views[0]["versions"][3]["component"], "submariner-operator");
    assert_eq!(views[0]["brokers"], json!([]));
    let yaml = trieste(&[b, a], &["show", "endpoints", "-o", "yaml", "--contexts", "cluster-a"]).stdout;
    assert!(yaml.contains("cluster: cluster-a") && !yaml.contains("connections:"), "{yaml}");
}

fn brokers_and_route_agents_are_shown_where_they_are(b: &Cluster, a: &Cluster) {
    let client = b.server.client();
    client.create_namespace(BROKER_NAMESPACE).unwrap();
    let broker = json!({
        "apiVersion": "submariner.io/v1alpha1", "kind": "Broker",
        "metadata": {"name": "submariner-broker", "namespace": BROKER_NAMESPACE},
        "spec": {"components": ["connectivity"], "globalnetEnabled": true,
            "globalnetCIDRRange": "242.0.0.0/8", "defaultGlobalnetClusterSize": 65536},
    });
    client.apply(&broker).unwrap();
    let shown = trieste(&[b, a], &["show", "brokers"]).stdout;
    assert!(shown.contains("\nsubmariner-k8s-broker   submariner-broker   connectivity   yes  "), "{shown}");
    assert!(shown.ends_with(" ✓ Detecting broker(s)\n ✓ No brokers found\n\n"), "{shown}");

    create_list(a.server.client(), A_ROUTE_AGENTS, |_| {});
    let shown = trieste(&[a], &["show", "routeagents"]).stdout;
    assert!(shown.contains("\nNODE    CLUSTER     GATEWAY   STATUS "), "{shown}");
    assert!(shown.contains("\na-w1    cluster-b   b-gw1     "), "{shown}");
}

/// The right to list gateways is enough for what gateways tell; the rest says what is missing.
fn who_may_see_a_part_is_shown_that_part(a: &Cluster) {
    let client = a.server.client();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "viewer", "namespace": NAMESPACE}});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "viewer", "namespace": NAMESPACE},
        "rules": [{"apiGroups": ["submariner.io"], "resources": ["gateways"], "verbs": ["list"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "viewer", "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": NAMESPACE}]});
    for object in [&account, &role, &binding] {
        client.apply(object).unwrap();
    }
    let token = a.server.token(NAMESPACE, "viewer", None).unwrap();
    let identity = credentials::Identity::Token(token);
    let kubeconfig = a.relay.kubeconfig("viewer", &identity).unwrap();
    let shown = Run::new(programs::path("trieste").unwrap())
        .args(["show", "all", "--kubeconfig"])
        .arg(&kubeconfig)
        .timeout(TIMEOUT)
        .output()
        .unwrap();
    assert_eq!(shown.status.code(), Some(1));
    assert!(shown.stdout.contains("\nb-gw1     cluster-b   172.31.2.11"), "{}", shown.stdout);
    let versions = " ✗ Showing versions\n ✗ The API server does not allow this: ";
    assert!(shown.stdout.contains(versions), "{}", shown.stdout);
}

fn a_cluster_that_is_away_does_not_hide_the_other(b: &mut Cluster, a: &Cluster) {
    b.relay.set(Mode::Refuse).unwrap();
    let output = run(&[b, a], &["show", "connections"]);
    assert_eq!(output.status.code(), Some(1));
    let (first, second) = output.stdout.split_once("\n\n").unwrap();
    assert!(
        first.starts_with("Cluster \"cluster-b\"\n ✗ context cluster-b: the API server https://"),
        "{first}"
    );
    assert_eq!(first.lines().count(), 2, "{first}");
    assert!(second.contains("\nb-gw1     cluster-b   172.31.2.11   no "), "{second}");
}

fn a_cluster_without_gateways_says_so(lab: &Lab) {
    let server = ApiServer::alone(lab, "empty").unwrap();
    let empty = Cluster::reach(server, "empty");
    let warning = " ⚠ Submariner connectivity feature is not installed\n\n";
    let shown = trieste(&[&empty], &["show", "connections"]).stdout;
    assert_eq!(shown, format!("Cluster \"empty\"\n{warning}"));
    let shown = trieste(&[&empty], &["show", "all"]).stdout;
    assert!(shown.ends_with(warning), "{shown}");
}

impl Cluster {
    fn start(lab: &Lab, name: &str, gateways: &str, average: &str, cidrs: (&str, &str)) -> Self {
        let server = ApiServer::alone(lab, name).unwrap();
        let client = server.client();
        client.create_namespace(NAMESPACE).unwrap();
        objects::install_definitions(client).unwrap();
        define_operator_kinds(client);
        let _: GoDuration = average.parse().unwrap();
        create_list(client, gateways, |gateway| {
            // The round trip that was current when the table was recorded.
            for connection in gateway["status"]["connections"].as_array_mut().into_iter().flatten() {
                connection["latencyRTT"]["average"] = json!(average);
            }
        });
        submariner(client, name, cidrs);
        for component in ["submariner-gateway", "submariner-routeagent", "submariner-metrics-proxy"] {
            workload(client, "DaemonSet", component);
        }
        workload(client, "Deployment", "submariner-operator");
        Self::reach(server, name)
    }

    /// A way to a server from here, by a kubeconfig whose names are the cluster's.
    fn reach(server: ApiServer, name: &str) -> Self {
        let relay = Faults::on_loopback(&server).unwrap();
        let text = std::fs::read_to_string(relay.admin().unwrap()).unwrap();
        let kubeconfig = server.directory().join("named.conf");
        std::fs::write(&kubeconfig, text.replace("\"lab\"", &format!("\"{name}\""))).unwrap();
        Self { server, relay, kubeconfig }
    }
}

/// The kinds of upstream's operator, unless the project has them.
fn define_operator_kinds(client: &Client) {
    for (kind, plural) in [("Submariner", "submariners"), ("Broker", "brokers")] {
        let name = format!("{plural}.submariner.io");
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        if client.find(&path).unwrap().is_some() {
            continue;
        }
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = json!({"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {"group": "submariner.io", "scope": "Namespaced", "versions": [version],
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")}},
        });
        client.apply(&definition).unwrap();
        client
            .wait(&path, TIMEOUT, |found| {
                found["status"]["conditions"].to_string().contains("InitialNamesAccepted")
            })
            .unwrap();
        client.wait(&format!("/apis/submariner.io/v1alpha1/{plural}"), TIMEOUT, |_| true).unwrap();
    }
}

fn submariner(client: &Client, name: &str, (pods, services): (&str, &str)) {
    let status =
        json!({"clusterID": name, "networkPlugin": "generic", "clusterCIDR": pods, "serviceCIDR": services});
    let object = json!({
        "apiVersion": "submariner.io/v1alpha1", "kind": "Submariner",
        "metadata": {"name": "submariner", "namespace": NAMESPACE},
        "spec": {"broker": "k8s", "brokerK8sApiServer": "broker:6443", "brokerK8sRemoteNamespace": BROKER_NAMESPACE,
            "ceIPSecDebug": false, "clusterCIDR": "", "clusterID": name, "debug": false, "namespace": NAMESPACE,
            "natEnabled": true, "serviceCIDR": ""},
        "status": status,
    });
    client.apply(&object).unwrap();
    let path = format!("/apis/submariner.io/v1alpha1/namespaces/{NAMESPACE}/submariners/submariner");
    let found = client.get(&path).unwrap();
    if found["status"]["networkPlugin"].is_null() {
        client.patch(&format!("{path}/status"), &json!({"status": status})).unwrap();
    }
}

/// A workload without pods: nothing runs that could be asked for its version.
fn workload(client: &Client, kind: &str, name: &str) {
    let labels = json!({"app": name});
    let image = format!("{REGISTRY}/submariner/{name}:0.19.0-rc3");
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": name, "image": image}]}});
    let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": template}});
    client.apply(&object).unwrap();
}

/// Creates what `kubectl get -o yaml` has recorded.
fn create_list(client: &Client, text: &str, change: impl Fn(&mut Value)) {
    let list: Value = serde_saphyr::from_str(text).unwrap();
    for item in list["items"].as_array().unwrap() {
        let mut item = item.clone();
        change(&mut item);
        let metadata = item["metadata"].as_object_mut().unwrap();
        metadata.retain(|key, _| matches!(key.as_str(), "name" | "namespace" | "labels" | "annotations"));
        client.apply(&item).unwrap();
    }
}

/// A command that succeeds.
fn trieste(clusters: &[&Cluster], words: &[&str]) -> Output {
    let output = run(clusters, words);
    assert!(output.status.success(), "{output:?}");
    output
}

fn run(clusters: &[&Cluster], words: &[&str]) -> Output {
    let paths: Vec<String> =
        clusters.iter().map(|cluster| cluster.kubeconfig.display().to_string()).collect();
    Run::new(programs::path("trieste").unwrap())
        .args(words)
        .env("KUBECONFIG", paths.join(":"))
        .timeout(TIMEOUT)
        .output()
        .unwrap()
}
