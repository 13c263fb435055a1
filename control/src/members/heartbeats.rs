//! The heartbeats of one cluster's gateways, as one of them observes them. No clock, no store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::api::{Object, ObjectMeta, ensure_valid_name};
use crate::publish::GATEWAY_INTERVAL;
use crate::store::StoreEvent;

/// When the Gateway objects of one cluster have changed last. Times are ours: those in objects do not count.
///
/// The own heartbeat is the proof that heartbeats reach us: it comes by the same watch. While it does not, because the
/// store is away or this process was stopped, nothing follows from a silence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeats {
    own: String,
    gateways: BTreeMap<String, Version>,
    proof: Option<Proof>,
}

/// The present version of an object, and since when it is that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    stub: Option<Object>,
    pub(super) since: Instant,
}

impl Version {
    /// Returns the version of this object, as of `now`.
    pub(super) fn new(object: &Object, now: Instant) -> Self {
        Self { stub: Some(object.stub()), since: now }
    }

    /// Returns `true` if an object with this metadata has this version.
    pub(super) fn is(&self, metadata: &ObjectMeta) -> bool {
        self.stub.as_ref().is_some_and(|stub| stub.metadata.is_version_of(metadata))
    }
}

/// Since when our own heartbeat has come by without a break, and when it last did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proof {
    pub(super) since: Instant,
    pub(super) last: Instant,
}

/// Ours: more gateways than that in one cluster are no gateways.
const MOST_GATEWAYS: usize = 1_000;

impl Heartbeats {
    /// Returns the heartbeats as the gateway `hostname` observes them before the first event.
    pub fn new(hostname: &str) -> Self {
        Self { own: ensure_valid_name(hostname), gateways: BTreeMap::new(), proof: None }
    }

    /// Takes in an event of a watch of the cluster's Gateway objects.
    pub fn handle_gateways(&mut self, event: &StoreEvent, now: Instant) {
        match event {
            StoreEvent::Listed(objects) => {
                let listed: BTreeSet<&str> =
                    objects.iter().map(|object| object.metadata.name.as_str()).collect();
                for (name, version) in &mut self.gateways {
                    if !listed.contains(name.as_str()) {
                        version.stub = None;
                    }
                }
                objects.iter().for_each(|object| self.observe(object, now));
            }
            StoreEvent::Applied(object) => self.observe(object, now),
            StoreEvent::Deleted(object) => {
                if let Some(version) = self.gateways.get_mut(&object.metadata.name) {
                    // No sign of life.
                    version.stub = None;
                }
            }
            StoreEvent::Unavailable(_) => self.proof = None,
        }
    }

    fn observe(&mut self, object: &Object, now: Instant) {
        let name = &object.metadata.name;
        let was_there = self.gateways.contains_key(name);
        if !was_there && self.gateways.len() >= MOST_GATEWAYS {
            return;
        }
        if self.gateways.get(name).is_some_and(|version| version.is(&object.metadata)) {
            return;
        }
        self.gateways.insert(name.clone(), Version::new(object, now));
        // The state at the start is no heartbeat.
        if *name == self.own && was_there {
            let since = self.proof(now).map_or(now, |proof| proof.since);
            self.proof = Some(Proof { since, last: now });
        }
    }

    /// Returns `true` if heartbeats reach us and ours reach others.
    pub fn has_proof(&self, now: Instant) -> bool {
        self.proof(now).is_some()
    }

    pub(super) fn proof(&self, now: Instant) -> Option<Proof> {
        self.proof.filter(|proof| now.saturating_duration_since(proof.last) <= GATEWAY_INTERVAL * 2)
    }

    /// Returns for how long a gateway has been silent by the store, while it would have been observed: until our own
    /// heartbeat last came by. `None` where nothing can be said about anybody.
    pub fn silence(&self, hostname: &str, now: Instant) -> Option<Duration> {
        let proof = self.proof(now)?;
        let since = self.gateways.get(&ensure_valid_name(hostname)).map(|version| version.since);
        let since = since.map_or(proof.since, |since| since.max(proof.since));
        Some(proof.last.saturating_duration_since(since))
    }

    /// Returns what it takes to delete the Gateway object of a host in the version that was observed; `None` if there is
    /// none.
    pub fn gateway_of(&self, hostname: &str) -> Option<&Object> {
        self.gateways.get(&ensure_valid_name(hostname))?.stub.as_ref()
    }
}
