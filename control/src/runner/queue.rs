//! The work queue of one store: which key is reconciled next, and which have to wait. It has no store and no clock.
//!
//! * A key is in it once, however often it is added; one that is being written is reconciled again afterwards.
//! * Keys of a lower rank go first, and their writes end before those of a higher rank begin. Keys that failed go last:
//!   one that always fails must not hold up the others.
//! * A key that failed waits, twice as long each time; so does the whole store while it is unavailable, when one write at
//!   a time tries it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rand_core::RngCore;

use crate::backoff::Backoff;

/// The number of keys whose writes are under way at once, so that a store that takes seconds for each is kept up with.
const MAX_IN_FLIGHT: usize = 8;
/// The first wait after a lost race. The event of the write that won mostly comes first.
const RACE_WAIT: Duration = Duration::from_millis(200);

/// The order of keys; lower ones are written first.
pub type Rank = u8;

/// The keys of one store that are to be reconciled.
#[derive(Debug)]
pub(super) struct WorkQueue<K> {
    ready: BTreeSet<(u32, Rank, K)>,
    entries: BTreeMap<K, Entry>,
    /// The ready keys by how long they have waited.
    ages: BTreeSet<(Instant, K)>,
    in_flight: BTreeMap<K, InFlight>,
    delays: BTreeMap<K, Delay>,
    by_time: BTreeSet<(Instant, K)>,
    /// The number of delays during which something is left undone.
    pending: usize,
    failures: BTreeMap<K, u32>,
    /// How long a change waits for others that come with it.
    settle: Duration,
    /// Before which no change is reconciled: what plans cost is bounded.
    rest_until: Option<Instant>,
    longest: Duration,
    backoff: Backoff,
    outage: Option<Outage>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    failures: u32,
    rank: Rank,
    since: Instant,
}

#[derive(Debug)]
struct InFlight {
    rank: Rank,
    /// The rank and time of the change that came meanwhile.
    changed: Option<(Rank, Instant)>,
}

/// A key that waits.
#[derive(Debug, Clone, Copy)]
struct Delay {
    until: Instant,
    rank: Rank,
    kind: DelayKind,
}

/// Why a key waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DelayKind {
    /// For a time of its own: nothing is left undone.
    Requeue,
    /// For others that change with it, after a lost race, or since its object was written too often.
    Pending,
    /// Its write failed: a change does not end it.
    Failed,
    /// It must not be written sooner: a change does not end it.
    Held,
}

impl DelayKind {
    const fn is_firm(self) -> bool {
        matches!(self, Self::Failed | Self::Held)
    }
}

/// A store that did not do what it was asked, and when it is asked again.
#[derive(Debug, Clone)]
struct Outage {
    error: String,
    retry: Instant,
}

impl<K: Ord + Clone> WorkQueue<K> {
    /// Returns an empty queue whose waits grow from `shortest` to `longest`.
    pub(super) fn new(shortest: Duration, longest: Duration) -> Self {
        Self {
            ready: BTreeSet::new(),
            entries: BTreeMap::new(),
            ages: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            delays: BTreeMap::new(),
            by_time: BTreeSet::new(),
            pending: 0,
            failures: BTreeMap::new(),
            settle: Duration::ZERO,
            rest_until: None,
            longest,
            backoff: Backoff::new(shortest, longest),
            outage: None,
        }
    }

    /// Sets how long a change waits for others that come with it, and before when no change is reconciled.
    pub(super) fn set_rest(&mut self, settle: Duration, until: Instant) {
        self.settle = settle;
        self.rest_until = Some(until);
    }

    /// Returns when a change is reconciled that came at `since`.
    fn earliest(&self, since: Instant) -> Instant {
        let settled = since + self.settle;
        self.rest_until.map_or(settled, |until| until.max(settled))
    }

    /// Adds a key that has changed. One that waits after a lost race, or for a time of its own, waits no longer; one that
    /// waits because a write failed goes on waiting.
    pub(super) fn add(&mut self, key: &K, rank: Rank, now: Instant) {
        self.add_at(key, rank, self.earliest(now), now);
    }

    /// Adds a key whatever it waits for.
    pub(super) fn add_now(&mut self, key: &K, rank: Rank, now: Instant) {
        self.release(key);
        self.add_at(key, rank, now, now);
    }

    /// Adds a key at `at`, unless it is there sooner: something is left undone until then.
    pub(super) fn add_at(&mut self, key: &K, rank: Rank, at: Instant, now: Instant) {
        self.schedule(key, Delay { until: at, rank, kind: DelayKind::Pending }, now);
    }

    /// Adds a key at `at`, unless it is there sooner, though nothing is left undone.
    pub(super) fn requeue_at(&mut self, key: &K, rank: Rank, at: Instant, now: Instant) {
        self.schedule(key, Delay { until: at, rank, kind: DelayKind::Requeue }, now);
    }

    fn schedule(&mut self, key: &K, wanted: Delay, now: Instant) {
        let Delay { until: at, rank, kind } = wanted;
        if let Some(flight) = self.in_flight.get_mut(key) {
            flight.changed.get_or_insert((rank, now)).0 = rank;
            return;
        }
        let present = self.delays.get(key).copied();
        if present.is_some_and(|present| present.kind.is_firm()) {
            return;
        }
        if at <= now || self.entries.contains_key(key) {
            self.release(key);
            return self.insert(key, rank, now);
        }
        let is_pending =
            kind == DelayKind::Pending || present.is_some_and(|present| present.kind == DelayKind::Pending);
        let kind = if is_pending { DelayKind::Pending } else { DelayKind::Requeue };
        let until = present.map_or(at, |present| present.until.min(at));
        self.delay(key, Delay { until, rank, kind });
    }

    /// Removes a key for which there is nothing to write any more.
    pub(super) fn remove(&mut self, key: &K) {
        self.release(key);
        self.failures.remove(key);
        self.take(key);
    }

    /// Takes the key that is to be reconciled next; `None` if nothing may be written now.
    pub(super) fn next(&mut self, now: Instant) -> Option<(K, Rank)> {
        self.release_due(now);
        let most = if self.outage.is_some() { 1 } else { MAX_IN_FLIGHT };
        let is_waiting = self.outage.as_ref().is_some_and(|outage| now < outage.retry);
        if is_waiting || self.in_flight.len() >= most {
            return None;
        }
        let (_, rank, _) = self.ready.first()?;
        if self.in_flight.values().any(|flight| flight.rank < *rank) {
            return None;
        }
        let key = self.ready.first().map(|(_, _, key)| key.clone())?;
        let rank = self.take(&key)?.rank;
        self.in_flight.insert(key.clone(), InFlight { rank, changed: None });
        Some((key, rank))
    }

    /// Ends the reconciliation of a key that was successful: what it planned is written.
    pub(super) fn succeed(&mut self, key: &K, now: Instant) {
        self.failures.remove(key);
        self.store_answered();
        self.land(key, now);
    }

    /// Ends the reconciliation of a key whose write lost a race.
    pub(super) fn conflict(&mut self, key: &K, now: Instant) {
        self.store_answered();
        let failures = self.count_failure(key);
        self.retry(key, now + self.doubled(RACE_WAIT, failures), now);
    }

    /// Ends the reconciliation of a key whose object the store does not take: it waits for this long, or for a change.
    pub(super) fn refuse(&mut self, key: &K, wait: Duration, now: Instant) {
        self.store_answered();
        self.count_failure(key);
        self.retry(key, now + wait, now);
    }

    fn retry(&mut self, key: &K, until: Instant, now: Instant) {
        let rank = self.rank_of(key);
        self.land(key, now);
        self.add_at(key, rank, until, now);
    }

    /// Ends the reconciliation of a key that may not be written before `until`, whatever changes.
    pub(super) fn hold(&mut self, key: &K, until: Instant) {
        let rank = self.rank_of(key);
        self.in_flight.remove(key);
        self.delay(key, Delay { until, rank, kind: DelayKind::Held });
    }

    /// Ends the reconciliation of a key that failed, though the store is well. Returns when it is tried again.
    pub(super) fn fail(&mut self, key: &K, now: Instant, random: &mut impl RngCore) -> Instant {
        let wait = self.backoff.next_wait(random);
        self.wait_after_failure(key, wait, now)
    }

    /// Ends the reconciliation of a key whose store did not answer, or was not able to. Returns when it is tried again.
    pub(super) fn fail_store(
        &mut self,
        key: &K,
        error: String,
        now: Instant,
        random: &mut impl RngCore,
    ) -> Instant {
        let wait = self.backoff.next_wait(random);
        self.outage = Some(Outage { error, retry: now + wait });
        self.wait_after_failure(key, wait, now)
    }

    fn wait_after_failure(&mut self, key: &K, wait: Duration, now: Instant) -> Instant {
        let rank = self.rank_of(key);
        let failures = self.count_failure(key);
        let until = now + self.doubled(wait, failures.saturating_sub(1));
        self.in_flight.remove(key);
        self.delay(key, Delay { until, rank, kind: DelayKind::Failed });
        until
    }

    /// Ends the reconciliation of a key that planned nothing, or whose plan may not be written.
    pub(super) fn finish(&mut self, key: &K, now: Instant) {
        self.failures.remove(key);
        self.land(key, now);
    }

    /// Shortens all waits to `wait`: the store was unavailable for long, and is back.
    pub(super) fn resume(&mut self, wait: Duration, now: Instant) {
        let at = now + wait;
        if let Some(outage) = &mut self.outage {
            outage.retry = outage.retry.min(at);
        }
        let failed: Vec<K> = self
            .delays
            .iter()
            .filter(|(_, delay)| delay.kind == DelayKind::Failed)
            .map(|(key, _)| key.clone())
            .collect();
        for key in failed {
            if let Some(delay) = self.delays.get(&key).copied().filter(|delay| delay.until > at) {
                self.delay(&key, Delay { until: at, ..delay });
            }
        }
    }

    /// Starts with short waits again, once nothing is left to do.
    pub(super) fn settle(&mut self) {
        if self.is_idle() {
            self.outage = None;
            self.backoff.reset();
        }
    }

    /// Returns the next time at which there may be something to do though nothing happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let delayed = self.next_release();
        let retry = self.outage.as_ref().map(|outage| outage.retry);
        let retry = retry.filter(|_| !self.ready.is_empty() && self.in_flight.is_empty());
        delayed.into_iter().chain(retry).min()
    }

    /// Returns when the next key has waited long enough.
    pub(super) fn next_release(&self) -> Option<Instant> {
        self.by_time.first().map(|(until, _)| *until)
    }

    /// Returns `true` if nothing is left undone; keys may be requeued for a time of their own.
    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.in_flight.is_empty() && self.pending == 0
    }

    /// Returns why the store is not written to at present.
    pub(super) fn outage(&self) -> Option<&str> {
        self.outage.as_ref().map(|outage| outage.error.as_str())
    }

    /// Returns when the store is asked again, if it is not written to at present.
    pub(super) fn outage_end(&self) -> Option<Instant> {
        self.outage.as_ref().map(|outage| outage.retry)
    }

    /// Returns the number of keys that wait to be reconciled now.
    pub(super) fn depth(&self) -> usize {
        self.ready.len()
    }

    /// Returns since when the oldest of them waits.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.ages.first().map(|(since, _)| *since)
    }

    fn insert(&mut self, key: &K, rank: Rank, now: Instant) {
        let failures = self.failures.get(key).copied().unwrap_or_default();
        let since = self.take(key).map_or(now, |entry| entry.since);
        self.ready.insert((failures, rank, key.clone()));
        self.ages.insert((since, key.clone()));
        self.entries.insert(key.clone(), Entry { failures, rank, since });
    }

    /// Takes a key off the list of those that are ready.
    fn take(&mut self, key: &K) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.ready.remove(&(entry.failures, entry.rank, key.clone()));
        self.ages.remove(&(entry.since, key.clone()));
        Some(entry)
    }

    fn land(&mut self, key: &K, now: Instant) {
        if let Some((rank, since)) = self.in_flight.remove(key).and_then(|flight| flight.changed) {
            self.add_at(key, rank, self.earliest(since), now);
        }
    }

    fn rank_of(&self, key: &K) -> Rank {
        self.in_flight.get(key).map_or(0, |flight| flight.changed.map_or(flight.rank, |(rank, _)| rank))
    }

    fn store_answered(&mut self) {
        self.outage = None;
    }

    fn delay(&mut self, key: &K, delay: Delay) {
        self.release(key);
        self.pending += usize::from(delay.kind != DelayKind::Requeue);
        self.by_time.insert((delay.until, key.clone()));
        self.delays.insert(key.clone(), delay);
    }

    fn release(&mut self, key: &K) {
        if let Some(delay) = self.delays.remove(key) {
            self.pending -= usize::from(delay.kind != DelayKind::Requeue);
            self.by_time.remove(&(delay.until, key.clone()));
        }
    }

    /// Makes keys ready that have waited long enough.
    pub(super) fn release_due(&mut self, now: Instant) {
        while let Some((_, key)) = self.by_time.first().filter(|(until, _)| *until <= now).cloned() {
            let rank = self.delays.get(&key).map_or(0, |delay| delay.rank);
            self.add_now(&key, rank, now);
        }
    }

    fn count_failure(&mut self, key: &K) -> u32 {
        let failures = self.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        *failures
    }

    fn doubled(&self, wait: Duration, times: u32) -> Duration {
        wait.saturating_mul(1 << times.saturating_sub(1).min(10)).min(self.longest.max(RACE_WAIT))
    }
}

#[cfg(test)]
mod tests;
