//! Other programs' packet filters: what of ours has to be in them, and what has to change. Pure.
//!
//! An `accept` in our own table ends only our own chains; a policy or rule of another table still drops the packet. So
//! what has to pass is let through where it would be dropped: in the `filter` table of iptables by chains with
//! upstream's names, in firewalld's table by rules at the front. Every rule of ours says so in its comment. Base
//! chains are never made here: where no table is, nothing is in the way.
//!
//! Where a program decides by iptables which pods may talk (Calico, kube-router, Weave), its jumps stay before ours,
//! and what enters from remote clusters is left to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value, json};

use crate::condition::Condition;
use crate::family::Family;
use crate::hostnet::Pass;
use crate::nft::{
    self, BaseChain, GUARD_TABLE, Hook, PRIORITY_FIRST_NAT, SourceNat, TABLE_FAMILY, Transaction, field, is,
    protocol,
};

/// Marks rules as ours.
const COMMENT: &str = "trieste";
/// Chains of programs that decide which pods may talk begin like this.
const POLICY_ENGINES: [&str; 4] = ["cali-", "KUBE-ROUTER-", "KUBE-NWPLCY-", "WEAVE-NPC"];
/// firewalld's table.
pub const FIREWALLD: (&str, &str) = ("inet", "firewalld");

/// Which half of the kernel holds an iptables table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// nftables.
    Nft,
    /// The older half.
    Legacy,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nft => "nft",
            Self::Legacy => "legacy",
        })
    }
}

/// The `filter` table of iptables in one family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Iptables {
    /// Base chains that exist.
    pub hooks: BTreeSet<Hook>,
    /// Rules of the base chains and of the chains with our names, as `iptables -S` prints them less `-A CHAIN `. A
    /// chain that exists is named, also without rules.
    pub chains: BTreeMap<String, Vec<String>>,
    /// Whether a program decides here which pods may talk.
    pub has_policy_engine: bool,
    /// Whether there is more in it than what is ours: a rule, or a policy that drops.
    pub is_in_use: bool,
}

/// A rule of nftables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NftRule {
    /// Its number.
    pub handle: u64,
    /// Its comment, or nothing.
    pub comment: String,
    /// Its expressions, as `nft -j` reports them.
    pub expr: Value,
}

/// Other programs' packet filters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Foreign {
    /// Base chains for input, forwarding and prerouting, of nftables, iptables' there included.
    pub base_chains: BTreeSet<BaseChain>,
    /// Chains that may decide about a source before ours does.
    pub earlier: BTreeSet<SourceNat>,
    /// iptables, where it has such a table.
    pub iptables: BTreeMap<(Backend, Family), Iptables>,
    /// firewalld's chains, where they exist.
    pub firewalld: BTreeMap<Hook, Vec<NftRule>>,
    /// Whether firewalld alone may write there (version 2.1 and later, unless configured otherwise).
    pub is_firewalld_owned: bool,
}

impl Foreign {
    /// Returns `true` if iptables has a base chain in nftables.
    #[must_use]
    pub fn has_iptables_chain(&self, family: Family, hook: Hook) -> bool {
        let is_it = |chain: &BaseChain| chain.family == protocol(family) && chain.table == "filter";
        self.base_chains.iter().any(|chain| is_it(chain) && chain.name == hook.iptables())
    }
}

/// A change to another program's packet filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForeignChange {
    /// A command of iptables, for the `filter` table.
    Iptables {
        /// Which half of the kernel.
        backend: Backend,
        /// Which family.
        family: Family,
        /// The arguments, `-A`, chain and rule for instance.
        arguments: Vec<String>,
    },
    /// A transaction of nftables on a chain of firewalld.
    Firewalld {
        /// The chain.
        hook: Hook,
        /// Numbers of the rules to remove.
        remove: Vec<u64>,
        /// Rules to put at the front, in this order.
        insert: Vec<Value>,
    },
}

impl ForeignChange {
    /// Returns `true` if both are the same change, apart from the numbers of the rules.
    #[must_use]
    pub fn repeats(&self, last: &Self) -> bool {
        match (self, last) {
            (
                Self::Firewalld { hook, remove, insert },
                Self::Firewalld { hook: last_hook, remove: last_remove, insert: last_insert },
            ) => (hook, remove.len(), insert) == (last_hook, last_remove.len(), last_insert),
            _ => self == last,
        }
    }
}

impl fmt::Display for ForeignChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iptables { backend, family, arguments } => {
                write!(f, "iptables ({family}, {backend}) {}", arguments.join(" "))
            }
            Self::Firewalld { hook, remove, insert } => {
                let (family, table) = FIREWALLD;
                write!(f, "nftables chain {family} {table} {}", hook.firewalld())?;
                write!(f, ": {} rules at the front, {} removed", insert.len(), remove.len())
            }
        }
    }
}

/// Renders a change of firewalld's chains as the input of `nft -j -f -`; `None` for a change of iptables.
#[must_use]
pub fn render(change: &ForeignChange) -> Option<Transaction> {
    let ForeignChange::Firewalld { hook, remove, insert } = change else { return None };
    let (family, table) = FIREWALLD;
    let chain = hook.firewalld();
    let removed = remove.iter().map(|handle| {
        json!({"delete": {"rule": {"family": family, "table": table, "chain": chain, "handle": handle}}})
    });
    // Each goes to the front: the last one first.
    let inserted = insert.iter().rev().map(|expr| {
        json!({"insert": {"rule": {
            "family": family, "table": table, "chain": chain, "comment": COMMENT, "expr": expr,
        }}})
    });
    Some(removed.chain(inserted).collect())
}

/// Returns the changes to make, and the chains that stay in the way.
#[must_use]
pub fn foreign_changes(pass: &Pass, there: &Foreign) -> (Vec<ForeignChange>, BTreeSet<Condition>) {
    let mut changes = Vec::new();
    for ((backend, family), table) in &there.iptables {
        let commands = Hook::OF_IPTABLES.iter().flat_map(|hook| iptables_commands(*hook, pass, table));
        changes.extend(commands.map(|arguments| ForeignChange::Iptables {
            backend: *backend,
            family: *family,
            arguments,
        }));
    }
    let mut conditions = in_the_way(pass, there);
    let legacy =
        there.iptables.iter().filter(|((backend, _), table)| *backend == Backend::Legacy && table.is_in_use);
    conditions.extend(legacy.map(|((_, family), _)| Condition::LegacyIptables(*family)));
    let mine = there.firewalld.iter().filter_map(|(hook, rules)| firewalld_change(*hook, pass, rules));
    if !there.is_firewalld_owned {
        changes.extend(mine);
    } else if mine.count() > 0 {
        // The kernel would refuse.
        conditions.insert(Condition::FirewalldOwned);
    }
    (changes, conditions)
}

/// Returns what must pass at a hook as iptables rules, less `-A CHAIN `.
fn wanted(hook: Hook, pass: &Pass, has_policy_engine: bool) -> Vec<String> {
    let accept = format!("-m comment --comment {COMMENT} -j ACCEPT");
    match hook {
        Hook::Input => {
            pass.ports.iter().map(|port| format!("-p udp -m udp --dport {port} {accept}")).collect()
        }
        Hook::Forward => {
            let outward = pass.outward.iter().map(|device| format!("-o {device} {accept}"));
            let inward = pass.inward.iter().filter(|_| !has_policy_engine);
            outward.chain(inward.map(|device| format!("-i {device} {accept}"))).collect()
        }
        Hook::Prerouting => Vec::new(),
    }
}

fn jump(hook: Hook) -> String {
    let protocol = if hook == Hook::Input { "-p udp " } else { "" };
    format!("{protocol}-m comment --comment {COMMENT} -j {}", hook.ours())
}

/// Returns `true` for a rule of ours, as `iptables -S` prints it.
pub(crate) fn is_ours(rule: &str) -> bool {
    rule.contains(&format!("--comment {COMMENT} "))
}

fn iptables_commands(hook: Hook, pass: &Pass, table: &Iptables) -> Vec<Vec<String>> {
    let wanted = match table.hooks.contains(&hook) {
        true => wanted(hook, pass, table.has_policy_engine),
        false => Vec::new(),
    };
    let (base, chain) = (hook.iptables(), hook.ours());
    let none = Vec::new();
    let in_base = table.chains.get(base).unwrap_or(&none);
    let in_chain = table.chains.get(chain);
    let mut commands = Vec::new();
    let mut command = |verb: &str, chain: &str, number: Option<usize>, rule: &str| {
        let number = number.map(|number| number.to_string());
        let words = [verb, chain].into_iter().chain(number.as_deref()).chain(rule.split_whitespace());
        commands.push(words.map(str::to_owned).collect());
    };
    if !wanted.is_empty() {
        if in_chain.is_none() {
            command("-N", chain, None, "");
        }
        let there = in_chain.unwrap_or(&none);
        for rule in wanted.iter().filter(|rule| !there.contains(rule)) {
            command("-A", chain, None, rule);
        }
        // After the last jump of theirs, wherever it is: what is accepted before it, they do not see.
        let others: Vec<&String> = in_base.iter().filter(|rule| **rule != jump(hook)).collect();
        let place = others.iter().rposition(|rule| is_policy_engines(rule)).map_or(0, |last| last + 1);
        let is_placed = in_base.get(place) == Some(&jump(hook));
        let jumps = in_base.iter().filter(|rule| **rule == jump(hook)).count();
        if !is_placed || jumps != 1 {
            for _ in 0..jumps {
                command("-D", base, None, &jump(hook));
            }
            command("-I", base, Some(place + 1), &jump(hook));
        }
    } else {
        for rule in in_base.iter().filter(|rule| is_ours(rule) && rule.ends_with(chain)) {
            command("-D", base, None, rule);
        }
    }
    for rule in in_chain.unwrap_or(&none).iter().filter(|rule| is_ours(rule) && !wanted.contains(rule)) {
        command("-D", chain, None, rule);
    }
    let is_foreign = |rules: &[String], ends: &str| rules.iter().any(|r| !is_ours(r) && r.ends_with(ends));
    let is_in_use = in_chain.is_none_or(|rules| is_foreign(rules, "")) || is_foreign(in_base, chain);
    if wanted.is_empty() && !is_in_use {
        command("-X", chain, None, "");
    }
    commands
}

/// Returns `true` if a rule leads to a program that decides which pods may talk.
fn is_policy_engines(rule: &str) -> bool {
    target(rule).is_some_and(is_of_policy_engine)
}

/// Returns the chain that a rule leads to. A comment, which is in quotation marks if it has a space, may say anything.
pub(crate) fn target(rule: &str) -> Option<&str> {
    let (mut is_quoted, mut is_next) = (false, false);
    for word in rule.split_whitespace() {
        if is_next {
            return Some(word);
        }
        is_next = !is_quoted && matches!(word, "-j" | "-g");
        is_quoted ^= word.replace("\\\"", "").matches('"').count() % 2 == 1;
    }
    None
}

/// Returns `true` if a chain belongs to a program that decides which pods may talk.
#[must_use]
pub fn is_of_policy_engine(chain: &str) -> bool {
    POLICY_ENGINES.iter().any(|prefix| chain.starts_with(prefix))
}

fn firewalld_change(hook: Hook, pass: &Pass, rules: &[NftRule]) -> Option<ForeignChange> {
    let by = |key: &str, device: &String| json!([is(&json!({"meta": {"key": key}}), device.as_str()), {"accept": null}]);
    let insert: Vec<Value> = match hook {
        Hook::Input => {
            let to = |port: &u16| json!([is(&field("udp", "dport"), *port), {"accept": null}]);
            pass.ports.iter().map(to).collect()
        }
        Hook::Forward => {
            let outward = pass.outward.iter().map(|device| by("oifname", device));
            outward.chain(pass.inward.iter().map(|device| by("iifname", device))).collect()
        }
        // It drops IPv6 that comes by another way than the main table has back; `source-guard` drops sources that may not come so.
        Hook::Prerouting => pass.inward.iter().map(|device| by("iifname", device)).collect(),
    };
    let front = rules.iter().take_while(|rule| rule.comment == COMMENT).map(|rule| &rule.expr);
    let ours = rules.iter().filter(|rule| rule.comment == COMMENT);
    if front.eq(insert.iter()) && ours.clone().count() == insert.len() {
        return None;
    }
    let remove = ours.map(|rule| rule.handle).collect();
    Some(ForeignChange::Firewalld { hook, remove, insert })
}

/// Names the chains that drop by policy and that nothing of ours can be put into.
fn in_the_way(pass: &Pass, there: &Foreign) -> BTreeSet<Condition> {
    let is_helped = |chain: &BaseChain| {
        let family = Family::ALL.into_iter().find(|family| protocol(*family) == chain.family);
        let by_iptables = chain.table == "filter"
            && chain.name == chain.hook.iptables()
            && family.is_some_and(|family| there.iptables.contains_key(&(Backend::Nft, family)));
        by_iptables || (chain.family.as_str(), chain.table.as_str()) == FIREWALLD
    };
    let is_needed = |hook: Hook| match hook {
        Hook::Input => !pass.ports.is_empty(),
        Hook::Forward => !pass.outward.is_empty() || !pass.inward.is_empty(),
        Hook::Prerouting => false,
    };
    let dropping = there.base_chains.iter().filter(|chain| chain.drops && is_needed(chain.hook));
    dropping.filter(|chain| !is_helped(chain)).cloned().map(Condition::ForeignDrop).collect()
}

/// Reads base chains of the hooks from `nft -j list chains`, our own left out.
#[must_use]
pub fn read_base_chains(listing: &Value) -> BTreeSet<BaseChain> {
    let read = |chain: &Value| {
        Some(BaseChain {
            family: text(chain, "family")?,
            table: text(chain, "table")?,
            name: text(chain, "name")?,
            hook: Hook::named(&text(chain, "hook")?)?,
            drops: text(chain, "policy")? == "drop",
        })
    };
    others_chains(listing).filter_map(read).collect()
}

/// Reads chains that the kernel may ask about a source before ours from `nft -j list chains`. Of two with one priority the later
/// one comes first, and nothing in a listing shows which that is.
#[must_use]
pub fn read_earlier(listing: &Value) -> BTreeSet<SourceNat> {
    let read = |chain: &Value| {
        let is_it = text(chain, "type")? == "nat" && text(chain, "hook")? == "postrouting";
        let priority = chain.get("prio")?.as_i64()?;
        let read = SourceNat {
            family: text(chain, "family")?,
            table: text(chain, "table")?,
            name: text(chain, "name")?,
            priority,
        };
        (is_it && priority <= i64::from(PRIORITY_FIRST_NAT)).then_some(read)
    };
    others_chains(listing).filter_map(read).collect()
}

/// Returns the chains of a listing that IP packets may enter, those of our packet filter left out.
fn others_chains(listing: &Value) -> impl Iterator<Item = &Value> {
    let is_others = |chain: &&Value| {
        let [family, table] = ["family", "table"].map(|key| chain.get(key).and_then(Value::as_str));
        matches!(family, Some("ip" | "ip6" | "inet"))
            && (family, table) != (Some(TABLE_FAMILY), Some(GUARD_TABLE))
    };
    nft::objects(listing).filter_map(|object| object.get("chain")).filter(is_others)
}

fn text(chain: &Value, key: &str) -> Option<String> {
    chain.get(key).and_then(Value::as_str).map(str::to_owned)
}

/// Returns `true` if, by `nft list table`, only the program that made a table may write there. Read as text: nft 1.0.6 prints
/// something else for a table's flags in JSON.
#[must_use]
pub fn is_owned(listing: &str) -> bool {
    let flags = listing.lines().filter_map(|line| line.trim().strip_prefix("flags "));
    flags.flat_map(|flags| flags.trim_end_matches(';').split(',')).any(|flag| flag.trim() == "owner")
}

/// Reads rules from `nft -a -j list chain`.
#[must_use]
pub fn read_rules(listing: &Value) -> Vec<NftRule> {
    let read = |object: &Value| {
        let rule = object.get("rule")?;
        let comment = rule.get("comment").and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(NftRule { handle: rule.get("handle")?.as_u64()?, comment, expr: rule.get("expr")?.clone() })
    };
    nft::objects(listing).filter_map(read).collect()
}

/// Reads the output of `iptables -S`.
#[must_use]
pub fn read_iptables(listing: &str) -> Iptables {
    let mut table = Iptables::default();
    let is_wanted =
        |chain: &str| Hook::OF_IPTABLES.iter().any(|hook| [hook.iptables(), hook.ours()].contains(&chain));
    for line in listing.lines() {
        let (verb, rest) = line.split_once(' ').unwrap_or_default();
        let (chain, rule) = rest.split_once(' ').unwrap_or((rest, ""));
        table.has_policy_engine |= verb == "-N" && is_of_policy_engine(chain);
        table.is_in_use |= (verb == "-A" && !is_ours(rule)) || (verb == "-P" && rule == "DROP");
        if verb == "-P" {
            table.hooks.extend(Hook::OF_IPTABLES.into_iter().filter(|hook| hook.iptables() == chain));
        }
        if is_wanted(chain) {
            let rules = table.chains.entry(chain.to_owned()).or_default();
            if verb == "-A" {
                rules.push(rule.trim_end().to_owned());
            }
        }
    }
    table
}

#[cfg(test)]
mod tests;
