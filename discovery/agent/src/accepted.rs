//! What a store made of a write, where that is something else than was written: a definition that does not know a field drops it,
//! and another one adds defaults. The same is not written again until the object or what is wanted of it changes; a field of
//! imports that a definition has dropped once is not written at all, so that it holds up nothing else.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use trieste_control::api::{Kind, Object, ObjectKey};
use trieste_control::runner::Write;
use trieste_control::store::StoreEvent;

/// Ours: most fields that are remembered as dropped. Definitions know a dozen.
const MAX_DROPPED: usize = 64;

/// The writes of which a store did not keep all; there are few.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    writes: BTreeMap<(usize, ObjectKey), (Write, Option<String>)>,
    /// Fields of imports' specifications that each store's definition drops.
    dropped: [BTreeSet<String>; 2],
    /// Whether the definition of imports here, as upstream's, does not take two addresses for all clusters.
    takes_one_ip: bool,
}

impl Accepted {
    /// Returns the fields of imports' specifications that a store drops.
    pub(crate) fn dropped(&self, store: usize) -> &BTreeSet<String> {
        &self.dropped[store]
    }

    /// Returns whether imports here may have two addresses for all clusters.
    pub(crate) fn takes_two_ips(&self) -> bool {
        !self.takes_one_ip
    }

    /// Takes in that a write here was refused. Returns `true` if it was for an import with two addresses for all clusters: then it is
    /// planned again, with one.
    pub(crate) fn note_refused(&mut self, write: &Write) -> bool {
        let ips = write.object().and_then(spec).and_then(|spec| spec.get("ips")).and_then(Value::as_array);
        let has_two = ips.is_some_and(|ips| ips.len() > 1);
        if has_two && !self.takes_one_ip {
            tracing::info!("definition of ServiceImport takes one clusterset IP alone");
        }
        self.takes_one_ip |= has_two;
        has_two
    }

    /// Takes in the result of a write. Returns `true` if it shows for the first time that a field is dropped: then there may be
    /// something else to write.
    pub(crate) fn note(&mut self, store: usize, write: &Write, result: &StoreEvent) -> bool {
        let has_learnt = self.note_dropped(store, write, result);
        let key = (store, write.key());
        let result = if let StoreEvent::Applied(result) = result { Some(result) } else { None };
        match (write.object(), result) {
            (Some(wanted), Some(result)) if is_update(write) && !keeps(write, wanted, result) => {
                let version = result.metadata.resource_version.clone();
                self.writes.insert(key, (write.clone(), version));
            }
            _ => drop(self.writes.remove(&key)),
        }
        has_learnt
    }

    fn note_dropped(&mut self, store: usize, write: &Write, result: &StoreEvent) -> bool {
        let (Write::Create(wanted) | Write::Update(wanted), StoreEvent::Applied(result)) = (write, result)
        else {
            return false;
        };
        let (Some(wanted), Some(kept)) = (spec(wanted), spec(result)) else { return false };
        let dropped = &mut self.dropped[store];
        let before = dropped.len();
        for (field, _) in
            wanted.iter().filter(|(field, value)| !value.is_null() && !kept.contains_key(*field))
        {
            if dropped.len() < MAX_DROPPED && dropped.insert(field.clone()) {
                tracing::info!(store, field, "definition of ServiceImport does not know a field");
            }
        }
        dropped.len() > before
    }

    /// Returns `true` if this was written before, and what there is now is what the store made of it.
    pub(crate) fn is_known(&self, store: usize, write: &Write) -> bool {
        let Some((known, version)) = self.writes.get(&(store, write.key())) else { return false };
        match (write, known) {
            (Write::Update(wanted), Write::Update(known))
            | (Write::UpdateStatus(wanted), Write::UpdateStatus(known)) => {
                wanted.metadata.resource_version == *version && wanted.same_content(known)
            }
            _ => false,
        }
    }
}

/// Returns the specification of an import.
fn spec(object: &Object) -> Option<&Map<String, Value>> {
    object.body.get("spec").filter(|_| object.kind == Kind::ServiceImport)?.as_object()
}

/// Removes the fields of an import's specification that a store drops.
pub(crate) fn without_dropped(import: &mut Object, dropped: &BTreeSet<String>) {
    if dropped.is_empty() {
        return;
    }
    if let Some(Value::Object(spec)) = import.body.get_mut("spec") {
        spec.retain(|field, _| !dropped.contains(field));
    }
}

fn is_update(write: &Write) -> bool {
    matches!(write, Write::Update(_) | Write::UpdateStatus(_))
}

/// Returns whether the store has kept what a write was about.
fn keeps(write: &Write, wanted: &Object, result: &Object) -> bool {
    if matches!(write, Write::UpdateStatus(_)) {
        return wanted.body.get("status") == result.body.get("status");
    }
    let fields = wanted.body.iter().filter(|(field, _)| *field != "status");
    wanted.metadata.labels == result.metadata.labels
        && wanted.metadata.annotations == result.metadata.annotations
        && fields.into_iter().all(|(field, value)| result.body.get(field) == Some(value))
}
