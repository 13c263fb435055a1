//! What Submariner's own programs leave on a node, as it is read. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde_json::Value;

use crate::family::Family;
use crate::foreign::{Backend, is_ours, target};
use crate::nft::{self, protocol};
use crate::takeover::Takeover;

/// Submariner's table of nftables, in the families `ip` and `ip6`.
pub(crate) const NFT_TABLE: &str = "submariner";
/// Its IP sets for the size of TCP segments begin like this.
pub(crate) const AGENT_SETS: &str = "SUBMARINER-";
/// IP sets of its globalnet begin like this, and so do some of that one's chains.
const GLOBALNET_SETS: &str = "SM-GN-";
/// Chains of its globalnet have this in their names.
pub(crate) const GLOBALNET_PART: &str = "-GN-";

/// A table of iptables in which Submariner has chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// What may pass.
    Filter,
    /// Address translation.
    Nat,
    /// Changes of packets.
    Mangle,
}

impl Table {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Mangle => "mangle",
        }
    }
}

/// Submariner's chains in a table of iptables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chains {
    /// Their rules, as `iptables -S` prints them less `-A CHAIN `, by the chain.
    pub rules: BTreeMap<String, Vec<String>>,
    /// Rules of other chains that lead to them: chain and rule.
    pub jumps: Vec<(String, String)>,
}

impl Chains {
    /// Returns `true` if there is more in them than what ours has in chains of the same names.
    #[must_use]
    pub fn has_submariners(&self) -> bool {
        let mut rules = self.rules.values().flatten().chain(self.jumps.iter().map(|(_, rule)| rule));
        rules.any(|rule| !is_ours(rule))
    }
}

/// A policy of IPsec in the kernel, of the tunnel mode that Submariner's IPsec uses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpsecPolicy {
    /// Number by which the kernel finds it.
    pub index: u32,
    /// Direction (`XFRM_POLICY_*`).
    pub direction: u8,
    /// Network of the sender.
    pub source: IpNet,
    /// Network of the receiver.
    pub destination: IpNet,
}

/// Everything of Submariner's that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftover {
    /// Names of chains in nftables, those of iptables there included, by family and table.
    pub chains: BTreeMap<(Family, String), BTreeSet<String>>,
    /// Chains of iptables.
    pub iptables: BTreeMap<(Backend, Family, Table), Chains>,
    /// IP sets.
    pub sets: BTreeSet<String>,
    /// Policies of IPsec, whoever wrote them.
    pub policies: BTreeSet<IpsecPolicy>,
    /// Whether something could not be read.
    pub is_incomplete: bool,
}

impl Leftover {
    /// Returns `true` if nftables has a table of Submariner's.
    #[must_use]
    pub fn has_nft_table(&self) -> bool {
        self.chains.keys().any(|(_, table)| table == NFT_TABLE)
    }

    /// Returns `true` if nftables has chains in a table of iptables that may be removed.
    #[must_use]
    pub fn may_remove(&self, family: Family, table: Table, takeover: Takeover) -> bool {
        let chains = self.chains.get(&(family, table.name().to_owned()));
        chains.is_some_and(|chains| !belongs_to_gateway(table, chains.iter(), takeover))
    }
}

/// Returns `true` if chains of a table stay because Submariner's globalnet may run, beside its gateway: all of its chains hang
/// on that of the route agent.
pub(crate) fn belongs_to_gateway<'a>(
    table: Table,
    mut chains: impl Iterator<Item = &'a String>,
    takeover: Takeover,
) -> bool {
    table == Table::Nat && takeover < Takeover::Gateway && chains.any(|chain| chain.contains(GLOBALNET_PART))
}

/// Returns `true` for a name that Submariner gives to chains and IP sets.
#[must_use]
pub fn is_submariners(name: &str) -> bool {
    name.starts_with(AGENT_SETS) || name.starts_with(GLOBALNET_SETS)
}

/// Reads chains of Submariner's names, and all of its own table, from `nft -j list chains`.
#[must_use]
pub fn read_nft(listing: &Value) -> BTreeMap<(Family, String), BTreeSet<String>> {
    let mut found: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for chain in nft::objects(listing).filter_map(|object| object.get("chain")) {
        let text = |key: &str| chain.get(key).and_then(Value::as_str).unwrap_or_default();
        let (table, name) = (text("table"), text("name"));
        let family = Family::ALL.into_iter().find(|family| protocol(*family) == text("family"));
        if let Some(family) = family
            && (table == NFT_TABLE || is_submariners(name))
        {
            found.entry((family, table.to_owned())).or_default().insert(name.to_owned());
        }
    }
    found
}

/// Reads Submariner's chains from the output of `iptables -S`.
#[must_use]
pub fn read_iptables(listing: &str) -> Chains {
    let mut chains = Chains::default();
    for line in listing.lines() {
        let (verb, rest) = line.trim_end().split_once(' ').unwrap_or_default();
        let (chain, rule) = rest.split_once(' ').unwrap_or((rest, ""));
        if is_submariners(chain) {
            let rules = chains.rules.entry(chain.to_owned()).or_default();
            if verb == "-A" {
                rules.push(rule.to_owned());
            }
        } else if verb == "-A" && target(rule).is_some_and(is_submariners) {
            chains.jumps.push((chain.to_owned(), rule.to_owned()));
        }
    }
    chains
}
