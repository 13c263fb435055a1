//! `trieste status`: one gateway in detail.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;

use super::output::{Output, printable};
use super::table::{Column, column, limited, render};
use super::{Format, StatusArgs, socket};
use crate::admin::{CableStatus, FeatureState, GatewayStatus, STATUS_PATH};
use crate::api::GoDuration;

pub(super) async fn run(args: &StatusArgs, output: &mut Output) -> anyhow::Result<()> {
    let body = socket::get(&args.socket.path(), STATUS_PATH).await?;
    let value: serde_json::Value =
        serde_json::from_slice(&body).context("the gateway's answer is not JSON")?;
    if args.output != Format::Table {
        // As it came: a newer gateway may say more than we know.
        return output.write_value(&value, args.output);
    }
    let status: GatewayStatus = serde_path_to_error::deserialize(value)
        .context("the gateway's answer is not a status; is it of another version than this command?")?;
    output.write(describe(&status, Timestamp::now()).as_bytes())
}

/// The status, for people.
fn describe(status: &GatewayStatus, now: Timestamp) -> String {
    let mut text = summary(status, now);
    let mut section = |title: &str, columns: &[Column], rows: Vec<Vec<String>>, none: &str| {
        let table = if rows.is_empty() { format!("  {none}\n") } else { render(columns, &rows) };
        let _ = write!(text, "\n{title}\n{table}");
    };
    section(
        "Cables",
        &CABLES,
        status.connections.iter().map(cable).collect(),
        "none: no foreign endpoint is known",
    );
    section("Workers", &WORKERS, workers(status), "none");
    section("Packet I/O", &FEATURES, features(status), "not known");
    section("Drops", &DROPS, drops(status), "none");
    section("Refused clusters", &REFUSED, refused(status), "none");
    text
}

fn summary(status: &GatewayStatus, now: Timestamp) -> String {
    let GatewayStatus { version, pid, endpoint, conservation: sum, .. } = status;
    let up = now.duration_since(status.started).unsigned_abs();
    let mut lines = vec![
        format!("Gateway {} of cluster \"{}\", {}", status.hostname, status.cluster, status.ha_status),
        format!("  version    {version}, process {pid}, up {}", whole_seconds(up)),
        format!(
            "  endpoint   {} over {}, subnets {}",
            address(status),
            endpoint.backend,
            endpoint.subnets.join(", ")
        ),
        format!("  broker     {}", broker(status, now)),
        format!(
            "  packets    in {} + made {} = out {} + held {} + dropped {}{}",
            sum.received,
            sum.made,
            sum.out,
            sum.held,
            sum.dropped,
            // The counters are read one after the other while packets pass, so a busy gateway may be off by a few.
            if sum.holds() { "" } else { "  (in motion)" }
        ),
    ];
    if !status.failure.is_empty() {
        lines.push(format!("  FAILURE    {}", status.failure));
    }
    lines.iter().map(|line| printable(line) + "\n").collect()
}

fn address(status: &GatewayStatus) -> String {
    let endpoint = &status.endpoint;
    if endpoint.public_ip.is_empty() || endpoint.public_ip == endpoint.private_ip {
        endpoint.private_ip.clone()
    } else {
        format!("{} (public {})", endpoint.private_ip, endpoint.public_ip)
    }
}

fn broker(status: &GatewayStatus, now: Timestamp) -> String {
    let broker = &status.broker;
    let mut text = broker.state.as_str().to_owned();
    if let Some(since) = broker.since {
        let _ = write!(text, " for {}", whole_seconds(now.duration_since(since).unsigned_abs()));
    }
    if let Some(error) = &broker.error {
        let _ = write!(text, ": {error}");
    }
    if let Some(next) = broker.next_try.filter(|next| *next > now) {
        let _ = write!(text, " (next try in {})", whole_seconds(next.duration_since(now).unsigned_abs()));
    }
    text
}

const CABLES: [Column; 10] = [
    limited("CLUSTER", 24),
    limited("GATEWAY", 30),
    column("STATUS"),
    column("OUTER ADDRESS"),
    column("HANDSHAKE"),
    column("RX"),
    column("TX"),
    column("MTU"),
    column("HELD"),
    limited("MESSAGE", 60),
];

fn cable(cable: &CableStatus) -> Vec<String> {
    let CableStatus { connection, lane, .. } = cable;
    vec![
        connection.endpoint.cluster_id.clone(),
        connection.endpoint.hostname.clone(),
        connection.status.to_string(),
        or_dash(lane.outer_address),
        lane.last_handshake_age_s.map_or_else(|| "-".to_owned(), |age| format!("{age:.0} s ago")),
        bytes(lane.rx_bytes),
        bytes(lane.tx_bytes),
        or_dash(lane.path_mtu_bytes),
        lane.held_packets.to_string(),
        connection.status_message.clone(),
    ]
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
    let row = |worker: &crate::admin::WorkerStatus| {
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

fn features(status: &GatewayStatus) -> Vec<Vec<String>> {
    let row = |feature: &crate::admin::IoCapability| {
        let state = match feature.state {
            FeatureState::On => "on",
            FeatureState::Off => "off",
        };
        vec![feature.feature.clone(), state.to_owned(), feature.reason.clone()]
    };
    status.io.iter().map(row).collect()
}

const DROPS: [Column; 4] = [column("REASON"), column("CABLE"), column("WORKER"), column("PACKETS")];

fn drops(status: &GatewayStatus) -> Vec<Vec<String>> {
    let row = |drop: &crate::admin::DropCount| {
        vec![
            drop.reason.clone(),
            or_dash(drop.cable.as_ref()),
            drop.worker.to_string(),
            drop.packets.to_string(),
        ]
    };
    status.drops.iter().map(row).collect()
}

const REFUSED: [Column; 3] = [limited("CLUSTER", 24), column("ENDPOINT"), column("REASON")];

fn refused(status: &GatewayStatus) -> Vec<Vec<String>> {
    let row = |refused: &crate::admin::RefusedCluster| {
        vec![refused.cluster.clone(), or_dash(refused.endpoint.as_ref()), refused.reason.clone()]
    };
    status.refused.iter().map(row).collect()
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Time for people: Go's form without fractions, such as `2m10s`.
fn whole_seconds(duration: Duration) -> GoDuration {
    GoDuration::from(Duration::from_secs(duration.as_secs()))
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

    #[test]
    fn a_status_says_what_is_up_and_what_is_not() {
        let text = r#"{"version":"1.2","pid":7,"started":"2026-11-21T05:48:28Z","cluster":"a","hostname":"a-gw1",
            "haStatus":"active","endpoint":{"cluster_id":"a","cable_name":"c","hostname":"a-gw1","subnets":["10.1.0.0/16"],
            "private_ip":"10.0.0.1","public_ip":"192.0.2.1","backend":"wireguard"},
            "workers":[{"id":0,"cpu":null,"state":"running","packets":5,"restarts":1,"last_error":"injected"}],
            "io":[{"feature":"tun-uso","state":"off","reason":"kernel 6.1 lacks it"}],
            "connections":[{"status":"connected","statusMessage":"ok","endpoint":{"cluster_id":"b","cable_name":"c",
            "hostname":"b-gw1","subnets":[],"private_ip":"10.0.0.2","backend":"wireguard"},
            "lane":{"rx_bytes":2048,"tx_bytes":1,"last_handshake_age_s":12.4,"outer_address":"[fd00::2]:4500"}}],
            "drops":[{"reason":"replay","cable":"c","worker":0,"packets":3}],
            "refused":[{"cluster":"z","reason":"subnet 10.1.0.0/16 overlaps our own"}],
            "broker":{"state":"away","since":"2026-11-21T05:48:28Z","error":"gone","next_try":"2026-11-21T05:50:40Z"},
            "conservation":{"in":5,"made":0,"out":2,"held":0,"dropped":3}}"#;
        let status: GatewayStatus = serde_json::from_str(text).unwrap();
        let described = describe(&status, "2026-11-21T05:50:38Z".parse().unwrap());
        for expected in [
            "Gateway a-gw1 of cluster \"a\", active",
            "up 2m10s",
            "10.0.0.1 (public 192.0.2.1) over wireguard",
            "away for 2m10s: gone (next try in 2s)",
            "in 5 + made 0 = out 2 + held 0 + dropped 3\n",
            "[fd00::2]:4500   12 s ago    2.0 KiB",
            "injected",
            "kernel 6.1 lacks it",
            "replay",
            "overlaps our own",
        ] {
            assert!(described.contains(expected), "{expected:?} is missing in:\n{described}");
        }
    }
}
