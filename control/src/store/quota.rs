//! How much of a reader's memory the objects of others may take: of one member of the set, and of all.
//!
//! The youngest objects are over their quota, so that a flood does not push out older ones. They stay known by name,
//! without their bodies, so that they can be refused, shown and deleted; and are read again when there is space.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::decode::{MEMBER_OBJECT_BYTES, OBJECT_BYTES};
use super::size;
use crate::api::{Kind, Object};

/// Most bytes in memory of the objects of one kind that one member has written. Ours: 64 objects of 16 KiB.
const MEMBER_BYTES: usize = 1 << 20;
/// Most bytes in memory of all objects of one kind that members write. Ours: a set of 1,000 clusters with three gateways
/// each takes 18 MiB.
const ALL_BYTES: usize = 32 << 20;
/// Most bytes in memory of the objects of any other kind that one list gives. Ours: 5,000 nodes with fifty images each take
/// 400 MiB.
pub(super) const LIST_BYTES: usize = 512 << 20;

/// Gives whether the members of a set write objects of this kind, so that it has a quota.
pub(super) fn has_quota(kind: Kind) -> bool {
    matches!(kind, Kind::Cluster | Kind::Endpoint)
}

/// Bounds, in bytes of memory.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    object: usize,
    member: usize,
    all: usize,
}

/// The memory that each owner takes. `K` distinguishes objects.
#[derive(Debug)]
pub(super) struct Quota<K> {
    bounds: Bounds,
    held: BTreeMap<K, Held>,
    by_age: BTreeSet<(Timestamp, K)>,
    members: BTreeMap<Arc<str>, Share<K>>,
    bytes: usize,
    /// The objects that were over the quota when they came.
    over: BTreeSet<K>,
    has_space: bool,
}

#[derive(Debug)]
struct Held {
    member: Arc<str>,
    age: Timestamp,
    bytes: usize,
}

#[derive(Debug)]
struct Share<K> {
    bytes: usize,
    by_age: BTreeSet<(Timestamp, K)>,
}

impl<K: Ord + Clone> Quota<K> {
    /// Returns a quota of this kind of objects that nobody has anything of yet.
    pub(super) fn new(kind: Kind) -> Self {
        Self::bounded(if has_quota(kind) {
            Bounds { object: MEMBER_OBJECT_BYTES, member: MEMBER_BYTES, all: ALL_BYTES }
        } else {
            Bounds { object: OBJECT_BYTES, member: usize::MAX, all: LIST_BYTES }
        })
    }

    fn bounded(bounds: Bounds) -> Self {
        Self {
            bounds,
            held: BTreeMap::new(),
            by_age: BTreeSet::new(),
            members: BTreeMap::new(),
            bytes: 0,
            over: BTreeSet::new(),
            has_space: false,
        }
    }

    /// Takes in an object as it is now. Gives those whose bodies are not to be kept, `key` itself perhaps, and why.
    pub(super) fn enter(&mut self, key: &K, object: &Object) -> Vec<(K, String)> {
        self.vacate(key);
        self.over.remove(key);
        if object.withheld.is_some() {
            return Vec::new();
        }
        let bytes = size::of_object(object, self.bounds.object);
        if bytes > self.bounds.object {
            let field = size::heaviest(object, self.bounds.object);
            return vec![(key.clone(), super::decode::too_large(field, self.bounds.object))];
        }
        let member: Arc<str> = Arc::from(object.metadata.origin().unwrap_or_default());
        let age = object.metadata.creation_timestamp.unwrap_or(Timestamp::MAX);
        self.hold(key, Held { member: Arc::clone(&member), age, bytes });
        let mut over = Vec::new();
        while let Some((last, reason)) = self.youngest_over(&member) {
            self.vacate(&last);
            self.over.insert(last.clone());
            over.push((last, reason));
        }
        over
    }

    fn youngest_over(&self, member: &str) -> Option<(K, String)> {
        let Bounds { member: most_each, all: most, .. } = self.bounds;
        let share = self.members.get(member)?;
        if share.bytes > most_each {
            let (_, last) = share.by_age.last()?;
            let reason = format!("its cluster's objects of this kind take more than {most_each} bytes");
            return Some((last.clone(), format!("{reason}; the oldest are taken")));
        }
        if self.bytes > most {
            let (_, last) = self.by_age.last()?;
            let reason = format!("all objects of this kind take more than {most} bytes");
            return Some((last.clone(), format!("{reason}; the oldest are taken")));
        }
        None
    }

    fn hold(&mut self, key: &K, held: Held) {
        self.by_age.insert((held.age, key.clone()));
        let share = self
            .members
            .entry(Arc::clone(&held.member))
            .or_insert_with(|| Share { bytes: 0, by_age: BTreeSet::new() });
        share.bytes += held.bytes;
        share.by_age.insert((held.age, key.clone()));
        self.bytes += held.bytes;
        self.held.insert(key.clone(), held);
    }

    /// Takes in that an object is gone.
    pub(super) fn leave(&mut self, key: &K) {
        self.over.remove(key);
        if self.vacate(key) && !self.over.is_empty() {
            self.has_space = true;
        }
    }

    fn vacate(&mut self, key: &K) -> bool {
        let Some(Held { member, age, bytes }) = self.held.remove(key) else { return false };
        let entry = (age, key.clone());
        self.by_age.remove(&entry);
        self.bytes -= bytes;
        if let Some(share) = self.members.get_mut(&member) {
            share.bytes -= bytes;
            share.by_age.remove(&entry);
            if share.by_age.is_empty() {
                self.members.remove(&member);
            }
        }
        true
    }

    /// Returns, once, those that were over the quota and are to be read again since objects have gone.
    pub(super) fn take_hopeful(&mut self) -> BTreeSet<K> {
        if std::mem::take(&mut self.has_space) { std::mem::take(&mut self.over) } else { BTreeSet::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ObjectMeta, label};

    fn object(name: &str, member: &str, second: i64, text: usize) -> Object {
        let mut metadata = ObjectMeta::new("ns", name);
        metadata.labels.insert(label::CLUSTER_ID.to_owned(), member.to_owned());
        metadata.creation_timestamp = Some(Timestamp::from_second(second).unwrap());
        let mut object = Object::new(Kind::Endpoint, metadata);
        object.body.insert("spec".to_owned(), "x".repeat(text).into());
        object
    }

    fn enter(quota: &mut Quota<String>, object: &Object) -> Vec<String> {
        quota.enter(&object.metadata.name, object).into_iter().map(|(name, _)| name).collect()
    }

    fn small() -> Quota<String> {
        Quota::bounded(Bounds { object: 3_000, member: 5_000, all: 8_000 })
    }

    #[test]
    fn the_youngest_of_a_member_and_of_all_are_over_and_an_update_that_grows_counts_anew() {
        let mut quota = small();
        let nobody = Vec::<String>::new();
        assert_eq!(enter(&mut quota, &object("a1", "a", 1, 1_900)), nobody);
        assert_eq!(enter(&mut quota, &object("a2", "a", 2, 1_900)), nobody);
        assert_eq!(enter(&mut quota, &object("a3", "a", 3, 1_900)), ["a3"], "more than its member's");
        assert_eq!(enter(&mut quota, &object("b1", "b", 4, 1_900)), nobody);
        assert_eq!(enter(&mut quota, &object("c1", "c", 5, 1_900)), ["c1"], "more than all");
        // Older than who is there: it takes its place.
        assert_eq!(enter(&mut quota, &object("d1", "d", 0, 1_900)), ["b1"]);
        assert_eq!(enter(&mut quota, &object("a1", "a", 1, 100)), nobody, "it has shrunk");
        assert_eq!(enter(&mut quota, &object("a1", "a", 1, 9_000)), ["a1"], "too large by itself");
    }

    #[test]
    fn who_was_over_is_hopeful_once_when_somebody_has_gone() {
        let mut quota = small();
        for name in ["a1", "a2", "a3"] {
            enter(&mut quota, &object(name, "a", 1, 1_900));
        }
        quota.leave(&"zebra".to_owned());
        assert!(quota.take_hopeful().is_empty(), "nobody has gone");
        quota.leave(&"a1".to_owned());
        assert_eq!(quota.take_hopeful().into_iter().collect::<Vec<_>>(), ["a3"]);
        assert!(quota.take_hopeful().is_empty());
        assert!(enter(&mut quota, &object("a3", "a", 1, 1_900)).is_empty());
        for name in ["a2", "a3"] {
            quota.leave(&name.to_owned());
        }
        assert!(quota.held.is_empty() && quota.members.is_empty() && quota.by_age.is_empty());
        assert_eq!(quota.bytes, 0);
    }
}
