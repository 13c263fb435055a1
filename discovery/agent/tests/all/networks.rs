//! Addresses of another cluster are held against what its Cluster object says that it has.

use std::time::Instant;

use jiff::Timestamp;
use serde_json::{Value, json};
use trieste_control::api::{
    Cluster as Registered, ClusterSpec, Kind, Object, Resource as _, annotation, label,
};
use trieste_control::store::StoreError;

use crate::api_store::ApiStore;
use crate::lab::{BROKER, Cluster, addresses, endpoint, settle, slices_of};

/// Registers a cluster since this second, with these Service, pod and global networks.
fn register(broker: &ApiStore, id: &str, since: i64, [service, pods, global]: [&[&str]; 3]) {
    let texts = |nets: &[&str]| nets.iter().map(|net| (*net).to_owned()).collect();
    let spec = ClusterSpec {
        service_cidr: texts(service),
        cluster_cidr: texts(pods),
        global_cidr: texts(global),
        ..ClusterSpec::new(id, &[], &[])
    };
    let mut object = Registered::new(BROKER, spec).unwrap().to_object();
    object.metadata.creation_timestamp = Timestamp::from_second(since).ok();
    object.metadata.labels.insert(label::CLUSTER_ID.to_owned(), id.to_owned());
    broker.0.put(object);
}

/// Publishes a slice of a cluster for the service `shop/<service>`.
fn publish(broker: &ApiStore, cluster: &str, service: &str, name: &str, endpoints: &[Value]) {
    let is_ipv4 = !endpoints.iter().any(|endpoint| endpoint.to_string().contains("fd"));
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "endpoints": endpoints,
        "addressType": if is_ipv4 { "IPv4" } else { "IPv6" },
        "ports": [{"name": "http", "protocol": "TCP", "port": 80}],
        "metadata": {"name": name, "namespace": BROKER, "labels": {
            label::MANAGED_BY: label::LIGHTHOUSE_AGENT, label::CLUSTER_ID: cluster, label::SOURCE_CLUSTER: cluster,
            label::SOURCE_NAMESPACE: "shop", label::SERVICE_NAME: service}}});
    broker.0.put(Object::from_value(slice).unwrap());
}

/// Returns the addresses of the copy of this name.
fn copied(cluster: &Cluster, name: &str) -> Vec<String> {
    let copy = cluster.store.find(Kind::EndpointSlice, "shop", name).expect("there is a copy");
    addresses(&copy).into_iter().map(|(address, _)| address).collect()
}

fn refused(cluster: &Cluster) -> Vec<(String, String)> {
    let status = cluster.agent.as_ref().unwrap().status.borrow().clone();
    status.refused.into_iter().map(|refused| (refused.object, refused.reason)).collect()
}

fn addresses_of(list: &[&str]) -> Vec<Value> {
    list.iter().map(|address| endpoint(address, true)).collect()
}

/// Returns a set of three that are registered: `east`, whose agent runs, `west` and `north`.
fn set() -> (ApiStore, Cluster) {
    let broker = ApiStore::default();
    register(&broker, "east", 1, [&["10.96.0.0/16"], &["10.1.0.0/16", "fd01::/64"], &[]]);
    register(&broker, "west", 2, [&["10.97.0.0/16"], &["10.2.0.0/16", "fd02::/64"], &[]]);
    register(&broker, "north", 3, [&["10.98.0.0/16"], &["10.3.0.0/16", "fd03::/64"], &[]]);
    let east = Cluster::start("east", &broker);
    (broker, east)
}

#[tokio::test(start_paused = true)]
async fn a_member_exports_its_own_addresses_and_nobody_elses() {
    let (broker, east) = set();
    let theirs = ["10.97.0.7", "10.2.0.9"];
    publish(&broker, "west", "good", "good", &addresses_of(&theirs));
    publish(&broker, "west", "six", "six", &addresses_of(&["fd02::7", "fd03::7", "fd01::7", "fdff::7"]));
    let stolen = ["10.3.0.9", "10.98.0.7", "10.1.0.4", "10.96.0.1", "8.8.8.8", "100.64.0.1"];
    publish(&broker, "west", "bad", "bad", &addresses_of(&stolen));
    let mixed: Vec<&str> = stolen.iter().chain(&theirs).copied().collect();
    publish(&broker, "west", "mixed", "mixed", &addresses_of(&mixed));
    let several =
        json!({"addresses": ["10.3.0.9", "10.2.0.9"], "conditions": {"ready": true}, "hostname": "a"});
    publish(&broker, "west", "several", "several", &[several]);
    publish(&broker, "south", "unregistered", "unregistered", &addresses_of(&["10.5.0.1"]));
    settle().await;
    assert_eq!(copied(&east, "good"), theirs);
    assert_eq!(copied(&east, "six"), ["fd02::7"]);
    assert_eq!(copied(&east, "bad"), [""; 0]);
    assert_eq!(copied(&east, "mixed"), theirs);
    assert_eq!(copied(&east, "several"), ["10.2.0.9"]);
    assert_eq!(copied(&east, "unregistered"), [""; 0]);
    let refused = refused(&east);
    let names: Vec<&str> =
        refused.iter().map(|(object, _)| object.rsplit('/').next().unwrap_or_default()).collect();
    assert_eq!(names, ["bad", "mixed", "several", "six", "unregistered"]);
    assert_eq!(
        refused[0].1,
        "has the address 10.3.0.9 of cluster west: it is in none of that cluster's networks, and 5 more are left out"
    );
    drop(east.store.writes());
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert_eq!(east.store.writes(), Vec::<String>::new(), "at rest");
}

#[tokio::test(start_paused = true)]
async fn what_a_younger_member_claims_of_another_is_not_its_own() {
    let (broker, east) = set();
    register(&broker, "rogue", 9, [&[], &["10.2.4.0/24", "10.66.0.0/16"], &[]]);
    publish(&broker, "rogue", "web", "stolen", &addresses_of(&["10.2.4.1"]));
    publish(&broker, "west", "web", "own", &addresses_of(&["10.2.4.1"]));
    settle().await;
    assert_eq!((copied(&east, "stolen"), copied(&east, "own")), (vec![], vec!["10.2.4.1".to_owned()]));
    assert!(refused(&east)[0].1.contains("overlaps 10.2.0.0/16 of cluster west"), "{:?}", refused(&east));
    // Nor is this cluster's, whoever claims it first.
    register(&broker, "elder", 0, [&[], &["10.1.0.0/24"], &[]]);
    publish(&broker, "elder", "web", "elder", &addresses_of(&["10.1.0.1"]));
    settle().await;
    assert_eq!(copied(&east, "elder"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_cluster_is_followed_and_concerns_its_slices_alone() {
    let (broker, east) = set();
    for number in 0..50 {
        publish(&broker, "north", &format!("n{number}"), &format!("n{number}"), &addresses_of(&["10.3.0.1"]));
    }
    publish(&broker, "west", "web", "web", &addresses_of(&["10.2.0.9", "10.7.0.9"]));
    settle().await;
    assert_eq!((copied(&east, "web"), refused(&east).len()), (vec!["10.2.0.9".to_owned()], 1));
    let runner = &east.agent.as_ref().unwrap().runner;
    let plans = || runner.metrics.snapshot(Instant::now()).reconciles;
    let before = plans();
    drop(east.store.writes());
    register(&broker, "west", 2, [&[], &["10.2.0.0/16", "10.7.0.0/16"], &[]]);
    settle().await;
    assert_eq!((copied(&east, "web").len(), refused(&east).len()), (2, 0), "it clears");
    assert!(plans() - before <= 6, "{} plans", plans() - before);
    assert_eq!(east.store.writes().len(), 1);

    broker.0.remove(Kind::Cluster, "west");
    settle().await;
    assert_eq!((copied(&east, "web").len(), refused(&east).len()), (0, 1));
    // This cluster's own concern everybody.
    register(&broker, "east", 1, [&[], &["10.3.0.0/16"], &[]]);
    settle().await;
    assert_eq!(copied(&east, "n7"), [""; 0]);
    broker.0.remove(Kind::Cluster, "east");
    settle().await;
    assert_eq!(
        (copied(&east, "n7").len(), copied(&east, "web").len()),
        (1, 2),
        "nobody has to be registered"
    );
}

#[tokio::test(start_paused = true)]
async fn with_globalnet_only_global_addresses_are_taken() {
    let broker = ApiStore::default();
    register(&broker, "east", 1, [&["10.96.0.0/16"], &["10.1.0.0/16"], &["242.1.0.0/16"]]);
    register(&broker, "west", 2, [&["10.96.0.0/16"], &["10.1.0.0/16", "fd02::/64"], &["242.2.0.0/16"]]);
    let east = Cluster::start("east", &broker);
    let given = ["242.2.0.7", "242.1.0.7", "10.1.0.1", "10.96.0.1"];
    publish(&broker, "west", "web", "web", &addresses_of(&given));
    publish(&broker, "west", "six", "six", &addresses_of(&["fd02::1"]));
    settle().await;
    assert_eq!((copied(&east, "web"), copied(&east, "six").len()), (vec!["242.2.0.7".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn without_clusters_on_the_broker_services_are_exchanged_all_the_same() {
    let forbidden =
        || StoreError::Forbidden { operation: "list".to_owned(), source: std::io::Error::other("no right") };
    let absent = || StoreError::Unavailable {
        operation: "list".to_owned(),
        source: std::io::Error::new(std::io::ErrorKind::NotFound, "no such kind"),
    };
    for refusal in [None, Some(forbidden as fn() -> StoreError), Some(absent)] {
        let broker = ApiStore(crate::memory_store::MemoryStore::default(), None, refusal, None);
        let [east, west] = ["east", "west"].map(|id| Cluster::start(id, &broker));
        east.service("web", "10.96.0.7");
        east.export("web", 1_000);
        publish(&broker, "north", "web", "link", &addresses_of(&["169.254.169.254"]));
        settle().await;
        assert_eq!(addresses(&west.slices_of("east")[0]), [("10.96.0.7".to_owned(), true)]);
        assert!(west.slices_of("north").is_empty());
        assert_eq!((east.said("web", "Ready").as_str(), refused(&west).len()), ("True/Exported", 1));
        drop((broker.writes(), west.store.writes()));
        broker.0.break_watches();
        settle().await;
        assert_eq!((broker.writes(), west.store.writes()), (vec![], vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_of_all_clusters_that_is_one_clusters_is_left_out() {
    let (broker, east) = set();
    let put = |name: &str, ip: &str| {
        let import = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
            "metadata": {"name": format!("{name}-shop"), "namespace": BROKER, "annotations": {
                label::SERVICE_NAME: name, label::SOURCE_NAMESPACE: "shop",
                format!("{}west", annotation::TIMESTAMP_PREFIX): "1"}},
            "spec": {"type": "ClusterSetIP", "ips": [ip], "ports": []}, "status": {"clusters": [{"cluster": "west"}]}});
        broker.0.put(Object::from_value(import).unwrap());
    };
    put("good", "243.0.0.1");
    put("pod", "10.3.0.9");
    put("ours", "10.96.0.1");
    put("late", "10.44.0.1");
    settle().await;
    let ips = |name: &str| east.import(name).unwrap().body["spec"].get("ips").cloned();
    assert_eq!(ips("good"), Some(json!(["243.0.0.1"])));
    assert_eq!([ips("pod"), ips("ours")], [None, None]);
    assert_eq!((ips("late"), refused(&east).len()), (Some(json!(["10.44.0.1"])), 2));
    register(&broker, "south", 4, [&[], &["10.44.0.0/16"], &[]]);
    settle().await;
    assert_eq!((ips("late"), refused(&east).len()), (None, 3));
    put("late", "243.0.0.9");
    settle().await;
    assert_eq!((ips("late"), refused(&east).len()), (Some(json!(["243.0.0.9"])), 2));
}

#[tokio::test(start_paused = true)]
async fn a_clusters_networks_cost_no_plan_of_a_service_whose_address_they_do_not_have() {
    let (broker, east) = set();
    for number in 0..200 {
        let import = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
            "metadata": {"name": format!("s{number}-shop"), "namespace": BROKER, "annotations": {
                label::SERVICE_NAME: format!("s{number}"), label::SOURCE_NAMESPACE: "shop"}},
            "spec": {"type": "ClusterSetIP", "ips": [format!("243.0.0.{number}")], "ports": []}});
        broker.0.put(Object::from_value(import).unwrap());
    }
    settle().await;
    let reconciled = || east.agent.as_ref().unwrap().runner.metrics.snapshot(Instant::now()).reconciles;
    let ips = |name: &str| east.import(name).unwrap().body["spec"].get("ips").cloned();
    let mut plans = Vec::new();
    for (networks, expected) in [(&["10.44.0.0/16"][..], true), (&["243.0.0.7/32"], false), (&[], true)] {
        let before = reconciled();
        register(&broker, "south", 4, [&[], networks, &[]]);
        settle().await;
        plans.push(reconciled() - before);
        assert_eq!((ips("s7").is_some(), ips("s8").is_some()), (expected, true), "{networks:?}");
    }
    assert_eq!(plans[0], 0);
    assert!(plans.iter().all(|plans| *plans <= 6), "{plans:?}");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_loses_everything_takes_no_address_with_it() {
    let (broker, east) = set();
    publish(&broker, "west", "web", "web", &addresses_of(&["10.2.0.9"]));
    settle().await;
    broker.0.set_silent(true);
    for object in broker.0.snapshot() {
        broker.0.remove(object.kind, &object.metadata.name);
    }
    broker.0.set_silent(false);
    broker.0.break_watches();
    settle().await;
    assert!(slices_of(&broker, BROKER, "west").is_empty());
    assert_eq!(copied(&east, "web"), ["10.2.0.9"], "copies stay for a while");
}
