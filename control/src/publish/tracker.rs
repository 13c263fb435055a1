//! A gateway's own Gateway object, and whose others are dead.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use jiff::Timestamp;

use super::cadence::{Cadence, Fingerprint};
use super::fit::{Cut, Fitted, fit};
use super::{GATEWAY_INTERVAL, GATEWAY_STALE_AFTER, merge};
use crate::api::{
    ApiError, Kind, Object, ObjectMeta, PublishedStatus, annotation, check_object_name, ensure_valid_name,
};
use crate::store::{StoreError, StoreEvent};

/// The next action on the own Gateway object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GatewayWrite {
    /// Create it.
    Create(Object),
    /// Replace it; its version is the newest that is known.
    Update(Object),
    /// Set the time alone, and leave the rest as it is.
    Annotate {
        /// Which object, of which incarnation.
        object: Object,
        /// The value of the annotation [`annotation::UPDATE_TIMESTAMP`].
        stamp: String,
    },
}

/// Follows the Gateway objects of one namespace for one gateway. No clock, no store.
///
/// Every five seconds: write [`GatewayTracker::beat`], tell the result with [`GatewayTracker::handle_written`] or
/// [`GatewayTracker::handle_annotated`]; after a lost race read the object, tell it with
/// [`GatewayTracker::handle_read`], and write again. The active gateway then deletes what [`GatewayTracker::stale`]
/// names, by version, and tells each result with [`GatewayTracker::handle_removed`]. In between, every event of a watch
/// goes to [`GatewayTracker::handle_event`].
///
/// Each beat writes the time. The status goes with it when it has changed in what somebody acts on, when the object does
/// not hold what was written last, and otherwise as often as its size allows. Where the store does not allow to set an
/// annotation alone, each beat is a whole write; every ten minutes it is tried whether that is still so.
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
    cadence: Cadence,
    /// The whole write that has no answer yet.
    pending: Option<Pending>,
    /// The parts that the status lacks which was written last.
    cut: Cut,
    /// For how many more beats the time is not written alone, since that is not allowed.
    whole_beats: u32,
    /// Of the status of the last beat.
    fingerprint: Option<Fingerprint>,
}

/// A status on its way into the store.
#[derive(Debug)]
struct Pending {
    fingerprint: Fingerprint,
    bytes: usize,
    cut: Cut,
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

/// Ours: after so many beats, ten minutes, an annotation is set alone once more where that was not allowed.
const WHOLE_BEATS: u32 = 120;

impl GatewayTracker {
    /// Creates a tracker for the gateway on `hostname`.
    ///
    /// # Errors
    /// [`ApiError::Field`] when no object name can be made of the host name.
    pub fn new(namespace: &str, hostname: &str) -> Result<Self, ApiError> {
        let name = ensure_valid_name(hostname);
        check_object_name(&name).map_err(|error| ApiError::field("metadata.name", error.to_string()))?;
        Ok(Self {
            namespace: namespace.to_owned(),
            cadence: Cadence::new(&name),
            name,
            own: None,
            superseded: VecDeque::new(),
            others: BTreeMap::new(),
            api: Api::default(),
            pending: None,
            cut: Cut::default(),
            whole_beats: 0,
            fingerprint: None,
        })
    }

    /// Takes in what a watch of the namespace's Gateways says.
    pub fn handle_event(&mut self, event: &StoreEvent, now: Instant) {
        match event {
            StoreEvent::Listed(objects) => {
                let is_listed = |name: &String| objects.iter().any(|object| object.metadata.name == *name);
                self.others.retain(|name, _| is_listed(name));
                objects.iter().for_each(|object| self.observe(object, now));
            }
            StoreEvent::Applied(object) => self.observe(object, now),
            StoreEvent::Deleted(object) if object.metadata.name == self.name => self.own = None,
            StoreEvent::Deleted(object) => drop(self.others.remove(&object.metadata.name)),
            StoreEvent::Unavailable(_) => self.api = Api::default(),
        }
    }

    /// Returns what is to be written at `wall`: the time alone, or the own object as it should be, with `status`, as far
    /// as there is space for it, and the time as annotation; other annotations, labels and fields stay.
    ///
    /// # Panics
    /// Never: a status is made of strings and numbers.
    pub fn beat(&mut self, status: &PublishedStatus, wall: Timestamp) -> GatewayWrite {
        let fingerprint = Fingerprint::of(status);
        self.fingerprint = Some(fingerprint);
        if let Some(write) = self.beat_unchanged(wall) {
            return write;
        }
        let stamp = wall.as_second().to_string();
        let Fitted { status, bytes, cut, is_valid } = fit(status);
        self.pending = Some(Pending { fingerprint, bytes, cut });
        let mut wanted = Object::new(Kind::Gateway, ObjectMeta::new(&self.namespace, &self.name));
        wanted.body.insert("status".to_owned(), status);
        let annotations = &mut wanted.metadata.annotations;
        annotations.insert(annotation::UPDATE_TIMESTAMP.to_owned(), stamp);
        if cut.left_out.total() > 0 {
            let left_out = serde_json::to_string(&cut.left_out).expect("two numbers are JSON");
            annotations.insert(annotation::CONNECTIONS_LEFT_OUT.to_owned(), left_out);
        }
        let object = match &self.own {
            None => wanted,
            Some(own) => {
                let mut merged = own.clone();
                merged.metadata.annotations.remove(annotation::CONNECTIONS_LEFT_OUT);
                merge(&mut merged, wanted);
                merged
            }
        };
        if is_valid {
            object.note_shape();
        }
        if self.own.is_some() { GatewayWrite::Update(object) } else { GatewayWrite::Create(object) }
    }

    /// Returns what is to be written at `wall` if that is the time alone, with a status that says what that of the last beat
    /// did. Otherwise the status itself is needed: see [`GatewayTracker::beat`].
    pub fn beat_unchanged(&self, wall: Timestamp) -> Option<GatewayWrite> {
        let own = self.own.as_ref().filter(|_| self.whole_beats == 0)?;
        if self.cadence.is_due(self.fingerprint?) {
            return None;
        }
        Some(GatewayWrite::Annotate { object: own.stub(), stamp: wall.as_second().to_string() })
    }

    /// Takes in the answer to a write of the whole own object.
    pub fn handle_written(&mut self, answer: &Result<Object, StoreError>, now: Instant) {
        let pending = self.pending.take();
        match answer {
            Ok(object) => {
                self.api.succeed(now);
                self.supersede(&object.metadata);
                self.own = Some(object.clone());
                self.whole_beats = self.whole_beats.saturating_sub(1);
                if let Some(Pending { fingerprint, bytes, cut }) = pending {
                    self.cadence.handle_whole(fingerprint, bytes);
                    self.cut = cut;
                }
            }
            Err(StoreError::NotFound(_)) => self.own = None,
            Err(error) if error.is_race() => {}
            Err(error) => {
                if matches!(error, StoreError::Forbidden { .. }) {
                    // It is not about annotations alone.
                    self.whole_beats = 0;
                }
                self.api = Api::default();
            }
        }
    }

    /// Takes in the answer to a write of the time alone. Returns whether the beat is done; otherwise it is to be written
    /// whole, since the store does not allow less.
    pub fn handle_annotated(&mut self, answer: &Result<ObjectMeta, StoreError>, now: Instant) -> bool {
        match answer {
            Ok(metadata) => {
                self.api.succeed(now);
                self.cadence.handle_time();
                self.take_over(metadata);
            }
            Err(StoreError::NotFound(_)) => self.own = None,
            Err(error) if error.is_race() => {}
            Err(StoreError::Forbidden { .. } | StoreError::Denied { .. }) => {
                self.whole_beats = WHOLE_BEATS;
                return false;
            }
            Err(_) => self.api = Api::default(),
        }
        true
    }

    /// Takes in the own object as the store has it.
    pub fn handle_read(&mut self, object: Option<&Object>) {
        self.superseded.clear();
        match object {
            Some(object) => self.replace_own(object),
            None => self.own = None,
        }
    }

    /// Returns what the status lacks that was written last.
    pub const fn cut(&self) -> Cut {
        self.cut
    }

    /// Returns the other gateways' objects that are dead at `now`: enough of them to delete this very version.
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

    fn observe(&mut self, object: &Object, now: Instant) {
        if object.metadata.name == self.name {
            let is_newest = self.own.as_ref().is_some_and(|own| own.metadata.is_version_of(&object.metadata));
            if !is_newest && !self.superseded.contains(&object.metadata.resource_version) {
                self.supersede(&object.metadata);
                self.replace_own(object);
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

    /// Takes the own object as somebody else has left it, who may have changed the status.
    fn replace_own(&mut self, object: &Object) {
        if self.own.as_ref().is_none_or(|own| own.body.get("status") != object.body.get("status")) {
            self.cadence.clear();
        }
        self.own = Some(object.clone());
    }

    /// Takes the own object's metadata, if the rest of it is what is known.
    fn take_over(&mut self, metadata: &ObjectMeta) {
        let is_rest_known = self.own.as_ref().is_some_and(|own| {
            own.metadata.uid == metadata.uid && own.metadata.generation == metadata.generation
        });
        if !is_rest_known {
            // The next whole write finds that its version is old, and reads.
            return;
        }
        self.supersede(metadata);
        if let Some(own) = &mut self.own {
            own.metadata.clone_from(metadata);
        }
    }

    /// Remembers the version that `newer` replaces.
    fn supersede(&mut self, newer: &ObjectMeta) {
        let Some(old) = &self.own else { return };
        if old.metadata.resource_version == newer.resource_version {
            return;
        }
        if self.superseded.len() == REMEMBERED_VERSIONS {
            self.superseded.pop_front();
        }
        self.superseded.push_back(old.metadata.resource_version.clone());
    }
}

impl Api {
    fn succeed(&mut self, now: Instant) {
        let since = self.working_since(now).unwrap_or(now);
        self.working_since = Some(since);
        self.last_success = Some(now);
    }

    /// Returns the time since which writes have got through without a break. One that is long overdue is a break: the
    /// process was stopped, or a request hangs.
    fn working_since(&self, now: Instant) -> Option<Instant> {
        let is_recent = |last| now.saturating_duration_since(last) <= GATEWAY_INTERVAL * 2;
        self.working_since.filter(|_| self.last_success.is_some_and(is_recent))
    }
}

#[cfg(test)]
mod tests;
