//! A cluster that is played: nodes, Secrets, and who changes a node.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use trieste_deploy::Server;

use crate::worker::Tools;

const NODES: &str = "/api/v1/nodes";

/// A cluster: its objects by path, and what was written.
#[derive(Clone, Default)]
pub(crate) struct Cluster {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    writes: Arc<Mutex<Vec<String>>>,
    delay: Arc<Mutex<Duration>>,
}

impl Cluster {
    pub(crate) fn of(nodes: &[&str]) -> Self {
        let cluster = Self::default();
        nodes.iter().for_each(|name| cluster.add(name));
        cluster
    }

    pub(crate) fn add(&self, name: &str) {
        let node = json!({"metadata": {"name": name, "labels": {}}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        self.put(&format!("{NODES}/{name}"), node);
    }

    pub(crate) fn put(&self, path: &str, object: Value) {
        self.objects.lock().unwrap().insert(path.to_owned(), object);
    }

    pub(crate) fn writes(&self) -> usize {
        self.writes.lock().unwrap().len()
    }

    /// Answers writes so much later from here on.
    pub(crate) fn delay_writes(&self, delay: Duration) {
        *self.delay.lock().unwrap() = delay;
    }

    /// Returns a node.
    pub(crate) fn node(&self, name: &str) -> Value {
        self.objects.lock().unwrap()[&format!("{NODES}/{name}")].clone()
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Option<Value> {
        let mut objects = self.objects.lock().unwrap();
        if method == Method::GET && path == NODES {
            let items: Vec<&Value> =
                objects.iter().filter(|(path, _)| path.starts_with(NODES)).map(|(_, node)| node).collect();
            return Some(json!({"items": items, "metadata": {}}));
        }
        let object = objects.get_mut(path)?;
        if method == Method::PATCH {
            let change: Value = serde_json::from_slice(body).unwrap();
            for field in ["labels", "annotations"] {
                for (key, value) in change["metadata"][field].as_object().into_iter().flatten() {
                    object["metadata"][field][key] = value.clone();
                }
            }
            self.writes.lock().unwrap().push(path.to_owned());
        }
        Some(object.clone())
    }

    pub(crate) fn tools(&self) -> Tools {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let cluster = cluster.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                if head.method == Method::PATCH {
                    let delay = *cluster.delay.lock().unwrap();
                    tokio::time::sleep(delay).await;
                }
                let found = cluster.answer(&head.method, head.uri.path(), &body);
                let refusal = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "message": "there is none", "reason": "NotFound", "code": 404});
                let code = if found.is_some() { 200 } else { 404 };
                let text = found.unwrap_or(refusal).to_string();
                let answer = Response::builder().status(code).body(Body::from(text.into_bytes()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        Tools {
            server: Server::new(kube::Client::new(service, "default"), "cluster \"east\""),
            connect: Arc::new(trieste_deploy::connect),
            image: "r/trieste:1".to_owned(),
            resync: Duration::from_secs(120),
        }
    }
}
