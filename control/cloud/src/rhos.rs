//! OpenStack, also Red Hat's: security groups and ports of Neutron's, and machines of OpenShift's.
//!
//! Of every packet that a server receives, Neutron asks the groups of the port. What passes from other clusters to gateways stands in
//! a group of their own. What passes between nodes stands in the groups that OpenShift's installer gives nodes, in rules that have our
//! description; elsewhere in a group that all nodes' ports are given. The names of groups that are made are upstream's, so that what
//! its tool has prepared is found. Port security stays as it is.

mod change;
mod client;
mod credentials;
mod group;
mod machines;
mod neutron;
mod plan;
mod port;
#[cfg(test)]
mod tests;

use trieste_deploy::Server;

use self::client::Client;
use self::port::server_id;
use crate::CloudError;
use crate::cluster::Cluster;
use crate::exchange::Exchange;
use crate::provider::{Goal, Plan, Provider};

pub use self::change::CloudChange;
pub use self::credentials::{Credentials, DEFAULT_ENTRY};
pub use self::group::{Family, FoundRule, Group, GroupRef, GroupRule, MADE_BY, Names, Remote};
pub use self::machines::DEFAULT_FLAVOR;
pub use self::plan::State;
pub use self::port::Port;

/// What somebody has chosen.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the names of the cluster's groups and machines begin with; `None` is what its sets of machines have.
    pub infra_id: Option<String>,
    /// The region; `None` is the one of the credentials, or the only one that there is.
    pub region: Option<String>,
    /// The project; `None` is the one of the credentials.
    pub project_id: Option<String>,
    /// The credentials.
    pub credentials: Credentials,
}

/// A cluster in OpenStack.
#[derive(Debug)]
pub struct Rhos<'s, E> {
    client: Client<E>,
    server: &'s Server,
    infra_id: Option<String>,
}

impl<'s, E: Exchange> Rhos<'s, E> {
    /// Prepares the cluster of this server, and its cloud through `http`.
    pub fn new(http: E, server: &'s Server, settings: Settings) -> Self {
        let Settings { infra_id, region, project_id, credentials } = settings;
        Self { client: Client::new(http, credentials, project_id, region), server, infra_id }
    }
}

impl<E: Exchange> Provider for Rhos<'_, E> {
    type State = State;
    type Change = CloudChange;

    fn name(&self) -> String {
        self.client.name().to_owned()
    }

    async fn observe(&self) -> Result<State, CloudError> {
        let cluster = Cluster::read(self.server).await?;
        let Some(infra_id) = machines::infra_id(self.infra_id.as_deref(), &cluster) else {
            return Err(CloudError::refused(
                "the cluster has no infrastructure ID, with which the names of its security groups begin",
                "name one with --infra-id: the ID of OpenShift's installer, or elsewhere any name of the cluster's own",
            ));
        };
        let names = Names::of(&infra_id);
        let groups = self.client.groups(&names.all().collect::<Vec<_>>()).await?;
        let made: Vec<&str> =
            groups.iter().filter(|group| names.is_made(&group.name)).map(|group| group.id.as_str()).collect();
        let servers: Vec<&str> =
            cluster.nodes.iter().filter_map(|node| server_id(&node.provider_id)).collect();
        let ports = self.client.ports(&servers, &made).await?;
        Ok(State { infra_id, cluster, groups, ports })
    }

    fn plan(&self, goal: &Goal, state: &State) -> Result<Plan<CloudChange>, CloudError> {
        Ok(plan::plan(goal, state))
    }

    async fn apply(&self, change: &CloudChange) -> Result<(), CloudError> {
        match change {
            CloudChange::CreateGroup { name } => self.client.create_group(name).await,
            CloudChange::CreateRule { group, rule } => self.client.create_rule(group, rule).await,
            CloudChange::DeleteRule { group, id, .. } => self.client.delete_rule(group, id).await,
            CloudChange::Attach { port, group, .. } => self.client.set_group(port, group, true).await,
            CloudChange::Detach { port, group, .. } => self.client.set_group(port, group, false).await,
            CloudChange::DeleteGroup { name, id } => self.client.delete_group(name, id).await,
            CloudChange::Cluster(change) => change.apply(self.server).await,
        }
    }
}
