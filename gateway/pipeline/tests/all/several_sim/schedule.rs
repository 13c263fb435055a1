//! What happens to gateways and links, and when.

use std::time::{Duration, Instant};

use trieste_simulator::Random;

use super::gateway::Plan;

/// Most faults at once.
const AT_ONCE: usize = 3;

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A gateway does not run for a while, and goes on then.
    Stall(usize),
    /// Its process ends; a new one begins afterwards.
    Kill(usize),
    /// It is asked to leave its flows to others.
    Drain(usize),
    /// Nothing gets through these ways, from and to.
    Cut(Vec<(usize, usize)>),
    /// What takes these ways takes longer.
    Delay(Vec<(usize, usize)>, Duration),
}

/// A fault and its time.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) fault: Fault,
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

/// A random schedule between two times. At least one gateway of each cluster lives throughout.
pub(crate) fn draw(plan: &Plan, random: &mut Random, from: Instant, until: Instant) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let mut at = from;
    while at < until {
        let end = at + random.millis(20, 1500);
        let fault = fault(plan, random);
        let overlapping = || events.iter().filter(|event| event.until > at);
        let is_there = overlapping().any(|event| is_same(&event.fault, &fault));
        if overlapping().count() < AT_ONCE && !is_there && leaves_one(plan, &fault, overlapping()) {
            events.push(Event { fault, from: at, until: end });
        }
        at += random.millis(10, 700);
    }
    events
}

fn fault(plan: &Plan, random: &mut Random) -> Fault {
    let one = random.below(plan.count());
    let other = (one + 1 + random.below(plan.count() - 1)) % plan.count();
    let others = (0..plan.count()).filter(|other| *other != one);
    match random.below(10) {
        0 | 1 => Fault::Stall(one),
        2 | 3 => Fault::Kill(one),
        4 => Fault::Drain(one),
        5 => Fault::Cut(vec![(one, other), (other, one)]),
        6 => Fault::Cut(vec![(one, other)]),
        7 => Fault::Cut(others.flat_map(|other| [(one, other), (other, one)]).collect()),
        8 if random.below(2) == 0 => Fault::Cut(others.map(|other| (one, other)).collect()),
        8 => Fault::Cut(others.map(|other| (other, one)).collect()),
        _ => Fault::Delay(vec![(one, other), (other, one)], random.millis(20, 120)),
    }
}

/// Whether both are of one gateway's process.
fn is_same(a: &Fault, b: &Fault) -> bool {
    match (process(a), process(b)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

fn process(fault: &Fault) -> Option<usize> {
    match fault {
        Fault::Stall(gateway) | Fault::Kill(gateway) | Fault::Drain(gateway) => Some(*gateway),
        Fault::Cut(_) | Fault::Delay(..) => None,
    }
}

fn leaves_one<'a>(plan: &Plan, fault: &Fault, others: impl Iterator<Item = &'a Event>) -> bool {
    let Some(gateway) = process(fault) else { return true };
    let cluster = plan.of(plan.cluster(gateway));
    let away = others.filter_map(|event| process(&event.fault)).filter(|other| cluster.contains(other));
    away.count() + 1 < cluster.len()
}
