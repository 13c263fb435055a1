//! The bounded stream of changes.

use std::collections::VecDeque;

use crate::record::{Change, Record};
use crate::session::Session;

/// Changes that wait to be taken. When nobody takes them they are forgotten, all of them, and the next one to come
/// and ask is told so.
#[derive(Debug)]
pub(crate) struct Journal {
    changes: VecDeque<Change>,
    limit: usize,
    pub(crate) lost: u64,
    /// Changes so far.
    pub(crate) told: u64,
}

impl Journal {
    pub(crate) fn new(limit: usize) -> Self {
        Self { changes: VecDeque::with_capacity(limit), limit, lost: 0, told: 0 }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Keeps so many changes from here on; what waits is forgotten.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.changes = VecDeque::with_capacity(limit);
        self.limit = limit;
    }

    pub(crate) fn is(&mut self, session: &Session, second: u32, deadline: u32) {
        if self.limit > 0 {
            self.push(Change::Is(record(session, second, deadline)));
        }
    }

    pub(crate) fn gone(&mut self, session: &Session, second: u32, deadline: u32) {
        if self.limit > 0 {
            self.push(Change::Gone(record(session, second, deadline)));
        }
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = Change> + '_ {
        self.changes.drain(..)
    }

    fn push(&mut self, change: Change) {
        self.told += 1;
        if self.changes.len() >= self.limit {
            let lost = self.changes.iter().filter(|change| **change != Change::Lost).count();
            self.lost += u64::try_from(lost).unwrap_or(u64::MAX);
            self.changes.clear();
            self.changes.push_back(Change::Lost);
        }
        self.changes.push_back(change);
    }
}

/// A session as a record, at a second; its time is over at `deadline`.
pub(crate) fn record(session: &Session, second: u32, deadline: u32) -> Record {
    Record {
        protocol: session.protocol,
        phase: session.phase,
        headless: session.is_headless(),
        inside: session.inside,
        inside_port: session.inside_port,
        outside: session.outside,
        outside_port: session.outside_port,
        remote: session.remote,
        remote_port: session.remote_port,
        seconds_left: deadline.saturating_sub(second),
    }
}
