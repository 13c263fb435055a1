//! IKE_AUTH as initiator (RFC 7296 section 1.2): who we are, who the peer is, and the first child SA.

use std::time::Instant;

use trieste_packet::LaneId;

use super::child::ChildOffer;
use super::engine::IkeEngine;
use super::init::{Answered, Attempt};
use super::payloads::{Payloads, words};
use super::sa::{IkeSa, Operation, State};
use super::{EngineLoad, IkeEvent, negotiate};
use crate::ipsec::wire::{Auth, AuthMethod, Exchange, Notify, NotifyKind, Payload};
use crate::ipsec::{LaneOrder, Spi};

/// What IKE_AUTH is to make.
#[derive(Debug)]
pub(super) struct AuthOffer {
    /// The first child SA.
    pub(super) child: ChildOffer,
    /// The peer's answer to IKE_SA_INIT, which its proof covers.
    pub(super) response: Vec<u8>,
    /// Our nonce and the peer's.
    nonces: (Vec<u8>, Vec<u8>),
    /// What was answered: there may be another answer.
    pub(super) attempt: Option<Attempt>,
    /// What other answers have made.
    pub(super) rivals: Vec<IkeSa>,
}

impl IkeEngine {
    /// Sends IKE_AUTH, unless the peer was faster and there is an IKE SA already.
    pub(super) fn authenticate(&mut self, mut sa: IkeSa, answered: Answered, attempt: Attempt, now: Instant) {
        let Some(peer) = self.peers.get_mut(&attempt.lane) else { return };
        let Some(planned) = peer.planned.get_mut(attempt.plan) else { return };
        let is_late = !planned.sas.is_empty() && !planned.is_replaced;
        let spi = if is_late { None } else { peer.spis.take() };
        let (Some(spi), Some(wanted)) = (spi, planned.wanted.first_mut()) else {
            planned.attempt = None;
            planned.backoff.failed(&self.config, now);
            return;
        };
        wanted.is_asked = true;
        peer.order(LaneOrder::Expect(spi));
        self.send_auth(&mut sa, answered, attempt, spi, now);
        self.sas.insert(sa.spi, sa);
    }

    /// Sends IKE_AUTH with `spi` for the first child SA.
    pub(super) fn send_auth(
        &mut self,
        sa: &mut IkeSa,
        answered: Answered,
        attempt: Attempt,
        spi: Spi,
        now: Instant,
    ) {
        (sa.lane, sa.plan) = (Some(attempt.lane), attempt.plan);
        let planned = self.peers.get(&attempt.lane).and_then(|peer| peer.planned.get(attempt.plan));
        let Some((planned, wanted)) = planned.and_then(|planned| Some((planned, planned.wanted.first()?)))
        else {
            return;
        };
        let (selectors, version) = (wanted.selectors.clone(), planned.version);
        let (local_id, remote_id) = (planned.plan.local_id.clone(), planned.plan.remote_id.clone());
        let (psk, nonces) = (self.psk_of(Some(attempt.lane)), &answered.nonces);
        let proof = sa.keys.psk_auth(psk, true, &attempt.request, &nonces.1, &local_id);
        let mut payloads = vec![Payload::IdI(local_id)];
        if planned.sas.is_empty() {
            payloads.push(Payload::notify(NotifyKind::InitialContact, Vec::new()));
        }
        payloads.push(Payload::IdR(remote_id));
        payloads.push(Payload::Auth(Auth { method: AuthMethod::SharedKey, data: proof }));
        payloads.push(Payload::Sa(negotiate::esp_offer(&self.config, spi, sa.is_kin, false)));
        payloads.push(Payload::TsI(selectors.local.clone()));
        payloads.push(Payload::TsR(selectors.remote.clone()));
        let child = ChildOffer {
            spi,
            nonce: answered.nonces.0.clone(),
            agreement: None,
            selectors,
            wanted: 0,
            version,
            old: None,
            tries: 0,
            rival: None,
        };
        let Answered { response, nonces } = answered;
        let offer = AuthOffer { child, response, nonces, attempt: Some(attempt), rivals: Vec::new() };
        let operation = Operation::Auth(Box::new(offer));
        let datagrams = sa.request(Exchange::IkeAuth, &payloads, operation, &self.config, now);
        self.transmit(&datagrams, sa.outer);
    }

    /// Takes the answer to IKE_AUTH.
    pub(super) fn on_auth_response(
        &mut self,
        sa: &mut IkeSa,
        mut offer: AuthOffer,
        payloads: Payloads<'_>,
        now: Instant,
    ) {
        let Some(lane) = sa.lane else { return };
        let is_authentic = self.is_peer_authentic(sa, &offer, payloads);
        if is_authentic != Some(true) && self.prefer_next(sa, &mut offer) {
            return EngineLoad::count(&self.load.unauthenticated_errors);
        }
        let error = payloads.error().map(|notify| words(notify.kind));
        match is_authentic {
            Some(true) => {}
            Some(false) => {
                EngineLoad::count(&self.load.authentication_failed);
                //= https://www.rfc-editor.org/rfc/rfc7296#section-2.21.2
                //# If the error occurs on the initiator, the notification MAY be returned in a
                //# separate INFORMATIONAL exchange
                sa.farewell = vec![Payload::notify(NotifyKind::AuthenticationFailed, Vec::new())];
                sa.state = State::Doomed;
                let reason = "AUTHENTICATION_FAILED: the peer has another PSK or identity".to_owned();
                return self.abandon_auth(sa, lane, &offer.child, reason, now);
            }
            None => {
                if error.as_deref() == Some("AUTHENTICATION_FAILED (peer)") {
                    EngineLoad::count(&self.load.authentication_failed);
                }
                sa.state = State::Closed(now);
                let reason = error.unwrap_or_else(|| "the peer did not authenticate itself".to_owned());
                return self.abandon_auth(sa, lane, &offer.child, reason, now);
            }
        }
        let is_contact = payloads.notify(NotifyKind::InitialContact).is_some();
        self.establish(sa, lane, sa.plan, now);
        let child = offer.child;
        let nonces = (offer.nonces.0.as_slice(), offer.nonces.1.as_slice());
        self.finish_child(sa, child, payloads, nonces, now);
        if is_contact {
            self.forget_older(sa, lane, now);
        }
    }

    /// Returns the key by which a peer is authenticated: that of the two of us, or the set's.
    pub(super) fn psk_of(&self, lane: Option<LaneId>) -> &[u8] {
        let peer = lane.and_then(|lane| self.peers.get(&lane));
        peer.and_then(|peer| peer.config.pair_key.as_ref()).unwrap_or(&self.config.psk)
    }

    /// None: it does not say who it is.
    fn is_peer_authentic(&self, sa: &IkeSa, offer: &AuthOffer, payloads: Payloads<'_>) -> Option<bool> {
        let (id, auth) = (payloads.id_r()?, payloads.auth()?);
        let planned = self.peers.get(&sa.lane?)?.planned.get(sa.plan)?;
        let psk = self.psk_of(sa.lane);
        let is_proven = auth.method == AuthMethod::SharedKey
            && sa.keys.verify_psk(&auth.data, psk, false, &offer.response, &offer.nonces.0, id);
        Some(is_proven && *id == planned.plan.remote_id)
    }

    fn abandon_auth(
        &mut self,
        sa: &mut IkeSa,
        lane: LaneId,
        child: &ChildOffer,
        reason: String,
        now: Instant,
    ) {
        sa.lane = None;
        self.free_offer(lane, sa.plan, child);
        self.attempt_failed(lane, sa.plan, reason, now);
    }

    /// Gives back what an offer of a child SA took.
    pub(super) fn free_offer(&mut self, lane: LaneId, plan: usize, offer: &ChildOffer) {
        let Some(peer) = self.peers.get_mut(&lane) else { return };
        peer.spis.give(offer.spi);
        peer.order(LaneOrder::Abandon(offer.spi));
        let planned = peer.planned.get_mut(plan);
        if let Some(wanted) = planned.and_then(|planned| planned.wanted.get_mut(offer.wanted)) {
            wanted.is_asked = offer.old.is_some() && wanted.is_asked;
        }
    }

    /// A wanted child SA could not be made.
    pub(super) fn child_failed(
        &mut self,
        lane: LaneId,
        plan: usize,
        wanted: usize,
        reason: String,
        now: Instant,
    ) {
        let config = &self.config;
        let planned = self.peers.get_mut(&lane).and_then(|peer| peer.planned.get_mut(plan));
        let Some(wanted) = planned.and_then(|planned| planned.wanted.get_mut(wanted)) else { return };
        wanted.backoff.failed(config, now);
        let is_new = wanted.error.as_ref() != Some(&reason);
        wanted.error = Some(reason.clone());
        let selectors = wanted.selectors.to_string();
        if is_new {
            self.tell(IkeEvent::ChildFailed { lane, selectors, reason });
        }
    }

    /// Nothing is left of a lane, and nobody answers.
    pub(super) fn lane_down(&mut self, lane: LaneId) {
        if let Some(peer) = self.peers.get_mut(&lane).filter(|peer| !peer.is_up) {
            peer.order(LaneOrder::Down);
        }
    }
}

/// A notify that refuses, as a payload.
pub(super) fn refusal(kind: NotifyKind, data: Vec<u8>) -> Payload {
    Payload::Notify(Notify::new(kind, data))
}
