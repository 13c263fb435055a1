//! What a store made of a write, where that is something else than was written: a definition that does not know a field drops it,
//! and another one adds defaults. The same is not written again until the object or what is wanted of it changes.

use std::collections::BTreeMap;

use trieste_control::api::{Object, ObjectKey};
use trieste_control::runner::Write;
use trieste_control::store::StoreEvent;

/// The writes of which a store did not keep all; there are few.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    writes: BTreeMap<(usize, ObjectKey), (Write, Option<String>)>,
}

impl Accepted {
    /// Takes in the result of a write.
    pub(crate) fn note(&mut self, store: usize, write: &Write, result: &StoreEvent) {
        let key = (store, write.key());
        let result = if let StoreEvent::Applied(result) = result { Some(result) } else { None };
        match (write.object(), result) {
            (Some(wanted), Some(result)) if is_update(write) && !keeps(write, wanted, result) => {
                let version = result.metadata.resource_version.clone();
                self.writes.insert(key, (write.clone(), version));
            }
            _ => drop(self.writes.remove(&key)),
        }
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
