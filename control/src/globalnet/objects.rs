//! All objects that a plan depends on, and whether they are known.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::api::{Body, Kind, Object, ObjectKey, annotation};
use crate::store::StoreEvent;

/// A watched scope: a kind in a namespace; in all of them if that is empty.
pub type Scope = (Kind, String);

/// The cache of the store: objects by kind, namespace and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Objects {
    all: BTreeMap<ObjectKey, Object>,
    listed: BTreeSet<Scope>,
    changes: Changes,
}

/// The changes since a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// The objects that are others than at that moment, as they were; `None` if they were not there.
    pub(super) objects: BTreeMap<ObjectKey, Option<Object>>,
    /// The scopes that were listed for the first time, or forgotten.
    pub(super) scopes: BTreeSet<Scope>,
}

impl Changes {
    /// Returns `true` if an object of this kind has changed.
    pub(super) fn has_any_of(&self, kind: Kind) -> bool {
        self.objects.range(ObjectKey::new(kind, "", "")..).next().is_some_and(|(key, _)| key.kind == kind)
    }
}

impl Objects {
    /// Takes in an event about a scope. Gives `true` if something is known now that was not known before.
    pub fn handle(&mut self, scope: &Scope, event: StoreEvent) -> bool {
        match event {
            StoreEvent::Listed(objects) => {
                let fresh: BTreeMap<ObjectKey, Object> =
                    objects.into_iter().map(slim).map(|object| (object.key(), object)).collect();
                let mut has_changed = self.listed.insert(scope.clone());
                if has_changed {
                    self.changes.scopes.insert(scope.clone());
                }
                let gone: Vec<ObjectKey> =
                    self.within(scope).map(Object::key).filter(|key| !fresh.contains_key(key)).collect();
                has_changed |= !gone.is_empty();
                gone.iter().for_each(|key| self.remove(key));
                for object in fresh.into_values() {
                    has_changed |= self.put_slim(object);
                }
                has_changed
            }
            StoreEvent::Applied(object) => self.put(object),
            StoreEvent::Deleted(object) => {
                let key = object.key();
                let was_there = self.all.contains_key(&key);
                self.remove(&key);
                was_there
            }
            StoreEvent::Unavailable(_) => false,
        }
    }

    /// Takes in an object. Gives `true` if it is not what was known.
    pub fn put(&mut self, object: Object) -> bool {
        self.put_slim(slim(object))
    }

    fn put_slim(&mut self, object: Object) -> bool {
        let key = object.key();
        if self.all.get(&key) == Some(&object) {
            return false;
        }
        let old = self.all.insert(key.clone(), object);
        self.changes.objects.entry(key).or_insert(old);
        true
    }

    /// Takes in that an object is gone.
    pub fn remove(&mut self, key: &ObjectKey) {
        if let Some(old) = self.all.remove(key) {
            self.changes.objects.entry(key.clone()).or_insert(Some(old));
        }
    }

    /// Returns what has changed since this was called last.
    pub(super) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// Returns everything as a change of what was not there.
    pub(super) fn everything(&self) -> Changes {
        let objects = self.all.keys().map(|key| (key.clone(), None)).collect();
        Changes { objects, scopes: self.listed.clone() }
    }

    /// Returns an object by its key.
    pub(super) fn at(&self, key: &ObjectKey) -> Option<&Object> {
        self.all.get(key)
    }

    /// Forgets a scope that is no longer followed.
    pub fn remove_scope(&mut self, scope: &Scope) {
        if self.listed.remove(scope) {
            self.changes.scopes.insert(scope.clone());
        }
        let gone: Vec<ObjectKey> = self.within(scope).map(Object::key).collect();
        gone.iter().for_each(|key| self.remove(key));
    }

    /// Returns `true` if all objects of a kind and namespace are known: before that, one that is not known may exist
    /// all the same.
    pub fn is_known(&self, kind: Kind, namespace: &str) -> bool {
        self.listed.contains(&(kind, String::new())) || self.listed.contains(&(kind, namespace.to_owned()))
    }

    /// Returns an object.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Object> {
        self.all.get(&ObjectKey::new(kind, namespace, name))
    }

    /// Returns every object of a kind, by namespace and name.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        self.range(kind, "").map(|(_, object)| object)
    }

    /// Returns every object of a kind in one namespace, by name.
    pub fn inside<'a>(&'a self, kind: Kind, namespace: &'a str) -> impl Iterator<Item = &'a Object> {
        let range = self.range(kind, namespace);
        range.take_while(move |(key, _)| key.namespace == namespace).map(|(_, object)| object)
    }

    fn within<'a>(&'a self, scope: &'a Scope) -> impl Iterator<Item = &'a Object> {
        let (kind, namespace) = scope;
        let range = self.range(*kind, namespace);
        range
            .take_while(move |(key, _)| namespace.is_empty() || key.namespace == *namespace)
            .map(|(_, object)| object)
    }

    fn range(&self, kind: Kind, namespace: &str) -> impl Iterator<Item = (&ObjectKey, &Object)> {
        self.all.range(ObjectKey::new(kind, namespace, "")..).take_while(move |(key, _)| key.kind == kind)
    }
}

/// Leaves of an object what a plan looks at, where there are many of its kind or it changes all the time.
fn slim(mut object: Object) -> Object {
    if object.kind == Kind::Pod {
        let keep = |object: &mut Object, part: &str, fields: &[&str]| {
            if let Some(Value::Object(part)) = object.body.get_mut(part) {
                part.retain(|field, _| fields.contains(&field.as_str()));
            }
        };
        keep(&mut object, "spec", &["hostNetwork"]);
        keep(&mut object, "status", &["phase", "podIP", "podIPs"]);
        object.metadata.annotations.clear();
        object.metadata.extra = Map::new();
        // Not written, so that no version is needed; and most changes of a pod are none to us.
        object.metadata.resource_version = None;
    } else if object.kind == Kind::Gateway {
        // Written every few seconds: who writes it reads it first.
        object.body = Body::default();
        object.metadata.resource_version = None;
        object.metadata.generation = None;
        object.metadata.annotations.retain(|key, _| key == annotation::GLOBAL_IP);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ObjectMeta;

    fn object(kind: Kind, namespace: &str, name: &str) -> Object {
        Object::new(kind, ObjectMeta::new(namespace, name))
    }

    #[test]
    fn a_list_of_one_namespace_says_nothing_of_another() {
        let mut objects = Objects::default();
        let pods = |namespace: &str| (Kind::Pod, namespace.to_owned());
        let list =
            |names: [&str; 2]| StoreEvent::Listed(names.map(|name| object(Kind::Pod, "a", name)).to_vec());
        assert!(objects.handle(&pods("a"), list(["x", "y"])));
        assert!(!objects.handle(&pods("a"), list(["x", "y"])), "nothing new");
        objects.handle(&pods("b"), StoreEvent::Listed(vec![object(Kind::Pod, "b", "z")]));
        assert!(objects.handle(&pods("a"), list(["x", "w"])));
        let names = |namespace| objects.inside(Kind::Pod, namespace).map(|pod| pod.metadata.name.as_str());
        assert_eq!(names("a").collect::<Vec<_>>(), ["w", "x"]);
        assert_eq!(names("b").collect::<Vec<_>>(), ["z"]);
        assert!(objects.is_known(Kind::Pod, "a") && !objects.is_known(Kind::Pod, "c"));
        objects.remove_scope(&pods("a"));
        assert!(!objects.is_known(Kind::Pod, "a") && objects.of(Kind::Pod).count() == 1);
    }

    #[test]
    fn a_list_of_all_namespaces_is_known_in_each() {
        let mut objects = Objects::default();
        let services = (Kind::Service, String::new());
        objects.handle(&services, StoreEvent::Listed(vec![object(Kind::Service, "a", "x")]));
        objects.handle(&services, StoreEvent::Applied(object(Kind::Service, "b", "x")));
        assert!(objects.is_known(Kind::Service, "anywhere"));
        assert!(objects.get(Kind::Service, "b", "x").is_some());
        objects.handle(&services, StoreEvent::Deleted(object(Kind::Service, "b", "x")));
        assert!(objects.get(Kind::Service, "b", "x").is_none());
    }

    #[test]
    fn what_a_gateway_says_every_five_seconds_is_no_news() {
        let mut objects = Objects::default();
        let mut gateway = object(Kind::Gateway, "ns", "gw");
        gateway.metadata.annotations.insert("update-timestamp".to_owned(), "1".to_owned());
        assert!(objects.put(gateway.clone()));
        gateway.metadata.annotations.insert("update-timestamp".to_owned(), "6".to_owned());
        gateway.metadata.resource_version = Some("7".to_owned());
        assert!(!objects.put(gateway.clone()));
        gateway.metadata.annotations.insert(annotation::GLOBAL_IP.to_owned(), "242.0.0.1".to_owned());
        assert!(objects.put(gateway));
    }
}
