//! Earliest and latest time of the next pass. Pure.
//!
//! A change of the store is applied at once after a quiet time. A burst of changes causes few passes: each is followed by a
//! rest in proportion to how long it took. Failures, and conflicts with other programs, back off.
//!
//! | waits for | for |
//! |---|---|
//! | the first change of the store | 0 ms: the reader of the store has gathered what came together ([`GATHER`]) |
//! | further ones | three times as long as the pass took, at most [`DEBOUNCE`] |
//! | notifications of the kernel | [`DEBOUNCE`] |

use std::time::Duration;

use trieste_control::timer;

/// Longest time between two passes that read the node's network, without any event: bounds how long an unnoticed change stays.
pub const RESYNC: Duration = Duration::from_secs(10);
/// How long notifications of the kernel are gathered before a pass: most are echoes of our own changes, and another
/// program's changes come many at a time. The longest rest after a pass, too.
pub const DEBOUNCE: Duration = Duration::from_millis(100);
/// How long the store's events are gathered after the first one: one change of a member is an Endpoint and a Cluster.
pub const GATHER: Duration = Duration::from_millis(3);
/// Rest after work for changes of the store, as a multiple of how long that took: a quarter of a core.
const REST: u32 = 3;
/// Wait after the first failure; doubled with each further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// Longest wait after failures.
const BACKOFF_MAX: Duration = Duration::from_secs(20);
/// Number of passes in a row with the same changes after which another program is assumed to undo them.
const REPEATS_TOLERATED: u32 = 3;

/// Returns how long to rest after work that follows the store's changes and took so long.
#[must_use]
pub fn rest_after(took: Duration) -> Duration {
    timer::rest_after(took, REST, DEBOUNCE)
}

/// Cause of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The store's content has changed.
    View,
    /// Anything else: a notification of the kernel, a gateway's standing, another address of a name.
    Other,
}

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
    /// Rest after the last pass.
    rest: Duration,
}

impl PassSchedule {
    /// Records the outcome of a pass, and how long it took.
    pub fn record(&mut self, outcome: Outcome, took: Duration) {
        self.rest = rest_after(took);
        match outcome {
            Outcome::Settled | Outcome::Changed => (self.failures, self.repeats) = (0, 0),
            Outcome::Repeated => self.repeats = self.repeats.saturating_add(1),
            Outcome::Failed => self.failures = self.failures.saturating_add(1),
        }
    }

    /// Returns `true` if another program seems to undo the changes.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.repeats >= REPEATS_TOLERATED
    }

    /// Returns when the next pass is due, as the time from the end of the last one to it, for an event that came so long
    /// after that end.
    #[must_use]
    pub fn due(&self, wake: Wake, came: Duration) -> Duration {
        let gathered = match wake {
            Wake::View => came,
            Wake::Other => came.saturating_add(DEBOUNCE),
        };
        gathered.max(self.min_wait())
    }

    /// Returns the shortest time from the end of the last pass to the next, with events.
    #[must_use]
    fn min_wait(&self) -> Duration {
        let steps = self.failures + self.repeats.saturating_sub(REPEATS_TOLERATED - 1);
        match steps {
            0 => self.rest,
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

    const SHORT: Duration = Duration::from_millis(7);

    #[test]
    fn failures_wait_longer_each_time_up_to_a_bound() {
        let mut schedule = PassSchedule::default();
        let waits: Vec<u128> = (0..9)
            .map(|_| {
                schedule.record(Outcome::Failed, SHORT);
                let wait = schedule.max_wait();
                assert_eq!(
                    schedule.due(Wake::View, SHORT),
                    wait,
                    "changes of the store do not come before it"
                );
                wait.as_millis()
            })
            .collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 20000, 20000, 20000]);
    }

    #[test]
    fn one_good_pass_resets_the_failures() {
        let mut schedule = PassSchedule::default();
        schedule.record(Outcome::Failed, SHORT);
        schedule.record(Outcome::Settled, SHORT);
        assert_eq!((schedule.min_wait(), schedule.max_wait()), (SHORT * 3, RESYNC));
    }

    #[test]
    fn a_repair_now_and_then_is_no_conflict_but_the_third_repeat_in_a_row_is() {
        let mut schedule = PassSchedule::default();
        for _ in 0..2 {
            schedule.record(Outcome::Repeated, SHORT);
        }
        assert!(!schedule.is_contended() && schedule.min_wait() == SHORT * 3);
        schedule.record(Outcome::Repeated, SHORT);
        assert!(schedule.is_contended() && schedule.due(Wake::View, SHORT) > DEBOUNCE);
    }

    #[test]
    fn a_change_of_the_store_is_applied_at_once_unless_a_pass_has_just_ended() {
        let mut schedule = PassSchedule::default();
        schedule.record(Outcome::Changed, SHORT);
        let ms = Duration::from_millis;
        assert_eq!(schedule.due(Wake::View, ms(0)), SHORT * 3);
        assert_eq!(schedule.due(Wake::View, ms(500)), ms(500));
        assert_eq!(schedule.due(Wake::Other, ms(0)), DEBOUNCE);
        assert_eq!(schedule.due(Wake::Other, ms(500)), ms(600));
        schedule.record(Outcome::Changed, ms(4000));
        assert_eq!(schedule.due(Wake::View, ms(0)), DEBOUNCE, "the rest is bounded");
    }

    #[test]
    fn a_thousand_changes_one_after_the_other_are_a_few_passes() {
        let (mut schedule, mut passes) = (PassSchedule::default(), 0);
        let (took, gap) = (Duration::from_millis(30), Duration::from_millis(1));
        let (mut ended, mut now) = (Duration::ZERO, Duration::ZERO);
        let last = gap * 1000;
        while now < last {
            // Changes come all the time, so that there is one at each pass's end.
            let due = ended + schedule.due(Wake::View, now.saturating_sub(ended));
            ended = due + took;
            now = ended;
            schedule.record(Outcome::Changed, took);
            passes += 1;
        }
        assert!(passes <= 10, "{passes}");
    }
}
