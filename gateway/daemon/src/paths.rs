//! The state of paths, written by workers, for the rest of the gateway.

use std::sync::Arc;

use tokio::sync::watch;
use trieste_control::admin::PathHealth;
use trieste_pipeline::health::Report;
use trieste_pipeline::{Board, PathState};

/// The path table, and a channel for its changes.
#[derive(Debug, Clone)]
pub struct Paths {
    /// State, MTU and round trip of every path.
    pub table: Arc<Board>,
    /// The path table's generation, which is sent whenever the state or the MTU of a path changes.
    pub changed: watch::Sender<u64>,
}

impl Default for Paths {
    fn default() -> Self {
        Self { table: Board::new(), changed: watch::Sender::new(0) }
    }
}

/// Returns a path's health for the status document.
#[must_use]
pub fn status(report: &Report) -> PathHealth {
    PathHealth {
        state: report.state.as_str().to_owned(),
        since_s: report.since.as_secs_f64(),
        transitions: report.transitions,
        rtt_ms: report.rtt.map(|rtt| rtt.as_secs_f64() * 1000.0),
        loss_in: f64::from(report.loss_in_permille) / 1000.0,
        loss_out: f64::from(report.loss_out_permille) / 1000.0,
        mtu_bytes: report.mtu_bytes.map(u32::from),
        timeout_ms: report.timeout.as_secs_f64() * 1000.0,
        held_for_s: report
            .held_for
            .filter(|_| report.state == PathState::Held)
            .map(|held| held.as_secs_f64()),
        probes_sent: report.sent,
        probes_received: report.received,
        probes_missing: report.missing,
    }
}
