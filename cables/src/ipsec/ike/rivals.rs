//! Several answers to one IKE_SA_INIT. Whoever sees the request on its way can answer it, and perhaps faster than the peer; but
//! only the peer can prove in IKE_AUTH that it is the peer. So all answers are followed, within bounds.

use std::time::Instant;

use trieste_packet::Outer;

use super::EngineLoad;
use super::auth::AuthOffer;
use super::engine::IkeEngine;
use super::payloads::Payloads;
use super::sa::{IkeSa, Operation, State};
use crate::ipsec::crypto::protect;
use crate::ipsec::wire::{Header, parse};

/// Most answers that are followed beside the first. Ours: who can answer more often can also swallow the request.
const MAX_RIVALS: usize = 4;

impl IkeEngine {
    /// Takes an answer to an IKE_SA_INIT of ours that was answered already.
    pub(super) fn on_other_response(&mut self, header: &Header, message: &[u8], from: Outer, now: Instant) {
        let Some(mut sa) = self.sas.remove(&header.spi_i) else {
            return EngineLoad::count(&self.load.unknown_spi);
        };
        let rival = self.rival(&mut sa, header, message, from, now);
        if let (Some(rival), Some(offer)) = (rival, sa.auth_offer()) {
            offer.rivals.push(rival);
        }
        self.sas.insert(sa.spi, sa);
    }

    fn rival(
        &mut self,
        sa: &mut IkeSa,
        header: &Header,
        message: &[u8],
        from: Outer,
        now: Instant,
    ) -> Option<IkeSa> {
        let offer = sa.auth_offer()?;
        let mut others = offer.rivals.iter_mut().filter_map(IkeSa::auth_offer);
        let is_known = offer.response == message || others.any(|other| other.response == message);
        let parsed = parse(message).ok()?;
        let is_answer = Payloads(&parsed.payloads).proposals().is_some() && header.message_id == 0;
        if is_known || !is_answer || offer.rivals.len() >= MAX_RIVALS {
            return None;
        }
        let spi = offer.child.spi;
        let mut attempt = offer.attempt.take()?;
        let is_there = from.peer.ip() == attempt.outer.peer.ip();
        let made =
            if is_there { self.take_init_response(&mut attempt, &parsed, message, from, now) } else { None };
        let Some((mut rival, answered)) = made else {
            sa.auth_offer()?.attempt = Some(attempt);
            return None;
        };
        self.send_auth(&mut rival, answered, attempt, spi, now);
        let attempt = rival.auth_offer()?.attempt.take();
        sa.auth_offer()?.attempt = attempt;
        Some(rival)
    }

    /// Of several that an IKE_AUTH response may be for, puts the one in the place of `sa` that can open it.
    pub(super) fn prefer(&self, sa: &mut IkeSa, theirs: u64, message: &[u8]) {
        let Some(offer) = sa.auth_offer() else { return };
        let opens =
            |rival: &IkeSa| rival.peer_spi == theirs && protect::open(message, &rival.open_key).is_ok();
        let Some(index) = offer.rivals.iter().position(opens) else { return };
        let mut chosen = offer.rivals.swap_remove(index);
        let (attempt, rivals) = (offer.attempt.take(), std::mem::take(&mut offer.rivals));
        std::mem::swap(sa, &mut chosen);
        if let Some(offer) = sa.auth_offer() {
            (offer.attempt, offer.rivals) = (attempt, rivals);
            offer.rivals.push(chosen);
        }
    }

    /// Whoever answered is not the peer, or says no in a way that anybody could: puts another in its place, if there is one.
    pub(super) fn prefer_next(&self, sa: &mut IkeSa, refused: &mut AuthOffer) -> bool {
        let Some(next) = refused.rivals.pop() else { return false };
        *sa = next;
        if let Some(offer) = sa.auth_offer() {
            (offer.attempt, offer.rivals) = (refused.attempt.take(), std::mem::take(&mut refused.rivals));
        }
        true
    }
}

impl IkeSa {
    /// What IKE_AUTH is to make, while it is under way.
    pub(super) fn auth_offer(&mut self) -> Option<&mut AuthOffer> {
        match &mut self.pending.as_mut()?.operation {
            Operation::Auth(offer) if self.state == State::Authenticating => Some(offer),
            Operation::Auth(_)
            | Operation::Child(_)
            | Operation::RekeyIke(_)
            | Operation::DeleteChildren(_)
            | Operation::DeleteIke
            | Operation::Probe => None,
        }
    }

    /// All requests that are to be repeated together: IKE_AUTH to whoever answered.
    pub(super) fn outstanding(&self) -> Vec<(Vec<Vec<u8>>, Outer)> {
        let Some(pending) = &self.pending else { return Vec::new() };
        let mut all = vec![(pending.datagrams.clone(), self.outer)];
        if let Operation::Auth(offer) = &pending.operation {
            all.extend(offer.rivals.iter().flat_map(Self::outstanding));
        }
        all
    }
}
