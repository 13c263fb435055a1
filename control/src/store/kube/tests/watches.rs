//! Following objects while the server forgets, fails, ends watches, and falls silent.

use std::task::{Context, Waker};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use tokio::time::{Instant, timeout};

use super::fake::{Reply, Step, cluster, event, list, refusal, store};
use crate::api::{Kind, ObjectKey};
use crate::store::kube::Verb;
use crate::store::{Store, StoreEvent};

#[tokio::test(start_paused = true)]
async fn a_version_that_is_gone_is_listed_again() {
    // Both ways in which servers say it: as an event of the watch, and as an answer to its start.
    let (store, log) = store(|asked| match (asked.is_watch, asked.nth) {
        (false, 0) => list("10", &[("b", "9"), ("a", "8")]),
        (true, 0) => Reply::Watch(vec![event("ERROR", refusal(410, "Expired", "too old"))]),
        (false, 1) => list("20", &[("c", "15")]),
        (true, 1) => Reply::Json(410, refusal(410, "Expired", "too old")),
        (false, _) => list("30", &[]),
        (true, _) => Reply::Watch(vec![Step::Silence]),
    });
    let mut events = store.list_watch(Kind::Cluster, "ns");

    assert_eq!(listed(&mut events).await, ["a", "b"]);
    assert_eq!(listed(&mut events).await, ["c"]);
    assert!(listed(&mut events).await.is_empty());
    assert!(log.watches()[0].query.contains("resourceVersion=10"));
    assert_eq!(log.others().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_cut_or_fails_goes_on_from_the_last_version() {
    let (store, log) = store(|asked| match (asked.is_watch, asked.nth) {
        (false, _) => list("10", &[("a", "8")]),
        (true, 0) => Reply::Watch(vec![event("MODIFIED", cluster("a", "11")), Step::Cut]),
        (true, 1) => {
            let error = event("ERROR", refusal(500, "InternalError", "etcd is away"));
            Reply::Watch(vec![event("BOOKMARK", cluster("", "15")), error])
        }
        (true, 2) => Reply::Watch(vec![event("DELETED", cluster("a", "16"))]),
        (true, _) => Reply::Watch(vec![Step::Silence]),
    });
    let mut events = store.list_watch(Kind::Cluster, "ns");

    assert_eq!(listed(&mut events).await, ["a"]);
    let changed = events.next().await.unwrap();
    assert!(matches!(&changed, StoreEvent::Applied(object) if object.metadata.name == "a"), "{changed:?}");
    let deleted = events.next().await.unwrap();
    assert!(matches!(&deleted, StoreEvent::Deleted(object) if object.metadata.name == "a"), "{deleted:?}");
    let quiet = timeout(Duration::from_secs(60), events.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    let versions: Vec<bool> = ["=10", "=11", "=15", "=16"]
        .iter()
        .zip(log.watches())
        .map(|(version, asked)| asked.query.contains(&format!("resourceVersion{version}")))
        .collect();
    assert_eq!(versions, [true; 4], "{:?}", log.watches());
    assert_eq!(store.requests().of(Verb::List), 1);
}

/// A cluster of this age with a body of so many letters, on the way to who follows it.
fn heavy(name: &str, letters: usize, second: usize) -> serde_json::Value {
    let mut cluster = cluster(name, "1");
    cluster["metadata"]["creationTimestamp"] = format!("2024-01-01T00:00:{second:02}Z").into();
    cluster["metadata"]["labels"] = serde_json::json!({"submariner-io/clusterID": "heavy"});
    cluster["spec"] = "x".repeat(letters).into();
    cluster
}

#[tokio::test(start_paused = true)]
async fn pages_that_are_too_long_are_asked_for_in_smaller_ones_and_bodies_that_are_too_large_are_not_kept() {
    let (store, log) = store(|asked| {
        let limit: usize = asked
            .query
            .split("limit=")
            .nth(1)
            .map_or(0, |rest| rest.split('&').next().unwrap().parse().unwrap());
        match (asked.is_watch, limit) {
            // Objects of 256 KiB: a page of 250 has 64 MiB.
            (false, _) => {
                let items: Vec<_> =
                    (0..limit.min(60)).map(|nth| heavy(&format!("c{nth:02}"), 256 << 10, nth)).collect();
                Reply::Json(200, serde_json::json!({"metadata": {"resourceVersion": "10"}, "items": items}))
            }
            (true, _) => Reply::Watch(vec![Step::Silence]),
        }
    });
    let mut events = store.list_watch(Kind::Cluster, "ns");

    let StoreEvent::Listed(objects) = events.next().await.unwrap() else { panic!("no list") };

    assert_eq!(objects.len(), 15);
    for object in objects {
        let reason = object.withheld.as_deref().unwrap();
        assert!(reason.contains("field `spec`: is too large"), "{reason}");
        assert!(object.body.is_empty() && object.metadata.origin() == Some("heavy"), "{object:?}");
    }
    let limits: Vec<_> = log.others().iter().map(|asked| asked.query.contains("limit=15")).collect();
    assert_eq!(limits, [false, false, true], "{:?}", log.others());
}

#[tokio::test(start_paused = true)]
async fn what_a_member_has_beyond_its_quota_is_withheld_until_there_is_space() {
    let bodies = |names: std::ops::Range<usize>| -> Vec<_> {
        names.map(|nth| heavy(&format!("c{nth:02}"), 24 << 10, nth)).collect()
    };
    let (store, log) = store(move |asked| match (asked.is_watch, asked.nth) {
        (false, 0) => Reply::Json(
            200,
            serde_json::json!({"metadata": {"resourceVersion": "10"}, "items": bodies(0..50)}),
        ),
        (false, _) => Reply::Json(
            200,
            serde_json::json!({"metadata": {"resourceVersion": "12"}, "items": bodies(1..50)}),
        ),
        (true, 0) => Reply::Watch(vec![
            event("ADDED", heavy("c50", 24 << 10, 50)),
            event("DELETED", heavy("c00", 24 << 10, 0)),
            Step::Silence,
        ]),
        (true, _) => Reply::Watch(vec![Step::Silence]),
    });
    let mut events = store.list_watch(Kind::Cluster, "ns");
    let withheld = |event: StoreEvent| -> Vec<String> {
        let StoreEvent::Listed(objects) = event else { panic!("{event:?}") };
        let over = objects.into_iter().filter(|object| object.withheld.is_some());
        over.map(|object| object.metadata.name).collect()
    };

    // A mebibyte has 42 of them. The youngest are over it.
    let first = withheld(events.next().await.unwrap());
    assert_eq!(first, ["c42", "c43", "c44", "c45", "c46", "c47", "c48", "c49"]);
    let added = events.next().await.unwrap();
    assert!(matches!(&added, StoreEvent::Applied(object) if object.withheld.is_some()), "{added:?}");
    let deleted = events.next().await.unwrap();
    assert!(matches!(&deleted, StoreEvent::Deleted(object) if object.metadata.name == "c00"), "{deleted:?}");
    assert_eq!(withheld(events.next().await.unwrap()), ["c43", "c44", "c45", "c46", "c47", "c48", "c49"]);
    assert_eq!(log.others().len(), 2, "{:?}", log.others());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_is_asked_ever_less_and_blamed_once() {
    let (store, log) = store(|asked| match (asked.is_watch, asked.at.as_secs()) {
        (false, 0..300) => Reply::Json(500, refusal(500, "InternalError", "etcd is away")),
        (false, _) => list("10", &[]),
        (true, _) => Reply::Watch(vec![Step::Silence]),
    });
    let mut events = store.list_watch(Kind::Cluster, "ns");

    let first = events.next().await.unwrap();
    assert!(
        matches!(&first, StoreEvent::Unavailable(error) if error.to_string().contains("etcd is away")),
        "{first:?}"
    );
    assert!(listed(&mut events).await.is_empty(), "the same reason was said twice");
    let asked = log.others();
    assert!((12..=30).contains(&asked.len()), "{} requests in 300 s", asked.len());
    assert!(asked.windows(2).all(|two| two[1].at - two[0].at >= Duration::from_millis(400)), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_every_watch_at_once_is_not_asked_in_a_loop() {
    let (store, log) = store(|asked| match asked.is_watch {
        false => list("10", &[]),
        true => Reply::Watch(vec![]),
    });
    let mut events = store.list_watch(Kind::Cluster, "ns");

    assert!(listed(&mut events).await.is_empty());
    let quiet = timeout(Duration::from_secs(300), events.next()).await;

    assert!(quiet.is_err(), "{quiet:?}");
    assert!(log.all().len() < 30, "{} requests in 300 s", log.all().len());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_gone_silent_is_noticed() {
    let (store, _log) = store(|asked| match (asked.is_watch, asked.nth) {
        (false, 0) => list("10", &[]),
        (true, 0) => Reply::Watch(vec![Step::Silence]),
        _ => Reply::Never,
    });
    let mut events = store.list_watch(Kind::Cluster, "ns");
    let mut others = store.list_watch(Kind::Cluster, "other");
    let start = Instant::now();

    assert!(listed(&mut events).await.is_empty());
    let event = events.next().await.unwrap();

    assert!(
        matches!(&event, StoreEvent::Unavailable(error) if error.to_string().contains("gone silent")),
        "{event:?}"
    );
    assert!(start.elapsed() < Duration::from_secs(30), "noticed after {:?}", start.elapsed());
    let other = others.next().await.unwrap();
    assert!(matches!(other, StoreEvent::Unavailable(_)), "{other:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_others_again_is_asked_at_once() {
    const BACK: Duration = Duration::from_secs(300);
    let (store, _log) = store(|asked| match (asked.is_watch, asked.at < BACK) {
        (_, true) => Reply::Never,
        (true, _) => Reply::Watch(vec![Step::Silence]),
        (false, _) => list("10", &[]),
    });
    let start = Instant::now();
    let others = async {
        loop {
            let _ = store.list(Kind::Endpoint, "ns").await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    let follow = async {
        let mut events = store.list_watch(Kind::Cluster, "ns");
        assert!(matches!(events.next().await.unwrap(), StoreEvent::Unavailable(_)));
        assert!(listed(&mut events).await.is_empty());
    };

    let _ = futures::future::select(std::pin::pin!(others), std::pin::pin!(follow)).await;

    let late = start.elapsed() - BACK;
    assert!(late < Duration::from_secs(14), "listed {late:?} after it was back");
}

#[tokio::test(start_paused = true)]
async fn idle_watches_cost_one_small_request_per_quiet_period_and_none_beside_other_traffic() {
    let (store, _log) = store(|asked| match (asked.is_watch, asked.path.as_str()) {
        (true, _) => Reply::Watch(vec![Step::Silence]),
        (false, "/version") => Reply::Json(403, refusal(403, "Forbidden", "anonymous")),
        (false, _) => list("10", &[]),
    });
    let mut watches: Vec<_> =
        ["a", "b", "c", "d"].map(|namespace| store.list_watch(Kind::Cluster, namespace)).into();
    for events in &mut watches {
        assert!(listed(events).await.is_empty());
    }
    let mut events = futures::stream::select_all(watches);
    let opening = timeout(Duration::from_secs(1), events.next()).await;
    assert!(opening.is_err(), "{opening:?}");
    let before = store.requests();
    let quiet = timeout(Duration::from_secs(240), events.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    let probes = store.requests().of(Verb::Probe);
    assert!((10..=17).contains(&probes), "{probes} probes in 240 s");
    assert_eq!(store.requests().total() - before.total(), probes, "something else was asked");

    let busy = async {
        for _ in 0..5 {
            store.list(Kind::Endpoint, "ns").await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    };
    let _ = futures::future::select(std::pin::pin!(busy), events.next()).await;
    assert_eq!(
        store.requests().of(Verb::Probe),
        probes,
        "a server that answers was asked for a sign of life"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_asks_for_one() {
    let (store, log) = store(|asked| match asked.is_watch {
        false => list("10", &[("a", "9")]),
        true => Reply::Watch(vec![Step::Silence]),
    });
    let mut events = store.watch_one(&ObjectKey::new(Kind::Cluster, "ns", "a"));

    assert_eq!(listed(&mut events).await, ["a"]);
    let _ = timeout(Duration::from_secs(1), events.next()).await;
    assert!(
        log.all().iter().all(|asked| asked.query.contains("fieldSelector=metadata.name%3Da")),
        "{:?}",
        log.all()
    );

    let impossible = store.watch_one(&ObjectKey::new(Kind::Cluster, "ns", "")).next().await.unwrap();
    assert!(matches!(impossible, StoreEvent::Unavailable(_)), "{impossible:?}");
    let impossible = store.list_watch(Kind::Cluster, "../x").next().await.unwrap();
    assert!(matches!(impossible, StoreEvent::Unavailable(_)), "{impossible:?}");
    assert_eq!(log.all().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_label_asks_for_what_has_it() {
    let (store, log) = store(|asked| match asked.is_watch {
        false => list("10", &[("a", "9")]),
        true => Reply::Watch(vec![Step::Silence]),
    });
    let mut events = store.list_watch_labelled(Kind::Cluster, "ns", ("example.org/managed-by", "a&b"));

    assert_eq!(listed(&mut events).await, ["a"]);
    let _ = timeout(Duration::from_secs(1), events.next()).await;
    let asked = log.all();
    let selector = "labelSelector=example.org%2Fmanaged-by%3Da%26b&";
    assert!(asked.len() == 2 && asked.iter().all(|asked| asked.query.contains(selector)), "{asked:?}");
}

#[test]
fn a_runtime_that_ends_is_not_held_up() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    let (store, _log) = handle.block_on(async { store(|_| list("1", &[])) });
    drop(runtime);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Nothing is spawned any more, so every request fails before it begins.
        let _ended = handle.enter();
        let mut events = store.list_watch(Kind::Cluster, "ns");
        let mut context = Context::from_waker(Waker::noop());
        let polls: Vec<_> = (0..10).map(|_| events.poll_next_unpin(&mut context)).collect();
        tell.send(format!("{polls:?}")).unwrap();
    });

    let polls = told.recv_timeout(Duration::from_secs(20)).expect("a poll ends");

    assert!(polls.contains("Pending"), "{polls}");
}

async fn listed(events: &mut (impl Stream<Item = StoreEvent> + Unpin)) -> Vec<String> {
    let event = events.next().await.unwrap();
    let StoreEvent::Listed(objects) = event else { panic!("{event:?} instead of a list") };
    objects.into_iter().map(|object| object.metadata.name).collect()
}
