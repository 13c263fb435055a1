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
use crate::boundary::{Cable, CableEvent, CableStats, Jobs, Lane, Overhead, Transmit};
use crate::held::Held;
use crate::prefetch::prefetch_next;
use crate::seal_train::SealTrain;

/// How often `Tunn`'s timers are looked at. It names no next time-out of its own; the finest of its timers is
/// five seconds.
const TIMER_INTERVAL: Duration = Duration::from_millis(250);
/// When a first handshake that got no answer is begun again, after the one before. The specification's five seconds
/// (Rekey-Timeout) are for peers that know each other; at a first start one end is always late to learn of the other.
const EAGER: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// Messages are padded to a multiple of this (WireGuard paper, section 5.4.6).
const PADDING_BYTES: usize = 16;
/// Most datagrams waiting to be sent by the slow half; each is answered by at most one, so more never wait.
const MAX_TRANSMITS: usize = 16;
/// Most packets in one opened train: the width of its presence bitmap.
const MAX_OPENED: u16 = 64;

/// A WireGuard tunnel to one peer.
pub(super) struct WireguardCable {
    tunn: Tunn,
    cable: CableId,
    outer: Option<Outer>,
    held: Held,
    transmits: VecDeque<Transmit>,
    events: VecDeque<CableEvent>,
    next_timer: Instant,
    /// The next of the eager attempts, while there never was a session.
    eager: Option<(usize, Instant)>,
    is_up: bool,
    stats: CableStats,
}

impl WireguardCable {
    /// Begins at once to reach the peer, if it is known where it is.
    pub(super) fn new(tunn: Tunn, cable: CableId, peer: Option<SocketAddr>, now: Instant) -> Self {
        let mut this = Self {
            tunn,
            cable,
            outer: peer.map(outer_to),
            held: Held::default(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            next_timer: now + TIMER_INTERVAL,
            eager: Some((0, now + EAGER[0])),
            is_up: false,
            stats: CableStats::default(),
        };
        this.initiate(false);
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
    fn refresh(&mut self) {
        let is_up = self.tunn.time_since_last_handshake().is_some();
        if is_up && !self.is_up {
            self.events.push_back(CableEvent::LaneUp);
            self.eager = None;
        }
        self.is_up = is_up;
    }

    /// Begins the first handshake again if its time has come.
    fn try_again(&mut self, now: Instant) {
        let Some((attempt, due)) = self.eager else { return };
        if now < due {
            return;
        }
        self.initiate(true);
        self.eager = EAGER.get(attempt + 1).map(|wait| (attempt + 1, now + *wait));
    }

    /// Follows an authenticated message to where it came from.
    fn follow(&mut self, from: &Outer) {
        let moved = self.outer.is_none_or(|outer| outer.peer != from.peer);
        if moved && self.events.len() < MAX_TRANSMITS {
            self.events.push_back(CableEvent::Roamed(from.peer));
        }
        self.outer = Some(Outer { tos: 0, ..*from });
    }

    fn open_train(&mut self, packet: &Packet, opened: &mut OpenTrain, jobs: &mut Jobs<'_>) {
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
        self.refresh();
        let mut input = std::mem::take(jobs.input);
        let Some(outer) = self.outer.filter(|_| self.is_up) else {
            if !input.is_empty() {
                self.initiate(false);
            }
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

    fn open(&mut self, jobs: &mut Jobs<'_>, _now: Instant) {
        let mut input = std::mem::take(jobs.input);
        let mut opened = OpenTrain::new(self.cable);
        let mut packets = input.drain(..);
        while let Some(packet) = packets.next() {
            prefetch_next(packets.as_slice());
            self.open_train(&packet, &mut opened, jobs);
            jobs.pool.recycle(packet.buf);
        }
        drop(packets);
        opened.flush(jobs);
        *jobs.input = input;
        if !self.is_up || !self.held.is_empty() {
            // The first data message confirms the responder's keys: packets may be waiting for them.
            self.refresh();
        }
    }
}

impl Cable for WireguardCable {
    fn handle_datagram(&mut self, datagram: &[u8], from: &Outer, _now: Instant, drops: &mut Drops) {
        let mut buffer = [0u8; message::INITIATION_BYTES];
        match self.tunn.decapsulate(Some(from.peer.ip()), datagram, &mut buffer) {
            TunnResult::WriteToNetwork(answer) => {
                let answer = answer.to_vec();
                self.stats.handshakes += 1;
                self.stats.rx_bytes += datagram.len() as u64;
                // An initiation from before our restart is new to us: only what is sealed with keys of now, or answers what we
                // have asked now, says where the peer is.
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
        self.refresh();
    }

    fn handle_timeout(&mut self, now: Instant, drops: &mut Drops) {
        if now < self.next_timer {
            return;
        }
        self.next_timer = now + TIMER_INTERVAL;
        let mut buffer = [0u8; message::INITIATION_BYTES];
        match self.tunn.update_timers(&mut buffer) {
            TunnResult::WriteToNetwork(message) => {
                let message = message.to_vec();
                self.transmit(message);
            }
            TunnResult::Err(WireGuardError::ConnectionExpired) => {
                // Ninety seconds without an answer. `Tunn` stays silent from here on until it is asked; like the
                // kernel with a persistent keepalive, we go on asking.
                self.held.clear(self.cable, DropReason::HeldExpired, drops);
                self.events.push_back(CableEvent::Down);
                self.initiate(true);
            }
            TunnResult::Err(_)
            | TunnResult::Done
            | TunnResult::WriteToTunnelV4(..)
            | TunnResult::WriteToTunnelV6(..) => {}
        }
        self.try_again(now);
        self.refresh();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.next_timer)
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

    fn set_peer(&mut self, peer: Option<SocketAddr>, _now: Instant) {
        if let Some(peer) = peer
            && self.outer.is_none_or(|outer| outer.peer != peer)
        {
            self.outer = Some(outer_to(peer));
            self.initiate(true);
        }
    }

    fn stats(&self, _now: Instant) -> CableStats {
        CableStats {
            handshake_age: self.tunn.time_since_last_handshake(),
            is_up: self.is_up,
            peer: self.outer.map(|outer| outer.peer),
            held: self.held.packets(),
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
