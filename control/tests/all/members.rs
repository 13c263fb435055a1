//! Gateways that tell of themselves: on a directory, on stores with faults, and beside upstream's members.
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use trieste_control::api::{Kind, Object, ObjectKey, ObjectMeta, PublishedStatus};
use trieste_control::members::conformance::{
    BROKER, CONFORMANCE_TIMEOUT, Gateway, LOCAL, config, names, publish_to_one_another, share_the_ports, spec,
};
use trieste_control::members::{
    Members, MembersConfig, NOT_ON_BROKER, ONE_GATEWAY, Shutdown, further_name, paths_namespace,
};
use trieste_control::publish::Publisher;
use trieste_control::store::{DirStore, Store, StoreError, StoreEvent};
use trieste_control::sync::{SyncConfig, Syncer};

use crate::memory_store::{Fault, MemoryStore};

async fn eventually<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let looked = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(timeout(CONFORMANCE_TIMEOUT, looked).await.is_ok(), "{what}");
}

#[tokio::test]
async fn gateways_of_two_clusters_publish_to_one_another_through_directories() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = |name: &str| DirStore::open(dir.path().join(name)).expect("a store");
    publish_to_one_another([open("a"), open("b")], [open("broker"), open("broker")]).await;
    share_the_ports(&open("c"), &open("broker")).await;
}

#[tokio::test(start_paused = true)]
async fn gateways_of_two_clusters_publish_to_one_another_through_any_store() {
    let [a, b, c, broker] = [(); 4].map(|()| MemoryStore::default());
    publish_to_one_another([a, b], [broker.clone(), broker.clone()]).await;
    share_the_ports(&c, &broker).await;
}

#[tokio::test(start_paused = true)]
async fn who_comes_has_a_share_of_the_ports_within_seconds_of_whoever_had_all() {
    let (a, broker) = (MemoryStore::default(), MemoryStore::default());
    let first = Gateway::start(&a, broker.clone(), &config("a", 1), 1);
    first.until("all shares", |seen| seen.slots.is_some_and(|slots| slots.held == 0xff)).await;
    for (number, other) in [(2, 17), (3, 61)] {
        // At whatever time after the holders have looked last.
        tokio::time::sleep(Duration::from_secs(other)).await;
        let (gateway, began) =
            (Gateway::start(&a, broker.clone(), &config("a", number), number), Instant::now());
        gateway.until("a share", |seen| seen.slots.is_some()).await;
        let took = began.elapsed();
        assert!(took < Duration::from_secs(8), "gateway {number} has waited for {took:?}");
        std::mem::forget(gateway);
    }
}

#[tokio::test(start_paused = true)]
async fn upstreams_members_see_one_endpoint_for_each_cluster_and_leave_the_others_alone() {
    let (a, b, broker) = (MemoryStore::default(), MemoryStore::default(), MemoryStore::default());
    let _gateways = [1, 2].map(|number| Gateway::start(&a, broker.clone(), &config("a", number), number));
    // Both leaders' work; that of b is as upstream's.
    Publisher::new(a.clone(), LOCAL, "a", "a-gw1")
        .announce(&cluster("a"), &spec("a", 1))
        .await
        .expect("announced");
    let sync = |id: &str, nets: &str| {
        let mut sync = SyncConfig::new(id, vec![nets.parse().expect("a CIDR")]);
        (sync.local_namespace, sync.broker_namespace) = (LOCAL.to_owned(), BROKER.to_owned());
        sync
    };
    let _ours = Syncer::spawn(a.clone(), broker.clone(), sync("a", "10.1.0.0/16"));
    let upstream = Syncer::spawn(b.clone(), broker.clone(), sync("b", "10.2.0.0/16"));
    eventually("the broker has one sole and two further Endpoints", || async {
        broker.names(Kind::Endpoint).len() == 3
    })
    .await;
    eventually("the sole one is imported", || async { !b.names(Kind::Endpoint).is_empty() }).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(b.names(Kind::Endpoint), ["a-submariner-cable-a-192-0-2-1"]);
    // A restart of theirs, and of ours, removes none of them.
    upstream.stop().await;
    let again = Syncer::spawn(b.clone(), broker.clone(), sync("b", "10.2.0.0/16"));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((b.names(Kind::Endpoint).len(), broker.names(Kind::Endpoint).len()), (1, 3));
    // In the own cluster nothing of it is where upstream's agents look.
    let own = a.list(Kind::Endpoint, LOCAL).await.expect("listed");
    assert_eq!(own.len(), 1);
    again.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_vanished_sibling_is_removed_everywhere_and_a_healthy_one_never() {
    let (store, broker) = (MemoryStore::default(), MemoryStore::default());
    let first = Gateway::start(&store, broker.clone(), &config("a", 1), 1);
    let second = Gateway::start(&store, broker.clone(), &config("a", 2), 2);
    let third = Gateway::start(&store, broker.clone(), &config("a", 3), 3);
    let beats: Vec<_> = [1, 2, 3].map(|number| heartbeat(&store, number)).into();
    first.until("all are there", |seen| seen.siblings.len() == 2).await;
    first.live.send_replace([spec("a", 2).cable_name].into());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(first.members().siblings.len(), 2, "their hearts beat");

    // The second's heart stops, but its cable lives; of the third neither.
    beats[1].abort();
    beats[2].abort();
    drop(third.handle);
    let seen = first.until("the third goes", |seen| seen.siblings.len() == 1).await;
    assert_eq!(names(&seen.siblings), ["a-gw2"]);
    eventually("on the broker too", || async {
        !broker.names(Kind::Endpoint).contains(&further_name(&spec("a", 3).cable_name).expect("a name"))
    })
    .await;
    eventually("and its Gateway", || async { store.names(Kind::Gateway) == ["a-gw1", "a-gw2"] }).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(names(&first.members().siblings), ["a-gw2"]);

    // Whoever was removed by mistake says it again at once.
    let name = further_name(&spec("a", 2).cable_name).expect("a name");
    store.remove(Kind::Endpoint, &name);
    eventually("it is back", || async { store.names(Kind::Endpoint).contains(&name) }).await;
    drop(second.handle);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_changes_nothing_and_is_caught_up_with_within_a_second() {
    let (store, broker) = (MemoryStore::default(), MemoryStore::default());
    let first = Gateway::start(&store, broker.clone(), &config("a", 1), 1);
    let third = Gateway::start(&MemoryStore::default(), broker.clone(), &config("b", 3), 3);
    first.until("all are there", |seen| seen.remote.len() == 1).await;
    for (number, fault) in [Fault::Fails, Fault::Hangs].into_iter().enumerate() {
        let address = format!("203.0.113.{number}");
        broker.set_fault(fault);
        store.set_fault(fault);
        let before = first.members();
        third.endpoint.send_modify(|spec| spec.public_ip.clone_from(&address));
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_eq!(first.members().remote, before.remote);
        assert!(first.members().is_multi);
        broker.set_fault(Fault::None);
        store.set_fault(Fault::None);
        broker.break_watches();
        store.break_watches();
        first
            .until("it is caught up with", |seen| {
                seen.remote.iter().any(|member| member.endpoint.spec.public_ip == address)
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn where_nothing_may_be_told_one_gateway_is_active_and_it_is_said() {
    let (store, broker) = (NoNamespace(MemoryStore::default()), MemoryStore::default());
    let gateway = Gateway::start(&store, broker.clone(), &config("a", 1), 1);
    eventually("it is a condition", || async {
        gateway.conditions.list().iter().any(|condition| condition.name == ONE_GATEWAY)
    })
    .await;
    store.0.take_log();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = store.0.take_log().iter().filter(|line| line.starts_with("create")).count();
    assert!((1..=10).contains(&asked), "{asked} attempts within a minute");
    assert!(!gateway.members().is_multi);
    assert_eq!(broker.names(Kind::Endpoint), Vec::<String>::new(), "nor on the broker");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_does_not_take_a_gateway_is_a_condition_until_it_does_also_while_it_is_away() {
    let (store, broker) = (MemoryStore::default(), MemoryStore::default());
    broker.set_fault(Fault::Forbids);
    let gateway = Gateway::start(&store, broker.clone(), &config("a", 1), 1);
    let is_told = || gateway.conditions.list().iter().any(|condition| condition.name == NOT_ON_BROKER);
    eventually("it is a condition", || async { is_told() }).await;
    broker.set_fault(Fault::Fails);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(is_told(), "nothing better is known");
    broker.set_fault(Fault::None);
    eventually("it is withdrawn", || async { !is_told() }).await;
    assert!(!broker.names(Kind::Endpoint).is_empty());
    // Where all is said, an outage says nothing about it.
    broker.set_fault(Fault::Fails);
    gateway.draining.send_replace(true);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(!is_told());
}

#[tokio::test(start_paused = true)]
async fn with_one_active_gateway_what_was_said_before_is_removed() {
    let (store, broker) = (MemoryStore::default(), MemoryStore::default());
    let before = Gateway::start(&store, broker.clone(), &config("a", 1), 1);
    before.until("it is told", |seen| seen.is_multi && seen.slots.is_some()).await;
    eventually("on the broker", || async { !broker.names(Kind::Endpoint).is_empty() }).await;
    drop(before.handle);
    let one = MembersConfig { is_wanted: false, ..config("a", 1) };
    let after = Gateway::start(&store, broker.clone(), &one, 1);
    eventually("it is gone", || async {
        store.names(Kind::Endpoint).is_empty() && broker.names(Kind::Endpoint).is_empty()
    })
    .await;
    assert!(!after.members().is_multi && after.conditions.list().is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_gateways_share_the_outside_ports_and_never_one_of_them() {
    let (store, broker) = (MemoryStore::default(), MemoryStore::default());
    let first = Gateway::start(&store, broker.clone(), &config("a", 1), 1);
    first.until("one has all", |seen| seen.slots.is_some_and(|slots| slots.held == 0xff)).await;
    let second = Gateway::start(&store, broker.clone(), &config("a", 2), 2);
    let half = |seen: &Members| seen.slots.is_some_and(|slots| slots.held.count_ones() == 4);
    let one = first.until("it gives half away", half).await;
    let other = second.until("to the other", half).await;
    assert_eq!(one.slots.map_or(0, |slots| slots.held) & other.slots.map_or(0, |slots| slots.held), 0);
    let leases = store.list(Kind::Lease, &paths_namespace(LOCAL)).await.expect("listed");
    assert_eq!(leases.len(), 8);
    let published = first.until("its first is published", |seen| !seen.siblings.is_empty()).await;
    assert!(published.siblings[0].endpoint.spec.nat_slot().is_some());
}

#[tokio::test(start_paused = true)]
async fn who_leaves_for_good_leaves_its_shares_and_who_comes_back_finds_them() {
    let (store, broker) = (MemoryStore::default(), MemoryStore::default());
    let half = |seen: &Members| seen.slots.is_some_and(|slots| slots.held.count_ones() == 4);
    let all = |seen: &Members| seen.slots.is_some_and(|slots| slots.held == 0xff);
    let start = |number| Gateway::start(&store, broker.clone(), &config("a", number), number);
    let (first, second) = (start(1), start(2));
    first.until("each has half", half).await;
    let before = second.until("each has half", half).await;
    second.handle.stop(Shutdown::Restart, CONFORMANCE_TIMEOUT).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(half(&first.members()), "it will be back");
    let second = start(2);
    let after = second.until("it has them again", half).await;
    assert_eq!(after.slots.map(|slots| slots.held), before.slots.map(|slots| slots.held));
    second.handle.stop(Shutdown::Removal, CONFORMANCE_TIMEOUT).await;
    first.until("nobody else is there", all).await;
}

#[tokio::test(start_paused = true)]
async fn shares_of_a_host_that_was_taken_out_of_the_cluster_are_free_after_a_minute() {
    let (store, broker) = (MemoryStore::default(), MemoryStore::default());
    let node = |name: &str| Object::new(Kind::Node, ObjectMeta::new("", name));
    let start = |number| Gateway::start(&store, broker.clone(), &config("a", number), number);
    for name in ["a-gw1", "a-gw2"] {
        store.create(node(name)).await.expect("a Node");
    }
    let (first, second) = (start(1), start(2));
    let beats: Vec<_> = [1, 2].map(|number| heartbeat(&store, number)).into();
    let count = |seen: &Members| seen.slots.map_or(0, |slots| slots.held.count_ones());
    for gateway in [&first, &second] {
        gateway.until("each has half", |seen| count(seen) == 4).await;
    }
    drop(second.handle);
    beats[1].abort();
    // Its machine is gone, and another one comes; its Node goes later.
    store.create(node("a-gw3")).await.expect("a Node");
    let third = start(3);
    let _beat = heartbeat(&store, 3);
    for gateway in [&first, &third] {
        gateway.until("what the second keeps is not asked of the first", |seen| count(seen) == 2).await;
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((count(&first.members()), count(&third.members())), (2, 2));
    store.remove(Kind::Node, "a-gw2");
    for gateway in [&first, &third] {
        gateway.until("each has half", |seen| count(seen) == 4).await;
    }
}

fn cluster(id: &str) -> trieste_control::api::ClusterSpec {
    trieste_control::api::ClusterSpec::new(id, &[], &["10.1.0.0/16".parse().expect("a CIDR")])
}

/// A gateway's Gateway object, every five seconds.
fn heartbeat(store: &MemoryStore, number: u8) -> tokio::task::JoinHandle<()> {
    let publisher = Publisher::new(store.clone(), LOCAL, "a", format!("a-gw{number}"));
    let status = move || PublishedStatus {
        version: String::new(),
        ha_status: trieste_control::api::HaStatus::Passive,
        local_endpoint: spec("a", number),
        status_failure: String::new(),
        connections: Vec::new(),
        extra: serde_json::Map::new(),
    };
    tokio::spawn(async move { publisher.keep_gateway(status, std::future::pending()).await })
}

/// A store in whose cluster the namespace of further Endpoints is missing, as in an installation of upstream's operator.
#[derive(Clone)]
struct NoNamespace(MemoryStore);

impl Store for NoNamespace {
    fn list_watch(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl futures::Stream<Item = StoreEvent> + Send + Unpin + use<> {
        self.0.list_watch(kind, namespace)
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        if object.metadata.namespace == paths_namespace(LOCAL) {
            self.0.note(&format!("create {}", object.key()));
            return Err(StoreError::NotFound(object.key()));
        }
        self.0.create(object).await
    }

    async fn update(&self, object: Object) -> Result<Object, StoreError> {
        self.0.update(object).await
    }

    async fn annotate(
        &self,
        object: &Object,
        annotation: &str,
        value: Option<&str>,
    ) -> Result<ObjectMeta, StoreError> {
        self.0.annotate(object, annotation, value).await
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), StoreError> {
        self.0.delete(key).await
    }

    async fn delete_version(&self, object: &Object) -> Result<(), StoreError> {
        self.0.delete_version(object).await
    }

    async fn get(&self, key: &ObjectKey) -> Result<Option<Object>, StoreError> {
        self.0.get(key).await
    }

    async fn list(&self, kind: Kind, namespace: &str) -> Result<Vec<Object>, StoreError> {
        self.0.list(kind, namespace).await
    }
}
