//! The pages for kubelets and Prometheus: one request for each connection, bounded in number and in time.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::slots::{Slot, Slots};
use crate::{exposition, sockets, tcp};

/// How long a client may take to send its request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection may last: one request, and a slow reader.
const LIFETIME: Duration = Duration::from_secs(30);
/// Connections that wait in the kernel.
const BACKLOG: i32 = 64;
/// How long to wait after a connection could not be taken, such as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Where pages are answered; `None` for nowhere.
pub type PagesAddress = Option<SocketAddr>;

/// Parses where pages are answered: `off`, or an address and a port, without the former for all addresses.
///
/// # Errors
/// The reason, for people.
pub fn parse_address(text: &str) -> Result<PagesAddress, String> {
    if text == "off" {
        return Ok(None);
    }
    let expected = || format!("`{text}` is no address and port such as [::]:8080, and not `off`");
    match text.strip_prefix(':') {
        Some(port) => {
            let port = port.parse().map_err(|_| expected())?;
            Ok(Some(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)))
        }
        None => text.parse().map(Some).map_err(|_| expected()),
    }
}

/// What is answered.
pub trait Pages: Send + Sync + 'static {
    /// Returns whether the program works, in a line; why not, otherwise.
    ///
    /// # Errors
    /// Why not.
    fn health(&self) -> Result<String, String>;

    /// Returns whether queries are answered, in a line.
    ///
    /// # Errors
    /// Why not.
    fn ready(&self) -> Result<String, String>;

    /// Returns the metrics.
    fn metrics(&self) -> String;
}

/// Binds an address; all addresses of IPv4 where there is no IPv6. Call it inside a tokio runtime.
///
/// # Errors
/// The address, and the kernel's reason.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    sockets::or_ipv4(address, |address| tcp::listen(address, BACKLOG))
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen at {address} (TCP): {error}")))
}

/// Serves the pages for ever.
pub async fn serve(listener: TcpListener, slots: Arc<Slots>, pages: Arc<impl Pages>) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let slot = stream.local_addr().ok().and_then(|own| slots.take(peer, own));
        if let Some(slot) = slot {
            tokio::spawn(connection(stream, slot, Arc::clone(&pages)));
        }
    }
}

async fn connection(stream: TcpStream, slot: Slot, pages: Arc<impl Pages>) {
    let service = service_fn(move |request| {
        let response = respond(&request, pages.as_ref());
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    // Errors of a connection are noticed by its client.
    drop(timeout(LIFETIME, connection).await);
    drop(slot);
}

fn respond(request: &Request<Incoming>, pages: &impl Pages) -> Response<Full<Bytes>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    let verdict = |result: Result<String, String>| match result {
        Ok(line) => (StatusCode::OK, TEXT, line + "\n"),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, reason + "\n"),
    };
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, kind, body) = match request.uri().path() {
        _ if !is_read => {
            (StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD are answered\n".to_owned())
        }
        "/health" => verdict(pages.health()),
        "/ready" => verdict(pages.ready()),
        "/metrics" => (StatusCode::OK, exposition::CONTENT_TYPE, pages.metrics()),
        _ => (StatusCode::NOT_FOUND, TEXT, "nothing here\n".to_owned()),
    };
    // The body of an answer to HEAD is left out where it is written.
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
