//! The state of one remote cable.
//!
//! ```text
//!            ┌────────────────────────── answer ──────────────────────────┐
//!            │                                                            ▼
//!   new ─▶ Asking ── time-out ─▶ Silent ── answer ──────────────▶ Private, Public ── private answer in 1 s ─▶ Private
//!            ▲   every 2 s          every 60 s                            │
//!            └───────── rediscover, own address changed ◀─────────────────┘        Off: a port is missing
//! ```
//!
//! Peers that do not answer wait for their turns: see [`RequestRates`].

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::outcome::Outcome;
use super::remote::{How, Remote, Selection, Target};
use super::request_rate::{RequestRate, RequestRates};
use crate::admin::DiscoveryStatus;

/// From the specification: an unanswered request is repeated after this long.
const RESEND: Duration = Duration::from_secs(2);
/// From the specification: then nobody is there.
const TIMEOUT: Duration = Duration::from_secs(60);
/// From the specification: the same, where a load balancer may not forward the port.
const LOAD_BALANCER_TIMEOUT: Duration = Duration::from_secs(6);
/// From the specification: so long after the public address has answered, the private one still wins.
const GRACE: Duration = Duration::from_secs(1);
/// Ours: a cable waits no longer than this for an address. One repetition fits, so that a lost datagram does not make
/// a cable start at the wrong place.
const PROVISIONAL_AFTER: Duration = Duration::from_secs(3);
/// Ours: nor longer than this after the peer has asked us. It is there and has our answer, so its handshake is on the way
/// and needs a cable to come in by, also where no request of ours reaches it: behind a NAT that changes its port. The
/// next round (see [`MIN_GAP`]) still has half a second to be answered.
const PROVISIONAL_AFTER_HEARD: Duration = Duration::from_millis(1500);
/// Ours: a silent peer is asked again, seldom enough to be no burden to one that never answers.
const SILENT_RESEND: Duration = Duration::from_secs(60);
/// Ours: between two rounds of requests to a peer, whatever the occasion.
const MIN_GAP: Duration = Duration::from_secs(1);
/// Ours: so many rounds of requests come when they are due, however many other peers do not answer: what
/// [`PROVISIONAL_AFTER`] waits for.
const UNLIMITED_ROUNDS: u32 = 2;

/// A remote cable, what was chosen for it, and how far asking has come.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) remote: Remote,
    selection: Option<Selection>,
    /// Whether the selection is an answer's, this process's or an earlier one's.
    is_answered: bool,
    phase: Phase,
    /// The newest request to each address, while an answer to it is awaited.
    numbers: [Option<u64>; 2],
    next_number: u64,
    last_asked: Option<Instant>,
    /// Rounds of requests since we began to ask.
    rounds: u32,
    /// When the peer first asked us since we began to ask.
    asked_us: Option<Instant>,
    has_route: [bool; 2],
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Nobody can be asked.
    Off { here: bool },
    /// Asking since then. In doubt, what was chosen does not survive silence.
    Asking { since: Instant, next: Instant, is_suspect: bool },
    /// Nobody answered.
    Silent { since: Instant, next: Instant },
    /// The public address answered then. On hold, the selection waits for the private address's answer.
    Public { since: Instant, on_hold: Option<Selection> },
    /// The private address answered.
    Private,
}

/// The changes that a timer brings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tick {
    /// A round of requests is due.
    pub(super) ask: bool,
    /// There is another selection.
    pub(super) changed: bool,
    /// It is to be remembered.
    pub(super) decided: bool,
}

impl Peer {
    /// Creates a peer that is asked as soon as possible. `known` is a selection to begin with, and whether it is an
    /// answer's.
    pub(super) fn new(
        remote: Remote,
        first_number: u64,
        known: Option<(Selection, bool)>,
        can_ask: bool,
        now: Instant,
    ) -> Self {
        let mut peer = Self {
            remote,
            selection: known.map(|(selection, _)| selection),
            is_answered: known.is_some_and(|(_, is_answer)| is_answer),
            phase: Phase::Private,
            numbers: [None; 2],
            next_number: first_number,
            last_asked: None,
            rounds: 0,
            asked_us: None,
            has_route: [true; 2],
        };
        peer.start(can_ask, false, now);
        peer
    }

    pub(super) fn selection(&self) -> Option<Selection> {
        self.selection
    }

    /// Begins to ask, if both sides have a port; else there is only the rule.
    pub(super) fn start(&mut self, can_ask: bool, is_suspect: bool, now: Instant) {
        self.numbers = [None; 2];
        self.rounds = 0;
        self.asked_us = None;
        if !can_ask || self.remote.usable_port().is_none() {
            self.phase = Phase::Off { here: !can_ask };
            self.selection = self.remote.fallback(How::Fallback);
            self.is_answered = false;
            return;
        }
        let next = self.last_asked.map_or(now, |last| now.max(last + MIN_GAP));
        self.phase = Phase::Asking { since: now, next, is_suspect };
    }

    /// Begins to ask because the selection does not seem to work.
    pub(super) fn suspect(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Off { .. } => {}
            Phase::Asking { is_suspect, .. } => *is_suspect = true,
            // It has been asked, nothing that it said is left, and it is asked every minute.
            Phase::Silent { .. } if !self.is_answered => {}
            Phase::Silent { .. } | Phase::Public { .. } | Phase::Private => self.start(true, true, now),
        }
    }

    /// Notes that the peer asked us, so that it is there: no need to wait any longer for the next round.
    pub(super) fn handle_request(&mut self, now: Instant) {
        let soonest = self.last_asked.map_or(now, |last| now.max(last + MIN_GAP));
        self.asked_us.get_or_insert(now);
        match &mut self.phase {
            Phase::Asking { next, .. } | Phase::Silent { next, .. } => *next = (*next).min(soonest),
            Phase::Off { .. } | Phase::Public { .. } | Phase::Private => {}
        }
    }

    /// Returns the time at which [`Peer::tick`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Off { .. } | Phase::Private | Phase::Public { on_hold: None, .. } => None,
            Phase::Public { since, on_hold: Some(_) } => Some(since + GRACE),
            Phase::Silent { next, .. } => Some(next),
            Phase::Asking { since, next, .. } => {
                let provisional = self.selection.is_none().then(|| self.provisional_at(since));
                let end = since + self.timeout();
                Some(provisional.map_or(next, |at| at.min(next)).min(end))
            }
        }
    }

    /// Handles every timer that is due at `now`.
    pub(super) fn tick(&mut self, now: Instant, rates: &mut RequestRates) -> Tick {
        match self.phase {
            Phase::Off { .. } | Phase::Private | Phase::Public { on_hold: None, .. } => Tick::default(),
            Phase::Public { since, on_hold: Some(selection) } => {
                if now < since + GRACE {
                    return Tick::default();
                }
                self.phase = Phase::Public { since, on_hold: None };
                self.decide(selection);
                Tick { changed: true, decided: true, ask: false }
            }
            Phase::Silent { since, next } => {
                let ask = now >= next;
                if ask {
                    let next = self.note_round(SILENT_RESEND, now, &mut rates.silent);
                    self.phase = Phase::Silent { since, next };
                }
                Tick { ask, ..Tick::default() }
            }
            Phase::Asking { since, next, is_suspect } if now < since + self.timeout() => {
                let mut tick = Tick { ask: now >= next, ..Tick::default() };
                if tick.ask {
                    let next = self.note_round(RESEND, now, &mut rates.asking);
                    self.phase = Phase::Asking { since, next, is_suspect };
                }
                if self.selection.is_none() && now >= self.provisional_at(since) {
                    self.selection = self.remote.fallback(How::Provisional);
                    tick.changed = self.selection.is_some();
                }
                tick
            }
            Phase::Asking { since, next, is_suspect } => {
                // Whoever slept through the time-out has not listened either.
                let ask = self.last_asked.is_none_or(|last| now > last + RESEND) && now >= next;
                let next = if ask {
                    self.note_round(SILENT_RESEND, now, &mut rates.silent)
                } else {
                    rates.silent.take(now + SILENT_RESEND)
                };
                self.phase = Phase::Silent { since, next };
                // Silence says nothing against what an answer once said, unless the cable does.
                if self.is_answered && !is_suspect {
                    return Tick { ask, ..Tick::default() };
                }
                self.is_answered = false;
                self.selection = self.remote.fallback(How::Fallback);
                let is_some = self.selection.is_some();
                Tick { ask, changed: is_some, decided: is_some }
            }
        }
    }

    /// Notes that a round of requests is due, and returns when the next is, after `wait` at the earliest.
    fn note_round(&mut self, wait: Duration, now: Instant, rate: &mut RequestRate) -> Instant {
        self.last_asked = Some(now);
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds < UNLIMITED_ROUNDS { now + wait } else { rate.take(now + wait) }
    }

    /// Draws the number for a request that is sent; from here on only a response with it counts.
    pub(super) fn take_number(&mut self, target: Target) -> u64 {
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.numbers[target as usize] = Some(number);
        number
    }

    pub(super) fn note_route(&mut self, target: Target, has_route: bool) {
        self.has_route[target as usize] = has_route;
    }

    /// Takes in a response of the right sender to the right receiver.
    pub(super) fn answer(&mut self, number: u64, use_nat: bool, from: IpAddr, now: Instant) -> Outcome {
        let target = Target::BOTH.into_iter().find(|target| self.numbers[*target as usize] == Some(number));
        let Some(target) = target else { return Outcome::UnknownRequest };
        let is_open = match self.phase {
            Phase::Asking { .. } | Phase::Silent { .. } => true,
            Phase::Public { since, .. } => target == Target::Private && now <= since + GRACE,
            Phase::Off { .. } | Phase::Private => false,
        };
        if !is_open {
            return Outcome::Late;
        }
        match target {
            Target::Private if self.remote.private_ip != Some(from) => return Outcome::WrongSource,
            Target::Private => {
                self.phase = Phase::Private;
                self.decide(Selection { ip: from, use_nat, how: How::Private });
            }
            Target::Public => {
                let Some(ip) = self.remote.public_ip else { return Outcome::UnknownRequest };
                let selection = Selection { ip, use_nat, how: How::Public };
                // A cable that runs over the private address is not moved to and fro while answers race.
                let is_private = self.selection.is_some_and(|known| self.remote.private_ip == Some(known.ip));
                if is_private && self.is_answered {
                    self.phase = Phase::Public { since: now, on_hold: Some(selection) };
                } else {
                    self.phase = Phase::Public { since: now, on_hold: None };
                    self.decide(selection);
                }
            }
        }
        Outcome::Accepted
    }

    fn decide(&mut self, selection: Selection) {
        self.selection = Some(selection);
        self.is_answered = true;
    }

    /// Returns `true` if the selection is final, as far as anything is: nothing that is on hold.
    pub(super) fn is_decided(&self) -> bool {
        matches!(self.phase, Phase::Private | Phase::Public { on_hold: None, .. })
    }

    /// Returns `true` if nobody answered in time.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.phase, Phase::Silent { .. })
    }

    /// Returns the time at which a cable without a selection gets one for the time being.
    fn provisional_at(&self, since: Instant) -> Instant {
        let usual = since + PROVISIONAL_AFTER;
        self.asked_us.map_or(usual, |asked_us| usual.min(asked_us + PROVISIONAL_AFTER_HEARD))
    }

    fn timeout(&self) -> Duration {
        if self.remote.uses_load_balancer { LOAD_BALANCER_TIMEOUT } else { TIMEOUT }
    }

    /// Returns the state of the discovery for people.
    pub(super) fn status(&self, now: Instant) -> DiscoveryStatus {
        let state = match self.selection.map(|selection| selection.how) {
            None | Some(How::Provisional) => "discovering",
            Some(how) => how.as_str(),
        };
        let using = self.selection.map_or_else(String::new, |selection| {
            let nat = if selection.use_nat { " through NAT" } else { "" };
            format!("; using {}{nat}", selection.ip)
        });
        let message = match self.phase {
            Phase::Off { here: true } => format!("NAT discovery is switched off here{using}"),
            Phase::Off { here: false } => format!("the peer publishes no NAT discovery port{using}"),
            Phase::Asking { since, .. } => {
                let waited = now.saturating_duration_since(since).as_secs();
                match self.asked() {
                    asked if asked.is_empty() => {
                        format!(
                            "no route or no socket towards the peer's addresses for {waited} s, trying on{using}"
                        )
                    }
                    asked if waited == 0 => format!("asking {}{using}", asked.join(" and ")),
                    asked => {
                        format!("no answer from {} for {waited} s, trying on{using}", asked.join(" or "))
                    }
                }
            }
            Phase::Silent { since, .. } => {
                let waited = now.saturating_duration_since(since).as_secs();
                let asked = self.asked();
                let whom = if asked.is_empty() { "the peer".to_owned() } else { asked.join(" or ") };
                let why = if self.is_answered { ", as it answered earlier" } else { "" };
                format!("no answer from {whom} for {waited} s, asking once a minute{using}{why}")
            }
            Phase::Private | Phase::Public { on_hold: None, .. } => {
                let nat = self.selection.is_some_and(|selection| selection.use_nat);
                let which = if matches!(self.phase, Phase::Private) { "private" } else { "public" };
                let how = if nat { "; there is NAT on the way" } else { "" };
                format!("the {which} address answered{how}")
            }
            Phase::Public { on_hold: Some(_), .. } => {
                format!("the public address answered, waiting for the private one{using}")
            }
        };
        DiscoveryStatus { state: state.to_owned(), message }
    }

    /// Returns the addresses that can be asked.
    fn asked(&self) -> Vec<String> {
        let routed = Target::BOTH.into_iter().filter(|target| self.has_route[*target as usize]);
        let mut asked: Vec<_> = routed
            .filter_map(|target| self.remote.address(target))
            .map(|address| address.to_string())
            .collect();
        asked.dedup();
        asked
    }
}
