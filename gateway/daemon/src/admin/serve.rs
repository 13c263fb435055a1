//! Connections of both servers. They are few and short, but for captures; what a stranger opens on the metrics
//! port is bounded in number and in time.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::routes::{AdminState, admin_router, metrics_router};

/// Most connections of one server at a time; the next wait in the kernel.
const MAX_CONNECTIONS: usize = 32;
/// How long a client may take to send its request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection to the metrics port may last: one request, and a slow reader.
const METRICS_LIFETIME: Duration = Duration::from_secs(30);
/// How long answers may go on after the gateway was told to stop. Captures end by themselves before.
const GRACE: Duration = Duration::from_secs(1);

/// How connections of one server are treated.
#[derive(Debug, Clone, Copy)]
struct Manners {
    is_kept_alive: bool,
    lifetime: Option<Duration>,
}

/// Serves the admin socket until `shutdown` completes; then ends all captures, gives answers a second, and removes
/// the socket.
pub async fn serve_admin(listener: UnixListener, state: AdminState, shutdown: impl Future<Output = ()>) {
    let path = listener.local_addr().ok().and_then(|address| address.as_pathname().map(ToOwned::to_owned));
    let hub = Arc::clone(&state.hub);
    let stop = async {
        shutdown.await;
        hub.stop();
        if let Some(path) = path {
            // Whoever comes next removes it if this fails.
            let _ = fs::remove_file(path);
        }
    };
    let manners = Manners { is_kept_alive: true, lifetime: None };
    serve(listener, admin_router(state), manners, stop).await;
}

/// Serves `/metrics` until `shutdown` completes, then gives answers a second.
pub async fn serve_metrics(listener: TcpListener, state: AdminState, shutdown: impl Future<Output = ()>) {
    let manners = Manners { is_kept_alive: false, lifetime: Some(METRICS_LIFETIME) };
    serve(listener, metrics_router(state), manners, shutdown).await;
}

async fn serve(
    mut listener: impl Listener,
    router: Router,
    manners: Manners,
    shutdown: impl Future<Output = ()>,
) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let running = GracefulShutdown::new();
    let accept = async {
        loop {
            let slot = Arc::clone(&slots).acquire_owned().await.expect("the semaphore is never closed");
            let (io, _) = listener.accept().await;
            let connection = http1::Builder::new()
                .keep_alive(manners.is_kept_alive)
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(io), TowerToHyperService::new(router.clone()));
            let connection = running.watch(connection);
            tokio::spawn(async move {
                // What goes wrong on a connection is its client's to notice.
                let _ = match manners.lifetime {
                    Some(lifetime) => timeout(lifetime, connection).await.unwrap_or(Ok(())),
                    None => connection.await,
                };
                drop(slot);
            });
        }
    };
    tokio::select! {
        () = shutdown => {}
        () = accept => {}
    }
    drop(listener);
    let _ = timeout(GRACE, running.shutdown()).await;
}
