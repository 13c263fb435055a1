//! The thread that writes sessions down: changes as they come, and now and then everything.
//!
//! ```text
//!   round, 20 times a second:  changes of all workers ─▶ file of changes
//!   too many changes, or some were lost:  new file of changes ─▶ ask workers for everything ─▶ snapshot ─▶ rename
//! ```
//!
//! Bounded: so many entries in a round, so many bytes of changes; above that changes are lost, which is counted and
//! mended by the next snapshot. Nothing is synchronised to the disk but whole snapshots: what a process wrote outlives
//! the process, and a node that loses its power loses its connections anyway.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use trieste_control::admin::{Severity, SnapshotStatus};
use trieste_control::conditions::Conditions;
use trieste_nat::Change;

use super::changes::ChangeQueue;
use super::record::{ENTRY_BYTES, Entry};
use super::store::{Changes, SessionFiles, Snapshot};

/// Time between two rounds: what a process that is killed forgets at most.
const ROUND: Duration = Duration::from_millis(50);
/// Most entries that are written in a round: 34 MB a second.
const ROUND_ENTRIES: usize = 1 << 16;
/// How often something is written although nothing has changed, so that a restart knows for how long nobody was there.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Bytes of changes after which a snapshot is due, in addition to twice the size of the one before.
const SMALL_CHANGES: u64 = 4 << 20;
/// Bytes of changes above which no more are written, because no snapshot comes about.
const MOST_CHANGES: u64 = 256 << 20;
/// Least time between the beginnings of two snapshots.
const SNAPSHOT_GAP: Duration = Duration::from_secs(5);
/// How long workers may take to say everything.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(20);
/// The condition when nothing can be written.
const CONDITION: &str = "SessionsNotKept";

/// Writes down what workers say, on a thread of its own, until it is dropped or stopped.
#[derive(Debug)]
pub struct Keeper {
    status: Arc<Mutex<SnapshotStatus>>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A worker's queue of changes, and how it is told to look at it.
pub struct Source {
    /// What the worker says.
    pub changes: Arc<ChangeQueue>,
    /// Wakes the worker.
    pub wake: Box<dyn Fn() + Send>,
}

impl Keeper {
    /// Begins to write into these files. `begun_with` says what this process took over.
    ///
    /// # Errors
    /// That there can be no thread.
    pub fn spawn(
        files: SessionFiles,
        sources: Vec<Source>,
        begun_with: SnapshotStatus,
        conditions: Conditions,
    ) -> io::Result<Self> {
        let status = Arc::new(Mutex::new(begun_with));
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (told, asked) = (Arc::clone(&status), Arc::clone(&is_stopping));
        let thread = thread::Builder::new().name("nat-sessions".to_owned()).spawn(move || {
            let mut desk = Desk::new(files, sources, told, conditions);
            while !asked.load(Ordering::Acquire) {
                desk.round(Instant::now(), unix_ms());
                thread::park_timeout(ROUND);
            }
            // What workers have said to their end.
            desk.round(Instant::now(), unix_ms());
        })?;
        Ok(Self { status, is_stopping, thread: Some(thread) })
    }

    /// What is on disk.
    pub fn status(&self) -> SnapshotStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A round; a panic of the thread has been said by its own message.
            let _ = thread.join();
        }
    }
}

fn unix_ms() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default()
}

/// The keeper's state, without thread and clock.
struct Desk {
    files: SessionFiles,
    sources: Vec<Source>,
    status: Arc<Mutex<SnapshotStatus>>,
    conditions: Conditions,
    changes: Option<Changes>,
    /// Bytes in files of changes that went before, of snapshots that did not come about.
    older_changes: u64,
    /// Bytes of the newest whole snapshot.
    snapshot_bytes: u64,
    export: Option<Export>,
    /// When the newest snapshot was begun.
    begun: Option<Instant>,
    written: Option<Instant>,
    is_due: bool,
    /// Changes that were not written, over those that the queues have lost.
    skipped: u64,
    entries: Vec<Entry>,
}

/// A snapshot under way.
struct Export {
    generation: u64,
    file: Snapshot,
    sessions: u64,
    since: Instant,
}

impl Desk {
    fn new(
        files: SessionFiles,
        sources: Vec<Source>,
        status: Arc<Mutex<SnapshotStatus>>,
        conditions: Conditions,
    ) -> Self {
        Self {
            files,
            sources,
            status,
            conditions,
            changes: None,
            older_changes: 0,
            snapshot_bytes: 0,
            export: None,
            begun: None,
            written: None,
            // What was restored is in other workers, and in the files of the process before.
            is_due: true,
            skipped: 0,
            entries: Vec::with_capacity(ROUND_ENTRIES),
        }
    }

    fn round(&mut self, now: Instant, unix_ms: u64) {
        let result = self.work(now, unix_ms);
        if result.is_err() {
            // All anew, after a while: what has been lost meanwhile will be in the next snapshot.
            (self.changes, self.export, self.is_due) = (None, None, true);
        }
        let problem = result.err().map(|error| {
            format!("translated connections would not outlive a restart: {error}; is the state directory's disk full?")
        });
        // A due snapshot that has to wait says nothing about whether the disk works again.
        if problem.is_some() || self.changes.is_some() {
            self.conditions.put(CONDITION, Severity::Warning, "", problem);
        }
        self.tell();
    }

    fn work(&mut self, now: Instant, unix_ms: u64) -> io::Result<()> {
        self.take_changes();
        self.write_changes(now, unix_ms)?;
        if self.export.is_some() {
            self.go_on(now, unix_ms)?;
        } else if self.is_due() && self.begun.is_none_or(|begun| now.duration_since(begun) >= SNAPSHOT_GAP) {
            self.begin(now)?;
        }
        Ok(())
    }

    fn take_changes(&mut self) {
        self.entries.clear();
        let share = ROUND_ENTRIES / self.sources.len().max(1);
        for source in &self.sources {
            self.is_due |= source.changes.take_loss();
            for change in std::iter::from_fn(|| source.changes.take_change()).take(share) {
                match change {
                    Change::Is(record) => self.entries.push(Entry::Is(record)),
                    Change::Gone(record) => self.entries.push(Entry::Gone(record)),
                    Change::Lost => self.is_due = true,
                }
            }
        }
    }

    fn write_changes(&mut self, now: Instant, unix_ms: u64) -> io::Result<()> {
        let is_silent = self.written.is_none_or(|written| now.duration_since(written) >= HEARTBEAT);
        let Some(changes) = &mut self.changes else {
            self.skipped += self.entries.len() as u64;
            return Ok(());
        };
        if self.older_changes + changes.bytes() > MOST_CHANGES {
            self.skipped += self.entries.len() as u64;
            self.is_due = true;
            return Ok(());
        }
        if self.entries.is_empty() && is_silent {
            changes.heartbeat(unix_ms)?;
            self.written = Some(now);
        } else if !self.entries.is_empty() {
            changes.entries(&self.entries, unix_ms)?;
            self.written = Some(now);
        }
        Ok(())
    }

    fn is_due(&self) -> bool {
        let bytes = self.older_changes + self.changes.as_ref().map_or(0, Changes::bytes);
        self.is_due || bytes > SMALL_CHANGES + 2 * self.snapshot_bytes
    }

    /// From here on changes are in another file, and workers say everything.
    fn begin(&mut self, now: Instant) -> io::Result<()> {
        self.begun = Some(now);
        let generation = self.files.next_generation();
        let changes = self.files.begin_changes(generation)?;
        self.older_changes += self.changes.as_ref().map_or(0, Changes::bytes);
        self.changes = Some(changes);
        self.is_due = false;
        let file = self.files.begin_snapshot(generation)?;
        self.export = Some(Export { generation, file, sessions: 0, since: now });
        for source in &self.sources {
            source.changes.want(generation);
            (source.wake)();
        }
        Ok(())
    }

    fn go_on(&mut self, now: Instant, unix_ms: u64) -> io::Result<()> {
        let Some(export) = &mut self.export else { return Ok(()) };
        // Asked before the queue is emptied: what was handed out before the end is in it.
        let is_done = self.sources.iter().all(|source| source.changes.is_done(export.generation));
        for source in &self.sources {
            loop {
                self.entries.clear();
                let records = std::iter::from_fn(|| source.changes.take_record()).take(ROUND_ENTRIES);
                self.entries.extend(records.map(Entry::Is));
                if self.entries.is_empty() {
                    break;
                }
                export.sessions += self.entries.len() as u64;
                export.file.entries(&self.entries, unix_ms)?;
                (source.wake)();
            }
        }
        if is_done && let Some(Export { generation, file, sessions, .. }) = self.export.take() {
            self.snapshot_bytes = self.files.publish(file, generation, unix_ms)?;
            self.older_changes = 0;
            let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
            status.sessions = sessions;
        } else if self.export.as_ref().is_some_and(|export| now.duration_since(export.since) > EXPORT_TIMEOUT)
        {
            tracing::warn!("workers have not said all their sessions in time; trying again");
            (self.export, self.is_due) = (None, true);
        }
        Ok(())
    }

    fn tell(&self) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = self.older_changes + self.changes.as_ref().map_or(0, Changes::bytes);
        status.bytes = self.snapshot_bytes + changes;
        status.changes = changes / ENTRY_BYTES as u64;
        status.lost = self.skipped + self.sources.iter().map(|source| source.changes.lost()).sum::<u64>();
        if let Some(since) = self.written.map(|written| written.elapsed()) {
            status.written = Timestamp::now().checked_sub(since).ok();
        }
    }
}

/// Removes everything that is kept in a directory.
///
/// # Errors
/// What the kernel says; that there was nothing is no error.
pub fn forget(dir: &Path) -> io::Result<()> {
    for name in super::store::names(dir) {
        match fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
