//! CREATE_CHILD_SA for IKE SAs: one in the place of another, by either side and by both at once (RFC 7296 sections 1.3.2,
//! 2.8.2 and 2.18).

use std::time::Instant;

use super::EngineLoad;
use super::auth::refusal;
use super::child;
use super::create_child::Refused;
use super::engine::IkeEngine;
use super::init::ke;
use super::negotiate;
use super::payloads::{Payloads, words};
use super::sa::{Birth, IkeSa, Operation, State};
use crate::ipsec::crypto::{Group, KeyAgreement};
use crate::ipsec::wire::{Exchange, NotifyKind, Payload};

/// How often another group is tried.
const MAX_TRIES: u8 = 3;
/// Most IKE SAs of a plan that others have replaced and their peer has not deleted.
const MAX_REPLACED: usize = 8;

/// What is to become an IKE SA, when the peer agrees.
#[derive(Debug)]
pub(super) struct IkeOffer {
    spi: u64,
    nonce: Vec<u8>,
    agreement: KeyAgreement,
    tries: u8,
    /// The IKE SA that the peer has put in the place of the same one meanwhile: our SPI of it.
    rival: Option<u64>,
}

impl IkeEngine {
    /// Asks for an IKE SA in the place of this one.
    pub(super) fn ask_for_ike(&mut self, sa: &mut IkeSa, now: Instant) {
        let group = sa.keys.suite.group;
        let (spi, nonce) = (self.new_spi(), self.nonce());
        let agreement = KeyAgreement::generate(group, &mut *self.rng);
        self.send_ike_offer(sa, IkeOffer { spi, nonce, agreement, tries: 0, rival: None }, now);
    }

    fn send_ike_offer(&mut self, sa: &mut IkeSa, offer: IkeOffer, now: Instant) {
        let payloads = [
            Payload::Sa(negotiate::ike_offer(&self.config, Some(offer.spi))),
            Payload::Nonce(offer.nonce.clone()),
            ke(&offer.agreement),
        ];
        let operation = Operation::RekeyIke(Box::new(offer));
        let datagrams = sa.request(Exchange::CreateChildSa, &payloads, operation, &self.config, now);
        sa.last_tx = now;
        self.transmit(&datagrams, sa.outer);
    }

    /// Takes the answer to a request for an IKE SA in the place of `sa`.
    pub(super) fn on_ike_response(
        &mut self,
        sa: &mut IkeSa,
        offer: IkeOffer,
        payloads: Payloads<'_>,
        now: Instant,
    ) {
        if !sa.is_established() {
            return self.drop_rival(&offer);
        }
        if let Some(error) = payloads.error() {
            return self.on_ike_refusal(sa, offer, (error.kind, error.data.clone()), now);
        }
        let Some(mut new) = self.agreed_ike(sa, &offer, payloads, now) else {
            self.drop_rival(&offer);
            return self.doom(sa);
        };
        let rival = self.take_waiting(offer.rival);
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.8.2
        //# the new IKE SA
        //# containing the lowest nonce SHOULD be deleted by the node that
        //# created it, and the other surviving new IKE SA MUST inherit all the
        //# Child SAs.
        match rival {
            Some(mut rival) if new.lowest < rival.lowest => {
                // The peer's stays and takes the child SAs; the peer deletes the old one, and we the one that is ours.
                self.succeed(sa, &mut rival, now);
                self.sas.insert(rival.spi, rival);
                sa.state = State::Replaced(now + self.config.give_up);
                (new.lane, new.plan) = (sa.lane, sa.plan);
                new.state = State::Doomed;
            }
            rival => {
                // The peer will delete the other one, unless it has forgotten it because our deletion of the old one came
                // before our answer. It is of no use either way.
                if let Some(mut rival) = rival {
                    rival.state = State::Replaced(now + self.config.give_up / 6);
                    self.sas.insert(rival.spi, rival);
                }
                self.succeed(sa, &mut new, now);
                sa.state = State::Doomed;
            }
        }
        self.work(&mut new, now);
        self.sas.insert(new.spi, new);
    }

    fn agreed_ike(
        &mut self,
        sa: &IkeSa,
        offer: &IkeOffer,
        payloads: Payloads<'_>,
        now: Instant,
    ) -> Option<IkeSa> {
        let chosen = payloads.proposals()?;
        let suite = negotiate::chosen_ike(&self.config, chosen)?;
        let peer_spi = chosen.first()?.ike_spi().filter(|spi| *spi != 0)?;
        let (theirs, nonce) = (payloads.ke()?, payloads.nonce()?);
        let is_same = suite.group == offer.agreement.group() && theirs.group == suite.group.number();
        let shared = offer.agreement.agree(&theirs.data).ok().filter(|_| is_same)?;
        let keys = sa.keys.derive_successor(suite, &shared, (&offer.nonce, nonce), (offer.spi, peer_spi));
        let lowest = child::lower(&offer.nonce, nonce);
        Some(IkeSa::new(
            Birth {
                spi: offer.spi,
                peer_spi,
                is_initiator: true,
                keys,
                outer: sa.outer,
                nat: sa.nat,
                has_fragments: sa.has_fragments,
                is_kin: sa.is_kin,
                lowest,
                begun: now,
            },
            now,
        ))
    }

    fn on_ike_refusal(&mut self, sa: &mut IkeSa, mut offer: IkeOffer, refused: Refused, now: Instant) {
        let (kind, data) = refused;
        let group = <[u8; 2]>::try_from(data.as_slice()).ok();
        let group = group.and_then(|number| Group::from_number(u16::from_be_bytes(number)));
        let is_new = |group: &Group| *group != offer.agreement.group() && self.config.groups.contains(group);
        let group = group.filter(|group| is_new(group) && offer.tries < MAX_TRIES);
        if let (NotifyKind::InvalidKePayload, Some(group), None) = (kind, group, offer.rival) {
            offer.tries += 1;
            offer.agreement = KeyAgreement::generate(group, &mut *self.rng);
            return self.send_ike_offer(sa, offer, now);
        }
        match self.take_waiting(offer.rival) {
            // The peer did not notice that we have asked as well, or did not like it: its own one is there.
            Some(mut rival) => {
                self.succeed(sa, &mut rival, now);
                self.sas.insert(rival.spi, rival);
                sa.state = State::Replaced(now + self.config.give_up);
            }
            None if kind == NotifyKind::TemporaryFailure => self.be_patient(sa, now),
            None => {
                if let Some(peer) = sa.lane.and_then(|lane| self.peers.get_mut(&lane)) {
                    peer.error = Some(format!("rekeying the IKE SA: {}", words(kind)));
                }
                sa.rekey_at = now + self.config.retry.1;
                self.start_over(sa, now);
            }
        }
    }

    /// Takes a request for an IKE SA in the place of `sa`.
    pub(super) fn on_ike_request(
        &mut self,
        sa: &mut IkeSa,
        payloads: Payloads<'_>,
        now: Instant,
    ) -> Vec<Payload> {
        let pending = sa.pending.as_ref().map(|pending| &pending.operation);
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25.2
        //# If a peer receives a request to rekey an IKE SA that it is
        //# currently trying to close, it SHOULD reply with TEMPORARY_FAILURE.
        let is_busy = matches!(pending, Some(Operation::Child(_) | Operation::DeleteChildren(_)));
        if is_busy || !sa.is_established() || self.has_rival(sa) {
            return vec![refusal(NotifyKind::TemporaryFailure, Vec::new())];
        }
        if !self.may_ask_for_ike(sa, now) {
            EngineLoad::count(&self.load.rekeys_refused);
            return vec![refusal(NotifyKind::TemporaryFailure, Vec::new())];
        }
        match self.answer_ike(sa, payloads, now) {
            Ok((answer, mut new)) => {
                match sa.pending.as_mut().map(|pending| &mut pending.operation) {
                    Some(Operation::RekeyIke(offer)) => {
                        // The answer to ours will show which one stays.
                        offer.rival = Some(new.spi);
                        (new.lane, new.plan) = (sa.lane, sa.plan);
                        new.state = State::Waiting;
                    }
                    _ => {
                        self.succeed(sa, &mut new, now);
                        self.drop_oldest_replaced(sa, now);
                        sa.state = State::Replaced(now + self.config.give_up);
                    }
                }
                self.sas.insert(new.spi, new);
                answer
            }
            Err((kind, data)) => vec![refusal(kind, data)],
        }
    }

    /// Returns `true` if the peer may have another IKE SA already. One that asks without end gets no key agreement for it.
    fn may_ask_for_ike(&mut self, sa: &IkeSa, now: Instant) -> bool {
        let allowance = self.config.ike_requests;
        let planned = self.planned_mut(sa.lane, sa.plan);
        planned.is_some_and(|planned| planned.ike_requests.take(allowance, now))
    }

    /// Makes room for one more IKE SA that is replaced, of a peer that does not delete them. Should it delete the oldest
    /// after all, it gets no answer, and does without one.
    fn drop_oldest_replaced(&mut self, sa: &IkeSa, now: Instant) {
        let replaced = self.sas.values().filter(|other| (other.lane, other.plan) == (sa.lane, sa.plan));
        let mut replaced: Vec<(Instant, u64)> = replaced
            .filter_map(|other| match other.state {
                State::Replaced(until) => Some((until, other.spi)),
                State::Authenticating
                | State::Established
                | State::Waiting
                | State::Doomed
                | State::Closed(_) => None,
            })
            .collect();
        replaced.sort_unstable();
        let surplus = (replaced.len() + 1).saturating_sub(MAX_REPLACED);
        for (_, spi) in replaced.into_iter().take(surplus) {
            if let Some(mut other) = self.sas.remove(&spi) {
                self.drop_sa(&mut other, true, "replaced", now);
            }
        }
    }

    fn has_rival(&self, sa: &IkeSa) -> bool {
        let pending = sa.pending.as_ref().map(|pending| &pending.operation);
        matches!(pending, Some(Operation::RekeyIke(offer)) if offer.rival.is_some())
    }

    fn answer_ike(
        &mut self,
        sa: &IkeSa,
        payloads: Payloads<'_>,
        now: Instant,
    ) -> Result<(Vec<Payload>, IkeSa), Refused> {
        let syntax = || (NotifyKind::InvalidSyntax, Vec::new());
        let (Some(proposals), Some(theirs), Some(ni)) =
            (payloads.proposals(), payloads.ke(), payloads.nonce())
        else {
            return Err(syntax());
        };
        let (proposal, suite) =
            negotiate::choose_ike(&self.config, &self.config.groups, proposals, theirs.group)
                .map_err(negotiate::Refusal::answer)?;
        let peer_spi = proposal.ike_spi().filter(|spi| *spi != 0).ok_or_else(syntax)?;
        let (spi, nr) = (self.new_spi(), self.nonce());
        let agreement = KeyAgreement::generate(suite.group, &mut *self.rng);
        let shared = agreement.agree(&theirs.data).map_err(|_| syntax())?;
        let keys = sa.keys.derive_successor(suite, &shared, (ni, &nr), (peer_spi, spi));
        let answer = vec![
            Payload::Sa(vec![suite.proposal(proposal.number, Some(spi))]),
            Payload::Nonce(nr.clone()),
            ke(&agreement),
        ];
        let birth = Birth {
            spi,
            peer_spi,
            is_initiator: false,
            keys,
            outer: sa.outer,
            nat: sa.nat,
            has_fragments: sa.has_fragments,
            is_kin: sa.is_kin,
            lowest: child::lower(ni, &nr),
            begun: now,
        };
        Ok((answer, IkeSa::new(birth, now)))
    }

    /// `new` takes the place of `old`, with all its child SAs.
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.8
    //# once a peer receives a
    //# request to rekey an IKE SA or sends a request to rekey an IKE SA, it
    //# SHOULD NOT start any new CREATE_CHILD_SA exchanges on the IKE SA that
    //# is being rekeyed
    fn succeed(&mut self, old: &mut IkeSa, new: &mut IkeSa, now: Instant) {
        let Some(lane) = old.lane else { return };
        new.children = std::mem::take(&mut old.children);
        self.unlist(old);
        self.establish(new, lane, old.plan, now);
    }

    /// The peer has deleted the IKE SA that both were renewing: then it has not noticed that we were, and its own
    /// successor is the one.
    pub(super) fn adopt_rival(&mut self, sa: &mut IkeSa, now: Instant) {
        let rival = match sa.pending.as_ref().map(|pending| &pending.operation) {
            Some(Operation::RekeyIke(offer)) => offer.rival,
            _ => None,
        };
        let Some(mut rival) = self.take_waiting(rival) else { return };
        self.succeed(sa, &mut rival, now);
        self.sas.insert(rival.spi, rival);
        sa.pending = None;
    }

    /// Takes out the IKE SA that the peer has made at the same time, if it is still there.
    fn take_waiting(&mut self, rival: Option<u64>) -> Option<IkeSa> {
        let spi = rival?;
        self.sas.get(&spi).filter(|rival| rival.state == State::Waiting)?;
        self.sas.remove(&spi)
    }

    /// Nothing comes of a renewal: the peer's own one, which waits for it, goes too.
    pub(super) fn drop_rival(&mut self, offer: &IkeOffer) {
        if let Some(rival) = offer.rival {
            self.sas.remove(&rival);
        }
    }
}

#[cfg(test)]
mod tests;
