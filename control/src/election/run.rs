//! The candidate on a store: asks what the [`Elector`] wants asked, and tells what it says. No decisions.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use rand_core::{OsRng, RngCore as _};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;

use super::{ElectionConfig, ElectionEvent, Elector, Failure, Leadership, Lease, Request, Term};
use crate::admin::ElectionStatus;
use crate::api::{Kind, Object, ObjectKey, Resource as _};
use crate::store::{Store, StoreError, StoreEvent};
use crate::timer::{clock, sleep_until};

/// Ours: how long a planned stop waits for the Lease to be given back; a successor that is not told waits 15 s.
pub const DEFAULT_RELEASE_TIMEOUT: Duration = Duration::from_millis(500);

/// Ours: a reader that is further behind has lost interest.
const EVENT_BACKLOG: usize = 64;

/// A running candidate. Cheap to clone; it ends when the last clone is dropped, and not before.
#[derive(Debug, Clone)]
pub struct Candidate {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    leadership: watch::Receiver<Option<Leadership>>,
    status: watch::Receiver<ElectionStatus>,
    is_released: watch::Receiver<bool>,
    events: broadcast::Sender<ElectionEvent>,
    requests: watch::Sender<Requests>,
    task: JoinHandle<()>,
}

/// The requests to the candidate: levels and counts, so that nothing can be lost or pile up.
#[derive(Debug, Clone, Copy)]
struct Requests {
    is_eligible: bool,
    is_stopping: bool,
    confirmations: u64,
    raise_term: Option<Term>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Candidate {
    /// Returns `true` if this candidate leads at `now`, on its own clock. Takes no longer than reading a variable: ask
    /// right before each write.
    pub fn is_leader(&self, now: Instant) -> bool {
        self.term(now).is_some()
    }

    /// Returns the term in which this candidate leads at `now`.
    pub fn term(&self, now: Instant) -> Option<Term> {
        self.shared.leadership.borrow().filter(|held| held.is_valid(now)).map(|held| held.term)
    }

    /// Returns the leadership as of the last change; ask [`Leadership::is_valid`] whether it still lasts.
    pub fn leadership(&self) -> watch::Receiver<Option<Leadership>> {
        self.shared.leadership.clone()
    }

    /// Returns the candidate's view, for people.
    pub fn status(&self) -> watch::Receiver<ElectionStatus> {
        self.shared.status.clone()
    }

    /// Subscribes to the events from now on. A reader that falls 64 events behind loses the oldest.
    pub fn events(&self) -> broadcast::Receiver<ElectionEvent> {
        self.shared.events.subscribe()
    }

    /// Lets this candidate run, or not; one that may not gives the Lease back.
    pub fn set_eligible(&self, is_eligible: bool) {
        self.shared.requests.send_modify(|requests| requests.is_eligible = is_eligible);
    }

    /// Asks for a renewal soon: see [`Elector::confirm`].
    pub fn confirm(&self) {
        self.shared
            .requests
            .send_modify(|requests| requests.confirmations = requests.confirmations.wrapping_add(1));
    }

    /// Asks for a term above `found`: see [`Elector::raise_term`].
    pub fn raise_term(&self, found: Term) {
        self.shared
            .requests
            .send_modify(|requests| requests.raise_term = requests.raise_term.max(Some(found)));
    }

    /// Gives the Lease back for good, before a planned stop; waits at most `timeout`, also when the store hangs. Gives
    /// whether the Lease is known not to be ours. Leadership has ended when this returns, whatever it gives.
    pub async fn release(&self, timeout: Duration) -> bool {
        self.shared.requests.send_modify(|requests| requests.is_stopping = true);
        let mut is_released = self.shared.is_released.clone();
        let released = is_released.wait_for(|is_released| *is_released);
        matches!(tokio::time::timeout(timeout, released).await, Ok(Ok(_)))
    }
}

/// Starts a candidate in the background, on the current tokio runtime.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<S: Store>(store: S, config: ElectionConfig) -> Candidate {
    let status = ElectionStatus {
        lease: format!("{}/{}", config.namespace, config.lease),
        identity: config.identity.clone(),
        ..ElectionStatus::default()
    };
    let first = Requests { is_eligible: true, is_stopping: false, confirmations: 0, raise_term: None };
    let (leadership_sender, leadership) = watch::channel(None);
    let (status_sender, status) = watch::channel(status);
    let (released_sender, is_released) = watch::channel(false);
    let (events, _) = broadcast::channel(EVENT_BACKLOG);
    let (requests, requested) = watch::channel(first);
    let outputs = Outputs {
        leadership: leadership_sender,
        status: status_sender,
        is_released: released_sender,
        events: events.clone(),
        failing_since: None,
    };
    let task = tokio::spawn(run(store, config, requested, outputs));
    Candidate { shared: Arc::new(Shared { leadership, status, is_released, events, requests, task }) }
}

/// The answer to a request.
enum Answer {
    Read(Result<Option<Lease>, Failure>),
    Written(Result<Lease, Failure>),
}

async fn run<S: Store>(
    store: S,
    config: ElectionConfig,
    mut requested: watch::Receiver<Requests>,
    mut outputs: Outputs,
) {
    let key = ObjectKey::new(Kind::Lease, &config.namespace, &config.lease);
    let timings = config.timings;
    let mut elector = Elector::new(config, OsRng.next_u64());
    let mut lease_events = store.watch_one(&key);
    let mut is_watching = true;
    let mut asked: Option<BoxFuture<'_, Answer>> = None;
    let mut done = *requested.borrow();
    loop {
        if asked.is_none()
            && let Some(request) = elector.poll_request(clock(), Timestamp::now())
        {
            asked = Some(Box::pin(ask(&store, &key, request, timings.request_timeout())));
        }
        outputs.publish(&mut elector, done.is_stopping);
        tokio::select! {
            answer = when(asked.as_mut()) => {
                asked = None;
                match answer {
                    Answer::Read(answer) => elector.handle_read(answer, clock()),
                    Answer::Written(answer) => elector.handle_written(answer, clock()),
                }
            }
            event = lease_events.next(), if is_watching => match event {
                Some(event) => observe(&mut elector, event),
                // Streams of a store do not end; should one, the elector's own reads remain.
                None => is_watching = false,
            },
            changed = requested.changed() => match changed {
                Ok(()) => done = apply_requests(&mut elector, done, *requested.borrow_and_update()),
                Err(_) => return,
            },
            () = sleep_until(elector.poll_timeout()) => elector.handle_timeout(clock()),
        }
    }
}

fn observe(elector: &mut Elector, event: StoreEvent) {
    let object = match event {
        StoreEvent::Listed(objects) => objects.into_iter().next(),
        StoreEvent::Applied(object) => Some(object),
        StoreEvent::Deleted(_) => None,
        StoreEvent::Unavailable(error) => return elector.handle_unavailable(error.to_string(), clock()),
    };
    match object.as_ref().map(Lease::from_object).transpose() {
        Ok(lease) => elector.handle_observed(lease, clock()),
        Err(error) => elector.handle_unavailable(format!("the Lease cannot be read: {error}"), clock()),
    }
}

/// Passes on what is wished anew.
fn apply_requests(elector: &mut Elector, before: Requests, requests: Requests) -> Requests {
    let now = clock();
    elector.set_eligible(requests.is_eligible && !requests.is_stopping, now);
    if requests.confirmations != before.confirmations {
        elector.confirm(now);
    }
    if let Some(found) = requests.raise_term {
        elector.raise_term(found, now);
    }
    requests
}

async fn ask<S: Store>(store: &S, key: &ObjectKey, request: Request, timeout: Duration) -> Answer {
    let late = || Failure::Store(format!("no answer within {timeout:?}"));
    let written = match request {
        Request::Read => {
            let Ok(answer) = tokio::time::timeout(timeout, store.get(key)).await else {
                return Answer::Read(Err(late()));
            };
            let lease = answer
                .map_err(|error| failure(&error))
                .and_then(|object| object.as_ref().map(read).transpose());
            return Answer::Read(lease);
        }
        Request::Create(lease) => tokio::time::timeout(timeout, store.create(lease.to_object())).await,
        Request::Update(lease) => tokio::time::timeout(timeout, store.update(lease.to_object())).await,
    };
    Answer::Written(match written {
        Ok(answer) => answer.map_err(|error| failure(&error)).and_then(|object| read(&object)),
        Err(_) => Err(late()),
    })
}

fn read(object: &Object) -> Result<Lease, Failure> {
    Lease::from_object(object).map_err(|error| Failure::Store(error.to_string()))
}

fn failure(error: &StoreError) -> Failure {
    if error.is_race() { Failure::Race } else { Failure::Store(error.to_string()) }
}

/// Where the candidate tells how it is.
#[derive(Debug)]
struct Outputs {
    leadership: watch::Sender<Option<Leadership>>,
    status: watch::Sender<ElectionStatus>,
    is_released: watch::Sender<bool>,
    events: broadcast::Sender<ElectionEvent>,
    failing_since: Option<Timestamp>,
}

impl Outputs {
    fn publish(&mut self, elector: &mut Elector, is_stopping: bool) {
        let held = elector.leadership(clock());
        // First of all: writers ask this right before they write.
        self.leadership.send_if_modified(|known| std::mem::replace(known, held) != held);
        while let Some(event) = elector.poll_event() {
            log(&event);
            // Nobody may be listening.
            let _ = self.events.send(event);
        }
        self.failing_since = elector.error().map(|_| self.failing_since.unwrap_or_else(Timestamp::now));
        let error =
            elector.error().zip(self.failing_since).map(|(why, since)| format!("{why} (since {since:.0})"));
        self.status.send_if_modified(|known| {
            let mut status = ElectionStatus {
                holder: elector.holder().to_owned(),
                is_leader: held.is_some(),
                term: elector.term().unwrap_or_default().number(),
                error,
                ..known.clone()
            };
            if known.since.is_none() && elector.term().is_some() || known.is_leader != status.is_leader {
                status.since = Some(Timestamp::now());
            }
            let is_changed = status != *known;
            *known = status;
            is_changed
        });
        let is_released = is_stopping && elector.is_released();
        self.is_released.send_if_modified(|known| std::mem::replace(known, is_released) != is_released);
    }
}

/// Logs an event. Upstream's words stay as they are: people and tools look for them (env-metrics §6).
fn log(event: &ElectionEvent) {
    match event {
        ElectionEvent::Acquired { term } => {
            tracing::info!(%term, "Leadership acquired - starting controllers")
        }
        ElectionEvent::Lost { term, reason } => {
            tracing::warn!(%term, %reason, "Leadership lost");
        }
        ElectionEvent::HolderChanged { holder } if holder.is_empty() => tracing::info!("nobody leads"),
        ElectionEvent::HolderChanged { holder } => tracing::info!(holder, "lease holder changed"),
    }
}

async fn when<T>(future: Option<&mut BoxFuture<'_, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}
