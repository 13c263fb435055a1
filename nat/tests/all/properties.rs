//! Laws that hold whatever is sent, in whatever order, while rules and time change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use proptest::prelude::*;
use trieste_nat::{
    Bucket, Change, Cursor, EgressKind, Facts, IngressKind, Kind, Record, Rewrite, Rules, Translation,
};
use trieste_packet::wire::tcp::{ACK, FIN, RST, SYN};

use crate::support::*;

/// Which rules there are: the cluster's first addresses, and three choices.
#[derive(Debug, Clone, Copy)]
struct Choice {
    globals: usize,
    namespace: bool,
    pods: bool,
    headless: bool,
}

#[derive(Debug, Clone)]
enum Step {
    Leave(Facts),
    Enter(Facts),
    /// The answer to one of the packets that have left.
    Answer(usize, u8),
    Wait(u64),
    Expire(usize),
    Rules(Choice),
}

fn rules_of(choice: Choice, epoch: u64) -> Rules {
    let mut builder = builder(epoch);
    let globals = &cluster_globals()[..choice.globals];
    let cluster = builder.egress(EgressKind::Cluster, "cluster", globals).unwrap();
    builder.member(cluster, "10.1.0.0/24".parse().unwrap());
    if choice.namespace {
        let namespace = builder.egress(EgressKind::Namespace, "shop/all", &[NAMESPACE_GLOBAL]).unwrap();
        builder.member(namespace, NAMESPACE_POD.into());
        builder.member(namespace, SELECTED_POD.into());
    }
    if choice.pods {
        let pods = builder.egress(EgressKind::Pods, "shop/some", &[SELECTED_GLOBAL]).unwrap();
        builder.member(pods, SELECTED_POD.into());
        builder.member(pods, HEADLESS_POD.into());
    }
    if choice.headless {
        builder.ingress(IngressKind::HeadlessPod, "shop/pod-db-0", HEADLESS_GLOBAL, HEADLESS_POD).unwrap();
    }
    builder.build()
}

fn choice() -> impl Strategy<Value = Choice> {
    (1..=8_usize, any::<[bool; 3]>()).prop_map(|(globals, [namespace, pods, headless])| Choice {
        globals,
        namespace,
        pods,
        headless,
    })
}

fn pod() -> impl Strategy<Value = Ipv4Addr> {
    prop::sample::select(vec![POD, OTHER_POD, SELECTED_POD, NAMESPACE_POD, HEADLESS_POD])
}

fn remote() -> impl Strategy<Value = Ipv4Addr> {
    prop::sample::select(vec![REMOTE, OTHER_REMOTE, Ipv4Addr::new(242, 3, 0, 1)])
}

/// Few ports, so that flows meet.
fn port() -> impl Strategy<Value = u16> {
    prop_oneof![1..4_u16, 1022..1026_u16, 40_000..40_004_u16]
}

fn flags() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![SYN, SYN, SYN_ACK, ACK, ACK, FIN | ACK, RST, 0])
}

fn packet(
    from: impl Strategy<Value = Ipv4Addr>,
    to: impl Strategy<Value = Ipv4Addr>,
) -> impl Strategy<Value = Facts> {
    (0..5_u8, from, to, port(), port(), flags()).prop_map(|(kind, from, to, from_port, to_port, flags)| {
        match kind {
            0 | 1 => tcp(flags, (from, from_port), (to, to_port)),
            2 => udp((from, from_port), (to, to_port)),
            3 => Facts {
                kind: if flags == ACK { Kind::Reply } else { Kind::Request },
                ..ping(from, to, from_port)
            },
            _ => sctp(from, to),
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    let global = prop_oneof![
        (1..=8_u8).prop_map(|last| Ipv4Addr::new(242, 1, 0, last)),
        prop::sample::select(vec![SELECTED_GLOBAL, NAMESPACE_GLOBAL, HEADLESS_GLOBAL]),
    ];
    prop_oneof![
        8 => packet(pod(), remote()).prop_map(Step::Leave),
        2 => packet(remote(), global).prop_map(Step::Enter),
        6 => (any::<prop::sample::Index>(), flags())
            .prop_map(|(index, flags)| Step::Answer(index.index(1 << 16), flags)),
        2 => (0..400_u64).prop_map(Step::Wait),
        1 => (0..20_usize).prop_map(Step::Expire),
        1 => choice().prop_map(Step::Rules),
    ]
}

/// A translation, what has left it, and its sessions as the stream of changes tells of them.
struct World {
    lab: Lab,
    left: Vec<(Facts, Facts)>,
    told: BTreeMap<String, Record>,
}

impl World {
    fn new(choice: Choice, share_above: u8) -> Self {
        let lab = Lab::with(rules_of(choice, 0), |config| {
            config.limits.sessions = 1 << 10;
            config.limits.share_tcp_above_percent = share_above;
        });
        Self { lab, left: Vec::new(), told: BTreeMap::new() }
    }

    fn run(&mut self, step: &Step, epoch: u64) {
        match step {
            Step::Leave(flow) => self.leave(flow),
            Step::Enter(flow) => {
                let _ = self.lab.enter(flow);
            }
            Step::Answer(index, flags) if !self.left.is_empty() => {
                let (_, outside) = self.left[index % self.left.len()];
                let _ = self.lab.enter(&answer(&outside, *flags));
            }
            Step::Answer(..) => {}
            Step::Wait(seconds) => self.lab.wait(*seconds),
            Step::Expire(budget) => assert!(self.lab.nat.expire(self.lab.now, *budget) <= *budget),
            Step::Rules(choice) => self.lab.rules = rules_of(*choice, epoch),
        }
        self.listen();
    }

    /// A packet out, and at once its answer: it finds the same session, and what comes in is what was asked for.
    fn leave(&mut self, flow: &Facts) {
        let Ok(translation) = self.lab.in2out(flow) else { return };
        let outside = applied(flow, &translation.rewrite);
        let sessions = self.lab.nat.stats().sessions;
        let back = answer(&outside, ACK);
        let returned = self.lab.out2in(&back).unwrap();
        assert_eq!(applied(&back, &returned.rewrite), answer(flow, ACK), "the answer comes back");
        assert_eq!(self.lab.nat.stats().sessions, sessions, "by the same session");
        assert_eq!(self.lab.rules.bucket_outbound(flow), self.lab.rules.bucket_inbound(&back));
        assert!(self.lab.nat.touch(translation.session.unwrap(), 0, self.lab.now));
        self.left.push((*flow, outside));
    }

    fn listen(&mut self) {
        for change in self.lab.nat.changes() {
            match change {
                Change::Is(record) => {
                    self.told.insert(name(&record), record);
                }
                Change::Gone(record) => assert!(self.told.remove(&name(&record)).is_some(), "{record:?}"),
                Change::Lost => panic!("nothing is lost when all is taken"),
            }
        }
    }

    fn check(&self) {
        let records = exported(&self.lab);
        let stats = self.lab.nat.stats();
        no_two_mappings_share_an_outside_end(&records);
        let mut by_inside = BTreeMap::new();
        for record in &records {
            if !record.headless && matches!(record.protocol, TCP | UDP | ICMP) {
                assert_eq!(Bucket::of_port(record.outside_port), self.lab.rules.bucket_of(record));
            }
            let session = (record.protocol, record.inside, record.inside_port, record.headless);
            by_inside
                .entry(session)
                .or_insert_with(BTreeSet::new)
                .insert((record.outside, record.outside_port));
            let told = self.told.get(&name(record)).expect("every session was told of");
            assert_eq!(
                (told.inside, told.inside_port, told.phase),
                (record.inside, record.inside_port, record.phase)
            );
        }
        assert_eq!(usize::try_from(stats.sessions).unwrap(), self.told.len());
        assert_eq!(stats.sessions, stats.addresses.iter().map(|address| address.sessions).sum::<u32>());
        assert!(u64::from(stats.sessions) == stats.begun - stats.ended && stats.mappings <= stats.sessions);
    }
}

fn name(record: &Record) -> String {
    format!(
        "{} {}:{} {}:{}",
        record.protocol, record.outside, record.outside_port, record.remote, record.remote_port
    )
}

/// All sessions, in a fixed order, fetched a few places at a time.
fn exported(lab: &Lab) -> Vec<Record> {
    let mut records = Vec::new();
    let mut cursor = Some(Cursor::default());
    while let Some(at) = cursor {
        cursor = lab.nat.export(at, 7, lab.now, &mut records);
    }
    records.sort_by_key(name);
    records
}

/// But TCP's above the fill level, towards different remote addresses, and what has no ports, likewise.
fn no_two_mappings_share_an_outside_end(records: &[Record]) {
    let mut owners = BTreeMap::new();
    for record in records {
        let shareable = record.protocol == TCP || record.protocol == SCTP;
        let remote = shareable.then_some(record.remote);
        let owner = owners
            .entry((record.protocol, record.outside, record.outside_port, remote))
            .or_insert((record.inside, record.inside_port));
        assert_eq!(*owner, (record.inside, record.inside_port), "{record:?}");
    }
}

/// Whether rules still let this flow leave as it does.
fn is_allowed(choice: Choice, inside: Ipv4Addr, rewrite: &Rewrite) -> bool {
    let global = rewrite.address;
    match global {
        SELECTED_GLOBAL => choice.pods && (inside == SELECTED_POD || inside == HEADLESS_POD),
        NAMESPACE_GLOBAL => choice.namespace && (inside == SELECTED_POD || inside == NAMESPACE_POD),
        HEADLESS_GLOBAL => choice.headless && inside == HEADLESS_POD,
        _ => cluster_globals()[..choice.globals].contains(&global),
    }
}

#[test]
fn a_bucket_is_adopted_whole_by_another_owner() {
    let rules = rules_of(Choice { globals: 8, namespace: true, pods: true, headless: true }, 1);
    let mut first = World::new(Choice { globals: 8, namespace: true, pods: true, headless: true }, 90);
    first.lab.rules = rules.clone();
    for port in 2000..4000 {
        for pod in [POD, SELECTED_POD, NAMESPACE_POD, HEADLESS_POD] {
            first.leave(&udp((pod, port), (REMOTE, 53)));
            first.leave(&tcp(SYN, (pod, port), (OTHER_REMOTE, 443)));
        }
    }
    let adopted = Bucket::of_port(17);
    let records = exported(&first.lab).into_iter().filter(|record| rules.bucket_of(record) == adopted);
    let mut second = World::new(Choice { globals: 8, namespace: true, pods: true, headless: true }, 90);
    second.lab.rules = rules.clone();
    let taken =
        records.map(|record| assert!(second.lab.nat.restore(&record, &rules, second.lab.now))).count();
    // The limit of this small world, and a 64th of it.
    assert!(first.lab.nat.stats().sessions == 1 << 10 && (4..40).contains(&taken), "{taken}");
    for (flow, outside) in &first.left {
        let owner = rules.bucket_outbound(flow);
        assert_eq!(rules.bucket_inbound(&outside.reversed()), owner);
        let answered = second.lab.enter(&outside.reversed());
        assert_eq!(answered.ok(), (owner == adopted).then(|| flow.reversed()), "{flow:?}");
    }
}

/// A restart without a snapshot, or another gateway that takes over without any record.
#[test]
fn who_knows_nothing_maps_nearly_everything_as_before() {
    let mut first = Lab::new(plain_rules(1, &cluster_globals()));
    let flows: Vec<_> = (0..5000).map(|port| tcp(SYN, (POD, 20_000 + port), (REMOTE, 443))).collect();
    let before: Vec<_> = flows.iter().map(|flow| first.leave(flow).unwrap()).collect();
    let mut second = Lab::new(plain_rules(1, &cluster_globals()));
    second.nat = trieste_nat::Nat::new(trieste_nat::Config::default(), 4711, second.now);
    // In another order, and in the middle of their connections.
    let again = |flow: &Facts| Facts { kind: Kind::Tcp(ACK), ..*flow };
    let after: Vec<_> = flows.iter().rev().map(|flow| second.leave(&again(flow)).unwrap()).collect();
    let same =
        before.iter().zip(after.iter().rev()).filter(|(one, other)| one.source_port == other.source_port);
    let same = same.count();
    assert!(same > 4500, "{same} of 5000");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_tables_are_consistent(
        first in choice(),
        share_above in prop::sample::select(vec![0_u8, 90]),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut world = World::new(first, share_above);
        for (step, epoch) in steps.iter().zip(1..) {
            world.run(step, epoch);
            world.check();
        }
        world.lab.wait(100_000);
        while world.lab.expire() > 0 {}
        world.listen();
        let stats = world.lab.nat.stats();
        prop_assert_eq!((stats.sessions, stats.mappings, stats.shared), (0, 0, 0));
        prop_assert!(stats.addresses.is_empty() && world.told.is_empty());
    }

    #[test]
    fn rule_changes_never_move_an_established_flow_unless_they_forbid_it(
        first in choice(),
        flows in prop::collection::vec(packet(pod(), remote()), 1..40),
        changes in prop::collection::vec(choice(), 1..12),
    ) {
        let mut lab = Lab::new(rules_of(first, 0));
        let mut established: Vec<(Facts, Translation)> = Vec::new();
        for flow in flows {
            let Ok(translation) = lab.in2out(&flow) else { continue };
            established.retain(|(other, _)| !is_same_flow(other, &flow));
            established.push((flow, translation));
        }
        for (change, epoch) in changes.into_iter().zip(1..) {
            lab.rules = rules_of(change, epoch);
            established.retain(|(flow, before)| {
                let still = is_allowed(change, flow.source, &before.rewrite);
                let now = lab.in2out(flow);
                if still {
                    let now = now.unwrap();
                    assert_eq!(now.rewrite, before.rewrite, "{flow:?} was moved");
                    let outside = applied(flow, &now.rewrite);
                    let back = lab.enter(&outside.reversed());
                    assert_eq!(back, Ok(flow.reversed()), "its answers still arrive");
                } else if let Ok(now) = now {
                    assert!(is_allowed(change, flow.source, &now.rewrite), "{flow:?} leaves with what is not its own");
                }
                still
            });
        }
    }

    #[test]
    fn what_is_restored_is_what_was_exported(
        first in choice(),
        share_above in prop::sample::select(vec![0_u8, 90]),
        steps in prop::collection::vec(step(), 1..150),
        order in any::<u64>(),
    ) {
        let mut world = World::new(first, share_above);
        for step in &steps {
            if !matches!(step, Step::Rules(_)) {
                world.run(step, 0);
            }
        }
        world.lab.expire();
        let before = exported(&world.lab);
        let mut after = World::new(first, share_above);
        let mut records = before.clone();
        // Any order will do.
        records.sort_by_key(|record| name(record).bytes().fold(order, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        }));
        for record in &records {
            prop_assert!(after.lab.nat.restore(record, &after.lab.rules, after.lab.now), "{:?}", record);
            prop_assert!(!after.lab.nat.restore(record, &after.lab.rules, after.lab.now), "only once");
        }
        prop_assert_eq!(&exported(&after.lab), &before);
        let (restored, original) = (after.lab.nat.stats(), world.lab.nat.stats());
        prop_assert_eq!(restored.addresses, original.addresses, "the same ports are in use");
        prop_assert_eq!((restored.mappings, restored.shared), (original.mappings, original.shared));
        after.listen();
        after.check();
        for record in before.iter().filter(|record| record.protocol == UDP) {
            let flow = udp((record.inside, record.inside_port), (record.remote, record.remote_port));
            prop_assert_eq!(after.lab.leave(&flow), world.lab.leave(&flow));
        }
    }

    #[test]
    fn any_record_can_be_read_back_without_harm(
        first in choice(),
        protocol in prop::sample::select(vec![TCP, UDP, ICMP, SCTP, 0, 255]),
        inside in prop_oneof![pod(), any::<u32>().prop_map(Ipv4Addr::from)],
        outside in (1..=8_u8).prop_map(|last| Ipv4Addr::new(242, 1, 0, last)),
        ports in any::<[u16; 3]>(),
        headless in any::<bool>(),
        seconds_left in any::<u32>(),
        phase in prop::sample::select(vec![trieste_nat::Phase::Plain, trieste_nat::Phase::Established]),
    ) {
        let mut world = World::new(first, 90);
        let [inside_port, outside_port, remote_port] = ports;
        let record = Record {
            protocol, phase, headless, inside, inside_port, outside, outside_port,
            remote: REMOTE, remote_port, seconds_left,
        };
        let taken = world.lab.nat.restore(&record, &world.lab.rules, world.lab.now);
        world.listen();
        world.check();
        prop_assert_eq!(u32::from(taken), world.lab.nat.stats().sessions);
    }
}

fn is_same_flow(one: &Facts, other: &Facts) -> bool {
    let ends = |flow: &Facts| {
        (flow.protocol, flow.source, flow.source_port, flow.destination, flow.destination_port)
    };
    ends(one) == ends(other)
}
