//! How often a peer may ask for new keys.

use std::time::{Duration, Instant};

/// What a peer may ask for: some at once, and one more in every interval (a token bucket).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// At once.
    pub burst: u32,
    /// After this one more.
    pub interval: Duration,
}

/// What is left of an allowance.
#[derive(Debug)]
pub(super) struct Remaining {
    left: u32,
    /// Until when what came back is counted.
    since: Instant,
}

impl Remaining {
    pub(super) fn new(allowance: Allowance, now: Instant) -> Self {
        Self { left: allowance.burst, since: now }
    }

    /// Takes one; returns `false` if none is left.
    pub(super) fn take(&mut self, allowance: Allowance, now: Instant) -> bool {
        while self.left < allowance.burst && now >= self.since + allowance.interval {
            self.left += 1;
            self.since += allowance.interval;
        }
        if self.left >= allowance.burst {
            self.since = now;
        }
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_one_in_every_interval() {
        #[expect(clippy::disallowed_methods, reason = "any start will do")]
        let start = Instant::now();
        let allowance = Allowance { burst: 3, interval: Duration::from_secs(10) };
        let mut remaining = Remaining::new(allowance, start);
        let mut taken = |second: u64| {
            let now = start + Duration::from_secs(second);
            (0..5).filter(|_| remaining.take(allowance, now)).count()
        };
        let all = [0, 9, 10, 19, 25, 30, 1000, 1005, 1010].map(&mut taken);
        assert_eq!(all, [3, 0, 1, 0, 1, 1, 3, 0, 1]);
    }
}
