//! Kinds of which a server serves one version or another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt as _;
use serde_json::{Value, json};

use super::fake::{Asked, Log, Reply, Step, event, refusal, store};
use crate::api::{Kind, Object, ObjectKey, ObjectMeta};
use crate::store::{KubeStore, Store, StoreError, StoreEvent};

const NEWER: &str = "/apis/multicluster.x-k8s.io/v1beta1/";

/// A store on a server that serves the newer version, and the older one while that is not off.
fn server(has_older: &Arc<AtomicBool>) -> (KubeStore, Log) {
    let has_older = Arc::clone(has_older);
    store(move |asked| {
        let is_served = asked.path.starts_with(NEWER) || has_older.load(Ordering::Relaxed);
        if is_served { served(asked) } else { Reply::Json(404, json!("404 page not found")) }
    })
}

fn served(asked: &Asked) -> Reply {
    let version = asked.path.split('/').nth(3).unwrap_or_default();
    let import = json!({"apiVersion": format!("multicluster.x-k8s.io/{version}"), "kind": "ServiceImport",
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "1"}, "spec": {"type": "Headless"}});
    if asked.path.ends_with("/missing") {
        let mut status = refusal(404, "NotFound", "there is none");
        status["details"] = json!({"name": "missing", "kind": "serviceimports"});
        return Reply::Json(404, status);
    }
    match (asked.is_watch, asked.path.ends_with("serviceimports") && asked.method == http::Method::GET) {
        (true, _) => Reply::Watch(vec![event("MODIFIED", changed(&import)), Step::Silence]),
        (false, true) => Reply::Json(200, json!({"metadata": {"resourceVersion": "1"}, "items": [import]})),
        (false, false) => Reply::Json(200, import),
    }
}

fn changed(import: &Value) -> Value {
    let mut changed = import.clone();
    changed["metadata"]["resourceVersion"] = json!("2");
    changed
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::ServiceImport, "shop", name)
}

fn versions(log: &Log) -> Vec<String> {
    log.all().iter().map(|asked| asked.path.split('/').nth(3).unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_server_with_the_newer_version_alone_is_read_followed_and_written_in_it() {
    let (store, log) = server(&Arc::default());
    let mut events = store.list_watch(Kind::ServiceImport, "");
    let Some(StoreEvent::Listed(objects)) = events.next().await else { panic!("a list") };
    assert_eq!(objects[0].api_version, Kind::ServiceImport.api_version(), "readers see one version");
    let Some(StoreEvent::Applied(object)) = events.next().await else { panic!("a change") };
    assert_eq!(object.body["spec"]["type"], "Headless");
    store.update(object.clone()).await.unwrap();
    store.update_status(object).await.unwrap();
    store.delete(&key("web")).await.unwrap();
    assert_eq!(versions(&log), ["v1alpha1", "v1beta1", "v1beta1", "v1beta1", "v1beta1", "v1beta1"]);
    let paths: Vec<_> = log.others().iter().skip(2).map(|asked| asked.path.clone()).collect();
    let path = format!("{NEWER}namespaces/shop/serviceimports/web");
    assert_eq!(paths, [path.clone(), format!("{path}/status"), path]);
}

#[tokio::test(start_paused = true)]
async fn a_server_with_both_is_asked_for_the_older_one_and_nothing_is_asked_twice() {
    let (store, log) = server(&Arc::new(AtomicBool::new(true)));
    store.list(Kind::ServiceImport, "shop").await.unwrap();
    assert!(store.get(&key("missing")).await.unwrap().is_none());
    assert!(matches!(store.delete(&key("missing")).await, Err(StoreError::NotFound(_))));
    assert_eq!(versions(&log), ["v1alpha1"; 3]);
}

#[tokio::test(start_paused = true)]
async fn the_first_request_may_be_a_write() {
    let (store, log) = server(&Arc::default());
    let created =
        store.create(Object::new(Kind::ServiceImport, ObjectMeta::new("shop", "web"))).await.unwrap();
    assert_eq!(created.key(), key("web"));
    assert!(store.get(&key("missing")).await.unwrap().is_none());
    assert_eq!(versions(&log), ["v1alpha1", "v1beta1", "v1beta1"]);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_is_replaced_while_it_is_followed_is_followed_in_the_other_version() {
    let has_older = Arc::new(AtomicBool::new(true));
    let older = Arc::clone(&has_older);
    let (store, log) =
        store(move |asked| match (older.load(Ordering::Relaxed), asked.path.starts_with(NEWER)) {
            // Its watches end with it.
            (true, false) if asked.is_watch => Reply::Watch(Vec::new()),
            (is_older, is_newer) if is_older != is_newer => served(asked),
            _ => {
                Reply::Json(404, refusal(404, "NotFound", "the server could not find the requested resource"))
            }
        });
    let mut events = store.list_watch(Kind::ServiceImport, "");
    assert!(matches!(events.next().await, Some(StoreEvent::Listed(_))));
    has_older.store(false, Ordering::Relaxed);
    let mut next = events.next().await;
    while let Some(StoreEvent::Unavailable(_)) = next {
        next = events.next().await;
    }
    assert!(matches!(next, Some(StoreEvent::Listed(_))), "{next:?}");
    assert!(matches!(events.next().await, Some(StoreEvent::Applied(_))));
    // And back.
    has_older.store(true, Ordering::Relaxed);
    assert_eq!(store.list(Kind::ServiceImport, "").await.unwrap().len(), 1);
    assert_eq!(versions(&log).last().unwrap(), "v1alpha1");
}

#[tokio::test(start_paused = true)]
async fn where_neither_is_served_both_are_named_and_each_list_asks_for_both_once() {
    let (store, log) = store(|_| Reply::Json(404, json!("404 page not found")));
    for _ in 0..2 {
        let error = store.list(Kind::ServiceExport, "").await.unwrap_err().to_string();
        assert!(error.contains("multicluster.x-k8s.io/v1alpha1 or multicluster.x-k8s.io/v1beta1"), "{error}");
    }
    store.list(Kind::Cluster, "").await.unwrap_err();
    assert_eq!(versions(&log), ["v1alpha1", "v1beta1", "v1beta1", "v1alpha1", "v1"]);
}
