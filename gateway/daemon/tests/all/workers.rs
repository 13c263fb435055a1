//! Workers over devices of memory: packets that cross workers, and a worker that panics.
//!
//! ```text
//!   tun 0 ─┐                                             ┌─ tun
//!          ├─ gateway A: workers 0 and 1 ── wires ── gateway B: one worker
//!   tun 1 ─┘
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use etherparse::PacketBuilder;
use trieste_cables::wireguard::WireguardKind;
use trieste_cables::{Cable, CableEvent, CableKind, CableStats, Jobs, Lane, LaneConfig, Overhead, Transmit};
use trieste_gateway::handoff::Exchange;
use trieste_gateway::worker::{Command, Worker, WorkerHandle, WorkerParts};
use trieste_io::{MemoryDevice, PacketIo};
use trieste_packet::{
    Batch, CableId, DropReason, Drops, GatewayKey, LaneId, Outer, Packet, Pool, PoolConfig, WorkerId,
};
use trieste_pipeline::{
    Board, Config, Fleet, LaneCommand, NatConfig, Pipeline, Tables, TablesBuilder, health,
};

const LIMIT: usize = 512;

type MemoryWorker = Worker<MemoryDevice, MemoryDevice>;

/// One worker and the far ends of its devices.
struct Rig {
    worker: MemoryWorker,
    handle: WorkerHandle,
    tun: MemoryDevice,
    board: Arc<Board>,
}

fn kind() -> WireguardKind {
    WireguardKind::new(WireguardKind::generate_private_key(), "psk", "submariner", Instant::now())
}

fn rig(
    id: u16,
    workers: u16,
    tables: &Arc<ArcSwap<Tables>>,
    kind: &WireguardKind,
    exchange: &Arc<Exchange>,
    wire: MemoryDevice,
) -> Rig {
    let now = Instant::now();
    let config = Config {
        worker: WorkerId(id),
        workers,
        pool: PoolConfig { slots: 256, ..PoolConfig::default() },
        seed: 7,
        nat: NatConfig::default(),
        health: health::Config::default(),
        board: Board::new(),
        fleet: Fleet::new(GatewayKey(1), 1, now),
    };
    let (tun, far) = MemoryDevice::pair(LIMIT);
    let board = Arc::clone(&config.board);
    let parts = WorkerParts {
        id: WorkerId(id),
        cpu: None,
        pipeline: Pipeline::new(config, Arc::clone(tables), kind.gate(), now),
        tun,
        wire,
        exchange: Arc::clone(exchange),
        hub: None,
        changes: None,
        waker: None,
        paths_changed: tokio::sync::watch::Sender::new(0),
    };
    let (worker, handle) = Worker::new(parts, now);
    Rig { worker, handle, tun: far, board }
}

/// The one worker of a gateway, without peers, and the far end of its wire.
fn alone(tables: &Arc<ArcSwap<Tables>>) -> (Rig, MemoryDevice) {
    let (wire, far) = MemoryDevice::pair(LIMIT);
    (rig(0, 1, tables, &kind(), &Arc::new(Exchange::new(vec![None])), wire), far)
}

fn tables(
    local: &str,
    remote: &[(&str, LaneId)],
    identity: Option<([u8; 32], LaneId)>,
) -> Arc<ArcSwap<Tables>> {
    let mut builder = TablesBuilder::new(1, &[local.parse().unwrap()], &[]);
    for (index, (subnet, lane)) in remote.iter().enumerate() {
        let cluster = builder.cluster(&format!("remote-{index}"), &[subnet.parse().unwrap()]).unwrap();
        builder.path(cluster, *lane, CableId(u16::try_from(index).unwrap() + 1), 1420).unwrap();
    }
    if let Some((identity, lane)) = identity {
        builder.identity(identity, lane);
    }
    Arc::new(ArcSwap::from_pointee(builder.build()))
}

fn connect(
    handle: &WorkerHandle,
    kind: &WireguardKind,
    other: &WireguardKind,
    lane: LaneId,
    peer: Option<&str>,
) {
    let peer = peer.map(|peer| peer.parse::<SocketAddr>().unwrap());
    let config = LaneConfig::new(lane, CableId(1), peer, other.backend_config());
    let tunnel = kind.connect(&config, Instant::now()).unwrap();
    handle.command(Command::Lane(LaneCommand::Add { lane, cable: CableId(1), tunnel, watch: None }));
}

fn identity(kind: &WireguardKind, asker: &WireguardKind) -> [u8; 32] {
    asker.identity(&kind.backend_config().into()).unwrap()
}

/// Turns all workers until none has anything to do.
fn settle(rigs: &mut [&mut Rig]) {
    loop {
        let mut is_busy = false;
        for rig in rigs.iter_mut() {
            is_busy |= rig.worker.guarded_turn(Instant::now()).unwrap();
        }
        if !is_busy {
            return;
        }
    }
}

struct Pods {
    pool: Pool,
    batch: Batch,
    drops: Drops,
}

impl Pods {
    fn new() -> Self {
        Self {
            pool: Pool::new(PoolConfig { slots: 512, slot_bytes: 2048 }),
            batch: Batch::new(),
            drops: Drops::default(),
        }
    }

    fn send(&mut self, tun: &mut MemoryDevice, source: [u8; 4], destination: [u8; 4], payload: &[u8]) {
        let mut bytes = Vec::new();
        PacketBuilder::ipv4(source, destination, 64).udp(1000, 2000).write(&mut bytes, payload).unwrap();
        self.batch.push(Packet::new(self.pool.alloc_copy(&bytes).unwrap())).unwrap();
        tun.send(&mut self.batch, &mut self.pool, &mut self.drops).unwrap();
    }

    fn receive(&mut self, tun: &mut MemoryDevice) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while tun.recv(&mut self.pool, &mut self.batch, &mut self.drops).unwrap() > 0 {
            for mut packet in self.batch.drain() {
                let mut segmenter = trieste_packet::segment::Segmenter::new(&mut packet).unwrap();
                while let Some(segment) = segmenter.next_segment() {
                    all.push(segment[28..].to_vec());
                }
            }
        }
        all
    }
}

fn balance_holds(rig: &Rig, names: &str) {
    let counters = rig.handle.published().counters;
    assert!(counters.conservation().holds(), "{names}: {:?} of {counters:?}", counters.conservation());
}

/// Publishes what workers counted: publishing is due every 0.1 s of their clock.
fn publish(rigs: &mut [&mut Rig]) {
    for rig in rigs {
        rig.worker.guarded_turn(Instant::now() + Duration::from_millis(150)).unwrap();
    }
}

#[test]
fn nothing_goes_to_a_node_that_is_not_ready_and_it_is_counted() {
    let (a, b) = (kind(), kind());
    let lane = LaneId(0x0700);
    let (tables_a, tables_b) = (
        tables("10.1.0.0/16", &[("10.2.0.0/16", lane)], Some((identity(&b, &a), lane))),
        tables("10.2.0.0/16", &[("10.1.0.0/16", lane)], Some((identity(&a, &b), lane))),
    );
    let [one, other] = [(); 2].map(|()| Arc::new(Exchange::new(vec![None])));
    let (wire_a, wire_b) = MemoryDevice::pair(LIMIT);
    let mut near = rig(0, 1, &tables_a, &a, &one, wire_a);
    let mut far = rig(0, 1, &tables_b, &b, &other, wire_b);
    connect(&near.handle, &a, &b, lane, Some("192.0.2.2:4500"));
    connect(&far.handle, &b, &a, lane, None);
    settle(&mut [&mut near, &mut far]);

    let mut pods = Pods::new();
    far.board.shut(true);
    for (payload, is_shut) in [(b"one", true), (b"two", false)] {
        far.board.shut(is_shut);
        pods.send(&mut near.tun, [10, 1, 0, 1], [10, 2, 0, 1], payload);
        settle(&mut [&mut near, &mut far]);
    }
    assert_eq!(pods.receive(&mut far.tun), [b"two"]);
    publish(&mut [&mut far]);
    let drops = far.handle.published().drops.clone();
    let dropped = drops.iter().find(|(_, reason, _)| *reason == DropReason::NodeNotReady);
    assert_eq!(dropped.map(|(.., count)| *count), Some(1), "{drops:?}");
    balance_holds(&far, "far");
}

#[test]
fn packets_reach_the_lane_of_another_worker_in_both_directions_and_in_order() {
    let (a, b) = (kind(), kind());
    let lane_a = LaneId(0x0700 | 1);
    let lane_b = LaneId(0x0900);
    let (tables_a, tables_b) = (
        tables("10.1.0.0/16", &[("10.2.0.0/16", lane_a)], Some((identity(&b, &a), lane_a))),
        tables("10.2.0.0/16", &[("10.1.0.0/16", lane_b)], Some((identity(&a, &b), lane_b))),
    );
    let exchange = Arc::new(Exchange::new(vec![None, None]));
    let (wire_a1, wire_b) = MemoryDevice::pair(LIMIT);
    let (wire_a0, mut far_a0) = MemoryDevice::pair(LIMIT);
    let mut a0 = rig(0, 2, &tables_a, &a, &exchange, wire_a0);
    let mut a1 = rig(1, 2, &tables_a, &a, &exchange, wire_a1);
    let alone = Arc::new(Exchange::new(vec![None]));
    let mut b0 = rig(0, 1, &tables_b, &b, &alone, wire_b);
    connect(&b0.handle, &b, &a, lane_b, None);
    connect(&a1.handle, &a, &b, lane_a, Some("192.0.2.2:4500"));
    settle(&mut [&mut a0, &mut a1, &mut b0]);

    // Out: read on worker 0, sealed and sent by worker 1, which owns the lane.
    let mut pods = Pods::new();
    for number in 0..20u8 {
        pods.send(&mut a0.tun, [10, 1, 0, 1], [10, 2, 0, 1], &[number; 100]);
    }
    settle(&mut [&mut a0, &mut a1, &mut b0]);
    let received = pods.receive(&mut b0.tun);
    assert_eq!(received.iter().map(|payload| payload[0]).collect::<Vec<_>>(), (0..20).collect::<Vec<u8>>());

    // In: the answers arrive at worker 0's socket.
    for number in 0..20u8 {
        pods.send(&mut b0.tun, [10, 2, 0, 1], [10, 1, 0, 1], &[number; 100]);
    }
    settle(&mut [&mut b0]);
    let mut batch = Batch::new();
    let (mut pool, mut drops) = (Pool::new(PoolConfig { slots: 1, slot_bytes: 256 }), Drops::default());
    let mut at_a1 = a1_wire(&mut a1);
    while at_a1.recv(&mut pool, &mut batch, &mut drops).unwrap() > 0 {
        far_a0.send(&mut batch, &mut pool, &mut drops).unwrap();
    }
    settle(&mut [&mut a0, &mut a1]);
    let received = pods.receive(&mut a1.tun);
    assert_eq!(received.len(), 20);
    publish(&mut [&mut a0, &mut a1, &mut b0]);
    for (rig, name) in [(&a0, "a0"), (&a1, "a1"), (&b0, "b0")] {
        balance_holds(rig, name);
        assert_eq!(rig.handle.published().counters.dropped, 0, "{name}");
    }
    assert_eq!(a0.handle.published().counters.handed_out, 40);
}

/// Takes worker 1's wire away and gives it a silent one: what it would have received goes another way.
fn a1_wire(rig: &mut Rig) -> MemoryDevice {
    let (silent, _) = MemoryDevice::pair(LIMIT);
    rig.worker.replace_wire(silent)
}

/// A cable without timers that is up, sends packets as they are, and panics at one that says so.
#[derive(Default)]
struct Trap;

impl Cable for Trap {
    fn handle_datagram(&mut self, _: &[u8], _: &Outer, _: Instant, _: &mut Drops) {}
    fn handle_timeout(&mut self, _: Instant, _: &mut Drops) {}
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    fn poll_transmit(&mut self) -> Option<Transmit> {
        None
    }
    fn poll_event(&mut self) -> Option<CableEvent> {
        None
    }
    fn rekey(&mut self, _: Instant) {}
    fn set_peer(&mut self, _: Option<SocketAddr>, _: Instant) {}
    fn stats(&self, _: Instant) -> CableStats {
        CableStats { is_up: true, ..CableStats::default() }
    }
}

impl Lane for Trap {
    fn overhead(&self) -> Overhead {
        Overhead { message_bytes: 0 }
    }
    fn seal(&mut self, jobs: &mut Jobs<'_>, _: Instant) {
        for packet in jobs.input.drain(..) {
            assert!(!packet.bytes().ends_with(b"trap"), "the trap was sprung");
            jobs.output.append(packet);
        }
    }
    fn open(&mut self, jobs: &mut Jobs<'_>, _: Instant) {
        jobs.input.clear();
    }
}

#[test]
fn a_panic_costs_the_packets_in_hand_and_nothing_else() {
    let (a, b) = (kind(), kind());
    let (lane_a, lane_trap, lane_b) = (LaneId(0x0700), LaneId(0x0800), LaneId(0x0900));
    let tables_a = tables(
        "10.1.0.0/16",
        &[("10.2.0.0/16", lane_a), ("10.9.0.0/16", lane_trap)],
        Some((identity(&b, &a), lane_a)),
    );
    let tables_b = tables("10.2.0.0/16", &[("10.1.0.0/16", lane_b)], Some((identity(&a, &b), lane_b)));
    let exchange = Arc::new(Exchange::new(vec![None]));
    let (wire_a, wire_b) = MemoryDevice::pair(LIMIT);
    let mut a0 = rig(0, 1, &tables_a, &a, &exchange, wire_a);
    let mut b0 = rig(0, 1, &tables_b, &b, &exchange, wire_b);
    connect(&b0.handle, &b, &a, lane_b, None);
    connect(&a0.handle, &a, &b, lane_a, Some("192.0.2.2:4500"));
    let trap = LaneCommand::Add { lane: lane_trap, cable: CableId(2), tunnel: Box::new(Trap), watch: None };
    a0.handle.command(Command::Lane(trap));
    settle(&mut [&mut a0, &mut b0]);
    let handshakes = |rig: &mut Rig| {
        publish(&mut [rig]);
        let lanes = rig.handle.published().lanes.clone();
        lanes.iter().find(|report| report.lane == lane_a).map(|report| report.stats.handshakes)
    };
    let before = handshakes(&mut a0);

    let mut pods = Pods::new();
    let mut fastest = Duration::MAX;
    for round in 0..5u64 {
        pods.send(&mut a0.tun, [10, 1, 0, 1], [10, 9, 0, 1], b"trap");
        // In the same batch, behind the packet that panics: in hand, and lost.
        pods.send(&mut a0.tun, [10, 1, 0, 1], [10, 2, 0, 1], b"lost");
        let start = Instant::now();
        a0.worker.guarded_turn(start).unwrap();
        pods.send(&mut a0.tun, [10, 1, 0, 1], [10, 2, 0, 1], b"after");
        a0.worker.guarded_turn(Instant::now()).unwrap();
        fastest = fastest.min(start.elapsed());
        settle(&mut [&mut a0, &mut b0]);
        assert_eq!(pods.receive(&mut b0.tun), [b"after".to_vec()], "round {round}");
        let published = a0.handle.published();
        assert_eq!(published.restarts, round + 1);
        assert!(published.last_error.as_ref().unwrap().contains("the trap was sprung"));
    }
    assert!(fastest < Duration::from_millis(10), "back after {fastest:?}");
    assert_eq!(handshakes(&mut a0), before, "no new handshake");
    publish(&mut [&mut a0, &mut b0]);
    balance_holds(&a0, "a0");
    let drops: BTreeMap<_, _> =
        a0.handle.published().drops.clone().into_iter().map(|(_, reason, count)| (reason, count)).collect();
    assert_eq!(drops, BTreeMap::from([(DropReason::WorkerPanic, 10)]));
}

#[test]
fn probes_leave_when_they_are_due_also_of_a_worker_that_has_nothing_else_to_do() {
    let lane = LaneId(0x0700);
    let (mut rig, far) = alone(&tables("10.1.0.0/16", &[("10.2.0.0/16", lane)], None));
    let [from, to] = ["10.1.0.1", "10.2.0.1"].map(|address| address.parse().unwrap());
    let watch = Some(health::Watch { from, to, most_bytes: 1400, is_sibling: false });
    rig.handle.command(Command::Lane(LaneCommand::Add {
        lane,
        cable: CableId(2),
        tunnel: Box::new(Trap),
        watch,
    }));
    let start = Instant::now();
    for ms in 0..5_000 {
        rig.worker.guarded_turn(start + Duration::from_millis(ms)).unwrap();
        assert!(!rig.worker.wants_write(), "probes wait after {ms} ms, {} have left", far.waiting());
    }
    assert!(far.waiting() > 100, "{}", far.waiting());
}

#[test]
fn a_worker_that_panics_turn_after_turn_ends_and_says_why() {
    let lane = LaneId(0x0800);
    let (mut rig, _far) = alone(&tables("10.1.0.0/16", &[("10.9.0.0/16", lane)], None));
    let trap = LaneCommand::Add { lane, cable: CableId(2), tunnel: Box::new(Trap), watch: None };
    rig.handle.command(Command::Lane(trap));
    settle(&mut [&mut rig]);
    let mut pods = Pods::new();
    let mut spring = |rig: &mut Rig| {
        pods.send(&mut rig.tun, [10, 1, 0, 1], [10, 9, 0, 1], b"trap");
        rig.worker.guarded_turn(Instant::now())
    };
    for _ in 0..15 {
        spring(&mut rig).unwrap();
    }
    // One good turn, and it starts to count anew.
    rig.worker.guarded_turn(Instant::now()).unwrap();
    for _ in 0..15 {
        spring(&mut rig).unwrap();
    }
    let error = spring(&mut rig).unwrap_err().to_string();
    assert!(error.contains("16 turns in a row") && error.contains("the trap was sprung"), "{error}");
}

#[test]
fn the_end_of_a_worker_is_known_however_it_ends_and_so_is_its_silence() {
    let (mut rig, _far) = alone(&tables("10.1.0.0/16", &[], None));
    let now = Instant::now();
    rig.worker.guarded_turn(now).unwrap();
    assert_eq!(rig.handle.silence(now + Duration::from_secs(20)), Duration::from_secs(20));
    rig.worker.guarded_turn(now + Duration::from_secs(19)).unwrap();
    assert_eq!(rig.handle.silence(now + Duration::from_secs(20)), Duration::from_secs(1));

    rig.handle.watch_over(|| Ok(())).unwrap();
    assert!(!rig.handle.published().is_stopped, "it says so itself when it was told to end");
    let why = rig.handle.watch_over(|| panic!("outside of every turn")).unwrap_err();
    let published = rig.handle.published();
    assert_eq!((why.as_str(), published.is_stopped), ("outside of every turn", true));
    assert_eq!(published.last_error.as_deref(), Some("outside of every turn"));
}
