mod beats;

use std::time::Duration;

use super::*;
use crate::api::{EndpointSpec, Gateway, HaStatus, ObjectKey, Resource};

#[test]
fn an_object_is_dead_after_15_seconds_without_change_on_our_clock_whatever_it_says_itself() {
    let mut bed = Bed::new();
    bed.observe(&gateway("far-ahead", "1", Some("99999999999")));
    bed.observe(&gateway("mute", "1", None));
    bed.observe(&gateway("garbled", "1", Some("yesterday")));
    bed.observe(&gateway("alive", "1", Some("0")));
    bed.observe(&gateway("own", "1", Some("0")));
    for version in 2..=3 {
        bed.beats(1);
        bed.observe(&gateway("alive", &version.to_string(), Some("0")));
    }
    assert_eq!(bed.stale(), Vec::<String>::new());
    bed.beats(1);
    assert_eq!(bed.stale(), ["far-ahead", "garbled", "mute"]);
}

#[test]
fn after_an_outage_nothing_is_dead_until_the_api_has_worked_for_15_seconds() {
    let mut bed = Bed::new();
    bed.observe(&gateway("gw2", "1", None));
    bed.beats(2);
    bed.tracker.handle_written(&Err(unavailable()), bed.now);
    bed.now += Duration::from_secs(3_600);
    bed.tracker.handle_event(&StoreEvent::Listed(vec![gateway("gw2", "1", None)]), bed.now);
    bed.beat();
    bed.beats(2);
    assert_eq!(bed.stale(), Vec::<String>::new());
    bed.beats(1);
    assert_eq!(bed.stale(), ["gw2"]);
}

#[test]
fn a_broken_watch_and_a_process_that_was_stopped_are_outages_too() {
    let mut bed = Bed::new();
    bed.observe(&gateway("gw2", "1", None));
    bed.beats(4);
    assert_eq!(bed.stale(), ["gw2"]);
    bed.tracker.handle_event(&StoreEvent::Unavailable(unavailable()), bed.now);
    assert_eq!(bed.stale(), Vec::<String>::new());
    bed.beats(4);
    assert_eq!(bed.stale(), ["gw2"]);
    bed.now += Duration::from_secs(60);
    assert_eq!(bed.stale(), Vec::<String>::new(), "before the next write");
    bed.beat();
    assert_eq!(bed.stale(), Vec::<String>::new(), "after it");
}

#[test]
fn a_gateway_that_has_just_come_back_is_spared_by_its_version() {
    let mut bed = Bed::new();
    bed.observe(&gateway("gw2", "1", None));
    bed.beats(4);
    let stale = bed.tracker.stale(bed.now).remove(0);
    assert_eq!(stale.metadata.resource_version.as_deref(), Some("1"));
    let conflict = StoreError::Conflict { key: stale.key(), expected: "1".to_owned(), found: "2".to_owned() };
    bed.tracker.handle_removed(&stale, &Err(conflict), bed.now);
    assert_eq!(bed.stale(), Vec::<String>::new());
}

#[test]
fn what_is_gone_is_forgotten() {
    let mut bed = Bed::new();
    for name in ["gw2", "gw3", "gw4"] {
        bed.observe(&gateway(name, "1", None));
    }
    bed.beats(4);
    let dead = gateway("gw2", "1", None);
    bed.tracker.handle_removed(&dead, &Ok(()), bed.now);
    bed.tracker.handle_event(&StoreEvent::Deleted(gateway("gw3", "1", None)), bed.now);
    assert_eq!(bed.stale(), ["gw4"]);
    bed.tracker.handle_event(&StoreEvent::Listed(Vec::new()), bed.now);
    assert_eq!(bed.stale(), Vec::<String>::new());
}

#[test]
fn the_own_object_is_updated_from_the_newest_version_and_others_fields_stay() {
    let mut bed = Bed::new();
    let mut own = gateway("own", "1", None);
    own.metadata.annotations.insert(annotation::GLOBAL_IP.to_owned(), "242.0.0.1".to_owned());
    own.body.insert("theirs".to_owned(), "kept".into());
    bed.observe(&own);
    let GatewayWrite::Update(written) = bed.write() else { panic!("it is there") };
    assert_eq!(written.metadata.annotations[annotation::GLOBAL_IP], "242.0.0.1");
    assert_eq!(written.metadata.annotations[annotation::UPDATE_TIMESTAMP], "1000");
    assert_eq!(
        (&written.body["theirs"], written.metadata.resource_version),
        (&"kept".into(), Some("1".to_owned()))
    );
}

#[test]
fn a_late_event_does_not_bring_an_old_version_back() {
    let mut bed = Bed::new();
    bed.observe(&gateway("own", "1", None));
    bed.tracker.handle_written(&Ok(gateway("own", "2", None)), bed.now);
    bed.observe(&gateway("own", "1", None));
    let GatewayWrite::Update(written) = bed.write() else { panic!("it is there") };
    assert_eq!(written.metadata.resource_version.as_deref(), Some("2"));
}

#[test]
fn the_own_object_is_made_again_when_somebody_deleted_it() {
    let mut bed = Bed::new();
    bed.observe(&gateway("own", "1", None));
    bed.tracker
        .handle_written(&Err(StoreError::NotFound(ObjectKey::new(Kind::Gateway, "ns", "own"))), bed.now);
    assert!(matches!(bed.write(), GatewayWrite::Create(_)));
    bed.observe(&gateway("own", "1", None));
    bed.tracker.handle_event(&StoreEvent::Deleted(gateway("own", "1", None)), bed.now);
    assert!(matches!(bed.write(), GatewayWrite::Create(_)));
}

#[test]
fn more_gateways_than_a_cluster_can_have_do_not_make_us_grow() {
    let mut bed = Bed::new();
    for number in 0..2 * MAX_OTHERS {
        bed.observe(&gateway(&format!("gw{number}"), "1", None));
    }
    assert_eq!(bed.tracker.others.len(), MAX_OTHERS);
}

struct Bed {
    tracker: GatewayTracker,
    now: Instant,
    version: u32,
}

impl Bed {
    fn new() -> Self {
        let tracker = GatewayTracker::new("ns", "Own").unwrap();
        let mut bed = Self { tracker, now: Instant::now(), version: 100 };
        bed.beat();
        bed
    }

    fn observe(&mut self, object: &Object) {
        self.tracker.handle_event(&StoreEvent::Applied(object.clone()), self.now);
    }

    fn write(&mut self) -> GatewayWrite {
        self.tracker.beat(&status(), Timestamp::from_second(1_000).unwrap())
    }

    fn beat(&mut self) {
        self.version += 1;
        let stored = gateway("own", &self.version.to_string(), None);
        self.tracker.handle_written(&Ok(stored), self.now);
    }

    fn beats(&mut self, number: u32) {
        for _ in 0..number {
            self.now += Duration::from_secs(5);
            self.beat();
        }
    }

    fn stale(&self) -> Vec<String> {
        self.tracker.stale(self.now).into_iter().map(|object| object.metadata.name).collect()
    }
}

fn status() -> PublishedStatus {
    PublishedStatus {
        version: "1".to_owned(),
        ha_status: HaStatus::Active,
        local_endpoint: EndpointSpec::default(),
        status_failure: String::new(),
        connections: Vec::new(),
        extra: serde_json::Map::new(),
    }
}

fn gateway(name: &str, version: &str, stamp: Option<&str>) -> Object {
    let mut object = Gateway::new("ns", name, status()).unwrap().to_object();
    object.metadata.resource_version = Some(version.to_owned());
    object
        .metadata
        .annotations
        .extend(stamp.map(|stamp| (annotation::UPDATE_TIMESTAMP.to_owned(), stamp.to_owned())));
    object
}

fn unavailable() -> StoreError {
    StoreError::Unavailable { operation: "write".to_owned(), source: std::io::Error::other("away") }
}
