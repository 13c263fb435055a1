//! Sessions on disk: what a restart, also after a crash, goes on with.
//!
//! ```text
//!   worker ─▶ queue (bounded, lock-free) ─▶ keeper (thread) ─▶ files ─▶ the next process ─▶ its workers
//! ```
//!
//! * `record` — one session as bytes. * `file` — frames with checksums. * `store` — which files there are.
//! * [`changes`] — how workers say what has changed. * `writer` — the thread that writes.

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
pub use writer::{Keeper, Source, forget};

/// What the process before has left.
#[derive(Debug, Default)]
pub struct Restored {
    /// The sessions to go on with, with the time that they have left.
    pub records: Vec<Record>,
    /// How many had no time left.
    pub expired: u64,
}

/// Reads the files, and takes what is still alive. What is wrong with a file is logged and costs what was in it.
pub fn restore(files: &SessionFiles, config: &Globalnet, now: Timestamp) -> Restored {
    let loaded = files.load();
    for (path, problem) in &loaded.problems {
        tracing::warn!(path = %path.display(), %problem, "sessions of the process before cannot be read");
    }
    let now_ms = u64::try_from(now.as_millisecond()).unwrap_or_default();
    // A clock that was set back says nothing about how long nobody was there.
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
