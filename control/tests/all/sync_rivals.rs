//! Other agents that write the same objects: upstream's, in our cluster and elsewhere, and a cluster with our ID. What
//! they and we write must come to an end. Time is virtual.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use trieste_control::api::{Object, ObjectKey, label};
use trieste_control::sync::{BrokerLink, OwnRefusal, SyncHandle, Syncer};

use crate::sync_lab::{
    BROKER_NS, Fake, LOCAL_NS, config, endpoint, endpoint_key, join, labelled, pass, publish, settle,
};

const OURS: &str = "10.1.0.0/16";
const TERM: &str = "trieste.io/term";

#[tokio::test(start_paused = true)]
async fn annotations_of_ours_travel_and_are_not_put_back_where_an_upstream_agent_drops_them() {
    let (local, broker) = (Fake::default(), Fake::default());
    publish(&local, "a", OURS);
    local.edit(&endpoint_key(LOCAL_NS, "a"), |own| annotate(own, TERM, "7"));
    let _sync = spawn(&local, &broker, "a", OURS);
    settle().await;
    let exported = endpoint_key(BROKER_NS, "a");
    assert_eq!(broker.find(&exported).unwrap().metadata.annotations[TERM], "7");

    let before = broker.counts().writes();
    let mut dropped = 0;
    for _ in 0..600 {
        if broker.find(&exported).unwrap().metadata.annotations.contains_key(TERM) {
            broker.edit(&exported, |copy| drop(copy.metadata.annotations.remove(TERM)));
            dropped += 1;
        }
        pass(1).await;
    }
    assert_eq!((broker.counts().writes() - before, dropped), (0, 1));

    // What else we have to say brings them along again.
    local.edit(&endpoint_key(LOCAL_NS, "a"), |own| own.body["spec"]["public_ip"] = json!("198.51.100.1"));
    settle().await;
    assert_eq!(broker.find(&exported).unwrap().metadata.annotations[TERM], "7");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_agent_in_the_same_cluster_and_we_write_each_object_once() {
    let (local, broker) = (Fake::default(), Fake::default());
    publish(&local, "a", OURS);
    local.edit(&endpoint_key(LOCAL_NS, "a"), |own| annotate(own, TERM, "7"));
    join(&broker, "b", "10.2.0.0/16");
    broker.edit(&endpoint_key(BROKER_NS, "b"), |theirs| annotate(theirs, "note", "theirs"));
    let sync = spawn(&local, &broker, "a", OURS);
    let mut upstream = Upstream::default();
    for _ in 0..600 {
        upstream.run(&local, &broker);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(upstream.writes, 4, "upstream was first with all four copies, and content with them");
    assert!(
        local.counts().writes() + broker.counts().writes() <= 4,
        "{:?} {:?}",
        local.counts(),
        broker.counts()
    );
    let settled = (local.counts(), broker.counts(), upstream.writes);

    broker.edit(&endpoint_key(BROKER_NS, "b"), |theirs| {
        theirs.body["spec"]["public_ip"] = json!("198.51.100.2")
    });
    local.edit(&endpoint_key(LOCAL_NS, "a"), |own| own.body["spec"]["public_ip"] = json!("198.51.100.1"));
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        upstream.run(&local, &broker);
    }
    let news =
        (local.counts().writes() - settled.0.writes()) + (broker.counts().writes() - settled.1.writes());
    assert!(news <= 2, "{news} writes for two changes");
    // It drops the annotation once more, with the change that it finds.
    assert!(upstream.writes - settled.2 <= 2, "{} writes of upstream", upstream.writes - settled.2);
    assert_eq!(sync.state.borrow().error, None);
}

#[tokio::test(start_paused = true)]
async fn somebody_who_always_undoes_our_write_gets_five_corrections_a_minute_and_is_named() {
    let (local, broker) = (Fake::default(), Fake::default());
    publish(&local, "a", OURS);
    join(&broker, "b", "10.2.0.0/16");
    let sync = spawn(&local, &broker, "a", OURS);
    settle().await;
    let before = (local.counts().writes(), broker.counts().writes());
    for round in 0..600 {
        for (store, key) in [(&local, endpoint_key(LOCAL_NS, "b")), (&broker, endpoint_key(BROKER_NS, "a"))] {
            store.edit(&key, |copy| copy.body["spec"]["hostname"] = json!(format!("rival-{round}")));
        }
        pass(1).await;
    }
    let writes = (local.counts().writes() - before.0, broker.counts().writes() - before.1);
    assert!((40..=61).contains(&writes.0) && (40..=61).contains(&writes.1), "{writes:?} in ten minutes");
    let state = sync.state.borrow().clone();
    let error = state.error.unwrap();
    assert!(
        state.state == BrokerLink::Synced && error.contains("keeps being changed by somebody else"),
        "{error}"
    );
    pass(61).await;
    assert_eq!(sync.state.borrow().error, None, "the rival is gone");
    assert_eq!(local.find(&endpoint_key(LOCAL_NS, "b")).unwrap().body["spec"]["hostname"], "b-gw1");
}

#[tokio::test(start_paused = true)]
async fn an_object_under_our_id_that_always_comes_back_is_removed_five_times_a_minute_and_named() {
    let (local, broker) = (Fake::default(), Fake::default());
    publish(&local, "a", OURS);
    let sync = spawn(&local, &broker, "a", OURS);
    settle().await;
    for _ in 0..600 {
        let mut forged = labelled(endpoint(BROKER_NS, "a", "10.66.0.0/16"), "a");
        forged.metadata.name = "a-forged".to_owned();
        broker.put(forged);
        pass(1).await;
    }
    let deletes = broker.counts().deletes;
    assert!((40..=61).contains(&deletes), "{deletes} in ten minutes");
    let error = sync.state.borrow().error.clone().unwrap();
    assert!(error.contains("a-forged") && error.contains("does another cluster use our ID?"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_later_of_two_overlapping_clusters_knows_it_and_each_side_says_who_was_first() {
    let broker = Fake::default();
    let stores = [Fake::default(), Fake::default(), Fake::default()];
    let mut syncs = Vec::new();
    for (second, (store, (id, subnet))) in
        (100..).zip(stores.iter().zip([("z-old", OURS), ("a-late", "10.1.5.0/24"), ("m", "10.7.0.0/16")]))
    {
        broker.set_clock(second);
        publish(store, id, subnet);
        syncs.push(spawn(store, &broker, id, subnet));
        settle().await;
    }
    let own: Vec<Option<OwnRefusal>> = syncs.iter().map(|sync| sync.own_refusal.borrow().clone()).collect();
    assert_eq!((&own[0], &own[2]), (&None, &None));
    let text = own[1].as_ref().unwrap().to_string();
    assert!(
        text.starts_with(
            "cluster z-old was there first with 10.1.0.0/16, which overlaps our 10.1.5.0/24; other members refuse ours"
        ),
        "{text}"
    );
    let reasons: Vec<String> = syncs
        .iter()
        .map(|sync| sync.refused.borrow().iter().map(|refused| refused.reason.clone()).collect())
        .collect();
    assert_eq!(reasons[0], "subnet 10.1.5.0/24 overlaps our own 10.1.0.0/16");
    assert_eq!(
        reasons[1],
        "subnet 10.1.0.0/16 overlaps our own 10.1.5.0/24; cluster z-old was there first, so the other members refuse ours"
    );
    assert_eq!(reasons[2], "subnet 10.1.5.0/24 overlaps 10.1.0.0/16 of cluster z-old, which was there first");

    // The older one leaves, and what was refused is connected to.
    syncs.remove(0).stop().await;
    for object in broker.objects() {
        if object.metadata.origin() == Some("z-old") {
            broker.take(&object.key());
        }
    }
    settle().await;
    assert_eq!(*syncs[0].own_refusal.borrow(), None);
    assert!(stores[2].find(&endpoint_key(LOCAL_NS, "a-late")).is_some());
    assert!(stores[2].find(&endpoint_key(LOCAL_NS, "z-old")).is_none(), "nobody has both at once");
}

/// Upstream's syncer as it was seen: whole objects, compared by content, without annotations that it does not know. It
/// works when it is run, as a queue with a rate limit does.
#[derive(Default)]
struct Upstream {
    writes: usize,
    seen: BTreeMap<ObjectKey, Object>,
}

impl Upstream {
    fn run(&mut self, local: &Fake, broker: &Fake) {
        for own in local.objects().into_iter().filter(|object| object.metadata.origin().is_none()) {
            self.copy(&own, BROKER_NS, broker);
        }
        for theirs in broker.objects() {
            if theirs.metadata.origin().is_some_and(|origin| origin != "a") {
                self.copy(&theirs, LOCAL_NS, local);
            }
        }
    }

    fn copy(&mut self, source: &Object, namespace: &str, to: &Fake) {
        let origin = source.metadata.origin().unwrap_or("a").to_owned();
        let mut wanted = labelled(source.clone(), &origin);
        wanted.metadata.namespace = namespace.to_owned();
        wanted.metadata.annotations.retain(|key, _| !key.starts_with("trieste.io/"));
        let key = wanted.key();
        if to.find(&key).is_some_and(|found| found.same_content(&wanted)) {
            return;
        }
        self.seen.insert(key, to.put(wanted));
        self.writes += 1;
    }
}

fn annotate(object: &mut Object, key: &str, value: &str) {
    object.metadata.annotations.insert(key.to_owned(), value.to_owned());
    assert!(!object.metadata.annotations.contains_key(label::CLUSTER_ID));
}

fn spawn(local: &Fake, broker: &Fake, id: &str, subnet: &str) -> SyncHandle {
    Syncer::spawn(local.clone(), broker.clone(), config(id, subnet))
}
