//! Whether a store is read: when its watches are closed, and when they are opened anew. It has no store and no clock.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rand_core::RngCore;

use super::Watch;
use crate::backoff::Backoff;

/// How often at most the watches of a store are opened anew because the controller asks for lists.
pub const RELIST_INTERVAL: Duration = Duration::from_secs(10);

/// The watches of one store, which are open all together or not at all.
#[derive(Debug)]
pub(super) struct Connection {
    answer_within: Duration,
    backoff: Backoff,
    opened: Instant,
    /// Open watches that have given no list.
    unlisted: BTreeSet<Watch>,
    closed: Option<Closed>,
    listed: Instant,
    wants_lists: bool,
}

/// Why the watches are closed, and when they are opened, by both clocks: one to wait by, one to show.
#[derive(Debug)]
struct Closed {
    reason: String,
    retry: Instant,
    next_try: Timestamp,
}

impl Connection {
    /// Returns a connection without watches, each of which has to give a list within this time.
    pub(super) fn new(answer_within: Duration, backoff: Backoff, now: Instant) -> Self {
        Self {
            answer_within,
            backoff,
            opened: now,
            unlisted: BTreeSet::new(),
            closed: None,
            listed: now,
            wants_lists: false,
        }
    }

    /// Records that a watch was opened.
    pub(super) fn opened(&mut self, watch: Watch, now: Instant) {
        self.unlisted.insert(watch);
        self.opened = now;
    }

    /// Records that a watch gave its list, or has ended.
    pub(super) fn listed(&mut self, watch: &Watch) {
        self.unlisted.remove(watch);
    }

    /// Records why the watches were closed. They stay so for a while.
    pub(super) fn close(
        &mut self,
        reason: String,
        (now, wall): (Instant, Timestamp),
        random: &mut impl RngCore,
    ) {
        let wait = self.backoff.next_wait(random);
        self.unlisted.clear();
        self.closed = Some(Closed { reason, retry: now + wait, next_try: later(wall, wait) });
    }

    /// Returns `true` once the watches have been closed for long enough: they are to be opened.
    pub(super) fn reopens(&mut self, now: Instant) -> bool {
        self.closed.take_if(|closed| closed.retry <= now).is_some()
    }

    /// Returns why the watches are to be closed, if one has given no list in time.
    pub(super) fn overdue(&self, now: Instant) -> Option<String> {
        let is_overdue = !self.unlisted.is_empty() && self.opened + self.answer_within <= now;
        is_overdue.then(|| format!("there was no list within {:?}", self.answer_within))
    }

    /// Asks for new lists.
    pub(super) fn want_lists(&mut self) {
        self.wants_lists = true;
    }

    /// Returns `true` if the watches are to be opened anew for new lists.
    pub(super) fn relists(&mut self, now: Instant) -> bool {
        let is_due = self.wants_lists && self.is_complete() && self.listed + RELIST_INTERVAL <= now;
        if is_due {
            (self.wants_lists, self.listed) = (false, now);
        }
        is_due
    }

    /// Starts with short waits when the watches are closed the next time, if all of them can be read.
    pub(super) fn settle(&mut self) {
        if self.is_complete() {
            self.backoff.reset();
        }
    }

    /// Returns when there is something to do though nothing happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let retry = self.closed.as_ref().map(|closed| closed.retry);
        let answer = (!self.unlisted.is_empty()).then(|| self.opened + self.answer_within);
        let lists = (self.wants_lists && self.is_complete()).then(|| self.listed + RELIST_INTERVAL);
        retry.into_iter().chain(answer).chain(lists).min()
    }

    /// Returns `true` if the watches are to stay closed.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Returns why the watches are closed, and when they are opened.
    pub(super) fn outage(&self) -> Option<(&str, Timestamp)> {
        self.closed.as_ref().map(|closed| (closed.reason.as_str(), closed.next_try))
    }

    fn is_complete(&self) -> bool {
        self.closed.is_none() && self.unlisted.is_empty()
    }
}

/// Returns the time after this wait; a wait that does not fit is a misconfiguration, which must not end a controller.
pub(super) fn later(wall: Timestamp, wait: Duration) -> Timestamp {
    let wait = jiff::SignedDuration::try_from(wait).unwrap_or(jiff::SignedDuration::from_mins(1));
    wall.checked_add(wait).unwrap_or(wall)
}

#[cfg(test)]
mod tests {
    use rand_core::OsRng;

    use super::*;
    use crate::api::Kind;

    const SECOND: Duration = Duration::from_secs(1);

    fn connection() -> (Connection, [Watch; 2], Instant) {
        let now = Instant::now();
        let mut connection = Connection::new(10 * SECOND, Backoff::new(SECOND, 4 * SECOND), now);
        let watches = [Kind::Cluster, Kind::Endpoint].map(|kind| Watch::new(0, kind, "ns"));
        watches.iter().for_each(|watch| connection.opened(watch.clone(), now));
        (connection, watches, now)
    }

    #[test]
    fn a_store_that_gives_no_list_in_time_is_asked_after_growing_waits() {
        let (mut connection, watches, mut now) = connection();
        let mut waits = Vec::new();
        for _ in 0..4 {
            connection.listed(&watches[0]);
            assert_eq!((connection.deadline(), connection.overdue(now)), (Some(now + 10 * SECOND), None));
            now += 10 * SECOND;
            let reason = connection.overdue(now).unwrap();
            assert_eq!(reason, "there was no list within 10s");
            let wall = Timestamp::UNIX_EPOCH;
            connection.close(reason, (now, wall), &mut OsRng);
            assert!(connection.is_closed() && !connection.reopens(now) && connection.overdue(now).is_none());
            let (retry, next_try) = (connection.deadline().unwrap(), connection.outage().unwrap().1);
            assert_eq!(Duration::try_from(next_try.duration_since(wall)).unwrap(), retry - now);
            waits.push(retry - now);
            now = retry;
            assert!(connection.reopens(now) && !connection.is_closed());
            watches.iter().for_each(|watch| connection.opened(watch.clone(), now));
        }
        assert!(waits[0] <= SECOND && waits[3] >= 2 * SECOND && waits[3] <= 4 * SECOND, "{waits:?}");
        watches.iter().for_each(|watch| connection.listed(watch));
        assert_eq!(connection.deadline(), None);
        connection.settle();
        connection.close("away".to_owned(), (now, Timestamp::UNIX_EPOCH), &mut OsRng);
        assert!(connection.deadline().unwrap() <= now + SECOND, "the next outage starts with short waits");
    }

    #[test]
    fn new_lists_are_asked_for_at_most_every_ten_seconds_of_a_store_that_can_be_read() {
        let (mut connection, watches, start) = connection();
        connection.want_lists();
        assert!(!connection.relists(start + RELIST_INTERVAL), "the first lists are on their way");
        watches.iter().for_each(|watch| connection.listed(watch));
        assert_eq!(connection.deadline(), Some(start + RELIST_INTERVAL));
        assert!(!connection.relists(start + RELIST_INTERVAL - SECOND));
        assert!(connection.relists(start + RELIST_INTERVAL) && !connection.relists(start + 60 * SECOND));
        connection.want_lists();
        assert!(!connection.relists(start + RELIST_INTERVAL + SECOND));
        assert!(connection.relists(start + 2 * RELIST_INTERVAL));
    }
}
