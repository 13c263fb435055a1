//! How long changes take from one store to the other: from the first event about a service in one of them to the last write
//! that follows from it in the other.
//!
//! A change from which nothing follows there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use trieste_control::runner::Histogram;

use crate::name::{BROKER, Key, LOCAL, ServiceName};

/// How far changes of one store are in the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lag {
    /// How long those took that are written.
    pub written: Histogram,
    /// Since when the oldest waits of those that are not.
    pub oldest: Option<Instant>,
}

/// The changes of both stores.
#[derive(Debug, Default)]
pub(crate) struct SyncLag {
    to_broker: Changes,
    to_local: Changes,
}

/// Services of which something has changed in one store, and is not known to be written in the other.
#[derive(Debug, Default)]
struct Changes {
    waiting: BTreeMap<ServiceName, Change>,
    /// The same, the oldest first.
    by_age: BTreeSet<(Instant, ServiceName)>,
    written: Histogram,
}

#[derive(Debug)]
struct Change {
    since: Instant,
    /// When something was last written for it.
    written: Option<Instant>,
}

impl SyncLag {
    /// Returns how far changes are that are to be written to a store.
    pub(crate) fn of(&self, store: usize) -> Lag {
        let Changes { written, by_age, .. } = if store == BROKER { &self.to_broker } else { &self.to_local };
        Lag { written: written.clone(), oldest: by_age.first().map(|(since, _)| *since) }
    }

    fn changes(&mut self, store: usize) -> &mut Changes {
        if store == BROKER { &mut self.to_broker } else { &mut self.to_local }
    }

    /// Notes that something about a service has happened in a store.
    pub(crate) fn begin(&mut self, store: usize, name: &ServiceName, now: Instant) {
        let other = if store == BROKER { LOCAL } else { BROKER };
        let changes = self.changes(other);
        if !changes.waiting.contains_key(name) {
            changes.waiting.insert(name.clone(), Change { since: now, written: None });
            changes.by_age.insert((now, name.clone()));
        }
    }

    /// Notes that something was written for a service.
    pub(crate) fn write(&mut self, key: &Key, now: Instant) {
        if let Some(change) = self.changes(key.store()).waiting.get_mut(key.service()) {
            change.written = Some(now);
        }
    }

    /// Notes that nothing is left to be written for a service.
    pub(crate) fn end(&mut self, key: &Key) {
        let changes = self.changes(key.store());
        let Some((name, Change { since, written })) = changes.waiting.remove_entry(key.service()) else {
            return;
        };
        changes.by_age.remove(&(since, name));
        if let Some(written) = written {
            changes.written.observe(written.saturating_duration_since(since));
        }
    }
}
