//! An API server that follows a script, over connections in memory: with tokio's paused clock no test waits.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tower::BoxError;
use tower::util::BoxCloneSyncService;

use crate::store::KubeStore;
use crate::store::kube::access::{Access, ServerSettings, Source};
use crate::store::kube::dial::Wire;

/// A request as the script sees it.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) method: http::Method,
    pub(super) content_type: String,
    pub(super) accept: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) token: String,
    /// How many there were of this kind before.
    pub(super) nth: usize,
    pub(super) is_watch: bool,
    /// Since the first request.
    pub(super) at: Duration,
}

/// The answers of the script.
pub(super) enum Reply {
    /// A document.
    Json(u16, Value),
    /// Any bytes; the first of the numbers is the status.
    Bytes(u16, Bytes),
    /// This beginning, and then this part for ever, after a pause each time.
    Endless(u16, Bytes, Bytes, Duration),
    /// An answer that announces so many bytes, of which none comes.
    Announced(u64),
    /// A refusal that says when to come again.
    Busy(&'static str),
    /// A stream of changes.
    Watch(Vec<Step>),
    /// A document, after a while.
    Late(Duration, Value),
    /// Nothing, ever.
    Never,
}

/// A part of a stream of changes. After the last one the stream ends.
pub(super) enum Step {
    Event(Value),
    Bytes(Bytes),
    /// This part for ever.
    Endless(Bytes),
    Cut,
    Silence,
}

/// The requests, and how many bytes of each answer that is no document were taken.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<Asked>>>, Arc<Mutex<Vec<Arc<AtomicUsize>>>>);

impl Log {
    pub(super) fn all(&self) -> Vec<Asked> {
        self.0.lock().unwrap().clone()
    }

    /// The most bytes of one such answer that were taken, what was on the way included.
    pub(super) fn most_taken(&self) -> usize {
        let taken = self.1.lock().unwrap();
        taken.iter().map(|taken| taken.load(Ordering::Relaxed)).max().unwrap_or_default()
    }

    pub(super) fn watches(&self) -> Vec<Asked> {
        self.all().into_iter().filter(|asked| asked.is_watch).collect()
    }

    pub(super) fn others(&self) -> Vec<Asked> {
        self.all().into_iter().filter(|asked| !asked.is_watch).collect()
    }
}

/// A store on a server that follows this script, and what it was asked.
pub(super) fn store(script: impl FnMut(&Asked) -> Reply + Send + 'static) -> (KubeStore, Log) {
    store_with_token(None, script)
}

/// The same; the token is in this file.
pub(super) fn store_with_token(
    token_file: Option<PathBuf>,
    script: impl FnMut(&Asked) -> Reply + Send + 'static,
) -> (KubeStore, Log) {
    let log = Log::default();
    let script: Script = Arc::new(Mutex::new(script));
    let (asked, start) = (log.clone(), tokio::time::Instant::now());
    let dial = tower::service_fn(move |_: Uri| {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (script, asked) = (Arc::clone(&script), asked.clone());
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                answer(Arc::clone(&script), asked.clone(), start.elapsed(), request)
            });
            // How a connection ends is the script's business.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(theirs), service)
                .await;
        });
        async move { Ok::<_, BoxError>(Wire::new(ours)) }
    });
    let settings = ServerSettings { token_file, ..ServerSettings::default() };
    let source = Source::Server { base: Uri::from_static("http://api.test"), settings };
    (KubeStore::over(Access::of(source), Some(BoxCloneSyncService::new(dial))), log)
}

/// A list of clusters of these names and versions, of this version itself.
pub(super) fn list(version: &str, clusters: &[(&str, &str)]) -> Reply {
    let items: Vec<Value> = clusters.iter().map(|(name, version)| cluster(name, version)).collect();
    Reply::Json(200, json!({"metadata": {"resourceVersion": version}, "items": items}))
}

pub(super) fn cluster(name: &str, version: &str) -> Value {
    json!({"apiVersion": "submariner.io/v1", "kind": "Cluster",
        "metadata": {"name": name, "namespace": "ns", "resourceVersion": version}})
}

pub(super) fn event(kind: &str, object: impl Into<Value>) -> Step {
    Step::Event(json!({"type": kind, "object": object.into()}))
}

/// A Status object.
pub(super) fn refusal(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": message})
}

type Script = Arc<Mutex<dyn FnMut(&Asked) -> Reply + Send>>;
type Body = UnsyncBoxBody<Bytes, io::Error>;

async fn answer(
    script: Script,
    log: Log,
    at: Duration,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let is_watch = query.contains("watch=true");
    let header = |name: &str| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let reply = {
        let mut seen = log.0.lock().unwrap();
        let asked = Asked {
            method: request.method().clone(),
            content_type: header("content-type"),
            accept: header("accept"),
            path: request.uri().path().to_owned(),
            token: header("authorization").trim_start_matches("Bearer ").to_owned(),
            nth: seen.iter().filter(|asked| asked.is_watch == is_watch).count(),
            query,
            is_watch,
            at,
        };
        seen.push(asked.clone());
        (script.lock().unwrap())(&asked)
    };
    Ok(match reply {
        Reply::Json(code, value) => document(code, &value),
        Reply::Busy(seconds) => {
            let mut response = document(429, &refusal(429, "TooManyRequests", "busy"));
            response.headers_mut().insert("retry-after", seconds.parse().unwrap());
            response
        }
        Reply::Late(wait, value) => {
            tokio::time::sleep(wait).await;
            document(200, &value)
        }
        Reply::Never => std::future::pending().await,
        Reply::Bytes(code, bytes) => streamed(code, &log, futures::stream::iter([Ok(bytes)])),
        Reply::Endless(code, head, part, pause) => {
            let parts = futures::stream::repeat(part).then(move |part| async move {
                tokio::time::sleep(pause).await;
                Ok(part)
            });
            streamed(code, &log, futures::stream::iter([Ok(head)]).chain(parts))
        }
        Reply::Announced(bytes) => {
            let mut response = streamed(200, &log, futures::stream::pending());
            response.headers_mut().insert("content-length", bytes.into());
            response
        }
        Reply::Watch(steps) => streamed(200, &log, futures::stream::iter(steps).flat_map(parts_of)),
    })
}

/// The parts of an answer that a step is.
fn parts_of(step: Step) -> BoxStream<'static, io::Result<Bytes>> {
    let once = |bytes| futures::stream::iter([Ok(bytes)]).boxed();
    match step {
        Step::Event(event) => once(Bytes::from(format!("{event}\n"))),
        Step::Bytes(bytes) => once(bytes),
        Step::Endless(part) => futures::stream::repeat_with(move || Ok(part.clone())).boxed(),
        Step::Cut => futures::stream::once(async {
            // What was sent before has arrived by then.
            tokio::time::sleep(Duration::from_millis(10)).await;
            Err(io::Error::other("cut"))
        })
        .boxed(),
        Step::Silence => futures::stream::pending().boxed(),
    }
}

fn streamed(
    code: u16,
    log: &Log,
    parts: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Response<Body> {
    let taken = Arc::new(AtomicUsize::new(0));
    log.1.lock().unwrap().push(Arc::clone(&taken));
    let frames = parts.map(move |part| {
        part.map(|part| {
            taken.fetch_add(part.len(), Ordering::Relaxed);
            Frame::data(part)
        })
    });
    Response::builder().status(code).body(StreamBody::new(frames).boxed_unsync()).unwrap()
}

fn document(code: u16, value: &Value) -> Response<Body> {
    let text = Bytes::from(value.to_string());
    let body = http_body_util::Full::new(text).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}
