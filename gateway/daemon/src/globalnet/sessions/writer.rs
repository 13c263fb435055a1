//! The thread that writes sessions to disk: changes as they come, and snapshots now and then.
//!
//! ```text
//!   round, 20 times a second:  changes of all workers ─▶ file of changes
//!   too many changes, or some were lost:  new file of changes ─▶ workers export all sessions ─▶ snapshot ─▶ rename
//! ```
//!
//! Entries of a round and bytes of changes are bounded; above that changes are lost, which is counted and repaired by the
//! next snapshot. Only snapshots are synchronised to the disk: data that was written outlives the process, and a node that
//! loses its power loses its connections anyway.

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

/// Time between two rounds, and so the longest time of changes that a crash loses.
const ROUND: Duration = Duration::from_millis(50);
/// Most entries that are written in a round: 34 MB a second.
const ROUND_ENTRIES: usize = 1 << 16;
/// Longest time between two writes, so that a restart can tell how long the process was down.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Bytes of changes after which a snapshot is due, in addition to twice the size of the one before.
const SMALL_CHANGES: u64 = 4 << 20;
/// Bytes of changes above which no more are written, because snapshots fail.
const MOST_CHANGES: u64 = 256 << 20;
/// Shortest time between the starts of two snapshots.
const SNAPSHOT_GAP: Duration = Duration::from_secs(5);
/// How long workers may take to export all sessions.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(20);
/// The condition when nothing can be written.
const CONDITION: &str = "SessionsNotKept";

/// Writes workers' sessions to disk, on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct SnapshotWriter {
    status: Arc<Mutex<SnapshotStatus>>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A worker's queue of changes, and how to wake the worker.
pub struct Source {
    /// The worker's changes and exports.
    pub changes: Arc<ChangeQueue>,
    /// Wakes the worker.
    pub wake: Box<dyn Fn() + Send>,
}

impl SnapshotWriter {
    /// Starts the thread. `restored` describes the sessions that were restored from the last process.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn spawn(
        files: SessionFiles,
        sources: Vec<Source>,
        restored: SnapshotStatus,
        conditions: Conditions,
    ) -> io::Result<Self> {
        let status = Arc::new(Mutex::new(restored));
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (thread_status, stop) = (Arc::clone(&status), Arc::clone(&is_stopping));
        let thread = thread::Builder::new().name("nat-sessions".to_owned()).spawn(move || {
            let mut state = WriterState::new(files, sources, thread_status, conditions);
            while !stop.load(Ordering::Acquire) {
                state.round(Instant::now(), unix_ms());
                thread::park_timeout(ROUND);
            }
            // The changes up to the workers' end.
            state.round(Instant::now(), unix_ms());
        })?;
        Ok(Self { status, is_stopping, thread: Some(thread) })
    }

    /// Returns the status of the files on disk.
    pub fn status(&self) -> SnapshotStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // Takes a round; a panic of the thread was logged by the panic hook.
            let _ = thread.join();
        }
    }
}

fn unix_ms() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default()
}

/// The writer's state, without thread and clock.
struct WriterState {
    files: SessionFiles,
    sources: Vec<Source>,
    status: Arc<Mutex<SnapshotStatus>>,
    conditions: Conditions,
    changes: Option<Changes>,
    /// Bytes in earlier files of changes, whose snapshots were not completed.
    older_changes: u64,
    /// Bytes of the newest whole snapshot.
    snapshot_bytes: u64,
    export: Option<Export>,
    /// Start of the newest snapshot.
    begun: Option<Instant>,
    written: Option<Instant>,
    is_due: bool,
    /// Changes that were not written, besides those lost by the queues.
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

impl WriterState {
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
            // Restored sessions may be in other workers now, and are in the last process's files only.
            is_due: true,
            skipped: 0,
            entries: Vec::with_capacity(ROUND_ENTRIES),
        }
    }

    fn round(&mut self, now: Instant, unix_ms: u64) {
        let result = self.work(now, unix_ms);
        if result.is_err() {
            // Starts over after a while: changes lost meanwhile are in the next snapshot.
            (self.changes, self.export, self.is_due) = (None, None, true);
        }
        let problem = result.err().map(|error| {
            format!("translated connections would not outlive a restart: {error}; is the state directory's disk full?")
        });
        // While a due snapshot waits it is unknown whether the disk works again.
        if problem.is_some() || self.changes.is_some() {
            self.conditions.put(CONDITION, Severity::Warning, "", problem);
        }
        self.publish_status();
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

    /// Starts a snapshot: further changes go to a new file, and workers export all sessions.
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
            source.changes.request_export(generation);
            (source.wake)();
        }
        Ok(())
    }

    fn go_on(&mut self, now: Instant, unix_ms: u64) -> io::Result<()> {
        let Some(export) = &mut self.export else { return Ok(()) };
        // Read before the queue is drained: records queued before the end are in it.
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
            tracing::warn!("export of sessions timed out; retrying");
            (self.export, self.is_due) = (None, true);
        }
        Ok(())
    }

    fn publish_status(&self) {
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

/// Removes the files from a directory.
///
/// # Errors
/// A file cannot be removed; a missing one is no error.
pub fn remove_files(dir: &Path) -> io::Result<()> {
    for name in super::store::names(dir) {
        match fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
