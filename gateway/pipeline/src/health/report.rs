//! What is told of a path's health.

use std::time::Duration;

use crate::board::PathState;

/// A path's health, for status and metrics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// Its state.
    pub state: PathState,
    /// For how long that has been so.
    pub since: Duration,
    /// How often the state has changed.
    pub transitions: u64,
    /// The round trip, smoothed, once it has been measured.
    pub rtt: Option<Duration>,
    /// How many of a thousand probes are lost on their way to us, lately.
    pub loss_in_permille: u16,
    /// How many of a thousand probes are lost on their way to the far end, lately, as it says.
    pub loss_out_permille: u16,
    /// Largest inner packet that gets through, in bytes, where that has been found out.
    pub mtu_bytes: Option<u16>,
    /// How long the far end may be silent at present.
    pub timeout: Duration,
    /// For how long the path is still held, if it is.
    pub held_for: Option<Duration>,
    /// Whether it is probed at the pace of paths that carry packets.
    pub is_fast: bool,
    /// Probes sent, those that are padded included.
    pub sent: u64,
    /// Probes received.
    pub received: u64,
    /// Probes of the far end that did not arrive.
    pub missing: u64,
}
