//! What the engine is set to.

use std::fmt;
use std::time::Duration;

use trieste_packet::Allowance;
use zeroize::Zeroizing;

use crate::ipsec::EspSuite;
use crate::ipsec::crypto::{Group, IkeAead, Prf};

/// Bytes of the non-ESP marker (RFC 3948 section 2.2).
pub(super) const MARKER_BYTES: usize = 4;

/// How long an SA lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// After this it is renewed, up to [`EngineConfig::jitter_percent`] earlier.
    pub soft: Duration,
    /// After this it is dead.
    pub hard: Duration,
}

/// What the engine is set to. `Default` is ours but for the secret, which is empty and fits nobody.
#[derive(Clone)]
pub struct EngineConfig {
    /// The secret that the whole cluster set shares: the bytes of its text (wireformat §4.1).
    pub psk: Zeroizing<Vec<u8>>,
    /// Whether peers without keys of their own may begin from anywhere, as behind a NAT that nobody knows.
    pub takes_any_address: bool,
    /// Our udp-port.
    pub port: u16,
    /// AEADs for IKE that we take, best first.
    pub ike_aeads: Vec<IkeAead>,
    /// Pseudo-random functions that we take, best first.
    pub prfs: Vec<Prf>,
    /// Groups of key agreement that we take, best first: the first one is what we guess that the peer takes.
    pub groups: Vec<Group>,
    /// AEADs for ESP that we take, best first.
    pub esp_suites: Vec<EspSuite>,
    /// Whether sequence numbers of 64 bits are proposed and taken.
    pub esn: bool,
    /// Whether child SAs are renewed with a key agreement of their own. As responder we do what the peer does.
    pub pfs: bool,
    /// Of IKE SAs.
    pub ike_lifetime: Lifetime,
    /// Of child SAs.
    pub child_lifetime: Lifetime,
    /// How much earlier than its soft limit an SA may be renewed, so that not all are at once.
    pub jitter_percent: u32,
    /// Packets of one direction of a child SA, soft and hard.
    pub child_packets: (u64, u64),
    /// Bytes of one direction of a child SA, soft and hard.
    pub child_bytes: (u64, u64),
    /// After this time without a sign of life the peer is asked for one.
    pub dpd_interval: Duration,
    /// When a request is repeated for the first time; each further wait is twice as long.
    pub retransmit_first: Duration,
    /// When a peer that does not answer is given up.
    pub give_up: Duration,
    /// First and longest wait before a failed negotiation is tried again; it doubles in between.
    pub retry: (Duration, Duration),
    /// How long a bidirectional peer whose cable name is the greater one waits before it begins, so that usually
    /// only one does.
    pub courtesy: Duration,
    /// After this time of silence behind a NAT its mapping is kept by a keepalive.
    pub nat_keepalive: Duration,
    /// How long the inbound half of a deleted pair still opens what is under way.
    pub linger: Duration,
    /// Largest IKE datagram in bytes, marker included; longer messages go in fragments (RFC 7383).
    pub fragment_bytes: usize,
    /// How often a peer may ask for an IKE SA in the place of another; sooner it is answered TEMPORARY_FAILURE.
    pub ike_requests: Allowance,
    /// The same for child SAs, new ones and those in the place of others, of one IKE SA that there is to be.
    pub child_requests: Allowance,
    /// Half-open IKE SAs: all, and those of one source address.
    pub half_open: (usize, usize),
    /// How long an IKE SA may stay half-open.
    pub half_open_time: Duration,
}

impl Default for EngineConfig {
    fn default() -> Self {
        const HOUR: Duration = Duration::from_secs(3600);
        Self {
            psk: Zeroizing::default(),
            takes_any_address: false,
            port: 4500,
            ike_aeads: IkeAead::ALL.to_vec(),
            prfs: Prf::ALL.to_vec(),
            groups: Group::ALL.to_vec(),
            esp_suites: vec![EspSuite::Aes128Gcm16, EspSuite::Aes256Gcm16, EspSuite::ChaCha20Poly1305],
            esn: true,
            pfs: true,
            ike_lifetime: Lifetime { soft: 4 * HOUR, hard: 5 * HOUR },
            child_lifetime: Lifetime { soft: HOUR, hard: HOUR + HOUR / 4 },
            jitter_percent: 10,
            // Sequence numbers of 32 bits end at 2^32, and NIST SP 800-38D has GCM's nonces below 2^32 as well where
            // they are random; ours are counted, so what bounds them is the amount of data under one key.
            child_packets: (3 << 30, (1 << 32) - 1),
            child_bytes: (1 << 42, 1 << 43),
            dpd_interval: Duration::from_secs(30),
            retransmit_first: Duration::from_millis(500),
            give_up: Duration::from_secs(60),
            retry: (Duration::from_secs(1), Duration::from_secs(30)),
            courtesy: Duration::from_millis(1500),
            nat_keepalive: Duration::from_secs(20),
            linger: Duration::from_secs(8),
            fragment_bytes: 1232,
            // Who renews in the ordinary way asks a few times in an hour, some more if both ends ask at the same time.
            ike_requests: Allowance { burst: 8, interval: Duration::from_secs(10) },
            // Each pair of subnets has one, all of which may be due at once.
            child_requests: Allowance { burst: 128, interval: Duration::from_millis(500) },
            half_open: (1000, 64),
            half_open_time: Duration::from_secs(30),
        }
    }
}

impl EngineConfig {
    /// Takes the times and amounts of another one, which may change while an engine runs: what is proposed, and the secret,
    /// stay.
    pub(super) fn take_times(&mut self, newer: &Self) {
        *self = Self {
            psk: std::mem::take(&mut self.psk),
            takes_any_address: self.takes_any_address,
            port: self.port,
            ike_aeads: std::mem::take(&mut self.ike_aeads),
            prfs: std::mem::take(&mut self.prfs),
            groups: std::mem::take(&mut self.groups),
            esp_suites: std::mem::take(&mut self.esp_suites),
            esn: self.esn,
            pfs: self.pfs,
            ..newer.clone()
        };
    }

    /// Most bytes of a message without marker before it goes in fragments.
    pub(super) fn fragment_limit(&self) -> usize {
        self.fragment_bytes.saturating_sub(MARKER_BYTES)
    }
}

impl fmt::Debug for EngineConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineConfig").field("port", &self.port).finish_non_exhaustive()
    }
}
