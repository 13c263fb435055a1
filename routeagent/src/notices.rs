//! Hears what this cluster's gateways say of each other, and sends packets past a dead one at once.
//!
//! ```text
//!   pass ──ears (where to listen, whom to believe, what to switch)──▶ ┌──────────┐ ◀──notices── gateways, UDP 4801
//!   pass ◀──live (which gateways are to be used)────────────────────── │  listen  │ ──hellos───▶
//!                                                                     └────┬─────┘
//!                                                      groups of next hops ▼ kernel
//! ```
//!
//! What follows from notices is decided in [`trieste_control::notice`]. When it changes, the groups of next hops are
//! changed here, before anything else; the pass that is woken then finds them as they should be.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::sleep_until;
use tracing::{debug, info, warn};
use trieste_control::notice::message::{Cookie, Datagram, MAX_DATAGRAM, hello, parse};
use trieste_control::notice::{GatewayKey, Known, Standing, View};
use trieste_control::udp;

use crate::hostnet::MARK;
use crate::nexthops::Spread;
use crate::port::Nexthops;

/// Ours: how often to say hello to a gateway that is heard.
const HELLO: Duration = Duration::from_secs(5);
/// Ours: how often to say it to one that is not; it may have started anew and know nobody.
const HELLO_UNHEARD: Duration = Duration::from_secs(1);
/// Ours: after this long a gateway is not heard: it says something every second.
const UNHEARD: Duration = Duration::from_millis(2_500);
/// Ours: least time between two hellos to one gateway, whatever challenges come.
const HELLO_GAP: Duration = Duration::from_millis(100);
/// Ours: how soon a socket that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// What a pass tells the listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ears {
    /// At which address of this node to listen.
    pub local: Option<IpAddr>,
    /// Whom to listen to.
    pub gateways: BTreeMap<GatewayKey, Known>,
    /// What to switch; its groups are in the kernel.
    pub spread: Spread,
}

/// What the listener tells the passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Live {
    /// The gateways that are to be used; `None` if nothing is known.
    pub gateways: Option<BTreeSet<GatewayKey>>,
    /// How each of them stands.
    pub standings: BTreeMap<GatewayKey, Standing>,
    /// Why nothing can be heard.
    pub error: Option<String>,
}

/// Listens on a thread of its own, until nobody tells it anything any more: a pass in between must not keep a notice
/// waiting.
///
/// # Errors
///
/// There are no more threads.
pub fn spawn(port: u16, ears: watch::Receiver<Ears>, live: watch::Sender<Live>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listen = move || runtime.block_on(listen(port, ears, live));
    std::thread::Builder::new().name("notices".to_owned()).spawn(listen).map(drop)
}

/// Listens for ever. Gateways listen on `port`.
pub async fn listen(port: u16, mut ears: watch::Receiver<Ears>, live: watch::Sender<Live>) {
    let mut listener = Listener::new(port, live);
    let mut buffer = [0; MAX_DATAGRAM + 1];
    loop {
        let next = listener.next_turn().into();
        tokio::select! {
            // What is new comes before what is due.
            biased;
            received = recv(listener.socket.as_ref(), &mut buffer) => match received {
                Ok((length, from)) => listener.hear(&buffer[..length], from, Instant::now()),
                Err(error) => listener.lose(&error, Instant::now()),
            },
            changed = ears.changed() => {
                if changed.is_err() {
                    return;
                }
                let ears = ears.borrow_and_update().clone();
                listener.set(ears, Instant::now());
            }
            () = sleep_until(next) => listener.turn(Instant::now()),
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
    ears: Ears,
    view: View,
    socket: Option<UdpSocket>,
    retry: Option<Instant>,
    error: Option<String>,
    hellos: BTreeMap<GatewayKey, Greeting>,
    kernel: Option<Nexthops>,
}

/// How far it is with a gateway.
#[derive(Default)]
struct Greeting {
    cookie: Option<Cookie>,
    last: Option<Instant>,
    due: Option<Instant>,
}

impl Greeting {
    /// Whether a hello is to be said. Who has fallen silent since the last one may have started anew, and is not waited for.
    fn is_due(&self, gap: Duration, now: Instant) -> bool {
        self.due.is_none_or(|due| due <= now) || self.last.is_some_and(|last| last + gap <= now)
    }
}

/// How long to wait between hellos to a gateway that was last heard then.
fn gap(heard: Option<Instant>, now: Instant) -> Duration {
    if heard.is_some_and(|at| now < at + UNHEARD) { HELLO } else { HELLO_UNHEARD }
}

impl Listener {
    fn new(port: u16, live: watch::Sender<Live>) -> Self {
        Self {
            port,
            live,
            ears: Ears::default(),
            view: View::new(Instant::now()),
            socket: None,
            retry: None,
            error: None,
            hellos: BTreeMap::new(),
            kernel: None,
        }
    }

    /// Takes note of what a pass says.
    fn set(&mut self, ears: Ears, now: Instant) {
        let has_moved = self.ears.local != ears.local;
        self.view.set_gateways(&ears.gateways, now);
        self.hellos.retain(|key, _| ears.gateways.contains_key(key));
        for key in ears.gateways.iter().filter(|(_, known)| known.key.is_some()).map(|(key, _)| key) {
            self.hellos.entry(*key).or_insert_with(|| Greeting { due: Some(now), ..Greeting::default() });
        }
        self.ears = ears;
        if has_moved || (self.socket.is_none() && self.retry.is_none()) {
            self.open(now);
        }
        self.turn(now);
    }

    /// Opens the socket where there is somebody to hear.
    fn open(&mut self, now: Instant) {
        (self.socket, self.retry, self.error) = (None, None, None);
        let Some(local) = self.ears.local.filter(|_| !self.hellos.is_empty()) else { return };
        // Any port: gateways answer to where a hello came from, so that nothing has to be opened for it.
        match udp::marked(SocketAddr::new(local, 0), MARK).and_then(UdpSocket::from_std) {
            Ok(socket) => self.socket = Some(socket),
            Err(error) => self.lose(&error, now),
        }
    }

    fn lose(&mut self, error: &io::Error, now: Instant) {
        // One gateway that is not there yet refuses what was sent to it; the others are heard on.
        if error.kind() == io::ErrorKind::ConnectionRefused {
            return;
        }
        (self.socket, self.retry) = (None, Some(now + RETRY));
        let text = format!("a UDP socket of {:?}: {error}", self.ears.local);
        if self.error.as_ref() != Some(&text) {
            warn!("cannot hear gateways' notices: {text}");
        }
        self.error = Some(text);
        self.judge(now);
    }

    /// Takes in a datagram.
    fn hear(&mut self, datagram: &[u8], from: SocketAddr, now: Instant) {
        if let Some(Datagram::Challenge(cookie)) = parse(datagram) {
            let gateways = &self.ears.gateways;
            let is_from =
                |key: &GatewayKey| gateways.get(key).is_some_and(|known| known.address == from.ip());
            if from.port() == self.port
                && let Some((_, greeting)) = self.hellos.iter_mut().find(|(key, _)| is_from(key))
            {
                greeting.cookie = Some(cookie);
                greeting.due = Some(greeting.last.map_or(now, |last| now.max(last + HELLO_GAP)));
            }
            return;
        }
        match self.view.take(datagram, from.ip(), now) {
            Ok(()) => self.judge(now),
            Err(refusal) => debug!(%from, "a notice is not believed: {}", refusal.as_str()),
        }
    }

    /// Does what is due.
    fn turn(&mut self, now: Instant) {
        if self.retry.is_some_and(|at| at <= now) {
            self.open(now);
        }
        self.judge(now);
        let Some(socket) = &self.socket else { return };
        for (key, greeting) in &mut self.hellos {
            let gap = gap(self.view.heard(*key), now);
            let Some(known) = self.ears.gateways.get(key).filter(|_| greeting.is_due(gap, now)) else {
                continue;
            };
            // A hello that is lost is said again.
            let _ = socket.try_send_to(&hello(greeting.cookie), SocketAddr::new(known.address, self.port));
            greeting.last = Some(now);
            greeting.due = Some(now + gap);
        }
    }

    fn next_turn(&self) -> Instant {
        let now = Instant::now();
        let hellos =
            self.hellos.values().filter_map(|greeting| greeting.due).filter(|_| self.socket.is_some());
        let silences = self.hellos.keys().filter_map(|key| self.view.heard(*key)).map(|at| at + UNHEARD);
        let silences = silences.filter(|at| *at > now && self.socket.is_some());
        let times = hellos.chain(silences).chain(self.view.poll_timeout(now)).chain(self.retry);
        times.min().unwrap_or(now + RETRY).max(now)
    }

    /// Draws the conclusion, and acts on it.
    fn judge(&mut self, now: Instant) {
        let is_known = !self.ears.gateways.is_empty();
        let gateways = is_known.then(|| self.view.live(now));
        let news = Live { gateways, standings: self.view.standings(now), error: self.error.clone() };
        if *self.live.borrow() == news {
            return;
        }
        if let Some(gateways) = &news.gateways {
            self.switch(gateways);
            for (key, standing) in &news.standings {
                if self.live.borrow().standings.get(key) != Some(standing) {
                    info!("gateway {key}: {standing}");
                }
            }
        }
        self.live.send_replace(news);
    }

    /// Changes the groups. What fails is left to the pass that follows.
    fn switch(&mut self, live: &BTreeSet<GatewayKey>) {
        let before = self.live.borrow().gateways.clone();
        let before = before.map(|before| self.ears.spread.groups(&before)).unwrap_or_default();
        for (id, members) in self.ears.spread.groups(live) {
            if before.get(&id) == Some(&members) {
                continue;
            }
            let kernel = self.kernel.take().map_or_else(Nexthops::open, Ok);
            match kernel.and_then(|kernel| kernel.set_group(id, &members).map(|()| kernel)) {
                Ok(kernel) => self.kernel = Some(kernel),
                Err(error) => debug!("group {id} of next hops is left to the next pass: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_has_fallen_silent_is_greeted_at_once_and_then_every_second() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let heard = Some(at(900));
        let mut greeting = Greeting::default();
        assert!(greeting.is_due(gap(None, start), start), "nobody has said anything yet");
        (greeting.last, greeting.due) = (Some(start), Some(start + HELLO));
        let is_due = |greeting: &Greeting, millis| greeting.is_due(gap(heard, at(millis)), at(millis));
        assert!(!is_due(&greeting, 3_399), "it has been heard of late");
        assert!(is_due(&greeting, 3_400));
        (greeting.last, greeting.due) = (Some(at(3_400)), Some(at(4_400)));
        assert!(!is_due(&greeting, 4_399) && is_due(&greeting, 4_400));
    }
}
