//! How often one service is written about: back ends that come and go all the time, or a writer who undoes what we do, must not
//! make a storm of it, and a rollout must not wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::name::Key;

/// Ours: the time between the writes of one service to one store, if they go on.
const INTERVAL: Duration = Duration::from_secs(1);
/// Ours: so many go out at once after a rest.
const BURST: u32 = 30;

/// When each service may be written about again.
#[derive(Debug)]
pub(crate) struct RateLimit {
    interval: Duration,
    burst: u32,
    /// When all that was written would have been written, one by one.
    until: BTreeMap<Key, Instant>,
    by_time: BTreeSet<(Instant, Key)>,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self::new(INTERVAL, BURST)
    }
}

impl RateLimit {
    /// Returns a limit of so many at once, then of one each time.
    pub(crate) fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst, until: BTreeMap::new(), by_time: BTreeSet::new() }
    }

    /// Takes a write of this key, or returns for how long it has to wait.
    pub(crate) fn take(&mut self, key: &Key, now: Instant) -> Option<Duration> {
        while let Some((_, rested)) = self.by_time.first().filter(|(until, _)| *until <= now) {
            self.until.remove(rested);
            self.by_time.pop_first();
        }
        let until = self.until.get(key).copied().unwrap_or(now);
        let earliest = until.checked_sub(self.interval * (self.burst - 1)).unwrap_or(now);
        if earliest > now {
            return Some(earliest.saturating_duration_since(now));
        }
        self.by_time.remove(&(until, key.clone()));
        self.by_time.insert((until + self.interval, key.clone()));
        self.until.insert(key.clone(), until + self.interval);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::ServiceName;

    #[test]
    fn a_burst_goes_at_once_and_what_goes_on_is_slowed_down_by_itself() {
        let key = |name| Key::Local(ServiceName::new("ns", name));
        let (mut limit, start) = (RateLimit::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        let mut writes = 0;
        for tick in 0..600 {
            writes += u32::from(limit.take(&key("a"), at(tick * 100)).is_none());
        }
        assert!((BURST + 58..=BURST + 60).contains(&writes), "{writes} in a minute");
        assert!(limit.take(&key("b"), at(60_000)).is_none(), "another service is not held up");
        assert!(limit.take(&key("c"), at(200_000)).is_none());
        assert_eq!((limit.until.len(), limit.by_time.len()), (1, 1), "those that rested are forgotten");
    }
}
