//! What a fault costs between two clusters: flows between pods, and a look at the underlay while it lasts.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::{Cluster, Clusters, Pod};
use crate::cables;
use crate::capture::{Capture, Frames};
use crate::command::Run;
use crate::flow::{Flow, FlowOutage, Mark};
use crate::lab::Lab;

/// What every packet of a flow carries, for the capture to look for.
const MARKER: &[u8] = b"nobody-between-the-clusters-may-read-this";

/// Between two packets of a flow.
const INTERVAL: Duration = Duration::from_millis(10);

/// How long a flow may take until its first packet is back.
const CONNECT: Duration = Duration::from_secs(60);

/// A flow that runs while things break.
#[derive(Debug)]
pub struct PodFlow {
    /// Such as `east to west, IPv4`.
    pub name: String,
    flow: Flow,
}

impl PodFlow {
    /// Numbered packets from a pod to another one and back, to the address of this place; waits for the first.
    ///
    /// # Errors
    /// If there is no such address, or nothing comes back within a minute.
    pub fn start(from: &Pod, to: &Pod, address: usize) -> anyhow::Result<Self> {
        let ip =
            *to.addresses.get(address).with_context(|| format!("pod {} has no such address", to.name))?;
        let name = format!("{} to {} at {ip}", from.node, to.node);
        let flow =
            Flow::start(from.netns(), (to.netns(), ip), MARKER, INTERVAL).with_context(|| name.clone())?;
        let flow = Self { flow, name };
        flow.wait_through(CONNECT)?;
        Ok(flow)
    }

    /// Waits until packets pass.
    ///
    /// # Errors
    /// If none does within `timeout`.
    pub fn wait_through(&self, timeout: Duration) -> anyhow::Result<()> {
        self.flow.wait_through(timeout).with_context(|| self.name.clone())
    }
}

/// What flows lose, from a moment on.
#[derive(Debug)]
pub struct Costs<'a> {
    flows: &'a [PodFlow],
    marks: Vec<Mark>,
}

impl<'a> Costs<'a> {
    /// Begins to count.
    pub fn begin(flows: &'a [PodFlow]) -> Self {
        Self { flows, marks: flows.iter().map(|one| one.flow.now()).collect() }
    }

    /// Returns what each flow has lost, for people.
    ///
    /// # Errors
    /// If a flow has ended.
    pub fn lines(&self) -> anyhow::Result<Vec<String>> {
        self.each(|flow, seen| format!("{}: {} packets, {} lost", flow.name, seen.sent, seen.lost))
    }

    fn each<T>(&self, of: impl Fn(&PodFlow, &FlowOutage) -> T) -> anyhow::Result<Vec<T>> {
        let pairs = self.flows.iter().zip(&self.marks);
        pairs.map(|(one, mark)| Ok(of(one, &one.flow.since(*mark)?))).collect()
    }
}

/// Looks at flows, and at what crosses the bridges between the nodes, from now until [`Witness::finish`].
#[derive(Debug)]
pub struct Witness<'a> {
    costs: Costs<'a>,
    started: Instant,
    captures: Vec<Look>,
}

/// At the bridge of one cluster.
#[derive(Debug)]
struct Look {
    bridge: String,
    capture: Capture,
    /// Addresses of the other clusters' pods and services, in tcpdump's words.
    remote: String,
}

impl<'a> Witness<'a> {
    /// Starts to look.
    ///
    /// # Errors
    /// If a capture does not start.
    pub fn start(lab: &Lab, clusters: &Clusters, flows: &'a [PodFlow]) -> anyhow::Result<Self> {
        let mut captures = Vec::new();
        for cluster in clusters.all() {
            let (bridge, remote) = (cluster.bridge(), remote(clusters, cluster));
            // What a marker can be in, and what should not be there at all.
            let cable = if cables::is_encrypted() { "" } else { " and not udp dst port 4500" };
            let filter = format!("({remote}) or (udp and not ({}){cable})", between_nodes(cluster));
            let capture = Capture::start(lab, clusters.fabric(), &bridge, &filter)?;
            captures.push(Look { bridge, capture, remote });
        }
        Ok(Self { costs: Costs::begin(flows), started: Instant::now(), captures })
    }

    /// What each flow lost.
    ///
    /// # Errors
    /// If a marker, or a packet to or from a pod of another cluster, was seen in clear; and as [`Capture::finish`].
    pub fn finish(self) -> anyhow::Result<Vec<Cost>> {
        let took = self.started.elapsed();
        let costs = self.costs.each(|_, seen| {
            let (sent, lost, longest_gap) = (seen.sent, seen.lost, seen.longest());
            Cost { took, sent, lost, late: seen.late, longest_gap }
        });
        for Look { bridge, capture, remote } in self.captures {
            let frames = capture.finish()?;
            nothing_in_clear(&frames, &remote).with_context(|| format!("on the bridge {bridge}"))?;
        }
        costs
    }
}

/// What one flow has lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// How long it was looked at.
    pub took: Duration,
    /// Packets sent.
    pub sent: u32,
    /// Packets of them that have not come back.
    pub lost: u32,
    /// Packets that came back a second later or more.
    pub late: u32,
    /// The longest time in which none has come back.
    pub longest_gap: Duration,
}

/// The worst of several costs.
pub fn worst(costs: &[Cost]) -> Option<Cost> {
    costs.iter().copied().max_by_key(|cost| (cost.longest_gap, cost.lost))
}

/// How many packets with the marker cross the bridge of a cluster inside VXLAN in a second: its nodes give one another
/// what is for other clusters that way. Shows that a capture sees the marker where it may be.
///
/// # Errors
/// As [`Capture::start`] and [`Capture::finish`].
pub fn seen_within(lab: &Lab, clusters: &Clusters, cluster: &Cluster) -> anyhow::Result<usize> {
    let capture = Capture::start(lab, clusters.fabric(), &cluster.bridge(), "udp dst port 4800")?;
    std::thread::sleep(Duration::from_secs(1));
    Ok(capture.finish()?.count_with(MARKER))
}

/// Every address of other clusters' pods and services, in tcpdump's words.
fn remote(clusters: &Clusters, cluster: &Cluster) -> String {
    let others = clusters.all().iter().filter(|other| other.name() != cluster.name());
    let nets = others.flat_map(|other| other.pod_nets().iter().chain(other.service_nets()));
    nets.map(|net| format!("net {net}")).collect::<Vec<_>>().join(" or ")
}

/// What nodes of a cluster give one another for other clusters, which is in clear as everything is between them.
fn between_nodes(cluster: &Cluster) -> String {
    let nodes: Vec<_> = cluster.nodes().iter().flat_map(super::Node::addresses).collect();
    let any = |side: &str| {
        let hosts = nodes.iter().map(|ip| format!("{side} host {ip}"));
        hosts.collect::<Vec<_>>().join(" or ")
    };
    format!("udp dst port 4800 and ({}) and ({})", any("src"), any("dst"))
}

fn nothing_in_clear(frames: &Frames, remote: &str) -> anyhow::Result<()> {
    let (marked, addressed) = (frames.count_with(MARKER), frames.count(remote)?);
    anyhow::ensure!(
        marked == 0 && addressed == 0,
        "in clear: {marked} packets with the marker, {addressed} with addresses of another cluster:\n{}",
        shown(frames, remote)
    );
    Ok(())
}

fn shown(frames: &Frames, remote: &str) -> String {
    let read = Run::new("tcpdump").args(["-n", "-tttt", "-c", "20", "-Z", "root", "-r"]);
    read.arg(&frames.file).arg(remote).stdout().unwrap_or_else(|error| format!("{error:#}"))
}
