//! Who may make us do Diffie-Hellman: the first checks of handshake messages (WireGuard paper, section 5.3).
//!
//! A message must carry a right first MAC, which proves that its sender knows our public key. Above
//! [`LIMIT_PER_SECOND`] messages it must also carry a right second MAC, which proves that it owns its source address; otherwise
//! a cookie is sent back. Above the limit every source has a small share of its own, so that one that owns its
//! address cannot take all, and all strangers together are worth no more than those at peers' addresses.
//!
//! Handshakes are the worker's own work, there is no queue of them that strangers could fill: what passes here costs its key
//! agreements at once, and what is bounded here is bounded.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use boringtun::noise::handshake::parse_handshake_anon;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Packet, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use sha2::{Digest as _, Sha256};
use trieste_packet::{DropReason, HashKey, LaneId, Outer};

use super::message;
use crate::boundary::{Admission, Gate, Message};
use crate::shares::Shares;

/// Handshake messages per second and gateway that are taken without a cookie. Ours: each costs up to 0.2 ms, so
/// this bounds a flood to 2 % of a core, and is above what a cluster set that starts at once sends.
pub const LIMIT_PER_SECOND: u64 = 100;
/// Handshake messages per second that one source may send, an IPv4 address or a /64 (the kernel's value, `ratelimiter.c`);
/// four times as many from a /48. A gateway that cannot get through sends one in five seconds.
pub const SHARE_PER_SECOND: u32 = 20;

/// Handshake messages with a right cookie per second and worker from strangers, and as many from where peers are. Ours:
/// bounds what many sources cost together to 2 % of a core.
pub const PROVEN_PER_SECOND: u64 = 100;

/// Where peers are, by lane. All gates read what the kind writes.
pub(super) type PeerAddresses = Arc<ArcSwap<Vec<(LaneId, IpAddr)>>>;

/// The gate of one worker. The limiter is shared by all workers of a gateway.
pub struct WireguardGate {
    private: StaticSecret,
    public: PublicKey,
    limiter: Arc<RateLimiter>,
    shares: Shares,
    addresses: PeerAddresses,
    /// Messages with a right cookie in the current second, of peers and of strangers.
    proven: [u64; 2],
    /// Messages with a right first MAC in the current second.
    seen: u64,
    reset: Instant,
}

impl WireguardGate {
    /// Makes a gate for the owner of `private`.
    pub(super) fn new(
        private: StaticSecret,
        limiter: Arc<RateLimiter>,
        addresses: PeerAddresses,
        now: Instant,
    ) -> Self {
        let public = PublicKey::from(&private);
        let shares = Shares::new(share_key(&private), SHARE_PER_SECOND, now);
        Self { private, public, limiter, shares, addresses, proven: [0; 2], seen: 0, reset: now }
    }

    /// Counts a message whose sender owns its address; returns `true` if it may go on.
    fn take_proven(&mut self, from: IpAddr, now: Instant) -> bool {
        if !self.shares.is_within(from, now) {
            return false;
        }
        let from = from.to_canonical();
        let is_stranger = !self.addresses.load().iter().any(|(_, address)| *address == from);
        let proven = &mut self.proven[usize::from(is_stranger)];
        *proven += 1;
        *proven <= PROVEN_PER_SECOND
    }
}

impl Gate for WireguardGate {
    fn classify(&mut self, datagram: &[u8], _from: &Outer) -> Message {
        message::classify(datagram)
    }

    fn admit(&mut self, datagram: &[u8], from: &Outer, now: Instant) -> Admission {
        let from = from.peer.ip();
        let mut reply = [0u8; message::COOKIE_BYTES];
        let packet = match self.limiter.verify_packet(Some(from), datagram, &mut reply) {
            Ok(packet) => packet,
            Err(TunnResult::WriteToNetwork(cookie)) => {
                self.seen += 1;
                return Admission::Reply(cookie.to_vec());
            }
            Err(_) => return Admission::Refuse(DropReason::BadHandshake),
        };
        self.seen += 1;
        // Only now: what has no right MAC must not use up the share of the address that it claims to come from. Above
        // the limit a message that got here has a right cookie, so the address is its sender's.
        if self.seen > LIMIT_PER_SECOND && !self.take_proven(from, now) {
            return Admission::Refuse(DropReason::HandshakeLimit);
        }
        let Packet::HandshakeInit(initiation) = packet else { return Admission::Pass(None) };
        match parse_handshake_anon(&self.private, &self.public, &initiation) {
            Ok(half) => Admission::Pass(Some(half.peer_static_public)),
            Err(_) => Admission::Refuse(DropReason::BadHandshake),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if now.saturating_duration_since(self.reset) >= Duration::from_secs(1) {
            self.reset = now;
            self.limiter.reset_count();
            self.seen = 0;
            self.proven = [0; 2];
        }
    }
}

/// Derives a secret that only who has the private key can compute.
fn share_key(private: &StaticSecret) -> HashKey {
    let digest =
        Sha256::new().chain_update(b"shares of handshakes").chain_update(private.as_bytes()).finalize();
    let seed = digest.first_chunk().expect("SHA-256 has 32 bytes");
    HashKey::new(u64::from_be_bytes(*seed))
}

/// A limiter that never limits, for `Tunn`s behind the gate: they would count every message a second time.
#[must_use]
pub fn open_limiter(public: &PublicKey) -> Arc<RateLimiter> {
    Arc::new(RateLimiter::new(public, u64::MAX))
}

#[cfg(test)]
mod tests;
