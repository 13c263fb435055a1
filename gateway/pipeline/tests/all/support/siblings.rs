//! A cluster of several gateways that translate together, and another cluster with one; all joined by WireGuard.
#![expect(clippy::disallowed_methods, reason = "boringtun reads the real clock")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use trieste_cables::wireguard::WireguardKind;
use trieste_cables::{CableKind as _, LaneConfig};
use trieste_nat::{Cursor, Record, Share};
use trieste_packet::{Batch, CableId, DropReason, GatewayKey, LaneId, Packet, PoolConfig, WorkerId};
use trieste_pipeline::{
    Board, Config, Fleet, LaneCommand, PathConfig, PathState, Pipeline, SharingStats, Tables, TablesBuilder,
    health,
};
use trieste_simulator::Random;

use super::globalnet::*;
use super::{hand_over, line};

/// A gateway.
pub(crate) struct Gateway {
    pub(crate) lines: Vec<Pipeline>,
    pub(crate) board: Arc<Board>,
    pub(crate) fleet: Arc<Fleet>,
    tables: Arc<ArcSwap<Tables>>,
    kind: WireguardKind,
    /// Whether it runs.
    pub(crate) runs: bool,
    /// Datagrams that have come while it does not run, with whom they are from.
    waiting: Vec<(usize, Packet)>,
}

/// All of them; the last one is the other cluster's.
pub(crate) struct Net {
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) now: Instant,
    /// Links on which nothing gets through, from and to.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    /// How many datagrams of 1000 are lost.
    pub(crate) loss: u64,
    /// Whether datagrams between two gateways come in another order.
    pub(crate) reorders: bool,
    pub(crate) random: Random,
    boots: u64,
    workers: u16,
}

fn name(gateway: usize) -> String {
    format!("submariner-cable-east-192-0-2-{gateway}")
}

pub(crate) fn key(gateway: usize) -> GatewayKey {
    GatewayKey::of(&name(gateway))
}

pub(crate) fn cable(to: usize) -> CableId {
    CableId(u16::try_from(to + 1).unwrap())
}

fn address(gateway: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, u8::try_from(gateway + 1).unwrap()], 4500))
}

impl Net {
    /// So many gateways in cluster 1, which have greeted each other.
    pub(crate) fn new(gateways: usize, workers: u16) -> Self {
        let mut net = Self::unconnected(gateways, workers);
        net.connect_all();
        net.settle();
        net
    }

    fn unconnected(gateways: usize, workers: u16) -> Self {
        let now = Instant::now();
        let mut net = Self {
            gateways: Vec::new(),
            now,
            cut: BTreeSet::new(),
            loss: 0,
            reorders: false,
            random: Random::new(1),
            boots: 0,
            workers,
        };
        for index in 0..=gateways {
            let gateway = net.gateway(index);
            net.gateways.push(gateway);
        }
        net
    }

    /// One of the gateways.
    pub(crate) fn draw_gateway(&mut self) -> usize {
        self.random.below(self.gateways.len() - 1)
    }

    fn gateway(&mut self, index: usize) -> Gateway {
        self.boots += 1;
        let now = self.now;
        let kind = WireguardKind::new(WireguardKind::generate_private_key(), "psk", "submariner", now);
        let tables = Arc::new(ArcSwap::from_pointee(Tables::default()));
        let board = Board::new();
        let fleet = Fleet::new(key(index), self.boots, now);
        fleet.set_share(Share::of_slot(u8::try_from(index).unwrap()), None);
        let line = |worker| {
            let config = Config {
                worker: WorkerId(worker),
                workers: self.workers,
                pool: PoolConfig { slots: 1024, ..PoolConfig::default() },
                seed: self.boots,
                nat: trieste_pipeline::NatConfig {
                    limits: trieste_nat::Limits { sessions: 1 << 14, ..trieste_nat::Limits::default() },
                    ..trieste_pipeline::NatConfig::default()
                },
                health: health::Config::default(),
                board: Arc::clone(&board),
                fleet: Arc::clone(&fleet),
            };
            Pipeline::new(config, Arc::clone(&tables), kind.gate(), now)
        };
        let lines = (0..self.workers).map(line).collect();
        Gateway { lines, board, fleet, tables, kind, runs: true, waiting: Vec::new() }
    }

    /// Number of gateways in cluster 1; also the place of the other cluster's.
    pub(crate) fn count(&self) -> usize {
        self.gateways.len() - 1
    }

    fn lane(&self, to: usize) -> LaneId {
        // Another worker for each.
        let worker = u32::try_from(to).unwrap() % u32::from(self.workers);
        LaneId(u32::try_from(to + 1).unwrap() << 8 | worker)
    }

    fn tables(&self, of: usize, epoch: u64, shape: &Shape) -> Tables {
        let far = self.count();
        let site = if of == far { 2 } else { 1 };
        let subnet = |site: u8| format!("242.{site}.0.0/24").parse().unwrap();
        let inside = [PODS.parse().unwrap(), SERVICES.parse().unwrap()];
        let mut builder = TablesBuilder::new(epoch, &[subnet(site)], &[NODE.into()]).globalnet(
            &inside,
            Arc::new(rules(site, shape, epoch)),
            Some(global(site, GATEWAY_GLOBAL).into()),
        );
        let cluster = builder.cluster("other", &[subnet(3 - site)]).unwrap();
        for to in (0..=far).filter(|to| *to != of) {
            let config = PathConfig {
                lane: self.lane(to),
                cable: cable(to),
                mtu_bytes: MTU,
                key: key(to),
                weight: 100,
            };
            if of == far || to == far {
                builder.path_among(cluster, &config).unwrap();
            } else {
                builder.sibling(&name(to), &config).unwrap();
            }
            let identity = &self.gateways[to].kind.backend_config().into();
            builder.identity(self.gateways[of].kind.identity(identity).unwrap(), self.lane(to));
        }
        builder.build()
    }

    fn connect_all(&mut self) {
        for of in 0..self.gateways.len() {
            self.link(of, None);
        }
    }

    /// Gives a gateway its tables, and lanes to all others or to one that is new.
    fn link(&mut self, of: usize, only: Option<usize>) {
        let epoch = self.boots;
        let tables = self.tables(of, epoch, &Shape::workers(self.workers));
        self.gateways[of].tables.store(Arc::new(tables));
        for to in (0..self.gateways.len()).filter(|to| *to != of && only.is_none_or(|only| only == *to)) {
            let lane = self.lane(to);
            let peer = (of < to || only.is_some()).then(|| address(to));
            let backend = self.gateways[to].kind.backend_config();
            let config = LaneConfig::new(lane, cable(to), peer, backend);
            let gateway = &mut self.gateways[of];
            let tunnel = gateway.kind.connect(&config, self.now).unwrap();
            let owner = usize::from(lane.0.to_le_bytes()[0]);
            let add = LaneCommand::Add { lane, cable: cable(to), tunnel, watch: None };
            gateway.lines[owner].command(add, self.now);
        }
    }

    /// Whether a gateway knows of no address for its cluster's pods from now on.
    pub(crate) fn set_blank(&mut self, index: usize, is_blank: bool) {
        self.boots += 1;
        let shape = Shape { has_cluster_egress: !is_blank, ..Shape::workers(self.workers) };
        let tables = self.tables(index, self.boots, &shape);
        self.gateways[index].tables.store(Arc::new(tables));
    }

    /// The process of a gateway ends; a new one begins, which knows nothing.
    pub(crate) fn restart(&mut self, index: usize) {
        let fresh = self.gateway(index);
        self.gateways[index] = fresh;
        self.link(index, None);
        for of in (0..self.gateways.len()).filter(|of| *of != index) {
            self.link(of, Some(index));
        }
    }

    /// All others see a gateway so from now on, and it sees them so.
    pub(crate) fn see(&mut self, index: usize, state: PathState) {
        for of in (0..self.gateways.len()).filter(|of| *of != index) {
            self.see_link(index, of, state);
        }
    }

    /// Two gateways see each other so from now on.
    pub(crate) fn see_link(&mut self, a: usize, b: usize, state: PathState) {
        self.gateways[a].board.set_state(cable(b), state);
        self.gateways[b].board.set_state(cable(a), state);
    }

    /// Sends packets of pods or services by a gateway's worker.
    pub(crate) fn send(&mut self, by: usize, worker: usize, packets: &[Vec<u8>]) {
        let gateway = &mut self.gateways[by];
        let line = &mut gateway.lines[worker];
        let mut batch = Batch::with_limit(1024);
        for bytes in packets {
            batch.push(Packet::new(line.pool.alloc_copy(bytes).unwrap())).unwrap();
        }
        line.outbound(&mut batch, self.now);
        hand_over(&mut gateway.lines, self.now);
    }

    /// Carries what is on its way until nothing moves any more.
    pub(crate) fn carry(&mut self) {
        for _ in 0..64 {
            if !self.carry_once() {
                return;
            }
        }
    }

    /// Carries what is on its way one step. Returns whether there was anything.
    pub(crate) fn carry_once(&mut self) -> bool {
        let mut moving = Vec::new();
        for (from, gateway) in self.gateways.iter_mut().enumerate().filter(|(_, gateway)| gateway.runs) {
            for line in &mut gateway.lines {
                let sent: Vec<Packet> = line.to_wire.drain().collect();
                line.sent(sent.iter().map(Packet::segments).sum());
                moving.extend(sent.into_iter().map(|packet| (from, packet)));
            }
        }
        let is_any = !moving.is_empty();
        for (from, packet) in moving {
            let to = (0..self.gateways.len()).find(|to| address(*to) == packet.outer.peer).unwrap();
            let is_lost = self.random.chance(self.loss);
            if self.cut.contains(&(from, to)) || is_lost {
                continue;
            }
            let waiting = &mut self.gateways[to].waiting;
            let at = if self.reorders { self.random.between(0, waiting.len()) } else { waiting.len() };
            waiting.insert(at, (from, packet));
        }
        for index in 0..self.gateways.len() {
            if self.gateways[index].runs {
                self.gateways[index].receive(self.now);
            }
        }
        is_any
    }

    /// Time passes, and what is on its way then is carried until nothing moves any more.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.pass(time);
        self.carry();
    }

    /// Time passes, and what is on its way then is carried one step.
    pub(crate) fn wait_once(&mut self, time: Duration) {
        self.pass(time);
        self.carry_once();
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for gateway in self.gateways.iter_mut().filter(|gateway| gateway.runs) {
            for line in &mut gateway.lines {
                line.handle_timeout(self.now);
            }
            hand_over(&mut gateway.lines, self.now);
        }
    }

    /// Time passes until everybody knows everything.
    pub(crate) fn settle(&mut self) {
        for _ in 0..20 {
            self.wait(Duration::from_millis(20));
        }
    }

    /// What was delivered at gateways of cluster 1, or at the other's.
    pub(crate) fn delivered(&mut self, cluster: u8) -> Vec<Vec<u8>> {
        let far = self.count();
        let range = if cluster == 1 { 0..far } else { far..far + 1 };
        range.flat_map(|index| self.gateways[index].delivered()).collect()
    }

    pub(crate) fn ready(&self) -> Vec<bool> {
        (0..self.count()).map(|index| self.gateways[index].fleet.is_ready()).collect()
    }

    /// Drops at the gateways that run, by reason.
    pub(crate) fn drops(&self) -> Vec<(usize, DropReason, u64)> {
        let of = |(index, gateway): (usize, &Gateway)| {
            let reasons: Vec<_> = gateway.lines.iter().flat_map(|line| line.drops.iter()).collect();
            reasons.into_iter().map(move |(_, reason, count)| (index, reason, count)).collect::<Vec<_>>()
        };
        self.gateways.iter().enumerate().flat_map(of).collect()
    }

    pub(crate) fn assert_balanced(&self) {
        for line in self.gateways.iter().flat_map(|gateway| &gateway.lines) {
            let counters = line.snapshot(self.now);
            assert!(counters.conservation().holds(), "{:?} of {counters:?}", counters.conservation());
        }
    }
}

impl Gateway {
    fn receive(&mut self, now: Instant) {
        let waiting = std::mem::take(&mut self.waiting);
        let mut batch = Batch::with_limit(2048);
        for (from, packet) in waiting {
            batch.push(line::arrived(&mut self.lines[0], address(from), &packet)).unwrap();
        }
        self.lines[0].inbound(&mut batch, now);
        hand_over(&mut self.lines, now);
    }

    pub(crate) fn delivered(&mut self) -> Vec<Vec<u8>> {
        self.lines.iter_mut().flat_map(line::delivered).collect()
    }

    /// Every session that it has.
    pub(crate) fn sessions(&self, now: Instant) -> Vec<Record> {
        let mut all = Vec::new();
        for nat in self.lines.iter().filter_map(Pipeline::nat) {
            nat.export(Cursor::default(), 1 << 20, now, &mut all);
        }
        all
    }

    pub(crate) fn sharing(&self) -> SharingStats {
        let mut sum = SharingStats::default();
        for stats in self.lines.iter().filter_map(Pipeline::sharing) {
            sum.buckets = stats.buckets;
            sum.adopted = sum.adopted.max(stats.adopted);
            sum.told += stats.told;
            sum.taken += stats.taken;
            sum.refused += stats.refused;
            sum.lost += stats.lost;
            sum.backlog += stats.backlog;
            sum.repeated += stats.repeated;
        }
        sum
    }
}
