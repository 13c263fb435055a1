//! The candidate as a state machine: no clock, no store, no randomness but the seed it was given.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::request::{Failure, Request};
use super::timings::Jitter;
use super::{ElectionConfig, ElectionEvent, Leadership, Lease, LeaseSpec, LossReason, MicroTime, Term};

/// One candidate for one Lease.
///
/// Call `handle_*` as things happen; after each call, and at [`Elector::poll_timeout`] (then with
/// [`Elector::handle_timeout`] first), take [`Elector::poll_request`] and [`Elector::poll_event`] until they are
/// empty. Answer each request before the next is asked for, with [`Failure::Store`] when there was no answer within
/// [`super::Timings::request_timeout`]. `now` is a monotonic clock; the wall clock is only written into the Lease.
///
/// Its safety: leadership is believed from an answered compare-and-swap until the renew deadline after the answer, and
/// in no case longer than the lease duration after the *request*, less a margin. Others count the lease duration from
/// when they saw the change, which was after the request. All of it holds for clocks of equal rate, whatever they show.
#[derive(Debug)]
pub struct Elector {
    config: ElectionConfig,
    jitter: Jitter,
    known: Observed,
    /// Versions that are older than the known one; a bounded memory against late events.
    superseded: VecDeque<String>,
    /// Whether the known record, where it names us, is of our own making (also before a restart).
    is_own_record: bool,
    /// The highest term seen or asked for.
    highest: Option<Term>,
    held: Option<Leadership>,
    in_flight: Option<InFlight>,
    requests: Requests,
    is_eligible: bool,
    events: VecDeque<ElectionEvent>,
    reported_holder: String,
    error: Option<String>,
}

#[derive(Debug)]
enum Observed {
    /// Nobody has said anything yet.
    Nothing,
    /// There is no Lease.
    Absent,
    /// The Lease, since when its record has not changed as far as we saw, and when we last heard of it.
    Present { lease: Box<Lease>, unchanged_since: Instant, seen: Instant },
}

#[derive(Debug, Clone, Copy)]
struct InFlight {
    sent: Instant,
    is_write: bool,
}

/// When to ask next.
#[derive(Debug, Default)]
struct Requests {
    not_before: Option<Instant>,
    must_read: bool,
    must_renew: bool,
    /// A write whose fate is unknown may still be what the store shows.
    has_unanswered_write: bool,
    failures: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Read,
    Create,
    Acquire,
    Renew,
    Release,
}

/// Ours: a holder renews every few seconds; late events are late by less than so many renewals.
const REMEMBERED_VERSIONS: usize = 32;

/// Ours: a driver that does not take events must not make us grow.
const MAX_EVENTS: usize = 64;

impl Elector {
    /// Creates a candidate. `seed` draws the jitter of its waits: another one for every process.
    pub fn new(config: ElectionConfig, seed: u64) -> Self {
        Self {
            config,
            jitter: Jitter::new(seed),
            known: Observed::Nothing,
            superseded: VecDeque::new(),
            is_own_record: false,
            highest: None,
            held: None,
            in_flight: None,
            requests: Requests::default(),
            is_eligible: true,
            events: VecDeque::new(),
            reported_holder: String::new(),
            error: None,
        }
    }

    /// Returns the leadership, if it is ours at `now`. Right also when `handle_timeout` is late.
    pub fn leadership(&self, now: Instant) -> Option<Leadership> {
        self.held.filter(|held| held.is_valid(now))
    }

    /// Returns the Lease's holder as far as is known; empty when nobody holds it.
    pub fn holder(&self) -> &str {
        self.record().map_or("", |lease| &lease.spec.holder_identity)
    }

    /// Returns the Lease's term as far as is known.
    pub fn term(&self) -> Option<Term> {
        self.record().map(term_of)
    }

    /// Returns the reason why the last request failed; `None` when it did not.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Takes in what a watch shows: the Lease, or that there is none. It may be late.
    pub fn handle_observed(&mut self, lease: Option<Lease>, now: Instant) {
        self.expire(now);
        let version = lease.as_ref().map(Lease::version);
        if self.superseded.iter().any(|old| Some(old.as_str()) == version) {
            return;
        }
        // Another holder takes over with a higher term. One with a lower, or none at all, is from before our time, or was
        // made so by hand: only the store itself can say.
        let is_suspect = |held: Leadership| {
            lease.as_ref().is_none_or(|lease| {
                lease.spec.holder_identity != self.config.identity && term_of(lease) < held.term
            })
        };
        if self.held.is_some_and(is_suspect) {
            self.requests.must_read = true;
            self.requests.not_before = None;
            return;
        }
        self.accept(lease, now);
    }

    /// Takes in the answer to [`Request::Read`].
    pub fn handle_read(&mut self, answer: Result<Option<Lease>, Failure>, now: Instant) {
        self.expire(now);
        let sent = self.in_flight.take().map_or(now, |request| request.sent);
        let lease = match answer {
            Ok(lease) => lease,
            Err(Failure::Race) => None,
            Err(Failure::Store(reason)) => return self.fail(reason, sent, now),
        };
        self.error = None;
        self.requests.must_read = false;
        if let Some(lease) = &lease {
            self.superseded.retain(|version| version != lease.version());
        }
        self.accept(lease, now);
        if !self.holder().is_empty() && !self.is_ours_by_name() {
            self.requests = Requests::default();
        }
    }

    /// Takes in the answer to [`Request::Create`] or [`Request::Update`]: the Lease as stored.
    pub fn handle_written(&mut self, answer: Result<Lease, Failure>, now: Instant) {
        self.expire(now);
        let sent = self.in_flight.take().map_or(now, |request| request.sent);
        match answer {
            Ok(lease) => {
                self.error = None;
                self.requests = Requests::default();
                let term = term_of(&lease);
                let is_ours = lease.spec.holder_identity == self.config.identity;
                self.remember(lease, now);
                self.is_own_record = is_ours;
                if is_ours {
                    self.hold(Leadership::new(term, sent, now, &self.config.timings), now);
                }
                self.report_holder();
            }
            Err(Failure::Race) => {
                self.requests.must_read = true;
                self.requests.failures += 1;
                // The first time the answer is a look at what happened; in a row, somebody does not stop.
                self.requests.not_before = (self.requests.failures > 1).then(|| now + self.wait());
            }
            Err(Failure::Store(reason)) => {
                self.requests.has_unanswered_write = true;
                self.fail(reason, sent, now);
            }
        }
    }

    /// Takes in that the watch is broken, and why.
    pub fn handle_unavailable(&mut self, reason: impl Into<String>, now: Instant) {
        self.expire(now);
        self.error = Some(reason.into());
    }

    /// Handles every timer that is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.expire(now);
    }

    /// Lets this candidate run, or not. One that may not gives the Lease back if it is in its name.
    pub fn set_eligible(&mut self, is_eligible: bool, now: Instant) {
        self.expire(now);
        if self.is_eligible != is_eligible {
            self.requests.not_before = None;
        }
        self.is_eligible = is_eligible;
        if !is_eligible {
            self.end_leadership(LossReason::Released);
        }
    }

    /// Returns `true` if nothing is left to give back; only of interest to a candidate that may not run.
    pub fn is_released(&self) -> bool {
        self.in_flight.is_none() && !self.is_ours_by_name()
    }

    /// Renews as soon as possible, for a proof that nobody else leads.
    pub fn confirm(&mut self, now: Instant) {
        self.expire(now);
        if self.held.is_some() {
            self.requests.must_renew = true;
        }
    }

    /// Raises the leader's term above `found`, a term that was seen elsewhere: somebody deleted the Lease and the
    /// count with it. If in truth another leads in that term, the attempt fails, and this candidate learns of it.
    pub fn raise_term(&mut self, found: Term, now: Instant) {
        self.expire(now);
        if self.held.is_some_and(|held| held.term <= found) {
            self.highest = self.highest.max(Some(found.next()));
            self.requests.must_renew = true;
        }
    }

    /// Returns the time at which to call [`Elector::handle_timeout`], if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let expiry = self.held.map(|held| held.valid_until);
        let due = self.step().and_then(|(_, due)| due);
        [expiry, due].into_iter().flatten().min()
    }

    /// Returns the request to send to the store now, if any. `wall` is written into the Lease as acquire and renew
    /// time.
    pub fn poll_request(&mut self, now: Instant, wall: Timestamp) -> Option<Request> {
        self.expire(now);
        let (step, due) = self.step()?;
        if due.is_some_and(|due| now < due) {
            return None;
        }
        self.in_flight = Some(InFlight { sent: now, is_write: step != Step::Read });
        self.requests.must_renew = false;
        Some(self.request(step, MicroTime::new(wall)))
    }

    /// Returns the next event, oldest first.
    pub fn poll_event(&mut self) -> Option<ElectionEvent> {
        self.events.pop_front()
    }

    /// Returns the next step and its time; `None` for at once.
    fn step(&self) -> Option<(Step, Option<Instant>)> {
        if self.in_flight.is_some() {
            return None;
        }
        let timings = &self.config.timings;
        let not_before = self.requests.not_before;
        if self.requests.must_read {
            return Some((Step::Read, not_before));
        }
        if !self.is_eligible {
            return self.is_ours_by_name().then_some((Step::Release, not_before));
        }
        let (lease, since, seen) = match &self.known {
            Observed::Nothing => return Some((Step::Read, not_before)),
            Observed::Absent => return Some((Step::Create, not_before)),
            Observed::Present { lease, unchanged_since, seen } => (lease, *unchanged_since, *seen),
        };
        if let Some(held) = self.held {
            let due = (!self.requests.must_renew).then(|| held.renewed + timings.retry_period());
            return Some((Step::Renew, due.max(not_before)));
        }
        if lease.spec.holder_identity.is_empty() || self.is_ours_by_name() {
            return Some((Step::Acquire, not_before));
        }
        let expiry = since + self.stated_duration(lease);
        // A holder that is alive is heard of every retry period, as long as the watch lives.
        let quiet = seen + timings.retry_period() * 2;
        let (step, due) = if expiry <= quiet { (Step::Acquire, expiry) } else { (Step::Read, quiet) };
        Some((step, Some(due).max(not_before)))
    }

    fn request(&mut self, step: Step, wall: MicroTime) -> Request {
        let term = self.term_to_write(step);
        let current = match (&self.known, step) {
            (_, Step::Read) => return Request::Read,
            (Observed::Present { lease, .. }, _) => lease,
            (Observed::Nothing | Observed::Absent, _) => {
                let (namespace, name) = (&self.config.namespace, &self.config.lease);
                let spec = self.record_to_write(step, term, wall, LeaseSpec::default());
                return Request::Create(Lease::new(namespace, name, spec));
            }
        };
        let spec = self.record_to_write(step, term, wall, current.spec.clone());
        Request::Update(Lease { spec, ..Lease::clone(current) })
    }

    fn record_to_write(&self, step: Step, term: Term, wall: MicroTime, current: LeaseSpec) -> LeaseSpec {
        let keeps = step == Step::Renew || (step == Step::Acquire && self.is_ours_by_name());
        let (holder_identity, seconds) = match step {
            // As client-go leaves it: nobody's, and for whoever counts, a second's.
            Step::Release => (String::new(), 1),
            Step::Read | Step::Create | Step::Acquire | Step::Renew => {
                (self.config.identity.clone(), self.config.timings.lease_seconds())
            }
        };
        LeaseSpec {
            holder_identity,
            lease_duration_seconds: Some(seconds),
            acquire_time: current.acquire_time.filter(|_| keeps).or(Some(wall)),
            renew_time: Some(wall),
            lease_transitions: Some(term.0),
            extra: current.extra,
        }
    }

    /// Returns the term that a write must carry: a new one with every change of holder, and never one that was seen
    /// before.
    fn term_to_write(&self, step: Step) -> Term {
        let highest = self.highest.unwrap_or_default();
        match (step, self.held) {
            (Step::Release, _) => self.record().map_or(highest, term_of),
            (_, Some(held)) => held.term.max(highest),
            (_, None) if self.is_ours_by_name() && self.is_own_record => highest,
            (_, None) => self.highest.map_or(highest, Term::next),
        }
    }

    /// Takes in what is believed to be the Lease's newest state.
    fn accept(&mut self, lease: Option<Lease>, now: Instant) {
        let Some(lease) = lease else {
            if !matches!(self.known, Observed::Absent) {
                self.supersede();
                self.known = Observed::Absent;
                self.requests.not_before = None;
                self.report_holder();
            }
            return;
        };
        let is_first = matches!(self.known, Observed::Nothing);
        let was_ours = self.is_ours_by_name();
        let is_changed = self.record().is_none_or(|known| !known.is_same_record(&lease));
        self.remember(lease, now);
        if !is_changed {
            return;
        }
        if self.is_ours_by_name() {
            // Our name there is of our making after a restart, when an unanswered write went through after all, or
            // when somebody changed other fields. Otherwise somebody gave us the Lease: another holder, another term.
            let may_be_written =
                self.requests.has_unanswered_write || self.in_flight.is_some_and(|it| it.is_write);
            self.is_own_record = is_first || may_be_written || (was_ours && self.is_own_record);
        } else {
            self.is_own_record = false;
            if self.held.is_some() {
                self.end_leadership(LossReason::TakenOver(self.holder().to_owned()));
            }
        }
        if self.holder().is_empty() || self.is_ours_by_name() != was_ours {
            self.requests.not_before = None;
        }
        self.report_holder();
    }

    /// Keeps the newest state and, of what was known, only that it is old.
    ///
    /// Ours: who has not been able to look for a renew deadline does not know that the holder was. After an outage of the
    /// API server its old leader, whose path has carried traffic all the while, is not overtaken by whoever asks first.
    fn remember(&mut self, lease: Lease, now: Instant) {
        self.highest = self.highest.max(Some(term_of(&lease)));
        let mut unchanged_since = now;
        if let Observed::Present { lease: known, unchanged_since: since, seen } = &self.known {
            let is_recent = now.saturating_duration_since(*seen) <= self.config.timings.renew_deadline();
            if known.is_same_record(&lease) && is_recent {
                unchanged_since = *since;
            }
            if known.version() != lease.version() {
                self.supersede();
            }
        }
        self.known = Observed::Present { lease: Box::new(lease), unchanged_since, seen: now };
    }

    /// Remembers the present version as superseded, against late events.
    fn supersede(&mut self) {
        let Some(version) = self.record().map(|lease| lease.version().to_owned()) else { return };
        if self.superseded.len() == REMEMBERED_VERSIONS {
            self.superseded.pop_front();
        }
        self.superseded.push_back(version);
    }

    fn hold(&mut self, leadership: Leadership, now: Instant) {
        if !self.is_eligible || !leadership.is_valid(now) {
            return;
        }
        let is_changed = self.held.is_none_or(|held| held.term != leadership.term);
        self.held = Some(leadership);
        if is_changed {
            self.push(ElectionEvent::Acquired { term: leadership.term });
        }
    }

    fn expire(&mut self, now: Instant) {
        if self.held.is_some_and(|held| !held.is_valid(now)) {
            self.end_leadership(LossReason::RenewDeadline(self.error.clone()));
        }
    }

    fn end_leadership(&mut self, reason: LossReason) {
        if let Some(held) = self.held.take() {
            self.requests.must_renew = false;
            self.push(ElectionEvent::Lost { term: held.term, reason });
        }
    }

    /// Waits count from when a request was sent, as client-go's do: one that hung has waited already, and what is left
    /// until the renew deadline is for another try.
    fn fail(&mut self, reason: String, sent: Instant, now: Instant) {
        self.error = Some(reason);
        self.requests.failures += 1;
        self.requests.not_before = Some((sent + self.wait()).max(now));
    }

    /// Draws the wait before the next try: a leader's leaves time to renew, candidates' keep them apart.
    fn wait(&mut self) -> Duration {
        let period = self.config.timings.retry_period();
        if self.held.is_some() { period } else { self.jitter.wait(period) }
    }

    fn stated_duration(&self, lease: &Lease) -> Duration {
        let stated = lease.spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        stated
            .filter(|seconds| *seconds > 0)
            .map_or_else(|| self.config.timings.lease_duration(), Duration::from_secs)
    }

    fn record(&self) -> Option<&Lease> {
        match &self.known {
            Observed::Present { lease, .. } => Some(lease),
            Observed::Nothing | Observed::Absent => None,
        }
    }

    fn is_ours_by_name(&self) -> bool {
        self.record().is_some_and(|lease| lease.spec.holder_identity == self.config.identity)
    }

    fn report_holder(&mut self) {
        if self.reported_holder != self.holder() {
            self.reported_holder = self.holder().to_owned();
            self.push(ElectionEvent::HolderChanged { holder: self.reported_holder.clone() });
        }
    }

    fn push(&mut self, event: ElectionEvent) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

/// Returns a record's term; the default for one that was written by hand and cannot be.
fn term_of(lease: &Lease) -> Term {
    lease.spec.lease_transitions.and_then(|count| Term::new(i64::from(count))).unwrap_or_default()
}

#[cfg(test)]
mod tests;
