//! One inotify instance for all that a process watches: the kernel gives a user few of them, and several programs of ours
//! may run on one machine.
//!
//! ```text
//!   kernel ── events ──▶ thread `store-watch` ── by watch ──▶ listeners: "something happened", "no longer this directory",
//!                                                             and to those that collect them, names of files
//! ```
//!
//! A listener learns no more than that, and reads. A queue that ran over loses nothing: every listener reads everything.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use futures::FutureExt as _;
use inotify::{Event, EventMask, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::sync::Notify;

/// The process's instance, from the first that listens until it fails.
static HUB: Mutex<Option<Arc<Hub>>> = Mutex::new(None);

/// Ours: an event takes 16 bytes and a name of at most 256.
const BUFFER_BYTES: usize = 4096;

/// Ours: most names that are collected; beyond them it is cheaper to read the directory.
const MAX_NAMES: usize = 4096;

/// Hears of what happens in some directories. Dropping it stops watching what nobody else does.
#[derive(Debug)]
pub(super) struct Listener {
    hub: Arc<Hub>,
    mailbox: Arc<Mailbox>,
}

/// What has happened and a listener has not asked for yet.
#[derive(Debug, Default)]
struct Mailbox {
    changed: Notify,
    is_lost: AtomicBool,
    /// Whether a file may be half written: it was made or changed in place.
    is_unsettled: AtomicBool,
    names: Option<Mutex<Names>>,
}

/// Files that events were about, by name.
#[derive(Debug, Default)]
struct Names {
    files: BTreeSet<OsString>,
    /// Whether there were events of other files too.
    has_overflown: bool,
}

/// The instance, and who listens to what.
#[derive(Debug)]
struct Hub {
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    watches: Watches,
    mailboxes: HashMap<WatchDescriptor, Vec<Arc<Mailbox>>>,
    is_over: bool,
}

impl Listener {
    /// Makes a listener to nothing yet.
    ///
    /// # Errors
    /// The kernel gives us no instance, or no thread.
    pub(super) fn new() -> io::Result<Self> {
        Self::with(Mailbox::default())
    }

    /// Returns a listener to nothing yet that collects the names of files for [`Listener::take_names`].
    ///
    /// # Errors
    /// As [`Listener::new`].
    pub(super) fn collecting() -> io::Result<Self> {
        Self::with(Mailbox { names: Some(Mutex::default()), ..Mailbox::default() })
    }

    fn with(mailbox: Mailbox) -> io::Result<Self> {
        let mut shared = HUB.lock().unwrap_or_else(PoisonError::into_inner);
        let hub = match shared.as_ref().filter(|hub| !hub.lock().is_over) {
            Some(hub) => Arc::clone(hub),
            None => Hub::start()?,
        };
        *shared = Some(Arc::clone(&hub));
        Ok(Self { hub, mailbox: Arc::new(mailbox) })
    }

    /// Watches a directory, or goes on to; gives `false` if there is none. Of a directory that is watched for several
    /// reasons, all hear everything.
    ///
    /// # Errors
    /// The kernel gives us no watch, or the instance has failed.
    pub(super) fn watch(&self, path: &Path, mask: WatchMask) -> io::Result<bool> {
        let mut table = self.hub.lock();
        if table.is_over {
            return Err(io::Error::other("the kernel's events cannot be read any more"));
        }
        let watch = match table.watches.add(path, mask | WatchMask::MASK_ADD) {
            Ok(watch) => watch,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let mailboxes = table.mailboxes.entry(watch).or_default();
        if !mailboxes.iter().any(|mailbox| Arc::ptr_eq(mailbox, &self.mailbox)) {
            mailboxes.push(Arc::clone(&self.mailbox));
        }
        Ok(true)
    }

    /// Waits until something has happened. Can be cancelled.
    pub(super) async fn changed(&self) {
        self.mailbox.changed.notified().await;
    }

    /// Clears what has happened, before looking. Gives `true` if what is watched is not at our paths any more: then
    /// listen anew.
    pub(super) fn clear(&self) -> bool {
        let _ = self.mailbox.changed.notified().now_or_never();
        self.mailbox.is_unsettled.store(false, Ordering::Release);
        self.is_lost()
    }

    /// Returns whether a file may be half written: one was made or changed in place, not renamed to its name, since the last
    /// [`Listener::clear`].
    pub(super) fn is_unsettled(&self) -> bool {
        self.mailbox.is_unsettled.load(Ordering::Acquire)
    }

    /// Returns whether what is watched is not at our paths any more.
    pub(super) fn is_lost(&self) -> bool {
        self.mailbox.is_lost.load(Ordering::Acquire)
    }

    /// Takes the names of the files that have come, gone or changed since the last time; `None` if there may be more.
    pub(super) fn take_names(&self) -> Option<BTreeSet<OsString>> {
        let mut names = lock(self.mailbox.names.as_ref()?);
        let Names { files, has_overflown } = std::mem::take(&mut *names);
        (!has_overflown && !self.is_lost()).then_some(files)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut table = self.hub.lock();
        let Table { watches, mailboxes, .. } = &mut *table;
        mailboxes.retain(|watch, mailboxes| {
            mailboxes.retain(|mailbox| !Arc::ptr_eq(mailbox, &self.mailbox));
            if mailboxes.is_empty() {
                // The kernel may have ended it before us.
                let _ = watches.remove(watch.clone());
            }
            !mailboxes.is_empty()
        });
    }
}

impl Hub {
    fn start() -> io::Result<Arc<Self>> {
        let inotify = Inotify::init()?;
        let table = Table { watches: inotify.watches(), mailboxes: HashMap::new(), is_over: false };
        let hub = Arc::new(Self { table: Mutex::new(table) });
        let reader = Arc::clone(&hub);
        thread::Builder::new().name("store-watch".to_owned()).spawn(move || reader.read(inotify))?;
        Ok(hub)
    }

    /// Tells what the kernel says, until it says nothing any more.
    fn read(&self, mut inotify: Inotify) {
        let mut buffer = [0; BUFFER_BYTES];
        loop {
            match inotify.read_events_blocking(&mut buffer) {
                Ok(events) => {
                    let mut table = self.lock();
                    events.for_each(|event| table.notify(&event));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot read the kernel's events of directories");
                    let mut table = self.lock();
                    table.is_over = true;
                    return table.mailboxes.values().flatten().for_each(|mailbox| mailbox.notify(true));
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn notify<S: AsRef<OsStr>>(&mut self, event: &Event<S>) {
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            // Watches stay; what they had to say is found by reading everything.
            self.mailboxes.values().flatten().for_each(|mailbox| mailbox.overflow());
            return self.mailboxes.values().flatten().for_each(|mailbox| mailbox.notify(false));
        }
        let is_lost = event.mask.intersects(LOST);
        let mailboxes = self.mailboxes.get(&event.wd).map(Vec::as_slice).unwrap_or_default();
        // Whoever is woken finds the name collected.
        if let Some(name) = &event.name {
            let name = name.as_ref();
            // Temporary files of writers are the most, and no objects.
            if !name.as_bytes().starts_with(b".") {
                mailboxes.iter().for_each(|mailbox| mailbox.collect(name, event.mask));
            }
        }
        mailboxes.iter().for_each(|mailbox| mailbox.notify(is_lost));
        if event.mask.contains(EventMask::IGNORED) {
            self.mailboxes.remove(&event.wd);
        }
    }
}

impl Mailbox {
    fn collect(&self, name: &OsStr, mask: EventMask) {
        if mask.intersects(IN_PLACE) {
            self.is_unsettled.store(true, Ordering::Release);
        }
        let Some(names) = &self.names else { return };
        let mut names = lock(names);
        if names.files.len() < MAX_NAMES {
            names.files.insert(name.to_owned());
        } else if !names.files.contains(name) {
            names.has_overflown = true;
        }
    }

    fn overflow(&self) {
        if let Some(names) = &self.names {
            lock(names).has_overflown = true;
        }
    }

    fn notify(&self, is_lost: bool) {
        if is_lost {
            self.is_lost.store(true, Ordering::Release);
        }
        self.changed.notify_one();
    }
}

/// What says that a file is being written under its name.
const IN_PLACE: EventMask =
    EventMask::CREATE.union(EventMask::MODIFY).union(EventMask::ATTRIB).union(EventMask::CLOSE_WRITE);

/// What says that a watched directory is not the one at its path any more.
const LOST: EventMask =
    EventMask::DELETE_SELF.union(EventMask::MOVE_SELF).union(EventMask::IGNORED).union(EventMask::UNMOUNT);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const MASK: WatchMask = WatchMask::CREATE.union(WatchMask::DELETE_SELF).union(WatchMask::MOVE_SELF);

    /// Has tests take turns: the process has one queue, and one of them plays that it ran over, which all hear.
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    async fn is_told(listener: &Listener) -> bool {
        timeout(Duration::from_secs(20), listener.changed()).await.is_ok()
    }

    fn instances() -> usize {
        let links =
            fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        links.filter(|link| link.as_os_str() == "anon_inode:inotify").count()
    }

    #[tokio::test]
    async fn all_that_a_process_watches_takes_one_instance_and_each_hears_of_its_own() {
        let _turn = TURN.lock().await;
        let root = tempfile::tempdir().unwrap();
        let listeners: Vec<Listener> = (0..200).map(|_| Listener::new().unwrap()).collect();
        for (number, listener) in listeners.iter().enumerate() {
            let dir = root.path().join(format!("{}", number / 2));
            fs::create_dir_all(&dir).unwrap();
            assert!(listener.watch(&dir, MASK).unwrap());
        }
        assert_eq!(instances(), 1);
        fs::write(root.path().join("7/x"), "").unwrap();
        assert!(is_told(&listeners[14]).await && is_told(&listeners[15]).await);
        assert!(!listeners[14].clear());
        assert!(listeners[16].changed().now_or_never().is_none(), "nothing has happened there");
        assert!(!listeners[0].watch(&root.path().join("missing"), MASK).unwrap());
    }

    #[tokio::test]
    async fn whoever_goes_leaves_the_others_their_watches_and_a_directory_that_goes_is_lost() {
        let _turn = TURN.lock().await;
        let root = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| Listener::new().unwrap());
        assert!(one.watch(root.path(), MASK).unwrap() && other.watch(root.path(), MASK).unwrap());
        drop(one);
        fs::write(root.path().join("x"), "").unwrap();
        assert!(is_told(&other).await && !other.clear());
        let there = root.path().with_extension("moved");
        fs::rename(root.path(), &there).unwrap();
        assert!(is_told(&other).await && other.clear());
        fs::rename(there, root.path()).unwrap();
    }

    #[tokio::test]
    async fn a_queue_that_ran_over_tells_everybody_to_look() {
        let _turn = TURN.lock().await;
        let root = tempfile::tempdir().unwrap();
        let listener = Listener::new().unwrap();
        assert!(listener.watch(root.path(), MASK).unwrap());
        let event: Event<&OsStr> = {
            let wd = listener.hub.lock().watches.add(root.path(), MASK).unwrap();
            Event { wd, mask: EventMask::Q_OVERFLOW, cookie: 0, name: None }
        };
        listener.hub.lock().notify(&event);
        assert!(is_told(&listener).await && !listener.clear());
    }

    #[tokio::test]
    async fn names_of_files_are_collected_and_too_many_of_them_are_everything() {
        let _turn = TURN.lock().await;
        let root = tempfile::tempdir().unwrap();
        let files = MASK.union(WatchMask::MOVED_TO).union(WatchMask::DELETE);
        let [waiting, listener] = [Listener::new().unwrap(), Listener::collecting().unwrap()];
        assert!(waiting.watch(root.path(), files).unwrap() && listener.watch(root.path(), files).unwrap());
        fs::write(root.path().join(".hidden"), "").unwrap();
        fs::write(root.path().join("a.yaml"), "").unwrap();
        fs::rename(root.path().join(".hidden"), root.path().join("b.yaml")).unwrap();
        let mut found = BTreeSet::new();
        while found.len() < 2 {
            assert!(is_told(&waiting).await, "{found:?}");
            found.extend(listener.take_names().unwrap());
        }
        assert!(waiting.is_unsettled(), "a.yaml was made under its name");
        assert!(!waiting.clear() && !waiting.is_unsettled());
        fs::write(root.path().join(".hidden"), "").unwrap();
        fs::rename(root.path().join(".hidden"), root.path().join("b.yaml")).unwrap();
        while !listener.take_names().unwrap().contains(OsStr::new("b.yaml")) {
            assert!(is_told(&waiting).await);
        }
        assert!(!waiting.is_unsettled(), "b.yaml was whole when it got its name");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a.yaml", "b.yaml"]);

        (0..=MAX_NAMES)
            .for_each(|number| listener.mailbox.collect(OsStr::new(&number.to_string()), EventMask::DELETE));
        assert_eq!(listener.take_names(), None);
        assert_eq!(listener.take_names(), Some(BTreeSet::new()), "it was said once");
        listener.mailbox.overflow();
        assert_eq!(listener.take_names(), None);
    }
}
