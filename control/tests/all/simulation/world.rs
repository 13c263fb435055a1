//! The simulated clusters, the network between nodes and API servers, and what goes wrong there.
//!
//! ```text
//!   node ──request (late, lost)──▶ store ──answer (late, lost)──▶ node
//!                                    └──watch (late, reordered, dropped and re-listed)──▶ every node
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;
use trieste_control::api::{ClusterSpec, Kind, Object};
use trieste_control::election::{Failure, Timings};
use trieste_control::store::{StoreError, StoreEvent};
use trieste_control::sync::Side;
use trieste_simulator::{Queue, Random};

use super::hostile::Hostile;
use super::node::{Answer, Call, Member, Node, Purpose, STREAMS};
use super::store::{Change, Op, SimStore};

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
            Event::Wake(node) => {
                self.places[node].wake = u64::MAX;
                let paused = self.places[node].paused_until;
                if self.is_up(node) && paused > self.queue.millis() {
                    self.wake_at(node, paused);
                    return None;
                }
                self.is_up(node).then_some(node)
            }
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

    /// Hands an event to a process if that lives; to one that is stopped, when it goes on.
    fn deliver(&mut self, to: Sender, event: Event) -> Option<(usize, Event)> {
        if !self.is_current(to) {
            return None;
        }
        let paused = self.places[to.node].paused_until;
        if paused > self.queue.millis() {
            self.at(paused, event);
            return None;
        }
        Some((to.node, event))
    }

    fn is_current(&self, sender: Sender) -> bool {
        let place = &self.places[sender.node];
        !place.is_down && place.process == sender.process
    }

    fn sender(&self, node: usize) -> Sender {
        Sender { node, process: self.places[node].process }
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

    fn wake_at(&mut self, node: usize, when: u64) {
        let when = when.max(self.queue.millis() + 1);
        if when < self.places[node].wake {
            self.places[node].wake = when;
            self.at(when, Event::Wake(node));
        }
    }

    fn send(&mut self, node: usize, purpose: Purpose, call: Call) {
        let from = self.sender(node);
        let place = &mut self.places[node];
        place.next_id += 1;
        let id = place.next_id;
        place.pending.insert(id, purpose.clone());
        let patience = match &purpose {
            Purpose::ReadLease | Purpose::WriteLease => Timings::default().request_timeout().as_millis(),
            _ => 10_000,
        };
        let patience = u64::try_from(patience).expect("small");
        self.at(self.queue.millis() + patience, Event::Timeout { to: from, id });
        if let Some(delay) = self.delay(node, side_of(&call)) {
            self.at(self.queue.millis() + delay, Event::Arrive { from, purpose, call: Box::new(call), id });
        }
    }

    /// How long a message takes; `None` for one that is lost.
    fn delay(&mut self, node: usize, side: Side) -> Option<u64> {
        if self.is_cut(node, side) {
            return None;
        }
        if !self.is_calm {
            match self.random.below(200) {
                0 | 1 => return None,
                2..=5 => return Some(self.random.between(500, 9_000)),
                _ => {}
            }
        }
        Some(self.random.between(1, 20))
    }

    fn is_cut(&self, node: usize, side: Side) -> bool {
        self.places[node].cut_until[side as usize] > self.queue.millis()
    }

    fn arrive(&mut self, from: Sender, purpose: Purpose, call: Call, id: u64) {
        let side = side_of(&call);
        let store = self.store_of(from.node, side);
        // What a process that is gone has sent is applied all the same.
        let answer = match call {
            Call::ReadLease => Answer::LeaseRead(Ok(self.stores[store].lease.clone())),
            Call::WriteLease(lease, is_create) => {
                let written = self.stores[store].write_lease(lease, is_create);
                if written.is_ok() {
                    self.tell_lease(store);
                }
                Answer::LeaseWritten(written.map_err(|()| Failure::Race))
            }
            Call::Object(_, op) => {
                let (answer, change) = self.stores[store].apply(op, self.queue.millis());
                if let Some(change) = change {
                    if self.is_current(from) && answer.is_ok() {
                        self.note(from.node, side, &change);
                    }
                    self.tell(store, &change);
                }
                Answer::Object(answer)
            }
        };
        if let Some(delay) = self.delay(from.node, side) {
            let answer = Box::new(answer);
            self.at(self.queue.millis() + delay, Event::Answer { to: from, id, purpose, answer });
        }
    }

    /// A node mostly knows of its own write with the answer; here a little sooner, which changes nothing.
    fn note(&mut self, node: usize, side: Side, change: &Change) {
        if self.places[node].paused_until <= self.queue.millis() && self.random.percent(50) {
            self.nodes[node].note(side, &event_of(change));
        }
    }

    fn store_of(&self, node: usize, side: Side) -> usize {
        match side {
            Side::Local => self.nodes[node].cluster,
            Side::Broker => self.members.len(),
        }
    }

    fn followers(&self, store: usize) -> Vec<(usize, Side)> {
        let side = if store == self.members.len() { Side::Broker } else { Side::Local };
        let follows = |node: &usize| side == Side::Broker || self.nodes[*node].cluster == store;
        (0..self.nodes.len()).filter(follows).map(|node| (node, side)).collect()
    }

    fn tell_lease(&mut self, store: usize) {
        for (node, _) in self.followers(store) {
            let lease = self.stores[store].lease.clone();
            self.watch(node, 0, Seen::Lease(lease));
        }
    }

    fn tell(&mut self, store: usize, change: &Change) {
        let (Change::Applied(object) | Change::Deleted(object)) = change;
        let kind = object.kind;
        for (node, side) in self.followers(store) {
            let stream = STREAMS.iter().position(|stream| *stream == (side, kind));
            if let Some(stream) = stream {
                self.watch(node, stream, Seen::Objects(event_of(change)));
            }
        }
    }

    /// Sends an event of a watch on its way: in order, unless something goes wrong, and then the watch starts anew.
    fn watch(&mut self, node: usize, stream: usize, seen: Seen) {
        if self.places[node].is_down {
            return;
        }
        let to = self.sender(node);
        let mut when = self.queue.millis() + self.random.between(1, 20);
        let goes_wrong = !self.is_calm && self.random.percent(6);
        if goes_wrong {
            let relist = self.queue.millis() + self.random.between(1_000, 6_000);
            self.at(relist, Event::Relist { to, stream });
            if self.random.percent(40) {
                return;
            }
            // Late, and overtaken by others.
            when += self.random.between(0, 4_000);
        } else if self.is_cut(node, STREAMS[stream].0) {
            return;
        } else {
            if !self.is_calm && self.random.percent(3) {
                when += self.random.between(0, 5_000);
            }
            when = when.max(self.places[node].last_seen[stream]);
            self.places[node].last_seen[stream] = when;
        }
        let epoch = self.places[node].epochs[stream];
        self.at(when, Event::Watch { to, stream, epoch, seen: Box::new(seen) });
    }

    /// Starts a watch anew: with everything that there is.
    fn relist(&mut self, node: usize, stream: usize) {
        let (side, kind) = STREAMS[stream];
        if self.places[node].is_down || self.is_cut(node, side) {
            return;
        }
        let store = &self.stores[self.store_of(node, side)];
        let seen = if kind == Kind::Lease {
            Seen::Lease(store.lease.clone())
        } else {
            let objects = store.objects.values().filter(|object| object.kind == kind);
            Seen::Objects(StoreEvent::Listed(objects.cloned().collect()))
        };
        let to = self.sender(node);
        let when = self.queue.millis() + self.random.between(1, 20);
        let place = &mut self.places[node];
        place.epochs[stream] += 1;
        place.last_seen[stream] = when;
        let epoch = place.epochs[stream];
        self.at(when, Event::Watch { to, stream, epoch, seen: Box::new(seen) });
    }

    fn restart(&mut self, node: usize) {
        let (cluster, number) = (self.nodes[node].cluster, self.number_of(node));
        let member = self.members[cluster].clone();
        self.nodes[node] =
            Node::new(cluster, number, &member, self.queue.start(), &mut self.random, self.queue.millis());
        let place = &mut self.places[node];
        place.process += 1;
        place.is_down = false;
        place.pending.clear();
        place.wake = u64::MAX;
        for stream in 0..STREAMS.len() {
            self.relist(node, stream);
        }
    }

    fn number_of(&self, node: usize) -> usize {
        let cluster = self.nodes[node].cluster;
        self.nodes[..node].iter().filter(|other| other.cluster == cluster).count()
    }

    fn kill(&mut self, node: usize) {
        let member = self.members[self.nodes[node].cluster].clone();
        // What it believed is gone with it.
        let number = self.number_of(node);
        self.nodes[node] = Node::new(
            self.nodes[node].cluster,
            number,
            &member,
            self.queue.start(),
            &mut self.random,
            u64::MAX,
        );
        let place = &mut self.places[node];
        place.is_down = true;
        place.process += 1;
    }

    /// One thing goes wrong, somewhere.
    fn mischief(&mut self) {
        let node = self.random.below(self.nodes.len());
        let cluster = self.nodes[node].cluster;
        let until = self.queue.millis() + self.random.between(500, 20_000);
        match self.random.below(12) {
            0..=2 => {
                let sides: &[Side] = if self.random.percent(50) { &Side::ALL } else { &[Side::Local] };
                sides.iter().for_each(|side| self.cut(node, *side, until));
            }
            3 => self.cut(node, Side::Broker, until),
            4 => {
                for node in 0..self.nodes.len() {
                    if self.nodes[node].cluster == cluster {
                        self.cut(node, Side::Local, until);
                    }
                }
            }
            5 | 6 => self.places[node].paused_until = until,
            7 | 8 if self.is_up(node) => {
                self.kill(node);
                if self.random.percent(80) {
                    self.at(until, Event::Restart(node));
                }
            }
            9 if self.is_up(node) => {
                let now = self.nodes[node].now(self.queue.millis());
                self.nodes[node].elector.set_eligible(false, now);
                self.wake_at(node, self.queue.millis() + 1);
            }
            10 if self.random.percent(70) => self.edit_lease(cluster),
            10 => self.lose_the_count(cluster, until),
            _ => self.edit_object(cluster),
        }
    }

    /// The hostile member writes on the broker, from where nothing is lost.
    fn be_hostile(&mut self) {
        let broker = self.members.len();
        let seen: Vec<Object> = self.stores[broker].objects.values().cloned().collect();
        for op in self.hostile.act(&self.members, &seen) {
            if let (_, Some(change)) = self.stores[broker].apply(op, self.queue.millis()) {
                self.tell(broker, &change);
            }
        }
    }

    fn cut(&mut self, node: usize, side: Side, until: u64) {
        self.places[node].cut_until[side as usize] = until;
        for (stream, (of, kind)) in STREAMS.into_iter().enumerate() {
            if of == side {
                if kind != Kind::Lease && self.random.percent(50) && self.is_up(node) {
                    self.nodes[node].observe(stream, &StoreEvent::Unavailable(away()), self.queue.millis());
                }
                self.at(until, Event::Relist { to: self.sender(node), stream });
            }
        }
    }

    /// Somebody's hand on the Lease.
    fn edit_lease(&mut self, cluster: usize) {
        self.lease_edited[cluster] = Some(self.queue.millis());
        self.terms[cluster].clear();
        let hosts: Vec<String> =
            self.nodes.iter().filter(|node| node.cluster == cluster).map(|node| node.host.clone()).collect();
        let host = self.random.choose(&hosts).clone();
        let transitions = self.random.below(3);
        match self.random.below(5) {
            0 => self.stores[cluster].lease = None,
            1 => self.stores[cluster].edit_lease(|lease| lease.spec.holder_identity.clear()),
            2 => self.stores[cluster].edit_lease(|lease| lease.spec.holder_identity = "somebody".to_owned()),
            3 => self.stores[cluster].edit_lease(|lease| lease.spec.lease_transitions = Some(transitions)),
            _ => self.stores[cluster]
                .edit_lease(|lease| lease.spec.holder_identity = format!("{host}-submariner-gateway")),
        }
        self.tell_lease(cluster);
    }

    /// Somebody deletes the Lease while nobody lives who knows its count.
    fn lose_the_count(&mut self, cluster: usize, until: u64) {
        self.lease_edited[cluster] = Some(self.queue.millis());
        self.terms[cluster].clear();
        self.stores[cluster].lease = None;
        for node in 0..self.nodes.len() {
            if self.nodes[node].cluster == cluster {
                self.kill(node);
                self.at(until, Event::Restart(node));
            }
        }
    }

    /// Somebody's hand on an object of a cluster: deleted, or put back as it was for another gateway.
    fn edit_object(&mut self, cluster: usize) {
        let objects: Vec<Object> = self.stores[cluster].objects.values().cloned().collect();
        if objects.is_empty() {
            return;
        }
        let mut object = self.random.choose(&objects).clone();
        let change = if self.random.percent(60) || object.kind != Kind::Endpoint {
            self.stores[cluster].remove(&object.key()).1
        } else {
            object.metadata.name.push_str("-old");
            self.stores[cluster].apply(Op::Create(object), self.queue.millis()).1
        };
        if let Some(change) = change {
            self.tell(cluster, &change);
        }
    }

    /// Nothing goes wrong any more; every watch starts anew. Some of the dead stay dead.
    fn calm(&mut self) {
        self.is_calm = true;
        for node in 0..self.nodes.len() {
            let cluster = self.nodes[node].cluster;
            let others = (0..self.nodes.len()).filter(|other| self.nodes[*other].cluster == cluster);
            let is_last = others.filter(|other| self.is_up(*other)).count() == 0;
            self.places[node].cut_until = [0; 2];
            self.places[node].paused_until = self.places[node].paused_until.min(self.queue.millis());
            if self.is_up(node) {
                let now = self.nodes[node].now(self.queue.millis());
                self.nodes[node].elector.set_eligible(true, now);
                self.wake_at(node, self.queue.millis() + 1);
                for stream in 0..STREAMS.len() {
                    self.relist(node, stream);
                }
            } else if is_last {
                self.restart(node);
                self.wake_at(node, self.queue.millis() + 1);
            }
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

fn side_of(call: &Call) -> Side {
    match call {
        Call::ReadLease | Call::WriteLease(..) => Side::Local,
        Call::Object(side, _) => *side,
    }
}

fn event_of(change: &Change) -> StoreEvent {
    match change {
        Change::Applied(object) => StoreEvent::Applied(object.clone()),
        Change::Deleted(object) => StoreEvent::Deleted(object.clone()),
    }
}

fn no_answer(purpose: &Purpose) -> Answer {
    match purpose {
        Purpose::ReadLease => Answer::LeaseRead(Err(Failure::Store("no answer".to_owned()))),
        Purpose::WriteLease => Answer::LeaseWritten(Err(Failure::Store("no answer".to_owned()))),
        _ => Answer::Object(Err(away())),
    }
}

fn away() -> StoreError {
    StoreError::Unavailable { operation: "ask".to_owned(), source: std::io::Error::other("no answer") }
}
