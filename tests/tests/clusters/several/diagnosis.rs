//! What looks for faults finds none in a healthy set: each check tells several gateways of a cluster apart.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use trieste_tests::clusters::GLOBALNET_HEADLESS;
use trieste_tests::command::Run;
use trieste_tests::globalnet::Site;
use trieste_tests::table::Table;

use crate::shared::{SOON, Two};
use crate::sides::Side;

/// Runs every check at the same time, and walks from workers and gateways' nodes to both kinds.
pub(crate) fn finds_nothing(two: &Two, sides: &[Side<'_>; 2], table: &Table) {
    let checks: [&[&str]; 4] = [
        &["all", "--contexts", "east,west"],
        &["firewall", "intra-cluster", "--context", "east"],
        &["firewall", "inter-cluster", "--context", "east", "--remotecontext", "west"],
        &["firewall", "nat-discovery", "--context", "west", "--remotecontext", "east"],
    ];
    let [east, west] = sides;
    let service = format!("service:svc-{}", west.on_worker.pod.name);
    std::thread::scope(|scope| {
        for words in checks {
            scope.spawn(move || {
                table.row("both", &format!("diagnose {}", words.join(" ")), || check(two, words))
            });
        }
        for (from, to) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
            let (here, there) = (from.cluster.name(), to.cluster.name());
            for (who, client) in [("nGW", &from.on_worker), ("GW", &from.on_gateway)] {
                for (whom, server) in [("nGW", &to.on_worker), ("GW", &to.on_gateway)] {
                    let words = [
                        "path",
                        &client.pod.name,
                        &server.pod.name,
                        "--context",
                        here,
                        "--remotecontext",
                        there,
                    ];
                    let words = words.map(str::to_owned);
                    scope.spawn(move || {
                        table.row(here, &format!("diagnose path {who} → {whom}"), || walk(two, &words))
                    });
                }
            }
        }
        for (who, client, to) in [
            ("host nGW", &east.host_on_worker, &west.on_gateway.pod.name),
            ("host GW", &east.host_on_gateway, &west.on_worker.pod.name),
            ("host nGW", &east.host_on_worker, &service),
            ("nGW", &east.on_worker, &service),
        ] {
            let words = path(&client.pod.name, to);
            scope.spawn(move || {
                table.row("east", &format!("diagnose path {who} → {to}"), || walk(two, &words))
            });
        }
    });
}

/// With Globalnet: walks from pods and from a node's network to what is exported, by name and by address; and what is not
/// exported is said to be so.
pub(crate) fn knows_global_ips(two: &Two, east: &Site, west: &Site, table: &Table) {
    let (client, host) = (&east.worker.plain.name, &east.worker.host.name);
    let server = &west.gateway.server;
    let [headless, service] = [server.headless, server.service].map(|address| address.ip().to_string());
    let web = "service:web-0".to_owned();
    let all = format!("service:{}", GLOBALNET_HEADLESS);
    std::thread::scope(|scope| {
        for (from, to) in [
            (client, &server.name),
            (&east.gateway.plain.name, &west.worker.server.name),
            (host, &server.name),
            (client, &web),
            (client, &all),
            (client, &headless),
            (client, &service),
        ] {
            let words = path(from, to);
            scope.spawn(move || {
                table.row("east", &format!("diagnose path {from} → {to}"), || walk(two, &words))
            });
        }
        let to = &west.gateway.plain.name;
        scope.spawn(move || {
            table.row("east", &format!("diagnose path {client} → {to}, not exported"), || {
                let told = told(two, &path(client, to), false)?;
                let verdict = &told["verdict"];
                ensure!(verdict["cause"] == "NoGlobalIp", "{told:#}");
                let remedy = verdict["remedy"].as_str().unwrap_or_default();
                ensure!(remedy.contains("ServiceExport") && !remedy.contains("--clustercidr"), "{remedy}");
                Ok("NoGlobalIp".to_owned())
            })
        });
    });
}

/// The words that walk from a pod of the eastern cluster to something of the western one.
fn path(from: &str, to: &str) -> Vec<String> {
    ["path", from, to, "--context", "east", "--remotecontext", "west"].map(str::to_owned).to_vec()
}

fn diagnose(two: &Two, words: &[impl AsRef<str>]) -> Run {
    let run = two.set.trieste(two.east()).arg("diagnose");
    run.args(words.iter().map(AsRef::as_ref)).timeout(SOON)
}

fn check(two: &Two, words: &[&str]) -> anyhow::Result<String> {
    let output = diagnose(two, words).output()?;
    let text = format!("{}{}", output.stdout, output.stderr);
    ensure!(
        output.status.success() && text.contains('✓') && !text.contains('✗'),
        "{}:\n{text}",
        output.status
    );
    Ok(format!("{} lines", text.lines().count()))
}

fn walk(two: &Two, words: &[String]) -> anyhow::Result<String> {
    let told = told(two, words, true)?;
    ensure!(told["health"] == "healthy", "{told:#}");
    let rtt = told["measured"]["rtt_us"].as_u64().context("no round trip")?;
    ensure!(rtt >= 20, "a round trip of {rtt} µs is impossible");
    let mtu = told["measured"]["path_mtu_bytes"].as_u64();
    ensure!(mtu.is_none_or(|mtu| mtu < 1500), "a path of {mtu:?} bytes leaves no room for a cable");
    Ok(format!("healthy, {rtt} µs"))
}

fn told(two: &Two, words: &[String], succeeds: bool) -> anyhow::Result<Value> {
    let output = diagnose(two, words).args(["-o", "json"]).output()?;
    let told: Value = serde_json::from_str(&output.stdout)
        .with_context(|| format!("{}{}", output.stdout, output.stderr))?;
    ensure!(output.status.success() == succeeds, "{}: {told:#}", output.status);
    Ok(told)
}
