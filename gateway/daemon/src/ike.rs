//! The slow half that all IPsec cables share, on a thread of its own, so that key agreement does not delay packets.
//!
//! ```text
//!   gates ── of peers ─────▶┐
//!         ── of strangers ─▶│                       ┌─▶ datagrams, through a worker
//!   kind ── cables ────────▶│ turn: engine, timers ─┼─▶ "handle your lane", to its worker
//!   admin ── secrets? ─────▶┘                       └─▶ shared: reports, failures, events in the log
//! ```
//!
//! A panic inside a turn costs the message that caused it: it is caught, logged and counted, and does not affect packets.
//! After several of them in a short time the gateway ends, and is restarted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use crossbeam::channel::{Receiver, Sender, bounded, select, unbounded};
use tokio::sync::mpsc;
use trieste_cables::ipsec::SlowHalf;
use trieste_cables::ipsec::ike::{EngineConfig, EngineLoad, IkeEvent, Input, PeerReport, SaSecrets};
use trieste_packet::LaneId;
use trieste_pipeline::{LaneCommand, owner_of};

use crate::worker::{Command, WorkerHandle, panic_message};

/// Interval at which reports are published without events, and the longest wait.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(500);
/// Ours: how long reports rest for each peer that they are about, so that with very many they take a quarter of a percent of
/// a core.
const PUBLISH_PACE: Duration = Duration::from_millis(2);
/// Ours: how long they rest at most.
const PUBLISH_REST_MAX: Duration = Duration::from_secs(5);
/// Largest number of inputs of a kind per turn, so that timers and transmissions get their share.
const INPUT_BUDGET: usize = 64;
/// Panics within [`PANIC_WINDOW`] at which the gateway ends.
const PANIC_LIMIT: usize = 8;
const PANIC_WINDOW: Duration = Duration::from_secs(10);
/// Largest number of subscriptions to secrets that are waiting.
const SUBSCRIBERS_MAX: usize = 8;
/// Sets of secrets that are queued for a slow subscriber; a dropped one is contained in the next.
const SECRETS_QUEUE: usize = 64;
/// Largest number of reasons for failures that are counted separately.
const REASONS: usize = 32;
/// Ours: how long the Endpoint of a new gateway may take to reach a peer, which rejects the gateway until then.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);
/// The notification of a peer that rejects an identity (RFC 7296 section 2.21.2).
const UNKNOWN_TO_PEER: &str = "AUTHENTICATION_FAILED (peer)";
/// Largest number of failures of a cable that are logged until it is up again.
const MAX_LOGGED: usize = 64;
/// Label for all other reasons.
const OTHER_REASONS: &str = "other";

/// State that the thread publishes.
#[derive(Debug)]
pub struct IkeShared {
    reports: ArcSwap<Vec<PeerReport>>,
    load: Arc<EngineLoad>,
    failures: Mutex<BTreeMap<String, u64>>,
    panics: AtomicU64,
}

/// A handle to the thread.
#[derive(Debug, Clone)]
pub struct IkeHandle {
    shared: Arc<IkeShared>,
    subscriptions: Sender<SecretsSubscriber>,
    times: Sender<EngineConfig>,
}

/// Receives the keys of all SAs: at once, and whenever they change.
type SecretsSubscriber = mpsc::Sender<Vec<SaSecrets>>;

/// Counters of the IKE engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IkeNumbers {
    /// IKE SAs that peers have initiated and that are not authenticated yet.
    pub half_open: u64,
    /// Events by name.
    pub counts: Vec<(&'static str, u64)>,
    /// Failed negotiations by reason.
    pub failures: Vec<(String, u64)>,
    /// Panics that were caught.
    pub panics: u64,
}

impl IkeHandle {
    /// Returns the reports about all peers; up to half a second old; with a thousand peers two seconds.
    #[must_use]
    pub fn reports(&self) -> Arc<Vec<PeerReport>> {
        self.shared.reports.load_full()
    }

    /// Returns the counters.
    #[must_use]
    pub fn numbers(&self) -> IkeNumbers {
        let failures = self.shared.failures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        IkeNumbers {
            half_open: self.shared.load.half_open.load(Ordering::Relaxed),
            counts: self.shared.load.counts(),
            failures: failures.into_iter().collect(),
            panics: self.shared.panics.load(Ordering::Relaxed),
        }
    }

    /// Has the engine go by the times of another configuration. A thread that has ended needs none.
    pub fn take_times(&self, times: EngineConfig) {
        let _ = self.times.send(times);
    }

    /// Subscribes to the keys of all SAs: the receiver gets them at once, and whenever they change, including SAs that were
    /// made and deleted in between. Ends when it is dropped. `None` if there are too many subscriptions.
    #[must_use]
    pub fn subscribe_secrets(&self) -> Option<mpsc::Receiver<Vec<SaSecrets>>> {
        let (subscriber, secrets) = mpsc::channel(SECRETS_QUEUE);
        self.subscriptions.try_send(subscriber).ok()?;
        Some(secrets)
    }
}

/// Starts the thread. An unexpected end is sent to `ended`.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn spawn(
    slow: SlowHalf,
    workers: Vec<WorkerHandle>,
    ended: mpsc::UnboundedSender<anyhow::Error>,
) -> anyhow::Result<IkeHandle> {
    let (mut thread, handle) = Ike::new(slow, workers, Instant::now());
    std::thread::Builder::new()
        .name("ike".to_owned())
        .spawn(move || {
            if let Err(error) = thread.run() {
                // The receiver is dropped while the gateway stops.
                let _ = ended.send(error);
            }
        })
        .context("starting the thread for IKE")?;
    Ok(handle)
}

/// The thread.
struct Ike {
    slow: SlowHalf,
    workers: Vec<WorkerHandle>,
    shared: Arc<IkeShared>,
    subscriptions: Receiver<SecretsSubscriber>,
    times: Receiver<EngineConfig>,
    subscribers: Vec<SecretsSubscriber>,
    /// The keys that were sent to subscribers last; empty without any.
    published: Vec<SaSecrets>,
    /// Names of cables, for the log.
    names: BTreeMap<LaneId, String>,
    /// The reasons that were logged for each lane since it was last up: each is logged once, not at every attempt.
    logged: BTreeMap<LaneId, BTreeSet<(String, String)>>,
    /// Start of the cables that have not been up yet.
    begun: BTreeMap<LaneId, Instant>,
    panics: VecDeque<Instant>,
    next_publish: Instant,
    /// Before this, reports are not published again, whatever has changed.
    rested: Instant,
}

impl Ike {
    fn new(slow: SlowHalf, workers: Vec<WorkerHandle>, now: Instant) -> (Self, IkeHandle) {
        let shared = Arc::new(IkeShared {
            reports: ArcSwap::default(),
            load: slow.engine.load(),
            failures: Mutex::default(),
            panics: AtomicU64::new(0),
        });
        let (subscriptions, subscribed) = bounded(SUBSCRIBERS_MAX);
        let (sender, times) = unbounded();
        let handle = IkeHandle { shared: Arc::clone(&shared), subscriptions, times: sender };
        let thread = Self {
            slow,
            workers,
            shared,
            subscriptions: subscribed,
            times,
            subscribers: Vec::new(),
            published: Vec::new(),
            names: BTreeMap::new(),
            logged: BTreeMap::new(),
            begun: BTreeMap::new(),
            panics: VecDeque::new(),
            next_publish: now,
            rested: now,
        };
        (thread, handle)
    }

    /// Runs until the kind of cable is gone.
    fn run(&mut self) -> anyhow::Result<()> {
        loop {
            let now = Instant::now();
            let due = self.slow.engine.poll_timeout();
            let until = due.map_or(self.next_publish, |due| due.min(self.next_publish));
            let mut first = None;
            select! {
                recv(self.slow.orders) -> input => match input {
                    Ok(input) => first = Some(input),
                    Err(_) => return Ok(()),
                },
                recv(self.slow.messages) -> input => first = input.ok(),
                recv(self.slow.strangers) -> input => first = input.ok(),
                recv(self.subscriptions) -> ask => {
                    if let Ok(subscriber) = ask {
                        let _ = subscriber.try_send(self.slow.engine.secrets());
                        self.subscribers.push(subscriber);
                    }
                }
                recv(self.times) -> times => times.into_iter().for_each(|times| self.slow.engine.take_times(&times)),
                default(until.saturating_duration_since(now)) => {}
            }
            let now = Instant::now();
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.turn(first, now))) {
                self.recover(&panic_message(&*panic), now)?;
            }
        }
    }

    /// Handles inputs and timers, and passes on events and transmissions.
    fn turn(&mut self, first: Option<Input>, now: Instant) {
        let mut has_changed = false;
        if let Some(input) = first {
            has_changed |= self.take(input, now);
        }
        // Orders come first: a message may belong to a new cable.
        for _ in 0..INPUT_BUDGET {
            let Ok(input) = self.slow.orders.try_recv() else { break };
            has_changed |= self.take(input, now);
        }
        // A stranger's message, which may cost a key agreement, is handled only if no peer's message is waiting.
        for _ in 0..INPUT_BUDGET {
            let next = self.slow.messages.try_recv().or_else(|_| self.slow.strangers.try_recv());
            let Ok(input) = next else { break };
            self.take(input, now);
        }
        if self.slow.engine.poll_timeout().is_some_and(|due| due <= now) {
            self.slow.engine.handle_timeout(now);
        }
        while let Some(event) = self.slow.engine.poll_event() {
            has_changed |= !matches!(event, IkeEvent::Poke(_));
            self.follow(event, now);
        }
        while let Some(transmit) = self.slow.engine.poll_transmit() {
            tracing::debug!(peer = %transmit.outer.peer, message = %headline(transmit.payload.get(4..).unwrap_or_default()), "IKE message sent");
            // With a single worker, messages keep their order.
            if let Some(worker) = self.workers.first() {
                worker.command(Command::Transmit(transmit));
            }
        }
        self.publish_secrets();
        self.publish_reports(has_changed, now);
    }

    /// Publishes reports about all peers if something has changed, or it is time.
    fn publish_reports(&mut self, has_changed: bool, now: Instant) {
        if has_changed {
            self.next_publish = self.next_publish.min(self.rested);
        }
        if now < self.next_publish {
            return;
        }
        let reports = self.slow.engine.report(now);
        let peers = u32::try_from(reports.len()).unwrap_or(u32::MAX);
        self.shared.reports.store(Arc::new(reports));
        self.rested = now + PUBLISH_PACE.saturating_mul(peers).min(PUBLISH_REST_MAX);
        self.next_publish = self.rested.max(now + PUBLISH_INTERVAL);
    }

    /// Handles an input. Returns `true` if the set of cables has changed.
    fn take(&mut self, input: Input, now: Instant) -> bool {
        let has_changed = match &input {
            Input::Connect(config, ..) => {
                self.names.insert(config.lane, config.name.clone());
                self.logged.remove(&config.lane);
                self.begun.insert(config.lane, now);
                true
            }
            Input::Disconnect(lane) => {
                self.names.remove(lane);
                self.logged.remove(lane);
                self.begun.remove(lane);
                true
            }
            Input::Datagram { message, from } => {
                tracing::debug!(peer = %from.peer, message = %headline(message), "IKE message received");
                false
            }
            Input::SetAddress(..) | Input::Rekey(_) => false,
            Input::SetNetworks { lane, .. } => {
                self.logged.remove(lane);
                true
            }
        };
        self.slow.engine.handle_input(input, now);
        has_changed
    }

    fn follow(&mut self, event: IkeEvent, now: Instant) {
        match event {
            IkeEvent::Poke(lane) => {
                let owner = owner_of(lane);
                if let Some(worker) = self.workers.iter().find(|worker| worker.id == owner) {
                    worker.command(Command::Lane(LaneCommand::Look { lane }));
                }
            }
            IkeEvent::Up { lane } => {
                self.logged.remove(&lane);
                self.begun.remove(&lane);
                tracing::info!(cable = self.name(lane), "IPsec: packets can be sealed");
            }
            // Its cable was removed: there are no further attempts.
            IkeEvent::Down { lane, .. } if self.name(lane).is_empty() => {}
            IkeEvent::Down { lane, reason } => {
                tracing::warn!(cable = self.name(lane), %reason, "IPsec: no child SA is left; retrying");
            }
            IkeEvent::Failed { lane, reason } => {
                self.count(&reason);
                let is_fresh = self
                    .begun
                    .get(&lane)
                    .is_some_and(|at| now.saturating_duration_since(*at) < ENDPOINT_TIMEOUT);
                if is_fresh && reason == UNKNOWN_TO_PEER {
                    tracing::info!(
                        cable = self.name(lane),
                        "IPsec: the peer does not have this gateway's Endpoint yet; retrying"
                    );
                } else if self.is_new(lane, "", &reason) {
                    tracing::warn!(cable = self.name(lane), %reason, "IPsec: the negotiation failed; retrying");
                }
            }
            IkeEvent::ChildFailed { lane, selectors, reason } => {
                self.count(&reason);
                if self.is_new(lane, &selectors, &reason) {
                    tracing::warn!(cable = self.name(lane), %selectors, %reason, "IPsec: cannot create a child SA; retrying");
                }
            }
        }
    }

    /// Sends the keys to subscribers, if they have changed.
    fn publish_secrets(&mut self) {
        self.subscribers.retain(|subscriber| !subscriber.is_closed());
        if self.subscribers.is_empty() {
            self.published = Vec::new();
            return;
        }
        let secrets = self.slow.engine.secrets();
        if secrets != self.published {
            for subscriber in &self.subscribers {
                let _ = subscriber.try_send(secrets.clone());
            }
            self.published = secrets;
        }
    }

    fn name(&self, lane: LaneId) -> &str {
        self.names.get(&lane).map_or("", String::as_str)
    }

    /// Returns `true`, once, for each reason and part of a cable; `false` if too many are logged.
    fn is_new(&mut self, lane: LaneId, part: &str, reason: &str) -> bool {
        let logged = self.logged.entry(lane).or_default();
        logged.len() < MAX_LOGGED && logged.insert((part.to_owned(), reason.to_owned()))
    }

    fn count(&self, reason: &str) {
        let mut failures = self.shared.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let label = label(reason);
        let label =
            if failures.len() < REASONS || failures.contains_key(label) { label } else { OTHER_REASONS };
        *failures.entry(label.to_owned()).or_default() += 1;
    }

    /// Recovers from a panic; fails after too many.
    fn recover(&mut self, message: &str, now: Instant) -> anyhow::Result<()> {
        self.shared.panics.fetch_add(1, Ordering::Relaxed);
        tracing::error!(panic = message, "IKE: panic while handling a message; cables stay as they are");
        self.panics.push_back(now);
        while self.panics.front().is_some_and(|at| now.saturating_duration_since(*at) > PANIC_WINDOW) {
            self.panics.pop_front();
        }
        if self.panics.len() >= PANIC_LIMIT {
            let seconds = PANIC_WINDOW.as_secs();
            anyhow::bail!("IKE: {PANIC_LIMIT} panics within {seconds} s, the last one: {message}");
        }
        Ok(())
    }
}

/// Formats the header of a message, which is in clear: SPIs, exchange, direction, number (RFC 7296 section 3.1).
fn headline(message: &[u8]) -> String {
    let Some(header) = message.first_chunk::<28>() else { return format!("{} bytes", message.len()) };
    let word = |at: usize| header[at..at + 4].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let exchange = match header[18] {
        34 => "IKE_SA_INIT".to_owned(),
        35 => "IKE_AUTH".to_owned(),
        36 => "CREATE_CHILD_SA".to_owned(),
        37 => "INFORMATIONAL".to_owned(),
        other => format!("exchange {other}"),
    };
    let kind = if header[19] & 0x20 == 0 { "request" } else { "response" };
    let number = u32::from_be_bytes([header[20], header[21], header[22], header[23]]);
    let spis = format!("{}{}_i {}{}_r", word(0), word(4), word(8), word(12));
    format!("{exchange} {kind} {number}, {spis}, {} bytes", message.len())
}

/// Returns the label of a counter for a reason: the notification's name, or `local`.
fn label(reason: &str) -> &str {
    let end = reason.find([' ', ':', ',', '(']).unwrap_or(reason.len());
    let word = &reason[..end];
    let is_notify = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    if is_notify { word } else { "local" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_counted_by_the_notifys_name() {
        assert_eq!(label("AUTHENTICATION_FAILED (peer)"), "AUTHENTICATION_FAILED");
        assert_eq!(label("TS_UNACCEPTABLE: 10.1.0.0/16"), "TS_UNACCEPTABLE");
        assert_eq!([label("no answer for 60 s"), label("")], ["local", "local"]);
    }

    #[test]
    fn a_message_is_logged_by_its_header_alone() {
        let mut message = vec![0x11; 40];
        (message[18], message[19]) = (36, 0x20);
        message[20..24].copy_from_slice(&[0, 0, 1, 2]);
        assert_eq!(
            headline(&message),
            "CREATE_CHILD_SA response 258, 1111111111111111_i 1111111111111111_r, 40 bytes"
        );
        assert_eq!(headline(&message[..9]), "9 bytes");
    }
}
