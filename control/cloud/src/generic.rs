//! A cloud, or a firewall, that nothing here can talk to: what has to pass is listed for its administrator, and nodes are labelled.

use std::fmt;

use trieste_deploy::Server;

use crate::CloudError;
use crate::cluster::{Cluster, NodeChange};
use crate::provider::{Change, Goal, Plan, Provider};
use crate::rules::{Rule, Wanted};

/// Any cloud.
#[derive(Debug)]
pub struct Generic<'s> {
    server: &'s Server,
}

impl<'s> Generic<'s> {
    /// Prepares the nodes of this cluster.
    pub const fn new(server: &'s Server) -> Self {
        Self { server }
    }
}

/// Returns what somebody has to open, in the order in which it is best understood.
pub fn to_open(wanted: &Wanted) -> Vec<Rule> {
    wanted.cables().into_iter().chain(wanted.inside()).collect()
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A change of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Labels(NodeChange);

impl Change for Labels {
    fn waits(&self) -> bool {
        false
    }
}

impl Provider for Generic<'_> {
    type State = Cluster;
    type Change = Labels;

    fn name(&self) -> String {
        self.server.name().to_owned()
    }

    async fn observe(&self) -> Result<Cluster, CloudError> {
        Cluster::read(self.server).await
    }

    fn plan(&self, goal: &Goal, state: &Cluster) -> Result<Plan<Labels>, CloudError> {
        let changes = match goal {
            Goal::Prepare(wanted) => state.more_gateways(wanted.gateways),
            Goal::CleanUp => state.fewer_gateways(),
        };
        let remarks = match goal {
            Goal::Prepare(wanted) => state.remark(wanted.gateways, changes.len()).into_iter().collect(),
            Goal::CleanUp => Vec::new(),
        };
        Ok(Plan { changes: changes.into_iter().map(Labels).collect(), remarks })
    }

    async fn apply(&self, change: &Labels) -> Result<(), CloudError> {
        change.0.apply(self.server).await
    }
}
