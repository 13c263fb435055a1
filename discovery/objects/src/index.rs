//! Which changes of the records follow from an event of the store: those of the objects that it changes.

use std::collections::{BTreeMap, BTreeSet};

use trieste_control::api::{Object, placed};
use trieste_control::store::StoreEvent;
use trieste_dns::{Change, Import, Label, ServiceName};

use crate::read::{self, Unusable};

/// Most services of this cluster whose pods' own addresses are answered instead of global ones.
pub const MAX_LOCAL: usize = 1_000;

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Imports.
    Imports,
    /// Slices of exported services.
    Exported,
    /// Kubernetes' own slices of a service of this cluster.
    Own(LocalService),
}

/// A service of this cluster: namespace and name.
pub type LocalService = (String, String);

/// Namespace and name.
type Key = (String, String);

/// The objects, as far as it has to be known what to take back.
#[derive(Debug)]
pub struct Index {
    local: Label,
    /// The namespace in which objects stand whose own is missing; empty if none are read.
    operator: String,
    known: BTreeMap<Source, BTreeMap<Key, Entry>>,
    /// Services with an import in their own namespace.
    placed: BTreeSet<ServiceName>,
    /// The imports of services whose namespace is missing. They count where there is none in the service's own: while that comes,
    /// there are both.
    displaced: BTreeMap<ServiceName, Import>,
    /// Slices of services of this cluster whose own addresses are to be answered; by their names.
    global: BTreeMap<LocalService, BTreeSet<Key>>,
    has_other_global: bool,
    listed: BTreeSet<Source>,
    unusable: usize,
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// Its version and incarnation; one that is the same says nothing new.
    version: (Option<String>, Option<String>),
    content: Content,
}

/// What has come of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    /// Nothing: it is not the set's.
    Nowhere,
    /// It cannot be used.
    Unusable,
    Import(ServiceName),
    /// An import whose namespace is missing.
    DisplacedImport(ServiceName),
    Slice(ServiceName, Label),
    /// A slice whose namespace is missing.
    DisplacedSlice(ServiceName, Label),
    /// A slice of global addresses in this cluster.
    Global(LocalService),
}

impl Index {
    /// Creates the index of a cluster.
    #[must_use]
    pub fn new(local: Label) -> Self {
        Self {
            local,
            operator: String::new(),
            known: BTreeMap::new(),
            placed: BTreeSet::new(),
            displaced: BTreeMap::new(),
            global: BTreeMap::new(),
            has_other_global: false,
            listed: BTreeSet::new(),
            unusable: 0,
        }
    }

    /// Reads also what stands in the operator's namespace, because its own is missing; in none if the name is empty.
    #[must_use]
    pub fn with_displaced_in(mut self, operator: &str) -> Self {
        operator.clone_into(&mut self.operator);
        self
    }

    /// Handles an event. Returns the changes that follow, in order, and objects that cannot be used, with the reason: each once
    /// for each of its versions.
    pub fn handle(&mut self, source: &Source, event: StoreEvent) -> (Vec<Change>, Vec<(String, Unusable)>) {
        let mut out = (Vec::new(), Vec::new());
        match event {
            StoreEvent::Listed(objects) => {
                let there: BTreeSet<Key> = objects.iter().map(key).collect();
                let known = self.known.get(source).into_iter().flat_map(BTreeMap::keys);
                let gone: Vec<Key> = known.filter(|key| !there.contains(*key)).cloned().collect();
                for key in gone {
                    self.remove(source, &key, &mut out.0);
                }
                for object in &objects {
                    self.apply(source, object, &mut out);
                }
                self.listed.insert(source.clone());
            }
            StoreEvent::Applied(object) => self.apply(source, &object, &mut out),
            StoreEvent::Deleted(object) => self.remove(source, &key(&object), &mut out.0),
            StoreEvent::Unavailable(_) | _ => {}
        }
        out
    }

    /// Returns whether all objects of a source have been read once.
    #[must_use]
    pub fn is_listed(&self, source: &Source) -> bool {
        self.listed.contains(source)
    }

    /// Returns the services of this cluster whose own slices are wanted, if they are others than the last time.
    pub fn take_wanted(&mut self) -> Option<BTreeSet<LocalService>> {
        let has_other = std::mem::take(&mut self.has_other_global);
        has_other.then(|| self.global.keys().take(MAX_LOCAL).cloned().collect())
    }

    /// Removes the own slices of a service that are not wanted any more. Returns the changes that follow.
    pub fn remove_own(&mut self, service: &LocalService) -> Vec<Change> {
        let source = Source::Own(service.clone());
        let mut changes = Vec::new();
        let known: Vec<Key> = self.known.get(&source).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        for key in known {
            self.remove(&source, &key, &mut changes);
        }
        self.known.remove(&source);
        self.listed.remove(&source);
        changes
    }

    /// Returns the number of objects that cannot be used.
    #[must_use]
    pub fn unusable(&self) -> usize {
        self.unusable
    }

    fn apply(&mut self, source: &Source, object: &Object, out: &mut (Vec<Change>, Vec<(String, Unusable)>)) {
        let key = key(object);
        let version = (object.metadata.resource_version.clone(), object.metadata.uid.clone());
        let old = self.known.get(source).and_then(|known| known.get(&key));
        if old.is_some_and(|old| old.version == version && version.0.is_some()) {
            return;
        }
        let (content, change) = self.read(source, object).unwrap_or_else(|reason| {
            out.1.push((object.key().to_string(), reason));
            (Content::Unusable, None)
        });
        if old.is_some_and(|old| old.content != content) {
            self.remove(source, &key, &mut out.0);
        }
        match &content {
            Content::Global(service) => {
                self.has_other_global |= !self.global.contains_key(service);
                self.global.entry(service.clone()).or_default().insert(key.clone());
            }
            Content::Unusable if !self.is_unusable(source, &key) => self.unusable += 1,
            Content::Import(name) => drop(self.placed.insert(name.clone())),
            Content::Nowhere
            | Content::Unusable
            | Content::DisplacedImport(_)
            | Content::Slice(..)
            | Content::DisplacedSlice(..) => {}
        }
        out.0.extend(change.and_then(|change| self.note_displaced(&content, change)));
        self.known.entry(source.clone()).or_default().insert(key, Entry { version, content });
    }

    /// Keeps an import whose namespace is missing. Returns the change, unless the service has an import in its own namespace.
    fn note_displaced(&mut self, content: &Content, change: Change) -> Option<Change> {
        if let (Content::DisplacedImport(name), Change::Import(_, import)) = (content, &change) {
            self.displaced.insert(name.clone(), import.clone());
            return (!self.placed.contains(name)).then_some(change);
        }
        Some(change)
    }

    fn is_unusable(&self, source: &Source, key: &Key) -> bool {
        let known = self.known.get(source).and_then(|known| known.get(key));
        known.is_some_and(|known| known.content == Content::Unusable)
    }

    /// Reads an object.
    fn read(&self, source: &Source, object: &Object) -> Result<(Content, Option<Change>), Unusable> {
        let slice = object.metadata.name.as_str();
        match source {
            Source::Imports => {
                let displaced = placed(object, &self.operator);
                let Some((name, import)) = read::import(displaced.as_ref().unwrap_or(object))? else {
                    return Ok((Content::Nowhere, None));
                };
                let change = Some(Change::Import(name.clone(), import));
                Ok(match displaced {
                    Some(_) => (Content::DisplacedImport(name), change),
                    None => (Content::Import(name), change),
                })
            }
            Source::Exported => {
                if let Some(displaced) = placed(object, &self.operator) {
                    return self.read_displaced(&displaced, displaced_name(&key(object)));
                }
                let Some(exported) = read::exported(object)? else { return Ok((Content::Nowhere, None)) };
                if exported.is_global && exported.cluster == self.local {
                    let namespace = object.metadata.namespace.clone();
                    return Ok((Content::Global((namespace, exported.service.service().into_owned())), None));
                }
                let content = Content::Slice(exported.service.clone(), exported.cluster.clone());
                let change = Change::Slice(exported.service, exported.cluster, slice.into(), exported.slice);
                Ok((content, Some(change)))
            }
            Source::Own((namespace, service)) => {
                let name =
                    ServiceName::parse(namespace, service).map_err(|error| Unusable(error.to_string()))?;
                let content = Content::Slice(name.clone(), self.local.clone());
                let slice_read = read::slice(object, true)?;
                let change = Change::Slice(name, self.local.clone(), slice.into(), slice_read);
                Ok((content, Some(change)))
            }
        }
    }

    /// Reads a slice whose namespace is missing; it is another cluster's.
    fn read_displaced(
        &self,
        placed: &Object,
        slice: Box<str>,
    ) -> Result<(Content, Option<Change>), Unusable> {
        let exported = read::exported(placed)?.filter(|exported| exported.cluster != self.local);
        let Some(exported) = exported else { return Ok((Content::Nowhere, None)) };
        let content = Content::DisplacedSlice(exported.service.clone(), exported.cluster.clone());
        Ok((content, Some(Change::Slice(exported.service, exported.cluster, slice, exported.slice))))
    }

    fn remove(&mut self, source: &Source, key: &Key, changes: &mut Vec<Change>) {
        let Some(known) = self.known.get_mut(source).and_then(|known| known.remove(key)) else { return };
        match known.content {
            Content::Nowhere => {}
            Content::Unusable => self.unusable -= 1,
            Content::Import(name) => {
                self.placed.remove(&name);
                changes.push(match self.displaced.get(&name) {
                    Some(import) => Change::Import(name, import.clone()),
                    None => Change::ImportRemoved(name),
                });
            }
            Content::DisplacedImport(name) => {
                self.displaced.remove(&name);
                if !self.placed.contains(&name) {
                    changes.push(Change::ImportRemoved(name));
                }
            }
            Content::DisplacedSlice(name, cluster) => {
                changes.push(Change::SliceRemoved(name, cluster, displaced_name(key)));
            }
            Content::Slice(name, cluster) => {
                changes.push(Change::SliceRemoved(name, cluster, key.1.as_str().into()));
            }
            Content::Global(service) => {
                let slices = self.global.get_mut(&service);
                let is_last = slices.is_some_and(|slices| slices.remove(key) && slices.is_empty());
                if is_last {
                    self.has_other_global = true;
                    self.global.remove(&service);
                }
            }
        }
    }
}

fn key(object: &Object) -> Key {
    (object.metadata.namespace.clone(), object.metadata.name.clone())
}

/// Returns the name of a slice whose namespace is missing among the service's slices: another one than it has in its own.
fn displaced_name((namespace, name): &Key) -> Box<str> {
    format!("{namespace}/{name}").into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trieste_control::api::{annotation, displace, label};

    use super::*;
    use crate::read::tests::{import_object, slice_object};

    fn index() -> Index {
        Index::new(Label::new("west").unwrap())
    }

    fn listed(index: &mut Index, source: &Source, objects: &[Object]) -> Vec<String> {
        shown(&index.handle(source, StoreEvent::Listed(objects.to_vec())).0)
    }

    fn shown(changes: &[Change]) -> Vec<String> {
        let show = |change: &Change| {
            if let Change::Import(name, _) = change {
                format!("+{name}")
            } else if let Change::ImportRemoved(name) = change {
                format!("-{name}")
            } else if let Change::Slice(name, cluster, slice, _) = change {
                format!("+{name} {cluster} {slice}")
            } else if let Change::SliceRemoved(name, cluster, slice) = change {
                format!("-{name} {cluster} {slice}")
            } else {
                format!("{change:?}")
            }
        };
        changes.iter().map(show).collect()
    }

    #[test]
    fn an_event_changes_what_it_is_about() {
        let mut index = index();
        let (a, b) = (slice_object("a", "east", &["10.2.0.1"]), slice_object("b", "south", &["10.3.0.1"]));
        let exported = Source::Exported;
        assert!(!index.is_listed(&exported));
        let both = [a.clone(), b.clone()];
        let first = listed(&mut index, &exported, &both);
        assert_eq!(first, ["+shop/web east a", "+shop/web south b"]);
        assert!(index.is_listed(&exported));
        assert_eq!(listed(&mut index, &exported, &both), [""; 0], "nothing is new");
        let mut newer = a;
        newer.metadata.resource_version = Some("2".to_owned());
        assert_eq!(
            listed(&mut index, &exported, &[newer.clone()]),
            ["-shop/web south b", "+shop/web east a"]
        );
        newer.metadata.resource_version = Some("3".to_owned());
        newer.metadata.labels.insert(label::SOURCE_CLUSTER.to_owned(), "north".to_owned());
        let moved = index.handle(&exported, StoreEvent::Applied(newer.clone())).0;
        assert_eq!(shown(&moved), ["-shop/web east a", "+shop/web north a"]);
        let deleted = index.handle(&exported, StoreEvent::Deleted(newer)).0;
        assert_eq!(shown(&deleted), ["-shop/web north a"]);
        assert_eq!(shown(&index.handle(&exported, StoreEvent::Deleted(b)).0), [""; 0]);
    }

    #[test]
    fn what_stands_in_the_operators_namespace_counts_where_there_is_nothing_in_its_own() {
        let operator = "submariner-operator";
        let displaced = |mut object: Object| {
            displace(&mut object, operator);
            object
        };
        let import = |kind: &str| import_object(&json!({"type": kind}));
        let slice = slice_object("a", "east", &["10.2.0.1"]);
        let (imports, exported) = (Source::Imports, Source::Exported);
        let mut index = index().with_displaced_in(operator);
        let mut apply = |source: &Source, event: StoreEvent| shown(&index.handle(source, event).0);
        let listed = StoreEvent::Listed(vec![displaced(import("Headless"))]);
        assert_eq!(apply(&imports, listed), ["+shop/web"]);
        let listed = StoreEvent::Listed(vec![displaced(slice.clone())]);
        assert_eq!(apply(&exported, listed), ["+shop/web east submariner-operator/a"]);
        // The namespace comes: both are there for a moment.
        assert_eq!(apply(&imports, StoreEvent::Applied(import("ClusterSetIP"))), ["+shop/web"]);
        assert_eq!(apply(&exported, StoreEvent::Applied(slice.clone())), ["+shop/web east a"]);
        let mut newer = displaced(import("Headless"));
        newer.metadata.resource_version = Some("2".to_owned());
        assert_eq!(apply(&imports, StoreEvent::Applied(newer.clone())), [""; 0], "its own counts");
        assert_eq!(apply(&imports, StoreEvent::Deleted(newer.clone())), [""; 0]);
        let gone = apply(&exported, StoreEvent::Deleted(displaced(slice)));
        assert_eq!(gone, ["-shop/web east submariner-operator/a"]);
        // And it goes.
        assert_eq!(apply(&imports, StoreEvent::Applied(newer.clone())), [""; 0]);
        assert_eq!(apply(&imports, StoreEvent::Deleted(import("ClusterSetIP"))), ["+shop/web"]);
        assert_eq!(apply(&imports, StoreEvent::Deleted(newer)), ["-shop/web"]);
    }

    #[test]
    fn what_is_displaced_counts_in_the_operators_namespace_alone_and_is_another_clusters() {
        let displaced = |mut object: Object, namespace: &str| {
            displace(&mut object, namespace);
            object
        };
        let import = import_object(&json!({"type": "Headless"}));
        let slice = |cluster: &str| slice_object("a", cluster, &["10.2.0.1"]);
        for (operator, namespace, cluster) in
            [("submariner-operator", "tenant", "east"), ("", "", "east"), ("operator", "operator", "west")]
        {
            let mut index = index().with_displaced_in(operator);
            let mut found = listed(&mut index, &Source::Exported, &[displaced(slice(cluster), namespace)]);
            if cluster == "east" {
                found.extend(listed(&mut index, &Source::Imports, &[displaced(import.clone(), namespace)]));
            }
            assert_eq!(found, [""; 0], "{operator} {namespace} {cluster}");
        }
    }

    #[test]
    fn an_object_that_becomes_unusable_takes_back_what_it_said_and_is_named_once() {
        let mut index = index();
        let mut import = import_object(&json!({"type": "Headless"}));
        assert_eq!(listed(&mut index, &Source::Imports, &[import.clone()]), ["+shop/web"]);
        import.metadata.resource_version = Some("2".to_owned());
        import.body.insert("spec".to_owned(), json!(7));
        let (changes, unusable) = index.handle(&Source::Imports, StoreEvent::Applied(import.clone()));
        assert_eq!((shown(&changes), unusable.len()), (vec!["-shop/web".to_owned()], 1));
        assert_eq!((index.unusable(), unusable[0].0.as_str()), (1, "ServiceImport shop/web"));
        let (changes, unusable) = index.handle(&Source::Imports, StoreEvent::Applied(import));
        assert!(changes.is_empty() && unusable.is_empty());
    }

    #[test]
    fn global_addresses_of_the_own_pods_are_replaced_by_their_own() {
        let mut index = index();
        let global = |name: &str, cluster: &str| {
            let mut object = slice_object(name, cluster, &["242.0.0.1"]);
            object.metadata.labels.insert(label::IS_HEADLESS.to_owned(), "true".to_owned());
            object.metadata.annotations.insert(annotation::GLOBALNET_ENABLED.to_owned(), "true".to_owned());
            object
        };
        let (own, other) = (global("a", "west"), global("b", "east"));
        let changes = listed(&mut index, &Source::Exported, &[own.clone(), other]);
        assert_eq!(changes, ["+shop/web east b"], "others' are answered as they are");
        let service: LocalService = ("shop".to_owned(), "web".to_owned());
        assert_eq!(index.take_wanted(), Some([service.clone()].into()));
        assert_eq!(index.take_wanted(), None);
        let source = Source::Own(service.clone());
        let pods = slice_object("web-x", "", &["10.1.0.7"]);
        assert_eq!(listed(&mut index, &source, &[pods]), ["+shop/web west web-x"]);
        index.handle(&Source::Exported, StoreEvent::Deleted(own));
        assert_eq!(index.take_wanted(), Some([].into()));
        assert_eq!(shown(&index.remove_own(&service)), ["-shop/web west web-x"]);
    }
}
