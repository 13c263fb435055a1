//! Which siblings have vanished, so that what they said of themselves is to go. No clock, no store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::Member;
use crate::api::{Kind, Object, ObjectMeta, ensure_valid_name};
use crate::publish::{GATEWAY_INTERVAL, GATEWAY_STALE_AFTER};
use crate::store::StoreEvent;

/// Follows the heartbeats of the Gateways of one cluster for one of them.
///
/// A sibling has vanished when its heartbeat has not changed for 15 s *and* its cable to us is dead. Times are ours:
/// those in objects are not looked at. The own heartbeat is the proof that heartbeats reach us: it comes by the same
/// watch. While it does not, because the store is away or this process was stopped, nobody is judged.
#[derive(Debug)]
pub struct Janitor {
    own: String,
    gateways: BTreeMap<String, Seen>,
    siblings: BTreeMap<String, Seen>,
    proof: Option<Proof>,
}

/// What an object says at present, by its version, and since when.
#[derive(Debug, Clone)]
struct Seen {
    stub: Option<Object>,
    since: Instant,
}

impl Seen {
    fn is(&self, metadata: &ObjectMeta) -> bool {
        self.stub.as_ref().is_some_and(|stub| stub.metadata.is_version_of(metadata))
    }
}

/// Since when our own heartbeat has come by without a break, and when it last did.
#[derive(Debug, Clone, Copy)]
struct Proof {
    since: Instant,
    last: Instant,
}

/// Ours: more gateways than that in one cluster are no gateways.
const MOST_GATEWAYS: usize = 1_000;

impl Janitor {
    /// A janitor on the gateway `hostname`.
    pub fn new(hostname: &str) -> Self {
        let own = ensure_valid_name(hostname);
        Self { own, gateways: BTreeMap::new(), siblings: BTreeMap::new(), proof: None }
    }

    /// Takes in what a watch of the cluster's Gateway objects says.
    pub fn handle_gateways(&mut self, event: &StoreEvent, now: Instant) {
        match event {
            StoreEvent::Listed(objects) => {
                let listed: BTreeSet<&str> =
                    objects.iter().map(|object| object.metadata.name.as_str()).collect();
                for (name, seen) in &mut self.gateways {
                    if !listed.contains(name.as_str()) {
                        seen.stub = None;
                    }
                }
                objects.iter().for_each(|object| self.see(object, now));
            }
            StoreEvent::Applied(object) => self.see(object, now),
            StoreEvent::Deleted(object) => {
                if let Some(seen) = self.gateways.get_mut(&object.metadata.name) {
                    // No sign of life.
                    seen.stub = None;
                }
            }
            StoreEvent::Unavailable(_) => self.proof = None,
        }
    }

    fn see(&mut self, object: &Object, now: Instant) {
        let name = &object.metadata.name;
        let is_known = self.gateways.contains_key(name);
        if !is_known && self.gateways.len() >= MOST_GATEWAYS {
            return;
        }
        if self.gateways.get(name).is_some_and(|seen| seen.is(&object.metadata)) {
            return;
        }
        self.gateways.insert(name.clone(), Seen { stub: Some(object.stub()), since: now });
        // What was there when we came is no heartbeat.
        if *name == self.own && is_known {
            let since = self.proof_at(now).map_or(now, |proof| proof.since);
            self.proof = Some(Proof { since, last: now });
        }
    }

    /// Whether heartbeats reach us and ours reach others.
    pub fn has_proof(&self, now: Instant) -> bool {
        self.proof_at(now).is_some()
    }

    fn proof_at(&self, now: Instant) -> Option<Proof> {
        self.proof.filter(|proof| now.saturating_duration_since(proof.last) <= GATEWAY_INTERVAL * 2)
    }

    /// For how long nothing was heard of a gateway by the store, while something would have been: until our own heartbeat
    /// last came by. `None` where nobody can be judged.
    pub fn silence(&self, hostname: &str, now: Instant) -> Option<Duration> {
        let proof = self.proof_at(now)?;
        let since = self.gateways.get(&ensure_valid_name(hostname)).map(|seen| seen.since);
        let since = since.map_or(proof.since, |since| since.max(proof.since));
        Some(proof.last.saturating_duration_since(since))
    }

    /// Which of the siblings have vanished. `heard` are the cables that are not dead. A sibling that is new, or has just
    /// said something, has its time.
    pub fn vanished<'a>(
        &mut self,
        siblings: &'a [Member],
        heard: &BTreeSet<String>,
        now: Instant,
    ) -> Vec<&'a Member> {
        let present: BTreeSet<&str> = siblings.iter().map(Member::cable_name).collect();
        self.siblings.retain(|cable, _| present.contains(cable.as_str()));
        for member in siblings {
            let metadata = &member.endpoint.metadata;
            if !self.siblings.get(member.cable_name()).is_some_and(|seen| seen.is(metadata)) {
                let stub = Object::new(Kind::Endpoint, metadata.clone()).stub();
                self.siblings.insert(member.cable_name().to_owned(), Seen { stub: Some(stub), since: now });
            }
        }
        let Some(proof) = self.proof_at(now) else { return Vec::new() };
        let is_gone = |member: &&Member| {
            let known = self.siblings.get(member.cable_name()).map_or(now, |seen| seen.since);
            let silence = self.silence(&member.endpoint.spec.hostname, now);
            silence.is_some_and(|silence| silence >= GATEWAY_STALE_AFTER)
                && proof.last.saturating_duration_since(known) >= GATEWAY_STALE_AFTER
                && !heard.contains(member.cable_name())
        };
        siblings.iter().filter(is_gone).collect()
    }

    /// What it takes to delete the Gateway object of a host in the version that was judged; `None` if there is none.
    pub fn gateway_of(&self, hostname: &str) -> Option<&Object> {
        self.gateways.get(&ensure_valid_name(hostname))?.stub.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Endpoint, EndpointSpec};

    fn beat(host: &str, version: u32) -> StoreEvent {
        let mut object = Object::new(Kind::Gateway, ObjectMeta::new("ns", host));
        object.metadata.resource_version = Some(version.to_string());
        StoreEvent::Applied(object)
    }

    fn sibling(host: &str) -> Member {
        let spec = EndpointSpec {
            cluster_id: "a".to_owned(),
            cable_name: format!("cable-{host}"),
            hostname: host.to_owned(),
            ..EndpointSpec::default()
        };
        Member { endpoint: Endpoint::new("ns", spec).unwrap() }
    }

    /// Seconds since the start, the own heartbeat every five of them.
    struct Clock {
        start: Instant,
        janitor: Janitor,
        siblings: [Member; 1],
        heard: BTreeSet<String>,
    }

    impl Clock {
        fn new() -> Self {
            let siblings = [sibling("gw2")];
            Self { start: Instant::now(), janitor: Janitor::new("gw1"), siblings, heard: BTreeSet::new() }
        }

        fn beats(&mut self, hosts: &[&str], seconds: std::ops::RangeInclusive<u32>) {
            for second in seconds.filter(|second| second % 5 == 0) {
                let now = self.start + Duration::from_secs(second.into());
                hosts.iter().for_each(|host| self.janitor.handle_gateways(&beat(host, second), now));
                self.vanished(second);
            }
        }

        fn vanished(&mut self, second: u32) -> usize {
            let now = self.start + Duration::from_secs(second.into());
            self.janitor.vanished(&self.siblings, &self.heard, now).len()
        }
    }

    #[test]
    fn a_sibling_without_heartbeat_and_without_cable_has_vanished_after_15_s() {
        let mut clock = Clock::new();
        clock.beats(&["gw1", "gw2"], 0..=20);
        clock.beats(&["gw1"], 21..=34);
        assert_eq!(clock.vanished(34), 0);
        clock.beats(&["gw1"], 35..=35);
        assert_eq!(clock.vanished(35), 1);
        assert!(clock.janitor.gateway_of("gw2").is_some());
    }

    #[test]
    fn a_cable_that_lives_or_a_heartbeat_that_comes_spares_a_sibling() {
        let mut clock = Clock::new();
        clock.heard.insert("cable-gw2".to_owned());
        clock.beats(&["gw1"], 0..=60);
        assert_eq!(clock.vanished(60), 0, "its cable lives");
        clock.heard.clear();
        clock.beats(&["gw1", "gw2"], 61..=65);
        assert_eq!(clock.vanished(65), 0, "its heart beats");
    }

    #[test]
    fn whoever_does_not_see_his_own_heartbeat_judges_nobody() {
        let mut clock = Clock::new();
        clock.beats(&["gw1", "gw2"], 0..=20);
        assert_eq!(clock.vanished(200), 0, "stopped, or the store is away");
        clock.beats(&["gw1"], 200..=205);
        assert_eq!(clock.vanished(205), 0, "the others have had no time yet");
        let away =
            crate::store::StoreError::NotFound(Object::new(Kind::Gateway, ObjectMeta::new("ns", "x")).key());
        clock.janitor.handle_gateways(&StoreEvent::Unavailable(away), clock.start + Duration::from_secs(206));
        clock.beats(&["gw1"], 207..=215);
        assert_eq!(clock.vanished(215), 0);
        clock.beats(&["gw1"], 216..=225);
        assert_eq!(clock.vanished(225), 1);
    }

    #[test]
    fn a_sibling_that_is_new_has_its_time() {
        let mut clock = Clock::new();
        clock.siblings = [sibling("gw3")];
        let none: [Member; 0] = [];
        for second in (0..=50).step_by(5) {
            let now = clock.start + Duration::from_secs(second);
            clock.janitor.handle_gateways(&beat("gw1", u32::try_from(second).unwrap()), now);
            assert!(clock.janitor.vanished(&none, &clock.heard, now).is_empty());
        }
        assert_eq!(clock.vanished(50), 0, "it has not written its Gateway yet");
        clock.beats(&["gw1"], 51..=65);
        assert_eq!(clock.vanished(65), 1);
    }
}
