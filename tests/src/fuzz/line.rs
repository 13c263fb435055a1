//! The whole line: any mix of packets from pods and datagrams from the wire, with a conserved count; and two lines
//! joined by a cable, where what comes out has to be what went in.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use ipnet::IpNet;
use trieste_cables::CableKind;
use trieste_cables::LaneConfig;
use trieste_cables::wireguard::WireguardKind;
use trieste_packet::wire::{Inner, Transport, tcp};
use trieste_packet::{Batch, CableId, GatewayKey, LaneId, Outer, Packet, PoolConfig, WorkerId};
use trieste_pipeline::health::{Probe, Watcher};
use trieste_pipeline::{
    Board, Config, Fleet, LaneCommand, NatConfig, Pipeline, TablesBuilder, health, inside,
};

use super::Reader;

const LANE: LaneId = LaneId(0x100);
const CABLE: CableId = CableId(1);
const MTU_BYTES: u16 = 1420;

/// One line among strangers: nothing it is fed may upset the count.
pub(super) fn target(data: &[u8]) {
    let mut now = Instant::now();
    let mut line = Side::new("east", None, now).line;
    forget_outputs(&mut line);
    let mut watcher = Watcher::new(health::Config::default(), MTU_BYTES, 1, now);
    let mut reader = Reader::new(data);
    while !reader.is_empty() {
        let what = reader.byte();
        let length = usize::from(reader.u16() % 4096);
        let bytes = reader.take(length);
        speak(&mut watcher, bytes, now);
        let mut batch = batch_of(&mut line, bytes, Outer::NONE);
        match what & 3 {
            0 | 1 => line.outbound(&mut batch, now),
            2 => line.inbound(&mut batch, now),
            _ => {
                now += Duration::from_millis(u64::from(what));
                line.handle_timeout(now);
                line.inbound(&mut batch, now);
            }
        }
        assert_conserved(&line, now);
        forget_outputs(&mut line);
    }
}

/// What a far end that went wrong may say inside a cable: whatever it is, the path has a state and a next time.
fn speak(watcher: &mut Watcher, bytes: &[u8], now: Instant) {
    let body = inside::parse(bytes).map_or(bytes, |(_, body)| body);
    if let Some(probe) = Probe::parse(body) {
        watcher.handle_arrival(now);
        watcher.handle_probe(&probe, now, now);
    }
    watcher.handle_timeout(now);
    while watcher.poll_transmit(now, now).is_some() {}
    assert!(watcher.poll_timeout(now) > now, "what is due has been done");
}

/// Two lines that have shaken hands: what west delivers is what east's pods sent, or parts of it, or nothing.
pub(super) fn pair_target(data: &[u8]) {
    deliver(data);
}

/// Sends what `data` holds from east to west; returns how many packets west delivered.
fn deliver(data: &[u8]) -> u64 {
    let now = Instant::now();
    let mut east = Side::new("east", Some(address_of("west")), now);
    let mut west = Side::new("west", None, now);
    for _ in 0..3 {
        east.carry_to(&mut west, now);
        west.carry_to(&mut east, now);
    }
    assert!([&east, &west].iter().all(|side| side.is_up(now)), "the two lines shake hands");
    let mut reader = Reader::new(data);
    while !reader.is_empty() {
        let length = usize::from(reader.u16() % 8192);
        let sent = reader.take(length);
        let mut batch = batch_of(&mut east.line, sent, Outer::NONE);
        east.line.outbound(&mut batch, now);
        east.carry_to(&mut west, now);
        assert_conserved(&east.line, now);
        assert_conserved(&west.line, now);
        let delivered = west.line.to_tun.as_slice().iter().map(|packet| packet.bytes().to_vec());
        assert_delivery(sent, &delivered.collect::<Vec<_>>());
        forget_outputs(&mut east.line);
        forget_outputs(&mut west.line);
    }
    west.line.counters.tun_out
}

fn assert_delivery(sent: &[u8], delivered: &[Vec<u8>]) {
    let Some(first) = delivered.first() else { return };
    let inner = Inner::parse(sent).expect("what is no packet is not delivered");
    let source = inner.flow.source();
    assert!(subnets(1).iter().any(|net| net.contains(&source)), "{source} is nobody's of east");
    let received = Inner::parse(first).expect("what is delivered is a packet");
    assert_eq!(received.flow.destination(), inner.flow.destination());
    let is_syn = matches!(inner.transport, Transport::Tcp { flags, .. } if flags & tcp::SYN != 0);
    if delivered.len() == 1 && !is_syn && inner.total_bytes <= MTU_BYTES {
        assert_eq!(first[..], sent[..usize::from(inner.total_bytes)], "a packet that fits arrives unchanged");
    }
}

/// A gateway's line, with a cable to the other side.
struct Side {
    line: Pipeline,
    address: SocketAddr,
}

impl Side {
    fn new(name: &str, peer: Option<SocketAddr>, now: Instant) -> Self {
        let (own, other) =
            if name == "east" { (kind(7, now), kind(9, now)) } else { (kind(9, now), kind(7, now)) };
        let (local, remote) =
            if name == "east" { (subnets(1), subnets(2)) } else { (subnets(2), subnets(1)) };
        let icmp_sources: Vec<IpAddr> = local.iter().filter_map(|net| net.hosts().next()).collect();
        let mut tables = TablesBuilder::new(1, &local, &icmp_sources);
        let cluster = tables.cluster("other", &remote).expect("nothing overlaps");
        tables.path(cluster, LANE, CABLE, MTU_BYTES).expect("one path fits");
        let identity = own.identity(&other.backend_config().into()).expect("the other's key is good");
        tables.identity(identity, LANE);
        let pool = PoolConfig { slots: 64, slot_bytes: 70_000 };
        let config = Config {
            worker: WorkerId(0),
            workers: 1,
            pool,
            seed: 1,
            nat: NatConfig::default(),
            health: health::Config::default(),
            board: Board::new(),
            fleet: Fleet::new(GatewayKey(1), 1, now),
        };
        let tables = Arc::new(ArcSwap::from_pointee(tables.build()));
        let mut line = Pipeline::new(config, tables, own.gate(), now);
        let lane = LaneConfig::new(LANE, CABLE, peer, other.backend_config());
        let tunnel = own.connect(&lane, now).expect("the other's configuration is good");
        line.command(LaneCommand::Add { lane: LANE, cable: CABLE, tunnel, watch: None }, now);
        Self { line, address: address_of(name) }
    }

    fn is_up(&self, now: Instant) -> bool {
        self.line.reports(now).all(|report| report.stats.is_up)
    }

    /// Hands over to the other side what this one has for the wire, datagram by datagram.
    fn carry_to(&mut self, to: &mut Self, now: Instant) {
        let packets: Vec<Packet> = self.line.to_wire.drain().collect();
        for packet in packets {
            self.line.counters.wire_out += packet.segments();
            let outer = Outer { peer: self.address, local: None, tos: packet.outer.tos };
            for index in 0..usize::from(packet.layout.count) {
                let (start, end) = packet.segment_range(index);
                let mut batch = batch_of(&mut to.line, &packet.bytes()[start..end], outer);
                to.line.inbound(&mut batch, now);
            }
            self.line.pool.recycle(packet.buf);
        }
    }
}

fn kind(key: u8, now: Instant) -> WireguardKind {
    WireguardKind::new([key; 32].into(), "psk", "submariner", now)
}

fn address_of(name: &str) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, if name == "east" { 1 } else { 2 }], 4500))
}

fn subnets(cluster: u8) -> Vec<IpNet> {
    let texts = [format!("10.{cluster}.0.0/16"), format!("fd00:{cluster}::/48")];
    texts.iter().map(|text| text.parse().expect("the text is a prefix")).collect()
}

fn batch_of(line: &mut Pipeline, bytes: &[u8], outer: Outer) -> Batch {
    let mut packet = Packet::new(line.pool.alloc_copy(bytes).expect("buffers come back after every step"));
    packet.outer = outer;
    let mut batch = Batch::with_limit(1);
    assert!(batch.push(packet).is_ok(), "the batch is empty");
    batch
}

fn assert_conserved(line: &Pipeline, now: Instant) {
    let balance = line.snapshot(now).conservation();
    assert!(balance.holds(), "packets are unaccounted for: {balance:?}");
}

/// What the daemon does with the outputs; they count as out once they have left.
fn forget_outputs(line: &mut Pipeline) {
    let (wire, tun) = (line.to_wire.segments(), line.to_tun.segments());
    line.counters.wire_out += wire;
    line.counters.tun_out += tun;
    line.to_wire.drain();
    line.to_tun.drain();
    assert!(line.to_workers.is_empty(), "there is only one worker");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pair_delivers_good_packets_so_that_its_laws_are_worth_something() {
        // 10.1.1.10 to 10.2.1.10, IPv4 without options, protocol 254 (for experiments), 4 bytes.
        let mut packet =
            vec![0x45, 0, 0, 24, 0, 1, 0x40, 0, 64, 254, 0, 0, 10, 1, 1, 10, 10, 2, 1, 10, 1, 2, 3, 4];
        trieste_packet::checksum::fill_ipv4_header(&mut packet);
        let data = [&[0, 24], &packet[..]].concat().repeat(3);

        assert_eq!(deliver(&data), 3);
    }
}
