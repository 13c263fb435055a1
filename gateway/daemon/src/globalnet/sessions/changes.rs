//! From workers to the keeper: changes as they happen, and everything when it is asked for.
//!
//! A worker never waits: a full queue says so in a flag, and the keeper asks for everything instead.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam::queue::ArrayQueue;
use trieste_nat::{Change, Record};

/// Changes that wait for the keeper. Ours: what a worker makes of a million flows a second between two looks of it.
const CHANGES: usize = 1 << 16;
/// Records that wait for the keeper while everything is asked for.
const RECORDS: usize = 1 << 12;

/// What lies between one worker and the keeper.
#[derive(Debug)]
pub struct ChangeQueue {
    changes: ArrayQueue<Change>,
    records: ArrayQueue<Record>,
    lost: AtomicU64,
    has_lost: AtomicBool,
    /// Of which export the records are; 0 for none.
    wanted: AtomicU64,
    done: AtomicU64,
}

impl Default for ChangeQueue {
    fn default() -> Self {
        Self {
            changes: ArrayQueue::new(CHANGES),
            records: ArrayQueue::new(RECORDS),
            lost: AtomicU64::new(0),
            has_lost: AtomicBool::new(false),
            wanted: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }
}

impl ChangeQueue {
    /// The worker says what has changed.
    pub fn tell(&self, change: Change) {
        if self.changes.push(change).is_err() {
            self.note_loss(1);
        }
    }

    /// The worker says that changes were lost before they came here.
    pub fn note_loss(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
        self.has_lost.store(true, Ordering::Release);
    }

    /// Room for records, so many at once.
    #[must_use]
    pub fn room(&self) -> usize {
        RECORDS - self.records.len()
    }

    /// The worker hands a record out; it has asked for [`ChangeQueue::room`] before.
    pub fn hand_out(&self, record: Record) {
        if self.records.push(record).is_err() {
            self.note_loss(1);
        }
    }

    /// The export that is wanted; another one than before is begun anew.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Acquire)
    }

    /// The worker has handed out everything of an export.
    pub fn finish(&self, export: u64) {
        self.done.store(export, Ordering::Release);
    }

    /// The keeper asks for everything.
    pub(super) fn want(&self, export: u64) {
        self.wanted.store(export, Ordering::Release);
    }

    /// Whether everything of an export is in the queue or was taken.
    pub(super) fn is_done(&self, export: u64) -> bool {
        self.done.load(Ordering::Acquire) == export
    }

    pub(super) fn take_change(&self) -> Option<Change> {
        self.changes.pop()
    }

    pub(super) fn take_record(&self) -> Option<Record> {
        self.records.pop()
    }

    /// Whether changes were lost since the last call.
    pub(super) fn take_loss(&self) -> bool {
        self.has_lost.swap(false, Ordering::AcqRel)
    }

    /// Changes lost since the start.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
