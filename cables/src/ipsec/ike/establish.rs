//! What an IKE SA that came about means for others of the same peer (RFC 7296 sections 2.4, 2.8.2 and 2.23).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use trieste_packet::{LaneId, Outer};

use super::EngineLoad;
use super::child::{Child, ChildState};
use super::engine::IkeEngine;
use super::sa::{IkeSa, Operation, State};
use crate::ipsec::{EspPath, Spi};

/// Most IKE SAs that a peer may have for the same thing. Ours: both ends begin, and both renew at the same time.
const MAX_SAS: usize = 8;
/// Most IKE SAs of a peer that are gone and whose last answers can be repeated.
const MAX_CLOSED: usize = 16;
/// How long two SAs are kept that came about at once: until the answers that make the second one have arrived, or one
/// of their repetitions.
const DOUBT: Duration = Duration::from_secs(1);

impl IkeEngine {
    /// The peer has proved who it is, or the IKE SA takes the place of one whose peer has.
    pub(super) fn establish(&mut self, sa: &mut IkeSa, lane: LaneId, plan: usize, now: Instant) {
        EngineLoad::count(&self.load.established);
        (sa.lane, sa.plan, sa.state, sa.established) = (Some(lane), plan, State::Established, now);
        sa.rekey_at = self.jittered(self.config.ike_lifetime.soft, now);
        sa.hard_at = now + self.config.ike_lifetime.hard;
        let (first_retry, courtesy) = (self.config.retry.0, self.config.courtesy);
        let Some(peer) = self.peers.get_mut(&lane) else { return };
        peer.handshakes += 1;
        peer.last_handshake = Some(now);
        peer.error = None;
        peer.begin_anew(now);
        let again = now + first_retry + peer.courtesy(&self.config);
        let Some(planned) = peer.planned.get_mut(plan) else { return };
        planned.sas.push(sa.spi);
        if sa.is_initiator {
            planned.attempt = None;
            // Who answered leaves it to us to ask for the other child SAs.
        } else {
            for wanted in planned.wanted.iter_mut().filter(|wanted| wanted.live.is_empty()) {
                wanted.backoff.reset(now + courtesy);
            }
        }
        planned.backoff.reset(again);
        let replaced = std::mem::take(&mut planned.is_replaced);
        let mut older: Vec<u64> = planned.sas.iter().copied().filter(|spi| *spi != sa.spi).collect();
        self.drop_attempt_before_auth(lane, plan);
        if !replaced {
            older.truncate(older.len().saturating_sub(MAX_SAS - 1));
        }
        older.into_iter().for_each(|spi| self.doom_ike(spi, now));
        self.forget_closed(lane);
        self.update_path(sa);
    }

    /// A peer that makes and deletes IKE SAs without end has no answers repeated.
    fn forget_closed(&mut self, lane: LaneId) {
        let is_closed = |sa: &&IkeSa| sa.lane == Some(lane) && matches!(sa.state, State::Closed(_));
        let closed: Vec<u64> = self.sas.values().filter(is_closed).map(|sa| sa.spi).collect();
        closed.iter().skip(MAX_CLOSED).for_each(|spi| {
            self.sas.remove(spi);
        });
    }

    /// An attempt of ours that has not said who we are is of no use any more: the peer was faster.
    fn drop_attempt_before_auth(&mut self, lane: LaneId, plan: usize) {
        let planned = self.peers.get_mut(&lane).and_then(|peer| peer.planned.get_mut(plan));
        let Some(planned) = planned else { return };
        if let Some(spi) = planned.attempt.filter(|spi| self.attempts.contains_key(spi)) {
            self.attempts.remove(&spi);
            planned.attempt = None;
        }
    }

    /// Says to the lane where packets go, as this IKE SA has it.
    pub(super) fn update_path(&mut self, sa: &IkeSa) {
        let Some(peer) = sa.lane.and_then(|lane| self.peers.get_mut(&lane)) else { return };
        // Two Trieste gateways always go through UDP: raw ESP has neither GSO nor GRO.
        let is_udp = peer.is_encapsulated() || sa.nat.is_local || sa.nat.is_remote;
        let port = if is_udp { sa.outer.peer.port() } else { 0 };
        let outer = Outer { peer: SocketAddr::new(sa.outer.peer.ip(), port), local: sa.outer.local, tos: 0 };
        peer.set_path(EspPath { outer, may_move: is_udp && sa.nat.is_remote });
    }

    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.4
    //# The INITIAL_CONTACT notification, if sent, MUST be in the first
    //# IKE_AUTH request or response, not as a separate exchange afterwards
    /// The peer says that it has no other IKE SA with us: those that were there before it began this one are dead. Others
    /// are not meant: they came about while its message was under way.
    pub(super) fn forget_older(&mut self, sa: &mut IkeSa, lane: LaneId, now: Instant) {
        let planned = self.peers.get(&lane).and_then(|peer| peer.planned.get(sa.plan));
        let Some(planned) = planned else { return };
        let (begun, own) = (sa.begun, sa.spi);
        let dead: Vec<u64> = planned
            .sas
            .iter()
            .copied()
            .filter(|spi| *spi != own && self.sas.get(spi).is_some_and(|other| other.established < begun))
            .collect();
        for spi in dead {
            let Some(mut other) = self.sas.remove(&spi) else { continue };
            self.drop_sa(&mut other, false, "the peer has begun anew", now);
        }
    }

    /// Both ends have begun at once: of two IKE SAs, who began the one with the lowest nonce deletes it, as with
    /// rekeyings that collide. Foreign peers keep both, and so do we while they do.
    pub(super) fn settle_duplicates(&mut self, lane: LaneId, now: Instant) {
        let Some(peer) = self.peers.get_mut(&lane) else { return };
        for planned in &mut peer.planned {
            let rank = |spi: &u64| self.sas.get(spi).filter(|sa| sa.is_kin).map(|sa| sa.lowest.clone());
            // What is asked for in the meantime is asked for in the one that stays.
            planned.sas.sort_by_cached_key(rank);
            let kept = planned.sas.last().copied();
            for spi in &planned.sas {
                let Some(sa) = self.sas.get_mut(spi).filter(|sa| sa.is_kin && sa.is_established()) else {
                    continue;
                };
                if Some(*spi) == kept {
                    sa.doom_at = None;
                } else if sa.is_initiator && sa.doom_at.is_none() {
                    sa.doom_at = Some(now + DOUBT);
                }
            }
        }
    }

    /// Both ends have asked for the same child SA at once: likewise. Of two that are new or of which one is being renewed
    /// it is not known yet whether both stay.
    pub(super) fn settle_twins(&mut self, sa: &mut IkeSa, now: Instant) {
        let is_asking =
            sa.pending.as_ref().is_some_and(|pending| matches!(pending.operation, Operation::Child(_)));
        if !sa.is_kin || is_asking {
            return;
        }
        let is_settled =
            |child: &&Child| child.state == ChildState::Installed && now >= child.meter.made() + DOUBT;
        let settled: Vec<&Child> = sa.children.values().filter(is_settled).collect();
        let is_loser = |child: &&&Child| {
            let mut others = settled.iter().filter(|other| other.serves == child.serves);
            child.is_ours && others.any(|other| other.lowest > child.lowest)
        };
        let losers: Vec<Spi> = settled.iter().filter(is_loser).map(|child| child.inbound).collect();
        losers.into_iter().for_each(|spi| self.doom_child(sa, spi));
    }

    /// Marks an IKE SA for deletion.
    pub(super) fn doom_ike(&mut self, spi: u64, now: Instant) {
        if let Some(mut sa) = self.sas.remove(&spi) {
            self.doom(&mut sa);
            self.work(&mut sa, now);
            self.sas.insert(spi, sa);
        }
    }

    /// Marks an IKE SA for deletion: nothing is sealed with its child SAs any more, and it counts no more as one that is
    /// there.
    pub(super) fn doom(&mut self, sa: &mut IkeSa) {
        if matches!(sa.state, State::Closed(_) | State::Doomed) {
            return;
        }
        sa.state = State::Doomed;
        self.unlist(sa);
        for spi in sa.children.keys().copied().collect::<Vec<_>>() {
            self.doom_child(sa, spi);
        }
    }

    /// The plan is without this IKE SA from here on.
    pub(super) fn unlist(&mut self, sa: &IkeSa) {
        if let Some(planned) = self.planned_mut(sa.lane, sa.plan) {
            planned.sas.retain(|spi| *spi != sa.spi);
            if planned.attempt == Some(sa.spi) {
                planned.attempt = None;
            }
        }
    }

    /// An IKE SA is gone, with its child SAs. `is_lingering`: packets that are under way are still opened.
    pub(super) fn drop_sa(&mut self, sa: &mut IkeSa, is_lingering: bool, reason: &str, now: Instant) {
        self.unlist(sa);
        self.release_pending(sa);
        let children = std::mem::take(&mut sa.children);
        for (_, child) in children {
            self.drop_child(sa.lane, sa.plan, &child, is_lingering, reason, now);
        }
        let again = now + self.config.retry.0;
        if let Some(peer) = sa.lane.and_then(|lane| self.peers.get_mut(&lane)) {
            if peer.handshakes > 0 {
                peer.lost = now;
            }
            let courtesy = peer.courtesy(&self.config);
            if let Some(planned) = peer.planned.get_mut(sa.plan).filter(|planned| planned.sas.is_empty()) {
                // One that did not last is as good as one that failed.
                if now < sa.established + self.config.retry.1 && !is_lingering {
                    planned.backoff.failed(&self.config, now);
                } else {
                    planned.backoff.reset(again + courtesy);
                }
            }
        }
    }
}
