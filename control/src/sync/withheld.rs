//! Copies whose removal waits, by whose they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::name::Name;
use super::side::Side;
use crate::api::{Kind, cut};
use crate::sets;

/// Longest cluster ID, in characters; of a longer one the beginning stands for it.
const MAX_ID: usize = 63;

/// An object on one side.
pub(super) type Key = (Side, Name);
/// A cluster, of which objects of a kind are missed.
pub(super) type Owner = (Kind, Arc<str>);

/// Returns the owner of an object of this kind, as its origin says.
pub(super) fn owner(kind: Kind, origin: Option<&str>) -> Owner {
    (kind, Arc::from(cut(origin.unwrap_or_default(), MAX_ID)))
}

/// Copies whose removal waits for time, or for a change of what is known of their owner.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    owners: BTreeMap<Key, Owner>,
    by_owner: BTreeMap<Owner, BTreeSet<Key>>,
}

impl Withheld {
    /// Adds a copy of an owner's.
    pub(super) fn insert(&mut self, key: Key, owner: Owner) {
        self.remove(&key);
        self.by_owner.entry(owner.clone()).or_default().insert(key.clone());
        self.owners.insert(key, owner);
    }

    /// Removes a copy.
    pub(super) fn remove(&mut self, key: &Key) {
        if let Some(owner) = self.owners.remove(key) {
            sets::remove(&mut self.by_owner, &owner, key);
        }
    }

    /// Drains the copies of an owner.
    pub(super) fn take_of(&mut self, owner: &Owner) -> BTreeSet<Key> {
        let keys = self.by_owner.remove(owner).unwrap_or_default();
        for key in &keys {
            self.owners.remove(key);
        }
        keys
    }

    /// Drains all.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Key> + use<> {
        self.by_owner.clear();
        std::mem::take(&mut self.owners).into_keys()
    }

    /// Returns `true` if the removal of this copy waits.
    #[cfg(test)]
    pub(super) fn contains(&self, key: &Key) -> bool {
        self.owners.contains_key(key)
    }

    /// Returns `true` if no removal waits.
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_found_by_their_owner() {
        let key = |name: &str| (Side::Local, Name::new(Kind::Endpoint, name));
        let owner = |name: &str| (Kind::Endpoint, Arc::from(name));
        let mut withheld = Withheld::default();
        for (name, of) in [("1", "a"), ("2", "a"), ("3", "b"), ("3", "c")] {
            withheld.insert(key(name), owner(of));
        }
        withheld.remove(&key("2"));
        assert_eq!(withheld.take_of(&owner("a")), [key("1")].into());
        assert!(withheld.take_of(&owner("b")).is_empty(), "it is another one's since");
        assert_eq!(withheld.take().collect::<Vec<_>>(), [key("3")]);
        assert!(withheld.is_empty() && withheld.by_owner.is_empty());
    }
}
