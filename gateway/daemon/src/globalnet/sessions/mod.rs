//! Sessions on disk, from which a restarted process continues, also after a crash.
//!
//! ```text
//!   worker ─▶ queue (bounded, lock-free) ─▶ writer (thread) ─▶ files ─▶ the next process ─▶ its workers
//! ```
//!
//! * `record` — one session as bytes. * `file` — frames with checksums. * `store` — the set of files.
//! * [`changes`] — the queues from workers. * `writer` — the thread that writes.

pub mod changes;

mod file;
mod record;
mod store;
mod writer;

use std::time::Duration;

use jiff::Timestamp;
use trieste_nat::Record;

use crate::config::Globalnet;

pub use store::SessionFiles;
pub use writer::{SnapshotWriter, Source, remove_files};

/// The sessions of the last process.
#[derive(Debug, Default)]
pub struct Restored {
    /// The sessions to go on with, with the time that they have left.
    pub records: Vec<Record>,
    /// Number of sessions that expired meanwhile.
    pub expired: u64,
}

/// Reads the files, and returns the sessions that have not expired. A damaged file is logged, and ignored.
pub fn restore(files: &SessionFiles, config: &Globalnet, now: Timestamp) -> Restored {
    let loaded = files.load();
    for (path, problem) in &loaded.problems {
        tracing::warn!(path = %path.display(), %problem, "cannot read sessions of the last process");
    }
    let now_ms = u64::try_from(now.as_millisecond()).unwrap_or_default();
    // If the clock was set back, the downtime is unknown and taken for 0.
    let dead = Duration::from_millis(now_ms.saturating_sub(loaded.known_ms));
    let mut restored = Restored::default();
    for entry in loaded.sessions.values() {
        match record::revived(*entry.record(), dead, config) {
            Some(record) => restored.records.push(record),
            None => restored.expired += 1,
        }
    }
    restored
}

#[cfg(test)]
mod tests;
