//! How often one object may be written: a writer who undoes what we do, or a server that never takes it, must not make a
//! loop of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::api::ObjectKey;

/// Ours: this many writes of one object in a row are as quick as they come. An object is written at most this often when
/// all goes well: made, noted, given an address, amended.
const FREE: u32 = 4;
/// Ours: the wait after those, doubled from write to write.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Ours: the longest wait.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Ours: an object that needed no write for so long has calmed down.
const CALM: Duration = Duration::from_secs(120);

/// When each object was written, and may be again.
#[derive(Debug, Default)]
pub(super) struct ObjectLimiter {
    written: BTreeMap<ObjectKey, Writes>,
    /// The objects by their last write.
    by_time: BTreeSet<(Instant, ObjectKey)>,
}

#[derive(Debug)]
struct Writes {
    count: u32,
    last: Instant,
    next: Instant,
}

impl ObjectLimiter {
    /// Returns when an object may be written; `None` if it may be now.
    pub(super) fn wait_until(&self, key: &ObjectKey, now: Instant) -> Option<Instant> {
        self.written.get(key).map(|writes| writes.next).filter(|next| *next > now)
    }

    /// Takes in that an object was written, or that it was tried. A refusal counts for more: it will not be another one
    /// soon.
    pub(super) fn note(&mut self, key: &ObjectKey, is_refused: bool, now: Instant) {
        let writes = self.written.entry(key.clone()).or_insert(Writes { count: 0, last: now, next: now });
        writes.count = writes.count.saturating_add(1).max(if is_refused { FREE + 2 } else { 1 });
        self.by_time.remove(&(writes.last, key.clone()));
        self.by_time.insert((now, key.clone()));
        writes.last = now;
        let doublings = writes.count.saturating_sub(FREE + 1).min(16);
        if writes.count > FREE {
            writes.next = now + FIRST_WAIT.saturating_mul(1 << doublings).min(MAX_WAIT);
        }
    }

    /// Removes objects that have calmed down, one step for each of them. The others were written within two minutes.
    pub(super) fn expire(&mut self, now: Instant) {
        let is_calm = |last: Instant| now.saturating_duration_since(last) >= CALM;
        while let Some((_, key)) = self.by_time.first().filter(|(last, _)| is_calm(*last)) {
            self.written.remove(key);
            self.by_time.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Kind;

    #[test]
    fn an_object_that_is_written_again_and_again_is_written_ever_more_seldom() {
        let key = ObjectKey::new(Kind::Service, "a", "b");
        let mut limiter = ObjectLimiter::default();
        let start = Instant::now();
        let mut now = start;
        let mut writes = 0;
        while now < start + Duration::from_secs(600) {
            assert_eq!(limiter.wait_until(&key, now), None);
            limiter.note(&key, false, now);
            writes += 1;
            now = limiter.wait_until(&key, now).unwrap_or(now);
            limiter.expire(now);
            assert_eq!((limiter.written.len(), limiter.by_time.len()), (1, 1));
        }
        assert!((10..25).contains(&writes), "{writes} writes in ten minutes");
        limiter.expire(now + CALM);
        assert!(limiter.written.is_empty() && limiter.by_time.is_empty());
    }

    #[test]
    fn what_is_refused_is_not_asked_for_at_once_again_and_others_are_not_held_up() {
        let key = |name| ObjectKey::new(Kind::Service, "a", name);
        let mut limiter = ObjectLimiter::default();
        let now = Instant::now();
        limiter.note(&key("x"), true, now);
        assert_eq!(limiter.wait_until(&key("x"), now), Some(now + FIRST_WAIT * 2));
        assert_eq!(limiter.wait_until(&key("y"), now), None);
    }
}
