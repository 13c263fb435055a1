//! Asking a gateway: HTTP/1.1 over its admin socket.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::output::printable;
use trieste_control::admin::ErrorBody;

/// Which gateway.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SocketArgs {
    /// The gateway's admin socket [default: $TRIESTE_ADMIN_SOCKET, else /run/trieste/gateway.sock]
    #[arg(long, value_name = "PATH")]
    pub(super) socket: Option<PathBuf>,
}

/// Ours: a gateway answers in milliseconds, so one that takes this long is stuck.
const PATIENCE: Duration = Duration::from_secs(10);

/// Largest document that is read, in bytes.
const MAX_BODY_BYTES: usize = 64 << 20;

/// Asks for a document.
pub(super) async fn get(socket: &Path, path: &str) -> anyhow::Result<Bytes> {
    let response = open(socket, path).await?;
    let body = timeout(PATIENCE, Limited::new(response.into_body(), MAX_BODY_BYTES).collect()).await;
    let body = body.map_err(|_| stuck(socket))?;
    Ok(body.map_err(|error| anyhow!("the gateway's answer broke off: {error}"))?.to_bytes())
}

/// Asks for a document or a stream; gives the answer once it begins.
pub(super) async fn open(socket: &Path, path: &str) -> anyhow::Result<Response<Incoming>> {
    let stream = UnixStream::connect(socket).await.map_err(|error| explain(&error, socket))?;
    let response = timeout(PATIENCE, send(stream, path)).await.map_err(|_| stuck(socket))??;
    let status = response.status();
    if status == StatusCode::OK {
        return Ok(response);
    }
    let body = timeout(PATIENCE, Limited::new(response.into_body(), MAX_BODY_BYTES).collect()).await;
    let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes).unwrap_or_default();
    bail!("the gateway refuses {}: {}", path.split('?').next().unwrap_or(path), reason(status, &body));
}

async fn send(stream: UnixStream, path: &str) -> anyhow::Result<Response<Incoming>> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the runtime, or with the gateway; its error reaches us through the body.
    tokio::spawn(connection);
    let request = Request::get(path)
        .header(hyper::header::HOST, "localhost")
        .body(Empty::<Bytes>::new())
        .context("the request is not valid")?;
    sender.send_request(request).await.context("the gateway closed the connection without an answer")
}

/// The gateway's own words, or those of the status.
fn reason(status: StatusCode, body: &[u8]) -> String {
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => printable(&body.error),
        Err(_) if body.is_empty() => status.to_string(),
        Err(_) => format!("{status}: {}", printable(&String::from_utf8_lossy(body))),
    }
}

fn stuck(socket: &Path) -> anyhow::Error {
    anyhow!(
        "the gateway at {} has not answered for {} s; look at its log, and restart it if it is stuck",
        socket.display(),
        PATIENCE.as_secs()
    )
}

/// Why there is no connection, and what to do.
fn explain(error: &std::io::Error, socket: &Path) -> anyhow::Error {
    let path = socket.display();
    let kind = error.kind();
    if kind == ErrorKind::NotFound {
        anyhow!(
            "there is no admin socket at {path}. Is trieste-gateway running on this node? If it uses another path \
             (its setting admin-socket), pass that with --socket"
        )
    } else if kind == ErrorKind::PermissionDenied {
        anyhow!("you may not open {path}: run this as root, or as the user that the gateway runs as")
    } else if kind == ErrorKind::ConnectionRefused {
        anyhow!(
            "nobody answers at {path}: the gateway that made this socket has ended. Look at its log, and start it again"
        )
    } else {
        anyhow!("cannot connect to {path}: {error}. Is it a gateway's admin socket?")
    }
}
