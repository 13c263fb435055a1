//! How long a path that came back has to stay before it is used again: a second, and twice as long each time. An end that
//! was announced is none of its failures.

use std::time::{Duration, Instant};

/// The first hold-down.
const FIRST: Duration = Duration::from_secs(1);
/// The longest.
const LONGEST: Duration = Duration::from_mins(1);
/// After as long without a failure the next one counts as the first.
const CALM: Duration = Duration::from_mins(5);

/// A path's failures and what they cost.
#[derive(Debug, Clone, Default)]
pub(super) struct Hold {
    failures: u32,
    failed: Option<Instant>,
    until: Option<Instant>,
    /// Whether the path ended as its far end had said it would.
    has_left: bool,
}

impl Hold {
    /// The path, which worked, does not any more.
    pub(super) fn fail(&mut self, now: Instant) {
        let is_calm = self.failed.is_none_or(|failed| now.saturating_duration_since(failed) >= CALM);
        self.failures = if is_calm { 1 } else { self.failures.saturating_add(1) };
        self.failed = Some(now);
        self.until = None;
    }

    /// The path, whose far end has said that it is about to stop, does not work any more.
    pub(super) fn leave(&mut self) {
        self.has_left = true;
        self.until = None;
    }

    /// The path works again, or for the first time; that is never held.
    pub(super) fn recover(&mut self, now: Instant) {
        let has_left = std::mem::take(&mut self.has_left);
        if self.failures > 0 && !has_left {
            let doublings = self.failures.saturating_sub(1).min(6);
            self.until = Some(now + (FIRST * 2u32.pow(doublings)).min(LONGEST));
            // Calm begins when it works.
            self.failed = Some(now);
        }
    }

    /// Until when the path is held, if it is.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an arbitrary start, from which the test counts")]
mod tests {
    use super::*;

    #[test]
    fn every_failure_doubles_the_hold_up_to_a_minute_and_calm_forgives() {
        let mut now = Instant::now();
        let mut hold = Hold::default();
        hold.recover(now);
        assert_eq!(hold.until(now), None, "the first time is no return");
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            hold.fail(now);
            assert_eq!(hold.until(now), None);
            hold.recover(now);
            let until = hold.until(now).unwrap();
            assert_eq!(until - now, Duration::from_secs(seconds));
            now = until;
            assert_eq!(hold.until(now), None);
        }
        now += CALM;
        hold.fail(now);
        hold.recover(now);
        assert_eq!(hold.until(now), Some(now + FIRST));
    }

    #[test]
    fn an_end_that_was_announced_is_no_failure_whatever_was_before() {
        let now = Instant::now();
        let mut hold = Hold::default();
        hold.fail(now);
        hold.recover(now);
        for _ in 0..3 {
            hold.leave();
            hold.recover(now);
            assert_eq!(hold.until(now), None);
        }
        hold.fail(now);
        hold.recover(now);
        assert_eq!(hold.until(now), Some(now + 2 * FIRST));
    }
}
