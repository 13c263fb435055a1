//! Following a directory: inotify says that something happened, and to which files; reading these says what.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, stream};
use inotify::WatchMask;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::cache::DirCache;
use super::inner::{Inner, blocking};
use super::layout::KindDir;
use super::listen::Listener;
use super::scan;
use crate::api::{Kind, Object, ObjectKey};
use crate::store::{StoreError, StoreEvent};
use crate::timer::rest_after;

/// How long to go without looking while the store is away or inotify is not to be had. Ours: a second is soon enough
/// for people, and a scan of unchanged files costs microseconds each.
const POLL: Duration = Duration::from_secs(1);

/// Ours: which part of the time that files take to settle is waited for a file that is whole, as others may come with it.
const GATHER: u32 = 10;

/// Ours: for how many times what a look took the next one waits, at most for the time that files take to settle. Where little
/// changes, a look takes a millisecond, and readers see the next change as soon as this one.
const REST: u32 = 9;

/// Streams the events of one directory. Does nothing while it is not polled.
pub(super) fn stream(
    store: Arc<Inner>,
    kind: Kind,
    namespace: String,
) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<> {
    let subscription = Subscription {
        store,
        kind,
        namespace,
        watcher: Watcher::Lost,
        seen: None,
        pending: VecDeque::new(),
        last_error: None,
        is_first: true,
        rested_at: Instant::now(),
        refreshed_at: Instant::now(),
    };
    Box::pin(stream::unfold(subscription, |mut subscription| async move {
        let event = subscription.next().await;
        Some((event, subscription))
    }))
}

#[derive(Debug)]
struct Subscription {
    store: Arc<Inner>,
    kind: Kind,
    namespace: String,
    watcher: Watcher,
    /// What the consumer has; `None` when it has to be given all of it.
    seen: Option<Seen>,
    pending: VecDeque<StoreEvent>,
    /// The reason that the consumer was told for the store being away.
    last_error: Option<String>,
    is_first: bool,
    /// The earliest time of the next look.
    rested_at: Instant,
    /// When all files were looked at last, by whichever of the followers and writers.
    refreshed_at: Instant,
}

/// What a consumer has, shared with the cache, by namespace and name.
#[derive(Debug)]
struct Seen {
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    next: NextChanges,
}

/// The number of the next change of each directory.
type NextChanges = BTreeMap<PathBuf, u64>;

/// What is there.
#[derive(Debug)]
struct Found {
    objects: FoundObjects,
    next: NextChanges,
    /// When all files were looked at; `None` where there is no directory yet.
    refreshed_at: Option<std::time::Instant>,
}

#[derive(Debug)]
enum FoundObjects {
    /// All objects that there are.
    All(Vec<Arc<Object>>),
    /// Those that may have changed; without an object if it is gone.
    Changed(BTreeMap<ObjectKey, Option<Arc<Object>>>),
}

impl Inner {
    /// Reads the objects of a kind that have changed since other changes were the next, or all of them. Looks at all files with
    /// `is_all`.
    fn follow(
        &self,
        kind: Kind,
        namespace: &str,
        since: Option<&NextChanges>,
        is_all: bool,
    ) -> Result<Found, StoreError> {
        let within = if is_all { Duration::ZERO } else { self.options.resync };
        let dirs = self.kind_dirs(kind, namespace)?;
        let (mut next, mut refreshed_at) = (NextChanges::new(), None);
        for dir in &dirs {
            let mut cache = self.lock_cache();
            let files = cache.dir(&dir.path);
            listen(dir, files);
            scan::refresh(dir, files, within)?;
            next.insert(dir.path.clone(), files.changes().next());
            refreshed_at = [refreshed_at, files.refreshed_at()].into_iter().flatten().min();
        }
        let is_same = |since: &&NextChanges| since.keys().eq(next.keys());
        if let Some(changed) = since.filter(is_same).and_then(|since| self.changed(kind, &dirs, since)) {
            return Ok(Found { objects: FoundObjects::Changed(changed), next, refreshed_at });
        }
        Ok(Found { objects: FoundObjects::All(self.cached(&dirs)?), next, refreshed_at })
    }

    /// Returns the objects that may have changed; `None` if that is not kept any more.
    fn changed(
        &self,
        kind: Kind,
        dirs: &[KindDir],
        since: &NextChanges,
    ) -> Option<BTreeMap<ObjectKey, Option<Arc<Object>>>> {
        let mut cache = self.lock_cache();
        let mut changed = BTreeMap::new();
        for dir in dirs {
            let files = cache.dir(&dir.path);
            for name in files.changes().since(*since.get(&dir.path)?)? {
                let object = scan::object(name, dir, files);
                changed.insert(ObjectKey::new(kind, &dir.namespace, name), object);
            }
        }
        Some(changed)
    }
}

/// Collects the names of files that change, so that not all of them have to be read. Where that is impossible, all are.
fn listen(dir: &KindDir, files: &mut DirCache) {
    if files.is_listening() {
        return;
    }
    if let Ok(listener) = Listener::collecting()
        && listener.watch(&dir.path, FILES).is_ok_and(|is_there| is_there)
    {
        files.listen(listener);
    }
}

impl Subscription {
    async fn next(&mut self) -> StoreEvent {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return event;
            }
            let is_all = self.is_first || !self.wait().await || self.last_error.is_some();
            self.is_first = false;
            let started = Instant::now();
            // Watching starts before reading: what changes in between is then seen twice and never missed.
            self.watcher.follow(&self.store, self.kind, &self.namespace);
            let (kind, namespace) = (self.kind, self.namespace.clone());
            let since = self.seen.as_ref().map(|seen| seen.next.clone());
            let read = move |inner: &Inner| inner.follow(kind, &namespace, since.as_ref(), is_all);
            let found = blocking(&self.store, read).await;
            let ended = Instant::now();
            self.rested_at = ended + rest_after(ended - started, REST, self.store.options.debounce);
            self.take(found);
        }
    }

    /// Waits until something happened and has settled, or for as long as we care to go without looking, since somebody looked
    /// at all files. Returns `false` if nobody says what happens.
    async fn wait(&mut self) -> bool {
        let options = &self.store.options;
        let is_unavailable = self.last_error.is_some();
        let patience = if is_unavailable {
            POLL.min(options.resync)
        } else {
            options.resync.saturating_sub(self.refreshed_at.elapsed())
        };
        self.watcher.wait(self.rested_at, options.debounce, patience).await
    }

    /// Turns the difference between what is there and what the consumer has into events.
    fn take(&mut self, found: Result<Found, StoreError>) {
        let Found { objects, next, refreshed_at } = match found {
            Ok(found) => found,
            Err(error) => {
                let text = error.to_string();
                if self.last_error.as_ref() != Some(&text) {
                    self.last_error = Some(text);
                    self.pending.push_back(StoreEvent::Unavailable(error));
                }
                self.seen = None;
                return;
            }
        };
        self.last_error = None;
        self.refreshed_at = refreshed_at.map_or_else(Instant::now, Instant::from_std);
        let objects = match (objects, self.seen.take()) {
            (FoundObjects::All(objects), None) => {
                let all = objects.iter().map(|object| Object::clone(object)).collect();
                self.pending.push_back(StoreEvent::Listed(all));
                by_key(objects)
            }
            (FoundObjects::All(objects), Some(seen)) => {
                let objects = by_key(objects);
                let gone = seen.objects.keys().filter(|key| !objects.contains_key(key));
                let changed = gone.map(|key| (key, None));
                let changed = changed.chain(objects.iter().map(|(key, object)| (key, Some(object))));
                changed.for_each(|(key, object)| self.compare(seen.objects.get(key), object));
                objects
            }
            (FoundObjects::Changed(changed), seen) => {
                let mut objects = seen.map(|seen| seen.objects).unwrap_or_default();
                for (key, object) in changed {
                    self.compare(objects.get(&key), object.as_ref());
                    match object {
                        Some(object) => drop(objects.insert(key, object)),
                        None => drop(objects.remove(&key)),
                    }
                }
                objects
            }
        };
        self.seen = Some(Seen { objects, next });
    }

    /// Turns the change of an object into an event.
    fn compare(&mut self, before: Option<&Arc<Object>>, now: Option<&Arc<Object>>) {
        match (before, now) {
            // Both are the cache's own unless the file was read anew, so that most are equal without a look.
            (Some(before), Some(now)) if before == now => {}
            (_, Some(now)) => self.pending.push_back(StoreEvent::Applied(Object::clone(now))),
            // First: the consumer should not see both the old and the new owner of a name or an address.
            (Some(before), None) => self.pending.push_front(StoreEvent::Deleted(Object::clone(before))),
            (None, None) => {}
        }
    }
}

fn by_key(objects: Vec<Arc<Object>>) -> BTreeMap<ObjectKey, Arc<Object>> {
    objects.into_iter().map(|object| (object.key(), object)).collect()
}

/// The kernel's word that something happened.
#[derive(Debug)]
enum Watcher {
    /// Watching the directories that exist.
    On(Listener),
    /// The watched directories were moved or removed: watch anew.
    Lost,
    /// The kernel has no watch for us; we look from time to time.
    Off,
}

impl Watcher {
    /// Watches what there is to watch. Watching a directory again costs nothing, and finds one made since.
    fn follow(&mut self, store: &Inner, kind: Kind, namespace: &str) {
        let inner = store;
        let Ok(dirs) = inner.kind_dirs(kind, namespace) else { return };
        let watch_all = |listener: &Listener| {
            // Without any namespace there is the root to watch, for the first.
            listener.watch(&inner.root, PARENTS)?;
            dirs.iter().try_for_each(|dir| watch_below(listener, dir))
        };
        let shown = dirs.first().filter(|_| dirs.len() == 1).map_or(inner.root.as_path(), |dir| &dir.path);
        let outcome = match self {
            Self::On(listener) => watch_all(listener),
            Self::Lost | Self::Off => Listener::new().and_then(|listener| {
                let outcome = watch_all(&listener);
                let was_off = matches!(self, Self::Off);
                *self = Self::On(listener);
                if was_off && outcome.is_ok() {
                    tracing::info!(directory = %shown.display(), "watching again");
                }
                outcome
            }),
        };
        if let Err(error) = outcome {
            if !matches!(self, Self::Off) {
                tracing::warn!(directory = %shown.display(), %error,
                    "cannot watch {}: {error}; looking every second instead \
                     (if it is a limit: raise fs.inotify.max_user_instances or max_user_watches)",
                    shown.display());
            }
            *self = Self::Off;
        }
    }

    /// Waits for an event, until files have settled, or for `patience`. Returns `false` if the kernel says nothing of what
    /// happens. A file that is renamed to its name is whole, and waits for others no longer than until `rested`.
    async fn wait(&mut self, rested: Instant, debounce: Duration, patience: Duration) -> bool {
        let Self::On(listener) = self else {
            sleep(POLL.min(patience)).await;
            return false;
        };
        if timeout(patience, listener.changed()).await.is_err() {
            return true;
        }
        let settled = Instant::now() + debounce;
        sleep_until(rested.max(Instant::now() + debounce / GATHER)).await;
        if listener.is_unsettled() {
            sleep_until(settled).await;
        }
        if listener.clear() {
            *self = Self::Lost;
            return false;
        }
        true
    }
}

/// For directories that come and go: of the root and of namespaces.
const PARENTS: WatchMask = WatchMask::CREATE
    .union(WatchMask::MOVED_TO)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::DELETE)
    .union(WatchMask::DELETE_SELF)
    .union(WatchMask::MOVE_SELF)
    .union(WatchMask::ONLYDIR);

/// For a kind's files.
const FILES: WatchMask =
    PARENTS.union(WatchMask::MODIFY).union(WatchMask::CLOSE_WRITE).union(WatchMask::ATTRIB);

/// Watches the namespace for directories that come and go, and the kind's directory for files. What does not exist yet
/// is not watched: its parent is.
fn watch_below(listener: &Listener, dir: &KindDir) -> io::Result<()> {
    if listener.watch(&dir.namespace_path, PARENTS)? {
        listener.watch(&dir.path, FILES)?;
    }
    Ok(())
}
