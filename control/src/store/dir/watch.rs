//! Following a directory: inotify says *that* something happened, a scan says *what*.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, stream};
use inotify::WatchMask;
use tokio::time::{sleep, timeout};

use super::DirStore;
use super::layout::KindDir;
use super::listen::Listener;
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
    /// What the consumer was told, by namespace and name, shared with the cache; `None` when it has to be told all of it.
    known: Option<BTreeMap<ObjectKey, Arc<Object>>>,
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
    fn compare(&mut self, listed: Result<Vec<Arc<Object>>, StoreError>) {
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
        match self.known.take() {
            None => {
                let all = objects.iter().map(|object| Object::clone(object)).collect();
                self.pending.push_back(StoreEvent::Listed(all));
            }
            Some(mut before) => {
                for object in &objects {
                    // Both are the cache's own unless the file was read anew, so that most are equal without a look.
                    if before.remove(&object.key()).is_none_or(|known| known != *object) {
                        self.pending.push_back(StoreEvent::Applied(Object::clone(object)));
                    }
                }
                // Deletions first: the consumer should not see both the old and the new owner of a name or an address.
                let gone = before.into_values().map(Arc::unwrap_or_clone);
                gone.for_each(|object| self.pending.push_front(StoreEvent::Deleted(object)));
            }
        }
        self.known = Some(objects.into_iter().map(|object| (object.key(), object)).collect());
    }
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
    fn follow(&mut self, store: &DirStore, kind: Kind, namespace: &str) {
        let inner = &store.inner;
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

    /// Waits for an event and `debounce` more, or for `patience`.
    async fn wait(&mut self, debounce: Duration, patience: Duration) {
        let Self::On(listener) = self else {
            sleep(POLL.min(patience)).await;
            return;
        };
        if timeout(patience, listener.heard()).await.is_err() {
            return;
        }
        sleep(debounce).await;
        if listener.forget() {
            *self = Self::Lost;
        }
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
