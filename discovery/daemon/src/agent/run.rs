//! Start, work and stop of the agent.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use tokio::sync::watch;
use tracing::info;
use trieste_control::api::{Kind, ObjectKey};
use trieste_control::conditions::Conditions;
use trieste_control::election::{self, ElectionConfig, Timings};
use trieste_control::logging;
use trieste_control::pages::{self, Pages};
use trieste_control::privileges::Needs;
use trieste_control::process::ProcessStats;
use trieste_control::recorder::Recorder;
use trieste_control::runner::{ControllerMetrics, Fence};
use trieste_control::signals;
use trieste_control::slots::Slots;
use trieste_control::store::AnyStore;
use trieste_discovery_agent::{AgentHandle, AgentStatus, spawn};

use super::config::{Config, Options};
use super::events;
use super::metrics::{self, Snapshot};
use super::stores;

/// The Lease of the election.
pub const LEASE: &str = "trieste-discovery-agent-lock";
/// How long a new leader observes before it writes: what its predecessor wrote last may still be on its way here.
const TAKE_OVER: Duration = Duration::from_millis(500);
/// How long writes that are under way may take when the program ends.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// How long an uninstall may take.
const UNINSTALL_WITHIN: Duration = Duration::from_secs(90);
/// The controller's name in metrics.
const CONTROLLER: &str = "service-discovery";

/// Runs the program: logs, settings, signals.
#[must_use]
pub fn main_with(options: &Options) -> ExitCode {
    logging::to_stderr(options.common.log.filter());
    match options.config().and_then(|config| run(&config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trieste-discovery agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Exports and imports until a signal asks to stop; or, at an uninstall, until nothing is left.
///
/// # Errors
/// An address cannot be used, settings make no sense, or something was left at an uninstall.
pub fn run(config: &Config) -> anyhow::Result<()> {
    let needs = Needs::default().store(&config.store);
    needs.check()?;
    needs.limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .thread_name("agent")
        .enable_all()
        .build()
        .context("starting the runtime")?;
    runtime.block_on(serve(config))
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let stop_signal = signals::stop().context("watching for SIGTERM and SIGINT")?;
    let local = stores::local(&config.store)?;
    let broker = stores::broker(&config.broker)?;
    let candidate = config.candidate.as_ref().map(|identity| {
        let election = ElectionConfig {
            namespace: config.agent.namespace.clone(),
            lease: LEASE.to_owned(),
            identity: identity.clone(),
            timings: Timings::globalnet(),
        };
        election::spawn(local.clone(), election)
    });
    let fence = Fence::of(candidate.clone(), TAKE_OVER);
    let agent = spawn(local.clone(), broker, config.agent.clone(), fence);
    if let AnyStore::Kube(kube) = local {
        let (recorder, queue) = Recorder::of_many("trieste-discovery");
        tokio::spawn(events::record(agent.status.clone(), recorder));
        let about = ObjectKey::new(Kind::Lease, &config.agent.namespace, LEASE);
        tokio::spawn(queue.write_to(kube, about, Conditions::default()));
    }
    let state = Arc::new(State {
        status: agent.status.clone(),
        metrics: agent.runner.metrics.clone(),
        started: Timestamp::now(),
    });
    let slots = Arc::new(Slots::default());
    for address in &config.http {
        let listener = pages::bind(*address)?;
        tokio::spawn(pages::serve(listener, Arc::clone(&slots), Arc::clone(&state)));
    }
    info!(
        version = env!("CARGO_PKG_VERSION"), cluster = %config.agent.cluster_id, store = %config.store,
        withdraws = config.agent.withdraws, "service discovery agent started"
    );
    let outcome = tokio::select! {
        outcome = withdrawn(&agent), if config.agent.withdraws => outcome,
        // What is in this cluster is withdrawn whatever the broker answers.
        outcome = certificate_refused(&agent), if config.halts_on_certificate_error && !config.agent.withdraws => outcome,
        () = stop_signal => Ok(()),
    };
    agent.runner.stop(LAST_WRITES).await;
    if let Some(candidate) = candidate {
        candidate.release(election::DEFAULT_RELEASE_TIMEOUT).await;
    }
    info!("service discovery agent stopped");
    outcome
}

/// Waits until nothing is left of what an agent has written.
async fn withdrawn(agent: &AgentHandle) -> anyhow::Result<()> {
    let mut status = agent.status.clone();
    let done = status.wait_for(|status| status.is_settled && status.exports == 0 && status.imports == 0);
    let outcome = tokio::time::timeout(UNINSTALL_WITHIN, done).await.map(|done| done.map(|_| ()));
    match outcome {
        Ok(done) => done.context("the agent ended"),
        Err(_) => {
            let problem = agent.status.borrow().problem.clone();
            bail!("not all could be removed: {}", problem.as_deref().unwrap_or("a store does not answer"))
        }
    }
}

/// Waits until the broker's certificate is not accepted, which is an error; a start anew reads the settings again, as upstream's
/// agent does it.
async fn certificate_refused(agent: &AgentHandle) -> anyhow::Result<()> {
    let mut status = agent.status.clone();
    let refused = status.wait_for(|status| status.refused_certificate.is_some()).await;
    let reason = refused.context("the agent ended")?.refused_certificate.clone().unwrap_or_default();
    bail!("{reason} (SUBMARINER_HALT_ON_CERT_ERROR)")
}

/// What the pages are about.
struct State {
    status: watch::Receiver<AgentStatus>,
    metrics: ControllerMetrics,
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
        Err(status.problem.clone().unwrap_or_else(|| "the stores are not read yet".to_owned()))
    }

    fn metrics(&self) -> String {
        let (status, now) = (self.status.borrow().clone(), Instant::now());
        metrics::render(Snapshot {
            status: &status,
            controller: (CONTROLLER, self.metrics.snapshot(now)),
            process: ProcessStats::read(),
            started: self.started,
            now,
        })
    }
}
