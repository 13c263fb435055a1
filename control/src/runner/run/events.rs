//! The inputs of a runner: opening, closing and following watches.

use std::io;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rand_core::OsRng;

use super::{Outage, Runner};
use crate::api::ObjectKey;
use crate::runner::connection::Connection;
use crate::runner::watches::Report;
use crate::runner::write::unavailable;
use crate::runner::{Controller, Watch};
use crate::store::StoreEvent;
use crate::timer::clock;

/// A store that was unavailable for longer than this is asked at once when it is back; one that flaps is not.
const LONG_OUTAGE: Duration = Duration::from_secs(1);
/// How soon after its return, so that what else returns is known.
const RETURN_WAIT: Duration = Duration::from_millis(50);

impl<C: Controller> Runner<C> {
    /// Takes in what a stream reports: an event, or that it has ended.
    pub(super) fn handle_report(&mut self, (watch, event): Report) {
        if !self.watches.is_open(&watch) {
            // Closed because of what came before it.
            return;
        }
        let connection = self.connections.get_mut(watch.store);
        match (event, connection) {
            (Some(StoreEvent::Unavailable(error)), Some(connection))
                if self.controller.does_without(&watch, &error) =>
            {
                connection.listed(&watch);
                self.observe(&watch, StoreEvent::Unavailable(error));
            }
            (Some(StoreEvent::Unavailable(error)), Some(_)) => self.close(watch.store, error.to_string()),
            (None, Some(_)) => self.close(watch.store, "the store's events have ended".to_owned()),
            (None, None) => {}
            (Some(event), connection) => {
                if let Some(connection) = connection.filter(|_| matches!(event, StoreEvent::Listed(_))) {
                    connection.listed(&watch);
                }
                self.events += u64::from(!matches!(event, StoreEvent::Unavailable(_)));
                self.observe(&watch, event);
            }
        }
    }

    /// Closes the watches of a store, to open them later.
    fn close(&mut self, store: usize, reason: String) {
        let now = clock();
        for watch in self.watches.close(store) {
            let operation = format!("watch {} objects", watch.kind);
            let error = unavailable(operation, io::Error::other(reason.clone()));
            let keys = self.controller.observe(&watch, StoreEvent::Unavailable(error), now);
            self.add(&keys);
        }
        if let Some(connection) = self.connections.get_mut(store) {
            connection.close(reason, (now, Timestamp::now()), &mut OsRng);
        }
    }

    /// Closes and opens watches whose time has come.
    pub(super) fn check_connections(&mut self) {
        let now = clock();
        for store in self.controller.wants_lists() {
            self.connections.get_mut(store).into_iter().for_each(Connection::want_lists);
        }
        let mut opens = false;
        for store in 0..self.connections.len() {
            if let Some(reason) = self.connections[store].overdue(now) {
                self.close(store, reason);
            }
            let connection = &mut self.connections[store];
            opens |= connection.reopens(now);
            if connection.relists(now) {
                self.watches.close(store);
                opens = true;
            }
        }
        if opens {
            self.open_watches();
        }
    }

    /// Takes in an event of a watch, unless it is older than an own write.
    fn observe(&mut self, watch: &Watch, event: StoreEvent) {
        if self.connections.is_empty() {
            self.note_outage(watch, &event);
        }
        if let Some(event) = self.echoes.filter(watch, event) {
            let keys = self.controller.observe(watch, event, clock());
            self.add(&keys);
        }
    }

    fn note_outage(&mut self, watch: &Watch, event: &StoreEvent) {
        let now = clock();
        if let StoreEvent::Unavailable(error) = event {
            let reason = error.to_string();
            self.outages
                .entry(watch.clone())
                .or_insert_with(|| Outage { reason: String::new(), since: now })
                .reason = reason;
        } else if let Some(outage) = self.outages.remove(watch)
            && now.saturating_duration_since(outage.since) >= LONG_OUTAGE
            && let Some(queue) = self.queues.get_mut(watch.store)
        {
            queue.resume(RETURN_WAIT, now);
        }
    }

    /// Lets the controller observe the result of its own write before the watch reports it.
    pub(super) fn observe_own(&mut self, store: usize, object: &ObjectKey, event: StoreEvent, now: Instant) {
        if let Some(watch) = self.watches.covering(store, object) {
            let keys = self.controller.observe(&watch, event, now);
            self.add(&keys);
        }
    }

    /// Opens and closes watches so that what the controller wants is watched.
    pub(super) fn open_watches(&mut self) {
        let mut wanted = self.controller.watches();
        let is_closed = |connection: &Connection| connection.is_closed();
        wanted.retain(|watch| !self.connections.get(watch.store).is_some_and(is_closed));
        for watch in &wanted {
            if let Some(connection) = self.connections.get_mut(watch.store)
                && !self.watches.is_open(watch)
            {
                connection.opened(watch.clone(), clock());
            }
        }
        for watch in self.watches.set(&wanted, &self.stores) {
            self.outages.remove(&watch);
            self.echoes.remove_watch(&watch);
            self.connections.get_mut(watch.store).into_iter().for_each(|of| of.listed(&watch));
        }
    }
}
