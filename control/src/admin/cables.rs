//! Cables in the status document: their addresses, lanes, health and paths.

use serde::{Deserialize, Serialize};

use super::ipsec::IpsecStatus;
use crate::api::Connection;
use crate::health::PingerView;

/// How the address of a peer was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryStatus {
    /// `discovering`, `private`, `public`, `fallback`, `provisional` or `remembered`.
    pub state: String,
    /// Why, for people: what answered, or what did not.
    #[serde(default)]
    pub message: String,
}

/// A cable: what is published in the Gateway object, and its lane.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CableStatus {
    /// As in `Gateway.status.connections`, in upstream's field names.
    #[serde(flatten)]
    pub connection: Connection,
    /// The details that upstream's object has no room for.
    pub lane: LaneStatus,
    /// How the peer's address was found; absent where nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery: Option<DiscoveryStatus>,
    /// The result of the health check; absent where nobody pings the peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthStatus>,
    /// Its SAs; absent with other cable drivers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipsec: Option<IpsecStatus>,
    /// Health of its path; absent where the far end knows no probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathHealth>,
}

/// The result of the health check of one peer. Its round trips are in the connection's `latencyRTT`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthStatus {
    /// `connected`, `error` or `unknown`.
    pub status: String,
    /// Why, for people; empty when there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The address that is pinged.
    pub address: String,
    /// Pings sent since the peer is known.
    #[serde(default)]
    pub sent: u64,
    /// Answers that came, late ones included.
    #[serde(default)]
    pub received: u64,
}

impl From<&PingerView> for HealthStatus {
    fn from(view: &PingerView) -> Self {
        Self {
            status: view.status.as_str().to_owned(),
            message: view.message.clone(),
            address: view.ip.to_string(),
            sent: view.sent,
            received: view.received,
        }
    }
}

/// A lane's counters. Counters start at 0 when the cable is made and never go back while it exists.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LaneStatus {
    /// The peer's outer address, `address:port`, as last authenticated; absent until known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outer_address: Option<std::net::SocketAddr>,
    /// The worker that owns the lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
    /// Age of the newest handshake in seconds; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handshake_age_s: Option<f64>,
    /// Bytes received over the cable.
    pub rx_bytes: u64,
    /// Bytes sent over the cable.
    pub tx_bytes: u64,
    /// Packets received over the cable.
    #[serde(default)]
    pub rx_packets: u64,
    /// Packets sent over the cable.
    #[serde(default)]
    pub tx_packets: u64,
    /// Largest inner packet that fits, in bytes; absent until known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu_bytes: Option<u32>,
    /// Packets held at this moment, awaiting keys.
    #[serde(default)]
    pub held_packets: u64,
}

/// Health of a path between two Trieste gateways, by probes inside its cable.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PathHealth {
    /// `up`, `down`, `draining` or `held`.
    pub state: String,
    /// For how many seconds that has been so.
    pub since_s: f64,
    /// How often the state has changed since the cable was made.
    pub transitions: u64,
    /// The round trip in milliseconds, smoothed; absent until measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Share of probes lost on their way to us, lately: 0 to 1.
    pub loss_in: f64,
    /// Share of probes lost on their way to the far end, lately, as it says: 0 to 1.
    pub loss_out: f64,
    /// Largest inner packet that gets through, in bytes; absent until found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u32>,
    /// How many milliseconds the far end may be silent before the path is down.
    pub timeout_ms: f64,
    /// For how many seconds it is still held, if its state is `held`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_for_s: Option<f64>,
    /// Probes sent.
    pub probes_sent: u64,
    /// Probes received.
    pub probes_received: u64,
    /// Probes of the far end that did not arrive.
    pub probes_missing: u64,
}
