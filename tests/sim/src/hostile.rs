//! A member of the set that does what it likes: it has a key and cables like all others, sees every datagram on its way, and
//! claims the networks of others.
//!
//! It sends packets from networks that are not its own, through its own cables; junk; datagrams of others with a changed byte,
//! cut or made longer, in its own and in their senders' name; and datagrams that have arrived long ago, in their senders' name
//! again. A packet of its own that reaches a pod ends the simulation: there is no such flow.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use trieste_simulator::Random;

use crate::traffic::Flow;

/// Datagrams that it remembers.
const RECORDED: usize = 256;
/// How old a datagram is that it repeats: all that the network delays has arrived.
const LATE: Duration = Duration::from_secs(10);
/// Bytes of WireGuard's initiations and responses.
const HANDSHAKES: [usize; 2] = [148, 92];
/// Bytes of a handshake message's last field.
const MAC_BYTES: usize = 16;
/// Datagrams that it sends at a time.
const BURST: u64 = 6;

/// See the module.
pub(crate) struct Hostile {
    /// Its number among the gateways: the last.
    pub(crate) index: usize,
    /// What is drawn for it, and for whatever has to do with it.
    pub(crate) random: Random,
    recorded: VecDeque<Recorded>,
    sent: u64,
}

struct Recorded {
    to: usize,
    from: SocketAddr,
    bytes: Vec<u8>,
    at: Instant,
}

impl Hostile {
    /// Whose pods it sends to.
    pub(crate) const VICTIM: usize = 0;

    pub(crate) fn new(index: usize, seed: u64) -> Self {
        let random = Random::new(seed ^ 0x0bad_0bad_0bad_0bad);
        Self { index, random, recorded: VecDeque::new(), sent: 0 }
    }

    /// Takes down a datagram of others.
    pub(crate) fn record(&mut self, to: usize, from: SocketAddr, bytes: &[u8], at: Instant) {
        if self.recorded.len() == RECORDED {
            self.recorded.pop_front();
        }
        // Some of each kind: a busy flow is not to push out all others.
        if bytes.len() > 32 && (HANDSHAKES.contains(&bytes.len()) || self.random.below(8_u8) == 0) {
            self.recorded.push_back(Recorded { to, from, bytes: bytes.to_vec(), at });
        }
    }

    /// Has it lose the handshakes that it knows, as one of the others restarts. That one remembers no timestamps, so that each old
    /// initiation would be taken once, and cost the handshake that is under way (WireGuard's whitepaper, section 5.1).
    pub(crate) fn forget_handshakes(&mut self) {
        self.recorded.retain(|known| !HANDSHAKES.contains(&known.bytes.len()));
    }

    /// Returns packets for its own gateway: from the victim's own network and from everybody else's.
    pub(crate) fn packets(&mut self, now: Instant) -> Vec<Vec<u8>> {
        self.sent += 1;
        let from = usize::try_from(self.sent).expect("few") % self.index;
        // Its own network may send: that is left out, since what arrives has to be nobody's.
        [false, true].map(|is_v6| Flow::forged(from, Self::VICTIM, is_v6, self.sent, now)).into()
    }

    /// Returns datagrams, with to whom and in whose name.
    pub(crate) fn datagrams(&mut self, now: Instant) -> Vec<(usize, SocketAddr, Vec<u8>)> {
        let own = SocketAddr::from(([192, 0, 2, 250], 4500));
        let mut all = Vec::new();
        for _ in 0..BURST {
            let at = self.random.below(self.recorded.len().max(1));
            let action = self.random.below(4_u8);
            let Some(known) = self.recorded.get(at).filter(|_| action > 0) else {
                let to = self.random.below(self.index);
                let length = self.random.below(200_u8);
                let mut bytes: Vec<u8> = (0..length).map(|_| self.random.below(u8::MAX)).collect();
                // Half of it looks like a message of WireGuard's.
                if let Some(kind) = bytes.first_chunk_mut::<4>().filter(|_| length.is_multiple_of(2)) {
                    *kind = [1 + length / 2 % 4, 0, 0, 0];
                }
                all.push((to, own, bytes));
                continue;
            };
            let (to, from, mut bytes) = (known.to, known.from, known.bytes.clone());
            let is_handshake = HANDSHAKES.contains(&bytes.len());
            let is_late = now.saturating_duration_since(known.at) >= LATE;
            match action {
                1 if is_late => all.push((to, from, bytes)),
                1 => {}
                _ => {
                    // The second MAC of a handshake is not looked at in calm: changed there and faster than the message itself, it
                    // would be taken, as whoever is on the way can always be faster.
                    let checked =
                        if is_handshake && !is_late { bytes.len() - MAC_BYTES } else { bytes.len() };
                    let at = self.random.below(checked);
                    match self.random.below(3_u8) {
                        0 => bytes.truncate(at),
                        1 => bytes.push(0),
                        // Not the reserved bytes, which no receiver looks at.
                        _ => bytes[at.max(4)] ^= 1 << self.random.below(8_u8),
                    }
                    all.push((to, if action == 2 { own } else { from }, bytes));
                }
            }
        }
        all
    }
}
