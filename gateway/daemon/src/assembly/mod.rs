//! Starting, running and stopping a gateway.

mod control_plane;
mod control_tasks;
mod data_plane;
mod own_endpoint;
mod peers;
mod prepare;
mod running;
mod servers;
mod shutdown;

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::sync::watch;
use trieste_control::publish::Publisher;

use crate::config::Config;
use crate::control::{Control, Driver, Globalnet, State};
use crate::globalnet::Duty;
use crate::kinds::Kinds;
use crate::memory::Memory;
use crate::node::{Found, Node};
use crate::shared::Shared;
use crate::{admin, node, privileges, probe, status, stores};
use control_plane::{deliver, outside};
use control_tasks::Office;
use data_plane::{PacketPath, before, board, fixed};
use own_endpoint::follow_public_ip;
use peers::company;
use prepare::{make_kind, node_settings, open_devices, usable_state};
use running::{heartbeat, notify};
use servers::spawn_servers;
use shutdown::{end_tasks, left_of_stop, say_why};

/// Runs a gateway until `stop` completes or something fatal happens.
///
/// # Errors
/// Why it could not start, or what was fatal.
pub(crate) async fn run(
    config: &Config,
    kinds: &Kinds,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
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
