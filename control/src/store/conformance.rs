//! The behaviour that every store must have, as one function to run against any of them.
//!
//! It is part of the library so that each implementation's tests can run it. It panics, with a sentence, at the first
//! thing that a store does differently.

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;

use super::{Cache, MEMBER_OBJECT_BYTES, Store, StoreError, StoreEvent, modify, upsert};
use crate::api::{Kind, Object, ObjectKey, ObjectMeta, label};

/// How long a change may take to be seen by a watcher.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs every check against `store`. `namespace` must be empty, and is empty afterwards; `other` likewise.
///
/// # Panics
/// When the store does something differently.
pub async fn run<S: Store>(store: &S, namespace: &str, other: &str) {
    a_new_namespace_is_empty(store, namespace).await;
    creation_sets_what_is_the_stores(store, namespace).await;
    updates_are_compare_and_swap(store, namespace).await;
    an_update_of_nothing_changes_nothing(store, namespace).await;
    deletion_is_final(store, namespace).await;
    a_deletion_of_a_version_spares_a_newer_one(store, namespace).await;
    impossible_objects_are_refused(store, namespace).await;
    unknown_fields_and_awkward_texts_survive(store, namespace).await;
    namespaces_and_kinds_are_apart(store, namespace, other).await;
    no_namespace_means_all_of_them_to_readers_alone(store, namespace, other).await;
    a_status_is_replaced_alone(store, namespace).await;
    an_object_that_is_too_large_hides_no_other(store, namespace).await;
    an_annotation_is_set_alone_whatever_the_version(store, namespace).await;
    an_annotation_of_another_incarnation_is_left_alone(store, namespace).await;
    annotations_set_at_once_all_stay(store, namespace).await;
    a_watcher_observes_every_change(store, namespace).await;
    a_watcher_of_one_observes_only_that_one(store, namespace).await;
    a_watcher_of_a_label_observes_only_what_has_it(store, namespace).await;
    concurrent_writes_are_all_kept(store, namespace).await;
    a_new_namespace_is_empty(store, namespace).await;
    a_new_namespace_is_empty(store, other).await;
}

/// Returns a Cluster object that every schema accepts.
pub fn sample(namespace: &str, name: &str) -> Object {
    let mut object = Object::new(Kind::Cluster, ObjectMeta::new(namespace, name));
    let spec = json!({"cluster_id": name, "color_codes": ["blue"], "service_cidr": ["100.1.0.0/16"],
        "cluster_cidr": ["10.1.0.0/16"], "global_cidr": []});
    object.body.insert("spec".to_owned(), spec);
    object
}

async fn a_new_namespace_is_empty<S: Store>(store: &S, namespace: &str) {
    for kind in Kind::SUBMARINER.into_iter().filter(|kind| kind.is_namespaced()) {
        let objects = store.list(kind, namespace).await.expect("an empty namespace can be listed");
        assert!(objects.is_empty(), "{namespace} has {objects:?}");
    }
    let key = ObjectKey::new(Kind::Cluster, namespace, "nobody");
    assert_eq!(store.get(&key).await.expect("a missing object is no error"), None);
}

async fn creation_sets_what_is_the_stores<S: Store>(store: &S, namespace: &str) {
    let mut wanted = sample(namespace, "made");
    wanted.metadata.uid = Some("mine".to_owned());
    wanted.metadata.generation = Some(77);
    wanted.metadata.labels.insert(label::CLUSTER_ID.to_owned(), "elsewhere".to_owned());
    let made = store.create(wanted.clone()).await.expect("a sample can be created");
    assert!(made.same_content(&wanted), "creation changed the content: {made:?}");
    let metadata = &made.metadata;
    assert!(metadata.uid.as_deref().is_some_and(|uid| uid != "mine"), "the uid is the store's");
    assert!(metadata.resource_version.is_some() && metadata.creation_timestamp.is_some());
    assert_eq!(metadata.creation_timestamp.map(|time| time.subsec_nanosecond()), Some(0), "whole seconds");
    assert_eq!(metadata.generation, Some(1));
    assert_eq!(store.get(&made.key()).await.expect("it can be read"), Some(made.clone()));
    let listed = store.list(Kind::Cluster, namespace).await.expect("it can be listed");
    assert_eq!(listed, std::slice::from_ref(&made));

    let again = store.create(wanted).await;
    assert!(matches!(again, Err(StoreError::AlreadyExists(_))), "creating it again gave {again:?}");
    store.delete(&made.key()).await.expect("it can be deleted");
    let second = store.create(sample(namespace, "made")).await.expect("it can be created again");
    assert_ne!(second.metadata.uid, made.metadata.uid, "another incarnation has another uid");
    store.delete(&made.key()).await.expect("it can be deleted again");
}

async fn updates_are_compare_and_swap<S: Store>(store: &S, namespace: &str) {
    let first = store.create(sample(namespace, "swap")).await.expect("created");
    let mut second = first.clone();
    second.body["spec"]["global_cidr"] = json!(["242.0.0.0/16"]);
    second.metadata.uid = Some("forged".to_owned());
    second.metadata.creation_timestamp = None;
    let second = store.update(second).await.expect("updated");
    assert_ne!(second.metadata.resource_version, first.metadata.resource_version);
    assert_eq!(second.metadata.uid, first.metadata.uid, "an update cannot change the uid");
    assert_eq!(second.metadata.creation_timestamp, first.metadata.creation_timestamp);
    assert_eq!(second.metadata.generation, Some(2), "a changed spec is a new generation");

    let late = store.update(first.clone()).await;
    assert!(matches!(late, Err(StoreError::Conflict { .. })), "an update of an old version gave {late:?}");
    let mut blind = first.clone();
    blind.metadata.resource_version = None;
    let blind = store.update(blind).await;
    assert!(matches!(blind, Err(StoreError::Invalid { .. })), "an update without version gave {blind:?}");

    let mut third = second.clone();
    third.metadata.annotations.insert("a".to_owned(), "1".to_owned());
    let third = store.update(third).await.expect("updated");
    assert_ne!(third.metadata.resource_version, second.metadata.resource_version);
    assert_eq!(third.metadata.generation, Some(2), "metadata is not a new generation");
    store.delete(&first.key()).await.expect("deleted");
    let gone = store.update(third).await;
    assert!(matches!(gone, Err(StoreError::NotFound(_))), "an update of a deleted object gave {gone:?}");
}

async fn an_update_of_nothing_changes_nothing<S: Store>(store: &S, namespace: &str) {
    let made = store.create(sample(namespace, "still")).await.expect("created");
    let same = store.update(made.clone()).await.expect("updated");
    assert_eq!(same, made, "an update of nothing must keep the version");
    store.delete(&made.key()).await.expect("deleted");
}

async fn deletion_is_final<S: Store>(store: &S, namespace: &str) {
    let made = store.create(sample(namespace, "mortal")).await.expect("created");
    store.delete(&made.key()).await.expect("deleted");
    assert_eq!(store.get(&made.key()).await.expect("read"), None);
    let again = store.delete(&made.key()).await;
    assert!(matches!(again, Err(StoreError::NotFound(_))), "deleting it again gave {again:?}");
}

async fn a_deletion_of_a_version_spares_a_newer_one<S: Store>(store: &S, namespace: &str) {
    let old = store.create(sample(namespace, "spared")).await.expect("created");
    let mut newer = old.clone();
    newer.metadata.annotations.insert("a".to_owned(), "1".to_owned());
    let newer = store.update(newer).await.expect("updated");
    let late = store.delete_version(&old).await;
    assert!(matches!(late, Err(StoreError::Conflict { .. })), "deleting an old version gave {late:?}");
    let mut blind = newer.clone();
    blind.metadata.resource_version = None;
    let blind = store.delete_version(&blind).await;
    assert!(matches!(blind, Err(StoreError::Invalid { .. })), "deleting without a version gave {blind:?}");
    store.delete_version(&newer).await.expect("the newest version can be deleted");
    let again = store.delete_version(&newer).await;
    assert!(matches!(again, Err(StoreError::NotFound(_))), "deleting it again gave {again:?}");
    store.create(sample(namespace, "spared")).await.expect("created again");
    let late = store.delete_version(&newer).await;
    assert!(matches!(late, Err(StoreError::Conflict { .. })), "deleting an old incarnation gave {late:?}");
    store.delete(&newer.key()).await.expect("deleted");
}

async fn a_watcher_of_one_observes_only_that_one<S: Store>(store: &S, namespace: &str) {
    let key = ObjectKey::new(Kind::Cluster, namespace, "one");
    let mut events = store.watch_one(&key);
    let first = next(&mut events).await;
    assert!(matches!(&first, StoreEvent::Listed(objects) if objects.is_empty()), "it began with {first:?}");
    let other = store.create(sample(namespace, "other")).await.expect("created");
    let one = store.create(sample(namespace, "one")).await.expect("created");
    let mut cache = Cache::new();
    follow(&mut events, &mut cache, |cache| cache.get("one") == Some(&one)).await;
    store.delete(&other.key()).await.expect("deleted");
    store.delete(&key).await.expect("deleted");
    follow(&mut events, &mut cache, |cache| cache.get("one").is_none()).await;
    assert_eq!(cache.objects().count(), 0, "another object was seen");
}

async fn a_watcher_of_a_label_observes_only_what_has_it<S: Store>(store: &S, namespace: &str) {
    let (label, color) = ("trieste.io/color", |value: &str| Some(value.to_owned()));
    let painted = |name: &str, value: Option<String>| {
        let mut object = sample(namespace, name);
        object.metadata.labels.extend(value.map(|value| (label.to_owned(), value)));
        object
    };
    let first = store.create(painted("first", color("red"))).await.expect("created");
    let plain = store.create(painted("plain", None)).await.expect("created");
    let mut events = store.list_watch_labelled(Kind::Cluster, namespace, (label, "red"));
    let listed = next(&mut events).await;
    assert!(matches!(&listed, StoreEvent::Listed(objects) if *objects == [first.clone()]), "{listed:?}");
    let mut cache = Cache::new();
    cache.apply(&listed);
    let other = store.create(painted("other", color("blue"))).await.expect("created");
    let second = store.create(painted("second", color("red"))).await.expect("created");
    follow(&mut events, &mut cache, |cache| cache.get("second") == Some(&second)).await;
    let mut faded = first.clone();
    faded.metadata.labels.clear();
    store.update(faded).await.expect("updated");
    follow(&mut events, &mut cache, |cache| cache.get("first").is_none()).await;
    assert_eq!(cache.objects().collect::<Vec<_>>(), [&second], "another object was seen");
    for object in [&first, &plain, &other, &second] {
        store.delete(&object.key()).await.expect("deleted");
    }
    follow(&mut events, &mut cache, |cache| cache.get("second").is_none()).await;
}

async fn impossible_objects_are_refused<S: Store>(store: &S, namespace: &str) {
    for name in ["", "..", "../up", "a/b", "/abs", "Upper", "white space", "-dash", "nul\0"] {
        let outcome = store.create(sample(namespace, name)).await;
        assert!(matches!(outcome, Err(StoreError::Invalid { .. })), "creating {name:?} gave {outcome:?}");
        let outcome = store.delete(&ObjectKey::new(Kind::Cluster, namespace, name)).await;
        assert!(matches!(outcome, Err(StoreError::Invalid { .. })), "deleting {name:?} gave {outcome:?}");
    }
    for elsewhere in ["", "..", "a/b", "../x"] {
        let outcome = store.create(sample(elsewhere, "c")).await;
        assert!(
            matches!(outcome, Err(StoreError::Invalid { .. })),
            "namespace {elsewhere:?} gave {outcome:?}"
        );
        // To readers, none is all.
        if !elsewhere.is_empty() {
            let outcome = store.list(Kind::Cluster, elsewhere).await;
            assert!(outcome.is_err(), "listing namespace {elsewhere:?} gave {outcome:?}");
        }
    }
    let mut shapeless = sample(namespace, "shapeless");
    shapeless.body["spec"]["cluster_cidr"] = json!("10.0.0.0/8");
    let outcome = store.create(shapeless).await;
    assert!(matches!(outcome, Err(StoreError::Invalid { .. })), "a field of the wrong type gave {outcome:?}");
}

async fn unknown_fields_and_awkward_texts_survive<S: Store>(store: &S, namespace: &str) {
    let mut wanted = sample(namespace, "awkward.name-1");
    let texts = [
        "",
        "yes",
        "null",
        "4490",
        "1e3",
        "0x1f",
        " lead",
        "a: b",
        "#",
        "- x",
        "two\nlines\n",
        "µs",
        "\u{7}",
    ];
    for (index, text) in texts.into_iter().enumerate() {
        wanted.metadata.annotations.insert(format!("trieste.io/t{index}"), text.to_owned());
    }
    let made = store.create(wanted.clone()).await.expect("created");
    assert!(made.same_content(&wanted), "texts were changed: {made:?}");
    assert_eq!(store.get(&made.key()).await.expect("read"), Some(made.clone()));
    store.delete(&made.key()).await.expect("deleted");
}

async fn namespaces_and_kinds_are_apart<S: Store>(store: &S, namespace: &str, other: &str) {
    let here = store.create(sample(namespace, "twin")).await.expect("created here");
    let there = store.create(sample(other, "twin")).await.expect("created there");
    assert!(store.list(Kind::Endpoint, namespace).await.expect("listed").is_empty());
    store.delete(&here.key()).await.expect("deleted here");
    assert_eq!(store.get(&there.key()).await.expect("read"), Some(there.clone()));
    store.delete(&there.key()).await.expect("deleted there");
}

async fn no_namespace_means_all_of_them_to_readers_alone<S: Store>(store: &S, namespace: &str, other: &str) {
    let ours = |objects: &[Object]| -> Vec<String> {
        let is_ours = |object: &&Object| [namespace, other].contains(&object.metadata.namespace.as_str());
        objects.iter().filter(is_ours).map(|object| object.key().to_string()).collect()
    };
    let mut events = store.list_watch(Kind::Cluster, "");
    let first = next(&mut events).await;
    assert!(matches!(&first, StoreEvent::Listed(objects) if ours(objects).is_empty()), "{first:?}");
    let here = store.create(sample(namespace, "twin")).await.expect("created here");
    let there = store.create(sample(other, "twin")).await.expect("created there");
    let listed = store.list(Kind::Cluster, "").await.expect("all namespaces can be listed");
    let mut wanted = [here.key().to_string(), there.key().to_string()];
    wanted.sort_unstable();
    assert_eq!(ours(&listed), wanted, "all namespaces, in order");
    let mut seen = std::collections::BTreeSet::new();
    let both = [here.key(), there.key()];
    while !both.iter().all(|key| seen.contains(key)) {
        if let StoreEvent::Applied(object) = next(&mut events).await {
            seen.insert(object.key());
        }
    }
    for key in &both {
        store.delete(key).await.expect("deleted");
        while !matches!(next(&mut events).await, StoreEvent::Deleted(object) if object.key() == *key) {}
    }
    let lost = store.create(sample("", "nowhere")).await;
    assert!(matches!(lost, Err(StoreError::Invalid { .. })), "created in no namespace: {lost:?}");
    let nothing = store.get(&ObjectKey::new(Kind::Cluster, "", "twin")).await;
    assert!(matches!(nothing, Err(StoreError::Invalid { .. })), "read in no namespace: {nothing:?}");
}

async fn a_status_is_replaced_alone<S: Store>(store: &S, namespace: &str) {
    let mut object = Object::new(Kind::GlobalIngressIp, ObjectMeta::new(namespace, "apart"));
    let spec = json!({"target": "ClusterIPService", "serviceRef": {"name": "apart"}});
    object.body.insert("spec".to_owned(), spec.clone());
    let made = store.create(object).await.expect("created");
    let mut updated = made.clone();
    updated.body.insert("status".to_owned(), json!({"allocatedIP": "242.0.0.1"}));
    let updated = store.update_status(updated).await.expect("its status can be written");
    assert_eq!((&updated.body["spec"], &updated.body["status"]["allocatedIP"]), (&spec, &json!("242.0.0.1")));
    assert_eq!(store.get(&updated.key()).await.expect("read"), Some(updated.clone()));
    let stale = store.update_status(made).await;
    assert!(matches!(stale, Err(StoreError::Conflict { .. })), "a stale status gave {stale:?}");
    let mut labelled = updated.clone();
    labelled.metadata.labels.insert("a".to_owned(), "b".to_owned());
    let labelled = store.update(labelled).await.expect("the rest can be written");
    assert_eq!(labelled.body["status"], updated.body["status"], "an update keeps the status");
    store.delete(&updated.key()).await.expect("deleted");
}

/// Checks that a store refuses an object that takes more memory than it may, or gives no more of it than who it is, and gives
/// the objects beside it as they are. `namespace` must have no Clusters, and has none afterwards.
///
/// # Panics
/// When the store does something differently.
pub async fn an_object_that_is_too_large_hides_no_other<S: Store>(store: &S, namespace: &str) {
    let small = store.create(sample(namespace, "small")).await.expect("created");
    let mut large = sample(namespace, "large");
    large.metadata.annotations.insert("a".to_owned(), "x".repeat(MEMBER_OBJECT_BYTES));
    let key = large.key();
    let is_there = match store.create(large).await {
        Ok(made) => made.key() == key,
        Err(StoreError::Invalid { source, .. }) => {
            assert!(source.to_string().contains("is too large"), "it is refused, but since: {source}");
            false
        }
        Err(error) => panic!("creating an object that is too large gave {error:?}"),
    };
    let check = |objects: &[Object]| {
        let (other, rest): (Vec<_>, Vec<_>) = objects.iter().partition(|object| object.key() == key);
        assert_eq!(rest, [&small], "the object beside it has changed");
        assert_eq!(other.len(), usize::from(is_there), "it was created: {is_there}");
        for object in other {
            let reason = object.withheld.as_deref().expect("it is withheld");
            assert!(reason.contains("is too large") && object.body.is_empty(), "{object:?}");
        }
    };
    check(&store.list(Kind::Cluster, namespace).await.expect("listed"));
    let first = next(&mut store.list_watch(Kind::Cluster, namespace)).await;
    let StoreEvent::Listed(objects) = first else { panic!("a watch began with {first:?}") };
    check(&objects);
    if is_there {
        store.delete(&key).await.expect("what is too large can be deleted");
    }
    store.delete(&small.key()).await.expect("deleted");
}

async fn an_annotation_is_set_alone_whatever_the_version<S: Store>(store: &S, namespace: &str) {
    const KEY: &str = "trieste.io/beat";
    let mut wanted = sample(namespace, "annotated");
    wanted.metadata.annotations.insert("theirs".to_owned(), "kept".to_owned());
    wanted.metadata.labels.insert("a".to_owned(), "b".to_owned());
    let first = store.create(wanted).await.expect("created");
    let mut events = store.list_watch(Kind::Cluster, namespace);
    let listed = next(&mut events).await;
    assert!(matches!(&listed, StoreEvent::Listed(objects) if *objects == [first.clone()]), "{listed:?}");

    let set = store.annotate(&first, KEY, Some("1")).await.expect("an annotation can be set");
    assert_ne!(set.resource_version, first.metadata.resource_version);
    let mut expected = first.clone();
    expected.metadata.annotations.insert(KEY.to_owned(), "1".to_owned());
    expected.metadata.resource_version.clone_from(&set.resource_version);
    assert_eq!(set, expected.metadata, "the answer is the metadata as stored, and nothing else has changed");
    assert_eq!(store.get(&first.key()).await.expect("read"), Some(expected.clone()));
    let event = next(&mut events).await;
    assert!(matches!(&event, StoreEvent::Applied(object) if *object == expected), "a watch saw {event:?}");

    let same = store.annotate(&first, KEY, Some("1")).await.expect("set to what it is, of an old version");
    assert_eq!(same, set, "an annotation that is there already must keep the version");
    let gone = store.annotate(&first, KEY, None).await.expect("an annotation can be removed");
    assert_ne!(gone.resource_version, set.resource_version);
    assert_eq!(gone.annotations, first.metadata.annotations);
    let still = store.annotate(&first, KEY, None).await.expect("what is not there can be removed");
    assert_eq!(still, gone, "removing nothing must keep the version");
    store.delete(&first.key()).await.expect("deleted");
    let missing = store.annotate(&first, KEY, Some("2")).await;
    assert!(matches!(missing, Err(StoreError::NotFound(_))), "annotating a deleted object gave {missing:?}");
    let unnamed = store.annotate(&sample(namespace, "../up"), KEY, Some("2")).await;
    assert!(matches!(unnamed, Err(StoreError::Invalid { .. })), "an impossible name gave {unnamed:?}");
}

async fn an_annotation_of_another_incarnation_is_left_alone<S: Store>(store: &S, namespace: &str) {
    let first = store.create(sample(namespace, "twice")).await.expect("created");
    store.delete(&first.key()).await.expect("deleted");
    let second = store.create(sample(namespace, "twice")).await.expect("created again");
    let late = store.annotate(&first, "trieste.io/beat", Some("1")).await;
    assert!(matches!(late, Err(StoreError::Conflict { .. })), "an old incarnation gave {late:?}");
    assert_eq!(store.get(&second.key()).await.expect("read"), Some(second.clone()));
    let any = sample(namespace, "twice");
    let set = store.annotate(&any, "trieste.io/beat", Some("1")).await.expect("without a uid any will do");
    assert_eq!((&set.uid, set.annotations["trieste.io/beat"].as_str()), (&second.metadata.uid, "1"));
    store.delete(&second.key()).await.expect("deleted");
}

async fn annotations_set_at_once_all_stay<S: Store>(store: &S, namespace: &str) {
    const ROUNDS: usize = 5;
    let made = store.create(sample(namespace, "shared")).await.expect("created");
    let annotator = |who: &'static str| {
        let made = &made;
        async move {
            for round in 1..=ROUNDS {
                let value = round.to_string();
                let set = store.annotate(made, who, Some(&value)).await.expect("annotated");
                assert_eq!(set.annotations[who], value);
            }
        }
    };
    futures::future::join(annotator("trieste.io/one"), annotator("trieste.io/two")).await;
    let found = store.get(&made.key()).await.expect("read").expect("it is there");
    for who in ["trieste.io/one", "trieste.io/two"] {
        assert_eq!(found.metadata.annotations[who], ROUNDS.to_string(), "an annotation was lost");
    }
    store.delete(&made.key()).await.expect("deleted");
}

async fn a_watcher_observes_every_change<S: Store>(store: &S, namespace: &str) {
    let mut events = store.list_watch(Kind::Cluster, namespace);
    let mut cache = Cache::new();
    let first = next(&mut events).await;
    assert!(
        matches!(&first, StoreEvent::Listed(objects) if objects.is_empty()),
        "a watch began with {first:?}"
    );
    let made = store.create(sample(namespace, "seen")).await.expect("created");
    follow(&mut events, &mut cache, |cache| cache.get("seen") == Some(&made)).await;
    let mut changed = made.clone();
    changed.metadata.annotations.insert("a".to_owned(), "1".to_owned());
    let changed = store.update(changed).await.expect("updated");
    follow(&mut events, &mut cache, |cache| cache.get("seen") == Some(&changed)).await;

    let mut second = store.list_watch(Kind::Cluster, namespace);
    let first = next(&mut second).await;
    let is_whole =
        matches!(&first, StoreEvent::Listed(objects) if *objects == std::slice::from_ref(&changed));
    assert!(is_whole, "a later watch began with {first:?}");
    store.delete(&made.key()).await.expect("deleted");
    follow(&mut events, &mut cache, |cache| cache.get("seen").is_none()).await;
    let last = next(&mut second).await;
    let is_seen = matches!(&last, StoreEvent::Deleted(object) if object.metadata.uid == made.metadata.uid);
    assert!(is_seen, "the second watch saw {last:?} instead of the deletion");
}

async fn concurrent_writes_are_all_kept<S: Store>(store: &S, namespace: &str) {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 5;
    let count = |object: &mut Object| {
        let entry = object.metadata.annotations.entry("count".to_owned()).or_insert_with(|| "0".to_owned());
        let value: usize = entry.parse().expect("only we write it");
        *entry = (value + 1).to_string();
    };
    let writer = || async {
        for _ in 0..ROUNDS {
            let mut wanted = sample(namespace, "counted");
            count(&mut wanted);
            upsert(store, wanted, |object, _| count(object)).await.expect("counted");
        }
    };
    futures::future::join_all((0..WRITERS).map(|_| writer())).await;
    let key = ObjectKey::new(Kind::Cluster, namespace, "counted");
    let object = modify(store, &key, |_| {}).await.expect("read");
    assert_eq!(object.metadata.annotations["count"], (WRITERS * ROUNDS).to_string(), "updates were lost");
    store.delete(&key).await.expect("deleted");
}

async fn next(events: &mut (impl futures::Stream<Item = StoreEvent> + Unpin)) -> StoreEvent {
    let next = tokio::time::timeout(EVENT_TIMEOUT, events.next()).await;
    next.expect("the watcher should have seen something").expect("a watch never ends")
}

/// Takes in events until the cache shows what is expected.
async fn follow(
    events: &mut (impl futures::Stream<Item = StoreEvent> + Unpin),
    cache: &mut Cache,
    is_expected: impl Fn(&Cache) -> bool,
) {
    while !is_expected(cache) {
        let event = next(events).await;
        cache.apply(&event);
    }
}
