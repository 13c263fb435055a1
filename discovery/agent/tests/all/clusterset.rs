//! Addresses that stand for a service in all clusters: given by the oldest exporter's cluster, kept, taken back, and never two of
//! one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;
use trieste_control::api::{
    Cluster as Registered, ClusterSpec, Kind, Object, Resource as _, annotation, label,
};

mod families;

use crate::api_store::ApiStore;
use crate::lab::{BROKER, Cluster, OPERATOR, aggregate, clusters, service, settle};
use crate::memory_store::Fault;

/// Reason and beginning of the message of an export that has none.
const WITHOUT: &str = "True/ExportedWithoutClustersetIP";

/// The reasons of exports that differ in whether they ask for one.
const CONFLICT: &str = "ClusterSetIPEnablementConflict,ConflictingClusterSetIPEnablement";

/// Starts a cluster with these blocks of the range 243.0.0.0/8, which gives addresses where an export says nothing.
fn start(id: &str, broker: &ApiStore, blocks: &[&str]) -> Cluster {
    let mut cluster = Cluster::new(id, broker);
    cluster.config.gives_clusterset_ips = true;
    cluster.config.clusterset_ip_cidrs = blocks.iter().map(|block| block.parse().unwrap()).collect();
    cluster.config.clusterset_ip_ranges = vec!["243.0.0.0/8".parse().unwrap()];
    cluster.run();
    cluster
}

fn two() -> (ApiStore, Cluster, Cluster) {
    let broker = ApiStore::default();
    let east = start("east", &broker, &["243.0.0.0/29"]);
    let west = start("west", &broker, &["243.0.16.0/29"]);
    (broker, east, west)
}

fn exported(cluster: &Cluster, name: &str, since: i64) {
    let ip = if cluster.config.cluster_id == "east" { "10.96.0.7" } else { "10.97.0.7" };
    cluster.service(name, ip);
    cluster.export(name, since);
}

/// Says by annotation whether an export asks for an address.
fn ask(cluster: &Cluster, name: &str, asks: &str) {
    cluster.edit(Kind::ServiceExport, "shop", name, |export| {
        export.metadata.annotations.insert(annotation::USE_CLUSTERSET_IP.to_owned(), asks.to_owned());
    });
}

/// Returns the address that an import has.
fn ip_of(import: &Object) -> Option<String> {
    let ips = import.body["spec"].get("ips")?.as_array()?;
    assert_eq!(ips.len(), 1);
    Some(ips[0].as_str().unwrap().to_owned())
}

/// Returns the address of a service on the broker.
fn ip(broker: &ApiStore, name: &str) -> Option<String> {
    ip_of(&aggregate(broker, name)?)
}

/// Returns what the broker's import says: whether an address is wanted, the address, and whose block it is of.
fn said(broker: &ApiStore, name: &str) -> [Option<String>; 3] {
    let import = aggregate(broker, name).unwrap();
    let annotation = |key: &str| import.metadata.annotations.get(key).cloned();
    [
        annotation(annotation::USE_CLUSTERSET_IP),
        ip_of(&import),
        annotation(annotation::CLUSTERSET_IP_ALLOCATED_BY),
    ]
}

fn texts<const COUNT: usize>(texts: [&str; COUNT]) -> [Option<String>; COUNT] {
    texts.map(|text| Some(text.to_owned()).filter(|text| !text.is_empty()))
}

/// Puts an import of cluster `north` on the broker.
fn put_foreign(broker: &ApiStore, name: &str, since: &str, ip: &str) {
    let import = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
        "metadata": {"name": format!("{name}-shop"), "namespace": BROKER, "annotations": {
            label::SERVICE_NAME: name, label::SOURCE_NAMESPACE: "shop",
            annotation::USE_CLUSTERSET_IP: "true", annotation::CLUSTERSET_IP_ALLOCATED_BY: "north",
            format!("{}north", annotation::TIMESTAMP_PREFIX): since}},
        "spec": {"type": "ClusterSetIP", "ips": [ip], "ports": []}, "status": {"clusters": [{"cluster": "north"}]}});
    broker.0.put(Object::from_value(import).unwrap());
}

fn register(broker: &ApiStore, id: &str, net: &str) {
    let spec = ClusterSpec { cluster_cidr: vec![net.to_owned()], ..ClusterSpec::new(id, &[], &[]) };
    let mut object = Registered::new(BROKER, spec).unwrap().to_object();
    object.metadata.labels.insert(label::CLUSTER_ID.to_owned(), id.to_owned());
    broker.0.put(object);
}

/// Asserts that no two imports have one address, and returns all.
fn distinct(broker: &ApiStore) -> BTreeSet<String> {
    let imports = broker.all(Kind::ServiceImport, BROKER);
    let ips: Vec<String> = imports.iter().filter_map(ip_of).collect();
    let distinct: BTreeSet<String> = ips.iter().cloned().collect();
    assert_eq!(distinct.len(), ips.len(), "{ips:?}");
    distinct
}

#[tokio::test(start_paused = true)]
async fn the_first_free_address_is_given_and_is_on_every_import() {
    let (broker, east, west) = two();
    exported(&east, "web", 1_000);
    settle().await;
    assert_eq!(said(&broker, "web"), texts(["true", "243.0.0.1", "east"]));
    for cluster in [&east, &west] {
        let copy = cluster.import("web").unwrap();
        assert_eq!(ip_of(&copy).as_deref(), Some("243.0.0.1"));
        assert_eq!(copy.metadata.annotations[annotation::USE_CLUSTERSET_IP], "true");
    }
    let own = east.store.find(Kind::ServiceImport, OPERATOR, "web-shop-east").unwrap();
    assert_eq!(
        (ip_of(&own).as_deref(), own.metadata.annotations[annotation::USE_CLUSTERSET_IP].as_str()),
        (Some("10.96.0.7"), "true"),
        "a cluster's own import has its own address"
    );
    assert_eq!(east.said("web", "Ready"), "True/Exported");
    exported(&east, "api", 1_000);
    exported(&west, "db", 1_000);
    settle().await;
    assert_eq!([ip(&broker, "api"), ip(&broker, "db")], texts(["243.0.0.2", "243.0.16.1"]));
    // What is given back is given first.
    east.unexport("web");
    settle().await;
    exported(&east, "more", 1_000);
    settle().await;
    assert_eq!(ip(&broker, "more").as_deref(), Some("243.0.0.1"));
}

#[tokio::test(start_paused = true)]
async fn an_export_overrides_what_the_cluster_does_by_itself_both_ways() {
    let (broker, east, mut west) = two();
    west.config.gives_clusterset_ips = false;
    west.run();
    exported(&east, "web", 1_000);
    ask(&east, "web", "false");
    exported(&west, "api", 1_000);
    ask(&west, "api", "true");
    exported(&west, "db", 1_000);
    settle().await;
    assert_eq!(said(&broker, "web"), texts(["false", "", ""]));
    assert_eq!(said(&broker, "api"), texts(["true", "243.0.16.1", "west"]));
    assert_eq!(said(&broker, "db"), texts(["false", "", ""]));
    assert_eq!(west.said("db", "Ready"), "True/Exported");
    // And changes its mind.
    ask(&east, "web", "true");
    ask(&west, "api", "false");
    settle().await;
    assert_eq!(said(&broker, "web"), texts(["true", "243.0.0.1", "east"]));
    assert_eq!(said(&broker, "api"), texts(["false", "", ""]));
    let copy = east.import("api").unwrap();
    assert_eq!((ip_of(&copy), ip_of(&west.import("api").unwrap())), (None, None));
}

#[tokio::test(start_paused = true)]
async fn an_address_stays_when_who_gave_it_exports_no_more_and_is_nobody_elses_meanwhile() {
    let (broker, east, west) = two();
    exported(&east, "web", 1_000);
    exported(&west, "web", 2_000);
    settle().await;
    east.unexport("web");
    settle().await;
    assert_eq!(clusters(&aggregate(&broker, "web").unwrap()), ["west"]);
    assert_eq!(said(&broker, "web"), texts(["true", "243.0.0.1", "east"]));
    exported(&east, "api", 1_000);
    exported(&east, "web", 3_000);
    settle().await;
    assert_eq!([ip(&broker, "web"), ip(&broker, "api")], texts(["243.0.0.1", "243.0.0.2"]));
    // The one that decides now turns it off, and on again: it is of its own block then.
    east.unexport("web");
    settle().await;
    ask(&west, "web", "false");
    settle().await;
    assert_eq!(said(&broker, "web"), texts(["false", "", ""]));
    ask(&west, "web", "true");
    settle().await;
    assert_eq!(said(&broker, "web"), texts(["true", "243.0.16.1", "west"]));
    for cluster in [&east, &west] {
        assert_eq!(ip_of(&cluster.import("web").unwrap()).as_deref(), Some("243.0.16.1"));
    }
    west.unexport("web");
    settle().await;
    assert!(aggregate(&broker, "web").is_none());
}

#[tokio::test(start_paused = true)]
async fn the_oldest_export_decides_and_who_differs_is_told_on_both_sides() {
    let (broker, east, west) = two();
    exported(&west, "web", 2_000);
    settle().await;
    assert_eq!(said(&broker, "web"), texts(["true", "243.0.16.1", "west"]));
    exported(&east, "web", 1_000);
    ask(&east, "web", "false");
    settle().await;
    assert_eq!(said(&broker, "web"), texts(["false", "", ""]), "what the younger one has given is gone");
    for cluster in [&east, &west] {
        let (status, reason, message) = cluster.condition("web", "Conflict").unwrap();
        assert_eq!((status.as_str(), reason.as_str()), ("True", CONFLICT));
        assert!(
            message
                .contains("use of a clusterset IP conflicts between the constituent clusters [east, west]")
                && message.contains(
                    "\"false\" of the oldest export, in cluster \"east\" (clusters [west] disagree)"
                ),
            "{message}"
        );
        assert_eq!(cluster.said("web", "Ready"), "True/Exported");
    }
    let key = format!("{}west", annotation::CONFLICT_PREFIX);
    let word = |broker: &ApiStore| aggregate(broker, "web").unwrap().metadata.annotations.get(&key).cloned();
    assert_eq!(word(&broker).as_deref(), Some("ConflictingClusterSetIPEnablement"));
    // The younger one gives in.
    ask(&west, "web", "false");
    settle().await;
    for cluster in [&east, &west] {
        assert_eq!(cluster.said("web", "Conflict"), "False/NoConflicts");
    }
    // The oldest asks, and the younger one does not.
    ask(&east, "web", "true");
    settle().await;
    assert_eq!(said(&broker, "web"), texts(["true", "243.0.0.1", "east"]));
    assert_eq!(west.said("web", "Conflict"), format!("True/{CONFLICT}"));
    east.unexport("web");
    settle().await;
    assert_eq!((said(&broker, "web"), word(&broker)), (texts(["false", "", ""]), None));
    assert_eq!(west.said("web", "Conflict"), "False/NoConflicts");
}

#[tokio::test(start_paused = true)]
async fn a_block_that_is_used_up_is_told_and_what_becomes_free_goes_to_who_waits() {
    let broker = ApiStore::default();
    let east = start("east", &broker, &["243.0.0.0/30", "243.0.1.0/30"]);
    let names = ["s0", "s1", "s2", "s3", "s4", "s5"];
    for name in names {
        exported(&east, name, 1_000);
    }
    settle().await;
    let expected = ["243.0.0.1", "243.0.0.2", "243.0.1.1", "243.0.1.2"].map(str::to_owned);
    assert_eq!(distinct(&broker), BTreeSet::from(expected));
    let without = || names.into_iter().filter(|name| ip(&broker, name).is_none()).collect::<Vec<_>>();
    let waiting = without();
    assert_eq!(waiting.len(), 2);
    for name in &waiting {
        let (_, _, message) = east.condition(name, "Ready").unwrap();
        assert_eq!(east.said(name, "Ready"), WITHOUT);
        assert!(message.contains("all 4 clusterset IPs of this cluster are in use"), "{message}");
        assert!(message.contains("--clusterset-ip-cidr"), "{message}");
        assert_eq!(said(&broker, name)[0].as_deref(), Some("true"));
        assert_eq!(clusters(&aggregate(&broker, name).unwrap()), ["east"], "it is exported all the same");
    }
    drop((broker.writes(), east.store.writes()));
    sleep(Duration::from_secs(600)).await;
    assert_eq!((broker.writes(), east.store.writes()), (vec![], vec![]), "at rest");
    let has = names.into_iter().find(|name| !waiting.contains(name)).unwrap();
    east.unexport(has);
    settle().await;
    let waits_still: Vec<&str> = without().into_iter().filter(|name| *name != has).collect();
    assert_eq!(waits_still.len(), 1);
    assert_eq!(distinct(&broker).len(), 4);
    let served = waiting.iter().find(|name| !waits_still.contains(name)).unwrap();
    assert_eq!(
        (east.said(served, "Ready").as_str(), east.said(waits_still[0], "Ready").as_str()),
        ("True/Exported", WITHOUT)
    );
    // Who waits and gives up leaves its turn to nobody in particular.
    ask(&east, waits_still[0], "false");
    settle().await;
    assert_eq!(east.said(waits_still[0], "Ready"), "True/Exported");
}

#[tokio::test(start_paused = true)]
async fn who_has_no_block_no_ipv4_or_no_virtual_address_is_told() {
    let broker = ApiStore::default();
    let east = start("east", &broker, &[]);
    let west = start("west", &broker, &["243.0.16.0/29"]);
    exported(&east, "web", 1_000);
    exported(&west, "web", 2_000);
    west.put(service(
        "six",
        &json!({"type": "ClusterIP", "clusterIP": "fd07::7", "clusterIPs": ["fd07::7"], "ports": []}),
    ));
    west.export("six", 1_000);
    west.service("none", "None");
    west.export("none", 1_000);
    west.service("asks", "None");
    west.export("asks", 1_000);
    ask(&west, "asks", "true");
    settle().await;
    assert_eq!(said(&broker, "web"), texts(["true", "", ""]));
    let message = |cluster: &Cluster, name: &str| {
        assert_eq!(cluster.said(name, "Ready"), WITHOUT, "{name}");
        cluster.condition(name, "Ready").unwrap().2
    };
    assert!(message(&east, "web").contains("no block of clusterset IPs; it gets one by join"));
    assert!(message(&west, "web").contains("cluster east, whose export is the oldest, has given none"));
    assert!(message(&west, "six").contains("it has no IPv4 address"));
    assert!(message(&west, "asks").contains("it is headless"));
    assert_eq!(west.said("none", "Ready"), "True/Exported");
    for name in ["six", "none", "asks"] {
        assert_eq!(said(&broker, name), texts(["false", "", ""]), "{name}");
    }
    // The one with a block is left, and gives one.
    east.unexport("web");
    settle().await;
    assert_eq!(
        (ip(&broker, "web").as_deref(), west.said("web", "Ready").as_str()),
        (Some("243.0.16.1"), "True/Exported")
    );
}

#[tokio::test(start_paused = true)]
async fn a_type_that_has_none_gives_its_address_up() {
    let (broker, east, _west) = two();
    exported(&east, "web", 1_000);
    settle().await;
    assert_eq!(ip(&broker, "web").as_deref(), Some("243.0.0.1"));
    east.edit(Kind::Service, "shop", "web", |service| {
        service.body["spec"]["clusterIP"] = json!("None");
        service.body["spec"]["clusterIPs"] = json!(["None"]);
    });
    settle().await;
    assert_eq!(said(&broker, "web"), texts(["false", "", ""]));
    exported(&east, "api", 1_000);
    settle().await;
    assert_eq!(ip(&broker, "api").as_deref(), Some("243.0.0.1"));
}

#[tokio::test(start_paused = true)]
async fn a_restart_changes_no_address_and_a_broker_that_loses_them_gets_them_back() {
    let (broker, mut east, _west) = two();
    for name in ["b", "a", "c"] {
        exported(&east, name, 1_000);
        settle().await;
    }
    let all = || ["a", "b", "c"].map(|name| ip(&broker, name));
    assert_eq!(all(), texts(["243.0.0.2", "243.0.0.1", "243.0.0.3"]));
    drop((broker.writes(), east.store.writes()));
    east.run();
    settle().await;
    assert_eq!((broker.writes(), east.store.writes()), (vec![], vec![]));
    // Nothing that was given before the restart is given again.
    exported(&east, "d", 1_000);
    settle().await;
    assert_eq!(ip(&broker, "d").as_deref(), Some("243.0.0.4"));
    for name in ["a", "b", "c", "d"] {
        broker.0.remove(Kind::ServiceImport, &format!("{name}-shop"));
    }
    settle().await;
    assert_eq!(all(), texts(["243.0.0.2", "243.0.0.1", "243.0.0.3"]));
    assert_eq!(ip(&broker, "d").as_deref(), Some("243.0.0.4"));
}

#[tokio::test(start_paused = true)]
async fn decisions_of_one_moment_and_writes_under_way_never_give_one_address_twice() {
    for fault in [Fault::None, Fault::Slow(Duration::from_millis(700)), Fault::LosesReplies] {
        let broker = ApiStore::default();
        let mut east = start("east", &broker, &["243.0.0.0/24"]);
        for number in 0..30 {
            east.service(&format!("s{number}"), "10.96.0.7");
        }
        settle().await;
        broker.0.set_fault(fault);
        for number in 0..30 {
            east.export(&format!("s{number}"), 1_000);
        }
        for step in 0..40 {
            sleep(Duration::from_millis(250)).await;
            distinct(&broker);
            if step % 3 == 0 {
                // Some go, some come again.
                for number in (step % 7..30).step_by(7) {
                    match east.store.find(Kind::ServiceExport, "shop", &format!("s{number}")) {
                        Some(_) => east.unexport(&format!("s{number}")),
                        None => east.export(&format!("s{number}"), 1_000),
                    }
                }
            }
            if step == 20 {
                east.run();
            }
        }
        broker.0.set_fault(Fault::None);
        sleep(Duration::from_secs(300)).await;
        let exports = east.store.all(Kind::ServiceExport, "shop").len();
        assert_eq!(distinct(&broker).len(), exports);
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_that_another_import_has_is_not_given_whoever_has_put_it_there() {
    let (broker, east, _west) = two();
    put_foreign(&broker, "old", "1", "243.0.0.1");
    // Also where nothing else of the import makes sense.
    let nonsense = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
        "metadata": {"name": "nonsense", "namespace": BROKER}, "spec": {"type": "X", "ips": ["243.0.0.2"], "ports": []}});
    broker.0.put(Object::from_value(nonsense).unwrap());
    exported(&east, "web", 1_000);
    settle().await;
    assert_eq!(ip(&broker, "web").as_deref(), Some("243.0.0.3"));
    broker.0.remove(Kind::ServiceImport, "nonsense");
    exported(&east, "api", 1_000);
    settle().await;
    assert_eq!(ip(&broker, "api").as_deref(), Some("243.0.0.2"));
}

#[tokio::test(start_paused = true)]
async fn of_two_imports_with_one_address_the_older_has_it_and_the_other_gets_another_one() {
    let (broker, east, west) = two();
    let refused = |cluster: &Cluster| {
        let refused = cluster.agent.as_ref().unwrap().status.borrow().refused.clone();
        refused.into_iter().map(|refused| refused.reason).collect::<Vec<_>>()
    };
    put_foreign(&broker, "one", "5", "243.0.32.1");
    put_foreign(&broker, "two", "4", "243.0.32.1");
    settle().await;
    for cluster in [&east, &west] {
        let ips = ["one", "two"].map(|name| ip_of(&cluster.import(name).unwrap()));
        assert_eq!(ips, texts(["", "243.0.32.1"]));
        assert_eq!(
            refused(cluster),
            ["has the clusterset IP 243.0.32.1, which is that of the older import two-shop"]
        );
    }
    broker.0.remove(Kind::ServiceImport, "two-shop");
    settle().await;
    assert_eq!(
        (ip_of(&east.import("one").unwrap()).as_deref(), refused(&east).len()),
        (Some("243.0.32.1"), 0)
    );
    // This cluster's own is another's: it is given another one.
    exported(&east, "web", 1_000);
    settle().await;
    assert_eq!(ip(&broker, "web").as_deref(), Some("243.0.0.1"));
    put_foreign(&broker, "thief", "1", "243.0.0.1");
    settle().await;
    assert_eq!(ip(&broker, "web").as_deref(), Some("243.0.0.2"));
    assert_eq!(ip_of(&west.import("web").unwrap()).as_deref(), Some("243.0.0.2"));
    // Equally old ones go by name.
    put_foreign(&broker, "b", "7", "243.0.32.9");
    put_foreign(&broker, "a", "7", "243.0.32.9");
    settle().await;
    assert_eq!(["a", "b"].map(|name| ip_of(&west.import(name).unwrap())), texts(["243.0.32.9", ""]));
}

#[tokio::test(start_paused = true)]
async fn an_address_in_a_clusters_networks_or_outside_the_range_does_not_count() {
    let (broker, east, west) = two();
    put_foreign(&broker, "range", "1", "10.44.0.1");
    settle().await;
    assert_eq!(ip_of(&east.import("range").unwrap()), None);
    exported(&east, "web", 1_000);
    settle().await;
    register(&broker, "south", "243.0.0.0/30");
    settle().await;
    assert_eq!(ip(&broker, "web").as_deref(), Some("243.0.0.4"), "the first that is no cluster's");
    register(&broker, "south", "243.0.0.0/16");
    settle().await;
    assert_eq!(
        said(&broker, "web"),
        texts(["true", "243.0.0.4", "east"]),
        "it stays until there is another one"
    );
    assert_eq!((ip_of(&east.import("web").unwrap()), east.said("web", "Ready")), (None, WITHOUT.to_owned()));
    assert!(east.condition("web", "Ready").unwrap().2.contains("is in the networks of cluster south"));
    exported(&west, "web", 2_000);
    settle().await;
    assert!(west.condition("web", "Ready").unwrap().2.contains("the import has the clusterset IP 243.0.0.4"));
    broker.0.remove(Kind::Cluster, "south");
    settle().await;
    for cluster in [&east, &west] {
        assert_eq!(ip_of(&cluster.import("web").unwrap()).as_deref(), Some("243.0.0.4"));
        assert_eq!(cluster.said("web", "Ready"), "True/Exported");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_claims_every_address_given_makes_no_storm_of_writes() {
    let (broker, east, _west) = two();
    exported(&east, "web", 1_000);
    settle().await;
    drop((broker.writes(), east.store.writes()));
    for _ in 0..600 {
        if let Some(ip) = ip(&broker, "web") {
            put_foreign(&broker, "thief", "1", &ip);
        }
        sleep(Duration::from_millis(100)).await;
    }
    let writes = broker.writes().len() + east.store.writes().len();
    assert!(writes < 400, "{writes} writes in a minute");
    broker.0.remove(Kind::ServiceImport, "thief-shop");
    sleep(Duration::from_secs(120)).await;
    assert_eq!(east.said("web", "Ready"), "True/Exported");
    assert_eq!(ip_of(&east.import("web").unwrap()), ip(&broker, "web"));
}

#[tokio::test(start_paused = true)]
async fn an_address_costs_the_same_however_many_are_given() {
    let mut costs = Vec::new();
    for count in [10_u32, 1_000] {
        let broker = ApiStore::default();
        for number in 0..count {
            put_foreign(
                &broker,
                &format!("s{number}"),
                "1",
                &format!("243.0.{}.{}", number / 200, number % 200 + 1),
            );
        }
        let east = start("east", &broker, &["243.0.0.0/20"]);
        settle().await;
        let plans = || east.agent.as_ref().unwrap().runner.metrics.snapshot(Instant::now()).reconciles;
        let before = plans();
        drop(broker.writes());
        exported(&east, "web", 1_000);
        settle().await;
        put_foreign(&broker, "s0", "1", "243.0.15.1");
        settle().await;
        costs.push((plans() - before, broker.writes().len()));
        assert!(ip(&broker, "web").is_some());
    }
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0].0 <= 20, "{costs:?}");
}

#[tokio::test(start_paused = true)]
async fn what_other_agents_have_given_stays() {
    let (broker, east, _west) = two();
    put_foreign(&broker, "web", "5000000000000", "243.0.48.1");
    settle().await;
    exported(&east, "web", 1_000);
    settle().await;
    assert_eq!(said(&broker, "web"), texts(["true", "243.0.48.1", "north"]), "east is the oldest now");
    // Its decision is another one: what a member has given that exports the service goes first, then its name.
    ask(&east, "web", "false");
    drop(broker.writes());
    settle().await;
    assert_eq!(said(&broker, "web"), texts(["false", "", ""]));
    let updates = broker.writes().into_iter().filter(|write| write.contains("ServiceImport")).count();
    assert!((2..=4).contains(&updates), "{updates}");
    let value: Value = aggregate(&broker, "web").unwrap().body["spec"]["type"].clone();
    assert_eq!(value, "ClusterSetIP");
}
