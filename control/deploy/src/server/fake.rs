//! An API server that is a map: enough for what reads, lists, writes and deletes. Labels select, fields do not.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::Server;
use crate::object_ref::{ObjectRef, collection};

/// The map, by path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Value>,
    /// What somebody else writes just before the next object is replaced.
    before_replacing: Option<Value>,
    intrusions: u32,
    /// How many changes it takes until an object goes that is deleted.
    deaf_to: u32,
    /// A version of a group that is not served.
    unserved: Option<String>,
}

impl Fake {
    /// Puts an object there.
    pub(crate) fn put(&self, mut object: Value) {
        if object["metadata"]["namespace"] == "" {
            object["metadata"].as_object_mut().unwrap().remove("namespace");
        }
        let path = ObjectRef::of(&object).unwrap().path();
        self.0.lock().unwrap().objects.insert(path, object);
    }

    /// Lets somebody else be faster, once, when an object is replaced.
    pub(crate) fn before_replacing(&self, mut object: Value) {
        let mut state = self.0.lock().unwrap();
        state.intrusions += 1;
        object["metadata"]["resourceVersion"] = json!(format!("by somebody else, {}", state.intrusions));
        state.before_replacing = Some(object);
    }

    /// Lets an object that is deleted stay until it has been changed so often.
    pub(crate) fn forget_deletions(&self, changes: u32) {
        self.0.lock().unwrap().deaf_to = changes;
    }

    /// Serves one version in the place of another, the objects that are there among it.
    pub(crate) fn serve_instead(&self, version: &str, newer: &str) {
        let mut state = self.0.lock().unwrap();
        let all = std::mem::take(&mut state.objects);
        state.objects = all
            .into_values()
            .map(|mut object| {
                if object["apiVersion"] == version {
                    object["apiVersion"] = json!(newer);
                }
                (ObjectRef::of(&object).unwrap().path(), object)
            })
            .collect();
        state.unserved = Some(format!("/apis/{version}/"));
    }

    /// Whether an object is there.
    pub(crate) fn has(&self, place: &ObjectRef) -> bool {
        self.0.lock().unwrap().objects.contains_key(&place.path())
    }

    /// Access to it.
    pub(crate) fn server(&self) -> Server {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let fake = fake.clone();
            async move { Ok::<_, Infallible>(fake.answer(request).await) }
        });
        Server::new(kube::Client::new(service, "default"), "cluster \"fake\"")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let path = head.uri.path();
        let mut state = self.0.lock().unwrap();
        let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
        if state.unserved.as_ref().is_some_and(|unserved| path.starts_with(unserved)) {
            return failure(404);
        }
        match head.method {
            Method::GET => match state.objects.get(path) {
                Some(object) => success(object),
                None => state.list(path, head.uri.query().unwrap_or_default()),
            },
            Method::DELETE if state.deaf_to > 0 => match state.objects.get_mut(path) {
                Some(object) => {
                    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                    success(object)
                }
                None => failure(404),
            },
            Method::DELETE if state.is_outdated(path, &sent["preconditions"]["resourceVersion"]) => {
                failure(409)
            }
            Method::DELETE => {
                state.objects.remove(path).map_or_else(|| failure(404), |object| success(&object))
            }
            Method::POST => {
                let path = ObjectRef::of(&sent).map_or_else(|| path.to_owned(), |place| place.path());
                state.objects.insert(path, sent.clone());
                success(&sent)
            }
            Method::PATCH if head.uri.query().unwrap_or_default().contains("dryRun=All") => success(&sent),
            Method::PATCH if state.is_deleted(path) => {
                state.deaf_to -= 1;
                if state.deaf_to == 0 {
                    state.objects.remove(path);
                }
                success(&sent)
            }
            Method::PATCH if head.headers[CONTENT_TYPE] == "application/merge-patch+json" => {
                let Some(object) = state.objects.get_mut(path) else { return failure(404) };
                merge(object, &sent);
                success(object)
            }
            Method::PATCH => {
                state.objects.insert(path.to_owned(), sent.clone());
                success(&sent)
            }
            Method::PUT => match path.strip_suffix("/status") {
                Some(path) => state.replace_status(path, &sent),
                None => state.replace(path, sent),
            },
            _ => failure(405),
        }
    }
}

impl State {
    fn is_deleted(&self, path: &str) -> bool {
        self.objects.get(path).is_some_and(|object| !object["metadata"]["deletionTimestamp"].is_null())
    }

    fn replace_status(&mut self, path: &str, sent: &Value) -> Response<Body> {
        if self.is_outdated(path, &sent["metadata"]["resourceVersion"]) {
            return failure(409);
        }
        let Some(object) = self.objects.get_mut(path) else { return failure(404) };
        object["status"] = sent["status"].clone();
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        object["metadata"]["resourceVersion"] = json!(format!("{version}, status"));
        success(object)
    }

    /// Replaces an object; of an import the status stays.
    fn replace(&mut self, path: &str, mut sent: Value) -> Response<Body> {
        if let Some(object) = self.before_replacing.take() {
            self.objects.insert(path.to_owned(), object);
        }
        let Some(there) = self.objects.get(path) else { return failure(404) };
        if there["metadata"]["resourceVersion"] != sent["metadata"]["resourceVersion"] {
            return failure(409);
        }
        if let Some(status) = there.get("status").filter(|_| sent["kind"] == "ServiceImport") {
            sent["status"] = status.clone();
        }
        self.objects.insert(path.to_owned(), sent.clone());
        success(&sent)
    }

    /// Returns whether an object has another version than is expected, if one is; somebody else may be faster.
    fn is_outdated(&mut self, path: &str, expected: &Value) -> bool {
        if expected.is_null() {
            return false;
        }
        if let Some(object) = self.before_replacing.take() {
            let path = ObjectRef::of(&object).unwrap().path();
            self.objects.insert(path, object);
        }
        self.objects.get(path).is_some_and(|object| object["metadata"]["resourceVersion"] != *expected)
    }

    fn list(&self, path: &str, query: &str) -> Response<Body> {
        let is_of = |object: &&Value| {
            let Some(place) = ObjectRef::of(object) else { return false };
            let all = collection(&place.api_version, &place.kind, None);
            all == path || collection(&place.api_version, &place.kind, place.namespace.as_deref()) == path
        };
        let selector = query.split('&').find_map(|part| part.strip_prefix("labelSelector="));
        let is_chosen = |object: &&Value| {
            let selector = selector.unwrap_or_default().replace("%2F", "/").replace("%3D", "=");
            match selector.split_once('=') {
                Some((key, value)) => object["metadata"]["labels"][key] == value,
                None => selector.is_empty() || !object["metadata"]["labels"][&selector].is_null(),
            }
        };
        let items: Vec<&Value> = self.objects.values().filter(is_of).filter(is_chosen).collect();
        // After the group: the kind, or a namespace and the kind; with a name behind it, it is an object's path.
        let head = if path.starts_with("/apis/") { 4 } else { 3 };
        let is_collection = (path.split('/').count() - head) % 2 == 1;
        if is_collection { success(&json!({"items": items, "metadata": {}})) } else { failure(404) }
    }
}

/// Merges a change into an object (RFC 7386).
fn merge(object: &mut Value, change: &Value) {
    let Value::Object(fields) = change else { return *object = change.clone() };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            object.as_object_mut().and_then(|object| object.remove(name));
        } else {
            merge(&mut object[name], value);
        }
    }
}

fn success(answer: &Value) -> Response<Body> {
    Response::builder().body(Body::from(answer.to_string().into_bytes())).unwrap()
}

fn failure(code: u16) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "refused", "reason": "Refused", "code": code});
    Response::builder().status(code).body(Body::from(status.to_string().into_bytes())).unwrap()
}
