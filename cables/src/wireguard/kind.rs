//! WireGuard as a kind of cable: our keys, and what Endpoints say of theirs.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use boringtun::noise::Tunn;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::x25519::{PublicKey, StaticSecret};
use trieste_packet::LaneId;
use zeroize::Zeroizing;

use super::cable::{CableParts, WireguardCable};
use super::gate::{LIMIT_PER_SECOND, PeerAddresses, WireguardGate, open_limiter};
use super::message::OVERHEAD_BYTES;
use crate::attempts::{AttemptBudget, AttemptTimer};
use crate::boundary::{CableError, CableKind, Gate, LaneConfig, Overhead, Site, Tunnel};
use crate::keys::{self, Secret};

/// Seconds between keepalives (wireformat §3).
pub const PERSISTENT_KEEPALIVE_SECONDS: u16 = 10;
/// Key of `backend_config` that carries the public key.
const PUBLIC_KEY: &str = "publicKey";
/// Key of `backend_config` that names the interface for host routes.
const INTERFACE_NAME: &str = "interface-name";

/// The WireGuard driver of one gateway.
pub struct WireguardKind {
    private: Zeroizing<[u8; 32]>,
    public: PublicKey,
    preshared: Secret,
    interface: String,
    gate_limiter: Arc<RateLimiter>,
    open_limiter: Arc<RateLimiter>,
    addresses: PeerAddresses,
    attempts: Arc<AttemptBudget>,
    started: Instant,
}

impl fmt::Debug for WireguardKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireguardKind")
            .field("public", &keys::emit(self.public.as_bytes()))
            .finish_non_exhaustive()
    }
}

impl WireguardKind {
    /// The driver for the node's private key, the cluster set's PSK text and the TUN device's name.
    #[must_use]
    pub fn new(private: Secret, psk_text: &str, interface: &str, now: Instant) -> Self {
        let public = PublicKey::from(&StaticSecret::from(*private));
        Self {
            private,
            public,
            preshared: keys::preshared_key(psk_text),
            interface: interface.to_owned(),
            gate_limiter: Arc::new(RateLimiter::new(&public, LIMIT_PER_SECOND)),
            open_limiter: open_limiter(&public),
            addresses: PeerAddresses::default(),
            attempts: AttemptBudget::new(now),
            started: now,
        }
    }

    /// A fresh private key from the system's randomness.
    #[must_use]
    pub fn generate_private_key() -> Secret {
        Zeroizing::new(StaticSecret::random_from_rng(rand_core::OsRng).to_bytes())
    }

    /// Shows the gates where the peer of a lane is, if it is anywhere.
    fn set_address(&self, lane: LaneId, peer: Option<SocketAddr>) {
        let entry = peer.map(|peer| (lane, peer.ip().to_canonical()));
        self.addresses.rcu(|entries| {
            let others = entries.iter().copied().filter(|(other, _)| *other != lane);
            others.chain(entry).collect::<Vec<_>>()
        });
    }

    /// Our public key, base64.
    #[must_use]
    pub fn public_key(&self) -> String {
        keys::emit(self.public.as_bytes())
    }
}

impl CableKind for WireguardKind {
    fn name(&self) -> &'static str {
        "wireguard"
    }

    fn backend_config(&self) -> BTreeMap<String, String> {
        [(PUBLIC_KEY, self.public_key()), (INTERFACE_NAME, self.interface.clone())]
            .map(|(key, value)| (key.to_owned(), value))
            .into()
    }

    fn identity(&self, remote: &Site) -> Result<[u8; 32], CableError> {
        let text = remote.backend_config.get(PUBLIC_KEY).ok_or(CableError::Missing(PUBLIC_KEY))?;
        let key = keys::parse(text).map_err(|problem| CableError::Malformed { key: PUBLIC_KEY, problem })?;
        if *key == *self.public.as_bytes() {
            return Err(CableError::OwnKey);
        }
        Ok(*key)
    }

    fn connect(&self, config: &LaneConfig, now: Instant) -> Result<Box<dyn Tunnel>, CableError> {
        let identity = self.identity(&config.remote)?;
        self.set_address(config.lane, config.peer);
        let tunn = Tunn::new(
            StaticSecret::from(*self.private),
            PublicKey::from(identity),
            Some(*self.preshared),
            Some(PERSISTENT_KEEPALIVE_SECONDS),
            config.lane.0,
            Some(Arc::clone(&self.open_limiter)),
        );
        let seed = u64::from_le_bytes(*identity.first_chunk().expect("a key has 32 bytes"));
        let attempts = AttemptTimer::new(Arc::clone(&self.attempts), seed ^ u64::from(config.lane.0), now);
        let parts = CableParts { tunn, cable: config.cable, peer: config.peer, attempts };
        Ok(Box::new(WireguardCable::new(parts, now)))
    }

    fn disconnect(&self, lane: LaneId) {
        self.set_address(lane, None);
    }

    fn set_peer(&self, lane: LaneId, peer: SocketAddr) {
        self.set_address(lane, Some(peer));
    }

    fn gate(&self) -> Box<dyn Gate> {
        let private = StaticSecret::from(*self.private);
        let (limiter, addresses) = (Arc::clone(&self.gate_limiter), Arc::clone(&self.addresses));
        Box::new(WireguardGate::new(private, limiter, addresses, self.started))
    }

    fn overhead(&self) -> Overhead {
        Overhead { message_bytes: u16::try_from(OVERHEAD_BYTES).expect("32") }
    }
}
