//! The admin socket and the metrics port.

use std::sync::Arc;

use tokio::sync::watch;
use trieste_control::admin::GatewayStatus;

use crate::admin;
use crate::admin::{AdminSocket, AdminState};
use crate::capture::CaptureHub;
use crate::globalnet::board::Board;
use crate::ike::IkeHandle;
use crate::shared::Shared;

pub(super) fn spawn_servers(
    (admin, metrics): (AdminSocket, Option<tokio::net::TcpListener>),
    shared: &Arc<Shared>,
    (hub, board, ike): (&Arc<CaptureHub>, &Arc<Board>, Option<&IkeHandle>),
    stop: &watch::Receiver<bool>,
) -> Vec<tokio::task::JoinHandle<()>> {
    let (for_status, for_gateway, for_extra) = (Arc::clone(shared), Arc::clone(shared), Arc::clone(shared));
    let for_health = Arc::clone(shared);
    let state = AdminState {
        status: Arc::new(move || GatewayStatus::clone(&for_status.status.load())),
        gateway: Arc::new(move || for_gateway.gateway()),
        extra: Arc::new(move || for_extra.extra()),
        health: Arc::new(move || for_health.health()),
        hub: Arc::clone(hub),
        board: Arc::clone(board),
        ike: ike.cloned(),
        slots: Arc::default(),
    };
    let stopped = |mut stop: watch::Receiver<bool>| async move {
        let _ = stop.wait_for(|is_stopped| *is_stopped).await;
    };
    let mut servers = vec![tokio::spawn(admin::serve_admin(admin, state.clone(), stopped(stop.clone())))];
    if let Some(listener) = metrics {
        servers.push(tokio::spawn(admin::serve_metrics(listener, state, stopped(stop.clone()))));
    }
    servers
}
