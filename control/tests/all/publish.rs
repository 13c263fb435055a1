//! What a gateway writes about itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use trieste_control::admin::Severity;
use trieste_control::api::{
    ClusterSpec, Connection, ConnectionStatus, Endpoint, EndpointSpec, Gateway, HaStatus, Kind, Object,
    ObjectKey, ObjectMeta, PublishedStatus, Resource, annotation, label,
};
use trieste_control::conditions::Conditions;
use trieste_control::publish::{
    GATEWAY_STATUS_CUT, OwnPod, Publisher, STATUS_LABEL, StatusReading, keep_pod_label, withdraw_from_broker,
};
use trieste_control::runner::ControllerRegistry;
use trieste_control::store::{DirStore, Store, modify};

use crate::memory_store::{Fault, MemoryStore};

const NS: &str = "submariner-operator";

#[tokio::test]
async fn announcing_is_idempotent_and_takes_the_cluster_over_from_other_gateways() {
    let lab = Lab::new();
    let old = lab.publisher("a-gw2");
    old.announce(&cluster(), &endpoint("a-gw2", "192.0.2.2")).await.unwrap();
    lab.import_foreign().await;

    let publisher = lab.publisher("a-gw1");
    publisher.announce(&cluster(), &endpoint("a-gw1", "192.0.2.1")).await.unwrap();

    assert_eq!(lab.names(Kind::Endpoint).await, ["a-submariner-cable-a-192-0-2-1", "b-copy"]);
    assert_eq!(lab.names(Kind::Cluster).await, ["a"]);
    let before = lab.store.list(Kind::Endpoint, NS).await.unwrap();
    publisher.announce(&cluster(), &endpoint("a-gw1", "192.0.2.1")).await.unwrap();
    assert_eq!(
        lab.store.list(Kind::Endpoint, NS).await.unwrap(),
        before,
        "announcing again changed something"
    );
}

#[tokio::test]
async fn a_new_key_makes_a_new_endpoint_and_new_subnets_change_the_old_one() {
    let lab = Lab::new();
    let publisher = lab.publisher("a-gw1");
    let mut spec = endpoint("a-gw1", "192.0.2.1");
    publisher.announce(&cluster(), &spec).await.unwrap();
    let uid = |objects: &[Object]| objects[0].metadata.uid.clone().unwrap();
    let first = uid(&lab.store.list(Kind::Endpoint, NS).await.unwrap());

    spec.subnets.push("10.9.0.0/16".to_owned());
    publisher.announce(&cluster(), &spec).await.unwrap();
    let changed = lab.store.list(Kind::Endpoint, NS).await.unwrap();
    assert_eq!(uid(&changed), first, "the same endpoint by upstream's rule");
    assert_eq!(Endpoint::from_object(&changed[0]).unwrap().spec, spec);

    spec.backend_config.insert("publicKey".to_owned(), "another".to_owned());
    publisher.announce(&cluster(), &spec).await.unwrap();
    assert_ne!(uid(&lab.store.list(Kind::Endpoint, NS).await.unwrap()), first, "another endpoint");
}

#[tokio::test]
async fn the_gateway_object_keeps_others_annotations_and_tells_its_age() {
    let lab = Lab::new();
    let publisher = lab.publisher("Node_1");
    let first = publisher.put_gateway(status(), Timestamp::from_second(1_000).unwrap()).await.unwrap();
    assert_eq!(first.metadata.name, "node-1");
    assert_eq!(first.metadata.annotations[annotation::UPDATE_TIMESTAMP], "1000");
    let add = |object: &mut Object| {
        object.metadata.annotations.insert(annotation::GLOBAL_IP.to_owned(), "242.0.0.1".to_owned());
    };
    modify(&lab.store, &first.key(), add).await.unwrap();
    let second = publisher.put_gateway(status(), Timestamp::from_second(1_005).unwrap()).await.unwrap();
    assert_eq!(second.metadata.annotations[annotation::GLOBAL_IP], "242.0.0.1");
    assert_eq!(second.metadata.annotations[annotation::UPDATE_TIMESTAMP], "1005");
    assert_eq!(second.metadata.uid, first.metadata.uid);
}

#[tokio::test(start_paused = true)]
async fn the_active_gateway_removes_what_has_not_changed_for_15_seconds_and_never_its_own() {
    let store = MemoryStore::default();
    for name in ["dead", "alive", "mute"] {
        let mut gateway = Gateway::new(NS, name, status()).unwrap();
        let stamp = if name == "mute" { "yesterday" } else { "99999999999" };
        gateway.metadata.annotations.insert(annotation::UPDATE_TIMESTAMP.to_owned(), stamp.to_owned());
        store.put(gateway.to_object());
    }
    let publisher = Publisher::new(store.clone(), NS, "a", "own");
    let keeper = tokio::spawn(async move { publisher.keep_gateway(status, std::future::pending()).await });
    for _ in 0..7 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let beat =
            |object: &mut Object| drop(object.metadata.annotations.insert("x".to_owned(), "y".to_owned()));
        store.edit(Kind::Gateway, "alive", beat);
    }
    assert_eq!(store.names(Kind::Gateway), ["alive", "dead", "mute", "own"]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(store.names(Kind::Gateway), ["alive", "own"]);
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_of_the_api_nothing_is_removed_before_15_seconds_and_a_passive_one_removes_nothing() {
    for (ha_status, left) in [(HaStatus::Active, vec!["own"]), (HaStatus::Passive, vec!["gw2", "own"])] {
        let store = MemoryStore::default();
        store.put(Gateway::new(NS, "gw2", status()).unwrap().to_object());
        let publisher = Publisher::new(store.clone(), NS, "a", "own");
        let status = move || PublishedStatus { ha_status, ..status() };
        let keeper =
            tokio::spawn(async move { publisher.keep_gateway(status, std::future::pending()).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        store.set_fault(Fault::Fails);
        tokio::time::sleep(Duration::from_secs(60)).await;
        store.set_fault(Fault::None);
        store.break_watches();
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert_eq!(store.names(Kind::Gateway), ["gw2", "own"]);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(store.names(Kind::Gateway), left);
        keeper.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_healthy_gateway_costs_the_api_one_write_in_five_seconds() {
    let store = MemoryStore::default();
    let publisher = Publisher::new(store.clone(), NS, "a", "own");
    let keeper = tokio::spawn(async move { publisher.keep_gateway(status, std::future::pending()).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(store.take_log(), ["watch Gateway", "create Gateway submariner-operator/own"]);
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(store.take_log(), vec!["update Gateway submariner-operator/own"; 10]);
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn a_large_set_at_rest_costs_the_api_one_annotation_in_five_seconds_and_a_rare_update() {
    let store = MemoryStore::default();
    let publisher = Publisher::new(store.clone(), NS, "a", "own");
    let status = || connected(1_000);
    let keeper = tokio::spawn(async move { publisher.keep_gateway(status, std::future::pending()).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(store.take_log(), ["watch Gateway", "create Gateway submariner-operator/own"]);
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(store.take_log(), vec!["annotate Gateway submariner-operator/own"; 10]);
    tokio::time::sleep(Duration::from_secs(100)).await;
    let log = store.take_log();
    assert_eq!(log.len(), 20, "never two writes in a beat: {log:?}");
    assert_eq!(log.iter().filter(|line| line.starts_with("update")).count(), 1, "{log:?}");
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn at_rest_the_status_is_put_together_for_whole_writes_alone() {
    let store = MemoryStore::default();
    let publisher = Publisher::new(store.clone(), NS, "a", "own");
    let reads = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = watch::channel(1_000);
    let reading = {
        let reads = Arc::clone(&reads);
        move || Counted { connections: *receiver.borrow(), reads: Arc::clone(&reads) }
    };
    let keeper = tokio::spawn(async move { publisher.keep_gateway(reading, std::future::pending()).await });
    let reads = || reads.swap(0, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(51)).await;
    assert_eq!((store.take_log().len(), reads()), (12, 1), "it is created, and ten beats say no more");
    sender.send_replace(999);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(store.take_log(), ["update Gateway submariner-operator/own"]);
    assert_eq!(reads(), 1);
    store.edit(Kind::Gateway, "own", |object| object.body["status"]["haStatus"] = "passive".into());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((store.take_log().len(), reads()), (1, 1), "somebody else has changed it");
    let gateway = Gateway::from_object(&store.peek(Kind::Gateway, "own").unwrap()).unwrap();
    assert_eq!(gateway.status, connected(999));
    store.remove(Kind::Gateway, "own");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((store.names(Kind::Gateway), reads()), (vec!["own".to_owned()], 1));
    keeper.abort();
}

/// A status with so many connections, which counts how often it is put together.
struct Counted {
    connections: usize,
    reads: Arc<AtomicUsize>,
}

impl StatusReading for Counted {
    fn ha_status(&self) -> HaStatus {
        HaStatus::Active
    }

    fn published(&self) -> PublishedStatus {
        self.reads.fetch_add(1, Ordering::Relaxed);
        connected(self.connections)
    }

    fn is_unchanged_since(&self, before: &Self) -> bool {
        self.connections == before.connections
    }
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_meets_nothing_makes_the_object_anew_in_the_same_beat() {
    let store = MemoryStore::default();
    let publisher = Publisher::new(store.clone(), NS, "a", "own");
    let status = || connected(1_000);
    let keeper = tokio::spawn(async move { publisher.keep_gateway(status, std::future::pending()).await });
    tokio::time::sleep(Duration::from_secs(6)).await;
    // The watch says nothing of it in time.
    store.set_fault(Fault::Hangs);
    store.remove(Kind::Gateway, "own");
    store.set_fault(Fault::None);
    store.take_log();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let beat = ["annotate", "get", "create"].map(|verb| format!("{verb} Gateway submariner-operator/own"));
    assert_eq!(store.take_log(), beat);
    assert_eq!(store.names(Kind::Gateway), ["own"]);
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn where_annotations_cannot_be_set_alone_the_object_is_written_whole_until_they_can() {
    let store = MemoryStore::default();
    let publisher = Publisher::new(store.clone(), NS, "a", "own");
    let status = || connected(1_000);
    let keeper = tokio::spawn(async move { publisher.keep_gateway(status, std::future::pending()).await });
    tokio::time::sleep(Duration::from_secs(6)).await;
    store.set_fault(Fault::ForbidsPatches);
    store.take_log();
    tokio::time::sleep(Duration::from_secs(15)).await;
    let (annotate, update) =
        ("annotate Gateway submariner-operator/own", "update Gateway submariner-operator/own");
    assert_eq!(store.take_log(), [annotate, update, update, update]);
    store.set_fault(Fault::None);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let log = store.take_log();
    assert_eq!(log[..110], vec![update; 110], "it is not tried with every beat");
    assert_eq!(log.last().map(String::as_str), Some(annotate));
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn a_status_that_does_not_fit_is_a_condition_for_as_long_as_it_is_so() {
    let store = MemoryStore::default();
    let conditions = Conditions::new();
    let publisher = Publisher::new(store.clone(), NS, "a", "own").with_conditions(conditions.clone());
    let (sender, receiver) = watch::channel(5_000);
    let status = move || connected(*receiver.borrow());
    let keeper = tokio::spawn(async move { publisher.keep_gateway(status, std::future::pending()).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let found = conditions.list();
    let [condition] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (condition.name.as_str(), condition.severity, condition.subject.as_str()),
        (GATEWAY_STATUS_CUT, Severity::Warning, "Gateway submariner-operator/own")
    );
    let gateway = Gateway::from_object(&store.peek(Kind::Gateway, "own").unwrap()).unwrap();
    assert_eq!(gateway.status.connections.len() + gateway.left_out().connected, 5_000);
    sender.send_replace(2_000);
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(conditions.list()[0].severity, Severity::Info, "all are there, in short");
    sender.send_replace(20);
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(conditions.list(), []);
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_not_held_up_by_an_api_that_hangs() {
    let store = MemoryStore::default();
    store.set_fault(Fault::Hangs);
    let publisher = Publisher::new(store, NS, "a", "own");
    let start = tokio::time::Instant::now();
    publisher.keep_gateway(status, tokio::time::sleep(Duration::from_secs(3))).await;
    assert_eq!(start.elapsed(), Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn the_pods_labels_follow_the_state_and_are_put_right_when_somebody_changes_them() {
    let (store, keeper, sender, conditions) = labelled_pod_bed();
    sleep_a_second().await;
    assert_eq!(pod_status(&store), "passive");
    sender.send_replace(HaStatus::Active);
    sleep_a_second().await;
    assert_eq!(pod_status(&store), "active");
    store.edit(Kind::Pod, "gw", |pod| pod.metadata.labels.clear());
    sleep_a_second().await;
    assert_eq!(pod_status(&store), "active");
    assert!(conditions.list().is_empty());
    store.take_log();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(store.take_log(), Vec::<String>::new(), "what is right costs nothing");
    drop(sender);
    keeper.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_label_that_cannot_be_written_is_one_condition_and_ever_slower_tries_until_it_can() {
    let (store, keeper, sender, conditions) = labelled_pod_bed();
    sleep_a_second().await;
    store.set_fault(Fault::Fails);
    sender.send_replace(HaStatus::Active);
    store.take_log();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(store.take_log().len() < 60);
    let [condition] = &conditions.list()[..] else { panic!("{:?}", conditions.list()) };
    assert_eq!(
        (condition.name.as_str(), condition.subject.as_str()),
        ("PodNotLabelled", "Pod submariner-operator/gw")
    );
    assert!(condition.message.contains("the API is away"), "{}", condition.message);
    store.set_fault(Fault::None);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(pod_status(&store), "active");
    assert!(conditions.list().is_empty());
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_there_is_a_condition_until_it_is_and_an_outage_is_none() {
    let (store, keeper, _sender, conditions) = labelled_pod_bed();
    sleep_a_second().await;
    store.remove(Kind::Pod, "gw");
    sleep_a_second().await;
    let found = conditions.list();
    assert!(found.len() == 1 && found[0].message.contains("no such pod"), "{found:?}");
    store.put(Object::new(Kind::Pod, ObjectMeta::new(NS, "gw")));
    sleep_a_second().await;
    assert_eq!((pod_status(&store), conditions.list()), ("passive".to_owned(), Vec::new()));
    store.take_log();
    store.break_watches();
    sleep_a_second().await;
    assert_eq!((store.take_log(), conditions.list()), (Vec::new(), Vec::new()), "its labels are right");
    keeper.abort();
}

#[tokio::test]
async fn without_a_pod_there_is_nothing_to_label() {
    let own = OwnPod { namespace: NS.to_owned(), name: None, node: "n".to_owned() };
    let (_sender, receiver) = watch::channel(HaStatus::Passive);
    let (conditions, controllers) = (Conditions::new(), ControllerRegistry::default());
    keep_pod_label(MemoryStore::default(), own, receiver, conditions, controllers).await;
}

#[tokio::test]
async fn a_gateway_object_is_kept_at_once_and_removed_at_the_end() {
    let lab = Lab::new();
    let publisher = lab.publisher("a-gw1");
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let stop = async { drop(receiver.await) };
    let keeper = publisher.keep_gateway(status, stop);
    let check = async {
        let key = ObjectKey::new(Kind::Gateway, NS, "a-gw1");
        while lab.store.get(&key).await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(sender);
    };
    let both = futures::future::join(keeper, check);
    tokio::time::timeout(Duration::from_secs(10), both).await.unwrap();
    assert_eq!(lab.names(Kind::Gateway).await, Vec::<String>::new());
}

#[tokio::test]
async fn withdrawing_leaves_nothing_here_and_only_others_on_the_broker() {
    let lab = Lab::new();
    let publisher = lab.publisher("a-gw1");
    publisher.announce(&cluster(), &endpoint("a-gw1", "192.0.2.1")).await.unwrap();
    publisher.put_gateway(status(), Timestamp::now()).await.unwrap();
    lab.import_foreign().await;
    withdraw_from_broker(&lab.store, NS, "b").await.unwrap();
    assert_eq!(lab.names(Kind::Endpoint).await, ["a-submariner-cable-a-192-0-2-1"]);
    publisher.withdraw().await.unwrap();
    publisher.withdraw().await.unwrap();
    for kind in Kind::SUBMARINER.into_iter().filter(|kind| kind.is_namespaced()) {
        assert_eq!(lab.names(kind).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_host_or_cluster_without_a_name_is_an_error_that_names_the_field() {
    let lab = Lab::new();
    let error = lab.publisher("---").put_gateway(status(), Timestamp::now()).await.unwrap_err();
    assert!(error.to_string().contains("metadata.name"), "{error}");
    let nameless = ClusterSpec::new("", &[], &[]);
    let error = lab.publisher("x").announce(&nameless, &endpoint("x", "192.0.2.1")).await.unwrap_err();
    assert!(error.to_string().contains("spec.cluster_id"), "{error}");
}

fn labelled_pod_bed() -> (MemoryStore, JoinHandle<()>, watch::Sender<HaStatus>, Conditions) {
    let store = MemoryStore::default();
    store.put(Object::new(Kind::Pod, ObjectMeta::new(NS, "gw")));
    let own = OwnPod { namespace: NS.to_owned(), name: Some("gw".to_owned()), node: "a-gw1".to_owned() };
    let (sender, receiver) = watch::channel(HaStatus::Passive);
    let conditions = Conditions::new();
    let keeper =
        keep_pod_label(store.clone(), own, receiver, conditions.clone(), ControllerRegistry::default());
    let keeper = tokio::spawn(keeper);
    (store, keeper, sender, conditions)
}

fn pod_status(store: &MemoryStore) -> String {
    store.peek(Kind::Pod, "gw").unwrap().metadata.labels[STATUS_LABEL].clone()
}

async fn sleep_a_second() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

struct Lab {
    _root: TempDir,
    store: DirStore,
}

impl Lab {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let store = DirStore::open(root.path()).unwrap();
        Self { _root: root, store }
    }

    fn publisher(&self, hostname: &str) -> Publisher<DirStore> {
        Publisher::new(self.store.clone(), NS, "a", hostname)
    }

    async fn import_foreign(&self) {
        let mut copy =
            Endpoint::new(NS, EndpointSpec { cluster_id: "b".to_owned(), ..endpoint("b-gw1", "192.0.2.9") });
        let copy = copy.as_mut().unwrap();
        copy.metadata.name = "b-copy".to_owned();
        copy.metadata.labels.insert(label::CLUSTER_ID.to_owned(), "b".to_owned());
        self.store.create(copy.to_object()).await.unwrap();
    }

    async fn names(&self, kind: Kind) -> Vec<String> {
        self.store.list(kind, NS).await.unwrap().into_iter().map(|object| object.metadata.name).collect()
    }
}

fn cluster() -> ClusterSpec {
    ClusterSpec::new("a", &["100.1.0.0/16".parse().unwrap()], &["10.1.0.0/16".parse().unwrap()])
}

fn endpoint(hostname: &str, private_ip: &str) -> EndpointSpec {
    EndpointSpec {
        cluster_id: "a".to_owned(),
        cable_name: format!("submariner-cable-a-{}", private_ip.replace('.', "-")),
        hostname: hostname.to_owned(),
        subnets: vec!["100.1.0.0/16".to_owned(), "10.1.0.0/16".to_owned()],
        private_ip: private_ip.to_owned(),
        backend: "wireguard".to_owned(),
        ..EndpointSpec::default()
    }
}

fn status() -> PublishedStatus {
    let gateway: Gateway = serde_json::from_value(serde_json::json!({
        "metadata": {},
        "status": {"version": "1", "haStatus": HaStatus::Active, "localEndpoint": endpoint("a-gw1", "192.0.2.1"),
            "statusFailure": "", "connections": []},
    }))
    .unwrap();
    gateway.status
}

/// A status with so many connections, of some 680 bytes each.
fn connected(connections: usize) -> PublishedStatus {
    let connection = |number: usize| {
        let mut endpoint = endpoint(&format!("gw{number}"), "192.0.2.9");
        endpoint.backend_config.insert("publicKey".to_owned(), "k".repeat(350));
        Connection {
            status: ConnectionStatus::Connected,
            using_ip: endpoint.private_ip.clone(),
            endpoint,
            ..Connection::default()
        }
    };
    PublishedStatus { connections: (0..connections).map(connection).collect(), ..status() }
}
