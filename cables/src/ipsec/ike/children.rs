//! Installing child SAs and taking them out again.

use std::time::{Duration, Instant};

use trieste_packet::LaneId;

use super::child::{Child, ChildState};
use super::engine::IkeEngine;
use super::sa::{IkeSa, Operation};
use super::{EngineLoad, IkeEvent};
use crate::ipsec::crypto::EspOffer;
use crate::ipsec::{ChildMeter, ChildSa, EspKeys, LaneOrder, Limits, Outbound, Selectors, Spi};

/// When a pair that answers a request is sealed with although nothing came in on it: time for the answer to get there.
pub(super) const SEAL_DELAY: Duration = Duration::from_millis(100);

/// A child SA that was agreed upon.
#[derive(Debug)]
pub(super) struct NewChild {
    pub(super) inbound: Spi,
    pub(super) outbound: Spi,
    pub(super) offer: EspOffer,
    pub(super) selectors: Selectors,
    pub(super) serves: Vec<usize>,
    pub(super) version: u32,
    pub(super) inbound_keys: EspKeys,
    pub(super) outbound_keys: EspKeys,
    pub(super) is_ours: bool,
    pub(super) lowest: Vec<u8>,
}

impl IkeEngine {
    /// Hands a child SA to the lane. With [`Outbound::AfterInbound`], where nothing else is sealed with meanwhile, it is
    /// sealed with after a short time anyway.
    pub(super) fn install(&mut self, sa: &mut IkeSa, new: NewChild, activation: Outbound, now: Instant) {
        let Some(lane) = sa.lane else { return };
        self.update_path(sa);
        EngineLoad::count(&self.load.children);
        sa.busy_since = None;
        let (rekey_at, hard_at) =
            (self.jittered(self.config.child_lifetime.soft, now), now + self.config.child_lifetime.hard);
        let limits = self.limits(hard_at);
        let Some(peer) = self.peers.get_mut(&lane) else { return };
        // Another one for the same packets is sealed with until the peer shows that it has this one.
        let has_other = |spi: &Spi| {
            let other = sa.children.get(spi);
            other.is_none_or(|other| other.selectors.overlap(&new.selectors))
        };
        let meter = ChildMeter::new(now);
        peer.order(LaneOrder::Add(Box::new(ChildSa {
            inbound: new.inbound,
            outbound: new.outbound,
            suite: new.offer.suite,
            has_esn: new.offer.esn == Some(true),
            inbound_keys: new.inbound_keys.clone(),
            outbound_keys: new.outbound_keys.clone(),
            selectors: new.selectors.clone(),
            activation,
            limits,
            meter: meter.clone(),
        })));
        let mut is_alone = true;
        for index in &new.serves {
            let planned = peer.planned.get_mut(sa.plan);
            let Some(wanted) = planned.and_then(|planned| planned.wanted.get_mut(*index)) else { continue };
            is_alone &= !wanted.live.iter().any(has_other);
            wanted.live.push(new.inbound);
            wanted.error = None;
            wanted.backoff.reset(now);
        }
        let waits = activation == Outbound::AfterInbound && is_alone;
        let child = Child {
            inbound: new.inbound,
            outbound: new.outbound,
            offer: new.offer,
            selectors: new.selectors,
            serves: new.serves,
            version: new.version,
            inbound_keys: new.inbound_keys,
            outbound_keys: new.outbound_keys,
            meter,
            state: ChildState::Installed,
            is_ours: new.is_ours,
            lowest: new.lowest,
            rekey_at,
            hard_at,
            seal_at: waits.then_some(now + SEAL_DELAY),
            error: None,
        };
        sa.children.insert(child.inbound, child);
        if !peer.is_up {
            peer.is_up = true;
            self.tell(IkeEvent::Up { lane });
        }
    }

    fn limits(&self, hard_time: Instant) -> Limits {
        let (soft_packets, hard_packets) = self.config.child_packets;
        let (soft_bytes, hard_bytes) = self.config.child_bytes;
        Limits { soft_packets, hard_packets, soft_bytes, hard_bytes, hard_time }
    }

    /// Marks a child SA for deletion by us: nothing is sealed with it any more, it still opens.
    pub(super) fn doom_child(&mut self, sa: &mut IkeSa, spi: Spi) {
        self.set_aside(sa, spi, ChildState::Doomed);
        if let Some(peer) = sa.lane.and_then(|lane| self.peers.get_mut(&lane)) {
            peer.order(LaneOrder::Retire(spi));
        }
    }

    /// The peer has put another one in its place: it is sealed with until that one shows life.
    pub(super) fn replace_child(&mut self, sa: &mut IkeSa, spi: Spi) {
        self.set_aside(sa, spi, ChildState::Replaced);
    }

    fn set_aside(&mut self, sa: &mut IkeSa, spi: Spi, state: ChildState) {
        let Some(child) = sa.children.get_mut(&spi) else { return };
        child.state = state;
        child.seal_at = None;
        self.unlist_child(sa.lane, sa.plan, spi);
    }

    fn unlist_child(&mut self, lane: Option<LaneId>, plan: usize, spi: Spi) {
        if let Some(planned) = self.planned_mut(lane, plan) {
            planned.wanted.iter_mut().for_each(|wanted| wanted.live.retain(|live| *live != spi));
        }
    }

    /// Takes a child SA out. `is_lingering`: its inbound half opens what is under way for a while.
    pub(super) fn drop_child(
        &mut self,
        lane: Option<LaneId>,
        plan: usize,
        child: &Child,
        is_lingering: bool,
        reason: &str,
        now: Instant,
    ) {
        self.unlist_child(lane, plan, child.inbound);
        let Some(peer) = lane.and_then(|lane| self.peers.get_mut(&lane)) else { return };
        peer.order(LaneOrder::Retire(child.inbound));
        if is_lingering {
            peer.lingering.insert((now + self.config.linger, child.inbound));
        } else {
            peer.order(LaneOrder::Remove(child.inbound));
            peer.spis.give(child.inbound);
        }
        if peer.is_up && !peer.has_children() {
            peer.is_up = false;
            let event = IkeEvent::Down { lane: peer.lane(), reason: reason.to_owned() };
            self.tell(event);
        }
    }

    /// Takes out a child SA of an IKE SA, if it is there; says whether it was.
    pub(super) fn remove_child(
        &mut self,
        sa: &mut IkeSa,
        spi: Spi,
        is_lingering: bool,
        reason: &str,
        now: Instant,
    ) -> bool {
        let Some(child) = sa.children.remove(&spi) else { return false };
        self.drop_child(sa.lane, sa.plan, &child, is_lingering, reason, now);
        true
    }

    /// Gives back what an outstanding request holds.
    pub(super) fn release_pending(&mut self, sa: &mut IkeSa) {
        let (Some(pending), Some(lane)) = (sa.pending.take(), sa.lane) else { return };
        match pending.operation {
            Operation::Auth(offer) => self.free_offer(lane, sa.plan, &offer.child),
            Operation::Child(offer) => self.free_offer(lane, sa.plan, &offer),
            Operation::RekeyIke(offer) => self.drop_rival(&offer),
            Operation::DeleteChildren(_) | Operation::DeleteIke | Operation::Probe => {}
        }
    }
}
