//! What the tables say, from Gateway objects: one type per row, shared by tables and machine formats.

mod cluster;
mod networks;
mod services;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

pub(super) use cluster::{BrokerRow, RouteAgentRow, VersionRow, brokers, route_agents, versions};
pub(super) use networks::Networks;
use serde::Serialize;
pub(super) use services::{ServiceRow, services};

use super::table::{Column, column, limited, render, yes_no};
use trieste_control::api::{Connection, ConnectionStatus, Endpoint, EndpointSpec, Gateway, backend_config};

/// A row that knows its table.
pub(super) trait Row: Serialize {
    /// The table's columns.
    const COLUMNS: &'static [Column];

    /// The row's cells, one per column.
    fn cells(&self) -> Vec<String>;

    /// What is to be said below the table, if anything.
    fn remark(&self) -> Option<String> {
        None
    }
}

/// Rows as a table.
pub(super) fn table<R: Row>(rows: &[R]) -> String {
    let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    render(R::COLUMNS, &cells)
}

/// How long a list of subnets may be, as upstream's.
const SUBNETS_BYTES: usize = 40;

/// A cable.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConnectionRow {
    /// The remote gateway's host name.
    gateway: String,
    /// Our gateway whose cable it is; in the table only where several have some.
    #[serde(skip_serializing_if = "String::is_empty")]
    local: String,
    cluster: String,
    #[serde(rename = "remoteIP")]
    remote_ip: String,
    nat: bool,
    cable_driver: String,
    subnets: Vec<String>,
    status: ConnectionStatus,
    /// Not in the table.
    status_message: String,
    /// Mean round-trip time, in Go's duration text; empty without a health check.
    rtt_average: String,
}

impl Row for ConnectionRow {
    const COLUMNS: &'static [Column] = &[
        limited("GATEWAY", 30),
        limited("CLUSTER", 24),
        column("REMOTE IP"),
        column("NAT"),
        column("CABLE DRIVER"),
        column("SUBNETS"),
        column("STATUS"),
        column("RTT avg."),
    ];

    fn cells(&self) -> Vec<String> {
        let by = if self.local.is_empty() { String::new() } else { format!(" from {}", self.local) };
        vec![
            format!("{}{by}", self.gateway),
            self.cluster.clone(),
            self.remote_ip.clone(),
            yes_no(self.nat),
            self.cable_driver.clone(),
            whole_items(&self.subnets, SUBNETS_BYTES),
            self.status.to_string(),
            self.rtt_average.clone(),
        ]
    }

    /// Of an IPsec cable upstream's words hide which part of it fails, and why.
    fn remark(&self) -> Option<String> {
        let is_said = self.cable_driver == "libreswan" && !self.status_message.is_empty();
        let is_counted = self.status_message.starts_with("Rx=");
        (is_said && !is_counted).then(|| format!("{}: {}", self.cluster, self.status_message))
    }
}

/// Returns as many items as there is space for, and how many are left out. A network that is cut is another network.
fn whole_items(items: &[String], max_bytes: usize) -> String {
    let all = items.join(", ");
    if all.len() <= max_bytes || items.len() == 1 {
        return all;
    }
    let with_rest = |shown: usize| format!("{}, +{} more", items[..shown].join(", "), items.len() - shown);
    let most = (1..items.len()).rev().find(|shown| with_rest(*shown).len() <= max_bytes);
    with_rest(most.unwrap_or(1))
}

/// One row per cable of these gateways.
pub(super) fn connections(gateways: &[Gateway]) -> Vec<ConnectionRow> {
    let carrying = gateways.iter().filter(|gateway| !gateway.status.connections.is_empty()).count();
    let all = gateways
        .iter()
        .flat_map(|gateway| gateway.status.connections.iter().map(move |connection| (gateway, connection)));
    all.map(|(gateway, connection)| {
        let (remote_ip, nat) = remote_address(connection);
        let endpoint = &connection.endpoint;
        ConnectionRow {
            gateway: endpoint.hostname.clone(),
            local: if carrying > 1 { gateway.status.local_endpoint.hostname.clone() } else { String::new() },
            cluster: endpoint.cluster_id.clone(),
            remote_ip,
            nat,
            cable_driver: endpoint.backend.clone(),
            subnets: endpoint.subnets.clone(),
            status: connection.status,
            status_message: connection.status_message.clone(),
            rtt_average: connection.latency_rtt.as_ref().map(|rtt| rtt.average.clone()).unwrap_or_default(),
        }
    })
    .collect()
}

/// Says what there is besides the connections that are shown: those that a Gateway object has no space for; or, where all
/// are there, clusters without a cable.
pub(super) fn remarks(gateways: &[Gateway], endpoints: &[Endpoint]) -> Vec<String> {
    let left_out: Vec<String> = gateways.iter().filter_map(left_out).collect();
    if left_out.is_empty() { unconnected(gateways, endpoints) } else { left_out }
}

/// Says how many connections of a gateway are not shown, if any.
fn left_out(gateway: &Gateway) -> Option<String> {
    let left_out = gateway.left_out();
    let others = match left_out.others {
        0 => String::new(),
        others => format!(" and {others} that are not"),
    };
    (left_out.total() > 0).then(|| {
        format!(
            "… and {} more of {} that are connected{others}: its Gateway object has no space for them; trieste status on \
             that gateway shows all",
            left_out.connected, gateway.status.local_endpoint.hostname
        )
    })
}

/// Says of each remote cluster that this one knows an Endpoint of and has no cable to why that is, as far as it can be
/// seen here.
fn unconnected(gateways: &[Gateway], endpoints: &[Endpoint]) -> Vec<String> {
    let Some(ours) = gateways.first().map(|gateway| &gateway.status.local_endpoint) else {
        return Vec::new();
    };
    let cables = gateways.iter().flat_map(|gateway| &gateway.status.connections);
    let connected: BTreeSet<&str> = cables.map(|cable| cable.endpoint.cluster_id.as_str()).collect();
    let is_strange = |spec: &&EndpointSpec| {
        spec.cluster_id != ours.cluster_id && !connected.contains(spec.cluster_id.as_str())
    };
    let strange: BTreeMap<&str, &EndpointSpec> = endpoints
        .iter()
        .map(|endpoint| &endpoint.spec)
        .filter(is_strange)
        .map(|spec| (spec.cluster_id.as_str(), spec))
        .collect();
    let is_v4 = |spec: &EndpointSpec| spec.private_ip.parse::<Ipv4Addr>().is_ok();
    let why = |theirs: &EndpointSpec| {
        if !theirs.drivers().any(|driver| ours.drivers().any(|own| own == driver)) {
            format!(
                "it uses the cable driver {}, this cluster {}: let all clusters of the set use the same (trieste join \
                 --cable-driver)",
                theirs.backend, ours.backend
            )
        } else if ours.backend == "vxlan" && !(is_v4(ours) && is_v4(theirs)) {
            "vxlan goes from one gateway's IPv4 address to another's, and one of the two has none: use another cable \
             driver in all clusters"
                .to_owned()
        } else {
            "trieste status on the gateway says whether it refuses that cluster".to_owned()
        }
    };
    strange.into_iter().map(|(cluster, theirs)| format!("{cluster}: no cable; {}", why(theirs))).collect()
}

/// The address in use, and whether it is behind NAT; while none is chosen, what would be without discovery.
fn remote_address(connection: &Connection) -> (String, bool) {
    let endpoint = &connection.endpoint;
    if !connection.using_ip.is_empty() {
        (connection.using_ip.clone(), connection.using_nat)
    } else if endpoint.nat_enabled {
        (endpoint.public_address().to_owned(), true)
    } else {
        (endpoint.private_address().to_owned(), false)
    }
}

/// An endpoint, our own or one that we are connected to.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndpointRow {
    cluster: String,
    #[serde(rename = "endpointIP")]
    endpoint_ip: String,
    #[serde(rename = "publicIP")]
    public_ip: String,
    cable_driver: String,
    /// `local` or `remote`.
    r#type: &'static str,
}

impl Row for EndpointRow {
    const COLUMNS: &'static [Column] = &[
        limited("CLUSTER", 24),
        column("ENDPOINT IP"),
        column("PUBLIC IP"),
        column("CABLE DRIVER"),
        column("TYPE"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.cluster.clone(),
            self.endpoint_ip.clone(),
            self.public_ip.clone(),
            self.cable_driver.clone(),
            self.r#type.to_owned(),
        ]
    }
}

/// One row per gateway and one per cable of it.
pub(super) fn endpoints(gateways: &[Gateway]) -> Vec<EndpointRow> {
    let row = |endpoint: &EndpointSpec, r#type| EndpointRow {
        cluster: endpoint.cluster_id.clone(),
        endpoint_ip: endpoint.private_address().to_owned(),
        public_ip: endpoint.public_address().to_owned(),
        cable_driver: endpoint.backend.clone(),
        r#type,
    };
    let rows = |gateway: &Gateway| {
        let remote = gateway.status.connections.iter().map(|connection| row(&connection.endpoint, "remote"));
        [row(&gateway.status.local_endpoint, "local")].into_iter().chain(remote).collect::<Vec<_>>()
    };
    let mut all: Vec<EndpointRow> = Vec::new();
    for row in gateways.iter().flat_map(rows) {
        // Several gateways have cables to the same ones.
        if !all.contains(&row) {
            all.push(row);
        }
    }
    all
}

/// A gateway.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GatewayRow {
    node: String,
    ha_status: String,
    summary: String,
}

impl Row for GatewayRow {
    const COLUMNS: &'static [Column] = &[limited("NODE", 30), column("HA STATUS"), column("SUMMARY")];

    fn cells(&self) -> Vec<String> {
        vec![self.node.clone(), self.ha_status.clone(), self.summary.clone()]
    }
}

/// One row per gateway.
pub(super) fn gateways(gateways: &[Gateway]) -> Vec<GatewayRow> {
    let row = |gateway: &Gateway| GatewayRow {
        node: gateway.status.local_endpoint.hostname.clone(),
        ha_status: ha_status(gateway),
        summary: summary(gateway),
    };
    gateways.iter().map(row).collect()
}

/// What a gateway does: carry traffic, stand by, or hand its flows over.
fn ha_status(gateway: &Gateway) -> String {
    let said = gateway.status.local_endpoint.backend_config.get(backend_config::STATE);
    match said.map(String::as_str) {
        Some(state @ (backend_config::DRAINING | backend_config::DRAINED)) => state.to_owned(),
        _ => gateway.status.ha_status.to_string(),
    }
}

fn summary(gateway: &Gateway) -> String {
    let status = &gateway.status;
    let left_out = gateway.left_out();
    let all = status.connections.len().saturating_add(left_out.total());
    let up = status.connections.iter().filter(|one| one.status == ConnectionStatus::Connected).count();
    let up = up.saturating_add(left_out.connected);
    if !status.status_failure.is_empty() {
        status.status_failure.clone()
    } else if all == 0 {
        "There are no connections".to_owned()
    } else if up == all {
        format!("All connections ({all}) are established")
    } else {
        format!("{up} connections out of {all} are established")
    }
}

#[cfg(test)]
mod tests;
