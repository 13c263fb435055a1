//! One cluster and the broker: what an export makes of a service, and what is left when it goes.

use serde_json::{Value, json};
use trieste_control::api::{Kind, annotation, label};

use crate::api_store::ApiStore;
use crate::lab::{
    BROKER, Cluster, OPERATOR, addresses, aggregate, clusters, endpoint, ports, service, settle, since,
    slice, slices_of,
};

fn start() -> (ApiStore, Cluster) {
    let broker = ApiStore::default();
    let east = Cluster::start("east", &broker);
    (broker, east)
}

#[tokio::test(start_paused = true)]
async fn an_export_makes_an_import_and_a_slice_here_and_on_the_broker() {
    let (broker, east) = start();
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    settle().await;

    let own = east.store.find(Kind::ServiceImport, OPERATOR, "web-shop-east").unwrap();
    let labels =
        [(label::SERVICE_NAME, "web"), (label::SOURCE_NAMESPACE, "shop"), (label::SOURCE_CLUSTER, "east")];
    assert_eq!(own.metadata.labels, labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    assert_eq!(own.metadata.annotations[annotation::PUBLISH_NOT_READY], "false");
    assert_eq!(
        (own.body["spec"]["ips"].clone(), own.body["spec"]["type"].clone()),
        (json!(["10.96.0.7"]), json!("ClusterSetIP"))
    );
    assert_eq!(clusters(&own), ["east"]);

    let [here] = &east.slices_of("east")[..] else { panic!("one slice") };
    let [there] = &slices_of(&broker, BROKER, "east")[..] else { panic!("one slice") };
    for (slice, extra) in [(here, 0), (there, 2)] {
        assert_eq!(slice.metadata.name, here.metadata.name, "it keeps its name");
        assert_eq!(slice.metadata.generate_name.as_deref(), Some("web-"));
        let labels = &slice.metadata.labels;
        assert_eq!(
            (labels[label::MANAGED_BY].as_str(), labels[label::IS_HEADLESS].as_str(), labels["app"].as_str()),
            (label::LIGHTHOUSE_AGENT, "false", "web")
        );
        assert_eq!(labels.len(), 6 + extra);
        assert_eq!(addresses(slice), [("10.96.0.7".to_owned(), true)]);
        assert_eq!(ports(&slice.body["ports"]), [("http".to_owned(), 80)], "the service's, not the pods'");
    }
    assert_eq!(there.metadata.labels[label::CLUSTER_ID], "east");
    assert_eq!(there.metadata.labels[label::ORIGINATING_NAMESPACE], "shop");

    let import = aggregate(&broker, "web").unwrap();
    assert!(import.metadata.labels.is_empty());
    assert_eq!(import.metadata.annotations[label::SERVICE_NAME], "web");
    assert_eq!(import.metadata.annotations[label::SOURCE_NAMESPACE], "shop");
    assert_eq!(since(&import, "east"), Some("1000000000000"));
    assert_eq!(clusters(&import), ["east"]);
    assert_eq!(ports(&import.body["spec"]["ports"]), [("http".to_owned(), 80)]);

    let copy = east.import("web").unwrap();
    assert!(!copy.metadata.annotations.contains_key(label::SERVICE_NAME) && since(&copy, "east").is_some());
    assert_eq!(
        (copy.body["spec"].clone(), clusters(&copy)),
        (import.body["spec"].clone(), vec!["east".to_owned()])
    );
    assert_eq!(
        (east.said("web", "Valid"), east.said("web", "Ready")),
        ("True/Valid".to_owned(), "True/Exported".to_owned())
    );
    assert_eq!(east.said("web", "Conflict"), "none");
}

#[tokio::test(start_paused = true)]
async fn an_unexport_leaves_nothing_and_an_export_comes_back() {
    let (broker, east) = start();
    for round in 0..3 {
        let before = (east.store.0.names(Kind::EndpointSlice).len(), broker.0.snapshot().len());
        east.service("web", "10.96.0.7");
        east.export("web", 1_000 + round);
        settle().await;
        assert_eq!(clusters(&aggregate(&broker, "web").unwrap()), ["east"]);
        east.unexport("web");
        settle().await;
        assert_eq!(broker.0.snapshot(), Vec::new());
        assert_eq!(east.store.all(Kind::ServiceImport, ""), Vec::new());
        assert_eq!(east.slices_of("east"), Vec::new());
        assert!(round == 0 || before.0 == east.store.0.names(Kind::EndpointSlice).len());
    }
}

#[tokio::test(start_paused = true)]
async fn an_export_before_its_service_waits_for_it_and_one_after_it_is_told() {
    let (broker, east) = start();
    east.export("web", 1_000);
    settle().await;
    let (status, reason, message) = east.condition("web", "Valid").unwrap();
    assert_eq!(
        (status.as_str(), reason.as_str(), message.as_str()),
        ("False", "NoService", "Service to be exported doesn't exist")
    );
    assert_eq!((east.said("web", "Ready"), broker.0.snapshot().len()), ("none".to_owned(), 0));
    east.service("web", "10.96.0.7");
    settle().await;
    assert_eq!(east.said("web", "Valid"), "True/Valid");
    assert_eq!(east.said("web", "Ready"), "True/Exported");
    east.store.0.remove(Kind::Service, "web");
    settle().await;
    assert_eq!(
        (east.said("web", "Valid"), east.said("web", "Ready")),
        ("False/NoService".to_owned(), "False/NoServiceImport".to_owned())
    );
    assert_eq!(broker.0.snapshot(), Vec::new());
}

#[tokio::test(start_paused = true)]
async fn a_service_with_an_external_name_is_refused_until_it_is_another() {
    let (broker, east) = start();
    east.export("web", 1_000);
    for kind in ["ExternalName", "Unheard"] {
        east.service("web", "10.96.0.7");
        settle().await;
        assert_eq!(east.said("web", "Ready"), "True/Exported");
        east.edit(Kind::Service, "shop", "web", |service| service.body["spec"]["type"] = json!(kind));
        settle().await;
        let (status, reason, message) = east.condition("web", "Valid").unwrap();
        assert_eq!(
            (status.as_str(), reason.as_str(), message),
            ("False", "InvalidServiceType", format!("Service of type {kind} not supported"))
        );
        assert_eq!(broker.0.snapshot(), Vec::new());
        assert!(east.slices_of("east").is_empty() && east.import("web").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn services_with_node_ports_or_a_load_balancer_are_exported_by_their_cluster_ips() {
    let (broker, east) = start();
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    for kind in ["NodePort", "LoadBalancer"] {
        east.edit(Kind::Service, "shop", "web", |service| service.body["spec"]["type"] = json!(kind));
        settle().await;
        assert_eq!(
            (east.said("web", "Valid"), east.said("web", "Ready")),
            said("True/Valid", "True/Exported")
        );
        let import = east.import("web").unwrap();
        assert_eq!(import.body["spec"]["type"], "ClusterSetIP");
        assert_eq!(addresses(&slices_of(&broker, BROKER, "east")[0])[0].0, "10.96.0.7");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slice_is_ready_while_any_back_end_is() {
    let (broker, east) = start();
    east.service("web", "10.96.0.7");
    east.store.0.remove(Kind::EndpointSlice, "web-abcde");
    east.export("web", 1_000);
    settle().await;
    let ready = || addresses(&slices_of(&broker, BROKER, "east")[0])[0].1;
    assert!(!ready(), "it exists before any pod does");
    for (endpoints, expected) in [
        (json!([endpoint("10.1.0.1", false), endpoint("10.1.0.2", true)]), true),
        (json!([endpoint("10.1.0.1", false)]), false),
        (json!([{"addresses": ["10.1.0.1"]}]), true),
        (Value::Null, false),
    ] {
        east.put(slice("web", "web-abcde", "IPv4", &endpoints));
        settle().await;
        assert_eq!(ready(), expected);
        assert_eq!(addresses(&east.slices_of("east")[0])[0].1, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn changes_of_ports_labels_and_affinity_follow() {
    let (broker, east) = start();
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    settle().await;
    east.edit(Kind::Service, "shop", "web", |service| {
        service.metadata.labels.insert("tier".to_owned(), "front".to_owned());
        service.metadata.labels.insert("kubernetes.io/service-name".to_owned(), "other".to_owned());
        service.body["spec"]["sessionAffinity"] = json!("ClientIP");
        service.body["spec"]["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10}});
        service.body["spec"]["ports"] = json!([{"name": "dns", "protocol": "UDP", "port": 53},
            {"name": "https", "protocol": "TCP", "port": 443, "appProtocol": "h2"}]);
    });
    settle().await;
    let there = &slices_of(&broker, BROKER, "east")[0];
    assert_eq!(there.metadata.labels["tier"], "front");
    assert!(
        !there.metadata.labels.contains_key("kubernetes.io/service-name"),
        "proxies would take it for a local one"
    );
    let expected = [("dns".to_owned(), 53), ("https".to_owned(), 443)];
    let spec = &aggregate(&broker, "web").unwrap().body["spec"];
    assert_eq!((ports(&there.body["ports"]), ports(&spec["ports"])), (expected.to_vec(), expected.to_vec()));
    assert_eq!(spec["ports"][1]["appProtocol"], "h2");
    assert_eq!(
        (spec["sessionAffinity"].clone(), spec["sessionAffinityConfig"].clone()),
        (json!("ClientIP"), json!({"clientIP": {"timeoutSeconds": 10}}))
    );
    assert_eq!(east.import("web").unwrap().body["spec"], *spec);
    east.edit(Kind::Service, "shop", "web", |service| {
        service.metadata.labels.remove("tier");
        service.body["spec"].as_object_mut().unwrap().remove("sessionAffinityConfig");
    });
    settle().await;
    assert!(!slices_of(&broker, BROKER, "east")[0].metadata.labels.contains_key("tier"));
    assert!(aggregate(&broker, "web").unwrap().body["spec"].get("sessionAffinityConfig").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_headless_service_has_a_slice_for_each_of_its_own_with_host_names() {
    let (broker, east) = start();
    east.put(service(
        "db",
        &json!({"clusterIP": "None", "publishNotReadyAddresses": true,
        "ports": [{"name": "sql", "protocol": "TCP", "port": 5432}]}),
    ));
    let pod = |number: u8, is_ready: bool| {
        json!({"addresses": [format!("10.1.0.{number}")], "hostname": format!("db-{number}"),
        "conditions": {"ready": is_ready}, "targetRef": {"kind": "Pod", "name": format!("db-{number}")}})
    };
    east.put(slice("db", "db-one", "IPv4", &json!([pod(0, true), pod(1, false)])));
    east.put(slice(
        "db",
        "db-two",
        "IPv6",
        &json!([{"addresses": ["fd00::1"], "conditions": {"ready": true}}]),
    ));
    east.export("db", 1_000);
    settle().await;
    let slices = slices_of(&broker, BROKER, "east");
    let sources: Vec<_> =
        slices.iter().map(|slice| slice.metadata.labels[label::SOURCE_NAME].clone()).collect();
    assert_eq!(sources.len(), 2);
    assert!(sources.contains(&"db-one".to_owned()) && sources.contains(&"db-two".to_owned()));
    let one = slices.iter().find(|slice| slice.metadata.labels[label::SOURCE_NAME] == "db-one").unwrap();
    assert_eq!(one.body["endpoints"], json!([pod(0, true), pod(1, false)]));
    assert_eq!(ports(&one.body["ports"]), [("http".to_owned(), 8080)], "the pods'");
    assert_eq!(one.metadata.annotations[annotation::PUBLISH_NOT_READY], "true");
    assert_eq!(one.metadata.labels[label::IS_HEADLESS], "true");
    let import = aggregate(&broker, "db").unwrap();
    assert_eq!(
        (import.body["spec"]["type"].clone(), import.body["spec"]["ports"].clone()),
        (json!("Headless"), json!([]))
    );

    // Scaled up, then a slice goes.
    let name = one.metadata.name.clone();
    east.put(slice("db", "db-one", "IPv4", &json!([pod(0, true), pod(1, true), pod(2, true)])));
    east.store.0.remove(Kind::EndpointSlice, "db-two");
    settle().await;
    let [one] = &slices_of(&broker, BROKER, "east")[..] else { panic!("one slice is left") };
    assert_eq!((one.metadata.name.clone(), addresses(one).len()), (name, 3));
    east.store.0.remove(Kind::EndpointSlice, "db-one");
    settle().await;
    assert!(
        slices_of(&broker, BROKER, "east").is_empty()
            && clusters(&aggregate(&broker, "db").unwrap()) == ["east"]
    );
    assert_eq!(east.said("db", "Ready"), "True/Exported");
}

#[tokio::test(start_paused = true)]
async fn each_family_of_a_service_has_its_slice() {
    let (broker, east) = start();
    east.put(service(
        "web",
        &json!({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd00:96::7"],
        "ports": [{"port": 80}]}),
    ));
    east.put(slice("web", "web-four", "IPv4", &json!([endpoint("10.1.0.1", true)])));
    east.put(slice("web", "web-six", "IPv6", &json!([endpoint("fd00::1", false)])));
    east.put(service(
        "six",
        &json!({"clusterIP": "fd00:96::8", "clusterIPs": ["fd00:96::8"], "ports": [{"port": 80}]}),
    ));
    for name in ["web", "six"] {
        east.export(name, 1_000);
    }
    settle().await;
    let mut found: Vec<_> = slices_of(&broker, BROKER, "east").iter().flat_map(addresses).collect();
    found.sort();
    let expected = [("10.96.0.7", true), ("fd00:96::7", false), ("fd00:96::8", false)];
    assert_eq!(found, expected.map(|(address, is_ready)| (address.to_owned(), is_ready)));
    let import = aggregate(&broker, "web").unwrap();
    assert_eq!(ports(&import.body["spec"]["ports"]), [(String::new(), 80)], "a port without a name is one");
}

#[tokio::test(start_paused = true)]
async fn services_of_one_name_in_two_namespaces_are_two() {
    let (broker, east) = start();
    east.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}));
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    for kind in [Kind::Service, Kind::ServiceExport] {
        let mut object = east.store.find(kind, "shop", "web").unwrap();
        object.metadata.namespace = "other".to_owned();
        if kind == Kind::Service {
            object.body["spec"]["clusterIP"] = json!("10.96.0.8");
            object.body["spec"]["clusterIPs"] = json!(["10.96.0.8"]);
        }
        east.store.0.put(object);
    }
    settle().await;
    assert_eq!(addresses(&slices_of(&east.store, "shop", "east")[0])[0].0, "10.96.0.7");
    assert_eq!(addresses(&slices_of(&east.store, "other", "east")[0])[0].0, "10.96.0.8");
    assert_eq!(broker.0.names(Kind::ServiceImport), ["web-other", "web-shop"]);
    east.unexport("web");
    settle().await;
    assert_eq!((broker.0.names(Kind::ServiceImport).len(), slices_of(&broker, BROKER, "east").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn two_services_whose_imports_would_have_one_name_are_told_apart() {
    let (broker, east) = start();
    east.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "b-shop"}}));
    east.service("a-b", "10.96.0.7");
    east.export("a-b", 1_000);
    settle().await;
    for kind in [Kind::Service, Kind::ServiceExport] {
        let mut object = east.store.find(kind, "shop", "a-b").unwrap();
        (object.metadata.namespace, object.metadata.name) = ("b-shop".to_owned(), "a".to_owned());
        object.body.remove("status");
        east.store.0.put(object);
    }
    settle().await;
    assert_eq!(aggregate(&broker, "a-b").unwrap().metadata.annotations[label::SERVICE_NAME], "a-b");
    let second = east.store.find(Kind::ServiceExport, "b-shop", "a").unwrap();
    let message = second.body["status"]["conditions"].to_string();
    assert!(message.contains("the import of service shop/a-b has its name"), "{message}");
    assert_eq!(slices_of(&broker, BROKER, "east").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn conditions_of_former_releases_are_replaced_and_those_of_others_stay() {
    let (_broker, east) = start();
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    east.edit(Kind::ServiceExport, "shop", "web", |export| {
        export.body.insert("status".to_owned(), json!({"conditions": [
            {"type": "Synced", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z", "reason": "", "message": ""},
            {"type": "Valid", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z", "reason": "", "message": ""},
            {"type": "Theirs", "status": "True"}]}));
    });
    settle().await;
    let export = east.store.find(Kind::ServiceExport, "shop", "web").unwrap();
    let conditions = export.body["status"]["conditions"].as_array().unwrap().clone();
    let kinds: Vec<_> = conditions.iter().map(|condition| condition["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Valid", "Theirs", "Ready"]);
    assert_eq!(
        (conditions[0]["lastTransitionTime"].clone(), conditions[0]["reason"].clone()),
        (json!("2020-01-01T00:00:00Z"), json!("Valid")),
        "it was so before"
    );
}

#[tokio::test(start_paused = true)]
async fn an_export_that_asks_for_a_clusterset_ip_is_told_that_it_has_none() {
    let (_broker, east) = start();
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    east.edit(Kind::ServiceExport, "shop", "web", |export| {
        export.metadata.annotations.insert(annotation::USE_CLUSTERSET_IP.to_owned(), "true".to_owned());
    });
    settle().await;
    assert_eq!(east.said("web", "Ready"), "True/ExportedWithoutClustersetIP");
}

#[tokio::test(start_paused = true)]
async fn back_ends_that_come_and_go_all_the_time_make_no_storm_and_a_rollout_does_not_wait() {
    let (broker, east) = start();
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    settle().await;
    drop(broker.writes());
    for change in 0..600 {
        east.put(slice("web", "web-abcde", "IPv4", &json!([endpoint("10.1.0.1", change % 2 == 0)])));
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let writes = broker.writes().len();
    assert!((60..100).contains(&writes), "{writes} writes in a minute of 600 changes");
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    assert!(!addresses(&slices_of(&broker, BROKER, "east")[0])[0].1, "the last change is there");
    for change in 0..8 {
        east.put(slice("web", "web-abcde", "IPv4", &json!([endpoint("10.1.0.1", change % 2 == 0)])));
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert_eq!(addresses(&slices_of(&broker, BROKER, "east")[0])[0].1, change % 2 == 0);
    }
}

fn said(valid: &str, ready: &str) -> (String, String) {
    (valid.to_owned(), ready.to_owned())
}
