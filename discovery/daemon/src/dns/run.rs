//! Start, work and stop of the server.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::info;
use trieste_control::logging;
use trieste_control::pages::{self, Pages};
use trieste_control::privileges::{Capability, Needs};
use trieste_control::process::ProcessStats;
use trieste_control::signals;
use trieste_control::slots::Slots;
use trieste_control::store::AnyStore;
use trieste_dns::{Records, Writer};

use super::config::{Config, Options};
use super::counters::Counters;
use super::follow::{self, Progress};
use super::metrics::{self, Snapshot};
use super::{tcp, udp};

/// How long connections may take to end when the program does.
const LAST_ANSWERS: std::time::Duration = std::time::Duration::from_millis(500);
/// The lowest port that needs no right.
const FIRST_FREE_PORT: u16 = 1_024;

/// Runs the program: logs, settings, signals.
#[must_use]
pub fn main_with(options: &Options) -> ExitCode {
    logging::to_stderr(options.common.log.filter());
    match options.config().and_then(|config| run(&config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trieste-discovery dns: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until a signal asks to stop.
///
/// # Errors
/// An address cannot be used, or the store's reader has ended.
pub fn run(config: &Config) -> anyhow::Result<()> {
    settle_privileges(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("dns")
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let result = runtime.block_on(serve(config));
    runtime.shutdown_background();
    result
}

/// Keeps the right to use a low port, if one is needed, and drops all others, before the first thread starts.
fn settle_privileges(config: &Config) -> anyhow::Result<()> {
    let is_low = |port: u16| (1..FIRST_FREE_PORT).contains(&port);
    let needs = Needs::default().store(&config.store);
    let needs = if config.listen.iter().chain(&config.http).any(|address| is_low(address.port())) {
        needs.useful(Capability::NET_BIND_SERVICE)
    } else {
        needs
    };
    needs.check()?;
    needs.limit();
    Ok(())
}

/// The sockets.
struct Sockets {
    udp: Vec<udp::Worker>,
    tcp: Vec<TcpListener>,
    http: Vec<TcpListener>,
}

impl Sockets {
    /// Opens all of them; threads for datagrams begin.
    fn open(config: &Config, records: &Records) -> anyhow::Result<Self> {
        let settings = Arc::new(config.settings.clone());
        let http = config.http.iter().map(|address| pages::bind(*address)).collect::<Result<_, _>>()?;
        let tcp = config.listen.iter();
        let tcp = tcp
            .map(|address| tcp::bind(*address).with_context(|| format!("cannot listen at {address} (TCP)")))
            .collect::<anyhow::Result<_>>()?;
        let mut udp = Vec::new();
        for address in &config.listen {
            let workers = udp::begin(*address, config.threads, records, &settings);
            udp.extend(workers.with_context(|| format!("cannot listen at {address} (UDP)"))?);
        }
        Ok(Self { udp, tcp, http })
    }
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let stop_signal = signals::stop().context("watching for SIGTERM and SIGINT")?;
    let (writer, records) = Writer::new(config.cluster.clone());
    let store = AnyStore::attach(&config.store);
    let (progress, read) = watch::channel(Progress::default());
    let Sockets { udp, tcp, http } = Sockets::open(config, &records)?;
    let server = Arc::new(tcp::Server::new(records.clone(), Arc::new(config.settings.clone())));
    let (stop, is_stopping) = watch::channel(false);
    let pages = Arc::new(State {
        cluster: config.cluster.to_string(),
        records,
        udp: udp.iter().map(|worker| Arc::clone(&worker.state)).collect(),
        server: Arc::clone(&server),
        store: store.clone(),
        progress: read,
        slots: Arc::default(),
        started: Timestamp::now(),
        is_ending: OnceLock::new(),
    });
    for listener in http {
        tokio::spawn(pages::serve(listener, Arc::clone(&pages.slots), Arc::clone(&pages)));
    }
    for listener in tcp {
        tokio::spawn(tcp::serve(listener, Arc::clone(&server), is_stopping.clone()));
    }
    drop(is_stopping);
    info!(
        version = env!("CARGO_PKG_VERSION"), cluster = %config.cluster, store = %config.store,
        addresses = ?config.listen, threads = udp.len(), "dns server started"
    );
    let (namespace, local) = (config.namespace.clone(), config.cluster.clone());
    let follower =
        tokio::spawn(async move { follow::follow(&store, &namespace, local, writer, &progress).await });
    tokio::select! {
        () = stop_signal => {}
        // It never ends by itself. Going on would mean to hold on to records that grow old.
        ended = follower => anyhow::bail!("the reader of the store ended: {ended:?}"),
    }
    let _ = pages.is_ending.set(());
    info!(seconds = config.drain.as_secs(), "dns server ends; queries are answered meanwhile");
    sleep(config.drain).await;
    let _ = stop.send(true);
    // Threads answer what they have; they end within moments.
    tokio::task::spawn_blocking(move || udp.into_iter().for_each(udp::Worker::stop))
        .await
        .context("ending the threads for datagrams")?;
    drop(timeout(LAST_ANSWERS, stop.closed()).await);
    info!("dns server stopped");
    Ok(())
}

/// What the pages are about.
struct State {
    cluster: String,
    records: Records,
    udp: Vec<Arc<udp::State>>,
    server: Arc<tcp::Server>,
    store: AnyStore,
    progress: watch::Receiver<Progress>,
    slots: Arc<Slots>,
    started: Timestamp,
    is_ending: OnceLock<()>,
}

impl Pages for State {
    fn health(&self) -> Result<String, String> {
        let is_ending = self.is_ending.get().is_some();
        let ended = self.udp.iter().filter(|state| state.has_ended()).count();
        if ended > 0 && !is_ending {
            return Err(format!("{ended} of {} threads for datagrams have ended", self.udp.len()));
        }
        Ok("OK".to_owned())
    }

    fn ready(&self) -> Result<String, String> {
        if self.is_ending.get().is_some() {
            return Err("this server ends".to_owned());
        }
        if self.records.is_synced() {
            return Ok("OK".to_owned());
        }
        let progress = self.progress.borrow();
        let kinds: Vec<String> = progress
            .missing
            .iter()
            .map(|kind| match progress.errors.get(kind) {
                Some(error) => format!("{} ({error})", kind.plural()),
                None => kind.plural().to_owned(),
            })
            .collect();
        Err(format!("not read yet: {}", kinds.join(", ")))
    }

    fn metrics(&self) -> String {
        let progress = self.progress.borrow().clone();
        let counters: Vec<&Counters> =
            self.udp.iter().map(|state| &state.counters).chain([&self.server.counters]).collect();
        metrics::render(&Snapshot {
            cluster: &self.cluster,
            records: &self.records,
            counters: &counters,
            progress: &progress,
            connections: self.server.connections(),
            refused: self.slots.refused(),
            requests: self.store.requests(),
            process: ProcessStats::read(),
            started: self.started,
        })
    }
}
