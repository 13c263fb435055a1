//! What a reader knows of one kind in one namespace, kept up to date from the store's events.

use std::collections::BTreeMap;

use super::StoreEvent;
use crate::api::Object;

/// A copy of one [`list_watch`](super::Store::list_watch)'s objects, by name.
///
/// Feed it every event of one stream. While the store is unavailable it keeps what it knew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mirror {
    objects: BTreeMap<String, Object>,
    is_complete: bool,
}

impl Mirror {
    /// A mirror that knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in an event. Gives `true` if something is known now that was not known before.
    pub fn apply(&mut self, event: &StoreEvent) -> bool {
        match event {
            StoreEvent::Listed(objects) => {
                let objects =
                    objects.iter().map(|object| (object.metadata.name.clone(), object.clone())).collect();
                let news = !self.is_complete || self.objects != objects;
                self.objects = objects;
                self.is_complete = true;
                news
            }
            StoreEvent::Applied(object) => {
                let old = self.objects.insert(object.metadata.name.clone(), object.clone());
                old.as_ref() != Some(object)
            }
            StoreEvent::Deleted(object) => self.objects.remove(&object.metadata.name).is_some(),
            StoreEvent::Unavailable(_) => false,
        }
    }

    /// Whether a complete list has been seen: before that, an object that is not known may exist all the same.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The object of this name.
    pub fn get(&self, name: &str) -> Option<&Object> {
        self.objects.get(name)
    }

    /// Every object, by name.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
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
    fn a_mirror_tells_news_from_repetition() {
        let mut mirror = Mirror::new();
        assert!(mirror.apply(&StoreEvent::Listed(Vec::new())), "the first list is news even if empty");
        assert!(!mirror.apply(&StoreEvent::Listed(Vec::new())));
        assert!(mirror.apply(&StoreEvent::Applied(object("a", "1"))));
        assert!(!mirror.apply(&StoreEvent::Applied(object("a", "1"))));
        assert!(mirror.apply(&StoreEvent::Applied(object("a", "2"))));
        assert!(mirror.apply(&StoreEvent::Deleted(object("a", "2"))));
        assert!(!mirror.apply(&StoreEvent::Deleted(object("a", "2"))));
    }

    #[test]
    fn a_list_replaces_everything_known_before() {
        let mut mirror = Mirror::new();
        mirror.apply(&StoreEvent::Applied(object("a", "1")));
        assert!(!mirror.is_complete());
        mirror.apply(&StoreEvent::Listed(vec![object("b", "1")]));
        assert!(mirror.is_complete() && mirror.get("a").is_none() && mirror.get("b").is_some());
    }
}
