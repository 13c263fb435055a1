//! Objects as Lighthouse's agents write them, beside ours for the same services; and agents of ours that take the place of
//! Lighthouse's over them, and give it back.
//!
//! `lighthouse.json` has what is in two clusters and on the broker when east exports `web`, with a virtual address, and `db`,
//! without, and west `web` too: names, labels, annotations, specifications, conditions and ports. It is written down from the
//! format of Lighthouse's agents, not recorded of running ones. `globalnet.json` was recorded of a cluster with Submariner 0.19's Globalnet: two services, their exports, and what
//! Globalnet made for them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use trieste_control::api::{Kind, Object, annotation, label};

use crate::api_store::ApiStore;
use crate::differences::differences;
use crate::lab::{BROKER, Cluster, addresses, aggregate, endpoint, service, settle, slice, slices_of};

const LIGHTHOUSE: &str = include_str!("../data/lighthouse.json");
const GLOBALNET: &str = include_str!("../data/globalnet.json");

/// A field in which ours differ, on purpose, and the objects in which it does, each by its store.
type Exception = (&'static str, &'static [&'static str]);

/// All exceptions, also where ours have taken the place of Lighthouse's.
const EXCEPTIONS: [Exception; 6] = [
    // The Multi-Cluster Services API wants reasons that are not empty.
    ("/status/conditions/0/reason", &EXPORTS),
    ("/status/conditions/1/reason", &EXPORTS),
    // It also wants an import to have its families and traffic policy.
    (
        "/spec/ipFamilies",
        &[
            "broker: ServiceImport submariner-k8s-broker/db-shop",
            "broker: ServiceImport submariner-k8s-broker/web-shop",
            "east: ServiceImport shop/db",
            "east: ServiceImport shop/web",
            "west: ServiceImport shop/db",
            "west: ServiceImport shop/web",
        ],
    ),
    (
        "/spec/internalTrafficPolicy",
        &[
            "broker: ServiceImport submariner-k8s-broker/web-shop",
            "east: ServiceImport shop/web",
            "west: ServiceImport shop/web",
        ],
    ),
    // Ours have `false` where Lighthouse's have nothing: imports of one cluster whose export asks for nothing ...
    (
        USES_IP,
        &[
            "east: ServiceImport submariner-operator/db-shop-east",
            "east: ServiceImport submariner-operator/web-shop-east",
            "west: ServiceImport submariner-operator/web-shop-west",
        ],
    ),
    // ... and those of headless services.
    (
        USES_IP,
        &[
            "broker: ServiceImport submariner-k8s-broker/db-shop",
            "east: ServiceImport shop/db",
            "west: ServiceImport shop/db",
        ],
    ),
];
const EXPORTS: [&str; 3] =
    ["east: ServiceExport shop/db", "east: ServiceExport shop/web", "west: ServiceExport shop/web"];
const USES_IP: &str = "/metadata/annotations/lighthouse.submariner.io/use-clusterset-ip";

/// Names of slices: Lighthouse's are random, ours are not, so that an agent that dies in the middle makes none twice.
const NAMES: Exception = (
    "/metadata/name",
    &[
        "broker: EndpointSlice submariner-k8s-broker/db of east",
        "broker: EndpointSlice submariner-k8s-broker/web of east",
        "broker: EndpointSlice submariner-k8s-broker/web of west",
        "east: EndpointSlice shop/db of east",
        "east: EndpointSlice shop/web of east",
        "east: EndpointSlice shop/web of west",
        "west: EndpointSlice shop/db of east",
        "west: EndpointSlice shop/web of east",
        "west: EndpointSlice shop/web of west",
    ],
);

/// Two clusters with services and no export.
fn clusters(broker: &ApiStore) -> [Cluster; 2] {
    let [east, west] = ["east", "west"].map(|id| Cluster::new(id, broker));
    east.service("web", "10.96.0.7");
    west.service("web", "10.97.0.7");
    east.put(service(
        "db",
        &json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"],
        "sessionAffinity": "None", "ports": [{"name": "sql", "protocol": "TCP", "port": 5432}]}),
    ));
    let pods = ["db-0", "db-1"].into_iter().zip(["10.1.0.1", "10.1.0.2"]).map(|(pod, address)| {
        json!({"addresses": [address], "conditions": {"ready": true, "serving": true, "terminating": false},
            "hostname": pod, "nodeName": "worker-1", "targetRef": {"kind": "Pod", "namespace": "shop", "name": pod}})
    });
    let mut source = slice("db", "db-abcde", "IPv4", &pods.collect());
    source["ports"] = json!([{"name": "sql", "protocol": "TCP", "port": 5432}]);
    east.put(source);
    [east, west]
}

/// What Lighthouse's agents leave in a store, by what each is of.
fn recorded(store: &str) -> BTreeMap<String, Value> {
    let all: BTreeMap<String, Vec<Value>> = serde_json::from_str(LIGHTHOUSE).unwrap();
    all[store].iter().map(|object| (describe(object), object.clone())).collect()
}

/// What is of service discovery in a store.
fn written(store: &ApiStore) -> BTreeMap<String, Value> {
    let is_of_discovery = |object: &Object| {
        matches!(object.kind, Kind::ServiceExport | Kind::ServiceImport)
            || object.metadata.labels.contains_key(label::SOURCE_CLUSTER)
    };
    let all = store.0.snapshot().into_iter().filter(is_of_discovery);
    let values = all.map(|object| object.to_value());
    values.map(|object| (describe(&object), object)).collect()
}

/// Describes an object, and a slice by what it is made of: Lighthouse's have random names.
fn describe(object: &Value) -> String {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labelled = |key: &str| text(&metadata["labels"][key]);
    let name = match object["kind"] == "EndpointSlice" {
        true => format!("{} of {}", labelled(label::SERVICE_NAME), labelled(label::SOURCE_CLUSTER)),
        false => text(&metadata["name"]),
    };
    format!("{} {}/{name}", text(&object["kind"]), text(&metadata["namespace"]))
}

/// Compares what is in all stores with what Lighthouse leaves there: nothing is missing or too much, and what differs is named.
fn compare(clusters: &[Cluster; 2], broker: &ApiStore, exceptions: &[Exception]) {
    let stores = [("east", &clusters[0].store), ("west", &clusters[1].store), ("broker", broker)];
    let mut different = BTreeSet::new();
    for (name, store) in stores {
        let (wanted, found) = (recorded(name), written(store));
        assert_eq!(wanted.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>(), "in {name}");
        for (object, wanted) in wanted {
            let paths = differences(&wanted, &found[&object]);
            different.extend(paths.into_iter().map(|path| (path, format!("{name}: {object}"))));
        }
    }
    let named = exceptions
        .iter()
        .flat_map(|(path, objects)| objects.iter().map(|object| ((*path).to_owned(), (*object).to_owned())));
    let named: BTreeSet<(String, String)> = named.collect();
    let unlike: Vec<_> = different.symmetric_difference(&named).collect();
    assert!(unlike.is_empty(), "differ and are not named, or are named and do not: {unlike:#?}");
}

#[tokio::test(start_paused = true)]
async fn objects_are_lighthouses_but_for_what_is_named() {
    let broker = ApiStore::default();
    let mut clusters = clusters(&broker);
    clusters.iter_mut().for_each(Cluster::run);
    clusters[0].export("web", 1_000);
    clusters[0].export("db", 1_000);
    settle().await;
    clusters[1].export("web", 2_000);
    settle().await;
    compare(&clusters, &broker, &[&EXCEPTIONS[..], &[NAMES]].concat());
}

/// Puts what Lighthouse's agents leave into all stores.
fn leave(clusters: &[Cluster; 2], broker: &ApiStore) {
    for (name, store) in [("east", &clusters[0].store), ("west", &clusters[1].store), ("broker", broker)] {
        for object in recorded(name).into_values() {
            store.0.put(Object::from_value(object).unwrap());
        }
        drop(store.writes());
    }
}

#[tokio::test(start_paused = true)]
async fn agents_in_lighthouses_place_make_and_remove_nothing_and_give_it_back() {
    let broker = ApiStore::default();
    let mut clusters = clusters(&broker);
    leave(&clusters, &broker);
    for round in 0..3 {
        clusters.iter_mut().for_each(Cluster::run);
        settle().await;
        for store in [&clusters[0].store, &clusters[1].store, &broker] {
            let writes = store.writes();
            let is_amended = |line: &String| line.starts_with("update") && !line.contains("EndpointSlice");
            assert!(writes.iter().all(is_amended), "in round {round}: {writes:#?}");
        }
        compare(&clusters, &broker, &EXCEPTIONS);
        // Lighthouse's agents are back: the conditions are theirs again, and all else is as they find it.
        clusters.iter_mut().for_each(|cluster| cluster.agent = None);
        settle().await;
        for (name, cluster) in ["east", "west"].into_iter().zip(&clusters) {
            let exports = recorded(name).into_values().filter(|object| object["kind"] == "ServiceExport");
            exports.for_each(|export| cluster.store.0.put(Object::from_value(export).unwrap()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_affinity_configuration_of_lighthouses_with_nothing_in_it_is_none_and_stays() {
    let broker = ApiStore::default();
    let mut clusters = clusters(&broker);
    leave(&clusters, &broker);
    broker.0.edit(Kind::ServiceImport, "web-shop", |import| {
        import.body["spec"]["sessionAffinityConfig"] = json!({});
    });
    clusters.iter_mut().for_each(Cluster::run);
    settle().await;
    // Lighthouse's agents compare it with their own.
    assert_eq!(aggregate(&broker, "web").unwrap().body["spec"]["sessionAffinityConfig"], json!({}));
    for cluster in &clusters {
        assert_eq!(cluster.said("web", "Conflict"), "none");
    }
}

#[tokio::test(start_paused = true)]
async fn what_globalnet_was_recorded_to_leave_is_exported_by_its_addresses() {
    let broker = ApiStore::default();
    let mut cluster = Cluster::new("cluster-a", &broker);
    cluster.config.has_globalnet = true;
    cluster.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}}));
    let all: Vec<Value> = serde_json::from_str(GLOBALNET).unwrap();
    all.into_iter().for_each(|object| cluster.put(object));
    let mut pod = endpoint("10.1.3.10", true);
    pod["targetRef"] = json!({"kind": "Pod", "namespace": "demo", "name": "web-0"});
    for (service, endpoint) in [("web", pod), ("web-cip", endpoint("10.1.3.10", true))] {
        let mut source = slice(service, &format!("{service}-abcde"), "IPv4", &json!([endpoint]));
        source["metadata"]["namespace"] = json!("demo");
        cluster.put(source);
    }
    cluster.run();
    settle().await;
    let mut found: Vec<_> = slices_of(&broker, BROKER, "cluster-a")
        .iter()
        .map(|slice| {
            let is_translated = slice.metadata.annotations[annotation::GLOBALNET_ENABLED].clone();
            (slice.metadata.labels[label::SERVICE_NAME].clone(), addresses(slice)[0].0.clone(), is_translated)
        })
        .collect();
    found.sort();
    let expected = [("web", "242.1.255.252", "true"), ("web-cip", "242.1.255.251", "false")];
    let expected =
        expected.map(|(name, address, is_translated)| (name.into(), address.into(), is_translated.into()));
    assert_eq!(found, expected);
    // The Service that Globalnet has made for itself is none that is exported.
    assert_eq!(broker.0.names(Kind::ServiceImport), ["web-cip-demo", "web-demo"]);
    for name in ["web", "web-cip"] {
        let export = cluster.store.find(Kind::ServiceExport, "demo", name).unwrap();
        assert!(export.body["status"].to_string().contains("\"Exported\""), "{export:?}");
    }
}
