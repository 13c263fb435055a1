//! A cluster's API server, played: nodes and sets of machines.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use trieste_deploy::Server;

const NODES: &str = "/api/v1/nodes";
const SETS: &str = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machinesets";

/// Objects by path; without OpenShift the kind of sets is not served.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cluster {
    pub(crate) objects: Arc<Mutex<BTreeMap<String, Value>>>,
    pub(crate) is_openshift: bool,
}

impl Cluster {
    pub(crate) fn put_node(&self, node: Value) {
        let path = format!("{NODES}/{}", node["metadata"]["name"].as_str().unwrap());
        self.objects.lock().unwrap().insert(path, node);
    }

    pub(crate) fn put_set(&self, set: Value) {
        let path = format!("{SETS}/{}", set["metadata"]["name"].as_str().unwrap());
        self.objects.lock().unwrap().insert(path, set);
    }

    pub(crate) fn node(&self, name: &str) -> Value {
        self.objects.lock().unwrap()[&format!("{NODES}/{name}")].clone()
    }

    pub(crate) fn set(&self, name: &str) -> Value {
        self.objects.lock().unwrap()[&format!("{SETS}/{name}")].clone()
    }

    pub(crate) fn set_names(&self) -> Vec<String> {
        let name = |set: &Value| set["metadata"]["name"].as_str().unwrap().to_owned();
        self.sets().iter().map(name).collect()
    }

    pub(crate) fn sets(&self) -> Vec<Value> {
        let objects = self.objects.lock().unwrap();
        objects.iter().filter(|(path, _)| path.starts_with(SETS)).map(|(_, set)| set.clone()).collect()
    }

    pub(crate) fn server(&self) -> Server {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let cluster = cluster.clone();
            async move { Ok::<_, Infallible>(cluster.answer(request).await) }
        });
        Server::new(kube::Client::new(service, "default"), "cluster \"east\"")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let sent: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
        let path = head.uri.path();
        let mut objects = self.objects.lock().unwrap();
        let under = |prefix: &str| -> Vec<Value> {
            let prefix = format!("{prefix}/");
            objects.iter().filter(|(path, _)| path.starts_with(&prefix)).map(|(_, o)| o.clone()).collect()
        };
        let (status, answer) = match (head.method, path) {
            (Method::GET, NODES) => (200, json!({"items": under(NODES), "metadata": {}})),
            (Method::GET, SETS) if self.is_openshift => (200, json!({"items": under(SETS), "metadata": {}})),
            (Method::GET, path) => {
                objects.get(path).map_or_else(|| (404, failure()), |object| (200, object.clone()))
            }
            (Method::DELETE, path) => {
                objects.remove(path).map_or_else(|| (404, failure()), |object| (200, object))
            }
            (Method::PATCH, path) if head.headers["content-type"] == "application/merge-patch+json" => {
                match objects.get_mut(path) {
                    Some(object) => {
                        merge(object, &sent);
                        (200, object.clone())
                    }
                    None => (404, failure()),
                }
            }
            (Method::PATCH, path) => {
                objects.insert(path.to_owned(), sent.clone());
                (200, sent)
            }
            _ => (405, failure()),
        };
        Response::builder().status(status).body(Body::from(answer.to_string().into_bytes())).unwrap()
    }
}

fn failure() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "refused",
        "reason": "Refused", "code": 404})
}

/// Merges a change into an object (RFC 7386).
fn merge(object: &mut Value, change: &Value) {
    let Value::Object(fields) = change else { return *object = change.clone() };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in fields {
        if !value.is_null() {
            merge(&mut object[name], value);
        }
        // As an API server, which leaves out maps that are empty.
        let is_empty = value.is_null() || object[name].as_object().is_some_and(serde_json::Map::is_empty);
        if is_empty {
            object.as_object_mut().and_then(|object| object.remove(name));
        }
    }
}
