//! The end of a gateway.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::task::JoinHandle;
use trieste_control::members::Shutdown;

use super::control_plane::ControlPlane;
use super::data_plane::DataPlane;
use super::running::{End, Running, notify};
use super::servers::Servers;
use crate::control::Control;
use crate::engine::Engine;
use crate::worker::Command;

/// How long each step of an end may take.
const STOP_TIMEOUT: Duration = Duration::from_millis(400);
/// How long all of a planned stop may take, and how much of it the last step has at least. Upstream's pods have a second from
/// being asked to being killed.
const STOP_BUDGET: Duration = Duration::from_millis(900);
const LAST_STEP: Duration = Duration::from_millis(200);

/// Ends a gateway:
///
/// 1. after a failure, the heartbeat, the lead, and a last word in the Gateway object;
/// 2. all at once and within bounds, workers, heartbeat, and what the control loop has started;
/// 3. the servers: until here they report how it ends;
/// 4. who follows services, the files of sessions, elections and everything else that writes objects.
///
/// The TUN device stays. Gives how the gateway came to its end.
pub(super) async fn in_order(
    end: End,
    running: Running,
    mut servers: Servers,
    control_plane: ControlPlane<'_>,
    data_plane: DataPlane,
) -> anyhow::Result<()> {
    notify(sd_notify::NotifyState::Stopping);
    if let Err(error) = &end.outcome {
        running.heartbeat.abort();
        publish_failure(error, &control_plane, &running).await;
    }
    let within = left_of_stop(end.asked);
    let ControlPlane { control, tasks, services, .. } = control_plane;
    let last_step = async {
        end_tasks(control, &data_plane.engine, running.heartbeat, within).await;
        servers.end().await;
    };
    let _ = tokio::time::timeout(within, last_step).await;
    services.abort();
    // Its last round writes the workers' last changes.
    data_plane.globalnet.set_writer(None);
    tasks.close().await;
    tracing::info!("gateway has stopped; its TUN device stays, so that nothing leaves in clear");
    end.outcome
}

/// Returns how long the last step of a stop may take that was asked for then, if anybody has asked.
fn left_of_stop(asked: Option<Instant>) -> Duration {
    let spent = asked.map_or(Duration::ZERO, |asked| asked.elapsed());
    STOP_BUDGET.saturating_sub(spent).clamp(LAST_STEP, STOP_TIMEOUT)
}

/// Leaves the last word of a gateway that cannot go on. A successor need not wait for the Lease to expire, and the object
/// says why there is one (behaviour §3.4).
async fn publish_failure(error: &anyhow::Error, control_plane: &ControlPlane<'_>, running: &Running) {
    let ControlPlane { shared, tasks, .. } = control_plane;
    shared.fail(&format!("{error:#}"));
    tasks.candidate.release(STOP_TIMEOUT).await;
    let last_word = running.publisher.put_gateway(shared.published(), Timestamp::now());
    let _ = tokio::time::timeout(STOP_TIMEOUT, last_word).await;
}

/// Ends the workers and what writes objects, all at once.
async fn end_tasks(control: Control<'_>, engine: &Engine, heartbeat: JoinHandle<()>, within: Duration) {
    if control.shutdown() == Shutdown::Removal {
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
