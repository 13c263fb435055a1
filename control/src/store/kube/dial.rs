//! Connections: TCP that notices a dead peer, through a proxy where one is set.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Once;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt as _};

/// Makes a connection to a server's address.
pub(super) type Dial = BoxCloneSyncService<Uri, Wire, BoxError>;

/// Ours: an idle connection is asked for a sign of life this often, and given up after three without answer.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Ours: how long what was sent may stay without acknowledgement.
const USER_TIMEOUT: Duration = Duration::from_secs(20);

/// A byte stream to a server, whatever carries it.
pub(super) struct Wire(TokioIo<Box<dyn Duplex>>);

pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

impl Wire {
    pub(super) fn new(stream: impl Duplex + 'static) -> Self {
        Self(TokioIo::new(Box::new(stream)))
    }
}

/// Returns TCP, through the proxy that `proxies` names for `base`, if any. Sockets carry `mark` where this process may
/// mark them.
///
/// # Errors
/// When the proxy is of a kind that is not supported.
pub(super) fn network(
    base: &Uri,
    proxies: &Matcher,
    connect_timeout: Duration,
    mark: Option<u32>,
) -> io::Result<Dial> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect_timeout));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE / 2));
    tcp.set_keepalive_retries(Some(3));
    tcp.set_tcp_user_timeout(Some(USER_TIMEOUT));
    tcp.set_mark(mark.filter(|mark| may_mark(*mark)));
    let Some(proxy) = proxies.intercept(base) else {
        return Ok(boxed(tcp));
    };
    if proxy.uri().scheme_str().is_some_and(|scheme| scheme != "http") {
        let host = proxy.uri().host().unwrap_or_default();
        let text = format!(
            "the proxy {host} is not a plain HTTP proxy (http://HOST:PORT), which alone is supported"
        );
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let mut tunnel = Tunnel::new(proxy.uri().clone(), tcp);
    if let Some(credentials) = proxy.basic_auth() {
        tunnel = tunnel.with_auth(credentials.clone());
    }
    Ok(boxed(tunnel))
}

/// Tries a mark on a socket that goes nowhere: a connection that must have one that it may not have would fail.
fn may_mark(mark: u32) -> bool {
    static REPORTED: Once = Once::new();
    let tried = [Domain::IPV4, Domain::IPV6]
        .into_iter()
        .find_map(|domain| Socket::new(domain, Type::STREAM, None).ok());
    let Some(Err(error)) = tried.map(|socket| socket.set_mark(mark)) else { return true };
    REPORTED.call_once(|| tracing::debug!(%error, "connections to API servers carry no mark"));
    false
}

fn boxed<S>(connector: S) -> Dial
where
    S: tower::Service<Uri, Response = TokioIo<tokio::net::TcpStream>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    let wires = connector.map_response(|stream| Wire::new(stream.into_inner())).map_err(Into::into);
    BoxCloneSyncService::new(wires)
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    use std::net::TcpListener;

    use super::*;

    /// Any mark.
    const MARK: u32 = 0x0054_0000;

    /// Connects over loopback, marked where that is allowed.
    fn connect() -> Result<Wire, BoxError> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let uri: Uri = format!("http://{}", listener.local_addr()?).parse()?;
        let dial = network(&uri, &Matcher::builder().build(), Duration::from_secs(5), Some(MARK))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(dial.oneshot(uri))
    }

    #[test]
    fn who_may_not_mark_sockets_connects_all_the_same() {
        connect().unwrap();
        let without = || {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW);
            // Of this thread alone.
            set_capabilities(None, sets).unwrap();
            assert!(!may_mark(MARK));
            connect().map(drop)
        };
        std::thread::spawn(without).join().unwrap().unwrap();
    }
}
