//! The tables of `trieste status`.

mod ipsec;

use jiff::Timestamp;

use super::status::age;
use super::table::{Column, column, limited, render};
use trieste_control::admin::{CableStatus, FeatureState, GatewayStatus, WorkerState};

/// Events that are shown unless all are asked for: the newest.
const EVENTS_SHOWN: usize = 8;
/// States of NAT discovery that need no explanation: the peer has answered.
const SETTLED: [&str; 2] = ["private", "public"];

/// A table under its title.
struct Section {
    title: &'static str,
    columns: &'static [Column],
    rows: Vec<Vec<String>>,
    /// What is said instead of a table; without a word an empty section is left out.
    none: Option<&'static str>,
}

/// Everything below the summary. What is as it should be is only there when `is_verbose`.
pub(super) fn describe(status: &GatewayStatus, is_verbose: bool, now: Timestamp) -> String {
    let is_in_order = status.workers.iter().all(|worker| {
        worker.state == WorkerState::Running && worker.restarts == 0 && worker.last_error.is_none()
    });
    let shows_workers = is_verbose || status.workers.len() > 1 || !is_in_order;
    let none = |text| if is_verbose { Some(text) } else { None };
    [
        section("Conditions", &CONDITIONS, conditions(status, now), none("none")),
        section(
            "Cables",
            &CABLES,
            status.connections.iter().map(cable).collect(),
            Some("none: no foreign endpoint is known"),
        ),
        section("Cables to siblings", &CABLES, status.siblings.iter().map(cable).collect(), None),
        section("Paths", &PATHS, all_cables(status).filter_map(path).collect(), None),
        section("IKE SAs", &ipsec::IKE_SAS, ipsec::ike_sas(status), None),
        section("Child SAs", &ipsec::CHILD_SAS, ipsec::child_sas(status), None),
        section("NAT discovery", &DISCOVERY, discovery(status, is_verbose), none("none")),
        section("Health", &HEALTH, health(status), none("no peer is pinged")),
        section("Refused clusters", &REFUSED, refused(status), none("none")),
        section("Workers", &WORKERS, if shows_workers { workers(status) } else { Vec::new() }, none("none")),
        section("Packet I/O", &FEATURES, features(status, is_verbose), none("not known")),
        section("AF_XDP", &XDP, xdp(status), None),
        section("Drops", &DROPS, drops(status), none("none")),
        section("Events", &EVENTS, events(status, is_verbose, now), none("none")),
    ]
    .iter()
    .map(Section::text)
    .collect()
}

fn section(
    title: &'static str,
    columns: &'static [Column],
    rows: Vec<Vec<String>>,
    none: Option<&'static str>,
) -> Section {
    Section { title, columns, rows, none }
}

impl Section {
    fn text(&self) -> String {
        let Self { title, columns, rows, none } = self;
        match none {
            _ if !rows.is_empty() => {
                // Unlike upstream's tables these have long last columns: blanks at their ends would wrap lines.
                let table = render(columns, rows);
                let lines: String = table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
                format!("\n{title}\n{lines}")
            }
            Some(none) => format!("\n{title}\n  {none}\n"),
            None => String::new(),
        }
    }
}

const CONDITIONS: [Column; 5] = [
    column("SEVERITY"),
    column("CONDITION"),
    limited("SUBJECT", 60),
    column("SINCE"),
    limited("MESSAGE", 240),
];

/// The worst first.
fn conditions(status: &GatewayStatus, now: Timestamp) -> Vec<Vec<String>> {
    let mut conditions: Vec<_> = status.conditions.iter().collect();
    conditions.sort_by_key(|condition| std::cmp::Reverse(condition.severity));
    let row = |condition: &trieste_control::admin::Condition| {
        vec![
            condition.severity.as_str().to_owned(),
            condition.name.clone(),
            dash_if_empty(&condition.subject),
            age(condition.since, now).to_string(),
            condition.message.clone(),
        ]
    };
    conditions.into_iter().map(row).collect()
}

const CABLES: [Column; 11] = [
    limited("CLUSTER", 24),
    limited("GATEWAY", 30),
    column("STATUS"),
    column("OUTER ADDRESS"),
    column("FOUND BY"),
    column("HANDSHAKE"),
    column("RX"),
    column("TX"),
    column("MTU"),
    column("HELD"),
    limited("MESSAGE", 100),
];

fn cable(cable: &CableStatus) -> Vec<String> {
    let CableStatus { connection, lane, discovery, .. } = cable;
    vec![
        connection.endpoint.cluster_id.clone(),
        connection.endpoint.hostname.clone(),
        connection.status.to_string(),
        or_dash(lane.outer_address),
        or_dash(discovery.as_ref().map(|discovery| &discovery.state)),
        lane.last_handshake_age_s.map_or_else(|| "-".to_owned(), |age| format!("{age:.0} s ago")),
        bytes(lane.rx_bytes),
        bytes(lane.tx_bytes),
        or_dash(lane.path_mtu_bytes),
        lane.held_packets.to_string(),
        connection.status_message.clone(),
    ]
}

/// To remote clusters, then to siblings.
fn all_cables(status: &GatewayStatus) -> impl Iterator<Item = &CableStatus> {
    status.connections.iter().chain(&status.siblings)
}

const PATHS: [Column; 10] = [
    limited("CLUSTER", 24),
    limited("GATEWAY", 30),
    column("PATH"),
    column("FOR"),
    column("RTT"),
    column("LOSS IN"),
    column("LOSS OUT"),
    column("MTU"),
    column("TIME-OUT"),
    column("CHANGES"),
];

/// What probes say of a cable's path.
fn path(cable: &CableStatus) -> Option<Vec<String>> {
    let CableStatus { connection, path, .. } = cable;
    let path = path.as_ref()?;
    let state = match path.held_for_s {
        Some(seconds) => format!("{} ({seconds:.0} s more)", path.state),
        None => path.state.clone(),
    };
    Some(vec![
        connection.endpoint.cluster_id.clone(),
        connection.endpoint.hostname.clone(),
        state,
        format!("{:.0} s", path.since_s),
        path.rtt_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2} ms")),
        format!("{:.1} %", path.loss_in * 100.0),
        format!("{:.1} %", path.loss_out * 100.0),
        or_dash(path.mtu_bytes),
        format!("{:.0} ms", path.timeout_ms),
        path.transitions.to_string(),
    ])
}

const DISCOVERY: [Column; 4] =
    [limited("CLUSTER", 24), limited("GATEWAY", 30), column("STATE"), limited("MESSAGE", 160)];

/// Peers that have not answered, or all.
fn discovery(status: &GatewayStatus, is_verbose: bool) -> Vec<Vec<String>> {
    let row = |cable: &CableStatus| {
        let endpoint = &cable.connection.endpoint;
        let discovery = cable.discovery.as_ref()?;
        let is_shown = is_verbose || !SETTLED.contains(&discovery.state.as_str());
        is_shown.then(|| {
            vec![
                endpoint.cluster_id.clone(),
                endpoint.hostname.clone(),
                discovery.state.clone(),
                discovery.message.clone(),
            ]
        })
    };
    status.connections.iter().filter_map(row).collect()
}

const HEALTH: [Column; 10] = [
    limited("CLUSTER", 24),
    limited("GATEWAY", 30),
    column("PINGED"),
    column("VERDICT"),
    column("LAST"),
    column("AVERAGE"),
    column("MIN"),
    column("MAX"),
    column("LOST"),
    limited("MESSAGE", 120),
];

fn health(status: &GatewayStatus) -> Vec<Vec<String>> {
    let row = |cable: &CableStatus| {
        let health = cable.health.as_ref()?;
        let (endpoint, round_trip) = (&cable.connection.endpoint, cable.connection.latency_rtt.as_ref());
        let time = |text: Option<&String>| text.map_or_else(|| "-".to_owned(), |text| dash_if_empty(text));
        Some(vec![
            endpoint.cluster_id.clone(),
            endpoint.hostname.clone(),
            health.address.clone(),
            health.status.clone(),
            time(round_trip.map(|rtt| &rtt.last)),
            time(round_trip.map(|rtt| &rtt.average)),
            time(round_trip.map(|rtt| &rtt.min)),
            time(round_trip.map(|rtt| &rtt.max)),
            format!("{} of {}", health.sent.saturating_sub(health.received), health.sent),
            health.message.clone(),
        ])
    };
    status.connections.iter().filter_map(row).collect()
}

const REFUSED: [Column; 3] = [limited("CLUSTER", 24), column("ENDPOINT"), column("REASON")];

fn refused(status: &GatewayStatus) -> Vec<Vec<String>> {
    let row = |refused: &trieste_control::admin::RefusedCluster| {
        vec![refused.cluster.clone(), or_dash(refused.endpoint.as_ref()), refused.reason.clone()]
    };
    status.refused.iter().map(row).collect()
}

const WORKERS: [Column; 6] = [
    column("WORKER"),
    column("CPU"),
    column("STATE"),
    column("PACKETS"),
    column("RESTARTS"),
    limited("LAST ERROR", 80),
];

fn workers(status: &GatewayStatus) -> Vec<Vec<String>> {
    let row = |worker: &trieste_control::admin::WorkerStatus| {
        vec![
            worker.id.to_string(),
            or_dash(worker.cpu),
            worker.state.as_str().to_owned(),
            worker.packets.to_string(),
            worker.restarts.to_string(),
            or_dash(worker.last_error.as_ref()),
        ]
    };
    status.workers.iter().map(row).collect()
}

const FEATURES: [Column; 3] = [column("FEATURE"), column("STATE"), limited("REASON", 100)];

/// What is done without, or everything.
fn features(status: &GatewayStatus, is_verbose: bool) -> Vec<Vec<String>> {
    let row = |feature: &trieste_control::admin::IoCapability| {
        let state = match feature.state {
            FeatureState::On => "on",
            FeatureState::Off => "off",
        };
        vec![feature.feature.clone(), state.to_owned(), feature.reason.clone()]
    };
    status.io.iter().filter(|one| is_verbose || one.state == FeatureState::Off).map(row).collect()
}

const XDP: [Column; 9] = [
    column("INTERFACE"),
    column("MODE"),
    column("WORKER"),
    column("RECEIVED"),
    column("SENT"),
    column("COPIED"),
    column("BY SOCKETS"),
    column("DROPPED"),
    limited("REMARK", 200),
];

/// Returns one row for each worker with rings; one alone where there are only sockets.
fn xdp(status: &GatewayStatus) -> Vec<Vec<String>> {
    let Some(xdp) = &status.xdp else { return Vec::new() };
    let remark = xdp_remark(xdp);
    if xdp.workers.is_empty() {
        let mut row = vec![dash_if_empty(&xdp.interface), xdp.mode.clone()];
        row.resize(XDP.len() - 1, "-".to_owned());
        row.push(remark);
        return vec![row];
    }
    let row = |worker: &trieste_control::admin::XdpWorker| {
        let by_sockets: Vec<String> =
            worker.by_sockets.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        vec![
            dash_if_empty(&xdp.interface),
            xdp.mode.clone(),
            worker.id.to_string(),
            (worker.received_in_place + worker.received_copied).to_string(),
            (worker.sent_in_place + worker.sent_copied).to_string(),
            (worker.received_copied + worker.sent_copied).to_string(),
            dash_if_empty(&by_sockets.join(", ")),
            (worker.kernel_drops + worker.bad_descriptors).to_string(),
            remark.clone(),
        ]
    };
    xdp.workers.iter().map(row).collect()
}

/// Returns why it is no better mode, and what else keeps packets from the rings.
fn xdp_remark(xdp: &trieste_control::admin::XdpStatus) -> String {
    let steps = xdp.steps.iter().map(|step| format!("no {}: {}", step.mode, step.reason));
    let aside = "the host's IPsec policies are about what arrives: it goes through the kernel".to_owned();
    steps.chain(xdp.is_aside.then_some(aside)).collect::<Vec<_>>().join("; ")
}

const DROPS: [Column; 4] = [column("REASON"), column("CABLE"), column("WORKER"), column("PACKETS")];

fn drops(status: &GatewayStatus) -> Vec<Vec<String>> {
    let row = |drop: &trieste_control::admin::DropCount| {
        vec![
            drop.reason.clone(),
            or_dash(drop.cable.as_ref()),
            drop.worker.to_string(),
            drop.packets.to_string(),
        ]
    };
    status.drops.iter().map(row).collect()
}

const EVENTS: [Column; 4] = [column("AGO"), column("SEVERITY"), column("EVENT"), limited("MESSAGE", 200)];

/// The newest first.
fn events(status: &GatewayStatus, is_verbose: bool, now: Timestamp) -> Vec<Vec<String>> {
    let shown = if is_verbose { usize::MAX } else { EVENTS_SHOWN };
    let row = |event: &trieste_control::admin::EventRecord| {
        let times = if event.count > 1 { format!(" ({} times)", event.count) } else { String::new() };
        vec![
            age(event.time, now).to_string(),
            event.severity.as_str().to_owned(),
            event.reason.clone(),
            format!("{}{times}", event.message),
        ]
    };
    status.events.iter().rev().take(shown).map(row).collect()
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn dash_if_empty(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

/// Bytes for people, in powers of 1024 with one decimal.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let power = (count.ilog2() / 10) as usize;
    // Tenths in whole numbers: exact, and wide enough for every count.
    let tenths = u128::from(count) * 10 / (1u128 << (10 * power));
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[power - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_for_people() {
        let cases =
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")];
        for (count, text) in cases {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(bytes(u64::MAX), "15.9 EiB");
    }
}
