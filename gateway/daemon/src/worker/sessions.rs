//! What a worker does for its translated sessions beside their packets: it says what has changed, says everything
//! when asked, and takes over those of the process before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use trieste_nat::{Cursor, Record, Rules, Stats};
use trieste_pipeline::{Pipeline, SharingStats};

use crate::globalnet::sessions::changes::ChangeQueue;

/// Most sessions that are handed out between two batches of packets. Ours: a few microseconds.
const EXPORT_SLICE: usize = 256;
/// How often numbers are put together: there may be many addresses.
const STATS_INTERVAL: Duration = Duration::from_secs(1);

/// Sessions of a process before this one, for the worker that owns them.
#[derive(Debug)]
pub struct Restore {
    /// The sessions.
    pub records: Vec<Record>,
    /// The rules that they are restored under: those of the next tables.
    pub rules: Arc<Rules>,
}

/// What a worker says of its translation.
#[derive(Debug, Clone, Default)]
pub struct PublishedSessions {
    /// Its numbers, up to a second old; `None` as long as it has translated nothing.
    pub stats: Option<Arc<Stats>>,
    /// What it shares with other gateways of the cluster.
    pub sharing: Option<SharingStats>,
    /// Sessions taken over from the process before.
    pub restored: u64,
    /// Sessions that could not be: the rules forbid them, or there was no room.
    pub not_restored: u64,
}

/// A worker's desk for its sessions.
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

    /// Takes sessions over. All at once: a packet of a session that is not here yet would begin another one.
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

    /// Says what has changed, and a piece of everything if that is asked for. Returns whether there is more to say.
    pub(super) fn follow(&mut self, pipeline: &mut Pipeline, now: Instant) -> bool {
        let Some(changes) = &self.changes else { return false };
        let wanted = changes.wanted();
        if wanted != self.export {
            self.export = wanted;
            self.cursor = Some(Cursor::default());
        }
        if pipeline.nat().is_none() {
            if self.cursor.take().is_some() {
                changes.finish(wanted);
            }
            return false;
        }
        let nat = pipeline.nat_mut(now);
        nat.changes().for_each(|change| changes.tell(change));
        let Some(cursor) = self.cursor else { return false };
        let count = changes.room().min(EXPORT_SLICE);
        if count == 0 {
            // Whoever makes room wakes us.
            return false;
        }
        self.cursor = nat.export(cursor, count, now, &mut self.slice);
        self.slice.drain(..).for_each(|record| changes.hand_out(record));
        if self.cursor.is_none() {
            changes.finish(wanted);
        }
        true
    }

    /// What is said of the sessions.
    pub(super) fn publish(&mut self, pipeline: &Pipeline, now: Instant) -> PublishedSessions {
        if now >= self.next_stats {
            self.next_stats = now + STATS_INTERVAL;
            self.published.stats = pipeline.nat().map(|nat| Arc::new(nat.stats()));
        }
        self.published.sharing = pipeline.sharing();
        self.published.clone()
    }
}
