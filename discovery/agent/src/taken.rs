//! Names of slices that somebody else has on the broker: whoever may write there can take a name before another uses it.

use std::collections::{BTreeMap, BTreeSet};

use crate::name::ServiceName;

/// Ours: so often an object of which nothing is read may be in the way until it counts as another's. Our own is read meanwhile:
/// the reply of its creation was lost.
const TRIES: u32 = 3;
/// Ours: most names of one service that are remembered.
const MOST: usize = 64;

/// The names, by the service for which they were wanted.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    names: BTreeMap<ServiceName, BTreeSet<String>>,
    tries: BTreeMap<ServiceName, BTreeMap<String, u32>>,
    none: BTreeSet<String>,
}

impl Taken {
    /// Returns the names that a service cannot have.
    pub(crate) fn of(&self, service: &ServiceName) -> &BTreeSet<String> {
        self.names.get(service).unwrap_or(&self.none)
    }

    /// Takes in that a slice of this name was in the way; whether it is another cluster's, as far as is known.
    pub(crate) fn note_slice(&mut self, service: &ServiceName, name: &str, is_foreign: bool) {
        if self.count(service, name) < TRIES && !is_foreign {
            return;
        }
        let names = self.names.entry(service.clone()).or_default();
        if names.len() >= MOST {
            names.clear();
        }
        names.insert(name.to_owned());
    }

    /// Takes in that an object was in the way of which nothing is read. Returns `true` if it has been there for long enough: who
    /// was faster is read by then.
    pub(crate) fn note_import(&mut self, service: &ServiceName, name: &str) -> bool {
        self.count(service, name) >= TRIES
    }

    fn count(&mut self, service: &ServiceName, name: &str) -> u32 {
        let count = self.tries.entry(service.clone()).or_default().entry(name.to_owned()).or_default();
        *count += 1;
        *count
    }

    /// Takes in that nothing is in the way of a service any more.
    pub(crate) fn settle(&mut self, service: &ServiceName) {
        self.tries.remove(service);
    }

    /// Takes in that a service is not exported any more.
    pub(crate) fn clear(&mut self, service: &ServiceName) {
        self.names.remove(service);
        self.tries.remove(service);
    }
}
