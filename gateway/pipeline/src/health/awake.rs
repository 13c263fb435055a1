//! The clock of a worker that may not have run: time in which nothing could be heard is nobody's silence.
//!
//! A worker that comes later than it was to be called (a stopped process, a cgroup out of quota, a stolen CPU, a long
//! batch) finds time-outs due for which packets lie in its sockets. So machines of health run on *awake time*, which
//! stands still while the worker does.

use std::time::{Duration, Instant};

/// Coming later than this is a stall. Ours: several times what a busy worker's turn takes.
const LATE: Duration = Duration::from_millis(5);
/// What a stall costs besides its length: what has come meanwhile is read in several turns. Ours: a full socket buffer
/// of 8 MiB takes about this long.
const RECOVERY: Duration = Duration::from_millis(5);
/// How far apart recoveries are granted, so that a worker that always comes late has time-outs as well.
const RECOVERY_INTERVAL: Duration = Duration::from_millis(100);

/// Awake time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Awake {
    stalled: Duration,
    stalls: u64,
    recovered: Option<Instant>,
}

impl Awake {
    /// Awake time at `now`.
    #[must_use]
    pub fn time(&self, now: Instant) -> Instant {
        now.checked_sub(self.stalled).unwrap_or(now)
    }

    /// When awake time will be `time`, if nothing stalls.
    #[must_use]
    pub fn real(&self, time: Instant) -> Instant {
        time + self.stalled
    }

    /// Takes into account that the worker, which wanted to be called at `due`, was called at `now`. Returns how late
    /// it came; nothing is said of what is no stall.
    pub fn notice(&mut self, due: Instant, now: Instant) -> Option<Duration> {
        let late = now.checked_duration_since(due).filter(|late| *late > LATE)?;
        self.stalled += late;
        self.stalls += 1;
        let is_recent =
            self.recovered.is_some_and(|at| now.saturating_duration_since(at) < RECOVERY_INTERVAL);
        if !is_recent {
            self.stalled += RECOVERY;
            self.recovered = Some(now);
        }
        Some(late)
    }

    /// How often the worker came late, and for how long in all.
    #[must_use]
    pub fn stalls(&self) -> (u64, Duration) {
        (self.stalls, self.stalled)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an arbitrary start, from which the test counts")]
mod tests {
    use super::*;

    #[test]
    fn awake_time_stands_still_while_the_worker_does() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut awake = Awake::default();
        assert_eq!(awake.notice(at(10), at(15)), None, "that is no stall");
        assert_eq!(awake.time(at(15)), at(15));
        assert_eq!(awake.notice(at(20), at(70)), Some(Duration::from_millis(50)));
        assert_eq!(awake.time(at(70)), at(15), "and five milliseconds to catch up");
        assert_eq!(awake.real(at(15)), at(70));
        assert_eq!(awake.stalls(), (1, Duration::from_millis(55)));
    }

    #[test]
    fn a_worker_that_always_comes_late_gets_older_all_the_same() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut awake = Awake::default();
        for turn in 0..100 {
            awake.notice(at(turn * 20 + 10), at(turn * 20 + 20));
        }
        let age = awake.time(at(2000)) - start;
        assert!(age >= Duration::from_millis(850), "{age:?}");
    }
}
