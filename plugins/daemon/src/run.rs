//! Start, work and stop.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tracing::info;
use trieste_control::election::{self, Candidate, ElectionConfig, Timings};
use trieste_control::liveness::{LivenessFile, check};
use trieste_control::privileges::Needs;
use trieste_control::runner::{ControllerRegistry, Fence, Handle};
use trieste_control::store::AnyStore;
use trieste_control::{controller_pages, signals};

use crate::config::{Config, Plugin, Task};
use crate::ovn::{self, OvnConfig};
use crate::status::{Status, Wish};
use crate::{calico, spiderpool};

/// How long a new leader observes before it writes: what its predecessor wrote last may still be on its way here.
const TAKE_OVER: Duration = Duration::from_millis(500);
/// How long writes that are under way may take when the program ends.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// How long an uninstall may take.
const UNINSTALL_WITHIN: Duration = Duration::from_secs(60);
/// How often the file for `--check` is written; it is good for 30 s.
const BEAT: Duration = Duration::from_secs(10);
/// Runs the task that was asked for.
///
/// # Errors
/// A check that fails, an uninstall that leaves something, or what keeps the program from starting.
pub fn run(config: &Config) -> anyhow::Result<()> {
    if config.task == Task::Check {
        return Ok(check("trieste-plugin-sync", &config.pass_file)?);
    }
    let needs = Needs::default().store(&config.store).files([config.pass_file.clone()]);
    needs.check()?;
    needs.limit();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(serve(config))
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let stop = signals::stop().context("watching for SIGTERM and SIGINT")?;
    let store = AnyStore::open(&config.store).context("opening the local store")?;
    let candidate = config.candidate.as_ref().map(|identity| {
        let election = ElectionConfig {
            namespace: config.namespace.clone(),
            lease: config.plugin.lease().to_owned(),
            identity: identity.clone(),
            timings: Timings::globalnet(),
        };
        election::spawn(store.clone(), election)
    });
    let fence = Fence::of(candidate.clone(), TAKE_OVER);
    let (sender, status) = watch::channel(Status::default());
    info!(
        version = env!("CARGO_PKG_VERSION"), plugin = config.plugin.name(), store = %config.store, task = ?config.task,
        "network plugin sync started"
    );
    let wish = if config.task == Task::Uninstall { Wish::Nothing } else { Wish::Everything };
    let mut work = match &config.plugin {
        Plugin::Calico => {
            Work::Controller(calico::NAME, calico::spawn(store, &config.namespace, wish, fence, sender))
        }
        Plugin::Spiderpool => Work::Controller(
            spiderpool::NAME,
            spiderpool::spawn(store, &config.namespace, wish, fence, sender),
        ),
        Plugin::Ovn(ovn) => Work::Loop(spawn_ovn(store, config, (**ovn).clone(), candidate.clone(), sender)),
    };
    serve_pages(config, &work, status.clone())?;
    let outcome = match config.task {
        Task::Uninstall => removed(status).await,
        Task::Work | Task::Check => {
            tokio::select! {
                () = stop => Ok(()),
                () = beat(config, status) => Ok(()),
                () = work.ended() => Err(anyhow!("the work has ended, which it does not by itself: see the log above")),
            }
        }
    };
    match work {
        Work::Controller(_, controller) => controller.stop(LAST_WRITES).await,
        // A transaction is done as a whole or not at all.
        Work::Loop(task) => task.abort(),
    }
    if let Some(candidate) = candidate {
        candidate.release(election::DEFAULT_RELEASE_TIMEOUT).await;
    }
    info!("network plugin sync stopped; what it has written stays");
    outcome
}

/// Answers what kubelets and Prometheus ask. OVN's rows are no controller's: its page has the process alone.
fn serve_pages(config: &Config, work: &Work, status: watch::Receiver<Status>) -> anyhow::Result<()> {
    let controllers = ControllerRegistry::default();
    if let Work::Controller(name, handle) = work {
        controllers.add(name, handle.metrics.clone());
    }
    let obstacle = move || status.borrow().obstacle();
    controller_pages::spawn(config.pages, env!("CARGO_PKG_VERSION"), controllers, obstacle)
        .context("serving metrics; see --metrics (TRIESTE_SYNC_METRICS)")
}

/// What runs.
enum Work {
    /// A controller, by its name.
    Controller(&'static str, Handle),
    Loop(JoinHandle<()>),
}

impl Work {
    /// Waits until it has ended by itself.
    async fn ended(&mut self) {
        match self {
            Self::Loop(task) => drop(task.await),
            Self::Controller(_, controller) => {
                let mut ticks = interval(BEAT);
                while !controller.has_ended() {
                    ticks.tick().await;
                }
            }
        }
    }
}

fn spawn_ovn(
    store: AnyStore,
    config: &Config,
    ovn: OvnConfig,
    candidate: Option<Candidate>,
    sender: watch::Sender<Status>,
) -> JoinHandle<()> {
    let is_removing = config.task == Task::Uninstall;
    tokio::spawn(ovn::run(store, config.namespace.clone(), ovn, candidate, is_removing, sender))
}

/// Keeps the file for `--check` up to date.
async fn beat(config: &Config, mut status: watch::Receiver<Status>) {
    let mut file = LivenessFile::new(config.pass_file.clone());
    let mut ticks = interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // A sender that is gone has nothing new; the program is about to end.
        tokio::select! {
            _ = ticks.tick() => {}
            Ok(()) = status.changed() => {}
        }
        let obstacle = status.borrow_and_update().obstacle();
        file.record(obstacle.as_deref());
    }
}

/// Waits until nothing is left.
async fn removed(mut status: watch::Receiver<Status>) -> anyhow::Result<()> {
    let until = Instant::now() + UNINSTALL_WITHIN;
    let is_clean = |status: &Status| status.is_done && status.count == Some(0);
    if timeout_at(until, status.wait_for(is_clean)).await.is_ok() {
        return Ok(());
    }
    let status = status.borrow();
    bail!(
        "{} of what workers have written is left after {} s: {}",
        status.count.map_or_else(|| "an unknown part".to_owned(), |count| count.to_string()),
        UNINSTALL_WITHIN.as_secs(),
        status.text()
    )
}
