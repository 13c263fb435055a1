//! IKE_SA_INIT as initiator (RFC 7296 section 1.2): cookies, other groups, and errors that nobody vouches for.

use std::fmt;
use std::time::Instant;

use trieste_packet::{LaneId, Outer};

use super::engine::IkeEngine;
use super::natdetection::{self, Spis};
use super::payloads::{Payloads, words};
use super::retransmit::{Due, Retransmit};
use super::sa::{Birth, IkeSa};
use super::{EngineLoad, IkeEvent, child, negotiate};
use crate::attempts::RETRY_AFTER;
use crate::ipsec::crypto::{Group, IkeKeys, KeyAgreement};
use crate::ipsec::wire::{Exchange, Header, KeyExchange, Message, NotifyKind, Payload, emit, parse};

/// How often an attempt begins anew because the peer wants a cookie or another group. There are four groups.
const MAX_ROUNDS: u8 = 6;
/// By this we know programs like this one.
//= https://www.rfc-editor.org/rfc/rfc7296#section-3.12
//# A Vendor ID payload MAY announce that the sender is capable of
//# accepting certain extensions to the protocol
pub(super) const VENDOR_ID: &[u8] = b"Trieste IKEv2, 1";

/// An IKE_SA_INIT of ours that is not answered.
pub(super) struct Attempt {
    pub(super) spi: u64,
    pub(super) lane: LaneId,
    pub(super) plan: usize,
    pub(super) outer: Outer,
    agreement: KeyAgreement,
    nonce: Vec<u8>,
    cookie: Option<Vec<u8>>,
    pub(super) request: Vec<u8>,
    pub(super) timer: Retransmit,
    pub(super) begun: Instant,
    rounds: u8,
    /// What somebody who may be the peer said is wrong.
    pub(super) error: Option<String>,
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attempt({:016x})", self.spi)
    }
}

/// What an answered IKE_SA_INIT is made of.
pub(super) struct Answered {
    pub(super) response: Vec<u8>,
    pub(super) nonces: (Vec<u8>, Vec<u8>),
}

impl IkeEngine {
    /// Begins to make an IKE SA, if it is known where the peer is.
    pub(super) fn begin(&mut self, lane: LaneId, plan: usize, now: Instant) {
        let Some(outer) = self.peers.get(&lane).and_then(super::peer::Peer::outer) else { return };
        let Some(group) = self.config.groups.first().copied() else { return };
        let spi = self.new_spi();
        let is_silent = self.peers.get(&lane).is_some_and(|peer| peer.attempts.is_silent());
        let timer = if is_silent {
            // Sent four times; the next attempt is soon enough for what is lost of these.
            Retransmit::until(self.config.retransmit_first, now + RETRY_AFTER, now)
        } else {
            Retransmit::new(&self.config, now)
        };
        let (agreement, nonce) = (KeyAgreement::generate(group, &mut *self.rng), self.nonce());
        let mut attempt = Attempt {
            spi,
            lane,
            plan,
            outer,
            agreement,
            nonce,
            cookie: None,
            request: Vec::new(),
            timer,
            begun: now,
            rounds: 0,
            error: None,
        };
        self.send_init(&mut attempt);
        if let Some(planned) = self.peers.get_mut(&lane).and_then(|peer| peer.planned.get_mut(plan)) {
            planned.attempt = Some(spi);
        }
        self.attempts.insert(spi, attempt);
    }

    fn send_init(&mut self, attempt: &mut Attempt) {
        let Some(peer) = self.peers.get(&attempt.lane) else { return };
        let header = Header {
            spi_i: attempt.spi,
            spi_r: 0,
            exchange: Exchange::IkeSaInit,
            is_initiator: true,
            is_response: false,
            message_id: 0,
        };
        let local = peer.local_address(&attempt.outer, self.config.port);
        let spis = Spis { initiator: attempt.spi, responder: 0 };
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.6
        //# the initiator MUST retry the IKE_SA_INIT request, and include
        //# the COOKIE notification containing the received data as the
        //# first payload, and all other payloads unchanged
        let cookie = attempt.cookie.clone().map(|cookie| Payload::notify(NotifyKind::Cookie, cookie));
        let mut payloads: Vec<Payload> = cookie.into_iter().collect();
        payloads.push(Payload::Sa(negotiate::ike_offer(&self.config, None)));
        payloads.push(ke(&attempt.agreement));
        payloads.push(Payload::Nonce(attempt.nonce.clone()));
        payloads.extend(natdetection::notifies(spis, local, attempt.outer.peer, peer.is_nat_feigned()));
        payloads.push(Payload::notify(NotifyKind::FragmentationSupported, Vec::new()));
        payloads.push(Payload::VendorId(VENDOR_ID.to_vec()));
        attempt.request = emit(&header, &payloads);
        self.transmit(std::slice::from_ref(&attempt.request), attempt.outer);
    }

    /// Takes an answer to one of our IKE_SA_INITs.
    pub(super) fn on_init_response(&mut self, header: &Header, message: &[u8], from: Outer, now: Instant) {
        let Some(mut attempt) = self.attempts.remove(&header.spi_i) else {
            return self.on_other_response(header, message, from, now);
        };
        if header.message_id != 0 || from.peer.ip() != attempt.outer.peer.ip() {
            EngineLoad::count(&self.load.out_of_window);
        } else {
            match parse(message) {
                Err(_) => EngineLoad::count(&self.load.malformed),
                Ok(parsed) => {
                    attempt.outer.local = from.local.or(attempt.outer.local);
                    match self.take_init_response(&mut attempt, &parsed, message, from, now) {
                        Some((sa, answered)) => return self.authenticate(sa, answered, attempt, now),
                        None => EngineLoad::count(&self.load.unauthenticated_errors),
                    }
                }
            }
        }
        self.attempts.insert(attempt.spi, attempt);
    }

    /// The IKE SA that the answer makes, if it does.
    pub(super) fn take_init_response(
        &mut self,
        attempt: &mut Attempt,
        parsed: &Message,
        message: &[u8],
        from: Outer,
        now: Instant,
    ) -> Option<(IkeSa, Answered)> {
        let payloads = Payloads(&parsed.payloads);
        let chosen = payloads.proposals().and_then(|chosen| negotiate::chosen_ike(&self.config, chosen));
        let (Some(suite), Some(ke), Some(nonce)) = (chosen, payloads.ke(), payloads.nonce()) else {
            self.on_init_refusal(attempt, payloads, now);
            return None;
        };
        let is_same_group = suite.group == attempt.agreement.group() && ke.group == suite.group.number();
        let shared = attempt.agreement.agree(&ke.data).ok().filter(|_| is_same_group);
        let (Some(shared), true) = (shared, parsed.header.spi_r != 0) else {
            self.note(attempt, "the peer's answer makes no sense".to_owned());
            return None;
        };
        let spis = (attempt.spi, parsed.header.spi_r);
        let keys = IkeKeys::derive(suite, &shared, (&attempt.nonce, nonce), spis);
        let local = self.peers.get(&attempt.lane)?.local_address(&attempt.outer, self.config.port);
        let spis = Spis { initiator: spis.0, responder: spis.1 };
        let birth = Birth {
            spi: attempt.spi,
            peer_spi: spis.responder,
            is_initiator: true,
            keys,
            outer: Outer { peer: from.peer, local: attempt.outer.local, tos: 0 },
            nat: natdetection::detect(&parsed.payloads, spis, local, from.peer),
            has_fragments: payloads.notify(NotifyKind::FragmentationSupported).is_some(),
            is_kin: payloads.has_vendor(VENDOR_ID),
            lowest: child::lower(&attempt.nonce, nonce),
            begun: attempt.begun,
        };
        let answered =
            Answered { response: message.to_vec(), nonces: (attempt.nonce.clone(), nonce.clone()) };
        Some((IkeSa::of_init(birth, now), answered))
    }

    /// The peer, or somebody in its name, wants something else. Nothing here ends the attempt: that would be too easy for
    /// whoever is not the peer.
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.21.1
    //# Because all error notifications are completely unauthenticated, the
    //# recipient should continue trying for some time before giving up.
    fn on_init_refusal(&mut self, attempt: &mut Attempt, payloads: Payloads<'_>, now: Instant) {
        let wanted = payloads.notify(NotifyKind::InvalidKePayload).and_then(|notify| {
            let number = u16::from_be_bytes(notify.data.as_slice().try_into().ok()?);
            Group::from_number(number)
        });
        let other = |group: &Group| self.config.groups.contains(group) && *group != attempt.agreement.group();
        let (group, cookie) = (wanted.filter(other), payloads.notify(NotifyKind::Cookie));
        if attempt.rounds < MAX_ROUNDS && (group.is_some() || cookie.is_some()) {
            attempt.rounds += 1;
            if let Some(group) = group {
                attempt.agreement = KeyAgreement::generate(group, &mut *self.rng);
            }
            if let Some(cookie) = cookie {
                attempt.cookie = Some(cookie.data.clone());
            }
            attempt.timer = Retransmit::new(&self.config, now);
            self.send_init(attempt);
        } else if let Some(error) = payloads.error() {
            self.note(attempt, words(error.kind));
        }
    }

    /// Remembers and shows what is wrong, once.
    fn note(&mut self, attempt: &mut Attempt, reason: String) {
        if attempt.error.as_ref() != Some(&reason) {
            attempt.error = Some(reason.clone());
            if let Some(peer) = self.peers.get_mut(&attempt.lane) {
                peer.error = Some(reason.clone());
            }
            self.tell(IkeEvent::Failed { lane: attempt.lane, reason });
        }
    }

    /// Repeats attempts that are not answered, and ends those that never will be.
    pub(super) fn retransmit_attempts(&mut self, now: Instant) {
        let mut again = Vec::new();
        let mut dead = Vec::new();
        for attempt in self.attempts.values_mut() {
            match attempt.timer.due(now) {
                Due::Nothing => {}
                Due::Again => again.push((attempt.request.clone(), attempt.outer)),
                Due::GiveUp => dead.push(attempt.spi),
            }
        }
        for (request, outer) in again {
            EngineLoad::count(&self.load.retransmitted);
            self.transmit(&[request], outer);
        }
        for spi in dead {
            let Some(attempt) = self.attempts.remove(&spi) else { continue };
            EngineLoad::count(&self.load.dead_peers);
            let reason = attempt.error.unwrap_or_else(|| "no answer to IKE_SA_INIT".to_owned());
            self.attempt_failed(attempt.lane, attempt.plan, reason, now);
        }
    }

    /// An attempt came to nothing: it is begun again later, and nothing is worth keeping for it.
    pub(super) fn attempt_failed(&mut self, lane: LaneId, plan: usize, reason: String, now: Instant) {
        let Some(peer) = self.peers.get_mut(&lane) else { return };
        if let Some(planned) = peer.planned.get_mut(plan) {
            planned.attempt = None;
            planned.backoff.failed(&self.config, now);
            // Meanwhile the peer has begun one, which is there: nobody misses this one.
            if !planned.sas.is_empty() && !planned.is_replaced {
                return;
            }
        }
        peer.error = Some(reason.clone());
        if !peer.is_up {
            peer.order(crate::ipsec::LaneOrder::Down);
        }
        self.tell(IkeEvent::Failed { lane, reason });
    }
}

/// A public value as a payload.
pub(super) fn ke(agreement: &KeyAgreement) -> Payload {
    Payload::Ke(KeyExchange { group: agreement.group().number(), data: agreement.public().to_vec() })
}
