//! The other commands that look for what is wrong, on clusters where nothing is: each is run once, all at the same time.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use trieste_tests::command::Run;
use trieste_tests::wait::eventually;

use super::bed::Bed;
use crate::shared::SOON;

/// The first bytes of a pcapng file.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

type Try = fn(&Bed<'_>) -> anyhow::Result<()>;

/// What went wrong.
pub(super) fn all(bed: &Bed<'_>) -> Vec<String> {
    let tries: [(&str, Try); 6] = [
        ("diagnose all", everything),
        ("diagnose firewall", firewall),
        ("diagnose path, printed", path),
        ("status", status),
        ("capture", capture),
        ("gather", gather),
    ];
    let results = std::thread::scope(|scope| {
        let threads = tries.map(|(name, run)| (name, scope.spawn(move || run(bed))));
        threads.map(|(name, thread)| match thread.join() {
            Ok(result) => (name, result),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    });
    results.into_iter().filter_map(|(name, result)| Some(format!("{name}: {:#}", result.err()?))).collect()
}

fn said(run: &Run) -> anyhow::Result<String> {
    let output = run.clone().timeout(SOON).output()?;
    let text = format!("{}{}", output.stdout, output.stderr);
    ensure!(output.status.success(), "{}:\n{text}", output.status);
    Ok(text)
}

fn has(text: &str, parts: &[&str]) -> anyhow::Result<()> {
    let missing = parts.iter().find(|part| !text.contains(**part));
    ensure!(missing.is_none(), "{missing:?} is missing in:\n{text}");
    Ok(())
}

/// Of both clusters; nothing may be worse than a warning, once nodes are done with what the test before has moved.
fn everything(bed: &Bed<'_>) -> anyhow::Result<()> {
    let text = eventually("diagnose all without a failure", SOON, || {
        let run = bed.two.set.trieste(bed.two.east()).args(["diagnose", "all", "--contexts", "east,west"]);
        let text = said(&run)?;
        ensure!(!text.contains('✗'), "{text}");
        Ok(text)
    })?;
    let parts = [
        "Cluster \"east\"",
        "Cluster \"west\"",
        "is supported",
        "Checking that the networks of all nodes' pods are published",
        "The gateway metrics are accessible",
        "The kube-proxy mode is supported",
        "reaches the gateway node",
    ];
    has(&text, &parts)
}

fn firewall(bed: &Bed<'_>) -> anyhow::Result<()> {
    for words in [
        &["intra-cluster", "--context", "west"][..],
        &["inter-cluster", "--context", "east", "--remotecontext", "west"],
        &["nat-discovery", "--context", "west", "--remotecontext", "east"],
    ] {
        let text = said(&bed.two.set.trieste(bed.two.east()).args(["diagnose", "firewall"]).args(words))?;
        ensure!(text.contains('✓') && !text.contains('✗'), "{words:?}: {text}");
    }
    Ok(())
}

/// To a service, for people.
fn path(bed: &Bed<'_>) -> anyhow::Result<()> {
    let words = ["diagnose", "path", "far", "service:web", "--context", "east", "--remotecontext", "west"];
    let text = said(&bed.two.set.trieste(bed.two.east()).args(words))?;
    ensure!(!text.contains('✗'), "{text}");
    has(&text, &["✓ Cable between the gateways", "service default/web", "Packets pass, there and back"])
}

fn status(bed: &Bed<'_>) -> anyhow::Result<()> {
    // A gateway that has just begun, as one test leaves it to the next, has not pinged anybody yet.
    eventually("a connection", SOON, || {
        let text =
            said(&bed.two.set.trieste(bed.two.east()).args(["status", "--context", "east", "-o", "json"]))?;
        let status: serde_json::Value = serde_json::from_str(&text)?;
        let cables = status["connections"].as_array().context("no connections")?;
        let states: Vec<_> = cables
            .iter()
            .map(|cable| (cable["endpoint"]["cluster_id"].as_str(), cable["status"].as_str()))
            .collect();
        ensure!(states == [(Some("west"), Some("connected"))], "{states:?}");
        Ok(())
    })?;
    let text = said(&bed.two.set.trieste(bed.two.east()).args(["status", "--context", "west"]))?;
    has(&text, &["east", "connected"])
}

/// Pings between pods are in it, in clear.
fn capture(bed: &Bed<'_>) -> anyhow::Result<()> {
    let file = bed.two.set.folder().join("capture.pcapng");
    let to = bed.destination.addresses[0].to_string();
    std::thread::scope(|scope| {
        let pings = scope.spawn(|| {
            bed.source.netns().run("ping").args(["-c", "25", "-i", "0.2", "-W", "1", &to]).output()
        });
        let program = bed.two.set.program().to_string_lossy();
        let words = ["--signal=INT", "5", &program, "capture", "--context", "east", "--point", "inner-rx"];
        let run = bed.two.east().command("timeout").args(words).arg("--write").arg(&file);
        let captured = run.timeout(SOON).output();
        // What is not answered is not captured either, and that is what counts.
        let _ = pings.join();
        captured.map(drop)
    })?;
    let bytes = std::fs::read(&file).context("no file")?;
    ensure!(bytes.starts_with(&PCAPNG), "{} bytes, and no pcapng", bytes.len());
    let (from, to) = (octets(bed.source.addresses[0]), octets(bed.destination.addresses[0]));
    let both = [from, to].concat();
    ensure!(bytes.windows(both.len()).any(|window| window == both), "no packet between the pods");
    Ok(())
}

fn octets(address: std::net::IpAddr) -> Vec<u8> {
    match address {
        std::net::IpAddr::V4(v4) => v4.octets().to_vec(),
        std::net::IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// Files of both clusters, without the preshared key.
fn gather(bed: &Bed<'_>) -> anyhow::Result<()> {
    let folder = bed.two.set.folder().join("gathered");
    let run = bed.two.set.trieste(bed.two.east()).args(["gather", "--contexts", "east,west", "--dir"]);
    said(&run.arg(&folder))?;
    let files = files(&folder)?;
    for name in ["summary.html", "east/summary.html", "west/summary.html"] {
        ensure!(folder.join(name).is_file(), "{name} is missing among {files:?}");
    }
    for part in ["gateways_", "ip-rule", "trieste-status"] {
        let is_there = |cluster: &str| {
            files.iter().any(|file| {
                let path = file.to_string_lossy();
                path.contains(part) && path.contains(&format!("/{cluster}/"))
            })
        };
        ensure!(is_there("east") && is_there("west"), "no {part} of both clusters among {files:?}");
    }
    for secret in bed.secrets()? {
        for file in &files {
            let text = String::from_utf8_lossy(&std::fs::read(file)?).into_owned();
            ensure!(!text.contains(&secret), "{} has a key in it", file.display());
        }
    }
    Ok(())
}

fn files(folder: &std::path::Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}
