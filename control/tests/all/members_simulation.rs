//! Gateways of one cluster that tell of themselves, judge one another and share ports, under a virtual clock and a seed.
//!
//! In each schedule two to four gateways are paused, killed, started again, cut off from the store and from one another;
//! watches are late, writes arrive late or their answers never do; clocks show anything and run at one rate.
//!
//! * At every moment: no share of the ports has two gateways that believe it theirs; nobody who is healthy, or whose
//!   cable to the judge lives, is removed.
//! * In the end, when nothing has gone wrong for a while: every gateway that runs has said so, and the vanished are gone.
//!
//! That a term of the Lease has one holder is what the simulation of elections shows.
#![expect(clippy::expect_used, reason = "a simulation that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use trieste_control::api::{EndpointSpec, Kind, Object, ObjectKey, ObjectMeta};
use trieste_control::members::{GarbageCollector, Member, NatSlots, SlotTimes, Slots, plan_own};
use trieste_control::publish::GATEWAY_STALE_AFTER;
use trieste_control::runner::Write;
use trieste_control::store::{StoreError, StoreEvent};
use trieste_simulator::{Queue, Random, seeds};

/// How many schedules are run.
const SCHEDULES: u64 = 1000;
/// Until when things go wrong, and by when all is settled, in seconds.
const FAULTS_END: u64 = 60;
const SETTLED: u64 = 150;
/// A share is taken from the silent a good while after they have stopped to use it, as in earnest.
const TIMES: SlotTimes = SlotTimes {
    valid: Duration::from_secs(15),
    silent: Duration::from_secs(45),
    farewell: Duration::from_secs(2),
};
/// How long a gateway has to be in touch with the store to be healthy.
const STALE: u64 = 15;

#[test]
fn no_share_has_two_owners_no_healthy_sibling_is_removed_and_every_vanished_one_is() {
    seeds::each(
        "no_share_has_two_owners_no_healthy_sibling_is_removed_and_every_vanished_one_is",
        SCHEDULES,
        |seed| assert_eq!(World::new(seed).run(), Ok(())),
    );
}

struct Node {
    spec: EndpointSpec,
    collector: GarbageCollector,
    slots: Slots,
    is_up: bool,
    paused_until: u64,
    cut_until: u64,
    /// The last second in which it did something with the store, and since when it has in each.
    reached: u64,
    well_since: u64,
    beat_at: u64,
    /// What it last saw of Gateway objects.
    gateways: Arc<Vec<Object>>,
    /// What it last saw of further Endpoints, and as of which of their changes.
    mirror: Arc<Vec<Object>>,
    siblings: Vec<Member>,
    /// The hosts that there are by it, this one among them.
    hosts: Vec<String>,
    seen: u64,
    /// Whose cables lived when it last looked, bit by bit and by name.
    heard: (u32, BTreeSet<String>),
    /// As of which of them there was nothing to announce.
    settled: Option<u64>,
    offset: Duration,
}

struct World {
    /// Writes on their way.
    late: Queue<Write>,
    second: u64,
    random: Random,
    nodes: Vec<Node>,
    objects: BTreeMap<ObjectKey, Object>,
    /// What a list of the objects of a kind says; nothing is in it that has changed since.
    lists: BTreeMap<Kind, Arc<Vec<Object>>>,
    version: u64,
    /// How often a further Endpoint has changed.
    changes: u64,
    /// Until when two gateways do not hear each other.
    dumb_until: BTreeMap<(usize, usize), u64>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = random.between(2, 4);
        let nodes = (0..count).map(|number| Node::new(number, &mut random)).collect();
        Self {
            late: Queue::new(),
            second: 0,
            random,
            nodes,
            objects: BTreeMap::new(),
            lists: BTreeMap::new(),
            version: 0,
            changes: 0,
            dumb_until: BTreeMap::new(),
        }
    }

    fn run(mut self) -> Result<(), String> {
        while self.second < SETTLED {
            self.late.advance(self.late.now() + Duration::from_secs(1));
            self.second = self.late.millis() / 1000;
            if self.second < FAULTS_END && self.random.percent(20) {
                self.mischief();
            }
            if self.second == FAULTS_END {
                self.calm();
            }
            while let Some(write) = self.late.pop(self.late.now()) {
                self.apply(write);
            }
            for number in 0..self.nodes.len() {
                let node = &self.nodes[number];
                if node.is_up && node.paused_until <= self.second {
                    self.turn(number)?;
                }
            }
            self.check_shares()?;
        }
        self.check_end()
    }

    fn mischief(&mut self) {
        let number = self.random.below(self.nodes.len());
        let until = self.second + self.random.between(1, 40);
        let kind = self.random.below(6);
        let node = &mut self.nodes[number];
        match kind {
            0 => node.paused_until = until,
            1 | 2 => node.cut_until = until,
            3 if node.is_up => {
                node.is_up = false;
                // Some leave for good, and have nothing more to do with what they had.
                if until.is_multiple_of(2) && node.cut_until.max(node.paused_until) <= self.second {
                    node.slots.release().into_iter().for_each(|write| self.send(write));
                }
            }
            3 => self.restart(number),
            _ => {
                let other = self.random.below(self.nodes.len());
                self.dumb_until.insert((number.min(other), number.max(other)), until);
            }
        }
    }

    /// Nothing goes wrong any more. Some of the dead stay dead, but not all.
    fn calm(&mut self) {
        for node in &mut self.nodes {
            (node.paused_until, node.cut_until) = (0, 0);
        }
        self.dumb_until.clear();
        if self.nodes.iter().all(|node| !node.is_up) {
            self.restart(0);
        }
    }

    fn restart(&mut self, number: usize) {
        self.nodes[number] = Node::new(number, &mut self.random);
    }

    fn now(&self, number: usize) -> Instant {
        self.late.now() + self.nodes[number].offset
    }

    /// One second of one gateway's life.
    fn turn(&mut self, number: usize) -> Result<(), String> {
        let now = self.now(number);
        if self.nodes[number].cut_until > self.second {
            if self.random.percent(30) {
                let key = ObjectKey::new(Kind::Gateway, "ns", "x");
                self.nodes[number]
                    .collector
                    .handle_gateways(&StoreEvent::Unavailable(StoreError::NotFound(key)), now);
            }
            return Ok(());
        }
        let node = &mut self.nodes[number];
        if node.reached + 1 < self.second || node.well_since == 0 {
            node.well_since = self.second;
        }
        node.reached = self.second;
        if self.second >= self.nodes[number].beat_at {
            self.nodes[number].beat_at = self.second + 5;
            let name = self.nodes[number].spec.hostname.clone();
            self.put(Object::new(Kind::Gateway, ObjectMeta::new("ns", name)));
        }
        // A watch is late now and then, all of it.
        if !self.goes_wrong(15) {
            let listed = self.of(Kind::Gateway);
            self.nodes[number].hear_of(&listed, now);
        }
        if !self.goes_wrong(15) {
            self.mirror(number);
        }
        self.announce(number);
        self.judge(number, now)?;
        self.sweep(number, now)?;
        self.share(number, now);
        Ok(())
    }

    fn mirror(&mut self, number: usize) {
        let (node, changes) = (&self.nodes[number], self.changes);
        if node.seen == changes {
            return;
        }
        let mirror = self.of(Kind::Endpoint);
        let node = &mut self.nodes[number];
        let members = mirror.iter().filter_map(Member::read);
        node.siblings =
            members.filter(|member| member.endpoint.spec.hostname != node.spec.hostname).collect();
        let hosts = node.siblings.iter().map(|member| member.endpoint.spec.hostname.clone());
        node.hosts = hosts.chain([node.spec.hostname.clone()]).collect();
        node.hosts.sort();
        (node.mirror, node.seen) = (mirror, changes);
    }

    /// The plan is a function of what is known: where it was empty it still is.
    fn announce(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if node.settled == Some(node.seen) {
            return;
        }
        let known: Vec<&Object> = node.mirror.iter().collect();
        let writes = plan_own("ns", &node.spec, true, &known).expect("our own spec is right");
        node.settled = writes.is_empty().then_some(node.seen);
        writes.into_iter().for_each(|write| self.send(write));
    }

    fn judge(&mut self, number: usize, now: Instant) -> Result<(), String> {
        let heard = (0..self.nodes.len()).filter(|other| self.hear(number, *other));
        let heard = heard.fold(0, |mask, other| mask | 1 << other);
        if heard != self.nodes[number].heard.0 {
            let names = (0..self.nodes.len()).filter(|other| heard & 1 << other != 0);
            let names = names.map(|other| self.nodes[other].spec.cable_name.clone()).collect();
            self.nodes[number].heard = (heard, names);
        }
        let node = &mut self.nodes[number];
        let gone = node.collector.vanished(&node.siblings, &node.heard.1, now);
        let gone: Vec<Member> = gone.into_iter().cloned().collect();
        for member in gone {
            let own = &self.nodes[number].spec.hostname;
            let host = &member.endpoint.spec.hostname;
            let other =
                self.nodes.iter().position(|node| node.spec.hostname == *host).expect("it is one of us");
            if self.is_healthy(other) {
                return Err(format!("at {} s {own} takes {host} for dead", self.second));
            }
            if self.hear(number, other) {
                return Err(format!("at {} s {own} removes {host}, whose cable lives", self.second));
            }
            let name = &member.endpoint.metadata.name;
            let further =
                self.nodes[number].mirror.iter().find(|object| object.metadata.name == *name).cloned();
            let gateway = self.nodes[number].collector.gateway_of(host).cloned();
            // As the real one: the Gateway object first, and what has failed keeps the rest from going.
            if let Some(object) = gateway.or(further) {
                self.send(Write::Delete(object));
            }
        }
        Ok(())
    }

    /// As every beat of an active gateway does: removes the Gateway objects of the silent, whether they have told of
    /// themselves or not.
    fn sweep(&mut self, number: usize, now: Instant) -> Result<(), String> {
        for other in (0..self.nodes.len()).filter(|other| *other != number) {
            let (collector, host) = (&self.nodes[number].collector, &self.nodes[other].spec.hostname);
            let is_silent =
                || collector.silence(host, now).is_some_and(|silence| silence >= GATEWAY_STALE_AFTER);
            if self.hear(number, other) || !is_silent() {
                continue;
            }
            if self.is_healthy(other) {
                return Err(format!(
                    "at {} s the Gateway object of {host} is taken for a leftover",
                    self.second
                ));
            }
            if let Some(object) = collector.gateway_of(host).cloned() {
                self.send(Write::Delete(object));
            }
        }
        Ok(())
    }

    fn share(&mut self, number: usize, now: Instant) {
        if self.goes_wrong(20) {
            return;
        }
        let leases = self.of(Kind::Lease);
        let wall = Timestamp::from_second(1_700_000_000).expect("a time");
        let node = &mut self.nodes[number];
        node.slots.handle_read(&leases, now, node.collector.has_proof(now));
        let again = node.slots.confirmations(wall);
        if !again.is_empty() {
            return again.into_iter().for_each(|write| self.send(write));
        }
        let node = &mut self.nodes[number];
        let hosts: Vec<&str> = node.hosts.iter().map(String::as_str).collect();
        let is_gone =
            |host: &str| node.collector.silence(host, now).is_some_and(|silence| silence >= TIMES.silent);
        let write = node.slots.plan(&hosts, is_gone, now, wall);
        if let Some(write) = write {
            self.send(write);
        }
    }

    /// Two gateways hear each other where both run and nothing is between them.
    fn hear(&self, one: usize, other: usize) -> bool {
        let runs = |number: usize| self.nodes[number].is_up && self.nodes[number].paused_until <= self.second;
        let pair = (one.min(other), one.max(other));
        runs(one) && runs(other) && self.dumb_until.get(&pair).is_none_or(|until| *until <= self.second)
    }

    /// Whether a gateway runs, and has been in touch with the store for a while.
    fn is_healthy(&self, number: usize) -> bool {
        let node = &self.nodes[number];
        let runs = node.is_up && node.paused_until <= self.second && node.reached + 1 >= self.second;
        runs && node.well_since > 0 && self.second - node.well_since >= STALE
    }

    fn check_shares(&self) -> Result<(), String> {
        let mut owners: [Option<&str>; 8] = [None; 8];
        for (number, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_up) {
            let believed = node.slots.slots().filter(|slots| slots.until > self.now(number));
            let Some(NatSlots { held, .. }) = believed else { continue };
            for (slot, owner) in owners.iter_mut().enumerate().filter(|(slot, _)| held & (1 << slot) != 0) {
                if let Some(other) = owner.replace(&node.spec.hostname) {
                    let host = &node.spec.hostname;
                    return Err(format!("at {} s share {slot} is {other}'s and {host}'s", self.second));
                }
            }
        }
        Ok(())
    }

    fn check_end(mut self) -> Result<(), String> {
        let endpoints = self.of(Kind::Endpoint);
        let said: BTreeSet<String> = endpoints
            .iter()
            .filter_map(Member::read)
            .map(|member| member.endpoint.spec.hostname.clone())
            .collect();
        let beating: BTreeSet<String> =
            self.of(Kind::Gateway).iter().map(|object| object.metadata.name.clone()).collect();
        let up = self.nodes.iter().filter(|node| node.is_up);
        let up: BTreeSet<String> = up.map(|node| node.spec.hostname.clone()).collect();
        if said != up || beating != said {
            return Err(format!("{up:?} run, {said:?} have said so, {beating:?} have Gateway objects"));
        }
        let without = self.nodes.iter().find(|node| node.is_up && node.slots.slots().is_none());
        match without {
            Some(node) => Err(format!("{} has no share of the ports", node.spec.hostname)),
            None => Ok(()),
        }
    }

    fn goes_wrong(&mut self, percent: u64) -> bool {
        self.second < FAULTS_END && self.random.percent(percent)
    }

    /// Sends a write: it arrives now, later, or never.
    fn send(&mut self, write: Write) {
        if self.goes_wrong(10) {
            if self.random.percent(70) {
                self.late.after(Duration::from_secs(self.random.between(1, 8)), write);
            }
            return;
        }
        self.apply(write);
    }

    fn apply(&mut self, write: Write) {
        let key = write.key();
        let version = write.object().and_then(|object| object.metadata.resource_version.clone());
        let known = self.objects.get(&key).map(|object| object.metadata.resource_version.clone());
        let is_newest = known.as_ref() == Some(&version);
        match write {
            Write::Create(object) if known.is_none() => self.put(object),
            Write::Update(object) if is_newest => self.put(object),
            Write::Delete(_) if is_newest => {
                self.note(key.kind);
                self.objects.remove(&key);
            }
            Write::Create(_) | Write::Update(_) | Write::Delete(_) => {}
            Write::UpdateStatus(_) | Write::Annotate { .. } => panic!("never planned"),
        }
    }

    fn put(&mut self, mut object: Object) {
        self.version += 1;
        self.note(object.kind);
        object.metadata.resource_version = Some(self.version.to_string());
        self.objects.insert(object.key(), object);
    }

    /// Something of this kind has changed.
    fn note(&mut self, kind: Kind) {
        self.changes += u64::from(kind == Kind::Endpoint);
        self.lists.remove(&kind);
    }

    fn of(&mut self, kind: Kind) -> Arc<Vec<Object>> {
        let objects = &self.objects;
        let list = || objects.values().filter(|object| object.kind == kind).cloned().collect();
        Arc::clone(self.lists.entry(kind).or_insert_with(|| Arc::new(list())))
    }
}

impl Node {
    fn new(number: usize, random: &mut Random) -> Self {
        let hostname = format!("gw{number}");
        let address = format!("192.0.2.{}", number + 1);
        let spec = EndpointSpec {
            cluster_id: "a".to_owned(),
            cable_name: format!("submariner-cable-a-{}", address.replace('.', "-")),
            hostname: hostname.clone(),
            private_ip: address,
            backend: "wireguard".to_owned(),
            ..EndpointSpec::default()
        };
        Self {
            collector: GarbageCollector::new(&hostname),
            slots: Slots::new("ns", &hostname, TIMES),
            spec,
            is_up: true,
            paused_until: 0,
            cut_until: 0,
            reached: 0,
            well_since: 0,
            beat_at: 0,
            gateways: Arc::default(),
            mirror: Arc::default(),
            siblings: Vec::new(),
            hosts: vec![hostname],
            seen: 0,
            heard: (0, BTreeSet::new()),
            settled: None,
            offset: Duration::from_secs(random.between(0, 1_000_000)),
        }
    }

    /// A watch of Gateway objects lists them all again. The same list twice says nothing.
    fn hear_of(&mut self, listed: &Arc<Vec<Object>>, now: Instant) {
        if !Arc::ptr_eq(listed, &self.gateways) {
            self.collector.handle_gateways(&StoreEvent::Listed(listed.to_vec()), now);
            self.gateways = Arc::clone(listed);
        }
    }
}
