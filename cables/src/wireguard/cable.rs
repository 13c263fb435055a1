//! One tunnel: boringtun's `Tunn` as both halves of a cable.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use boringtun::noise::errors::WireGuardError;
use boringtun::noise::{Tunn, TunnResult};
use trieste_packet::segment::{self, Segmenter};
use trieste_packet::wire;
use trieste_packet::{CableId, DropReason, Drops, Layout, LayoutKind, Outer, Packet};

use super::message::{self, OVERHEAD_BYTES, REJECT_AFTER_MESSAGES};
use crate::attempts::{AttemptTimer, Due, NEW_FOR, RETRY_AFTER};
use crate::boundary::{Cable, CableEvent, CableStats, Jobs, Lane, Overhead, Transmit};
use crate::held::{HELD_AGE, Held};
use crate::prefetch::prefetch_next;
use crate::seal_train::SealTrain;

/// How often `Tunn`'s timers are called while there is a session, or one was lost just now. It names no next time-out of
/// its own; the finest of its timers is five seconds.
const TIMER_INTERVAL: Duration = Duration::from_millis(250);
/// How much later than it may wait a packet is dropped, so that others that came with it are too.
const HELD_SLACK: Duration = Duration::from_millis(50);
/// Messages are padded to a multiple of this (WireGuard paper, section 5.4.6).
const PADDING_BYTES: usize = 16;
/// Most datagrams waiting to be sent by the slow half; each is answered by at most one, so more never wait.
const MAX_TRANSMITS: usize = 16;
/// Most packets in one opened train: the width of its presence bitmap.
const MAX_OPENED: u16 = 64;

/// What a tunnel is made of.
pub(super) struct CableParts {
    pub(super) tunn: Tunn,
    pub(super) cable: CableId,
    /// Where the peer is, if that is known.
    pub(super) peer: Option<SocketAddr>,
    /// When it is tried.
    pub(super) attempts: AttemptTimer,
}

/// A WireGuard tunnel to one peer.
///
/// While there is a session, and for [`NEW_FOR`] after the peer's last message, `Tunn`'s timers say when handshakes are
/// begun. Before the first session and after that time they stand still, and [`AttemptTimer`] does: `Tunn` begins one every
/// five seconds for as long as it is called.
pub(super) struct WireguardCable {
    tunn: Tunn,
    cable: CableId,
    outer: Option<Outer>,
    held: Held,
    transmits: VecDeque<Transmit>,
    events: VecDeque<CableEvent>,
    next_timer: Instant,
    attempts: AttemptTimer,
    /// When something authentic last arrived.
    received: Option<Instant>,
    /// When `Tunn`'s clock was set last, while its timers stand still.
    clock: Instant,
    is_up: bool,
    stats: CableStats,
}

impl WireguardCable {
    /// Begins at once to reach the peer, if it is known where it is.
    pub(super) fn new(parts: CableParts, now: Instant) -> Self {
        let CableParts { tunn, cable, peer, attempts } = parts;
        let mut this = Self {
            tunn,
            cable,
            outer: peer.map(outer_to),
            held: Held::default(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            next_timer: now + TIMER_INTERVAL,
            attempts,
            received: None,
            clock: now,
            is_up: false,
            stats: CableStats::default(),
        };
        if this.outer.is_some() {
            this.attempts.begin(now);
            this.initiate(false);
        }
        this
    }

    fn initiate(&mut self, is_forced: bool) {
        if self.outer.is_none() {
            return;
        }
        let mut buffer = [0u8; message::INITIATION_BYTES];
        if let TunnResult::WriteToNetwork(message) =
            self.tunn.format_handshake_initiation(&mut buffer, is_forced)
        {
            let payload = message.to_vec();
            self.transmit(payload);
        }
    }

    fn transmit(&mut self, payload: Vec<u8>) {
        let Some(outer) = self.outer else { return };
        self.transmit_to(payload, outer);
    }

    fn transmit_to(&mut self, payload: Vec<u8>, outer: Outer) {
        if self.transmits.len() == MAX_TRANSMITS {
            self.transmits.pop_front();
        }
        self.stats.tx_bytes += payload.len() as u64;
        // Handshakes are marked as urgent, as the kernel's WireGuard does (DSCP AF41, ECN not capable).
        let tos = if payload.len() == OVERHEAD_BYTES { 0 } else { 0x88 };
        self.transmits.push_back(Transmit { payload, outer: Outer { tos, ..outer } });
    }

    /// Notices that a session came or went. One clock read of boringtun's.
    fn refresh(&mut self, now: Instant) {
        let is_up = self.tunn.time_since_last_handshake().is_some();
        if is_up && !self.is_up {
            self.events.push_back(CableEvent::LaneUp);
            self.attempts.stop();
            self.received = Some(now);
            self.next_timer = now + TIMER_INTERVAL;
        }
        self.is_up = is_up;
    }

    /// Begins a handshake with a peer that does not answer. `Tunn`'s clock stands still in between; its timers, which set
    /// it, may begin the handshake themselves.
    fn attempt(&mut self, now: Instant) {
        self.clock = now;
        let mut buffer = [0u8; message::INITIATION_BYTES];
        match self.tunn.update_timers(&mut buffer) {
            TunnResult::WriteToNetwork(message) => {
                let message = message.to_vec();
                self.transmit(message);
            }
            TunnResult::Err(_)
            | TunnResult::Done
            | TunnResult::WriteToTunnelV4(..)
            | TunnResult::WriteToTunnelV6(..) => self.initiate(true),
        }
    }

    /// Sets `Tunn`'s clock, before a message is read that may make a session: it would be as old as the clock. What its
    /// timers want sent is not: the message comes of the peer, or of somebody who must not make us send. Nor are they called
    /// while the answer to an attempt is due, which they could end.
    fn set_clock(&mut self, now: Instant) {
        if self.attempts.is_on() && now.saturating_duration_since(self.clock) >= RETRY_AFTER {
            self.clock = now;
            let mut buffer = [0u8; message::INITIATION_BYTES];
            let _ = self.tunn.update_timers(&mut buffer);
        }
    }

    /// Tries a peer that does not answer, if its time has come.
    fn try_peer(&mut self, now: Instant, drops: &mut Drops) {
        loop {
            match self.attempts.poll(now) {
                Due::Nothing => break,
                Due::Attempt => self.attempt(now),
                Due::Silence => self.abandon(drops),
            }
        }
        if self.attempts.is_silent() {
            self.held.expire(self.cable, drops, now);
        }
    }

    /// Gives up what waits for a peer that has not answered for [`NEW_FOR`].
    fn abandon(&mut self, drops: &mut Drops) {
        self.held.clear(self.cable, DropReason::HeldExpired, drops);
        self.events.push_back(CableEvent::Down);
    }

    /// Runs `Tunn`'s timers.
    fn run_timers(&mut self, now: Instant, drops: &mut Drops) {
        if now < self.next_timer {
            return;
        }
        self.next_timer = now + TIMER_INTERVAL;
        let mut buffer = [0u8; message::INITIATION_BYTES];
        let mut is_expired = false;
        match self.tunn.update_timers(&mut buffer) {
            TunnResult::WriteToNetwork(message) => {
                let message = message.to_vec();
                self.transmit(message);
            }
            TunnResult::Err(error) => is_expired = matches!(error, WireGuardError::ConnectionExpired),
            TunnResult::Done | TunnResult::WriteToTunnelV4(..) | TunnResult::WriteToTunnelV6(..) => {}
        }
        self.refresh(now);
        let is_lost = self.received.is_some_and(|at| now.saturating_duration_since(at) >= NEW_FOR);
        if is_expired && !is_lost {
            // Ninety seconds without an answer, but not without a word. `Tunn` stays silent until it is asked.
            self.abandon(drops);
            self.initiate(true);
        } else if is_lost && !self.is_up && self.outer.is_some() {
            self.abandon(drops);
            self.attempts.fall_silent(now);
        }
    }

    /// Sees to it that packets which wait for keys have the peer tried. Pings of health checks do not: they never end.
    fn want(&mut self, packets: &[Packet], now: Instant, drops: &mut Drops) {
        if packets.is_empty() {
            return;
        }
        if !self.attempts.is_silent() {
            self.initiate(false);
        }
        if self.attempts.is_on() && packets.iter().any(|packet| !wire::is_health_check(packet.bytes())) {
            self.attempts.want(now);
            self.try_peer(now, drops);
        }
    }

    /// Follows an authenticated message to where it came from.
    fn follow(&mut self, from: &Outer) {
        let moved = self.outer.is_none_or(|outer| outer.peer != from.peer);
        if moved && self.events.len() < MAX_TRANSMITS {
            self.events.push_back(CableEvent::Roamed(from.peer));
        }
        self.outer = Some(Outer { tos: 0, ..*from });
    }

    fn open_train(&mut self, packet: &Packet, opened: &mut OpenTrain, jobs: &mut Jobs<'_>, now: Instant) {
        let from = packet.outer.peer.ip();
        let count = usize::from(packet.layout.count);
        let mut is_authentic = false;
        for index in 0..count {
            let (start, end) = packet.segment_range(index);
            let datagram = &packet.bytes()[start..end];
            if message::counter(datagram) >= REJECT_AFTER_MESSAGES {
                jobs.drops.lose(self.cable, DropReason::Replay, datagram);
                continue;
            }
            let Some(slot) = opened.slot(datagram.len(), packet, jobs) else {
                jobs.drops.count(self.cable, DropReason::NoBuffer, 1);
                continue;
            };
            match self.tunn.decapsulate(Some(from), datagram, slot) {
                TunnResult::WriteToTunnelV4(..) | TunnResult::WriteToTunnelV6(..) => {
                    opened.keep();
                    is_authentic = true;
                    self.stats.rx_packets += 1;
                    self.stats.rx_bytes += datagram.len() as u64;
                }
                TunnResult::Done => {
                    is_authentic = true;
                    *jobs.consumed += 1;
                    self.stats.rx_bytes += datagram.len() as u64;
                }
                TunnResult::Err(error) => jobs.drops.lose(self.cable, reason(&error), datagram),
                TunnResult::WriteToNetwork(_) => jobs.drops.count(self.cable, DropReason::BadHandshake, 1),
            }
        }
        if is_authentic {
            self.received = Some(now);
            self.follow(&packet.outer);
        }
    }

    fn seal_packet(&mut self, packet: &mut Packet, train: &mut SealTrain, jobs: &mut Jobs<'_>) {
        let tos = wire::tos(packet.bytes()) & 3;
        train.set_tos(tos, jobs);
        let segments = packet.segments();
        let limit = usize::from(packet.decision.mtu_bytes);
        if packet.layout.kind == LayoutKind::Single {
            if let Err(reason) = segment::finish_single(packet) {
                jobs.drops.count(self.cable, reason, segments);
                return;
            }
            pad(packet, limit);
            self.seal_one(packet.bytes(), train, jobs);
            return;
        }
        match Segmenter::new(packet) {
            Ok(mut segmenter) => {
                while let Some(segment) = segmenter.next_segment() {
                    self.seal_one(segment, train, jobs);
                }
            }
            Err(reason) => jobs.drops.count(self.cable, reason, segments),
        }
    }

    fn seal_one(&mut self, segment: &[u8], train: &mut SealTrain, jobs: &mut Jobs<'_>) {
        let bytes = segment.len() + OVERHEAD_BYTES;
        let tunn = &mut self.tunn;
        let is_sealed = train.append(bytes, jobs, |space| {
            matches!(tunn.encapsulate(segment, space), TunnResult::WriteToNetwork(message) if message.len() == bytes)
        });
        if is_sealed {
            self.stats.tx_packets += 1;
            self.stats.tx_bytes += bytes as u64;
        }
    }
}

impl Lane for WireguardCable {
    fn overhead(&self) -> Overhead {
        Overhead { message_bytes: u16::try_from(OVERHEAD_BYTES).expect("32") }
    }

    fn seal(&mut self, jobs: &mut Jobs<'_>, now: Instant) {
        self.refresh(now);
        let mut input = std::mem::take(jobs.input);
        let Some(outer) = self.outer.filter(|_| self.is_up) else {
            self.want(&input, now, jobs.drops);
            for packet in input.drain(..) {
                self.held.push(packet, jobs.pool, self.cable, jobs.drops, now);
            }
            *jobs.input = input;
            return;
        };
        let mut train = SealTrain::new(outer, self.cable);
        while let Some(mut packet) = self.held.pop(jobs.pool, self.cable, jobs.drops, now) {
            self.seal_packet(&mut packet, &mut train, jobs);
            jobs.pool.recycle(packet.buf);
        }
        let mut packets = input.drain(..);
        while let Some(mut packet) = packets.next() {
            prefetch_next(packets.as_slice());
            self.seal_packet(&mut packet, &mut train, jobs);
            jobs.pool.recycle(packet.buf);
        }
        drop(packets);
        train.flush(jobs);
        *jobs.input = input;
    }

    fn open(&mut self, jobs: &mut Jobs<'_>, now: Instant) {
        let mut input = std::mem::take(jobs.input);
        let mut opened = OpenTrain::new(self.cable);
        let mut packets = input.drain(..);
        while let Some(packet) = packets.next() {
            prefetch_next(packets.as_slice());
            self.open_train(&packet, &mut opened, jobs, now);
            jobs.pool.recycle(packet.buf);
        }
        drop(packets);
        opened.flush(jobs);
        *jobs.input = input;
        if !self.is_up || !self.held.is_empty() {
            // The first data message confirms the responder's keys: packets may be waiting for them.
            self.refresh(now);
        }
    }
}

impl Cable for WireguardCable {
    fn handle_datagram(&mut self, datagram: &[u8], from: &Outer, now: Instant, drops: &mut Drops) {
        self.set_clock(now);
        let mut buffer = [0u8; message::INITIATION_BYTES];
        match self.tunn.decapsulate(Some(from.peer.ip()), datagram, &mut buffer) {
            TunnResult::WriteToNetwork(answer) => {
                let answer = answer.to_vec();
                self.stats.handshakes += 1;
                self.stats.rx_bytes += datagram.len() as u64;
                // An initiation from before our restart is new to us: only what is sealed with keys of now, or answers what we
                // have asked now, says where the peer is.
                if answer.len() == message::RESPONSE_BYTES && !self.is_up {
                    self.attempts.expect_peer(now);
                }
                if answer.len() == message::RESPONSE_BYTES && self.outer.is_some() {
                    self.transmit_to(answer, Outer { tos: 0, ..*from });
                } else {
                    self.follow(from);
                    self.transmit(answer);
                }
            }
            TunnResult::Err(error) => drops.lose(self.cable, handshake_reason(&error), datagram),
            TunnResult::Done => self.stats.rx_bytes += datagram.len() as u64,
            TunnResult::WriteToTunnelV4(..) | TunnResult::WriteToTunnelV6(..) => {
                drops.count(self.cable, DropReason::BadHandshake, 1);
            }
        }
        self.refresh(now);
    }

    fn handle_timeout(&mut self, now: Instant, drops: &mut Drops) {
        if self.attempts.is_on() {
            self.try_peer(now, drops);
        } else {
            self.run_timers(now, drops);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let Some(due) = self.attempts.poll_timeout() else { return Some(self.next_timer) };
        // Of a peer that is tried soon, what waits is either sent or given up then.
        let held = self.held.front().filter(|_| self.attempts.is_silent());
        Some(held.map_or(due, |(_, since)| due.min(since + HELD_AGE + HELD_SLACK)))
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    fn poll_event(&mut self) -> Option<CableEvent> {
        self.events.pop_front()
    }

    fn rekey(&mut self, _now: Instant) {
        self.initiate(true);
    }

    fn set_peer(&mut self, peer: Option<SocketAddr>, now: Instant) {
        if let Some(peer) = peer
            && self.outer.is_none_or(|outer| outer.peer != peer)
        {
            self.outer = Some(outer_to(peer));
            if !self.is_up {
                self.attempts.begin(now);
            }
            self.initiate(true);
        }
    }

    fn stats(&self, _now: Instant) -> CableStats {
        CableStats {
            handshake_age: self.tunn.time_since_last_handshake(),
            is_up: self.is_up,
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

/// Pads a single packet with zeros to a multiple of 16 bytes, but not beyond the path's MTU.
fn pad(packet: &mut Packet, limit_bytes: usize) {
    let bytes = packet.buf.len();
    let padded = bytes.next_multiple_of(PADDING_BYTES).min(limit_bytes.max(bytes));
    let missing = (padded - bytes).min(packet.buf.tailroom());
    packet.buf.extend(missing).fill(0);
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "boringtun's errors are many; the rest have one meaning here"
)]
fn reason(error: &WireGuardError) -> DropReason {
    match error {
        WireGuardError::InvalidCounter | WireGuardError::DuplicateCounter => DropReason::Replay,
        WireGuardError::InvalidAeadTag => DropReason::BadTag,
        WireGuardError::InvalidPacket | WireGuardError::IncorrectPacketLength => DropReason::BadInner,
        WireGuardError::NoCurrentSession | WireGuardError::WrongIndex | WireGuardError::ConnectionExpired => {
            DropReason::NoSession
        }
        _ => DropReason::BadTag,
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "boringtun's errors are many; the rest have one meaning here"
)]
fn handshake_reason(error: &WireGuardError) -> DropReason {
    match error {
        WireGuardError::UnderLoad => DropReason::HandshakeLimit,
        WireGuardError::WrongTai64nTimestamp => DropReason::Replay,
        _ => DropReason::BadHandshake,
    }
}

/// Collects opened packets side by side, one every datagram length, in one buffer.
struct OpenTrain {
    packet: Option<Packet>,
    /// Whether a shorter datagram ended the train.
    is_closed: bool,
    cable: CableId,
}

impl OpenTrain {
    fn new(cable: CableId) -> Self {
        Self { packet: None, is_closed: false, cable }
    }

    /// Room to open a datagram of `bytes` into; counts as a hole until [`Self::keep`] is called.
    fn slot(&mut self, bytes: usize, from: &Packet, jobs: &mut Jobs<'_>) -> Option<&mut [u8]> {
        if !self.accepts(bytes, from) {
            self.flush(jobs);
            self.packet = Some(Self::start(bytes, from, self.cable, jobs)?);
            self.is_closed = false;
        }
        let packet = self.packet.as_mut()?;
        self.is_closed = bytes < usize::from(packet.layout.stride_bytes);
        packet.layout.count += 1;
        Some(packet.buf.extend(bytes))
    }

    fn accepts(&self, bytes: usize, from: &Packet) -> bool {
        self.packet.as_ref().is_some_and(|packet| {
            !self.is_closed
                && bytes <= usize::from(packet.layout.stride_bytes)
                && packet.layout.count < MAX_OPENED
                && packet.outer == from.outer
                && packet.buf.tailroom() >= bytes
        })
    }

    fn start(bytes: usize, from: &Packet, cable: CableId, jobs: &mut Jobs<'_>) -> Option<Packet> {
        let stride = u16::try_from(bytes).ok()?;
        let buf = jobs.pool.alloc_output()?;
        if buf.tailroom() < bytes {
            jobs.pool.recycle(buf);
            return None;
        }
        let mut packet = Packet::new(buf);
        packet.layout = Layout {
            kind: LayoutKind::Packets,
            header_bytes: 0,
            segment_bytes: stride,
            stride_bytes: stride,
            count: 0,
            present: 0,
        };
        packet.outer = from.outer;
        packet.decision.cable = cable;
        packet.decision.lane = from.decision.lane;
        Some(packet)
    }

    /// Marks the slot given out last as a packet.
    fn keep(&mut self) {
        if let Some(packet) = self.packet.as_mut() {
            packet.layout.present |= 1 << (packet.layout.count - 1);
        }
    }

    fn flush(&mut self, jobs: &mut Jobs<'_>) {
        let Some(packet) = self.packet.take() else { return };
        if packet.layout.present == 0 {
            jobs.pool.recycle(packet.buf);
        } else {
            jobs.emit(packet, self.cable);
        }
    }
}

#[cfg(test)]
mod tests;
