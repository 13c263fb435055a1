//! Queues from workers to the snapshot writer: changes as they happen, and all sessions on request.
//!
//! A worker never waits: a full queue sets a flag, and the writer requests all sessions instead.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam::queue::ArrayQueue;
use trieste_nat::{Change, Record};

/// Capacity for changes. Ours: as many as a million flows a second make between two rounds of the writer.
const CHANGES: usize = 1 << 16;
/// Capacity for records of an export.
const RECORDS: usize = 1 << 12;

/// The queues between one worker and the snapshot writer.
#[derive(Debug)]
pub struct ChangeQueue {
    changes: ArrayQueue<Change>,
    records: ArrayQueue<Record>,
    lost: AtomicU64,
    has_lost: AtomicBool,
    /// Number of the requested export; 0 for none.
    requested: AtomicU64,
    done: AtomicU64,
}

impl Default for ChangeQueue {
    fn default() -> Self {
        Self {
            changes: ArrayQueue::new(CHANGES),
            records: ArrayQueue::new(RECORDS),
            lost: AtomicU64::new(0),
            has_lost: AtomicBool::new(false),
            requested: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }
}

impl ChangeQueue {
    /// Queues a change; one that does not fit is counted as lost.
    pub fn push(&self, change: Change) {
        if self.changes.push(change).is_err() {
            self.record_loss(1);
        }
    }

    /// Counts changes that were lost before they reached the queue.
    pub fn record_loss(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
        self.has_lost.store(true, Ordering::Release);
    }

    /// Returns the number of records that fit.
    #[must_use]
    pub fn room(&self) -> usize {
        RECORDS - self.records.len()
    }

    /// Queues a record of an export; there has to be [`ChangeQueue::room`].
    pub fn push_record(&self, record: Record) {
        if self.records.push(record).is_err() {
            self.record_loss(1);
        }
    }

    /// Returns the number of the requested export, which has to start over when it changes.
    #[must_use]
    pub fn requested_export(&self) -> u64 {
        self.requested.load(Ordering::Acquire)
    }

    /// Marks an export as complete.
    pub fn finish_export(&self, export: u64) {
        self.done.store(export, Ordering::Release);
    }

    /// Requests an export of all sessions.
    pub(super) fn request_export(&self, export: u64) {
        self.requested.store(export, Ordering::Release);
    }

    /// Returns `true` if an export is complete, in the queue or taken from it.
    pub(super) fn is_done(&self, export: u64) -> bool {
        self.done.load(Ordering::Acquire) == export
    }

    pub(super) fn take_change(&self) -> Option<Change> {
        self.changes.pop()
    }

    pub(super) fn take_record(&self) -> Option<Record> {
        self.records.pop()
    }

    /// Returns `true` if changes were lost since the last call.
    pub(super) fn take_loss(&self) -> bool {
        self.has_lost.swap(false, Ordering::AcqRel)
    }

    /// Returns the number of changes lost since the start.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
