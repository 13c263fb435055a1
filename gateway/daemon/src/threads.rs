//! Starting the workers, each on its own thread.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use rand_core::{OsRng, RngCore as _};
use tokio::sync::mpsc;
use trieste_cables::CableKind;
use trieste_io::TunQueue;
use trieste_packet::{PoolConfig, WorkerId};
use trieste_pipeline::services::Services;
use trieste_pipeline::{Config as PipelineConfig, Fleet, NatConfig, Pipeline, Tables};

use crate::capture::CaptureHub;
use crate::config::{Config, ConfigError, Cpus};
use crate::devices::Devices;
use crate::handoff::Exchange;
use crate::paths::Paths;
use crate::wire::Wire;
use crate::worker::{DeviceWait, Worker, WorkerHandle, WorkerParts};

/// Reports that a worker has ended, and why.
pub(crate) type Ended = mpsc::UnboundedReceiver<anyhow::Error>;

/// Starts the workers, each on its own thread. `keeps_sessions` says that somebody takes down what becomes of translated
/// sessions. Also returns the receiver of their errors.
pub(crate) fn spawn_workers(
    config: &Config,
    devices: Devices,
    kind: &Arc<dyn CableKind>,
    tables: &Arc<ArcSwap<Tables>>,
    hub: &Arc<CaptureHub>,
    keeps_sessions: bool,
    (paths, membership, services): (&Paths, &Arc<Fleet>, &Arc<ArcSwap<Services>>),
) -> anyhow::Result<(Vec<WorkerHandle>, mpsc::UnboundedSender<anyhow::Error>, Ended)> {
    let (ended_sender, ended) = mpsc::unbounded_channel();
    let mut pollers = Vec::new();
    for _ in 0..config.workers {
        pollers.push(trieste_io::poll::Poller::new().context("making a poller")?);
    }
    let exchange = Arc::new(Exchange::new(pollers.iter().map(|poller| Some(poller.waker())).collect()));
    let cpus = cpus(config, &trieste_io::cpu::allowed().context("reading the CPUs that may be used")?)?;
    let mut handles = Vec::new();
    for (id, ((tun, wire), poller)) in (0u16..).zip(devices.into_pairs().zip(pollers)) {
        let now = Instant::now();
        let pipeline = PipelineConfig {
            worker: WorkerId(id),
            workers: config.workers,
            pool: PoolConfig::default(),
            seed: OsRng.next_u64(),
            nat: nat_config(config, keeps_sessions),
            health: config.health,
            board: Arc::clone(&paths.table),
            fleet: Arc::clone(membership),
        };
        let mut pipeline = Pipeline::new(pipeline, Arc::clone(tables), kind.gate(), now);
        pipeline.follow_services(Arc::clone(services));
        let waker = poller.waker();
        let wait = DeviceWait::new(poller, &tun, &wire).context("waiting for the devices")?;
        let parts = WorkerParts {
            id: WorkerId(id),
            cpu: cpus.get(usize::from(id) % cpus.len().max(1)).copied(),
            pipeline,
            tun,
            wire,
            exchange: Arc::clone(&exchange),
            hub: Some(Arc::clone(hub)),
            changes: keeps_sessions.then(Arc::default),
            waker: Some(waker),
            paths_changed: paths.changed.clone(),
        };
        let (worker, handle) = Worker::new(parts, now);
        spawn(worker, wait, handle.clone(), ended_sender.clone())?;
        handles.push(handle);
    }
    Ok((handles, ended_sender, ended))
}

/// Starts a worker's thread, which sends its error to `ended` if it ends unexpectedly.
fn spawn(
    worker: Worker<TunQueue, Wire>,
    mut wait: DeviceWait,
    handle: WorkerHandle,
    ended: mpsc::UnboundedSender<anyhow::Error>,
) -> anyhow::Result<()> {
    let (id, cpu) = (handle.id.0, handle.cpu);
    let life = move || {
        if let Some(cpu) = cpu
            && let Err(error) = trieste_io::cpu::pin_current_thread(cpu)
        {
            tracing::warn!(worker = id, cpu, %error, "cannot pin the worker");
        }
        let life = || worker.run(|worker, timeout| wait.wait(worker, timeout));
        if let Err(why) = handle.watch_over(life) {
            // Nobody listens any more while the gateway stops.
            let _ = ended.send(anyhow::anyhow!("worker {id} has ended: {why}"));
        }
    };
    std::thread::Builder::new().name(format!("worker-{id}")).spawn(life).context("starting a worker")?;
    Ok(())
}

/// Returns the configuration of a worker's translation; changes are recorded only if there is a writer for them.
fn nat_config(config: &Config, keeps_sessions: bool) -> NatConfig {
    let mut nat = config.globalnet.nat();
    if !keeps_sessions {
        nat.limits.changes = 0;
    }
    nat
}

/// Returns the CPUs that workers are pinned to, in turn, of those that are allowed; empty if they are not pinned.
///
/// # Errors
/// A CPU of the configuration is not allowed.
pub(crate) fn cpus(config: &Config, allowed: &[usize]) -> Result<Vec<usize>, ConfigError> {
    match &config.cpus {
        Some(Cpus::Off) => Ok(Vec::new()),
        // One alone would have the CPU that everybody else's first thread, and most interrupts, are on; and stand still
        // with it where the scheduler would have moved it.
        None if config.workers == 1 => Ok(Vec::new()),
        None => Ok(allowed.to_vec()),
        Some(Cpus::List(cpus)) => {
            if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
                let problem = format!("CPU {cpu} is none of those that this process may use ({allowed:?})");
                return Err(ConfigError::Invalid { key: "cpus", problem });
            }
            Ok(cpus.clone())
        }
    }
}
