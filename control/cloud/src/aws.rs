//! AWS: security groups, gateways' machines, tags; OpenShift, EKS, and clusters whose nodes are machines of EC2.
//!
//! The cluster's own nodes name their machines, and these their VPC, their groups and the cluster's name, so that little has to be
//! given. Names, tags and descriptions are upstream's (`submariner-io/cloud-prepare`): what its tool has prepared is taken over,
//! and taken back.

mod change;
mod credentials;
mod form;
mod names;
mod plan;
mod query;
mod settings;
mod sign;
mod state;
#[cfg(test)]
mod tests;
mod xml;

use std::sync::OnceLock;
use std::time::Duration;

use trieste_deploy::Server;

pub use change::AwsChange;
pub use credentials::{Credentials, Found, Keys};
pub use settings::{DEFAULT_INSTANCE, Settings};
pub use state::State;

use crate::CloudError;
use crate::cluster::Cluster;
use crate::exchange::{Clock, Exchange};
use crate::provider::{Change as _, Goal, Plan, Provider};
use change::{Step, is_done, requests};
use query::Ec2;

/// Ours: how long a group is tried to be deleted while machines that have it are going, and how often.
const GOING: Duration = Duration::from_secs(600);
const EVERY: Duration = Duration::from_secs(5);

/// A cluster in AWS.
#[derive(Debug)]
pub struct Aws<'s, E> {
    ec2: Ec2<E>,
    settings: Settings,
    instance: String,
    is_cleanup: bool,
    /// A group that is there, to ask for rights with in the place of one that is yet to be made.
    stand_in: OnceLock<String>,
    server: &'s Server,
}

impl<'s, E: Exchange> Aws<'s, E> {
    /// Reaches the cluster of `server` in EC2, in the region that is given, or that of the cluster's nodes, or `default_region`.
    ///
    /// # Errors
    /// [`CloudError::Refused`] without a region; [`CloudError::Cluster`].
    pub async fn new(
        http: E,
        server: &'s Server,
        settings: Settings,
        found: Found,
        goal: &Goal,
        clock: Clock,
    ) -> Result<Self, CloudError> {
        let region = match settings.region.clone() {
            Some(region) => Some(region),
            None => region_of(&Cluster::read(server).await?),
        };
        let region = region.or(found.region).ok_or_else(|| {
            CloudError::refused("no node names its region, and none was given", "give --region (region)")
        })?;
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if region.is_empty() || !is_name(&region) {
            return Err(CloudError::refused(
                format!("`{region}` is no region"),
                "give one such as eu-west-1 with --region (region)",
            ));
        }
        let instance = match goal {
            Goal::Prepare(wanted) => wanted.instance.clone(),
            Goal::CleanUp => None,
        };
        let instance = instance.unwrap_or_else(|| DEFAULT_INSTANCE.to_owned());
        let endpoints = [settings.endpoint.as_deref(), settings.sts_endpoint.as_deref()];
        let ec2 = Ec2::new(http, found.credentials, &region, endpoints, clock);
        let is_cleanup = matches!(goal, Goal::CleanUp);
        Ok(Self { ec2, settings, instance, is_cleanup, stand_in: OnceLock::new(), server })
    }

    /// Sends a change to EC2; with `dry_run` only asks whether it would be allowed.
    async fn send(&self, step: &Step, dry_run: bool) -> Result<(), CloudError> {
        let stand_in = self.stand_in.get().filter(|_| dry_run).map(String::as_str);
        for (action, mut parameters) in requests(step, stand_in) {
            if dry_run {
                parameters.push(("DryRun".to_owned(), "true".to_owned()));
            }
            let operation = AwsChange(step.clone()).to_string();
            match self.ec2.ask(action, &parameters, &operation).await.map(drop) {
                Err(CloudError::Api { code, .. }) if !dry_run && is_done(action, &code) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Deletes a group, which EC2 refuses while a machine that is going has it.
    async fn delete_group(&self, step: &Step) -> Result<(), CloudError> {
        let until = tokio::time::Instant::now() + GOING;
        loop {
            match self.send(step, false).await {
                Err(CloudError::Api { code, .. })
                    if code == "DependencyViolation" && tokio::time::Instant::now() < until =>
                {
                    tokio::time::sleep(EVERY).await;
                }
                outcome => return outcome,
            }
        }
    }
}

impl<E: Exchange> Provider for Aws<'_, E> {
    type State = State;
    type Change = AwsChange;

    fn name(&self) -> String {
        self.ec2.name()
    }

    async fn observe(&self) -> Result<State, CloudError> {
        let cluster = Cluster::read(self.server).await?;
        let asked =
            state::Asked { settings: &self.settings, instance: &self.instance, is_cleanup: self.is_cleanup };
        let state = state::read(&self.ec2, asked, cluster).await?;
        if let Some(group) = state.node_groups.first() {
            self.stand_in.get_or_init(|| group.id.clone());
        }
        Ok(state)
    }

    fn plan(&self, goal: &Goal, state: &State) -> Result<Plan<AwsChange>, CloudError> {
        plan::plan(goal, state)
    }

    async fn denies(&self, change: &AwsChange) -> Result<Option<String>, CloudError> {
        match self.send(&change.0, true).await {
            Err(CloudError::Api { code, .. }) if code == "UnauthorizedOperation" => {
                Ok(Some(format!("{change} ({})", change.right().unwrap_or_default())))
            }
            // Whatever else there is against it comes out when it is made; not to reach EC2 does not.
            Err(error @ CloudError::Credentials { .. }) => Err(error),
            Ok(()) | Err(_) => Ok(None),
        }
    }

    async fn apply(&self, change: &AwsChange) -> Result<(), CloudError> {
        match &change.0 {
            Step::Node(change) => change.apply(self.server).await,
            step @ Step::DeleteGroup { .. } => self.delete_group(step).await,
            step @ (Step::CreateGroup { .. }
            | Step::Authorize { .. }
            | Step::Revoke { .. }
            | Step::Tag { .. }
            | Step::Untag { .. }
            | Step::Attach { .. }
            | Step::CheckSource { .. }) => self.send(step, false).await,
        }
    }
}

/// Returns the region of the cluster's nodes.
fn region_of(cluster: &Cluster) -> Option<String> {
    let of_id = cluster.nodes.iter().filter(|node| state::instance_id(&node.provider_id).is_some());
    of_id
        .clone()
        .find(|node| !node.region.is_empty())
        .map(|node| node.region.clone())
        .or_else(|| of_id.into_iter().find_map(|node| state::region_of(&node.provider_id)))
}
