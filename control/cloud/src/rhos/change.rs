//! One change of a cluster's groups, ports or nodes.

use std::fmt;

use super::group::{GroupRef, GroupRule};
use crate::cluster::NodeChange;
use crate::provider::Change;

/// A change in OpenStack, or in the cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum CloudChange {
    /// Makes a security group without rules but Neutron's own, which let everything out.
    CreateGroup {
        /// Its name.
        name: String,
    },
    /// Makes a rule.
    CreateRule {
        /// In which group.
        group: GroupRef,
        /// Which.
        rule: GroupRule,
    },
    /// Removes a rule.
    DeleteRule {
        /// The name of its group.
        group: String,
        /// Its ID.
        id: String,
        /// What it lets pass, for people.
        what: String,
        /// Whether what takes its stead is still to be made.
        waits: bool,
    },
    /// Gives a port a group.
    Attach {
        /// The port's ID.
        port: String,
        /// Whose port it is, for people.
        owner: String,
        /// The group.
        group: GroupRef,
    },
    /// Takes a group from a port.
    Detach {
        /// The port's ID.
        port: String,
        /// Whose port it is, for people.
        owner: String,
        /// The group.
        group: GroupRef,
        /// Whether what takes its stead is still to be made.
        waits: bool,
    },
    /// Removes a group, once no port has it any more.
    DeleteGroup {
        /// Its name.
        name: String,
        /// Its ID.
        id: String,
    },
    /// A change of nodes or of sets of machines.
    Cluster(NodeChange),
}

impl fmt::Display for CloudChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateGroup { name } => write!(f, "create security group {name}"),
            Self::CreateRule { group, rule } => write!(f, "let {rule} pass in security group {}", group.name),
            Self::DeleteRule { group, what, .. } => {
                write!(f, "remove the rule for {what} from security group {group}")
            }
            Self::Attach { port, owner, group } => {
                write!(f, "add security group {} to port {port} of {owner}", group.name)
            }
            Self::Detach { port, owner, group, .. } => {
                write!(f, "take security group {} from port {port} of {owner}", group.name)
            }
            Self::DeleteGroup { name, id } => write!(f, "delete security group {name} ({id})"),
            Self::Cluster(change) => change.fmt(f),
        }
    }
}

impl Change for CloudChange {
    fn waits(&self) -> bool {
        match self {
            Self::CreateRule { group, rule } => group.id.is_none() || rule.waits(),
            Self::Attach { group, .. } => group.id.is_none(),
            Self::DeleteRule { waits, .. } | Self::Detach { waits, .. } => *waits,
            Self::CreateGroup { .. } | Self::DeleteGroup { .. } | Self::Cluster(_) => false,
        }
    }
}
