//! The gateway's side: receives what a Globalnet process on this node says, if it is the one that this node's Gateway object
//! names.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use rand_core::{OsRng, RngCore as _};
use ring::signature::{ED25519, UnparsedPublicKey};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use trieste_control::api::{Kind, ObjectKey, ensure_valid_name};
use trieste_control::globalnet::GlobalnetState;
use trieste_control::store::{AnyStore, Store as _};

use super::protocol::{
    ANNOTATION, Answer, CHALLENGE_BYTES, Challenge, Hello, MAX_HELLO, MAX_REPORT, Report, VERSION, Work, hex,
    receive, send, socket_name, unhex,
};

/// Ours: how many may be saying who they are, and for how long.
const HANDSHAKES: usize = 4;
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// Ours: how soon a socket that somebody else has is tried again, and how far answers to strangers are apart.
const RETRY: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(250);

/// The last report of a process, and whether it is connected.
#[derive(Debug, Clone, Default)]
pub(crate) struct Received {
    /// Whether it is connected.
    pub(crate) is_connected: bool,
    /// The state to translate by.
    pub(crate) state: Option<Arc<GlobalnetState>>,
    /// Its status, from the first report on.
    pub(crate) work: Option<Work>,
    /// Why nobody can connect, if so.
    pub(crate) problem: Option<String>,
}

/// The socket. Dropped, it is closed, and who was connected is gone.
pub(crate) struct Server {
    /// The received reports.
    pub(crate) received: watch::Receiver<Received>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The identity that a process has to prove.
#[derive(Clone)]
struct Door {
    store: AnyStore,
    gateway: ObjectKey,
    received: watch::Sender<Received>,
    /// The connection that is received: a newer one takes its place.
    current: watch::Sender<u64>,
}

impl Server {
    /// Opens the socket of this cluster in the network namespace, and tries on where somebody else has it.
    pub(crate) fn open(namespace: &str, cluster: &str, hostname: &str, store: &AnyStore) -> Self {
        let (sender, received) = watch::channel(Received::default());
        let name = socket_name(namespace, cluster);
        let gateway = ObjectKey::new(Kind::Gateway, namespace, ensure_valid_name(hostname));
        let current = watch::channel(0).0;
        let door = Door { store: store.clone(), gateway, received: sender, current };
        Self { received, task: tokio::spawn(listen(name, door)) }
    }
}

async fn listen(name: String, door: Door) {
    let listener = loop {
        match bind(&name) {
            Ok(listener) => break listener,
            Err(error) => {
                let problem = format!(
                    "the socket @{name}, at which a Globalnet process could tell of its work: {error}"
                );
                door.received.send_modify(|received| received.problem = Some(problem));
                sleep(RETRY).await;
            }
        }
    };
    door.received.send_modify(|received| received.problem = None);
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        // Those who say nothing keep others out for as long as they may, and no longer.
        let Ok(handshake) = Arc::clone(&handshakes).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "Globalnet's socket takes no connection");
                sleep(PAUSE).await;
                continue;
            }
        };
        // Globalnet's own runs as root, as ours does; others could only keep it waiting.
        let own = nix::unistd::geteuid().as_raw();
        if !stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own) {
            continue;
        }
        let door = door.clone();
        tokio::spawn(async move {
            let mut stream = stream;
            let proven = timeout(HANDSHAKE_TIME, door.authenticate(&mut stream)).await;
            match proven {
                Ok(Ok(())) => {
                    drop(handshake);
                    door.receive_reports(stream).await;
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "rejected a Globalnet process on this node");
                    // Limits guessing, and requests to the API server through us.
                    sleep(PAUSE).await;
                }
                Err(_) => {}
            }
        });
    }
}

fn bind(name: &str) -> io::Result<UnixListener> {
    let listener = StdListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

impl Door {
    /// Authenticates the process.
    async fn authenticate(&self, stream: &mut UnixStream) -> io::Result<()> {
        let mut bytes = [0; CHALLENGE_BYTES];
        OsRng.fill_bytes(&mut bytes);
        let challenge = Challenge { version: VERSION, bytes: hex(&bytes) };
        send(stream, &challenge).await?;
        let hello: Hello = receive(stream, MAX_HELLO).await?;
        let refused = self.refusal(&challenge, &hello).await;
        send(stream, &Answer { refused: refused.clone() }).await?;
        refused.map_or(Ok(()), |reason| Err(io::Error::new(io::ErrorKind::PermissionDenied, reason)))
    }

    /// Returns why a process is rejected.
    async fn refusal(&self, challenge: &Challenge, hello: &Hello) -> Option<String> {
        if hello.version != VERSION {
            let own = VERSION;
            return Some(format!(
                "it speaks version {}, this gateway {own}: use one image for both",
                hello.version
            ));
        }
        let gateway = match self.store.get(&self.gateway).await {
            Ok(gateway) => gateway,
            Err(error) => return Some(error.to_string()),
        };
        let known = gateway.and_then(|object| object.metadata.annotations.get(ANNOTATION).cloned());
        let (key, signature) = (known.as_deref().and_then(unhex), unhex(&hello.signature));
        let is_right = key.zip(signature).is_some_and(|(key, signature)| {
            UnparsedPublicKey::new(&ED25519, key).verify(&challenge.message(), &signature).is_ok()
        });
        (!is_right).then(|| format!("the annotation {ANNOTATION} of {} has another key", self.gateway))
    }

    /// Receives what a process reports until it goes or another one comes.
    async fn receive_reports(&self, mut stream: UnixStream) {
        let mut current = self.current.subscribe();
        let mut number = 0;
        self.current.send_modify(|last| {
            *last += 1;
            number = *last;
        });
        tracing::info!("connected to the Globalnet process on this node");
        self.received.send_modify(|received| received.is_connected = true);
        loop {
            let report = tokio::select! {
                report = receive::<Report>(&mut stream, MAX_REPORT) => report,
                _ = current.wait_for(|last| *last != number) => return,
            };
            match report {
                Ok(report) => {
                    let Report { state, work, .. } = report.whole();
                    let state = state.map(Arc::new);
                    self.received.send_modify(|received| {
                        (received.state, received.work) = (state, Some(work));
                    });
                }
                Err(error) => {
                    if error.kind() != io::ErrorKind::UnexpectedEof {
                        tracing::warn!(%error, "a report of the Globalnet process cannot be read");
                    }
                    break;
                }
            }
        }
        if *self.current.borrow() == number {
            tracing::warn!(
                "the Globalnet process on this node has disconnected; translation continues with the last rules"
            );
            self.received.send_modify(|received| received.is_connected = false);
        }
    }
}
