//! What Submariner's own programs leave on a node whose place ours have taken: what is recognised, and what is removed. Pure.
//!
//! All of it is recognised by Submariner's names and numbers, policies of IPsec by their networks. It goes last in a plan:
//! ours is in place by then, so that no packet of an established flow is masqueraded or loses its route in between. What the
//! node's gateway wrote stays until that gateway is ours: Submariner's may still run beside our route agent.

use std::collections::BTreeSet;
use std::fmt;
use std::fmt::Write as _;

use ipnet::IpNet;
use trieste_control::devices::UPSTREAM_VXLAN_CABLE;
use trieste_vxlan::Vni;

use crate::family::Family;
use crate::foreign::{Backend, is_ours};
use crate::guard::ObservedGuard;
use crate::hostnet::{Guard, HostNet, Rule};
use crate::leftover::{
    AGENT_SETS, Chains, GLOBALNET_PART, IpsecPolicy, NFT_TABLE, Table, belongs_to_gateway,
};
use crate::nft::{Hook, protocol};
use crate::observed::Observed;
use crate::takeover::Takeover;

/// Ours: most policies that a line names.
const MOST_SHOWN: usize = 8;

/// One step of the removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// Removes chains of iptables and what leads to them, in one transaction.
    Chains {
        /// Which half of the kernel.
        backend: Backend,
        /// Which family.
        family: Family,
        /// Which table.
        table: Table,
        /// Lines for `iptables-restore --noflush`, without the table's own.
        lines: Vec<String>,
    },
    /// Removes the table of nftables.
    NftTable(Family),
    /// Removes an IP set.
    Set(String),
    /// Removes rules that Submariner wrote. Where one of ours of the same content is wanted it is in their place first.
    Rule {
        /// The rule.
        rule: Rule,
        /// Whether one of ours is wanted there.
        is_wanted: bool,
    },
    /// Removes the device of the VXLAN cable, and with it the routes that lead there.
    CableDevice,
    /// Removes policies of IPsec, and the security associations of their tunnels.
    Policies(BTreeSet<IpsecPolicy>),
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("remove what Submariner has left: ")?;
        match self {
            Self::Chains { backend, family, table, lines } => {
                write!(f, "iptables ({family}, {backend}) -t {}: {}", table.name(), lines.join("; "))
            }
            Self::NftTable(family) => write!(f, "nftables table {} {NFT_TABLE}", protocol(*family)),
            Self::Set(name) => write!(f, "IP set {name}"),
            Self::Rule { rule, is_wanted } => {
                rule.fmt(f)?;
                f.write_str(if *is_wanted { ", replaced by ours" } else { "" })
            }
            Self::CableDevice => write!(f, "device {UPSTREAM_VXLAN_CABLE}"),
            Self::Policies(policies) => {
                f.write_str("IPsec policies")?;
                let shown = policies.iter().take(MOST_SHOWN);
                shown.into_iter().try_for_each(|one| write!(f, " {} to {}", one.source, one.destination))?;
                let more = policies.len().saturating_sub(MOST_SHOWN);
                if more > 0 { write!(f, " and {more} more") } else { Ok(()) }
            }
        }
    }
}

/// Returns what is to be removed, in order: what uses something goes before it.
#[must_use]
pub fn removals(desired: &HostNet, observed: &Observed, takeover: Takeover) -> Vec<Removal> {
    if takeover == Takeover::Nothing || observed.guard == ObservedGuard::Unknown {
        return Vec::new();
    }
    let left = &observed.leftover;
    let mut removals = Vec::new();
    for ((backend, family, table), chains) in &left.iptables {
        let lines = removing(*table, chains, takeover);
        if !lines.is_empty() {
            removals.push(Removal::Chains { backend: *backend, family: *family, table: *table, lines });
        }
    }
    for ((family, table), chains) in &left.chains {
        let is_globalnets = chains.iter().any(|chain| chain.contains(GLOBALNET_PART));
        if table == NFT_TABLE && (takeover == Takeover::Gateway || !is_globalnets) {
            removals.push(Removal::NftTable(*family));
        }
    }
    removals.extend(rules(desired, observed, takeover));
    if takeover >= Takeover::Elsewhere {
        let cable = observed.links.get(UPSTREAM_VXLAN_CABLE).and_then(|link| link.vxlan.as_ref());
        removals
            .extend(cable.filter(|vxlan| vxlan.vni == Vni::GATEWAYS.value()).map(|_| Removal::CableDevice));
        let guard = desired.guard.as_ref();
        let between = |policy: &&IpsecPolicy| guard.is_some_and(|guard| is_between_clusters(policy, guard));
        let policies: BTreeSet<IpsecPolicy> = left.policies.iter().filter(between).cloned().collect();
        removals.extend((!policies.is_empty()).then_some(Removal::Policies(policies)));
    }
    let goes = |set: &&String| set.starts_with(AGENT_SETS) || takeover == Takeover::Gateway;
    if !left.is_incomplete {
        // Chains that could not be read may use them.
        removals.extend(left.sets.iter().filter(goes).cloned().map(Removal::Set));
    }
    removals
}

/// Returns Submariner's rules that are to go: the one that leads to our gateway table, and that of its VXLAN cable.
fn rules(desired: &HostNet, observed: &Observed, takeover: Takeover) -> impl Iterator<Item = Removal> {
    let there = observed.rules.iter().filter(|there| there.is_submariners()).map(|there| &there.rule);
    let goes = |rule: &&Rule| **rule == Rule::gateway(rule.family) || takeover >= Takeover::Elsewhere;
    let found: BTreeSet<Rule> = there.filter(goes).cloned().collect();
    found.into_iter().map(|rule| Removal::Rule { is_wanted: desired.rules.contains(&rule), rule })
}

/// Returns the lines that remove Submariner's chains from a table. Of those whose names ours have too, the rules go that are
/// not ours.
fn removing(table: Table, chains: &Chains, takeover: Takeover) -> Vec<String> {
    if belongs_to_gateway(table, chains.rules.keys(), takeover) {
        return Vec::new();
    }
    let is_shared =
        |chain: &str| table == Table::Filter && Hook::OF_IPTABLES.iter().any(|hook| hook.ours() == chain);
    let mut lines = Vec::new();
    for (chain, rule) in chains.jumps.iter().filter(|(_, rule)| !is_ours(rule)) {
        lines.push(format!("-D {chain} {rule}"));
    }
    let (shared, own): (Vec<_>, Vec<_>) = chains.rules.iter().partition(|(chain, _)| is_shared(chain));
    for (chain, rules) in shared {
        lines.extend(rules.iter().filter(|rule| !is_ours(rule)).map(|rule| format!("-D {chain} {rule}")));
    }
    lines.extend(own.iter().map(|(chain, _)| format!("-F {chain}")));
    lines.extend(own.iter().map(|(chain, _)| format!("-X {chain}")));
    lines
}

/// Returns `true` for a policy between a network of this cluster and one of a remote cluster.
fn is_between_clusters(policy: &IpsecPolicy, guard: &Guard) -> bool {
    let is_in =
        |network: &IpNet, networks: &BTreeSet<IpNet>| networks.iter().any(|one| one.contains(network));
    let (source, destination) = (&policy.source, &policy.destination);
    (is_in(source, &guard.local) && is_in(destination, &guard.remote))
        || (is_in(source, &guard.remote) && is_in(destination, &guard.local))
}

/// Renders lines as the input of `iptables-restore --noflush`.
#[must_use]
pub fn render(table: Table, lines: &[String]) -> String {
    let mut text = format!("*{}\n", table.name());
    for line in lines {
        // A String takes everything.
        let _ = writeln!(text, "{line}");
    }
    text.push_str("COMMIT\n");
    text
}

#[cfg(test)]
mod tests;
