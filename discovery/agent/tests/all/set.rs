//! Several clusters of one set: what each imports, where they disagree, and what happens when one goes.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use trieste_control::api::{Kind, ObjectMeta, label};
use trieste_discovery_agent::EMPTY_GRACE;

use crate::api_store::ApiStore;
use crate::lab::{
    BROKER, Cluster, OPERATOR, addresses, aggregate, clusters, ports, settle, since, slices_of,
};

/// The reasons of exports that differ in affinity and its configuration.
const AFFINITY: &str = "SessionAffinityConflict,ConflictingSessionAffinity,\
                        SessionAffinityConfigConflict,ConflictingSessionAffinityConfig";

fn start<const COUNT: usize>(ids: [&str; COUNT]) -> (ApiStore, [Cluster; COUNT]) {
    let broker = ApiStore::default();
    let clusters = ids.map(|id| Cluster::start(id, &broker));
    (broker, clusters)
}

fn exported(cluster: &Cluster, ip: &str, since: i64) {
    cluster.service("web", ip);
    cluster.export("web", since);
}

#[tokio::test(start_paused = true)]
async fn a_service_of_two_clusters_is_one_import_everywhere_and_stays_while_one_has_it() {
    let (broker, [east, west, north]) = start(["east", "west", "north"]);
    exported(&east, "10.96.0.7", 1_000);
    exported(&west, "10.97.0.7", 2_000);
    settle().await;
    for cluster in [&east, &west, &north] {
        let mut found = clusters(&cluster.import("web").unwrap());
        found.sort();
        assert_eq!(found, ["east", "west"]);
        assert_eq!(addresses(&cluster.slices_of("east")[0])[0].0, "10.96.0.7");
        assert_eq!(addresses(&cluster.slices_of("west")[0])[0].0, "10.97.0.7");
    }
    let copy = &north.slices_of("west")[0];
    assert_eq!(copy.metadata.labels, slices_of(&broker, BROKER, "west")[0].metadata.labels);
    east.unexport("web");
    settle().await;
    let import = north.import("web").unwrap();
    assert_eq!(
        (clusters(&import), since(&import, "east"), since(&import, "west")),
        (vec!["west".to_owned()], None, Some("2000000000000"))
    );
    assert_eq!(
        (north.slices_of("east").len(), north.slices_of("west").len(), east.slices_of("east").len()),
        (0, 1, 0)
    );
    west.unexport("web");
    settle().await;
    assert_eq!(broker.0.snapshot(), Vec::new());
    for cluster in [&east, &west, &north] {
        assert!(cluster.store.all(Kind::ServiceImport, "").is_empty());
        assert!(cluster.slices_of("east").is_empty() && cluster.slices_of("west").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_comes_late_gets_what_is_imported_and_one_that_goes_is_not_written_to() {
    let (_broker, [east, west]) = start(["east", "west"]);
    west.store.0.remove(Kind::Namespace, "shop");
    exported(&east, "10.96.0.7", 1_000);
    settle().await;
    assert!(west.import("web").is_none() && west.slices_of("east").is_empty());
    west.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
    settle().await;
    assert!(west.import("web").is_some() && west.slices_of("east").len() == 1);
    west.store.0.remove(Kind::Namespace, "shop");
    settle().await;
    assert!(west.import("web").is_none() && west.slices_of("east").is_empty());
}

#[tokio::test(start_paused = true)]
async fn slices_and_imports_that_are_not_of_service_discovery_are_left_alone() {
    let (broker, [east, _west]) = start(["east", "west"]);
    let foreign = |namespace: &str| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "endpoints": [], "metadata": {"name": "theirs", "namespace": namespace,
            "labels": {"endpointslice.kubernetes.io/managed-by": "somebody", "kubernetes.io/service-name": "x"}}})
    };
    east.put(foreign("shop"));
    broker.0.put(trieste_control::api::Object::from_value(foreign(BROKER)).unwrap());
    exported(&east, "10.96.0.7", 1_000);
    settle().await;
    east.unexport("web");
    settle().await;
    assert_eq!(broker.0.snapshot().len(), 1);
    assert!(east.store.find(Kind::EndpointSlice, "shop", "theirs").is_some());
}

#[tokio::test(start_paused = true)]
async fn what_somebody_deletes_or_changes_is_made_again_by_whose_part_it_is() {
    let (broker, [east, west]) = start(["east", "west"]);
    exported(&east, "10.96.0.7", 1_000);
    exported(&west, "10.97.0.7", 2_000);
    settle().await;
    let before = aggregate(&broker, "web").unwrap();
    broker.0.remove(Kind::ServiceImport, "web-shop");
    for slice in slices_of(&broker, BROKER, "east") {
        broker.0.remove(Kind::EndpointSlice, &slice.metadata.name);
    }
    settle().await;
    let after = aggregate(&broker, "web").unwrap();
    assert_eq!(
        (&after.metadata.annotations, &after.body["spec"]),
        (&before.metadata.annotations, &before.body["spec"])
    );
    assert_eq!((clusters(&after).len(), west.slices_of("east").len()), (2, 1));
    // Another one's part, and what nobody knows, stay as they are.
    broker.0.edit(Kind::ServiceImport, "web-shop", |import| {
        import.metadata.annotations.insert("note".to_owned(), "x".to_owned());
        import.metadata.annotations.insert("timestamp.submariner.io/south".to_owned(), "5".to_owned());
        import.body["status"]["clusters"].as_array_mut().unwrap().retain(|entry| entry["cluster"] != "west");
        import.body["status"]["clusters"].as_array_mut().unwrap().push(json!({"cluster": "south"}));
    });
    settle().await;
    let after = aggregate(&broker, "web").unwrap();
    assert_eq!((after.metadata.annotations["note"].as_str(), since(&after, "south")), ("x", Some("5")));
    assert_eq!(clusters(&after), ["east", "south", "west"]);
}

#[tokio::test(start_paused = true)]
async fn ports_are_the_union_and_differences_are_told_on_both_sides_until_they_are_gone() {
    let (broker, [east, west]) = start(["east", "west"]);
    exported(&east, "10.96.0.7", 1_000);
    exported(&west, "10.97.0.7", 2_000);
    let set = |ports: serde_json::Value| {
        west.edit(Kind::Service, "shop", "web", |service| service.body["spec"]["ports"] = ports);
    };
    set(
        json!([{"name": "http", "protocol": "TCP", "port": 81}, {"name": "metrics", "protocol": "TCP", "port": 9000}]),
    );
    settle().await;
    let union = || ports(&aggregate(&broker, "web").unwrap().body["spec"]["ports"]);
    assert_eq!(
        union(),
        [("http".to_owned(), 80), ("metrics".to_owned(), 9000)],
        "of one name, the oldest has it"
    );
    for cluster in [&east, &west] {
        let (status, reason, message) = cluster.condition("web", "Conflict").unwrap();
        assert_eq!((status.as_str(), reason.as_str()), ("True", "PortConflict,ConflictingPorts"));
        assert!(message.contains("[east, west]") && message.contains("intersection"), "{message}");
        assert_eq!(cluster.said("web", "Ready"), "True/Exported");
    }
    set(json!([{"name": "http", "protocol": "TCP", "port": 80}]));
    settle().await;
    assert_eq!(union(), [("http".to_owned(), 80)]);
    for cluster in [&east, &west] {
        assert_eq!(cluster.said("web", "Conflict"), "False/NoConflicts");
    }
}

#[tokio::test(start_paused = true)]
async fn affinity_is_the_oldest_ones_and_the_younger_takes_over_when_that_one_goes() {
    let (broker, [east, west]) = start(["east", "west"]);
    // The younger one is there first.
    exported(&west, "10.97.0.7", 2_000);
    west.edit(Kind::Service, "shop", "web", |service| {
        service.body["spec"]["sessionAffinity"] = json!("ClientIP");
        service.body["spec"]["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10}});
    });
    settle().await;
    let affinity = || aggregate(&broker, "web").unwrap().body["spec"]["sessionAffinity"].clone();
    assert_eq!(affinity(), "ClientIP");
    exported(&east, "10.96.0.7", 1_000);
    settle().await;
    assert_eq!(affinity(), "None");
    for cluster in [&east, &west] {
        let (_, reason, message) = cluster.condition("web", "Conflict").unwrap();
        assert_eq!(reason, AFFINITY);
        assert!(message.contains("cluster \"east\" (clusters [west] disagree)"), "{message}");
    }
    east.unexport("web");
    settle().await;
    assert_eq!(
        (affinity(), west.said("web", "Conflict")),
        (json!("ClientIP"), "False/NoConflicts".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn routing_is_the_oldest_exports_and_each_cluster_says_its_own_weight() {
    let (broker, [east, west]) = start(["east", "west"]);
    exported(&east, "10.96.0.7", 1_000);
    exported(&west, "10.97.0.7", 2_000);
    let say = |cluster: &Cluster, key: &str, value: &str| {
        cluster.edit(Kind::ServiceExport, "shop", "web", |export| {
            export.metadata.annotations.insert(key.to_owned(), value.to_owned());
        });
    };
    say(&east, "trieste.io/routing", "nearest");
    say(&west, "trieste.io/routing", "local-only");
    say(&west, "trieste.io/weight", "3");
    settle().await;
    let said = |key: &str| aggregate(&broker, "web").unwrap().metadata.annotations.get(key).cloned();
    assert_eq!(
        (said("trieste.io/routing").as_deref(), said("weight.trieste.io/west").as_deref()),
        (Some("nearest"), Some("3"))
    );
    assert_eq!(
        (
            said("weight.trieste.io/east"),
            east.import("web").unwrap().metadata.annotations["weight.trieste.io/west"].as_str()
        ),
        (None, "3")
    );
    east.unexport("web");
    settle().await;
    assert_eq!(said("trieste.io/routing").as_deref(), Some("local-only"));
    exported(&east, "10.96.0.7", 3_000);
    west.unexport("web");
    settle().await;
    assert_eq!((said("trieste.io/routing"), said("weight.trieste.io/west")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn of_two_types_the_oldest_is_exported_and_both_are_told() {
    let (broker, [east, west, north]) = start(["east", "west", "north"]);
    exported(&east, "10.96.0.7", 1_000);
    settle().await;
    exported(&west, "None", 2_000);
    settle().await;
    let kind = || aggregate(&broker, "web").unwrap().body["spec"]["type"].clone();
    assert_eq!(
        (kind(), clusters(&aggregate(&broker, "web").unwrap())),
        (json!("ClusterSetIP"), vec!["east".to_owned()])
    );
    assert!(slices_of(&broker, BROKER, "west").is_empty() && north.slices_of("west").is_empty());
    assert_eq!(
        (west.said("web", "Ready"), east.said("web", "Ready")),
        ("False/Failed".to_owned(), "True/Exported".to_owned())
    );
    for cluster in [&east, &west] {
        assert_eq!(cluster.said("web", "Conflict"), "True/TypeConflict,ConflictingType");
    }
    // The oldest gives in.
    east.unexport("web");
    settle().await;
    assert_eq!(
        (kind(), clusters(&aggregate(&broker, "web").unwrap())),
        (json!("Headless"), vec!["west".to_owned()])
    );
    assert_eq!(
        (west.said("web", "Ready"), west.said("web", "Conflict")),
        ("True/Exported".to_owned(), "False/NoConflicts".to_owned())
    );
    assert_eq!(north.slices_of("west").len(), 1);
    // An older one comes late: its recorded time counts, whatever the clocks say.
    exported(&east, "10.96.0.7", 1_000);
    settle().await;
    assert_eq!(
        (kind(), clusters(&aggregate(&broker, "web").unwrap())),
        (json!("ClusterSetIP"), vec!["east".to_owned()])
    );
    assert_eq!((west.said("web", "Ready"), north.slices_of("west").len()), ("False/Failed".to_owned(), 0));
    // The younger one gives in.
    west.edit(Kind::Service, "shop", "web", |service| {
        service.body["spec"]["clusterIP"] = json!("10.97.0.7");
        service.body["spec"]["clusterIPs"] = json!(["10.97.0.7"]);
    });
    settle().await;
    for cluster in [&east, &west] {
        assert_eq!(
            (cluster.said("web", "Ready"), cluster.said("web", "Conflict")),
            ("True/Exported".to_owned(), "False/NoConflicts".to_owned())
        );
    }
    assert_eq!(clusters(&aggregate(&broker, "web").unwrap()).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_stale_after_a_restart_goes_and_nothing_else_is_written() {
    let (broker, [mut east, west]) = start(["east", "west"]);
    for name in ["web", "api"] {
        east.service(name, "10.96.0.7");
        east.export(name, 1_000);
        west.service(name, "10.97.0.7");
        west.export(name, 2_000);
    }
    settle().await;
    east.agent = None;
    drop((east.store.writes(), broker.writes()));
    east.run();
    settle().await;
    assert_eq!((east.store.writes(), broker.writes()), (Vec::new(), Vec::new()), "all is as it was");

    east.agent = None;
    east.unexport("web");
    west.unexport("api");
    settle().await;
    // Left behind by others, here and on the broker.
    let mut stale = east.slices_of("east")[0].clone();
    stale.metadata = ObjectMeta { labels: stale.metadata.labels, ..ObjectMeta::new("shop", "api-stale") };
    east.store.0.put(stale.clone());
    stale.metadata.namespace = BROKER.to_owned();
    stale.metadata.labels.insert(label::CLUSTER_ID.to_owned(), "east".to_owned());
    broker.0.put(stale);
    let mut import = east.import("web").unwrap();
    import.metadata = ObjectMeta::new("shop", "nobodys");
    east.store.0.put(import);
    east.run();
    settle().await;
    assert_eq!(clusters(&aggregate(&broker, "web").unwrap()), ["west"]);
    assert_eq!(clusters(&aggregate(&broker, "api").unwrap()), ["east"]);
    assert_eq!(
        (
            slices_of(&broker, BROKER, "east").len(),
            east.slices_of("east").len(),
            east.slices_of("west").len()
        ),
        (1, 1, 1)
    );
    assert!(east.import("nobodys").is_none());
    assert_eq!(east.store.all(Kind::ServiceImport, OPERATOR).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restart_on_the_brokers_own_cluster_touches_nothing_of_the_brokers() {
    let broker = ApiStore::default();
    let west = Cluster::start("west", &broker);
    // One store is this cluster's and the broker's.
    let mut east = Cluster::new("east", &broker);
    east.store = broker.clone();
    for namespace in ["shop", OPERATOR, BROKER] {
        east.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
    }
    east.run();
    exported(&east, "10.96.0.7", 1_000);
    exported(&west, "10.97.0.7", 2_000);
    settle().await;
    assert_eq!(
        (clusters(&west.import("web").unwrap()).len(), clusters(&east.import("web").unwrap()).len()),
        (2, 2)
    );
    drop(broker.writes());
    for _ in 0..3 {
        east.run();
        settle().await;
        assert_eq!(broker.writes(), Vec::<String>::new());
    }
    east.unexport("web");
    settle().await;
    assert_eq!(
        (clusters(&east.import("web").unwrap()), east.slices_of("west").len()),
        (vec!["west".to_owned()], 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_lost_everything_is_not_believed_at_once_and_gets_back_what_is_its_members() {
    let (broker, [mut east, mut west]) = start(["east", "west"]);
    exported(&east, "10.96.0.7", 1_000);
    exported(&west, "10.97.0.7", 2_000);
    settle().await;
    // The broker is made anew; east is the first to see it, and west is away.
    west.agent = None;
    east.agent = None;
    let anew = ApiStore::default();
    east.broker = anew.clone();
    east.run();
    settle().await;
    assert_eq!((east.slices_of("west").len(), slices_of(&anew, BROKER, "east").len()), (1, 1));
    sleep(EMPTY_GRACE / 2).await;
    assert_eq!(east.slices_of("west").len(), 1, "west has yet to come back");
    west.broker = anew.clone();
    west.run();
    settle().await;
    sleep(EMPTY_GRACE * 2).await;
    assert_eq!((east.slices_of("west").len(), clusters(&east.import("web").unwrap()).len()), (1, 2));
    // Now it stays away.
    west.agent = None;
    let again = ApiStore::default();
    east.broker = again.clone();
    east.run();
    sleep(EMPTY_GRACE / 2).await;
    assert_eq!(east.slices_of("west").len(), 1);
    sleep(EMPTY_GRACE).await;
    assert_eq!(
        (east.slices_of("west").len(), clusters(&east.import("web").unwrap())),
        (0, vec!["east".to_owned()])
    );
    drop(broker);
}

#[tokio::test(start_paused = true)]
async fn who_alone_exports_is_not_taken_for_one_that_others_have_left() {
    let (broker, [mut east]) = start(["east"]);
    exported(&east, "10.96.0.7", 1_000);
    settle().await;
    east.run();
    settle().await;
    east.unexport("web");
    settle().await;
    assert!(east.import("web").is_none() && broker.0.snapshot().is_empty());
    exported(&east, "10.96.0.7", 1_000);
    settle().await;
    // It was withdrawn on the broker, and that was not seen here.
    east.agent = None;
    east.unexport("web");
    broker.0.remove(Kind::ServiceImport, "web-shop");
    east.run();
    settle().await;
    assert!(east.import("web").is_none() && broker.0.snapshot().is_empty());
}

#[tokio::test(start_paused = true)]
async fn while_the_broker_is_away_nothing_goes_and_the_change_follows_when_it_is_back() {
    let (broker, [east, west]) = start(["east", "west"]);
    exported(&east, "10.96.0.7", 1_000);
    settle().await;
    broker.0.set_fault(crate::memory_store::Fault::Fails);
    exported(&west, "10.97.0.7", 2_000);
    sleep(Duration::from_secs(600)).await;
    assert_eq!((west.slices_of("east").len(), west.said("web", "Ready")), (1, "False/Pending".to_owned()));
    assert_eq!(west.slices_of("west").len(), 1, "here it answers");
    broker.0.set_fault(crate::memory_store::Fault::None);
    broker.0.break_watches();
    sleep(Duration::from_secs(40)).await;
    assert_eq!((east.slices_of("west").len(), west.said("web", "Ready")), (1, "True/Exported".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_does_not_take_an_export_is_told_on_it_until_it_does() {
    let (broker, [east]) = start(["east"]);
    broker.0.set_fault(crate::memory_store::Fault::Forbids);
    exported(&east, "10.96.0.7", 1_000);
    settle().await;
    let (_, reason, message) = east.condition("web", "Ready").unwrap();
    assert!(
        reason == "Failed" && message.starts_with("Unable to export: ") && message.contains("no right"),
        "{message}"
    );
    broker.0.set_fault(crate::memory_store::Fault::None);
    sleep(Duration::from_secs(90)).await;
    assert_eq!(east.said("web", "Ready"), "True/Exported");
}

#[tokio::test(start_paused = true)]
async fn what_this_clusters_store_does_not_take_is_tried_ever_more_seldom() {
    let (_broker, [east, west]) = start(["east", "west"]);
    exported(&east, "10.96.0.7", 1_000);
    settle().await;
    west.store.0.set_fault(crate::memory_store::Fault::Forbids);
    east.service("api", "10.96.0.8");
    east.export("api", 1_000);
    drop(west.store.writes());
    sleep(Duration::from_secs(600)).await;
    let tries = west.store.writes().len();
    assert!((10..40).contains(&tries), "{tries} tries of two objects in ten minutes");
    west.store.0.set_fault(crate::memory_store::Fault::None);
    sleep(Duration::from_secs(61)).await;
    assert!(west.import("api").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_field_that_this_clusters_definition_does_not_know_is_no_reason_to_write_for_ever() {
    let (broker, [east]) = start(["east"]);
    let mut west = Cluster::new("west", &broker);
    west.store.1 = Some("ipFamilies");
    west.run();
    exported(&east, "10.96.0.7", 1_000);
    settle().await;
    broker
        .0
        .edit(Kind::ServiceImport, "web-shop", |import| import.body["spec"]["ipFamilies"] = json!(["IPv4"]));
    settle().await;
    assert_eq!(east.import("web").unwrap().body["spec"]["ipFamilies"], json!(["IPv4"]));
    drop((west.store.writes(), broker.writes()));
    sleep(Duration::from_secs(600)).await;
    assert_eq!((west.store.writes(), broker.writes()), (Vec::new(), Vec::new()));
    east.edit(Kind::Service, "shop", "web", |service| {
        service.body["spec"]["sessionAffinity"] = json!("ClientIP")
    });
    settle().await;
    assert_eq!(
        west.import("web").unwrap().body["spec"]["sessionAffinity"],
        "ClientIP",
        "what changes is written"
    );
}

#[tokio::test(start_paused = true)]
async fn an_uninstall_leaves_nothing_here_or_on_the_broker_but_what_is_others() {
    let (broker, [mut east, west]) = start(["east", "west"]);
    exported(&east, "10.96.0.7", 1_000);
    exported(&west, "10.97.0.7", 2_000);
    settle().await;
    east.config.withdraws = true;
    east.run();
    settle().await;
    assert!(east.agent.as_ref().unwrap().status.borrow().is_settled);
    assert!(east.store.all(Kind::ServiceImport, "").is_empty());
    assert!(east.slices_of("east").is_empty() && east.slices_of("west").is_empty());
    assert_eq!(east.store.all(Kind::EndpointSlice, "").len(), 1, "the service's own stays");
    assert_eq!(
        (clusters(&aggregate(&broker, "web").unwrap()), slices_of(&broker, BROKER, "east").len()),
        (vec!["west".to_owned()], 0)
    );
    assert_eq!(
        (clusters(&west.import("web").unwrap()), west.slices_of("west").len()),
        (vec!["west".to_owned()], 1)
    );
}

#[tokio::test(start_paused = true)]
async fn slices_of_an_agent_of_upstream_keep_their_names_when_ours_takes_its_place() {
    let (broker, [mut east, west]) = start(["east", "west"]);
    exported(&east, "10.96.0.7", 1_000);
    settle().await;
    east.agent = None;
    // As upstream's agent names them: at random.
    let rename = |store: &ApiStore, slice: trieste_control::api::Object| {
        let mut renamed = slice.clone();
        renamed.metadata.name = "web-x7k2p".to_owned();
        store.0.remove(Kind::EndpointSlice, &slice.metadata.name);
        store.0.put(renamed);
    };
    rename(&east.store, east.slices_of("east")[0].clone());
    rename(&broker, slices_of(&broker, BROKER, "east")[0].clone());
    settle().await;
    drop((east.store.writes(), broker.writes(), west.store.writes()));
    east.run();
    settle().await;
    assert_eq!((broker.writes(), west.store.writes()), (Vec::new(), Vec::new()));
    assert_eq!(west.slices_of("east")[0].metadata.name, "web-x7k2p");
}
