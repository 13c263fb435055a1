//! Listens to the notices in which this cluster's gateways report about each other, and steers packets away from a
//! dead one at once.
//!
//! ```text
//!   pass ──config (address, gateways and their keys, next hops)──────▶ ┌──────────┐ ◀──notices── gateways, UDP 4801
//!   pass ◀──live (which gateways are to be used)────────────────────── │  listen  │ ──hellos───▶
//!                                                                     └────┬─────┘
//!                                                      groups of next hops ▼ kernel
//! ```
//!
//! [`trieste_control::notice`] decides which gateways are usable. When that changes, the groups of next hops are changed
//! here, before anything else; the pass that is woken then finds them up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::sleep_until;
use tracing::{debug, info, warn};
use trieste_control::notice::message::{Cookie, Datagram, MAX_DATAGRAM, hello, parse};
use trieste_control::notice::{GatewayIdentity, GatewayKey, Standing, View};
use trieste_control::udp;

use crate::constants::MARK;
use crate::nexthops::NexthopGroups;
use crate::port::netlink::nexthops::Nexthops;

/// Ours: time between two hellos to a gateway whose notices arrive.
const HELLO_INTERVAL: Duration = Duration::from_secs(5);
/// Ours: time between two hellos to a silent gateway: it may have restarted and lost its list of agents.
const HELLO_INTERVAL_SILENT: Duration = Duration::from_secs(1);
/// Ours: age of the last notice from which on a gateway counts as silent; notices are sent every second.
const SILENT_AFTER: Duration = Duration::from_millis(2_500);
/// Ours: shortest time between two hellos to one gateway, however many challenges arrive.
const HELLO_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Ours: how long to wait before a socket that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Configuration of the listener, from a pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Address of this node to listen at; `None` closes the socket.
    pub local: Option<IpAddr>,
    /// Gateways whose notices are accepted.
    pub gateways: BTreeMap<GatewayKey, GatewayIdentity>,
    /// Next hops and groups, as they are in the kernel.
    pub nexthop_groups: NexthopGroups,
}

/// State of the gateways by their notices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Live {
    /// The usable gateways; `None` if no gateway is configured.
    pub gateways: Option<BTreeSet<GatewayKey>>,
    /// State of each of them.
    pub standings: BTreeMap<GatewayKey, Standing>,
    /// Why no notices can be received.
    pub error: Option<String>,
}

/// Listens on a thread of its own, so that a pass does not delay a notice. Ends when the sender of `config` is dropped.
///
/// # Errors
///
/// The thread cannot be started.
pub fn spawn(
    port: u16,
    config: watch::Receiver<ListenerConfig>,
    live: watch::Sender<Live>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listen = move || runtime.block_on(listen(port, config, live));
    std::thread::Builder::new().name("notices".to_owned()).spawn(listen).map(drop)
}

/// Listens until the sender of `config` is dropped. Gateways listen on UDP `port`.
pub async fn listen(port: u16, mut config: watch::Receiver<ListenerConfig>, live: watch::Sender<Live>) {
    let mut listener = Listener::new(port, live);
    let mut buffer = [0; MAX_DATAGRAM + 1];
    loop {
        let next = listener.poll_timeout().into();
        tokio::select! {
            // Input comes before timers.
            biased;
            received = recv(listener.socket.as_ref(), &mut buffer) => match received {
                Ok((length, from)) => listener.handle_datagram(&buffer[..length], from, Instant::now()),
                Err(error) => listener.handle_socket_error(&error, Instant::now()),
            },
            changed = config.changed() => {
                if changed.is_err() {
                    return;
                }
                let config = config.borrow_and_update().clone();
                listener.configure(config, Instant::now());
            }
            () = sleep_until(next) => listener.handle_timeout(Instant::now()),
        }
    }
}

async fn recv(socket: Option<&UdpSocket>, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    match socket {
        Some(socket) => socket.recv_from(buffer).await,
        None => std::future::pending().await,
    }
}

struct Listener {
    port: u16,
    live: watch::Sender<Live>,
    config: ListenerConfig,
    view: View,
    socket: Option<UdpSocket>,
    retry: Option<Instant>,
    error: Option<String>,
    hellos: BTreeMap<GatewayKey, HelloState>,
    kernel: Option<Nexthops>,
}

/// State of the hellos to one gateway.
#[derive(Default)]
struct HelloState {
    cookie: Option<Cookie>,
    last: Option<Instant>,
    due: Option<Instant>,
}

impl HelloState {
    /// Returns `true` if a hello has to be sent. A gateway that fell silent since the last one may have restarted: its
    /// shorter interval counts from then on.
    fn is_due(&self, interval: Duration, now: Instant) -> bool {
        self.due.is_none_or(|due| due <= now) || self.last.is_some_and(|last| last + interval <= now)
    }
}

/// Returns the time between two hellos to a gateway whose last notice came at `last_notice`.
fn hello_interval(last_notice: Option<Instant>, now: Instant) -> Duration {
    if last_notice.is_some_and(|at| now < at + SILENT_AFTER) { HELLO_INTERVAL } else { HELLO_INTERVAL_SILENT }
}

impl Listener {
    fn new(port: u16, live: watch::Sender<Live>) -> Self {
        Self {
            port,
            live,
            config: ListenerConfig::default(),
            view: View::new(Instant::now()),
            socket: None,
            retry: None,
            error: None,
            hellos: BTreeMap::new(),
            kernel: None,
        }
    }

    /// Applies the configuration that follows from a pass.
    fn configure(&mut self, config: ListenerConfig, now: Instant) {
        let has_moved = self.config.local != config.local;
        self.view.set_gateways(&config.gateways, now);
        self.hellos.retain(|key, _| config.gateways.contains_key(key));
        for key in config.gateways.iter().filter(|(_, known)| known.key.is_some()).map(|(key, _)| key) {
            self.hellos.entry(*key).or_insert_with(|| HelloState { due: Some(now), ..HelloState::default() });
        }
        self.config = config;
        if has_moved || (self.socket.is_none() && self.retry.is_none()) {
            self.open(now);
        }
        self.handle_timeout(now);
    }

    /// Opens the socket if there is a gateway to listen to.
    fn open(&mut self, now: Instant) {
        (self.socket, self.retry, self.error) = (None, None, None);
        let Some(local) = self.config.local.filter(|_| !self.hellos.is_empty()) else { return };
        // Any port: gateways answer to where a hello came from, so that nothing has to be opened for it.
        match udp::marked(SocketAddr::new(local, 0), MARK).and_then(UdpSocket::from_std) {
            Ok(socket) => self.socket = Some(socket),
            Err(error) => self.handle_socket_error(&error, now),
        }
    }

    fn handle_socket_error(&mut self, error: &io::Error, now: Instant) {
        // The host of a gateway that has not started yet refuses a hello; notices of the others still arrive.
        if error.kind() == io::ErrorKind::ConnectionRefused {
            return;
        }
        (self.socket, self.retry) = (None, Some(now + RETRY));
        let text = format!("a UDP socket of {:?}: {error}", self.config.local);
        if self.error.as_ref() != Some(&text) {
            warn!(error = %text, "cannot receive gateways' notices");
        }
        self.error = Some(text);
        self.evaluate(now);
    }

    /// Handles a challenge or a notice.
    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, now: Instant) {
        if let Some(Datagram::Challenge(cookie)) = parse(datagram) {
            let gateways = &self.config.gateways;
            let is_from =
                |key: &GatewayKey| gateways.get(key).is_some_and(|known| known.address == from.ip());
            if from.port() == self.port
                && let Some((_, state)) = self.hellos.iter_mut().find(|(key, _)| is_from(key))
            {
                state.cookie = Some(cookie);
                state.due = Some(state.last.map_or(now, |last| now.max(last + HELLO_INTERVAL_MIN)));
            }
            return;
        }
        match self.view.take(datagram, from.ip(), now) {
            Ok(()) => self.evaluate(now),
            Err(refusal) => debug!(%from, reason = refusal.as_str(), "notice rejected"),
        }
    }

    /// Opens the socket again and sends hellos, where due.
    fn handle_timeout(&mut self, now: Instant) {
        if self.retry.is_some_and(|at| at <= now) {
            self.open(now);
        }
        self.evaluate(now);
        let Some(socket) = &self.socket else { return };
        for (key, state) in &mut self.hellos {
            let interval = hello_interval(self.view.last_received(*key), now);
            let Some(known) = self.config.gateways.get(key).filter(|_| state.is_due(interval, now)) else {
                continue;
            };
            // A lost hello is sent again.
            let _ = socket.try_send_to(&hello(state.cookie), SocketAddr::new(known.address, self.port));
            state.last = Some(now);
            state.due = Some(now + interval);
        }
    }

    fn poll_timeout(&self) -> Instant {
        let now = Instant::now();
        let hellos = self.hellos.values().filter_map(|state| state.due).filter(|_| self.socket.is_some());
        let silences =
            self.hellos.keys().filter_map(|key| self.view.last_received(*key)).map(|at| at + SILENT_AFTER);
        let silences = silences.filter(|at| *at > now && self.socket.is_some());
        let times = hellos.chain(silences).chain(self.view.poll_timeout(now)).chain(self.retry);
        times.min().unwrap_or(now + RETRY).max(now)
    }

    /// Publishes which gateways are usable, and changes the groups of next hops if that has changed.
    fn evaluate(&mut self, now: Instant) {
        let is_known = !self.config.gateways.is_empty();
        let gateways = is_known.then(|| self.view.live(now));
        let updated = Live { gateways, standings: self.view.standings(now), error: self.error.clone() };
        if *self.live.borrow() == updated {
            return;
        }
        if let Some(gateways) = &updated.gateways {
            self.set_groups(gateways);
            for (key, standing) in &updated.standings {
                if self.live.borrow().standings.get(key) != Some(standing) {
                    info!(gateway = %key, %standing, "gateway's standing changed");
                }
            }
        }
        self.live.send_replace(updated);
    }

    /// Changes the groups of next hops. The pass that follows retries failures.
    fn set_groups(&mut self, live: &BTreeSet<GatewayKey>) {
        let before = self.live.borrow().gateways.clone();
        let before = before.map(|before| self.config.nexthop_groups.groups(&before)).unwrap_or_default();
        for (id, members) in self.config.nexthop_groups.groups(live) {
            if before.get(&id) == Some(&members) {
                continue;
            }
            let kernel = self.kernel.take().map_or_else(Nexthops::open, Ok);
            match kernel.and_then(|kernel| kernel.set_group(id, &members).map(|()| kernel)) {
                Ok(kernel) => self.kernel = Some(kernel),
                Err(error) => {
                    debug!(group = id, %error, "cannot change group of next hops; the next pass retries")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_fell_silent_gets_a_hello_at_once_and_then_every_second() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let last_notice = Some(at(900));
        let mut state = HelloState::default();
        assert!(state.is_due(hello_interval(None, start), start), "no notice came yet");
        (state.last, state.due) = (Some(start), Some(start + HELLO_INTERVAL));
        let is_due =
            |state: &HelloState, millis| state.is_due(hello_interval(last_notice, at(millis)), at(millis));
        assert!(!is_due(&state, 3_399), "its last notice is recent");
        assert!(is_due(&state, 3_400));
        (state.last, state.due) = (Some(at(3_400)), Some(at(4_400)));
        assert!(!is_due(&state, 4_399) && is_due(&state, 4_400));
    }
}
