//! Tells ESP from IKE on one port, and hands IKE messages to the slow half (RFC 3948 section 2): all of them while there are
//! few, and in a flood those of senders that prove to own their address (RFC 7296 section 2.6).
//!
//! ```text
//!   IKE_SA_INIT ─┬─ cookie? ── right ─▶ within its source's share, and few in this second ─▶ strangers' inbox
//!                │           └ wrong ─▶ answered with a cookie
//!                └─ none ─┬─ few in this second, few half-open, inbox not filling ─▶ strangers' inbox
//!                         └─ otherwise ─▶ answered with a cookie
//!   all others ──┬─ for an IKE SA or an attempt of ours ─▶ within its source's share ─▶ peers' inbox
//!                ├─ for a half-open one of the sender ─▶ within its source's share ─▶ strangers' inbox
//!                └─ otherwise ─▶ refused
//! ```
//!
//! Nothing is remembered of a sender but its share, in a table of fixed size. A cookie that gets past the gate is a right
//! one: the slow half may rely on it. It empties the peers' inbox first. Into that one a stranger gets nothing, because it
//! would have to guess 64 random bits; who sees messages on their way can, as much as one source may send in a second.
//! Requests with a right cookie from where a peer is are counted apart from those of strangers, however many those are.

mod cookie;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam::channel::{Sender, TrySendError};
use ring::hmac;
use trieste_packet::{DropReason, HashKey, Outer};
use zeroize::Zeroizing;

use self::cookie::Cookies;
use super::Spi;
use super::ike::{EngineLoad, Input, Receiver};
use super::wire::{Exchange, Greeting, Header, WireError};
use crate::boundary::{Admission, Gate, Message};
use crate::shares::Shares;

/// What tells an IKE message from ESP on the port of both (RFC 3948 section 2.2).
const MARKER: [u8; 4] = [0; 4];
/// `IKE_SA_INIT` requests per second and gateway that are taken without a cookie. Ours: each costs two exponentiations, some
/// milliseconds each in the MODP group, so this bounds a flood to a fraction of a core. When a large cluster set starts at once,
/// some of its gateways have to ask twice.
pub const LIMIT_PER_SECOND: u64 = 50;
/// Half-open IKE SAs from which on cookies are asked for. Ours: an honest one is half-open for a round trip.
pub const HALF_OPEN_LIMIT: u64 = 200;
/// `IKE_SA_INIT` requests per second and gateway that are taken with a right cookie from strangers, and as many from where
/// peers are. Ours: with a curve, which is all that a stranger gets by then, each costs some 0.1 ms, and as much again for
/// its IKE_AUTH.
pub const PROVEN_PER_SECOND: u64 = 100;
/// `IKE_SA_INIT` requests per second with a right cookie that one source may send. Ours; in client and server mode there is one
/// for each pair of subnets.
pub const GREETINGS_PER_SECOND: u32 = 20;
/// Other messages per second that one source may send. Ours: some exchanges at once, of several fragments each.
pub const MESSAGES_PER_SECOND: u32 = 400;

/// What the gates of all workers share.
#[derive(Clone)]
pub struct GateShared {
    /// Makes cookies.
    secret: Arc<Zeroizing<[u8; 32]>>,
    inboxes: Inboxes,
    load: Arc<EngineLoad>,
    taken: Arc<Taken>,
}

/// Where messages for the slow half wait.
#[derive(Clone)]
pub struct Inboxes {
    /// Of those for an IKE SA or an attempt of ours. To be emptied first.
    pub peers: Sender<Input>,
    /// Of all others.
    pub strangers: Sender<Input>,
}

/// `IKE_SA_INIT` requests that were taken: of each kind the second since the start (upper 32 bits) and how many in it.
#[derive(Default)]
struct Taken {
    without_cookie: AtomicU64,
    of_strangers: AtomicU64,
    of_peers: AtomicU64,
}

impl GateShared {
    /// Makes it for the slow half behind `inboxes`, whose load is `load`. `secret` is random.
    #[must_use]
    pub fn new(secret: Zeroizing<[u8; 32]>, inboxes: Inboxes, load: Arc<EngineLoad>) -> Self {
        Self { secret: Arc::new(secret), inboxes, load, taken: Arc::default() }
    }
}

/// The gate of one worker.
pub struct IpsecGate {
    shared: GateShared,
    cookies: Cookies,
    greetings: Shares,
    /// Messages for IKE SAs.
    messages: Shares,
    /// Messages for half-open ones.
    half_open: Shares,
    started: Instant,
}

impl IpsecGate {
    /// A gate. `started` is the same for all that share.
    #[must_use]
    pub fn new(shared: GateShared, started: Instant) -> Self {
        let cookies = Cookies::new(&shared.secret, started);
        let greetings = Shares::new(share_key(&shared.secret, b"greetings"), GREETINGS_PER_SECOND, started);
        let messages = Shares::new(share_key(&shared.secret, b"messages"), MESSAGES_PER_SECOND, started);
        let half_open = Shares::new(share_key(&shared.secret, b"half-open"), MESSAGES_PER_SECOND, started);
        Self { shared, cookies, greetings, messages, half_open, started }
    }

    fn check(&mut self, message: &[u8], from: &Outer, now: Instant) -> Admission {
        let header = match Header::parse(message) {
            Ok((header, ..)) => header,
            // To be answered with the version that we have.
            Err(WireError::Version(_)) if self.is_calm() && self.take_one(now) => {
                return hand_on(&self.shared.inboxes.strangers, message, from);
            }
            Err(_) => return Admission::Refuse(DropReason::BadHandshake),
        };
        // Raw ESP has no ports, and no IKE.
        if header.spi_i == 0 || from.peer.port() == 0 {
            return Admission::Refuse(DropReason::BadHandshake);
        }
        let source = from.peer.ip();
        if header.exchange == Exchange::IkeSaInit && !header.is_response {
            return self.greet(message, from, source, now);
        }
        let spi = if header.is_initiator { header.spi_r } else { header.spi_i };
        let (shares, inbox) = match self.shared.load.directory.load().receiver(spi, source) {
            Some(Receiver::Established) => (&mut self.messages, &self.shared.inboxes.peers),
            Some(Receiver::HalfOpen) => (&mut self.half_open, &self.shared.inboxes.strangers),
            None => {
                self.shared.load.unknown_spi.fetch_add(1, Ordering::Relaxed);
                return Admission::Refuse(DropReason::UnknownReceiver);
            }
        };
        if shares.is_within(source, now) {
            hand_on(inbox, message, from)
        } else {
            Admission::Refuse(DropReason::HandshakeLimit)
        }
    }

    fn greet(&mut self, message: &[u8], from: &Outer, source: IpAddr, now: Instant) -> Admission {
        let Some(greeting) = Greeting::parse(message) else {
            return Admission::Refuse(DropReason::BadHandshake);
        };
        let address = from.peer.ip();
        let is_proven = greeting.cookie.is_some() && self.cookies.is_right(&greeting, address, now);
        if is_proven {
            if self.greetings.is_within(source, now) && self.take_proven(address, now) {
                return hand_on(&self.shared.inboxes.strangers, message, from);
            }
            return Admission::Refuse(DropReason::HandshakeLimit);
        }
        // A wrong cookie, an old one perhaps, is answered with a new one however calm it is: none gets past the gate.
        if greeting.cookie.is_none() && self.is_calm() && self.take_one(now) {
            return hand_on(&self.shared.inboxes.strangers, message, from);
        }
        let answer = self.cookies.ask(&greeting, address, now);
        // Not more than came in: a spoofed request must not be of use against whom it names.
        if answer.len() > message.len() + MARKER.len() {
            return Admission::Refuse(DropReason::BadHandshake);
        }
        self.shared.load.cookies_sent.fetch_add(1, Ordering::Relaxed);
        Admission::Reply(answer)
    }

    /// Whether the slow half keeps up.
    fn is_calm(&self) -> bool {
        let inbox = &self.shared.inboxes.strangers;
        let is_filling = inbox.capacity().is_some_and(|capacity| inbox.len() > capacity / 4);
        !is_filling && self.shared.load.half_open.load(Ordering::Relaxed) < HALF_OPEN_LIMIT
    }

    /// Takes one of the second's requests without a cookie, if any is left.
    fn take_one(&self, now: Instant) -> bool {
        self.take(&self.shared.taken.without_cookie, LIMIT_PER_SECOND, now)
    }

    /// Takes one of the second's requests with a right cookie, if any is left for such a source.
    fn take_proven(&self, address: IpAddr, now: Instant) -> bool {
        let taken = &self.shared.taken;
        let is_peer = self.shared.load.directory.load().has_peer_at(address);
        let counter = if is_peer { &taken.of_peers } else { &taken.of_strangers };
        self.take(counter, PROVEN_PER_SECOND, now)
    }

    fn take(&self, counter: &AtomicU64, limit: u64, now: Instant) -> bool {
        let second = now.saturating_duration_since(self.started).as_secs() << 32;
        let taken = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            // Another worker's clock may be ahead: then this one counts in the second that is there.
            if taken < second {
                return Some(second + 1);
            }
            (taken & u64::from(u32::MAX) < limit).then_some(taken + 1)
        });
        taken.is_ok()
    }
}

impl Gate for IpsecGate {
    fn classify(&mut self, datagram: &[u8], _from: &Outer) -> Message {
        //= https://www.rfc-editor.org/rfc/rfc3948#section-2.3
        //# a one-octet-long payload with the value 0xFF
        if datagram == [0xff] {
            return Message::Keepalive;
        }
        match datagram.first_chunk() {
            Some(&MARKER) => Message::Negotiation,
            Some(spi) => Message::Data(Spi::from_bytes(*spi).lane()),
            None => Message::Unknown,
        }
    }

    fn admit(&mut self, datagram: &[u8], from: &Outer, now: Instant) -> Admission {
        let Some((_, message)) = datagram.split_first_chunk::<{ MARKER.len() }>() else {
            return Admission::Refuse(DropReason::UnknownDatagram);
        };
        let admission = self.check(message, from, now);
        if matches!(admission, Admission::Refuse(_)) {
            self.shared.load.gate_refused.fetch_add(1, Ordering::Relaxed);
        }
        admission
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}

fn hand_on(inbox: &Sender<Input>, message: &[u8], from: &Outer) -> Admission {
    match inbox.try_send(Input::Datagram { message: message.to_vec(), from: *from }) {
        Ok(()) => Admission::Taken,
        Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
            Admission::Refuse(DropReason::HandshakeLimit)
        }
    }
}

/// Derives a key for a table of shares.
fn share_key(secret: &[u8; 32], purpose: &[u8]) -> HashKey {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), purpose);
    let seed = tag.as_ref().first_chunk().expect("an HMAC has 32 bytes");
    HashKey::new(u64::from_be_bytes(*seed))
}

#[cfg(test)]
mod tests;
