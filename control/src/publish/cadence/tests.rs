use super::super::samples::{connection, status};
use super::*;
use crate::api::{ConnectionStatus, HaStatus};

const KIB: usize = 1 << 10;

#[test]
fn counters_round_trips_and_numbers_in_messages_are_nothing_that_somebody_acts_on() {
    let print = |moment| {
        let mut status = status(3, moment);
        status.connections[1].status = ConnectionStatus::Error;
        status.connections[1].status_message =
            format!("no answer from the peer for {moment}.{moment} seconds");
        Fingerprint::of(&status)
    };
    assert_eq!(print(1), print(123));
}

#[test]
fn everything_else_is() {
    let changes: [fn(&mut PublishedStatus); 12] = [
        |status| status.version.push('1'),
        |status| status.ha_status = HaStatus::Passive,
        |status| status.status_failure.push_str("no key"),
        |status| status.local_endpoint.public_ip.push('1'),
        |status| drop(status.local_endpoint.backend_config.insert("trieste.state".into(), "drained".into())),
        |status| status.connections[1].status = ConnectionStatus::Error,
        |status| status.connections[1].status_message.push_str("no answer"),
        |status| status.connections[1].using_ip.push('1'),
        |status| status.connections[1].using_nat = true,
        |status| status.connections[1].endpoint.subnets.clear(),
        |status| drop(status.connections.pop()),
        |status| status.connections.push(connection(9, 0)),
    ];
    let before = Fingerprint::of(&status(3, 0));
    for (number, change) in changes.into_iter().enumerate() {
        let mut changed = status(3, 0);
        change(&mut changed);
        assert_ne!(Fingerprint::of(&changed), before, "change {number}");
    }
}

#[test]
fn the_status_of_a_small_set_goes_with_every_beat() {
    let mut cadence = Cadence::new("gw1");
    assert!(cadence.is_due(Fingerprint(1)), "nothing was written");
    for _ in 0..10 {
        cadence.handle_whole(Fingerprint(1), 40 * KIB);
        assert!(cadence.is_due(Fingerprint(1)) && cadence.is_due(Fingerprint(2)));
    }
}

#[test]
fn a_large_status_follows_its_size_but_for_changes() {
    let mut cadence = Cadence::new("gw1");
    for _ in 0..50 {
        // 17 beats for counters, 3 for changes that do not end.
        cadence.handle_whole(Fingerprint(1), 670 * KIB);
        assert_eq!(beats_until_due(&mut cadence, Fingerprint(2)), 2, "right after a whole write");
        assert!(!cadence.is_due(Fingerprint(1)));
        let rest = beats_until_due(&mut cadence, Fingerprint(1));
        assert!((17..=25).contains(&(2 + rest + 1)), "{rest}");
    }
}

#[test]
fn what_the_store_does_not_hold_is_due_at_once() {
    let mut cadence = Cadence::new("gw1");
    cadence.handle_whole(Fingerprint(1), 670 * KIB);
    assert!(!cadence.is_due(Fingerprint(1)));
    cadence.clear();
    assert!(cadence.is_due(Fingerprint(1)));
}

#[test]
fn gateways_with_equally_large_statuses_do_not_write_together_for_long() {
    let first = |name: &str| {
        let mut cadence = Cadence::new(name);
        let mut due = Vec::new();
        for _ in 0..10 {
            cadence.handle_whole(Fingerprint(1), 670 * KIB);
            due.push(beats_until_due(&mut cadence, Fingerprint(1)));
        }
        due
    };
    assert_ne!(first("a-gw1"), first("a-gw2"));
    assert_eq!(first("a-gw1"), first("a-gw1"), "nothing is drawn by lot");
}

#[test]
fn a_set_that_never_rests_costs_no_more_than_its_rate() {
    for bytes in [KIB, 100 * KIB, 670 * KIB, 1024 * KIB] {
        let mut cadence = Cadence::new("gw1");
        let mut written = 0;
        let beats: u64 = 720;
        for beat in 0..beats {
            if cadence.is_due(Fingerprint(beat)) {
                cadence.handle_whole(Fingerprint(beat), bytes);
                written += bytes;
            } else {
                cadence.handle_time();
            }
        }
        let rate = written / usize::try_from(beats * 5).unwrap();
        assert!(rate <= CHANGES_RATE, "{rate} bytes a second with {bytes} a time");
    }
}

/// Lets the time be written alone until a whole write is due; returns how often.
fn beats_until_due(cadence: &mut Cadence, fingerprint: Fingerprint) -> u32 {
    let mut beats = 0;
    while !cadence.is_due(fingerprint) {
        cadence.handle_time();
        beats += 1;
    }
    beats
}
