//! Clusterset IPs: one address for a service of the whole set, which every node leads to where the service is served.
//!
//! ```text
//!  ServiceImports ─┐
//!  slices ─────────┼─▶ index ─▶ VirtualIps ─▶ driver ─▶ table inet trieste-clusterset
//!  Gateways ───────┘   (pure)    (published)
//! ```
//!
//! A node translates what its pods, and itself, send to such an address: to a pod of the own cluster where the service is
//! exported here and serves, else to the address by which a cluster that the gateways reach exports it. Which cluster that is,
//! is decided as for a name without a clusterset IP, by the same code (`trieste-dns`): own first, or as the export's
//! `trieste.io/routing` says. A cluster that is not reached any more gets no new connections; connections that it has stay as
//! they are, since connection tracking remembers them. Without kube-proxy it is the same.
//!
//! Only addresses of the set's range ([`crate::state::Node::clusterset_range`]) are led anywhere, whatever an import says: its
//! writers are other clusters. What is for an address of the range and led nowhere is refused with an ICMP error.
//!
//! * [`index`] — what follows from objects. * [`follow`] — the watches. * [`table`] — the nftables table.

pub mod follow;
pub mod index;
pub mod table;
mod virtual_ips;

use ipnet::IpNet;

use crate::condition::Condition;
use crate::state::Node;
use table::{ClustersetRules, DesiredClusterset};
pub use virtual_ips::{Clusterset, VirtualIps};

/// Returns the table that a node is to have, and what is in its way. A range that overlaps a network of the own cluster is left alone,
/// and the other family's led all the same.
pub(crate) fn desired(node: &Node, known: &Clusterset) -> (DesiredClusterset, Vec<Condition>) {
    let (mut usable, mut conditions) = (Vec::new(), Vec::new());
    for range in &node.clusterset_range {
        let overlaps = |network: &&IpNet| network.contains(range) || range.contains(*network);
        match node.local_networks().find(overlaps) {
            Some(network) => {
                conditions.push(Condition::ClustersetRange { range: *range, network: *network });
            }
            None => usable.push(*range),
        }
    }
    if usable.is_empty() {
        return (DesiredClusterset::Absent, conditions);
    }
    let range = IpNet::aggregate(&usable).into_iter().collect();
    let desired = match &known.ips {
        // Whoever follows the imports knows of all ranges.
        Some(ips) if !conditions.is_empty() => {
            DesiredClusterset::Rules(ClustersetRules { range, ips: ips.within(&usable).into() })
        }
        Some(ips) => DesiredClusterset::Rules(ClustersetRules { range, ips: ips.clone() }),
        None => DesiredClusterset::AsItIs { range },
    };
    conditions.extend(known.error.clone().map(|error| Condition::ClustersetAway { error }));
    (desired, conditions)
}

#[cfg(test)]
mod tests;
