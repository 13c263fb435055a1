//! IKE_AUTH as responder (RFC 7296 section 1.2): who is it?

use std::time::Instant;

use trieste_packet::{LaneId, Outer};

use super::auth::refusal;
use super::engine::IkeEngine;
use super::half_open::HalfOpen;
use super::payloads::Payloads;
use super::sa::{Birth, IkeSa, State};
use super::{EngineLoad, IkeEvent, child, narrow};
use crate::ipsec::crypto::{IkeKeys, protect};
use crate::ipsec::wire::{Auth, AuthMethod, Exchange, Id, NotifyKind, Payload, parse_payloads};
use crate::ipsec::{Outbound, Selectors};

impl IkeEngine {
    /// Takes an IKE_AUTH request for a half-open IKE SA.
    pub(super) fn on_auth_request(&mut self, spi: u64, message: &[u8], from: Outer, now: Instant) {
        let Some(mut half) = self.half_open.remove(spi) else { return };
        let Some(payloads) = self.open_auth(&mut half, message, from) else {
            return self.half_open.put_back(half);
        };
        let Some(keys) = half.keys.clone() else { return };
        let mut sa = IkeSa::of_init(birth(&half, keys, from), now);
        let answer = match &payloads {
            Ok(payloads) => self.admit(&mut sa, &half, Payloads(payloads), now),
            Err(refused) => Err(refused.clone()),
        };
        match answer {
            Ok((answer, lane, is_contact)) => {
                let datagrams = sa.respond(Exchange::IkeAuth, &answer, &self.config).to_vec();
                if is_contact {
                    self.forget_older(&mut sa, lane, now);
                }
                self.transmit(&datagrams, from);
                self.sas.insert(sa.spi, sa);
            }
            Err((kind, data)) => {
                half.answered = sa.respond(Exchange::IkeAuth, &[refusal(kind, data)], &self.config).to_vec();
                self.transmit(&half.answered.clone(), from);
                self.half_open.put_back(half);
            }
        }
    }

    /// Opens it, if it is authentic, whole and new.
    #[expect(clippy::type_complexity, reason = "the payloads, or what is wrong with them")]
    fn open_auth(
        &mut self,
        half: &mut HalfOpen,
        message: &[u8],
        from: Outer,
    ) -> Option<Result<Vec<Payload>, (NotifyKind, Vec<u8>)>> {
        if half.keys.is_none() {
            let Ok(shared) = half.agreement.agree(&half.peer_public) else {
                EngineLoad::count(&self.load.invalid_syntax);
                return None;
            };
            let nonces = (half.nonces.0.as_slice(), half.nonces.1.as_slice());
            half.keys = Some(IkeKeys::derive(half.suite, &shared, nonces, (half.peer_spi, half.spi)));
        }
        let Ok(opened) = protect::open(message, &half.keys.as_ref()?.message_key(true)) else {
            EngineLoad::count(&self.load.bad_integrity);
            return None;
        };
        if opened.header.message_id != 1 {
            EngineLoad::count(&self.load.out_of_window);
            return None;
        }
        if !half.answered.is_empty() {
            if opened.fragment.is_none_or(|fragment| fragment.number == 1) {
                EngineLoad::count(&self.load.repeated_responses);
                self.transmit(&half.answered.clone(), from);
            }
            return None;
        }
        let whole = half.reassembly.add(opened)?;
        Some(parse_payloads(whole.first, &whole.body).map_err(|error| {
            EngineLoad::count(&self.load.invalid_syntax);
            error.answer()
        }))
    }

    /// Whether the peer may come in; with our answer.
    #[expect(clippy::type_complexity, reason = "our answer, whose it is, whether it is the only one")]
    fn admit(
        &mut self,
        sa: &mut IkeSa,
        half: &HalfOpen,
        payloads: Payloads<'_>,
        now: Instant,
    ) -> Result<(Vec<Payload>, LaneId, bool), (NotifyKind, Vec<u8>)> {
        let Some(id) = payloads.id_i() else { return Err((NotifyKind::InvalidSyntax, Vec::new())) };
        let found = self.find_plan(id, payloads, sa.outer);
        let psk = self.psk_of(found.map(|(lane, _)| lane));
        let is_proven = payloads.auth().is_some_and(|auth| {
            auth.method == AuthMethod::SharedKey
                && sa.keys.verify_psk(&auth.data, psk, true, &half.request, &half.nonces.1, id)
        });
        let (Some((lane, plan)), true) = (found, is_proven) else {
            let why = if is_proven { "no cable to it" } else { "it has another PSK" };
            self.note_refused(found, id, why);
            return Err((NotifyKind::AuthenticationFailed, Vec::new()));
        };
        self.check_address(lane, plan, id, sa.outer, now)?;
        (sa.lane, sa.plan) = (Some(lane), plan);
        let Some(planned) = self.peers.get(&lane).and_then(|peer| peer.planned.get(plan)) else {
            return Err((NotifyKind::AuthenticationFailed, Vec::new()));
        };
        let local_id = planned.plan.local_id.clone();
        let proof =
            sa.keys.psk_auth(self.psk_of(Some(lane)), false, &half.response, &half.nonces.0, &local_id);
        let mut answer =
            vec![Payload::IdR(local_id), Payload::Auth(Auth { method: AuthMethod::SharedKey, data: proof })];
        self.establish(sa, lane, plan, now);
        if payloads.proposals().is_some() {
            let nonces = (half.nonces.0.as_slice(), half.nonces.1.as_slice());
            match self.answer_child(sa, payloads, Some(nonces)) {
                Ok((child, new)) => {
                    answer.extend(child);
                    self.install(sa, new, Outbound::AfterInbound, now);
                }
                Err((kind, data)) => answer.push(refusal(kind, data)),
            }
        }
        Ok((answer, lane, payloads.notify(NotifyKind::InitialContact).is_some()))
    }

    /// Refuses who is not where the peer can be. Whoever has the set's key can say that it is any of its members, so that an
    /// address is all that tells peers without a key of their own apart: one that its Endpoint or NAT discovery names, and,
    /// while the peer answers from one, no other.
    fn check_address(
        &mut self,
        lane: LaneId,
        plan: usize,
        id: &Id,
        from: Outer,
        now: Instant,
    ) -> Result<(), (NotifyKind, Vec<u8>)> {
        let Some(peer) = self.peers.get(&lane) else { return Ok(()) };
        if peer.has_pair_key() || self.config.takes_any_address {
            return Ok(());
        }
        let address = from.peer.ip();
        if !peer.is_at(address) {
            let why = format!(
                "it comes from {address}, which is none of its Endpoint's addresses; where such a peer is behind a NAT that \
                 nobody knows, set ipsec.any-address"
            );
            self.note_refused(Some((lane, plan)), id, &why);
            return Err((NotifyKind::AuthenticationFailed, Vec::new()));
        }
        let elsewhere = peer.planned.get(plan).map(|planned| planned.sas.clone()).unwrap_or_default();
        let elsewhere = elsewhere.into_iter().find(|spi| {
            let sa = self.sas.get(spi);
            sa.is_some_and(|sa| {
                sa.is_established() && sa.outer.peer.ip() != address && self.is_alive(sa, now)
            })
        });
        let Some(spi) = elsewhere else { return Ok(()) };
        // It is asked whether it is still there: if not, the new one may come in when that is known.
        if let Some(mut sa) = self.sas.remove(&spi) {
            sa.wants_probe = true;
            self.work(&mut sa, now);
            self.sas.insert(spi, sa);
        }
        self.note_refused(Some((lane, plan)), id, "it answers from another address");
        Err((NotifyKind::TemporaryFailure, Vec::new()))
    }

    /// Tells whether a peer has been heard so lately that it is not being given up.
    fn is_alive(&self, sa: &IkeSa, now: Instant) -> bool {
        now.saturating_duration_since(sa.last_life())
            < self.config.dpd_interval + self.config.retransmit_first * 4
    }

    fn note_refused(&mut self, found: Option<(LaneId, usize)>, id: &Id, why: &str) {
        EngineLoad::count(&self.load.authentication_failed);
        let Some((lane, _)) = found else { return };
        let reason = format!("AUTHENTICATION_FAILED: {id} turned away: {why}");
        if let Some(peer) = self.peers.get_mut(&lane).filter(|peer| peer.error.as_ref() != Some(&reason)) {
            peer.error = Some(reason.clone());
            self.tell(IkeEvent::Failed { lane, reason });
        }
    }

    /// Which plan of which peer an initiator means. Several clusters may have gateways of one private address: then its
    /// subnets, and then where it is, tell them apart. A plan for just these subnets comes before one for more: a cable
    /// between gateways of one cluster is for everything.
    fn find_plan(&self, id: &Id, payloads: Payloads<'_>, from: Outer) -> Option<(LaneId, usize)> {
        let proposed = Selectors {
            local: payloads.ts_r().cloned().unwrap_or_default(),
            remote: payloads.ts_i().cloned().unwrap_or_default(),
        };
        let mut best: Option<([bool; 3], (LaneId, usize))> = None;
        for peer in self.peers.values() {
            for (index, planned) in peer.planned.iter().enumerate() {
                let is_meant = payloads.id_r().is_none_or(|id| *id == planned.plan.local_id);
                if planned.plan.remote_id != *id || !is_meant {
                    continue;
                }
                let fits = narrow::narrow(&planned.plan.children, &proposed).is_some();
                let is_exact = planned.plan.children.contains(&proposed);
                let is_there = peer.is_at(from.peer.ip());
                let score = [fits, is_exact, is_there];
                if best.is_none_or(|(known, _)| known < score) {
                    best = Some((score, (peer.lane(), index)));
                }
            }
        }
        best.map(|(_, found)| found)
    }
}

fn birth(half: &HalfOpen, keys: IkeKeys, from: Outer) -> Birth {
    Birth {
        spi: half.spi,
        peer_spi: half.peer_spi,
        is_initiator: false,
        keys,
        outer: Outer { tos: 0, ..from },
        nat: half.nat,
        has_fragments: half.has_fragments,
        is_kin: half.is_kin,
        lowest: child::lower(&half.nonces.0, &half.nonces.1),
        begun: half.made,
    }
}

impl IkeSa {
    /// Whether the peer has proved who it is.
    pub(super) fn is_authentic(&self) -> bool {
        self.state != State::Authenticating
    }
}
