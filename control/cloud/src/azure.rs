//! Microsoft Azure: network security groups, gateways' public addresses and interfaces, and OpenShift's sets of machines.
//!
//! ```text
//!   {infra}-nsg, groups of subnets   nodes: VXLAN between them; cables to the addresses of gateways that they guard
//!   {infra}-submariner-external-sg   gateways' interfaces that have no group of their own: cables
//!   {node}-pub                       a public address for a gateway that has none
//!   interface, tag trieste.io-before what it had before: no group, no IP forwarding, no public address
//! ```
//!
//! Names are those of upstream's tool (submariner-io/cloud-prepare), so that what it has prepared is taken over and cleaned up. A
//! packet has to pass the group of a subnet and that of an interface; that is why cables are let pass in both.

mod arm;
mod change;
mod credentials;
mod interface;
mod machines;
mod names;
mod plan;
mod security;
mod state;
#[cfg(test)]
mod tests;
mod token;

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::sync::Mutex;
use trieste_deploy::Server;

use self::arm::{Arm, PERMISSIONS};
pub use self::change::{AzureChange, InterfaceChange};
pub use self::credentials::{Credentials, Identity};
pub use self::machines::INSTANCE;
use self::names::part;
pub use self::state::State;
use self::state::{Chosen, observe};
use crate::CloudError;
use crate::exchange::{Clock, Exchange};
use crate::provider::{Goal, Plan, Provider};

/// What somebody chooses. What is `None` is read from the cluster: its sets of machines, else its nodes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// OpenShift's name for the cluster's infrastructure, with which names of what is made begin. Elsewhere it is needed: any name
    /// that no other cluster of the resource group has.
    pub infra_id: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// The resource group of network security groups and public addresses; upstream's is the infra ID with `-rg`.
    pub resource_group: Option<String>,
    /// With which rights Azure is asked.
    pub credentials: Credentials,
    /// Whether gateways get no public addresses.
    pub air_gapped: bool,
}

/// Permissions in a resource group or on a resource; `None` where they may not be read.
type Permissions = Option<Vec<Value>>;

/// Azure, and a cluster in it.
#[derive(Debug)]
pub struct Azure<'s, E> {
    arm: Arm<E>,
    server: &'s Server,
    chosen: Chosen,
    permissions: Mutex<BTreeMap<String, Permissions>>,
}

impl<'s, E: Exchange> Azure<'s, E> {
    /// Prepares what the cluster of `server` is in.
    pub fn new(http: E, server: &'s Server, settings: Settings, clock: Clock) -> Self {
        let Settings { infra_id, region, resource_group, credentials, air_gapped } = settings;
        let arm = Arm::new(http, credentials, clock);
        let subscription = arm.subscription().to_owned();
        let chosen = Chosen { infra_id, region, resource_group, subscription, air_gapped };
        Self { arm, server, chosen, permissions: Mutex::new(BTreeMap::new()) }
    }

    /// Reads which actions are allowed in a resource group or on a resource, once.
    async fn permissions(&self, scope: &str) -> Permissions {
        let mut read = self.permissions.lock().await;
        if let Some(permissions) = read.get(scope) {
            return permissions.clone();
        }
        let path = format!("{scope}/providers/Microsoft.Authorization/permissions");
        let found = self.arm.list(&path, PERMISSIONS, "", "reading permissions").await;
        // Credentials that may not read their own permissions may still have all others.
        let permissions = found.ok().filter(|found| !found.is_empty());
        read.insert(scope.to_owned(), permissions.clone());
        permissions
    }
}

impl<E: Exchange> Provider for Azure<'_, E> {
    type State = State;
    type Change = AzureChange;

    fn name(&self) -> String {
        "Azure".to_owned()
    }

    async fn observe(&self) -> Result<State, CloudError> {
        observe(&self.arm, self.server, &self.chosen).await
    }

    fn plan(&self, goal: &Goal, state: &State) -> Result<Plan<AzureChange>, CloudError> {
        plan::plan(goal, state)
    }

    async fn denies(&self, change: &AzureChange) -> Result<Option<String>, CloudError> {
        let mut denied = Vec::new();
        for (id, action) in change.actions() {
            let scope = part(id, "subscriptions").zip(part(id, "resourceGroups"));
            let Some((subscription, resource_group)) = scope else { continue };
            let scope = format!("/subscriptions/{subscription}/resourceGroups/{resource_group}");
            let Some(permissions) = self.permissions(&scope).await else { continue };
            // A role may be had for one resource only, such as for a subnet.
            let is_allowed = allows(&permissions, action)
                || self.permissions(id).await.is_some_and(|permissions| allows(&permissions, action));
            if !is_allowed {
                denied.push(format!("do {action} in resource group {resource_group}"));
            }
        }
        Ok((!denied.is_empty()).then(|| denied.join(", ")))
    }

    async fn apply(&self, change: &AzureChange) -> Result<(), CloudError> {
        change.make(&self.arm, self.server).await
    }
}

/// Returns `true` if one of some permissions has an action and does not take it back ("Understand Azure role definitions").
fn allows(permissions: &[Value], action: &str) -> bool {
    let has = |patterns: &Value| {
        patterns
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .any(|pattern| fits(pattern, action))
    };
    permissions.iter().any(|permission| has(&permission["actions"]) && !has(&permission["notActions"]))
}

/// Returns `true` if an action fits a pattern, in which `*` is any text.
fn fits(pattern: &str, action: &str) -> bool {
    let (pattern, action) = (pattern.to_ascii_lowercase(), action.to_ascii_lowercase());
    let Some((first, mut rest)) = pattern.split_once('*') else { return pattern == action };
    let Some(mut left) = action.strip_prefix(first) else { return false };
    while let Some((middle, more)) = rest.split_once('*') {
        let Some(at) = left.find(middle) else { return false };
        left = left.get(at + middle.len()..).unwrap_or_default();
        rest = more;
    }
    left.ends_with(rest)
}
