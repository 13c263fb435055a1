//! Two clusters with the same networks inside, joined by WireGuard, each a gateway of several workers.
#![expect(clippy::disallowed_methods, reason = "boringtun reads the real clock")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use etherparse::PacketBuilder;
use trieste_cables::wireguard::WireguardKind;
use trieste_cables::{CableKind as _, LaneConfig};
use trieste_nat::{EgressKind, IngressKind, OwnerKey, Rules, RulesBuilder};
use trieste_packet::checksum::{Sum, fill_ipv4_header, pseudo_sum, transport_is_valid, update16};
use trieste_packet::fragment::fragment_v4;
use trieste_packet::wire::{Inner, Transport, be16, put16};
use trieste_packet::{Batch, CableId, DropReason, GatewayKey, LaneId, Packet, Pool, PoolConfig, WorkerId};
use trieste_pipeline::{
    Board, Config, Fleet, LaneCommand, NatConfig, Pipeline, Tables, TablesBuilder, health,
};

use super::{hand_over, line};

pub(crate) const MTU: u16 = 1420;
/// Networks of both clusters.
pub(crate) const PODS: &str = "10.0.0.0/16";
pub(crate) const SERVICES: &str = "10.96.0.0/16";
/// Addresses that both clusters have.
pub(crate) const POD: [u8; 4] = [10, 0, 0, 9];
pub(crate) const OTHER_POD: [u8; 4] = [10, 0, 1, 7];
pub(crate) const HEADLESS_POD: [u8; 4] = [10, 0, 2, 3];
pub(crate) const SERVICE: [u8; 4] = [10, 96, 0, 10];
pub(crate) const NODE: [u8; 4] = [10, 0, 0, 1];
/// Last octets of the global addresses of each cluster, 242.SITE.0.x.
pub(crate) const CLUSTER_EGRESS: [u8; 2] = [1, 2];
pub(crate) const POD_EGRESS: u8 = 20;
pub(crate) const HEADLESS: u8 = 30;
pub(crate) const SERVICE_GLOBAL: u8 = 254;
pub(crate) const GATEWAY_GLOBAL: u8 = 253;

/// A gateway.
pub(crate) struct Site {
    pub(crate) number: u8,
    pub(crate) lines: Vec<Pipeline>,
    pub(crate) tables: Arc<ArcSwap<Tables>>,
    pub(crate) kind: WireguardKind,
    lane: LaneId,
    pub(crate) now: Instant,
}

/// What it takes to make a site.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) workers: u16,
    pub(crate) nat: NatConfig,
    /// Whether pods that no other rule is for have an egress address.
    pub(crate) has_cluster_egress: bool,
}

impl Shape {
    pub(crate) fn workers(workers: u16) -> Self {
        Self { workers, nat: NatConfig::default(), has_cluster_egress: true }
    }
}

pub(crate) fn global(site: u8, last: u8) -> [u8; 4] {
    [242, site, 0, last]
}

/// The rules of a site.
pub(crate) fn rules(site: u8, shape: &Shape, epoch: u64) -> Rules {
    let owners = RulesBuilder::owners_among(shape.workers);
    let mut builder = RulesBuilder::new(epoch, OwnerKey([site; 16]), owners);
    let address = |last: u8| Ipv4Addr::from(global(site, last));
    if shape.has_cluster_egress {
        let addresses = CLUSTER_EGRESS.map(address);
        let cluster = builder.egress(EgressKind::Cluster, "cluster-egress", &addresses).unwrap();
        builder.member(cluster, PODS.parse().unwrap());
        builder.member(cluster, SERVICES.parse().unwrap());
    }
    let pods = builder.egress(EgressKind::Pods, "default/db", &[address(POD_EGRESS)]).unwrap();
    builder.member(pods, Ipv4Addr::from(OTHER_POD).into());
    let mut ingress = |kind, name: &str, last, inside: [u8; 4]| {
        builder.ingress(kind, name, address(last), inside.into()).unwrap();
    };
    ingress(IngressKind::Service, "default/web", SERVICE_GLOBAL, SERVICE);
    ingress(IngressKind::HeadlessPod, "default/pod-x", HEADLESS, HEADLESS_POD);
    ingress(IngressKind::Gateway, "gateway", GATEWAY_GLOBAL, NODE);
    builder.build()
}

fn tables(site: &Site, other: &WireguardKind, shape: &Shape, epoch: u64) -> Tables {
    let far = 3 - site.number;
    let subnet = |site: u8| format!("242.{site}.0.0/24").parse().unwrap();
    let inside = [PODS.parse().unwrap(), SERVICES.parse().unwrap()];
    let rules = Arc::new(rules(site.number, shape, epoch));
    let mut builder = TablesBuilder::new(epoch, &[subnet(site.number)], &[NODE.into()]).globalnet(
        &inside,
        rules,
        Some(global(site.number, GATEWAY_GLOBAL).into()),
    );
    let cluster = builder.cluster("other", &[subnet(far)]).unwrap();
    builder.path(cluster, site.lane, CableId(1), MTU).unwrap();
    builder.identity(site.kind.identity(&other.backend_config().into()).unwrap(), site.lane);
    builder.build()
}

fn site(number: u8, shape: &Shape, now: Instant) -> Site {
    let kind = WireguardKind::new(WireguardKind::generate_private_key(), "psk", "submariner", now);
    let tables = Arc::new(ArcSwap::from_pointee(Tables::default()));
    let board = Board::new();
    let fleet = Fleet::new(GatewayKey(number.into()), number.into(), now);
    let line = |worker| {
        let config = Config {
            worker: WorkerId(worker),
            workers: shape.workers,
            pool: PoolConfig { slots: 512, ..PoolConfig::default() },
            seed: 3,
            nat: shape.nat,
            health: health::Config::default(),
            board: Arc::clone(&board),
            fleet: Arc::clone(&fleet),
        };
        Pipeline::new(config, Arc::clone(&tables), kind.gate(), now)
    };
    let lines = (0..shape.workers).map(line).collect();
    // The last worker owns the lane.
    let lane = LaneId(u32::from(number) << 8 | u32::from(shape.workers - 1));
    Site { number, lines, tables, kind, lane, now }
}

/// Two clusters that have shaken hands.
pub(crate) fn clusters(shape: &Shape) -> (Site, Site) {
    let now = Instant::now();
    let (mut a, mut b) = (site(1, shape, now), site(2, shape, now));
    a.tables.store(Arc::new(tables(&a, &b.kind, shape, 1)));
    b.tables.store(Arc::new(tables(&b, &a.kind, shape, 1)));
    a.connect(&b, true);
    b.connect(&a, false);
    for _ in 0..4 {
        carry(&mut a, &mut b);
        carry(&mut b, &mut a);
    }
    assert_eq!((a.drops(), b.drops()), (0, 0));
    (a, b)
}

/// The other tables, of the same shape or another.
pub(crate) fn change_tables(site: &Site, other: &Site, shape: &Shape, epoch: u64) {
    site.tables.store(Arc::new(tables(site, &other.kind, shape, epoch)));
}

fn address(site: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, site], 4500))
}

impl Site {
    fn connect(&mut self, other: &Self, begins: bool) {
        let peer = begins.then(|| address(other.number));
        let config = LaneConfig::new(self.lane, CableId(1), peer, other.kind.backend_config());
        let tunnel = self.kind.connect(&config, self.now).unwrap();
        let add = LaneCommand::Add { lane: self.lane, cable: CableId(1), tunnel, watch: None };
        let owner = self.lines.len() - 1;
        self.lines[owner].command(add, self.now);
    }

    /// Sends packets of pods, each by the queue of one worker, one batch for each run of the same worker.
    pub(crate) fn send_by(&mut self, packets: &[(usize, Vec<u8>)]) {
        for run in packets.chunk_by(|a, b| a.0 == b.0) {
            let line = &mut self.lines[run[0].0];
            let mut batch = Batch::with_limit(1024);
            for (_, bytes) in run {
                batch.push(Packet::new(line.pool.alloc_copy(bytes).unwrap())).unwrap();
            }
            line.outbound(&mut batch, self.now);
            assert!(batch.is_empty());
        }
        self.settle();
    }

    /// Sends packets of pods by the first worker's queue.
    pub(crate) fn send(&mut self, packets: &[Vec<u8>]) {
        let packets: Vec<_> = packets.iter().map(|packet| (0, packet.clone())).collect();
        self.send_by(&packets);
    }

    /// Sends a packet or train as it is.
    pub(crate) fn send_packet(&mut self, bytes: &[u8], change: impl FnOnce(&mut Packet)) {
        let line = &mut self.lines[0];
        let mut packet = Packet::new(line.pool.alloc_copy(bytes).unwrap());
        change(&mut packet);
        let mut batch = Batch::new();
        batch.push(packet).unwrap();
        line.outbound(&mut batch, self.now);
        self.settle();
    }

    /// Carries packets between workers until none is on its way, in the order in which they were handed over.
    pub(crate) fn settle(&mut self) {
        hand_over(&mut self.lines, self.now);
    }

    /// What was delivered, cut into packets.
    pub(crate) fn delivered(&mut self) -> Vec<Vec<u8>> {
        self.lines.iter_mut().flat_map(line::delivered).collect()
    }

    /// The one packet that was delivered.
    pub(crate) fn one(&mut self) -> Vec<u8> {
        let mut all = self.delivered();
        assert_eq!(all.len(), 1, "{:?}", self.drop_reasons());
        all.remove(0)
    }

    pub(crate) fn drop_reasons(&self) -> Vec<(DropReason, u64)> {
        let reasons = self.lines.iter().flat_map(|line| line.drops.iter());
        reasons.map(|(_, reason, count)| (reason, count)).collect()
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.lines.iter().map(|line| line.drops.of(reason)).sum()
    }

    pub(crate) fn drops(&self) -> u64 {
        self.lines.iter().map(|line| line.drops.total()).sum()
    }

    pub(crate) fn sessions(&self) -> u32 {
        self.lines.iter().filter_map(Pipeline::nat).map(|nat| nat.stats().sessions).sum()
    }

    pub(crate) fn wait(&mut self, time: Duration) {
        self.now += time;
        for line in &mut self.lines {
            line.handle_timeout(self.now);
        }
        self.settle();
    }

    pub(crate) fn assert_balanced(&self) {
        for line in &self.lines {
            let counters = line.snapshot(self.now);
            assert!(counters.conservation().holds(), "{:?} of {counters:?}", counters.conservation());
        }
    }
}

/// Carries what one site has for the wire to the other, whose first worker gets it.
pub(crate) fn carry(from: &mut Site, to: &mut Site) {
    let mut batch = Batch::with_limit(2048);
    for line in &mut from.lines {
        let sent: Vec<Packet> = line.to_wire.drain().collect();
        line.sent(sent.iter().map(Packet::segments).sum());
        for packet in sent {
            batch.push(line::arrived(&mut to.lines[0], address(from.number), &packet)).unwrap();
        }
    }
    to.lines[0].inbound(&mut batch, to.now);
    to.settle();
}

/// Addresses and ports, and checks that the packet is whole and right.
pub(crate) fn ends(packet: &[u8]) -> ([u8; 4], u16, [u8; 4], u16) {
    let inner = Inner::parse(packet).unwrap();
    assert_eq!(
        Sum::ZERO.bytes(&packet[..usize::from(packet[0] & 15) * 4]).folded(),
        0xffff,
        "header checksum"
    );
    if matches!(inner.transport, Transport::Tcp { .. } | Transport::Udp | Transport::Icmp) {
        assert!(transport_is_valid(packet, usize::from(inner.transport_offset)), "transport checksum");
    }
    let address = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap();
    (address(12), inner.flow.source_port, address(16), inner.flow.destination_port)
}

/// What answers a packet: the same bytes, turned round.
pub(crate) fn turned_round(packet: &[u8]) -> Vec<u8> {
    let mut answer = packet.to_vec();
    answer[12..16].copy_from_slice(&packet[16..20]);
    answer[16..20].copy_from_slice(&packet[12..16]);
    match packet[9] {
        6 | 17 => {
            answer[20..22].copy_from_slice(&packet[22..24]);
            answer[22..24].copy_from_slice(&packet[20..22]);
        }
        1 => {
            answer[20] = 0;
            let sum = update16(be16(packet, 22), 0x0800, 0);
            put16(&mut answer, 22, sum);
        }
        _ => {}
    }
    answer
}

pub(crate) fn udp(source: ([u8; 4], u16), destination: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ipv4(source.0, destination.0, 64)
        .udp(source.1, destination.1)
        .write(&mut bytes, payload)
        .unwrap();
    bytes
}

pub(crate) fn tcp(source: ([u8; 4], u16), destination: ([u8; 4], u16), flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ipv4(source.0, destination.0, 64)
        .tcp(source.1, destination.1, 1, 1000)
        .write(&mut bytes, payload)
        .unwrap();
    bytes[33] = flags;
    put16(&mut bytes, 36, 0);
    let sum = pseudo_sum(&bytes, 6, bytes.len() - 20).bytes(&bytes[20..]).checksum();
    put16(&mut bytes, 36, sum);
    bytes
}

pub(crate) fn echo(source: [u8; 4], destination: [u8; 4], id: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ipv4(source, destination, 64)
        .icmpv4_echo_request(id, 1)
        .write(&mut bytes, payload)
        .unwrap();
    bytes
}

/// SCTP, with nothing in it that anybody looks at.
pub(crate) fn sctp(source: [u8; 4], destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut bytes = udp((source, 7), (destination, 8), payload);
    bytes[9] = 132;
    fill_ipv4_header(&mut bytes);
    bytes
}

/// A packet that says of another that nobody listens.
pub(crate) fn unreachable(from: [u8; 4], about: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0u8; 28];
    bytes[0] = 0x45;
    bytes[8] = 64;
    bytes[9] = 1;
    bytes[12..16].copy_from_slice(&from);
    bytes[16..20].copy_from_slice(&about[12..16]);
    bytes[20..22].copy_from_slice(&[3, 3]);
    bytes.extend(&about[..about.len().min(548)]);
    let total = u16::try_from(bytes.len()).unwrap();
    put16(&mut bytes, 2, total);
    fill_ipv4_header(&mut bytes);
    let sum = Sum::ZERO.bytes(&bytes[20..]).checksum();
    put16(&mut bytes, 22, sum);
    bytes
}

/// Cuts a packet into fragments of at most `mtu` bytes.
pub(crate) fn fragments(packet: &[u8], mtu: u16) -> Vec<Vec<u8>> {
    let mut whole = packet.to_vec();
    put16(&mut whole, 6, 0);
    put16(&mut whole, 4, 4711);
    fill_ipv4_header(&mut whole);
    let mut pool = Pool::new(PoolConfig { slots: 64, slot_bytes: 4096 });
    let mut all = Vec::new();
    fragment_v4(&whole, mtu, &mut pool, |buf| all.push(buf.bytes().to_vec())).unwrap();
    all
}

/// Puts fragments together that came in any order.
pub(crate) fn reassembled(mut fragments: Vec<Vec<u8>>) -> Vec<u8> {
    fragments.sort_by_key(|fragment| be16(fragment, 6) & 0x1fff);
    let mut whole = fragments[0][..20].to_vec();
    for fragment in &fragments {
        assert_eq!(
            (&fragment[12..20], usize::from(be16(fragment, 6) & 0x1fff) * 8),
            (&whole[12..20], whole.len() - 20)
        );
        whole.extend(&fragment[20..]);
    }
    let total = u16::try_from(whole.len()).unwrap();
    put16(&mut whole, 2, total);
    put16(&mut whole, 6, 0);
    fill_ipv4_header(&mut whole);
    whole
}
