//! Connections of both servers. They are few and short, but for captures; what a stranger opens on the metrics
//! port is bounded in number ([`Slots`]) and in time.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use trieste_control::slots::{Slot, Slots};

use super::listen::AdminSocket;
use super::routes::{admin_router, metrics_router};
use super::state::AdminState;

/// Most connections to the admin socket at a time, all of them root's; the next wait in the kernel.
const ADMIN_CONNECTIONS: usize = 32;
/// How long a client may take to send its request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection to the metrics port may last: one request, and a slow reader.
const METRICS_LIFETIME: Duration = Duration::from_secs(30);
/// How long responses may go on during shutdown. Captures end by themselves before.
const GRACE: Duration = Duration::from_secs(1);

/// HTTP options of one server's connections.
#[derive(Debug, Clone, Copy)]
struct HttpOptions {
    is_kept_alive: bool,
    lifetime: Option<Duration>,
}

/// Serves the admin socket until `shutdown` completes; then ends all captures, gives answers a second, and removes
/// the socket.
pub async fn serve_admin(socket: AdminSocket, state: AdminState, shutdown: impl Future<Output = ()>) {
    let AdminSocket { listener, lock: _lock } = socket;
    let path = listener.local_addr().ok().and_then(|address| address.as_pathname().map(ToOwned::to_owned));
    let hub = Arc::clone(&state.hub);
    let stop = async {
        shutdown.await;
        hub.stop();
        if let Some(path) = path {
            // The next process removes it if this fails.
            let _ = fs::remove_file(path);
        }
    };
    let options = HttpOptions { is_kept_alive: true, lifetime: None };
    let door = AdminDoor { listener, slots: Arc::new(Semaphore::new(ADMIN_CONNECTIONS)) };
    serve(door, admin_router(state), options, stop).await;
}

/// Serves `/metrics` until `shutdown` completes, then gives answers a second.
pub async fn serve_metrics(listener: TcpListener, state: AdminState, shutdown: impl Future<Output = ()>) {
    let options = HttpOptions { is_kept_alive: false, lifetime: Some(METRICS_LIFETIME) };
    let door = MetricsDoor { listener, slots: Arc::clone(&state.slots) };
    serve(door, metrics_router(state), options, shutdown).await;
}

/// Lets connections in, each with what it has to keep as long as it lasts.
trait Door {
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    type Slot: Send + 'static;

    fn next(&mut self) -> impl Future<Output = (Self::Io, Self::Slot)> + Send;
}

struct AdminDoor {
    listener: UnixListener,
    slots: Arc<Semaphore>,
}

impl Door for AdminDoor {
    type Io = UnixStream;
    type Slot = OwnedSemaphorePermit;

    async fn next(&mut self) -> (UnixStream, OwnedSemaphorePermit) {
        let slot = Arc::clone(&self.slots).acquire_owned().await.expect("the semaphore is never closed");
        (Listener::accept(&mut self.listener).await.0, slot)
    }
}

struct MetricsDoor {
    listener: TcpListener,
    slots: Arc<Slots>,
}

impl Door for MetricsDoor {
    type Io = TcpStream;
    type Slot = Slot;

    async fn next(&mut self) -> (TcpStream, Slot) {
        loop {
            let (io, peer) = Listener::accept(&mut self.listener).await;
            // One that is gone already has no address any more.
            let slot = io.local_addr().ok().and_then(|own| self.slots.take(peer, own));
            match slot {
                Some(slot) => return (io, slot),
                None => tracing::debug!(%peer, "the metrics port has no slot for another connection"),
            }
        }
    }
}

async fn serve(
    mut door: impl Door,
    router: Router,
    options: HttpOptions,
    shutdown: impl Future<Output = ()>,
) {
    let running = GracefulShutdown::new();
    let accept = async {
        loop {
            let (io, slot) = door.next().await;
            let connection = http1::Builder::new()
                .keep_alive(options.is_kept_alive)
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(io), TowerToHyperService::new(router.clone()));
            let connection = running.watch(connection);
            tokio::spawn(async move {
                // Errors of a connection are noticed by its client.
                let _ = match options.lifetime {
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
    drop(door);
    let _ = timeout(GRACE, running.shutdown()).await;
}
