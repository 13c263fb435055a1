//! Binding the admin socket and the metrics port.

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, UnixListener};
use trieste_control::tcp;

/// Connections that the kernel keeps for us to accept.
const BACKLOG: i32 = 64;
/// How long a process that was killed may take to go. Ours: the kernel gives back gigabytes of memory first.
const GOING: Duration = Duration::from_secs(1);
/// How often it is looked whether it has gone.
const LOOK: Duration = Duration::from_millis(10);

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another process has the socket, and did not go for a second.
    #[error(
        "another gateway is running: it has {}. Stop it, or give this one another `admin-socket`",
        .0.display()
    )]
    AlreadyRunning(PathBuf),
    /// Something that is no socket is in the way.
    #[error("{} exists and is no socket. Remove it, or set another `admin-socket`", .0.display())]
    NotASocket(PathBuf),
    /// The kernel refuses.
    #[error("cannot {what} {}: {source}. Check the path and the permissions, or set another `admin-socket`", path.display())]
    Socket {
        /// The attempted operation.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's error.
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
        /// The kernel's error.
        source: io::Error,
    },
}

/// The admin socket, and the lock that says whose it is.
#[derive(Debug)]
pub struct AdminSocket {
    pub(super) listener: UnixListener,
    /// The kernel gives it back when the process ends, however it ends.
    pub(super) lock: File,
}

/// Binds the admin socket, for root alone (mode 0600). Makes its directory; removes the socket of a process that is gone,
/// and waits up to a second for one that is going. Call it inside a tokio runtime.
///
/// # Errors
/// [`ListenError`], which says what is in the way and what to do.
pub fn bind_admin(path: &Path) -> Result<AdminSocket, ListenError> {
    let failed = |what| {
        let path = path.to_owned();
        move |source| ListenError::Socket { what, path, source }
    };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed("create the directory of"))?;
    }
    let end = Instant::now() + GOING;
    let lock = lock(path, end)?;
    clear(path, end)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed("make a socket for"))?;
    socket.bind(&SockAddr::unix(path).map_err(failed("bind"))?).map_err(failed("bind"))?;
    // Until it listens nobody can connect: no moment in which others than root could.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed("set the mode of"))?;
    socket.listen(BACKLOG).map_err(failed("listen on"))?;
    socket.set_nonblocking(true).map_err(failed("listen on"))?;
    let listener = UnixListener::from_std(socket.into()).map_err(failed("listen on"))?;
    Ok(AdminSocket { listener, lock })
}

/// Takes the lock beside a socket: `NAME.lock`, which stays.
fn lock(path: &Path, end: Instant) -> Result<File, ListenError> {
    let beside = path.with_added_extension("lock");
    let failed = |what, source| ListenError::Socket { what, path: beside.clone(), source };
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&beside).map_err(|error| failed("open", error))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < end => sleep(LOOK),
            Err(TryLockError::WouldBlock) => return Err(ListenError::AlreadyRunning(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed("lock", error)),
        }
    }
}

/// Makes room for a socket.
fn clear(path: &Path, end: Instant) -> Result<(), ListenError> {
    let failed = |what, source| ListenError::Socket { what, path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at", error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    loop {
        match std::os::unix::net::UnixStream::connect(path) {
            // One without a lock: an earlier version.
            Ok(_) if Instant::now() < end => sleep(LOOK),
            Ok(_) => return Err(ListenError::AlreadyRunning(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return fs::remove_file(path).map_err(|error| failed("remove the stale socket", error));
            }
            Err(error) => return Err(failed("ask who answers on", error)),
        }
    }
}

/// Binds the metrics port on all addresses of both families, or of IPv4 where there is no IPv6. Port 0 takes a free
/// one. Call it inside a tokio runtime.
///
/// # Errors
/// [`ListenError::PortInUse`] and [`ListenError::Port`].
pub fn bind_metrics(port: u16) -> Result<TcpListener, ListenError> {
    let bound = match tcp::listen(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port), BACKLOG) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        // No IPv6 in this kernel, or switched off.
        Err(_) => tcp::listen(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), BACKLOG),
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
