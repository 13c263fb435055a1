//! Rolls on clusters that are played: what is asked for happens some time later, and nobody is without a gateway meanwhile.

use proptest::prelude::*;

use super::*;

/// A remote cluster.
const FAR: &str = "west";
/// How many looks it takes until a gateway has handed its flows over, a pod has gone, and its successor is ready.
const DELAY: u32 = 2;

/// A cluster whose gateways do what is asked of them, after a while.
#[derive(Debug, Clone)]
struct World {
    template: u32,
    gateways: Vec<Played>,
    /// A template whose pods never become ready.
    broken: Option<u32>,
    /// Whether one gateway is active while the others stand by.
    is_one_active: bool,
    /// The most gateways that were not there at the same time.
    most_absent: usize,
    /// Pods that were replaced while flows went by them and another gateway could have carried them.
    cut: usize,
}

#[derive(Debug, Clone)]
struct Played {
    template: u32,
    is_asked: bool,
    is_for_update: bool,
    drain: Drain,
    /// How many looks until what goes on has ended.
    busy: u32,
    is_ready: bool,
}

impl World {
    fn new(count: usize, is_one_active: bool) -> Self {
        let gateway = Played {
            template: 1,
            is_asked: false,
            is_for_update: false,
            drain: Drain::No,
            busy: 0,
            is_ready: true,
        };
        let gateways = vec![gateway; count];
        Self { template: 2, gateways, broken: None, is_one_active, most_absent: 0, cut: 0 }
    }

    /// Returns whether a gateway carries traffic: of those that stand by for one another the first that is ready.
    fn is_active(&self, index: usize) -> bool {
        let first = self.gateways.iter().position(|gateway| gateway.is_ready);
        if self.is_one_active { first == Some(index) } else { self.gateways[index].is_ready }
    }

    fn view(&self) -> View {
        let gateway = |(index, played): (usize, &Played)| Gateway {
            node: format!("gw{index}"),
            is_node_ready: true,
            pod: Some(Pod {
                name: format!("pod-{index}"),
                is_current: played.template == self.template,
                is_ready: played.is_ready,
                is_ending: false,
            }),
            // It goes with its gateway.
            object: played.is_ready.then(|| format!("gw{index}")),
            is_active: self.is_active(index),
            is_leader: index == 0,
            is_asked: played.is_asked,
            is_for_update: played.is_for_update,
            drain: played.drain,
            clusters: [(FAR.to_owned(), played.is_ready)]
                .into_iter()
                .filter(|_| self.is_active(index))
                .collect(),
            is_cut: false,
        };
        let gateways = self.gateways.iter().enumerate().map(gateway).collect();
        View { is_observed: true, missing: 0, gateways }
    }

    fn index(gateway: &Gateway) -> usize {
        gateway.node[2..].parse().unwrap()
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Done | Step::Wait(_) => self.pass(),
            Step::Drain(gateway) => self.mark(gateway, true),
            Step::Undrain(gateway) => self.mark(gateway, false),
            Step::Restart(gateway, _) => {
                let index = Self::index(gateway);
                let could = |(other, played): (usize, &Played)| {
                    other != index && played.is_ready && self.is_active(other)
                };
                let is_carrying = self.is_active(index) && self.gateways[index].drain != Drain::Done;
                self.cut += usize::from(is_carrying && self.gateways.iter().enumerate().any(could));
                let played = &mut self.gateways[index];
                (played.template, played.is_ready, played.busy) = (self.template, false, DELAY);
                (played.is_asked, played.is_for_update) = (false, false);
            }
        }
        self.most_absent =
            self.most_absent.max(self.gateways.iter().filter(|gateway| !gateway.is_ready).count());
    }

    fn mark(&mut self, gateway: &Gateway, is_drained: bool) {
        let played = &mut self.gateways[Self::index(gateway)];
        (played.is_asked, played.is_for_update, played.busy) = (is_drained, is_drained, DELAY);
    }

    /// Lets time pass.
    fn pass(&mut self) {
        let broken = self.broken;
        for played in &mut self.gateways {
            played.busy = played.busy.saturating_sub(1);
            if played.busy == 0 {
                played.is_ready = played.is_ready || Some(played.template) != broken;
                played.drain = if played.is_asked { Drain::Done } else { Drain::No };
            } else if played.is_asked {
                played.drain = Drain::Going;
            }
        }
    }

    /// Rolls until the end, or until nothing has happened for long. Returns whether it came to its end, after at most so many looks.
    fn roll(&mut self, looks: usize) -> bool {
        let (roll, mut idle) = (Roll::new(&self.view()), 0);
        for _ in 0..looks {
            let step = roll.next(&self.view(), Duration::from_secs(idle));
            match step {
                Step::Done => return true,
                Step::Wait(_) => idle += 1,
                Step::Drain(_) | Step::Restart(..) | Step::Undrain(_) => idle = 0,
            }
            if idle > 60 {
                return false;
            }
            self.take(&step);
        }
        false
    }

    fn is_finished(&self) -> bool {
        let is_done =
            |gateway: &Played| gateway.template == self.template && gateway.is_ready && !gateway.is_asked;
        self.gateways.iter().all(is_done)
    }
}

proptest! {
    #[test]
    fn gateways_are_replaced_one_by_one_however_often_the_roll_is_interrupted(
        count in 1_usize..5, is_one_active: bool, interruptions in prop::collection::vec(1_usize..12, 0..6)
    ) {
        let mut world = World::new(count, is_one_active);
        for looks in interruptions {
            world.roll(looks);
        }
        prop_assert!(world.roll(500), "{world:?}");
        prop_assert!(world.is_finished(), "{world:?}");
        prop_assert_eq!((world.most_absent, world.cut), (1, 0), "{:?}", world);
    }

    #[test]
    fn a_version_that_does_not_become_ready_stops_at_one_gateway_and_going_back_needs_no_other_means(
        count in 1_usize..5, is_one_active: bool, looks in 1_usize..40
    ) {
        let mut world = World::new(count, is_one_active);
        world.broken = Some(2);
        prop_assert!(!world.roll(looks));
        prop_assert!(!world.roll(500), "it stops");
        let replaced = world.gateways.iter().filter(|gateway| gateway.template == 2).count();
        prop_assert_eq!((replaced, world.cut, world.most_absent), (1, 0, 1), "{:?}", world);
        world.template = 3;
        prop_assert!(world.roll(500) && world.is_finished(), "{:?}", world);
        prop_assert_eq!((world.cut, world.most_absent), (0, 1), "{:?}", world);
    }
}

fn gateway(node: &str, is_current: bool) -> Gateway {
    Gateway {
        node: node.to_owned(),
        is_node_ready: true,
        pod: Some(Pod { name: format!("pod-{node}"), is_current, is_ready: true, is_ending: false }),
        object: Some(node.to_owned()),
        is_active: true,
        clusters: [(FAR.to_owned(), true)].into(),
        ..Gateway::default()
    }
}

fn view(gateways: &[Gateway]) -> View {
    View { is_observed: true, missing: 0, gateways: gateways.to_vec() }
}

fn next(before: &[Gateway], now: &[Gateway], seconds: u64) -> Step {
    Roll::new(&view(before)).next(&view(now), Duration::from_secs(seconds))
}

#[test]
fn the_leader_is_the_last_and_what_stands_by_the_first() {
    let leader = Gateway { is_leader: true, ..gateway("a", false) };
    let standby = Gateway { is_active: false, ..gateway("c", false) };
    let all = [leader.clone(), gateway("b", false), standby.clone()];
    assert_eq!(next(&all, &all, 0), Step::Restart(standby, Why::StandsBy));
    let all = [leader.clone(), gateway("b", false)];
    assert_eq!(next(&all, &all, 0), Step::Drain(gateway("b", false)));
    let all = [leader.clone(), gateway("b", true)];
    assert_eq!(next(&all, &all, 0), Step::Drain(leader));
}

#[test]
fn a_gateway_by_which_flows_come_for_ever_is_replaced_after_a_while() {
    let asked = Gateway { is_asked: true, is_for_update: true, drain: Drain::Going, ..gateway("a", false) };
    let all = [asked.clone(), gateway("b", false)];
    assert_eq!(next(&all, &all, 29), Step::Wait(Reason::Draining { node: "a".to_owned() }));
    assert_eq!(next(&all, &all, 30), Step::Restart(asked, Why::StillDraining));
}

#[test]
fn a_drain_that_somebody_has_asked_for_stays() {
    let asked = Gateway { is_asked: true, drain: Drain::Done, ..gateway("a", false) };
    let all = [asked.clone(), gateway("b", true)];
    assert_eq!(next(&all, &all, 0), Step::Restart(asked, Why::Drained));
    let replaced = Gateway { is_asked: true, drain: Drain::Done, ..gateway("a", true) };
    let all = [replaced, gateway("b", true)];
    assert_eq!(next(&all, &all, 0), Step::Done);
}

#[test]
fn what_was_reached_is_reached_before_the_next_gateway_is_touched() {
    let before = [gateway("a", false), gateway("b", false)];
    let asked = Gateway { is_asked: true, is_for_update: true, drain: Drain::Done, ..gateway("a", true) };
    let not_reaching = |clusters: &[(&str, bool)], is_cut: bool| {
        let clusters =
            clusters.iter().map(|(cluster, is_reached)| ((*cluster).to_owned(), *is_reached)).collect();
        let replaced = Gateway { clusters, is_cut, ..asked.clone() };
        match next(&before, &[replaced, gateway("b", false)], 0) {
            Step::Wait(Reason::NotReaching { node, clusters }) => {
                assert_eq!((node.as_str(), clusters.as_slice()), ("a", [FAR.to_owned()].as_slice()));
                true
            }
            Step::Undrain(_) => false,
            step @ (Step::Done | Step::Drain(_) | Step::Restart(..) | Step::Wait(_)) => panic!("{step:?}"),
        }
    };
    assert!(
        not_reaching(&[(FAR, false)], false)
            && not_reaching(&[], false)
            && not_reaching(&[(FAR, false)], true)
    );
    assert!(!not_reaching(&[(FAR, true)], false));
    assert!(!not_reaching(&[], true), "the list is cut short");
    // A cluster that has left the set meanwhile.
    let [a, b] = [asked, gateway("b", false)].map(|gateway| Gateway { clusters: BTreeMap::new(), ..gateway });
    assert!(matches!(next(&before, &[a, b], 0), Step::Undrain(_)));
}

#[test]
fn a_run_that_goes_on_is_no_less_strict_than_the_one_that_has_stopped() {
    let lost = Gateway { clusters: [(FAR.to_owned(), false)].into(), ..gateway("a", true) };
    let all = [lost, gateway("b", false)];
    assert!(matches!(next(&all, &all, 0), Step::Wait(Reason::NotReaching { node, .. }) if node == "a"));
    let passive = Gateway { is_active: false, ..gateway("a", true) };
    let before = [gateway("a", false), gateway("b", false)];
    let now = [passive, gateway("b", false)];
    assert_eq!(next(&before, &now, 0), Step::Wait(Reason::NotActive { now: 1, before: 2 }));
}

#[test]
fn the_only_gateway_that_carries_traffic_is_not_taken_while_another_may_come() {
    let only = gateway("a", false);
    let step = |other: Gateway, seconds: u64| {
        let all = [only.clone(), other];
        next(&all, &all, seconds)
    };
    let alone = Step::Wait(Reason::Alone { node: "a".to_owned() });
    let drained = Gateway { is_asked: true, drain: Drain::Done, ..gateway("b", true) };
    assert_eq!(step(drained, 999), alone, "somebody has drained it");
    let starting = Gateway { drain: Drain::Going, ..gateway("b", false) };
    assert_eq!(step(starting, 0), alone);
    let lost = Gateway { is_node_ready: false, ..gateway("b", false) };
    assert_eq!(step(lost.clone(), 29), alone, "its node may be starting again");
    assert_eq!(step(lost, 30), Step::Restart(only.clone(), Why::Alone));
    let standby = Gateway { is_active: false, ..gateway("b", true) };
    assert_eq!(step(standby, 0), Step::Restart(only.clone(), Why::TakenOver));
    assert_eq!(
        next(std::slice::from_ref(&only), std::slice::from_ref(&only), 0),
        Step::Restart(only, Why::Alone)
    );
}

#[test]
fn a_gateway_without_a_pod_is_none() {
    let podless = Gateway { pod: None, is_asked: true, is_for_update: true, ..gateway("b", false) };
    let all = [gateway("a", true), podless.clone()];
    assert_eq!(next(&all, &all, 0), Step::Undrain(podless), "but for its mark");
}

#[test]
fn nodes_that_are_away_are_left_out_and_no_mark_stays_on_them() {
    let lost = Gateway { is_node_ready: false, is_asked: true, is_for_update: true, ..gateway("a", false) };
    let all = [lost.clone(), gateway("b", true)];
    assert_eq!(next(&all, &all, 0), Step::Undrain(lost.clone()));
    let unmarked = Gateway { is_asked: false, is_for_update: false, ..lost };
    let all = [unmarked, gateway("b", true)];
    assert_eq!(next(&all, &all, 0), Step::Done);
}

#[test]
fn pods_that_are_not_there_yet_are_waited_for() {
    let all = [gateway("a", true), gateway("b", false)];
    let waits = |view: &View| match Roll::default().next(view, Duration::ZERO) {
        Step::Wait(reason) => reason,
        step @ (Step::Done | Step::Drain(_) | Step::Restart(..) | Step::Undrain(_)) => panic!("{step:?}"),
    };
    assert_eq!(waits(&View { missing: 1, ..view(&all) }), Reason::Missing(1));
    assert_eq!(waits(&View { is_observed: false, ..view(&all) }), Reason::NotObserved);
    let starting = Gateway { drain: Drain::Going, ..gateway("a", true) };
    assert_eq!(waits(&view(&[starting, gateway("b", false)])), Reason::NotTaking { node: "a".to_owned() });
    let mut ending = gateway("a", false);
    ending.pod.as_mut().unwrap().is_ending = true;
    assert_eq!(waits(&view(&[ending, gateway("b", false)])), Reason::Missing(1));
}
