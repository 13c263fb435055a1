//! How a gateway ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use trieste_control::members::Leave;
use trieste_control::publish::Publisher;
use trieste_control::store::AnyStore;

use super::control_tasks::Office;
use crate::control::Control;
use crate::engine::Engine;
use crate::shared::Shared;
use crate::status;
use crate::worker::Command;

/// How long each step of an end may take.
const STOP_TIMEOUT: Duration = Duration::from_millis(400);
/// How long all of a planned stop may take, and how much of it the last step has at least. Upstream's pods have a second from
/// being asked to being killed.
const STOP_BUDGET: Duration = Duration::from_millis(900);
const LAST_STEP: Duration = Duration::from_millis(200);

/// Returns how long the last step of a stop may take that was asked for then, if anybody has asked.
pub(super) fn left_of_stop(asked: Option<&Instant>) -> Duration {
    let spent = asked.map_or(Duration::ZERO, Instant::elapsed);
    STOP_BUDGET.saturating_sub(spent).clamp(LAST_STEP, STOP_TIMEOUT)
}

/// Leaves the last word of a gateway that cannot go on. A successor need not wait for the Lease to expire, and the object
/// says why there is one (behaviour §3.4).
pub(super) async fn say_why(
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

/// Ends the workers and what writes objects, all at once.
pub(super) async fn end_tasks(
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
