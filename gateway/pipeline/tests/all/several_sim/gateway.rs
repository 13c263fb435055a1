//! A gateway: the packet path of one worker, with what it knows of the others.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use trieste_cables::vxlan::VxlanKind;
use trieste_cables::{CableKind as _, LaneConfig, Site};
use trieste_nat::{Limits, Share};
use trieste_packet::{Batch, CableId, GatewayKey, LaneId, Packet, PoolConfig, WorkerId};
use trieste_pipeline::health::Watch;
use trieste_pipeline::{
    Board, Config, Fleet, LaneCommand, NatConfig, PathConfig, Pipeline, Tables, TablesBuilder, health,
};

use crate::support::globalnet::{GATEWAY_GLOBAL, MTU, NODE, PODS, SERVICES, Shape, global, rules};
use crate::support::line;

/// Who there are: the gateways of cluster 1, then those of cluster 2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) counts: [usize; 2],
    pub(crate) translates: bool,
}

impl Plan {
    pub(crate) fn count(&self) -> usize {
        self.counts.iter().sum()
    }

    /// 1 or 2.
    pub(crate) fn cluster(&self, gateway: usize) -> u8 {
        if gateway < self.counts[0] { 1 } else { 2 }
    }

    /// The gateways of a cluster.
    pub(crate) fn of(&self, cluster: u8) -> std::ops::Range<usize> {
        if cluster == 1 { 0..self.counts[0] } else { self.counts[0]..self.count() }
    }

    pub(crate) fn are_siblings(&self, a: usize, b: usize) -> bool {
        self.cluster(a) == self.cluster(b)
    }

    /// The gateway's number within its cluster.
    fn slot(&self, gateway: usize) -> u8 {
        u8::try_from(gateway - self.of(self.cluster(gateway)).start).unwrap()
    }
}

pub(crate) struct Gateway {
    pub(crate) line: Pipeline,
    pub(crate) fleet: Arc<Fleet>,
}

/// The gateway of one more cluster, a hostile one: a peer as the others are, that nobody watches.
pub(crate) const HOSTILE: usize = 65;
/// What the hostile cluster may send from.
const HOSTILES: &str = "10.66.0.0/16";

fn octet(gateway: usize) -> u8 {
    u8::try_from(gateway + 1).unwrap()
}

pub(crate) fn address(gateway: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, octet(gateway)], 4800))
}

pub(crate) fn cable(to: usize) -> CableId {
    CableId(u16::from(octet(to)))
}

fn lane(to: usize) -> LaneId {
    LaneId(u32::from(octet(to)) << 8)
}

fn name(gateway: usize) -> String {
    format!("submariner-cable-192-0-2-{}", octet(gateway))
}

/// The key of a gateway: nodes draw by it as well.
pub(crate) fn key(gateway: usize) -> GatewayKey {
    GatewayKey::of(&name(gateway))
}

fn site(gateway: usize, kind: &VxlanKind) -> Site {
    let mut site = Site::from(kind.backend_config());
    site.private_ip = address(gateway).ip();
    site
}

impl Gateway {
    /// A process that has just begun. `boot` is another number for every one.
    pub(crate) fn new(plan: &Plan, index: usize, boot: u64, health: health::Config, now: Instant) -> Self {
        let kind = VxlanKind::new("submariner", now);
        let fleet = Fleet::new(key(index), boot, now);
        fleet.set_share(Share::of_slot(plan.slot(index)), None);
        let nat =
            NatConfig { limits: Limits { sessions: 1 << 10, ..Limits::default() }, ..NatConfig::default() };
        let config = Config {
            worker: WorkerId(0),
            workers: 1,
            // Whatever waits in both queues when it goes on after a stall comes in one turn.
            pool: PoolConfig { slots: 4096, slot_bytes: 4096 },
            seed: boot,
            nat,
            health,
            board: Board::new(),
            fleet: Arc::clone(&fleet),
        };
        let tables = Arc::new(ArcSwap::from_pointee(tables(plan, index, &kind)));
        let mut line = Pipeline::new(config, tables, kind.gate(), now);
        for to in (0..plan.count()).filter(|to| *to != index).chain([HOSTILE]) {
            let mut config = LaneConfig::new(lane(to), cable(to), Some(address(to)), kind.backend_config());
            (config.local, config.remote) = (site(index, &kind), site(to, &kind));
            let tunnel = kind.connect(&config, now).unwrap();
            let [from, to_address] = [index, to].map(|end| IpAddr::from([192, 0, 0, octet(end)]));
            let is_sibling = to != HOSTILE && plan.are_siblings(index, to);
            let watch = Watch { from, to: to_address, most_bytes: MTU, is_sibling };
            let watch = (to != HOSTILE).then_some(watch);
            let add = LaneCommand::Add { lane: lane(to), cable: cable(to), tunnel, watch };
            line.command(add, now);
        }
        Self { line, fleet }
    }

    /// When it wants to be called.
    pub(crate) fn due(&self) -> Option<Instant> {
        [self.line.poll_timeout(), self.line.poll_probes()].into_iter().flatten().min()
    }

    /// A worker's turn: what has come from outside and inside, then what is due.
    pub(crate) fn turn(&mut self, wire: Vec<(usize, Packet)>, inside: &[Vec<u8>], now: Instant) {
        let wire = wire.into_iter().map(|(from, packet)| (address(from), packet));
        line::receive(&mut self.line, wire, now);
        for packets in inside.chunks(64) {
            let mut batch = Batch::new();
            for bytes in packets {
                batch.push(Packet::new(self.line.pool.alloc_copy(bytes).unwrap())).unwrap();
            }
            self.line.outbound(&mut batch, now);
        }
        if self.line.poll_timeout().is_some_and(|due| due <= now) {
            self.line.handle_timeout(now);
        }
        self.line.handle_probes(now);
    }

    /// Datagrams that it has for the wire.
    pub(crate) fn sent(&mut self) -> Vec<Packet> {
        let sent: Vec<Packet> = self.line.to_wire.drain().collect();
        self.line.sent(sent.iter().map(Packet::segments).sum());
        sent
    }

    /// Packets that it delivers.
    pub(crate) fn delivered(&mut self) -> Vec<Vec<u8>> {
        line::delivered(&mut self.line)
    }

    /// Has all know that it is about to leave, or that it stays.
    pub(crate) fn drain(&mut self, drains: bool, now: Instant) {
        self.line.command(LaneCommand::Draining(drains), now);
        self.fleet.set_draining(drains, now);
    }
}

fn tables(plan: &Plan, of: usize, kind: &VxlanKind) -> Tables {
    let own = plan.cluster(of);
    let subnet = |cluster: u8| {
        let subnet =
            if plan.translates { format!("242.{cluster}.0.0/24") } else { format!("10.{cluster}.0.0/16") };
        subnet.parse().unwrap()
    };
    let mut builder = TablesBuilder::new(1, &[subnet(own)], &[NODE.into()]);
    if plan.translates {
        let inside = [PODS.parse().unwrap(), SERVICES.parse().unwrap()];
        let rules = Arc::new(rules(own, &Shape::workers(1), 1));
        builder = builder.globalnet(&inside, rules, Some(global(own, GATEWAY_GLOBAL).into()));
    }
    let cluster = builder.cluster("other", &[subnet(3 - own)]).unwrap();
    for to in (0..plan.count()).filter(|to| *to != of) {
        let config =
            PathConfig { lane: lane(to), cable: cable(to), mtu_bytes: MTU, key: key(to), weight: 100 };
        if plan.are_siblings(of, to) {
            builder.sibling(&name(to), &config).unwrap();
        } else {
            builder.path_among(cluster, &config).unwrap();
        }
        builder.identity(kind.identity(&site(to, kind)).unwrap(), lane(to));
    }
    let hostile = builder.cluster("hostile", &[HOSTILES.parse().unwrap()]).unwrap();
    let (lane, cable) = (lane(HOSTILE), cable(HOSTILE));
    let config = PathConfig { lane, cable, mtu_bytes: MTU, key: key(HOSTILE), weight: 100 };
    builder.path_among(hostile, &config).unwrap();
    builder.identity(kind.identity(&site(HOSTILE, kind)).unwrap(), lane);
    builder.build()
}
