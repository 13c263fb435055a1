//! What the Multi-Cluster Services API says of properties that exports of one service share: which are merged, which are the
//! oldest export's, and that every exporting cluster is told of a conflict.

use serde_json::{Value, json};
use trieste_control::api::Kind;

use crate::api_store::ApiStore;
use crate::lab::{BROKER, Cluster, aggregate, clusters, endpoint, ports, service, settle, slice, slices_of};

fn start() -> (ApiStore, [Cluster; 2]) {
    let broker = ApiStore::default();
    let clusters = ["east", "west"].map(|id| Cluster::start(id, &broker));
    (broker, clusters)
}

/// Exports `web` from both: east is the older.
fn both(east: &Cluster, west: &Cluster) {
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    west.service("web", "10.97.0.7");
    west.export("web", 2_000);
}

/// Puts a headless service with a pod of each of these families.
fn headless(cluster: &Cluster, families: &[(&str, &str)]) {
    let names: Vec<&str> = families.iter().map(|(family, _)| *family).collect();
    cluster.put(service("db", &json!({"clusterIP": "None", "ipFamilies": names, "ports": [{"port": 5432}]})));
    for (family, address) in families {
        let name = format!("db-{}", family.to_ascii_lowercase());
        cluster.put(slice("db", &name, family, &json!([endpoint(address, true)])));
    }
}

fn change(cluster: &Cluster, field: &str, value: Value) {
    cluster.edit(Kind::Service, "shop", "web", |service| service.body["spec"][field] = value);
}

fn spec(cluster: &Cluster, name: &str) -> Value {
    cluster.import(name).unwrap().body["spec"].clone()
}

#[tokio::test(start_paused = true)]
async fn traffic_policy_and_distribution_are_the_oldest_exports() {
    let (_broker, [east, west]) = start();
    both(&east, &west);
    settle().await;
    for cluster in [&east, &west] {
        assert_eq!(spec(cluster, "web")["internalTrafficPolicy"], "Cluster", "Kubernetes' default");
        assert_eq!(spec(cluster, "web").get("trafficDistribution"), None);
        assert_eq!(cluster.said("web", "Conflict"), "none");
    }
    change(&west, "internalTrafficPolicy", json!("Local"));
    change(&west, "trafficDistribution", json!("PreferClose"));
    settle().await;
    for cluster in [&east, &west] {
        assert_eq!(spec(cluster, "web")["internalTrafficPolicy"], "Cluster");
        let (status, reason, message) = cluster.condition("web", "Conflict").unwrap();
        assert_eq!(
            (status.as_str(), reason.as_str()),
            ("True", "InternalTrafficPolicyConflict,TrafficDistributionConflict")
        );
        assert!(message.contains("Using \"Cluster\" of the oldest export, in cluster \"east\""), "{message}");
    }
    change(&east, "internalTrafficPolicy", json!("Local"));
    // Another name of the same.
    change(&east, "trafficDistribution", json!("PreferSameZone"));
    settle().await;
    for cluster in [&east, &west] {
        assert_eq!(spec(cluster, "web")["internalTrafficPolicy"], "Local");
        assert_eq!(spec(cluster, "web")["trafficDistribution"], "PreferSameZone");
        assert_eq!(cluster.said("web", "Conflict"), "False/NoConflicts");
    }
    east.unexport("web");
    change(&west, "trafficDistribution", Value::Null);
    settle().await;
    assert_eq!(spec(&west, "web").get("trafficDistribution"), None, "the younger one decides now");
}

#[tokio::test(start_paused = true)]
async fn of_an_older_export_that_says_no_policy_nothing_is_said() {
    let (broker, [east, west]) = start();
    both(&east, &west);
    settle().await;
    // As an agent of upstream's leaves it, which knows neither.
    drop(east);
    broker.0.edit(Kind::ServiceImport, "web-shop", |import| {
        import.body["spec"].as_object_mut().unwrap().remove("internalTrafficPolicy");
    });
    change(&west, "internalTrafficPolicy", json!("Local"));
    change(&west, "trafficDistribution", json!("PreferClose"));
    settle().await;
    assert_eq!(west.said("web", "Conflict"), "none");
    assert_eq!(spec(&west, "web").get("internalTrafficPolicy"), None, "it is not the oldest");
}

#[tokio::test(start_paused = true)]
async fn labels_and_annotations_are_those_that_the_oldest_export_exports_and_no_others() {
    let (broker, [east, west]) = start();
    let export = |cluster: &Cluster, tier: &str| {
        cluster.edit(Kind::ServiceExport, "shop", "web", |export| {
            let spec = json!({"exportedLabels": {"tier": tier, "submariner-io/clusterID": "x"},
                "exportedAnnotations": {"note": tier}});
            export.body.insert("spec".to_owned(), spec);
            export.metadata.labels.insert("own".to_owned(), "x".to_owned());
            export.metadata.annotations.insert("own".to_owned(), "x".to_owned());
        });
    };
    both(&east, &west);
    export(&east, "front");
    settle().await;
    let found = |cluster: &Cluster| {
        let metadata = cluster.import("web").unwrap().metadata;
        let note = metadata.annotations.get("note").cloned().unwrap_or_default();
        assert!(
            !metadata.annotations.contains_key("own")
                && !metadata.annotations.contains_key("trieste.io/exported")
        );
        (metadata.labels.into_iter().collect::<Vec<_>>(), note)
    };
    let expected = |tier: &str| (vec![("tier".to_owned(), tier.to_owned())], tier.to_owned());
    for cluster in [&east, &west] {
        assert_eq!(found(cluster), expected("front"));
        let reason = "True/LabelsConflict,AnnotationsConflict";
        assert_eq!(cluster.said("web", "Conflict"), reason, "the younger one exports none");
    }
    export(&west, "front");
    settle().await;
    for cluster in [&east, &west] {
        assert_eq!(cluster.said("web", "Conflict"), "False/NoConflicts");
    }
    export(&west, "back");
    settle().await;
    let (_, _, message) = east.condition("web", "Conflict").unwrap();
    assert!(message.contains("exported labels") && message.contains("\"tier=front\""), "{message}");
    east.unexport("web");
    settle().await;
    assert_eq!((found(&west), found(&east)), (expected("back"), expected("back")));
    assert_eq!(west.said("web", "Conflict"), "False/NoConflicts");
    west.edit(Kind::ServiceExport, "shop", "web", |export| drop(export.body.remove("spec")));
    settle().await;
    assert_eq!(found(&east), (Vec::new(), String::new()));
    let left = aggregate(&broker, "web").unwrap().metadata;
    assert!(left.labels.is_empty() && !left.annotations.contains_key("trieste.io/exported"), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_headless_service_has_exported_labels_and_its_families_and_no_traffic_policy() {
    let (_broker, [east, west]) = start();
    headless(&east, &[("IPv4", "10.1.0.1"), ("IPv6", "fd01::1")]);
    east.export("db", 1_000);
    east.edit(Kind::ServiceExport, "shop", "db", |export| {
        export.body.insert("spec".to_owned(), json!({"exportedLabels": {"tier": "data"}}));
    });
    settle().await;
    let import = west.import("db").unwrap();
    assert_eq!(
        (import.metadata.labels["tier"].as_str(), &import.body["spec"]["type"]),
        ("data", &json!("Headless"))
    );
    assert_eq!(import.body["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    assert_eq!(
        (import.body["spec"].get("internalTrafficPolicy"), import.body["spec"].get("ips")),
        (None, None)
    );
}

#[tokio::test(start_paused = true)]
async fn families_are_the_union_and_every_cluster_is_told_where_they_differ() {
    let (_broker, [east, west]) = start();
    both(&east, &west);
    headless(&east, &[("IPv6", "fd01::1")]);
    headless(&west, &[("IPv6", "fd02::1")]);
    east.export("db", 1_000);
    west.export("db", 2_000);
    settle().await;
    for cluster in [&east, &west] {
        assert_eq!(spec(cluster, "web")["ipFamilies"], json!(["IPv4"]));
        assert_eq!(spec(cluster, "db")["ipFamilies"], json!(["IPv6"]));
        assert_eq!(
            (cluster.said("web", "Conflict"), cluster.said("db", "Conflict")),
            ("none".into(), "none".into())
        );
    }
    change(&west, "clusterIP", json!("fd97::7"));
    change(&west, "clusterIPs", json!(["fd97::7"]));
    headless(&west, &[("IPv6", "fd02::1"), ("IPv4", "10.2.0.1")]);
    settle().await;
    for cluster in [&east, &west] {
        assert_eq!(spec(cluster, "web")["ipFamilies"], json!(["IPv4", "IPv6"]));
        assert_eq!(spec(cluster, "db")["ipFamilies"], json!(["IPv6", "IPv4"]), "the oldest's first");
        for name in ["web", "db"] {
            let (_, reason, message) = cluster.condition(name, "Conflict").unwrap();
            assert_eq!(reason, "IPFamilyConflict");
            assert!(message.contains("east: IPv") && message.contains("west: IPv"), "{message}");
        }
    }
    west.unexport("web");
    west.unexport("db");
    settle().await;
    assert_eq!(spec(&west, "web")["ipFamilies"], json!(["IPv4"]));
    assert_eq!(spec(&west, "db")["ipFamilies"], json!(["IPv6"]));
    assert_eq!((east.said("web", "Conflict"), east.said("db", "Conflict")), (no_conflict(), no_conflict()));
}

fn no_conflict() -> String {
    "False/NoConflicts".to_owned()
}

#[tokio::test(start_paused = true)]
async fn of_ports_with_one_number_under_two_names_the_oldest_exports_is_the_one() {
    let (broker, [east, west]) = start();
    both(&east, &west);
    let port =
        |name: &str, protocol: &str, number: u16| json!({"name": name, "protocol": protocol, "port": number});
    change(
        &west,
        "ports",
        json!([port("web", "TCP", 80), port("web-udp", "UDP", 80), port("admin", "TCP", 81)]),
    );
    settle().await;
    let expected = [("http", 80), ("web-udp", 80), ("admin", 81)].map(|(name, port)| (name.to_owned(), port));
    for cluster in [&east, &west] {
        assert_eq!(ports(&spec(cluster, "web")["ports"]), expected);
        assert_eq!(cluster.said("web", "Conflict"), "True/PortConflict,ConflictingPorts");
    }
    drop(broker.writes());
    settle().await;
    assert_eq!(broker.writes(), Vec::<String>::new(), "nobody asks for more");
    east.unexport("web");
    settle().await;
    assert_eq!(ports(&spec(&west, "web")["ports"])[0].0, "web");
}

#[tokio::test(start_paused = true)]
async fn a_broker_whose_definition_knows_none_of_it_is_written_to_once_and_nobody_sees_a_conflict() {
    let broker = ApiStore(Default::default(), Some("internalTrafficPolicy"), None, None);
    let [east, west] = ["east", "west"].map(|id| Cluster::start(id, &broker));
    both(&east, &west);
    change(&west, "internalTrafficPolicy", json!("Local"));
    settle().await;
    assert_eq!(clusters(&aggregate(&broker, "web").unwrap()).len(), 2);
    for cluster in [&east, &west] {
        assert_eq!(
            (cluster.said("web", "Ready"), cluster.said("web", "Conflict")),
            ("True/Exported".into(), "none".into())
        );
    }
    drop(broker.writes());
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert_eq!(broker.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn slices_and_imports_are_in_every_cluster_with_the_namespace_and_say_whose_they_are() {
    let (broker, [east, west]) = start();
    both(&east, &west);
    settle().await;
    for cluster in [&east, &west] {
        assert_eq!(clusters(&cluster.import("web").unwrap()).len(), 2);
        for id in ["east", "west"] {
            let [slice] = &cluster.slices_of(id)[..] else { panic!("one slice of each cluster") };
            let labels = &slice.metadata.labels;
            assert_eq!(labels["multicluster.kubernetes.io/service-name"], "web");
            assert_eq!(labels["multicluster.kubernetes.io/source-cluster"], id);
            assert_eq!(labels["endpointslice.kubernetes.io/managed-by"], "lighthouse-agent.submariner.io");
        }
    }
    assert_eq!(slices_of(&broker, BROKER, "east").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn time_outs_of_affinity_that_differ_are_told_until_they_are_the_same() {
    let broker = ApiStore::default();
    let [east, west] = ["east", "west"].map(|id| Cluster::start(id, &broker));
    let set = |cluster: &Cluster, seconds: u32| {
        cluster.edit(Kind::Service, "shop", "web", |service| {
            service.body["spec"]["sessionAffinity"] = json!("ClientIP");
            service.body["spec"]["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
        });
    };
    for (cluster, ip, since, seconds) in [(&east, "10.96.0.7", 1_000, 10), (&west, "10.97.0.7", 2_000, 20)] {
        cluster.service("web", ip);
        set(cluster, seconds);
        cluster.export("web", since);
        settle().await;
    }
    let used =
        || aggregate(&broker, "web").unwrap().body["spec"]["sessionAffinityConfig"]["clientIP"].clone();
    assert_eq!(used(), json!({"timeoutSeconds": 10}));
    for cluster in [&east, &west] {
        let said = cluster.said("web", "Conflict");
        assert_eq!(said, "True/SessionAffinityConfigConflict,ConflictingSessionAffinityConfig");
    }
    set(&west, 10);
    settle().await;
    for cluster in [&east, &west] {
        assert_eq!(cluster.said("web", "Conflict"), "False/NoConflicts");
    }
    // The oldest changes its mind: that is what counts, and the other one disagrees.
    set(&east, 30);
    settle().await;
    assert_eq!(
        (used(), west.said("web", "Conflict").starts_with("True/")),
        (json!({"timeoutSeconds": 30}), true)
    );
}
