//! CREATE_CHILD_SA for child SAs, new ones and those that take the place of others (RFC 7296 sections 1.3.1, 1.3.3, 2.8).

use std::time::{Duration, Instant};

use super::auth::refusal;
use super::child::{self, ChildOffer, ChildState, OtherChild};
use super::children::NewChild;
use super::engine::IkeEngine;
use super::init::ke;
use super::payloads::{Payloads, words};
use super::sa::{IkeSa, Operation};
use super::{EngineLoad, IkeEvent, narrow, negotiate};
use crate::ipsec::crypto::{Group, KeyAgreement};
use crate::ipsec::wire::{Exchange, Notify, NotifyKind, Payload};
use crate::ipsec::{LaneOrder, Outbound, Selectors, Spi};

/// Most child SAs of an IKE SA. Ours: eight subnets on each side, towards upstream.
const MAX_CHILDREN: usize = 64;
/// How often another group is tried.
const MAX_TRIES: u8 = 3;
/// How long a peer that has no time is left alone, at least and at most.
pub(super) const PATIENCE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(2500));

/// How long a peer may have no time.
const MAX_PATIENCE: Duration = Duration::from_secs(180);

/// Why a request is refused: the notify and its data.
pub(super) type Refused = (NotifyKind, Vec<u8>);

impl IkeEngine {
    /// Asks for a wanted child SA, or for one in the place of `old`.
    pub(super) fn ask_for_child(&mut self, sa: &mut IkeSa, wanted: usize, old: Option<Spi>, now: Instant) {
        let Some(peer) = sa.lane.and_then(|lane| self.peers.get_mut(&lane)) else { return };
        let Some(spi) = peer.spis.take() else { return };
        let Some(planned) = peer.planned.get_mut(sa.plan) else { return peer.spis.give(spi) };
        let Some(slot) = planned.wanted.get_mut(wanted) else { return peer.spis.give(spi) };
        slot.is_asked |= old.is_none();
        let (wanted_selectors, version) = (slot.selectors.clone(), planned.version);
        let replaced = old.and_then(|old| sa.children.get_mut(&old));
        // A foreign peer is asked for what it has agreed to. One of ours may have agreed before it knew of all networks.
        let selectors = match replaced {
            Some(old) => {
                old.version = version;
                if peer.is_trieste { wanted_selectors } else { old.selectors.clone() }
            }
            None => wanted_selectors,
        };
        peer.order(LaneOrder::Expect(spi));
        let nonce = self.nonce();
        let group = self.config.pfs.then_some(sa.keys.suite.group);
        let agreement = group.map(|group| KeyAgreement::generate(group, &mut *self.rng));
        let offer =
            ChildOffer { spi, nonce, agreement, selectors, wanted, version, old, tries: 0, rival: None };
        self.send_child_offer(sa, offer, now);
    }

    fn send_child_offer(&mut self, sa: &mut IkeSa, offer: ChildOffer, now: Instant) {
        let mut payloads = Vec::new();
        if let Some(old) = offer.old {
            payloads.push(Payload::Notify(Notify::of_esp(NotifyKind::RekeySa, old, Vec::new())));
        }
        let has_group = offer.agreement.is_some();
        payloads.push(Payload::Sa(negotiate::esp_offer(&self.config, offer.spi, sa.is_kin, has_group)));
        payloads.push(Payload::Nonce(offer.nonce.clone()));
        payloads.extend(offer.agreement.as_ref().map(ke));
        payloads.push(Payload::TsI(offer.selectors.local.clone()));
        payloads.push(Payload::TsR(offer.selectors.remote.clone()));
        let operation = Operation::Child(Box::new(offer));
        let datagrams = sa.request(Exchange::CreateChildSa, &payloads, operation, &self.config, now);
        sa.last_tx = now;
        self.transmit(&datagrams, sa.outer);
    }

    /// Takes the answer to a request for a child SA.
    pub(super) fn on_child_response(
        &mut self,
        sa: &mut IkeSa,
        offer: ChildOffer,
        payloads: Payloads<'_>,
        now: Instant,
    ) {
        let ours = offer.nonce.clone();
        match (payloads.error(), payloads.nonce()) {
            (None, Some(theirs)) => self.finish_child(sa, offer, payloads, (&ours, theirs), now),
            (error, _) => {
                let kind = error.map_or(NotifyKind::InvalidSyntax, |error| error.kind);
                let data = error.map(|error| error.data.clone()).unwrap_or_default();
                self.on_child_refusal(sa, offer, (kind, data), now);
            }
        }
    }

    /// Makes the child SA that an answer agrees to. The nonces are ours and the peer's.
    pub(super) fn finish_child(
        &mut self,
        sa: &mut IkeSa,
        offer: ChildOffer,
        payloads: Payloads<'_>,
        nonces: (&[u8], &[u8]),
        now: Instant,
    ) {
        if let Some(error) = payloads.error() {
            return self.on_child_refusal(sa, offer, (error.kind, error.data.clone()), now);
        }
        let Some(lane) = sa.lane else { return };
        if !sa.is_established() {
            return self.free_offer(lane, sa.plan, &offer);
        }
        let Some(new) = self.agreed_child(sa, &offer, payloads, nonces) else {
            // The peer believes in a child SA that we have not: only a fresh start brings the two together.
            self.free_offer(lane, sa.plan, &offer);
            let reason = "the peer's answer is not what was proposed".to_owned();
            self.child_failed(lane, sa.plan, offer.wanted, reason, now);
            return self.doom(sa);
        };
        if offer.old.is_none() {
            self.clear_asked(sa, offer.wanted);
        }
        self.note_outdated(sa, &offer);
        let (spi, lowest) = (new.inbound, new.lowest.clone());
        match offer.old {
            Some(old) => {
                //= https://www.rfc-editor.org/rfc/rfc7296#section-2.8.1
                //# the redundant
                //# SA created with the lowest of the four nonces used in the two
                //# exchanges SHOULD be closed by the endpoint that created it
                // The peer may have renewed its one meanwhile, or deleted it if it is the redundant one.
                if offer.rival.as_ref().is_some_and(|rival| lowest < rival.lowest) {
                    self.install(sa, new, Outbound::AfterInbound, now);
                    self.doom_child(sa, spi);
                    self.replace_child(sa, old);
                } else {
                    self.install(sa, new, Outbound::Now, now);
                    self.doom_child(sa, old);
                    // The peer deletes its own one; until then it counts as nobody's twin.
                    if let Some(rival) = offer.rival {
                        self.replace_child(sa, rival.spi);
                    }
                }
            }
            None => self.install(sa, new, Outbound::Now, now),
        }
    }

    fn agreed_child(
        &self,
        sa: &IkeSa,
        offer: &ChildOffer,
        payloads: Payloads<'_>,
        nonces: (&[u8], &[u8]),
    ) -> Option<NewChild> {
        let group = offer.agreement.as_ref().map(KeyAgreement::group);
        let (outbound, agreed) = negotiate::chosen_esp(&self.config, payloads.proposals()?, group)?;
        let answer = Selectors { local: payloads.ts_i()?.clone(), remote: payloads.ts_r()?.clone() };
        if !narrow::is_narrowed(&offer.selectors, &answer) || outbound.0 < 256 {
            return None;
        }
        let shared = match agreed.group {
            None => None,
            Some(group) => {
                let theirs = payloads.ke().filter(|theirs| theirs.group == group.number())?;
                Some(offer.agreement.as_ref()?.agree(&theirs.data).ok()?)
            }
        };
        let keys = sa.keys.child_keys(agreed.suite, shared.as_ref().map(|shared| shared.as_slice()), nonces);
        let mut serves = self.serves(sa, &answer);
        if !serves.contains(&offer.wanted) {
            serves.push(offer.wanted);
        }
        Some(NewChild {
            inbound: offer.spi,
            outbound,
            offer: agreed,
            selectors: answer,
            serves,
            version: offer.version,
            inbound_keys: keys.responder,
            outbound_keys: keys.initiator,
            is_ours: true,
            lowest: child::lower(nonces.0, nonces.1),
        })
    }

    /// Notes that the plan has changed since we have asked for a child SA: whoever's change it was, we ask again.
    fn note_outdated(&mut self, sa: &IkeSa, offer: &ChildOffer) {
        let planned = self.planned_mut(sa.lane, sa.plan);
        if let Some(planned) = planned.filter(|planned| planned.version != offer.version) {
            planned.least_version = planned.version;
        }
    }

    fn clear_asked(&mut self, sa: &IkeSa, wanted: usize) {
        let planned = self.planned_mut(sa.lane, sa.plan);
        if let Some(wanted) = planned.and_then(|planned| planned.wanted.get_mut(wanted)) {
            wanted.is_asked = false;
        }
    }

    /// Which child SAs of the plan one with these selectors serves.
    fn serves(&self, sa: &IkeSa, selectors: &Selectors) -> Vec<usize> {
        let planned = sa.lane.and_then(|lane| self.peers.get(&lane)?.planned.get(sa.plan));
        let Some(planned) = planned else { return Vec::new() };
        let wanted = planned.wanted.iter().enumerate();
        wanted.filter(|(_, wanted)| wanted.selectors.overlap(selectors)).map(|(index, _)| index).collect()
    }

    fn on_child_refusal(&mut self, sa: &mut IkeSa, mut offer: ChildOffer, refused: Refused, now: Instant) {
        let Some(lane) = sa.lane else { return };
        let (kind, data) = refused;
        if !sa.is_established() {
            return self.free_offer(lane, sa.plan, &offer);
        }
        if let (NotifyKind::InvalidKePayload, Some(group)) = (kind, self.other_group(&offer, &data)) {
            offer.tries += 1;
            offer.agreement = Some(KeyAgreement::generate(group, &mut *self.rng));
            return self.send_child_offer(sa, offer, now);
        }
        self.free_offer(lane, sa.plan, &offer);
        if let (Some(old), true) =
            (offer.old, offer.rival.as_ref().is_some_and(|rival| sa.children.contains_key(&rival.spi)))
        {
            // What the peer has made in its place stays.
            return self.replace_child(sa, old);
        }
        match (kind, offer.old) {
            (NotifyKind::TemporaryFailure, old) => {
                // Still due, whatever it was for.
                let old = old.and_then(|old| sa.children.get_mut(&old));
                old.into_iter().for_each(|old| old.rekey_at = old.rekey_at.min(now));
                self.be_patient(sa, now);
            }
            //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25
            //# A CHILD_SA_NOT_FOUND notification SHOULD be sent when a peer receives
            //# a request to rekey a Child SA that does not exist.
            (NotifyKind::ChildSaNotFound, Some(old)) => {
                self.remove_child(sa, old, true, "the peer does not have the child SA", now);
            }
            (NotifyKind::NoAdditionalSas, Some(old)) => {
                self.rekey_failed(sa, old, words(kind), now);
                self.start_over(sa, now);
            }
            (_, Some(old)) => self.rekey_failed(sa, old, words(kind), now),
            (_, None) => self.child_failed(lane, sa.plan, offer.wanted, words(kind), now),
        }
    }

    fn other_group(&self, offer: &ChildOffer, data: &[u8]) -> Option<Group> {
        let group = Group::from_number(u16::from_be_bytes(data.try_into().ok()?))?;
        let tried = offer.agreement.as_ref()?.group();
        let is_new = group != tried && offer.tries < MAX_TRIES && self.config.groups.contains(&group);
        is_new.then_some(group)
    }

    /// The peer has no time.
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25
    //# If a peer continues to receive
    //# TEMPORARY_FAILURE on the same IKE SA after several minutes, it SHOULD
    //# conclude that the state information is out of sync and close the IKE
    //# SA.
    pub(super) fn be_patient(&mut self, sa: &mut IkeSa, now: Instant) {
        if now >= *sa.busy_since.get_or_insert(now) + MAX_PATIENCE {
            return self.doom(sa);
        }
        sa.patience = now + PATIENCE.0 + self.random_up_to(PATIENCE.1 - PATIENCE.0);
    }

    /// A child SA could not be renewed: it lives on, and it is tried again.
    fn rekey_failed(&mut self, sa: &mut IkeSa, old: Spi, reason: String, now: Instant) {
        let wait = self.config.retry.1;
        sa.busy_since = None;
        let Some(child) = sa.children.get_mut(&old) else { return };
        child.rekey_at = now + wait;
        let is_new = child.error.as_ref() != Some(&reason);
        child.error = Some(reason.clone());
        let selectors = child.selectors.to_string();
        if let (true, Some(lane)) = (is_new, sa.lane) {
            self.tell(IkeEvent::ChildFailed { lane, selectors, reason });
        }
    }

    /// Has an IKE SA made in the place of one that cannot be renewed.
    pub(super) fn start_over(&mut self, sa: &IkeSa, now: Instant) {
        if let Some(planned) = self.planned_mut(sa.lane, sa.plan) {
            planned.is_replaced = true;
            planned.backoff.reset(now);
        }
    }

    /// Takes a request for a child SA, or for one in the place of another.
    pub(super) fn on_child_request(
        &mut self,
        sa: &mut IkeSa,
        payloads: Payloads<'_>,
        now: Instant,
    ) -> Vec<Payload> {
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25.2
        //# If a peer receives a request to create or rekey a Child SA when it is currently
        //# rekeying the IKE SA, it SHOULD reply with TEMPORARY_FAILURE.
        let is_busy =
            sa.pending.as_ref().is_some_and(|pending| matches!(pending.operation, Operation::RekeyIke(_)));
        if is_busy || !sa.is_established() {
            return vec![refusal(NotifyKind::TemporaryFailure, Vec::new())];
        }
        let old = match self.rekeyed_by(sa, payloads) {
            Ok(old) => old,
            Err(answer) => return vec![answer],
        };
        if !self.may_ask_for_child(sa, now) {
            EngineLoad::count(&self.load.rekeys_refused);
            return vec![refusal(NotifyKind::TemporaryFailure, Vec::new())];
        }
        match self.answer_child(sa, payloads, None) {
            Ok((answer, new)) => {
                let other = OtherChild { spi: new.inbound, lowest: new.lowest.clone() };
                // The place of an old one is kept by that until the peer shows that it has the new one.
                self.install(sa, new, Outbound::AfterInbound, now);
                if let Some(old) = old {
                    self.replaced_by_peer(sa, old, other);
                }
                answer
            }
            Err((kind, data)) => vec![refusal(kind, data)],
        }
    }

    /// Returns `true` if the peer may have another child SA already.
    fn may_ask_for_child(&mut self, sa: &IkeSa, now: Instant) -> bool {
        let allowance = self.config.child_requests;
        let planned = self.planned_mut(sa.lane, sa.plan);
        planned.is_some_and(|planned| planned.child_requests.take(allowance, now))
    }

    /// Which of our child SAs a request is to put another in the place of.
    fn rekeyed_by(&self, sa: &IkeSa, payloads: Payloads<'_>) -> Result<Option<Spi>, Payload> {
        let Some(rekey) = payloads.notify(NotifyKind::RekeySa) else { return Ok(None) };
        let Some(theirs) = rekey.esp_spi() else {
            return Err(refusal(NotifyKind::InvalidSyntax, Vec::new()));
        };
        let has_asked =
            matches!(&sa.pending, Some(pending) if matches!(pending.operation, Operation::Child(_)));
        match sa.children.values().find(|child| child.outbound == theirs) {
            // It may be the one that the answer to our own request brings, which is late or lost.
            None if has_asked => Err(refusal(NotifyKind::TemporaryFailure, Vec::new())),
            None => Err(Payload::Notify(Notify::of_esp(NotifyKind::ChildSaNotFound, theirs, Vec::new()))),
            //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25.1
            //# If a peer receives a request to rekey a Child SA that it is
            //# currently trying to close, it SHOULD reply with TEMPORARY_FAILURE.
            Some(child) if child.state != ChildState::Installed => {
                Err(refusal(NotifyKind::TemporaryFailure, Vec::new()))
            }
            Some(child) => Ok(Some(child.inbound)),
        }
    }

    /// The peer has made `new` in the place of `old`. If we have asked for the same, the answer will show which one stays.
    fn replaced_by_peer(&mut self, sa: &mut IkeSa, old: Spi, new: OtherChild) {
        let pending = sa.pending.as_mut().map(|pending| &mut pending.operation);
        match pending {
            Some(Operation::Child(offer)) if offer.old == Some(old) => offer.rival = Some(new),
            _ => self.replace_child(sa, old),
        }
    }

    /// Answers a request for a child SA. `first`: the nonces of IKE_SA_INIT, in IKE_AUTH.
    pub(super) fn answer_child(
        &mut self,
        sa: &IkeSa,
        payloads: Payloads<'_>,
        first: Option<(&[u8], &[u8])>,
    ) -> Result<(Vec<Payload>, NewChild), Refused> {
        let result = self.try_answer_child(sa, payloads, first);
        if let (Err((kind, _)), Some(lane)) = (&result, sa.lane) {
            let proposed = Selectors {
                local: payloads.ts_r().cloned().unwrap_or_default(),
                remote: payloads.ts_i().cloned().unwrap_or_default(),
            };
            let reason = format!("{kind} (our answer)");
            self.tell(IkeEvent::ChildFailed { lane, selectors: proposed.to_string(), reason });
        }
        result
    }

    fn try_answer_child(
        &mut self,
        sa: &IkeSa,
        payloads: Payloads<'_>,
        first: Option<(&[u8], &[u8])>,
    ) -> Result<(Vec<Payload>, NewChild), Refused> {
        let syntax = || (NotifyKind::InvalidSyntax, Vec::new());
        let proposals = payloads.proposals().ok_or_else(syntax)?;
        let (ts_i, ts_r) = (payloads.ts_i().ok_or_else(syntax)?, payloads.ts_r().ok_or_else(syntax)?);
        let theirs = payloads.ke();
        let group = theirs.map(|theirs| theirs.group);
        let (proposal, agreed) = negotiate::choose_esp(&self.config, proposals, group, first.is_some())
            .map_err(negotiate::Refusal::answer)?;
        let outbound = proposal.esp_spi().filter(|spi| spi.0 >= 256).ok_or_else(syntax)?;
        let proposed = Selectors { local: ts_r.clone(), remote: ts_i.clone() };
        let selectors = self.acceptable(sa, &proposed);
        let is_all = selectors.as_ref().is_some_and(|selectors| selectors.include(&proposed));
        if let Some(planned) = self.planned_mut(sa.lane, sa.plan) {
            planned.has_narrowed = !is_all;
        }
        let selectors = selectors.ok_or((NotifyKind::TsUnacceptable, Vec::new()))?;
        let full = || (NotifyKind::NoAdditionalSas, Vec::new());
        // Before the key agreement, which is what costs.
        if !Self::has_room(sa) {
            return Err(full());
        }
        let own = self.nonce();
        let nonces = match (first, payloads.nonce()) {
            (Some(nonces), _) => nonces,
            (None, Some(theirs)) => (theirs.as_slice(), own.as_slice()),
            (None, None) => return Err(syntax()),
        };
        let agreement = agreed.group.map(|group| KeyAgreement::generate(group, &mut *self.rng));
        let shared = match (&agreement, theirs) {
            (Some(agreement), Some(theirs)) => Some(agreement.agree(&theirs.data).map_err(|_| syntax())?),
            _ => None,
        };
        let keys = sa.keys.child_keys(agreed.suite, shared.as_ref().map(|shared| shared.as_slice()), nonces);
        let serves = self.serves(sa, &selectors);
        let peer = sa.lane.and_then(|lane| self.peers.get_mut(&lane)).ok_or_else(full)?;
        let version = peer.planned.get(sa.plan).map_or(0, |planned| planned.version);
        let inbound = peer.spis.take().ok_or_else(full)?;
        let mut answer = vec![Payload::Sa(vec![agreed.proposal(proposal.number, inbound)])];
        if first.is_none() {
            answer.push(Payload::Nonce(nonces.1.to_vec()));
            answer.extend(agreement.as_ref().map(ke));
        }
        answer.push(Payload::TsI(selectors.remote.clone()));
        answer.push(Payload::TsR(selectors.local.clone()));
        let new = NewChild {
            inbound,
            outbound,
            offer: agreed,
            selectors,
            serves,
            version,
            inbound_keys: keys.initiator,
            outbound_keys: keys.responder,
            is_ours: false,
            lowest: child::lower(nonces.0, nonces.1),
        };
        Ok((answer, new))
    }

    fn acceptable(&self, sa: &IkeSa, proposed: &Selectors) -> Option<Selectors> {
        let planned = self.peers.get(&sa.lane?)?.planned.get(sa.plan)?;
        narrow::narrow(&planned.plan.children, proposed)
    }

    /// Whether an IKE SA has room for one more child SA.
    pub(super) fn has_room(sa: &IkeSa) -> bool {
        sa.children.len() < MAX_CHILDREN
    }

    /// Counts what verified and was wrong inside.
    pub(super) fn count_invalid(&self) {
        EngineLoad::count(&self.load.invalid_syntax);
    }
}
