//! Which siblings have vanished, so that what they published is to be removed. No clock, no store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::heartbeats::Version;
use super::{Heartbeats, Member};
use crate::api::{Kind, Object};
use crate::publish::GATEWAY_STALE_AFTER;
use crate::store::StoreEvent;

/// Finds vanished siblings of one gateway of a cluster.
///
/// A sibling has vanished when its heartbeat has not changed for 15 s *and* its cable to us is dead. While our own
/// heartbeat does not come by ([`Heartbeats`]), nobody has.
#[derive(Debug)]
pub struct GarbageCollector {
    heartbeats: Arc<Heartbeats>,
    siblings: BTreeMap<String, Version>,
}

impl GarbageCollector {
    /// Returns one for the gateway `hostname`.
    pub fn new(hostname: &str) -> Self {
        Self { heartbeats: Arc::new(Heartbeats::new(hostname)), siblings: BTreeMap::new() }
    }

    /// Takes in an event of a watch of the cluster's Gateway objects.
    pub fn handle_gateways(&mut self, event: &StoreEvent, now: Instant) {
        Arc::make_mut(&mut self.heartbeats).handle_gateways(event, now);
    }

    /// Returns the heartbeats as they are at present.
    pub const fn heartbeats(&self) -> &Arc<Heartbeats> {
        &self.heartbeats
    }

    /// Returns `true` if heartbeats reach us and ours reach others: [`Heartbeats::has_proof`].
    pub fn has_proof(&self, now: Instant) -> bool {
        self.heartbeats.has_proof(now)
    }

    /// Returns for how long a gateway has been silent: [`Heartbeats::silence`].
    pub fn silence(&self, hostname: &str, now: Instant) -> Option<Duration> {
        self.heartbeats.silence(hostname, now)
    }

    /// Returns the siblings that have vanished. `live` are the cables that are not dead. A sibling that is new, or has just
    /// changed its Endpoint, has its time.
    pub fn vanished<'a>(
        &mut self,
        siblings: &'a [Member],
        live: &BTreeSet<String>,
        now: Instant,
    ) -> Vec<&'a Member> {
        let present: BTreeSet<&str> = siblings.iter().map(Member::cable_name).collect();
        self.siblings.retain(|cable, _| present.contains(cable.as_str()));
        for member in siblings {
            let metadata = &member.endpoint.metadata;
            if !self.siblings.get(member.cable_name()).is_some_and(|version| version.is(metadata)) {
                let version = Version::new(&Object::new(Kind::Endpoint, metadata.clone()), now);
                self.siblings.insert(member.cable_name().to_owned(), version);
            }
        }
        let Some(proof) = self.heartbeats.proof(now) else { return Vec::new() };
        let has_vanished = |member: &&Member| {
            let since = self.siblings.get(member.cable_name()).map_or(now, |version| version.since);
            let silence = self.silence(&member.endpoint.spec.hostname, now);
            silence.is_some_and(|silence| silence >= GATEWAY_STALE_AFTER)
                && proof.last.saturating_duration_since(since) >= GATEWAY_STALE_AFTER
                && !live.contains(member.cable_name())
        };
        siblings.iter().filter(has_vanished).collect()
    }

    /// Returns what it takes to delete the Gateway object of a host: [`Heartbeats::gateway_of`].
    pub fn gateway_of(&self, hostname: &str) -> Option<&Object> {
        self.heartbeats.gateway_of(hostname)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Endpoint, EndpointSpec, ObjectMeta};

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
        Member { endpoint: Endpoint::new("ns", spec).unwrap().into() }
    }

    /// Seconds since the start, the own heartbeat every five of them.
    struct Clock {
        start: Instant,
        collector: GarbageCollector,
        siblings: [Member; 1],
        heard: BTreeSet<String>,
    }

    impl Clock {
        fn new() -> Self {
            let siblings = [sibling("gw2")];
            Self {
                start: Instant::now(),
                collector: GarbageCollector::new("gw1"),
                siblings,
                heard: BTreeSet::new(),
            }
        }

        fn beats(&mut self, hosts: &[&str], seconds: std::ops::RangeInclusive<u32>) {
            for second in seconds.filter(|second| second % 5 == 0) {
                let now = self.start + Duration::from_secs(second.into());
                hosts.iter().for_each(|host| self.collector.handle_gateways(&beat(host, second), now));
                self.vanished(second);
            }
        }

        fn vanished(&mut self, second: u32) -> usize {
            let now = self.start + Duration::from_secs(second.into());
            self.collector.vanished(&self.siblings, &self.heard, now).len()
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
        assert!(clock.collector.gateway_of("gw2").is_some());
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
        clock
            .collector
            .handle_gateways(&StoreEvent::Unavailable(away), clock.start + Duration::from_secs(206));
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
            clock.collector.handle_gateways(&beat("gw1", u32::try_from(second).unwrap()), now);
            assert!(clock.collector.vanished(&none, &clock.heard, now).is_empty());
        }
        assert_eq!(clock.vanished(50), 0, "it has not written its Gateway yet");
        clock.beats(&["gw1"], 51..=65);
        assert_eq!(clock.vanished(65), 1);
    }
}
