//! A map that many threads read without a lock and one writes.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use hashbrown::HashMap;

/// Number of shards: 5,000 services are five in a shard, and that is what a change copies. A persistent map would copy
/// fewer for a set of a million, and costs readers a walk through its nodes.
const SHARDS: usize = 1_024;

/// The entries of a shard; immutable, since a change replaces them all.
pub(crate) type Shard<V> = HashMap<Box<[u8]>, V>;

/// A map from bytes to values that are cheap to clone.
pub(crate) struct Sharded<V> {
    shards: Box<[ArcSwap<Shard<V>>]>,
    hasher: RandomState,
}

impl<V: Clone> Sharded<V> {
    /// Creates an empty map.
    pub(crate) fn new() -> Self {
        // All begin with one empty shard.
        let empty = Arc::new(Shard::new());
        let shards = (0..SHARDS).map(|_| ArcSwap::new(Arc::clone(&empty))).collect();
        Self { shards, hasher: RandomState::new() }
    }

    /// Returns the shard that has a key if any has, as it is at this moment.
    pub(crate) fn shard(&self, key: &[u8]) -> Guard<Arc<Shard<V>>> {
        self.at(key).load()
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.load().len()).sum()
    }

    /// Calls a function with each value, shard by shard, in no order.
    pub(crate) fn each(&self, mut call: impl FnMut(&V)) {
        for shard in &self.shards {
            shard.load().values().for_each(&mut call);
        }
    }

    /// Sets or removes a value. Returns the number of entries that were copied for it. Of two writers at a time one would
    /// be ignored: there is one.
    pub(crate) fn set(&self, key: &[u8], value: Option<V>) -> usize {
        let slot = self.at(key);
        let old = slot.load();
        if value.is_none() && !old.contains_key(key) {
            return 0;
        }
        let mut shard = Shard::clone(&old);
        match value {
            Some(value) => shard.insert(key.into(), value),
            None => shard.remove(key),
        };
        let copied = shard.len();
        slot.store(Arc::new(shard));
        copied
    }

    fn at(&self, key: &[u8]) -> &ArcSwap<Shard<V>> {
        let hash = usize::try_from(self.hasher.hash_one(key) % 1_024).unwrap_or(0);
        &self.shards[hash]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_copies_one_shard_and_readers_keep_what_they_have() {
        let map = Sharded::new();
        for number in 0..5_000_u32 {
            map.set(&number.to_be_bytes(), Some(number));
        }
        let key = 7_u32.to_be_bytes();
        let before = map.shard(&key);
        let copied = map.set(&key, Some(70));
        assert!((1..40).contains(&copied), "{copied} of 5,000");
        assert_eq!(before.get(&key[..]), Some(&7));
        assert_eq!(map.shard(&key).get(&key[..]), Some(&70));
        map.set(&key, None);
        assert_eq!(map.shard(&key).get(&key[..]), None);
        assert_eq!(map.set(b"absent", None), 0);
    }
}
