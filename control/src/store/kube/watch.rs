//! Following objects: kube's watcher, paced, and translated into a store's events.
//!
//! kube's watcher lists in pages, watches from the list's version with bookmarks, resumes a watch that has ended from
//! the last version seen, and lists again after 410. Around it:
//!
//! * Every list and every watch that comes soon after one like it waits, longer each time, with jitter; also where the
//!   watcher alone would not, as when a server ends each watch at once.
//! * Such a wait ends early when another request finds that a server which did not answer does so again.
//! * A watch that was cut is resumed without a word. An event says [`StoreEvent::Unavailable`] when a list or the start
//!   of a watch fails; then all is listed again, so that [`StoreEvent::Listed`] says when it is over.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use http::{Request, Response, StatusCode};
use kube::client::Body;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use rand_core::OsRng;
use tokio::time::Instant;

use super::KubeStore;
use super::failure::explain;
use super::raw::Raw;
use super::requests::Verb;
use super::store::{Listing, MAX_OBJECTS, body_of, page_of, smaller, take_in};
use super::transport::{Guarded, Transport};
use crate::api::{Object, ObjectKey};
use crate::backoff::Backoff;
use crate::store::decode::{MEMBER_OBJECT_BYTES, OBJECT_BYTES};
use crate::store::quota::{Quota, has_quota};
use crate::store::{StoreError, StoreEvent};

/// Ours: the first and the longest wait between tries. Thirty seconds is also client-go's.
const FIRST_WAIT: Duration = Duration::from_millis(800);
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Ours: a try that held longer than a request's time-out by this much has worked, and waits begin anew.
const CALM_MARGIN: Duration = Duration::from_secs(5);

/// Follows the one object of this name.
pub(super) fn stream_one(
    store: KubeStore,
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
    stream(store, key)
}

/// Follows the objects of a kind and namespace; of one name if there is one in `key`.
pub(super) fn stream(store: KubeStore, key: ObjectKey) -> BoxStream<'static, StoreEvent> {
    let page = page_of(key.kind);
    let follower =
        Follower { store, key, events: None, listing: Listing::new(), quota: None, page, reported: None };
    futures::stream::unfold(follower, |mut follower| async {
        let event = follower.next().await;
        Some((event, follower))
    })
    .boxed()
}

struct Follower {
    store: KubeStore,
    key: ObjectKey,
    events: Option<Events>,
    /// The list that is being read.
    listing: Listing,
    /// How much of what members write is kept; from the first list on.
    quota: Option<Quota<ObjectKey>>,
    /// Objects in a page of a list.
    page: u32,
    /// What was said last, while the store has not been read since.
    reported: Option<String>,
}

struct Events {
    watcher: BoxStream<'static, watcher::Result<Event<Object>>>,
    pace: Arc<Pace>,
}

impl Follower {
    async fn next(&mut self) -> StoreEvent {
        if let Err(error) = self.store.check_scope(&self.key) {
            return self.refuse(error).await;
        }
        // Kept over new watchers, so that a list that fails soon after a watch that failed waits too.
        let mut pace = None;
        // Objects have gone, so that others may be kept: a new list says which.
        if self.quota.as_mut().is_some_and(|quota| !quota.take_hopeful().is_empty()) {
            pace = self.drop_events();
        }
        loop {
            let (store, key, page) = (&self.store, &self.key, self.page);
            let events = self.events.get_or_insert_with(|| Events::open(store, key, page, pace.take()));
            let event = match events.watcher.next().await {
                Some(Ok(event)) => event,
                Some(Err(error)) if self.page > 1 && is_too_long(&error) => {
                    self.page = smaller(self.page);
                    pace = self.drop_events();
                    continue;
                }
                Some(Err(error)) => {
                    let failure = self.judge(error);
                    if !matches!(failure, Failure::Cut) {
                        pace = self.drop_events();
                    }
                    if let Failure::Away(error) = failure
                        && let Some(event) = self.report(error, pace.clone())
                    {
                        return event;
                    }
                    // A runtime that ends lets no request begin: each fails at once, before it could wait for its pace.
                    tokio::task::yield_now().await;
                    continue;
                }
                None => {
                    pace = self.drop_events();
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            match event {
                Event::Init => self.begin(),
                Event::InitApply(object) if self.listing.len() < MAX_OBJECTS => {
                    take_in(&mut self.listing, object, self.quota.as_mut());
                }
                Event::InitApply(_) => {
                    pace = self.drop_events();
                    let doing = self.store.doing(Verb::List, self.key.clone());
                    let error = doing.nonsense(format_args!("it has more than {MAX_OBJECTS} objects"));
                    if let Some(event) = self.report(error, pace.clone()) {
                        return event;
                    }
                }
                Event::InitDone => {
                    let objects = std::mem::take(&mut self.listing);
                    self.reported = None;
                    return StoreEvent::Listed(objects.into_values().collect());
                }
                Event::Apply(object) => match self.admit(object) {
                    Some(object) => return StoreEvent::Applied(object),
                    None => pace = self.drop_events(),
                },
                Event::Delete(object) => {
                    self.quota.iter_mut().for_each(|quota| quota.leave(&object.key()));
                    return StoreEvent::Deleted(object);
                }
            }
        }
    }

    /// Begins a list.
    fn begin(&mut self) {
        self.listing = Listing::new();
        self.quota = has_quota(self.key.kind).then(Quota::new);
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

    /// Begins anew, but not sooner than otherwise.
    fn drop_events(&mut self) -> Option<Arc<Pace>> {
        self.listing = Listing::new();
        self.events.take().map(|events| events.pace)
    }

    /// What a failure of the watcher calls for.
    fn judge(&self, error: watcher::Error) -> Failure {
        let doing = |verb| self.store.doing(verb, self.key.clone());
        let (verb, error) = match error {
            watcher::Error::InitialListFailed(error) => (Verb::List, error),
            watcher::Error::WatchStartFailed(error) => (Verb::Watch, error),
            watcher::Error::WatchFailed(error) => {
                let error = explain(&error);
                let is_silent = error.kind() == io::ErrorKind::TimedOut;
                return if is_silent { Failure::Away(doing(Verb::Watch).lost(error)) } else { Failure::Cut };
            }
            watcher::Error::WatchError(status) if status.code == GONE => return Failure::Gone,
            // The server ends this watch, and not what is watched: whether it is away, the next request shows.
            watcher::Error::WatchError(_) => return Failure::Cut,
            error @ watcher::Error::NoResourceVersion => {
                return Failure::Away(doing(Verb::List).nonsense(error));
            }
        };
        let doing = doing(verb);
        Failure::Away(if let kube::Error::Api(status) = error {
            if status.code == GONE {
                return Failure::Gone;
            }
            doing.status(
                StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                &status,
            )
        } else if let kube::Error::SerdeError(error) = error {
            doing.nonsense(error)
        } else if let kube::Error::Service(error) = error {
            doing.lost(explain(&*error))
        } else {
            doing.lost(explain(&error))
        })
    }

    /// An event, unless it was said already. `pace` is kept for the next try.
    fn report(&mut self, error: StoreError, pace: Option<Arc<Pace>>) -> Option<StoreEvent> {
        let text = error.to_string();
        if self.reported.as_ref() == Some(&text) {
            return None;
        }
        self.reported = Some(text);
        self.events = Some(Events::open(&self.store, &self.key, self.page, pace));
        Some(StoreEvent::Unavailable(error))
    }

    /// For names that no API server can have: said once, then for ever silent.
    async fn refuse(&mut self, error: StoreError) -> StoreEvent {
        if self.reported.is_some() {
            futures::future::pending::<()>().await;
        }
        self.reported = Some(error.to_string());
        StoreEvent::Unavailable(error)
    }
}

const GONE: u16 = 410;

enum Failure {
    /// A running watch was cut: the watcher resumes it.
    Cut,
    /// The version to resume from is too old: list again.
    Gone,
    /// Cannot be read: say so, and list again.
    Away(StoreError),
}

impl Events {
    fn open(store: &KubeStore, key: &ObjectKey, page: u32, pace: Option<Arc<Pace>>) -> Self {
        let limit = store.timeout;
        let pace = pace.unwrap_or_else(|| Arc::new(Pace::new(limit + CALM_MARGIN)));
        let (transport, tries, most) = (Arc::clone(&store.transport), Arc::clone(&pace), body_of(key.kind));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (transport, tries) = (Arc::clone(&transport), Arc::clone(&tries));
            async move { send(&transport, &tries, request, (limit, most)).await }
        });
        let client = Client::new(service, "default");
        let mut config = watcher::Config::default().page_size(page);
        if !key.name.is_empty() {
            config = config.fields(&format!("metadata.name={}", key.name));
        }
        let watcher = match has_quota(key.kind) {
            true => objects::<MEMBER_OBJECT_BYTES>(client, key, config),
            false => objects::<OBJECT_BYTES>(client, key, config),
        };
        Self { watcher, pace }
    }
}

/// Tells whether a page of a list was longer than it may be.
fn is_too_long(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(error) if explain(error).kind() == io::ErrorKind::FileTooLarge)
}

/// Follows objects that are decoded within `LIMIT` bytes of memory each.
fn objects<const LIMIT: usize>(
    client: Client,
    key: &ObjectKey,
    config: watcher::Config,
) -> BoxStream<'static, watcher::Result<Event<Object>>> {
    let kind = key.kind;
    let api: Api<Raw<LIMIT>> = match kind.is_namespaced() && !key.namespace.is_empty() {
        true => Api::namespaced_with(client, &key.namespace, &kind),
        false => Api::all_with(client, &kind),
    };
    let decoded = move |event: Event<Raw<LIMIT>>| match event {
        Event::Init => Event::Init,
        Event::InitApply(raw) => Event::InitApply(raw.into_object(kind)),
        Event::InitDone => Event::InitDone,
        Event::Apply(raw) => Event::Apply(raw.into_object(kind)),
        Event::Delete(raw) => Event::Delete(raw.into_object(kind)),
    };
    watcher(api, config).map_ok(decoded).boxed()
}

async fn send(
    transport: &Arc<Transport>,
    pace: &Pace,
    request: Request<Body>,
    (limit, most): (Duration, usize),
) -> io::Result<Response<Guarded>> {
    let query = request.uri().query().unwrap_or_default();
    let has = |name: &str| query.split('&').any(|part| part.split('=').next() == Some(name));
    let verb = if has("watch") { Verb::Watch } else { Verb::List };
    if !has("continue") {
        pace.wait(verb, transport).await;
    }
    transport.send(verb, request, limit, most).await
}

/// Keeps lists, and watches, apart from one another in time, as long as they do not last.
struct Pace {
    calm: Duration,
    lists: Mutex<Tries>,
    watches: Mutex<Tries>,
}

struct Tries {
    last: Option<Instant>,
    backoff: Backoff,
}

impl Pace {
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
