//! What is to be written to one store: in which order, how much at once, and what has to wait. Knows no store and no
//! clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use rand_core::RngCore;
use tokio::time::Instant;

use super::Refused;
use super::name::Name;
use crate::api::Kind;
use crate::backoff::Backoff;

/// Ours: so many writes are under way at once, so that a store that takes seconds for each is kept up with.
const CONCURRENT: usize = 8;
/// Ours: how soon a lost race is run again the first time. The event that tells of the winner mostly comes first.
const RACE_WAIT: Duration = Duration::from_millis(200);
/// Ours: how soon something that the store does not take is tried again although nothing has changed: its schema or
/// its policy may have.
const REJECTED_WAIT: Duration = Duration::from_secs(60);

/// The order of writes: [`super::Action::rank`].
type Rank = (u8, Kind);

/// The writes of one side.
#[derive(Debug)]
pub(super) struct Desk {
    /// Those that failed before come last: one that always fails must not hold up the others.
    todo: BTreeSet<(u32, Rank, Name)>,
    places: BTreeMap<Name, (u32, Rank)>,
    in_flight: BTreeMap<Name, Rank>,
    holds: BTreeMap<Name, Hold>,
    by_time: BTreeSet<(Instant, Name)>,
    failures: BTreeMap<Name, u32>,
    retry_max: Duration,
    backoff: Backoff,
    trouble: Option<Trouble>,
}

/// Why nothing can be written at present.
#[derive(Debug, Clone)]
pub(super) struct Trouble {
    pub(super) error: String,
    retry: Instant,
    pub(super) next_try: Timestamp,
}

#[derive(Debug)]
struct Hold {
    until: Instant,
    why: Why,
}

/// Why a name has to wait.
#[derive(Debug)]
pub(super) enum Why {
    /// Somebody else wrote first.
    Race,
    /// The store does not take the object.
    Rejected(Refused),
    /// Somebody else keeps undoing our write.
    Rival(String),
    /// The store failed.
    Failed,
}

impl Desk {
    pub(super) fn new(backoff: Backoff, retry_max: Duration) -> Self {
        Self {
            todo: BTreeSet::new(),
            places: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            holds: BTreeMap::new(),
            by_time: BTreeSet::new(),
            failures: BTreeMap::new(),
            retry_max,
            backoff,
            trouble: None,
        }
    }

    /// Says what `name` asks for, now that there is news of it: a write of this rank, or nothing.
    pub(super) fn want(&mut self, name: &Name, rank: Option<Rank>) {
        if self.in_flight.contains_key(name) {
            // Decided again when it has landed.
            return;
        }
        if let Some(place) = self.places.remove(name) {
            self.todo.remove(&(place.0, place.1, name.clone()));
        }
        let Some(rank) = rank else {
            self.release(name);
            self.failures.remove(name);
            return;
        };
        match self.holds.get(name).map(|hold| &hold.why) {
            // News of the name: what was wrong then need not be wrong any more.
            Some(Why::Race | Why::Rejected(_)) => self.release(name),
            Some(Why::Rival(_) | Why::Failed) => return,
            None => {}
        }
        let place = (self.failures.get(name).copied().unwrap_or_default(), rank);
        self.todo.insert((place.0, place.1, name.clone()));
        self.places.insert(name.clone(), place);
    }

    /// The name that is to be decided and written next, if anything can be written now. It is off the list then.
    pub(super) fn next(&mut self, now: Instant) -> Option<Name> {
        let most = if self.trouble.is_some() { 1 } else { CONCURRENT };
        if self.in_flight.len() >= most || self.trouble.as_ref().is_some_and(|trouble| now < trouble.retry) {
            return None;
        }
        let (_, rank, _) = self.todo.first()?;
        if self.in_flight.values().any(|earlier| earlier < rank) {
            return None;
        }
        let (_, _, name) = self.todo.pop_first()?;
        self.places.remove(&name);
        Some(name)
    }

    /// The write of `name` has been started.
    pub(super) fn depart(&mut self, name: Name, rank: Rank) {
        self.in_flight.insert(name, rank);
    }

    /// The write of `name` has succeeded. The store is well.
    pub(super) fn succeed(&mut self, name: &Name) {
        self.in_flight.remove(name);
        self.failures.remove(name);
        self.trouble = None;
    }

    /// The store was asked to write `name` and did not take it; it answers, however.
    pub(super) fn refuse(&mut self, name: &Name, why: Why, now: Instant) {
        self.in_flight.remove(name);
        self.trouble = None;
        let failures = self.count_failure(name);
        let wait = match why {
            Why::Rejected(_) => REJECTED_WAIT,
            Why::Race | Why::Rival(_) | Why::Failed => self.doubled(RACE_WAIT, failures),
        };
        self.hold(name, why, now + wait);
    }

    /// The write of `name` has failed at this time, told by both clocks, and so would others.
    pub(super) fn fail(
        &mut self,
        name: &Name,
        error: String,
        (now, wall): (Instant, Timestamp),
        random: &mut impl RngCore,
    ) {
        self.in_flight.remove(name);
        let failures = self.count_failure(name);
        let wait = self.backoff.next_wait(random);
        let next_try = wall + jiff::SignedDuration::try_from(wait).unwrap_or_default();
        self.trouble = Some(Trouble { error, retry: now + wait, next_try });
        let own_wait = self.doubled(wait, failures.saturating_sub(1));
        self.hold(name, Why::Failed, now + own_wait);
    }

    /// Lets `name` wait.
    pub(super) fn hold(&mut self, name: &Name, why: Why, until: Instant) {
        self.release(name);
        self.by_time.insert((until, name.clone()));
        self.holds.insert(name.clone(), Hold { until, why });
    }

    /// The names that have waited long enough.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Name> {
        let mut due = Vec::new();
        while let Some((_, name)) = self.by_time.first().filter(|(until, _)| *until <= now).cloned() {
            self.release(&name);
            due.push(name);
        }
        due
    }

    /// When there may be something to do although nothing happens.
    pub(super) fn wake(&self) -> Option<Instant> {
        let held = self.by_time.first().map(|(until, _)| *until);
        let retry = self.trouble.as_ref().map(|trouble| trouble.retry);
        let retry = retry.filter(|_| !self.todo.is_empty() && self.in_flight.is_empty());
        held.into_iter().chain(retry).min()
    }

    /// Whether everything that was wanted has been written.
    pub(super) fn is_idle(&self) -> bool {
        self.todo.is_empty() && self.in_flight.is_empty() && self.holds.is_empty()
    }

    /// Everything went through: the next outage starts with short waits again.
    pub(super) fn settle(&mut self) {
        if self.trouble.is_none() {
            self.backoff.reset();
        } else if self.is_idle() {
            // Nobody wants any more what failed.
            self.trouble = None;
        }
    }

    pub(super) fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// What the store does not take.
    pub(super) fn rejected(&self) -> impl Iterator<Item = &Refused> {
        self.holds.values().filter_map(|hold| match &hold.why {
            Why::Rejected(refused) => Some(refused),
            Why::Race | Why::Rival(_) | Why::Failed => None,
        })
    }

    /// Who keeps undoing our writes.
    pub(super) fn rival(&self) -> Option<&str> {
        self.holds.values().find_map(|hold| match &hold.why {
            Why::Rival(text) => Some(text.as_str()),
            Why::Race | Why::Rejected(_) | Why::Failed => None,
        })
    }

    fn release(&mut self, name: &Name) {
        if let Some(hold) = self.holds.remove(name) {
            self.by_time.remove(&(hold.until, name.clone()));
        }
    }

    fn count_failure(&mut self, name: &Name) -> u32 {
        let failures = self.failures.entry(name.clone()).or_default();
        *failures = failures.saturating_add(1);
        *failures
    }

    fn doubled(&self, wait: Duration, times: u32) -> Duration {
        wait.saturating_mul(1 << times.saturating_sub(1).min(10)).min(self.retry_max.max(RACE_WAIT))
    }
}
