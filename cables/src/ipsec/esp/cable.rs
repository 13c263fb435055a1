//! One peer's fast half: takes orders, seals and opens batches, and says what happened.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use trieste_packet::wire;
use trieste_packet::{CableId, DropReason, Drops, LaneId, Outer, Packet};

use super::OVERHEAD_BYTES;
use super::early::Early;
use super::open::{EspOpener, Heard};
use super::pairs::Pairs;
use super::seal::Sealing;
use crate::boundary::{Cable, CableEvent, CableStats, Jobs, Lane, Overhead, Transmit};
use crate::held::Held;
use crate::ipsec::{EspPath, LaneNews, LaneOrder, LanePort};
use crate::opening::Opening;
use crate::prefetch::prefetch_next;

/// How often orders are looked for when no packets come. Ours: the slow half has the lane's worker woken; this is for
/// what gets lost on the way.
const ORDER_INTERVAL: Duration = Duration::from_millis(250);
/// The same while there are neither SAs nor packets that came before them.
const IDLE_INTERVAL: Duration = Duration::from_secs(10);
/// Most events that wait for the pipeline, which takes them after every call.
const MAX_EVENTS: usize = 16;

/// What a lane is made of.
#[derive(Debug)]
pub struct EspCableConfig {
    /// The lane; SPIs of its pairs carry it.
    pub lane: LaneId,
    /// For counters.
    pub cable: CableId,
    /// Where its orders come from and its news go.
    pub port: LanePort,
}

/// All child SAs of one peer. Has neither keys nor an address until the slow half orders so; what is to be sealed before
/// waits.
pub struct EspCable {
    port: LanePort,
    cable: CableId,
    pairs: Pairs,
    path: Option<EspPath>,
    held: Held,
    early: Early,
    events: VecDeque<CableEvent>,
    is_up: bool,
    next_check: Instant,
    stats: CableStats,
}

impl fmt::Debug for EspCable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EspCable")
            .field("lane", &self.port.lane)
            .field("path", &self.path)
            .field("is_up", &self.is_up)
            .finish_non_exhaustive()
    }
}

impl EspCable {
    /// A lane without any SA.
    #[must_use]
    pub fn new(config: EspCableConfig, now: Instant) -> Self {
        debug_assert_eq!(config.lane, config.port.lane, "a lane takes its own orders");
        Self {
            port: config.port,
            cable: config.cable,
            pairs: Pairs::default(),
            path: None,
            held: Held::default(),
            early: Early::default(),
            events: VecDeque::with_capacity(MAX_EVENTS),
            is_up: false,
            next_check: now + ORDER_INTERVAL,
            stats: CableStats::default(),
        }
    }

    fn take_orders(&mut self, drops: &mut Drops, now: Instant) {
        while let Some(order) = self.port.take() {
            self.obey(order, drops);
            self.pairs.is_expecting = self.early.is_expecting();
            self.refresh(now);
            self.next_check = self.next_check.min(now + ORDER_INTERVAL);
        }
    }

    fn obey(&mut self, order: LaneOrder, drops: &mut Drops) {
        use LaneOrder::{Abandon, Add, Down, Expect, Path, Remove, Retire, Seal};
        match order {
            Expect(spi) => self.early.expect(spi),
            Abandon(spi) => self.early.abandon(spi, self.cable, drops),
            Add(child) => {
                self.pairs.add(&child);
                self.early.arrived(child.inbound);
            }
            Seal(spi) => self.pairs.activate(spi),
            Retire(spi) => self.pairs.retire(spi),
            Remove(spi) => self.pairs.remove(spi),
            Path(path) => self.path = Some(path),
            Down => {
                self.held.clear(self.cable, DropReason::HeldExpired, drops);
                self.push_event(CableEvent::Down);
            }
        }
    }

    /// Notices that packets can be sealed, or no more.
    fn refresh(&mut self, now: Instant) {
        let is_up = self.path.is_some() && self.pairs.can_seal(now);
        if is_up && !self.is_up {
            self.push_event(CableEvent::LaneUp);
        }
        self.is_up = is_up;
    }

    fn push_event(&mut self, event: CableEvent) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        }
    }

    /// Follows the peer to where its newest authentic packet came from, if it may move. It never changes between UDP and
    /// raw ESP, which no NAT does.
    fn follow(&mut self, from: &Outer) {
        let Some(path) = self.path.as_mut().filter(|path| path.may_move) else { return };
        let is_raw = |outer: &Outer| outer.peer.port() == 0;
        if path.outer.peer == from.peer || is_raw(&path.outer) || is_raw(from) {
            return;
        }
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.23
        //# When such a validated packet is found, a host that does not support other methods of recovery such as
        //# MOBIKE [MOBIKE], and that is not behind a NAT, SHOULD send all packets (including retransmission packets)
        //# to the IP address and port in the validated packet
        path.outer = Outer { tos: 0, ..*from };
        self.push_event(CableEvent::Roamed(from.peer));
        self.port.tell(LaneNews::Moved { lane: self.port.lane, from: Outer { tos: 0, ..*from } });
    }

    /// Seals what is held, then the input.
    fn seal_batch(&mut self, input: &mut Vec<Packet>, path: EspPath, jobs: &mut Jobs<'_>, now: Instant) {
        let outer = Outer { tos: 0, ..path.outer };
        let mut sealing =
            Sealing::new(&mut self.pairs, &mut self.held, outer, self.cable, &mut self.stats, now);
        sealing.release(jobs);
        let mut packets = input.drain(..);
        while let Some(packet) = packets.next() {
            prefetch_next(packets.as_slice());
            sealing.seal(packet, packets.as_slice().first(), jobs);
        }
        sealing.finish(jobs);
    }
}

impl Lane for EspCable {
    fn overhead(&self) -> Overhead {
        Overhead { message_bytes: u16::try_from(OVERHEAD_BYTES).expect("37") }
    }

    fn seal(&mut self, jobs: &mut Jobs<'_>, now: Instant) {
        self.take_orders(jobs.drops, now);
        let mut input = std::mem::take(jobs.input);
        // Pings of health checks never end: for them alone a silent peer is not tried.
        if !self.is_up && input.iter().any(|packet| !wire::is_health_check(packet.bytes())) {
            self.port.want();
        }
        if let Some(path) = self.path {
            self.seal_batch(&mut input, path, jobs, now);
            self.pairs.write_meters(&self.port, now);
        } else {
            for packet in input.drain(..) {
                self.held.push(packet, jobs.pool, self.cable, jobs.drops, now);
            }
        }
        *jobs.input = input;
    }

    fn has_openable(&self) -> bool {
        self.early.is_openable()
    }

    fn open(&mut self, jobs: &mut Jobs<'_>, now: Instant) {
        self.take_orders(jobs.drops, now);
        if self.early.is_openable() {
            self.early.release(self.cable, jobs.input, jobs.pool, jobs.drops);
        }
        let opener = EspOpener {
            pairs: &mut self.pairs,
            early: &mut self.early,
            peer: self.path.map(|path| path.outer.peer.ip()),
            stats: &mut self.stats,
            now,
            heard: Heard::default(),
        };
        let heard = Opening::batch(opener, self.cable, jobs).heard;
        if let Some(from) = heard.newest_from {
            self.follow(&from);
        }
        if self.early.packets() > 0 {
            self.next_check = self.next_check.min(now + ORDER_INTERVAL);
        }
        if let Some(spi) = heard.first_of {
            self.pairs.activate(spi);
            self.refresh(now);
        }
        self.pairs.write_meters(&self.port, now);
    }
}

impl Cable for EspCable {
    /// Nothing: IKE messages go to the slow half that all peers share.
    fn handle_datagram(&mut self, datagram: &[u8], _from: &Outer, _now: Instant, drops: &mut Drops) {
        drops.lose(self.cable, DropReason::BadHandshake, datagram);
    }

    fn handle_timeout(&mut self, now: Instant, drops: &mut Drops) {
        self.take_orders(drops, now);
        if now >= self.next_check {
            self.refresh(now);
            self.early.expire(self.cable, drops, now);
            self.held.expire(self.cable, drops, now);
            let is_idle = self.pairs.is_empty() && self.early.packets() == 0;
            self.next_check = now + if is_idle { IDLE_INTERVAL } else { ORDER_INTERVAL };
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.next_check)
    }

    /// Nothing: keepalives and IKE messages are the slow half's.
    fn poll_transmit(&mut self) -> Option<Transmit> {
        None
    }

    fn poll_event(&mut self) -> Option<CableEvent> {
        self.events.pop_front()
    }

    /// Nothing: the slow half is asked directly, and orders the new keys here.
    fn rekey(&mut self, _now: Instant) {}

    /// Nothing: the slow half is told of the new address, agrees on it with the peer, and orders the path here.
    fn set_peer(&mut self, _peer: Option<SocketAddr>, _now: Instant) {}

    fn stats(&self, now: Instant) -> CableStats {
        CableStats {
            handshake_age: self.pairs.newest().map(|made| now.saturating_duration_since(made)),
            is_up: self.is_up,
            peer: self.path.map(|path| path.outer.peer),
            held: self.held.packets() + self.early.packets(),
            handshakes: self.pairs.added,
            is_silent: self.port.is_silent(),
            deferred: self.port.deferred(),
            ..self.stats
        }
    }
}
