//! The gateways that are used, as follows from notices. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::message::{Datagram, Notice, State, parse};
use super::{GatewayKey, PublicKey};

/// Ours: after this long without a notice a gateway is not listened to any more, and where others are heard it counts as
/// dead. Three notices in a row may be lost.
pub const SILENCE: Duration = Duration::from_millis(3_500);
/// Ours: who is called down by a live sibling has to have denied it within this time. Gateways speak every
/// second; one that accused others with its last words is found out soon after.
const ANSWER: Duration = Duration::from_millis(1_300);
/// Ours: gateways that lost all their paths within this time of each other did so at once. They say how they are at every
/// change and every second.
const AT_ONCE: Duration = Duration::from_millis(1_500);
/// Ours: signatures that are checked in a second, all gateways together: 50 µs each, so at most 5 % of a core. Eight
/// gateways that change ten times a second send 250.
const CHECKS_PER_SECOND: u32 = 1_000;

/// The identity of a gateway by its object in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayIdentity {
    /// Where its notices come from.
    pub address: IpAddr,
    /// The key that it signs with; `None` if it sends no notices, which is then not held against it.
    pub key: Option<PublicKey>,
}

/// Why a datagram was not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It is no notice.
    Malformed,
    /// No such gateway is known, or it has no key.
    Unknown,
    /// It came from another address than the gateway's.
    WrongAddress,
    /// It is not newer than what is known: a repetition, or replayed.
    Old,
    /// More were sent than are checked.
    TooMany,
    /// The signature is not the gateway's.
    Forged,
}

impl Refusal {
    /// All of them, in the order in which they are looked for.
    pub const ALL: [Self; 6] =
        [Self::Malformed, Self::Unknown, Self::WrongAddress, Self::Old, Self::TooMany, Self::Forged];

    /// Returns the name in messages and status documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Unknown => "unknown",
            Self::WrongAddress => "wrong address",
            Self::Old => "old",
            Self::TooMany => "too many",
            Self::Forged => "forged",
        }
    }
}

/// How a gateway stands with those who listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Nothing speaks against it.
    Up,
    /// It says that it is about to stop, or has just started.
    Draining,
    /// It says itself that it has no path to anybody.
    Down,
    /// That sibling says that it is down.
    Accused(GatewayKey),
    /// It is not heard, and others are.
    Silent,
    /// It has come while others were heard, and has not said yet that it is there.
    Coming,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up => f.write_str("it is used"),
            Self::Draining => f.write_str("it drains: it is about to stop, or has just started"),
            Self::Down => f.write_str("it says that it has no path to anybody"),
            Self::Accused(by) => write!(f, "gateway {by} says that it is down"),
            Self::Silent => f.write_str("it is not heard, while others are"),
            Self::Coming => f.write_str("it is new, and has said nothing yet"),
        }
    }
}

/// All gateways of the own cluster, and what each has said last.
#[derive(Debug)]
pub struct View {
    gateways: BTreeMap<GatewayKey, Gateway>,
    second: Instant,
    checks: u32,
    refused: BTreeMap<Refusal, u64>,
}

#[derive(Debug)]
struct Gateway {
    known: GatewayIdentity,
    since: Instant,
    received: Option<(Instant, Notice)>,
    /// When this run of it said last that it was anything but down.
    well: Option<Instant>,
    /// Whether others were heard when it came.
    is_newcomer: bool,
}

impl Gateway {
    /// Returns its last notice, while it counts.
    fn word(&self, now: Instant) -> Option<&Notice> {
        self.word_within(SILENCE, now)
    }

    /// Returns its last notice, while it can answer a sibling that calls it down.
    fn answer(&self, now: Instant) -> Option<&Notice> {
        self.word_within(ANSWER, now)
    }

    fn word_within(&self, span: Duration, now: Instant) -> Option<&Notice> {
        self.received.as_ref().filter(|(at, _)| now < *at + span).map(|(_, notice)| notice)
    }

    /// Returns the time at which its notice, or the tolerance of its silence, ends.
    fn until(&self) -> Instant {
        self.received.as_ref().map_or(self.since, |(at, _)| *at) + SILENCE
    }
}

impl View {
    /// Knows of no gateway yet.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { gateways: BTreeMap::new(), second: now, checks: 0, refused: BTreeMap::new() }
    }

    /// Takes in the gateways of the store. A gateway's earlier notices count on, unless it has another key.
    pub fn set_gateways(&mut self, known: &BTreeMap<GatewayKey, GatewayIdentity>, now: Instant) {
        self.gateways.retain(|key, _| known.contains_key(key));
        let is_newcomer = self.gateways.values().any(|gateway| gateway.word(now).is_some());
        for (key, known) in known {
            let gateway = self.gateways.entry(*key).or_insert_with(|| Gateway {
                known: known.clone(),
                since: now,
                received: None,
                well: None,
                is_newcomer,
            });
            if gateway.known.key != known.key {
                (gateway.since, gateway.received, gateway.well) = (now, None, None);
                gateway.is_newcomer = is_newcomer;
            }
            gateway.known.clone_from(known);
        }
    }

    /// Takes in a datagram that came from an address.
    ///
    /// # Errors
    ///
    /// [`Refusal`]; nothing follows from the datagram then.
    pub fn take(&mut self, datagram: &[u8], from: IpAddr, now: Instant) -> Result<(), Refusal> {
        let taken = self.believe(datagram, from, now);
        if let Err(refusal) = taken {
            let count = self.refused.entry(refusal).or_default();
            *count = count.saturating_add(1);
        }
        taken
    }

    fn believe(&mut self, datagram: &[u8], from: IpAddr, now: Instant) -> Result<(), Refusal> {
        let Some(Datagram::Notice(signed)) = parse(datagram) else { return Err(Refusal::Malformed) };
        let notice = &signed.notice;
        let gateway = self.gateways.get_mut(&notice.gateway).ok_or(Refusal::Unknown)?;
        let key = gateway.known.key.ok_or(Refusal::Unknown)?;
        if from.to_canonical() != gateway.known.address {
            return Err(Refusal::WrongAddress);
        }
        // Before the signature: what is repeated costs nothing.
        let age = |notice: &Notice| (notice.boot, notice.sequence);
        if gateway.received.as_ref().is_some_and(|(_, last)| age(notice) <= age(last)) {
            return Err(Refusal::Old);
        }
        if now >= self.second + Duration::from_secs(1) {
            (self.second, self.checks) = (now, 0);
        }
        if self.checks >= CHECKS_PER_SECOND {
            return Err(Refusal::TooMany);
        }
        self.checks += 1;
        if !signed.is_by(&key) {
            return Err(Refusal::Forged);
        }
        let is_new_run = gateway.received.as_ref().is_some_and(|(_, last)| last.boot != signed.notice.boot);
        if signed.notice.state != State::Down {
            gateway.well = Some(now);
        } else if is_new_run {
            gateway.well = None;
        }
        gateway.received = Some((now, signed.notice));
        Ok(())
    }

    /// Returns the gateways to be used: those against whom nothing speaks; if there is none, those that drain; if there
    /// is none of these either, those that were well until last: never nobody while there is somebody.
    #[must_use]
    pub fn live(&self, now: Instant) -> BTreeSet<GatewayKey> {
        let all = self.standings(now);
        let of = |wanted: fn(&Standing) -> bool| -> BTreeSet<GatewayKey> {
            all.iter().filter(|(_, standing)| wanted(standing)).map(|(key, _)| *key).collect()
        };
        let tiers: [fn(&Standing) -> bool; 3] = [
            |standing| *standing == Standing::Up,
            |standing| *standing == Standing::Draining,
            // Everybody is accused or at its end: who is heard at all is better than who is not.
            |standing| *standing != Standing::Silent,
        ];
        let first = tiers.into_iter().map(of).find(|tier| !tier.is_empty());
        let mut live: BTreeSet<GatewayKey> = first.unwrap_or_else(|| all.keys().copied().collect());
        // The only one with a path may pause for a moment, which is no reason to turn to one that has just begun.
        let well = |key: &GatewayKey| self.gateways.get(key).and_then(|gateway| gateway.well);
        let are_down = live.iter().all(|key| all.get(key) == Some(&Standing::Down));
        if are_down && let Some(last) = live.iter().filter_map(well).max() {
            live.retain(|key| well(key).is_some_and(|at| at + AT_ONCE >= last));
        }
        live
    }

    /// Returns the standing of every gateway.
    #[must_use]
    pub fn standings(&self, now: Instant) -> BTreeMap<GatewayKey, Standing> {
        self.gateways.keys().map(|key| (*key, self.standing(*key, now))).collect()
    }

    fn standing(&self, key: GatewayKey, now: Instant) -> Standing {
        let Some(gateway) = self.gateways.get(&key) else { return Standing::Silent };
        let own = gateway.word(now);
        if own.is_some_and(|own| own.state == State::Down) {
            return Standing::Down;
        }
        let mut others =
            self.gateways.iter().filter(|(other, _)| **other != key).filter_map(|(_, g)| g.word(now));
        if own.is_none() && gateway.known.key.is_some() && others.clone().count() > 0 {
            if now >= gateway.until() {
                return Standing::Silent;
            }
            if gateway.received.is_none() && gateway.is_newcomer {
                return Standing::Coming;
            }
        }
        let answer = gateway.answer(now);
        if let Some(accuser) = others.find(|other| accuses(other, key, answer)) {
            return Standing::Accused(accuser.gateway);
        }
        if own.is_some_and(|own| own.state == State::Draining) {
            return Standing::Draining;
        }
        Standing::Up
    }

    /// Returns the time at which the passing of time alone may change something; `None` if it cannot.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let ends = self.gateways.values().map(Gateway::until);
        ends.flat_map(|until| [until - (SILENCE - ANSWER), until]).filter(|end| *end > now).min()
    }

    /// Returns the time at which this gateway's newest notice was received.
    #[must_use]
    pub fn last_received(&self, key: GatewayKey) -> Option<Instant> {
        self.gateways.get(&key)?.received.as_ref().map(|(at, _)| *at)
    }

    /// Returns the number of datagrams refused for this reason.
    #[must_use]
    pub fn refused(&self, why: Refusal) -> u64 {
        self.refused.get(&why).copied().unwrap_or(0)
    }
}

/// Says whether a gateway's word counts against another. If each says that the other is down, the one with more of its
/// paths up is right; if none has more, it is the way between them that is cut, and both are used.
fn accuses(accuser: &Notice, key: GatewayKey, answer: Option<&Notice>) -> bool {
    let reports_down = |notice: &Notice, key| notice.siblings.get(&key) == Some(&State::Down);
    let is_answered =
        answer.is_some_and(|own| reports_down(own, accuser.gateway) && own.health >= accuser.health);
    accuser.state != State::Down && reports_down(accuser, key) && !is_answered
}
