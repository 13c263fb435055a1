//! Engines in memory: a network that loses, repeats and reorders, under a virtual clock and a seed.
//!
//! ```text
//!   IkeEngine ─ LaneOrder ─▶ ModelLane        packets: SPI, then a number
//!      │                         │
//!      └────── datagrams ────────┴──▶ Net: loss, repetition, delay ──▶ the other node
//! ```
//!
//! A [`ModelLane`] takes orders as a lane does and keeps their keys, so that both ends can be compared.

pub(crate) mod two;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use trieste_cables::Site;
use trieste_cables::ipsec::ike::{EngineConfig, IkeEngine, IkeEvent, Input, PeerConfig, PeerReport};
use trieste_cables::ipsec::{
    ChildSa, EspPath, LaneNews, LaneOrder, LanePort, Outbound, Selectors, Spi, link,
};
use trieste_packet::{LaneId, Outer};
use trieste_simulator::{Link, Queue, Random};
use zeroize::Zeroizing;

/// A child SA that a lane was given.
#[derive(Debug)]
pub(crate) struct ModelPair {
    pub(crate) sa: ChildSa,
    pub(crate) may_seal: bool,
    pub(crate) is_retired: bool,
}

/// A lane as the engine sees it.
#[derive(Debug)]
pub(crate) struct ModelLane {
    port: LanePort,
    /// Oldest first.
    pub(crate) pairs: Vec<ModelPair>,
    /// Our SPIs of pairs that are asked for.
    pub(crate) expected: Vec<Spi>,
    pub(crate) path: Option<EspPath>,
    pub(crate) downs: usize,
    /// Packets opened and packets that came in for a pair that is not there.
    pub(crate) opened: u64,
    pub(crate) lost: u64,
}

impl ModelLane {
    fn obey(&mut self) {
        while let Some(order) = self.port.take() {
            match order {
                LaneOrder::Expect(spi) => self.expected.push(spi),
                LaneOrder::Abandon(spi) => self.expected.retain(|other| *other != spi),
                LaneOrder::Add(sa) => {
                    self.expected.retain(|other| *other != sa.inbound);
                    self.pairs.retain(|pair| pair.sa.inbound != sa.inbound);
                    let may_seal = sa.activation == Outbound::Now;
                    self.pairs.push(ModelPair { sa: *sa, may_seal, is_retired: false });
                }
                LaneOrder::Seal(spi) => self.each(spi, |pair| pair.may_seal = true),
                LaneOrder::Retire(spi) => {
                    self.each(spi, |pair| pair.is_retired = true);
                    let gone = self.pairs.iter().find(|pair| pair.sa.inbound == spi);
                    let Some(selectors) = gone.map(|pair| pair.sa.selectors.clone()) else { continue };
                    let same =
                        |pair: &&mut ModelPair| !pair.is_retired && pair.sa.selectors.overlap(&selectors);
                    let alive = self.pairs.iter().any(|pair| {
                        pair.may_seal && !pair.is_retired && pair.sa.selectors.overlap(&selectors)
                    });
                    if let (false, Some(heir)) = (alive, self.pairs.iter_mut().rev().find(same)) {
                        heir.may_seal = true;
                    }
                }
                LaneOrder::Remove(spi) => self.pairs.retain(|pair| pair.sa.inbound != spi),
                LaneOrder::Path(path) => self.path = Some(path),
                LaneOrder::Down => self.downs += 1,
            }
        }
    }

    fn each(&mut self, spi: Spi, act: impl Fn(&mut ModelPair)) {
        self.pairs.iter_mut().filter(|pair| pair.sa.inbound == spi).for_each(act);
    }

    /// The pair that seals packets of `selectors`: the newest that may.
    pub(crate) fn sealing(&self, selectors: &Selectors) -> Option<&ModelPair> {
        self.pairs
            .iter()
            .rev()
            .find(|pair| pair.may_seal && !pair.is_retired && covers(&pair.sa.selectors, selectors))
    }

    /// Pairs that are neither retired nor removed.
    pub(crate) fn live(&self) -> impl Iterator<Item = &ModelPair> {
        self.pairs.iter().filter(|pair| !pair.is_retired)
    }

    pub(crate) fn tell(&self, news: LaneNews) {
        self.port.tell(news);
    }
}

fn covers(wide: &Selectors, narrow: &Selectors) -> bool {
    let (local, remote) = (narrow.local.first(), narrow.remote.first());
    matches!((local, remote), (Some(local), Some(remote)) if wide.covers(local.first, remote.first))
}

/// A gateway.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    pub(crate) engine: IkeEngine,
    pub(crate) lanes: BTreeMap<LaneId, ModelLane>,
    pub(crate) events: Vec<IkeEvent>,
    pub(crate) is_dead: bool,
}

impl Node {
    pub(crate) fn report(&self, now: Instant) -> PeerReport {
        self.engine.report(now).into_iter().next().expect("there is a peer")
    }

    pub(crate) fn lane(&self) -> &ModelLane {
        self.lanes.values().next().expect("there is a lane")
    }
}

/// Whether a datagram of a sender is lost.
pub(crate) type Filter = Box<dyn FnMut(SocketAddr, &[u8]) -> bool>;

/// Gateways and what is between them.
pub(crate) struct Net {
    /// Datagrams on their way: from where, to where.
    queue: Queue<(SocketAddr, SocketAddr, Vec<u8>)>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) link: Link,
    random: Random,
    /// Every IKE datagram: when, from whom, and its bytes without the marker.
    pub(crate) log: Vec<(Instant, SocketAddr, Vec<u8>)>,
    /// Drops datagrams for which it is true.
    pub(crate) filter: Option<Filter>,
    /// Translations: what is sent from the first address seems to come from the second.
    pub(crate) nat: Vec<(SocketAddr, SocketAddr)>,
}

impl Net {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            queue: Queue::new(),
            nodes: Vec::new(),
            link: Link::millis(5, 5),
            random: Random::new(seed),
            log: Vec::new(),
            filter: None,
            nat: Vec::new(),
        }
    }

    /// Adds a gateway at the private address of `site`; returns its number.
    pub(crate) fn add(&mut self, ip: &str, config: EngineConfig) -> usize {
        let address = SocketAddr::new(ip.parse().expect("a test says what is right"), 4500);
        let engine = self.engine(config);
        self.nodes.push(Node { address, engine, lanes: BTreeMap::new(), events: Vec::new(), is_dead: false });
        self.nodes.len() - 1
    }

    fn engine(&mut self, config: EngineConfig) -> IkeEngine {
        IkeEngine::new(config, Box::new(self.random.stream()), self.queue.now())
    }

    /// Kills a gateway and starts it anew, without any cable.
    pub(crate) fn restart(&mut self, node: usize, config: EngineConfig) {
        let engine = self.engine(config);
        let node = &mut self.nodes[node];
        (node.engine, node.is_dead) = (engine, false);
        node.lanes.clear();
        node.events.clear();
    }

    /// A cable at `node`.
    pub(crate) fn connect(&mut self, node: usize, config: PeerConfig) {
        let (to_lane, port, news) = link::link(config.lane);
        let lane = ModelLane {
            port,
            pairs: Vec::new(),
            expected: Vec::new(),
            path: None,
            downs: 0,
            opened: 0,
            lost: 0,
        };
        let id = config.lane;
        self.nodes[node].lanes.insert(id, lane);
        self.input(node, Input::Connect(Box::new(config), to_lane, news));
    }

    pub(crate) fn input(&mut self, node: usize, input: Input) {
        self.nodes[node].engine.handle_input(input, self.queue.now());
        self.drain(node);
    }

    /// Fetches what an engine has made.
    fn drain(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        // As a worker does that is woken, or that has a packet: orders first.
        node.lanes.values_mut().for_each(ModelLane::obey);
        while let Some(event) = node.engine.poll_event() {
            node.events.push(event);
        }
        let mut out = Vec::new();
        while let Some(transmit) = node.engine.poll_transmit() {
            out.push(transmit);
        }
        let from = node.address;
        for transmit in out {
            let payload = transmit.payload;
            if payload.len() > 4 {
                self.log.push((self.queue.now(), from, payload[4..].to_vec()));
            }
            self.send(from, transmit.outer.peer, &payload);
        }
    }

    /// Puts a datagram on the wire.
    pub(crate) fn send(&mut self, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        if self.filter.as_mut().is_some_and(|filter| filter(from, payload)) {
            return;
        }
        let translated = self.nat.iter().find(|(inside, _)| *inside == from);
        let from = translated.map_or(from, |(_, outside)| *outside);
        for wait in self.link.arrivals(&mut self.random) {
            self.queue.after(wait, (from, to, payload.to_vec()));
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.queue.now()
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.queue.now() + span;
        loop {
            let arrival = self.queue.next();
            let timers = self.nodes.iter().filter(|node| !node.is_dead);
            let timer = timers.filter_map(|node| node.engine.poll_timeout()).min();
            let next = arrival.into_iter().chain(timer).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.queue.advance(next);
            match self.queue.pop(self.queue.now()) {
                Some((from, to, payload)) => self.arrive(from, to, &payload),
                None => self.timeouts(),
            }
        }
        self.queue.advance(end);
    }

    fn timeouts(&mut self) {
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            if !node.is_dead && node.engine.poll_timeout().is_some_and(|at| at <= self.queue.now()) {
                node.engine.handle_timeout(self.queue.now());
                let next = node.engine.poll_timeout();
                assert!(next.is_none_or(|next| next > self.queue.now()), "a timer that is not served");
                self.drain(index);
            }
        }
    }

    fn arrive(&mut self, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        let translated = self.nat.iter().find(|(_, outside)| *outside == to);
        let to = translated.map_or(to, |(inside, _)| *inside);
        let Some(index) = self.nodes.iter().position(|node| node.address == to && !node.is_dead) else {
            return;
        };
        let outer = Outer { peer: from, local: Some(to.ip()), tos: 0 };
        match payload.split_first_chunk::<4>() {
            Some(([0, 0, 0, 0], message)) => {
                self.input(index, Input::Datagram { message: message.to_vec(), from: outer });
            }
            Some((spi, _)) => self.deliver(index, Spi::from_bytes(*spi)),
            None => {}
        }
    }

    /// A packet of a pair comes in.
    fn deliver(&mut self, index: usize, spi: Spi) {
        let now = self.queue.now();
        let Some(lane) = self.nodes[index].lanes.get_mut(&spi.lane()) else { return };
        lane.obey();
        match lane.pairs.iter_mut().find(|pair| pair.sa.inbound == spi) {
            Some(pair) => {
                pair.may_seal = true;
                pair.sa.meter.opened(1, 100, now);
                lane.opened += 1;
            }
            None => lane.lost += 1,
        }
    }

    /// Sends a packet over the lane, if it can be sealed; says whether it could.
    pub(crate) fn packet(&mut self, node: usize, lane: LaneId, selectors: &Selectors) -> bool {
        let now = self.queue.now();
        let Some(model) = self.nodes[node].lanes.get_mut(&lane) else { return false };
        model.obey();
        let (Some(path), Some(pair)) = (model.path, model.sealing(selectors)) else { return false };
        pair.sa.meter.sealed(1, 100, now);
        let mut payload = pair.sa.outbound.to_bytes().to_vec();
        payload.extend_from_slice(&[0; 8]);
        let to = SocketAddr::new(path.outer.peer.ip(), path.outer.peer.port().max(4500));
        let from = self.nodes[node].address;
        self.send(from, to, &payload);
        true
    }

    /// What is wrong with the child SAs of two gateways, for one pair of subnets as the first of them sees it: the pairs
    /// that seal must be known to the other side, with the same keys crosswise.
    pub(crate) fn check(
        &self,
        (a, a_lane): (usize, LaneId),
        (b, b_lane): (usize, LaneId),
        selectors: &Selectors,
    ) -> Result<(), String> {
        let mirrored = Selectors { local: selectors.remote.clone(), remote: selectors.local.clone() };
        self.check_one((a, a_lane), (b, b_lane), selectors)?;
        self.check_one((b, b_lane), (a, a_lane), &mirrored)
    }

    fn check_one(
        &self,
        (a, a_lane): (usize, LaneId),
        (b, b_lane): (usize, LaneId),
        selectors: &Selectors,
    ) -> Result<(), String> {
        let (from, to) = (&self.nodes[a].lanes[&a_lane], &self.nodes[b].lanes[&b_lane]);
        let pair = from.sealing(selectors).ok_or_else(|| format!("node {a} cannot seal {selectors}"))?;
        let other = to.pairs.iter().find(|other| other.sa.inbound == pair.sa.outbound);
        let other = other.ok_or_else(|| format!("node {b} does not know {}", pair.sa.outbound))?;
        let are_same = pair.sa.outbound_keys == other.sa.inbound_keys
            && pair.sa.inbound_keys == other.sa.outbound_keys
            && pair.sa.inbound == other.sa.outbound
            && pair.sa.suite == other.sa.suite
            && pair.sa.has_esn == other.sa.has_esn
            && pair.sa.selectors.local == other.sa.selectors.remote
            && pair.sa.selectors.remote == other.sa.selectors.local;
        if are_same { Ok(()) } else { Err(format!("{:?} and {:?} differ", pair.sa, other.sa)) }
    }
}

/// What an Endpoint says.
pub(crate) fn site(name: &str, ip: &str, subnets: &[&str], settings: &[(&str, &str)]) -> Site {
    Site {
        cable_name: name.to_owned(),
        private_ip: ip.parse().expect("a test says what is right"),
        public_ip: None,
        subnets: subnets.iter().map(|net| net.parse().expect("a test says what is right")).collect(),
        driver: String::new(),
        backend_config: settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
    }
}

/// A cable from `local` to `remote`.
pub(crate) fn peer(lane: u32, local: &Site, remote: &Site) -> PeerConfig {
    let address = Some(SocketAddr::new(remote.private_ip, 4500));
    PeerConfig { address, ..PeerConfig::new(LaneId(lane), local.clone(), remote.clone()) }
}

pub(crate) fn config(psk: &str) -> EngineConfig {
    EngineConfig { psk: Zeroizing::new(psk.as_bytes().to_vec()), ..EngineConfig::default() }
}
