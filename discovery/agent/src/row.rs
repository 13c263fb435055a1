//! All objects of one service, of both stores.

use std::collections::BTreeMap;

use trieste_control::api::Object;

/// The part that an object has in a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Slot {
    /// The wish that it be exported.
    Export,
    /// The service itself.
    Service,
    /// A slice of the service, as Kubernetes makes it.
    Source,
    /// A global address.
    Ingress,
    /// This cluster's own import.
    LocalImport,
    /// A slice by which this cluster exports it.
    Own,
    /// The copy of the broker's import.
    Import,
    /// The copy of another cluster's slice.
    Copy,
    /// The copy of the broker's import that stands in the operator's namespace.
    DisplacedImport,
    /// The copy of another cluster's slice that stands in the operator's namespace.
    DisplacedCopy,
    /// The broker's import.
    Aggregate,
    /// This cluster's slice on the broker.
    Published,
    /// Another cluster's slice on the broker.
    Foreign,
}

/// The objects of one service; by name where there are several.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) export: Option<Object>,
    pub(crate) service: Option<Object>,
    pub(crate) sources: BTreeMap<String, Object>,
    pub(crate) ingress: BTreeMap<String, Object>,
    pub(crate) local_import: Option<Object>,
    pub(crate) own: BTreeMap<String, Object>,
    pub(crate) import: Option<Object>,
    pub(crate) copies: BTreeMap<String, Object>,
    pub(crate) displaced_import: Option<Object>,
    pub(crate) displaced_copies: BTreeMap<String, Object>,
    pub(crate) aggregate: Option<Object>,
    pub(crate) published: BTreeMap<String, Object>,
    pub(crate) foreign: BTreeMap<String, Object>,
}

/// Where the objects of a part are kept.
enum Entry<'a> {
    One(&'a mut Option<Object>),
    Many(&'a mut BTreeMap<String, Object>),
}

impl Row {
    fn entry(&mut self, slot: Slot) -> Entry<'_> {
        match slot {
            Slot::Export => Entry::One(&mut self.export),
            Slot::Service => Entry::One(&mut self.service),
            Slot::Source => Entry::Many(&mut self.sources),
            Slot::Ingress => Entry::Many(&mut self.ingress),
            Slot::LocalImport => Entry::One(&mut self.local_import),
            Slot::Own => Entry::Many(&mut self.own),
            Slot::Import => Entry::One(&mut self.import),
            Slot::Copy => Entry::Many(&mut self.copies),
            Slot::DisplacedImport => Entry::One(&mut self.displaced_import),
            Slot::DisplacedCopy => Entry::Many(&mut self.displaced_copies),
            Slot::Aggregate => Entry::One(&mut self.aggregate),
            Slot::Published => Entry::Many(&mut self.published),
            Slot::Foreign => Entry::Many(&mut self.foreign),
        }
    }

    /// Takes in an object as it is now.
    pub(crate) fn put(&mut self, slot: Slot, object: Object) {
        match self.entry(slot) {
            Entry::One(entry) => *entry = Some(object),
            Entry::Many(entries) => drop(entries.insert(object.metadata.name.clone(), object)),
        }
    }

    /// Lets what says the same in both stores be in memory once, so that it is compared by where it is: an object of this name and
    /// what it is copied from, or to.
    pub(crate) fn share_body(&mut self, slot: Slot, name: &str) {
        match slot {
            Slot::Foreign | Slot::Copy | Slot::DisplacedCopy => {
                share(self.foreign.get(name), self.copies.get_mut(name));
                share(self.foreign.get(name), self.displaced_copies.get_mut(name));
            }
            Slot::Own | Slot::Published => share(self.own.get(name), self.published.get_mut(name)),
            Slot::Aggregate | Slot::Import | Slot::DisplacedImport => {
                share(self.aggregate.as_ref(), self.import.as_mut());
                share(self.aggregate.as_ref(), self.displaced_import.as_mut());
            }
            Slot::Export | Slot::Service | Slot::Source | Slot::Ingress | Slot::LocalImport => {}
        }
    }

    /// Removes the object of this name.
    pub(crate) fn take(&mut self, slot: Slot, name: &str) {
        match self.entry(slot) {
            Entry::One(entry) => *entry = None,
            Entry::Many(entries) => drop(entries.remove(name)),
        }
    }

    /// Returns the object of this name.
    pub(crate) fn get(&self, slot: Slot, name: &str) -> Option<&Object> {
        match slot {
            Slot::Export => self.export.as_ref(),
            Slot::Service => self.service.as_ref(),
            Slot::Source => self.sources.get(name),
            Slot::Ingress => self.ingress.get(name),
            Slot::LocalImport => self.local_import.as_ref(),
            Slot::Own => self.own.get(name),
            Slot::Import => self.import.as_ref(),
            Slot::Copy => self.copies.get(name),
            Slot::DisplacedImport => self.displaced_import.as_ref(),
            Slot::DisplacedCopy => self.displaced_copies.get(name),
            Slot::Aggregate => self.aggregate.as_ref(),
            Slot::Published => self.published.get(name),
            Slot::Foreign => self.foreign.get(name),
        }
    }

    /// Returns `true` if nothing is known of the service.
    pub(crate) fn is_empty(&self) -> bool {
        let one = [&self.export, &self.service, &self.local_import, &self.import, &self.aggregate];
        let many = [&self.sources, &self.ingress, &self.own, &self.copies, &self.published, &self.foreign];
        let is_displaced = self.displaced_import.is_some() || !self.displaced_copies.is_empty();
        !is_displaced && one.into_iter().all(Option::is_none) && many.into_iter().all(BTreeMap::is_empty)
    }

    /// Returns whether there is a copy here of anything that the broker has.
    pub(crate) fn is_copied(&self) -> bool {
        let has_import = self.import.is_some() || self.displaced_import.is_some();
        has_import || !self.copies.is_empty() || !self.displaced_copies.is_empty()
    }
}

fn share(original: Option<&Object>, copy: Option<&mut Object>) {
    if let (Some(original), Some(copy)) = (original, copy)
        && original.body == copy.body
    {
        copy.body.clone_from(&original.body);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trieste_control::api::{Kind, ObjectMeta};

    use super::*;

    #[test]
    fn a_copy_shares_what_it_says_with_its_original_whichever_comes_first() {
        let slice = |addresses: &[&str]| {
            let mut slice = Object::new(Kind::EndpointSlice, ObjectMeta::new("shop", "web-1"));
            slice.body.insert("endpoints".to_owned(), json!([{"addresses": addresses}]));
            slice
        };
        for slots in [[Slot::Foreign, Slot::Copy], [Slot::Copy, Slot::Foreign], [Slot::Published, Slot::Own]]
        {
            let mut row = Row::default();
            let mut put = |slot, addresses: &[&str]| {
                row.put(slot, slice(addresses));
                row.share_body(slot, "web-1");
                let [one, other] = slots.map(|slot| row.get(slot, "web-1"));
                one.zip(other).is_some_and(|(one, other)| one.body.is_shared_with(&other.body))
            };
            let found =
                [put(slots[0], &["10.0.0.1"]), put(slots[1], &["10.0.0.1"]), put(slots[0], &["10.0.0.2"])];
            assert_eq!(found, [false, true, false], "{slots:?}");
        }
    }
}
