use std::fs::File;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use trieste_control::admin::{ErrorBody, GatewayStatus, PCAPNG_CONTENT_TYPE, SnapshotStatus};
use trieste_control::conditions::Conditions;
use trieste_packet::{CableId, DropReason};

use super::*;
use crate::capture::CaptureHub;
use crate::globalnet::view::GlobalnetView;
use crate::metrics::MetricsExtra;

/// Longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running admin server in a directory of its own.
struct Admin {
    directory: tempfile::TempDir,
    hub: Arc<CaptureHub>,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

impl Admin {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = state();
        let hub = Arc::clone(&state.hub);
        let listener = bind_admin(&directory.path().join("run/gateway.sock")).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(serve_admin(listener, state, async {
            let _ = stopped.await;
        }));
        Self { directory, hub, stop: Some(stop), server }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("run/gateway.sock")
    }

    async fn get(&self, path: &str) -> Response<Incoming> {
        request(UnixStream::connect(self.path()).await.unwrap(), Method::GET, path).await
    }

    async fn refusal(&self, path: &str) -> (StatusCode, String) {
        let response = self.get(path).await;
        let status = response.status();
        let body: ErrorBody = serde_json::from_slice(&body(response).await).unwrap();
        (status, body.error)
    }

    async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        timeout(PATIENCE, &mut self.server).await.expect("the server ends").unwrap();
    }
}

fn state() -> AdminState {
    let status: GatewayStatus = serde_json::from_str(
        r#"{"version":"1.2.3","pid":7,"started":"2026-11-21T05:48:28Z","cluster":"a","hostname":"h",
        "haStatus":"active","endpoint":{"cluster_id":"a","cable_name":"c","hostname":"h","subnets":[],
        "private_ip":"10.0.0.1","backend":"wireguard"}}"#,
    )
    .unwrap();
    AdminState {
        status: Arc::new(move || status.clone()),
        gateway: Arc::new(|| serde_json::json!({"kind": "Gateway"})),
        ike: None,
        slots: Arc::default(),
        extra: Arc::new(|| MetricsExtra { sync_iterations: 3, ..MetricsExtra::default() }),
        health: Arc::new(|| Health { live: Ok("live".to_owned()), ready: Err("starting".to_owned()) }),
        hub: Arc::new(CaptureHub::new(IpAddr::from([192, 0, 2, 1]), 4500)),
        globalnet: Arc::new(GlobalnetView::new(
            false,
            Vec::new(),
            Conditions::new(),
            SnapshotStatus::default(),
        )),
    }
}

async fn request(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    method: Method,
    path: &str,
) -> Response<Incoming> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "gateway")
        .body(Empty::<Bytes>::new())
        .unwrap();
    timeout(PATIENCE, sender.send_request(request)).await.expect("an answer").unwrap()
}

async fn body(response: Response<Incoming>) -> Bytes {
    timeout(PATIENCE, response.into_body().collect()).await.expect("a whole body").unwrap().to_bytes()
}

#[tokio::test]
async fn status_gateway_and_metrics_are_answered_on_the_socket() {
    let admin = Admin::start();
    let response = admin.get("/v1/status").await;
    assert_eq!(response.headers()["content-type"], "application/json");
    let status: GatewayStatus = serde_json::from_slice(&body(response).await).unwrap();
    assert_eq!((status.version.as_str(), status.pid), ("1.2.3", 7));
    assert_eq!(body(admin.get("/v1/gateway").await).await, r#"{"kind":"Gateway"}"#);
    let page = body(admin.get("/metrics").await).await;
    assert!(String::from_utf8_lossy(&page).contains("\nsubmariner_gateway_sync_iterations 3\n"));
    admin.stop().await;
}

#[tokio::test]
async fn only_the_owner_may_connect_and_the_socket_goes_with_the_server() {
    let admin = Admin::start();
    let path = admin.path();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let directory = admin.directory.path().to_owned();
    let kept = std::fs::read_dir(directory.join("run")).unwrap().count();
    assert_eq!(kept, 2, "the socket and its lock");
    admin.stop().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_socket_that_answers_is_left_alone_and_a_stale_one_is_replaced() {
    let admin = Admin::start();
    let error = bind_admin(&admin.path()).unwrap_err();
    assert!(matches!(error, ListenError::AlreadyRunning(_)));
    assert!(error.to_string().contains("another gateway is running"), "{error}");
    assert_eq!(admin.get("/v1/gateway").await.status(), StatusCode::OK);

    let stale = admin.directory.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert!(stale.exists());
    bind_admin(&stale).unwrap();
    admin.stop().await;
}

#[tokio::test]
async fn a_process_that_was_killed_is_waited_for_while_it_goes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gateway.sock");
    // Its descriptors are still open: the lock is held, and the socket answers.
    let lock = File::create(path.with_added_extension("lock")).unwrap();
    lock.lock().unwrap();
    let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let goes = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(lock);
        std::thread::sleep(Duration::from_millis(200));
        drop(socket);
    });
    let start = Instant::now();
    let ours = bind_admin(&path).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(400));
    goes.join().unwrap();
    assert!(matches!(bind_admin(&path), Err(ListenError::AlreadyRunning(_))));
    drop(ours);
    bind_admin(&path).unwrap();
}

#[tokio::test]
async fn what_is_no_socket_is_not_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    let error = bind_admin(&path).unwrap_err();
    assert!(matches!(error, ListenError::NotASocket(_)), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
    let error = bind_admin(&path.join("below")).unwrap_err().to_string();
    assert!(error.contains("below") && error.contains("admin-socket"), "{error}");
    let error = bind_admin(Path::new(&format!("/tmp/{}", "x".repeat(200)))).unwrap_err().to_string();
    assert!(error.contains("admin-socket"), "{error}");
}

#[tokio::test]
async fn requests_that_cannot_be_served_say_why() {
    let admin = Admin::start();
    for (path, status, what) in [
        ("/v1/nothing", StatusCode::NOT_FOUND, "nothing"),
        ("/v1/capture?point=opened,nowhere", StatusCode::BAD_REQUEST, "outer-rx"),
        ("/v1/capture?host=example.org", StatusCode::BAD_REQUEST, "host: `example.org`"),
        ("/v1/capture?port=70000", StatusCode::BAD_REQUEST, "port: `70000`"),
        ("/v1/capture?port=-1", StatusCode::BAD_REQUEST, "port"),
        ("/v1/capture?proto=sctp", StatusCode::BAD_REQUEST, "tcp, udp, icmp"),
        ("/v1/capture?snaplen=x", StatusCode::BAD_REQUEST, "snaplen"),
        ("/v1/capture?hots=10.1.0.1", StatusCode::BAD_REQUEST, "`hots`"),
        ("/v1/capture?port=1&port=2", StatusCode::BAD_REQUEST, "twice"),
        ("/v1/secrets", StatusCode::NOT_FOUND, "WireGuard"),
    ] {
        let (code, error) = admin.refusal(path).await;
        assert_eq!(code, status, "{path}: {error}");
        assert!(error.contains(what), "{path}: {error}");
    }
    let stream = UnixStream::connect(admin.path()).await.unwrap();
    let response = request(stream, Method::DELETE, "/v1/status").await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(admin.hub.counters().running, 0);
    admin.stop().await;
}

#[tokio::test]
async fn a_capture_streams_over_the_socket_and_ends_with_its_client() {
    let admin = Admin::start();
    let response = admin.get("/v1/capture?point=drops&host=10.2.0.2").await;
    assert_eq!(response.headers()["content-type"], PCAPNG_CONTENT_TYPE);
    let mut stream = response.into_body();
    let header = frame(&mut stream).await;
    assert_eq!(header[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 1, 0, 0, 10, 1, 0, 1, 10, 2, 0, 2];
    packet.extend([8, 0, 0, 0, 0, 0, 0, 0]);
    packet[3] = 28;
    let mut witness = admin.hub.attach(0).1.unwrap();
    witness.dropped(CableId(1), DropReason::NoRoute, &packet);
    let piece = frame(&mut stream).await;
    assert!(piece.windows(packet.len()).any(|window| window == packet));
    assert!(String::from_utf8_lossy(&piece).contains("reason=no_route cable=1"));

    let generation = admin.hub.generation();
    drop(stream);
    timeout(PATIENCE, async {
        while admin.hub.generation() == generation {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the capture ends when its client has gone, without a packet");
    assert_eq!(admin.hub.counters().running, 0);
    admin.stop().await;
}

#[tokio::test]
async fn too_many_captures_are_refused() {
    let admin = Admin::start();
    let mut running = Vec::new();
    for _ in 0..crate::capture::hub::MAX_CAPTURES {
        running.push(admin.get("/v1/capture").await);
    }
    let (code, error) = admin.refusal("/v1/capture").await;
    assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
    assert!(error.contains("end one"), "{error}");
    admin.stop().await;
}

#[tokio::test]
async fn stopping_ends_captures_as_whole_files_and_waits_for_nobody() {
    let admin = Admin::start();
    let reading = admin.get("/v1/capture").await;
    let not_reading = admin.get("/v1/capture").await;
    let mut idle = UnixStream::connect(admin.path()).await.unwrap();
    idle.write_all(b"GET /v1/status").await.unwrap();
    let all = tokio::spawn(body(reading));
    admin.stop().await;
    let bytes = all.await.unwrap();
    // The last block is a statistics block of the last of six interfaces.
    let length = u32::from_le_bytes(bytes[bytes.len() - 4..].try_into().unwrap()) as usize;
    assert_eq!(bytes[bytes.len() - length..][..4], 5u32.to_le_bytes());
    drop(not_reading);
}

#[tokio::test]
async fn the_metrics_port_answers_get_and_head_over_both_families() {
    let listener = bind_metrics(0).unwrap();
    let port = listener.local_addr().unwrap().port();
    let is_dual = listener.local_addr().unwrap().is_ipv6();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve_metrics(listener, state(), async {
        let _ = stopped.await;
    }));
    let mut addresses = vec![SocketAddr::from(([127, 0, 0, 1], port))];
    match is_dual {
        true => addresses.push(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port))),
        false => println!("skipped: no IPv6 here"),
    }
    for address in addresses {
        let connect = || async { TcpStream::connect(address).await };
        let stream = match connect().await {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => continue,
            stream => stream.unwrap(),
        };
        let response = request(stream, Method::GET, "/metrics").await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(response.headers()["content-type"].to_str().unwrap().contains("version=0.0.4"));
        let page = body(response).await;
        assert!(page.starts_with(b"# HELP submariner_gateway_sync_iterations"));
        let head = request(connect().await.unwrap(), Method::HEAD, "/metrics").await;
        assert_eq!(head.status(), StatusCode::OK);
        assert_eq!(head.headers()["content-length"], page.len().to_string());
        assert!(body(head).await.is_empty());
        for method in [Method::GET, Method::HEAD] {
            let live = request(connect().await.unwrap(), method.clone(), "/healthz").await;
            assert_eq!(live.status(), StatusCode::OK);
            let ready = request(connect().await.unwrap(), method.clone(), "/readyz").await;
            assert_eq!(ready.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(ready.headers()["content-length"], "9");
            let reason = if method == Method::GET { "starting\n" } else { "" };
            assert_eq!(body(ready).await, reason);
        }
        let status = request(connect().await.unwrap(), Method::GET, "/v1/status").await;
        assert_eq!(status.status(), StatusCode::NOT_FOUND, "the admin API is not on the network");
    }
    stop.send(()).unwrap();
    timeout(PATIENCE, server).await.expect("the server ends").unwrap();
}

#[tokio::test]
async fn a_port_in_use_is_named_with_what_to_change() {
    let listener = bind_metrics(0).unwrap();
    let port = listener.local_addr().unwrap().port();
    let error = bind_metrics(port).unwrap_err().to_string();
    assert!(error.contains(&port.to_string()) && error.contains("metrics-port"), "{error}");
}

#[tokio::test]
async fn garbage_is_answered_and_the_next_request_is_served() {
    let admin = Admin::start();
    let mut stream = UnixStream::connect(admin.path()).await.unwrap();
    stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the connection ends").unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 400"));
    assert_eq!(admin.get("/v1/gateway").await.status(), StatusCode::OK);
    admin.stop().await;
}

async fn frame(body: &mut Incoming) -> Bytes {
    timeout(PATIENCE, body.frame()).await.expect("a piece").unwrap().unwrap().into_data().unwrap()
}
