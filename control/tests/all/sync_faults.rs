//! Syncing with stores that hang, refuse, lie late, lose everything, or have other writers. Time is virtual.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use trieste_control::api::Object;
use trieste_control::sync::{BrokerLink, SyncHandle, SyncMode, Syncer, WriteGuard};

use crate::sync_lab::{
    BROKER_NS, Fake, LOCAL_NS, Mood, cluster_key, config, endpoint, endpoint_key, join, labelled, pass,
    publish, settle,
};

const OURS: &str = "10.1.0.0/16";

#[tokio::test(start_paused = true)]
async fn what_agrees_already_is_not_written_by_the_second_leader_either() {
    let (local, broker, sync) = synced().await;
    sync.stop().await;
    let (before_local, before_broker) = (local.counts().writes(), broker.counts().writes());
    for _ in 0..3 {
        let again = spawn(&local, &broker);
        pass(100).await;
        assert_eq!(again.state.borrow().state, BrokerLink::Synced);
        again.stop().await;
    }
    assert_eq!((local.counts().writes(), broker.counts().writes()), (before_local, before_broker));
    assert_eq!(local.counts().reads + broker.counts().reads, 0);
}

#[tokio::test(start_paused = true)]
async fn copies_that_were_edited_or_deleted_by_hand_are_repaired() {
    let (local, broker, _sync) = synced().await;
    let copy = local.find(&endpoint_key(LOCAL_NS, "b")).unwrap();
    local.edit(&copy.key(), |object| object.body["spec"]["private_ip"] = json!("203.0.113.66"));
    local.take(&cluster_key(LOCAL_NS, "b"));
    broker.edit(&endpoint_key(BROKER_NS, "a"), |object| object.body["spec"]["hostname"] = json!("forged"));
    settle().await;
    assert!(local.find(&copy.key()).unwrap().same_content(&copy));
    assert!(local.find(&cluster_key(LOCAL_NS, "b")).is_some());
    let exported = broker.find(&endpoint_key(BROKER_NS, "a")).unwrap();
    assert_eq!(exported.body["spec"]["hostname"], "a-gw1");
}

#[tokio::test(start_paused = true)]
async fn copies_of_a_cluster_that_left_while_nobody_looked_go_at_start_and_nobody_elses() {
    let (local, broker, sync) = synced().await;
    sync.stop().await;
    leave(&broker, "c");
    let _sync = spawn(&local, &broker);
    pass(10).await;
    assert_eq!(names(&local), ["a", "a-cable", "b", "b-cable"]);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_hangs_holds_up_neither_local_repairs_nor_the_end() {
    let (local, broker, sync) = synced().await;
    broker.set_mood(Mood::SilentToWrites);
    local.edit(&endpoint_key(LOCAL_NS, "a"), |object| {
        object.body["spec"]["public_ip"] = json!("198.51.100.1")
    });
    local.take(&endpoint_key(LOCAL_NS, "b"));
    settle().await;
    assert!(local.find(&endpoint_key(LOCAL_NS, "b")).is_some(), "the repair waited for the broker");

    pass(11).await;
    let state = sync.state.borrow().clone();
    assert_eq!(state.state, BrokerLink::Away);
    let error = state.error.unwrap();
    assert!(error.contains("a-cable") && error.contains("not answered within 10s"), "{error}");
    assert!(state.next_try.is_some());

    let before = Instant::now();
    sync.stop().await;
    assert!(before.elapsed() <= Duration::from_secs(2), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_gives_no_list_at_start_is_away_and_found_when_it_does() {
    let (local, broker) = (Fake::default(), Fake::default());
    publish(&local, "a", OURS);
    broker.set_mood(Mood::Silent);
    let sync = spawn(&local, &broker);
    pass(11).await;
    let state = sync.state.borrow().clone();
    assert_eq!(state.state, BrokerLink::Away);
    assert!(state.error.unwrap().contains("no list within 10s") && state.next_try.is_some());
    broker.set_mood(Mood::Well);
    pass(30).await;
    assert_eq!(sync.state.borrow().state, BrokerLink::Synced);
    assert_eq!(names(&broker), ["a", "a-cable"]);
}

#[tokio::test(start_paused = true)]
async fn a_local_store_that_hangs_is_said_to_and_nothing_is_removed_from_the_broker() {
    let (local, broker, sync) = synced().await;
    sync.stop().await;
    local.set_mood(Mood::Silent);
    let sync = spawn(&local, &broker);
    pass(100).await;
    let error = sync.state.borrow().error.clone().unwrap();
    assert!(error.contains("local store: there was no list"), "{error}");
    assert_eq!(names(&broker), ["a", "a-cable", "b", "b-cable", "c", "c-cable"]);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_forbids_writing_is_shown_and_others_news_still_arrive() {
    let (local, broker, sync) = synced().await;
    broker.set_mood(Mood::Forbidding);
    let watches = broker.counts().watches;
    local.edit(&endpoint_key(LOCAL_NS, "a"), |object| {
        object.body["spec"]["public_ip"] = json!("198.51.100.1")
    });
    pass(600).await;
    let error = sync.state.borrow().error.clone().unwrap();
    assert!(error.contains("may not write"), "{error}");
    broker.edit(&endpoint_key(BROKER_NS, "b"), |object| {
        object.body["spec"]["public_ip"] = json!("198.51.100.2")
    });
    settle().await;
    let copy = local.find(&endpoint_key(LOCAL_NS, "b")).unwrap();
    assert_eq!(copy.body["spec"]["public_ip"], "198.51.100.2");
    assert_eq!(broker.counts().watches, watches, "a refused write is no reason to list again");
    let tries = broker.counts().updates;
    assert!((40..=140).contains(&tries), "{tries} tries in ten minutes");

    broker.set_mood(Mood::Well);
    pass(11).await;
    assert_eq!(sync.state.borrow().state, BrokerLink::Synced);
    let exported = broker.find(&endpoint_key(BROKER_NS, "a")).unwrap();
    assert_eq!(exported.body["spec"]["public_ip"], "198.51.100.1");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_the_store_does_not_take_is_shown_and_nothing_waits_for_it() {
    let (local, broker) = (Fake::default(), Fake::default());
    publish(&local, "a", OURS);
    join(&broker, "b", "10.2.0.0/16");
    join(&broker, "c", "10.3.0.0/16");
    local.set_mood(Mood::Rejecting("b-cable".to_owned()));
    let sync = spawn(&local, &broker);
    pass(50).await;
    assert_eq!(names(&local), ["a", "a-cable", "b", "c", "c-cable"]);
    let refused = sync.refused.borrow().clone();
    assert_eq!((refused.len(), refused[0].cluster.as_str()), (1, "b"));
    assert!(refused[0].reason.contains("local store does not take it"), "{}", refused[0].reason);
    assert_eq!(local.counts().creates, 4, "it was tried again without a reason");
    local.set_mood(Mood::Well);
    pass(61).await;
    assert!(local.find(&endpoint_key(LOCAL_NS, "b")).is_some() && sync.refused.borrow().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_the_broker_denies_us_is_shown_and_the_broker_is_not_called_away() {
    let (local, broker) = (Fake::default(), Fake::default());
    publish(&local, "a", OURS);
    join(&broker, "b", "10.2.0.0/16");
    broker.set_mood(Mood::Denying("a-cable".to_owned()));
    let sync = spawn(&local, &broker);
    pass(50).await;
    assert_eq!(sync.state.borrow().state, BrokerLink::Synced);
    assert!(names(&broker).contains(&"a".to_owned()) && names(&local).contains(&"b-cable".to_owned()));
    let refused = sync.refused.borrow().clone();
    assert_eq!(
        (refused.len(), refused[0].cluster.as_str(), refused[0].endpoint.as_deref()),
        (1, "a", Some("a-cable"))
    );
    assert!(refused[0].reason.ends_with("a policy denied request"), "{}", refused[0].reason);
    broker.set_mood(Mood::Well);
    pass(61).await;
    assert!(names(&broker).contains(&"a-cable".to_owned()) && sync.refused.borrow().is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_may_not_write_any_more_writes_nothing_and_ends() {
    let (local, broker) = (Fake::default(), Fake::default());
    publish(&local, "a", OURS);
    join(&broker, "b", "10.2.0.0/16");
    let leads = Arc::new(AtomicBool::new(true));
    let mut settings = config("a", OURS);
    let asked = Arc::clone(&leads);
    settings.guard = WriteGuard::new(move || asked.load(Ordering::Relaxed));
    let sync = Syncer::spawn(local.clone(), broker.clone(), settings.clone());
    settle().await;
    leads.store(false, Ordering::Relaxed);
    let before = (local.counts(), broker.counts());
    // The new leader has another endpoint; the old one would take it for stale, or push its own.
    broker.put(labelled(endpoint(BROKER_NS, "a-new", "10.1.0.0/16"), "a"));
    local.take(&endpoint_key(LOCAL_NS, "a"));
    pass(100).await;
    assert_eq!((local.counts(), broker.counts()), before);
    assert!(sync.has_ended());
    assert!(sync.state.borrow().error.as_ref().unwrap().contains("does not lead any more"));

    leads.store(true, Ordering::Relaxed);
    let again = Syncer::spawn(local.clone(), broker.clone(), settings);
    pass(5).await;
    assert_eq!(again.state.borrow().state, BrokerLink::Synced);
    assert_eq!(names(&broker), ["a", "b", "b-cable"]);
}

#[tokio::test(start_paused = true)]
async fn a_follower_takes_in_the_others_and_writes_nothing_to_the_broker() {
    let (local, broker) = (Fake::default(), Fake::default());
    publish(&local, "a", OURS);
    join(&broker, "b", "10.2.0.0/16");
    broker.put(labelled(endpoint(BROKER_NS, "a-leaders", OURS), "a"));
    let mut settings = config("a", OURS);
    settings.mode = SyncMode::FollowOnly;
    let _sync = Syncer::spawn(local.clone(), broker.clone(), settings);
    pass(100).await;
    assert_eq!(names(&local), ["a", "a-cable", "b", "b-cable"]);
    assert_eq!(broker.counts().writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_broker_namespace_that_is_deleted_takes_nobody_along() {
    let (local, broker, sync) = synced().await;
    // As a namespace goes: object by object, ours too, and nothing can be created in it.
    broker.set_mood(Mood::Forbidding);
    for object in broker.objects() {
        broker.take(&object.key());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    pass(600).await;
    assert_eq!(names(&local), ["a", "a-cable", "b", "b-cable", "c", "c-cable"]);
    assert_eq!(sync.state.borrow().state, BrokerLink::Away);

    // It is made anew, and only one of the others comes back within the grace.
    broker.set_mood(Mood::Well);
    pass(11).await;
    assert_eq!(names(&broker), ["a", "a-cable"]);
    pass(40).await;
    assert_eq!(names(&local), ["a", "a-cable", "b", "b-cable", "c", "c-cable"]);
    join(&broker, "b", "10.2.0.0/16");
    pass(10).await;
    assert_eq!(names(&local), ["a", "a-cable", "b", "b-cable"]);
}

#[tokio::test(start_paused = true)]
async fn an_emptied_broker_that_keeps_our_objects_is_believed_after_a_minute() {
    let (local, broker, _sync) = synced().await;
    leave(&broker, "b");
    leave(&broker, "c");
    pass(55).await;
    assert_eq!(names(&local), ["a", "a-cable", "b", "b-cable", "c", "c-cable"]);
    pass(10).await;
    assert_eq!(names(&local), ["a", "a-cable"]);
}

#[tokio::test(start_paused = true)]
async fn an_emptied_broker_that_answers_after_its_news_is_believed_after_a_minute() {
    let (local, broker, _sync) = synced().await;
    leave(&broker, "b");
    leave(&broker, "c");
    pass(70).await;
    for time in [0, 1, 100, 3_000].map(Duration::from_millis) {
        broker.set_mood(Mood::SlowToAnswer(time));
        join(&broker, "b", "10.2.0.0/16");
        pass(20).await;
        assert_eq!(names(&local).len(), 4, "{time:?}");
        // It has lost ours too, and has yet to show that it keeps what it is given.
        for object in broker.objects() {
            broker.take(&object.key());
        }
        pass(55).await;
        assert_eq!(names(&local).len(), 4, "{time:?}");
        pass(25).await;
        assert_eq!(names(&local), ["a", "a-cable"], "{time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gap_in_the_watch_hides_nothing() {
    let (local, broker, sync) = synced().await;
    broker.break_watches();
    leave(&broker, "c");
    broker.edit(&endpoint_key(BROKER_NS, "b"), |object| {
        object.body["spec"]["public_ip"] = json!("198.51.100.2")
    });
    join(&broker, "d", "10.4.0.0/16");
    pass(10).await;
    assert_eq!(names(&local), ["a", "a-cable", "b", "b-cable", "d", "d-cable"]);
    assert_eq!(local.find(&endpoint_key(LOCAL_NS, "b")).unwrap().body["spec"]["public_ip"], "198.51.100.2");
    assert_eq!(sync.state.borrow().state, BrokerLink::Synced);
}

#[tokio::test(start_paused = true)]
async fn a_late_delete_does_not_kill_a_newer_object_of_the_same_name() {
    let (local, broker, _sync) = synced().await;
    // Ours on the broker is stale at the moment when somebody makes it anew; we hear of that later.
    broker.delay_events();
    let key = endpoint_key(BROKER_NS, "a");
    let old = broker.take(&key).unwrap();
    let newer = broker.put(Object { metadata: old.metadata.clone(), ..old });
    let deletes = broker.counts().deletes;
    local.take(&endpoint_key(LOCAL_NS, "a"));
    pass(4).await;
    assert!(broker.counts().deletes > deletes, "it was not even tried");
    assert_eq!(broker.find(&key).unwrap().metadata.uid, newer.metadata.uid, "the newer one is gone");

    // The gateway is back before the news: nothing is lost in either order.
    local.put(endpoint(LOCAL_NS, "a", OURS));
    broker.release_events();
    pass(5).await;
    assert!(broker.find(&key).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_foreign_object_that_is_deleted_and_made_anew_is_imported_in_either_order_of_news() {
    let (local, broker, _sync) = synced().await;
    let key = endpoint_key(BROKER_NS, "b");
    for delayed in [false, true] {
        if delayed {
            local.delay_events();
        }
        let mut moved = broker.take(&key).unwrap();
        moved.body["spec"]["public_ip"] = json!(format!("198.51.100.{}", 3 + u8::from(delayed)));
        settle().await;
        let made = broker.put(moved);
        settle().await;
        local.release_events();
        pass(5).await;
        let copy = local.find(&endpoint_key(LOCAL_NS, "b")).unwrap();
        assert_eq!(copy.body, made.body);
    }
    assert_eq!(local.counts().deletes, 0, "an endpoint that is replaced at once is never missing");
}

#[tokio::test(start_paused = true)]
async fn a_replaced_endpoint_of_another_name_goes_when_its_successor_is_there() {
    let (local, broker, _sync) = synced().await;
    broker.take(&endpoint_key(BROKER_NS, "b"));
    settle().await;
    let mut successor = labelled(endpoint(BROKER_NS, "b", "10.2.0.0/16"), "b");
    successor.metadata.name = "b-cable-2".to_owned();
    broker.put(successor);
    settle().await;
    assert_eq!(names(&local), ["a", "a-cable", "b", "b-cable-2", "c", "c-cable"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_prunes_fields_is_written_to_once() {
    let (local, broker) = (Fake::default(), Fake::default());
    publish(&local, "a", OURS);
    local.edit(&endpoint_key(LOCAL_NS, "a"), |object| object.body["spec"]["fromTheFuture"] = json!(1));
    broker.set_mood(Mood::Pruning("fromTheFuture".to_owned()));
    let sync = spawn(&local, &broker);
    pass(600).await;
    assert_eq!(broker.counts().writes(), 2);
    assert_eq!(sync.state.borrow().error, None);
    local.edit(&endpoint_key(LOCAL_NS, "a"), |object| {
        object.body["spec"]["public_ip"] = json!("198.51.100.1")
    });
    pass(600).await;
    assert_eq!(broker.counts().writes(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_is_kept_up_with() {
    let (local, broker) = (Fake::default(), Fake::default());
    publish(&local, "a", OURS);
    for index in 0..40 {
        join(&broker, &format!("c{index}"), &format!("10.{}.0.0/16", 100 + index));
    }
    local.set_mood(Mood::Slow(Duration::from_secs(5)));
    let sync = spawn(&local, &broker);
    pass(51).await;
    assert_eq!(names(&local).len(), 82, "80 writes of five seconds, eight at a time");
    assert_eq!(sync.state.borrow().state, BrokerLink::Synced);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_publishes_after_it_syncs_keeps_its_clusters_age() {
    let (_, broker, sync) = synced().await;
    sync.stop().await;
    let before = broker.find(&cluster_key(BROKER_NS, "a")).unwrap();
    let empty = Fake::default();
    let _sync = spawn(&empty, &broker);
    pass(1).await;
    publish(&empty, "a", OURS);
    pass(10).await;
    assert_eq!(broker.find(&cluster_key(BROKER_NS, "a")).unwrap(), before);

    // A take-over is no departure: the old endpoint goes with its successor's arrival.
    let mut successor = endpoint(LOCAL_NS, "a", OURS);
    successor.metadata.name = "a-cable-2".to_owned();
    empty.take(&endpoint_key(LOCAL_NS, "a"));
    settle().await;
    empty.put(successor);
    settle().await;
    assert_eq!(names(&broker), ["a", "a-cable-2", "b", "b-cable", "c", "c-cable"]);
}

async fn synced() -> (Fake, Fake, SyncHandle) {
    let (local, broker) = (Fake::default(), Fake::default());
    publish(&local, "a", OURS);
    join(&broker, "b", "10.2.0.0/16");
    join(&broker, "c", "10.3.0.0/16");
    let sync = spawn(&local, &broker);
    settle().await;
    assert_eq!(sync.state.borrow().state, BrokerLink::Synced);
    assert_eq!((names(&local).len(), names(&broker).len()), (6, 6));
    (local, broker, sync)
}

fn spawn(local: &Fake, broker: &Fake) -> SyncHandle {
    Syncer::spawn(local.clone(), broker.clone(), config("a", OURS))
}

fn leave(broker: &Fake, id: &str) {
    broker.take(&endpoint_key(BROKER_NS, id));
    broker.take(&cluster_key(BROKER_NS, id));
}

fn names(store: &Fake) -> Vec<String> {
    let mut names: Vec<String> = store.objects().into_iter().map(|object| object.metadata.name).collect();
    names.sort();
    names
}
