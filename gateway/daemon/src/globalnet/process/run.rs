//! The process: the controllers and their election, and a connection to the gateway on this node.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream as StdStream};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use rand_core::{OsRng, RngCore as _};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};
use trieste_control::api::{Kind, ObjectKey, ensure_valid_name};
use trieste_control::backoff::Backoff;
use trieste_control::command_line;
use trieste_control::election::{self, Candidate, ElectionConfig};
use trieste_control::globalnet::{self, GlobalnetConfig, GlobalnetHandle};
use trieste_control::logging;
use trieste_control::store::{AnyStore, Location, StoreError, modify};

use super::protocol::{
    ANNOTATION, Answer, Challenge, Hello, MAX_HELLO, Report, VERSION, hex, receive, send, socket_name,
};
use crate::host;
use zeroize::Zeroizing;

/// Ours: first and longest wait before the gateway is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// Ours: how long the gateway may take to answer: it asks the API server.
const ANSWER_TIME: Duration = Duration::from_secs(15);
/// Ours: reports are at least so far apart.
const REPORT_PAUSE: Duration = Duration::from_millis(50);
/// Upstream's pods have two seconds from being asked to being killed.
const STOP_TIME: Duration = Duration::from_millis(1500);

/// Allocates this cluster's global addresses, and sends them to the gateway on this node.
#[derive(Debug, Parser)]
#[command(name = "submariner-globalnet", version)]
struct Options {
    /// This cluster's ID.
    #[arg(long, env = "SUBMARINER_CLUSTERID", value_name = "ID")]
    cluster_id: String,
    /// The namespace of Cluster and Gateway objects.
    #[arg(long, env = "SUBMARINER_NAMESPACE", default_value = "submariner-operator")]
    namespace: String,
    /// This cluster's store: `kube:` (the cluster that this runs in) or `kube:KUBECONFIG`.
    #[arg(long, env = "TRIESTE_STORE", value_name = "LOCATION", default_value = "kube:")]
    store: String,
    /// Removes what Globalnet has made, and ends.
    #[arg(long, env = "UNINSTALL", num_args = 0..=1, default_value = "false", default_missing_value = "true")]
    uninstall: bool,
}

/// Returns `true` if this program was started by one of Globalnet's names.
#[must_use]
pub fn is_meant() -> bool {
    let name = std::env::args_os().next().unwrap_or_default();
    trieste_control::version::upstream_component(&name) == Some("submariner-globalnet")
}

/// Runs the process with these arguments until it is asked to end.
#[must_use]
pub fn main_with(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let read = command_line::matches(Options::command(), arguments, |name| std::env::var_os(name), &[]);
    let options = match read.and_then(|matches| Options::from_arg_matches(&matches)) {
        Ok(options) => options,
        Err(error) => command_line::refuse(&error),
    };
    logging::to_stderr("info");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = runtime.context("starting the runtime").and_then(|runtime| runtime.block_on(run(&options)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let reason = format!("{error:#}");
            tracing::error!(%reason, "Globalnet has ended");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let location: Location = options.store.parse().context("TRIESTE_STORE")?;
    let store = AnyStore::attach(&location);
    if options.uninstall {
        return globalnet::withdraw(&store, &options.namespace)
            .await
            .context("removing what Globalnet has made");
    }
    let hostname = host::hostname();
    let candidate = election::spawn(store.clone(), ElectionConfig::globalnet(&options.namespace, &hostname));
    let config = GlobalnetConfig {
        namespace: options.namespace.clone(),
        cluster_id: options.cluster_id.clone(),
        gateway: Some(ensure_valid_name(&hostname)),
    };
    let handle = globalnet::spawn(store.clone(), config, candidate.clone());
    tracing::info!(cluster = %options.cluster_id, hostname, "Globalnet runs beside the gateway");
    let reporter = Reporter {
        gateway: ObjectKey::new(Kind::Gateway, options.namespace.as_str(), ensure_valid_name(&hostname)),
        socket: socket_name(&options.namespace, &options.cluster_id),
        key: key_pair()?,
        store,
    };
    tokio::select! {
        never = reporter.run(&handle, &candidate) => match never {},
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    // Another node's may go on at once.
    candidate.release(STOP_TIME).await;
    tracing::info!("Globalnet stopped; the gateway continues with the last rules");
    Ok(())
}

fn key_pair() -> anyhow::Result<Ed25519KeyPair> {
    let mut seed = Zeroizing::new([0; 32]);
    OsRng.fill_bytes(&mut seed[..]);
    Ed25519KeyPair::from_seed_unchecked(&seed[..]).map_err(|error| anyhow::anyhow!("making a key: {error}"))
}

/// Sends reports to the gateway on this node.
struct Reporter {
    gateway: ObjectKey,
    socket: String,
    key: Ed25519KeyPair,
    store: AnyStore,
}

impl Reporter {
    async fn run(&self, handle: &GlobalnetHandle, candidate: &Candidate) -> std::convert::Infallible {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        let mut last = String::new();
        loop {
            match self.report(handle, candidate, &mut backoff).await {
                Ok(never) => return never,
                Err(error) => {
                    let text = format!("{error:#}");
                    // Once for each reason: a gateway that has yet to start is asked every few seconds.
                    if text != last {
                        tracing::warn!(reason = %text, "cannot send global addresses to the gateway on this node; retrying");
                        last = text;
                    }
                }
            }
            sleep(backoff.next_wait(&mut OsRng)).await;
        }
    }

    /// Proves who this is, and reports until the connection ends.
    async fn report(
        &self,
        handle: &GlobalnetHandle,
        candidate: &Candidate,
        backoff: &mut Backoff,
    ) -> anyhow::Result<std::convert::Infallible> {
        let mut stream = connect(&self.socket).context("its socket: does a Trieste gateway run here?")?;
        self.publish_key().await?;
        let challenge: Challenge =
            timeout(ANSWER_TIME, receive(&mut stream, MAX_HELLO)).await.context("no challenge")??;
        let signature = hex(self.key.sign(&challenge.message()).as_ref());
        send(&mut stream, &Hello { version: VERSION, signature }).await?;
        let answer: Answer =
            timeout(ANSWER_TIME, receive(&mut stream, MAX_HELLO)).await.context("no answer")??;
        if let Some(reason) = answer.refused {
            anyhow::bail!("refused: {reason}");
        }
        backoff.reset();
        tracing::info!("sending global addresses to the gateway on this node");
        let (mut state, mut status) = (handle.state.clone(), handle.status.clone());
        let mut election = candidate.status();
        let mut last = None;
        loop {
            let holder = election.borrow_and_update().holder.clone();
            let report = {
                let state = state.borrow_and_update().clone();
                Report::of(state.as_deref(), &status.borrow_and_update(), holder)
            };
            if last.as_ref() != Some(&report) {
                send(&mut stream, &report).await?;
                last = Some(report);
            }
            sleep(REPORT_PAUSE).await;
            // Nothing comes from there any more: what can be read is its end.
            tokio::select! {
                changed = state.changed() => changed?,
                changed = status.changed() => changed?,
                changed = election.changed() => changed?,
                ended = stream.readable() => {
                    ended?;
                    anyhow::bail!("it has closed the connection");
                }
            }
        }
    }

    /// Writes the public key onto this node's Gateway object.
    async fn publish_key(&self) -> anyhow::Result<()> {
        let key = hex(self.key.public_key().as_ref());
        let written = modify(&self.store, &self.gateway, |object| {
            object.metadata.annotations.insert(ANNOTATION.to_owned(), key.clone());
        })
        .await;
        match written {
            Ok(_) => Ok(()),
            Err(StoreError::NotFound(_)) => anyhow::bail!("there is no {} yet", self.gateway),
            Err(error) => Err(error).context("its Gateway object"),
        }
    }
}

pub(super) fn connect(name: &str) -> io::Result<UnixStream> {
    let stream = StdStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
