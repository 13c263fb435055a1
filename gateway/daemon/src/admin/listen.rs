//! Binding the admin socket and the metrics port.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, UnixListener};

/// Connections that the kernel keeps for us to accept.
const BACKLOG: i32 = 64;

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The socket answers.
    #[error(
        "another gateway is running: it answers on {}. Stop it, or give this one another `admin-socket`",
        .0.display()
    )]
    AlreadyRunning(PathBuf),
    /// Something that is no socket is in the way.
    #[error("{} exists and is no socket. Remove it, or set another `admin-socket`", .0.display())]
    NotASocket(PathBuf),
    /// The kernel refuses.
    #[error("cannot {what} {}: {source}. Check the path and the permissions, or set another `admin-socket`", path.display())]
    Socket {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Somebody else has the port.
    #[error(
        "port {0} for metrics is in use. Stop the process that has it (`ss -ltnp sport = :{0}` names it), or set \
         another `metrics-port` (SUBMARINER_METRICSPORT; 0 turns metrics off)"
    )]
    PortInUse(u16),
    /// The kernel refuses the port.
    #[error(
        "cannot listen on port {port} for metrics: {source}. Set another `metrics-port` (0 turns metrics off)"
    )]
    Port {
        /// The port.
        port: u16,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Binds the admin socket, for root alone (mode 0600). Makes its directory; removes a socket that nobody answers on.
/// Call it inside a tokio runtime.
///
/// # Errors
/// [`ListenError`], which says what is in the way and what to do.
pub fn bind_admin(path: &Path) -> Result<UnixListener, ListenError> {
    let failed = |what| {
        let path = path.to_owned();
        move |source| ListenError::Socket { what, path, source }
    };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed("create the directory of"))?;
    }
    clear(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed("make a socket for"))?;
    socket.bind(&SockAddr::unix(path).map_err(failed("bind"))?).map_err(failed("bind"))?;
    // Until it listens nobody can connect: no moment in which others than root could.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed("set the mode of"))?;
    socket.listen(BACKLOG).map_err(failed("listen on"))?;
    socket.set_nonblocking(true).map_err(failed("listen on"))?;
    UnixListener::from_std(socket.into()).map_err(failed("listen on"))
}

/// Makes room for a socket.
fn clear(path: &Path) -> Result<(), ListenError> {
    let failed = |what, source| ListenError::Socket { what, path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at", error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(ListenError::AlreadyRunning(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| failed("remove the stale socket", error))
        }
        Err(error) => Err(failed("ask who answers on", error)),
    }
}

/// Binds the metrics port on all addresses of both families, or of IPv4 where there is no IPv6. Port 0 takes a free
/// one. Call it inside a tokio runtime.
///
/// # Errors
/// [`ListenError::PortInUse`] and [`ListenError::Port`].
pub fn bind_metrics(port: u16) -> Result<TcpListener, ListenError> {
    let bound = match listen_tcp(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        // No IPv6 in this kernel, or switched off.
        Err(_) => listen_tcp(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)),
        bound => bound,
    };
    bound.map_err(|source| {
        if source.kind() == io::ErrorKind::AddrInUse {
            ListenError::PortInUse(port)
        } else {
            ListenError::Port { port, source }
        }
    })
}

fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // A gateway that restarts takes its port back while old connections are in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}
