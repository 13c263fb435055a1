use std::time::Duration;

use trieste_control::steps::Record;

use super::super::{Scope, observe, uninstall};
use super::*;
use crate::objects::names::ROUTE_AGENT;
use crate::objects::{Manifest, MemberOptions, example, member};
use crate::server::fake::Fake;

const NAMESPACE: &str = "submariner-operator";

fn options(force: bool) -> Uninstall {
    Uninstall {
        namespace: NAMESPACE.to_owned(),
        broker_namespace: "meet".to_owned(),
        patience: Duration::ZERO,
        force,
        scope: Scope::ALL,
        keeps: Vec::new(),
    }
}

fn place(name: &str) -> ObjectRef {
    deployment(&options(false), name)
}

fn route() -> ObjectRef {
    ObjectRef::namespaced("submariner.io/v1", "GatewayRoute", NAMESPACE, "west")
}

/// Returns a cluster with Calico's workers, a next hop, and these DaemonSets of ours.
fn cluster(sets: &[&str]) -> Fake {
    cluster_with("calico", false, sets)
}

/// Returns a cluster with the workers of this plugin, of Spiderpool if it has that, a next hop, and these DaemonSets of ours.
fn cluster_with(plugin: &str, has_spiderpool: bool, sets: &[&str]) -> Fake {
    let fake = Fake::default();
    let options = MemberOptions { network_plugin: plugin.to_owned(), has_spiderpool, ..example() };
    let is_there = |manifest: &Manifest| match manifest.kind() {
        "DaemonSet" => sets.contains(&manifest.name()),
        "Deployment" => [PLUGIN_SYNC, SPIDERPOOL_SYNC].contains(&manifest.name()),
        kind => kind == "Submariner",
    };
    for manifest in member(&options).into_iter().filter(is_there) {
        let mut object = manifest.as_value().clone();
        if manifest.kind() == "Submariner" {
            object["status"]["networkPlugin"] = json!(plugin);
        }
        fake.put(object);
    }
    fake.put(json!({"apiVersion": "submariner.io/v1", "kind": "GatewayRoute",
        "metadata": {"namespace": NAMESPACE, "name": "west"}}));
    fake
}

/// Lets a cleaner say that its pod is ready.
fn finish(fake: &Fake, cleaner: &Cleaner) {
    fake.put(json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": NAMESPACE, "name": cleaner.name, "generation": 2},
        "spec": {"replicas": 1}, "status": {"observedGeneration": 2, "readyReplicas": 1}}));
}

#[tokio::test]
async fn plugin_calico_pools_are_removed_by_a_pod_after_the_workers_and_their_next_hops() {
    let fake = cluster(&[]);
    let server = fake.server();
    let mut record = Record::default();
    let error = remove_written(&server, &options(false), &mut record).await.unwrap_err().to_string();
    assert!(error.contains("were not removed"), "{error}");
    assert!(!fake.has(&place(PLUGIN_SYNC)) && !fake.has(&route()));
    let cleaner = server.find(&place(CALICO.name)).await.unwrap().unwrap();
    assert_eq!(cleaner["spec"]["replicas"], 1);
    // What was interrupted goes on.
    finish(&fake, &CALICO);
    remove_written(&server, &options(false), &mut record).await.unwrap();
    assert!(!fake.has(&place(CALICO.name)));
    // And then there is nothing to do.
    let mut record = Record::default();
    remove_written(&server, &options(false), &mut record).await.unwrap();
    assert!(record.steps.is_empty());
}

#[tokio::test]
async fn plugin_calico_pools_go_without_the_pod_by_force() {
    let fake = cluster(&[]);
    fake.put(json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool",
        "metadata": {"name": "submariner-west-10.1.0.0-16", "labels": {"submariner.io/ippool": "true"}}}));
    let (server, mut record) = (fake.server(), Record::default());
    let found = observe(&server, &options(true)).await.unwrap();
    uninstall(&server, None, &found, &options(true), &mut record).await.unwrap();
    let pool = ObjectRef::cluster_wide("crd.projectcalico.org/v1", "IPPool", "submariner-west-10.1.0.0-16");
    assert!(!fake.has(&place(CALICO.name)) && !fake.has(&pool));
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
    let cleaner = cleaner_of(live, CALICO.name, NAMESPACE);
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
    let pool_at = |name: &str| ObjectRef::cluster_wide("crd.projectcalico.org/v1", "IPPool", name);
    let server = fake.server();
    let run = async || {
        let found = observe(&server, &options(false)).await.unwrap();
        uninstall(&server, None, &found, &options(false), &mut Record::default()).await
    };
    let nodes = run().await.unwrap_err().to_string();
    assert!(nodes.contains("not all nodes were cleaned"), "{nodes}");
    assert!(fake.has(&place(PLUGIN_SYNC)) && fake.has(&route()), "workers go on while nodes are cleaned");
    fake.put(json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": NAMESPACE, "name": "submariner-routeagent-uninstall", "generation": 1},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 0}}));
    let pools = run().await.unwrap_err().to_string();
    assert!(pools.contains("IPPools of remote networks were not removed"), "{pools}");
    let submariner = ObjectRef::namespaced("submariner.io/v1alpha1", "Submariner", NAMESPACE, "submariner");
    assert!(fake.has(&submariner), "objects go after the pools");
    finish(&fake, &CALICO);
    run().await.unwrap();
    assert!(!fake.has(&submariner) && !fake.has(&place(CALICO.name)));
    assert!(!fake.has(&pool_at("submariner-west-10.1.0.0-16")), "what the pod has left");
    assert!(fake.has(&pool_at("default-ipv4-ippool")));
}

#[tokio::test]
async fn plugin_spiderpool_entries_are_removed_by_a_pod_after_the_workers_beside_any_plugin() {
    for (plugin, cleaners) in
        [("generic", &[SPIDERPOOL][..]), ("Calico", &[CALICO, SPIDERPOOL]), ("kindnet", &[SPIDERPOOL])]
    {
        let fake = cluster_with(plugin, true, &[]);
        let server = fake.server();
        let mut record = Record::default();
        for cleaner in cleaners {
            let error = remove_written(&server, &options(false), &mut record).await.unwrap_err();
            assert!(error.to_string().contains(cleaner.failure), "{error}");
            let logs = format!("logs deployment/{} -c {} tells why", cleaner.name, cleaner.workers);
            assert!(error.next().contains(&logs), "{}", error.next());
            assert!(!fake.has(&place(cleaner.workers)) && !fake.has(&route()));
            let made = server.find(&place(cleaner.name)).await.unwrap().unwrap();
            assert_eq!(made["spec"]["replicas"], 1);
            finish(&fake, cleaner);
        }
        remove_written(&server, &options(false), &mut record).await.unwrap();
        assert!(cleaners.iter().all(|cleaner| !fake.has(&place(cleaner.name))));
        // And then there is nothing to do.
        let mut record = Record::default();
        remove_written(&server, &options(false), &mut record).await.unwrap();
        assert!(record.steps.is_empty());
    }
}

#[tokio::test]
async fn plugin_spiderpool_entries_that_stay_by_force_are_told_and_nothing_else_stays() {
    let fake = cluster_with("generic", true, &[]);
    let lease = ObjectRef::namespaced(
        "coordination.k8s.io/v1",
        "Lease",
        NAMESPACE,
        crate::objects::names::SPIDERPOOL_SYNC_LOCK,
    );
    fake.put(json!({"apiVersion": lease.api_version, "kind": lease.kind,
        "metadata": {"namespace": NAMESPACE, "name": lease.name}}));
    let role = ObjectRef::cluster_wide("rbac.authorization.k8s.io/v1", "ClusterRole", SPIDERPOOL_SYNC);
    let all = member(&MemberOptions { has_spiderpool: true, ..example() });
    let is_right = |one: &&Manifest| one.kind() == "ClusterRole" && one.name() == SPIDERPOOL_SYNC;
    fake.put(all.iter().find(is_right).unwrap().as_value().clone());
    let (server, mut record) = (fake.server(), Record::default());
    let found = observe(&server, &options(true)).await.unwrap();
    uninstall(&server, None, &found, &options(true), &mut record).await.unwrap();
    for gone in [lease, role, place(SPIDERPOOL_SYNC), place(SPIDERPOOL.name)] {
        assert!(!fake.has(&gone), "{gone}");
    }
    let told = format!("{record:?}");
    assert!(told.contains("the annotation trieste.io/hijack-cidrs of"), "{told}");
}

#[tokio::test]
async fn plugin_spiderpool_entries_stay_while_nodes_are_cleaned_and_ovns_next_hops_go() {
    let fake = cluster_with("OVNKubernetes", true, &[ROUTE_AGENT, PLUGIN_SYNC]);
    let server = fake.server();
    let run = async || {
        let found = observe(&server, &options(false)).await.unwrap();
        uninstall(&server, None, &found, &options(false), &mut Record::default()).await
    };
    for set in [ROUTE_AGENT, PLUGIN_SYNC] {
        assert!(run().await.unwrap_err().to_string().contains("not all nodes were cleaned"), "{set}");
        assert!(!fake.has(&place(SPIDERPOOL_SYNC)) && !fake.has(&route()), "{set}");
        let cleaner = server.find(&place(SPIDERPOOL.name)).await.unwrap().unwrap();
        assert_eq!(cleaner["spec"]["replicas"], 0, "{set}");
        fake.put(json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"namespace": NAMESPACE, "name": format!("{set}-uninstall"), "generation": 1},
            "status": {"observedGeneration": 1, "desiredNumberScheduled": 0}}));
    }
    assert!(run().await.unwrap_err().to_string().contains(SPIDERPOOL.failure));
    finish(&fake, &SPIDERPOOL);
    run().await.unwrap();
    assert!(!fake.has(&place(SPIDERPOOL.name)));
}

/// An earlier uninstall was given up, its pod was done later, and the cluster has joined again.
#[tokio::test]
async fn plugin_spiderpool_cleaner_of_an_earlier_uninstall_is_made_anew() {
    let fake = cluster_with("generic", true, &[]);
    let server = fake.server();
    let live = server.find(&place(SPIDERPOOL_SYNC)).await.unwrap().unwrap();
    let mut old = cleaner_of(&live, SPIDERPOOL.name, NAMESPACE);
    old["metadata"]["generation"] = json!(2);
    old["spec"]["replicas"] = json!(1);
    old["status"] = json!({"observedGeneration": 2, "readyReplicas": 1});
    fake.put(old);
    let found = observe(&server, &options(false)).await.unwrap();
    let error = uninstall(&server, None, &found, &options(false), &mut Record::default()).await.unwrap_err();
    assert!(error.to_string().contains(SPIDERPOOL.failure), "its pod has not run: {error}");
    finish(&fake, &SPIDERPOOL);
    uninstall(&server, None, &found, &options(false), &mut Record::default()).await.unwrap();
    assert!(!fake.has(&place(SPIDERPOOL.name)));
}

#[test]
fn plugin_spiderpool_cleaner_is_the_workers_pod_that_runs_once() {
    let manifests = member(&MemberOptions { has_spiderpool: true, ..example() });
    let is_it = |one: &&Manifest| one.kind() == "Deployment" && one.name() == SPIDERPOOL_SYNC;
    let live = manifests.iter().find(is_it).unwrap().as_value();
    let cleaner = cleaner_of(live, SPIDERPOOL.name, NAMESPACE);
    assert_eq!(cleaner["spec"]["selector"]["matchLabels"]["app"], SPIDERPOOL.name);
    let pod = &cleaner["spec"]["template"]["spec"];
    let [program] = &pod["initContainers"].as_array().unwrap()[..] else { panic!("one program") };
    assert_eq!(
        (&program["name"], &pod["serviceAccountName"]),
        (&json!(SPIDERPOOL_SYNC), &json!(SPIDERPOOL_SYNC))
    );
    let variables = program["env"].as_array().unwrap();
    for (name, value) in [("SUBMARINER_UNINSTALL", "true"), ("SUBMARINER_NETWORKPLUGIN", "spiderpool")] {
        assert!(variables.contains(&json!({"name": name, "value": value})), "{name}");
    }
}
