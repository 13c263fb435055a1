//! What it costs to watch paths: a gateway with a hundred of them, each to a gateway of its own, in memory. Time goes by in
//! steps of a millisecond, faster than the clock; what is timed is the hub's CPU time for probes that it makes, seals,
//! opens and judges. System calls are not in it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use arc_swap::ArcSwap;
use ipnet::IpNet;
use serde::Serialize;
use trieste_cables::{CableKind, LaneConfig};
use trieste_packet::pool::TRAIN_SLOT_BYTES;
use trieste_packet::{Batch, CableId, GatewayKey, LaneId, Outer, Packet, PoolConfig, WorkerId};
use trieste_pipeline::health::{self, Watch};
use trieste_pipeline::{Board, Config, Fleet, LaneCommand, PathState, Pipeline, TablesBuilder};

use crate::measure::Sample;
use crate::pair::{Joint, nat_config};
use crate::report::Table;
use crate::traffic::{Shape, Source};

/// How many paths are watched.
const PATHS: u8 = 100;
/// How long they are, after they have settled.
const MEASURED: Duration = Duration::from_secs(10);
/// Until all padded probes have been sent, and unused paths are idle.
const SETTLING: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(1);
/// How often a path that is used carries a packet: its probes are the cost here.
const USE: Duration = Duration::from_secs(1);
const MTU_BYTES: u16 = 1420;

/// What watching costs.
#[derive(Debug, Serialize)]
pub(crate) struct Cost {
    /// Whether the paths carry packets, and are probed quickly for it.
    is_used: bool,
    paths: u8,
    /// How often each path is probed, in milliseconds.
    interval_ms: u64,
    /// Probes that the hub sends and hears in a second, all paths together.
    probes_per_second: f64,
    /// CPU time for each, in nanoseconds.
    ns_per_probe: f64,
    /// CPU time of a core for all paths, in percent.
    cpu_percent: f64,
}

/// Measures paths that are used, and paths that are not.
///
/// # Errors
/// When a path does not come up.
pub(crate) fn measure() -> anyhow::Result<Vec<Cost>> {
    [true, false].map(|is_used| Star::new()?.measure(is_used)).into_iter().collect()
}

/// As text.
pub(crate) fn text(costs: &[Cost]) -> String {
    let mut table = Table::new(&["paths", "", "interval ms", "probes/s", "ns/probe", "% of a core"]);
    for cost in costs {
        table.row(vec![
            cost.paths.to_string(),
            if cost.is_used { "used" } else { "idle" }.to_owned(),
            cost.interval_ms.to_string(),
            format!("{:.0}", cost.probes_per_second),
            format!("{:.0}", cost.ns_per_probe),
            format!("{:.2}", cost.cpu_percent),
        ]);
    }
    format!("\nWatching paths (WireGuard; probes sent and heard; without system calls):\n\n{}", table.text())
}

/// A gateway in the middle, and those at the far ends.
struct Star {
    hub: Pipeline,
    rays: Vec<Pipeline>,
    now: Instant,
}

impl Star {
    fn new() -> anyhow::Result<Self> {
        let now = Instant::now();
        let kinds: Vec<_> = (0..=PATHS).map(|number| Joint::Wireguard.kind(number + 1, now)).collect();
        let all: Vec<u8> = (1..=PATHS).collect();
        let hub = gateway(&kinds, 0, &all, now)?;
        let rays = all.iter().map(|number| gateway(&kinds, *number, &[0], now));
        Ok(Self { hub, rays: rays.collect::<anyhow::Result<_>>()?, now })
    }

    fn measure(mut self, is_used: bool) -> anyhow::Result<Cost> {
        self.run(SETTLING, is_used);
        let board = Arc::clone(self.hub.board());
        let up = (1..=PATHS).filter(|number| board.state(CableId((*number).into())) == PathState::Up).count();
        ensure!(up == usize::from(PATHS), "{up} of {PATHS} paths are up");
        let sample = self.run(MEASURED, is_used);
        let seconds = MEASURED.as_secs_f64();
        let nanoseconds = sample.elapsed.as_secs_f64() * 1e9;
        let interval = if is_used { health::Config::default().interval } else { health::IDLE_INTERVAL };
        Ok(Cost {
            is_used,
            paths: PATHS,
            interval_ms: u64::try_from(interval.as_millis())?,
            probes_per_second: sample.packets as f64 / seconds,
            ns_per_probe: nanoseconds / sample.packets.max(1) as f64,
            cpu_percent: sample.elapsed.as_secs_f64() / seconds * 100.0,
        })
    }

    /// Lets time go by; returns what the hub did, counted in probes.
    fn run(&mut self, duration: Duration, is_used: bool) -> Sample {
        let probes = |hub: &Pipeline| hub.counters.path_probes_in + hub.counters.path_probes_out;
        let (end, before) = (self.now + duration, probes(&self.hub));
        let mut sample = Sample::default();
        let mut next_use = self.now;
        while self.now < end {
            self.now += STEP;
            if is_used && self.now >= next_use {
                next_use = self.now + USE;
                self.use_paths();
            }
            sample += self.step();
        }
        sample.packets = probes(&self.hub) - before;
        sample
    }

    /// A packet by each path.
    fn use_paths(&mut self) {
        for number in 1..=PATHS {
            let mut source = Source::to(Shape::single(64, 1), [10, number + 1, 0, 9]);
            let mut batch = Batch::with_limit(1);
            let packet = source.packet(&mut self.hub.pool).expect("buffers come back after every step");
            assert!(batch.push(packet).is_ok(), "the batch is empty");
            self.hub.outbound(&mut batch, self.now);
        }
    }

    fn step(&mut self) -> Sample {
        let now = self.now;
        let mut heard = Batch::with_limit(16 * usize::from(PATHS));
        for (number, ray) in (1..=PATHS).zip(&mut self.rays) {
            ray.handle_probes(now);
            ray.handle_timeout(now);
            forward(ray, &mut self.hub, &mut heard, number);
        }
        let hub = &mut self.hub;
        let sample = Sample::of(|| {
            if !heard.is_empty() {
                hub.inbound(&mut heard, now);
            }
            hub.handle_probes(now);
            0
        });
        hub.handle_timeout(now);
        let sent: Vec<Packet> = hub.to_wire.drain().collect();
        for packet in sent {
            let to = usize::from(number_of(packet.outer.peer)) - 1;
            let ray = &mut self.rays[to];
            let mut batch = Batch::with_limit(usize::from(packet.layout.count));
            copy(packet, hub, ray, &mut batch, 0);
            ray.inbound(&mut batch, now);
            forget(ray);
        }
        forget(hub);
        sample
    }
}

/// What a gateway has for the wire goes to another one.
fn forward(from: &mut Pipeline, to: &mut Pipeline, batch: &mut Batch, sender: u8) {
    let sent: Vec<Packet> = from.to_wire.drain().collect();
    for packet in sent {
        copy(packet, from, to, batch, sender);
    }
}

fn copy(packet: Packet, from: &mut Pipeline, to: &mut Pipeline, batch: &mut Batch, sender: u8) {
    for piece in 0..usize::from(packet.layout.count) {
        let (start, end) = packet.segment_range(piece);
        let buf = to.pool.alloc_copy(&packet.bytes()[start..end]).expect("few packets");
        let mut datagram = Packet::new(buf);
        datagram.outer = Outer { peer: address(sender), local: None, tos: 0 };
        assert!(batch.push(datagram).is_ok(), "few probes are due in a millisecond");
    }
    from.pool.recycle(packet.buf);
}

fn forget(line: &mut Pipeline) {
    for packet in line.to_tun.drain() {
        line.pool.recycle(packet.buf);
    }
}

fn gateway(kinds: &[Box<dyn CableKind>], own: u8, others: &[u8], now: Instant) -> anyhow::Result<Pipeline> {
    let subnet = |number: u8| -> anyhow::Result<IpNet> { Ok(format!("10.{}.0.0/16", number + 1).parse()?) };
    let kind = &kinds[usize::from(own)];
    let pod = |number: u8| IpAddr::from([10, number + 1, 0, 1]);
    let mut tables = TablesBuilder::new(1, &[subnet(own)?], &[pod(own)]);
    for other in others {
        let (lane, cable) = lane(*other);
        let cluster = tables.cluster(&format!("cluster-{other}"), &[subnet(*other)?])?;
        tables.path(cluster, lane, cable, MTU_BYTES)?;
        let far = kinds[usize::from(*other)].backend_config();
        tables.identity(kind.identity(&far.into())?, lane);
    }
    let config = Config {
        worker: WorkerId(0),
        workers: 1,
        pool: PoolConfig { slots: 8 * others.len().max(4), slot_bytes: TRAIN_SLOT_BYTES },
        seed: u64::from(own),
        nat: nat_config(),
        health: health::Config::default(),
        board: Board::new(),
        fleet: Fleet::new(GatewayKey(own.into()), 1, now),
    };
    let tables = Arc::new(ArcSwap::from_pointee(tables.build()));
    let mut line = Pipeline::new(config, tables, kind.gate(), now);
    for other in others {
        let (lane, cable) = lane(*other);
        let far = kinds[usize::from(*other)].backend_config();
        let tunnel = kind.connect(&LaneConfig::new(lane, cable, Some(address(*other)), far), now)?;
        let watch = Watch { from: pod(own), to: pod(*other), most_bytes: MTU_BYTES, is_sibling: false };
        line.command(LaneCommand::Add { lane, cable, tunnel, watch: Some(watch) }, now);
    }
    Ok(line)
}

fn lane(other: u8) -> (LaneId, CableId) {
    (LaneId((u32::from(other) + 1) << 8), CableId(other.into()))
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, number], 4500))
}

fn number_of(address: SocketAddr) -> u8 {
    match address.ip() {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(_) => unreachable!("all have IPv4 addresses"),
    }
}
