//! Starting, running and stopping a gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use futures::FutureExt as _;
use jiff::Timestamp;
use rand_core::{OsRng, RngCore as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use trieste_cables::Site;
use trieste_control::admin::{GatewayStatus, IoCapability, Severity, SnapshotStatus};
use trieste_control::api::{EndpointSpec, HaStatus, Kind, NoticeKey, ObjectKey, ensure_valid_name};
use trieste_control::conditions::Conditions;
use trieste_control::election::{self, Candidate, ElectionConfig, Term};
use trieste_control::leader::{self, LeaderConfig};
use trieste_control::logging;
use trieste_control::members::{self, Inputs, Leave, MembersConfig, SlotTimes};
use trieste_control::publicip::{HttpsClient, PublicIp, PublicIpWatcher, Resolvers};
use trieste_control::publish::{OwnPod, Publisher, keep_pod_label};
use trieste_control::recorder::Recorder;
use trieste_control::store::{AnyStore, Location, Store as _};
use trieste_control::sync::SyncConfig;
use trieste_nat::OwnerKey;
use trieste_packet::{CableId, GatewayKey};
use trieste_pipeline::services::Services;
use trieste_pipeline::{Fleet, Tables};

use crate::admin::{self, AdminSocket, AdminState};
use crate::capture::CaptureHub;
use crate::config::{CommandLine, Config, Psk};
use crate::control::{self, Company, Control, Driver, Globalnet, State};
use crate::devices::{Devices, OUTER_MARK};
use crate::engine::Engine;
use crate::globalnet::board::Board;
use crate::globalnet::sessions::{self, Restored, SessionFiles};
use crate::globalnet::{Duty, key};
use crate::ike::IkeHandle;
use crate::kinds::{KindContext, Kinds, Made};
use crate::memory::{Memory, Remembered};
use crate::natdiscovery::Discovery;
use crate::node::{self, Found, Node};
use crate::notice::Notices;
use crate::paths::Paths;
use crate::probe;
use crate::role::{self, BrokerView, Duties};
use crate::services::Following;
use crate::settings::NodeSettings;
use crate::shared::{Shared, Sources, SyncTotals};
use crate::status::{self, Fixed};
use crate::tables::{Local, Owners};
use crate::threads::{Ended, spawn_workers};
use crate::worker::Command;
use crate::{ike, privileges, state, stores, uninstall};

/// How long each step of an end may take.
const STOP_TIMEOUT: Duration = Duration::from_millis(400);
/// How long all of a planned stop may take, and how much of it the last step has at least. Upstream's pods have a second from
/// being asked to being killed.
const STOP_BUDGET: Duration = Duration::from_millis(900);
const LAST_STEP: Duration = Duration::from_millis(200);
/// How long file operations that nobody waits for may go on.
const FILES_TIMEOUT: Duration = Duration::from_millis(20);
/// How long the first announcement waits for the public address: peers that take a first one for good get the right one.
const PUBLIC_IP_TIMEOUT: Duration = Duration::from_secs(3);
/// How many heaps there are for all threads, and how large an allocation is kept when it is free.
const HEAPS: u16 = 2;
const LARGE_FROM: u32 = 128 << 10;
/// How often the Node object is asked for at start.
const NODE_RETRY: Duration = Duration::from_millis(250);
/// How long a start waits for the Node object where its settings are remembered, and where they are not.
const NODE_TIMEOUT_REMEMBERED: Duration = Duration::from_millis(250);
const NODE_TIMEOUT: Duration = Duration::from_secs(5);
/// Exit code of a failed start or a fatal error (env-metrics §6).
const FATAL: u8 = 255;

/// The whole program behind `main`: logs, configuration, runtime, signals.
#[must_use]
pub fn main_with(command_line: &CommandLine, kinds: &Kinds) -> ExitCode {
    let said = &command_line.options;
    let mut default = if said.debug.unwrap_or(false) {
        "debug,boringtun=off,h2=info,hyper=info,rustls=info".to_owned()
    } else {
        "info,boringtun=off".to_owned()
    };
    if said.ipsec_debug.unwrap_or(false) {
        default.push_str(",trieste_gateway::ike=debug");
    }
    logging::to_stderr(&default);
    match start(command_line, kinds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(FATAL)
        }
    }
}

fn start(command_line: &CommandLine, kinds: &Kinds) -> anyhow::Result<()> {
    privileges::keep_memory_private();
    // What objects of the stores took is free again soon, and is to be the kernel's then. Packets do not come by the heap.
    trieste_io::heap::bound(HEAPS, LARGE_FROM);
    let config = command_line.load()?;
    // Threads have capabilities of their own: before the first one.
    privileges::settle(command_line, &config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("control")
        .enable_all()
        .build()
        .context("starting the control threads")?;
    if command_line.uninstall {
        return runtime.block_on(uninstall::uninstall(&config));
    }
    let outcome = runtime.block_on(run(&config, kinds, terminated()));
    // A directory that is slow to read must not hold the process up: whatever is written there is written whole or not.
    runtime.shutdown_timeout(FILES_TIMEOUT);
    outcome
}

/// Completes at SIGTERM or SIGINT.
async fn terminated() {
    let (Ok(mut term), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Runs a gateway until `stop` completes or something fatal happens.
///
/// # Errors
/// Why it could not start, or what was fatal.
pub async fn run(config: &Config, kinds: &Kinds, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let now = Instant::now();
    let conditions = privileges::conditions(config);
    let store = stores::local(config)?;
    let broker = stores::broker(config)?;

    let state_dir = usable_state(config, &conditions)?;
    let mut memory = Memory::new(&config.state_dir);
    let remembered = state_dir.and_then(|_| memory.load());
    let (settings, is_guess) = node_settings(config, &store, remembered.as_ref()).await;
    let node = Node::look(config, &settings)?;

    // Everything that can be refused is asked for before anything is published.
    let metrics_listener = config.metrics_port.map(admin::bind_metrics).transpose()?;
    let listeners = (admin::bind_admin(&config.admin_socket)?, metrics_listener);
    let devices = open_devices(config, &node)?;
    let made = make_kind(config, kinds, state_dir, (&node, &settings), now)?;
    let kind = Arc::clone(&made.kind);
    let driver = Driver { name: kind.name().to_owned(), backend_config: kind.backend_config() };
    let mut found = Found { settings, inside: node::inside(config), ..Found::default() };
    let (public_ip, is_sought) = follow_public_ip(config, &store, &found, remembered.as_ref());
    // What is remembered counts as long as it is still configured.
    found.public_ip = public_ip.public_ip.borrow().address;
    found.is_load_balancer = public_ip.public_ip.borrow().is_load_balancer;
    let spec = node::endpoint(config, &node, &found, &driver.name, driver.backend_config.clone());

    let (owners, files, restored) = before(config, state_dir);
    let PacketPath { mut engine, mut ended, hub, names, io, services } =
        PacketPath::start(config, &node, devices, made, &spec, files.is_some())?;
    let board = board(config, &mut engine, restored, &conditions);
    let fixed = fixed(config, &node, io);

    let (discovery, notices) = outside(config, (&node, &spec, &found), state_dir, &engine, &conditions)?;
    let probes = config.health_check.map(|check| probe::start(config, check, conditions.clone()));
    let first = status::Live { endpoint: spec.clone(), ..status::Live::default() };
    let (endpoint_sender, endpoint) = watch::channel(spec);
    let known = is_sought.then(|| public_ip.public_ip.clone());
    let told = (&endpoint, remembered.as_ref());
    let company = company(config, (&node, notices.key()), (&store, broker.clone()), told, &conditions);
    let mut office = Office::open(config, &node, &store, broker.clone(), (endpoint, known), &conditions);

    let sources = office.sources(&store, broker, remembered.as_ref());
    let first = status::document(&fixed, &engine, first, now);
    let shared = Arc::new(Shared::new(first, &config.namespace, sources, Arc::clone(&board)));
    let delivering = deliver(config, &node, &store, services, &conditions);
    let (stop_sender, stop_receiver) = watch::channel(false);
    let (end_sender, end_receiver) = watch::channel(false);
    let servers = spawn_servers(listeners, &shared, (&hub, &board, engine.ike()), &end_receiver);
    let duty = Duty::start(config, &node.hostname, config.health_check.is_some(), &store, &office.candidate);

    tracing::info!(cluster = %config.cluster_id, hostname = %node.hostname, private_ip = %node.private_ip, port = node.udp_port, driver = kind.name(), path_mtu = node.path_mtu(config, kind.overhead()), workers = config.workers, store = %config.store, "gateway runs");
    notify(&[sd_notify::NotifyState::Ready]);
    let mut control = Control {
        config,
        node: &node,
        store: store.clone(),
        driver,
        fixed: &fixed,
        shared: &shared,
        names: &names,
        candidate: office.candidate.clone(),
        broker: office.broker.clone(),
        announced: office.announced.clone(),
        endpoint: endpoint_sender,
        discovery,
        notices,
        probes,
        public_ip,
        recorder: office.recorder.clone(),
        memory: state_dir.map(|_| memory.keep(conditions.clone())),
        globalnet: Globalnet { duty, board: Arc::clone(&board), owners, files },
        company,
        conditions,
        state: State::new(config, found, remembered, is_guess),
    };
    control.refresh(&mut engine).await;
    let publisher = Publisher::new(Arc::new(store), &config.namespace, &config.cluster_id, &node.hostname)
        .sparing(control.company.spared());
    let heartbeat = tokio::spawn(heartbeat(publisher.clone(), Arc::clone(&shared), stop_receiver));
    let asked = OnceLock::new();
    let leaving = async {
        stop.await;
        let _ = asked.set(Instant::now());
        // The Gateway object goes at once, as upstream's does; cables stay until a successor is there.
        let _ = stop_sender.send(true);
    };
    let outcome = tokio::select! {
        ended = control.run(&mut engine, leaving) => ended,
        failure = office.failed() => Err(failure),
        failure = ended.recv() => Err(failure.unwrap_or_else(|| anyhow::anyhow!("all workers ended"))),
    };

    notify(&[sd_notify::NotifyState::Stopping]);
    if let Err(error) = &outcome {
        heartbeat.abort();
        say_why(error, &shared, &office, &publisher).await;
    }
    let within = left_of_stop(asked.get());
    let last_step = async {
        end_tasks(control, &engine, heartbeat, within).await;
        let _ = end_sender.send(true);
        futures::future::join_all(servers).await;
    };
    let _ = tokio::time::timeout(within, last_step).await;
    delivering.abort();
    // Its last round has what the workers said to their end.
    board.set_keeper(None);
    office.close().await;
    tracing::info!("gateway has stopped; its TUN device stays, so that nothing leaves in clear");
    outcome
}

/// Returns how long the last step of a stop may take that was asked for then, if anybody has asked.
fn left_of_stop(asked: Option<&Instant>) -> Duration {
    let spent = asked.map_or(Duration::ZERO, Instant::elapsed);
    STOP_BUDGET.saturating_sub(spent).clamp(LAST_STEP, STOP_TIMEOUT)
}

/// Ends the workers and what writes objects, all at once.
async fn end_tasks(
    control: Control<'_>,
    engine: &Engine,
    heartbeat: tokio::task::JoinHandle<()>,
    within: Duration,
) {
    if control.leave() == Leave::ForGood {
        // The shares that are given up are used by others at once.
        stop_workers(engine).await;
    }
    // An aborted heartbeat has had its last word.
    let _ = tokio::join!(stop_workers(engine), heartbeat, control.stop(within));
}

/// What does not change while the gateway runs.
fn fixed(config: &Config, node: &Node, io: Vec<IoCapability>) -> Fixed {
    let (cluster, hostname) = (config.cluster_id.clone(), node.hostname.clone());
    Fixed { started: Timestamp::now(), cluster, hostname, io }
}

/// Starts to follow which node serves what.
fn deliver(
    config: &Config,
    node: &Node,
    store: &AnyStore,
    services: Arc<ArcSwap<Services>>,
    conditions: &Conditions,
) -> tokio::task::JoinHandle<()> {
    let following = Following {
        store: store.clone(),
        namespace: config.namespace.clone(),
        node: config.node_name.clone().unwrap_or_else(|| node.hostname.clone()),
        networks: config.service_cidrs.clone(),
        services,
        conditions: conditions.clone(),
    };
    tokio::spawn(following.run())
}

/// What asks and tells outside of cables: NAT discovery, and notices to route agents.
fn outside(
    config: &Config,
    (node, spec, found): (&Node, &EndpointSpec, &Found),
    state_dir: Option<&std::path::Path>,
    engine: &Engine,
    conditions: &Conditions,
) -> anyhow::Result<(Discovery, Notices)> {
    let local = control::discovery_local(config, spec, found, node.private_ip);
    let discovery = Discovery::start(local, state_dir.map(Into::into), OUTER_MARK, conditions.clone());
    let here = SocketAddr::new(node.private_ip, config.notice_port);
    let paths = (Arc::clone(engine.paths()), engine.path_changes());
    let notices = Notices::start(&spec.cable_name, here, state_dir, paths, conditions.clone())
        .context("starting the thread for notices")?;
    Ok((discovery, notices))
}

/// Leaves the last word of a gateway that cannot go on. A successor need not wait for the Lease to expire, and the object
/// says why there is one (behaviour §3.4).
async fn say_why(
    error: &anyhow::Error,
    shared: &Shared,
    office: &Office,
    publisher: &Publisher<Arc<AnyStore>>,
) {
    shared.fail(&format!("{error:#}"));
    office.candidate.release(STOP_TIMEOUT).await;
    let last_word = publisher.put_gateway(status::published(&shared.status.load()), Timestamp::now());
    let _ = tokio::time::timeout(STOP_TIMEOUT, last_word).await;
}

/// The kind of cable that is configured.
fn make_kind(
    config: &Config,
    kinds: &Kinds,
    state_dir: Option<&std::path::Path>,
    (node, settings): (&Node, &NodeSettings),
    now: Instant,
) -> anyhow::Result<Made> {
    let facts = key_facts(config, node);
    let (udp_port, preferred_server) = (node.udp_port, settings.preferred_server);
    kinds.make(&KindContext { config, state_dir, facts, udp_port, preferred_server, now })
}

/// What peers have to learn with a new key, because upstream ignores other changes under a known one (wireformat §3).
fn key_facts(config: &Config, node: &Node) -> String {
    let mut facts = format!(
        "{:?} {:?} {} {}",
        config.service_cidrs, config.cluster_cidrs, node.private_ip, node.udp_port
    );
    if !config.global_cidrs.is_empty() {
        facts.push_str(&format!(" {:?}", config.global_cidrs));
    }
    facts
}

/// The devices of the process before this one, or new ones.
fn open_devices(config: &Config, node: &Node) -> anyhow::Result<Devices> {
    let inherited = trieste_io::inherited::take();
    if inherited.is_empty() {
        // The Node's own port wins.
        let config = Config { udp_port: node.udp_port, ..config.clone() };
        return Devices::open(&config, node.underlay_mtu);
    }
    Devices::adopt(config, inherited).context("taking over inherited descriptors")
}

/// Starts to tell of this gateway and to follow the others, from what is remembered of them.
fn company(
    config: &Config,
    (node, key): (&Node, NoticeKey),
    (store, broker): (&AnyStore, Option<AnyStore>),
    (endpoint, remembered): (&watch::Receiver<EndpointSpec>, Option<&Remembered>),
    conditions: &Conditions,
) -> Company {
    let (draining, is_draining) = watch::channel(false);
    let (heard, heard_by) = watch::channel(BTreeSet::new());
    remark_plugin(config, conditions);
    remark_change(config, conditions);
    let members = MembersConfig {
        namespace: config.namespace.clone(),
        broker_namespace: config.broker_namespace.clone(),
        cluster_id: config.cluster_id.clone(),
        hostname: node.hostname.clone(),
        is_wanted: config.all_gateways_active,
        has_slots: !config.global_cidrs.is_empty(),
        notice_key: Some(key),
        times: SlotTimes::default(),
    };
    let inputs = Inputs {
        endpoint: endpoint.clone(),
        draining: is_draining,
        heard: heard_by,
        conditions: conditions.clone(),
    };
    let known = remembered.filter(|_| config.all_gateways_active);
    let known = known.map(|known| known.members.members(Instant::now(), Timestamp::now()));
    let handle = members::spawn(store.clone(), broker, &members, &inputs, known.unwrap_or_default());
    Company { handle, draining, heard }
}

/// Says that the cluster set changes its cable driver, which somebody has to bring to its end.
fn remark_change(config: &Config, conditions: &Conditions) {
    let Some(former) = &config.former_cable_driver else { return };
    let newer = &config.cable_driver;
    let why = format!(
        "gateways that do not have the cable driver {newer} yet are connected by {former}; when all clusters of the set \
         have joined with --cable-driver {newer}, join here once more, and {former} is offered no longer"
    );
    conditions.put("FormerDriver", Severity::Info, "", Some(why));
}

/// Says what the network plugin has to do with the number of active gateways.
fn remark_plugin(config: &Config, conditions: &Conditions) {
    let Some(plugin) = &config.own_addressing else { return };
    let (severity, what) = if config.all_gateways_active {
        let what = "answers that come by another gateway than the question went by are lost; active-gateways: one \
                    (trieste join --active-gateways one) has one carry everything";
        (Severity::Warning, what)
    } else {
        (Severity::Info, "one gateway carries traffic, the others stand by")
    };
    let why = format!(
        "the network plugin {plugin} gives pods addresses that Kubernetes does not know by node: {what}"
    );
    conditions.put("OwnAddressing", severity, "", Some(why));
}

/// Starts to look for the public address, from the one that was found last. Gives whether anybody is asked.
fn follow_public_ip(
    config: &Config,
    store: &AnyStore,
    found: &Found,
    remembered: Option<&Remembered>,
) -> (PublicIpWatcher, bool) {
    let resolvers = Resolvers::from_setting(found.resolvers(config), config.air_gapped, &mut OsRng);
    let last = remembered.and_then(Remembered::last_address);
    let is_sought = !resolvers.is_empty();
    let client = HttpsClient::from_environment();
    (PublicIpWatcher::spawn(client, store.clone(), &config.namespace, resolvers, last), is_sought)
}

/// Who translates what, where sessions are kept, and those of the process before.
fn before(config: &Config, state_dir: Option<&std::path::Path>) -> (Owners, Option<SessionFiles>, Restored) {
    let key = key::derive(&config.cluster_id, config.psk.as_ref().map(Psk::expose));
    let owners = Owners { key: OwnerKey(key), workers: config.workers };
    let most = usize::try_from(config.globalnet.max_sessions).unwrap_or(usize::MAX);
    let most = most.saturating_mul(usize::from(config.workers));
    let files = state_dir
        .filter(|_| !config.global_cidrs.is_empty())
        .map(|dir| SessionFiles::new(dir, key::fingerprint(&key), most));
    let restored = files
        .as_ref()
        .map(|files| sessions::restore(files, &config.globalnet, Timestamp::now()))
        .unwrap_or_default();
    (owners, files, restored)
}

/// Where everything about Globalnet is known. The engine gets the sessions of the process before.
fn board(config: &Config, engine: &mut Engine, restored: Restored, conditions: &Conditions) -> Arc<Board> {
    let begun_with = SnapshotStatus { not_restored: restored.expired, ..SnapshotStatus::default() };
    engine.set_sessions(restored.records);
    let workers = engine.workers().to_vec();
    let board = Board::new(!config.global_cidrs.is_empty(), workers, conditions.clone(), begun_with);
    Arc::new(board.with_fleet(Arc::clone(engine.fleet())))
}

/// Workers, what they share, and what drives them.
struct PacketPath {
    engine: Engine,
    ended: Ended,
    hub: Arc<CaptureHub>,
    names: Arc<ArcSwap<BTreeMap<u16, String>>>,
    io: Vec<IoCapability>,
    services: Arc<ArcSwap<Services>>,
}

impl PacketPath {
    fn start(
        config: &Config,
        node: &Node,
        mut devices: Devices,
        made: Made,
        spec: &EndpointSpec,
        keeps_sessions: bool,
    ) -> anyhow::Result<Self> {
        let names: Arc<ArcSwap<BTreeMap<u16, String>>> = Arc::default();
        let lookup = Arc::clone(&names);
        let hub = CaptureHub::new(node.private_ip, node.udp_port)
            .with_cable_names(move |cable: CableId| lookup.load().get(&cable.0).cloned());
        let hub = Arc::new(hub);
        let tables = Arc::new(ArcSwap::from_pointee(Tables::default()));
        let paths = Paths::default();
        // Where a route agent is to come: without it, answers of a machine that has just started would leave in clear.
        paths.board.shut(devices.is_new() && matches!(config.store, Location::Kube { .. }));
        let services: Arc<ArcSwap<Services>> = Arc::default();
        let fleet = Fleet::new(GatewayKey::of(&spec.cable_name), OsRng.next_u64(), Instant::now());
        let carried = made.kind.carries_esp().then(|| devices.carry_esp(config));
        if made.kind.identifies_by_address() {
            devices.carry_vxlan();
        }
        let io = devices.capabilities();
        let (workers, ended_sender, ended) = spawn_workers(
            config,
            devices,
            &made.kind,
            &tables,
            &hub,
            keeps_sessions,
            (&paths, &fleet, &services),
        )?;
        let local = Local {
            cluster_id: config.cluster_id.clone(),
            site: Site {
                cable_name: spec.cable_name.clone(),
                private_ip: node.private_ip,
                public_ip: None,
                subnets: config.published_subnets(),
                driver: spec.backend.clone(),
                backend_config: spec.backend_config.clone(),
            },
            // Looked at in the first round of the control loop, and followed from then on.
            icmp_sources: Vec::new(),
            path_mtu: node.path_mtu(config, made.kind.overhead()),
            translation: None,
            allowed: config.allowed.clone(),
            node_addresses: node::addresses(config),
        };
        let [a, b, ..] = OsRng.next_u32().to_le_bytes();
        let slow_half = made.slow_half;
        let ike =
            slow_half.map(|slow_half| ike::spawn(slow_half, workers.clone(), ended_sender)).transpose()?;
        let engine = Engine::new(local, made.kind, tables, workers, u16::from_le_bytes([a, b]))
            .with_ike(ike, carried)
            .with_paths(paths, fleet);
        Ok(Self { engine, ended, hub, names, io, services })
    }
}

/// Stops the workers and waits until they have, within bounds.
async fn stop_workers(engine: &Engine) {
    for worker in engine.workers() {
        worker.command(Command::Stop);
    }
    let deadline = Instant::now() + STOP_TIMEOUT;
    while engine.workers().iter().any(|worker| !worker.published().is_stopped) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The state directory if it can be used. Without one everything is asked anew at every start, and peers have to learn
/// a new key.
///
/// # Errors
/// That the node was another cluster's gateway.
fn usable_state<'a>(
    config: &'a Config,
    conditions: &Conditions,
) -> anyhow::Result<Option<&'a std::path::Path>> {
    let dir = config.state_dir.as_path();
    if let Err(error) = state::prepare(dir) {
        let message = format!("{error}: every start makes a new key and asks everything anew");
        conditions.set("StateNotKept", Severity::Warning, "", message);
        return Ok(None);
    }
    state::claim_cluster(dir, &config.cluster_id)?;
    // Upstream's DaemonSet mounts nothing.
    if matches!(config.store, Location::Kube { path: None, .. }) && !state::is_volume(dir) {
        let message = format!(
            "{} is no volume: what is kept there goes with this container, the next one makes a new key and asks \
             everything anew; mount a directory of the node there",
            dir.display()
        );
        conditions.set("StateNotOnVolume", Severity::Info, "", message);
    }
    Ok(Some(dir))
}

/// The Node object's settings: asked for, or remembered when nobody answers in time. Gives whether they are a guess.
async fn node_settings(
    config: &Config,
    store: &AnyStore,
    remembered: Option<&Remembered>,
) -> (NodeSettings, bool) {
    let Some(name) = &config.node_name else { return (NodeSettings::default(), false) };
    let known = remembered.and_then(|remembered| remembered.node.clone());
    let timeout = if known.is_some() { NODE_TIMEOUT_REMEMBERED } else { NODE_TIMEOUT };
    let key = ObjectKey::new(Kind::Node, "", name);
    let asked = async {
        loop {
            match store.get(&key).await {
                Ok(node) => return node,
                Err(error) => tracing::debug!(%error, "the Node object cannot be read yet"),
            }
            tokio::time::sleep(NODE_RETRY).await;
        }
    };
    match tokio::time::timeout(timeout, asked).await {
        Ok(node) => (node.as_ref().map(NodeSettings::read).unwrap_or_default(), false),
        Err(_) => {
            let is_guess = known.is_none();
            (known.unwrap_or_default(), is_guess)
        }
    }
}

/// Waits until the public address is known and our Endpoint has it, or it is known to be unknown; not for long. An
/// Endpoint that came first without it would make every peer ask for our address twice.
async fn first_public_ip(
    mut public_ip: watch::Receiver<PublicIp>,
    mut endpoint: watch::Receiver<EndpointSpec>,
) {
    let published = async {
        let is_settled = |known: &PublicIp| known.address.is_some() || known.error.is_some();
        let known = public_ip.wait_for(is_settled).await.ok().and_then(|known| known.address);
        let Some(address) = known.map(|address| address.to_string()) else { return };
        // The sender lives as long as the gateway.
        let _ = endpoint.wait_for(|spec| spec.public_ip == address).await;
    };
    let _ = tokio::time::timeout(PUBLIC_IP_TIMEOUT, published).await;
}

/// Everything that writes objects in this gateway's name, but for its heartbeat.
struct Office {
    candidate: Candidate,
    broker: watch::Receiver<BrokerView>,
    /// The newest term in which this gateway became its cluster's Endpoint.
    announced: watch::Receiver<Option<Term>>,
    recorder: Recorder,
    totals: Arc<SyncTotals>,
    /// Each gives its name if it ended although it should not.
    tasks: JoinSet<Option<&'static str>>,
}

impl Office {
    fn open(
        config: &Config,
        node: &Node,
        store: &AnyStore,
        broker: Option<AnyStore>,
        (endpoint, public_ip): (watch::Receiver<EndpointSpec>, Option<watch::Receiver<PublicIp>>),
        conditions: &Conditions,
    ) -> Self {
        let election = ElectionConfig::gateway(&config.namespace, &node.hostname, config.election);
        let candidate = election::spawn(store.clone(), election);
        let (recorder, events) = Recorder::new();
        let mut tasks = JoinSet::new();
        let record = role::record(candidate.events(), node.hostname.clone(), recorder.clone());
        tasks.spawn(record.map(|()| None));
        if let AnyStore::Kube(kube) = store {
            let name = ensure_valid_name(&node.hostname);
            let about = ObjectKey::new(Kind::Gateway, &config.namespace, name);
            tasks.spawn(events.write_to(kube.clone(), about, conditions.clone()).map(|()| None));
        }
        let duties = LeaderConfig { namespace: config.namespace.clone(), cluster: Node::cluster(config) };
        let (leader_store, candidate_of_leader, said) =
            (store.clone(), candidate.clone(), conditions.clone());
        let (announcing, announced) = watch::channel(None);
        tasks.spawn(async move {
            if let Some(public_ip) = public_ip {
                first_public_ip(public_ip, endpoint.clone()).await;
            }
            let leader = leader::spawn(leader_store, duties, candidate_of_leader, endpoint);
            role::watch_leader(leader.status.clone(), announcing, said).await;
            Some("announcing this gateway")
        });
        let (status, ha_status) = watch::channel(HaStatus::Passive);
        tasks.spawn(role::tell_ha_status(candidate.clone(), status).map(|()| Some("the election")));
        let pod = OwnPod {
            namespace: config.namespace.clone(),
            name: config.pod_name.clone(),
            node: config.node_name.clone().unwrap_or_else(|| node.hostname.clone()),
        };
        tasks.spawn(keep_pod_label(store.clone(), pod, ha_status, conditions.clone()).map(|()| None));
        let totals: Arc<SyncTotals> = Arc::default();
        let (view, seen) = watch::channel(BrokerView::default());
        if let Some(broker) = broker {
            let mut sync = SyncConfig::new(&config.cluster_id, config.published_subnets());
            sync.local_namespace.clone_from(&config.namespace);
            sync.broker_namespace.clone_from(&config.broker_namespace);
            sync.allowed = config.allowed.clone();
            let duties = Duties {
                candidate: candidate.clone(),
                local: store.clone(),
                broker,
                sync,
                conditions: conditions.clone(),
                totals: Arc::clone(&totals),
                recorder: recorder.clone(),
            };
            tasks.spawn(duties.run(view).map(|()| Some("the broker's syncer")));
        }
        Self { candidate, broker: seen, announced, recorder, totals, tasks }
    }

    /// Where numbers are asked for.
    fn sources(
        &self,
        store: &AnyStore,
        broker: Option<AnyStore>,
        remembered: Option<&Remembered>,
    ) -> Sources {
        Sources {
            store: store.clone(),
            broker,
            recorder: self.recorder.clone(),
            sync: Arc::clone(&self.totals),
            started_from_memory: remembered.is_some_and(|known| !known.endpoints.is_empty()),
        }
    }

    /// Waits until something ends that should run as long as the gateway does.
    async fn failed(&mut self) -> anyhow::Error {
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok(None) => {}
                Ok(Some(name)) => return anyhow::anyhow!("{name} has ended by itself"),
                Err(error) => return anyhow::Error::new(error).context("a control task failed"),
            }
        }
        std::future::pending().await
    }

    async fn close(mut self) {
        self.tasks.shutdown().await;
    }
}

fn notify(states: &[sd_notify::NotifyState<'_>]) {
    // Not started by systemd: nobody to tell.
    let _ = sd_notify::notify(states);
}

/// Writes the Gateway object every five seconds.
async fn heartbeat(
    publisher: Publisher<Arc<AnyStore>>,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) {
    let status = || {
        shared.iterations.fetch_add(1, Ordering::Relaxed);
        status::published(&shared.status.load())
    };
    let stopped = async {
        // The sender lives as long as the gateway.
        let _ = stop.wait_for(|is_stopped| *is_stopped).await;
    };
    publisher.keep_gateway(status, stopped).await;
}

fn spawn_servers(
    (admin, metrics): (AdminSocket, Option<tokio::net::TcpListener>),
    shared: &Arc<Shared>,
    (hub, board, ike): (&Arc<CaptureHub>, &Arc<Board>, Option<&IkeHandle>),
    stop: &watch::Receiver<bool>,
) -> Vec<tokio::task::JoinHandle<()>> {
    let (for_status, for_gateway, for_extra) = (Arc::clone(shared), Arc::clone(shared), Arc::clone(shared));
    let for_health = Arc::clone(shared);
    let state = AdminState {
        status: Arc::new(move || GatewayStatus::clone(&for_status.status.load())),
        gateway: Arc::new(move || for_gateway.gateway()),
        extra: Arc::new(move || for_extra.extra()),
        health: Arc::new(move || for_health.health()),
        hub: Arc::clone(hub),
        board: Arc::clone(board),
        ike: ike.cloned(),
        slots: Arc::default(),
    };
    let stopped = |mut stop: watch::Receiver<bool>| async move {
        let _ = stop.wait_for(|is_stopped| *is_stopped).await;
    };
    let mut servers = vec![tokio::spawn(admin::serve_admin(admin, state.clone(), stopped(stop.clone())))];
    if let Some(listener) = metrics {
        servers.push(tokio::spawn(admin::serve_metrics(listener, state, stopped(stop.clone()))));
    }
    servers
}
