//! The versions of our copies as they were stored: a store that prunes unknown fields makes something else of them than
//! was written.

use std::collections::{BTreeMap, BTreeSet};

use super::name::Name;
use super::side::Side;
use crate::api::Kind;

/// Of each object that we wrote last: the version of the source that was copied, and the version that the store made of
/// it. Bounded by the objects that are there.
#[derive(Debug, Default)]
pub(super) struct WrittenVersions {
    versions: BTreeMap<(Side, Name), (String, String)>,
}

impl WrittenVersions {
    /// Records what was copied and what the store made of it; `None` if it was deleted.
    pub(super) fn record(&mut self, side: Side, name: &Name, versions: Option<(String, String)>) {
        match versions {
            Some(versions) => drop(self.versions.insert((side, name.clone()), versions)),
            None => self.remove(side, name),
        }
    }

    /// Returns `true` if the store has made version `target` of our copy of version `source`.
    pub(super) fn is_written(
        &self,
        side: Side,
        name: &Name,
        source: Option<&str>,
        target: Option<&str>,
    ) -> bool {
        let versions = self.versions.get(&(side, name.clone()));
        versions.is_some_and(|(from, to)| source == Some(from) && target == Some(to))
    }

    /// Removes an object that is gone.
    pub(super) fn remove(&mut self, side: Side, name: &Name) {
        self.versions.remove(&(side, name.clone()));
    }

    /// Removes what a complete list does not have.
    pub(super) fn keep_listed(&mut self, side: Side, kind: Kind, listed: &BTreeSet<Name>) {
        self.versions.retain(|(of, name), _| *of != side || name.kind != kind || listed.contains(name));
    }
}
