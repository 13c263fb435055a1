//! The second phase: workers, what they share, and what drives them. Packets are read from here on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use rand_core::{OsRng, RngCore as _};
use trieste_cables::{CableKind, Site};
use trieste_control::admin::{IoCapability, Severity, SnapshotStatus, XdpStatus};
use trieste_control::api::EndpointSpec;
use trieste_control::conditions::Conditions;
use trieste_control::store::Location;
use trieste_io::Offloads;
use trieste_packet::{CableId, GatewayKey};
use trieste_pipeline::services::Services;
use trieste_pipeline::{Fleet, Tables};

use super::environment::Environment;
use super::kept_sessions::KeptSessions;
use crate::capture::CaptureHub;
use crate::config::{Config, OuterIo};
use crate::devices::Devices;
use crate::engine::Engine;
use crate::globalnet::sessions::{Restored, SessionFiles};
use crate::globalnet::view::GlobalnetView;
use crate::host;
use crate::ike;
use crate::kinds::Made;
use crate::node::{self, Node};
use crate::paths::Paths;
use crate::tables::{Local, Owners};
use crate::threads::{Ended, spawn_workers};

/// Names of cables by their rows of counters.
type Names = Arc<ArcSwap<BTreeMap<u16, String>>>;

/// Everything that packets go through.
pub(super) struct DataPlane {
    pub(super) kind: Arc<dyn CableKind>,
    pub(super) engine: Engine,
    /// Receives the error of a worker, or of the thread for IKE, that has ended.
    pub(super) ended: Ended,
    pub(super) hub: Arc<CaptureHub>,
    pub(super) names: Names,
    /// Offloads of the devices.
    pub(super) io: Vec<IoCapability>,
    /// Why AF_XDP was wanted and could not be had.
    pub(super) xdp: Option<XdpStatus>,
    /// The snapshot by which workers deliver packets for services.
    pub(super) services: Arc<ArcSwap<Services>>,
    /// Globalnet's state.
    pub(super) globalnet: Arc<GlobalnetView>,
    pub(super) owners: Owners,
    pub(super) files: Option<SessionFiles>,
}

impl DataPlane {
    /// Starts the workers on their devices, and the engine that drives them.
    ///
    /// # Errors
    /// A thread that cannot be started, CPUs that may not be used.
    pub(super) fn start(
        environment: &Environment<'_>,
        mut devices: Devices,
        made: Made,
        spec: &EndpointSpec,
    ) -> anyhow::Result<Self> {
        let Environment { config, node, conditions, .. } = environment;
        let KeptSessions { owners, files, restored } = KeptSessions::read(config, environment.state_dir);
        let Made { kind, slow_half } = made;
        let names = Names::default();
        let hub = capture_hub(node, &names);
        let tables = Arc::new(ArcSwap::from_pointee(Tables::default()));
        let paths = paths(config, &devices);
        let services = Arc::new(ArcSwap::from_pointee(services(environment)));
        let membership = Fleet::new(GatewayKey::of(&spec.cable_name), OsRng.next_u64(), Instant::now());
        let raw_esp = carry(&mut devices, config, &*kind);
        let addresses = host::addresses();
        let underlay = addresses.iter().find(|host| host.address == node.private_ip);
        devices.pass_stack(config, underlay.map(|host| host.interface.as_str()), &*kind);
        let (io, xdp) = (devices.capabilities(), devices.xdp());
        note_refusal(config, xdp.as_ref(), conditions);
        let (workers, ended_sender, ended) = spawn_workers(
            config,
            devices,
            &kind,
            &tables,
            &hub,
            files.is_some(),
            (&paths, &membership, &services),
        )?;
        let [a, b, ..] = OsRng.next_u32().to_le_bytes();
        let ike =
            slow_half.map(|slow_half| ike::spawn(slow_half, workers.clone(), ended_sender)).transpose()?;
        let local = local(environment, spec, &*kind);
        let mut engine = Engine::new(local, Arc::clone(&kind), tables, workers, u16::from_le_bytes([a, b]))
            .with_ike(ike, raw_esp)
            .with_paths(paths, membership);
        let globalnet = globalnet_view(config, &mut engine, restored, conditions);
        Ok(Self { kind, engine, ended, hub, names, io, xdp, services, globalnet, owners, files })
    }
}

/// Makes what captures are taken at.
fn capture_hub(node: &Node, names: &Names) -> Arc<CaptureHub> {
    let lookup = Arc::clone(names);
    let hub = CaptureHub::new(node.private_ip, node.udp_port)
        .with_cable_names(move |cable: CableId| lookup.load().get(&cable.0).cloned());
    Arc::new(hub)
}

/// Returns the snapshot of services that the process before delivered by.
fn services(environment: &Environment<'_>) -> Services {
    let remembered = environment.services.as_ref();
    let networks = &environment.networks.services;
    remembered.map(|remembered| remembered.snapshot(environment.node_name(), networks)).unwrap_or_default()
}

/// Makes the state of all paths. Where a route agent is to come, a machine that has just started is closed until it is
/// there: without it, answers would leave in clear.
fn paths(config: &Config, devices: &Devices) -> Paths {
    let paths = Paths::default();
    paths.table.shut(devices.is_new() && matches!(config.store, Location::Kube { .. }));
    paths
}

/// Makes the sockets carry what this kind of cable sends. Returns the families over which raw ESP can be had, for a kind
/// that sends ESP.
fn carry(devices: &mut Devices, config: &Config, kind: &dyn CableKind) -> Option<Offloads> {
    let raw_esp = kind.carries_esp().then(|| devices.carry_esp(config));
    if kind.identifies_by_address() {
        devices.carry_vxlan();
    }
    raw_esp
}

/// Notes as a condition that AF_XDP was chosen and cannot be had.
fn note_refusal(config: &Config, refused: Option<&XdpStatus>, conditions: &Conditions) {
    if let Some(refused) = refused
        && config.io == OuterIo::AfXdp
    {
        let why = refused.steps.last().map_or("", |step| step.reason.as_str());
        let message = format!("outer packets go through sockets: {why}");
        conditions.set("XdpUnavailable", Severity::Warning, &refused.interface, message);
    }
}

/// Returns what the engine makes cables and tables from on this side.
fn local(environment: &Environment<'_>, spec: &EndpointSpec, kind: &dyn CableKind) -> Local {
    let Environment { config, node, .. } = environment;
    Local {
        cluster_id: config.cluster_id.clone(),
        site: Site {
            cable_name: spec.cable_name.clone(),
            private_ip: node.private_ip,
            public_ip: None,
            subnets: environment.networks.published(),
            driver: spec.backend.clone(),
            backend_config: spec.backend_config.clone(),
        },
        // Looked at in the first round of the control loop, and followed from then on.
        icmp_sources: Vec::new(),
        path_mtu: node.path_mtu(config, kind.overhead()),
        translation: None,
        allowed: config.allowed.clone(),
        node_addresses: node::addresses(config),
    }
}

/// Makes the place where everything about Globalnet is known. The engine gets the sessions of the process before.
fn globalnet_view(
    config: &Config,
    engine: &mut Engine,
    restored: Restored,
    conditions: &Conditions,
) -> Arc<GlobalnetView> {
    let begun_with = SnapshotStatus { not_restored: restored.expired, ..SnapshotStatus::default() };
    engine.set_sessions(restored.records);
    let workers = engine.workers().to_vec();
    let view = GlobalnetView::new(config.has_globalnet(), workers, conditions.clone(), begun_with);
    Arc::new(view.with_membership(Arc::clone(engine.membership())))
}
