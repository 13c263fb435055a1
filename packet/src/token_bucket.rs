//! How often something may be done: a token bucket, without a clock of its own.

use std::time::{Duration, Instant};

/// What is allowed: some at once, and one more in every interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// At once.
    pub burst: u32,
    /// After this one more.
    pub interval: Duration,
}

/// What is left of an allowance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    tokens: u32,
    refilled: Instant,
}

impl TokenBucket {
    /// Returns a full one.
    #[must_use]
    pub const fn new(allowance: Allowance, now: Instant) -> Self {
        Self { tokens: allowance.burst, refilled: now }
    }

    /// Takes one token; returns `false` if none is left.
    pub fn take(&mut self, allowance: Allowance, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.refilled);
        let earned = u32::try_from(elapsed.as_nanos() / allowance.interval.as_nanos()).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(earned).min(allowance.burst);
        // What was earned in part is kept, but for a bucket that is full.
        let is_full = self.tokens == allowance.burst;
        self.refilled = if is_full { now } else { self.refilled + allowance.interval * earned };
        let is_allowed = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        is_allowed
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
        let mut bucket = TokenBucket::new(allowance, start);
        let mut taken = |second: u64| {
            let now = start + Duration::from_secs(second);
            (0..5).filter(|_| bucket.take(allowance, now)).count()
        };
        let all = [0, 9, 10, 19, 25, 30, 1000, 1005, 1010].map(&mut taken);
        assert_eq!(all, [3, 0, 1, 0, 1, 1, 3, 0, 1]);
    }
}
