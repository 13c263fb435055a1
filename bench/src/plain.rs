//! A cable without cryptography: what the rest of a gateway can do at best. Never registered outside of the bench.
//!
//! Messages are as long as WireGuard's, so that everything around them is the same:
//!
//! ```text
//!  hello   type 0x71, sender's lane, 8 zero bytes, 32 bytes of identity
//!  answer  type 0x72, receiver's lane, sender's lane, 20 zero bytes
//!  data    type 0x73, receiver's lane, 8 bytes of counter, the packet, 16 zero bytes
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use trieste_cables::seal_train::SealTrain;
use trieste_cables::{
    Admission, Cable, CableError, CableEvent, CableKind, CableStats, Gate, Jobs, Lane, LaneConfig, Message,
    Overhead, Site, Transmit, Tunnel,
};
use trieste_packet::segment::Segmenter;
use trieste_packet::wire;
use trieste_packet::{CableId, DropReason, Drops, LaneId, Layout, LayoutKind, Outer, Packet};

const HELLO: u32 = 0x71;
const ANSWER: u32 = 0x72;
const DATA: u32 = 0x73;
const HELLO_BYTES: usize = 48;
const ANSWER_BYTES: usize = 32;
const HEADER_BYTES: usize = 16;
const TAIL_BYTES: usize = 16;
const OVERHEAD_BYTES: usize = HEADER_BYTES + TAIL_BYTES;
/// Between hellos: while nobody answers, and afterwards.
const RETRY: Duration = Duration::from_millis(250);
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Where an Endpoint carries the identity.
const IDENTITY: &str = "identity";

/// The kind, as registered by the bench.
#[derive(Debug)]
pub(crate) struct PlainKind {
    identity: [u8; 32],
}

impl PlainKind {
    /// A member with this identity.
    pub(crate) fn new(identity: [u8; 32]) -> Self {
        Self { identity }
    }
}

impl CableKind for PlainKind {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn backend_config(&self) -> BTreeMap<String, String> {
        let text = self.identity.iter().map(|byte| format!("{byte:02x}")).collect();
        BTreeMap::from([(IDENTITY.to_owned(), text)])
    }

    fn identity(&self, remote: &Site) -> Result<[u8; 32], CableError> {
        let text = remote.backend_config.get(IDENTITY).ok_or(CableError::Missing(IDENTITY))?;
        let malformed = |problem: String| CableError::Malformed { key: IDENTITY, problem };
        let mut identity = [0; 32];
        if text.len() != 64 {
            return Err(malformed("it has not 64 digits".to_owned()));
        }
        for (byte, pair) in identity.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(pair).map_err(|error| malformed(error.to_string()))?;
            *byte = u8::from_str_radix(digits, 16).map_err(|error| malformed(error.to_string()))?;
        }
        Ok(identity)
    }

    fn connect(&self, config: &LaneConfig, now: Instant) -> Result<Box<dyn Tunnel>, CableError> {
        self.identity(&config.remote)?;
        Ok(Box::new(PlainCable {
            identity: self.identity,
            lane: config.lane,
            cable: config.cable,
            outer: config.peer.map(outer_to),
            remote: None,
            counter: 0,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            next_hello: now,
            answered: None,
            stats: CableStats::default(),
        }))
    }

    fn gate(&self) -> Box<dyn Gate> {
        Box::new(PlainGate)
    }

    fn overhead(&self) -> Overhead {
        Overhead { message_bytes: 32 }
    }
}

/// Tells messages apart; lets everybody in.
#[derive(Debug)]
pub(crate) struct PlainGate;

impl Gate for PlainGate {
    fn classify(&mut self, datagram: &[u8], _from: &Outer) -> Message {
        if datagram.len() < OVERHEAD_BYTES {
            return Message::Unknown;
        }
        match (word(datagram, 0), datagram.len()) {
            (DATA, _) => Message::Data(LaneId(word(datagram, 4))),
            (HELLO, HELLO_BYTES) => Message::Greeting,
            (ANSWER, ANSWER_BYTES) => Message::Control(LaneId(word(datagram, 4))),
            _ => Message::Unknown,
        }
    }

    fn admit(&mut self, datagram: &[u8], _: &Outer, _: Instant) -> Admission {
        let identity = (datagram.len() == HELLO_BYTES).then(|| datagram[16..].try_into().ok()).flatten();
        Admission::Pass(identity)
    }

    fn handle_timeout(&mut self, _: Instant) {}
}

struct PlainCable {
    identity: [u8; 32],
    lane: LaneId,
    cable: CableId,
    outer: Option<Outer>,
    /// The peer's lane, once it is known.
    remote: Option<LaneId>,
    counter: u64,
    transmits: VecDeque<Transmit>,
    events: VecDeque<CableEvent>,
    next_hello: Instant,
    answered: Option<Instant>,
    stats: CableStats,
}

impl PlainCable {
    fn transmit(&mut self, payload: Vec<u8>) {
        if let Some(outer) = self.outer {
            self.transmits.push_back(Transmit { payload, outer });
        }
    }

    fn seal_packet(
        &mut self,
        packet: &mut Packet,
        remote: LaneId,
        train: &mut SealTrain,
        jobs: &mut Jobs<'_>,
    ) {
        train.set_tos(wire::tos(packet.bytes()) & 3, jobs);
        let segments = packet.segments();
        let mut segmenter = match Segmenter::new(packet) {
            Ok(segmenter) => segmenter,
            Err(reason) => return jobs.drops.count(self.cable, reason, segments),
        };
        while let Some(segment) = segmenter.next_segment() {
            let bytes = segment.len() + OVERHEAD_BYTES;
            let counter = self.counter;
            let is_sealed = train.append(bytes, jobs, |space| {
                space[..4].copy_from_slice(&DATA.to_le_bytes());
                space[4..8].copy_from_slice(&remote.0.to_le_bytes());
                space[8..HEADER_BYTES].copy_from_slice(&counter.to_le_bytes());
                space[HEADER_BYTES..bytes - TAIL_BYTES].copy_from_slice(segment);
                space[bytes - TAIL_BYTES..].fill(0);
                true
            });
            if is_sealed {
                self.counter += 1;
                self.stats.tx_packets += 1;
                self.stats.tx_bytes += bytes as u64;
            }
        }
    }
}

impl Lane for PlainCable {
    fn overhead(&self) -> Overhead {
        Overhead { message_bytes: 32 }
    }

    fn seal(&mut self, jobs: &mut Jobs<'_>, _now: Instant) {
        let mut input = std::mem::take(jobs.input);
        if let (Some(outer), Some(remote)) = (self.outer, self.remote) {
            let mut train = SealTrain::new(outer, self.cable);
            for mut packet in input.drain(..) {
                self.seal_packet(&mut packet, remote, &mut train, jobs);
                jobs.pool.recycle(packet.buf);
            }
            train.flush(jobs);
        } else {
            for packet in input.drain(..) {
                jobs.drops.discard(packet, DropReason::NoSession, jobs.pool);
            }
        }
        *jobs.input = input;
    }

    fn open(&mut self, jobs: &mut Jobs<'_>, _now: Instant) {
        let mut input = std::mem::take(jobs.input);
        for mut packet in input.drain(..) {
            self.stats.rx_packets += packet.segments();
            self.stats.rx_bytes += packet.buf.len() as u64;
            // The packets stay where they are: behind one header each, every stride, the tails as trailing bytes.
            packet.buf.advance(HEADER_BYTES);
            if packet.layout.kind == LayoutKind::Datagrams {
                let count = packet.layout.count.min(64);
                let present = u64::MAX >> (64 - count);
                packet.layout = Layout { kind: LayoutKind::Packets, count, present, ..packet.layout };
            }
            packet.decision.cable = self.cable;
            jobs.emit(packet, self.cable);
        }
        *jobs.input = input;
    }
}

impl Cable for PlainCable {
    fn handle_datagram(&mut self, datagram: &[u8], from: &Outer, now: Instant, drops: &mut Drops) {
        let remote = match (word(datagram, 0), datagram.len()) {
            (HELLO, HELLO_BYTES) => LaneId(word(datagram, 4)),
            (ANSWER, ANSWER_BYTES) => LaneId(word(datagram, 8)),
            _ => return drops.count(self.cable, DropReason::BadHandshake, 1),
        };
        self.outer = Some(Outer { tos: 0, ..*from });
        if self.remote.replace(remote) != Some(remote) {
            self.stats.handshakes += 1;
            self.events.push_back(CableEvent::LaneUp);
        }
        self.answered = Some(now);
        if datagram.len() == HELLO_BYTES {
            let mut answer = vec![0; ANSWER_BYTES];
            answer[..4].copy_from_slice(&ANSWER.to_le_bytes());
            answer[4..8].copy_from_slice(&remote.0.to_le_bytes());
            answer[8..12].copy_from_slice(&self.lane.0.to_le_bytes());
            self.transmit(answer);
        }
    }

    fn handle_timeout(&mut self, now: Instant, _: &mut Drops) {
        if now < self.next_hello {
            return;
        }
        self.next_hello = now + if self.remote.is_some() { KEEPALIVE } else { RETRY };
        let mut hello = vec![0; HELLO_BYTES];
        hello[..4].copy_from_slice(&HELLO.to_le_bytes());
        hello[4..8].copy_from_slice(&self.lane.0.to_le_bytes());
        hello[16..].copy_from_slice(&self.identity);
        self.transmit(hello);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.next_hello)
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    fn poll_event(&mut self) -> Option<CableEvent> {
        self.events.pop_front()
    }

    fn rekey(&mut self, now: Instant) {
        self.next_hello = now;
    }

    fn set_peer(&mut self, peer: Option<SocketAddr>, now: Instant) {
        if let Some(peer) = peer {
            self.outer = Some(outer_to(peer));
            self.next_hello = now;
        }
    }

    fn stats(&self, now: Instant) -> CableStats {
        CableStats {
            handshake_age: self.answered.map(|at| now.saturating_duration_since(at)),
            is_up: self.remote.is_some() && self.outer.is_some(),
            peer: self.outer.map(|outer| outer.peer),
            ..self.stats
        }
    }
}

fn outer_to(peer: SocketAddr) -> Outer {
    Outer { peer, local: None, tos: 0 }
}

/// A little-endian 32-bit field; 0 where there is none.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes)
}
