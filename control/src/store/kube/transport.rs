//! Requests to an API server: credentials read again when they change, time-outs, counters, and signs of life.
//!
//! * Files of the credentials are looked at before a request, at most once a second, and at once when the server answers
//!   401, after which the request is sent a second time. Files that cannot be used leave the last good ones in use.
//! * A request has a time-out until its answer begins, and the same between parts of an answer. 429 is obeyed within it:
//!   the request waits as it is told and is sent again.
//! * A request that its sender gives up after 5 s counts as unanswered, too: an elector must not wait for ten.
//! * When a server answers again, everything that waits before its next try is woken: see [`Transport::wait_back`].
//! * A dead connection is found by HTTP/2's pings, and, below, by TCP's keep-alive. Where the server only speaks
//!   HTTP/1.1, a watch that hears nothing asks for a sign of life, unless anything else was heard from the server: one
//!   small request per quiet period for the whole store, not per watch.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use kube::client::Body;
use rand_core::{OsRng, RngCore as _};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tower::{BoxError, ServiceExt as _};

use super::access::Access;
use super::bounds::{Bound, OBJECT_BYTES, TooMuch};
use super::dial::Dial;
use super::failure::explain;
use super::requests::{Counters, Outcome, Requests, Verb};
use super::session::{self, Session};
use super::versions::Versions;

/// An answer's body, watched over.
pub(super) type Guarded = UnsyncBoxBody<Bytes, io::Error>;

/// Ours: how often the files of the credentials are looked at, at most.
const FILE_CHECK: Duration = Duration::from_secs(1);
/// Ours: how often credentials that come from no file are asked for again after a 401, at most.
const PLUGIN_RETRY: Duration = Duration::from_secs(10);
/// Ours: whoever gives up a request after so long doubts the connection. Less is somebody who has changed his mind.
const DOUBT: Duration = Duration::from_secs(5);
/// A path that every API server answers, to anybody and from memory. Any answer is a sign of life, refusals included.
const PROBE_PATH: &str = "/version";
/// Ours: how much longer than a single answer a page of a list may take to come in, from its beginning on.
const PAGE_TIMEOUTS: u32 = 6;

pub(super) struct Transport {
    pub(super) access: Access,
    pub(super) versions: Versions,
    dial: Option<Dial>,
    silence: Duration,
    requests: Counters,
    current: Mutex<Current>,
    /// Held, in tasks of their own, by those who read the credentials.
    loading: tokio::sync::Mutex<()>,
    last_answer: Mutex<Instant>,
    /// Whether the last word is that there was no answer; who waits hears when that is over.
    is_lost: AtomicBool,
    back: Notify,
    /// Held, in tasks of their own, by those who ask for a sign of life; when that failed last, and how.
    liveness: tokio::sync::Mutex<Option<(Instant, String)>>,
}

#[derive(Default)]
struct Current {
    session: Option<Arc<Session>>,
    checked: Option<Instant>,
}

impl Transport {
    pub(super) fn new(access: Access, dial: Option<Dial>, silence: Duration) -> Self {
        Self {
            access,
            versions: Versions::default(),
            dial,
            silence,
            requests: Counters::default(),
            current: Mutex::default(),
            loading: tokio::sync::Mutex::default(),
            last_answer: Mutex::new(Instant::now()),
            is_lost: AtomicBool::new(false),
            back: Notify::new(),
            liveness: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn requests(&self) -> Requests {
        self.requests.read()
    }

    /// Sends a request and reads the whole answer, within `limit`.
    pub(super) async fn call(
        self: &Arc<Self>,
        verb: Verb,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        limit: Duration,
    ) -> io::Result<(StatusCode, Bytes)> {
        self.call_within(verb, method, path, body, (limit, OBJECT_BYTES)).await
    }

    /// Calls as [`Transport::call`] does, for an answer of so many bytes at most.
    ///
    /// # Errors
    /// As [`Transport::call`]; [`io::ErrorKind::FileTooLarge`] where the answer is longer.
    pub(super) async fn call_within(
        self: &Arc<Self>,
        verb: Verb,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        (limit, most): (Duration, usize),
    ) -> io::Result<(StatusCode, Bytes)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(body.map_or_else(Body::empty, Body::from))
            .map_err(io::Error::other)?;
        self.exchange(verb, request, (limit, most)).await
    }

    /// Sends a request and reads the whole answer, within `limit` and `most` bytes.
    ///
    /// # Errors
    /// As [`Transport::call_within`].
    pub(super) async fn exchange(
        self: &Arc<Self>,
        verb: Verb,
        request: Request<Body>,
        (limit, most): (Duration, usize),
    ) -> io::Result<(StatusCode, Bytes)> {
        let whole = async {
            let response = self.send(verb, request, limit, most).await?;
            let code = response.status();
            let body = response.into_body().collect().await.map_err(|error| explain(&error))?;
            Ok((code, body.to_bytes()))
        };
        // An answer that trickles in is allowed as long again as one that does not come at all; a page has more to bring.
        let longest = limit * if verb == Verb::List { PAGE_TIMEOUTS } else { 2 };
        timeout(longest, whole).await.unwrap_or_else(|_| Err(out_of_time(longest)))
    }

    /// Sends a request; its answer has begun within `limit`, and has `most` bytes at most, or as many in each line of a watch
    /// as an event can have.
    pub(super) async fn send(
        self: &Arc<Self>,
        verb: Verb,
        mut request: Request<Body>,
        limit: Duration,
        most: usize,
    ) -> io::Result<Response<Guarded>> {
        request.headers_mut().insert(USER_AGENT, session::USER_AGENT);
        request.headers_mut().entry(ACCEPT).or_insert(HeaderValue::from_static("application/json"));
        let deadline = Instant::now() + limit;
        let (mut is_reread, mut is_resent) = (false, false);
        loop {
            let session = match timeout_at(deadline, self.session(limit)).await {
                Ok(session) => session?,
                Err(_) => return Err(out_of_time(limit)),
            };
            let sent = session.http.clone().oneshot(copy(&request)?);
            let mut attempt =
                Attempt { transport: self, session: &session, verb, sent: Some(Instant::now()) };
            let answer = timeout_at(deadline, sent).await;
            attempt.sent = None;
            let response = match answer {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => {
                    self.mark_lost(verb);
                    // A kept connection may have been closed by the server at this very moment.
                    if !is_resent && request.method() == Method::GET && was_cut(&error) {
                        is_resent = true;
                        continue;
                    }
                    return Err(explain(&*error));
                }
                Err(_) => {
                    self.mark_lost(verb);
                    self.drop_session(&session);
                    return Err(out_of_time(limit));
                }
            };
            self.record_answer();
            self.requests.add(verb, Outcome::of(response.status()));
            if response.status() == StatusCode::UNAUTHORIZED && !is_reread {
                is_reread = true;
                if self.reread(&session) {
                    continue;
                }
            }
            if let Some(wait) = asked_to_wait(&response).filter(|wait| Instant::now() + *wait < deadline) {
                sleep(wait).await;
                continue;
            }
            return Ok(self.guard(verb, response, limit, most));
        }
    }

    /// Returns the session to use: another one after its files have changed.
    async fn session(self: &Arc<Self>, connect_timeout: Duration) -> io::Result<Arc<Session>> {
        match self.fresh_session() {
            Some(session) => Ok(session),
            None => in_task(Arc::clone(self).load_session(connect_timeout)).await,
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session that there is, unless it is time to look at its files and these have changed.
    fn fresh_session(&self) -> Option<Arc<Session>> {
        let mut current = self.current();
        let is_due = current.checked.is_none_or(|checked| checked.elapsed() >= FILE_CHECK);
        if is_due {
            current.checked = Some(Instant::now());
        }
        current.session.clone().filter(|session| !(is_due && session.is_stale()))
    }

    /// Makes a session of what is in the files now, if nobody has meanwhile.
    async fn load_session(self: Arc<Self>, connect_timeout: Duration) -> io::Result<Arc<Session>> {
        let _turn = self.loading.lock().await;
        let known = self.current().session.clone();
        if let Some(session) = known.as_ref().filter(|session| !session.is_stale()) {
            return Ok(Arc::clone(session));
        }
        match (Session::load(&self.access, self.dial.clone(), connect_timeout).await, known) {
            (Ok(session), _) => {
                let session = Arc::new(session);
                self.current().session = Some(Arc::clone(&session));
                Ok(session)
            }
            (Err(error), Some(session)) => {
                tracing::warn!(server = %self.access, %error, "new credentials cannot be used; the old ones stay");
                Ok(session)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Returns `true` if, after a 401, there are, or may be, other credentials than this session's.
    fn reread(&self, session: &Arc<Session>) -> bool {
        let mut current = self.current();
        let is_current = current.session.as_ref().is_some_and(|current| Arc::ptr_eq(current, session));
        if !is_current {
            return true;
        }
        if session.has_plugin && session.made.elapsed() >= PLUGIN_RETRY {
            current.session = None;
            return true;
        }
        current.checked = None;
        session.is_stale()
    }

    /// Drops the session after a request without answer: the next one takes a new connection, whatever became of the
    /// old.
    fn drop_session(&self, session: &Arc<Session>) {
        let mut current = self.current();
        if current.session.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
            current.session = None;
        }
    }

    fn mark_lost(&self, verb: Verb) {
        self.requests.add(verb, Outcome::Lost);
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Completes when the server answers for the first time after it did not.
    pub(super) async fn wait_back(&self) {
        self.back.notified().await;
    }

    fn record_answer(&self) {
        if self.is_lost.swap(false, Ordering::Relaxed) {
            self.back.notify_waiters();
        }
        *self.last_answer.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn last_answer(&self) -> Instant {
        *self.last_answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what is heard, and ends an answer that has stopped.
    fn guard(
        self: &Arc<Self>,
        verb: Verb,
        response: Response<Incoming>,
        limit: Duration,
        most: usize,
    ) -> Response<Guarded> {
        let (parts, body) = response.into_parts();
        let is_watch = verb == Verb::Watch && parts.status.is_success();
        let bound = match (parts.status.is_success(), is_watch) {
            (false, _) => Bound::refusal(),
            (true, true) => Bound::event(),
            (true, false) => Bound::whole(most),
        };
        let guard = Guard {
            transport: Arc::clone(self),
            is_watch,
            bound,
            has_pings: parts.version == Version::HTTP_2,
            limit,
        };
        let frames = futures::stream::unfold(Some((body, guard)), |state| async {
            let (mut body, mut guard) = state?;
            let frame = guard.next(&mut body).await?;
            let rest = frame.is_ok().then_some((body, guard));
            Some((frame, rest))
        });
        Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
    }

    /// Fails if the server gives no sign of life. Boxed: it sends a request whose answer is guarded by itself.
    fn check_liveness(self: &Arc<Self>, limit: Duration) -> BoxFuture<'static, io::Result<()>> {
        let transport = Arc::clone(self);
        Box::pin(in_task(transport.ask_liveness(limit)))
    }

    fn ask_liveness(self: Arc<Self>, limit: Duration) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(async move {
            let mut failed = self.liveness.lock().await;
            if self.last_answer().elapsed() < self.silence {
                return Ok(());
            }
            if let Some((_, text)) =
                failed.as_ref().filter(|(at, _)| *at > self.last_answer() && at.elapsed() < self.silence)
            {
                return Err(io::Error::new(io::ErrorKind::TimedOut, text.clone()));
            }
            let request = Request::get(PROBE_PATH).body(Body::empty()).map_err(io::Error::other)?;
            let outcome = self.send(Verb::Probe, request, limit, OBJECT_BYTES).await;
            let Err(error) = outcome else { return Ok(()) };
            let text = format!("the server has gone silent: {error}");
            *failed = Some((Instant::now(), text.clone()));
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        })
    }
}

/// Runs a future in a task of its own, which goes on while nobody polls this, and ends when this is dropped. A watch is not
/// polled while its reader does something else: it must not keep a lock, or its turn at one, from everybody meanwhile.
async fn in_task<T: Send + 'static>(
    future: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    let mut tasks = JoinSet::new();
    tasks.spawn(future);
    let ended = tasks.join_next().await;
    ended.map_or_else(|| Err(io::ErrorKind::Interrupted.into()), |ended| ended.map_err(io::Error::other)?)
}

/// A request that waits for its answer. Dropped meanwhile, its sender has given up.
struct Attempt<'a> {
    transport: &'a Transport,
    session: &'a Arc<Session>,
    verb: Verb,
    sent: Option<Instant>,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.sent.is_none_or(|sent| sent.elapsed() < DOUBT) {
            return;
        }
        self.transport.mark_lost(self.verb);
        self.transport.drop_session(self.session);
    }
}

struct Guard {
    transport: Arc<Transport>,
    is_watch: bool,
    has_pings: bool,
    limit: Duration,
    bound: Bound,
}

impl Guard {
    async fn next(&mut self, body: &mut Incoming) -> Option<io::Result<Frame<Bytes>>> {
        if let Err(error) = self.bound.check_announced(body.size_hint().lower()) {
            return Some(Err(error.into()));
        }
        loop {
            if self.bound.is_over() {
                return None;
            }
            let silence = if self.is_watch { self.transport.silence } else { self.limit };
            match timeout(silence, body.frame()).await {
                Ok(None) => return None,
                Ok(Some(frame)) => {
                    self.transport.record_answer();
                    let frame = frame.map_err(|error| explain(&error));
                    return Some(frame.and_then(|frame| self.count(frame)));
                }
                Err(_) if !self.is_watch => return Some(Err(out_of_time(self.limit))),
                Err(_) if self.has_pings => {}
                Err(_) => {
                    if let Err(error) = self.transport.check_liveness(self.limit).await {
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    /// Lets a part of the answer through, as far as it is within its bound.
    fn count(&mut self, frame: Frame<Bytes>) -> io::Result<Frame<Bytes>> {
        let part = match frame.into_data() {
            Ok(part) => part,
            Err(trailers) => return Ok(trailers),
        };
        self.bound.count(part).map(Frame::data).map_err(TooMuch::into)
    }
}

fn copy(request: &Request<Body>) -> io::Result<Request<Body>> {
    let body = request.body().try_clone();
    let mut copy = Request::new(body.ok_or_else(|| io::Error::other("a request's body must be in memory"))?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    Ok(copy)
}

fn was_cut(error: &BoxError) -> bool {
    error.downcast_ref::<hyper_util::client::legacy::Error>().is_some_and(|error| !error.is_connect())
}

/// Returns how long a 429 asks us to wait, a little more so that not all come back at once. One second where it does
/// not say.
fn asked_to_wait(response: &Response<Incoming>) -> Option<Duration> {
    if response.status() != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let jitter = Duration::from_millis(u64::from(OsRng.next_u32() % 250));
    Some(Duration::from_secs(u64::from(seconds.unwrap_or(1_u32).max(1))) + jitter)
}

fn out_of_time(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}"))
}
