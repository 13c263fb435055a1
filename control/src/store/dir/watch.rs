//! Following a directory: inotify says *that* something happened, a scan says *what*.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use inotify::{EventMask, EventStream, Inotify, WatchMask};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::DirStore;
use super::layout::KindDir;
use crate::api::{Kind, Object, ObjectKey};
use crate::store::{StoreError, StoreEvent};

/// How long to go without looking while the store is away or inotify is not to be had. Ours: a second is soon enough
/// for people, and a scan of unchanged files costs microseconds each.
const POLL: Duration = Duration::from_secs(1);

/// A stream of the events of one directory. Does nothing while it is not polled.
pub(super) fn stream(
    store: DirStore,
    kind: Kind,
    namespace: String,
) -> impl Stream<Item = StoreEvent> + Send + Unpin + use<> {
    let follower = Follower {
        store,
        kind,
        namespace,
        watcher: Watcher::Lost,
        known: None,
        pending: VecDeque::new(),
        last_error: None,
        is_first: true,
    };
    Box::pin(stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await;
        Some((event, follower))
    }))
}

#[derive(Debug)]
struct Follower {
    store: DirStore,
    kind: Kind,
    namespace: String,
    watcher: Watcher,
    /// What the consumer was told, by namespace and name; `None` when it has to be told all of it.
    known: Option<BTreeMap<ObjectKey, Object>>,
    pending: VecDeque<StoreEvent>,
    /// The reason that the consumer was told for the store being away.
    last_error: Option<String>,
    is_first: bool,
}

impl Follower {
    async fn next(&mut self) -> StoreEvent {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return event;
            }
            if !self.is_first {
                self.wait().await;
            }
            self.is_first = false;
            // Watching starts before reading: what changes in between is then seen twice and never missed.
            self.watcher.follow(&self.store, self.kind, &self.namespace);
            let (kind, namespace) = (self.kind, self.namespace.clone());
            let listed = self.store.blocking(move |inner| inner.list(kind, &namespace)).await;
            self.compare(listed);
        }
    }

    /// Waits until something happened and has settled, or for as long as we care to go without looking.
    async fn wait(&mut self) {
        let options = &self.store.inner.options;
        let patience = if self.last_error.is_some() { POLL.min(options.resync) } else { options.resync };
        self.watcher.wait(options.debounce, patience).await;
    }

    /// Turns the difference between what is there and what the consumer knows into events.
    fn compare(&mut self, listed: Result<Vec<Object>, StoreError>) {
        let objects = match listed {
            Ok(objects) => objects,
            Err(error) => {
                let text = error.to_string();
                if self.last_error.as_ref() != Some(&text) {
                    self.last_error = Some(text);
                    self.pending.push_back(StoreEvent::Unavailable(error));
                }
                self.known = None;
                return;
            }
        };
        self.last_error = None;
        let fresh: BTreeMap<ObjectKey, Object> =
            objects.iter().map(|object| (object.key(), object.clone())).collect();
        match self.known.replace(fresh) {
            None => self.pending.push_back(StoreEvent::Listed(objects)),
            Some(mut before) => {
                for object in objects {
                    let old = before.remove(&object.key());
                    if old.as_ref() != Some(&object) {
                        self.pending.push_back(StoreEvent::Applied(object));
                    }
                }
                // Deletions first: the consumer should not see both the old and the new owner of a name or an address.
                before.into_values().for_each(|object| self.pending.push_front(StoreEvent::Deleted(object)));
            }
        }
    }
}

/// The kernel's word that something happened.
enum Watcher {
    /// Watching the directories that exist.
    On(Box<EventStream<[u8; 4096]>>),
    /// The watched directories were moved or removed: watch anew.
    Lost,
    /// The kernel has no watch for us; we look from time to time.
    Off,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::On(_) => "On",
            Self::Lost => "Lost",
            Self::Off => "Off",
        })
    }
}

impl Watcher {
    /// Watches what there is to watch. Watching a directory again costs nothing, and finds one made since.
    fn follow(&mut self, store: &DirStore, kind: Kind, namespace: &str) {
        let inner = &store.inner;
        let Ok(dirs) = inner.kind_dirs(kind, namespace) else { return };
        let watch_all = |events: &EventStream<[u8; 4096]>| {
            // Without any namespace there is the root to watch, for the first.
            watch(events, &inner.root, PARENTS)?;
            dirs.iter().try_for_each(|dir| watch_below(events, dir))
        };
        let shown = dirs.first().filter(|_| dirs.len() == 1).map_or(inner.root.as_path(), |dir| &dir.path);
        let outcome = match self {
            Self::On(events) => watch_all(events),
            Self::Lost | Self::Off => start().and_then(|events| {
                let outcome = watch_all(&events);
                let was_off = matches!(self, Self::Off);
                *self = Self::On(Box::new(events));
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

    /// Waits for an event and `debounce` more, or for `patience`.
    async fn wait(&mut self, debounce: Duration, patience: Duration) {
        let Self::On(events) = self else {
            tokio::time::sleep(POLL.min(patience)).await;
            return;
        };
        let until = Instant::now() + patience;
        let Ok(first) = timeout_at(until, events.next()).await else { return };
        let settled = Instant::now() + debounce;
        let mut is_lost = means_lost(first);
        while let Ok(more) = timeout_at(settled, events.next()).await {
            is_lost |= means_lost(more);
            if is_lost {
                break;
            }
        }
        sleep_until(settled).await;
        if is_lost {
            *self = Self::Lost;
        }
    }
}

fn start() -> io::Result<EventStream<[u8; 4096]>> {
    Inotify::init()?.into_event_stream([0; 4096])
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
fn watch_below(events: &EventStream<[u8; 4096]>, dir: &KindDir) -> io::Result<()> {
    if watch(events, &dir.namespace_path, PARENTS)? {
        watch(events, &dir.path, FILES)?;
    }
    Ok(())
}

/// Watches a directory; gives `false` if there is none.
fn watch(events: &EventStream<[u8; 4096]>, path: &Path, mask: WatchMask) -> io::Result<bool> {
    match events.watches().add(path, mask) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Whether an event says that the watched directories are not the ones at our paths any more. A queue that ran over
/// does not: the scan that follows every event reads everything anyway.
fn means_lost(event: Option<io::Result<inotify::EventOwned>>) -> bool {
    match event {
        Some(Ok(event)) => event.mask.intersects(
            EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::IGNORED | EventMask::UNMOUNT,
        ),
        Some(Err(_)) | None => true,
    }
}
