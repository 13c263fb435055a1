//! IKE_AUTH as initiator (RFC 7296 section 1.2): who we are, who the peer is, and the first child SA.

use std::time::Instant;

use trieste_packet::LaneId;
use zeroize::Zeroizing;

use super::child::ChildOffer;
use super::engine::IkeEngine;
use super::init::Answered;
use super::payloads::{Payloads, words};
use super::sa::{IkeSa, Operation, State};
use super::{EngineLoad, IkeEvent, negotiate};
use crate::ipsec::LaneOrder;
use crate::ipsec::wire::{Auth, AuthMethod, Exchange, Notify, NotifyKind, Payload};

/// What IKE_AUTH is to make.
#[derive(Debug)]
pub(super) struct AuthOffer {
    /// The first child SA.
    pub(super) child: ChildOffer,
    /// The peer's answer to IKE_SA_INIT, which its proof covers.
    response: Vec<u8>,
    /// Our nonce and the peer's.
    nonces: (Vec<u8>, Vec<u8>),
}

impl IkeEngine {
    /// Sends IKE_AUTH, unless the peer was faster and there is an IKE SA already.
    pub(super) fn authenticate(&mut self, mut sa: IkeSa, answered: Answered, now: Instant) {
        let (lane, plan) = answered.attempt_plan;
        (sa.lane, sa.plan) = (Some(lane), plan);
        let Some(peer) = self.peers.get_mut(&lane) else { return };
        let Some(planned) = peer.planned.get_mut(plan) else { return };
        if !planned.sas.is_empty() && !planned.is_replaced {
            planned.attempt = None;
            return;
        }
        let is_first = planned.sas.is_empty();
        let Some(wanted) = planned.wanted.first_mut() else { return };
        let Some(spi) = peer.spis.take() else { return };
        wanted.is_asked = true;
        let selectors = wanted.selectors.clone();
        let (local_id, remote_id) = (planned.plan.local_id.clone(), planned.plan.remote_id.clone());
        let proof =
            sa.keys.psk_auth(&self.config.psk, true, &answered.request, &answered.nonces.1, &local_id);
        let mut payloads = vec![Payload::IdI(local_id)];
        if is_first {
            payloads.push(Payload::notify(NotifyKind::InitialContact, Vec::new()));
        }
        payloads.push(Payload::IdR(remote_id));
        payloads.push(Payload::Auth(Auth { method: AuthMethod::SharedKey, data: proof }));
        payloads.push(Payload::Sa(negotiate::esp_offer(&self.config, spi, sa.is_kin, false)));
        payloads.push(Payload::TsI(selectors.local.clone()));
        payloads.push(Payload::TsR(selectors.remote.clone()));
        let nonce = answered.nonces.0.clone();
        let child = ChildOffer {
            spi,
            nonce,
            agreement: None,
            selectors,
            wanted: 0,
            old: None,
            tries: 0,
            rival: None,
        };
        let offer = AuthOffer { child, response: answered.response, nonces: answered.nonces };
        let operation = Operation::Auth(Box::new(offer));
        let datagrams = sa.request(Exchange::IkeAuth, &payloads, operation, &self.config, now);
        self.transmit(&datagrams, sa.outer);
        self.sas.insert(sa.spi, sa);
    }

    /// Takes the answer to IKE_AUTH.
    pub(super) fn on_auth_response(
        &mut self,
        sa: &mut IkeSa,
        offer: AuthOffer,
        payloads: Payloads<'_>,
        now: Instant,
    ) {
        let Some(lane) = sa.lane else { return };
        let is_authentic = self.is_peer_authentic(sa, &offer, payloads);
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

    /// None: it does not say who it is.
    fn is_peer_authentic(&self, sa: &IkeSa, offer: &AuthOffer, payloads: Payloads<'_>) -> Option<bool> {
        let (id, auth) = (payloads.id_r()?, payloads.auth()?);
        let planned = self.peers.get(&sa.lane?)?.planned.get(sa.plan)?;
        let psk: &Zeroizing<Vec<u8>> = &self.config.psk;
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
