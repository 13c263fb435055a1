//! Statuses for tests, with connections as long as recorded ones.

use serde_json::Map;

use crate::api::{
    Connection, ConnectionStatus, EndpointSpec, HaStatus, LatencyRtt, PublishedStatus, backend_config,
};

/// An active gateway's status with so many connections, whose counters and round trips are of this `moment`.
pub(crate) fn status(connections: usize, moment: u64) -> PublishedStatus {
    PublishedStatus {
        version: "v0.8.0".to_owned(),
        ha_status: HaStatus::Active,
        local_endpoint: endpoint(0),
        status_failure: String::new(),
        connections: (1..=connections).map(|number| connection(number, moment)).collect(),
        extra: Map::new(),
    }
}

/// A connection as upstream's recorded ones, of some 740 bytes.
pub(super) fn connection(number: usize, moment: u64) -> Connection {
    let mut endpoint = endpoint(number);
    let counter = (10_000_000 + moment).to_string();
    endpoint.backend_config.extend([
        (backend_config::RECEIVE_BYTES.to_owned(), counter.clone()),
        (backend_config::TRANSMIT_BYTES.to_owned(), counter),
        (backend_config::LAST_CHECKED.to_owned(), (1_795_242_751_284 + moment).to_string()),
    ]);
    let time = format!("{}.{:03}µs", 500 + moment % 400, moment % 1000);
    let latency = LatencyRtt {
        last: time.clone(),
        min: time.clone(),
        average: time.clone(),
        max: time.clone(),
        std_dev: time,
        extra: Map::new(),
    };
    Connection {
        status: ConnectionStatus::Connected,
        using_ip: endpoint.public_ip.clone(),
        endpoint,
        latency_rtt: Some(latency),
        ..Connection::default()
    }
}

fn endpoint(number: usize) -> EndpointSpec {
    let (high, low) = (number / 250, number % 250 + 1);
    let address = format!("172.31.{high}.{low}");
    let config = [
        (backend_config::INTERFACE_NAME, "submariner".to_owned()),
        (backend_config::NAT_DISCOVERY_PORT, "4490".to_owned()),
        (backend_config::PUBLIC_IP, format!("ipv4:{address}")),
        (backend_config::PUBLIC_KEY, "2GhnGmrSM2H4rl4lVRPuqKrh9qbJMMGBXmNCwVnZeRY=".to_owned()),
        (backend_config::UDP_PORT, "4500".to_owned()),
    ];
    EndpointSpec {
        cluster_id: format!("cluster-{number}"),
        cable_name: format!("submariner-cable-cluster-{number}-172-31-{high}-{low}"),
        health_check_ip: format!("10.{high}.{low}.1"),
        hostname: format!("cluster-{number}-gw1"),
        subnets: vec![format!("100.{high}.{low}.0/24"), format!("10.{high}.{low}.0/24")],
        private_ip: address.clone(),
        public_ip: address,
        nat_enabled: true,
        backend: "wireguard".to_owned(),
        backend_config: config.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        ..EndpointSpec::default()
    }
}
