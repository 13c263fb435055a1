//! Cables come, go and move.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use crossbeam::channel::Receiver;
use ipnet::IpNet;
use trieste_packet::LaneId;

use super::PeerConfig;
use super::engine::IkeEngine;
use super::peer::Peer;
use super::sa::State;
use crate::attempts::AttemptTimer;
use crate::ipsec::{LaneLink, LaneNews};

impl IkeEngine {
    /// There is a cable to a peer.
    pub(super) fn connect(
        &mut self,
        config: PeerConfig,
        link: LaneLink,
        news: Receiver<LaneNews>,
        now: Instant,
    ) {
        let lane = config.lane;
        self.disconnect(lane, now);
        let start = self.rng.next_u32().to_le_bytes()[0];
        let seed = self.rng.next_u64();
        let attempts = AttemptTimer::new(Arc::clone(&self.budget), seed, now);
        let peer = Peer::new(config, (link, news), &self.config, start, attempts, now);
        self.peers.insert(lane, peer);
        self.begin_due(lane, now);
    }

    /// A cable is closed: the peer is told, and keys are gone at once.
    pub(super) fn disconnect(&mut self, lane: LaneId, now: Instant) {
        if !self.peers.contains_key(&lane) {
            return;
        }
        self.attempts.retain(|_, attempt| attempt.lane != lane);
        let spis: Vec<u64> = self.sas.values().filter(|sa| sa.lane == Some(lane)).map(|sa| sa.spi).collect();
        for spi in spis {
            let Some(mut sa) = self.sas.remove(&spi) else { continue };
            let is_told = !matches!(sa.state, State::Authenticating | State::Closed(_) | State::Replaced(_));
            self.drop_sa(&mut sa, false, "the cable is closed", now);
            sa.lane = None;
            if is_told {
                sa.state = State::Doomed;
                self.work(&mut sa, now);
                self.sas.insert(spi, sa);
            }
        }
        self.peers.remove(&lane);
    }

    /// The peer is somewhere else.
    pub(super) fn set_address(&mut self, lane: LaneId, address: SocketAddr, now: Instant) {
        let Some(peer) = self.peers.get_mut(&lane) else { return };
        if peer.config.address.replace(address) != Some(address) {
            peer.begin_anew(now);
        }
        let stale: Vec<u64> = self
            .attempts
            .values()
            .filter(|attempt| attempt.lane == lane && attempt.outer.peer != address)
            .map(|attempt| attempt.spi)
            .collect();
        for planned in &mut peer.planned {
            if planned.attempt.is_some_and(|attempt| stale.contains(&attempt)) {
                planned.attempt = None;
                planned.backoff.reset(now);
            }
        }
        stale.iter().for_each(|spi| {
            self.attempts.remove(spi);
        });
        let moved: Vec<u64> = self
            .sas
            .values()
            .filter(|sa| sa.lane == Some(lane) && sa.is_established() && sa.outer.peer != address)
            .map(|sa| sa.spi)
            .collect();
        for spi in moved {
            self.redirect(spi, address, now);
        }
        self.begin_due(lane, now);
    }

    /// Makes child SAs for other networks in the place of those that there are (RFC 7296 sections 1.3.3 and 2.9), where it is for
    /// this end to ask. Packets for what stays go on with the older child SA until the peer has the newer one.
    pub(super) fn set_networks(&mut self, lane: LaneId, local: Vec<IpNet>, remote: Vec<IpNet>, now: Instant) {
        let asks = self.peers.get_mut(&lane).is_some_and(|peer| peer.set_networks(local, remote, now));
        if asks {
            self.work_all(lane, now);
            self.begin_due(lane, now);
        }
    }

    /// A Trieste gateway takes its IKE SA along; of others that is not known, so one is made anew beside the old one.
    fn redirect(&mut self, spi: u64, address: SocketAddr, now: Instant) {
        let Some(mut sa) = self.sas.remove(&spi) else { return };
        if sa.is_kin {
            sa.outer.peer = address;
            sa.wants_probe = true;
            self.update_path(&sa);
            self.work(&mut sa, now);
        } else {
            self.start_over(&sa, now);
        }
        self.sas.insert(spi, sa);
    }

    /// New keys for everything of a lane.
    pub(super) fn rekey(&mut self, lane: LaneId, now: Instant) {
        for sa in self.sas.values_mut().filter(|sa| sa.lane == Some(lane) && sa.is_established()) {
            sa.rekey_at = now;
            sa.children.values_mut().for_each(|child| child.rekey_at = now);
        }
        self.work_all(lane, now);
    }

    /// Begins what is due for all IKE SAs of a lane.
    fn work_all(&mut self, lane: LaneId, now: Instant) {
        let of_lane = self.sas.values().filter(|sa| sa.lane == Some(lane));
        for spi in of_lane.map(|sa| sa.spi).collect::<Vec<_>>() {
            let Some(mut sa) = self.sas.remove(&spi) else { continue };
            self.work(&mut sa, now);
            self.sas.insert(spi, sa);
        }
    }
}
