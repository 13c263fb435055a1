//! Start, work and stop.

use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tracing::{info, warn};
use trieste_control::election::{self, ElectionConfig, Timings};
use trieste_control::liveness::{LivenessFile, check};
use trieste_control::privileges::Needs;
use trieste_control::runner::{self, Fence, Handle, Limits, port};
use trieste_control::signals;
use trieste_control::store::AnyStore;

use crate::calico::{CalicoStatus, PoolsController, Wish};
use crate::config::{Config, Plugin, Task};

/// The Lease of the election.
pub const LEASE: &str = "trieste-plugin-sync-lock";
/// How long a new leader observes before it writes: what its predecessor wrote last may still be on its way here.
const TAKE_OVER: Duration = Duration::from_millis(500);
/// How long writes that are under way may take when the program ends.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// How long an uninstall may take.
const UNINSTALL_WITHIN: Duration = Duration::from_secs(60);
/// How often the file for `--check` is written; it is good for 30 s.
const BEAT: Duration = Duration::from_secs(10);
/// Changes come in bursts, of which each object is written once.
const LIMITS: Limits = Limits { settle: Duration::from_millis(100), ..Limits::DEFAULT };

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
    let fence = config.candidate.as_ref().map_or(Fence::Open, |identity| {
        let election = ElectionConfig {
            namespace: config.namespace.clone(),
            lease: LEASE.to_owned(),
            identity: identity.clone(),
            timings: Timings::globalnet(),
        };
        Fence::Term { candidate: election::spawn(store.clone(), election), settle: TAKE_OVER }
    });
    let candidate = match &fence {
        Fence::Term { candidate, .. } => Some(candidate.clone()),
        Fence::Open | Fence::Guard(_) => None,
    };
    let (controller, status) = match config.plugin {
        Plugin::Calico => calico(store, config, fence),
    };
    info!(
        version = env!("CARGO_PKG_VERSION"), plugin = ?config.plugin, store = %config.store, task = ?config.task,
        "network plugin sync started"
    );
    let outcome = match config.task {
        Task::Uninstall => removed(status).await,
        Task::Work | Task::Check => {
            tokio::select! {
                () = stop => Ok(()),
                () = beat(config, status) => Ok(()),
            }
        }
    };
    controller.stop(LAST_WRITES).await;
    if let Some(candidate) = candidate {
        candidate.release(election::DEFAULT_RELEASE_TIMEOUT).await;
    }
    info!("network plugin sync stopped; what it has written stays");
    outcome
}

fn calico(store: AnyStore, config: &Config, fence: Fence) -> (Handle, watch::Receiver<CalicoStatus>) {
    let wish = if config.task == Task::Uninstall { Wish::Nothing } else { Wish::Pools };
    let (sender, status) = watch::channel(CalicoStatus::default());
    let publish = move |status: &CalicoStatus| {
        log(&sender.borrow(), status);
        sender.send_replace(status.clone());
    };
    let controller = PoolsController::new(&config.namespace, wish);
    let inputs = futures::stream::pending().boxed();
    (runner::spawn(controller, vec![port(store)], fence, inputs, LIMITS, publish), status)
}

/// Logs what has changed.
fn log(before: &CalicoStatus, after: &CalicoStatus) {
    for (subject, problem) in &after.problems {
        if before.problems.get(subject) != Some(problem) {
            warn!(subject, problem, "cannot be as it should");
        }
    }
    for subject in before.problems.keys().filter(|subject| !after.problems.contains_key(*subject)) {
        info!(subject, "is as it should be again");
    }
    if before.pools != after.pools {
        info!(pools = after.pools, "IPPools for remote networks");
    }
}

/// Keeps the file for `--check` up to date.
async fn beat(config: &Config, status: watch::Receiver<CalicoStatus>) {
    let mut file = LivenessFile::new(config.pass_file.clone());
    let mut ticks = interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = None;
    loop {
        ticks.tick().await;
        let unavailable = status.borrow().problems.get("API server").cloned();
        let written = match &unavailable {
            Some(reason) => file.record_failure(reason),
            None => file.record_success(),
        };
        let problem = written.err().map(|error| error.to_string());
        if problem != last {
            if let Some(problem) = &problem {
                warn!(file = %config.pass_file.display(), problem, "cannot write file: --check will fail");
            }
            last = problem;
        }
    }
}

/// Waits until nothing is left.
async fn removed(mut status: watch::Receiver<CalicoStatus>) -> anyhow::Result<()> {
    let until = Instant::now() + UNINSTALL_WITHIN;
    let is_clean = |status: &CalicoStatus| status.is_done && status.pools == 0;
    if timeout_at(until, status.wait_for(is_clean)).await.is_ok() {
        return Ok(());
    }
    let CalicoStatus { pools, problems, .. } = &*status.borrow();
    let why: Vec<String> =
        problems.iter().map(|(subject, problem)| format!("{subject}: {problem}")).collect();
    bail!(
        "{pools} IPPools with the label submariner.io/ippool=true are left after {} s: {}",
        UNINSTALL_WITHIN.as_secs(),
        if why.is_empty() { "no reason is known".to_owned() } else { why.join("; ") }
    )
}
