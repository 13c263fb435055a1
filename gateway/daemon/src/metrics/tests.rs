use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use trieste_control::admin::{
    BrokerLink, BrokerStatus, CableStatus, Condition, Conservation, DiscoveryStatus, DropCount,
    ElectionStatus, FeatureState, HealthStatus, IoCapability, LaneStatus, RefusedCluster, Severity,
    WorkerState, WorkerStatus, XdpStatus, XdpStep, XdpWorker,
};
use trieste_control::api::{Connection, ConnectionStatus, EndpointSpec, HaStatus, LatencyRtt};
use trieste_control::runner::MetricsSnapshot;
use trieste_control::store::kube::Requests;
use trieste_control::sync::SyncStats;
use trieste_pipeline::Counters;

use super::*;
use crate::ike::IkeNumbers;

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
fn bytes_of_every_kind_of_cable_are_counted_under_upstreams_names_too() {
    let mut status = status();
    for driver in ["wireguard", "libreswan", "vxlan"] {
        status.connections[0].connection.endpoint.backend = driver.to_owned();
        let text = page(&status, &extra());
        let of_driver = format!("{{cable_driver=\"{driver}\"");
        for name in ["submariner_gateway_rx_bytes", "submariner_gateway_tx_bytes"] {
            let line = text.lines().find(|line| line.starts_with(name) && line.contains(&of_driver));
            assert!(line.is_some(), "{name} of {driver}:\n{text}");
        }
        assert!(text.contains("trieste_cable_rx_bytes_total{"));
    }
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
    let (mut current, mut is_histogram) = ("", false);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let kind;
            (current, kind) = rest.split_once(' ').unwrap();
            is_histogram = kind == "histogram";
            assert!(seen.insert(current.to_owned()), "{current} is described twice");
        } else if !line.starts_with('#') {
            let series = line.rsplit_once(' ').unwrap().0;
            let name = series.split('{').next().unwrap();
            // A histogram's samples have its name and one of these, and none has its name alone.
            let names = ["_bucket", "_count", "_sum"].map(|suffix| format!("{current}{suffix}"));
            let is_typed = if is_histogram { names.iter().any(|of| of == name) } else { name == current };
            assert!(is_typed, "{series} stands below {current}");
            assert!(seen.insert(format!("{series} ")), "{series} twice");
        }
    }
}

#[test]
fn a_gateway_without_anything_renders() {
    let bare = GatewayStatus {
        workers: Vec::new(),
        io: Vec::new(),
        xdp: None,
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
        r#"trieste_worker_stalls_total{worker="1"} 3"#,
        r#"trieste_worker_stalled_seconds_total{worker="1"} 0.25"#,
        r#"trieste_worker_running{worker="1"} 0"#,
        r#"trieste_worker_step_packets_total{worker="0",step="tun_in"} 60"#,
        "trieste_packets_held 4",
        "trieste_conservation_holds 1",
        r#"trieste_cable_handshake_age_seconds{cable="submariner-cable-cluster-b-172-31-2-11",remote_cluster="cluster-b"} 12.5"#,
        r#"trieste_refused_clusters{cluster="cluster-c",endpoint=""} 1"#,
        r#"trieste_path_state{cable="submariner-cable-cluster-a-172-31-1-12",remote_cluster="cluster-a",state="held"} 1"#,
        r#"trieste_io_feature{feature="tun-uso"} 0"#,
        r#"trieste_xdp_mode{interface="eth0",mode="native"} 1"#,
        r#"trieste_xdp_mode{interface="eth0",mode="sockets"} 0"#,
        r#"trieste_xdp_step_down{interface="eth0",mode="zero-copy",cause="not_supported"} 1"#,
        "trieste_xdp_aside 0",
        r#"trieste_xdp_datagrams_total{worker="1",direction="in",copies="0"} 5"#,
        r#"trieste_xdp_datagrams_total{worker="1",direction="in",copies="1"} 6"#,
        r#"trieste_xdp_datagrams_total{worker="1",direction="out",copies="0"} 7"#,
        r#"trieste_xdp_datagrams_total{worker="1",direction="out",copies="1"} 8"#,
        r#"trieste_xdp_by_sockets_total{worker="1",reason="policy"} 9"#,
        r#"trieste_xdp_kernel_drops_total{worker="1"} 10"#,
        r#"trieste_xdp_bad_descriptors_total{worker="1"} 11"#,
        r#"trieste_xdp_wakeups_total{worker="1"} 12"#,
        r#"trieste_xdp_reopened_total{worker="1"} 13"#,
        r#"trieste_xdp_partial_checksums_total{worker="1"} 14"#,
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
        .filter(|name| {
            ["submariner_", "trieste_", "process_", "workqueue_", "controller_runtime_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        })
        .map(str::to_owned)
        .collect();
    let missing: Vec<_> = rendered.difference(&documented).collect();
    let invented: Vec<_> = documented.difference(&rendered).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "not documented: {missing:?}; not rendered: {invented:?}"
    );
}

#[test]
fn the_control_plane_is_told() {
    let text = page(&status(), &extra());
    for line in [
        "trieste_leader 1",
        "trieste_lease_transitions 7",
        "trieste_ike_half_open 3",
        r#"trieste_ike_failures_total{reason="NO_PROPOSAL_CHOSEN"} 4"#,
        "trieste_election_failing 0",
        r#"trieste_leadership_changes_total{change="acquired"} 2"#,
        r#"trieste_leadership_changes_total{change="lost"} 1"#,
        r#"trieste_store_state{state="away"} 1"#,
        r#"trieste_store_state{state="synced"} 0"#,
        "trieste_store_away_seconds 120",
        "trieste_broker_away_seconds 0",
        r#"trieste_api_requests_total{store="local",verb="list",outcome="done"} 0"#,
        r#"trieste_sync_writes_total{store="broker"} 5"#,
        r#"trieste_nat_discovery_cables{state="private"} 1"#,
        r#"trieste_nat_discovery_cables{state="remembered"} 0"#,
        r#"trieste_nat_discovery_datagrams_total{outcome="answered-ok"} 0"#,
        r#"trieste_health_check_up{cable="submariner-cable-cluster-b-172-31-2-11",remote_cluster="cluster-b"} 1"#,
        r#"trieste_health_check_loss_ratio{cable="submariner-cable-cluster-b-172-31-2-11",remote_cluster="cluster-b"} 0.25"#,
        r#"trieste_conditions{condition="UnknownNodeSetting",severity="warning"} 2"#,
        r#"trieste_events_total{reason="LeadershipLost",severity="warning"} 1"#,
        "trieste_public_ip_known 1",
        "trieste_started_from_memory 1",
    ] {
        assert!(text.lines().any(|other| other == line), "missing: {line}\nin:\n{text}");
    }
}

#[test]
fn the_newest_ping_is_not_lost_yet() {
    let mut status = status();
    let name = "trieste_health_check_loss_ratio";
    for (sent, received, expected) in
        [(1, 0, None), (1, 1, None), (2, 1, Some("0")), (2, 2, Some("0")), (3, 0, Some("1"))]
    {
        let health = status.connections[0].health.as_mut().unwrap();
        (health.sent, health.received) = (sent, received);
        let text = page(&status, &extra());
        let found = text.lines().find(|line| line.starts_with(name)).and_then(|line| line.rsplit(' ').next());
        assert_eq!(found, expected, "{sent} sent, {received} received");
    }
}

fn page(status: &GatewayStatus, extra: &MetricsExtra) -> String {
    render(status, extra, CaptureCounters { running: 1, lost: 9 }, 0)
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
    let remote = endpoint("cluster-b", "b-gw1", "172.31.2.11");
    let drop = |reason: &str, cable: Option<&str>, worker, packets| DropCount {
        reason: reason.to_owned(),
        cable: cable.map(str::to_owned),
        worker,
        packets,
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
        xdp: Some(xdp()),
        endpoint: endpoint("cluster-a", "a-gw1", "172.31.1.11"),
        drain: None,
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
        store: BrokerStatus {
            state: BrokerLink::Away,
            since: Some("2026-11-21T05:48:02Z".parse().unwrap()),
            ..BrokerStatus::default()
        },
        election: Some(ElectionStatus { is_leader: true, term: 7, ..ElectionStatus::default() }),
        conditions: ["gw1 a", "gw1 b"].map(unknown_setting).to_vec(),
        events: vec![],
        siblings: vec![sibling(endpoint("cluster-a", "a-gw2", "172.31.1.12"))],
        connections: vec![connection(remote)],
    }
}

fn xdp() -> XdpStatus {
    let step = |mode: &str, cause: &str| XdpStep {
        mode: mode.to_owned(),
        cause: cause.to_owned(),
        reason: "Operation not supported".to_owned(),
    };
    XdpStatus {
        interface: "eth0".to_owned(),
        mode: "native".to_owned(),
        steps: vec![step("zero-copy", "not_supported")],
        is_aside: false,
        workers: vec![XdpWorker {
            id: 1,
            received_in_place: 5,
            received_copied: 6,
            sent_in_place: 7,
            sent_copied: 8,
            partial_checksums: 14,
            by_sockets: [("policy".to_owned(), 9)].into(),
            kernel_drops: 10,
            bad_descriptors: 11,
            wakeups: 12,
            reopened: 13,
        }],
    }
}

fn endpoint(cluster: &str, host: &str, address: &str) -> EndpointSpec {
    EndpointSpec {
        cluster_id: cluster.to_owned(),
        cable_name: format!("submariner-cable-{cluster}-{}", address.replace('.', "-")),
        hostname: host.to_owned(),
        private_ip: address.to_owned(),
        public_ip: address.to_owned(),
        backend: "wireguard".to_owned(),
        ..EndpointSpec::default()
    }
}

fn worker(id: u32, state: WorkerState, packets: u64, restarts: u64) -> WorkerStatus {
    WorkerStatus {
        id,
        cpu: Some(id),
        state,
        packets,
        restarts,
        stalls: 3,
        stalled_s: 0.25,
        silent_s: 0.1,
        last_error: None,
    }
}

fn connection(endpoint: EndpointSpec) -> CableStatus {
    CableStatus {
        connection: Connection {
            status: ConnectionStatus::Connected,
            endpoint,
            latency_rtt: Some(LatencyRtt { last: "849.464µs".to_owned(), ..LatencyRtt::default() }),
            ..Connection::default()
        },
        discovery: Some(DiscoveryStatus { state: "private".to_owned(), message: String::new() }),
        health: Some(HealthStatus {
            status: "connected".to_owned(),
            address: "10.2.0.1".to_owned(),
            sent: 41,
            received: 30,
            ..HealthStatus::default()
        }),
        lane: LaneStatus {
            rx_bytes: 15144,
            tx_bytes: 15148,
            last_handshake_age_s: Some(12.5),
            path_mtu_bytes: Some(1420),
            ..LaneStatus::default()
        },
        ipsec: Some(trieste_control::admin::IpsecStatus {
            child_sas: ["installed", "failed", "installed"].map(child_sa).to_vec(),
            ..Default::default()
        }),
        path: Some(trieste_control::admin::PathHealth {
            state: "up".to_owned(),
            rtt_ms: Some(0.8),
            ..Default::default()
        }),
    }
}

fn sibling(endpoint: EndpointSpec) -> CableStatus {
    CableStatus {
        connection: Connection { endpoint, ..Connection::default() },
        path: Some(trieste_control::admin::PathHealth { state: "held".to_owned(), ..Default::default() }),
        ..CableStatus::default()
    }
}

fn child_sa(state: &str) -> trieste_control::admin::ChildSaStatus {
    trieste_control::admin::ChildSaStatus { state: state.to_owned(), bad_packets: 7, ..Default::default() }
}

fn unknown_setting(subject: &str) -> Condition {
    Condition {
        name: "UnknownNodeSetting".to_owned(),
        severity: Severity::Warning,
        subject: subject.to_owned(),
        message: "has no effect".to_owned(),
        since: "2026-11-21T05:48:01Z".parse().unwrap(),
    }
}

fn extra() -> MetricsExtra {
    let mut sync = SyncStats::default();
    sync.broker_writes = 5;
    let event = |reason: &str, severity, count| ((reason.to_owned(), severity), count);
    MetricsExtra {
        sync_iterations: 16,
        established: vec![(
            "submariner-cable-cluster-b-172-31-2-11".to_owned(),
            Duration::from_secs(1_795_242_682),
        )],
        workers: vec![(0, Counters { tun_in: 60, ..Counters::default() })],
        process: Some(ProcessStats::default()),
        now: "2026-11-21T05:50:02Z".parse().unwrap(),
        requests: vec![("local", Requests::default())],
        sync,
        events: [
            event("LeadershipAcquired", Severity::Info, 2),
            event("LeadershipLost", Severity::Warning, 1),
        ]
        .into(),
        started_from_memory: true,
        controllers: vec![("endpoint", MetricsSnapshot::default())],
        globalnet: Some(globalnet::tests::status()),
        ike: Some(IkeNumbers {
            half_open: 3,
            counts: vec![("established", 2)],
            failures: vec![("NO_PROPOSAL_CHOSEN".to_owned(), 4)],
            panics: 0,
        }),
        ..MetricsExtra::default()
    }
}
