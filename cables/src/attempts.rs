//! When a peer that does not answer is tried: a schedule for each lane, and a rate that all lanes of a gateway share.
//!
//! ```text
//!   configured, moved ─▶ new: at once                                       all such lanes: NEW_RATE
//!                         │ then after 0.25, 0.5, 1, 2, then every 5 s      all such lanes: REPEAT_RATE
//!                         │ packets wait: 5 s after the attempt before      (with the first ones: NEW_RATE)
//!                         │ 90 s without an answer
//!                         ▼
//!   lost for 90 s ──────▶ silent: after 5, 10, then every 20 s              all such lanes: SILENT_RATE
//!                         │ packets wait: 5 s after the attempt before      (with the first ones: NEW_RATE)
//!                         ▼
//!   the peer has proved who it is ─▶ off
//! ```
//!
//! A lane whose time has come is given the next free moment of the shared rate, and asks for another one only after it
//! has used that. So it has one place in the queue at most, and all lanes have their turn before any has another.
//!
//! A member that is there is up after first attempts alone: whichever gateway learns last of the other has its own first
//! attempt answered. Repeats are for datagrams that were lost, and for peers that only answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use trieste_packet::SplitMix64;

/// For how long a lane that was configured, or whose peer has moved, counts as new, and one that was lost is left to its
/// protocol's own timers. As long as WireGuard tries (Rekey-Attempt-Time, whitepaper section 6.1).
pub(crate) const NEW_FOR: Duration = Duration::from_secs(90);
/// Between attempts that are made while somebody waits (Rekey-Timeout, whitepaper section 6.1).
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(5);
/// When a first attempt that got no answer is followed by the next. [`RETRY_AFTER`] is for peers that have met; at a first
/// start one end is always late to learn of the other.
const FIRST_RETRIES: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// The longest wait of a silent lane while there are few of them.
const SILENT_INTERVAL: Duration = Duration::from_secs(20);
/// The longest wait of a silent lane, however many there are.
pub(crate) const LONGEST_INTERVAL: Duration = Duration::from_secs(120);
/// Between attempts of all silent lanes, 16 a second. Ours: an attempt of WireGuard's takes 0.14 ms (28,000 of this crate's
/// tests with optimised ciphers, the making of 1,420 lanes included), and its datagram and the worker's turn less than as much
/// again, so that this is under half a percent of a core; with more than 1,920 such lanes it is as much more as
/// [`LONGEST_INTERVAL`] takes.
const SILENT_RATE: Duration = Duration::from_micros(62_500);
/// Between first attempts of all new lanes, and those of lanes that have packets that wait, 100 a second. Ours: 3 % of a
/// core.
const NEW_RATE: Duration = Duration::from_millis(10);
/// How many of these may be made at once.
const NEW_BURST: u32 = 100;
/// Between repeated attempts of all new lanes, 20 a second. Ours: 0.6 % of a core, so that a thousand members that do not
/// answer cost little from the first minute on.
const REPEAT_RATE: Duration = Duration::from_millis(50);
/// How many of these may be made at once: twenty new lanes have the first seconds' schedule.
const REPEAT_BURST: u32 = 100;
/// The share of a wait by which it may be longer, so that lanes do not fall into step.
const JITTER_SHARE: u32 = 16;

/// What all lanes of a gateway share.
#[derive(Debug)]
pub(crate) struct AttemptBudget {
    origin: Instant,
    silent: AtomicU64,
    next_new: AtomicU64,
    next_repeat: AtomicU64,
    next_silent: AtomicU64,
}

impl AttemptBudget {
    /// Makes the budget of a gateway that has made no attempt.
    pub(crate) fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self {
            origin: now,
            silent: AtomicU64::new(0),
            // A burst may be due at once.
            next_new: AtomicU64::new(0),
            next_repeat: AtomicU64::new(0),
            next_silent: AtomicU64::new(0),
        })
    }

    /// Counts an attempt that is made whatever is left; later ones pay for it.
    fn charge(&self, now: Instant) {
        self.next_free(&self.next_new, NEW_RATE, NEW_BURST, now);
    }

    /// Gives away the next moment for the first attempt of a lane, or one of a lane that has packets that wait.
    fn reserve_new(&self, now: Instant) -> Instant {
        self.next_free(&self.next_new, NEW_RATE, NEW_BURST, now).max(now)
    }

    /// Gives away the next moment for another attempt of a new lane.
    fn reserve_repeat(&self, now: Instant) -> Instant {
        self.next_free(&self.next_repeat, REPEAT_RATE, REPEAT_BURST, now).max(now)
    }

    /// Gives away the next moment for an attempt of a silent lane.
    fn reserve_silent(&self, now: Instant) -> Instant {
        let lanes = u32::try_from(self.silent.load(Ordering::Relaxed)).unwrap_or(u32::MAX).max(1);
        self.next_free(&self.next_silent, SILENT_RATE.min(LONGEST_INTERVAL / lanes), 1, now).max(now)
    }

    /// Takes the next moment of a rate of which `burst` may come at once. Times are kept in nanoseconds since `origin`,
    /// `burst` intervals ahead, so that what was not used before is there to be used.
    fn next_free(&self, next: &AtomicU64, interval: Duration, burst: u32, now: Instant) -> Instant {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let (interval, ahead) = (nanos(interval), nanos(interval * (burst - 1)));
        let earliest = nanos(now.saturating_duration_since(self.origin));
        let take = |next: u64| Some(next.max(earliest).saturating_add(interval));
        let taken = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or_default();
        self.origin + Duration::from_nanos(taken.max(earliest).saturating_sub(ahead))
    }
}

/// A lane's entry in the count of silent ones.
#[derive(Debug)]
struct Silent(Arc<AttemptBudget>);

impl Silent {
    fn new(budget: &Arc<AttemptBudget>) -> Self {
        budget.silent.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(budget))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.0.silent.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing.
    Nothing,
    /// To try the peer.
    Attempt,
    /// To give up what waits for the peer: it has been silent for so long that it is tried more rarely from here on.
    Silence,
}

#[derive(Debug)]
enum State {
    /// The peer answers, or is left to its protocol's timers.
    Off,
    /// New since then.
    New(Instant),
    Silent {
        _counted: Silent,
    },
}

/// When the peer of one lane is tried. Call order: any other method, then [`Self::poll`] until it returns
/// [`Due::Nothing`], then [`Self::poll_timeout`] for when to do so again.
#[derive(Debug)]
pub(crate) struct AttemptTimer {
    budget: Arc<AttemptBudget>,
    random: SplitMix64,
    state: State,
    /// Attempts in this state.
    made: usize,
    last: Instant,
    /// When the lane may try by its own schedule.
    due: Instant,
    /// The moment that the budget has given it.
    granted: Option<Instant>,
    /// Whether packets wait, for the next attempt alone.
    is_wanted: bool,
    /// Whether the peer of a new lane has begun a handshake itself: it is there.
    has_spoken: bool,
    /// How often the budget had it wait.
    deferred: u64,
}

impl AttemptTimer {
    /// Makes one that is off. `seed` is where its jitter comes from.
    pub(crate) fn new(budget: Arc<AttemptBudget>, seed: u64, now: Instant) -> Self {
        Self {
            budget,
            random: SplitMix64::new(seed),
            state: State::Off,
            made: 0,
            last: now,
            due: now,
            granted: None,
            is_wanted: false,
            has_spoken: false,
            deferred: 0,
        }
    }

    /// Returns `true` unless the peer is left to its protocol's timers.
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self.state, State::Off)
    }

    /// Returns `true` if the peer has been silent for long.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.state, State::Silent { .. })
    }

    /// Returns how often an attempt had to wait for its turn.
    pub(crate) fn deferred(&self) -> u64 {
        self.deferred
    }

    /// Ends the schedule: the peer has proved who it is.
    pub(crate) fn stop(&mut self) {
        self.enter(State::Off, self.last);
    }

    /// Begins the schedule of a lane that is new, or whose peer is somewhere else: the caller tries it at once.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.budget.charge(now);
        self.enter(State::New(now), now);
        self.due = now + FIRST_RETRIES[0];
    }

    /// Notes that the peer has begun a handshake itself, which is answered: one that was left alone is tried if nothing
    /// comes of that, and a new one does not wait for its turn among those whose peers say nothing.
    pub(crate) fn expect_peer(&mut self, now: Instant) {
        if matches!(self.state, State::New(_)) {
            let has_spoken = std::mem::replace(&mut self.has_spoken, true);
            if !has_spoken && self.granted.take().is_some() {
                self.due = now + RETRY_AFTER;
            }
            return;
        }
        self.enter(State::New(now), now);
        self.has_spoken = true;
        self.made = FIRST_RETRIES.len();
        self.due = now + RETRY_AFTER;
    }

    /// Notes that the peer has not answered for [`NEW_FOR`]; it was tried at `last`.
    pub(crate) fn fall_silent(&mut self, last: Instant) {
        if !self.is_silent() {
            let _counted = Silent::new(&self.budget);
            self.enter(State::Silent { _counted }, last);
            self.due = last + self.wait();
        }
    }

    /// Notes that packets wait for the peer: it is tried five seconds after the attempt before, or has the next turn of
    /// [`Self::take_turn`].
    pub(crate) fn want(&mut self, now: Instant) {
        if self.is_wanted || !(self.is_on() || self.granted.is_some()) {
            return;
        }
        self.is_wanted = true;
        self.granted = None;
        self.due = self.due.min(self.last + RETRY_AFTER).max(now);
    }

    /// Returns what is due now.
    pub(crate) fn poll(&mut self, now: Instant) -> Due {
        let is_silent = match self.state {
            State::Off => return Due::Nothing,
            State::New(since) if now >= since + NEW_FOR => {
                self.fall_silent(self.last);
                return Due::Silence;
            }
            State::New(_) => false,
            State::Silent { .. } => true,
        };
        if now < self.due {
            return Due::Nothing;
        }
        let budget = &self.budget;
        let is_granted = Self::is_its_turn(&mut self.granted, &mut self.deferred, now, || {
            match (self.is_wanted || self.has_spoken, is_silent) {
                (true, _) => budget.reserve_new(now),
                (false, true) => budget.reserve_silent(now),
                (false, false) => budget.reserve_repeat(now),
            }
        });
        if !is_granted {
            return Due::Nothing;
        }
        self.made += 1;
        self.last = now;
        self.is_wanted = false;
        self.due = now + self.wait();
        Due::Attempt
    }

    /// Returns `true` if a lane that is off, because it is tried by a schedule of its protocol's, may try its peer now: new
    /// lanes share a rate. To be asked again at [`Self::turn`] otherwise.
    pub(crate) fn take_turn(&mut self, now: Instant) -> bool {
        let (budget, is_soon) = (&self.budget, self.made == 0 || self.is_wanted);
        let is_granted = Self::is_its_turn(&mut self.granted, &mut self.deferred, now, || {
            if is_soon { budget.reserve_new(now) } else { budget.reserve_repeat(now) }
        });
        if is_granted {
            self.made += 1;
            self.is_wanted = false;
        }
        is_granted
    }

    /// Returns `true` if the moment has come that was `granted`, and uses it. Without one, a moment is reserved.
    fn is_its_turn(
        granted: &mut Option<Instant>,
        deferred: &mut u64,
        now: Instant,
        reserve: impl FnOnce() -> Instant,
    ) -> bool {
        let at = *granted.get_or_insert_with(|| {
            let at = reserve();
            *deferred += u64::from(at > now);
            at
        });
        if now >= at {
            *granted = None;
        }
        now >= at
    }

    /// Returns when it is the turn of a lane that waits for it.
    pub(crate) fn turn(&self) -> Option<Instant> {
        self.granted
    }

    /// Returns when [`Self::poll`] wants to be called next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.granted.map_or(self.due, |granted| granted.max(self.due));
        match self.state {
            State::Off => None,
            State::New(since) => Some(due.min(since + NEW_FOR)),
            State::Silent { .. } => Some(due),
        }
    }

    fn enter(&mut self, state: State, last: Instant) {
        self.state = state;
        (self.made, self.last) = (0, last);
        (self.granted, self.is_wanted, self.has_spoken) = (None, false, false);
    }

    /// Draws how long to wait after the attempt made last.
    fn wait(&mut self) -> Duration {
        let span = match self.state {
            State::Silent { .. } => {
                let doubled = 1 << self.made.min(8);
                (RETRY_AFTER * doubled).min(SILENT_INTERVAL)
            }
            State::Off | State::New(_) => match FIRST_RETRIES.get(self.made) {
                // Too short for jitter to be of use.
                Some(first) => return *first,
                None => RETRY_AFTER,
            },
        };
        let share = u32::try_from(self.random.draw() >> 48).unwrap_or_default();
        span + (span / JITTER_SHARE).mul_f64(f64::from(share) / 65_536.0)
    }
}

#[cfg(test)]
mod tests;
