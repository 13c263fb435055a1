//! Noticing that somebody else keeps undoing our writes: another cluster with our ID, or an agent in our cluster that
//! disagrees with us.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use super::name::Name;
use super::side::Side;

/// Ours: how long a correction is remembered.
const WINDOW: Duration = Duration::from_secs(60);
/// Ours: this many corrections in a window are a conflict.
const TOLERATED: usize = 5;
/// Ours: so many objects are watched at once; of more, the earliest are forgotten.
const MAX_WATCHED: usize = 16_384;

/// Our writes of the last minute. A write is a correction if we wrote the same before, that is, copied the same version
/// of the same object, or deleted it: then somebody else has undone it. News of the source are no correction.
///
/// Names and versions are kept as digests: as texts, those of objects that are gone would lie singly between what comes and
/// goes, and keep the kernel from getting back the memory around them.
#[derive(Debug, Default)]
pub(super) struct WriteConflicts {
    watched: BTreeMap<Key, Watched>,
    by_time: VecDeque<(Instant, Key)>,
}

/// Where, and the digest of what.
type Key = (Side, u128);

#[derive(Debug)]
struct Watched {
    /// The digest of the source's version.
    source: Option<u128>,
    last: Instant,
    corrections: Vec<Instant>,
}

impl WriteConflicts {
    /// Asks to write `name` at `now` as a copy of this version of its source, or to delete it (`None`). `Err` says how
    /// long not to, because it was corrected too often of late.
    pub(super) fn ask(
        &mut self,
        side: Side,
        name: &Name,
        source: Option<&str>,
        now: Instant,
    ) -> Result<(), Duration> {
        self.expire(now);
        let key = (side, digest(&[name.kind.as_str(), &name.name]));
        let source = source.map(|version| digest(&[version]));
        let Some(watched) = self.watched.get_mut(&key) else {
            self.watched.insert(key, Watched { source, last: now, corrections: Vec::new() });
            self.by_time.push_back((now, key));
            return Ok(());
        };
        watched.corrections.retain(|then| now.duration_since(*then) < WINDOW);
        if watched.source == source {
            if watched.corrections.len() >= TOLERATED {
                let oldest = watched.corrections.first().copied().unwrap_or(now);
                return Err(WINDOW.saturating_sub(now.duration_since(oldest)));
            }
            watched.corrections.push(now);
        }
        watched.source = source;
        watched.last = now;
        Ok(())
    }

    /// Removes the writes of more than a minute ago, which are no reason for anything any more.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((then, key)) = self.by_time.front().copied() {
            let is_full = self.watched.len() > MAX_WATCHED;
            if now.duration_since(then) < WINDOW && !is_full {
                return;
            }
            self.by_time.pop_front();
            match self.watched.get(&key).map(|watched| watched.last) {
                Some(last) if now.duration_since(last) < WINDOW && !is_full => {
                    self.by_time.push_back((last, key))
                }
                _ => drop(self.watched.remove(&key)),
            }
        }
    }
}

/// Returns a digest that different texts do not share. None of them has a zero byte.
fn digest(texts: &[&str]) -> u128 {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update(text);
        digest.update([0]);
    }
    let bytes: [u8; 32] = digest.finalize().into();
    u128::from_be_bytes(*bytes.first_chunk().expect("there are 32"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Kind;

    #[test]
    fn after_five_corrections_in_a_minute_an_object_is_left_alone_for_the_rest_of_it() {
        let (name, other) = (Name::new(Kind::Cluster, "a"), Name::new(Kind::Cluster, "b"));
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut conflicts = WriteConflicts::default();
        let mut ask = |name: &Name, second| conflicts.ask(Side::Broker, name, Some("7"), at(second));
        assert_eq!(ask(&name, 0), Ok(()), "the first write corrects nobody");
        for second in 1..6 {
            assert_eq!(ask(&name, second), Ok(()));
        }
        assert_eq!(ask(&name, 11), Err(Duration::from_secs(50)));
        assert_eq!(ask(&other, 11), Ok(()), "other objects are not concerned");
        assert_eq!(ask(&name, 61), Ok(()));
    }

    #[test]
    fn an_object_that_changes_often_has_no_conflict_and_one_that_always_comes_back_has() {
        let name = Name::new(Kind::Endpoint, "a");
        let now = Instant::now();
        let mut conflicts = WriteConflicts::default();
        for version in 0..100 {
            let version = version.to_string();
            assert_eq!(conflicts.ask(Side::Local, &name, Some(&version), now), Ok(()));
        }
        let deletions = (0..10).filter(|_| conflicts.ask(Side::Broker, &name, None, now).is_ok());
        assert_eq!(deletions.count(), 1 + TOLERATED);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_ends_with_the_window() {
        let mut conflicts = WriteConflicts::default();
        let now = Instant::now();
        for index in 0..MAX_WATCHED + 100 {
            let name = Name::new(Kind::Endpoint, &index.to_string());
            assert_eq!(conflicts.ask(Side::Local, &name, None, now), Ok(()));
        }
        assert!(conflicts.watched.len() <= MAX_WATCHED + 1 && conflicts.by_time.len() <= MAX_WATCHED + 1);
        let later = now + WINDOW;
        assert_eq!(conflicts.ask(Side::Local, &Name::new(Kind::Endpoint, "last"), None, later), Ok(()));
        assert_eq!((conflicts.watched.len(), conflicts.by_time.len()), (1, 1));
    }
}
