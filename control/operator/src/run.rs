//! Start, work and stop.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::info;
use trieste_control::api::{Kind, ObjectKey};
use trieste_control::conditions::Conditions;
use trieste_control::election::{self, Candidate, ElectionConfig, Timings};
use trieste_control::logging;
use trieste_control::pages::{self, Pages};
use trieste_control::process::{ProcessStats, host_name};
use trieste_control::recorder::Recorder;
use trieste_control::runner::{self, ControllerMetrics, Fence, Handle, Limits, port};
use trieste_control::signals;
use trieste_control::slots::Slots;
use trieste_control::store::kube::Access;
use trieste_control::store::{KubeStore, Store};
use trieste_deploy::{Server, connect};

use crate::Others;
use crate::config::Options;
use crate::controller::{FabricController, OperatorStatus};
use crate::metrics::{self, Snapshot};
use crate::order::Report;
use crate::worker::{THIS_CLUSTER, Tools, Worker, WorkerMetrics};

/// The Lease of the election.
pub const LEASE: &str = "trieste-operator-lock";
/// How long a new leader observes before it writes: what its predecessor wrote last may still be on its way here.
const TAKE_OVER: Duration = Duration::from_millis(500);
/// How long writes that are under way may take when the program ends.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// The controller's name in metrics.
const CONTROLLER: &str = "fabric";

/// Runs the program: logs, settings, signals.
#[must_use]
pub fn main_with(options: &Options) -> ExitCode {
    logging::to_stderr(options.log.filter());
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trieste-operator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Works until a signal asks to stop.
///
/// # Errors
/// An address cannot be used, or settings make no sense.
fn run(options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .thread_name("operator")
        .enable_all()
        .build()
        .context("starting the runtime")?;
    runtime.block_on(serve(options))
}

async fn serve(options: &Options) -> anyhow::Result<()> {
    let stop_signal = signals::stop().context("watching for SIGTERM and SIGINT")?;
    let store = KubeStore::new(Access::located(options.kubeconfig.clone(), None));
    let server = Server::new(client(options).await?, THIS_CLUSTER);
    let candidate = candidate(options, &store)?;
    let tools = Tools {
        server,
        connect: Arc::new(connect),
        image: options.image.clone(),
        resync: Duration::from_secs(options.resync),
    };
    let operator = spawn(store, tools, candidate.clone(), &options.namespace, options.others());
    let pages = Arc::new(State {
        status: operator.status.clone(),
        controller: operator.controller.metrics.clone(),
        worker: operator.metrics.clone(),
        started: Timestamp::now(),
    });
    if let Some(address) = options.metrics {
        let listener = pages::bind(address)?;
        tokio::spawn(pages::serve(listener, Arc::new(Slots::default()), pages));
    }
    info!(version = env!("CARGO_PKG_VERSION"), image = options.image, "operator started");
    stop_signal.await;
    operator.stop().await;
    if let Some(candidate) = candidate {
        candidate.release(election::DEFAULT_RELEASE_TIMEOUT).await;
    }
    info!("operator stopped; what it has installed stays");
    Ok(())
}

async fn client(options: &Options) -> anyhow::Result<kube::Client> {
    let config = match &options.kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).context("reading the kubeconfig")?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
        }
        None => kube::Config::infer().await.context("looking for this cluster's API server")?,
    };
    kube::Client::try_from(config).context("making a client of this cluster's API server")
}

fn candidate(options: &Options, store: &KubeStore) -> anyhow::Result<Option<Candidate>> {
    if !options.leader_election {
        return Ok(None);
    }
    let identity = match options.identity.clone().filter(|name| !name.is_empty()) {
        Some(name) => name,
        None => host_name().context("reading the host's name")?,
    };
    let election = ElectionConfig {
        namespace: options.namespace.clone(),
        lease: LEASE.to_owned(),
        identity,
        timings: Timings::globalnet(),
    };
    Ok(Some(election::spawn(store.clone(), election)))
}

/// A running operator. Dropping it ends it, as a kill would; what it has installed stays.
#[derive(Debug)]
pub struct Operator {
    /// How far it is.
    pub status: watch::Receiver<OperatorStatus>,
    /// The worker's counters.
    pub metrics: WorkerMetrics,
    controller: Handle,
    /// They end when this is dropped.
    tasks: JoinSet<()>,
}

impl Operator {
    /// Ends it: a pass is dropped, and writes that are under way are waited for.
    pub async fn stop(self) {
        drop(self.tasks);
        self.controller.stop(LAST_WRITES).await;
    }
}

/// Starts controller and worker on an API server. `namespace` is the one of the Lease, which Events that cannot be written are
/// about.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn(
    store: KubeStore,
    tools: Tools,
    candidate: Option<Candidate>,
    namespace: &str,
    others: Others,
) -> Operator {
    let (sender, status) = watch::channel(OperatorStatus::default());
    let publish = move |status: &OperatorStatus| drop(sender.send_replace(status.clone()));
    let (reports, inputs) = futures::channel::mpsc::unbounded();
    let leadership = candidate.as_ref().map(Candidate::leadership);
    let fence = Fence::of(candidate, TAKE_OVER);
    let controller = FabricController::new(others);
    let controller = spawn_controller(controller, store.clone(), fence, inputs.boxed(), publish);
    let (recorder, queue) = Recorder::of_many("trieste-operator");
    let about = ObjectKey::new(Kind::Lease, namespace, LEASE);
    let metrics = WorkerMetrics::default();
    let worker = Worker::new(tools, recorder, metrics.clone(), reports);
    let mut tasks = JoinSet::new();
    tasks.spawn(queue.write_to(store, about, Conditions::default()));
    tasks.spawn(worker.run(status.clone(), leadership));
    Operator { status, metrics, controller, tasks }
}

/// Starts the controller alone.
///
/// # Panics
/// Outside a tokio runtime.
pub(crate) fn spawn_controller<S: Store>(
    controller: FabricController,
    store: S,
    fence: Fence,
    reports: BoxStream<'static, Report>,
    publish: impl FnMut(&OperatorStatus) + Send + 'static,
) -> Handle {
    let limits = Limits { limits_objects: false, ..Limits::DEFAULT };
    runner::spawn(controller, vec![port(store)], fence, reports, limits, publish)
}

/// What the pages are about.
struct State {
    status: watch::Receiver<OperatorStatus>,
    controller: ControllerMetrics,
    worker: WorkerMetrics,
    started: Timestamp,
}

impl Pages for State {
    fn health(&self) -> Result<String, String> {
        Ok("OK".to_owned())
    }

    fn ready(&self) -> Result<String, String> {
        let status = self.status.borrow();
        if status.is_complete {
            return Ok("OK".to_owned());
        }
        Err(status.problem.clone().unwrap_or_else(|| "the Fabrics are not read yet".to_owned()))
    }

    fn metrics(&self) -> String {
        let status = self.status.borrow().clone();
        metrics::render(Snapshot {
            status: &status,
            counts: &self.worker.counts(),
            controller: (CONTROLLER, self.controller.snapshot(Instant::now())),
            process: ProcessStats::read(),
            started: self.started,
        })
    }
}
