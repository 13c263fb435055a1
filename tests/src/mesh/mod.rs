//! Clusters with several gateways each, all of them running: what one gateway's death costs is seen here.
//!
//! ```text
//!  east-gw1 ─┬─╲ ╱─┬─ west-gw1        every node has pods and a route agent; every gateway node a gateway;
//!  east-gw2 ─┤  ╳  ├─ west-gw2        the gateways of a cluster share a directory as their store,
//!  worker3  ─┘ ╱ ╲ └─ worker3         and all clusters another one as their broker
//! ```
//!
//! * [`Side`] is one cluster: its gateways and route agents are killed, stopped, drained and started one by one.
//! * [`cut`] cuts a node off, in both directions or one; [`strain`] starves a process and delays its packets.
//! * [`load`] is traffic beside what is looked at.
//! * [`scenario`] does one of these to one gateway while flows are probed, and says what each flow saw.
//! * [`carriers`] says which gateways a flow has used.
//! * [`waits`] says how long threads had to wait for a processor.

pub mod carriers;
pub mod cut;
pub mod load;
pub mod scenario;
mod side;
pub mod strain;
pub mod waits;

use std::time::Duration;

use anyhow::Context as _;

use crate::cables;
use crate::cluster::Settings;
use crate::flow::INTERVAL;
use crate::lab::Lab;
use crate::topology::{NodePlan, Plan, PodPlan, Topology};
use scenario::Target;

pub use side::Side;

/// How long the gateways may take to find one another.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Clusters with all their gateways. The fields are in the order in which they have to end.
#[derive(Debug)]
pub struct Mesh {
    /// The clusters that run, in the order in which they were started.
    pub sides: Vec<Side>,
    /// Names and addresses.
    pub plan: Plan,
    /// The lab that they live in.
    pub lab: Lab,
    /// How often each flow asks while something is done to a gateway.
    pub interval: Duration,
}

/// What gateways are set to, with these further lines.
fn settings(lab: &Lab, extra: &[&str]) -> Settings {
    let mut settings = Settings::of(lab);
    let of_cable = cables::line().filter(|_| !extra.iter().any(|line| line.starts_with("cable-driver")));
    settings.extra = extra.iter().map(|line| (*line).to_owned()).chain(of_cable).collect();
    settings
}

impl Mesh {
    /// Builds a topology and starts everything in it; waits for nothing. `extra` are further lines for the gateways'
    /// configuration.
    ///
    /// # Errors
    /// The first thing that does not start.
    pub fn start(lab: &Lab, topology: &Topology, extra: &[&str]) -> anyhow::Result<Self> {
        let plan = lab.build(topology)?;
        Self::start_in(lab, plan, &settings(lab, extra))
    }

    /// The same on nodes whose clocks are off: their names, and by how many seconds.
    ///
    /// # Errors
    /// The first thing that does not start.
    pub fn start_at(lab: &Lab, topology: &Topology, clocks: &[(&str, i64)]) -> anyhow::Result<Self> {
        let plan = lab.build(topology)?;
        let clocks = clocks.iter().map(|(node, seconds)| ((*node).to_owned(), *seconds)).collect();
        Self::start_in(lab, plan, &Settings { clocks, ..settings(lab, &[]) })
    }

    /// The same with some of the clusters; [`Mesh::join`] brings the others.
    ///
    /// # Errors
    /// The first thing that does not start.
    pub fn start_some(lab: &Lab, topology: &Topology, extra: &[&str], ids: &[&str]) -> anyhow::Result<Self> {
        let plan = lab.build(topology)?;
        let mut mesh = Self { sides: Vec::new(), plan, lab: lab.clone(), interval: INTERVAL };
        ids.iter().try_for_each(|id| mesh.join(id, extra))?;
        Ok(mesh)
    }

    /// Starts everything in a cluster that does not run yet; waits for nothing.
    ///
    /// # Errors
    /// The first thing that does not start.
    pub fn join(&mut self, id: &str, extra: &[&str]) -> anyhow::Result<()> {
        let side = Side::start(&self.lab, self.plan.cluster(id), &settings(&self.lab, extra))?;
        self.sides.push(side);
        Ok(())
    }

    /// Gives a gateway another configuration, which it reads when it starts: that of all with these further lines.
    ///
    /// # Errors
    /// If there is no such gateway, or the file cannot be written.
    pub fn configure(&self, cluster: &str, gateway: usize, extra: &[&str]) -> anyhow::Result<()> {
        self.side(cluster).configure(gateway, &settings(&self.lab, extra))
    }

    /// The same, and waits until a packet has gone from each node's pod to each other cluster's.
    ///
    /// # Errors
    /// The first thing that does not work; the logs are shown.
    pub fn connected(lab: &Lab, topology: &Topology, extra: &[&str]) -> anyhow::Result<Self> {
        let mesh = Self::start(lab, topology, extra)?;
        mesh.wait_traffic().inspect_err(|_| lab.show_logs())?;
        Ok(mesh)
    }

    /// Starts everything in a lab that is built; waits for nothing.
    ///
    /// # Errors
    /// The first thing that does not start.
    pub fn start_in(lab: &Lab, plan: Plan, settings: &Settings) -> anyhow::Result<Self> {
        let sides: anyhow::Result<Vec<Side>> =
            plan.clusters.iter().map(|cluster| Side::start(lab, cluster, settings)).collect();
        Ok(Self { sides: sides?, plan, lab: lab.clone(), interval: INTERVAL })
    }

    /// Takes a cluster out of the set; nothing of it runs or is there any more.
    ///
    /// # Errors
    /// If it does not run, or something does not end well.
    pub fn leave(&mut self, id: &str) -> anyhow::Result<()> {
        let at = self.sides.iter().position(|side| side.plan().id == id).context("it does not run")?;
        self.sides.remove(at).uninstall(scenario::GRACE)
    }

    /// A cluster.
    ///
    /// # Panics
    /// If there is none of this ID: the caller asked for it.
    pub fn side(&self, id: &str) -> &Side {
        self.sides
            .iter()
            .find(|side| side.plan().id == id)
            .expect("the caller named a cluster of its own plan")
    }

    /// A cluster, to kill or start something in it.
    ///
    /// # Panics
    /// If there is none of this ID: the caller asked for it.
    pub fn side_mut(&mut self, id: &str) -> &mut Side {
        let side = self.sides.iter_mut().find(|side| side.plan().id == id);
        side.expect("the caller named a cluster of its own plan")
    }

    /// For how many milliseconds a gateway may be silent at present until the others miss it, as each of them sees it.
    ///
    /// # Errors
    /// If one of them does not say.
    pub fn timeouts(&self, target: &Target) -> anyhow::Result<Vec<f64>> {
        let name = &self.side(&target.cluster).gateway_node(target.gateway).name;
        let mut timeouts = Vec::new();
        for side in &self.sides {
            let others = side.plan().gateways().iter().enumerate().filter(|(_, node)| node.name != *name);
            for (gateway, _) in others {
                timeouts.extend(side.timeouts(gateway, name)?);
            }
        }
        Ok(timeouts)
    }

    /// Waits until the first pod of every node is answered by the first pod of every node of every other cluster.
    ///
    /// # Errors
    /// If that takes longer than [`CONNECT_TIMEOUT`].
    pub fn wait_traffic(&self) -> anyhow::Result<()> {
        for (from, to) in self.ways() {
            let Some(address) = to.pods[0].ips().first().copied() else { continue };
            crate::wait::eventually(&format!("{} to reach {}", from.name, to.name), CONNECT_TIMEOUT, || {
                let ping = crate::traffic::ping(&from.pods[0].namespace, address, 1, &[])?;
                anyhow::ensure!(ping.received == 1, "no answer from {address}");
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Every node with every node of every other cluster that runs.
    pub fn ways(&self) -> Vec<(&NodePlan, &NodePlan)> {
        let mut ways = Vec::new();
        let clusters = || self.sides.iter().map(Side::plan);
        for from in clusters() {
            for to in clusters().filter(|to| to.id != from.id) {
                for node in &from.nodes {
                    ways.extend(to.nodes.iter().map(|other| (node, other)));
                }
            }
        }
        ways
    }

    /// A pod by its node's number, from 0, and its own.
    ///
    /// # Panics
    /// If there is none.
    pub fn pod(&self, cluster: &str, node: usize, pod: usize) -> &PodPlan {
        &self.plan.cluster(cluster).nodes[node].pods[pod]
    }
}
