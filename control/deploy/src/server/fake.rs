//! An API server that is a map: enough for what reads, lists, writes and deletes. Labels select, fields do not.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::Server;
use crate::place::{Place, collection};

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
}

impl Fake {
    /// Puts an object there.
    pub(crate) fn put(&self, mut object: Value) {
        if object["metadata"]["namespace"] == "" {
            object["metadata"].as_object_mut().unwrap().remove("namespace");
        }
        let path = Place::of(&object).unwrap().path();
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

    /// Whether an object is there.
    pub(crate) fn has(&self, place: &Place) -> bool {
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
            Method::DELETE => {
                state.objects.remove(path).map_or_else(|| failure(404), |object| success(&object))
            }
            Method::POST => {
                let path = Place::of(&sent).map_or_else(|| path.to_owned(), |place| place.path());
                state.objects.insert(path, sent.clone());
                success(&sent)
            }
            Method::PATCH if state.is_deleted(path) => {
                state.deaf_to -= 1;
                if state.deaf_to == 0 {
                    state.objects.remove(path);
                }
                success(&sent)
            }
            Method::PATCH => {
                state.objects.insert(path.to_owned(), sent.clone());
                success(&sent)
            }
            Method::PUT => {
                if let Some(object) = state.before_replacing.take() {
                    state.objects.insert(path.to_owned(), object);
                }
                let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
                match state.objects.get(path).map(version) {
                    Some(there) if there == version(&sent) => {
                        state.objects.insert(path.to_owned(), sent.clone());
                        success(&sent)
                    }
                    Some(_) => failure(409),
                    None => failure(404),
                }
            }
            _ => failure(405),
        }
    }
}

impl State {
    fn is_deleted(&self, path: &str) -> bool {
        self.objects.get(path).is_some_and(|object| !object["metadata"]["deletionTimestamp"].is_null())
    }

    fn list(&self, path: &str, query: &str) -> Response<Body> {
        let is_of = |object: &&Value| {
            let Some(place) = Place::of(object) else { return false };
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

fn success(answer: &Value) -> Response<Body> {
    Response::builder().body(Body::from(answer.to_string().into_bytes())).unwrap()
}

fn failure(code: u16) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "refused", "reason": "Refused", "code": code});
    Response::builder().status(code).body(Body::from(status.to_string().into_bytes())).unwrap()
}
