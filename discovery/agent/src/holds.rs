//! Objects that are not written for a while, since the store did not take them: each by itself, so that none holds up another of
//! the same service.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use trieste_control::api::ObjectKey;
use trieste_control::runner::Failure;

/// Ours: the first wait after a lost race; the event of who won comes before that in most cases.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Ours: the longest wait, and the wait for what is refused: its cause may have gone.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// When each object may be tried again.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    objects: BTreeMap<ObjectKey, Hold>,
    by_time: BTreeSet<(Instant, ObjectKey)>,
}

#[derive(Debug, Clone, Copy)]
struct Hold {
    until: Instant,
    wait: Duration,
}

impl Holds {
    /// Returns for how long an object is not to be written; `None` if it may be.
    pub(crate) fn wait(&self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        let hold = self.objects.get(key).filter(|hold| hold.until > now)?;
        Some(hold.until.saturating_duration_since(now))
    }

    /// Takes in that an object was written.
    pub(crate) fn end(&mut self, key: &ObjectKey) {
        if let Some(hold) = self.objects.remove(key) {
            self.by_time.remove(&(hold.until, key.clone()));
        }
    }

    /// Takes in that an object was not taken.
    pub(crate) fn begin(&mut self, key: &ObjectKey, failure: Failure, now: Instant) {
        // Who has not been tried for so long is as good as new.
        let is_over = |until: Instant| now.saturating_duration_since(until) > LONGEST_WAIT;
        while let Some((_, key)) = self.by_time.first().filter(|(until, _)| is_over(*until)) {
            self.objects.remove(key);
            self.by_time.pop_first();
        }
        let former = self.objects.get(key).map(|hold| hold.wait);
        let wait = match failure {
            Failure::Race => former.map_or(FIRST_WAIT, |wait| (wait * 2).min(LONGEST_WAIT)),
            Failure::Refused => LONGEST_WAIT,
            // The whole store waits.
            Failure::Unavailable => return,
        };
        self.end(key);
        self.objects.insert(key.clone(), Hold { until: now + wait, wait });
        self.by_time.insert((now + wait, key.clone()));
    }
}

#[cfg(test)]
mod tests {
    use trieste_control::api::Kind;

    use super::*;

    #[test]
    fn waits_grow_with_lost_races_end_with_a_success_and_are_forgotten() {
        let key = |name| ObjectKey::new(Kind::EndpointSlice, "ns", name);
        let (mut holds, start) = (Holds::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(holds.wait(&key("a"), start), None);
        for expected in [200, 400, 800] {
            holds.begin(&key("a"), Failure::Race, start);
            assert_eq!(holds.wait(&key("a"), start), Some(Duration::from_millis(expected)));
        }
        holds.begin(&key("b"), Failure::Refused, start);
        holds.begin(&key("c"), Failure::Unavailable, start);
        assert_eq!((holds.wait(&key("b"), start), holds.wait(&key("c"), start)), (Some(LONGEST_WAIT), None));
        assert_eq!(holds.wait(&key("b"), at(60)), None);
        holds.end(&key("a"));
        assert_eq!(holds.wait(&key("a"), start), None);
        holds.begin(&key("d"), Failure::Race, at(200));
        assert_eq!((holds.objects.len(), holds.by_time.len()), (1, 1));
    }
}
