//! Gateways, the network between them, pods that send, and the clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use trieste_packet::rendezvous::choose;
use trieste_packet::{DropReason, Packet, Pool, PoolConfig};
use trieste_pipeline::health;
use trieste_simulator::{Link, Network, Queue, Random};

use super::gateway::{Gateway, HOSTILE, Plan, address, key};
use super::laws::Truth;
use super::ledger::{Ledger, Loss, mark_of};
use super::schedule::{Event, Fault};

/// How long a node goes on giving packets to a gateway that died, stalled or drains: until a notice says so.
const NODE_LEAVES: Duration = Duration::from_millis(100);
/// How long after a gateway has begun it gets packets.
const NODE_JOINS: Duration = Duration::from_millis(300);
/// Flows that last, each way.
const FLOWS: usize = 5;
/// Between two packets of a flow.
const PACE: Duration = Duration::from_millis(20);
/// Between two flows that begin, of three packets each.
const BEGIN: Duration = Duration::from_millis(60);
/// Packets that wait for a gateway that does not run, from inside and outside.
const QUEUE: usize = 1000;
/// How long a datagram is under way.
const LINK: Link =
    Link { delay: (Duration::from_micros(700), Duration::from_micros(700)), ..Link::millis(0, 0) };
/// How soon a gateway is called again.
const TURN: Duration = Duration::from_micros(500);

/// A gateway's place: there is one with or without a process.
pub(crate) struct Place {
    pub(crate) gateway: Option<Gateway>,
    is_stalled: bool,
    drains: bool,
    wire: Vec<(usize, Packet)>,
    inside: Vec<Vec<u8>>,
    due: Instant,
    /// Whether nodes are to use it, and since when.
    is_fit: bool,
    fit_since: Instant,
}

/// The hostile member: it sees what others send, and sends it as its own, to any of them.
struct Hostile {
    /// Of its own: what it does changes nothing that is drawn for the others.
    random: Random,
    sent: u64,
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    /// Datagrams on their way: from where, to where.
    pub(crate) queue: Queue<(usize, usize, Packet)>,
    pub(crate) places: Vec<Place>,
    pub(crate) network: Network,
    pub(crate) ledger: Ledger,
    pub(crate) truth: Truth,
    pub(crate) random: Random,
    hostile: Hostile,
    /// Drops of gateways that have ended.
    drops: BTreeMap<(usize, DropReason), u64>,
    health: health::Config,
    boots: u64,
    /// When pods send next, and which packet of all.
    beat: Option<(Instant, usize)>,
    /// Short flows: what is left to send of the last ones, and when the next begins.
    short: Vec<(usize, u8)>,
    begins: Instant,
}

impl World {
    pub(crate) fn new(plan: Plan, health: health::Config, random: Random) -> Self {
        let queue = Queue::new();
        let now = queue.now();
        let mut world = Self {
            plan,
            queue,
            places: Vec::new(),
            network: Network::new(plan.count(), LINK),
            ledger: Ledger::new(plan.translates),
            truth: Truth::new(plan, now),
            hostile: Hostile { random: Random::new(!random.clone().draw()), sent: 0 },
            random,
            drops: BTreeMap::new(),
            health,
            boots: 0,
            beat: None,
            short: Vec::new(),
            begins: now,
        };
        for index in 0..plan.count() {
            let gateway = Some(world.boot(index));
            world.places.push(Place {
                gateway,
                is_stalled: false,
                drains: false,
                wire: Vec::new(),
                inside: Vec::new(),
                due: now,
                is_fit: true,
                fit_since: now,
            });
        }
        for flow in 0..2 * FLOWS {
            world.ledger.begin(if flow < FLOWS { 1 } else { 2 });
        }
        world
    }

    pub(crate) fn now(&self) -> Instant {
        self.queue.now()
    }

    fn boot(&mut self, index: usize) -> Gateway {
        self.boots += 1;
        let boot = self.random.draw().wrapping_add(self.boots);
        Gateway::new(&self.plan, index, boot, self.health, self.queue.now())
    }

    /// Pods send from now on, or stop sending.
    pub(crate) fn set_sending(&mut self, sends: bool) {
        self.beat = sends.then_some((self.queue.now(), 0));
        self.begins = self.queue.now();
    }

    /// Runs until a time, through what begins and ends until then.
    pub(crate) fn advance(&mut self, until: Instant, events: &[Event]) {
        let begins = events.iter().map(|event| (event.from, true, &event.fault));
        let ends = events.iter().map(|event| (event.until, false, &event.fault));
        let now = self.queue.now();
        let mut changes: Vec<_> = begins.chain(ends).filter(|(at, ..)| (now..until).contains(at)).collect();
        changes.sort_by_key(|(at, begins, _)| (*at, *begins));
        for (at, begins, fault) in changes {
            self.pass(at);
            self.change(fault, begins);
        }
        self.pass(until);
    }

    /// Lets time pass.
    fn pass(&mut self, until: Instant) {
        loop {
            let running = self.places.iter().filter(|place| place.runs()).map(|place| place.due);
            let beat = self.beat.map(|(at, _)| at);
            let next =
                running.chain(self.queue.next()).chain(beat).min().unwrap_or(until).max(self.queue.now());
            if next >= until {
                self.queue.advance(until);
                return;
            }
            self.queue.advance(next);
            self.beat();
            while let Some((from, to, packet)) = self.queue.pop(self.queue.now()) {
                self.arrive(from, to, packet);
            }
            for index in 0..self.places.len() {
                self.turn(index);
            }
        }
    }

    /// A fault begins, or is over.
    fn change(&mut self, fault: &Fault, begins: bool) {
        match fault {
            Fault::Stall(index) => {
                self.places[*index].is_stalled = begins;
                self.places[*index].due = self.queue.now();
            }
            Fault::Kill(index) => {
                if begins {
                    self.kill(*index);
                } else {
                    self.places[*index].gateway = Some(self.boot(*index));
                    self.places[*index].due = self.queue.now();
                }
            }
            Fault::Drain(index) => {
                self.places[*index].drains = begins;
                if let Some(gateway) = &mut self.places[*index].gateway {
                    gateway.drain(begins, self.queue.now());
                }
            }
            Fault::Cut(ways) => ways.iter().for_each(|(from, to)| self.network.cut(*from, *to, begins)),
            Fault::Delay(ways, extra) => {
                ways.iter().for_each(|(from, to)| self.network.slow(*from, *to, *extra, begins));
            }
        }
        for place in &mut self.places {
            let is_fit = place.runs() && !place.drains;
            if is_fit != place.is_fit {
                (place.is_fit, place.fit_since) = (is_fit, self.queue.now());
            }
        }
        let runs: Vec<bool> = self.places.iter().map(Place::runs).collect();
        self.truth.look(&runs, &self.network, self.queue.now());
    }

    fn kill(&mut self, index: usize) {
        let place = &mut self.places[index];
        let gateway = place.gateway.take().expect("a process is killed once");
        gateway.assert_balanced(self.queue.now());
        for (_, reason, count) in gateway.line.drops.iter() {
            *self.drops.entry((index, reason)).or_default() += count;
        }
        let waiting = place.wire.drain(..).filter(|(from, _)| *from != HOSTILE);
        let waiting = waiting.flat_map(|(_, packet)| marks(&packet)).collect::<Vec<_>>();
        let inside = place.inside.drain(..).filter_map(|packet| mark_of(&packet));
        self.ledger.lose(waiting.into_iter().chain(inside), Loss::Gateway(index), self.queue.now());
    }

    /// Pods send what is due.
    fn beat(&mut self) {
        let Some((at, turn)) = self.beat.filter(|(at, _)| *at <= self.queue.now()) else { return };
        // One flow after the other, so that they are spread over time.
        let pause = PACE / u32::try_from(2 * FLOWS).unwrap();
        self.beat = Some((at + pause, turn + 1));
        self.ask(turn % (2 * FLOWS));
        if self.begins <= self.queue.now() {
            self.begins = self.queue.now() + BEGIN;
            let cluster = u8::try_from(1 + turn % 2).unwrap();
            self.short.push((self.ledger.begin(cluster), 3));
        }
        if let Some((flow, left)) = self.short.pop() {
            self.ask(flow);
            if left > 1 {
                self.short.insert(0, (flow, left - 1));
            }
        }
    }

    fn ask(&mut self, flow: usize) {
        let cluster = self.ledger.flows[flow].cluster;
        let Some(by) = self.entry(cluster, flow * 2) else { return };
        let packet = self.ledger.question(flow, by, self.queue.now());
        self.enter(by, packet);
    }

    /// The gateway that a node gives a flow's packets to.
    fn entry(&self, cluster: u8, flow: usize) -> Option<usize> {
        let fit = self.plan.of(cluster).filter(|index| {
            let place = &self.places[*index];
            let since = self.queue.now() - place.fit_since;
            if place.is_fit {
                since >= NODE_JOINS || place.fit_since == self.queue.start()
            } else {
                since < NODE_LEAVES
            }
        });
        choose(Random::new(flow as u64).draw(), fit.map(|index| (key(index), 100, index)))
    }

    fn enter(&mut self, by: usize, packet: Vec<u8>) {
        let place = &mut self.places[by];
        if place.gateway.is_none() || place.inside.len() >= QUEUE {
            self.ledger.lose(mark_of(&packet), Loss::Gateway(by), self.queue.now());
            return;
        }
        place.inside.push(packet);
    }

    fn arrive(&mut self, from: usize, to: usize, packet: Packet) {
        let place = &mut self.places[to];
        if from == HOSTILE {
            // It must not cost the others their room.
            if place.gateway.is_some() && place.wire.len() < QUEUE / 20 {
                place.wire.push((from, packet));
            }
        } else if place.gateway.is_none() {
            self.lose(from, to, &packet);
        } else if place.wire.len() >= QUEUE {
            self.ledger.lose(marks(&packet), Loss::Gateway(to), self.queue.now());
        } else {
            place.wire.push((from, packet));
        }
    }

    fn lose(&mut self, from: usize, to: usize, packet: &Packet) {
        let ids = marks(packet);
        for id in &ids {
            self.truth.explain(*id, from, to, self.queue.now());
        }
        self.ledger.lose(ids, Loss::Link(from, to), self.queue.now());
    }

    /// A gateway's turn, if it runs and there is something to do.
    fn turn(&mut self, index: usize) {
        let place = &mut self.places[index];
        let is_idle = place.wire.is_empty() && place.inside.is_empty() && place.due > self.queue.now();
        if !place.runs() || is_idle {
            return;
        }
        let (wire, inside) = (std::mem::take(&mut place.wire), std::mem::take(&mut place.inside));
        let Some(gateway) = &mut place.gateway else { return };
        gateway.turn(wire, &inside, self.queue.now());
        let (sent, delivered) = (gateway.sent(), gateway.delivered());
        let soon = self.queue.now() + TURN;
        place.due = gateway.due().map_or(soon + Duration::from_secs(1), |due| due.max(soon));
        for packet in sent {
            let peer = packet.outer.peer;
            let Some(to) = (0..self.plan.count()).find(|to| address(*to) == peer) else {
                assert_eq!((peer, marks(&packet)), (address(HOSTILE), Vec::new()), "sent to a stranger");
                continue;
            };
            self.copy_hostile(&packet);
            for id in marks(&packet) {
                self.truth.pass(id, index);
            }
            if self.network.is_cut(index, to) {
                self.lose(index, to, &packet);
            } else {
                let arrival = self.network.in_order(index, to, self.queue.now(), &mut self.random);
                self.queue.at(arrival, (index, to, packet));
            }
        }
        for packet in delivered {
            let cluster = self.plan.cluster(index);
            if self.ledger.deliver(&packet, cluster, self.queue.now())
                && let Some(by) =
                    self.entry(cluster, self.ledger.entries[mark_of(&packet).unwrap()].flow * 2 + 1)
            {
                let answer = self.ledger.answer(&packet, by, self.queue.now());
                self.enter(by, answer);
            }
        }
    }

    /// The hostile member sends one of eight datagrams that it sees, to anybody.
    fn copy_hostile(&mut self, packet: &Packet) {
        if !self.hostile.random.chance(125) {
            return;
        }
        let mut pool = Pool::new(PoolConfig { slots: 1, slot_bytes: 4096 });
        let mut copy = Packet::new(pool.alloc_copy(packet.bytes()).unwrap());
        copy.layout = packet.layout;
        let to = self.hostile.random.below(self.plan.count());
        let wait = self.hostile.random.millis(0, 40);
        self.queue.after(wait, (HOSTILE, to, copy));
        self.hostile.sent += 1;
    }

    /// Datagrams that the hostile member has sent.
    pub(crate) fn hostile_sent(&self) -> u64 {
        self.hostile.sent
    }

    /// Drops of all processes, by gateway and reason.
    pub(crate) fn drops(&self) -> BTreeMap<(usize, DropReason), u64> {
        let mut all = self.drops.clone();
        for (index, place) in self.places.iter().enumerate() {
            for (_, reason, count) in place.gateway.iter().flat_map(|gateway| gateway.line.drops.iter()) {
                *all.entry((index, reason)).or_default() += count;
            }
        }
        all
    }
}

impl Place {
    fn runs(&self) -> bool {
        self.gateway.is_some() && !self.is_stalled
    }
}

/// The packets of flows in a datagram, or a train of them.
fn marks(packet: &Packet) -> Vec<usize> {
    let segments = (0..usize::from(packet.layout.count)).map(|index| packet.segment_range(index));
    segments.filter_map(|(start, end)| mark_of(&packet.bytes()[start..end])).collect()
}
