//! Exports of a cluster whose services others reach by global addresses.

use serde_json::{Value, json};
use trieste_control::api::{Kind, annotation};

use crate::api_store::ApiStore;
use crate::lab::{BROKER, Cluster, OPERATOR, addresses, endpoint, service, settle, slice, slices_of};

fn start() -> (ApiStore, Cluster) {
    let broker = ApiStore::default();
    let mut east = Cluster::new("east", &broker);
    east.config.has_globalnet = true;
    east.run();
    (broker, east)
}

fn ingress(name: &str, spec: &Value, annotations: &Value, status: &Value) -> Value {
    json!({"apiVersion": "submariner.io/v1", "kind": "GlobalIngressIP", "spec": spec, "status": status,
        "metadata": {"name": name, "namespace": "shop", "annotations": annotations}})
}

fn allocated(ip: &str) -> Value {
    json!({"allocatedIP": ip, "conditions": []})
}

#[tokio::test(start_paused = true)]
async fn a_service_is_exported_by_its_global_address_once_it_has_one() {
    let (broker, east) = start();
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    settle().await;
    let (status, reason, message) = east.condition("web", "Valid").unwrap();
    assert_eq!(
        (status.as_str(), reason.as_str(), message.as_str()),
        ("False", "ServiceGlobalIPUnavailable", "Service doesn't have a global IP yet")
    );
    assert_eq!(broker.0.snapshot(), Vec::new());

    let spec = json!({"target": "ClusterIPService", "serviceRef": {"name": "web"}});
    let put = |status: Value| east.put(ingress("web", &spec, &json!({}), &status));
    put(json!({"allocatedIP": ""}));
    settle().await;
    assert_eq!(east.said("web", "Valid"), "False/ServiceGlobalIPUnavailable", "it is pending");
    put(
        json!({"allocatedIP": "", "conditions": [{"type": "Allocated", "status": "False", "reason": "IPPoolAllocationFailed",
        "message": "the pool is empty", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
    );
    settle().await;
    let (_, reason, message) = east.condition("web", "Valid").unwrap();
    assert_eq!((reason.as_str(), message.as_str()), ("IPPoolAllocationFailed", "the pool is empty"));

    put(allocated("242.1.0.9"));
    settle().await;
    assert_eq!(addresses(&slices_of(&broker, BROKER, "east")[0]), [("242.1.0.9".to_owned(), true)]);
    assert_eq!(
        east.store.find(Kind::ServiceImport, OPERATOR, "web-shop-east").unwrap().body["spec"]["ips"],
        json!(["242.1.0.9"])
    );
    assert_eq!(east.said("web", "Ready"), "True/Exported");
    put(allocated("242.1.0.10"));
    settle().await;
    assert_eq!(addresses(&slices_of(&broker, BROKER, "east")[0])[0].0, "242.1.0.10");
    east.store.0.remove(Kind::GlobalIngressIp, "web");
    settle().await;
    assert_eq!(broker.0.snapshot(), Vec::new(), "nobody reaches it any more");
}

#[tokio::test(start_paused = true)]
async fn of_a_headless_service_those_are_exported_that_have_a_global_address() {
    let (broker, east) = start();
    east.put(service("db", &json!({"clusterIP": "None", "ports": [{"name": "sql", "port": 5432}]})));
    let pod = |number: u8| {
        json!({"addresses": [format!("10.1.0.{number}")], "hostname": format!("db-{number}"),
        "conditions": {"ready": true}, "targetRef": {"kind": "Pod", "name": format!("db-{number}")}})
    };
    east.put(slice("db", "db-one", "IPv4", &json!([pod(0), pod(1), endpoint("192.0.2.7", true)])));
    east.put(slice("db", "db-six", "IPv6", &json!([endpoint("fd00::1", true)])));
    east.export("db", 1_000);
    settle().await;
    let four = || {
        let slices = slices_of(&broker, BROKER, "east");
        slices.into_iter().find(|slice| slice.body["addressType"] == "IPv4").unwrap()
    };
    assert_eq!(addresses(&four()), []);
    let of_pod = |number: u8| json!({"target": "HeadlessServicePod", "serviceRef": {"name": "db"}, "podRef": {"name": format!("db-{number}")}});
    east.put(ingress(
        "pod-db-1",
        &of_pod(1),
        &json!({annotation::HEADLESS_POD_IP: "10.1.0.1"}),
        &allocated("242.1.0.1"),
    ));
    let of_endpoint = json!({"target": "HeadlessServiceEndpoints", "serviceRef": {"name": "db"}});
    east.put(ingress(
        "ep-db",
        &of_endpoint,
        &json!({annotation::HEADLESS_ENDPOINTS_IP: "192.0.2.7"}),
        &allocated("242.1.0.2"),
    ));
    settle().await;
    let found = four();
    assert_eq!(addresses(&found), [("242.1.0.1".to_owned(), true), ("242.1.0.2".to_owned(), true)]);
    assert_eq!(
        (
            found.body["endpoints"][0]["hostname"].as_str(),
            found.metadata.annotations[annotation::GLOBALNET_ENABLED].as_str()
        ),
        (Some("db-1"), "true")
    );
    let six = slices_of(&broker, BROKER, "east")
        .into_iter()
        .find(|slice| slice.body["addressType"] == "IPv6")
        .unwrap();
    assert_eq!(addresses(&six)[0].0, "fd00::1", "this family is not translated");
    east.put(ingress("pod-db-0", &of_pod(0), &json!({}), &allocated("242.1.0.3")));
    settle().await;
    assert_eq!(addresses(&four()).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn of_two_families_one_is_translated() {
    let (broker, east) = start();
    east.put(service("web", &json!({"clusterIP": "fd00:96::7", "clusterIPs": ["fd00:96::7", "10.96.0.7"], "ports": [{"port": 80}]})));
    east.put(service(
        "six",
        &json!({"clusterIP": "fd00:96::8", "clusterIPs": ["fd00:96::8"], "ports": [{"port": 80}]}),
    ));
    let spec = json!({"target": "ClusterIPService", "serviceRef": {"name": "web"}});
    east.put(ingress("web", &spec, &json!({}), &allocated("242.1.0.9")));
    east.export("web", 1_000);
    east.export("six", 1_000);
    settle().await;
    let mut found: Vec<_> =
        slices_of(&broker, BROKER, "east").iter().map(|slice| addresses(slice)[0].0.clone()).collect();
    found.sort();
    assert_eq!(found, ["242.1.0.9", "fd00:96::7", "fd00:96::8"]);
}

#[tokio::test(start_paused = true)]
async fn services_of_types_that_globalnet_gives_no_address_are_refused_with_their_type() {
    let (broker, east) = start();
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    east.edit(Kind::Service, "shop", "web", |service| service.body["spec"]["type"] = json!("NodePort"));
    settle().await;
    let (_, reason, message) = east.condition("web", "Valid").unwrap();
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("InvalidServiceType", "Service of type NodePort not supported with Globalnet")
    );
    assert_eq!(broker.0.snapshot(), Vec::new());
    // One that has an address all the same is reached by it.
    let spec = json!({"target": "ClusterIPService", "serviceRef": {"name": "web"}});
    east.put(ingress("web", &spec, &json!({}), &allocated("242.1.0.9")));
    settle().await;
    assert_eq!(addresses(&slices_of(&broker, BROKER, "east")[0])[0].0, "242.1.0.9");
}

#[tokio::test(start_paused = true)]
async fn families_are_those_by_which_others_reach_a_service() {
    let (_broker, east) = start();
    east.put(service(
        "web",
        &json!({"clusterIP": "fd96::7", "clusterIPs": ["fd96::7", "10.96.0.7"], "ipFamilies": ["IPv6", "IPv4"],
        "ports": [{"port": 80}]}),
    ));
    let spec = json!({"target": "ClusterIPService", "serviceRef": {"name": "web"}});
    east.put(ingress("web", &spec, &json!({}), &allocated("242.1.0.9")));
    east.put(service(
        "six",
        &json!({"clusterIP": "fd96::8", "clusterIPs": ["fd96::8"], "ports": [{"port": 80}]}),
    ));
    east.put(service("db", &json!({"clusterIP": "None", "ipFamilies": ["IPv4"], "ports": [{"port": 80}]})));
    for name in ["web", "six", "db"] {
        east.export(name, 1_000);
    }
    settle().await;
    let families = |name: &str| east.import(name).unwrap().body["spec"]["ipFamilies"].clone();
    assert_eq!(
        (families("web"), families("six"), families("db")),
        (json!(["IPv4", "IPv6"]), json!(["IPv6"]), json!(["IPv4"]))
    );
}
