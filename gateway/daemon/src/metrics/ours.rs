//! Metrics that upstream does not have. Counters are of packets, where a segment of a train counts as one.

use trieste_control::admin::{FeatureState, GatewayStatus, WorkerState};
use trieste_control::api::HaStatus;
use trieste_control::exposition::{Family, Kind, Page};
use trieste_pipeline::Counters;

use super::extra::MetricsExtra;
use crate::capture::CaptureCounters;

pub(super) fn gauge(name: &'static str, help: &'static str) -> Family {
    Family::new(Kind::Gauge, name, help)
}

pub(super) fn counter(name: &'static str, help: &'static str) -> Family {
    Family::new(Kind::Counter, name, help)
}

/// Adds the gateway as a whole: version, state, refused clusters, the kernel's offloads.
pub(super) fn gateway(page: &mut Page, status: &GatewayStatus) {
    let mut build = gauge("trieste_build_info", "The version that runs; always 1");
    build.set(&[("version", &status.version)], 1u64);
    page.add(build);
    page.add(
        gauge("trieste_gateway_active", "Whether this gateway carries traffic")
            .with(status.ha_status == HaStatus::Active),
    );
    page.add(
        gauge("trieste_gateway_failed", "Whether this gateway cannot work; its status says why")
            .with(!status.failure.is_empty()),
    );
    let mut refused =
        gauge("trieste_refused_clusters", "Clusters that are not connected to; the status says why");
    for entry in &status.refused {
        let endpoint = entry.endpoint.as_deref().unwrap_or("");
        refused.set(&[("cluster", &entry.cluster), ("endpoint", endpoint)], 1u64);
    }
    page.add(refused);
    let mut features = gauge("trieste_io_feature", "Whether a feature of packet I/O is in use");
    for capability in &status.io {
        features.set(&[("feature", &capability.feature)], capability.state == FeatureState::On);
    }
    page.add(features);
}

/// Adds the workers, and the counters of their pipelines.
pub(super) fn workers(page: &mut Page, status: &GatewayStatus, extra: &MetricsExtra) {
    let mut packets = counter("trieste_worker_packets_total", "Packets that a worker took in");
    let mut restarts = counter("trieste_worker_restarts_total", "Times a worker was restarted after a panic");
    let mut stalls = counter(
        "trieste_worker_stalls_total",
        "Times a worker came more than 5 ms late for its probes of paths",
    );
    let mut stalled =
        counter("trieste_worker_stalled_seconds_total", "For how long a worker was late in all");
    let mut running = gauge("trieste_worker_running", "Whether a worker carries packets");
    for worker in &status.workers {
        let id = worker.id.to_string();
        let labels = [("worker", id.as_str())];
        packets.set(&labels, worker.packets);
        restarts.set(&labels, worker.restarts);
        stalls.set(&labels, worker.stalls);
        stalled.set(&labels, worker.stalled_s);
        running.set(&labels, worker.state == WorkerState::Running);
    }
    for family in [packets, restarts, stalls, stalled, running] {
        page.add(family);
    }
    pipelines(page, extra);
}

fn pipelines(page: &mut Page, extra: &MetricsExtra) {
    let mut steps = counter("trieste_worker_step_packets_total", "Packets at the ends of a worker's line");
    let mut control = counter(
        "trieste_worker_control_datagrams_total",
        "Datagrams that carry no packet: handshakes, cookies, keepalives",
    );
    let mut flows = gauge("trieste_worker_flows", "Flows that a worker remembers");
    let mut held = gauge("trieste_worker_held_packets", "Packets held by a worker at this moment");
    let mut clamped =
        counter("trieste_worker_mss_clamped_total", "TCP handshake segments whose MSS was lowered");
    let mut fragmented = counter("trieste_worker_fragmented_total", "Packets that were fragmented");
    let mut services = counter(
        "trieste_worker_services_total",
        "Packets for services that were sent straight to a node with a back end",
    );
    let mut too_big =
        counter("trieste_worker_too_big_total", "ICMP errors made for packets too big for a path");
    let mut relayed = counter(
        "trieste_worker_relayed_packets_total",
        "Packets for remote clusters given to a sibling for want of a path, or taken from one",
    );
    let mut silent = gauge(
        "trieste_worker_silent_cables",
        "Cables whose peers have been silent for so long that they are tried rarely",
    );
    let mut deferred = counter(
        "trieste_worker_deferred_attempts_total",
        "Attempts to reach a peer that waited for their turn among those of all peers",
    );
    for (worker, counters) in &extra.workers {
        let id = worker.to_string();
        for (step, value) in line_steps(counters) {
            steps.set(&[("worker", &id), ("step", step)], value);
        }
        control.set(&[("worker", &id), ("direction", "in")], counters.control_in);
        control.set(&[("worker", &id), ("direction", "out")], counters.control_out);
        let labels = [("worker", id.as_str())];
        flows.set(&labels, counters.flows);
        held.set(&labels, counters.held);
        clamped.set(&labels, counters.mss_clamped);
        fragmented.set(&labels, counters.fragmented);
        services.set(&labels, counters.services_out);
        too_big.set(&labels, counters.too_big);
        silent.set(&labels, counters.silent_lanes);
        deferred.set(&labels, counters.deferred_attempts);
        relayed.set(&[("worker", &id), ("direction", "out")], counters.relayed_out);
        relayed.set(&[("worker", &id), ("direction", "in")], counters.relayed_in);
    }
    let packets = [steps, control, flows, held, clamped, fragmented, services, too_big, relayed];
    for family in packets.into_iter().chain([silent, deferred]) {
        page.add(family);
    }
}

fn line_steps(counters: &Counters) -> [(&'static str, u64); 7] {
    [
        ("tun_in", counters.tun_in),
        ("wire_in", counters.wire_in),
        ("handed_in", counters.handed_in),
        ("made", counters.made),
        ("tun_out", counters.tun_out),
        ("wire_out", counters.wire_out),
        ("handed_out", counters.handed_out),
    ]
}

/// Adds the cables, one series each.
pub(super) fn cables(page: &mut Page, status: &GatewayStatus) {
    let mut rx_bytes = counter("trieste_cable_rx_bytes_total", "Bytes received over a cable");
    let mut tx_bytes = counter("trieste_cable_tx_bytes_total", "Bytes sent over a cable");
    let mut rx_packets = counter("trieste_cable_rx_packets_total", "Packets received over a cable");
    let mut tx_packets = counter("trieste_cable_tx_packets_total", "Packets sent over a cable");
    let mut held = gauge("trieste_cable_held_packets", "Packets that await a cable's keys at this moment");
    let mut age = gauge("trieste_cable_handshake_age_seconds", "Time since a cable's newest handshake");
    let mut mtu = gauge("trieste_cable_path_mtu_bytes", "Largest inner packet that fits a cable's path");
    for cable in &status.connections {
        let (endpoint, lane) = (&cable.connection.endpoint, &cable.lane);
        let labels =
            [("cable", endpoint.cable_name.as_str()), ("remote_cluster", endpoint.cluster_id.as_str())];
        rx_bytes.set(&labels, lane.rx_bytes);
        tx_bytes.set(&labels, lane.tx_bytes);
        rx_packets.set(&labels, lane.rx_packets);
        tx_packets.set(&labels, lane.tx_packets);
        held.set(&labels, lane.held_packets);
        if let Some(seconds) = lane.last_handshake_age_s {
            age.set(&labels, seconds);
        }
        if let Some(bytes) = lane.path_mtu_bytes {
            mtu.set(&labels, bytes);
        }
    }
    for family in [rx_bytes, tx_bytes, rx_packets, tx_packets, held, age, mtu] {
        page.add(family);
    }
}

/// Adds drops by reason, and the balance of all packets.
pub(super) fn packets(page: &mut Page, status: &GatewayStatus) {
    let mut drops = counter("trieste_dropped_packets_total", "Packets dropped, by reason, cable and worker");
    for drop in &status.drops {
        let worker = drop.worker.to_string();
        let cable = drop.cable.as_deref().unwrap_or("");
        drops.set(&[("reason", &drop.reason), ("cable", cable), ("worker", &worker)], drop.packets);
    }
    page.add(drops);
    let balance = &status.conservation;
    let mut fates =
        counter("trieste_packets_total", "Packets of all workers, by fate: in + made = out + held + dropped");
    for (fate, packets) in
        [("in", balance.received), ("made", balance.made), ("out", balance.out), ("dropped", balance.dropped)]
    {
        fates.set(&[("fate", fate)], packets);
    }
    page.add(fates);
    page.add(
        gauge("trieste_packets_held", "Packets held in bounded queues at this moment").with(balance.held),
    );
    page.add(
        gauge("trieste_conservation_holds", "Whether no packet is unaccounted for").with(balance.holds()),
    );
}

/// Captures.
pub(super) fn server(page: &mut Page, refused: u64) {
    page.add(
        counter(
            "trieste_metrics_refused_connections_total",
            "Connections to the metrics port that were closed because their source, or all together, had too many",
        )
        .with(refused),
    );
}

pub(super) fn captures(page: &mut Page, captures: CaptureCounters) {
    page.add(gauge("trieste_captures_running", "Captures that run at this moment").with(captures.running));
    page.add(
        counter(
            "trieste_capture_lost_packets_total",
            "Packets missing in captures because their readers were too slow",
        )
        .with(captures.lost),
    );
}
