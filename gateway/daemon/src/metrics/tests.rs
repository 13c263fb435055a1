use std::collections::{BTreeMap, BTreeSet};

use trieste_control::admin::{
    BrokerLink, BrokerStatus, CableStatus, Conservation, DropCount, FeatureState, IoCapability, LaneStatus,
    RefusedCluster, WorkerState, WorkerStatus,
};
use trieste_control::api::{Connection, ConnectionStatus, EndpointSpec, HaStatus, LatencyRtt};

use super::*;

/// What an upstream gateway with one WireGuard cable answered, its own metrics only.
const UPSTREAM_PAGE: &str = include_str!("upstream_page.txt");
const DOCUMENTATION: &str = include_str!("../../../../docs/operations/metrics.md");

#[test]
fn the_page_says_what_upstream_says_in_its_words() {
    let text = page(&status(), &extra());
    let ours: BTreeSet<&str> = text.lines().collect();
    let values = samples(&text);
    for line in UPSTREAM_PAGE.lines() {
        if line.starts_with('#') {
            assert!(ours.contains(line), "missing: {line}\nin:\n{text}");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let expected: f64 = value.parse().unwrap();
            assert_eq!(values.get(series), Some(&expected), "{series}");
        }
    }
}

#[test]
fn a_connection_has_one_status_at_a_time() {
    let mut status = status();
    status.connections[0].connection.status = ConnectionStatus::Connecting;
    let before = page(&status, &extra());
    assert!(before.contains(r#"remote_hostname="b-gw1",status="connecting"} 1"#), "{before}");
    assert!(!before.contains("submariner_connection_latency_seconds"), "a latency of what is not connected");
    status.connections[0].connection.status = ConnectionStatus::Connected;
    let after = page(&status, &extra());
    assert!(after.contains(r#"status="connected"} 1"#));
    assert!(!after.contains(r#"status="connecting""#), "{after}");
}

#[test]
fn a_vxlan_cable_has_no_upstream_byte_counters() {
    let mut status = status();
    status.connections[0].connection.endpoint.backend = "vxlan".to_owned();
    let text = page(&status, &extra());
    assert!(!text.contains("submariner_gateway_rx_bytes") && !text.contains("submariner_gateway_tx_bytes"));
    assert!(text.contains("trieste_cable_rx_bytes_total{"));
}

#[test]
fn no_series_is_there_twice_and_every_sample_has_a_type() {
    let mut status = status();
    // Two cables to one host under one address: upstream's labels cannot tell them apart.
    let mut twin = status.connections[0].clone();
    twin.connection.endpoint.cable_name.push_str("-v6");
    status.connections.push(twin);
    let text = page(&status, &extra());
    let mut seen = BTreeSet::new();
    let mut current = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            current = rest.split(' ').next().unwrap();
            assert!(seen.insert(current.to_owned()), "{current} is described twice");
        } else if !line.starts_with('#') {
            let series = line.rsplit_once(' ').unwrap().0;
            assert_eq!(series.split('{').next().unwrap(), current);
            assert!(seen.insert(format!("{series} ")), "{series} twice");
        }
    }
}

#[test]
fn a_gateway_without_anything_renders() {
    let bare = GatewayStatus {
        workers: Vec::new(),
        io: Vec::new(),
        connections: Vec::new(),
        drops: Vec::new(),
        refused: Vec::new(),
        broker: BrokerStatus::default(),
        conservation: Conservation::default(),
        store: BrokerStatus::default(),
        election: None,
        conditions: vec![],
        events: vec![],
        ..status()
    };
    let text = page(&bare, &MetricsExtra::default());
    assert!(
        text.contains("\nsubmariner_gateway_sync_iterations 0\n")
            || text.starts_with("# HELP submariner_gateway_sync")
    );
    assert!(text.contains("trieste_broker_state{state=\"none\"} 1"));
    assert!(!text.contains("submariner_connections"));
}

#[test]
fn drops_workers_and_balance_are_told() {
    let text = page(&status(), &extra());
    for line in [
        r#"trieste_dropped_packets_total{reason="replay",cable="submariner-cable-cluster-b-172-31-2-11",worker="1"} 3"#,
        r#"trieste_dropped_packets_total{reason="no_route",cable="",worker="0"} 2"#,
        r#"trieste_worker_packets_total{worker="0"} 100"#,
        r#"trieste_worker_restarts_total{worker="1"} 1"#,
        r#"trieste_worker_running{worker="1"} 0"#,
        r#"trieste_worker_step_packets_total{worker="0",step="tun_in"} 60"#,
        "trieste_packets_held 4",
        "trieste_conservation_holds 1",
        r#"trieste_cable_handshake_age_seconds{cable="submariner-cable-cluster-b-172-31-2-11",remote_cluster="cluster-b"} 12.5"#,
        r#"trieste_refused_clusters{cluster="cluster-c",endpoint=""} 1"#,
        r#"trieste_io_feature{feature="tun-uso"} 0"#,
        "trieste_captures_running 1",
        "trieste_capture_lost_packets_total 9",
    ] {
        assert!(text.lines().any(|other| other == line), "missing: {line}\nin:\n{text}");
    }
}

#[test]
fn every_metric_is_documented_and_nothing_else_is() {
    let rendered: BTreeSet<String> = page(&status(), &extra())
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    let documented: BTreeSet<String> = DOCUMENTATION
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split('`').next())
        .filter(|name| ["submariner_", "trieste_", "process_"].iter().any(|prefix| name.starts_with(prefix)))
        .map(str::to_owned)
        .collect();
    let missing: Vec<_> = rendered.difference(&documented).collect();
    let invented: Vec<_> = documented.difference(&rendered).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "not documented: {missing:?}; not rendered: {invented:?}"
    );
}

fn page(status: &GatewayStatus, extra: &MetricsExtra) -> String {
    render(status, extra, CaptureCounters { running: 1, lost: 9 })
}

fn samples(text: &str) -> BTreeMap<&str, f64> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(series, value)| (series, value.parse().unwrap()))
        .collect()
}

/// The gateway of upstream's page, and something of everything.
fn status() -> GatewayStatus {
    let endpoint = |cluster: &str, host: &str, address: &str| EndpointSpec {
        cluster_id: cluster.to_owned(),
        cable_name: format!("submariner-cable-{cluster}-{}", address.replace('.', "-")),
        hostname: host.to_owned(),
        private_ip: address.to_owned(),
        public_ip: address.to_owned(),
        backend: "wireguard".to_owned(),
        ..EndpointSpec::default()
    };
    let remote = endpoint("cluster-b", "b-gw1", "172.31.2.11");
    let drop = |reason: &str, cable: Option<&str>, worker, packets| DropCount {
        reason: reason.to_owned(),
        cable: cable.map(str::to_owned),
        worker,
        packets,
    };
    let worker = |id, state, packets, restarts| WorkerStatus {
        id,
        cpu: Some(id),
        state,
        packets,
        restarts,
        last_error: None,
    };
    GatewayStatus {
        version: "0.1.0".to_owned(),
        pid: 7,
        started: "2026-11-21T05:48:00Z".parse().unwrap(),
        cluster: "cluster-a".to_owned(),
        hostname: "a-gw1".to_owned(),
        ha_status: HaStatus::Active,
        failure: String::new(),
        workers: vec![worker(0, WorkerState::Running, 100, 0), worker(1, WorkerState::Restarting, 50, 1)],
        io: vec![IoCapability {
            feature: "tun-uso".to_owned(),
            state: FeatureState::Off,
            reason: "the kernel is older than 6.2".to_owned(),
        }],
        endpoint: endpoint("cluster-a", "a-gw1", "172.31.1.11"),
        drops: vec![drop("replay", Some(&remote.cable_name), 1, 3), drop("no_route", None, 0, 2)],
        refused: vec![RefusedCluster {
            cluster: "cluster-c".to_owned(),
            endpoint: None,
            reason: "its CIDR overlaps with cluster-b's".to_owned(),
        }],
        broker: BrokerStatus {
            state: BrokerLink::Synced,
            since: Some("2026-11-21T05:48:01Z".parse().unwrap()),
            ..BrokerStatus::default()
        },
        conservation: Conservation { received: 150, made: 1, out: 142, held: 4, dropped: 5 },
        store: BrokerStatus::default(),
        election: None,
        conditions: vec![],
        events: vec![],
        connections: vec![CableStatus {
            connection: Connection {
                status: ConnectionStatus::Connected,
                endpoint: remote,
                latency_rtt: Some(LatencyRtt { last: "849.464µs".to_owned(), ..LatencyRtt::default() }),
                ..Connection::default()
            },
            discovery: None,
            health: None,
            lane: LaneStatus {
                rx_bytes: 15144,
                tx_bytes: 15148,
                last_handshake_age_s: Some(12.5),
                path_mtu_bytes: Some(1420),
                ..LaneStatus::default()
            },
        }],
    }
}

fn extra() -> MetricsExtra {
    MetricsExtra {
        sync_iterations: 16,
        established: vec![(
            "submariner-cable-cluster-b-172-31-2-11".to_owned(),
            Duration::from_secs(1_795_242_682),
        )],
        workers: vec![(0, Counters { tun_in: 60, ..Counters::default() })],
        process: Some(ProcessStats::default()),
    }
}
