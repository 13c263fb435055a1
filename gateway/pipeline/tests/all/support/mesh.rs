//! Clusters of several gateways, every gateway joined to all of the others by WireGuard.
//!
//! ```text
//!   cluster 1            cluster 2        10.N.0.0/16 is cluster N's
//!   gateway 0 ═══╦══════ gateway 2
//!       ║        ╬
//!   gateway 1 ═══╩══════ gateway 3        ═ path, ║ sibling cable
//! ```
#![expect(clippy::disallowed_methods, reason = "boringtun reads the real clock")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use trieste_cables::wireguard::WireguardKind;
use trieste_cables::{CableKind as _, LaneConfig};
use trieste_packet::{Batch, CableId, DropReason, GatewayKey, LaneId, Packet, WorkerId};
use trieste_pipeline::{Board, Config, LaneCommand, PathConfig, PathState, Pipeline, Tables, TablesBuilder};

use super::{MTU, kind, line, pipeline_config};

/// A gateway: a pipeline of one worker.
pub(crate) struct Gateway {
    pub(crate) line: Pipeline,
    pub(crate) board: Arc<Board>,
    pub(crate) tables: Arc<ArcSwap<Tables>>,
    kind: WireguardKind,
    pub(crate) cluster: u8,
    /// What has come for it, with whom it is from. Nobody fetches it while the gateway is dead.
    inbox: Vec<(usize, Packet)>,
    pub(crate) is_dead: bool,
}

/// All of them.
pub(crate) struct Mesh {
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) now: Instant,
    epoch: u64,
    /// Datagrams that went to a dead gateway.
    pub(crate) lost: u64,
}

pub(crate) fn cable(to: usize) -> CableId {
    CableId(u16::try_from(to + 1).unwrap())
}

pub(crate) fn lane(to: usize) -> LaneId {
    LaneId(u32::try_from(to + 1).unwrap() << 8)
}

fn name(gateway: usize) -> String {
    format!("submariner-cable-192-0-2-{gateway}")
}

fn address(gateway: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, u8::try_from(gateway + 1).unwrap()], 4500))
}

/// The address that probes of a gateway go to, inside its cluster's subnet.
pub(crate) fn own_address(gateway: usize, cluster: u8) -> [u8; 4] {
    [10, cluster, 255, u8::try_from(gateway).unwrap()]
}

impl Mesh {
    /// So many gateways in cluster 1, 2, ..., which have greeted one another.
    pub(crate) fn new(counts: &[usize]) -> Self {
        let mut mesh = Self { gateways: Vec::new(), now: Instant::now(), epoch: 0, lost: 0 };
        for (cluster, &count) in (1u8..).zip(counts) {
            for _ in 0..count {
                let (kind, board) = (kind(), Board::new());
                let tables = Arc::new(ArcSwap::from_pointee(Tables::default()));
                let config = Config { board: Arc::clone(&board), ..pipeline_config(WorkerId(0)) };
                let line = Pipeline::new(config, Arc::clone(&tables), kind.gate(), mesh.now);
                let inbox = Vec::new();
                mesh.gateways.push(Gateway { line, board, tables, kind, cluster, inbox, is_dead: false });
            }
        }
        for of in 0..mesh.gateways.len() {
            mesh.know(of, |_| 100, |builder| builder);
            for to in (0..mesh.gateways.len()).filter(|to| *to != of) {
                mesh.connect(of, to);
            }
        }
        mesh.carry();
        assert_eq!(mesh.drops(), []);
        mesh
    }

    /// Gives a gateway tables: all others with these weights, 0 for those that it does not know.
    pub(crate) fn know(
        &mut self,
        of: usize,
        weight: impl Fn(usize) -> u16,
        change: impl FnOnce(TablesBuilder) -> TablesBuilder,
    ) {
        self.epoch += 1;
        let (all, own) = (self.gateways.iter().map(|gateway| gateway.cluster), self.gateways[of].cluster);
        let clusters: std::collections::BTreeSet<u8> = all.collect();
        let subnet = |cluster: u8| format!("10.{cluster}.0.0/16").parse().unwrap();
        let icmp = IpAddr::from(own_address(of, own));
        let mut builder = change(TablesBuilder::new(self.epoch, &[subnet(own)], &[icmp]));
        for cluster in clusters.into_iter().filter(|cluster| *cluster != own) {
            let id = builder.cluster(&format!("c{cluster}"), &[subnet(cluster)]).unwrap();
            for to in self.of_cluster(cluster).into_iter().filter(|to| weight(*to) > 0) {
                let path = builder.path_among(id, &path_config(to, weight(to))).unwrap();
                builder.pin(own_address(to, cluster).into(), path);
            }
        }
        for to in self.of_cluster(own).into_iter().filter(|to| *to != of && weight(*to) > 0) {
            builder.sibling(&name(to), &path_config(to, 100)).unwrap();
        }
        for to in (0..self.gateways.len()).filter(|to| *to != of) {
            let site = self.gateways[to].kind.backend_config().into();
            builder.identity(self.gateways[of].kind.identity(&site).unwrap(), lane(to));
        }
        self.gateways[of].tables.store(Arc::new(builder.build()));
    }

    /// The gateways of a cluster.
    pub(crate) fn of_cluster(&self, cluster: u8) -> Vec<usize> {
        (0..self.gateways.len()).filter(|gateway| self.gateways[*gateway].cluster == cluster).collect()
    }

    fn connect(&mut self, of: usize, to: usize) {
        let backend = self.gateways[to].kind.backend_config();
        let config = LaneConfig::new(lane(to), cable(to), (of < to).then(|| address(to)), backend);
        let gateway = &mut self.gateways[of];
        let tunnel = gateway.kind.connect(&config, self.now).unwrap();
        let add = LaneCommand::Add { lane: lane(to), cable: cable(to), tunnel, watch: None };
        gateway.line.command(add, self.now);
    }

    /// What a gateway believes of its paths to all others that there are.
    pub(crate) fn believe(&self, of: usize, state: impl Fn(usize) -> PathState) {
        for to in (0..self.gateways.len()).filter(|to| *to != of) {
            self.gateways[of].board.set_state(cable(to), state(to));
        }
    }

    /// Sends packets of pods by a gateway.
    pub(crate) fn send(&mut self, by: usize, packets: &[Vec<u8>]) {
        for packets in packets.chunks(64) {
            let line = &mut self.gateways[by].line;
            let mut batch = Batch::new();
            for bytes in packets {
                batch.push(Packet::new(line.pool.alloc_copy(bytes).unwrap())).unwrap();
            }
            line.outbound(&mut batch, self.now);
            self.carry();
        }
    }

    /// Carries what is on its way until nothing moves any more.
    pub(crate) fn carry(&mut self) {
        for _ in 0..32 {
            let mut moving = Vec::new();
            for (from, gateway) in self.gateways.iter_mut().enumerate() {
                let sent: Vec<Packet> = gateway.line.to_wire.drain().collect();
                gateway.line.sent(sent.iter().map(Packet::segments).sum());
                moving.extend(sent.into_iter().map(|packet| (from, packet)));
            }
            if moving.is_empty() {
                return;
            }
            for (from, packet) in moving {
                let to = (0..self.gateways.len()).find(|to| address(*to) == packet.outer.peer).unwrap();
                if self.gateways[to].is_dead {
                    self.lost += packet.segments();
                } else {
                    self.gateways[to].inbox.push((from, packet));
                }
            }
            for gateway in &mut self.gateways {
                gateway.receive(self.now);
            }
        }
        panic!("packets go round for ever");
    }

    /// What was delivered, by gateway.
    pub(crate) fn delivered(&mut self) -> Vec<(usize, Vec<u8>)> {
        let mut all = Vec::new();
        for (index, gateway) in self.gateways.iter_mut().enumerate() {
            all.extend(line::delivered(&mut gateway.line).into_iter().map(|packet| (index, packet)));
        }
        all
    }

    pub(crate) fn drops(&self) -> Vec<(usize, DropReason, u64)> {
        let of = |(index, gateway): (usize, &Gateway)| {
            let drops: Vec<_> = gateway.line.drops.iter().collect();
            drops.into_iter().map(move |(_, reason, count)| (index, reason, count)).collect::<Vec<_>>()
        };
        self.gateways.iter().enumerate().flat_map(of).collect()
    }

    pub(crate) fn assert_balanced(&self) {
        for gateway in &self.gateways {
            let counters = gateway.line.snapshot(self.now);
            assert!(counters.conservation().holds(), "{:?} of {counters:?}", counters.conservation());
        }
    }
}

impl Gateway {
    fn receive(&mut self, now: Instant) {
        let inbox = std::mem::take(&mut self.inbox).into_iter();
        line::receive(&mut self.line, inbox.map(|(from, packet)| (address(from), packet)), now);
    }
}

fn path_config(to: usize, weight: u16) -> PathConfig {
    let key = GatewayKey::of(&name(to));
    PathConfig { lane: lane(to), cable: cable(to), mtu_bytes: MTU, key, weight }
}
