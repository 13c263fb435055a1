//! The simulated clusters, the network between nodes and API servers, and what goes wrong there.
//!
//! ```text
//!   node ──request (late, lost)──▶ store ──answer (late, lost)──▶ node
//!                                    └──watch (late, reordered, dropped and re-listed)──▶ every node
//! ```

mod faults;
mod messages;
mod watches;

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;
use trieste_control::api::ClusterSpec;
use trieste_control::store::{StoreError, StoreEvent};
use trieste_simulator::{Queue, Random};

use super::hostile::Hostile;
use super::node::{Answer, Call, Member, Node, Purpose};
use super::store::{Change, SimStore};
use messages::no_answer;

/// Until when things go wrong, in milliseconds.
const FAULTS_END: u64 = 25_000;

/// From when on nothing is under way that went wrong: the slowest message has arrived, the longest wait is over.
pub(crate) const QUIET: u64 = FAULTS_END + 20_000;

/// By when everything must have settled: a lease duration, a gateway's death, and the waits between tries.
pub(crate) const SETTLED: u64 = FAULTS_END + 40_000;

/// How long after a hand on the Lease two terms may share a number: until the last leader's renewal has run out.
const EDIT_GRACE: u64 = 14_000;

enum Event {
    Wake(usize),
    Arrive { from: Sender, purpose: Purpose, call: Box<Call>, id: u64 },
    Answer { to: Sender, id: u64, purpose: Purpose, answer: Box<Answer> },
    Timeout { to: Sender, id: u64 },
    Watch { to: Sender, stream: usize, epoch: u32, seen: Box<Seen> },
    Relist { to: Sender, stream: usize },
    Restart(usize),
    Mischief,
    Hostile,
    Calm,
}

/// A node's process: an answer to a former one reaches nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sender {
    node: usize,
    process: u32,
}

enum Seen {
    Lease(Option<trieste_control::election::Lease>),
    Objects(StoreEvent),
}

/// What a node's surroundings do to it.
#[derive(Debug, Default)]
struct Place {
    process: u32,
    is_down: bool,
    paused_until: u64,
    /// Until when its own API server and the broker are out of reach.
    cut_until: [u64; 2],
    epochs: [u32; 6],
    /// When the newest event of each stream arrives: streams are in order unless something goes wrong.
    last_seen: [u64; 6],
    pending: BTreeMap<u64, Purpose>,
    next_id: u64,
    wake: u64,
}

pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    pub(crate) members: Vec<Member>,
    /// Each cluster's, then the broker's.
    pub(crate) stores: Vec<SimStore>,
    pub(crate) hostile: Hostile,
    places: Vec<Place>,
    queue: Queue<Event>,
    random: Random,
    is_calm: bool,
    lease_edited: Vec<Option<u64>>,
    /// Who led in each cluster's terms, since somebody's hand was last on the Lease.
    terms: Vec<BTreeMap<i64, String>>,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let queue = Queue::new();
        let clusters = if random.percent(20) { 3 } else { 2 };
        let overlapping = random.percent(40);
        let members: Vec<Member> = (0..clusters).map(|cluster| member(cluster, overlapping)).collect();
        let mut nodes = Vec::new();
        for (cluster, member) in members.iter().enumerate() {
            for number in 0..if random.percent(15) { 3 } else { 2 } {
                nodes.push(Node::new(cluster, number, member, queue.start(), &mut random, 0));
            }
        }
        let stores = (0..=clusters).map(|_| SimStore::new(random.below(100_000)));
        let mut world = Self {
            stores: stores.collect(),
            places: nodes
                .iter()
                .map(|_| Place { is_down: true, wake: u64::MAX, ..Place::default() })
                .collect(),
            lease_edited: vec![None; clusters],
            terms: vec![BTreeMap::new(); clusters],
            nodes,
            members,
            hostile: Hostile::new(seed),
            queue,
            is_calm: false,
            random,
        };
        for node in 0..world.nodes.len() {
            let start = world.random.between(0, 3_000);
            world.at(start, Event::Restart(node));
        }
        for _ in 0..world.random.between(2, 8) {
            let when = world.random.between(3_000, FAULTS_END);
            world.at(when, Event::Mischief);
        }
        for _ in 0..world.hostile.random.between(2, 8) {
            let when = world.hostile.random.between(1_000, FAULTS_END);
            world.at(when, Event::Hostile);
        }
        world.at(FAULTS_END, Event::Calm);
        world
    }

    /// Runs until this time.
    pub(crate) fn run_until(&mut self, limit: u64) -> Result<(), String> {
        let limit = self.queue.start() + Duration::from_millis(limit);
        while let Some(event) = self.queue.pop(limit) {
            if let Some(node) = self.handle(event) {
                self.act(node);
                self.check_leaders(self.nodes[node].cluster)?;
            }
        }
        self.queue.advance(limit);
        Ok(())
    }

    /// Milliseconds since the start.
    pub(crate) fn millis(&self) -> u64 {
        self.queue.millis()
    }

    /// Which nodes run.
    pub(crate) fn is_up(&self, node: usize) -> bool {
        !self.places[node].is_down
    }

    /// Never two leaders at one time, and never two of one term. After somebody's hand was on the Lease, not for longer
    /// than the last leader's renewal lasts.
    fn check_leaders(&mut self, cluster: usize) -> Result<(), String> {
        if self.lease_edited[cluster].is_some_and(|then| self.queue.millis() < then + EDIT_GRACE) {
            self.terms[cluster].clear();
            return Ok(());
        }
        let mut leader: Option<(&str, i64)> = None;
        for node in self.nodes.iter().filter(|node| node.cluster == cluster) {
            let Some(held) = node.leadership(self.queue.millis()) else { continue };
            let this = (node.host.as_str(), held.term.number());
            if let Some(other) = leader.replace(this) {
                return Err(format!("at {} ms both lead: {other:?} and {this:?}", self.queue.millis()));
            }
        }
        let Some((host, term)) = leader else { return Ok(()) };
        let first = self.terms[cluster].entry(term).or_insert_with(|| host.to_owned());
        if first == host { Ok(()) } else { Err(format!("both {first} and {host} have led in term {term}")) }
    }

    /// Lets an event happen; gives the node that it concerns.
    fn handle(&mut self, event: Event) -> Option<usize> {
        match event {
            Event::Wake(node) => self.wake(node),
            Event::Arrive { from, purpose, call, id } => {
                self.arrive(from, purpose, *call, id);
                None
            }
            Event::Answer { to, id, purpose, answer } => {
                let to = self.deliver(to, Event::Answer { to, id, purpose, answer })?;
                let (to, Event::Answer { id, purpose, answer, .. }) = to else { return None };
                self.places[to].pending.remove(&id)?;
                self.nodes[to].answer(&purpose, *answer, self.queue.millis());
                Some(to)
            }
            Event::Timeout { to, id } => {
                let (to, _) = self.deliver(to, Event::Timeout { to, id })?;
                let purpose = self.places[to].pending.remove(&id)?;
                let answer = no_answer(&purpose);
                self.nodes[to].answer(&purpose, answer, self.queue.millis());
                Some(to)
            }
            Event::Watch { to, stream, epoch, seen } => {
                let (to, event) = self.deliver(to, Event::Watch { to, stream, epoch, seen })?;
                let Event::Watch { stream, epoch, seen, .. } = event else { return None };
                if self.places[to].epochs[stream] != epoch {
                    return None;
                }
                match *seen {
                    Seen::Lease(lease) => self.nodes[to].observe_lease(lease, self.queue.millis()),
                    Seen::Objects(event) => self.nodes[to].observe(stream, &event, self.queue.millis()),
                }
                Some(to)
            }
            Event::Relist { to, stream } => {
                if self.is_current(to) {
                    self.relist(to.node, stream);
                }
                None
            }
            Event::Restart(node) => {
                self.restart(node);
                Some(node)
            }
            Event::Mischief => {
                if !self.is_calm {
                    self.mischief();
                }
                None
            }
            Event::Hostile => {
                self.be_hostile();
                None
            }
            Event::Calm => {
                self.calm();
                None
            }
        }
    }

    /// Lets a node ask for what it wants, and be woken when it wants.
    fn act(&mut self, node: usize) {
        if self.places[node].is_down {
            return;
        }
        for (purpose, call) in self.nodes[node].act(self.queue.millis()) {
            self.send(node, purpose, call);
        }
        // A word that an answer brought may want another request at once.
        self.wake_at(node, self.nodes[node].next_wake(self.queue.millis()));
    }

    /// Wakes a node, unless it is down or stopped; gives it then.
    fn wake(&mut self, node: usize) -> Option<usize> {
        self.places[node].wake = u64::MAX;
        let paused = self.places[node].paused_until;
        if self.is_up(node) && paused > self.queue.millis() {
            self.wake_at(node, paused);
            return None;
        }
        self.is_up(node).then_some(node)
    }

    fn wake_at(&mut self, node: usize, when: u64) {
        let when = when.max(self.queue.millis() + 1);
        if when < self.places[node].wake {
            self.places[node].wake = when;
            self.at(when, Event::Wake(node));
        }
    }

    fn at(&mut self, when: u64, event: Event) {
        self.queue.at(self.queue.start() + Duration::from_millis(when), event);
    }
}

/// A cluster; with `overlapping`, its pods have the addresses of every other such cluster.
fn member(cluster: usize, overlapping: bool) -> Member {
    let id = format!("c{cluster}");
    let pods = if overlapping && cluster != 1 { 200 } else { cluster };
    let subnets: Vec<IpNet> = vec![format!("10.{pods}.0.0/16").parse().expect("a CIDR")];
    let spec = ClusterSpec::new(&id, &[], &subnets);
    Member { id, spec, subnets }
}

fn event_of(change: &Change) -> StoreEvent {
    match change {
        Change::Applied(object) => StoreEvent::Applied(object.clone()),
        Change::Deleted(object) => StoreEvent::Deleted(object.clone()),
    }
}

fn away() -> StoreError {
    StoreError::Unavailable { operation: "ask".to_owned(), source: std::io::Error::other("no answer") }
}
