//! What there is to do: everything that time brings about. Nothing is queued: what an IKE SA should do next follows from
//! what there is and what there is to be, each time anew.

use std::time::Instant;

use trieste_packet::LaneId;

use super::EngineLoad;
use super::child::ChildState;
use super::engine::IkeEngine;
use super::receive::is_gone;
use super::retransmit::Due;
use super::sa::{IkeSa, Operation, State};
use crate::ipsec::{LaneNews, LaneOrder, Spi};

/// A NAT keepalive (RFC 3948 section 2.3).
const KEEPALIVE: u8 = 0xFF;

impl IkeEngine {
    /// Sends an IKE SA's next request, if it has none outstanding: we have a window of one.
    pub(super) fn work(&mut self, sa: &mut IkeSa, now: Instant) {
        if sa.pending.is_some() {
            return;
        }
        match sa.state {
            State::Doomed => self.delete_ike(sa, now),
            State::Established => self.work_established(sa, now),
            State::Authenticating | State::Waiting | State::Replaced(_) | State::Closed(_) => {}
        }
    }

    fn work_established(&mut self, sa: &mut IkeSa, now: Instant) {
        let doomed: Vec<Spi> = in_state(sa, ChildState::Doomed);
        if !doomed.is_empty() {
            return self.delete_children(sa, doomed, now);
        }
        if let Some(peer) = sa.lane.and_then(|lane| self.peers.get_mut(&lane)) {
            peer.compare(sa.plan, &sa.children, now);
        }
        if now >= sa.patience {
            if now >= sa.rekey_at && self.is_needed(sa) {
                return self.ask_for_ike(sa, now);
            }
            if let Some((wanted, old)) = self.child_to_renew(sa, now) {
                return self.ask_for_child(sa, wanted, Some(old), now);
            }
            if let Some(wanted) = self.child_to_make(sa, now) {
                return self.ask_for_child(sa, wanted, None, now);
            }
        }
        if sa.wants_probe || now >= sa.last_life() + self.config.dpd_interval {
            self.probe(sa, now);
        }
    }

    /// Whether an IKE SA is worth renewing: of those that came about at once with a foreign peer, only what is in use is.
    fn is_needed(&self, sa: &IkeSa) -> bool {
        let Some(peer) = sa.lane.and_then(|lane| self.peers.get(&lane)) else { return false };
        let is_last = peer.planned.get(sa.plan).is_some_and(|planned| planned.sas.last() == Some(&sa.spi));
        is_last || sa.children.keys().any(|spi| peer.is_newest(sa.plan, *spi))
    }

    /// The child SA that is to be renewed, with what it is for. Those that came about twice are left to expire.
    fn child_to_renew(&self, sa: &IkeSa, now: Instant) -> Option<(usize, Spi)> {
        let peer = self.peers.get(&sa.lane?)?;
        let least_version = peer.planned.get(sa.plan)?.least_version;
        let due = sa.children.values().find(|child| {
            child.state == ChildState::Installed
                && (now >= child.rekey_at || child.version < least_version)
                && peer.is_newest(sa.plan, child.inbound)
        })?;
        Some((due.serves.first().copied().unwrap_or_default(), due.inbound))
    }

    /// The child SA that is missing, if it is ours to ask for it and this is the IKE SA for it.
    fn child_to_make(&self, sa: &IkeSa, now: Instant) -> Option<usize> {
        let peer = self.peers.get(&sa.lane?)?;
        let planned = peer.planned.get(sa.plan)?;
        let is_ours = peer.mode.initiates() && planned.sas.last() == Some(&sa.spi) && Self::has_room(sa);
        let is_missing = |wanted: &super::peer::Wanted| {
            wanted.live.is_empty() && !wanted.is_asked && wanted.backoff.is_due(now)
        };
        if is_ours { planned.wanted.iter().position(is_missing) } else { None }
    }

    /// Repeats requests that are not answered, gives up peers that do not answer, and has pairs sealed with that waited
    /// for the peer to begin.
    pub(super) fn retransmit(&mut self, now: Instant) {
        self.retransmit_attempts(now);
        let (mut again, mut dead, mut ready) = (Vec::new(), Vec::new(), Vec::new());
        for sa in self.sas.values_mut() {
            match sa.pending.as_mut().map_or(Due::Nothing, |pending| pending.timer.due(now)) {
                Due::Nothing => {}
                Due::Again => again.extend(sa.outstanding()),
                Due::GiveUp => dead.push(sa.spi),
            }
            for child in sa.children.values_mut().filter(|child| child.seal_at.is_some_and(|at| at <= now)) {
                child.seal_at = None;
                ready.extend(sa.lane.map(|lane| (lane, child.inbound)));
            }
        }
        for (datagrams, outer) in again {
            EngineLoad::count(&self.load.retransmitted);
            self.transmit(&datagrams, outer);
        }
        for (lane, spi) in ready {
            if let Some(peer) = self.peers.get_mut(&lane) {
                peer.order(LaneOrder::Seal(spi));
            }
        }
        for spi in dead {
            if let Some(mut sa) = self.sas.remove(&spi) {
                self.give_up(&mut sa, now);
            }
        }
    }

    /// The peer does not answer.
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.4
    //# An endpoint MUST conclude that the other endpoint has failed only when
    //# repeated attempts to contact it have gone unanswered for a timeout
    //# period
    fn give_up(&mut self, sa: &mut IkeSa, now: Instant) {
        let operation = sa.pending.as_ref().map(|pending| &pending.operation);
        let is_auth = matches!(operation, Some(Operation::Auth(_)));
        let is_farewell = matches!(operation, Some(Operation::DeleteIke));
        let Some(lane) = sa.lane else { return };
        if is_auth {
            self.release_pending(sa);
            self.attempt_failed(lane, sa.plan, "no answer to IKE_AUTH".to_owned(), now);
            return;
        }
        let reason = "the peer does not answer";
        self.drop_sa(sa, is_farewell, reason, now);
        if !is_farewell {
            EngineLoad::count(&self.load.dead_peers);
            if let Some(peer) = self.peers.get_mut(&lane).filter(|peer| !peer.is_up) {
                peer.error = Some(reason.to_owned());
            }
            self.lane_down(lane);
            self.begin_due(lane, now);
        }
    }

    /// Looks at everything that needs no better timing.
    pub(super) fn tick(&mut self, now: Instant) {
        self.half_open.expire(&self.config, now);
        let lanes: Vec<LaneId> = self.peers.keys().copied().collect();
        for lane in &lanes {
            self.read_news(*lane, now);
            self.settle_duplicates(*lane, now);
        }
        for spi in self.sas.keys().copied().collect::<Vec<_>>() {
            let Some(mut sa) = self.sas.remove(&spi) else { continue };
            self.age(&mut sa, now);
            self.work(&mut sa, now);
            if !is_gone(&sa, now) {
                self.sas.insert(spi, sa);
            }
        }
        for lane in lanes {
            self.end_lingering(lane, now);
            self.keep_nat(lane, now);
            self.begin_due(lane, now);
        }
    }

    /// Hard limits are hard.
    fn age(&mut self, sa: &mut IkeSa, now: Instant) {
        match sa.state {
            State::Established if now >= sa.hard_at || sa.doom_at.is_some_and(|at| at <= now) => {
                self.doom(sa);
            }
            State::Established => {
                let old = sa
                    .children
                    .values()
                    .filter(|child| now >= child.hard_at && child.state != ChildState::Doomed);
                for spi in old.map(|child| child.inbound).collect::<Vec<_>>() {
                    self.doom_child(sa, spi);
                }
                self.settle_twins(sa, now);
            }
            // Who was to delete it has not: nothing is lost by it.
            State::Replaced(until) if now >= until => {
                self.drop_sa(sa, true, "replaced", now);
                sa.state = State::Closed(now);
            }
            State::Authenticating
            | State::Waiting
            | State::Replaced(_)
            | State::Doomed
            | State::Closed(_) => {}
        }
    }

    fn read_news(&mut self, lane: LaneId, now: Instant) {
        let Some(peer) = self.peers.get_mut(&lane) else { return };
        let news: Vec<LaneNews> = peer.news.try_iter().collect();
        for piece in news {
            match piece {
                LaneNews::Worn { child } => {
                    let worn = self.sas.values_mut().find_map(|sa| sa.children.get_mut(&child));
                    if let Some(worn) = worn {
                        worn.rekey_at = worn.rekey_at.min(now);
                    }
                }
                LaneNews::Moved { from, .. } => self.moved(lane, from),
            }
        }
    }

    /// The lane follows the peer already; IKE goes the same way.
    fn moved(&mut self, lane: LaneId, from: trieste_packet::Outer) {
        let Some(peer) = self.peers.get_mut(&lane) else { return };
        if let Some(path) = &mut peer.path {
            (path.outer.peer, path.outer.local) = (from.peer, from.local.or(path.outer.local));
        }
        for sa in self.sas.values_mut().filter(|sa| sa.lane == Some(lane) && from.peer.port() != 0) {
            sa.outer.peer = from.peer;
            sa.outer.local = from.local.or(sa.outer.local);
        }
    }

    fn end_lingering(&mut self, lane: LaneId, now: Instant) {
        let Some(peer) = self.peers.get_mut(&lane) else { return };
        while let Some((until, spi)) = peer.lingering.first().copied() {
            if until > now {
                break;
            }
            peer.lingering.pop_first();
            peer.order(LaneOrder::Remove(spi));
            peer.spis.give(spi);
        }
    }

    /// Keeps the mapping of a NAT that we are behind.
    //= https://www.rfc-editor.org/rfc/rfc3948#section-4
    //# The sole purpose of sending NAT-keepalive packets is to keep NAT
    //# mappings alive for the duration of a connection between the peers.
    fn keep_nat(&mut self, lane: LaneId, now: Instant) {
        let behind = |sa: &&IkeSa| sa.lane == Some(lane) && sa.is_established() && sa.nat.is_local;
        let Some(sa) = self.sas.values().find(behind) else { return };
        let Some(peer) = self.peers.get_mut(&lane) else { return };
        let packets = sa.children.values().filter_map(|child| child.meter.last_tx());
        let last = packets.fold(sa.last_tx.max(peer.last_keepalive), Instant::max);
        if now >= last + self.config.nat_keepalive {
            peer.last_keepalive = now;
            let outer = sa.outer;
            self.transmit_raw(vec![KEEPALIVE], outer);
        }
    }

    /// Begins what there is to be and is not.
    pub(super) fn begin_due(&mut self, lane: LaneId, now: Instant) {
        let Some(peer) = self.peers.get_mut(&lane).filter(|peer| peer.mode.initiates()) else { return };
        for plan in 0..peer.planned.len() {
            let Some(peer) = self.peers.get_mut(&lane) else { return };
            let Some(planned) = peer.planned.get(plan) else { return };
            let is_missing = planned.sas.is_empty() || planned.is_replaced;
            let is_wanted = is_missing
                && planned.attempt.is_none()
                && !planned.wanted.is_empty()
                && peer.outer().is_some();
            let is_due = planned.backoff.is_due(now);
            if is_wanted && peer.may_try(is_due, now) {
                self.begin(lane, plan, now);
            }
        }
    }
}

fn in_state(sa: &IkeSa, state: ChildState) -> Vec<Spi> {
    sa.children.values().filter(|child| child.state == state).map(|child| child.inbound).collect()
}
