use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rand_core::{Error, RngCore};
use trieste_simulator::Random;

use super::*;

#[test]
fn remote_endpoints_with_an_address_are_pinged_and_no_others() {
    let mut lab = Lab::new(Duration::ZERO);
    let mut local = endpoint("cable-east", "10.1.0.1");
    local.cluster_id = "east".to_owned();
    let endpoints = [
        local,
        endpoint("cable-west", "10.2.0.1"),
        endpoint("cable-none", ""),
        endpoint("cable-text", "what"),
        endpoint("cable-group", "224.0.0.1"),
        endpoint("cable-self", "127.0.0.1"),
        endpoint("cable-six", "fd02::1"),
    ];
    lab.checker.handle_endpoints(&endpoints, lab.start);
    let names: Vec<String> = lab.checker.views().into_keys().collect();
    assert_eq!(names, ["cable-six", "cable-west"]);
}

#[test]
fn a_pinger_is_made_anew_only_when_the_address_changes_and_goes_with_the_endpoint() {
    let mut lab = Lab::new(Duration::ZERO);
    lab.checker.handle_endpoints(&[endpoint("west", "10.2.0.1")], lab.start);
    let probe = lab.tick(0).remove(0);
    lab.answer(&probe, 3);

    let mut same = endpoint("west", "10.2.0.1");
    same.public_ip = "192.0.2.9".to_owned();
    lab.checker.handle_endpoints(&[same], lab.at(10));
    assert_eq!(lab.checker.views()["west"].status, PingerStatus::Connected);

    lab.checker.handle_endpoints(&[endpoint("west", "10.2.0.2")], lab.at(20));
    let view = &lab.checker.views()["west"];
    assert_eq!(
        (view.status, view.latency, view.ip.to_string().as_str()),
        (PingerStatus::Unknown, None, "10.2.0.2")
    );
    lab.answer(&probe, 21);
    assert_eq!(lab.checker.views()["west"].status, PingerStatus::Unknown, "an old answer counted");

    lab.checker.handle_endpoints(&[], lab.at(30));
    assert_eq!((lab.checker.views().len(), lab.checker.poll_timeout()), (0, None));
    assert!(lab.checker.by_id.is_empty() && lab.checker.reported.is_empty());
}

#[test]
fn a_second_claim_on_a_cable_does_not_disturb_its_pinger() {
    let mut lab = Lab::new(Duration::ZERO);
    lab.checker.handle_endpoints(&[endpoint("west", "10.2.0.1")], lab.start);
    lab.checker.handle_endpoints(&[endpoint("west", "10.9.9.9"), endpoint("west", "10.2.0.1")], lab.at(1));
    assert_eq!(lab.checker.views()["west"].ip.to_string(), "10.2.0.1");
}

#[test]
fn verdicts_are_told_once_each() {
    let mut lab = Lab::new(Duration::ZERO);
    lab.checker.handle_endpoints(&[endpoint("west", "10.2.0.1")], lab.start);
    let probe = lab.tick(0).remove(0);
    assert_eq!(lab.checker.poll_event(), None);

    lab.answer(&probe, 3);
    let event = lab.checker.poll_event().unwrap();
    assert_eq!((event.was, event.view.status), (PingerStatus::Unknown, PingerStatus::Connected));
    assert_eq!(lab.checker.poll_event(), None);

    (1..=6).for_each(|second| drop(lab.tick(second * 1000)));
    let event = lab.checker.poll_event().unwrap();
    assert_eq!((event.was, event.view.status), (PingerStatus::Connected, PingerStatus::Error));

    let probe = lab.tick(6000).remove(0);
    lab.checker.handle_send_failure(&probe, "Operation not permitted", lab.at(6000));
    let event = lab.checker.poll_event().unwrap();
    assert_eq!((event.was, event.view.status), (PingerStatus::Error, PingerStatus::Unknown));
    assert!(event.view.message.ends_with("Operation not permitted"));
}

#[test]
fn two_hundred_peers_are_not_pinged_in_one_burst_and_each_once_per_interval() {
    for interval in [Duration::from_secs(1), Duration::from_secs(60)] {
        let mut lab = Lab::new(interval);
        let endpoints: Vec<_> =
            (0..200).map(|n| endpoint(&format!("c{n}"), &format!("10.2.0.{n}"))).collect();
        lab.checker.handle_endpoints(&endpoints, lab.start);

        let mut sent: BTreeMap<String, u32> = BTreeMap::new();
        for ms in (0..1000).step_by(9) {
            let probes = lab.tick(ms);
            assert!(probes.len() <= 5, "{} probes within 9 ms", probes.len());
            probes.into_iter().for_each(|probe| *sent.entry(probe.cable_name).or_default() += 1);
        }
        assert!(sent.len() == 200 && sent.values().all(|&count| count == 1), "{sent:?}");
    }
}

#[test]
fn many_that_answer_share_fifty_requests_a_second_and_few_are_asked_as_configured() {
    for (count, seconds) in [(33u64, 1), (300, 6), (1000, 20)] {
        let mut lab = Lab::new(Duration::ZERO);
        let address = |n: u64| format!("10.2.{}.{}", n >> 8, n & 255);
        let endpoints: Vec<_> = (0..count).map(|n| endpoint(&format!("c{n}"), &address(n + 1))).collect();
        lab.checker.handle_endpoints(&endpoints, lab.start);
        let mut sent = Vec::new();
        for ms in (0..120_000).step_by(10) {
            for probe in lab.tick(ms) {
                lab.answer(&probe, ms);
                sent.push(ms);
            }
        }
        let settled: Vec<u64> = sent.into_iter().filter(|ms| *ms >= 60_000).collect();
        let expected = count * 60 / seconds;
        let asked = settled.len() as u64;
        assert!(asked.abs_diff(expected) <= count, "{count} were asked {asked} times in a minute");
        for second in 60..120 {
            let within = settled.iter().filter(|ms| **ms / 1000 == second).count();
            assert!(within <= 100, "{within} of {count} within a second");
        }
    }
}

#[test]
fn endpoints_beyond_the_bound_are_counted_and_left_out() {
    let mut lab = Lab::new(Duration::ZERO);
    let address = |n: u32| format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255);
    let endpoints: Vec<_> = (0..1100).map(|n| endpoint(&format!("c{n}"), &address(n + 1))).collect();
    lab.checker.handle_endpoints(&endpoints, lab.start);
    assert_eq!((lab.checker.views().len(), lab.checker.left_out()), (1024, 76));
    lab.checker.handle_endpoints(&endpoints[..10], lab.start);
    assert_eq!((lab.checker.views().len(), lab.checker.left_out()), (10, 0));
}

#[test]
fn requests_carry_the_time_and_a_version_four_tracker() {
    let mut lab = Lab::new(Duration::ZERO);
    lab.checker.handle_endpoints(&[endpoint("west", "10.2.0.1")], lab.start);
    let request = lab.tick(1500).remove(0).request;
    assert_eq!(request.unix_nanos, 1_700_000_001_500_000_000);
    assert_eq!((request.tracker[6] >> 4, request.tracker[8] >> 6, request.sequence), (4, 2, 1));
}

proptest! {
    /// Any input keeps it bounded and consistent, with as many ids as pingers.
    #[test]
    fn nothing_that_happens_breaks_it(steps in prop::collection::vec((0u8..5, 0u8..6, 0u64..3000, any::<u16>()), 1..120)) {
        let mut lab = Lab::new(Duration::ZERO);
        let (mut ms, mut last) = (0, None);
        for (what, which, wait, id) in steps {
            ms += wait;
            let now = lab.at(ms);
            match (what, last.as_ref()) {
                (0, _) => {
                    let endpoints: Vec<_> = (0..which)
                        .map(|n| endpoint(&format!("c{n}"), &format!("10.2.{}.{n}", id % 3)))
                        .collect();
                    lab.checker.handle_endpoints(&endpoints, now);
                }
                (1, Some(probe)) => lab.answer(probe, ms),
                (2, Some(probe)) => lab.checker.handle_send_failure(probe, "no", now),
                (3, _) => lab.checker.handle_reply(&EchoReply { id, sequence: 1, tracker: [0; 16] }, now),
                _ => last = lab.tick(ms).pop().or(last),
            }
            while lab.checker.poll_event().is_some() {}
            prop_assert_eq!(lab.checker.by_id.len(), lab.checker.pingers.len());
            let connected = lab.checker.pingers.values().filter(|one| one.status() == PingerStatus::Connected);
            prop_assert_eq!(lab.checker.connected as usize, connected.count());
            prop_assert!(lab.checker.reported.len() <= lab.checker.pingers.len());
            for (id, name) in &lab.checker.by_id {
                prop_assert_eq!(lab.checker.pingers[name].identity().id, *id);
            }
        }
    }
}

/// A checker of cluster `east` and its clock.
struct Lab {
    start: Instant,
    checker: Checker,
}

impl Lab {
    fn new(interval: Duration) -> Self {
        let start = Instant::now();
        let config = PingerConfig::new(interval, 0);
        Self {
            start,
            checker: Checker::new(
                config,
                "east",
                Counter(7, Random::new(7)),
                start,
                1_700_000_000_000_000_000,
            ),
        }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn tick(&mut self, ms: u64) -> Vec<Probe> {
        self.checker.handle_timeout(self.at(ms));
        std::iter::from_fn(|| self.checker.poll_transmit()).collect()
    }

    fn answer(&mut self, probe: &Probe, ms: u64) {
        let EchoRequest { id, sequence, tracker, .. } = probe.request;
        self.checker.handle_reply(&EchoReply { id, sequence, tracker }, self.at(ms));
    }
}

fn endpoint(cable_name: &str, health_check_ip: &str) -> EndpointSpec {
    EndpointSpec {
        cluster_id: "west".to_owned(),
        cable_name: cable_name.to_owned(),
        health_check_ip: health_check_ip.to_owned(),
        ..EndpointSpec::default()
    }
}

/// Numbers that differ; ids collide on purpose.
struct Counter(u64, Random);

impl RngCore for Counter {
    fn next_u32(&mut self) -> u32 {
        self.0 += 1;
        u32::try_from(self.0 % 5).unwrap()
    }

    fn next_u64(&mut self) -> u64 {
        self.1.draw()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.0 += 1;
        bytes.fill(self.0.to_le_bytes()[0]);
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}
