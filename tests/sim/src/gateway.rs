//! A gateway: its lines, one per worker, and its place in the world.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use ipnet::IpNet;
use trieste_cables::wireguard::WireguardKind;
use trieste_cables::{CableKind, LaneConfig};
use trieste_packet::{Batch, CableId, GatewayKey, LaneId, Outer, Packet, PoolConfig, WorkerId};
use trieste_pipeline::{
    Board, Config, Fleet, Handoff, HandoffKind, LaneCommand, NatConfig, Pipeline, TablesBuilder, health,
};

const MTU_BYTES: u16 = 1420;

/// A gateway with a cable to every other.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) is_running: bool,
    lines: Vec<Pipeline>,
    dropped_before: u64,
}

impl Gateway {
    /// Gateway number `index` of `count`, each known to the others by the addresses given (its own included).
    pub(crate) fn new(index: usize, addresses: &[SocketAddr], workers: u16, now: Instant) -> Self {
        let all: Vec<usize> = (0..addresses.len()).collect();
        Self::with(index, addresses, workers, now, &subnets(index), &all)
    }

    /// The same with a program that is not ours: it takes the networks of all but `victim` for its own, and lets its pods send
    /// from there.
    pub(crate) fn hostile(index: usize, addresses: &[SocketAddr], victim: usize, now: Instant) -> Self {
        let local: Vec<IpNet> =
            (0..addresses.len()).filter(|other| *other != victim).flat_map(subnets).collect();
        Self::with(index, addresses, 1, now, &local, &[victim])
    }

    /// `reached` are those whose networks it sends to.
    fn with(
        index: usize,
        addresses: &[SocketAddr],
        workers: u16,
        now: Instant,
        local: &[IpNet],
        reached: &[usize],
    ) -> Self {
        let own = kind(index, now);
        let icmp_sources: Vec<IpAddr> = local.iter().filter_map(|net| net.hosts().nth(1)).collect();
        let mut tables = TablesBuilder::new(1, local, &icmp_sources);
        let mut cables = Vec::new();
        for (other, address) in addresses.iter().enumerate().filter(|(other, _)| *other != index) {
            let config = kind(other, now).backend_config();
            let owner = u32::try_from(other).expect("few gateways") % u32::from(workers);
            let lane = LaneId((u32::try_from(other).expect("few gateways") + 1) << 8 | owner);
            let cable = CableId(u16::try_from(other + 1).expect("few gateways"));
            if reached.contains(&other) {
                let cluster =
                    tables.cluster(&format!("cluster-{other}"), &subnets(other)).expect("nothing overlaps");
                tables.path(cluster, lane, cable, MTU_BYTES).expect("few paths");
            }
            tables.identity(own.identity(&config.clone().into()).expect("the key is good"), lane);
            cables.push(LaneConfig::new(lane, cable, Some(*address), config));
        }
        let tables = Arc::new(ArcSwap::from_pointee(tables.build()));
        let pool = PoolConfig { slots: 64, slot_bytes: 70_000 };
        let board = Board::new();
        let fleet = Fleet::new(GatewayKey(index as u64), 1, now);
        let line = |worker: u16| {
            let config = Config {
                worker: WorkerId(worker),
                workers,
                pool,
                seed: 7,
                nat: NatConfig::default(),
                health: health::Config::default(),
                board: Arc::clone(&board),
                fleet: Arc::clone(&fleet),
            };
            Pipeline::new(config, Arc::clone(&tables), own.gate(), now)
        };
        let mut gateway = Self {
            address: addresses[index],
            is_running: true,
            lines: (0..workers).map(line).collect(),
            dropped_before: 0,
        };
        for config in cables {
            let tunnel = own.connect(&config, now).expect("the configuration is good");
            let worker = usize::try_from(config.lane.0 & 0xff).expect("a byte");
            let add = LaneCommand::Add { lane: config.lane, cable: config.cable, tunnel, watch: None };
            gateway.lines[worker].command(add, now);
        }
        gateway
    }

    /// Takes a packet from a pod, on the worker that the kernel would choose: any.
    pub(crate) fn take_inner(&mut self, packet: &[u8], worker: u64, now: Instant) {
        let line = self.line(worker);
        let mut batch = batch_of(line, packet, Outer::NONE);
        line.outbound(&mut batch, now);
        self.hand_over(now);
    }

    /// Takes a datagram from the wire.
    pub(crate) fn take_outer(&mut self, datagram: &[u8], from: SocketAddr, worker: u64, now: Instant) {
        let line = self.line(worker);
        let mut batch = batch_of(line, datagram, Outer { peer: from, ..Outer::NONE });
        line.inbound(&mut batch, now);
        self.hand_over(now);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for line in &mut self.lines {
            line.handle_timeout(now);
        }
        self.hand_over(now);
    }

    fn line(&mut self, worker: u64) -> &mut Pipeline {
        let count = self.lines.len() as u64;
        &mut self.lines[usize::try_from(worker % count).expect("few workers")]
    }

    /// Carries packets between workers until none is on its way.
    fn hand_over(&mut self, now: Instant) {
        loop {
            let mut moving: Vec<Handoff> = Vec::new();
            for line in &mut self.lines {
                line.counters.handed_out +=
                    line.to_workers.iter().map(|handoff| handoff.packet.segments()).sum::<u64>();
                moving.append(&mut line.to_workers);
            }
            if moving.is_empty() {
                return;
            }
            for handoff in moving {
                debug_assert!(!matches!(handoff.kind, HandoffKind::Seal) || handoff.packet.segments() == 1);
                let to = usize::from(handoff.to.0);
                self.lines[to].handed_over([handoff], now);
            }
        }
    }

    /// What goes to the wire: destinations and datagrams.
    pub(crate) fn drain_wire(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut datagrams = Vec::new();
        for line in &mut self.lines {
            let packets: Vec<Packet> = line.to_wire.drain().collect();
            for packet in packets {
                line.counters.wire_out += packet.segments();
                for index in 0..usize::from(packet.layout.count) {
                    let (start, end) = packet.segment_range(index);
                    datagrams.push((packet.outer.peer, packet.bytes()[start..end].to_vec()));
                }
                line.pool.recycle(packet.buf);
            }
        }
        datagrams
    }

    /// What goes to the pods.
    pub(crate) fn drain_tun(&mut self) -> Vec<Vec<u8>> {
        let mut delivered = Vec::new();
        for line in &mut self.lines {
            let packets: Vec<Packet> = line.to_tun.drain().collect();
            for packet in packets {
                line.counters.tun_out += packet.segments();
                delivered.push(packet.bytes().to_vec());
                line.pool.recycle(packet.buf);
            }
        }
        delivered
    }

    /// Every packet that came in went out, is held, or was dropped for a reason.
    pub(crate) fn assert_conserved(&self, now: Instant) {
        for line in &self.lines {
            let balance = line.snapshot(now).conservation();
            assert!(balance.holds(), "packets are unaccounted for at {}: {balance:?}", self.address);
            assert_eq!(line.pool.available(), line.pool.capacity(), "buffers are lost at {}", self.address);
        }
    }

    /// Handshakes completed on all cables but that to gateway number `hostile`.
    pub(crate) fn handshakes(&self, hostile: usize, now: Instant) -> u64 {
        let reports = self.lines.iter().flat_map(|line| line.reports(now));
        let reports = reports.filter(|report| usize::from(report.cable.0) != hostile + 1);
        reports.map(|report| report.stats.handshakes).sum()
    }

    /// Packets dropped, for all reasons.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped_before + self.lines.iter().map(|line| line.drops.total()).sum::<u64>()
    }

    /// Packets held for keys.
    pub(crate) fn held(&self, now: Instant) -> u64 {
        self.lines.iter().map(|line| line.snapshot(now).held).sum()
    }
}

fn batch_of(line: &mut Pipeline, bytes: &[u8], outer: Outer) -> Batch {
    let mut packet = Packet::new(line.pool.alloc_copy(bytes).expect("buffers come back after every event"));
    packet.outer = outer;
    let mut batch = Batch::with_limit(1);
    assert!(batch.push(packet).is_ok(), "the batch is empty");
    batch
}

fn kind(index: usize, now: Instant) -> WireguardKind {
    WireguardKind::new([u8::try_from(index).expect("few gateways") + 1; 32].into(), "psk", "submariner", now)
}

fn subnets(index: usize) -> Vec<IpNet> {
    let network = index + 1;
    let texts = [format!("10.{network}.0.0/16"), format!("fd00:{network:x}::/48")];
    texts.iter().map(|text| text.parse().expect("the text is a prefix")).collect()
}
