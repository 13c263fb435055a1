//! The quota of objects: how many of one cluster, and of all of them, are kept.
//!
//! The oldest objects have the places, so that a flood does not push out older ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::SyncLimits;
use super::name::Name;
use crate::sets;

/// The admitted objects, and the refused ones.
#[derive(Debug, Default)]
pub(super) struct ObjectQuota {
    all: BTreeSet<(Timestamp, Name)>,
    by_origin: BTreeMap<Arc<str>, BTreeSet<(Timestamp, Name)>>,
    places: BTreeMap<Name, (Arc<str>, Timestamp)>,
    refused: BTreeSet<Name>,
    has_room: bool,
}

impl ObjectQuota {
    /// Admits `name` if there is room. Returns the names that are displaced for it, `name` itself perhaps, and why.
    pub(super) fn enter(
        &mut self,
        name: &Name,
        origin: &str,
        age: Timestamp,
        limits: &SyncLimits,
    ) -> Vec<(Name, String)> {
        if self.places.get(name).is_some_and(|(known, since)| **known == *origin && *since == age) {
            return Vec::new();
        }
        self.vacate(name);
        self.refused.remove(name);
        let origin: Arc<str> = Arc::from(origin);
        self.all.insert((age, name.clone()));
        self.by_origin.entry(Arc::clone(&origin)).or_default().insert((age, name.clone()));
        self.places.insert(name.clone(), (Arc::clone(&origin), age));
        let mut displaced = Vec::new();
        let of_origin = self.by_origin.get(&origin).filter(|names| names.len() > limits.objects_per_cluster);
        if let Some((_, last)) = of_origin.and_then(|names| names.last()).cloned() {
            let most = limits.objects_per_cluster;
            displaced.push((last, format!("the cluster has more than {most} objects; its oldest are taken")));
        } else if self.all.len() > limits.objects
            && let Some((_, last)) = self.all.last().cloned()
        {
            let most = limits.objects;
            displaced.push((last, format!("the broker has more than {most} objects; the oldest are taken")));
        }
        for (last, _) in &displaced {
            self.vacate(last);
            self.refused.insert(last.clone());
        }
        displaced
    }

    /// Removes `name`.
    pub(super) fn leave(&mut self, name: &Name) {
        self.refused.remove(name);
        if self.vacate(name) && !self.refused.is_empty() {
            self.has_room = true;
        }
    }

    /// Returns `true` if `name` was refused.
    pub(super) fn has_refused(&self, name: &Name) -> bool {
        self.refused.contains(name)
    }

    /// Returns `true`, once, if there may be room now for objects that were refused.
    pub(super) fn take_room(&mut self) -> bool {
        std::mem::take(&mut self.has_room)
    }

    fn vacate(&mut self, name: &Name) -> bool {
        let Some((origin, age)) = self.places.remove(name) else { return false };
        let place = (age, name.clone());
        self.all.remove(&place);
        sets::remove(&mut self.by_origin, &origin, &place);
        true
    }
}
