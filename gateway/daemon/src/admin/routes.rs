//! Routes of the HTTP servers.

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use trieste_control::admin::{
    CAPTURE_PATH, CaptureRequest, GATEWAY_PATH, GLOBALNET_PATH, GatewayStatus, LIVE_PATH, METRICS_PATH,
    PCAPNG_CONTENT_TYPE, READY_PATH, SECRETS_PATH, STATUS_PATH, TRACE_PATH,
};

use super::state::{AdminState, refusal};
use super::{Health, translation};
use crate::capture::CaptureError;
use crate::metrics;

/// Returns the router of the admin socket, with every path.
pub fn admin_router(state: AdminState) -> Router {
    let router = Router::new()
        .route(STATUS_PATH, get(status))
        .route(GATEWAY_PATH, get(gateway))
        .route(CAPTURE_PATH, get(capture))
        .route(GLOBALNET_PATH, get(translation::globalnet))
        .route(TRACE_PATH, get(translation::trace))
        .route(SECRETS_PATH, get(super::secrets::answer));
    with_refusals(with_shared(router)).with_state(state)
}

/// Returns the router of the metrics port: metrics and health. `HEAD` is answered like `GET`, without the body.
pub fn metrics_router(state: AdminState) -> Router {
    with_refusals(with_shared(Router::new())).with_state(state)
}

/// Adds the paths of both servers.
fn with_shared(router: Router<AdminState>) -> Router<AdminState> {
    router
        .route(METRICS_PATH, get(metrics_page))
        .route(LIVE_PATH, get(|state| async { verdict(state, |health| health.live) }))
        .route(READY_PATH, get(|state| async { verdict(state, |health| health.ready) }))
}

fn with_refusals(router: Router<AdminState>) -> Router<AdminState> {
    router
        .fallback(|| async { refusal(StatusCode::NOT_FOUND, "nothing here".to_owned()) })
        .method_not_allowed_fallback(|| async {
            refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered".to_owned())
        })
}

async fn status(State(state): State<AdminState>) -> Json<GatewayStatus> {
    Json((state.status)())
}

async fn gateway(State(state): State<AdminState>) -> Json<serde_json::Value> {
    Json((state.gateway)())
}

async fn metrics_page(State(state): State<AdminState>) -> impl IntoResponse {
    let (captures, refused) = (state.hub.counters(), state.slots.refused());
    let page = metrics::render(&(state.status)(), &(state.extra)(), captures, refused);
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], page)
}

/// Renders a verdict as one line, with the status code that a kubelet evaluates.
fn verdict(
    State(state): State<AdminState>,
    which: impl FnOnce(Health) -> Result<String, String>,
) -> (StatusCode, String) {
    match which((state.health)()) {
        Ok(line) => (StatusCode::OK, line + "\n"),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason + "\n"),
    }
}

async fn capture(
    State(state): State<AdminState>,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Response {
    let request = query.map_err(|error| error.to_string()).and_then(|query| read_capture_request(&query.0));
    let request = match request {
        Ok(request) => request,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, error),
    };
    match state.hub.start(&request) {
        Ok(stream) => {
            ([(header::CONTENT_TYPE, PCAPNG_CONTENT_TYPE)], Body::from_stream(stream)).into_response()
        }
        Err(error) => {
            let status = match error {
                CaptureError::Point(_) => StatusCode::BAD_REQUEST,
                CaptureError::TooMany | CaptureError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            };
            refusal(status, error.to_string())
        }
    }
}

/// Reads a capture's query. Stricter than serde: a key that is misspelt would otherwise capture everything.
fn read_capture_request(query: &[(String, String)]) -> Result<CaptureRequest, String> {
    let mut request = CaptureRequest::default();
    for (index, (key, value)) in query.iter().enumerate() {
        if query[..index].iter().any(|(other, _)| other == key) {
            return Err(format!("{key}: given twice"));
        }
        let bad = |what: &str| format!("{key}: `{value}` is not {what}");
        match key.as_str() {
            "point" => request.point = Some(value.clone()),
            "host" => request.host = Some(value.parse().map_err(|_| bad("an IPv4 or IPv6 address"))?),
            "port" => request.port = Some(value.parse().map_err(|_| bad("a port from 0 to 65535"))?),
            "proto" => request.proto = Some(value.parse().map_err(|error| format!("proto: {error}"))?),
            "snaplen" => request.snaplen = Some(value.parse().map_err(|_| bad("a number of bytes"))?),
            _ => {
                return Err(format!("`{key}` is not known; a capture has point, host, port, proto, snaplen"));
            }
        }
    }
    Ok(request)
}
