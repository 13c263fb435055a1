//! A reader's objects of one kind in one namespace, kept up to date from the store's events.

use std::collections::{BTreeMap, BTreeSet};

use super::StoreEvent;
use crate::api::Object;

/// A copy of one [`list_watch`](super::Store::list_watch)'s objects, by name.
///
/// Feed it every event of one stream. While the store is unavailable it keeps what it knew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cache {
    objects: BTreeMap<String, Object>,
    is_complete: bool,
}

impl Cache {
    /// Returns a cache of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in an event. Gives `true` if something is known now that was not known before.
    pub fn apply(&mut self, event: &StoreEvent) -> bool {
        match event {
            StoreEvent::Listed(objects) => {
                let objects =
                    objects.iter().map(|object| (object.metadata.name.clone(), object.clone())).collect();
                let changed = !self.is_complete || self.objects != objects;
                self.objects = objects;
                self.is_complete = true;
                changed
            }
            StoreEvent::Applied(object) => {
                let old = self.objects.insert(object.metadata.name.clone(), object.clone());
                old.as_ref() != Some(object)
            }
            StoreEvent::Deleted(object) => self.objects.remove(&object.metadata.name).is_some(),
            StoreEvent::Unavailable(_) => false,
        }
    }

    /// Takes in an event. Returns the names of the objects that came, changed or went: none if nothing did.
    pub fn changes(&mut self, event: StoreEvent) -> Vec<String> {
        match event {
            StoreEvent::Listed(objects) => {
                self.is_complete = true;
                let objects: BTreeMap<String, Object> =
                    objects.into_iter().map(|object| (object.metadata.name.clone(), object)).collect();
                let old = std::mem::replace(&mut self.objects, objects);
                let gone = old.keys().filter(|name| !self.objects.contains_key(*name)).cloned();
                let mut changed: Vec<String> = gone.collect();
                let is_new = |(name, object): &(&String, &Object)| old.get(*name) != Some(*object);
                changed.extend(self.objects.iter().filter(is_new).map(|(name, _)| name.clone()));
                changed
            }
            StoreEvent::Applied(object) => {
                let name = object.metadata.name.clone();
                let has_changed = self.objects.get(&name) != Some(&object);
                self.objects.insert(name.clone(), object);
                if has_changed { vec![name] } else { Vec::new() }
            }
            StoreEvent::Deleted(object) => self
                .objects
                .remove(&object.metadata.name)
                .map(|object| object.metadata.name)
                .into_iter()
                .collect(),
            StoreEvent::Unavailable(_) => Vec::new(),
        }
    }

    /// Returns `true` if a complete list was received: before that, an object that is not cached may exist all the
    /// same.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the object of this name.
    pub fn get(&self, name: &str) -> Option<&Object> {
        self.objects.get(name)
    }

    /// Returns every object, by name.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }
}

/// A [`Cache`] whose objects are read into something else, each once for each of its versions.
#[derive(Debug)]
pub struct ParsedCache<T> {
    cache: Cache,
    read: BTreeMap<String, T>,
    /// Names of objects that have come, changed or gone since they were read.
    changed: BTreeSet<String>,
}

impl<T> Default for ParsedCache<T> {
    fn default() -> Self {
        Self { cache: Cache::new(), read: BTreeMap::new(), changed: BTreeSet::new() }
    }
}

impl<T> ParsedCache<T> {
    /// Takes in an event, as [`Cache::apply`] does.
    pub fn apply(&mut self, event: &StoreEvent) -> bool {
        let has_changed = self.cache.apply(event);
        match event {
            _ if !has_changed => {}
            StoreEvent::Applied(object) | StoreEvent::Deleted(object) => {
                self.changed.insert(object.metadata.name.clone());
            }
            StoreEvent::Listed(objects) => {
                self.changed.extend(self.read.keys().cloned());
                self.changed.extend(objects.iter().map(|object| object.metadata.name.clone()));
            }
            StoreEvent::Unavailable(_) => {}
        }
        has_changed
    }

    /// Reads what has changed since the last time, and nothing else.
    pub fn refresh(&mut self, read: impl Fn(&Object) -> T) {
        for name in std::mem::take(&mut self.changed) {
            match self.cache.get(&name) {
                Some(object) => drop(self.read.insert(name, read(object))),
                None => drop(self.read.remove(&name)),
            }
        }
    }

    /// Returns `true` once a complete list has been seen.
    pub fn is_complete(&self) -> bool {
        self.cache.is_complete()
    }

    /// Returns every object, by name.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.cache.objects()
    }

    /// Returns the object of this name.
    pub fn get(&self, name: &str) -> Option<&Object> {
        self.cache.get(name)
    }

    /// Returns what was read of every object, by name, at the last [`ParsedCache::refresh`].
    pub fn read(&self) -> impl Iterator<Item = (&str, &T)> {
        self.read.iter().map(|(name, read)| (name.as_str(), read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Kind, ObjectMeta};

    fn object(name: &str, version: &str) -> Object {
        let mut object = Object::new(Kind::Cluster, ObjectMeta::new("ns", name));
        object.metadata.resource_version = Some(version.to_owned());
        object
    }

    #[test]
    fn a_cache_tells_news_from_repetition() {
        let mut cache = Cache::new();
        assert!(cache.apply(&StoreEvent::Listed(Vec::new())), "the first list is news even if empty");
        assert!(!cache.apply(&StoreEvent::Listed(Vec::new())));
        assert!(cache.apply(&StoreEvent::Applied(object("a", "1"))));
        assert!(!cache.apply(&StoreEvent::Applied(object("a", "1"))));
        assert!(cache.apply(&StoreEvent::Applied(object("a", "2"))));
        assert!(cache.apply(&StoreEvent::Deleted(object("a", "2"))));
        assert!(!cache.apply(&StoreEvent::Deleted(object("a", "2"))));
    }

    #[test]
    fn an_event_names_what_it_changes() {
        let mut cache = Cache::new();
        let listed = |objects: &[Object]| StoreEvent::Listed(objects.to_vec());
        assert_eq!(cache.changes(listed(&[object("a", "1"), object("b", "1")])), ["a", "b"]);
        assert_eq!(cache.changes(listed(&[object("b", "2"), object("c", "1")])), ["a", "b", "c"]);
        assert_eq!(cache.changes(listed(&[object("b", "2"), object("c", "1")])), [""; 0]);
        assert_eq!(cache.changes(StoreEvent::Applied(object("b", "2"))), [""; 0]);
        assert_eq!(cache.changes(StoreEvent::Applied(object("b", "3"))), ["b"]);
        assert_eq!(cache.changes(StoreEvent::Deleted(object("b", "3"))), ["b"]);
        assert_eq!(cache.changes(StoreEvent::Deleted(object("b", "3"))), [""; 0]);
    }

    #[test]
    fn a_list_replaces_everything_known_before() {
        let mut cache = Cache::new();
        cache.apply(&StoreEvent::Applied(object("a", "1")));
        assert!(!cache.is_complete());
        cache.apply(&StoreEvent::Listed(vec![object("b", "1")]));
        assert!(cache.is_complete() && cache.get("a").is_none() && cache.get("b").is_some());
    }

    #[test]
    fn every_object_is_read_once_for_each_of_its_versions() {
        let mut cache = ParsedCache::default();
        let reads = std::cell::Cell::new(0);
        let shown = |cache: &mut ParsedCache<String>| {
            reads.set(0);
            cache.refresh(|object| {
                reads.set(reads.get() + 1);
                object.metadata.resource_version.clone().unwrap_or_default()
            });
            let all: Vec<_> = cache.read().map(|(name, read)| format!("{name}{read}")).collect();
            (all.join(" "), reads.get())
        };
        let shows = |text: &str, reads| (text.to_owned(), reads);
        assert!(cache.apply(&StoreEvent::Applied(object("a", "1"))));
        assert!(cache.apply(&StoreEvent::Listed(vec![object("a", "1"), object("b", "1")])));
        assert_eq!(shown(&mut cache), shows("a1 b1", 2));
        assert!(!cache.apply(&StoreEvent::Applied(object("a", "1"))));
        assert_eq!(shown(&mut cache), shows("a1 b1", 0));
        assert!(cache.apply(&StoreEvent::Applied(object("b", "2"))));
        assert_eq!(shown(&mut cache), shows("a1 b2", 1));
        assert!(cache.apply(&StoreEvent::Deleted(object("a", "1"))));
        assert_eq!(shown(&mut cache), shows("b2", 0));
        assert!(cache.apply(&StoreEvent::Listed(vec![object("c", "3")])));
        assert_eq!(shown(&mut cache), shows("c3", 1));
    }
}
