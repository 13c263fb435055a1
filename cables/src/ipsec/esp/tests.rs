//! Two lanes in memory, and somebody in the slow half's place who gives them orders.

#![expect(clippy::disallowed_methods, reason = "an Instant cannot be made from a number")]

mod lane;
mod laws;
mod orders;
mod packets;
mod vectors;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam::channel::Receiver;
use etherparse::PacketBuilder;
use trieste_packet::coalesce::coalesce;
use trieste_packet::wire::be16;
use trieste_packet::{
    Batch, CableId, DropReason, Drops, LaneId, Layout, LayoutKind, Outer, Packet, Pool, PoolConfig,
};
use zeroize::Zeroizing;

use super::*;
use crate::boundary::{Cable as _, CableEvent, Jobs, Lane as _};
use crate::ipsec::*;

const LANE: LaneId = LaneId(0x0001_0200);
const A: &str = "192.0.2.1:4500";
const B: &str = "192.0.2.2:4500";

/// One end: the lane, and the slow half's ends of its links.
struct End {
    cable: EspCable,
    link: LaneLink,
    news: Receiver<LaneNews>,
    pool: Pool,
    drops: Drops,
    consumed: u64,
    address: &'static str,
}

fn start() -> Instant {
    Instant::now()
}

fn outer(address: &str) -> Outer {
    Outer { peer: address.parse().unwrap(), local: None, tos: 0 }
}

/// An end that knows where the other is, and has no keys.
fn end(address: &'static str, peer: &str, now: Instant) -> End {
    let (link, port, news) = link::link(LANE);
    link.send(LaneOrder::Path(EspPath { outer: outer(peer), may_move: true }));
    End {
        cable: EspCable::new(EspCableConfig { lane: LANE, cable: CableId(1), port }, now),
        link,
        news,
        pool: Pool::new(PoolConfig { slots: 256, ..PoolConfig::default() }),
        drops: Drops::default(),
        consumed: 0,
        address,
    }
}

/// What a child is made of.
#[derive(Debug, Clone)]
struct Recipe {
    index: u8,
    suite: EspSuite,
    has_esn: bool,
    local: &'static [&'static str],
    remote: &'static [&'static str],
    activation: Outbound,
    limits: Limits,
}

fn recipe(index: u8, now: Instant) -> Recipe {
    Recipe {
        index,
        suite: EspSuite::Aes128Gcm16,
        has_esn: true,
        local: &["10.1.0.0/16", "fd00:1::/32"],
        remote: &["10.2.0.0/16", "fd00:2::/32"],
        activation: Outbound::Now,
        limits: no_limits(now),
    }
}

fn no_limits(now: Instant) -> Limits {
    Limits::until(now + Duration::from_secs(3600))
}

fn keys(suite: EspSuite, seed: u8) -> EspKeys {
    EspKeys { key: Zeroizing::new(vec![seed; suite.key_bytes()]), salt: [seed ^ 0xff; 4] }
}

fn selectors(texts: &[&str]) -> Vec<Selector> {
    texts.iter().map(|text| Selector::subnet(text.parse().unwrap())).collect()
}

impl Recipe {
    fn child(&self, seeds: [u8; 2], is_mirrored: bool, now: Instant) -> ChildSa {
        let (local, remote) = if is_mirrored { (self.remote, self.local) } else { (self.local, self.remote) };
        ChildSa {
            inbound: Spi::new(LANE, self.index),
            outbound: Spi::new(LANE, self.index),
            suite: self.suite,
            has_esn: self.has_esn,
            inbound_keys: keys(self.suite, seeds[0]),
            outbound_keys: keys(self.suite, seeds[1]),
            selectors: Selectors { local: selectors(local), remote: selectors(remote) },
            activation: self.activation,
            limits: self.limits,
            meter: ChildMeter::new(now),
        }
    }

    /// Both ends' halves.
    fn children(&self, now: Instant) -> (ChildSa, ChildSa) {
        let seeds = [2 * self.index, 2 * self.index + 1];
        (self.child(seeds, false, now), self.child([seeds[1], seeds[0]], true, now))
    }
}

/// Two ends with one pair.
fn connected(recipe: &Recipe, now: Instant) -> (End, End) {
    let (mut a, mut b) = (end(A, B, now), end(B, A, now));
    add(&mut a, &mut b, recipe, now);
    (a, b)
}

/// Gives both ends a pair; says where their meters are.
fn add(a: &mut End, b: &mut End, recipe: &Recipe, now: Instant) -> (Arc<ChildMeter>, Arc<ChildMeter>) {
    let (left, right) = recipe.children(now);
    let meters = (Arc::clone(&left.meter), Arc::clone(&right.meter));
    a.order(LaneOrder::Add(Box::new(left)), now);
    b.order(LaneOrder::Add(Box::new(right)), now);
    meters
}

impl End {
    fn order(&mut self, order: LaneOrder, now: Instant) {
        self.link.send(order);
        self.cable.handle_timeout(now, &mut self.drops);
    }

    fn seal(&mut self, packets: Vec<Packet>, now: Instant) -> Vec<Packet> {
        self.work(packets, now, EspCable::seal)
    }

    fn open(&mut self, datagrams: Vec<Packet>, now: Instant) -> Vec<Packet> {
        self.work(datagrams, now, EspCable::open)
    }

    fn work(
        &mut self,
        packets: Vec<Packet>,
        now: Instant,
        job: fn(&mut EspCable, &mut Jobs<'_>, Instant),
    ) -> Vec<Packet> {
        let mut input = packets;
        let mut output = Batch::with_limit(512);
        let mut jobs = Jobs {
            input: &mut input,
            output: &mut output,
            pool: &mut self.pool,
            drops: &mut self.drops,
            consumed: &mut self.consumed,
        };
        job(&mut self.cable, &mut jobs, now);
        assert!(input.is_empty());
        output.drain().collect()
    }

    fn packet(&mut self, bytes: &[u8]) -> Packet {
        Packet::new(self.pool.alloc_copy(bytes).unwrap())
    }

    /// A datagram as it comes in from `from`.
    fn datagram(&mut self, bytes: &[u8], from: &str) -> Packet {
        let mut packet = self.packet(bytes);
        packet.outer = outer(from);
        packet
    }

    /// What the other end sent, as it comes in here: trains as trains.
    fn receive(&mut self, sent: &[Packet], from: &str) -> Vec<Packet> {
        let mut received = Vec::new();
        for packet in sent {
            let mut copy = self.datagram(packet.bytes(), from);
            copy.layout = packet.layout;
            copy.outer.tos = packet.outer.tos;
            received.push(copy);
        }
        received
    }

    /// The same, one by one, as a socket without GRO has them.
    fn receive_singly(&mut self, sent: &[Packet], from: &str) -> Vec<Packet> {
        datagrams(sent).iter().map(|datagram| self.datagram(datagram, from)).collect()
    }

    fn events(&mut self) -> Vec<CableEvent> {
        std::iter::from_fn(|| self.cable.poll_event()).collect()
    }

    fn news(&self) -> Vec<LaneNews> {
        self.news.try_iter().collect()
    }
}

/// All datagrams of some trains.
fn datagrams(sent: &[Packet]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for packet in sent {
        for index in 0..usize::from(packet.layout.count) {
            let (start, end) = packet.segment_range(index);
            all.push(packet.bytes()[start..end].to_vec());
        }
    }
    all
}

/// The inner packets, each on its own.
fn inner_packets(opened: Vec<Packet>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for packet in opened {
        let count = usize::from(packet.layout.count);
        for index in (0..count).filter(|index| packet.layout.present >> index & 1 == 1) {
            let (start, end) = packet.segment_range(index);
            let slot = &packet.bytes()[start..end];
            let total = if slot[0] >> 4 == 4 { be16(slot, 2) } else { 40 + be16(slot, 4) };
            all.push(slot[..usize::from(total)].to_vec());
        }
    }
    all
}

/// A UDP packet over IPv4 from end A to end B.
fn udp4(payload: &[u8]) -> Vec<u8> {
    udp4_between([10, 1, 0, 1], [10, 2, 0, 1], payload)
}

fn udp4_between(source: [u8; 4], destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ipv4(source, destination, 64).udp(1, 2).write(&mut bytes, payload).unwrap();
    bytes
}

/// The same over IPv6.
fn udp6(payload: &[u8]) -> Vec<u8> {
    let address = |cluster: u8| [0xfd, 0, 0, cluster, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut bytes = Vec::new();
    PacketBuilder::ipv6(address(1), address(2), 64).udp(1, 2).write(&mut bytes, payload).unwrap();
    bytes
}
