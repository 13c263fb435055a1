//! Translated sessions outlive the process that has them: told by one worker, written down, taken over by two.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use trieste_cables::CableKind as _;
use trieste_cables::wireguard::WireguardKind;
use trieste_control::admin::{SnapshotStatus, TraceDirection, TraceProtocol, TraceRequest};
use trieste_control::conditions::Conditions;
use trieste_control::globalnet::{EgressKind, EgressRule, GlobalnetState, IngressKind, IngressPair};
use trieste_gateway::config::Globalnet;
use trieste_gateway::globalnet::sessions::changes::ChangeQueue;
use trieste_gateway::globalnet::sessions::{SessionFiles, SnapshotWriter, Source, restore};
use trieste_gateway::globalnet::view::GlobalnetView;
use trieste_gateway::handoff::Exchange;
use trieste_gateway::tables::{Own, Owners, Translation, compile, owner_of};
use trieste_gateway::worker::{Command, Restore, Worker, WorkerHandle, WorkerParts};
use trieste_io::MemoryDevice;
use trieste_nat::{Bucket, OwnerKey, Phase, Record};
use trieste_packet::{CableId, GatewayKey, LaneId, PoolConfig, WorkerId};
use trieste_pipeline::{
    Board as PathBoard, Config, Fleet, NatConfig, Pipeline, Tables, TablesBuilder, health,
};

const KEY: OwnerKey = OwnerKey([7; 16]);
const REMOTE: Ipv4Addr = Ipv4Addr::new(242, 2, 255, 254);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(242, 1, 0, 1);
const HEADLESS: Ipv4Addr = Ipv4Addr::new(242, 1, 255, 252);
const SESSIONS: u16 = 40;

type MemoryWorker = Worker<MemoryDevice, MemoryDevice>;

/// The workers of one process. Their devices' far ends stay open.
struct Process {
    workers: Vec<MemoryWorker>,
    handles: Vec<WorkerHandle>,
    _far: Vec<MemoryDevice>,
}

impl Process {
    fn start(translation: &Translation, workers: u16) -> Self {
        let kind =
            WireguardKind::new(WireguardKind::generate_private_key(), "psk", "submariner", Instant::now());
        let tables = Arc::new(ArcSwap::from_pointee(tables(translation)));
        let exchange = Arc::new(Exchange::new((0..workers).map(|_| None).collect()));
        let mut process = Self { workers: Vec::new(), handles: Vec::new(), _far: Vec::new() };
        for id in 0..workers {
            let (tun, far_tun) = MemoryDevice::pair(16);
            let (wire, far_wire) = MemoryDevice::pair(16);
            let pool = PoolConfig { slots: 64, ..PoolConfig::default() };
            let config = Config {
                worker: WorkerId(id),
                workers,
                pool,
                seed: 3,
                nat: NatConfig::default(),
                health: health::Config::default(),
                board: PathBoard::new(),
                fleet: Fleet::new(GatewayKey(1), 1, Instant::now()),
            };
            let now = Instant::now();
            let parts = WorkerParts {
                id: WorkerId(id),
                cpu: None,
                pipeline: Pipeline::new(config, Arc::clone(&tables), kind.gate(), now),
                tun,
                wire,
                exchange: Arc::clone(&exchange),
                hub: None,
                changes: Some(Arc::new(ChangeQueue::default())),
                waker: None,
                paths_changed: tokio::sync::watch::Sender::new(0),
            };
            let (worker, handle) = Worker::new(parts, now);
            process.workers.push(worker);
            process.handles.push(handle);
            process._far.extend([far_tun, far_wire]);
        }
        process
    }

    fn restore(&mut self, translation: &Translation, records: &[Record]) {
        for handle in &self.handles {
            let is_own = |record: &&Record| owner_of(&translation.rules, record) == handle.id;
            let records = records.iter().filter(is_own).copied().collect();
            handle.command(Command::Restore(Restore { records, rules: Arc::clone(&translation.rules) }));
        }
        self.turn();
    }

    fn turn(&mut self) {
        for worker in &mut self.workers {
            worker.guarded_turn(Instant::now()).unwrap();
        }
    }

    /// Turns until something has come about.
    fn turn_until(&mut self, what: impl Fn() -> bool) {
        let start = Instant::now();
        while !what() {
            assert!(start.elapsed() < Duration::from_secs(20), "it does not come about");
            self.turn();
        }
    }

    /// Writes down what there is, as the gateway does, and dies.
    fn keep_and_die(mut self, dir: &Path) {
        let source = |handle: &WorkerHandle| Source {
            changes: Arc::clone(handle.changes().unwrap()),
            wake: Box::new(|| {}),
        };
        let sources = self.handles.iter().map(source).collect();
        let writer =
            SnapshotWriter::spawn(files(dir), sources, SnapshotStatus::default(), Conditions::new()).unwrap();
        self.turn_until(|| writer.status().sessions == u64::from(SESSIONS));
    }
}

fn files(dir: &Path) -> SessionFiles {
    SessionFiles::new(dir, [9; 16], 1000)
}

fn translation(workers: u16) -> Translation {
    let cluster = EgressRule {
        kind: EgressKind::Cluster,
        name: "cluster-egress.submariner.io".to_owned(),
        addresses: vec![OUTSIDE],
        members: vec!["10.1.0.0/16".parse().unwrap()],
    };
    let pod = IngressPair {
        kind: IngressKind::HeadlessPod,
        name: "default/pod-db-0".to_owned(),
        global: HEADLESS,
        inside: Ipv4Addr::new(10, 1, 0, 200),
    };
    let state = GlobalnetState {
        global_cidr: Some("242.1.0.0/16".parse().unwrap()),
        inside: vec!["10.1.0.0/16".parse().unwrap()],
        egress: vec![cluster],
        ingress: vec![pod],
        ..GlobalnetState::default()
    };
    compile(1, &state, &Own::default(), Owners { key: KEY, workers }).unwrap()
}

fn tables(translation: &Translation) -> Tables {
    let local = ["242.1.0.0/16".parse().unwrap()];
    let builder = TablesBuilder::new(1, &local, &[]);
    let mut builder = builder.globalnet(&translation.inside, Arc::clone(&translation.rules), None);
    let west = builder.cluster("west", &["242.2.0.0/16".parse().unwrap()]).unwrap();
    builder.path(west, LaneId(0), CableId(1), 1420).unwrap();
    builder.build()
}

/// Connections of pods to a server in the other cluster, and one to a pod that is known by an address of its own.
fn records(translation: &Translation) -> Vec<Record> {
    let mut records: Vec<Record> = (1..SESSIONS)
        .map(|number| {
            let mut record = Record {
                protocol: 6,
                phase: Phase::Established,
                headless: false,
                inside: Ipv4Addr::new(10, 1, 0, 5),
                inside_port: 30_000 + number,
                outside: OUTSIDE,
                outside_port: 0,
                remote: REMOTE,
                remote_port: 443,
                seconds_left: 7000,
            };
            // A port of the bucket that the inside end belongs to.
            let bucket = translation.rules.bucket_of(&record);
            let first = 1024 + 64 * number;
            record.outside_port = (first..first + 64).find(|port| Bucket::of_port(*port) == bucket).unwrap();
            record
        })
        .collect();
    records.push(Record {
        headless: true,
        inside: Ipv4Addr::new(10, 1, 0, 200),
        inside_port: 5432,
        outside: HEADLESS,
        outside_port: 5432,
        remote_port: 50_000,
        ..records[0]
    });
    records
}

#[tokio::test]
async fn sessions_of_a_process_go_on_in_the_next_one_on_another_number_of_workers() {
    let dir = tempfile::tempdir().unwrap();
    let before = translation(1);
    let known = records(&before);
    let mut first = Process::start(&before, 1);
    first.restore(&before, &known);
    first.keep_and_die(dir.path());

    let found = restore(&files(dir.path()), &Globalnet::default(), Timestamp::now());
    assert_eq!((found.records.len(), found.expired), (known.len(), 0));
    let now = translation(2);
    let mut second = Process::start(&now, 2);
    second.restore(&now, &found.records);
    let view = GlobalnetView::new(true, second.handles.clone(), Conditions::new(), SnapshotStatus::default());
    let start = Instant::now();
    while view.status().snapshot.restored < known.len() as u64 && start.elapsed() < Duration::from_secs(20) {
        second.turn();
    }
    let status = view.status();
    assert_eq!((status.snapshot.restored, status.snapshot.not_restored), (known.len() as u64, 0));
    assert!(status.workers.iter().all(|worker| worker.sessions > 5), "{:?}", status.workers);

    // Workers answer between two batches: on threads of their own.
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let turning = std::thread::spawn(move || {
        while !told.load(std::sync::atomic::Ordering::Relaxed) {
            second.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    for record in &known {
        let request = TraceRequest {
            from: REMOTE.into(),
            to: record.outside.into(),
            proto: TraceProtocol::Tcp,
            sport: record.remote_port,
            dport: record.outside_port,
            direction: TraceDirection::Inbound,
        };
        let answer = view.trace(request).await.unwrap();
        let result = answer.result.unwrap_or_else(|| panic!("{record:?}: {answer:?}"));
        assert!(answer.is_live, "{record:?}: {answer:?}");
        assert_eq!((result.to, result.dport), (record.inside.into(), record.inside_port));
        assert_eq!(answer.worker, u32::from(owner_of(&now.rules, record).0));
    }
    let nobody = TraceRequest {
        from: REMOTE.into(),
        to: OUTSIDE.into(),
        proto: TraceProtocol::Udp,
        sport: 53,
        dport: 53,
        direction: TraceDirection::Inbound,
    };
    let answer = view.trace(nobody).await.unwrap();
    assert_eq!((answer.is_live, answer.dropped.as_deref()), (false, Some("no_mapping")));
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    turning.join().unwrap();
}
