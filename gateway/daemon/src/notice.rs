//! Notices to this cluster's route agents: this gateway's own state and that of its siblings, without delay.
//!
//! ```text
//!   pipeline's path table ──▶ ┌────────────────┐ ──notices──▶ route agents
//!   control loop ───────────▶ │ thread, socket │ ◀──hellos─── UDP 4801
//!                             └────────────────┘
//! ```
//!
//! [`trieste_control::notice`] decides when to send which notice to which agents. The worker that writes to the path table
//! wakes the thread that sends, which is a separate one, so that the control loop never delays a notice.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand_core::{OsRng, RngCore as _};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::sleep_until;
use trieste_control::admin::Severity;
use trieste_control::api::NoticeKey;
use trieste_control::conditions::Conditions;
use trieste_control::notice::message::{MAX_DATAGRAM, challenge};
use trieste_control::notice::{Answer, GatewayKey, PublicKey, Sender, SigningKey, State, Subscribers, Word};
use trieste_control::udp;
use trieste_packet::CableId;
use trieste_pipeline::{Board, PathState};
use zeroize::Zeroizing;

use crate::marks::OUTER_MARK;
use crate::state;

/// Ours: how soon a socket that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Ours: a condition's name.
const NOT_SENT: &str = "NoticesNotSent";
/// The file with the seed of the key pair and the number of the last run.
const FILE: &str = "notice.key";

/// The subjects of notices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subjects {
    /// The cables to the other gateways of this cluster.
    pub siblings: BTreeMap<GatewayKey, CableId>,
    /// The cables to gateways of remote clusters.
    pub remote: BTreeSet<CableId>,
    /// Whether others are to be preferred.
    pub stage: Stage,
}

/// Where a gateway is in its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    /// It takes flows.
    #[default]
    Serving,
    /// It has just started: others are to be preferred, and it speaks against none of them, as they may still be replacing
    /// the cables to the process before.
    Starting,
    /// It hands its flows over.
    Draining,
}

impl Stage {
    /// Returns `true` if a sibling with this path state is announced as up at this stage.
    fn hides_outage(self, state: PathState) -> bool {
        match self {
            Self::Serving => false,
            Self::Starting => true,
            // A path that is held works, and its far end is better than we are: a flap is not held against who takes over.
            Self::Draining => state == PathState::Held,
        }
    }
}

/// How many notices were sent, and to how many agents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoticeNumbers {
    /// Datagrams.
    pub sent: u64,
    /// Datagrams that the kernel did not take.
    pub failed: u64,
    /// Agents at present.
    pub agents: usize,
}

#[derive(Debug, Default)]
struct Counters {
    sent: AtomicU64,
    failed: AtomicU64,
    agents: AtomicUsize,
    has_hello: AtomicBool,
}

/// The notices of this gateway. Ends when it is dropped.
#[derive(Debug)]
pub struct Notices {
    key: PublicKey,
    subjects: watch::Sender<Subjects>,
    counters: Arc<Counters>,
}

impl Notices {
    /// Starts to listen at `local`, the address at which route agents know this gateway, and to speak, at once when
    /// `changes` announces a change of the path table. With port 0 no notices are sent.
    ///
    /// # Errors
    /// There can be no more threads.
    pub fn start(
        cable_name: &str,
        local: SocketAddr,
        state_dir: Option<&Path>,
        (path_table, changes): (Arc<Board>, watch::Receiver<u64>),
        conditions: Conditions,
    ) -> io::Result<Self> {
        let (signing, boot) = identity(state_dir);
        let key = signing.public();
        let sender = Sender::new(GatewayKey::of_cable(cable_name), signing, boot, Instant::now());
        let (subjects, watched) = watch::channel(Subjects::default());
        let counters = Arc::new(Counters::default());
        let notifier = Notifier {
            own: local.ip(),
            sender,
            subscribers: Subscribers::new(random()),
            path_table,
            counters: Arc::clone(&counters),
        };
        if local.port() != 0 {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let run = move || runtime.block_on(notifier.run(local, watched, changes, &conditions));
            std::thread::Builder::new().name("notices".to_owned()).spawn(run)?;
        }
        Ok(Self { key, subjects, counters })
    }

    /// Returns the key with which agents verify this gateway's notices, for its further Endpoint.
    #[must_use]
    pub fn key(&self) -> NoticeKey {
        self.key.0
    }

    /// Returns the counters of notices.
    #[must_use]
    pub fn numbers(&self) -> NoticeNumbers {
        let Counters { sent, failed, agents, .. } = &*self.counters;
        NoticeNumbers {
            sent: sent.load(Ordering::Relaxed),
            failed: failed.load(Ordering::Relaxed),
            agents: agents.load(Ordering::Relaxed),
        }
    }

    /// Sets the cables that notices report about.
    pub fn set_paths(&self, siblings: BTreeMap<GatewayKey, CableId>, remote: BTreeSet<CableId>) {
        self.subjects.send_if_modified(|last| {
            let changed = last.siblings != siblings || last.remote != remote;
            (last.siblings, last.remote) = (siblings, remote);
            changed
        });
    }

    /// Returns `true` once the route agent of this gateway's own node has sent a hello: then it has configured the node for this
    /// gateway.
    #[must_use]
    pub fn has_hello(&self) -> bool {
        self.counters.has_hello.load(Ordering::Relaxed)
    }

    /// Sets the stage, which announces whether other gateways are preferred, and why.
    pub fn set_stage(&self, stage: Stage) {
        self.subjects.send_if_modified(|last| std::mem::replace(&mut last.stage, stage) != stage);
    }
}

/// Returns the content of a gateway's notice about itself and its siblings, by the path table.
#[must_use]
pub fn word(paths: &Subjects, path_table: &Board) -> Word {
    let of_sibling = |state| if paths.stage.hides_outage(state) { State::Up } else { published_state(state) };
    let siblings = paths.siblings.iter().map(|(key, cable)| (*key, of_sibling(path_table.state(*cable))));
    let states = |cables: &mut dyn Iterator<Item = &CableId>| -> Vec<PathState> {
        cables.map(|cable| path_table.state(*cable)).collect()
    };
    let (near, far) = (states(&mut paths.siblings.values()), states(&mut paths.remote.iter()));
    let is_cut = |states: &[PathState]| !states.is_empty() && states.iter().all(|s| *s == PathState::Down);
    // With nobody to reach nothing can be wrong with it.
    let is_down = is_cut(&far) && (near.is_empty() || is_cut(&near));
    let is_watched = |state: &&PathState| **state != PathState::Unwatched;
    // A path to a sibling that is reported down is not counted, nor does the sibling count it: so healths can be compared.
    let trusted = near.iter().filter(|state| of_sibling(**state) == State::Up).chain(&far);
    let usable = trusted.filter(is_watched).filter(|state| state.is_passable()).count();
    let watched = near.iter().chain(&far).filter(is_watched).count();
    let health = (usable * 255).checked_div(watched).and_then(|health| u8::try_from(health).ok());
    let state = match (is_down, paths.stage) {
        (true, _) => State::Down,
        (false, Stage::Starting | Stage::Draining) => State::Draining,
        (false, Stage::Serving) => State::Up,
    };
    Word { state, health: health.unwrap_or(u8::MAX), siblings: siblings.collect() }
}

/// Returns a sibling's announced state. One whose path is held is announced as down, as we do not use it; a draining one
/// announces that itself.
fn published_state(state: PathState) -> State {
    match state {
        PathState::Down | PathState::Held => State::Down,
        PathState::Unwatched | PathState::Up | PathState::Draining => State::Up,
    }
}

/// Sends notices to the route agents that ask for them, on a thread of its own.
struct Notifier {
    own: IpAddr,
    sender: Sender,
    subscribers: Subscribers,
    path_table: Arc<Board>,
    counters: Arc<Counters>,
}

impl Notifier {
    /// Runs until nobody says any more what notices are about.
    async fn run(
        mut self,
        local: SocketAddr,
        mut subjects: watch::Receiver<Subjects>,
        mut changes: watch::Receiver<u64>,
        conditions: &Conditions,
    ) {
        let Some(socket) = open(local, &mut subjects, conditions).await else { return };
        let mut buffer = [0; MAX_DATAGRAM + 1];
        loop {
            self.send_notices(&socket, &subjects);
            tokio::select! {
                // Changes come before everything else.
                biased;
                // Workers outlive this thread; where they do not, nothing changes any more.
                Ok(()) = changes.changed() => {}
                changed = subjects.changed() => if changed.is_err() {
                    return;
                },
                received = socket.recv_from(&mut buffer) => if let Ok((length, from)) = received {
                    self.handle_datagram(&socket, &buffer[..length], from);
                },
                () = sleep_until(self.sender.poll_timeout().into()) => {}
            }
        }
    }

    /// Sends what is due.
    fn send_notices(&mut self, socket: &UdpSocket, subjects: &watch::Receiver<Subjects>) {
        let now = Instant::now();
        let word = word(&subjects.borrow(), &self.path_table);
        self.sender.update(&word, now);
        self.subscribers.expire(now);
        self.counters.agents.store(self.subscribers.len(), Ordering::Relaxed);
        while let Some(datagram) = self.sender.poll_transmit(now) {
            for agent in self.subscribers.iter() {
                count(&self.counters, &socket.try_send_to(datagram, agent));
            }
        }
    }

    fn handle_datagram(&mut self, socket: &UdpSocket, datagram: &[u8], from: SocketAddr) {
        let answer = self.subscribers.take(datagram, from, Instant::now());
        if matches!(answer, Answer::Welcome | Answer::Renewed) && from.ip() == self.own {
            self.counters.has_hello.store(true, Ordering::Relaxed);
        }
        let sent = match answer {
            Answer::Challenge(cookie) => socket.try_send_to(&challenge(cookie), from),
            Answer::Welcome => match self.sender.newest() {
                Some(newest) => socket.try_send_to(newest, from),
                None => return,
            },
            Answer::Renewed | Answer::Nothing => return,
        };
        count(&self.counters, &sent);
    }
}

/// Opens the socket, as soon as that can be done; `None` if the sender of the subjects is dropped.
async fn open(
    local: SocketAddr,
    subjects: &mut watch::Receiver<Subjects>,
    conditions: &Conditions,
) -> Option<UdpSocket> {
    loop {
        match udp::marked(local, OUTER_MARK).and_then(UdpSocket::from_std) {
            Ok(socket) => {
                conditions.put(NOT_SENT, Severity::Warning, "", None);
                return Some(socket);
            }
            Err(error) => {
                let text = format!(
                    "route agents are not told which gateways live: UDP port {} of {}: {error}; notice-port chooses \
                     another, on gateways and route agents alike",
                    local.port(),
                    local.ip()
                );
                conditions.put(NOT_SENT, Severity::Warning, "", Some(text));
            }
        }
        tokio::select! {
            changed = subjects.changed() => if changed.is_err() {
                return None;
            },
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

/// Counts a transmission. A failed one is not retried: the next notice follows soon.
fn count(counters: &Counters, sent: &io::Result<usize>) {
    let counter = if sent.is_ok() { &counters.sent } else { &counters.failed };
    counter.fetch_add(1, Ordering::Relaxed);
}

fn random() -> Zeroizing<[u8; 32]> {
    let mut bytes = Zeroizing::new([0; 32]);
    OsRng.fill_bytes(&mut bytes[..]);
    bytes
}

/// Returns the key pair, and a number for this run that is greater than all before. They are kept on disk, so that agents
/// that cannot read the store at present accept notices of a restarted gateway.
fn identity(state_dir: Option<&Path>) -> (SigningKey, u64) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
    let path = state_dir.map(|dir| dir.join(FILE));
    let kept = path.as_deref().and_then(|path| std::fs::read_to_string(path).ok());
    let (seed, last) = kept.as_deref().and_then(read).unwrap_or_else(|| (random(), 0));
    let boot = now.max(last.saturating_add(1));
    if let Some(path) = &path {
        let text = Zeroizing::new(format!("{} {boot}\n", STANDARD.encode(&seed[..])));
        if let Err(error) = state::write(path, &text) {
            tracing::warn!(%error, "cannot save the key of notices; a restart makes a new one");
        }
    }
    (SigningKey::from_seed(&seed), boot)
}

fn read(text: &str) -> Option<(Zeroizing<[u8; 32]>, u64)> {
    let (seed, boot) = text.trim().split_once(' ')?;
    let seed = Zeroizing::new(STANDARD.decode(seed).ok()?);
    Some((Zeroizing::new(seed.as_slice().try_into().ok()?), boot.parse().ok()?))
}

/// Removes the key.
///
/// # Errors
/// A file cannot be removed; a missing one is no error.
pub(crate) fn remove_files(dir: &Path) -> io::Result<()> {
    state::remove(dir, &[FILE])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_the_key_of_the_one_before_and_a_greater_number_even_if_the_clock_went_back() {
        let dir = tempfile::tempdir().unwrap();
        let (first, boot) = identity(Some(dir.path()));
        let (second, next) = identity(Some(dir.path()));
        assert_eq!(first.public(), second.public());
        assert!(next > boot);
        let later = u64::MAX - 5;
        let text = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        let seed = text.split(' ').next().unwrap();
        std::fs::write(dir.path().join(FILE), format!("{seed} {later}\n")).unwrap();
        assert_eq!(identity(Some(dir.path())).1, later + 1);
        std::fs::write(dir.path().join(FILE), "nonsense").unwrap();
        assert_ne!(identity(Some(dir.path())).0.public(), first.public());
        remove_files(dir.path()).unwrap();
        assert_ne!(identity(None).0.public(), identity(None).0.public());
    }

    #[test]
    fn what_is_said_follows_from_the_board() {
        let path_table = Board::new();
        let (near, far, own) = (CableId(1), CableId(2), GatewayKey(7));
        let paths = Subjects { siblings: [(own, near)].into(), remote: [far].into(), ..Subjects::default() };
        let say = |near_state: PathState, far_state: PathState, paths: &Subjects| {
            path_table.set_state(near, near_state);
            path_table.set_state(far, far_state);
            let word = word(paths, &path_table);
            (word.state, word.health, word.siblings.get(&own).copied())
        };
        use PathState::{Down, Held, Unwatched, Up};
        assert_eq!(say(Up, Up, &paths), (State::Up, 255, Some(State::Up)));
        assert_eq!(say(Down, Up, &paths), (State::Up, 127, Some(State::Down)));
        assert_eq!(say(Held, Unwatched, &paths), (State::Up, 0, Some(State::Down)));
        assert_eq!(
            say(Held, Up, &paths),
            (State::Up, 127, Some(State::Down)),
            "as the sibling has, if it is cut off"
        );
        assert_eq!(say(Down, Down, &paths), (State::Down, 0, Some(State::Down)));
        let draining = Subjects { stage: Stage::Draining, ..paths.clone() };
        assert_eq!(say(Up, Up, &draining), (State::Draining, 255, Some(State::Up)));
        assert_eq!(say(Held, Up, &draining), (State::Draining, 255, Some(State::Up)), "it takes over");
        assert_eq!(say(Down, Up, &draining), (State::Draining, 127, Some(State::Down)));
        let new = Subjects { stage: Stage::Starting, ..paths.clone() };
        assert_eq!(say(Down, Up, &new), (State::Draining, 127, Some(State::Up)), "it accuses nobody yet");
        let alone = Subjects { remote: BTreeSet::new(), ..paths };
        assert_eq!(say(Down, Up, &alone), (State::Up, 0, Some(State::Down)), "nobody to reach");
    }
}
