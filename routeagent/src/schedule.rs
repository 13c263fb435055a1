//! When the next pass may start and when it must. Pure.
//!
//! Events come in bursts and want one pass, not many; failures and quarrels with other programs must not spin.

use std::time::Duration;

/// Longest time between two passes without any event: what no event announced is repaired by then.
const RESYNC: Duration = Duration::from_secs(10);
/// How long a burst of events may grow before it is acted upon.
pub const DEBOUNCE: Duration = Duration::from_millis(100);
/// Wait after the first failure; doubled with each further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// Longest wait after failures.
const BACKOFF_MAX: Duration = Duration::from_secs(20);
/// As often may the same changes be needed in a row before something else is assumed to undo them.
const REPEATS_TOLERATED: u32 = 3;

/// How a pass went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was to be done.
    Settled,
    /// Changes were made, all of them successfully.
    Changed,
    /// The same changes as in the pass before were made.
    Repeated,
    /// Something failed.
    Failed,
}

/// The waiting times that follow from how the passes went.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    failures: u32,
    repeats: u32,
}

impl Pace {
    /// Takes note of a pass.
    pub fn record(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Settled | Outcome::Changed => *self = Self::default(),
            Outcome::Repeated => self.repeats = self.repeats.saturating_add(1),
            Outcome::Failed => self.failures = self.failures.saturating_add(1),
        }
    }

    /// Says whether another program seems to undo what is done.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.repeats >= REPEATS_TOLERATED
    }

    /// Shortest time from the end of one pass to the next, whatever happens.
    #[must_use]
    pub fn at_least(&self) -> Duration {
        let steps = self.failures + self.repeats.saturating_sub(REPEATS_TOLERATED - 1);
        match steps {
            0 => DEBOUNCE,
            _ => BACKOFF_FIRST.saturating_mul(1 << (steps - 1).min(10)).min(BACKOFF_MAX),
        }
    }

    /// Longest time from the end of one pass to the next, if nothing happens.
    #[must_use]
    pub fn at_most(&self) -> Duration {
        if self.failures > 0 { self.at_least() } else { RESYNC.max(self.at_least()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_wait_longer_each_time_up_to_a_bound() {
        let mut pace = Pace::default();
        let waits: Vec<u128> = (0..9)
            .map(|_| {
                pace.record(Outcome::Failed);
                pace.at_most().as_millis()
            })
            .collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 20000, 20000, 20000]);
    }

    #[test]
    fn one_good_pass_forgets_all_failures() {
        let mut pace = Pace::default();
        pace.record(Outcome::Failed);
        pace.record(Outcome::Settled);
        assert_eq!((pace.at_least(), pace.at_most()), (DEBOUNCE, RESYNC));
    }

    #[test]
    fn a_repair_now_and_then_is_not_a_quarrel_but_the_fourth_in_a_row_is() {
        let mut pace = Pace::default();
        for _ in 0..2 {
            pace.record(Outcome::Repeated);
        }
        assert!(!pace.is_contended() && pace.at_least() == DEBOUNCE);
        pace.record(Outcome::Repeated);
        assert!(pace.is_contended() && pace.at_least() > DEBOUNCE);
    }
}
