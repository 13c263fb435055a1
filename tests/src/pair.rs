//! Two clusters with Trieste gateways, connected: where most tests start.

use std::time::Duration;

use crate::cluster::{Cluster, Settings};
use crate::lab::Lab;
use crate::netns::Namespace;
use crate::topology::{Families, Plan, PodPlan, Topology};

/// How long two gateways may take to find each other.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// `east` and `west`. The fields are in the order in which they have to end.
#[derive(Debug)]
pub struct Pair {
    /// Cluster `east`.
    pub east: Cluster,
    /// Cluster `west`.
    pub west: Cluster,
    /// Names and addresses.
    pub plan: Plan,
    /// The lab that they live in.
    pub lab: Lab,
}

impl Pair {
    /// Builds both on an underlay, starts them and waits until packets go through.
    ///
    /// # Errors
    /// The first thing that does not work; the lab is gone then.
    pub fn connected(underlay: Families) -> anyhow::Result<Self> {
        Self::connected_with(&Topology::two_clusters().with_underlay(underlay), &[])
    }

    /// The same with another topology (its first two clusters are called `east` and `west`) and further lines for
    /// the gateways' configuration.
    ///
    /// # Errors
    /// The first thing that does not work; the lab is gone then.
    pub fn connected_with(topology: &Topology, extra: &[&str]) -> anyhow::Result<Self> {
        Self::connected_confined(topology, extra, &[])
    }

    /// The same in a lab.
    ///
    /// # Errors
    /// The first thing that does not work.
    pub fn connected_in(lab: &Lab, topology: &Topology, extra: &[&str]) -> anyhow::Result<Self> {
        Self::build(lab.clone(), topology, extra, &[])
    }

    /// The same, with words before those of our programs ([`Settings::wrap`]).
    ///
    /// # Errors
    /// The first thing that does not work; the lab is gone then.
    pub fn connected_confined(topology: &Topology, extra: &[&str], wrap: &[&str]) -> anyhow::Result<Self> {
        Self::build(Lab::new()?, topology, extra, wrap)
    }

    fn build(lab: Lab, topology: &Topology, extra: &[&str], wrap: &[&str]) -> anyhow::Result<Self> {
        let plan = lab.build(topology)?;
        let mut settings = Settings::of(&lab);
        settings.extra = extra.iter().map(|line| (*line).to_owned()).collect();
        settings.wrap = wrap.iter().map(|word| (*word).to_owned()).collect();
        let east = Cluster::start(&lab, plan.cluster("east"), &settings);
        let west = Cluster::start(&lab, plan.cluster("west"), &settings);
        let connected = east.and_then(|east| Ok((east, west?))).and_then(|(east, west)| {
            east.wait_handshakes(1, CONNECT_TIMEOUT)?;
            west.wait_handshakes(1, CONNECT_TIMEOUT)?;
            Ok((east, west))
        });
        match connected {
            Ok((east, west)) => Ok(Self { east, west, plan, lab }),
            Err(error) => {
                lab.show_logs();
                Err(error)
            }
        }
    }

    /// The first pod of a cluster.
    pub fn pod(&self, cluster: &str) -> &PodPlan {
        self.plan.cluster(cluster).pod(0)
    }

    /// The namespace of the first pod of a cluster.
    pub fn pod_namespace(&self, cluster: &str) -> &Namespace {
        &self.pod(cluster).namespace
    }
}
