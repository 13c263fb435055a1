//! Changes of the rows that are followed: one request at a time, and what changes meanwhile goes with the next.

use std::collections::BTreeSet;
use std::time::Instant;

/// Which changes the server knows.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// The last change.
    version: u64,
    /// That of the last request, or of the monitor.
    sent: u64,
    /// Tables that have changed since.
    changed: BTreeSet<String>,
    /// Until when the answer to the request on its way has to come.
    deadline: Option<Instant>,
}

impl Conditions {
    pub(crate) const fn new(version: u64) -> Self {
        Self { version, sent: version, changed: BTreeSet::new(), deadline: None }
    }

    /// Notes a change; `table` is `None` if the server does not have it.
    pub(crate) fn change(&mut self, table: Option<&str>, version: u64) {
        self.version = version;
        self.changed.extend(table.map(str::to_owned));
    }

    /// Notes that the monitor is requested with all changes.
    pub(crate) fn monitored(&mut self) {
        self.changed.clear();
        self.sent = self.version;
    }

    /// Returns the version of the last request, or of the monitor.
    pub(crate) const fn sent_version(&self) -> u64 {
        self.sent
    }

    /// Returns the tables to be sent and the version that the server knows then.
    pub(crate) fn next(&mut self) -> Option<(u64, BTreeSet<String>)> {
        if self.deadline.is_some() || self.sent == self.version {
            return None;
        }
        self.sent = self.version;
        Some((self.version, std::mem::take(&mut self.changed)))
    }

    /// Notes that a request is on its way.
    pub(crate) const fn sent(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    /// Notes that it was answered.
    pub(crate) const fn answered(&mut self) {
        self.deadline = None;
    }

    /// Returns until when the answer has to come.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns `true` if it has not come in time.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }
}
