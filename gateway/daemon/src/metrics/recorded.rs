//! Our page beside the recorded ones of upstream's gateways, metric by metric. The recordings keep upstream's own
//! metrics with their values, and of the others the types.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use trieste_control::admin::{CableStatus, GatewayStatus};
use trieste_control::api::{Connection, ConnectionStatus, EndpointSpec, LatencyRtt};

use super::{CaptureCounters, MetricsExtra, ProcessStats, render};

const PAGES: [(&str, &str); 7] = [
    ("VXLAN, one cable", include_str!("recorded/plain-a-gw1.txt")),
    ("VXLAN, after a failover of the peer", include_str!("recorded/plain-b-gw1.txt")),
    ("WireGuard", include_str!("recorded/wireguard-a-gw1.txt")),
    ("WireGuard, the other end", include_str!("recorded/wireguard-b-gw1.txt")),
    ("a passive gateway beside", include_str!("recorded/ha-passive-a-gw1.txt")),
    ("Globalnet", include_str!("recorded/globalnet-a-gw1.txt")),
    ("Globalnet, the other end", include_str!("recorded/globalnet-b-gw1.txt")),
];

/// A page taken apart: types and help texts by metric, and labels of each series.
#[derive(Debug, Default)]
struct Parsed {
    types: BTreeMap<String, String>,
    helps: BTreeMap<String, String>,
    series: BTreeMap<String, Vec<Vec<(String, String)>>>,
}

fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            parsed.types.insert(name.to_owned(), kind.to_owned());
        } else if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '))
        {
            parsed.helps.insert(name.to_owned(), help.to_owned());
        } else {
            let (series, _) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels.strip_suffix('}').unwrap().split_terminator(',');
            let labels = labels.map(|label| {
                let (key, value) = label.split_once('=').unwrap();
                (key.to_owned(), value.trim_matches('"').to_owned())
            });
            parsed.series.entry(name.to_owned()).or_default().push(labels.collect());
        }
    }
    parsed
}

/// A gateway of ours in the place of the recorded one.
fn in_its_place(recorded: &Parsed) -> (GatewayStatus, MetricsExtra) {
    let cables = &recorded.series["submariner_connections"];
    let value = |labels: &[(String, String)], key: &str| {
        labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone()).unwrap()
    };
    let endpoint = |labels: &[(String, String)], side: &str| EndpointSpec {
        cluster_id: value(labels, &format!("{side}_cluster")),
        hostname: value(labels, &format!("{side}_hostname")),
        public_ip: value(labels, &format!("{side}_endpoint_ip")),
        cable_name: format!("cable-{}", value(labels, &format!("{side}_hostname"))),
        backend: value(labels, "cable_driver"),
        ..EndpointSpec::default()
    };
    let connections: Vec<CableStatus> = cables
        .iter()
        .map(|labels| CableStatus {
            connection: Connection {
                status: ConnectionStatus::Connected,
                endpoint: endpoint(labels, "remote"),
                latency_rtt: Some(LatencyRtt { last: "1ms".to_owned(), ..LatencyRtt::default() }),
                ..Connection::default()
            },
            ..CableStatus::default()
        })
        .collect();
    let established = connections
        .iter()
        .map(|cable| (cable.connection.endpoint.cable_name.clone(), Duration::from_secs(1)))
        .collect();
    let mut status: GatewayStatus = serde_json::from_value(serde_json::json!({
        "version": "v1", "pid": 1, "started": "2026-11-21T05:48:28Z", "cluster": "c", "hostname": "h",
        "haStatus": "active", "endpoint": endpoint(&cables[0], "local"),
    }))
    .unwrap();
    status.connections = connections;
    let extra =
        MetricsExtra { established, process: Some(ProcessStats::default()), ..MetricsExtra::default() };
    (status, extra)
}

#[test]
fn every_recorded_page_is_ours_metric_by_metric() {
    for (name, text) in PAGES {
        let recorded = parse(text);
        let (status, extra) = in_its_place(&recorded);
        let ours = parse(&render(&status, &extra, CaptureCounters::default(), 0));
        for (metric, kind) in &recorded.types {
            assert_eq!(ours.types.get(metric), Some(kind), "{name}: the type of {metric}");
        }
        for (metric, help) in &recorded.helps {
            assert_eq!(ours.helps.get(metric), Some(help), "{name}: the help text of {metric}");
        }
        for (metric, series) in &recorded.series {
            let of_ours = &ours.series[metric];
            for labels in series {
                assert!(of_ours.contains(labels), "{name}: {metric} lacks {labels:?}, has {of_ours:?}");
            }
        }
        let upstreams = |parsed: &Parsed| -> BTreeSet<String> {
            parsed.types.keys().filter(|name| name.starts_with("submariner_")).cloned().collect()
        };
        let (ours, theirs) = (upstreams(&ours), upstreams(&recorded));
        assert!(ours.is_superset(&theirs), "{name}: {ours:?}");
        // Of VXLAN cables upstream counts no bytes.
        let more: Vec<&str> = ours.difference(&theirs).map(String::as_str).collect();
        let counted = ["submariner_gateway_rx_bytes", "submariner_gateway_tx_bytes"];
        assert!(
            more.is_empty() || text.contains(r#"cable_driver="vxlan""#) && more == counted,
            "{name}: {more:?}"
        );
    }
}
