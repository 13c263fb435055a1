//! Following objects: a list, then a watch from the list's version on, paced, as a store's events.
//!
//! ```text
//!   list ── version ──► watch ── ended or cut: resumed from the last version that was seen
//!    ▲                    └──── too old (410), refused, silent, or a change that cannot be read ──┐
//!    └────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! * Every list and every watch that comes soon after one like it waits, longer each time, with jitter; also where a server
//!   ends each watch at once.
//! * Such a wait ends early when another request finds that a server which did not answer does so again.
//! * A watch that was cut is resumed without a word. An event says [`StoreEvent::Unavailable`] when a list or the start
//!   of a watch fails, or a change cannot be read, as it is too long or no JSON; then all is listed again, so that
//!   [`StoreEvent::Listed`] says when it is over.
//! * A change of an object that makes no sense, or is too large, is one: the object comes without its body.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use rand_core::OsRng;
use tokio::time::{Instant, timeout};

use super::bounds::EVENT_BYTES;
use super::changes::{Change, Changes, Failure};
use super::failure::Operation;
use super::list;
use super::raw::collection;
use super::requests::Verb;
use super::scope::{Selection, check_scope};
use super::transport::Transport;
use crate::api::{Object, ObjectKey};
use crate::backoff::Backoff;
use crate::https::escaped;
use crate::store::quota::Quota;
use crate::store::{StoreError, StoreEvent};

/// Ours: the first and the longest wait between tries. Thirty seconds is also client-go's.
const FIRST_WAIT: Duration = Duration::from_millis(800);
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Ours: a try that held longer than a request's time-out by this much has worked, and waits begin anew.
const CALM_MARGIN: Duration = Duration::from_secs(5);
/// Ours: for how long a server is asked to keep a watch open, in seconds, and how much longer it may bring nothing.
const WATCH_SECONDS: u64 = 290;
const WATCH_MARGIN: Duration = Duration::from_secs(5);

/// Follows the one object of this name.
pub(super) fn stream_one(
    transport: Arc<Transport>,
    limit: Duration,
    key: ObjectKey,
) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<> {
    if key.name.is_empty() {
        // Without a name it would be all of them.
        let error = StoreError::invalid(&key, "metadata.name", "is empty");
        let forever = futures::stream::pending();
        return futures::stream::once(std::future::ready(StoreEvent::Unavailable(error)))
            .chain(forever)
            .boxed();
    }
    stream(transport, limit, Selection::of(key))
}

/// Follows the objects of a selection.
pub(super) fn stream(
    transport: Arc<Transport>,
    limit: Duration,
    selection: Selection,
) -> BoxStream<'static, StoreEvent> {
    let rate_limit = RateLimit::new(limit + CALM_MARGIN);
    let watcher = Watcher {
        transport,
        limit,
        selection,
        rate_limit,
        state: State::Unlisted,
        quota: None,
        reported: None,
    };
    futures::stream::unfold(watcher, |mut watcher| async {
        let event = watcher.next().await;
        Some((event, watcher))
    })
    .boxed()
}

struct Watcher {
    transport: Arc<Transport>,
    /// How long a request may stay without answer.
    limit: Duration,
    selection: Selection,
    rate_limit: RateLimit,
    state: State,
    /// How much of what members write is kept; from the first list on.
    quota: Option<Quota<ObjectKey>>,
    /// The last error that was an event, while the store has not been read since.
    reported: Option<String>,
}

enum State {
    /// All is to be listed.
    Unlisted,
    /// Objects are as of this version, and there is no watch.
    Listed(String),
    /// A watch is open. All changes up to this version were seen.
    Open(String, Changes),
}

/// Why a watch does not go on.
enum Stop {
    /// It is resumed from the last version.
    Cut,
    /// That version is too old: all is listed again.
    Gone,
    /// Something cannot be read: said, and all is listed again.
    Unreadable(StoreError),
}

impl Watcher {
    async fn next(&mut self) -> StoreEvent {
        if let Err(error) = check_scope(&self.selection.key) {
            return self.refuse(error).await;
        }
        // Objects have gone, so that others may be kept: a new list says which.
        if self.quota.as_mut().is_some_and(|quota| !quota.take_hopeful().is_empty()) {
            self.state = State::Unlisted;
        }
        loop {
            let event = match std::mem::replace(&mut self.state, State::Unlisted) {
                State::Unlisted => match self.list().await {
                    Ok(objects) => {
                        self.reported = None;
                        return StoreEvent::Listed(objects);
                    }
                    Err(error) => self.report(error),
                },
                State::Listed(version) => match self.open(&version).await {
                    Ok(changes) => {
                        self.state = State::Open(version, changes);
                        continue;
                    }
                    Err(stop) => self.stop(stop, version),
                },
                State::Open(version, mut changes) => match self.change(&mut changes).await {
                    Ok(change) => self.take(change, version, changes),
                    Err(stop) => self.stop(stop, version),
                },
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// Lists all objects, and notes from which version a watch goes on.
    async fn list(&mut self) -> Result<Vec<Object>, StoreError> {
        self.rate_limit.wait(Verb::List, &self.transport).await;
        let list = list::read(&self.transport, self.limit, &self.selection).await?;
        if list.version.is_empty() {
            let operation = Operation::new(Verb::List, self.selection.key.clone(), &self.transport.access);
            return Err(operation.invalid_response("it has no resourceVersion"));
        }
        self.state = State::Listed(list.version);
        self.quota = list.quota;
        Ok(list.objects.into_values().collect())
    }

    /// Opens a watch of what changes from a version on.
    async fn open(&mut self, version: &str) -> Result<Changes, Stop> {
        self.rate_limit.wait(Verb::Watch, &self.transport).await;
        let operation = Operation::new(Verb::Watch, self.selection.key.clone(), &self.transport.access);
        let lost = |error| Stop::Unreadable(operation.lost(error));
        let kind = self.selection.key.kind;
        let path = format!(
            "{}?{}watch=true&timeoutSeconds={WATCH_SECONDS}&allowWatchBookmarks=true&resourceVersion={}",
            collection(kind, self.transport.versions.of(kind), &self.selection.key.namespace),
            self.selection.query(),
            escaped(version)
        );
        let request =
            Request::get(path).body(Body::empty()).map_err(|error| lost(io::Error::other(error)))?;
        let limit = self.limit;
        let response = self.transport.send(Verb::Watch, request, limit, EVENT_BYTES).await.map_err(lost)?;
        match response.status() {
            code if code.is_success() => Ok(Changes::new(self.selection.key.kind, response)),
            StatusCode::GONE => Err(Stop::Gone),
            code => {
                let body = response.into_body().collect().await.map_err(lost)?;
                Err(Stop::Unreadable(operation.refused(code, &body.to_bytes())))
            }
        }
    }

    /// Waits for the next change of an open watch.
    async fn change(&mut self, changes: &mut Changes) -> Result<Change, Stop> {
        let longest = Duration::from_secs(WATCH_SECONDS) + WATCH_MARGIN;
        // A server that lives and does not end what it was asked to end has forgotten the watch.
        let Ok(change) = timeout(longest, changes.next()).await else { return Err(Stop::Cut) };
        let operation = || Operation::new(Verb::Watch, self.selection.key.clone(), &self.transport.access);
        change.map_err(|failure| match failure {
            Failure::Over => Stop::Cut,
            Failure::Broken(error) => {
                let is_final = matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::FileTooLarge);
                if is_final { Stop::Unreadable(operation().lost(error)) } else { Stop::Cut }
            }
            Failure::Invalid(reason) => Stop::Unreadable(operation().invalid_response(reason)),
        })
    }

    /// Takes in a change. Gives no event if nothing follows from it, or if a new list has to say what does.
    fn take(&mut self, change: Change, version: String, changes: Changes) -> Option<StoreEvent> {
        let version_of = |object: &Object| object.metadata.resource_version.clone().unwrap_or_default();
        let (event, version) = match change {
            Change::Bookmark(version) => (None, version),
            Change::Applied(object) => {
                let version = version_of(&object);
                (Some(StoreEvent::Applied(self.admit(object)?)), version)
            }
            Change::Deleted(object) => {
                self.quota.iter_mut().for_each(|quota| quota.leave(&object.key()));
                let version = version_of(&object);
                (Some(StoreEvent::Deleted(object)), version)
            }
            Change::Ended(code) => {
                let is_gone = code == u64::from(StatusCode::GONE.as_u16());
                // The server ends this watch, and not what is watched: whether it is there, the next request shows.
                return self.stop(if is_gone { Stop::Gone } else { Stop::Cut }, version);
            }
        };
        self.state = State::Open(version, changes);
        event
    }

    /// Takes in a change; gives the object as it is to be kept, or nothing if others are not to be kept for its sake: then a
    /// new list says which.
    fn admit(&mut self, object: Object) -> Option<Object> {
        let Some(quota) = &mut self.quota else { return Some(object) };
        let key = object.key();
        let mut over = quota.enter(&key, &object);
        match over.pop() {
            None => Some(object),
            Some((last, reason)) if over.is_empty() && last == key => Some(object.withhold(reason)),
            Some(_) => None,
        }
    }

    /// Goes on after the end of a watch, from this version on where it can be resumed.
    fn stop(&mut self, stop: Stop, version: String) -> Option<StoreEvent> {
        self.state = if matches!(stop, Stop::Cut) { State::Listed(version) } else { State::Unlisted };
        match stop {
            Stop::Cut | Stop::Gone => None,
            Stop::Unreadable(error) => self.report(error),
        }
    }

    /// Returns an event, unless it was the last one.
    fn report(&mut self, error: StoreError) -> Option<StoreEvent> {
        let text = error.to_string();
        if self.reported.as_ref() == Some(&text) {
            return None;
        }
        self.reported = Some(text);
        Some(StoreEvent::Unavailable(error))
    }

    /// Refuses a name that no API server can have: reports it once, then never ends.
    async fn refuse(&mut self, error: StoreError) -> StoreEvent {
        if self.reported.is_some() {
            futures::future::pending::<()>().await;
        }
        self.reported = Some(error.to_string());
        StoreEvent::Unavailable(error)
    }
}

/// Keeps lists, and watches, apart from one another in time, as long as they do not last.
struct RateLimit {
    calm: Duration,
    lists: Mutex<Tries>,
    watches: Mutex<Tries>,
}

struct Tries {
    last: Option<Instant>,
    backoff: Backoff,
}

impl RateLimit {
    fn new(calm: Duration) -> Self {
        let tries = || Mutex::new(Tries { last: None, backoff: Backoff::new(FIRST_WAIT, MAX_WAIT) });
        Self { calm, lists: tries(), watches: tries() }
    }

    async fn wait(&self, verb: Verb, transport: &Transport) {
        let tries = if verb == Verb::Watch { &self.watches } else { &self.lists };
        let until = {
            let mut tries = tries.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let is_soon = tries.last.is_some_and(|last| now.saturating_duration_since(last) < self.calm);
            let until = if is_soon {
                now + tries.backoff.next_wait(&mut OsRng)
            } else {
                tries.backoff.reset();
                now
            };
            tries.last = Some(until);
            until
        };
        if tokio::spawn(std::future::ready(())).await.is_err() {
            // The runtime ends, and has no clock any more: there is no next try.
            futures::future::pending::<()>().await;
        }
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            // Others have an answer: the wait was for nothing but that. Not all at one moment, though.
            () = transport.wait_back() => {
                let soon = Instant::now() + Backoff::new(FIRST_WAIT, FIRST_WAIT).next_wait(&mut OsRng);
                tokio::time::sleep_until(soon.min(until)).await;
            }
        }
    }
}
