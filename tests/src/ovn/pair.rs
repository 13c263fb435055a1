//! Two clusters, of which `east` has OVN-Kubernetes.

use std::path::Path;
use std::time::Duration;

use crate::cluster::{Cluster, NAMESPACE, Settings};
use crate::command::Run;
use crate::daemon::Daemon;
use crate::lab::Lab;
use crate::netns::Namespace;
use crate::ovn::OvnNode;
use crate::pair::CONNECT_TIMEOUT;
use crate::programs;
use crate::topology::{ClusterPlan, NodePlan, Plan, PodPlan};
use crate::wait::eventually;

/// Where OVN leads packets to other clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OvnTopology {
    /// By its own router to the node's management port.
    ClusterRouter,
    /// By a router of Submariner's own to the node's external bridge.
    SubmarinerRouter,
}

impl OvnTopology {
    /// Returns the setting's value.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ClusterRouter => "cluster-router",
            Self::SubmarinerRouter => "submariner-router",
        }
    }
}

/// `east`, `west`, and the worker that writes east's OVN. The fields are in the order in which they have to end.
#[derive(Debug)]
pub struct OvnPair {
    /// The worker; `None` while it does not run.
    pub sync: Option<Daemon>,
    /// The cluster with OVN-Kubernetes.
    pub east: Cluster,
    /// The other one.
    pub west: Cluster,
    /// The OVN of east's node.
    pub ovn: OvnNode,
    topology: OvnTopology,
    plan: Plan,
    lab: Lab,
}

impl OvnPair {
    /// Starts both in a lab whose first two clusters are `east` and `west`, with these lines in the gateways' configuration, and
    /// waits until they have a cable.
    ///
    /// # Errors
    /// The first thing that does not work.
    pub fn start(lab: &Lab, plan: &Plan, extra: &[String]) -> anyhow::Result<Self> {
        Self::start_with(lab, plan, extra, OvnTopology::ClusterRouter)
    }

    /// The same with a topology.
    ///
    /// # Errors
    /// The first thing that does not work.
    pub fn start_with(
        lab: &Lab,
        plan: &Plan,
        extra: &[String],
        topology: OvnTopology,
    ) -> anyhow::Result<Self> {
        let ovn = OvnNode::install(lab, plan.cluster("east"))?;
        if topology == OvnTopology::SubmarinerRouter {
            ovn.add_external(plan.cluster("east"))?;
        }
        let mut settings = Settings::of(lab);
        settings.extra.extend(extra.iter().cloned());
        let west = Cluster::start(lab, plan.cluster("west"), &settings)?;
        settings.wrap = with_ovn(topology);
        let east = Cluster::start(lab, plan.cluster("east"), &settings)?;
        let mut pair = Self { sync: None, east, west, ovn, topology, plan: plan.clone(), lab: lab.clone() };
        pair.start_sync()?;
        pair.east.wait_handshakes(1, CONNECT_TIMEOUT)?;
        pair.west.wait_handshakes(1, CONNECT_TIMEOUT)?;
        Ok(pair)
    }

    /// Returns the worker's command line.
    ///
    /// # Errors
    /// If it is not built.
    pub fn sync_run(&self) -> anyhow::Result<Run> {
        let (cluster, run) = (self.plan.cluster("east"), Run::new(programs::path("trieste-plugin-sync")?));
        let databases = [self.ovn.northbound(), self.ovn.southbound()];
        Ok(sync_on(run, &self.lab, cluster, self.east.node(), &self.east.store())
            .args(["--ovn-northbound", &databases[0], "--ovn-southbound", &databases[1]])
            .args(["--ovn-topology", self.topology.name()]))
    }

    /// Starts the worker.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_sync(&mut self) -> anyhow::Result<()> {
        self.sync = Some(Daemon::start(&self.lab, "plugin-sync", &self.sync_run()?)?);
        Ok(())
    }

    /// Returns the names and addresses of both.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns a pod.
    #[must_use]
    pub fn pod(&self, cluster: &str, number: usize) -> &PodPlan {
        self.plan.cluster(cluster).pod(number)
    }

    /// Returns a pod's namespace.
    #[must_use]
    pub fn pod_namespace(&self, cluster: &str, number: usize) -> &Namespace {
        &self.pod(cluster, number).namespace
    }

    /// Waits until OVN leads to every network of the other cluster, and to the own global ones, and has told its switch.
    ///
    /// # Errors
    /// If it does not within [`CONNECT_TIMEOUT`].
    pub fn wait_policies(&self) -> anyhow::Result<()> {
        let wanted = self.plan.cluster("west").subnets().len() + self.plan.cluster("east").global_cidrs.len();
        eventually(&format!("{wanted} policies"), CONNECT_TIMEOUT, || {
            let found = self.count_policies()?;
            anyhow::ensure!(found == wanted, "there are {found}");
            Ok(())
        })?;
        self.ovn.nbctl(&["--wait=hv", "sync"]).map(drop)
    }

    /// Returns how many policies lead to another cluster.
    ///
    /// # Errors
    /// What ovn-nbctl says.
    pub fn count_policies(&self) -> anyhow::Result<usize> {
        Ok(self.ovn.nbctl(&["lr-policy-list", "ovn_cluster_router"])?.matches("reroute").count())
    }

    /// Removes the policies that lead to another cluster, as somebody might.
    ///
    /// # Errors
    /// What ovn-nbctl says.
    pub fn remove_policies(&self) -> anyhow::Result<()> {
        let leading = ["--bare", "--columns=_uuid", "find", "Logical_Router_Policy", "action=reroute"];
        for policy in self.ovn.nbctl(&leading)?.split_whitespace() {
            self.ovn.nbctl(&["lr-policy-del", "ovn_cluster_router", policy])?;
        }
        self.ovn.nbctl(&["--wait=hv", "sync"]).map(drop)
    }
}

/// Returns the command in front of a program of a cluster with OVN-Kubernetes: the variables that `join` gives such members.
pub(super) fn with_ovn(topology: OvnTopology) -> Vec<String> {
    let topology = format!("TRIESTE_OVN_TOPOLOGY={}", topology.name());
    ["env", "SUBMARINER_NETWORKPLUGIN=OVNKubernetes", &topology, "TRIESTE_PLUGIN_SYNC=true"]
        .map(str::to_owned)
        .into()
}

/// Completes a run of the worker on a node of a cluster with OVN-Kubernetes, but for OVN's databases and the topology.
pub(super) fn sync_on(run: Run, lab: &Lab, cluster: &ClusterPlan, node: &NodePlan, store: &Path) -> Run {
    let list =
        |networks: &[ipnet::IpNet]| networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    run.args(["--store", &format!("dir:{}", store.display()), "--namespace", NAMESPACE])
        .args(["--network-plugin=OVNKubernetes", "--cluster-id", &cluster.id, "--node-name", &node.name])
        .args(["--cluster-cidrs", &list(&cluster.pod_cidrs)])
        .args(["--service-cidrs", &list(&cluster.service_cidrs)])
        .env("TRIESTE_PASS_FILE", lab.directory().join(format!("plugin-sync-{}.json", node.name)))
}

/// Long enough for a SYN that is sent twice.
pub const SOON: Duration = Duration::from_secs(4);
