//! A relay before an API server that breaks connections to it: what a bad network, a load balancer that restarts, or
//! an overloaded server would do to clients. The server itself notices nothing.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::client::Threads;
use super::credentials::{self, Identity};
use super::server::ApiServer;
use crate::netns::Namespace;

/// Pieces of an answer that may be on their way at once when answers are delayed; the server waits beyond that.
const IN_FLIGHT: usize = 256;

/// What happens to connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: bytes pass.
    Pass,
    /// New connections are refused, as if nobody listened; those that there are go on. See [`Faults::cut`].
    Refuse,
    /// Connections are accepted and stay open, and not a byte passes, in old ones neither.
    Hang,
    /// Everything that the server says arrives this much later, after the TLS handshake's first flight.
    Delay(Duration),
}

/// What the connections have to know.
#[derive(Debug, Clone, Copy)]
struct State {
    mode: Mode,
    cuts: u64,
    freezes: u64,
}

/// How many connections there were and are.
#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    open: AtomicUsize,
}

/// A relay to one API server; connections through it end when it is dropped.
#[derive(Debug)]
pub struct Faults {
    listen: SocketAddr,
    listens_in: Option<Namespace>,
    server: SocketAddr,
    authority: PathBuf,
    directory: PathBuf,
    state: watch::Sender<State>,
    counts: Arc<Counts>,
    accepting: Option<JoinHandle<()>>,
    threads: Threads,
}

impl Faults {
    /// A relay at the server's address, on a port of its own.
    ///
    /// # Errors
    /// If the server's namespace cannot be entered.
    pub fn before(server: &ApiServer) -> anyhow::Result<Self> {
        Self::start(server, Some(server.namespace()), server.address().ip())
    }

    /// A relay on this process's own loopback address, into the server's namespace: for code under test that runs in
    /// the test's process.
    ///
    /// # Errors
    /// If the server's namespace cannot be entered.
    pub fn on_loopback(server: &ApiServer) -> anyhow::Result<Self> {
        Self::start(server, None, IpAddr::from([127, 0, 0, 1]))
    }

    fn start(server: &ApiServer, listens_in: Option<&Namespace>, address: IpAddr) -> anyhow::Result<Self> {
        let threads = Threads::inside(Some(server.namespace()))?;
        let listener = listen(listens_in, SocketAddr::new(address, 0))?;
        let (state, _) = watch::channel(State { mode: Mode::Pass, cuts: 0, freezes: 0 });
        let mut faults = Self {
            listen: listener.local_addr()?,
            listens_in: listens_in.cloned(),
            server: server.address(),
            authority: server.ca_file(),
            directory: server.directory().to_owned(),
            state,
            counts: Arc::default(),
            accepting: None,
            threads,
        };
        faults.accept(listener)?;
        Ok(faults)
    }

    /// Where it listens: `HOST:PORT`, as `BROKER_K8S_APISERVER` wants it.
    pub fn server(&self) -> String {
        self.listen.to_string()
    }

    /// Where it listens, as kubeconfigs write it.
    pub fn url(&self) -> String {
        format!("https://{}", self.listen)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// Writes a kubeconfig that leads through here, with this identity; an administrator's is [`Faults::admin`].
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn kubeconfig(&self, name: &str, identity: &Identity) -> anyhow::Result<PathBuf> {
        let path = self.directory.join(format!("{name}-{}.conf", self.listen.port()));
        std::fs::write(&path, credentials::kubeconfig(&self.url(), &self.authority, identity))?;
        Ok(path)
    }

    /// Writes an administrator's kubeconfig that leads through here.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn admin(&self) -> anyhow::Result<PathBuf> {
        let file = |name: &str| self.directory.join(name);
        let identity = Identity::Certificate { certificate: file("admin.crt"), key: file("admin.key") };
        self.kubeconfig("admin", &identity)
    }

    /// The server's authority, PEM.
    pub fn ca_file(&self) -> &Path {
        &self.authority
    }

    /// From here on, this happens.
    ///
    /// # Errors
    /// If the port cannot be taken again after [`Mode::Refuse`].
    pub fn set(&mut self, mode: Mode) -> anyhow::Result<()> {
        self.state.send_modify(|state| state.mode = mode);
        match (mode, self.accepting.take()) {
            (Mode::Refuse, Some(accepting)) => {
                accepting.abort();
                // The port is free once the task is gone.
                self.threads.run(async move {
                    let _ = accepting.await;
                })
            }
            (Mode::Refuse, None) => Ok(()),
            (_, None) => {
                let listener = listen(self.listens_in.as_ref(), self.listen)?;
                self.accept(listener)
            }
            (_, Some(accepting)) => {
                self.accepting = Some(accepting);
                Ok(())
            }
        }
    }

    /// Resets every connection that there is; new ones are not affected.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Lets every connection that there is hang for good: it stays open, and not a byte passes any more. New ones are
    /// not affected. What a firewall does that has forgotten them.
    pub fn freeze(&self) {
        self.state.send_modify(|state| state.freezes += 1);
    }

    /// Connections accepted since the start.
    pub fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::Relaxed)
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.counts.open.load(Ordering::Relaxed)
    }

    fn accept(&mut self, listener: std::net::TcpListener) -> anyhow::Result<()> {
        let (server, state, counts) = (self.server, self.state.clone(), Arc::clone(&self.counts));
        let task = async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            while let Ok((client, _)) = listener.accept().await {
                counts.accepted.fetch_add(1, Ordering::Relaxed);
                counts.open.fetch_add(1, Ordering::Relaxed);
                let (state, counts) = (state.subscribe(), Arc::clone(&counts));
                tokio::spawn(async move {
                    serve(client, server, state).await;
                    counts.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        };
        self.accepting = Some(self.threads.spawn(task)?);
        Ok(())
    }
}

/// A socket made inside a namespace stays there.
fn listen(namespace: Option<&Namespace>, address: SocketAddr) -> anyhow::Result<std::net::TcpListener> {
    let bind = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        anyhow::Ok(listener)
    };
    match namespace {
        Some(namespace) => namespace.enter(bind),
        None => bind(),
    }
}

/// One connection, until either side ends it or it is cut.
async fn serve(mut client: TcpStream, to: SocketAddr, state: watch::Receiver<State>) {
    let born = state.borrow().cuts;
    let mut cut = state.clone();
    let relayed = tokio::select! {
        relayed = relay(&mut client, to, &state) => relayed,
        _ = cut.wait_for(|state| state.cuts != born) => Err(std::io::ErrorKind::ConnectionReset.into()),
    };
    if relayed.is_err() {
        // Closed like this, the kernel sends RST; the server's side has been closed with FIN, which it takes for granted.
        let _ = client.set_zero_linger();
    }
}

async fn relay(
    client: &mut TcpStream,
    to: SocketAddr,
    state: &watch::Receiver<State>,
) -> std::io::Result<()> {
    let born = state.borrow().freezes;
    not_hanging(state, born).await;
    let mut server = TcpStream::connect(to).await?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let has_answered = AtomicBool::new(false);
    let is_greeted = AtomicBool::new(false);
    // The client's second flight is what it says after the server's first: the handshake is done then.
    let requests = pump(from_client, to_server, (state, born), || {
        if has_answered.load(Ordering::Relaxed) {
            is_greeted.store(true, Ordering::Relaxed);
        }
        Duration::ZERO
    });
    let answers = pump(from_server, to_client, (state, born), || {
        has_answered.store(true, Ordering::Relaxed);
        match state.borrow().mode {
            Mode::Delay(delay) if is_greeted.load(Ordering::Relaxed) => delay,
            Mode::Pass | Mode::Refuse | Mode::Hang | Mode::Delay(_) => Duration::ZERO,
        }
    });
    tokio::try_join!(requests, answers).map(drop)
}

/// Moves bytes in one direction; `delay` says of each piece how much later it arrives, without holding up the next. The
/// connection was made after so many freezes.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    (state, born): (&watch::Receiver<State>, u64),
    delay: impl Fn() -> Duration,
) -> std::io::Result<()> {
    let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(IN_FLIGHT);
    let read = async move {
        loop {
            let mut bytes = Vec::with_capacity(16 << 10);
            if from.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
            if sender.send((Instant::now() + delay(), bytes)).await.is_err() {
                return Ok(());
            }
        }
    };
    let write = async move {
        while let Some((due, bytes)) = pieces.recv().await {
            sleep_until(due).await;
            not_hanging(state, born).await;
            to.write_all(&bytes).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(drop)
}

async fn not_hanging(state: &watch::Receiver<State>, born: u64) {
    // An error means that the relay is being dropped, and this task with it.
    let _ = state.clone().wait_for(|state| state.mode != Mode::Hang && state.freezes == born).await;
}
