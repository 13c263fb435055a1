//! What is read of objects of which each node has one, by the nodes' names. Pure.

use std::collections::BTreeMap;

use trieste_control::api::{Kind, Object};
use trieste_control::store::StoreEvent;

use crate::condition::Condition;

/// Ours: most nodes that are followed, twice as many as Kubernetes supports.
pub const MAX_NODES: usize = 10_000;

/// The part of an object that routes follow from.
pub trait Content: Sized + PartialEq {
    /// The kind of the objects.
    const KIND: Kind;

    /// Reads an object, as far as it can be used.
    fn read(object: &Object) -> Read<Self>;
}

/// The parsed content of an object.
#[derive(Debug, PartialEq, Eq)]
pub struct Read<T> {
    /// The usable part.
    pub content: T,
    /// Fields that cannot be used, and what is wrong with them.
    pub problems: Vec<String>,
}

/// The content of all objects of a kind, kept up to date from a store's events.
#[derive(Debug)]
pub struct NodeIndex<T> {
    known: BTreeMap<String, Read<T>>,
    left_out: usize,
    is_complete: bool,
}

impl<T> Default for NodeIndex<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), left_out: 0, is_complete: false }
    }
}

impl<T: Content> NodeIndex<T> {
    /// Applies an event of one watch of all objects. Returns `true` if something that routes follow from has changed.
    pub fn take(&mut self, event: &StoreEvent) -> bool {
        match event {
            StoreEvent::Listed(objects) => {
                let before = std::mem::take(self);
                self.is_complete = true;
                for object in objects {
                    self.put(object);
                }
                !before.is_complete || before.known != self.known || before.left_out != self.left_out
            }
            StoreEvent::Applied(object) => self.put(object),
            StoreEvent::Deleted(object) => self.known.remove(&object.metadata.name).is_some(),
            StoreEvent::Unavailable(_) | _ => false,
        }
    }

    /// Returns `true` once all objects were listed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the content of all objects, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.known.values().map(|read| &read.content)
    }

    /// Returns the content of the object of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&T> {
        self.known.get(name).map(|read| &read.content)
    }

    /// Returns conditions for objects, or fields of them, that cannot be used.
    pub fn conditions(&self) -> impl Iterator<Item = Condition> {
        let bad = self.known.iter().flat_map(|(name, read)| {
            read.problems.iter().map(move |problem| Condition::BadObject {
                object: format!("{} {name}", T::KIND),
                problem: problem.clone(),
            })
        });
        let left_out = (self.left_out > 0).then_some(Condition::TooManyNodes { left_out: self.left_out });
        bad.chain(left_out)
    }

    fn put(&mut self, object: &Object) -> bool {
        let name = &object.metadata.name;
        if self.known.len() >= MAX_NODES && !self.known.contains_key(name) {
            self.left_out += 1;
            return self.left_out == 1;
        }
        let read = T::read(object);
        let has_changed = self.known.get(name) != Some(&read);
        if has_changed {
            self.known.insert(name.clone(), read);
        }
        has_changed
    }
}
