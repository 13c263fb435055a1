//! Puts a node's report together: asks `ip`, `bridge`, `nft`, the kernel's settings and the gateway.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trieste_control::devices::VX_DEVICE;

use super::document::NodeReport;
use super::{admin, counters, ruleset, sysctl, tools, watch};

/// Ours: a tool that takes longer is left behind.
const PATIENCE: Duration = Duration::from_secs(8);
/// Ours: longest answer of a tool, in bytes. A ruleset with ten thousand services has some twenty million.
const MAX_ANSWER: u64 = 64 << 20;

/// What to report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportRequest {
    /// The gateway's admin socket; its usual place if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
}

/// Says what is there; blocks. What cannot be read is among the report's problems.
#[must_use]
pub fn report(request: &ReportRequest) -> NodeReport {
    let mut asked = Asked::default();
    let mut report = NodeReport {
        hostname: watch::hostname(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time: Timestamp::now(),
        links: tools::links(&asked.json("ip", &["-j", "-d", "-s", "address", "show"])),
        ..NodeReport::default()
    };
    for (family, is_v6) in [("-4", false), ("-6", true)] {
        let routes = asked.json("ip", &["-j", family, "route", "show", "table", "all"]);
        report.routes.extend(tools::routes(&routes, is_v6));
        report.rules.extend(tools::rules(&asked.json("ip", &["-j", family, "rule", "show"]), is_v6));
    }
    if report.link(VX_DEVICE).is_some() {
        report.neighbours =
            tools::forwarding(&asked.json("bridge", &["-j", "fdb", "show", "dev", VX_DEVICE]));
        let known = asked.json("ip", &["-j", "neighbour", "show", "dev", VX_DEVICE]);
        report.neighbours.extend(tools::neighbours(&known));
    }
    let rules = asked.json("nft", &["-j", "list", "ruleset"]);
    if !rules.is_null() {
        report.filters = ruleset::parse(&rules);
    }
    let root = sysctl::root();
    report.sysctls = sysctl::read(&root, report.links.iter().map(|link| link.name.as_str()));
    report.counters = counters::read(Path::new("/proc/net"));
    report.conntrack = conntrack(&report);
    let socket =
        request.socket.clone().unwrap_or_else(|| PathBuf::from(trieste_control::admin::DEFAULT_SOCKET));
    match admin::status(&socket) {
        Ok(status) => report.gateway = status.map(|status| *status),
        Err(error) => report.gateway_error = Some(error),
    }
    if std::fs::read_to_string("/proc/net/ip_tables_names").is_ok_and(|names| !names.trim().is_empty()) {
        let legacy =
            "tables of iptables-legacy are loaded, which nft does not show: see `iptables-legacy -vnL`";
        asked.problems.push(legacy.to_owned());
    }
    report.problems = asked.problems;
    report
}

fn conntrack(report: &NodeReport) -> Option<(u64, u64)> {
    let count = u64::try_from(report.sysctl("netfilter/nf_conntrack_count")?).ok()?;
    Some((count, u64::try_from(report.sysctl("netfilter/nf_conntrack_max")?).ok()?))
}

/// Tools that were asked, and what went wrong.
#[derive(Default)]
struct Asked {
    problems: Vec<String>,
}

impl Asked {
    /// A tool's answer; null where there is none.
    fn json(&mut self, program: &str, words: &[&str]) -> Value {
        let answer = run(program, words).and_then(|text| match text.trim_ascii() {
            [] => Ok(Value::Array(Vec::new())),
            text => serde_json::from_slice(text).map_err(|error| format!("prints no JSON: {error}")),
        });
        answer.unwrap_or_else(|error| {
            self.problems.push(format!("{program} {}: {error}", words.join(" ")));
            Value::Null
        })
    }
}

fn run(program: &str, words: &[&str]) -> Result<Vec<u8>, String> {
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot be run: {error}"))?;
    let (output, complaint) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let end = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(2)),
            Ok(None) | Err(_) => {
                // It may have ended by itself in between.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("has not answered for {} s", PATIENCE.as_secs()));
            }
        }
    };
    let output = output.join().unwrap_or_default();
    if status.success() {
        return Ok(output);
    }
    let complaint = complaint.join().unwrap_or_default();
    let complaint = String::from_utf8_lossy(&complaint);
    Err(format!("{status}: {}", complaint.lines().next().unwrap_or("no reason given")))
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // What was read so far is judged by whoever parses it.
            let _ = pipe.take(MAX_ANSWER).read_to_end(&mut bytes);
        }
        bytes
    })
}
