//! The nftables table for clusterset IPs. Pure.
//!
//! ```text
//! table inet trieste-clusterset
//!   set range4, range6         the set's range of clusterset IPs
//!   set loops4, loops6         pods that may be led to themselves, as source and destination
//!   map frontends4, …6         clusterset IP, protocol and port ▸ a chain
//!   chain translate            prerouting, before kube-proxy: pods' packets get the destination that is drawn
//!   chain translate-own        output, likewise: this node's own packets
//!   chain refuse, refuse-own   forward and output: what is for the range all the same is refused with an ICMP error, and counted
//!   chain loops                postrouting: a pod that is led to itself gets this node's address as its source, as kube-proxy does
//!   chain b-…                  one for each list of targets: draws by client address and port
//! ```
//!
//! What was translated has another destination when it comes to `refuse`. Connection tracking turns the answers round, on the
//! node of the client, whatever gateways they come by. It is what the packet filter (`guard.rs`) sees like any other packet for
//! a remote cluster: its source stays, or becomes the node's address that is known there.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::virtual_ips::VirtualIps;
use crate::family::Family;
use crate::nft::{
    self, CLUSTERSET_TABLE, Element, Elements, TABLE_FAMILY, by_family, field, in_set, is, protocol,
};
use crate::services::structure::{PRIORITY_BEFORE_KUBE_PROXY, lookup, map, rule};
use crate::services::{ObservedServices, ServicesChange, Table, change, removal};

/// Where packets are usually filtered: after destination NAT.
const PRIORITY_FILTER: i32 = 0;
/// Before source NAT (100), after the packet filter's chain that keeps sources.
const PRIORITY_LOOPS: i32 = 95;

/// The desired content of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClustersetRules {
    /// The set's range of clusterset IPs, disjoint.
    pub range: BTreeSet<IpNet>,
    /// Where they lead.
    pub ips: std::sync::Arc<VirtualIps>,
}

/// The desired state of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DesiredClusterset {
    /// There is to be none.
    #[default]
    Absent,
    /// Where clusterset IPs lead is not known yet: it stays as it is, and where there is none, the range is refused.
    AsItIs {
        /// The set's range, disjoint.
        range: BTreeSet<IpNet>,
    },
    /// This.
    Rules(ClustersetRules),
}

/// Returns the change to make; `None` if there is none, or if the present state could not be read.
#[must_use]
pub fn clusterset_change(desired: &DesiredClusterset, observed: &ObservedServices) -> Option<ServicesChange> {
    match desired {
        DesiredClusterset::AsItIs { range } => {
            let closed = || table(&ClustersetRules { range: range.clone(), ..ClustersetRules::default() });
            change(closed, observed).filter(|_| *observed == ObservedServices::Absent)
        }
        DesiredClusterset::Absent => removal(CLUSTERSET_TABLE, observed),
        DesiredClusterset::Rules(rules) => change(|| table(rules), observed),
    }
}

/// Returns the table for these rules.
pub(super) fn table(rules: &ClustersetRules) -> Table {
    let picks = rules.ips.leads.iter().map(|(frontend, pick)| (*frontend, pick.clone()));
    Table::new(CLUSTERSET_TABLE, structure(), sets(rules), picks)
}

/// Returns the elements of each set.
fn sets(rules: &ClustersetRules) -> Elements {
    let mut sets = Elements::new();
    for network in &rules.range {
        sets.entry(by_family("range", network)).or_default().insert(Element::Net(*network));
    }
    for pod in &rules.ips.pods {
        let name = format!("loops{}", Family::of(*pod).digit());
        sets.entry(name).or_default().insert(Element::Loop(*pod));
    }
    sets
}

/// Returns everything but elements and the chains of targets, in the order in which it has to be made.
fn structure() -> Vec<Value> {
    let mut objects = vec![nft::table(CLUSTERSET_TABLE)];
    for family in Family::ALL {
        let address = format!("ipv{}_addr", family.digit());
        let counter = json!({"family": TABLE_FAMILY, "table": CLUSTERSET_TABLE, "name": refused(family)});
        objects.push(json!({"counter": counter}));
        objects.push(nft::set(CLUSTERSET_TABLE, (&format!("range{}", family.digit()), &address, true)));
        objects.push(json!({"set": {
            "family": TABLE_FAMILY, "table": CLUSTERSET_TABLE, "name": format!("loops{}", family.digit()),
            "type": [address, address],
        }}));
        objects.push(map(CLUSTERSET_TABLE, family));
    }
    let chains = [
        ("translate", ("nat", "prerouting", PRIORITY_BEFORE_KUBE_PROXY), translate as fn(Family) -> Value),
        ("translate-own", ("nat", "output", PRIORITY_BEFORE_KUBE_PROXY), translate),
        ("refuse", ("filter", "forward", PRIORITY_FILTER), refuse),
        ("refuse-own", ("filter", "output", PRIORITY_FILTER), refuse),
        ("loops", ("nat", "postrouting", PRIORITY_LOOPS), loops),
    ];
    for (name, hook, rule_of) in chains {
        objects.push(nft::base_chain(CLUSTERSET_TABLE, name, hook));
        objects.extend(Family::ALL.map(|family| rule(CLUSTERSET_TABLE, name, &rule_of(family))));
    }
    nft::sort(&mut objects);
    objects
}

fn translate(family: Family) -> Value {
    json!([lookup(family)])
}

fn refuse(family: Family) -> Value {
    let refusal = json!({"reject": {"type": "icmpx", "expr": "host-unreachable"}});
    json!([in_set(family, "daddr", "range"), {"counter": refused(family)}, refusal])
}

/// Names the counter of what is refused.
fn refused(family: Family) -> String {
    format!("refused{}", family.digit())
}

fn loops(family: Family) -> Value {
    let protocol = protocol(family);
    let both = json!({"concat": [field(protocol, "saddr"), field(protocol, "daddr")]});
    json!([is(&both, format!("@loops{}", family.digit())), {"masquerade": null}])
}

#[cfg(test)]
mod tests;
