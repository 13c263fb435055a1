//! Sets by a key, of which none is empty.

use std::collections::{BTreeMap, BTreeSet};

/// Removes an entry of a set, and the set with its last one.
pub fn remove<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, key: &K, entry: &V) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(entry);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
