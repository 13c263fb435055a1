//! The objects that say what the cluster is to be, of all kinds and namespaces, kept up to date from the store's events.

use std::collections::{BTreeMap, BTreeSet};

use trieste_control::api::{Kind, Object, ObjectKey};
use trieste_control::store::StoreEvent;

/// The objects.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    objects: BTreeMap<ObjectKey, Object>,
    /// The kinds of which a complete list was received.
    listed: BTreeSet<Kind>,
    /// The kinds that are not served, or that may not be read.
    absent: BTreeSet<Kind>,
}

impl Sources {
    /// Takes in an event about a kind. Returns the objects that came, changed or went.
    pub(crate) fn changes(&mut self, kind: Kind, event: StoreEvent) -> Vec<ObjectKey> {
        if is_absence(&event) {
            self.absent.insert(kind);
        }
        match event {
            StoreEvent::Listed(objects) => {
                self.listed.insert(kind);
                self.absent.remove(&kind);
                let listed: BTreeSet<ObjectKey> = objects.iter().map(Object::key).collect();
                let known = self.objects.keys().filter(|key| key.kind == kind);
                let mut changed: Vec<ObjectKey> =
                    known.filter(|key| !listed.contains(*key)).cloned().collect();
                self.objects.retain(|key, _| key.kind != kind || listed.contains(key));
                changed.extend(objects.into_iter().filter_map(|object| self.put(object)));
                changed
            }
            StoreEvent::Applied(object) => self.put(object).into_iter().collect(),
            StoreEvent::Deleted(object) => {
                self.objects.remove(&object.key()).map(|object| object.key()).into_iter().collect()
            }
            StoreEvent::Unavailable(_) | _ => Vec::new(),
        }
    }

    /// Keeps an object. Returns its key if it is another one than before.
    fn put(&mut self, object: Object) -> Option<ObjectKey> {
        let key = object.key();
        let has_changed = self.objects.get(&key) != Some(&object);
        self.objects.insert(key.clone(), object);
        has_changed.then_some(key)
    }

    /// Returns `true` if a complete list of a kind was received.
    pub(crate) fn has_listed(&self, kind: Kind) -> bool {
        self.listed.contains(&kind)
    }

    /// Returns `true` if it is known which objects of a kind there are for us.
    pub(crate) fn is_settled(&self, kind: Kind) -> bool {
        self.listed.contains(&kind) || self.absent.contains(&kind)
    }

    /// Returns every object.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    /// Returns an object.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Object> {
        self.objects.get(key)
    }
}

/// Returns `true` if the server does not serve the kind, or we may not read it.
fn is_absence(event: &StoreEvent) -> bool {
    event.is_absence() || matches!(event, StoreEvent::Unavailable(error) if error.is_unserved())
}
