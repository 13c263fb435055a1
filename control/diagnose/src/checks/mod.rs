//! The checks of `trieste diagnose`, with upstream's titles and words where it has them.
//!
//! Each says what it finds as steps; an error is a check that could not be made. Whether all is well is what the steps
//! say.

mod calico;
mod cilium;
mod cluster;
mod deployment;
mod firewall;
mod fix;
mod spiderpool;

use serde_json::Value;
use trieste_control::steps::{Outcome, Steps};

use crate::agents::{AgentError, KubeAgents};
use crate::facts::{FactError, Source};

pub use cluster::{cni, connections, k8s_version, kube_proxy_mode};
pub use deployment::deployment;
pub use firewall::{Port, inter_cluster, intra_cluster};
pub use fix::Remedy;

/// Upstream's words for a cluster with one node.
const SINGLE_NODE: &str = "Skipping this check as it's a single node cluster";

/// The DaemonSet or Deployment that a member of ours has to have besides where the network plugin has a database.
const WORKER: &str = "trieste-plugin-sync";

/// A cluster to check.
pub struct Checked {
    /// Its API server.
    pub source: Source,
    /// Its nodes.
    pub agents: KubeAgents,
    /// Its name, for titles.
    pub name: String,
    /// The words that make `kubectl` talk to it, such as ` --context a`.
    pub kubectl: String,
}

impl Checked {
    /// A cluster, by its API server.
    #[must_use]
    pub fn new(source: Source, name: &str, kubectl: &str) -> Self {
        let agents = KubeAgents::new(source.client.clone(), &source.namespace);
        Self { source, agents, name: name.to_owned(), kubectl: kubectl.to_owned() }
    }

    /// Whether connectivity is installed; says so if not.
    ///
    /// # Errors
    /// When the API server refuses or fails.
    pub async fn is_installed(&self, steps: &mut dyn Steps) -> Result<bool, FactError> {
        if self.source.endpoints().await?.is_some() {
            return Ok(true);
        }
        steps.remark(Outcome::Warning, "Submariner connectivity feature is not installed");
        Ok(false)
    }
}

/// Says whether a member has been joined by us.
fn is_of_us(member: &Value) -> bool {
    member["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "trieste"
}

/// A check that could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The API server does not say.
    #[error(transparent)]
    Facts(#[from] FactError),
    /// A node does not say.
    #[error(transparent)]
    Agent(#[from] AgentError),
}
