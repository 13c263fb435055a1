//! The fourth phase: the admin socket and the metrics port are answered.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use trieste_control::admin::GatewayStatus;

use super::control_plane::ControlPlane;
use super::data_plane::DataPlane;
use crate::admin::{self, AdminSocket, AdminState};
use crate::config::Config;

/// The sockets of both servers, bound in the first phase: what is taken is refused before anything is published.
pub(super) struct Listeners {
    admin: AdminSocket,
    metrics: Option<TcpListener>,
}

impl Listeners {
    /// Binds both.
    ///
    /// # Errors
    /// The resource that is taken, or cannot be created.
    pub(super) fn bind(config: &Config) -> anyhow::Result<Self> {
        let metrics = config.metrics_port.map(admin::bind_metrics).transpose()?;
        Ok(Self { admin: admin::bind_admin(&config.admin_socket)?, metrics })
    }
}

/// The admin socket's server, and that of the metrics port if there is one.
pub(super) struct Servers {
    tasks: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl Servers {
    /// Starts both.
    pub(super) fn start(
        listeners: Listeners,
        data_plane: &DataPlane,
        control_plane: &ControlPlane<'_>,
    ) -> Self {
        let (stop, stopping) = watch::channel(false);
        let state = admin_state(data_plane, control_plane);
        let stopped = |mut stopping: watch::Receiver<bool>| async move {
            let _ = stopping.wait_for(|is_stopped| *is_stopped).await;
        };
        let Listeners { admin, metrics } = listeners;
        let admin = admin::serve_admin(admin, state.clone(), stopped(stopping.clone()));
        let mut tasks = vec![tokio::spawn(admin)];
        if let Some(listener) = metrics {
            tasks.push(tokio::spawn(admin::serve_metrics(listener, state, stopped(stopping))));
        }
        Self { tasks, stop }
    }

    /// Ends both, and waits until they have.
    pub(super) async fn end(&mut self) {
        let _ = self.stop.send(true);
        futures::future::join_all(self.tasks.drain(..)).await;
    }
}

/// Returns what the servers answer from.
fn admin_state(data_plane: &DataPlane, control_plane: &ControlPlane<'_>) -> AdminState {
    let shared = || Arc::clone(&control_plane.shared);
    let (for_status, for_gateway, for_extra, for_health) = (shared(), shared(), shared(), shared());
    AdminState {
        status: Arc::new(move || GatewayStatus::clone(&for_status.status())),
        gateway: Arc::new(move || for_gateway.gateway()),
        extra: Arc::new(move || for_extra.extra()),
        health: Arc::new(move || for_health.health()),
        hub: Arc::clone(&data_plane.hub),
        globalnet: Arc::clone(&data_plane.globalnet),
        ike: data_plane.engine.ike().cloned(),
        slots: Arc::default(),
    }
}
