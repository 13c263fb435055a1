//! Metrics of the IPsec cable besides packets: negotiations and SAs.

use std::collections::BTreeMap;

use trieste_control::admin::{ChildSaStatus, GatewayStatus, IpsecStatus};
use trieste_control::exposition::Page;

use super::ours::{counter, gauge};
use crate::ike::IkeNumbers;

/// Adds the counters of all cables together.
pub(super) fn ike(page: &mut Page, numbers: &IkeNumbers) {
    let half_open = gauge(
        "trieste_ike_half_open",
        "IKE SAs that somebody has begun and not authenticated yet, at this moment",
    );
    page.add(half_open.with(numbers.half_open));
    let mut events = counter("trieste_ike_events_total", "What happened in IKE, by kind");
    for (event, count) in &numbers.counts {
        events.set(&[("event", event)], *count);
    }
    page.add(events);
    let mut failures = counter(
        "trieste_ike_failures_total",
        "Negotiations that failed, by the peer's notify; `local` where we gave up or refused",
    );
    for (reason, count) in &numbers.failures {
        failures.set(&[("reason", reason)], *count);
    }
    page.add(failures);
    let panics = counter("trieste_ike_panics_total", "Panics of the thread for IKE that were caught");
    page.add(panics.with(numbers.panics));
}

/// Adds the series of each cable.
pub(super) fn cables(page: &mut Page, status: &GatewayStatus) {
    let mut child_sas =
        gauge("trieste_ipsec_child_sas", "Child SAs of a cable, and pairs of subnets without one, by state");
    let mut bad = gauge(
        "trieste_ipsec_bad_packets",
        "Packets that did not verify (bad) or came twice or too late (replayed), of the child SAs that there are",
    );
    for cable in &status.connections {
        let Some(ipsec) = &cable.ipsec else { continue };
        let endpoint = &cable.connection.endpoint;
        let (name, cluster) = (endpoint.cable_name.as_str(), endpoint.cluster_id.as_str());
        let labels = |key, value| [("cable", name), ("remote_cluster", cluster), (key, value)];
        for (state, count) in states(ipsec) {
            child_sas.set(&labels("state", state), count);
        }
        let sum = |of: fn(&ChildSaStatus) -> u64| ipsec.child_sas.iter().map(of).sum::<u64>();
        bad.set(&labels("kind", "bad"), sum(|child| child.bad_packets));
        bad.set(&labels("kind", "replayed"), sum(|child| child.replayed_packets));
    }
    page.add(child_sas);
    page.add(bad);
}

fn states(ipsec: &IpsecStatus) -> BTreeMap<&str, u64> {
    let mut states = BTreeMap::new();
    for child in &ipsec.child_sas {
        *states.entry(child.state.as_str()).or_default() += 1;
    }
    states
}
