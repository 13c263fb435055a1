//! The changes: what each is called, what it needs, how it is made.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Value, json};
use trieste_deploy::Server;

use super::arm::{Arm, NETWORK};
use super::interface::Edit;
use super::names::{PREPARED_FOR, last};
use crate::CloudError;
use crate::cluster::NodeChange;
use crate::exchange::Exchange;
use crate::provider::Change;

/// Ours: how often an interface is read again that somebody else has changed meanwhile.
const TRIES: usize = 4;

/// A change in Azure, or in the cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum AzureChange {
    /// Makes the gateways' network security group.
    CreateGroup {
        /// Its ID.
        id: String,
        /// Its region.
        region: String,
        /// The cluster for which.
        infra_id: String,
        /// Its rules, as the API has them.
        rules: Vec<Value>,
    },
    /// Makes a rule, or replaces one.
    PutRule {
        /// The ID of its group.
        group: String,
        /// The rule, as the API has it.
        rule: Value,
    },
    /// Removes a rule.
    DeleteRule {
        /// The ID of its group.
        group: String,
        /// Its name.
        name: String,
    },
    /// Removes a network security group.
    DeleteGroup {
        /// Its ID.
        id: String,
    },
    /// Makes a public address for a gateway.
    CreateAddress {
        /// Its ID.
        id: String,
        /// Its region.
        region: String,
        /// The cluster for which.
        infra_id: String,
    },
    /// Removes a public address.
    DeleteAddress {
        /// Its ID.
        id: String,
    },
    /// Changes the network interface of a machine.
    SetInterface(InterfaceChange),
    /// A change in the cluster.
    Node(NodeChange),
}

/// A change of a network interface.
#[derive(Debug, Clone, PartialEq)]
pub struct InterfaceChange {
    pub(super) id: String,
    pub(super) edit: Edit,
    /// What it refers to after the change, and the actions that this takes there.
    pub(super) joins: BTreeSet<(String, &'static str)>,
}

impl fmt::Display for AzureChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateGroup { id, rules, .. } => {
                write!(f, "create network security group {} with {} rules", last(id), rules.len())
            }
            Self::PutRule { group, rule } => {
                let text = |field: &str| rule[field].as_str().unwrap_or_default();
                let priority = &rule["properties"]["priority"];
                write!(f, "put rule {} with priority {priority} into {}", text("name"), last(group))
            }
            Self::DeleteRule { group, name } => write!(f, "remove rule {name} from {}", last(group)),
            Self::DeleteGroup { id } => write!(f, "delete network security group {}", last(id)),
            Self::CreateAddress { id, .. } => write!(f, "create public IP address {}", last(id)),
            Self::DeleteAddress { id } => write!(f, "delete public IP address {}", last(id)),
            Self::SetInterface(change) => match &change.edit.gets {
                None => write!(f, "give network interface {} back what it had", last(&change.id)),
                Some(gets) => {
                    let address = if gets.address.is_some() { " and a public address" } else { "" };
                    write!(
                        f,
                        "make network interface {} a gateway's: IP forwarding{address}",
                        last(&change.id)
                    )
                }
            },
            Self::Node(change) => change.fmt(f),
        }
    }
}

impl Change for AzureChange {
    fn waits(&self) -> bool {
        false
    }
}

impl AzureChange {
    /// Returns the actions that it takes, each with the resource on which ("Azure permissions for Networking").
    pub(super) fn actions(&self) -> Vec<(&str, &'static str)> {
        match self {
            Self::CreateGroup { id, .. } => vec![(id, "Microsoft.Network/networkSecurityGroups/write")],
            Self::PutRule { group, .. } => {
                vec![(group, "Microsoft.Network/networkSecurityGroups/securityRules/write")]
            }
            Self::DeleteRule { group, .. } => {
                vec![(group, "Microsoft.Network/networkSecurityGroups/securityRules/delete")]
            }
            Self::DeleteGroup { id } => vec![(id, "Microsoft.Network/networkSecurityGroups/delete")],
            Self::CreateAddress { id, .. } => vec![(id, "Microsoft.Network/publicIPAddresses/write")],
            Self::DeleteAddress { id } => vec![(id, "Microsoft.Network/publicIPAddresses/delete")],
            Self::SetInterface(change) => {
                let joins = change.joins.iter().map(|(id, action)| (id.as_str(), *action));
                let write = (change.id.as_str(), "Microsoft.Network/networkInterfaces/write");
                [write].into_iter().chain(joins).collect()
            }
            Self::Node(_) => Vec::new(),
        }
    }

    /// Makes the change.
    ///
    /// # Errors
    /// [`CloudError`].
    pub(super) async fn make<E: Exchange>(&self, arm: &Arm<E>, server: &Server) -> Result<(), CloudError> {
        let action = self.to_string();
        match self {
            Self::CreateGroup { id, region, infra_id, rules } => {
                let tags = json!({PREPARED_FOR: infra_id});
                let group = json!({"location": region, "tags": tags, "properties": {"securityRules": rules}});
                arm.put(id, &group, None, &action).await
            }
            Self::PutRule { group, rule } => {
                let name = rule["name"].as_str().unwrap_or_default();
                arm.put(&format!("{group}/securityRules/{name}"), rule, None, &action).await
            }
            Self::DeleteRule { group, name } => {
                arm.delete(&format!("{group}/securityRules/{name}"), &action).await
            }
            Self::DeleteGroup { id } | Self::DeleteAddress { id } => arm.delete(id, &action).await,
            Self::CreateAddress { id, region, infra_id } => {
                let address = json!({
                    "location": region, "tags": {PREPARED_FOR: infra_id}, "sku": {"name": "Standard"},
                    "properties": {"publicIPAddressVersion": "IPv4", "publicIPAllocationMethod": "Static"},
                });
                arm.put(id, &address, None, &action).await
            }
            Self::SetInterface(change) => change.make(arm, &action).await,
            Self::Node(change) => change.apply(server).await,
        }
    }
}

impl InterfaceChange {
    /// Changes the interface as it is now, and only that: its version goes along, and it is read again where that has passed.
    async fn make<E: Exchange>(&self, arm: &Arm<E>, action: &str) -> Result<(), CloudError> {
        for is_last in (1..=TRIES).map(|turn| turn == TRIES) {
            let Some(found) = arm.find(&self.id, NETWORK, action).await? else { return self.is_gone() };
            let after = self.edit.edited(&found);
            if after == found {
                return Ok(());
            }
            let etag = found["etag"].as_str().map(str::to_owned);
            match arm.put(&self.id, &after, etag.as_deref(), action).await {
                Err(error) if error.has_status(412) && !is_last => {}
                outcome => return outcome,
            }
        }
        Ok(())
    }

    /// Returns an error unless the interface was to be given back what it had: then it went with its machine.
    fn is_gone(&self) -> Result<(), CloudError> {
        if self.edit.gets.is_none() {
            return Ok(());
        }
        Err(CloudError::refused(
            format!("network interface {} is not there any more", last(&self.id)),
            "repeat the command: the cluster's machines are changing",
        ))
    }
}
