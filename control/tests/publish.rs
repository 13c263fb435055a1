//! What a gateway writes about itself.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;
use trieste_control::api::{
    ClusterSpec, Endpoint, EndpointSpec, Gateway, HaStatus, Kind, Object, ObjectKey, PublishedStatus,
    Resource, annotation, label,
};
use trieste_control::publish::{Publisher, withdraw_from_broker};
use trieste_control::store::{DirStore, Store, modify};

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

#[tokio::test]
async fn gateways_that_have_not_written_for_15_seconds_are_removed_but_never_the_own_one() {
    let lab = Lab::new();
    let now = Timestamp::from_second(1_000_000).unwrap();
    let ago = |seconds| now - SignedDuration::from_secs(seconds);
    lab.publisher("own").put_gateway(status(), ago(100)).await.unwrap();
    lab.publisher("dead").put_gateway(status(), ago(15)).await.unwrap();
    lab.publisher("alive").put_gateway(status(), ago(14)).await.unwrap();
    lab.publisher("ahead").put_gateway(status(), ago(-3600)).await.unwrap();
    let mute = lab.publisher("mute").put_gateway(status(), now).await.unwrap();
    modify(&lab.store, &mute.key(), |object| object.metadata.annotations.clear()).await.unwrap();
    lab.publisher("own").remove_stale_gateways(now).await.unwrap();
    assert_eq!(lab.names(Kind::Gateway).await, ["ahead", "alive", "own"]);
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
