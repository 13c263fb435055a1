use std::time::Duration;

use trieste_control::steps::Record;

use super::super::{look, uninstall};
use super::*;
use crate::objects::names::ROUTE_AGENT;
use crate::objects::{Manifest, example, member};
use crate::server::fake::Fake;

const NAMESPACE: &str = "submariner-operator";

fn options(force: bool) -> Uninstall {
    Uninstall {
        namespace: NAMESPACE.to_owned(),
        broker_namespace: "meet".to_owned(),
        patience: Duration::ZERO,
        force,
    }
}

fn deployment(name: &str) -> ObjectRef {
    ObjectRef::namespaced("apps/v1", "Deployment", NAMESPACE, name)
}

fn route() -> ObjectRef {
    ObjectRef::namespaced("submariner.io/v1", "GatewayRoute", NAMESPACE, "west")
}

/// Returns a cluster with Calico's workers, a next hop, and these DaemonSets of ours.
fn cluster(sets: &[&str]) -> Fake {
    let fake = Fake::default();
    let mut options = example();
    options.network_plugin = "calico".to_owned();
    let is_there = |manifest: &Manifest| match manifest.kind() {
        "DaemonSet" => sets.contains(&manifest.name()),
        "Deployment" => manifest.name() == PLUGIN_SYNC,
        kind => kind == "Submariner",
    };
    for manifest in member(&options).into_iter().filter(is_there) {
        let mut object = manifest.as_value().clone();
        if manifest.kind() == "Submariner" {
            object["status"]["networkPlugin"] = json!("calico");
        }
        fake.put(object);
    }
    fake.put(json!({"apiVersion": "submariner.io/v1", "kind": "GatewayRoute",
        "metadata": {"namespace": NAMESPACE, "name": "west"}}));
    fake
}

/// Lets the cleaner say that its pod is ready.
fn finish(fake: &Fake) {
    fake.put(json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": NAMESPACE, "name": CLEANER, "generation": 2},
        "spec": {"replicas": 1}, "status": {"observedGeneration": 2, "readyReplicas": 1}}));
}

#[tokio::test]
async fn plugin_calico_pools_are_removed_by_a_pod_after_the_workers_and_their_next_hops() {
    let fake = cluster(&[]);
    let server = fake.server();
    let mut record = Record::default();
    let error = remove_pools(&server, &options(false), &mut record).await.unwrap_err().to_string();
    assert!(error.contains("were not removed"), "{error}");
    assert!(!fake.has(&deployment(PLUGIN_SYNC)) && !fake.has(&route()));
    let cleaner = server.find(&deployment(CLEANER)).await.unwrap().unwrap();
    assert_eq!(cleaner["spec"]["replicas"], 1);
    // What was interrupted goes on.
    finish(&fake);
    remove_pools(&server, &options(false), &mut record).await.unwrap();
    assert!(!fake.has(&deployment(CLEANER)));
    // And then there is nothing to do.
    let mut record = Record::default();
    remove_pools(&server, &options(false), &mut record).await.unwrap();
    assert!(record.steps.is_empty());
}

#[tokio::test]
async fn plugin_calico_pools_go_without_the_pod_by_force() {
    let fake = cluster(&[]);
    fake.put(json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool",
        "metadata": {"name": "submariner-west-10.1.0.0-16", "labels": {"submariner.io/ippool": "true"}}}));
    let (server, mut record) = (fake.server(), Record::default());
    let found = look(&server, &options(true)).await.unwrap();
    uninstall(&server, None, &found, &options(true), &mut record).await.unwrap();
    let pool = ObjectRef::cluster_wide("crd.projectcalico.org/v1", "IPPool", "submariner-west-10.1.0.0-16");
    assert!(!fake.has(&deployment(CLEANER)) && !fake.has(&pool));
    let told = format!("{record:?}");
    assert!(told.contains("kubectl delete ippools.crd.projectcalico.org"), "{told}");
}

#[test]
fn plugin_calico_cleaner_is_the_workers_pod_that_runs_once() {
    let mut options = example();
    options.network_plugin = "calico".to_owned();
    let manifests = member(&options);
    let is_it = |one: &&Manifest| one.kind() == "Deployment" && one.name() == PLUGIN_SYNC;
    let live = manifests.iter().find(is_it).unwrap().as_value();
    let cleaner = cleaner_of(live, NAMESPACE);
    assert_eq!(cleaner["spec"]["replicas"], 0);
    let template = &cleaner["spec"]["template"];
    assert_eq!(cleaner["spec"]["selector"]["matchLabels"]["app"], template["metadata"]["labels"]["app"]);
    let pod = &template["spec"];
    let [program] = &pod["initContainers"].as_array().unwrap()[..] else { panic!("one program") };
    assert_eq!(program["command"], json!(["/usr/local/bin/trieste-plugin-sync"]));
    let variables = program["env"].as_array().unwrap();
    assert!(variables.contains(&json!({"name": "SUBMARINER_UNINSTALL", "value": "true"})));
    assert!(variables.contains(&json!({"name": "SUBMARINER_NETWORKPLUGIN", "value": "calico"})));
    assert!(program["readinessProbe"].is_null());
    assert_eq!(pod["serviceAccountName"], PLUGIN_SYNC);
    for container in [program, &pod["containers"][0]] {
        assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    }
}

#[tokio::test]
async fn plugin_calico_pools_are_last_and_what_is_left_of_them_is_found() {
    let fake = cluster(&[ROUTE_AGENT]);
    let pool = |name: &str, label: &str| {
        json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool",
            "metadata": {"name": name, "labels": {"submariner.io/ippool": label}}})
    };
    fake.put(pool("submariner-west-10.1.0.0-16", "true"));
    fake.put(pool("default-ipv4-ippool", "no"));
    let place = |name: &str| ObjectRef::cluster_wide("crd.projectcalico.org/v1", "IPPool", name);
    let server = fake.server();
    let run = async || {
        let found = look(&server, &options(false)).await.unwrap();
        uninstall(&server, None, &found, &options(false), &mut Record::default()).await
    };
    let nodes = run().await.unwrap_err().to_string();
    assert!(nodes.contains("not all nodes were cleaned"), "{nodes}");
    assert!(
        fake.has(&deployment(PLUGIN_SYNC)) && fake.has(&route()),
        "workers go on while nodes are cleaned"
    );
    fake.put(json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": NAMESPACE, "name": "submariner-routeagent-uninstall", "generation": 1},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 0}}));
    let pools = run().await.unwrap_err().to_string();
    assert!(pools.contains("IPPools of remote networks were not removed"), "{pools}");
    let submariner = ObjectRef::namespaced("submariner.io/v1alpha1", "Submariner", NAMESPACE, "submariner");
    assert!(fake.has(&submariner), "objects go after the pools");
    finish(&fake);
    run().await.unwrap();
    assert!(!fake.has(&submariner) && !fake.has(&deployment(CLEANER)));
    assert!(!fake.has(&place("submariner-west-10.1.0.0-16")), "what the pod has left");
    assert!(fake.has(&place("default-ipv4-ippool")));
}
