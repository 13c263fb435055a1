//! What has to hold, whatever happens.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use trieste_nat::{Cursor, Record};
use trieste_simulator::Network;

use super::gateway::{Gateway, Plan};
use super::ledger::Fate;
use super::schedule::Event;
use super::world::World;

/// How long packets may go where nothing gets through any more: the longest time-out of a path that is used is a second,
/// and who hears the far end is told that it is not heard.
const DETECT: Duration = Duration::from_millis(1200);
/// How long after a link has come back it is known to be there.
const RETURN: Duration = Duration::from_millis(1000);

/// Two gateways and what is between them.
#[derive(Debug, Clone, Copy)]
struct Pair {
    /// Whether each of the two runs, and each of the ways gets through.
    flags: [bool; 4],
    /// Since when the flags are as they are.
    since: Instant,
    is_slow: bool,
    /// Since when nothing at all has changed. What suddenly takes longer than a time-out counts as lost for a while.
    calm_since: Instant,
}

impl Pair {
    fn works(&self) -> bool {
        self.flags == [true; 4]
    }
}

/// What works, as nobody in the world can know it at once.
pub(crate) struct Truth {
    plan: Plan,
    pairs: Vec<Pair>,
    runs: Vec<bool>,
    /// When a gateway last began or went on.
    resumed: Vec<Instant>,
    /// Where each packet was sealed last, and before that.
    hops: BTreeMap<usize, (Option<usize>, usize)>,
}

impl Truth {
    pub(crate) fn new(plan: Plan, now: Instant) -> Self {
        let count = plan.count();
        Self {
            plan,
            pairs: vec![
                Pair { flags: [true; 4], since: now, is_slow: false, calm_since: now };
                count * count
            ],
            runs: vec![true; count],
            resumed: vec![now; count],
            hops: BTreeMap::new(),
        }
    }

    fn pair(&self, a: usize, b: usize) -> Pair {
        self.pairs[a * self.plan.count() + b]
    }

    /// Something has changed.
    pub(crate) fn look(&mut self, runs: &[bool], network: &Network, now: Instant) {
        let count = self.plan.count();
        for (index, runs) in runs.iter().enumerate() {
            if *runs && !self.runs[index] {
                self.resumed[index] = now;
            }
            self.runs[index] = *runs;
        }
        for (a, b) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
            let flags = [runs[a], runs[b], !network.is_cut(a, b), !network.is_cut(b, a)];
            let is_slow = network.is_slow(a, b) || network.is_slow(b, a);
            let known = self.pairs[a * count + b];
            let since = if known.flags == flags { known.since } else { now };
            let is_calm = known.flags == flags && known.is_slow == is_slow;
            let calm_since = if is_calm { known.calm_since } else { now };
            self.pairs[a * count + b] = Pair { flags, since, is_slow, calm_since };
        }
    }

    /// A gateway has sealed a packet.
    pub(crate) fn pass(&mut self, id: usize, by: usize) {
        let before = self.hops.get(&id).map(|(_, last)| *last);
        self.hops.insert(id, (before, by));
    }

    /// Asserts that there is a reason why a packet went where it is lost: nobody could know yet, or there was no better way.
    pub(crate) fn explain(&self, id: usize, from: usize, to: usize, now: Instant) {
        let Pair { since, .. } = self.pair(from, to);
        assert!(
            !self.pair(from, to).works(),
            "packet {id} is lost between {from} and {to}, where nothing is wrong"
        );
        let is_sudden = now - since <= DETECT || now - self.resumed[from] <= DETECT;
        if is_sudden {
            return;
        }
        let siblings = |a, b| self.plan.are_siblings(a, b);
        assert!(
            !siblings(from, to),
            "packet {id} goes from {from} to {to}, which has been away for {:?}",
            now - since
        );
        let was_relayed = self.hops[&id].0.is_some_and(|before| siblings(before, from));
        let may_take = |other: &usize| *other != from && !(was_relayed && siblings(*other, from));
        let better = (0..self.plan.count()).filter(may_take).find(|other| {
            let pair = self.pair(from, *other);
            pair.works() && now - pair.calm_since >= RETURN
        });
        assert_eq!(
            better,
            None,
            "packet {id} goes from {from} to {to}, which has been away for {:?}, and there is a better way",
            now - since
        );
    }
}

impl Gateway {
    /// Asserts that packets that came in or were made went out, are held, or are counted as dropped.
    pub(crate) fn assert_balanced(&self, now: Instant) {
        let counters = self.line.snapshot(now);
        assert!(counters.conservation().holds(), "{:?} of {counters:?}", counters.conservation());
    }

    fn sessions(&self, now: Instant) -> Vec<Record> {
        let mut all = Vec::new();
        if let Some(nat) = self.line.nat() {
            nat.export(Cursor::default(), 1 << 20, now, &mut all);
        }
        all
    }
}

impl World {
    /// Asserts that no outside end is two insiders', in no gateway's table, its own sessions or copies.
    pub(crate) fn assert_one_owner(&self) {
        for cluster in [1, 2] {
            let mut inside_of = BTreeMap::new();
            for index in self.plan.of(cluster) {
                for record in
                    self.places[index].gateway.iter().flat_map(|gateway| gateway.sessions(self.now()))
                {
                    let outside = (record.protocol, record.outside, record.outside_port);
                    let inside = (record.inside, record.inside_port);
                    let (there, by) = *inside_of.entry(outside).or_insert((inside, index));
                    assert_eq!(there, inside, "{outside:?} at gateways {by} and {index}");
                }
            }
        }
    }

    /// Asserts of all packets what can be said at the end, when nothing is under way any more.
    pub(crate) fn assert_explained(&self, events: &[Event], peace: Instant) {
        for place in &self.places {
            place.gateway.as_ref().expect("all live").assert_balanced(self.now());
        }
        for (id, entry) in self.ledger.entries.iter().enumerate() {
            let is_near =
                |event: &&Event| event.from <= entry.at + DETECT && entry.at <= event.until + DETECT;
            let why = || {
                format!(
                    "packet {id}, {:?} after the start, {entry:?}: {:?}",
                    entry.at - self.queue.start(),
                    self.drops()
                )
            };
            match entry.fate {
                Some(Fate::Delivered(_)) => {}
                Some(Fate::Lost(..)) => assert!(entry.at < peace, "lost after all is over: {}", why()),
                None => {
                    assert!(self.plan.translates, "dropped by a gateway: {}", why());
                    assert!(entry.at < peace, "dropped after all is over: {}", why());
                    assert!(events.iter().any(|event| is_near(&event)), "dropped without a fault: {}", why());
                }
            }
        }
    }
}
