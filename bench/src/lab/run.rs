//! One candidate between the two clusters, and iperf3 across it.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ipnet::IpNet;
use trieste_tests::daemon::Daemon;
use trieste_tests::lab::Lab;
use trieste_tests::peer::{KeyPair, Peer, PeerConfig};
use trieste_tests::process::ProcessId;
use trieste_tests::topology::{Plan, PodPlan};
use trieste_tests::traffic;

use super::load::Load;
use super::packets::{Generator, Sizes};
use super::results::Measured;
use super::{Case, Job, Stream};

/// UDP port of the gateways.
const PORT: u16 = 4500;
/// Inner MTU of candidates that are told one: what fits WireGuard in IPv6 on an underlay of 1500.
pub(super) const INNER_MTU: u16 = 1420;
/// Payload of each UDP datagram: the largest that fits the inner MTU.
const DATAGRAM_BYTES: u16 = INNER_MTU - 28;
/// How long two gateways may take to carry the first packet.
const CONNECT: Duration = Duration::from_secs(30);

/// Where candidates compete.
pub(super) struct Field<'a> {
    pub(super) lab: &'a Lab,
    pub(super) plan: &'a Plan,
    pub(super) seconds: u32,
    pub(super) trial_seconds: f64,
}

/// Who competes.
pub(super) struct Candidate<'a> {
    pub(super) name: &'a str,
    /// The script in tests/peers, without `.sh`.
    pub(super) script: &'a str,
    /// Where the programs are, if they are ours of another build.
    pub(super) programs: Option<&'a Path>,
}

/// A candidate whose gateways are up; they end when it is dropped.
pub(super) struct Contest<'a> {
    field: &'a Field<'a>,
    peers: [Peer; 2],
    /// Daemons that were started: none where the kernel does it all.
    started: usize,
}

impl Field<'_> {
    fn pod(&self, cluster: &str) -> anyhow::Result<(&PodPlan, IpAddr)> {
        let pod = self.plan.cluster(cluster).pod(0);
        Ok((pod, pod.v4().context("the pod has no IPv4 address")?))
    }

    /// Starts both gateways of a candidate and waits until a ping comes back.
    ///
    /// # Errors
    /// When they do not start or carry nothing.
    pub(super) fn start(&self, candidate: &Candidate<'_>) -> anyhow::Result<Contest<'_>> {
        let Candidate { name, script, programs } = *candidate;
        let (east, west) = (KeyPair::generate()?, KeyPair::generate()?);
        let peers = [
            Peer::start_of(self.lab, &self.config(script, ["east", "west"], &east, &west), programs)?,
            Peer::start_of(self.lab, &self.config(script, ["west", "east"], &west, &east), programs)?,
        ];
        let started = peers[0].processes()?.len() + peers[1].processes()?.len();
        let contest = Contest { field: self, peers, started };
        contest.wait_connected().with_context(|| {
            format!("waiting for {name} to carry packets; its last words: {}", last_words(self.lab))
        })?;
        Ok(contest)
    }

    fn config(&self, name: &str, [own, other]: [&str; 2], key: &KeyPair, other_key: &KeyPair) -> PeerConfig {
        let (own, other) = (self.plan.cluster(own), self.plan.cluster(other));
        let v4 = |nets: &[IpNet]| nets.iter().filter(|net| matches!(net, IpNet::V4(_))).copied().collect();
        PeerConfig {
            name: name.to_owned(),
            namespace: own.gateway().namespace.clone(),
            local: SocketAddr::new(own.gateway().underlay_address(), PORT),
            remote: Some(SocketAddr::new(other.gateway().underlay_address(), PORT)),
            addresses: Vec::new(),
            subnets: v4(&other.pod_cidrs),
            private_key: key.private.clone(),
            remote_public_key: other_key.public.clone(),
            psk: None,
            keepalive: Some(10),
            mtu: INNER_MTU,
        }
    }
}

impl Contest<'_> {
    fn wait_connected(&self) -> anyhow::Result<()> {
        let (from, _) = self.field.pod("east")?;
        let (_, to) = self.field.pod("west")?;
        let end = Instant::now() + CONNECT;
        while traffic::ping(&from.namespace, to, 2, &[])?.received == 0 {
            ensure!(self.daemons()?.len() >= self.started, "its daemons have ended");
            ensure!(Instant::now() < end, "no answer to any ping within {CONNECT:?}");
        }
        Ok(())
    }

    fn daemons(&self) -> anyhow::Result<Vec<ProcessId>> {
        let mut all = self.peers[0].processes()?;
        all.extend(self.peers[1].processes()?);
        Ok(all)
    }

    /// Measures a case.
    ///
    /// # Errors
    /// When a program fails or a daemon has ended.
    pub(super) fn measure(&self, job: &Job) -> anyhow::Result<Measured> {
        match job.case {
            Case::Packets(sizes) => self.rate(sizes),
            Case::Stream(stream) => self.stream(stream, job.congestion.as_deref()),
        }
    }

    /// Finds the highest rate without loss, and reads off what it costs in one longer trial at that rate.
    fn rate(&self, sizes: Sizes) -> anyhow::Result<Measured> {
        let ((from, _), (to, _)) = (self.field.pod("east")?, self.field.pod("west")?);
        let mut generator = Generator::new(from, to, sizes)?;
        let found = generator.search(self.field.trial_seconds)?;
        let daemons = self.daemons()?;
        let before = Load::read(&daemons, None)?;
        let trial = generator.trial(found, f64::from(self.field.seconds))?;
        let spent = Load::read(&daemons, None)?.since(&before);
        let bits = sizes.mean_bytes() * 8.0;
        let gigabytes = trial.received as f64 * bits / 8e9;
        ensure!(gigabytes > 0.0, "not a packet arrived");
        let packets_s = trial.offered_s * (1.0 - trial.lost());
        Ok(Measured {
            packets_s: Some(packets_s),
            lost: trial.lost(),
            gbit_s: packets_s * bits / 1e9,
            cpu_s_per_gb: spent.daemons / gigabytes,
            machine_cpu_s_per_gb: spent.machine / gigabytes,
            other_load: spent.other_load,
        })
    }

    /// Runs iperf3 from east to west (or back) and reads off what it cost.
    fn stream(&self, stream: Stream, congestion: Option<&str>) -> anyhow::Result<Measured> {
        let (client, _) = self.field.pod("east")?;
        let (server_pod, address) = self.field.pod("west")?;
        let server = Daemon::start(
            self.field.lab,
            "iperf3-server",
            &server_pod.namespace.run("iperf3").args(["--server", "--one-off", "--forceflush"]),
        )?;
        trieste_tests::wait::eventually("iperf3 to listen", Duration::from_secs(5), || {
            server.check()?;
            let is_up = server_pod.namespace.enter(|| Ok(is_listening()))?;
            ensure!(is_up, "port 5201 is closed");
            Ok(())
        })?;
        let daemons = self.daemons()?;
        let before = Load::read(&daemons, Some(server.id()))?;
        let seconds = self.field.seconds;
        let mut run = client.namespace.run("iperf3").args(["--json", "--time", &seconds.to_string()]);
        run = run.args(["--client", &address.to_string(), "--parallel", &stream.streams.to_string()]);
        if stream.is_reverse {
            run = run.arg("--reverse");
        }
        if stream.is_udp {
            run = run.args(["--udp", "--bitrate", "0", "--length", &DATAGRAM_BYTES.to_string()]);
        }
        if let Some(congestion) = congestion {
            run = run.args(["--congestion", congestion]);
        }
        let output = run.timeout(Duration::from_secs(u64::from(seconds) + 30)).output()?;
        let after = Load::read(&daemons, Some(server.id()))?;
        let gbit_s = received(&output.stdout).with_context(|| format!("iperf3: {}", output.stderr.trim()))?;
        let gigabytes = gbit_s * f64::from(seconds) / 8.0;
        ensure!(gigabytes > 0.0, "not a byte arrived");
        let spent = after.since(&before);
        Ok(Measured {
            packets_s: None,
            lost: 0.0,
            gbit_s,
            cpu_s_per_gb: spent.daemons / gigabytes,
            machine_cpu_s_per_gb: spent.machine / gigabytes,
            other_load: spent.other_load,
        })
    }
}

/// The last lines that the candidates' daemons wrote, for an error.
fn last_words(lab: &Lab) -> String {
    let mut words = String::new();
    let states = std::fs::read_dir(lab.directory()).into_iter().flatten().flatten();
    let logs = states.filter_map(|state| std::fs::read_dir(state.path()).ok()).flatten().flatten();
    for path in logs.map(|log| log.path()).filter(|path| path.extension().is_some_and(|end| end == "log")) {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(10).collect();
        words += &format!("\n{}:\n", path.display());
        for line in lines.iter().rev() {
            words += &format!("  {line}\n");
        }
    }
    words
}

/// Whether something listens on iperf3's port in this thread's namespace.
fn is_listening() -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
        text.lines().any(|line| line.contains(":1451 ") && line.contains(" 0A "))
    })
}

/// What the receiver got, in Gbit/s.
fn received(report: &str) -> anyhow::Result<f64> {
    let json: serde_json::Value = serde_json::from_str(report).context("it wrote no JSON")?;
    if let Some(error) = json["error"].as_str() {
        bail!("{error}");
    }
    let end = &json["end"];
    if let Some(rate) = end["sum_received"]["bits_per_second"].as_f64() {
        return Ok(rate / 1e9);
    }
    // UDP of older iperf3: the sender's rate, and what the receiver counted as lost.
    let rate = end["sum"]["bits_per_second"].as_f64().context("no throughput in the report")?;
    let lost = end["sum"]["lost_percent"].as_f64().unwrap_or(0.0);
    Ok(rate * (1.0 - lost / 100.0) / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_datagrams_do_not_count_as_received() {
        let old = r#"{"end":{"sum":{"bits_per_second":2e9,"lost_percent":75.0}}}"#;
        assert_eq!(received(old).unwrap(), 0.5);
        let new = r#"{"end":{"sum":{"bits_per_second":2e9},"sum_received":{"bits_per_second":1e9}}}"#;
        assert_eq!(received(new).unwrap(), 1.0);
        assert!(received(r#"{"error":"unable to connect"}"#).is_err());
    }
}
