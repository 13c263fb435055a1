//! Two whole lines joined back to back, with real WireGuard cables between them.
#![expect(clippy::disallowed_methods, reason = "boringtun reads the real clock")]

pub(crate) mod globalnet;
pub(crate) mod line;
pub(crate) mod mesh;
pub(crate) mod siblings;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use etherparse::PacketBuilder;
use trieste_cables::wireguard::WireguardKind;
use trieste_cables::{CableKind as _, LaneConfig};
use trieste_packet::{Batch, CableId, DropReason, GatewayKey, LaneId, Packet, PoolConfig, WorkerId};
use trieste_pipeline::{
    Board, Config, Fleet, Handoff, LaneCommand, NatConfig, Pipeline, Tables, TablesBuilder, Trace,
    TraceQuestion, health,
};

pub(crate) const MTU: u16 = 1420;
pub(crate) const A: &str = "192.0.2.1:4500";
pub(crate) const B: &str = "192.0.2.2:4500";

/// One gateway: a pipeline of one worker.
pub(crate) struct End {
    pub(crate) line: Pipeline,
    pub(crate) tables: Arc<ArcSwap<Tables>>,
    pub(crate) kind: WireguardKind,
    pub(crate) lane: LaneId,
    /// What the peer's tunnel itself has for addresses.
    pub(crate) tunnels: Vec<IpAddr>,
}

/// Carries packets between the workers of a gateway until none is on its way, in the order in which they were handed over.
pub(crate) fn hand_over(lines: &mut [Pipeline], now: Instant) {
    loop {
        let mut moving: Vec<Handoff> = Vec::new();
        for line in &mut *lines {
            let handed = line.to_workers.iter().map(|handoff| handoff.packet.segments());
            line.counters.handed_out += handed.sum::<u64>();
            moving.append(&mut line.to_workers);
        }
        if moving.is_empty() {
            return;
        }
        for (worker, line) in (0u16..).zip(&mut *lines) {
            let to_it = moving.extract_if(.., |handoff| handoff.to == WorkerId(worker));
            line.handed_over(to_it, now);
        }
    }
}

pub(crate) fn kind() -> WireguardKind {
    WireguardKind::new(WireguardKind::generate_private_key(), "psk", "submariner", Instant::now())
}

/// A pipeline that is the only one of its gateway.
pub(crate) fn pipeline_config(worker: WorkerId) -> Config {
    Config {
        worker,
        workers: 1,
        pool: PoolConfig { slots: 256, ..PoolConfig::default() },
        seed: 3,
        nat: NatConfig::default(),
        health: health::Config::default(),
        board: Board::new(),
        fleet: Fleet::new(GatewayKey(1), 1, Instant::now()),
    }
}

pub(crate) fn end(lane: u32) -> End {
    let (now, kind, tables) = (Instant::now(), kind(), Arc::new(ArcSwap::from_pointee(Tables::default())));
    let line = Pipeline::new(pipeline_config(WorkerId(0)), Arc::clone(&tables), kind.gate(), now);
    End { line, tables, kind, lane: LaneId(lane << 8), tunnels: Vec::new() }
}

impl End {
    pub(crate) fn know(
        &mut self,
        local: &[&str],
        icmp: &[&str],
        remote: &[&str],
        other: &BTreeMap<String, String>,
        peer: Option<&str>,
    ) {
        let nets = |list: &[&str]| list.iter().map(|net| net.parse().unwrap()).collect::<Vec<_>>();
        let icmp: Vec<IpAddr> = icmp.iter().map(|ip| ip.parse().unwrap()).collect();
        let mut builder = TablesBuilder::new(1, &nets(local), &icmp);
        let cluster = builder.cluster("other", &nets(remote)).unwrap();
        builder.path(cluster, self.lane, CableId(1), MTU).unwrap();
        builder.identity(self.kind.identity(&other.clone().into()).unwrap(), self.lane);
        for &address in &self.tunnels {
            builder.tunnel_address(self.lane, address);
        }
        self.tables.store(Arc::new(builder.build()));
        let peer = peer.map(|peer| peer.parse().unwrap());
        let config = LaneConfig::new(self.lane, CableId(1), peer, other.clone());
        let tunnel = self.kind.connect(&config, Instant::now()).unwrap();
        let add = LaneCommand::Add { lane: self.lane, cable: CableId(1), tunnel, watch: None };
        self.line.command(add, Instant::now());
    }

    pub(crate) fn packet(&mut self, bytes: &[u8]) -> Packet {
        Packet::new(self.line.pool.alloc_copy(bytes).unwrap())
    }

    pub(crate) fn send(&mut self, packets: Vec<Packet>) {
        let mut batch = Batch::new();
        for packet in packets {
            batch.push(packet).unwrap();
        }
        self.line.outbound(&mut batch, Instant::now());
        assert!(batch.is_empty());
    }

    /// What would become of a packet.
    pub(crate) fn trace(&mut self, question: &TraceQuestion) -> Trace {
        self.line.trace(question, Instant::now())
    }

    /// Takes out what was delivered, cut into packets.
    pub(crate) fn delivered(&mut self) -> Vec<Vec<u8>> {
        line::delivered(&mut self.line)
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.line.drops.of(reason)
    }

    pub(crate) fn assert_balanced(&self) {
        let counters = self.line.snapshot(Instant::now());
        assert!(counters.conservation().holds(), "{:?} of {counters:?}", counters.conservation());
    }
}

/// Carries what `from` wants sent to `to`, which sees it come from `address`; `change` may spoil it.
pub(crate) fn carry(from: &mut End, to: &mut End, address: &str, change: impl Fn(&mut Packet)) {
    let mut batch = Batch::with_limit(2048);
    let sent: Vec<Packet> = from.line.to_wire.drain().collect();
    from.line.sent(sent.iter().map(Packet::segments).sum());
    for packet in sent {
        let mut copy = line::arrived(&mut to.line, address.parse().unwrap(), &packet);
        change(&mut copy);
        batch.push(copy).unwrap();
    }
    to.line.inbound(&mut batch, Instant::now());
}

pub(crate) fn joined(a_local: &[&str], a_remote: &[&str]) -> (End, End) {
    let (mut a, mut b) = (end(1), end(2));
    let (a_public, b_public) = (a.kind.backend_config(), b.kind.backend_config());
    b.know(
        &["10.2.0.0/16", "fd02::/64"],
        &["10.2.0.1", "fd02::1"],
        &["10.1.0.0/16", "fd01::/64"],
        &a_public,
        None,
    );
    a.know(a_local, &["10.1.0.1", "fd01::1"], a_remote, &b_public, Some(B));
    for _ in 0..4 {
        carry(&mut a, &mut b, A, |_| {});
        carry(&mut b, &mut a, B, |_| {});
    }
    assert_eq!((a.line.drops.total(), b.line.drops.total()), (0, 0));
    (a, b)
}

pub(crate) fn pair() -> (End, End) {
    joined(&["10.1.0.0/16", "fd01::/64"], &["10.2.0.0/16", "fd02::/64"])
}

pub(crate) fn udp4(source: [u8; 4], destination: [u8; 4], payload: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ipv4(source, destination, 64).udp(1, 2).write(&mut bytes, &vec![7; payload]).unwrap();
    bytes
}

pub(crate) const POD_A: [u8; 4] = [10, 1, 0, 9];
pub(crate) const POD_B: [u8; 4] = [10, 2, 0, 9];
