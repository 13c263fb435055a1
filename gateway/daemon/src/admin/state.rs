//! Where the answers of both servers come from, and what a refusal is like.

use std::fmt;
use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use trieste_control::admin::{ErrorBody, GatewayStatus};

use super::{Health, Slots};
use crate::capture::CaptureHub;
use crate::globalnet::view::GlobalnetView;
use crate::ike::IkeHandle;
use crate::metrics::MetricsExtra;

/// Where answers come from. The functions are called once per request, on a thread of the control plane.
#[derive(Clone)]
pub struct AdminState {
    /// The status document.
    pub status: Arc<dyn Fn() -> GatewayStatus + Send + Sync>,
    /// The Gateway object.
    pub gateway: Arc<dyn Fn() -> serde_json::Value + Send + Sync>,
    /// Numbers for metrics beyond the status.
    pub extra: Arc<dyn Fn() -> MetricsExtra + Send + Sync>,
    /// Whether the process works, and can carry traffic.
    pub health: Arc<dyn Fn() -> Health + Send + Sync>,
    /// Captures.
    pub hub: Arc<CaptureHub>,
    /// Globalnet, and what becomes of packets.
    pub globalnet: Arc<GlobalnetView>,
    /// The IKE thread, which has the keys of IPsec cables.
    pub ike: Option<IkeHandle>,
    /// Limits of connections to the metrics port.
    pub slots: Arc<Slots>,
}

impl fmt::Debug for AdminState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminState").field("hub", &self.hub).finish_non_exhaustive()
    }
}

/// Answers that something cannot be had, and why.
pub(super) fn refusal(status: StatusCode, error: String) -> Response {
    (status, Json(ErrorBody { error })).into_response()
}
