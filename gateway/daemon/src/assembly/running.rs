//! The fifth phase: the gateway runs, until somebody asks for its end or a part of it fails.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use trieste_control::publish::Publisher;
use trieste_control::store::AnyStore;

use super::control_plane::ControlPlane;
use super::data_plane::DataPlane;
use crate::shared::Shared;

/// The publications of a running gateway.
pub(super) struct Running {
    pub(super) publisher: Publisher<Arc<AnyStore>>,
    /// Writes the Gateway object.
    pub(super) heartbeat: JoinHandle<()>,
    /// Ends the heartbeat, which removes the object.
    stop: watch::Sender<bool>,
}

/// How it came to an end.
pub(super) struct End {
    /// The fatal error, if there was one.
    pub(super) outcome: anyhow::Result<()>,
    /// When somebody has asked for the end.
    pub(super) asked: Option<Instant>,
}

impl Running {
    /// Notifies systemd, builds the first status, and starts to write the Gateway object.
    pub(super) async fn begin(data_plane: &mut DataPlane, control_plane: &mut ControlPlane<'_>) -> Self {
        let DataPlane { kind, engine, .. } = data_plane;
        let ControlPlane { control, shared, .. } = control_plane;
        let (config, node) = (control.config, &control.node);
        tracing::info!(cluster = %config.cluster_id, hostname = %node.hostname, private_ip = %node.private_ip, port = node.udp_port, driver = kind.name(), path_mtu = node.path_mtu(config, kind.overhead()), workers = config.workers, store = %config.store, "gateway runs");
        notify(sd_notify::NotifyState::Ready);
        control.refresh(engine).await;
        let store = Arc::new(control.store.clone());
        let hostname = &control.node.hostname;
        let publisher = Publisher::new(store, &config.namespace, &config.cluster_id, hostname)
            .sparing(control.peers.spared())
            .with_conditions(control.conditions.clone());
        let (stop, stopping) = watch::channel(false);
        let heartbeat = tokio::spawn(heartbeat(publisher.clone(), Arc::clone(shared), stopping));
        Self { publisher, heartbeat, stop }
    }

    /// Runs the control loop until it has left after `stop` has completed, or until a part ends that should not.
    pub(super) async fn until_end(
        &self,
        data_plane: &mut DataPlane,
        control_plane: &mut ControlPlane<'_>,
        stop: impl Future<Output = ()>,
    ) -> End {
        let asked = OnceLock::new();
        let leaving = async {
            stop.await;
            let _ = asked.set(Instant::now());
            // The Gateway object goes at once, as upstream's does; cables stay until a successor is there.
            let _ = self.stop.send(true);
        };
        let DataPlane { engine, ended, .. } = data_plane;
        let ControlPlane { control, tasks, .. } = control_plane;
        let outcome = tokio::select! {
            ended = control.run(engine, leaving) => ended,
            failure = tasks.failed() => Err(failure),
            failure = ended.recv() => Err(failure.unwrap_or_else(|| anyhow::anyhow!("all workers ended"))),
        };
        End { outcome, asked: asked.into_inner() }
    }
}

/// Notifies systemd.
pub(super) fn notify(state: sd_notify::NotifyState<'_>) {
    // Not started by systemd.
    let _ = sd_notify::notify(&[state]);
}

/// Writes the Gateway object every five seconds.
async fn heartbeat(
    publisher: Publisher<Arc<AnyStore>>,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) {
    let status = || {
        shared.iterations.fetch_add(1, Ordering::Relaxed);
        shared.document()
    };
    let stopped = async {
        // The sender lives as long as the gateway.
        let _ = stop.wait_for(|is_stopped| *is_stopped).await;
    };
    publisher.keep_gateway(status, stopped).await;
}
