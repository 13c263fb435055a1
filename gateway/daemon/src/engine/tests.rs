//! The rules of upstream's cable engine (behaviour §3.6), and what many clusters cost.

use super::*;

mod scale;
mod several;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use trieste_cables::wireguard::WireguardKind;
use trieste_cables::{CableError, Gate, LaneConfig, Overhead, Site, Tunnel, keys};
use trieste_control::admin::CableStatus;
use trieste_control::api::{ConnectionStatus, Endpoint, EndpointSpec, HaStatus, PublishedStatus};
use trieste_control::claims::Allowed;
use trieste_control::members::{Members, targets};
use trieste_io::{MemoryDevice, PacketIo as _};
use trieste_packet::{Batch, Drops, GatewayKey, LaneId, Pool, PoolConfig, WorkerId};
use trieste_pipeline::{Board, Config, Fleet, NatConfig, Pipeline, Selection, health};

use super::converge::DRAIN;
use crate::handoff::Exchange;
use crate::tables::Choice;
use crate::worker::{Worker, WorkerParts};

/// WireGuard that counts what it is asked.
struct Counting {
    wireguard: WireguardKind,
    /// The last cable's ends.
    last: Mutex<Option<(Site, Site)>>,
    identities: AtomicUsize,
    connects: AtomicUsize,
}

impl CableKind for Counting {
    fn name(&self) -> &'static str {
        self.wireguard.name()
    }
    fn backend_config(&self) -> BTreeMap<String, String> {
        self.wireguard.backend_config()
    }
    fn identity(&self, remote: &Site) -> Result<[u8; 32], CableError> {
        self.identities.fetch_add(1, Ordering::Relaxed);
        self.wireguard.identity(remote)
    }
    fn connect(&self, config: &LaneConfig, now: Instant) -> Result<Box<dyn Tunnel>, CableError> {
        self.connects.fetch_add(1, Ordering::Relaxed);
        *self.last.lock().unwrap() = Some((config.local.clone(), config.remote.clone()));
        self.wireguard.connect(config, now)
    }
    fn gate(&self) -> Box<dyn Gate> {
        self.wireguard.gate()
    }
    fn overhead(&self) -> Overhead {
        self.wireguard.overhead()
    }
}

/// An engine of cluster `a`, 10.1.0.0/16, over workers that turn when the test says so.
struct Rig {
    engine: Engine,
    workers: Vec<Worker<MemoryDevice, MemoryDevice>>,
    kind: Arc<Counting>,
    tables: Arc<ArcSwap<Tables>>,
    /// The far ends of TUN devices and wires.
    far: Vec<MemoryDevice>,
    now: Instant,
}

impl Rig {
    fn new(workers: u16) -> Self {
        let now = Instant::now();
        let private = WireguardKind::generate_private_key();
        let wireguard = WireguardKind::new(private, "psk", "submariner", now);
        let kind = Arc::new(Counting {
            wireguard,
            last: Mutex::new(None),
            identities: AtomicUsize::new(0),
            connects: AtomicUsize::new(0),
        });
        let tables = Arc::new(ArcSwap::from_pointee(Tables::default()));
        let exchange = Arc::new(Exchange::new(vec![None; usize::from(workers)]));
        let membership = Fleet::new(GatewayKey(1), 1, Instant::now());
        let board = Board::new();
        let mut far = Vec::new();
        let mut device = || {
            let (near, other) = MemoryDevice::pair(4096);
            far.push(other);
            near
        };
        let mut parts = |id| {
            let pool = PoolConfig { slots: 128, ..PoolConfig::default() };
            let config = Config {
                worker: WorkerId(id),
                workers,
                pool,
                seed: 1,
                nat: NatConfig::default(),
                health: health::Config::default(),
                board: Arc::clone(&board),
                fleet: Arc::clone(&membership),
            };
            WorkerParts {
                id: WorkerId(id),
                cpu: None,
                pipeline: Pipeline::new(config, Arc::clone(&tables), kind.gate(), now),
                tun: device(),
                wire: device(),
                exchange: Arc::clone(&exchange),
                hub: None,
                changes: None,
                waker: None,
                paths_changed: watch::Sender::new(0),
            }
        };
        let (workers, handles) = (0..workers).map(|id| Worker::new(parts(id), now)).unzip();
        let local = Local {
            cluster_id: "a".to_owned(),
            site: Site { subnets: vec!["10.1.0.0/16".parse().unwrap()], ..BTreeMap::new().into() },
            icmp_sources: Vec::new(),
            path_mtu: 1420,
            translation: None,
            allowed: Allowed::default(),
            node_addresses: BTreeSet::new(),
        };
        let engine = Engine::new(local, Arc::clone(&kind) as _, Arc::clone(&tables), handles, 77)
            .with_paths(Paths { table: board, ..Paths::default() }, membership);
        Self { engine, workers, kind, tables, far, now }
    }

    async fn reconcile(&mut self, endpoints: &[Endpoint], choices: &Choices) {
        self.reconcile_with(endpoints, &Members::default(), choices).await;
    }

    async fn reconcile_with(&mut self, endpoints: &[Endpoint], members: &Members, choices: &Choices) {
        let targets = targets("a", &shared(endpoints), members);
        let leader = endpoints.iter().find(|endpoint| endpoint.spec.cluster_id == "a");
        let leader = leader.map(|own| own.spec.cable_name.as_str());
        let gateways = Gateways { targets: &targets, siblings: &members.siblings, leader };
        self.engine.reconcile(&gateways, choices, self.now).await;
        self.turn();
    }

    /// Lets the workers do what they were told, and say so.
    fn turn(&mut self) {
        for _ in 0..2 {
            self.now += Duration::from_millis(150);
            for worker in &mut self.workers {
                worker.guarded_turn(self.now).unwrap();
            }
            self.far.iter_mut().for_each(swallow);
        }
        self.engine.observe(self.now, 1_000);
    }

    /// Lanes of all workers, draining ones left out.
    fn lanes(&self) -> Vec<LaneId> {
        let reports = self.engine.workers().iter().flat_map(|worker| worker.published().lanes.clone());
        reports.filter(|report| !report.is_draining).map(|report| report.lane).collect()
    }

    /// The lane that packets for an address take.
    fn lane_to(&self, destination: &str) -> Option<LaneId> {
        let tables = self.tables.load();
        match tables.select("10.1.0.1".parse().unwrap(), destination.parse().unwrap()) {
            Selection::Paths(paths) => {
                paths.first().and_then(|path| tables.path(*path)).map(|path| path.lane)
            }
            Selection::NoRoute | Selection::SourceNotLocal => None,
        }
    }

    fn epoch(&self) -> u64 {
        self.tables.load().epoch()
    }

    /// Object names of the published connections.
    fn connected(&self) -> Vec<String> {
        names(&self.engine.connections(self.now, 0))
    }
}

/// Takes everything that has come out of a device.
fn swallow(device: &mut MemoryDevice) {
    let (mut pool, mut drops) = (Pool::new(PoolConfig { slots: 1, slot_bytes: 256 }), Drops::default());
    let mut batch = Batch::new();
    while device.recv(&mut pool, &mut batch, &mut drops).unwrap() > 0 {
        batch.drain().for_each(|packet| pool.recycle(packet.buf));
    }
}

fn names(cables: &[CableStatus]) -> Vec<String> {
    cables.iter().map(|cable| cable.connection.endpoint.cable_name.clone()).collect()
}

/// An Endpoint of `cluster`, whose subnet is 10.`net`.0.0/16, made on a day of January.
fn endpoint(cluster: &str, net: u8, host: u8, day: u8) -> Endpoint {
    let spec = EndpointSpec {
        cluster_id: cluster.to_owned(),
        cable_name: format!("cable-{cluster}-{host}"),
        hostname: format!("{cluster}-gw{host}"),
        subnets: vec![format!("10.{net}.0.0/16")],
        private_ip: format!("192.0.2.{host}"),
        public_ip: format!("198.51.100.{host}"),
        backend: "wireguard".to_owned(),
        backend_config: [("publicKey".to_owned(), keys::emit(&[net ^ (host << 1) | 1; 32]))].into(),
        ..EndpointSpec::default()
    };
    let mut endpoint = Endpoint::new("ns", spec).unwrap();
    endpoint.metadata.creation_timestamp = Some(format!("2026-01-{day:02}T00:00:00Z").parse().unwrap());
    endpoint
}

fn shared(endpoints: &[Endpoint]) -> Vec<Arc<Endpoint>> {
    endpoints.iter().cloned().map(Arc::new).collect()
}

fn chosen(endpoints: &[Endpoint]) -> Choices {
    tables::fallback_choices(endpoints)
}

#[tokio::test(start_paused = true)]
async fn a_peer_without_a_choice_has_no_cable_and_nobody_else_gets_its_packets() {
    let mut rig = Rig::new(1);
    // c, the younger cluster, claims a part of b's addresses.
    let mut c = endpoint("c", 3, 3, 2);
    c.spec.subnets = vec!["10.2.128.0/17".to_owned()];
    let endpoints = [endpoint("b", 2, 2, 1), c];
    rig.reconcile(&endpoints, &chosen(&endpoints[1..])).await;
    assert!(rig.lanes().is_empty());
    assert_eq!(rig.lane_to("10.2.200.1"), None);
    assert_eq!(rig.engine.refused()[0].cluster, "c");
    assert!(rig.connected().is_empty());
    let pending = rig.engine.pending(rig.now);
    assert_eq!(names(&pending), ["cable-b-2"]);
    assert_eq!(pending[0].connection.status, ConnectionStatus::Connecting);
    assert_eq!(pending[0].discovery.as_ref().unwrap().state, "discovering");

    rig.reconcile(&endpoints, &chosen(&endpoints)).await;
    assert_eq!(rig.lane_to("10.2.200.1"), Some(rig.lanes()[0]));
    assert_eq!((rig.connected(), rig.engine.pending(rig.now).len()), (vec!["cable-b-2".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_goes_before_discovery_finished_is_never_connected_to() {
    let mut rig = Rig::new(1);
    let endpoints = [endpoint("b", 2, 2, 1)];
    rig.reconcile(&endpoints, &Choices::new()).await;
    rig.reconcile(&[], &chosen(&endpoints)).await;
    rig.reconcile(&[], &Choices::new()).await;
    assert!(rig.lanes().is_empty());
    assert_eq!(rig.kind.connects.load(Ordering::Relaxed), 0);
    assert!(rig.engine.pending(rig.now).is_empty() && rig.engine.peers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_newer_endpoint_replaces_an_older_one_as_soon_as_it_has_a_choice() {
    let mut rig = Rig::new(1);
    let (older, newer, other) = (endpoint("b", 2, 2, 1), endpoint("b", 2, 3, 2), endpoint("c", 3, 4, 1));
    rig.reconcile(&[older.clone(), other.clone()], &chosen(&[older.clone(), other.clone()])).await;
    let (lane_older, lane_other) = (rig.lane_to("10.2.0.1"), rig.lane_to("10.3.0.1"));

    // While its discovery runs the older one goes on.
    let all = [older.clone(), newer.clone(), other.clone()];
    rig.reconcile(&all, &chosen(&[older.clone(), other.clone()])).await;
    assert_eq!((rig.lane_to("10.2.0.1"), rig.connected().len()), (lane_older, 2));
    assert_eq!(names(&rig.engine.pending(rig.now)), ["cable-b-3"]);

    rig.reconcile(&all, &chosen(&all)).await;
    let lane_newer = rig.lane_to("10.2.0.1");
    assert!(lane_newer.is_some() && lane_newer != lane_older);
    assert_eq!(rig.connected(), ["cable-b-3", "cable-c-4"]);
    assert_eq!(names(&rig.engine.superseded(rig.now, 0)), ["cable-b-2"]);
    assert!(rig.tables.load().lane(lane_older.unwrap()).is_some(), "it still opens");
    assert_eq!(rig.lane_to("10.3.0.1"), lane_other, "another cluster does not notice");

    // Late, the older one is deleted: nothing of the newer one goes with it.
    rig.reconcile(&[newer.clone(), other.clone()], &chosen(&all)).await;
    assert_eq!((rig.lane_to("10.2.0.1"), rig.lane_to("10.3.0.1")), (lane_newer, lane_other));
    assert_eq!(rig.lanes().len(), 2);
    assert!(rig.tables.load().lane(lane_older.unwrap()).is_some(), "what is under way is welcome");
}

#[tokio::test(start_paused = true)]
async fn an_older_endpoint_that_comes_later_changes_nothing() {
    let mut rig = Rig::new(1);
    let (older, newer) = (endpoint("b", 2, 2, 1), endpoint("b", 2, 3, 2));
    rig.reconcile(std::slice::from_ref(&newer), &chosen(std::slice::from_ref(&newer))).await;
    let lane = rig.lane_to("10.2.0.1");
    let both = [older, newer];
    rig.reconcile(&both, &chosen(&both)).await;
    assert_eq!((rig.lane_to("10.2.0.1"), rig.connected()), (lane, vec!["cable-b-3".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn the_same_again_does_nothing() {
    let mut rig = Rig::new(1);
    let endpoints = [endpoint("b", 2, 2, 1), endpoint("c", 3, 3, 1)];
    rig.reconcile(&endpoints, &chosen(&endpoints)).await;
    let (lanes, epoch) = (rig.lanes(), rig.epoch());
    rig.reconcile(&endpoints, &chosen(&endpoints)).await;
    // Also with labels that mean nothing here.
    let mut labelled = endpoints.clone();
    labelled[0].metadata.labels.insert("colour".to_owned(), "blue".to_owned());
    rig.reconcile(&labelled, &chosen(&labelled)).await;
    assert_eq!((rig.lanes(), rig.epoch()), (lanes, epoch));
    assert_eq!(rig.kind.connects.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn another_address_moves_the_cable_and_keeps_its_session() {
    let mut rig = Rig::new(1);
    let mut endpoints = [endpoint("b", 2, 2, 1)];
    let mut choices = chosen(&endpoints);
    rig.reconcile(&endpoints, &choices).await;
    let lanes = rig.lanes();
    let using = |rig: &Rig| {
        let cable = rig.engine.connections(rig.now, 0).remove(0);
        (cable.connection.using_ip, cable.connection.using_nat, cable.lane.outer_address.unwrap().port())
    };
    assert_eq!(using(&rig), ("192.0.2.2".to_owned(), false, 4500));

    let public = Choice { ip: "198.51.100.2".parse().unwrap(), use_nat: true };
    choices.insert("cable-b-2".to_owned(), public);
    rig.reconcile(&endpoints, &choices).await;
    assert_eq!(using(&rig), ("198.51.100.2".to_owned(), true, 4500));
    choices.insert("cable-b-2".to_owned(), Choice { use_nat: false, ..public });
    endpoints[0].spec.backend_config.insert("udp-port".to_owned(), "4501".to_owned());
    rig.reconcile(&endpoints, &choices).await;
    assert_eq!(using(&rig), ("198.51.100.2".to_owned(), false, 4501));

    // Discovery looks anew: the old choice stays.
    rig.reconcile(&endpoints, &Choices::new()).await;
    assert_eq!(using(&rig), ("198.51.100.2".to_owned(), false, 4501));
    assert!(rig.engine.pending(rig.now).is_empty());
    assert_eq!(rig.lanes(), lanes);
}

#[tokio::test(start_paused = true)]
async fn a_cable_never_ends_at_the_node_itself_and_an_endpoint_may_have_its_address_otherwise() {
    let mut rig = Rig::new(1);
    rig.engine.set_node_addresses(["192.0.2.2".parse().unwrap()].into(), rig.now).await;
    let endpoints = [endpoint("b", 2, 2, 1), endpoint("c", 3, 3, 1)];
    let mut choices = chosen(&endpoints);
    rig.reconcile(&endpoints, &choices).await;
    assert_eq!(rig.connected(), ["cable-c-3"]);
    let refused = rig.engine.refused();
    assert_eq!((refused.len(), refused[0].cluster.as_str()), (1, "b"));
    assert!(refused[0].reason.contains("192.0.2.2"), "{}", refused[0].reason);
    assert_eq!(rig.lane_to("10.2.0.1"), None, "its packets are dropped, and nobody else's");

    // Another site numbers alike: it is reached at its public address.
    choices.insert("cable-b-2".to_owned(), Choice { ip: "198.51.100.2".parse().unwrap(), use_nat: true });
    rig.reconcile(&endpoints, &choices).await;
    assert_eq!(rig.connected(), ["cable-b-2", "cable-c-3"]);
    assert!(rig.engine.refused().is_empty());

    // An address that the node gets later.
    rig.engine.set_node_addresses(["198.51.100.2".parse().unwrap()].into(), rig.now).await;
    rig.turn();
    assert_eq!(rig.connected(), ["cable-c-3"]);
    assert_eq!(rig.engine.refused().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_key_replaces_the_cable() {
    let mut rig = Rig::new(1);
    let mut endpoints = [endpoint("b", 2, 2, 1), endpoint("c", 3, 3, 1)];
    rig.reconcile(&endpoints, &chosen(&endpoints)).await;
    let (old, other) = (rig.lane_to("10.2.0.1").unwrap(), rig.lane_to("10.3.0.1"));
    endpoints[0].spec.backend_config.insert("publicKey".to_owned(), keys::emit(&[99; 32]));
    rig.reconcile(&endpoints, &Choices::new()).await;
    let new = rig.lane_to("10.2.0.1").unwrap();
    assert_ne!(new, old);
    assert_eq!(rig.lane_to("10.3.0.1"), other);
    let tables = rig.tables.load();
    assert!(tables.lane(old).is_some(), "what is under way is welcome");
    assert_eq!(tables.lane_of_identity(&[99; 32]), Some(new));
}

#[tokio::test(start_paused = true)]
async fn other_networks_of_ours_are_in_the_tables_at_once_and_who_overlaps_them_is_refused() {
    let mut rig = Rig::new(1);
    let endpoints = [endpoint("b", 2, 2, 1), endpoint("c", 3, 3, 1)];
    rig.reconcile(&endpoints, &chosen(&endpoints)).await;
    let lanes = rig.lanes();
    let is_ours = |rig: &Rig, address: &str| rig.tables.load().is_local(address.parse().unwrap());
    assert!(is_ours(&rig, "10.1.0.1") && !is_ours(&rig, "10.77.0.1"));
    rig.engine.set_subnets(["10.77.0.0/24"].map(|net| net.parse().unwrap()).into());
    assert!(!is_ours(&rig, "10.1.0.1") && is_ours(&rig, "10.77.0.1"), "before anything else");
    rig.reconcile(&endpoints, &Choices::new()).await;
    assert_eq!(rig.lanes(), lanes, "WireGuard's cables do not depend on networks");

    rig.engine.set_subnets(["10.3.128.0/17"].map(|net| net.parse().unwrap()).into());
    rig.reconcile(&endpoints, &Choices::new()).await;
    let refused: Vec<&str> = rig.engine.refused().iter().map(|refused| refused.cluster.as_str()).collect();
    assert_eq!(refused, ["c"]);
    rig.engine.set_subnets(["10.1.0.0/16"].map(|net| net.parse().unwrap()).into());
    rig.reconcile(&endpoints, &Choices::new()).await;
    assert!(rig.engine.refused().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_network_of_the_start_is_older_than_one_that_is_published_before_it_later() {
    let mut rig = Rig::new(1);
    rig.engine.set_subnets(["10.77.0.0/24", "10.1.0.0/16"].map(|net| net.parse().unwrap()).into());
    assert_eq!(rig.engine.subnets_by_age, ["10.1.0.0/16", "10.77.0.0/24"].map(|net| net.parse().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn endpoints_of_our_own_cluster_are_ignored() {
    let mut rig = Rig::new(1);
    let endpoints = [endpoint("a", 1, 9, 1)];
    rig.reconcile(&endpoints, &chosen(&endpoints)).await;
    rig.reconcile(&[], &chosen(&endpoints)).await;
    assert!(rig.lanes().is_empty() && rig.engine.refused().is_empty() && rig.engine.peers().is_empty());
    assert_eq!(rig.engine.endpoint_reads(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_last_endpoint_of_a_cluster_takes_everything_along() {
    let mut rig = Rig::new(1);
    let endpoints = [endpoint("b", 2, 2, 1), endpoint("c", 3, 3, 1)];
    rig.reconcile(&endpoints, &chosen(&endpoints)).await;
    let (gone, stays) = (rig.lane_to("10.2.0.1").unwrap(), rig.lane_to("10.3.0.1").unwrap());
    rig.reconcile(&endpoints[1..], &chosen(&endpoints)).await;
    assert_eq!(rig.lanes(), [stays]);
    assert!(rig.tables.load().lane(gone).is_none());
    assert_eq!(rig.connected(), ["cable-c-3"]);
}

#[tokio::test(start_paused = true)]
async fn a_passive_gateway_has_no_cables_and_an_active_one_has_them_again_every_time() {
    let mut rig = Rig::new(2);
    let endpoints = [endpoint("b", 2, 2, 1), endpoint("c", 3, 3, 1)];
    rig.engine.set_active(false, rig.now).await;
    rig.reconcile(&endpoints, &chosen(&endpoints)).await;
    assert!(rig.lanes().is_empty() && rig.engine.pending(rig.now).is_empty());
    assert_eq!(rig.engine.peers().len(), 2, "they are known all the same, for discovery");
    let mut before = Vec::new();
    for round in 0..3 {
        rig.engine.set_active(true, rig.now).await;
        rig.turn();
        let lanes = rig.lanes();
        assert_eq!((lanes.len(), rig.connected().len()), (2, 2), "round {round}");
        assert!(lanes.contains(&rig.lane_to("10.2.0.1").unwrap()));
        assert!(lanes.iter().all(|lane| !before.contains(lane)), "lanes are new");

        rig.engine.set_active(false, rig.now).await;
        rig.turn();
        assert_eq!(rig.lane_to("10.2.0.1"), None);
        assert_eq!(rig.lanes(), []);
        assert!(rig.tables.load().lane(lanes[0]).is_some(), "what is under way is delivered");
        let status = PublishedStatus {
            version: String::new(),
            ha_status: HaStatus::Passive,
            local_endpoint: EndpointSpec::default(),
            status_failure: String::new(),
            connections: rig
                .engine
                .connections(rig.now, 0)
                .into_iter()
                .map(|cable| cable.connection)
                .collect(),
            extra: Default::default(),
        };
        assert_eq!(serde_json::to_value(status).unwrap()["connections"], serde_json::json!([]));
        before = lanes;
    }
    rig.now += DRAIN;
    rig.turn();
    let left: usize = rig.engine.workers().iter().map(|worker| worker.published().lanes.len()).sum();
    assert_eq!(left, 0, "nothing is left of them");
}
