//! Health of paths to other Trieste gateways, one series for each cable.

use trieste_control::admin::GatewayStatus;
use trieste_control::exposition::Page;
use trieste_pipeline::PathState;

use super::ours::{counter, gauge};

/// Adds all paths, including those to siblings, except for cables whose far end does not support probes.
pub(super) fn render(page: &mut Page, status: &GatewayStatus) {
    let mut state = gauge("trieste_path_state", "The state that a path is in: 1, the others 0");
    let mut transitions = counter("trieste_path_transitions_total", "How often a path's state has changed");
    let mut rtt = gauge("trieste_path_rtt_seconds", "Round trip of a path, smoothed");
    let mut loss = gauge("trieste_path_loss_ratio", "Share of probes that are lost lately, each way");
    let mut timeout = gauge("trieste_path_timeout_seconds", "How long a far end may be silent at present");
    let mut sent = counter("trieste_path_probes_sent_total", "Probes sent by a path");
    let mut received = counter("trieste_path_probes_received_total", "Probes received by a path");
    let mut missing =
        counter("trieste_path_probes_missing_total", "Probes of the far end that did not arrive");
    for cable in status.connections.iter().chain(&status.siblings) {
        let (endpoint, Some(path)) = (&cable.connection.endpoint, &cable.path) else { continue };
        let cable = ("cable", endpoint.cable_name.as_str());
        let labels = [cable, ("remote_cluster", endpoint.cluster_id.as_str())];
        for one in PathState::ALL.map(PathState::as_str) {
            state.set(&[labels[0], labels[1], ("state", one)], u64::from(one == path.state));
        }
        transitions.set(&labels, path.transitions);
        if let Some(ms) = path.rtt_ms {
            rtt.set(&labels, ms / 1000.0);
        }
        loss.set(&[labels[0], labels[1], ("direction", "in")], path.loss_in);
        loss.set(&[labels[0], labels[1], ("direction", "out")], path.loss_out);
        timeout.set(&labels, path.timeout_ms / 1000.0);
        sent.set(&labels, path.probes_sent);
        received.set(&labels, path.probes_received);
        missing.set(&labels, path.probes_missing);
    }
    for family in [state, transitions, rtt, loss, timeout, sent, received, missing] {
        page.add(family);
    }
}
