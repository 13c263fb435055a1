//! Two lines joined by a cable, in memory: east seals, west opens.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use arc_swap::ArcSwap;
use ipnet::{IpNet, Ipv4Net};
use serde::Serialize;
use trieste_cables::ipsec::EspSuite;
use trieste_cables::vxlan::VxlanKind;
use trieste_cables::wireguard::WireguardKind;
use trieste_cables::{CableKind, LaneConfig, Site};
use trieste_nat::{EgressKind, IngressKind, Nat, OwnerKey, Rules, RulesBuilder};
use trieste_packet::pool::TRAIN_SLOT_BYTES;
use trieste_packet::{
    Batch, CableId, GatewayKey, LaneId, MAX_BATCH, Outer, Packet, Pool, PoolConfig, WorkerId,
};
use trieste_pipeline::{Board, Config, Fleet, LaneCommand, NatConfig, Pipeline, TablesBuilder, health};

use crate::esp::EspKind;
use crate::measure::Sample;
use crate::plain::PlainKind;
use crate::sink::Sink;
use crate::traffic::{Shape, Source};

const LANE: LaneId = LaneId(0x100);
const CABLE: CableId = CableId(1);

/// What joins the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joint {
    /// WireGuard.
    Wireguard,
    /// ESP with AES-128-GCM.
    Esp,
    /// VXLAN.
    Vxlan,
    /// The cable without cryptography.
    Plain,
    /// The cable without cryptography on one side; the measured side's lane swallows everything.
    Sink,
}

impl Joint {
    /// One of the two ends.
    pub(crate) fn kind(self, end: u8, now: Instant) -> Box<dyn CableKind> {
        match self {
            Self::Wireguard => Box::new(WireguardKind::new([end; 32].into(), "bench", "bench", now)),
            Self::Esp => Box::new(EspKind::new(end, EspSuite::Aes128Gcm16)),
            Self::Vxlan => Box::new(VxlanKind::new("bench", now)),
            Self::Plain | Self::Sink => Box::new(PlainKind::new([end; 32])),
        }
    }
}

/// Which line is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    /// From the cluster.
    Outbound,
    /// To the cluster.
    Inbound,
}

impl Direction {
    /// As it is called.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Outbound => "outbound",
            Self::Inbound => "inbound",
        }
    }
}

/// Which line translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Translated {
    /// None.
    No,
    /// The first one, outbound: every flow gets a mapping and a session.
    East,
    /// The second one, inbound: all flows are for a headless pod, each with a session.
    West,
}

impl Translated {
    /// What is measured in a direction, with globalnet.
    pub(crate) fn in_direction(direction: Direction) -> Self {
        match direction {
            Direction::Outbound => Self::East,
            Direction::Inbound => Self::West,
        }
    }

    /// Whether this side translates.
    fn is(self, side: u8) -> bool {
        self == if side == 1 { Self::East } else { Self::West }
    }

    /// What a side publishes.
    fn published(self, side: u8) -> String {
        if self.is(side) { format!("242.{side}.0.0/16") } else { format!("10.{side}.0.0/16") }
    }

    /// Where the packets go.
    fn destination(self) -> [u8; 4] {
        if self == Self::West { HEADLESS_GLOBAL } else { POD }
    }
}

/// The pod that all packets are for, and its global IP.
const POD: [u8; 4] = [10, 2, 0, 1];
const HEADLESS_GLOBAL: [u8; 4] = [242, 2, 255, 254];
/// Global IPs that sources leave with: room for a million mappings.
const EGRESS_ADDRESSES: u8 = 64;

/// Two lines, and what the first one's pods send.
pub(crate) struct Pair {
    joint: Joint,
    east: Pipeline,
    west: Pipeline,
    source: Source,
    shape: Shape,
    packets: usize,
    now: Instant,
}

impl Pair {
    /// Two lines that have shaken hands. Every pass goes over `packets` packets, each in a buffer of its own (a
    /// train is one buffer).
    ///
    /// # Errors
    /// When they do not come together, which would be a bug.
    pub(crate) fn new(joint: Joint, shape: Shape, packets: usize) -> anyhow::Result<Self> {
        Self::translated(joint, shape, packets, Translated::No)
    }

    /// The same, with a line that translates.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn translated(
        joint: Joint,
        shape: Shape,
        packets: usize,
        translated: Translated,
    ) -> anyhow::Result<Self> {
        let now = Instant::now();
        let slots = shape.trains(packets) + 2 * MAX_BATCH;
        let (east, west) = (joint.kind(1, now), joint.kind(2, now));
        let mut pair = Self {
            joint,
            east: line(&*east, &*west, 1, shape.bytes, slots, translated, now)?,
            west: line(&*west, &*east, 2, shape.bytes, slots, translated, now)?,
            source: Source::to(shape, translated.destination()),
            shape,
            packets,
            now,
        };
        pair.shake_hands()?;
        Ok(pair)
    }

    fn shake_hands(&mut self) -> anyhow::Result<()> {
        for _ in 0..4 {
            self.east.handle_timeout(self.now);
            self.west.handle_timeout(self.now);
            carry(&mut self.east, &mut self.west, 1, self.now);
            carry(&mut self.west, &mut self.east, 2, self.now);
            self.now += Duration::from_secs(1);
        }
        for line in [&self.east, &self.west] {
            ensure!(line.reports(self.now).all(|lane| lane.stats.is_up), "the two lines did not shake hands");
        }
        Ok(())
    }

    /// Swaps the measured side's lane for one that swallows everything.
    fn sink(&mut self, direction: Direction) {
        if self.joint == Joint::Sink {
            let line = if direction == Direction::Outbound { &mut self.east } else { &mut self.west };
            line.command(
                LaneCommand::Add { lane: LANE, cable: CABLE, tunnel: Box::new(Sink), watch: None },
                self.now,
            );
        }
    }

    /// A pass for the bench: makes packets, times the line of that direction over them, throws away what came out.
    pub(crate) fn into_pass(mut self, direction: Direction) -> impl FnMut() -> Sample {
        self.sink(direction);
        let trains = self.shape.trains(self.packets);
        let mut batches: Vec<Batch> = (0..trains.div_ceil(MAX_BATCH)).map(|_| Batch::new()).collect();
        move || match direction {
            Direction::Outbound => {
                self.fill(&mut batches);
                let now = self.now;
                timed(&mut batches, &mut self.east, |line, batch| line.outbound(batch, now))
            }
            Direction::Inbound => {
                self.fill(&mut batches);
                for batch in &mut batches {
                    self.east.outbound(batch, self.now);
                    receive(&mut self.east, &mut self.west, batch, self.shape);
                }
                let now = self.now;
                timed(&mut batches, &mut self.west, |line, batch| line.inbound(batch, now))
            }
        }
    }

    fn fill(&mut self, batches: &mut [Batch]) {
        let mut left = self.shape.trains(self.packets);
        for batch in batches {
            while left > 0 && !batch.is_full() {
                let packet =
                    self.source.packet(&mut self.east.pool).expect("the pool is larger than the ring");
                assert!(batch.push(packet).is_ok(), "the batch is not full");
                left -= 1;
            }
        }
    }

    /// Swaps the first line's lane for one that swallows everything.
    pub(crate) fn sink_east(&mut self) {
        self.sink(Direction::Outbound);
    }

    /// From here on the first line's pods send other packets, to another address.
    pub(crate) fn change_source(&mut self, shape: Shape, destination: Ipv4Addr) {
        self.source = Source::to(shape, destination.octets());
    }

    /// Lets time go by.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    /// Sessions of the first line.
    pub(crate) fn sessions(&self) -> u32 {
        self.east.nat().map_or(0, Nat::session_count)
    }

    /// Makes a packet in a buffer of the first line's.
    pub(crate) fn make(&mut self, make: impl FnOnce(&mut Pool) -> Packet) -> Packet {
        make(&mut self.east.pool)
    }

    /// Tells whether the first line has carried whatever it was given.
    pub(crate) fn has_dropped_nothing(&self) -> bool {
        self.east.drops.total() == 0
    }

    /// Fills one batch.
    pub(crate) fn fill_one(&mut self, batch: &mut Batch) {
        self.fill(std::slice::from_mut(batch));
    }

    /// Carries a batch through the first line and throws away what comes out.
    pub(crate) fn line_out(&mut self, batch: &mut Batch) {
        self.east.outbound(batch, self.now);
        forget_outputs(&mut self.east);
    }

    /// Both.
    pub(crate) fn outbound(&mut self, batch: &mut Batch) {
        self.fill_one(batch);
        self.line_out(batch);
    }

    /// Checks that what has been sent has arrived, and nothing else.
    ///
    /// # Errors
    /// When something was dropped.
    #[cfg(test)]
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.east.drops.total() == 0, "east dropped something");
        ensure!(self.west.drops.total() == 0, "west dropped something");
        Ok(())
    }
}

/// Times the line over all batches. What comes out leaves after every batch, as it does in a gateway.
fn timed(batches: &mut [Batch], line: &mut Pipeline, work: impl Fn(&mut Pipeline, &mut Batch)) -> Sample {
    let packets = batches.iter().map(Batch::segments).sum();
    Sample::of(|| {
        for batch in batches {
            work(line, batch);
            forget_outputs(line);
        }
        packets
    })
}

/// Moves what `from` has for the wire into buffers of `to`, as a socket does: trains as trains where pods sent
/// trains, and datagrams one by one where they did not.
fn receive(from: &mut Pipeline, to: &mut Pipeline, batch: &mut Batch, shape: Shape) {
    for packet in from.to_wire.drain() {
        let is_whole = shape.segments > 1 || packet.layout.count == 1;
        let pieces = if is_whole { 1 } else { usize::from(packet.layout.count) };
        for piece in 0..pieces {
            let (start, end) = if is_whole { (0, packet.buf.len()) } else { packet.segment_range(piece) };
            let buf =
                to.pool.alloc_copy(&packet.bytes()[start..end]).expect("the pool is larger than the ring");
            let mut copy = Packet::new(buf);
            if is_whole {
                copy.layout = packet.layout;
            }
            copy.outer = Outer { peer: address(1), local: None, tos: 0 };
            assert!(batch.push(copy).is_ok(), "sealing makes no more datagrams than there were packets");
        }
        from.pool.recycle(packet.buf);
    }
}

/// Carries everything, control messages as well, one datagram at a time.
fn carry(from: &mut Pipeline, to: &mut Pipeline, sender: u8, now: Instant) {
    let packets: Vec<Packet> = from.to_wire.drain().collect();
    for packet in packets {
        let mut copy = Packet::new(to.pool.alloc_copy(packet.bytes()).expect("few packets"));
        copy.outer = Outer { peer: address(sender), local: None, tos: 0 };
        from.pool.recycle(packet.buf);
        let mut batch = Batch::with_limit(1);
        assert!(batch.push(copy).is_ok(), "the batch is empty");
        to.inbound(&mut batch, now);
    }
}

fn forget_outputs(line: &mut Pipeline) {
    for packet in line.to_wire.drain().chain(line.to_tun.drain()) {
        line.pool.recycle(packet.buf);
    }
}

fn line(
    own: &dyn CableKind,
    other: &dyn CableKind,
    side: u8,
    mtu_bytes: u16,
    slots: usize,
    translated: Translated,
    now: Instant,
) -> anyhow::Result<Pipeline> {
    let subnets = |side: u8| -> anyhow::Result<[IpNet; 2]> {
        Ok([translated.published(side).parse()?, format!("fd00:{side}::/32").parse()?])
    };
    let far = 3 - side;
    let mut tables = TablesBuilder::new(1, &subnets(side)?, &[IpAddr::from([10, side, 0, 1])]);
    if translated.is(side) {
        let inside = Ipv4Net::new(Ipv4Addr::new(10, side, 0, 0), 16)?;
        tables = tables.globalnet(&[inside], Arc::new(rules(side, inside)?), None);
    }
    let cluster = tables.cluster("other", &subnets(far)?)?;
    tables.path(cluster, LANE, CABLE, mtu_bytes)?;
    tables.identity(own.identity(&site(other, far))?, LANE);
    let config = Config {
        worker: WorkerId(0),
        workers: 1,
        pool: PoolConfig { slots, slot_bytes: TRAIN_SLOT_BYTES },
        seed: 1,
        nat: nat_config(),
        health: health::Config::default(),
        board: Board::new(),
        fleet: Fleet::new(GatewayKey(1), 1, now),
    };
    let tables = Arc::new(ArcSwap::from_pointee(tables.build()));
    let mut line = Pipeline::new(config, tables, own.gate(), now);
    let tunnel = own.connect(&lane_config(LANE, own, other, side), now)?;
    line.command(LaneCommand::Add { lane: LANE, cable: CABLE, tunnel, watch: None }, now);
    Ok(line)
}

/// One end's Endpoint.
fn site(kind: &dyn CableKind, side: u8) -> Site {
    Site { private_ip: address(side).ip(), ..Site::from(kind.backend_config()) }
}

/// What a side's end of the cable is made of. One side begins and the other one learns where its peer is, with kinds that
/// can do that.
pub(crate) fn lane_config(lane: LaneId, own: &dyn CableKind, other: &dyn CableKind, side: u8) -> LaneConfig {
    let far = 3 - side;
    let peer = (side == 1 || own.identifies_by_address()).then(|| address(far));
    let config = LaneConfig::new(lane, CABLE, peer, other.backend_config());
    LaneConfig { local: site(own, side), remote: site(other, far), ..config }
}

/// Room for as many flows as there are sessions, whoever has them.
pub(crate) fn nat_config() -> NatConfig {
    let mut config = NatConfig::default();
    config.limits.mappings_per_source = u32::MAX;
    config.limits.sessions_per_source = u32::MAX;
    config
}

/// Egress addresses for everybody, and a headless pod.
pub(crate) fn rules(side: u8, inside: Ipv4Net) -> anyhow::Result<Rules> {
    let mut rules = RulesBuilder::new(1, OwnerKey([side; 16]), RulesBuilder::owners_among(1));
    let addresses: Vec<_> = (1..=EGRESS_ADDRESSES).map(|last| Ipv4Addr::new(242, side, 0, last)).collect();
    let cluster = rules.egress(EgressKind::Cluster, "bench", &addresses)?;
    rules.member(cluster, inside);
    if side == 2 {
        rules.ingress(IngressKind::HeadlessPod, "bench", HEADLESS_GLOBAL.into(), POD.into())?;
    }
    Ok(rules.build())
}

fn address(side: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, side], 4500))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_joint_carries_every_packet() {
        let translated = [Translated::No, Translated::East, Translated::West];
        for (joint, translated) in [Joint::Wireguard, Joint::Esp, Joint::Vxlan, Joint::Plain]
            .into_iter()
            .flat_map(|joint| translated.map(|it| (joint, it)))
        {
            for shape in [Shape::single(1420, 3), Shape::train(1420, 3), Shape::single(64, 1)] {
                let mut pair = Pair::translated(joint, shape, 100, translated).unwrap();
                let mut batches: Vec<Batch> = (0..2).map(|_| Batch::new()).collect();
                pair.fill(&mut batches);
                let mut sent = 0;
                for batch in &mut batches {
                    sent += batch.segments();
                    pair.east.outbound(batch, pair.now);
                    receive(&mut pair.east, &mut pair.west, batch, shape);
                    pair.west.inbound(batch, pair.now);
                }
                assert_eq!(pair.west.to_tun.segments(), sent, "{joint:?} {shape:?}");
                pair.check().unwrap();
            }
        }
    }
}
