//! The sentences of conditions, for people.

use std::fmt;

use super::{Condition, Effect};
use crate::constants::{MAX_QUOTED, OLDEST_SCHEMA, OWNER_KEY};

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RouterMissing { .. }
            | Self::RowMissing { .. }
            | Self::SchemaTooOld { .. }
            | Self::NoGatewayNode
            | Self::ChassisMissing { .. }
            | Self::ChassisAmbiguous { .. }
            | Self::NoExternalNetwork { .. }
            | Self::ForeignRow { .. }
            | Self::TransactionRefused { .. }
            | Self::More { .. } => self.fmt_database(f),
            Self::NoManagementPort { .. }
            | Self::NoNextHop { .. }
            | Self::NextHopElsewhere { .. }
            | Self::BadNextHop { .. }
            | Self::Refused { .. }
            | Self::Connected { .. }
            | Self::Disputed { .. }
            | Self::TooManyNetworks { .. } => self.fmt_networks(f),
        }
    }
}

impl Condition {
    /// Writes what is about the databases, and what is in them.
    fn fmt_database(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the caller passes these only")]
        match self {
            Self::RouterMissing { router } => write!(
                f,
                "the northbound database has no router {router}: see whether OVN-Kubernetes is running, and whether this \
                 is the database of the node's zone"
            ),
            Self::RowMissing { table, name } => write!(
                f,
                "the northbound database has no {table} {name}, by which packets would leave the gateway node: see \
                 whether OVN-Kubernetes set the node up"
            ),
            Self::SchemaTooOld { version } => {
                write!(
                    f,
                    "the northbound database has schema {version}, and {OLDEST_SCHEMA} is needed: upgrade OVN"
                )
            }
            Self::NoGatewayNode => f.write_str(
                "no node is the active gateway; packets for remote clusters are dropped until one is",
            ),
            Self::ChassisMissing { node } => write!(
                f,
                "the southbound database has no chassis with host name {node}: see whether ovn-controller runs there"
            ),
            Self::ChassisAmbiguous { node, count } => write!(
                f,
                "the southbound database has {count} chassis with host name {node}: remove those that are gone \
                 (ovn-sbctl chassis-del)"
            ),
            Self::NoExternalNetwork { family, port } => write!(
                f,
                "port {port} has no {family} network, so that {family} packets for remote clusters are dropped: give \
                 the node's external bridge one"
            ),
            Self::ForeignRow { table, key, effect } => write_foreign(f, table, key, *effect),
            Self::TransactionRefused { error } => {
                write!(f, "the northbound database refused a transaction: {}", error.escape_debug())
            }
            Self::More { count } => write!(f, "{count} more conditions are not shown"),
            _ => Ok(()),
        }
    }

    /// Writes what is about remote networks and their next hops.
    fn fmt_networks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the caller passes these only")]
        match self {
            Self::NoManagementPort { family } => write!(
                f,
                "the management port has no {family} address, so that {family} packets for remote clusters are \
                 dropped: see ovn-k8s-mp0 on the gateway node"
            ),
            Self::NoNextHop { cluster, network, count } => write!(
                f,
                "networks of cluster {cluster} have no next hop ({count}, the first is {network}); packets for them are \
                 dropped until a gateway of the cluster set has one"
            ),
            Self::NextHopElsewhere { cluster, next_hop } => write!(
                f,
                "the GatewayRoute of cluster {cluster} leads to {next_hop}, which is not this zone's management port; \
                 packets for it are dropped until the gateway corrects the object"
            ),
            Self::BadNextHop { cluster, text } => {
                write!(f, "next hop {} of cluster {cluster} is no address; correct the object", quoted(text))
            }
            Self::Refused { cluster, network, why } => {
                write!(f, "network {} of cluster {cluster} is not routed: {why}", quoted(network))
            }
            Self::Connected { network, own } => write!(
                f,
                "remote network {network} is not routed: it overlaps {own}, which a port of OVN's router is on; give the \
                 clusters different networks or use globalnet"
            ),
            Self::Disputed { network, owner, claimant } => write!(
                f,
                "network {network} belongs to cluster {owner}, and cluster {claimant} names it too: give the clusters \
                 different networks or use globalnet"
            ),
            Self::TooManyNetworks { left_out } => write!(
                f,
                "{left_out} remote networks are more than are followed and leave this node as if there were no remote \
                 cluster: aggregate the clusters' networks"
            ),
            _ => Ok(()),
        }
    }
}

fn write_foreign(f: &mut fmt::Formatter<'_>, table: &str, key: &str, effect: Effect) -> fmt::Result {
    write!(f, "{table} {} has no {OWNER_KEY} in its external_ids and is left as it is: ", quoted(key))?;
    f.write_str(match effect {
        Effect::Same => "it does what ours would; nothing is to be done",
        Effect::Contradicts => "it contradicts ours, and which of them acts is not defined; remove it",
        Effect::Blocks => "ours cannot be made, and packets for remote clusters are dropped; remove it",
        Effect::Keeps => "it is on a router or switch of ours, which stays for it; remove it",
    })
}

/// Returns a text from outside as a condition may repeat it: in quotes, escaped, and cut.
fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_QUOTED).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
