//! Packets that came before their keys: the peer has answered a request of ours and seals with the new SA already, and its
//! answer is still on the way, or lost and to be repeated.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Instant;

use trieste_packet::{CableId, DropReason, Drops, Outer, Packet, Pool};

use crate::held::HELD_AGE;
use crate::ipsec::Spi;

/// Most packets of a lane that wait for keys. Ours: what comes in some milliseconds.
pub(super) const EARLY_PACKETS: usize = 64;
/// Most bytes of a lane that wait for keys.
const EARLY_BYTES: usize = 128 * 1024;
/// Most SAs of a lane that are asked for at the same time: its IKE SAs have one request outstanding each.
const MAX_EXPECTED: usize = 16;

/// The SAs that are asked for, and what came for them. All of it comes into play when no SA has a packet's SPI.
#[derive(Debug, Default)]
pub(super) struct Early {
    expected: Vec<Spi>,
    /// In the order of arrival.
    queue: VecDeque<Message>,
    bytes: usize,
    /// Whether there are keys for something in the queue.
    is_openable: bool,
}

#[derive(Debug)]
struct Message {
    spi: Spi,
    bytes: Box<[u8]>,
    from: Outer,
    since: Instant,
}

impl Early {
    /// Counts the packets that wait.
    pub(super) fn packets(&self) -> u64 {
        self.queue.len() as u64
    }

    /// Returns `true` if there are keys for something that waits.
    pub(super) fn is_openable(&self) -> bool {
        self.is_openable
    }

    /// Returns `true` if an SA has been asked for.
    pub(super) fn is_expecting(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Notes that an SA of this SPI has been asked for.
    pub(super) fn expect(&mut self, spi: Spi) {
        if self.expected.len() < MAX_EXPECTED && !self.expected.contains(&spi) {
            self.expected.push(spi);
        }
    }

    /// Notes that there are keys for it.
    pub(super) fn arrived(&mut self, spi: Spi) {
        self.expected.retain(|other| *other != spi);
        self.is_openable |= self.queue.iter().any(|message| message.spi == spi);
    }

    /// Drops what waits for an SA that will have no keys.
    pub(super) fn abandon(&mut self, spi: Spi, cable: CableId, drops: &mut Drops) {
        let before = self.expected.len();
        self.expected.retain(|other| *other != spi);
        if self.expected.len() < before {
            self.discard(|message| message.spi == spi, cable, drops);
        }
    }

    /// Keeps what came for an SA that is asked for. `peer` is where the peer is, if that is known: others would only use
    /// up the room.
    ///
    /// # Errors
    /// Why it is to be dropped: nobody has asked for the SA, or too much waits, which stays, because what came first is
    /// opened first.
    #[cold]
    pub(super) fn hold(
        &mut self,
        spi: Spi,
        message: &[u8],
        from: &Outer,
        peer: Option<IpAddr>,
        now: Instant,
    ) -> Result<(), DropReason> {
        let is_peer = peer.is_none_or(|peer| peer == from.peer.ip());
        if !is_peer || !self.expected.contains(&spi) {
            return Err(DropReason::NoSession);
        }
        if self.queue.len() >= EARLY_PACKETS || self.bytes + message.len() > EARLY_BYTES {
            return Err(DropReason::HeldOverflow);
        }
        self.bytes += message.len();
        self.queue.push_back(Message { spi, bytes: message.into(), from: *from, since: now });
        Ok(())
    }

    /// Puts everything for which there are keys in front of the input, as the pipeline has sorted it: for its lane.
    #[cold]
    pub(super) fn release(
        &mut self,
        cable: CableId,
        input: &mut Vec<Packet>,
        pool: &mut Pool,
        drops: &mut Drops,
    ) {
        self.is_openable = false;
        let mut first = Vec::with_capacity(self.queue.len() + input.len());
        for message in std::mem::take(&mut self.queue) {
            if self.expected.contains(&message.spi) {
                self.queue.push_back(message);
                continue;
            }
            self.bytes -= message.bytes.len();
            match pool.alloc_copy(&message.bytes) {
                Some(buf) => {
                    let mut packet = Packet { outer: message.from, ..Packet::new(buf) };
                    packet.decision.lane = message.spi.lane();
                    first.push(packet);
                }
                None => drops.count(cable, DropReason::NoBuffer, 1),
            }
        }
        first.append(input);
        *input = first;
    }

    /// Drops what has waited for too long.
    pub(super) fn expire(&mut self, cable: CableId, drops: &mut Drops, now: Instant) {
        if !self.queue.is_empty() {
            let is_old = |message: &Message| now.saturating_duration_since(message.since) > HELD_AGE;
            self.discard(is_old, cable, drops);
        }
    }

    fn discard(&mut self, is_lost: impl Fn(&Message) -> bool, cable: CableId, drops: &mut Drops) {
        let before = self.queue.len();
        self.queue.retain(|message| !is_lost(message));
        self.bytes = self.queue.iter().map(|message| message.bytes.len()).sum();
        self.is_openable &= !self.queue.is_empty();
        drops.count(cable, DropReason::HeldExpired, (before - self.queue.len()) as u64);
    }
}
