//! What is known of every peer, for `show`.

use std::net::SocketAddr;
use std::time::Duration;

use trieste_packet::LaneId;

use crate::ipsec::Spi;

/// A peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerReport {
    /// Its lane.
    pub lane: LaneId,
    /// The cable's name.
    pub name: String,
    /// `bidirectional`, `server` or `client`: who begins (wireformat §4.2).
    pub mode: &'static str,
    /// Whether the peer is a Trieste gateway.
    pub is_trieste: bool,
    /// Whether packets can be sealed for at least one of its subnets.
    pub is_up: bool,
    /// Where it is, as far as known.
    pub address: Option<SocketAddr>,
    /// How its packets travel, once it is known: `udp` or `esp` (IP protocol 50).
    pub encapsulation: Option<&'static str>,
    /// Time since the newest negotiation was completed.
    pub handshake_age: Option<Duration>,
    /// Negotiations of IKE SAs completed since the cable was made.
    pub handshakes: u64,
    /// Its IKE SAs, those under way included.
    pub ikes: Vec<IkeReport>,
    /// Its child SAs, those that are wanted and missing included.
    pub children: Vec<ChildReport>,
    /// What went wrong last, if it is not mended.
    pub error: Option<String>,
}

/// An IKE SA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IkeReport {
    /// The SPI of who began it, in host order.
    pub initiator_spi: u64,
    /// The SPI of who answered; 0 while there is no answer.
    pub responder_spi: u64,
    /// Whether we began it.
    pub is_initiator: bool,
    /// `connecting`, `authenticating`, `established`, `rekeyed`, `deleting`.
    pub state: &'static str,
    /// What it is protected with, as words: `aes256gcm16-prfsha256-x25519`; empty while unknown.
    pub algorithms: String,
    /// Our identity.
    pub local_id: String,
    /// The peer's.
    pub remote_id: String,
    /// The peer's address.
    pub address: SocketAddr,
    /// Whether we are behind a NAT.
    pub is_local_nat: bool,
    /// Whether the peer is behind a NAT, or says so to have packets go through UDP.
    pub is_remote_nat: bool,
    /// Time since it was established, or since the attempt began.
    pub age: Duration,
    /// Time until it is renewed by us.
    pub rekey_in: Option<Duration>,
    /// Requests sent and not answered yet, in words; `None` when there is none.
    pub pending: Option<&'static str>,
}

/// A child SA, or a pair of subnets that lacks one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChildReport {
    /// Our SPI, if it exists.
    pub inbound: Option<Spi>,
    /// The peer's.
    pub outbound: Option<Spi>,
    /// The subnets, as people write them: `10.1.0.0/16 === 10.2.0.0/16`.
    pub selectors: String,
    /// `connecting`, `failed`, `installed`, `rekeying`, `rekeyed`, `deleting`.
    pub state: &'static str,
    /// What it is protected with: `aes128gcm16-esn`; empty while unknown.
    pub algorithms: String,
    /// Whether packets are sealed with it at present.
    pub is_sealing: bool,
    /// Bytes of packets opened.
    pub rx_bytes: u64,
    /// Packets opened.
    pub rx_packets: u64,
    /// Bytes of packets sealed.
    pub tx_bytes: u64,
    /// Packets sealed.
    pub tx_packets: u64,
    /// Packets that did not verify.
    pub bad_packets: u64,
    /// Packets seen before, or too old.
    pub replayed_packets: u64,
    /// Time since it was made.
    pub age: Option<Duration>,
    /// Time until it is renewed by us.
    pub rekey_in: Option<Duration>,
    /// Why it is missing or was not renewed: `TS_UNACCEPTABLE (peer)`.
    pub error: Option<String>,
}
