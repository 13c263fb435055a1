//! Several gateways of a cluster: each keeps the sessions of another, and none gives out another's ports.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use trieste_nat::{Bucket, Change, Config, Copied, Cursor, Facts, Kind, Nat, Record, Rules, Share, slot_of};
use trieste_packet::wire::tcp::{ACK, SYN};

use crate::support::*;

/// Two gateways with the same rules and time.
struct Pair {
    rules: Rules,
    now: Instant,
    gateways: [Nat; 2],
}

impl Pair {
    fn new() -> Self {
        let now = beginning();
        let gateways = [3, 4].map(|slot: u8| {
            let mut nat = Nat::new(Config::default(), slot.into(), now);
            nat.set_share(Share::of_slot(slot));
            nat.keep_copies(1000);
            nat.set_quarantine(true);
            nat
        });
        Self { rules: rules(), now, gateways }
    }

    fn leave(&mut self, gateway: usize, flow: &Facts) -> Option<(Ipv4Addr, u16)> {
        let nat = &mut self.gateways[gateway];
        let rewrite = nat.in2out(flow, &self.rules, self.now).ok()?.rewrite;
        Some((rewrite.address, rewrite.port))
    }

    /// What has changed at the first is told to the second.
    fn tell(&mut self) -> Vec<Copied> {
        let [from, to] = &mut self.gateways;
        let mut copied = Vec::new();
        for change in from.copies() {
            match change {
                Change::Is(record) => copied.push(to.copy(&record, true, &self.rules, self.now)),
                Change::Gone(record) => assert!(to.uncopy(&record, self.now)),
                Change::Lost => panic!("there is room"),
            }
        }
        copied
    }

    fn sessions(&self, gateway: usize) -> Vec<Record> {
        let mut records = Vec::new();
        assert_eq!(self.gateways[gateway].export(Cursor::default(), 1 << 20, self.now, &mut records), None);
        records.sort_by_key(|record| (record.inside, record.inside_port, record.remote, record.protocol));
        records
    }
}

fn tcp(port: u16, flags: u8) -> Facts {
    Facts {
        source: POD,
        destination: REMOTE,
        source_port: port,
        destination_port: 80,
        protocol: TCP,
        kind: Kind::Tcp(flags),
    }
}

#[test]
fn the_second_goes_on_with_what_the_first_has_begun() {
    let mut pair = Pair::new();
    let outside: Vec<_> = (5000..5050).map(|port| pair.leave(0, &tcp(port, SYN)).unwrap()).collect();
    assert_eq!(pair.tell(), [Copied::Begun; 50]);
    assert!(outside.iter().all(|(_, port)| slot_of(*port) == 3));
    for (port, outside) in (5000..5050).zip(&outside) {
        assert_eq!(
            pair.leave(1, &tcp(port, ACK)),
            Some(*outside),
            "at the port that it had, of another slot"
        );
        let answer = Facts {
            source: REMOTE,
            destination: outside.0,
            source_port: 80,
            destination_port: outside.1,
            protocol: TCP,
            kind: Kind::Tcp(SYN_ACK),
        };
        let inside = pair.gateways[1].out2in(&answer, &pair.rules, pair.now).unwrap().rewrite;
        assert_eq!((inside.address, inside.port), (POD, port));
    }
    assert_eq!(pair.sessions(0).len(), pair.sessions(1).len());
}

#[test]
fn phases_and_ends_are_followed_and_what_was_copied_is_no_news() {
    let mut pair = Pair::new();
    let outside = pair.leave(0, &tcp(5000, SYN)).unwrap();
    pair.tell();
    assert_eq!(pair.gateways[1].copies().count(), 0, "it is not sent on");
    assert_eq!(pair.gateways[1].changes().count(), 1, "but written down");
    let answer = Facts {
        destination: outside.0,
        destination_port: outside.1,
        kind: Kind::Tcp(SYN_ACK),
        ..tcp(0, 0).reversed()
    };
    let answer = Facts { source: REMOTE, source_port: 80, ..answer };
    pair.gateways[0].out2in(&answer, &pair.rules, pair.now).unwrap();
    assert_eq!(pair.tell(), [Copied::Updated]);
    assert_eq!(pair.sessions(0), pair.sessions(1));
    pair.now += Duration::from_secs(3 * 3600);
    while pair.gateways[0].expire(pair.now, 100) > 0 {}
    pair.tell();
    assert_eq!((pair.sessions(0).len(), pair.sessions(1).len()), (0, 0));
}

#[test]
fn copies_that_are_refreshed_live_as_long_as_the_session() {
    let mut pair = Pair::new();
    let flow = Facts { protocol: UDP, kind: Kind::Udp, ..tcp(5000, 0) };
    let outside = pair.leave(0, &flow).unwrap();
    pair.tell();
    for _ in 0..10 {
        let since = pair.now;
        pair.now += Duration::from_secs(200);
        assert_eq!(pair.leave(0, &flow), Some(outside));
        let mut seen = Vec::new();
        pair.gateways[0].export_since(Cursor::default(), 100, Some(since), pair.now, &mut seen);
        assert_eq!(seen.len(), 1);
        assert_eq!(pair.gateways[1].copy(&seen[0], true, &pair.rules, pair.now), Copied::Updated);
        while pair.gateways[1].expire(pair.now, 100) > 0 {}
    }
    assert_eq!(pair.leave(1, &flow), Some(outside));
    pair.now += Duration::from_secs(200);
    let mut seen = Vec::new();
    let since = pair.now - Duration::from_secs(100);
    pair.gateways[0].export_since(Cursor::default(), 100, Some(since), pair.now, &mut seen);
    assert!(seen.is_empty(), "nothing has come since");
}

#[test]
fn the_owners_word_displaces_what_is_old_and_anybody_elses_does_not() {
    let mut pair = Pair::new();
    pair.leave(0, &tcp(5000, SYN)).unwrap();
    let [Change::Is(record)] = pair.gateways[0].copies().collect::<Vec<_>>()[..] else { panic!() };
    // The second has begun the same flow itself, at a port of its own.
    let own = pair.leave(1, &tcp(5000, SYN)).unwrap();
    let now = pair.now;
    assert_eq!(pair.gateways[1].copy(&record, false, &pair.rules, now), Copied::Refused);
    assert_eq!(pair.leave(1, &tcp(5000, ACK)), Some(own));
    assert_eq!(pair.gateways[1].copy(&record, true, &pair.rules, now), Copied::Begun);
    assert_eq!(pair.leave(1, &tcp(5000, ACK)), Some((record.outside, record.outside_port)));
    assert_eq!(pair.sessions(1).len(), 1);
    let stranger = Record { inside: OTHER_POD, ..record };
    assert!(!pair.gateways[1].uncopy(&stranger, now), "an end of something else");
}

#[test]
fn what_an_account_does_not_have_is_forgotten_in_slices_and_other_buckets_stay() {
    let mut pair = Pair::new();
    for port in 5000..5500 {
        pair.leave(1, &tcp(port, SYN)).unwrap();
    }
    let buckets: u64 = 0x0f0f_0f0f_0f0f_0f0f;
    let is_kept = |record: &Record| buckets & Bucket::of_port(record.outside_port).bit() == 0;
    let kept = pair.sessions(1).into_iter().filter(is_kept).count();
    let account = pair.gateways[1].begin_account();
    let forget = |pair: &mut Pair| {
        let (mut cursor, mut slices) = (Some(Cursor::default()), 0);
        while let Some(at) = cursor {
            cursor = pair.gateways[1].forget(at, 64, (buckets, account), &pair.rules, pair.now);
            slices += 1;
        }
        slices
    };
    // One that the account has, and one that begins meanwhile.
    let mut sessions = pair.sessions(1).into_iter();
    let told = sessions.find(|record| !is_kept(record)).unwrap();
    assert_eq!(pair.gateways[1].copy(&told, true, &pair.rules, pair.now), Copied::Updated);
    let fresh = (6000..7000).find(|port| {
        let (_, outside) = pair.leave(1, &tcp(*port, SYN)).unwrap();
        buckets & Bucket::of_port(outside).bit() != 0
    });
    let others = usize::from(fresh.unwrap() - 6000);
    assert!(forget(&mut pair) > 5);
    assert_eq!(pair.sessions(1).len(), kept + others + 2);
    let old = pair.sessions(1).into_iter().filter(|record| !is_kept(record) && *record != told);
    assert_eq!(old.map(|record| Some(record.inside_port)).collect::<Vec<_>>(), [fresh]);
}

#[test]
fn what_is_not_kept_is_said_to_be_lost() {
    let mut pair = Pair::new();
    pair.gateways[0].keep_copies(8);
    for port in 5000..5020 {
        pair.leave(0, &tcp(port, SYN)).unwrap();
    }
    assert!(pair.gateways[0].has_copies());
    let changes: Vec<Change> = pair.gateways[0].copies().collect();
    assert_eq!(changes[0], Change::Lost);
    assert!(changes.len() <= 9);
}

#[test]
fn a_gateway_without_a_share_goes_on_and_begins_nothing() {
    let mut pair = Pair::new();
    let outside = pair.leave(0, &tcp(5000, SYN)).unwrap();
    pair.gateways[0].set_share(Share::NONE);
    assert_eq!(pair.leave(0, &tcp(5000, ACK)), Some(outside));
    assert_eq!(pair.leave(0, &tcp(5001, SYN)), None);
}

#[test]
fn a_port_is_nobodys_until_siblings_know_that_it_is_free() {
    let mut pair = Pair::new();
    let flow = Facts { protocol: UDP, kind: Kind::Udp, ..tcp(5000, 0) };
    let (_, port) = pair.leave(0, &flow).unwrap();
    pair.tell();
    pair.now += Duration::from_secs(400);
    while pair.gateways[0].expire(pair.now, 100) > 0 {}
    assert_eq!((pair.sessions(0).len(), pair.gateways[0].quarantined()), (0, 1));
    let told = pair.gateways[0].copies_told();
    assert_ne!(pair.leave(0, &flow).unwrap().1, port, "the port waits");
    assert_eq!(pair.gateways[0].release(told - 1, None, 10), 0, "siblings may not have heard of the end");
    assert_eq!(pair.gateways[0].release(told, None, 10), 1, "no later news has to come first");
    pair.tell();
    pair.now += Duration::from_secs(400);
    pair.gateways[0].set_quarantine(false);
    while pair.gateways[0].expire(pair.now, 100) > 0 {}
    assert_eq!(pair.leave(0, &flow).unwrap().1, port);
}

#[derive(Debug, Clone)]
enum Step {
    /// A packet of a pod reaches a gateway.
    Leave(usize, Facts),
    /// What has changed at one reaches the other, or is lost on the way.
    Tell(usize, bool, bool),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let pods = prop::sample::select(vec![POD, OTHER_POD, SELECTED_POD, NAMESPACE_POD]);
    let ports = prop_oneof![1..6_u16, 40_000..40_040_u16];
    let kinds = prop::sample::select(vec![
        (TCP, Kind::Tcp(SYN)),
        (TCP, Kind::Tcp(ACK)),
        (UDP, Kind::Udp),
        (ICMP, Kind::Request),
    ]);
    let flow = (pods, ports, kinds).prop_map(|(source, port, (protocol, kind))| Facts {
        source,
        destination: REMOTE,
        source_port: port,
        destination_port: if protocol == ICMP { port } else { 80 },
        protocol,
        kind,
    });
    prop_oneof![
        8 => (0..2_usize, flow).prop_map(|(gateway, flow)| Step::Leave(gateway, flow)),
        3 => (0..2_usize, any::<bool>(), any::<bool>()).prop_map(|(from, arrives, is_its)| Step::Tell(from, arrives, is_its)),
        1 => (1..200_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whoever takes which bucket for its own, and whatever is lost between them.
    #[test]
    fn two_gateways_never_give_one_port_to_two_inside_ends(steps in prop::collection::vec(step(), 1..120)) {
        let mut pair = Pair::new();
        let mut heard = [true; 2];
        for step in steps {
            match step {
                Step::Leave(gateway, flow) => { pair.leave(gateway, &flow); }
                Step::Wait(seconds) => {
                    pair.now += Duration::from_secs(seconds);
                    for nat in &mut pair.gateways {
                        nat.expire(pair.now, 1000);
                    }
                }
                Step::Tell(from, arrives, is_its) => {
                    let told = pair.gateways[from].copies_told();
                    let changes: Vec<Change> = pair.gateways[from].copies().collect();
                    let mut is_heard = arrives && heard[from];
                    for change in changes.into_iter().filter(|_| arrives) {
                        let to = &mut pair.gateways[1 - from];
                        match change {
                            Change::Is(record) => { to.copy(&record, is_its, &pair.rules, pair.now); }
                            Change::Gone(record) if is_its => { to.uncopy(&record, pair.now); }
                            Change::Gone(_) | Change::Lost => is_heard = false,
                        }
                    }
                    // What was missed once may be anything.
                    heard[from] = is_heard;
                    if is_heard {
                        pair.gateways[from].release(told, None, 1000);
                    }
                }
            }
            let mut inside_of = BTreeMap::new();
            for record in pair.sessions(0).into_iter().chain(pair.sessions(1)) {
                if record.headless {
                    continue;
                }
                let outside = (record.protocol, record.outside, record.outside_port);
                let inside = (record.inside, record.inside_port);
                let there = *inside_of.entry(outside).or_insert(inside);
                prop_assert_eq!(there, inside, "{:?} is mapped twice", outside);
            }
        }
    }
}
