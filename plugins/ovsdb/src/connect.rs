//! Connections to servers.

use std::io;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::remote::{HostPort, Remote};
use crate::tls::{TlsError, TlsFiles};

/// How long a connection may take, names and TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("no connection within {CONNECT_TIMEOUT:?}")]
    Timeout,
    #[error("cannot use TLS: no key, certificate and CA are configured")]
    NoTlsFiles,
    #[error("cannot use TLS: {0}")]
    Tls(#[from] TlsError),
    #[error("cannot use TLS: {0:?} is no name of a host")]
    Name(String),
    #[error("TLS handshake failed: {0}")]
    Handshake(#[source] io::Error),
}

/// Connects to a server. Files of TLS are read each time: certificates are renewed.
pub(crate) async fn connect(remote: Remote, tls: Option<TlsFiles>) -> Result<Box<dyn Stream>, ConnectError> {
    let connect = async {
        let stream: Box<dyn Stream> = match remote {
            Remote::Unix(path) => Box::new(UnixStream::connect(path).await.map_err(ConnectError::Connect)?),
            Remote::Tcp(to) => Box::new(connect_tcp(&to).await?),
            Remote::Tls(to) => Box::new(connect_tls(&to, tls.ok_or(ConnectError::NoTlsFiles)?).await?),
        };
        Ok(stream)
    };
    tokio::time::timeout(CONNECT_TIMEOUT, connect).await.unwrap_or(Err(ConnectError::Timeout))
}

async fn connect_tcp(to: &HostPort) -> Result<TcpStream, ConnectError> {
    let stream = TcpStream::connect((to.host.as_str(), to.port)).await.map_err(ConnectError::Connect)?;
    // Messages are written whole, and answers to them are waited for.
    stream.set_nodelay(true).map_err(ConnectError::Connect)?;
    Ok(stream)
}

async fn connect_tls(
    to: &HostPort,
    files: TlsFiles,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, ConnectError> {
    let config = files.load().await?;
    let name = ServerName::try_from(to.host.clone()).map_err(|_| ConnectError::Name(to.host.clone()))?;
    let stream = connect_tcp(to).await?;
    TlsConnector::from(config).connect(name, stream).await.map_err(ConnectError::Handshake)
}
