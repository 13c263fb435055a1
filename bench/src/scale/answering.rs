//! Members that do answer: one process with the gateways' own state machines for each of them, and no device. They shake
//! hands, keep their cables alive, watch the paths to the two live gateways and answer pings.
//!
//! ```text
//!   east, west ── wan ── members ── lo: 198.19.0.0/16, a socket for each member
//! ```

mod member;
mod process;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use trieste_control::admin::CableStatus;
use trieste_control::api::{ConnectionStatus, Endpoint};
use trieste_tests::broker;
use trieste_tests::command::Run;
use trieste_tests::daemon::Daemon;
use trieste_tests::lab::Lab;
use trieste_tests::mesh::Mesh;
use trieste_tests::wait::eventually;

pub(super) use member::spec;

use super::members::PREFIX;

/// Most of them: each has a socket.
pub(super) const MOST: i64 = 900;
/// Where they are; the others are in 198.18.0.0/16, which leads nowhere.
const NETWORK: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 0);
/// Their namespace's number on the underlay.
const STATION: u8 = 251;
/// UDP port of their cables.
const PORT: u16 = 4500;
/// What the process prints when it has all sockets.
const READY: &str = "all members listen";
/// How long it may take to get there.
const START: Duration = Duration::from_secs(60);

/// Options of the process.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many members.
    #[arg(long)]
    count: u32,
    /// Their cable driver.
    #[arg(long)]
    cable_driver: String,
    /// The Endpoints of those who they talk to, a JSON array.
    #[arg(long)]
    peers: PathBuf,
}

/// Runs the process until it is killed.
///
/// # Errors
/// If a socket cannot be made, or fails.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let text =
        std::fs::read(&options.peers).with_context(|| format!("cannot read {}", options.peers.display()))?;
    let peers: Vec<Endpoint> = serde_json::from_slice(&text).context("cannot read the peers' Endpoints")?;
    let members: Vec<member::Member> = (0..options.count)
        .map(|number| member::Member::new(number, &options.cable_driver, &peers, Instant::now()))
        .collect::<anyhow::Result<_>>()?;
    process::run(members)
}

/// The process, for as long as this lives.
#[derive(Debug)]
pub(super) struct Answering {
    daemon: Daemon,
}

impl Answering {
    /// Starts so many members that know the gateways of a mesh; they have to be published for these to know them.
    ///
    /// # Errors
    /// If their network cannot be made, or they do not listen in time.
    pub(super) fn start(lab: &Lab, mesh: &Mesh, driver: &str, count: u32) -> anyhow::Result<Self> {
        let (namespace, address) = lab.plug_in(&mesh.plan, "members", STATION)?;
        // Every address of the network is the namespace's own, without being on any device.
        namespace.ip(&format!("route add local {NETWORK}/16 dev lo"))?;
        mesh.plan.wan.sysctl(&[("ipv4/ip_forward", "1")])?;
        mesh.plan.wan.ip(&format!("route add {NETWORK}/16 via {address}"))?;
        let peers = ["east", "west"].map(|cluster| {
            let status = mesh.side(cluster).status(0)?;
            anyhow::Ok(broker::endpoint(&status.endpoint))
        });
        let peers: Vec<_> = peers.into_iter().collect::<anyhow::Result<_>>()?;
        let file = lab.directory().join("peers.json");
        std::fs::write(&file, serde_json::to_vec(&peers)?)?;
        let program = std::env::current_exe().context("finding this program")?;
        let run: Run = namespace.run(&program.to_string_lossy()).arg("answering-members");
        let run = run.args(["--cable-driver", driver, "--count", &count.to_string(), "--peers"]).arg(&file);
        let daemon = Daemon::start(lab, "answering-members", &run)?;
        eventually("the members to listen", START, || {
            daemon.check()?;
            anyhow::ensure!(daemon.log_text().contains(READY), "they do not yet");
            Ok(())
        })?;
        Ok(Self { daemon })
    }

    /// Fails when the process has ended.
    ///
    /// # Errors
    /// With its last words.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.daemon.check()
    }
}

/// Waits until a gateway has heard so many members through their cables; returns for how long.
///
/// # Errors
/// If that takes too long.
pub(super) fn wait_up(mesh: &Mesh, count: u32, patience: Duration) -> anyhow::Result<Duration> {
    let began = Instant::now();
    eventually("cables to those who answer", patience, || {
        let up = count_cables(mesh, |cable| cable.lane.last_handshake_age_s.is_some())?;
        anyhow::ensure!(up >= count as usize, "{up} of {count} are up");
        Ok(())
    })?;
    Ok(began.elapsed())
}

/// Counts the members that a gateway reports as connected. It looks every ten seconds, by upstream's rules.
///
/// # Errors
/// If it does not answer.
pub(super) fn connected(mesh: &Mesh) -> anyhow::Result<usize> {
    count_cables(mesh, |cable| cable.connection.status == ConnectionStatus::Connected)
}

fn count_cables(mesh: &Mesh, is_good: impl Fn(&CableStatus) -> bool) -> anyhow::Result<usize> {
    let status = mesh.side("east").status(0)?;
    let is_member = |cable: &&CableStatus| cable.connection.endpoint.cluster_id.starts_with(PREFIX);
    Ok(status.connections.iter().filter(is_member).filter(|cable| is_good(cable)).count())
}
