//! Earliest and latest time of the next pass. Pure.
//!
//! A burst of events causes one pass; failures, and conflicts with other programs, back off.

use std::time::Duration;

/// Longest time between two passes without any event: bounds how long an unnoticed change stays.
const RESYNC: Duration = Duration::from_secs(10);
/// How long events are gathered before a pass.
pub const DEBOUNCE: Duration = Duration::from_millis(100);
/// Wait after the first failure; doubled with each further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// Longest wait after failures.
const BACKOFF_MAX: Duration = Duration::from_secs(20);
/// Number of passes in a row with the same changes after which another program is assumed to undo them.
const REPEATS_TOLERATED: u32 = 3;

/// Outcome of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing had to be changed.
    Settled,
    /// Changes were made, all of them successfully.
    Changed,
    /// The same changes as in the pass before were made.
    Repeated,
    /// Something failed.
    Failed,
}

/// Waiting times between passes, from the outcomes of the last ones.
#[derive(Debug, Clone, Default)]
pub struct PassSchedule {
    failures: u32,
    repeats: u32,
}

impl PassSchedule {
    /// Records the outcome of a pass.
    pub fn record(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Settled | Outcome::Changed => *self = Self::default(),
            Outcome::Repeated => self.repeats = self.repeats.saturating_add(1),
            Outcome::Failed => self.failures = self.failures.saturating_add(1),
        }
    }

    /// Returns `true` if another program seems to undo the changes.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.repeats >= REPEATS_TOLERATED
    }

    /// Returns the shortest time from the end of the last pass to the next, with events.
    #[must_use]
    pub fn min_wait(&self) -> Duration {
        let steps = self.failures + self.repeats.saturating_sub(REPEATS_TOLERATED - 1);
        match steps {
            0 => DEBOUNCE,
            _ => BACKOFF_FIRST.saturating_mul(1 << (steps - 1).min(10)).min(BACKOFF_MAX),
        }
    }

    /// Returns the longest time from the end of the last pass to the next, without events.
    #[must_use]
    pub fn max_wait(&self) -> Duration {
        if self.failures > 0 { self.min_wait() } else { RESYNC.max(self.min_wait()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_wait_longer_each_time_up_to_a_bound() {
        let mut schedule = PassSchedule::default();
        let waits: Vec<u128> = (0..9)
            .map(|_| {
                schedule.record(Outcome::Failed);
                schedule.max_wait().as_millis()
            })
            .collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 20000, 20000, 20000]);
    }

    #[test]
    fn one_good_pass_resets_the_failures() {
        let mut schedule = PassSchedule::default();
        schedule.record(Outcome::Failed);
        schedule.record(Outcome::Settled);
        assert_eq!((schedule.min_wait(), schedule.max_wait()), (DEBOUNCE, RESYNC));
    }

    #[test]
    fn a_repair_now_and_then_is_no_conflict_but_the_third_repeat_in_a_row_is() {
        let mut schedule = PassSchedule::default();
        for _ in 0..2 {
            schedule.record(Outcome::Repeated);
        }
        assert!(!schedule.is_contended() && schedule.min_wait() == DEBOUNCE);
        schedule.record(Outcome::Repeated);
        assert!(schedule.is_contended() && schedule.min_wait() > DEBOUNCE);
    }
}
