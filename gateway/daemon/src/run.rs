//! Starting, running and stopping a gateway.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::IsTerminal as _;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use futures::StreamExt as _;
use jiff::Timestamp;
use rand_core::{OsRng, RngCore as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use trieste_cables::wireguard::WireguardKind;
use trieste_cables::{CableKind, keys};
use trieste_control::admin::{BrokerStatus, GatewayStatus, RefusedCluster};
use trieste_control::api::{ClusterSpec, Endpoint, EndpointSpec, Gateway, Kind, Resource as _, cable_name};
use trieste_control::publish::{Publisher, withdraw_from_broker};
use trieste_control::store::{DirStore, Location, Mirror, Store as _};
use trieste_control::sync::{SyncConfig, SyncHandle, Syncer};
use trieste_packet::{CableId, PoolConfig, WorkerId};
use trieste_pipeline::{Config as PipelineConfig, Pipeline, Tables};

use crate::admin::{self, AdminState};
use crate::capture::CaptureHub;
use crate::config::{CommandLine, Config, ConfigError, Cpus};
use crate::devices::{self, Devices};
use crate::engine::Engine;
use crate::handoff::Exchange;
use crate::host;
use crate::metrics::{MetricsExtra, ProcessStats};
use crate::state;
use crate::status::{self, Fixed};
use crate::tables::{self, Local};
use crate::worker::{Command, DeviceWait, Worker, WorkerHandle, WorkerParts};

/// How often the status document is put together.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);
/// How often this node's addresses are looked at.
const ADDRESS_INTERVAL: Duration = Duration::from_secs(5);
/// How long workers may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes that an outer header and a cable take at most: IPv6, UDP and WireGuard. The same for both outer families,
/// so that a peer may roam from one to the other.
const PATH_OVERHEAD_BYTES: u16 = 80;
/// Exit code of a failed start or a fatal error (env-metrics §6).
const FATAL: u8 = 255;

/// What a kind of cable is made from.
pub struct KindContext<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// Text that changes when peers have to learn of a new key.
    pub facts: String,
    /// The time.
    pub now: Instant,
}

type MakeKind = Box<dyn Fn(&KindContext<'_>) -> anyhow::Result<Arc<dyn CableKind>> + Send + Sync>;

/// The kinds of cable that this binary knows, by name.
pub struct Kinds {
    makers: BTreeMap<String, MakeKind>,
}

impl Default for Kinds {
    /// WireGuard.
    fn default() -> Self {
        let mut kinds = Self { makers: BTreeMap::new() };
        kinds.register("wireguard", |context| {
            let config = context.config;
            let private = state::private_key(&config.state_dir, &context.facts)?;
            let psk = config.psk.as_deref().unwrap_or_else(|| {
                tracing::warn!("no psk is configured: using upstream's well-known default");
                keys::DEFAULT_PSK
            });
            Ok(Arc::new(WireguardKind::new(private, psk, &config.tun_name, context.now)))
        });
        kinds
    }
}

impl Kinds {
    /// Adds a kind, or replaces the one of that name.
    pub fn register(
        &mut self,
        name: &str,
        make: impl Fn(&KindContext<'_>) -> anyhow::Result<Arc<dyn CableKind>> + Send + Sync + 'static,
    ) {
        self.makers.insert(name.to_owned(), Box::new(make));
    }

    fn make(&self, context: &KindContext<'_>) -> anyhow::Result<Arc<dyn CableKind>> {
        let name = &context.config.cable_driver;
        let known: Vec<&str> = self.makers.keys().map(String::as_str).collect();
        let make = self.makers.get(name).ok_or_else(|| ConfigError::Invalid {
            key: "cable-driver",
            problem: format!("`{name}` is none of {}", known.join(", ")),
        })?;
        make(context)
    }
}

/// The whole program behind `main`: logs, configuration, runtime, signals.
#[must_use]
pub fn main_with(command_line: &CommandLine, kinds: &Kinds) -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,boringtun=off"));
    let is_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_terminal)
        .with_writer(std::io::stderr)
        .init();
    match start(command_line, kinds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(FATAL)
        }
    }
}

fn start(command_line: &CommandLine, kinds: &Kinds) -> anyhow::Result<()> {
    let config = command_line.load()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("control")
        .enable_all()
        .build()
        .context("starting the control threads")?;
    if command_line.uninstall {
        return runtime.block_on(uninstall(&config));
    }
    runtime.block_on(run(&config, kinds, terminated()))
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

/// Removes what this gateway has put anywhere: the TUN device, its objects in the local store, its cluster's
/// objects on the broker. Can be run again.
///
/// # Errors
/// What could not be removed.
pub async fn uninstall(config: &Config) -> anyhow::Result<()> {
    if std::os::unix::net::UnixStream::connect(&config.admin_socket).is_ok() {
        anyhow::bail!(
            "a gateway answers on {}: stop it first, or what is removed comes back",
            config.admin_socket.display()
        );
    }
    devices::remove(&config.tun_name)?;
    let Location::Dir(path) = &config.store else { anyhow::bail!("this kind of store is not supported") };
    if path.exists() {
        let store = Arc::new(DirStore::open(path)?);
        let hostname = config.hostname.clone().unwrap_or_else(host::hostname);
        Publisher::new(store, &config.namespace, &config.cluster_id, &hostname)
            .withdraw()
            .await
            .context("removing this gateway's objects")?;
    }
    if let Some(Location::Dir(path)) = &config.broker {
        let memory = state::broker_memory(&config.state_dir, path);
        let broker = Arc::new(DirStore::attach_remembering(path, &memory));
        withdraw_from_broker(&broker, &config.broker_namespace, &config.cluster_id).await.context(
            "removing this cluster's objects from the broker (run it again when the broker is there)",
        )?;
        let _ = std::fs::remove_file(memory);
    }
    state::release_cluster(&config.state_dir)?;
    tracing::info!("uninstalled");
    Ok(())
}

/// What this node is, worked out once at start.
struct Node {
    hostname: String,
    private_ip: IpAddr,
    inside: Vec<IpAddr>,
    underlay_mtu: u16,
}

impl Node {
    fn look(config: &Config) -> anyhow::Result<Self> {
        let addresses = host::addresses();
        let private_ip = config
            .private_ip
            .or_else(host::default_source)
            .context("this node has no route to the world to learn its address from: set private-ip")?;
        let subnets: Vec<_> = config.service_cidrs.iter().chain(&config.cluster_cidrs).copied().collect();
        Ok(Self {
            hostname: config.hostname.clone().unwrap_or_else(host::hostname),
            private_ip,
            inside: host::inside(&addresses, &subnets),
            underlay_mtu: host::underlay_mtu(&addresses, private_ip),
        })
    }

    fn path_mtu(&self, config: &Config) -> u16 {
        config.path_mtu.unwrap_or_else(|| self.underlay_mtu.saturating_sub(PATH_OVERHEAD_BYTES))
    }

    fn health_check_ip(&self, config: &Config) -> Option<IpAddr> {
        config.health_check_ip.or_else(|| self.inside.first().copied())
    }

    fn endpoint(&self, config: &Config, kind: &dyn CableKind) -> EndpointSpec {
        let mut backend_config = kind.backend_config();
        backend_config.insert("udp-port".to_owned(), config.udp_port.to_string());
        // No discovery is answered: a port of 0 lets upstream's fall back at once (behaviour §1.5).
        backend_config.insert("natt-discovery-port".to_owned(), "0".to_owned());
        if let Some(public) = config.public_ip {
            backend_config.insert("public-ip".to_owned(), format!("ipv4:{public}"));
        }
        EndpointSpec {
            cluster_id: config.cluster_id.clone(),
            cable_name: cable_name(&config.cluster_id, self.private_ip),
            health_check_ip: self.health_check_ip(config).map(|ip| ip.to_string()).unwrap_or_default(),
            hostname: self.hostname.clone(),
            subnets: config
                .service_cidrs
                .iter()
                .chain(&config.cluster_cidrs)
                .map(ToString::to_string)
                .collect(),
            private_ip: self.private_ip.to_string(),
            public_ip: config.public_ip.map(|ip| ip.to_string()).unwrap_or_default(),
            nat_enabled: config.nat_enabled,
            backend: kind.name().to_owned(),
            backend_config,
            ..EndpointSpec::default()
        }
    }
}

/// Our addresses that ICMP errors carry: the configured one, else those inside the published subnets.
fn icmp_sources(config: &Config) -> Vec<IpAddr> {
    let subnets: Vec<_> = config.service_cidrs.iter().chain(&config.cluster_cidrs).copied().collect();
    let mut sources = host::inside(&host::addresses(), &subnets);
    if let Some(configured) = config.health_check_ip {
        sources.retain(|address| address.is_ipv4() != configured.is_ipv4());
        sources.push(configured);
    }
    sources
}

/// Runs a gateway until `stop` completes or something fatal happens.
///
/// # Errors
/// Why it could not start, or what was fatal.
pub async fn run(config: &Config, kinds: &Kinds, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let now = Instant::now();
    let node = Node::look(config)?;

    // Everything that can be refused is asked for before anything is published.
    let admin_listener = admin::bind_admin(&config.admin_socket)?;
    let metrics_listener = config.metrics_port.map(admin::bind_metrics).transpose()?;
    let Location::Dir(store_path) = &config.store else {
        anyhow::bail!("this kind of store is not supported")
    };
    let store = Arc::new(DirStore::open(store_path).context("opening the local store")?);
    let inherited = trieste_io::inherited::take();
    let devices = if inherited.is_empty() {
        Devices::open(config, node.underlay_mtu)?
    } else {
        Devices::adopt(config, inherited).context("taking over inherited descriptors")?
    };

    // Nobody else runs here: what is on disk is ours to change.
    state::prepare(&config.state_dir)?;
    state::claim_cluster(&config.state_dir, &config.cluster_id)?;
    let facts = format!(
        "{:?} {:?} {} {}",
        config.service_cidrs, config.cluster_cidrs, node.private_ip, config.udp_port
    );
    let kind = kinds.make(&KindContext { config, facts, now })?;
    let endpoint = node.endpoint(config, &*kind);

    let names: Arc<ArcSwap<BTreeMap<u16, String>>> = Arc::default();
    let lookup = Arc::clone(&names);
    let hub = CaptureHub::new(node.private_ip, config.udp_port)
        .with_cable_names(move |cable: CableId| lookup.load().get(&cable.0).cloned());
    let hub = Arc::new(hub);
    let tables = Arc::new(ArcSwap::from_pointee(Tables::default()));
    let io = devices.capabilities();
    let (workers, mut ended) = spawn_workers(config, devices, &kind, &tables, &hub)?;

    let local = Local {
        cluster_id: config.cluster_id.clone(),
        subnets: config.service_cidrs.iter().chain(&config.cluster_cidrs).copied().collect(),
        // Looked at in the first round of the control loop, and followed from then on.
        icmp_sources: Vec::new(),
        path_mtu: node.path_mtu(config),
    };
    let [a, b, ..] = OsRng.next_u32().to_le_bytes();
    let mut engine =
        Engine::new(local.clone(), Arc::clone(&kind), tables, workers, u16::from_le_bytes([a, b]));
    let fixed = Fixed {
        started: Timestamp::now(),
        cluster: config.cluster_id.clone(),
        hostname: node.hostname.clone(),
        endpoint: endpoint.clone(),
        io,
    };

    let publisher = Publisher::new(Arc::clone(&store), &config.namespace, &config.cluster_id, &node.hostname);
    let cluster = ClusterSpec::new(&config.cluster_id, &config.service_cidrs, &config.cluster_cidrs);
    publisher
        .announce(&cluster, &endpoint)
        .await
        .context("publishing this gateway's Cluster and Endpoint")?;
    let sync = spawn_sync(config, &store, local.subnets.clone());

    let first = status::document(&fixed, &engine, BrokerStatus::default(), &[], "", now);
    let shared = Arc::new(Shared {
        status: ArcSwap::from_pointee(first),
        established: Mutex::default(),
        workers: Mutex::default(),
        iterations: AtomicU64::new(0),
        failure: Mutex::default(),
        namespace: config.namespace.clone(),
    });
    let (stop_sender, stop_receiver) = watch::channel(false);
    let servers = spawn_servers(admin_listener, metrics_listener, &shared, &hub, &stop_receiver);
    let heartbeat = tokio::spawn(heartbeat(publisher, Arc::clone(&shared), stop_receiver.clone()));

    tracing::info!(cluster = %config.cluster_id, hostname = %node.hostname, private_ip = %node.private_ip, port = config.udp_port, driver = kind.name(), path_mtu = local.path_mtu, workers = config.workers, "gateway runs");
    notify(&[sd_notify::NotifyState::Ready]);
    let control =
        Control { store: &store, config, fixed: &fixed, shared: &shared, names: &names, sync: sync.as_ref() };
    let outcome = tokio::select! {
        () = stop => Ok(()),
        failure = ended.recv() => Err(failure.unwrap_or_else(|| anyhow::anyhow!("all workers ended"))),
        () = control.run(&mut engine) => Ok(()),
    };

    notify(&[sd_notify::NotifyState::Stopping]);
    if let Err(error) = &outcome {
        shared.fail(&format!("{error:#}"));
    }
    for worker in engine.workers() {
        worker.command(Command::Stop);
    }
    let deadline = Instant::now() + STOP_TIMEOUT;
    while engine.workers().iter().any(|worker| !worker.published().is_stopped) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let _ = stop_sender.send(true);
    let _ = tokio::time::timeout(STOP_TIMEOUT, heartbeat).await;
    for server in servers {
        let _ = tokio::time::timeout(STOP_TIMEOUT, server).await;
    }
    if let Some(sync) = sync {
        sync.stop().await;
    }
    tracing::info!("gateway has stopped; its TUN device stays, so that nothing leaves in clear");
    outcome
}

fn notify(states: &[sd_notify::NotifyState<'_>]) {
    // Not started by systemd: nobody to tell.
    let _ = sd_notify::notify(states);
}

fn spawn_sync(config: &Config, store: &Arc<DirStore>, subnets: Vec<ipnet::IpNet>) -> Option<SyncHandle> {
    let Some(Location::Dir(path)) = &config.broker else { return None };
    let broker = Arc::new(DirStore::attach_remembering(path, state::broker_memory(&config.state_dir, path)));
    let mut sync = SyncConfig::new(&config.cluster_id, subnets);
    sync.local_namespace.clone_from(&config.namespace);
    sync.broker_namespace.clone_from(&config.broker_namespace);
    Some(Syncer::spawn(Arc::clone(store), broker, sync))
}

type Ended = mpsc::UnboundedReceiver<anyhow::Error>;

/// Starts the workers, each on its own thread.
fn spawn_workers(
    config: &Config,
    devices: Devices,
    kind: &Arc<dyn CableKind>,
    tables: &Arc<ArcSwap<Tables>>,
    hub: &Arc<CaptureHub>,
) -> anyhow::Result<(Vec<WorkerHandle>, Ended)> {
    let (ended_sender, ended) = mpsc::unbounded_channel();
    let mut pollers = Vec::new();
    for _ in 0..config.workers {
        pollers.push(trieste_io::poll::Poller::new().context("making a poller")?);
    }
    let exchange = Arc::new(Exchange::new(pollers.iter().map(|poller| Some(poller.waker())).collect()));
    let cpus = cpus(config)?;
    let mut handles = Vec::new();
    for (id, ((tun, wire), poller)) in (0u16..).zip(devices.into_pairs().zip(pollers)) {
        let now = Instant::now();
        let pipeline = PipelineConfig {
            worker: WorkerId(id),
            workers: config.workers,
            pool: PoolConfig::default(),
            seed: OsRng.next_u64(),
        };
        let cpu = cpus.get(usize::from(id) % cpus.len().max(1)).copied();
        let waker = poller.waker();
        let mut wait = DeviceWait::new(poller, &tun, &wire).context("waiting for the devices")?;
        let parts = WorkerParts {
            id: WorkerId(id),
            cpu,
            pipeline: Pipeline::new(pipeline, Arc::clone(tables), kind.gate(), now),
            tun,
            wire,
            exchange: Arc::clone(&exchange),
            hub: Some(Arc::clone(hub)),
            waker: Some(waker),
        };
        let (worker, handle) = Worker::new(parts, now);
        let ended = ended_sender.clone();
        std::thread::Builder::new()
            .name(format!("worker-{id}"))
            .spawn(move || {
                if let Some(cpu) = cpu
                    && let Err(error) = trieste_io::cpu::pin_current_thread(cpu)
                {
                    tracing::warn!(worker = id, cpu, %error, "cannot pin the worker");
                }
                if let Err(error) = worker.run(|worker, timeout| wait.wait(worker, timeout)) {
                    // Nobody listens any more while the gateway stops.
                    let _ = ended
                        .send(anyhow::Error::new(error).context(format!("worker {id}: its device failed")));
                }
            })
            .context("starting a worker")?;
        handles.push(handle);
    }
    Ok((handles, ended))
}

fn cpus(config: &Config) -> anyhow::Result<Vec<usize>> {
    let allowed = trieste_io::cpu::allowed().context("reading the CPUs that may be used")?;
    match &config.cpus {
        Some(Cpus::Off) => Ok(Vec::new()),
        None => Ok(allowed),
        Some(Cpus::List(cpus)) => {
            if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
                let problem = format!("CPU {cpu} is none of those that this process may use ({allowed:?})");
                return Err(ConfigError::Invalid { key: "cpus", problem }.into());
            }
            Ok(cpus.clone())
        }
    }
}

/// What servers and heartbeat read.
struct Shared {
    status: ArcSwap<GatewayStatus>,
    established: Mutex<Vec<(String, Duration)>>,
    workers: Mutex<Vec<(u32, trieste_pipeline::Counters)>>,
    iterations: AtomicU64,
    failure: Mutex<String>,
    namespace: String,
}

impl Shared {
    fn fail(&self, failure: &str) {
        failure.clone_into(&mut self.failure.lock().unwrap_or_else(PoisonError::into_inner));
        let mut status = GatewayStatus::clone(&self.status.load());
        failure.clone_into(&mut status.failure);
        self.status.store(Arc::new(status));
    }

    fn extra(&self) -> MetricsExtra {
        MetricsExtra {
            sync_iterations: self.iterations.load(Ordering::Relaxed),
            established: self.established.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            workers: self.workers.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            process: ProcessStats::read(),
        }
    }

    fn gateway(&self) -> serde_json::Value {
        let status = self.status.load();
        let gateway = Gateway::new(&self.namespace, &status.hostname, status::published(&status));
        gateway.map(|gateway| gateway.to_object().to_value()).unwrap_or_default()
    }
}

/// The task that follows the store and keeps tables and status up to date.
struct Control<'a> {
    store: &'a Arc<DirStore>,
    config: &'a Config,
    fixed: &'a Fixed,
    shared: &'a Shared,
    names: &'a ArcSwap<BTreeMap<u16, String>>,
    sync: Option<&'a SyncHandle>,
}

impl Control<'_> {
    async fn run(&self, engine: &mut Engine) {
        let mut events = self.store.list_watch(Kind::Endpoint, &self.config.namespace);
        let mut mirror = Mirror::new();
        let mut ticks = tokio::time::interval(STATUS_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut addresses = tokio::time::interval(ADDRESS_INTERVAL);
        let mut rekey = signal(SignalKind::user_defined1()).ok();
        loop {
            tokio::select! {
                event = events.next() => {
                    let Some(event) = event else { return };
                    if mirror.apply(&event) && mirror.is_complete() {
                        let endpoints = read_endpoints(&mirror);
                        let choices = tables::fallback_choices(&endpoints);
                        engine.reconcile(&endpoints, &choices, Instant::now()).await;
                        self.refresh(engine);
                    }
                }
                _ = ticks.tick() => self.refresh(engine),
                _ = addresses.tick() => engine.set_icmp_sources(icmp_sources(self.config)),
                () = received(&mut rekey) => engine.rekey_all(),
            }
        }
    }

    fn refresh(&self, engine: &mut Engine) {
        let now = Instant::now();
        engine.observe(now, Timestamp::now().as_second());
        let broker = self.sync.map(|sync| sync.state.borrow().clone()).unwrap_or_default();
        let refused: Vec<RefusedCluster> =
            self.sync.map(|sync| sync.refused.borrow().clone()).unwrap_or_default();
        let failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let document = status::document(self.fixed, engine, broker, &refused, &failure, now);
        self.shared.status.store(Arc::new(document));
        let seconds = |at: i64| Duration::from_secs(u64::try_from(at).unwrap_or_default());
        let established = engine.established().into_iter().map(|(name, at)| (name, seconds(at))).collect();
        *self.shared.established.lock().unwrap_or_else(PoisonError::into_inner) = established;
        let counters =
            engine.workers().iter().map(|worker| (u32::from(worker.id.0), worker.published().counters));
        *self.shared.workers.lock().unwrap_or_else(PoisonError::into_inner) = counters.collect();
        self.names.store(Arc::new(engine.cable_names()));
    }
}

async fn received(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

fn read_endpoints(mirror: &Mirror) -> Vec<Endpoint> {
    let read = |object| match Endpoint::from_object(object) {
        Ok(endpoint) => Some(endpoint),
        Err(error) => {
            tracing::warn!(name = %object.metadata.name, %error, "an Endpoint cannot be read and is left out");
            None
        }
    };
    mirror.objects().filter_map(read).collect()
}

/// Writes the Gateway object every five seconds.
async fn heartbeat(
    publisher: Publisher<Arc<DirStore>>,
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
    admin: tokio::net::UnixListener,
    metrics: Option<tokio::net::TcpListener>,
    shared: &Arc<Shared>,
    hub: &Arc<CaptureHub>,
    stop: &watch::Receiver<bool>,
) -> Vec<tokio::task::JoinHandle<()>> {
    let (for_status, for_gateway, for_extra) = (Arc::clone(shared), Arc::clone(shared), Arc::clone(shared));
    let state = AdminState {
        status: Arc::new(move || GatewayStatus::clone(&for_status.status.load())),
        gateway: Arc::new(move || for_gateway.gateway()),
        extra: Arc::new(move || for_extra.extra()),
        hub: Arc::clone(hub),
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
