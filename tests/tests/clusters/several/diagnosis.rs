//! What looks for faults finds none in a healthy set: each check tells several gateways of a cluster apart.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use trieste_tests::command::Run;
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
    });
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
    let output = diagnose(two, words).args(["-o", "json"]).output()?;
    let told: Value = serde_json::from_str(&output.stdout)
        .with_context(|| format!("{}{}", output.stdout, output.stderr))?;
    ensure!(told["health"] == "healthy" && output.status.success(), "{}: {told:#}", output.status);
    Ok("healthy".to_owned())
}
