//! The third phase: what follows the stores and writes to them, and the control loop, which brings it to the data plane.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use trieste_control::api::{ClusterNetworks, EndpointSpec};
use trieste_control::settings::{self, Program, Reporter, Seen};

use super::control_tasks::ControlTasks;
use super::data_plane::DataPlane;
use super::environment::Environment;
use super::own_endpoint::OwnEndpoint;
use super::peers;
use crate::control::{self, Control, Driver, Globalnet, Settings, State};
use crate::engine::Engine;
use crate::globalnet::Controllers;
use crate::live::LiveSettings;
use crate::marks::OUTER_MARK;
use crate::natdiscovery::Discovery;
use crate::notice::Notices;
use crate::probe;
use crate::services::{Following, RememberedServices, ServicesMemory};
use crate::shared::{Shared, Sources};
use crate::status::{self, Fixed};
use crate::unreachable::Unreachable;

/// Everything that is slow.
pub(super) struct ControlPlane<'a> {
    pub(super) control: Control<'a>,
    pub(super) tasks: ControlTasks,
    /// State for servers and heartbeat.
    pub(super) shared: Arc<Shared>,
    /// Follows which node serves what.
    pub(super) services: JoinHandle<()>,
}

impl<'a> ControlPlane<'a> {
    /// Starts everything but the control loop, which waits for [`super::Running`].
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub(super) fn start(
        environment: Environment<'a>,
        own: OwnEndpoint,
        live: LiveSettings<'a>,
        data_plane: &DataPlane,
    ) -> anyhow::Result<Self> {
        let settings = follow_settings(&environment, live);
        let Environment { config, conditions, .. } = &environment;
        let fixed = fixed(&environment, data_plane);
        let (discovery, notices) = outside(&environment, &own, &data_plane.engine)?;
        let probes = config.health_check.map(|check| probe::start(config, check, conditions.clone()));
        let (endpoint_sender, endpoint) = watch::channel(own.spec.clone());
        let (networks_sender, networks) = watch::channel(environment.networks.clone());
        let peers = peers::start(&environment, notices.key(), &endpoint);
        let tasks = ControlTasks::start(&environment, &endpoint, &networks, &own);
        let shared = Arc::new(share(&environment, data_plane, &tasks, &fixed, own.spec));
        let services = follow_services(&environment, data_plane, networks);
        let globalnet = globalnet(&environment, data_plane, &tasks);
        let here = (environment.config.namespace.as_str(), environment.node.hostname.as_str());
        let unreachable =
            Unreachable::start(environment.store.clone(), here, data_plane.engine.watched_paths());
        let Environment { config, conditions, store, memory, remembered, is_guess, node, .. } = environment;
        let control = Control {
            config,
            node,
            store,
            driver: driver(data_plane),
            fixed,
            shared: Arc::clone(&shared),
            names: Arc::clone(&data_plane.names),
            candidate: tasks.candidate.clone(),
            broker: tasks.broker.clone(),
            announced: tasks.announced.clone(),
            endpoint: endpoint_sender,
            networks: networks_sender,
            discovery,
            notices,
            unreachable,
            probes,
            public_ip: own.public_ip,
            recorder: tasks.recorder.clone(),
            memory: memory.map(|memory| memory.keep(conditions.clone())),
            globalnet,
            peers,
            settings,
            conditions,
            state: State::new(config, own.found, remembered, is_guess),
        };
        Ok(Self { control, tasks, shared, services })
    }
}

/// Returns what does not change while the gateway runs.
fn fixed(environment: &Environment<'_>, data_plane: &DataPlane) -> Fixed {
    let (cluster, hostname) = (environment.config.cluster_id.clone(), environment.node.hostname.clone());
    let (io, xdp) = (data_plane.io.clone(), data_plane.xdp.clone());
    Fixed { started: Timestamp::now(), cluster, hostname, io, xdp }
}

/// Starts NAT discovery, and notices to route agents.
fn outside(
    environment: &Environment<'_>,
    own: &OwnEndpoint,
    engine: &Engine,
) -> anyhow::Result<(Discovery, Notices)> {
    let Environment { config, node, state_dir, conditions, .. } = environment;
    let local = control::discovery_local(config, &own.spec, &own.found, node.private_ip);
    let discovery = Discovery::start(local, state_dir.map(Into::into), OUTER_MARK, conditions.clone());
    let here = SocketAddr::new(node.private_ip, config.notice_port);
    let paths = (Arc::clone(engine.paths()), engine.path_changes());
    let notices = Notices::start(&own.spec.cable_name, here, *state_dir, paths, conditions.clone())
        .context("starting the thread for notices")?;
    Ok((discovery, notices))
}

/// Makes what servers and heartbeat read, with a first status document.
fn share(
    environment: &Environment<'_>,
    data_plane: &DataPlane,
    tasks: &ControlTasks,
    fixed: &Fixed,
    endpoint: EndpointSpec,
) -> Shared {
    let remembered = environment.remembered.as_ref();
    let sources = Sources {
        store: environment.store.clone(),
        broker: environment.broker.clone(),
        recorder: tasks.recorder.clone(),
        sync: Arc::clone(&tasks.totals),
        controllers: environment.controllers.clone(),
        started_from_memory: remembered.is_some_and(|known| !known.endpoints.is_empty()),
    };
    let live = status::Live { endpoint, ..status::Live::default() };
    let first = status::Source::of(fixed, &data_plane.engine, live, environment.started);
    let first = status::Document::of(first);
    Shared::new(first, &environment.config.namespace, sources, Arc::clone(&data_plane.globalnet))
}

/// Starts to follow which node serves what.
fn follow_services(
    environment: &Environment<'_>,
    data_plane: &DataPlane,
    networks: watch::Receiver<ClusterNetworks>,
) -> JoinHandle<()> {
    let Environment { config, store, state_dir, services, conditions, .. } = environment;
    let following = Following {
        store: store.clone(),
        namespace: config.namespace.clone(),
        node: environment.node_name().to_owned(),
        networks,
        services: Arc::clone(&data_plane.services),
        remembered: services.as_ref().map(RememberedServices::nodes).unwrap_or_default(),
        memory: state_dir.map(ServicesMemory::new),
        conditions: conditions.clone(),
    };
    tokio::spawn(following.run())
}

/// Starts to follow the settings.
fn follow_settings<'a>(environment: &Environment<'_>, live: LiveSettings<'a>) -> Settings<'a> {
    let Environment { config, store, conditions, controllers, .. } = environment;
    let (sender, seen) = watch::channel(Seen::Nothing);
    let publish = move |seen: &Seen| drop(sender.send_replace(seen.clone()));
    let runner = settings::spawn(store.clone(), &config.namespace, publish);
    controllers.add(settings::NAME, runner.metrics.clone());
    let reporter = Reporter::new(conditions.clone(), Program::Gateway, &config.namespace);
    // Of a start without the store too.
    reporter.taken(&live.taken);
    Settings { live, seen, reporter, _runner: runner }
}

/// Starts Globalnet's controllers, where there is a global CIDR.
fn globalnet(environment: &Environment<'_>, data_plane: &DataPlane, tasks: &ControlTasks) -> Globalnet {
    let Environment { config, node, store, .. } = environment;
    let controllers =
        Controllers::start(config, &node.hostname, config.health_check.is_some(), store, &tasks.candidate);
    if let Some(started) = &controllers {
        environment.controllers.add("globalnet", started.metrics());
    }
    Globalnet {
        controllers,
        view: Arc::clone(&data_plane.globalnet),
        owners: data_plane.owners,
        files: data_plane.files.clone(),
    }
}

/// Returns what the cable driver says of itself.
fn driver(data_plane: &DataPlane) -> Driver {
    Driver { name: data_plane.kind.name().to_owned(), backend_config: data_plane.kind.backend_config() }
}
