//! A gateway's own Gateway object, and whose others are dead.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use jiff::Timestamp;

use super::{GATEWAY_INTERVAL, GATEWAY_STALE_AFTER, merge};
use crate::api::{
    ApiError, Kind, Object, ObjectMeta, PublishedStatus, annotation, check_object_name, ensure_valid_name,
};
use crate::store::{StoreError, StoreEvent};

/// What to do about the own Gateway object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GatewayWrite {
    /// Create it.
    Create(Object),
    /// Replace it; its version is the newest that is known.
    Update(Object),
}

/// Follows the Gateway objects of one namespace for one gateway. No clock, no store.
///
/// Every five seconds: write [`GatewayTracker::beat`], tell the result with [`GatewayTracker::handle_written`]; after a
/// lost race read the object, tell it with [`GatewayTracker::handle_read`], and write again. The active gateway then
/// deletes what [`GatewayTracker::stale`] names, by version, and tells each result with
/// [`GatewayTracker::handle_removed`]. In between, every event of a watch goes to [`GatewayTracker::handle_event`].
///
/// An object is dead when *we* have not seen it change for 15 s, during which the API has worked for us: the times that
/// it carries are not looked at, since after an outage of the API all of them are old, and clocks differ.
#[derive(Debug)]
pub struct GatewayTracker {
    namespace: String,
    name: String,
    own: Option<Object>,
    /// Versions of the own object that are old, so that late events do not bring them back.
    superseded: VecDeque<Option<String>>,
    others: BTreeMap<String, Seen>,
    api: Api,
}

/// Another gateway's object: what it takes to delete this very version, and since when it is the newest.
#[derive(Debug)]
struct Seen {
    object: Object,
    unchanged_since: Instant,
}

/// Whether our writes get through.
#[derive(Debug, Default)]
struct Api {
    working_since: Option<Instant>,
    last_success: Option<Instant>,
}

/// Ours: more gateways than that in one cluster are no gateways.
const MAX_OTHERS: usize = 1_000;

/// Ours: a watch is late by less than so many beats.
const REMEMBERED_VERSIONS: usize = 8;

impl GatewayTracker {
    /// A tracker for the gateway on `hostname`.
    ///
    /// # Errors
    /// [`ApiError::Field`] when no object name can be made of the host name.
    pub fn new(namespace: &str, hostname: &str) -> Result<Self, ApiError> {
        let name = ensure_valid_name(hostname);
        check_object_name(&name).map_err(|error| ApiError::field("metadata.name", error.to_string()))?;
        Ok(Self {
            namespace: namespace.to_owned(),
            name,
            own: None,
            superseded: VecDeque::new(),
            others: BTreeMap::new(),
            api: Api::default(),
        })
    }

    /// Takes in what a watch of the namespace's Gateways says.
    pub fn handle_event(&mut self, event: &StoreEvent, now: Instant) {
        match event {
            StoreEvent::Listed(objects) => {
                let is_listed = |name: &String| objects.iter().any(|object| object.metadata.name == *name);
                self.others.retain(|name, _| is_listed(name));
                objects.iter().for_each(|object| self.see(object, now));
            }
            StoreEvent::Applied(object) => self.see(object, now),
            StoreEvent::Deleted(object) if object.metadata.name == self.name => self.own = None,
            StoreEvent::Deleted(object) => drop(self.others.remove(&object.metadata.name)),
            StoreEvent::Unavailable(_) => self.api = Api::default(),
        }
    }

    /// The own object as it should be at `wall`: `status`, and the time as annotation; other annotations, labels and
    /// fields stay.
    ///
    /// # Panics
    /// Never: a status is made of strings and numbers.
    pub fn beat(&self, status: &PublishedStatus, wall: Timestamp) -> GatewayWrite {
        let mut wanted = Object::new(Kind::Gateway, ObjectMeta::new(&self.namespace, &self.name));
        let status = serde_json::to_value(status).expect("its keys are strings and its values are JSON");
        wanted.body.insert("status".to_owned(), status);
        let stamp = wall.as_second().to_string();
        wanted.metadata.annotations.insert(annotation::UPDATE_TIMESTAMP.to_owned(), stamp);
        let Some(own) = &self.own else { return GatewayWrite::Create(wanted) };
        let mut merged = own.clone();
        merge(&mut merged, wanted);
        GatewayWrite::Update(merged)
    }

    /// Takes in the answer to a write of the own object.
    pub fn handle_written(&mut self, answer: &Result<Object, StoreError>, now: Instant) {
        match answer {
            Ok(object) => {
                self.api.succeed(now);
                self.know(object);
            }
            Err(StoreError::NotFound(_)) => self.own = None,
            Err(error) if error.is_race() => {}
            Err(_) => self.api = Api::default(),
        }
    }

    /// Takes in the own object as the store has it.
    pub fn handle_read(&mut self, object: Option<&Object>) {
        self.superseded.clear();
        self.own = object.cloned();
    }

    /// The other gateways' objects that are dead at `now`: enough of them to delete this very version.
    pub fn stale(&self, now: Instant) -> Vec<Object> {
        let Some(working_since) = self.api.working_since(now) else { return Vec::new() };
        let is_stale = |seen: &&Seen| {
            now.saturating_duration_since(seen.unchanged_since.max(working_since)) >= GATEWAY_STALE_AFTER
        };
        self.others.values().filter(is_stale).map(|seen| seen.object.clone()).collect()
    }

    /// Takes in the answer to the deletion of one that was stale.
    pub fn handle_removed(&mut self, object: &Object, answer: &Result<(), StoreError>, now: Instant) {
        match answer {
            Ok(()) | Err(StoreError::NotFound(_)) => drop(self.others.remove(&object.metadata.name)),
            // It has just come back, and our watch is late: it is alive.
            Err(StoreError::Conflict { .. }) => {
                if let Some(seen) = self.others.get_mut(&object.metadata.name) {
                    seen.unchanged_since = now;
                }
            }
            Err(_) => self.api = Api::default(),
        }
    }

    fn see(&mut self, object: &Object, now: Instant) {
        if object.metadata.name == self.name {
            if !self.superseded.contains(&object.metadata.resource_version) {
                self.know(object);
            }
            return;
        }
        let name = &object.metadata.name;
        if self.others.get(name).is_some_and(|seen| seen.object.metadata.is_version_of(&object.metadata)) {
            return;
        }
        if self.others.len() < MAX_OTHERS || self.others.contains_key(name) {
            let seen = Seen { object: object.stub(), unchanged_since: now };
            self.others.insert(name.clone(), seen);
        }
    }

    fn know(&mut self, object: &Object) {
        if let Some(old) = &self.own
            && old.metadata.resource_version != object.metadata.resource_version
        {
            if self.superseded.len() == REMEMBERED_VERSIONS {
                self.superseded.pop_front();
            }
            self.superseded.push_back(old.metadata.resource_version.clone());
        }
        self.own = Some(object.clone());
    }
}

impl Api {
    fn succeed(&mut self, now: Instant) {
        let since = self.working_since(now).unwrap_or(now);
        self.working_since = Some(since);
        self.last_success = Some(now);
    }

    /// Since when writes have got through without a break. One that is long overdue is a break: the process was
    /// stopped, or a request hangs.
    fn working_since(&self, now: Instant) -> Option<Instant> {
        let is_recent = |last| now.saturating_duration_since(last) <= GATEWAY_INTERVAL * 2;
        self.working_since.filter(|_| self.last_success.is_some_and(is_recent))
    }
}

#[cfg(test)]
mod tests;
