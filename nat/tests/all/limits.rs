//! What happens when something runs out: it is said, it is counted, and those who did nothing do not notice.

use std::net::Ipv4Addr;

use trieste_nat::{Change, Refusal};
use trieste_packet::wire::tcp::SYN;

use crate::support::*;

fn destination(number: u32) -> (Ipv4Addr, u16) {
    (
        Ipv4Addr::from(u32::from(Ipv4Addr::new(242, 2, 0, 0)) + number / 16),
        1000 + u16::try_from(number % 16).unwrap_or(0),
    )
}

#[test]
fn a_scan_of_a_million_destinations_stays_within_its_sources_limit() {
    let mut lab = Lab::with(rules(), |config| config.limits.sessions_per_source = 1000);
    let good = lab.leave(&udp((OTHER_POD, 5000), (REMOTE, 53))).unwrap();
    let mut refused = 0_u32;
    for number in 0..1_000_000 {
        // One port per destination in one half, one port for all in the other.
        let port = if number % 2 == 0 { 6000 } else { 6000 + u16::try_from(number % 30_000).unwrap() };
        let result = lab.leave(&tcp(SYN, (POD, port), destination(number)));
        refused += u32::from(result == Err(Refusal::SourceLimit));
    }
    let stats = lab.nat.stats();
    assert_eq!(stats.sessions, 1001);
    assert_eq!(refused, 999_000);
    assert_eq!(stats.refused(Refusal::SourceLimit), 999_000);
    assert!(Refusal::SourceLimit.is_told());
    assert_eq!(lab.enter(&good.reversed()).unwrap().destination, OTHER_POD);
    assert!(lab.leave(&udp((OTHER_POD, 5001), (REMOTE, 53))).is_ok(), "others begin what they like");
    lab.wait(300);
    lab.expire();
    assert!(lab.leave(&tcp(SYN, (POD, 1), (REMOTE, 80))).is_ok(), "and so may it, later");
}

#[test]
fn mappings_of_a_source_are_limited() {
    let mut lab = Lab::with(rules(), |config| config.limits.mappings_per_source = 100);
    let results: Vec<_> = (2000..2200).map(|port| lab.leave(&udp((POD, port), (REMOTE, 53)))).collect();
    assert!(results[..100].iter().all(Result::is_ok));
    assert!(results[100..].iter().all(|result| *result == Err(Refusal::SourceLimit)));
    assert!(
        lab.leave(&udp((POD, 2000), (OTHER_REMOTE, 53))).is_ok(),
        "what is mapped talks to whom it likes"
    );
}

#[test]
fn strangers_cannot_take_what_the_inside_needs() {
    let mut lab = Lab::with(rules(), |config| {
        config.limits.sessions = 4000;
        config.limits.sessions_per_source = 1000;
    });
    let flood = |lab: &mut Lab, count: u32| {
        (0..count)
            .filter(|&number| {
                let (remote, port) = destination(number);
                lab.enter(&udp((remote, port), (HEADLESS_GLOBAL, 53))).is_ok()
            })
            .count()
    };
    assert_eq!(flood(&mut lab, 2000), 500, "half of what the source may have");
    assert!(lab.leave(&udp((HEADLESS_POD, 9000), (REMOTE, 53))).is_ok());
}

#[test]
fn ports_of_a_bucket_that_run_out_are_said() {
    let mut lab = Lab::new(plain_rules(1, &[SELECTED_GLOBAL]));
    let mut by_bucket = 0;
    let mut refused = 0;
    // 1100 inside ends of one bucket, which has 1008 ports.
    'all: for pod in 0..=255_u8 {
        for port in 2000..4000 {
            let flow = udp(([10, 1, 3, pod].into(), port), (REMOTE, 53));
            if lab.rules.bucket_outbound(&flow).index() != 7 {
                continue;
            }
            refused += usize::from(lab.leave(&flow) == Err(Refusal::NoPort));
            by_bucket += 1;
            if by_bucket == 1100 {
                break 'all;
            }
        }
    }
    assert_eq!((by_bucket, refused), (1100, 1100 - 1008));
    let stats = lab.nat.stats();
    assert_eq!((stats.addresses[0].udp_ports, stats.mappings), (1008, 1008));
    let other = udp((POD, 2001), (REMOTE, 53));
    assert_ne!(lab.rules.bucket_outbound(&other).index(), 7);
    assert!(lab.leave(&other).is_ok(), "other buckets have theirs");
    lab.wait(400);
    lab.expire();
    assert!(lab.nat.stats().addresses.is_empty());
}

#[test]
fn expiry_looks_at_a_bounded_number_per_call() {
    let mut lab = Lab::with(rules(), |config| {
        config.limits.mappings_per_source = u32::MAX;
        config.limits.sessions_per_source = u32::MAX;
    });
    for number in 0..100_000 {
        let _ = lab.leave(&udp((POD, 5000), destination(number)));
    }
    assert_eq!(lab.nat.stats().sessions, 100_000);
    assert_eq!(lab.nat.expire(lab.now, 64), 0, "nothing is due");
    lab.wait(1000);
    let mut calls = 0;
    while lab.nat.stats().sessions > 0 {
        assert!(lab.nat.poll_timeout().unwrap() <= lab.now);
        assert_eq!(lab.nat.expire(lab.now, 64), 64.min(100_000 - calls * 64));
        calls += 1;
    }
    assert_eq!(calls, 1563);
    assert_eq!(lab.nat.poll_timeout(), None);
}

#[test]
fn timers_longer_than_the_wheel_are_kept_to() {
    let mut lab = Lab::with(rules(), |config| config.timers.udp = std::time::Duration::from_secs(50_000));
    lab.leave(&udp((POD, 5000), (REMOTE, 53))).unwrap();
    for _ in 0..49 {
        lab.wait(1000);
        assert_eq!(lab.expire(), 0);
        assert!(lab.nat.poll_timeout().unwrap() > lab.now);
    }
    lab.wait(1001);
    assert_eq!(lab.expire(), 1);
}

#[test]
fn expiry_that_was_not_called_for_hours_catches_up() {
    let mut lab = Lab::new(rules());
    for port in 2000..2100 {
        lab.leave(&udp((POD, port), (REMOTE, 53))).unwrap();
        lab.wait(97);
    }
    lab.wait(100_000);
    lab.leave(&udp((POD, 5000), (REMOTE, 53))).unwrap();
    let gone: usize = (0..200).map(|_| lab.nat.expire(lab.now, 7)).sum();
    assert_eq!(gone, 100);
    assert_eq!(lab.nat.stats().sessions, 1);
    lab.wait(302);
    assert_eq!(lab.expire(), 1);
}

#[test]
fn what_has_expired_is_not_used_again_though_it_is_still_there() {
    let mut lab = Lab::new(rules());
    let flow = udp((POD, 5000), (REMOTE, 53));
    let first = lab.in2out(&flow).unwrap();
    let outside = applied(&flow, &first.rewrite);
    lab.wait(400);
    assert_eq!(lab.nat.stats().sessions, 1, "nobody has called expire");
    assert!(!lab.nat.touch(first.session.unwrap(), 0, lab.now));
    assert_eq!(lab.enter(&outside.reversed()), Err(Refusal::NoMapping));
    let second = lab.in2out(&flow).unwrap();
    assert_ne!(first.session, second.session);
    assert!(!lab.nat.touch(first.session.unwrap(), 0, lab.now), "its place is another's");
    assert!(lab.nat.touch(second.session.unwrap(), 0, lab.now));
}

#[test]
fn changes_that_nobody_takes_are_lost_and_this_is_said() {
    let mut lab = Lab::with(rules(), |config| config.limits.changes = 10);
    for port in 2000..2025 {
        lab.leave(&udp((POD, port), (REMOTE, 53))).unwrap();
    }
    let changes: Vec<_> = lab.nat.changes().collect();
    assert_eq!(changes[0], Change::Lost);
    assert!(changes.len() <= 11 && changes.iter().filter(|change| **change == Change::Lost).count() == 1);
    let kept = u64::try_from(changes.len() - 1).unwrap();
    assert_eq!(lab.nat.stats().changes_lost + kept, 25);
    lab.leave(&udp((POD, 3000), (REMOTE, 53))).unwrap();
    assert_eq!(lab.nat.changes().count(), 1);
    let mut none = Lab::with(rules(), |config| config.limits.changes = 0);
    none.leave(&udp((POD, 3000), (REMOTE, 53))).unwrap();
    assert_eq!(none.nat.changes().count(), 0);
}

#[test]
fn a_forbidden_mapping_frees_its_port_when_its_sessions_are_over() {
    let mut lab = Lab::new(plain_rules(1, &[SELECTED_GLOBAL]));
    let flow = udp((POD, 5000), (REMOTE, 53));
    let before = lab.leave(&flow).unwrap();
    lab.leave(&udp((POD, 5000), (OTHER_REMOTE, 53))).unwrap();
    lab.rules = plain_rules(2, &[NAMESPACE_GLOBAL]);
    assert_eq!(lab.enter(&before.reversed()), Err(Refusal::NoMapping), "the address is nobody's");
    assert_eq!(lab.leave(&flow).unwrap().source, NAMESPACE_GLOBAL);
    lab.wait(400);
    lab.expire();
    let stats = lab.nat.stats();
    assert!(stats.sessions == 0 && stats.mappings == 0 && stats.addresses.is_empty());
}
