//! Google Cloud: firewall rules of a VPC network, network tags of instances, and OpenShift's machines for gateways.
//!
//! ```text
//!   settings, key ──▶ token ──▶ api ──▶ state ──▶ plan: firewall, machine, change ──▶ api, cluster
//! ```
//!
//! A rule chooses machines by their network tags: gateways by upstream's tag, nodes by those of OpenShift's installer or of GKE.
//! All names are upstream's, so that what its tool has prepared is taken over, and cleaned up.

mod api;
mod change;
mod firewall;
mod key;
mod machine;
mod names;
mod plan;
mod settings;
mod state;
mod token;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};

use trieste_deploy::Server;

use crate::CloudError;
use crate::cluster::Cluster;
use crate::exchange::{Clock, Exchange};
use crate::provider::{Goal, Plan, Provider};

pub use change::Change;
pub use key::ServiceAccount;
pub use settings::{Credentials, Settings};
pub use state::State;

/// Google Cloud, for one cluster.
#[derive(Debug)]
pub struct Gcp<'s, E> {
    server: &'s Server,
    settings: Settings,
    compute: api::Compute<E>,
    has_had_rules: AtomicBool,
}

impl<'s, E: Exchange> Gcp<'s, E> {
    /// Prepares the project of the cluster of `server`. `clock` is asked before each request, for the token's sake.
    pub fn new(http: E, server: &'s Server, settings: Settings, clock: Clock) -> Self {
        let compute = api::Compute::new(http, &settings, clock);
        Self { server, settings, compute, has_had_rules: AtomicBool::new(false) }
    }
}

impl<E: Exchange> Provider for Gcp<'_, E> {
    type State = State;
    type Change = Change;

    fn name(&self) -> String {
        match &self.settings.project {
            Some(project) => format!("Google Cloud, project {project}"),
            None => "Google Cloud".to_owned(),
        }
    }

    async fn observe(&self) -> Result<State, CloudError> {
        let cluster = Cluster::read(self.server).await?;
        let mut state = state::observe(&self.compute, cluster, &self.settings).await?;
        let has_rules = !state.rules.is_empty();
        state.has_had_rules = self.has_had_rules.fetch_or(has_rules, Ordering::Relaxed) || has_rules;
        Ok(state)
    }

    fn plan(&self, goal: &Goal, state: &State) -> Result<Plan<Change>, CloudError> {
        plan::plan(goal, state, &self.settings)
    }

    async fn denies(&self, change: &Change) -> Result<Option<String>, CloudError> {
        change.denies(&self.compute).await
    }

    async fn apply(&self, change: &Change) -> Result<(), CloudError> {
        change.make(&self.compute, self.server).await
    }
}
