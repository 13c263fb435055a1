//! A cable: both halves are one object, there is nothing to agree on.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use trieste_packet::wire;
use trieste_packet::{CableId, DropReason, Drops, LaneId, Outer, Packet};
use trieste_vxlan::{Arp, Head, Mac, Protocol, Vni};

use super::kind::overhead;
use super::known::Known;
use super::open::{VxlanOpener, check};
use super::seal::{Heads, Sealing};
use super::station::{Ends, Station};
use crate::attempts::{AttemptTimer, Due, NEW_FOR};
use crate::boundary::{Cable, CableEvent, CableStats, Jobs, Lane, LaneConfig, Overhead, Transmit};
use crate::held::Held;
use crate::opening::Opening;
use crate::prefetch::prefetch_next;

/// Most ARP packets and events that wait for the pipeline, which takes them after every call.
const MAX_WAITING: usize = 16;
/// How often what waits for the peer's station is looked at.
const HELD_INTERVAL: Duration = Duration::from_millis(250);

/// What a cable is made of besides its lane.
pub(super) struct CableParts {
    pub(super) ends: Ends,
    /// The address of the peer's station, if that is known beforehand.
    pub(super) mac: Option<Mac>,
    pub(super) known: Known,
    /// When a peer that is silent is asked.
    pub(super) attempts: AttemptTimer,
}

/// A cable to one peer.
pub(super) struct VxlanCable {
    lane: LaneId,
    cable: CableId,
    outer: Option<Outer>,
    station: Station,
    /// There once the peer's station is known.
    heads: Option<Heads>,
    held: Held,
    /// When `held` is looked at, if there is anything.
    look: Option<Instant>,
    transmits: VecDeque<Transmit>,
    events: VecDeque<CableEvent>,
    known: Known,
    attempts: AttemptTimer,
    stats: CableStats,
}

impl VxlanCable {
    pub(super) fn new(config: &LaneConfig, parts: CableParts, now: Instant) -> Self {
        let CableParts { ends, mac, known, attempts } = parts;
        Self {
            lane: config.lane,
            cable: config.cable,
            outer: config.peer.map(outer_to),
            station: Station::new(ends, mac, now),
            heads: mac.map(|mac| Heads::new(ends.mac, mac)),
            held: Held::default(),
            look: None,
            transmits: VecDeque::with_capacity(MAX_WAITING),
            events: VecDeque::with_capacity(MAX_WAITING),
            known,
            attempts,
            stats: CableStats::default(),
        }
    }

    /// Sends ARP to the peer, and to nobody else.
    fn transmit(&mut self, arp: &Arp, destination: Mac) {
        let Some(outer) = self.outer else { return };
        if self.transmits.len() == MAX_WAITING {
            return;
        }
        let payload = arp.datagram(Vni::GATEWAYS, destination);
        self.stats.tx_bytes += payload.len() as u64;
        self.transmits.push_back(Transmit { payload, outer });
    }

    fn push_event(&mut self, event: CableEvent) {
        if self.events.len() < MAX_WAITING {
            self.events.push_back(event);
        }
    }

    /// Takes in that the peer was heard, perhaps from another station than before.
    fn note(&mut self, was_up: bool, has_moved: bool) {
        if has_moved {
            let ours = self.station.ends.mac;
            self.heads = self.station.mac().map(|mac| Heads::new(ours, mac));
        }
        if self.station.is_up() {
            self.attempts.stop();
        }
        if has_moved || (!was_up && self.station.is_up()) {
            self.push_event(CableEvent::LaneUp);
        }
    }

    /// Sends what is due.
    fn ask(&mut self, now: Instant) {
        while (self.station.is_announcing(now) || self.may_ask(now))
            && let Some(arp) = self.station.poll(now)
        {
            self.transmit(&arp, Mac::BROADCAST);
        }
        while self.attempts.poll(now) == Due::Attempt {
            let arp = self.station.ask(now);
            self.transmit(&arp, Mac::BROADCAST);
        }
    }

    /// Returns `true` if the peer is to be asked by the station's own rhythm. Those that were never heard share a rate.
    fn may_ask(&mut self, now: Instant) -> bool {
        !self.attempts.is_silent()
            && self.station.is_asking(now)
            && (self.station.heard().is_some() || self.attempts.take_turn(now))
    }

    /// Asks as soon and as quickly as for a new cable.
    fn begin_anew(&mut self, now: Instant) {
        self.attempts.stop();
        self.station.begin_anew(now);
        self.ask(now);
    }

    /// Sees to it that packets for a peer that waits for its turn have it asked. Pings of health checks do not: they never
    /// end.
    fn want(&mut self, packets: &[Packet], now: Instant) {
        let is_waiting = self.attempts.is_silent() || self.attempts.turn().is_some();
        if is_waiting && packets.iter().any(|packet| !wire::is_health_check(packet.bytes())) {
            self.attempts.want(now);
            self.ask(now);
        }
    }

    fn take_arp(&mut self, datagram: &[u8], now: Instant) -> Result<(), DropReason> {
        let (head, text) = Head::parse(datagram).ok_or(DropReason::UnknownDatagram)?;
        let arp = Some(text).filter(|_| head.protocol == Protocol::Arp).and_then(Arp::parse);
        let arp = arp.ok_or(DropReason::BadHandshake)?;
        let Ends { vtep, mac, peer_vtep } = self.station.ends;
        // Somebody claims to be us.
        if arp.sender == vtep {
            return Err(DropReason::OwnStation);
        }
        let (was_up, mut has_moved) = (self.station.is_up(), false);
        let checked = check(&head, &mut self.station, now, &mut has_moved);
        self.note(was_up, has_moved);
        checked?;
        self.stats.rx_bytes += datagram.len() as u64;
        if arp.is_request && arp.target == vtep {
            self.transmit(&arp.reply(mac), head.source);
        }
        self.stats.handshakes += u64::from(!arp.is_request && arp.sender == peer_vtep);
        Ok(())
    }
}

impl Drop for VxlanCable {
    /// What still comes from the peer is a stranger's from here on.
    fn drop(&mut self) {
        self.known.remove(self.lane);
    }
}

impl Lane for VxlanCable {
    fn overhead(&self) -> Overhead {
        overhead()
    }

    fn seal(&mut self, jobs: &mut Jobs<'_>, now: Instant) {
        let mut input = std::mem::take(jobs.input);
        self.want(&input, now);
        if let (Some(outer), Some(heads)) = (self.outer, self.heads) {
            if !(input.is_empty() && self.held.is_empty()) {
                self.station.send(now);
            }
            let mut sealing = Sealing::new(heads, outer, self.cable, &mut self.stats);
            while let Some(packet) = self.held.pop(jobs.pool, self.cable, jobs.drops, now) {
                sealing.seal(packet, None, jobs);
            }
            let mut packets = input.drain(..);
            while let Some(packet) = packets.next() {
                prefetch_next(packets.as_slice());
                sealing.seal(packet, packets.as_slice().first(), jobs);
            }
            drop(packets);
            sealing.finish(jobs);
            self.look = None;
        } else {
            for packet in input.drain(..) {
                self.held.push(packet, jobs.pool, self.cable, jobs.drops, now);
            }
            self.look = self.look.or(Some(now + HELD_INTERVAL)).filter(|_| !self.held.is_empty());
        }
        *jobs.input = input;
    }

    fn open(&mut self, jobs: &mut Jobs<'_>, now: Instant) {
        let was_up = self.station.is_up();
        let opener =
            VxlanOpener { station: &mut self.station, stats: &mut self.stats, now, has_moved: false };
        let has_moved = Opening::batch(opener, self.cable, jobs).has_moved;
        self.note(was_up, has_moved);
    }
}

impl Cable for VxlanCable {
    fn handle_datagram(&mut self, datagram: &[u8], _from: &Outer, now: Instant, drops: &mut Drops) {
        if let Err(reason) = self.take_arp(datagram, now) {
            drops.lose(self.cable, reason, datagram);
        }
    }

    fn handle_timeout(&mut self, now: Instant, drops: &mut Drops) {
        if self.station.check(now) {
            self.push_event(CableEvent::Down);
        }
        if self.station.is_silent_for(NEW_FOR, now) {
            self.attempts.fall_silent(now);
        }
        self.ask(now);
        if self.look.is_some_and(|look| look <= now) {
            self.held.expire(self.cable, drops, now);
            self.look = (!self.held.is_empty()).then_some(now + HELD_INTERVAL);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let asked =
            if self.attempts.is_silent() { self.attempts.poll_timeout() } else { self.attempts.turn() };
        let due = asked.map_or_else(|| self.station.due(), |asked| self.station.due_asking_at(asked));
        Some(self.look.map_or(due, |look| look.min(due)))
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    fn poll_event(&mut self) -> Option<CableEvent> {
        self.events.pop_front()
    }

    /// There are no keys; the peer is asked.
    fn rekey(&mut self, now: Instant) {
        self.begin_anew(now);
    }

    fn set_peer(&mut self, peer: Option<SocketAddr>, now: Instant) {
        if let Some(peer) = peer
            && self.outer.is_none_or(|outer| outer.peer != peer)
        {
            self.outer = Some(outer_to(peer));
            self.begin_anew(now);
        }
    }

    fn stats(&self, now: Instant) -> CableStats {
        CableStats {
            handshake_age: self.station.heard().map(|heard| now.saturating_duration_since(heard)),
            is_up: self.station.is_up(),
            peer: self.outer.map(|outer| outer.peer),
            held: self.held.packets(),
            is_silent: self.attempts.is_silent(),
            deferred: self.attempts.deferred(),
            ..self.stats
        }
    }
}

fn outer_to(peer: SocketAddr) -> Outer {
    Outer { peer, local: None, tos: 0 }
}

#[cfg(test)]
mod tests;
