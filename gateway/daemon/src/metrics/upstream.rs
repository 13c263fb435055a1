//! Metrics of upstream's gateway. Names, types, labels and help texts are API and stay as they are.
//!
//! One flaw of upstream is not copied: a connection that was `connecting` has no such series left once it is
//! `connected`.

use std::collections::BTreeMap;
use std::time::Duration;

use trieste_control::admin::{CableStatus, GatewayStatus};
use trieste_control::api::{ConnectionStatus, GoDuration};
use trieste_control::exposition::{Family, Kind, Page};

use super::extra::MetricsExtra;

pub(super) fn render(page: &mut Page, status: &GatewayStatus, extra: &MetricsExtra) {
    let gauge = |name, help| Family::new(Kind::Gauge, name, help);
    let mut established = gauge(
        "submariner_connection_established_timestamp",
        "Timestamp of last successful connection established (by cable driver and cable)",
    );
    let mut latency = gauge(
        "submariner_connection_latency_seconds",
        "Connection latency in seconds (last RTT, by cable driver and cable)",
    );
    let mut connections = gauge(
        "submariner_connections",
        "Number of connections and corresponding status (by cable driver and cable)",
    );
    let mut short = gauge(
        "submariner_connections_short",
        "Summary of connections and corresponding status without cable information",
    );
    let mut received =
        gauge("submariner_gateway_rx_bytes", "Count of bytes received (by cable driver and cable)");
    let mut sent =
        gauge("submariner_gateway_tx_bytes", "Count of bytes transmitted (by cable driver and cable)");
    let since: BTreeMap<&str, Duration> =
        extra.established.iter().map(|(name, since)| (name.as_str(), *since)).collect();
    for cable in &status.connections {
        let labels = cable_labels(status, cable);
        let connection = &cable.connection;
        let state = connection.status.as_str();
        let mut with_status = labels.to_vec();
        with_status.push(("status", state));
        connections.set(&with_status, 1u64);
        short.set(&[("cable_driver", &connection.endpoint.backend), ("status", state)], 1u64);
        // Upstream has no such counters of VXLAN cables.
        received.set(&labels, cable.lane.rx_bytes);
        sent.set(&labels, cable.lane.tx_bytes);
        if let Some(since) = since.get(connection.endpoint.cable_name.as_str()) {
            established.set(&labels, since.as_secs());
        }
        if let Some(seconds) = latency_seconds(cable) {
            latency.set(&labels, seconds);
        }
    }
    let iterations = Family::new(
        Kind::Counter,
        "submariner_gateway_sync_iterations",
        "Gateway synchronization iterations",
    );
    for family in [established, latency, connections, short, received] {
        page.add(family);
    }
    page.add(iterations.with(extra.sync_iterations));
    page.add(sent);
}

/// Returns labels for both ends of a cable; addresses are the published public ones, empty where there are none.
fn cable_labels<'a>(status: &'a GatewayStatus, cable: &'a CableStatus) -> [(&'static str, &'a str); 7] {
    let (local, remote) = (&status.endpoint, &cable.connection.endpoint);
    [
        ("cable_driver", &remote.backend),
        ("local_cluster", &local.cluster_id),
        ("local_endpoint_ip", &local.public_ip),
        ("local_hostname", &local.hostname),
        ("remote_cluster", &remote.cluster_id),
        ("remote_endpoint_ip", &remote.public_ip),
        ("remote_hostname", &remote.hostname),
    ]
}

/// Returns the newest round-trip time of a connection that is up.
fn latency_seconds(cable: &CableStatus) -> Option<f64> {
    let connection = &cable.connection;
    if connection.status != ConnectionStatus::Connected {
        return None;
    }
    let last: GoDuration = connection.latency_rtt.as_ref()?.last.parse().ok()?;
    let nanoseconds = u64::try_from(last.as_nanos()).ok()?;
    Some(Duration::from_nanos(nanoseconds).as_secs_f64())
}
