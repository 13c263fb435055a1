//! A server that answers as EC2 (`tests/peers/moto`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use trieste_tests::command::Run;
use trieste_tests::daemon::Daemon;
use trieste_tests::lab::Lab;
use trieste_tests::peer;
use trieste_tests::wait::eventually;

/// The server, on loopback.
pub(crate) struct Ec2 {
    url: String,
    _server: Daemon,
}

fn python() -> Run {
    Run::new("python3").env("PYTHONPATH", folder())
}

fn folder() -> PathBuf {
    peer::cache().join("moto")
}

impl Ec2 {
    pub(crate) fn start(lab: &Lab) -> anyhow::Result<Self> {
        anyhow::ensure!(folder().is_dir(), "{} is missing: run ./dev peers", folder().display());
        let run = python().args(["-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]);
        let server = Daemon::start(lab, "ec2", &run)?;
        let mut url = String::new();
        eventually("the address of EC2", Duration::from_secs(60), || {
            server.check()?;
            let log = server.log_text();
            let (_, after) =
                log.split_once("Running on ").ok_or_else(|| anyhow::anyhow!("it is not there: {log}"))?;
            url = after.lines().next().unwrap_or_default().trim().to_owned();
            anyhow::ensure!(url.starts_with("http://127.0.0.1:"), "{url}");
            Ok(())
        })?;
        Ok(Self { url, _server: server })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Makes network and machines of a cluster, and returns the machines: zone and ID.
    pub(crate) fn make(&self, kind: &str, name: &str) -> Vec<Value> {
        let made = self.ask(&[kind, name]);
        made.as_array().cloned().unwrap_or_default()
    }

    /// Ends a machine.
    pub(crate) fn end(&self, machine: &str) {
        self.ask(&["end", machine]);
    }

    /// Returns all groups, machines and subnets.
    pub(crate) fn show(&self) -> Value {
        self.ask(&["show"])
    }

    /// Returns the group of a name in what was shown.
    pub(crate) fn group<'v>(&self, shown: &'v Value, name: &str) -> &'v Value {
        let prefix = format!("{name}@");
        let groups = shown["groups"].as_object().unwrap();
        let found = groups.iter().find(|(key, _)| key.starts_with(&prefix));
        found.map(|(_, group)| group).unwrap_or_else(|| panic!("there is no group {name}: {shown}"))
    }

    fn ask(&self, words: &[&str]) -> Value {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/moto/ec2.py");
        let run = python().arg(script).arg(&self.url).args(words).timeout(Duration::from_secs(60));
        serde_json::from_str(&run.stdout().unwrap()).unwrap()
    }
}
