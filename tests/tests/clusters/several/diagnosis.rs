//! What looks for faults finds none in a healthy set: each check tells several gateways of a cluster apart.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use trieste_tests::clusters::GLOBALNET_HEADLESS;
use trieste_tests::command::Run;
use trieste_tests::globalnet::Site;
use trieste_tests::table::Table;

use crate::shared::{SOON, Two, in_parallel};
use crate::sides::Side;

/// Walks at the same time. Each is a handful of programs on six nodes: more of them starve gateways, which take one another
/// for lost then, and what is walked over changes under the walks.
const AT_ONCE: usize = 2;

/// Runs every check at the same time, and walks from pods and nodes' networks, on workers and gateways' nodes, to both
/// kinds and to a service.
pub(crate) fn finds_nothing(two: &Two, sides: &[Side<'_>; 2], table: &Table) {
    let checks: [&[&str]; 4] = [
        &["all", "--contexts", "east,west"],
        &["firewall", "intra-cluster", "--context", "east"],
        &["firewall", "inter-cluster", "--context", "east", "--remotecontext", "west"],
        &["firewall", "nat-discovery", "--context", "west", "--remotecontext", "east"],
    ];
    std::thread::scope(|scope| {
        for words in checks {
            scope.spawn(move || {
                table.row("both", &format!("diagnose {}", words.join(" ")), || check(two, words))
            });
        }
    });
    let [east, west] = sides;
    let service = format!("service:svc-{}", west.on_worker.pod.name);
    let walks = [
        ("east", &east.on_worker, "west", &west.on_gateway.pod.name),
        ("east", &east.on_gateway, "west", &west.on_worker.pod.name),
        ("west", &west.on_worker, "east", &east.on_worker.pod.name),
        ("west", &west.on_gateway, "east", &east.on_gateway.pod.name),
        ("east", &east.host_on_worker, "west", &west.on_gateway.pod.name),
        ("east", &east.host_on_gateway, "west", &west.on_worker.pod.name),
        ("east", &east.host_on_worker, "west", &service),
        ("east", &east.on_worker, "west", &service),
    ];
    let walks = walks.map(|(here, client, there, to)| path(here, &client.pod.name, there, to));
    walk_all(two, &walks, table);
}

/// With Globalnet: walks from pods and from a node's network to what is exported, by name and by address; and what is not
/// exported is said to be so.
pub(crate) fn knows_global_ips(two: &Two, east: &Site, west: &Site, table: &Table) {
    let (client, host) = (&east.worker.plain.name, &east.worker.host.name);
    let server = &west.gateway.server;
    let [headless, service] = [server.headless, server.service].map(|address| address.ip().to_string());
    let web = "service:web-0".to_owned();
    let all = format!("service:{}", GLOBALNET_HEADLESS);
    let walks = [
        (client, &server.name),
        (&east.gateway.plain.name, &west.worker.server.name),
        (host, &server.name),
        (client, &web),
        (client, &all),
        (client, &headless),
        (client, &service),
    ];
    walk_all(two, &walks.map(|(from, to)| path("east", from, "west", to)), table);
    let to = &west.gateway.plain.name;
    table.row("east", &format!("diagnose path {client} → {to}, not exported"), || {
        let told = told(two, &path("east", client, "west", to), false)?;
        let verdict = &told["verdict"];
        ensure!(verdict["cause"] == "NoGlobalIp", "{told:#}");
        let remedy = verdict["remedy"].as_str().unwrap_or_default();
        ensure!(remedy.contains("trieste export service") && !remedy.contains("--clustercidr"), "{remedy}");
        Ok("NoGlobalIp".to_owned())
    });
}

/// Walks, some at a time, while every path is used: a path that was lost under the walks before is no fault of these.
fn walk_all(two: &Two, walks: &[[String; 7]], table: &Table) {
    for some in walks.chunks(AT_ONCE) {
        in_parallel(some, |words| {
            let [_, from, to, _, here, ..] = words;
            table.row(here, &format!("diagnose path {from} → {to}"), || walk(two, words))
        });
    }
}

/// The words that walk from a pod of one cluster to something of another one.
fn path(here: &str, from: &str, there: &str, to: &str) -> [String; 7] {
    ["path", from, to, "--context", here, "--remotecontext", there].map(str::to_owned)
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

/// Walks; once more if a path was lost or came back under the walk, which then says so.
fn walk(two: &Two, words: &[String]) -> anyhow::Result<String> {
    two.undisturbed(|| walk_once(two, words), |result| result.is_err().then(|| words.join(" ")))
}

fn walk_once(two: &Two, words: &[String]) -> anyhow::Result<String> {
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
