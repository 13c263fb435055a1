//! A blocking client that speaks JSON by API path, for tests that look at objects or change them.

use std::fs::File;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::Context;
use futures::{AsyncBufReadExt as _, StreamExt as _};
use hyper::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use nix::sched::{CloneFlags, setns};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::netns::Namespace;
use crate::wait::eventually;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How many events a watch holds that nobody has asked for yet; the server waits beyond that.
const WATCH_QUEUE: usize = 4096;

/// A client of one API server with one identity. Its connections are made inside a namespace; its methods block.
/// Cheap to clone.
#[derive(Clone)]
pub struct Client {
    kube: kube::Client,
    runtime: Arc<Threads>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// One thread that does all the work and those that it starts, inside a namespace.
pub(super) struct Threads(Option<Runtime>);

impl Client {
    /// A client with the identity of a kubeconfig, in a namespace or in this process's own.
    ///
    /// # Errors
    /// If the file cannot be read or the namespace cannot be entered. Nothing is sent yet.
    pub fn new(namespace: Option<&Namespace>, kubeconfig: &Path) -> anyhow::Result<Self> {
        let shown = || format!("reading {}", kubeconfig.display());
        let kubeconfig = Kubeconfig::read_from(kubeconfig).with_context(shown)?;
        let runtime = Threads::inside(namespace)?;
        let kube = runtime.run(async move {
            let mut config =
                kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
            config.connect_timeout = Some(TIMEOUT);
            kube::Client::try_from(config).context("a client of this kubeconfig")
        })??;
        Ok(Self { kube, runtime: Arc::new(runtime) })
    }

    /// Reads an object or a list, such as `/api/v1/nodes/east-gw1`.
    ///
    /// # Errors
    /// If the server refuses ([`status_code`] says how) or does not answer.
    pub fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.call(Method::GET, path, None)
    }

    /// Reads an object that may be missing.
    ///
    /// # Errors
    /// As [`Client::get`], but for "404 Not Found".
    pub fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.get(path) {
            Ok(object) => Ok(Some(object)),
            Err(error) if status_code(&error) == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the objects of a list; `path` may have a query such as `?labelSelector=a%3Db`.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn list(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let mut list = self.get(path)?;
        serde_json::from_value(list["items"].take()).with_context(|| format!("{path} is no list"))
    }

    /// Creates an object: `path` is that of its list.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn post(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        self.call(Method::POST, path, Some(("application/json", object)))
    }

    /// Replaces an object; with its `resourceVersion` only if nobody has changed it.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn put(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        self.call(Method::PUT, path, Some(("application/json", object)))
    }

    /// Merges this into an object; `null` removes.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn patch(&self, path: &str, change: &Value) -> anyhow::Result<Value> {
        self.call(Method::PATCH, path, Some(("application/merge-patch+json", change)))
    }

    /// Deletes an object and says whether it was there.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn delete(&self, path: &str) -> anyhow::Result<bool> {
        match self.call(Method::DELETE, path, None) {
            Ok(_) => Ok(true),
            Err(error) if status_code(&error) == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes an object be as this one says (server-side apply), whether or not it exists.
    ///
    /// # Errors
    /// As [`Client::get`], and if the object lacks kind or name.
    pub fn apply(&self, object: &Value) -> anyhow::Result<Value> {
        self.apply_with("fieldManager=lab&force=true", object)
    }

    /// The same with other options, such as `fieldManager=me&fieldValidation=Strict`.
    ///
    /// # Errors
    /// As [`Client::apply`].
    pub fn apply_with(&self, options: &str, object: &Value) -> anyhow::Result<Value> {
        let path = format!("{}?{options}", path_of(object)?);
        self.call(Method::PATCH, &path, Some(("application/apply-patch+yaml", object)))
    }

    /// Creates a namespace unless it is there.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn create_namespace(&self, name: &str) -> anyhow::Result<()> {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.apply(&object).map(drop)
    }

    /// Reads an object again and again until it is there and `is_good`.
    ///
    /// # Errors
    /// If that does not happen within `timeout`; the error shows the last one seen.
    pub fn wait(
        &self,
        path: &str,
        timeout: Duration,
        is_good: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        eventually(path, timeout, || {
            let object = self.get(path)?;
            anyhow::ensure!(is_good(&object), "it is {object:#}");
            Ok(object)
        })
    }

    /// Waits until an object is gone.
    ///
    /// # Errors
    /// If it does not go within `timeout`.
    pub fn wait_gone(&self, path: &str, timeout: Duration) -> anyhow::Result<()> {
        eventually(path, timeout, || match self.find(path)? {
            None => Ok(()),
            Some(object) => anyhow::bail!("it is still there: {object:#}"),
        })
    }

    /// Follows a list from a resource version on.
    ///
    /// # Errors
    /// As [`Client::get`]; the server may also refuse with an event of type `ERROR`.
    pub fn watch(&self, path: &str, resource_version: &str) -> anyhow::Result<Watch> {
        let path = format!("{path}?watch=true&allowWatchBookmarks=false&resourceVersion={resource_version}");
        let request = Request::get(&path).body(Vec::new())?;
        let kube = self.kube.clone();
        let (sender, events) = mpsc::sync_channel(WATCH_QUEUE);
        let opened = self.runtime.run(async move {
            let stream = within(kube.request_stream(request)).await?;
            tokio::spawn(async move {
                let mut lines = std::pin::pin!(stream.lines());
                while let Some(line) = lines.next().await {
                    let event = line
                        .map_err(anyhow::Error::from)
                        .and_then(|line| line.parse().context("a watch event"));
                    let is_last = event.is_err();
                    // One worker thread: a full queue must not stop it, so a test that does not listen loses the rest.
                    if sender.try_send(event).is_err() || is_last {
                        break;
                    }
                }
            });
            anyhow::Ok(())
        })?;
        opened.with_context(|| path)?;
        Ok(Watch { events, _runtime: self.runtime.clone() })
    }

    /// Reads a page that is no JSON, such as `/readyz`.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn text(&self, path: &str) -> anyhow::Result<String> {
        self.send(Request::get(path).body(Vec::new())?)
    }

    fn call(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> anyhow::Result<Value> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some((content_type, _)) = body {
            request = request.header("Content-Type", content_type);
        }
        let bytes = body.map_or_else(Vec::new, |(_, value)| value.to_string().into_bytes());
        let text = self.send(request.body(bytes)?)?;
        // Not `serde_json::from_str`, which would be compiled here, without optimisation.
        text.parse().with_context(|| format!("the answer about {path}"))
    }

    fn send(&self, request: Request<Vec<u8>>) -> anyhow::Result<String> {
        let shown = format!("{} {}", request.method(), request.uri());
        let kube = self.kube.clone();
        let answer = self.runtime.run(async move { within(kube.request_text(request)).await })?;
        answer.with_context(|| shown)
    }
}

/// The HTTP status with which a server refused, if that is what went wrong.
pub fn status_code(error: &anyhow::Error) -> Option<u16> {
    let kube::Error::Api(status) = error.downcast_ref::<kube::Error>()? else { return None };
    Some(status.code)
}

/// A watch in progress; the connection ends when it is dropped.
#[derive(Debug)]
pub struct Watch {
    events: mpsc::Receiver<anyhow::Result<Value>>,
    _runtime: Arc<Threads>,
}

impl Watch {
    /// The next event (`type` and `object`); `None` if the server has ended the watch.
    ///
    /// # Errors
    /// If there is none within `timeout`, or the connection broke.
    pub fn next(&self, timeout: Duration) -> anyhow::Result<Option<Value>> {
        match self.events.recv_timeout(timeout) {
            Ok(event) => event.map(Some),
            Err(mpsc::RecvTimeoutError::Disconnected) => Ok(None),
            Err(mpsc::RecvTimeoutError::Timeout) => anyhow::bail!("no event within {timeout:?}"),
        }
    }

    /// The next event; `None` if there is none within `timeout`.
    ///
    /// # Errors
    /// If the watch has ended, one way or the other.
    pub fn poll(&self, timeout: Duration) -> anyhow::Result<Option<Value>> {
        match self.events.recv_timeout(timeout) {
            Ok(event) => event.map(Some),
            Err(mpsc::RecvTimeoutError::Disconnected) => anyhow::bail!("the watch has ended"),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
        }
    }
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Threads")
    }
}

impl Threads {
    /// Starts them inside a namespace, or in this process's own.
    pub(super) fn inside(namespace: Option<&Namespace>) -> anyhow::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("api").enable_all();
        if let Some(namespace) = namespace {
            let path = Path::new("/run/netns").join(namespace.name());
            let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
            builder.on_thread_start(move || {
                setns(&file, CloneFlags::CLONE_NEWNET)
                    .expect("root may enter a namespace that it has opened");
            });
        }
        Ok(Self(Some(builder.build().context("starting a thread")?)))
    }

    /// Starts this inside and leaves it alone.
    pub(super) fn spawn(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> anyhow::Result<JoinHandle<()>> {
        Ok(self.0.as_ref().context("the thread is being ended")?.spawn(work))
    }

    /// Runs this inside and waits for what comes out.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let (sender, result) = mpsc::sync_channel(1);
        let runtime = self.0.as_ref().context("the thread is being ended")?;
        runtime.spawn(async move {
            let _ = sender.send(work.await);
        });
        result.recv().context("the thread has ended")
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Dropped where waiting is not allowed, it would panic.
            runtime.shutdown_background();
        }
    }
}

async fn within<T>(answer: impl Future<Output = kube::Result<T>>) -> anyhow::Result<T> {
    match tokio::time::timeout(TIMEOUT, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => anyhow::bail!("no answer within {TIMEOUT:?}"),
    }
}

/// Where an object lives, by its kind, namespace and name. English makes the plural: enough for what tests apply.
fn path_of(object: &Value) -> anyhow::Result<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let version = text(&object["apiVersion"]).context("an object without apiVersion")?;
    let kind = text(&object["kind"]).context("an object without kind")?;
    let metadata = &object["metadata"];
    let name = text(&metadata["name"]).context("an object without name")?;
    let prefix = if version.contains('/') { "/apis" } else { "/api" };
    let namespace =
        text(&metadata["namespace"]).map_or_else(String::new, |name| format!("/namespaces/{name}"));
    let kind = kind.to_lowercase();
    // Policies, but gateways.
    let stem = kind.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    let plural = stem.map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
    Ok(format!("{prefix}/{version}{namespace}/{plural}/{name}"))
}

/// A counter that the metrics page prints as a float.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a counter is whole, not negative, and far below 2^53"
)]
pub(super) fn whole(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_found_by_kind_namespace_and_name() {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": "n", "name": "lock"}});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gw1"}});

        assert_eq!(path_of(&lease).unwrap(), "/apis/coordination.k8s.io/v1/namespaces/n/leases/lock");
        assert_eq!(path_of(&node).unwrap(), "/api/v1/nodes/gw1");
        let of = |kind: &str| json!({"apiVersion": "g/v1", "kind": kind, "metadata": {"name": "x"}});
        assert_eq!(path_of(&of("Gateway")).unwrap(), "/apis/g/v1/gateways/x");
        assert_eq!(path_of(&of("Policy")).unwrap(), "/apis/g/v1/policies/x");
        assert!(path_of(&json!({"kind": "Node"})).is_err());
    }
}
