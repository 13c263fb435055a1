//! A worker's work for its translated sessions besides their packets: it queues changes, exports all sessions on request,
//! and restores those of the last process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use trieste_nat::{Cursor, Record, Rules, Stats};
use trieste_pipeline::{Pipeline, SharingStats};

use crate::globalnet::sessions::changes::ChangeQueue;

/// Most sessions that are exported between two batches of packets. Ours: a few microseconds.
const EXPORT_SLICE: usize = 256;
/// How often statistics are computed: there may be many addresses.
const STATS_INTERVAL: Duration = Duration::from_secs(1);

/// Sessions of the last process, for the worker that owns them.
#[derive(Debug)]
pub struct Restore {
    /// The sessions.
    pub records: Vec<Record>,
    /// The rules that they are restored under: those of the next tables.
    pub rules: Arc<Rules>,
}

/// A worker's published numbers about translation.
#[derive(Debug, Clone, Default)]
pub struct PublishedSessions {
    /// Its numbers, up to a second old; `None` as long as it has translated nothing.
    pub stats: Option<Arc<Stats>>,
    /// Numbers of the replication to other gateways of the cluster.
    pub sharing: Option<SharingStats>,
    /// Sessions restored from the last process.
    pub restored: u64,
    /// Sessions that could not be restored: the rules forbid them, or there was no room.
    pub not_restored: u64,
}

/// A worker's exports and statistics of its sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    changes: Option<Arc<ChangeQueue>>,
    export: u64,
    cursor: Option<Cursor>,
    slice: Vec<Record>,
    next_stats: Instant,
    published: PublishedSessions,
}

impl Sessions {
    pub(super) fn new(changes: Option<Arc<ChangeQueue>>, now: Instant) -> Self {
        Self {
            changes,
            export: 0,
            cursor: None,
            slice: Vec::with_capacity(EXPORT_SLICE),
            next_stats: now,
            published: PublishedSessions::default(),
        }
    }

    /// Restores sessions, all at once: a packet of a session that is still missing would begin another one.
    pub(super) fn restore(&mut self, pipeline: &mut Pipeline, restore: &Restore, now: Instant) {
        let nat = pipeline.nat_mut(now);
        for record in &restore.records {
            let counter = if nat.restore(record, &restore.rules, now) {
                &mut self.published.restored
            } else {
                &mut self.published.not_restored
            };
            *counter += 1;
        }
    }

    /// Queues changes, and a slice of an export if one is requested. Returns `true` if the export is not complete.
    pub(super) fn follow(&mut self, pipeline: &mut Pipeline, now: Instant) -> bool {
        let Some(changes) = &self.changes else { return false };
        let wanted = changes.requested_export();
        if wanted != self.export {
            self.export = wanted;
            self.cursor = Some(Cursor::default());
        }
        if pipeline.nat().is_none() {
            if self.cursor.take().is_some() {
                changes.finish_export(wanted);
            }
            return false;
        }
        let nat = pipeline.nat_mut(now);
        nat.changes().for_each(|change| changes.push(change));
        let Some(cursor) = self.cursor else { return false };
        let count = changes.room().min(EXPORT_SLICE);
        if count == 0 {
            // The writer wakes the worker when there is room.
            return false;
        }
        self.cursor = nat.export(cursor, count, now, &mut self.slice);
        self.slice.drain(..).for_each(|record| changes.push_record(record));
        if self.cursor.is_none() {
            changes.finish_export(wanted);
        }
        true
    }

    /// Returns the published numbers.
    pub(super) fn publish(&mut self, pipeline: &Pipeline, now: Instant) -> PublishedSessions {
        if now >= self.next_stats {
            self.next_stats = now + STATS_INTERVAL;
            self.published.stats = pipeline.nat().map(|nat| Arc::new(nat.stats()));
        }
        self.published.sharing = pipeline.sharing();
        self.published.clone()
    }
}
