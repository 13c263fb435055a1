//! Noticing that somebody else keeps changing our objects on the broker: mostly, two clusters with one ID.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::ObjectKey;

/// Ours: our own reasons to change an object come minutes apart.
const WINDOW: Duration = Duration::from_secs(60);
/// Ours: this many corrections in a window are a rival.
const TOLERATED: usize = 5;

/// When we last wrote each of our objects on the broker. Bounded: at most [`TOLERATED`] times for each object that
/// was written within the last [`WINDOW`].
#[derive(Debug, Default)]
pub(super) struct Rivals {
    writes: BTreeMap<ObjectKey, Vec<Instant>>,
}

impl Rivals {
    /// Asks to write `key` at `now`. `Err` says how long not to, because it was written too often of late.
    pub(super) fn ask(&mut self, key: &ObjectKey, now: Instant) -> Result<(), Duration> {
        self.writes.retain(|_, writes| {
            writes.retain(|then| now.duration_since(*then) < WINDOW);
            !writes.is_empty()
        });
        let writes = self.writes.entry(key.clone()).or_default();
        if writes.len() >= TOLERATED {
            let oldest = writes.first().copied().unwrap_or(now);
            return Err(WINDOW.saturating_sub(now.duration_since(oldest)));
        }
        writes.push(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Kind;

    #[test]
    fn after_five_corrections_in_a_minute_an_object_is_left_alone_for_the_rest_of_it() {
        let key = ObjectKey::new(Kind::Cluster, "ns", "a");
        let other = ObjectKey::new(Kind::Cluster, "ns", "b");
        let start = Instant::now();
        let mut rivals = Rivals::default();
        for second in 0..5 {
            assert_eq!(rivals.ask(&key, start + Duration::from_secs(second)), Ok(()));
        }
        let sixth = start + Duration::from_secs(10);
        assert_eq!(rivals.ask(&key, sixth), Err(Duration::from_secs(50)));
        assert_eq!(rivals.ask(&other, sixth), Ok(()), "other objects are not concerned");
        assert_eq!(rivals.ask(&key, start + Duration::from_secs(60)), Ok(()));
    }
}
