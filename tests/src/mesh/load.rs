//! Traffic beside the probes: TCP streams from a worker's pod to a worker's pod, at a share of what the path carries.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context;

use super::Mesh;
use crate::daemon::Daemon;
use crate::topology::PodPlan;
use crate::traffic;
use crate::wait::eventually;

/// Streams: enough for all paths to have some.
const STREAMS: u32 = 8;
/// How long the capacity is measured.
const SECONDS: u32 = 3;
/// Longer than anybody watches.
const ENDLESS: &str = "86400";

/// Streams that go on until this is dropped.
#[derive(Debug)]
pub struct Load {
    client: Daemon,
    _server: Daemon,
}

/// Who sends and who receives: the last pods of the last nodes.
fn ends(mesh: &Mesh) -> anyhow::Result<(&PodPlan, &PodPlan, IpAddr)> {
    let last = |cluster: usize| {
        let nodes = &mesh.plan.clusters.get(cluster).context("a load goes between two clusters")?.nodes;
        nodes.last().and_then(|node| node.pods.last()).context("a load needs pods")
    };
    let (from, to) = (last(0)?, last(1)?);
    Ok((from, to, to.v4().context("the load goes over IPv4")?))
}

/// What the path carries at most, in Gbit/s.
///
/// # Errors
/// If iperf3 fails.
pub fn capacity(mesh: &Mesh) -> anyhow::Result<f64> {
    let (from, to, address) = ends(mesh)?;
    let streams = STREAMS.to_string();
    let extra = ["-P", streams.as_str(), "-C", "cubic"];
    traffic::iperf3(&mesh.lab, &from.namespace, (&to.namespace, address), SECONDS, &extra)
}

impl Load {
    /// Starts streams that want `gbit_s` together.
    ///
    /// # Errors
    /// If iperf3 cannot start or connect.
    pub fn start(mesh: &Mesh, gbit_s: f64) -> anyhow::Result<Self> {
        let (from, to, address) = ends(mesh)?;
        let server = Daemon::start(
            &mesh.lab,
            "load-server",
            &to.namespace.run("iperf3").args(["--server", "--forceflush"]),
        )?;
        let rate = format!("{:.0}", (gbit_s * 1e9 / f64::from(STREAMS)).max(1e5));
        let run = from.namespace.run("iperf3").args(["--client", &address.to_string(), "--time", ENDLESS]);
        // Paced by the kernel: with `--bitrate` what an outage has kept back would follow at full speed.
        let run = run.args(["--parallel", &STREAMS.to_string(), "--fq-rate", &rate, "--congestion", "cubic"]);
        let client = eventually("the load to begin", Duration::from_secs(10), || {
            let client = Daemon::start(&mesh.lab, "load-client", &run)?;
            std::thread::sleep(Duration::from_millis(700));
            client.check()?;
            Ok(client)
        })?;
        Ok(Self { client, _server: server })
    }

    /// Fails if the streams have ended: their connections did not survive.
    ///
    /// # Errors
    /// Then.
    pub fn check(&self) -> anyhow::Result<()> {
        self.client.check()
    }
}
