//! Single requests: time-outs, slow and busy servers, changing credentials, refusals.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::fake::{Log, Reply, cluster, list, refusal, store, store_with_token};
use crate::api::{Kind, Object, ObjectKey};
use crate::store::kube::{Outcome, Verb};
use crate::store::{KubeStore, Store, StoreError, conformance};

#[tokio::test(start_paused = true)]
async fn a_slow_server_is_not_a_dead_one() {
    let (store, _log) = store(|_| Reply::Late(Duration::from_secs(5), cluster("a", "1")));
    assert!(store.get(&key("a")).await.unwrap().is_some());
    assert_eq!(store.requests().count(Verb::Get, Outcome::Done), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up_after_the_time_out() {
    let (store, _log) = store(|_| Reply::Never);
    let start = Instant::now();
    let error = store.get(&key("a")).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("no answer within 10s"), "{error}");
    assert_eq!(start.elapsed().as_secs(), 10);
    let hasty = store.with_timeout(Duration::from_secs(2)).get(&key("a")).await.unwrap_err();
    assert!(hasty.to_string().contains("within 2s"), "{hasty}");
    assert_eq!(store.requests().count(Verb::Get, Outcome::Lost), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_polls_keeps_no_other_waiting() {
    let (store, _log) = store(|_| Reply::Json(200, cluster("a", "1")));
    let name = key("a");
    let (mut first, mut unpolled) = (Box::pin(store.get(&name)), Box::pin(store.get(&name)));
    // The one reads the credentials, the other waits for them.
    assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut unpolled).is_pending());
    assert!(first.await.unwrap().is_some());
    assert!(store.get(&name).await.unwrap().is_some());
    assert!(unpolled.await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_its_sender_gives_up_late_counts_as_unanswered() {
    let (store, _log) = store(|_| Reply::Never);
    let give_up = async |seconds| {
        let name = key("a");
        tokio::time::timeout(Duration::from_secs(seconds), store.get(&name)).await.unwrap_err();
    };
    give_up(1).await;
    assert_eq!(store.requests().count(Verb::Get, Outcome::Lost), 0);
    give_up(6).await;
    assert_eq!(store.requests().count(Verb::Get, Outcome::Lost), 1);
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_asked_again_when_it_says_unless_that_is_too_late() {
    let (store, log) = store(|asked| match asked.nth {
        0 => Reply::Busy("3"),
        1 => Reply::Json(200, cluster("a", "1")),
        _ => Reply::Busy("60"),
    });
    assert!(store.get(&key("a")).await.unwrap().is_some());
    assert!(log.all()[1].at - log.all()[0].at >= Duration::from_secs(3));
    let error = store.get(&key("a")).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("429"), "{error}");
    assert_eq!(log.all().len(), 3);
    assert_eq!(store.requests().count(Verb::Get, Outcome::Throttled), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_read_again_when_its_file_changes_and_at_once_after_a_401() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "first").unwrap();
    let (store, log) =
        store_with_token(Some(path.clone()), |asked| match (asked.token.as_str(), asked.nth) {
            ("first" | "third", _) | ("second", 0..2) => list("1", &[]),
            _ => Reply::Json(401, refusal(401, "Unauthorized", "Unauthorized")),
        });
    let tokens = |log: &Log| log.all().into_iter().map(|asked| asked.token).collect::<Vec<_>>();
    let read = async || store.list(Kind::Cluster, "ns").await;

    read().await.unwrap();
    std::fs::write(&path, "second\n").unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    read().await.unwrap();
    assert_eq!(tokens(&log), ["first", "second"]);

    // Within the second after the last look at the file; the server has revoked the old one.
    std::fs::write(&path, "third").unwrap();
    read().await.unwrap();
    assert_eq!(tokens(&log)[2..], ["second", "third"]);

    std::fs::write(&path, "expired-token").unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    let error = read().await.unwrap_err();
    assert!(matches!(&error, StoreError::Forbidden { .. }) && error.is_unavailable(), "{error}");
    assert_eq!(tokens(&log)[4..], ["expired-token"], "the same token was tried twice");
    std::fs::write(&path, "third").unwrap();
    read().await.unwrap();
    std::fs::remove_file(&path).unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    read().await.unwrap();
    assert_eq!(tokens(&log)[5..], ["third", "third"], "the last good token stays");
}

#[tokio::test(start_paused = true)]
async fn a_list_is_read_in_pages_and_begun_again_when_it_became_too_old() {
    let (store, log) = store(|asked| {
        let page = |next: &str, name: &str| {
            let metadata = json!({"resourceVersion": "1", "continue": next});
            Reply::Json(200, json!({"metadata": metadata, "items": [cluster(name, "1")]}))
        };
        match asked.nth {
            0 => page("a/b=", "lost"),
            1 => Reply::Json(410, refusal(410, "Expired", "too old")),
            2 => page("c", "z"),
            _ => page("", "a"),
        }
    });
    let names: Vec<_> = store.list(Kind::Cluster, "ns").await.unwrap();
    let names: Vec<_> = names.iter().map(|object| object.metadata.name.as_str()).collect();
    assert_eq!(names, ["a", "z"]);
    assert!(log.all()[1].query.ends_with("continue=a%2Fb%3D"), "{:?}", log.all());
}

#[tokio::test(start_paused = true)]
async fn refusals_are_told_apart() {
    let about = |name: &str, kind: &str| json!({"name": name, "group": "submariner.io", "kind": kind});
    let status = |code, reason: &str, details: Value| {
        let mut status = refusal(code, reason, "what the server says");
        status["details"] = details;
        (code, status)
    };
    let causes = json!({"causes": [{"reason": "FieldValueTypeInvalid", "field": "spec.cluster_cidr", "message": "no"}]});

    let missing = status(404, "NotFound", about("a", "clusters"));
    assert!(matches!(update(missing).await, StoreError::NotFound(_)));
    let no_namespace = create(status(404, "NotFound", about("ns", "namespaces"))).await;
    assert!(
        no_namespace.is_unavailable() && no_namespace.to_string().contains("no namespace ns"),
        "{no_namespace}"
    );
    let no_kind = create((404, json!("404 page not found"))).await;
    assert!(no_kind.is_unavailable() && no_kind.to_string().contains("is the CRD installed?"), "{no_kind}");
    let exists = create(status(409, "AlreadyExists", about("a", "clusters"))).await;
    assert!(matches!(exists, StoreError::AlreadyExists(_)), "{exists}");
    let late = update(status(409, "Conflict", about("a", "clusters"))).await;
    assert!(matches!(&late, StoreError::Conflict { expected, .. } if expected == "7"), "{late}");
    let wrong = create(status(422, "Invalid", causes)).await;
    let StoreError::Invalid { source, .. } = &wrong else { panic!("{wrong}") };
    assert_eq!(source.field_path(), Some("spec.cluster_cidr"));
    let forbidden = create(status(403, "Forbidden", about("a", "clusters"))).await;
    assert!(matches!(forbidden, StoreError::Forbidden { .. }), "{forbidden}");
    for (text, is_denied) in [
        (
            "clusters \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no",
            true,
        ),
        ("clusters \"a\" is forbidden: exceeded quota: q", true),
        ("admission webhook \"w\" denied the request: no", true),
        (
            "clusters \"a\" is forbidden: User \"u\" cannot create resource \"clusters\" in API group \"x\"",
            false,
        ),
        ("<html>a proxy's</html>", false),
    ] {
        let error = create((403, refusal(403, "Forbidden", text))).await;
        assert_eq!(matches!(&error, StoreError::Denied { .. }), is_denied, "{error}");
        assert_eq!(error.is_unavailable(), !is_denied, "{error}");
    }
    let mut ending =
        refusal(403, "Forbidden", "clusters \"a\" is forbidden: the namespace is being terminated");
    ending["details"] =
        json!({"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]});
    assert!(create((403, ending)).await.is_unavailable());
    for code in [500, 503, 504] {
        let failed = create(status(code, "ServiceUnavailable", Value::Null)).await;
        let text = failed.to_string();
        assert!(
            failed.is_unavailable() && text.starts_with("cannot create Cluster ns/a at http://api.test"),
            "{text}"
        );
    }
    let nonsense = create((200, json!({"items": "html"}))).await;
    assert!(nonsense.is_unavailable() && nonsense.to_string().contains("invalid response"), "{nonsense}");
}

#[tokio::test(start_paused = true)]
async fn an_annotation_is_one_merge_patch_and_its_answer_has_no_body() {
    let metadata = json!({"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "8",
        "annotations": {"x": "1"}, "managedFields": [{"manager": "m"}]});
    let partial =
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
    let (store, log) = store(move |_| Reply::Json(200, partial.clone()));
    let stored = store.annotate(&object(), "x", Some("1")).await.unwrap();
    assert_eq!((stored.resource_version.as_deref(), stored.annotations["x"].as_str()), (Some("8"), "1"));
    let [asked] = &log.all()[..] else { panic!("{:?}", log.all()) };
    assert_eq!(
        (asked.method.as_str(), asked.path.as_str(), asked.content_type.as_str()),
        ("PATCH", "/apis/submariner.io/v1/namespaces/ns/clusters/a", "application/merge-patch+json")
    );
    assert!(asked.accept.starts_with("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"));
    assert_eq!((store.requests().count(Verb::Patch, Outcome::Done), store.requests().total()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn refused_annotations_are_told_apart() {
    let about = |code, reason, details| {
        let mut status = refusal(code, reason, "what the server says");
        status["details"] = details;
        (code, status)
    };
    let uid = json!({"causes": [{"field": "metadata.uid", "message": "field is immutable"}]});
    let named = json!({"name": "a", "kind": "clusters"});
    let annotate = async |answer| refusing(answer).annotate(&object(), "x", None).await.unwrap_err();
    let recreated = annotate(about(422, "Invalid", uid)).await;
    assert!(matches!(recreated, StoreError::Conflict { .. }), "{recreated}");
    let raced = annotate(about(409, "Conflict", named.clone())).await;
    assert!(matches!(raced, StoreError::Conflict { .. }), "{raced}");
    let gone = annotate(about(404, "NotFound", named)).await;
    assert!(matches!(gone, StoreError::NotFound(_)), "{gone}");
    let text =
        "clusters \"a\" is forbidden: User \"u\" cannot patch resource \"clusters\" in API group \"x\"";
    let forbidden = annotate((403, refusal(403, "Forbidden", text))).await;
    assert!(matches!(forbidden, StoreError::Forbidden { .. }), "{forbidden}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused_before_it_is_sent() {
    let (store, log) = store(|_| list("1", &[]));
    let mut object = object();
    object.metadata.resource_version = None;
    assert!(matches!(store.update(object.clone()).await, Err(StoreError::Invalid { .. })));
    assert!(matches!(store.delete_version(&object).await, Err(StoreError::Invalid { .. })));
    object.metadata.name = "../../nodes".to_owned();
    assert!(matches!(store.annotate(&object, "x", None).await, Err(StoreError::Invalid { .. })));
    assert!(matches!(store.create(object).await, Err(StoreError::Invalid { .. })));
    assert!(matches!(store.list(Kind::Node, "ns").await, Err(StoreError::Invalid { .. })));
    assert!(log.all().is_empty());
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::Cluster, "ns", name)
}

fn object() -> Object {
    let mut object = conformance::sample("ns", "a");
    object.metadata.resource_version = Some("7".to_owned());
    object
}

fn refusing((code, body): (u16, Value)) -> KubeStore {
    store(move |_| Reply::Json(code, body.clone())).0
}

async fn create(answer: (u16, Value)) -> StoreError {
    refusing(answer).create(object()).await.unwrap_err()
}

async fn update(answer: (u16, Value)) -> StoreError {
    refusing(answer).update(object()).await.unwrap_err()
}
