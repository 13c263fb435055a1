//! Security rules: what is wanted of a network security group, what of it is there, and with which priorities the rest comes.
//!
//! A group's rules are asked in the order of their priorities, from 100 to 4096, one order per direction, and the first that fits
//! decides. Networks of both families cannot be in one rule (Azure's documentation, "Network security groups").

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::names::{CABLES, INSIDE};
use crate::rules::{From, Rule, Traffic, Wanted};

/// Azure's bounds of priorities.
const FIRST: u64 = 100;
const LAST: u64 = 4096;
/// Where upstream's priorities begin: of rules inside a cluster, and of those for cables.
const INSIDE_FROM: u64 = 2500;
const CABLES_FROM: u64 = 3500;
/// Azure's word for all addresses of a virtual network and of what it is joined to.
const VIRTUAL_NETWORK: &str = "VirtualNetwork";
/// Azure's word for everything.
const ANY: &str = "*";

/// A rule that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedRule {
    /// Its name, which is upstream's where upstream has such a rule.
    pub(super) name: String,
    protocol: &'static str,
    port: String,
    sources: Vec<String>,
    destinations: Vec<String>,
    is_inbound: bool,
    from_priority: u64,
}

/// The two ends of some traffic, as far as one rule can have them.
#[derive(Debug, Clone)]
struct Ends {
    /// What is added to the rule's name.
    family: &'static str,
    outside: Vec<String>,
    own: Vec<String>,
}

impl Ends {
    fn both(word: &str) -> Self {
        Self { family: "", outside: vec![word.to_owned()], own: vec![word.to_owned()] }
    }
}

/// Returns the rules for what passes between the nodes of a cluster.
pub(super) fn inside(wanted: &Wanted) -> Vec<WantedRule> {
    let nodes = Ends::both(VIRTUAL_NETWORK);
    let rules = wanted.inside();
    rules.iter().flat_map(|rule| both_directions(INSIDE, rule.traffic, &nodes)).collect()
}

/// Returns the rules for cables to gateways with these addresses; `None` is every machine to which the group belongs.
pub(super) fn cables(wanted: &Wanted, gateways: Option<&BTreeSet<IpAddr>>) -> Vec<WantedRule> {
    let rules = wanted.cables();
    let mut all = Vec::new();
    let mut seen = BTreeSet::new();
    for traffic in rules.iter().map(|rule| rule.traffic).filter(|traffic| seen.insert(*traffic)) {
        for ends in ends(&rules, traffic, gateways) {
            all.extend(both_directions(CABLES, traffic, &ends));
        }
    }
    all
}

/// Returns the ends of some traffic, once for each rule that they need.
fn ends(rules: &[Rule], traffic: Traffic, gateways: Option<&BTreeSet<IpAddr>>) -> Vec<Ends> {
    let mut networks = Vec::new();
    for rule in rules.iter().filter(|rule| rule.traffic == traffic) {
        match rule.from {
            From::Network(network) => networks.push(network),
            From::Nodes => return vec![Ends::both(VIRTUAL_NETWORK)],
        }
    }
    // Azure refuses networks of one rule that overlap.
    let networks = IpNet::aggregate(&networks);
    let of_family = |is_v4: bool| -> Vec<IpNet> {
        networks.iter().copied().filter(|network| network.addr().is_ipv4() == is_v4).collect()
    };
    let is_everything = |networks: &[IpNet]| networks.iter().any(|network| network.prefix_len() == 0);
    let (v4, v6) = (of_family(true), of_family(false));
    if gateways.is_none() && is_everything(&v4) && is_everything(&v6) {
        return vec![Ends::both(ANY)];
    }
    let mut all = Vec::new();
    for (is_v4, family, networks) in [(true, "", v4), (false, "-IPv6", v6)] {
        let own: Vec<String> = match gateways {
            None => vec![ANY.to_owned()],
            Some(addresses) => {
                let fitting = addresses.iter().filter(|address| address.is_ipv4() == is_v4);
                fitting.map(|address| IpNet::from(*address).to_string()).collect()
            }
        };
        if !networks.is_empty() && !own.is_empty() {
            all.push(Ends { family, outside: networks.iter().map(ToString::to_string).collect(), own });
        }
    }
    all
}

/// Returns a rule for each direction, with upstream's names.
fn both_directions(prefix: &str, traffic: Traffic, ends: &Ends) -> [WantedRule; 2] {
    let (protocol, of_name, port) = match traffic {
        Traffic::Udp(port) => ("Udp", format!("udp-{port}"), port.to_string()),
        Traffic::Esp => ("Esp", "esp-0".to_owned(), ANY.to_owned()),
    };
    let from_priority = if prefix == INSIDE { INSIDE_FROM } else { CABLES_FROM };
    let rule = |direction: &str, sources: &[String], destinations: &[String]| WantedRule {
        name: format!("{prefix}{of_name}-{direction}{}", ends.family),
        protocol,
        port: port.clone(),
        sources: sources.to_vec(),
        destinations: destinations.to_vec(),
        is_inbound: direction == "Inbound",
        from_priority,
    };
    [rule("Inbound", &ends.outside, &ends.own), rule("Outbound", &ends.own, &ends.outside)]
}

impl WantedRule {
    fn direction(&self) -> &'static str {
        if self.is_inbound { "Inbound" } else { "Outbound" }
    }

    /// Returns it as the API has it.
    pub(super) fn rule(&self, priority: u64) -> Value {
        let mut properties = json!({
            "protocol": self.protocol,
            "sourcePortRange": ANY,
            "destinationPortRange": self.port,
            "access": "Allow",
            "direction": self.direction(),
            "priority": priority,
        });
        for (end, prefixes) in [("source", &self.sources), ("destination", &self.destinations)] {
            match prefixes.as_slice() {
                [one] => properties[format!("{end}AddressPrefix")] = json!(one),
                several => properties[format!("{end}AddressPrefixes")] = json!(several),
            }
        }
        json!({"name": self.name, "properties": properties})
    }
}

/// What is to be done with a group's rules.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RuleChange {
    /// Makes a rule, or replaces one of the same name.
    Put(Value),
    /// Removes a rule.
    Delete(String),
}

/// Returns what a group lacks of what is wanted of it, after what it has of an earlier preparation and is not wanted any more. `None`
/// if there is no priority left.
pub(super) fn missing(group: &Value, wanted: &[WantedRule]) -> Option<Vec<RuleChange>> {
    let found = rules(group);
    let is_named = |rule: &Value, name: &str| self::name(rule).eq_ignore_ascii_case(name);
    let mut changes: Vec<RuleChange> = found
        .iter()
        .filter(|rule| is_ours(rule) && !wanted.iter().any(|wanted| is_named(rule, &wanted.name)))
        .map(|rule| RuleChange::Delete(name(rule).to_owned()))
        .collect();
    let mut taken: BTreeSet<(bool, u64)> = found.iter().filter_map(priority).collect();
    for wanted in wanted {
        let same = found.iter().find(|rule| is_named(rule, &wanted.name));
        if same.is_some_and(|same| meaning(same) == meaning(&wanted.rule(0))) {
            continue;
        }
        let own = same.and_then(priority).filter(|(is_inbound, _)| *is_inbound == wanted.is_inbound);
        let priority = match own {
            Some((_, priority)) => priority,
            None => free(&taken, wanted)?,
        };
        taken.insert((wanted.is_inbound, priority));
        changes.push(RuleChange::Put(wanted.rule(priority)));
    }
    Some(changes)
}

/// Returns the rules of a group that does not exist yet.
pub(super) fn all(wanted: &[WantedRule]) -> Vec<Value> {
    let changes = missing(&Value::Null, wanted).unwrap_or_default();
    let put = |change| match change {
        RuleChange::Put(rule) => Some(rule),
        RuleChange::Delete(_) => None,
    };
    changes.into_iter().filter_map(put).collect()
}

/// Returns the names of rules of others that refuse what is wanted before it is let pass.
pub(super) fn refusing<'g>(group: &'g Value, wanted: &[WantedRule]) -> Vec<&'g str> {
    let refuses = |rule: &Value, wanted: &WantedRule| {
        let (is_inbound, before) = priority(rule).unwrap_or_default();
        let protocol = rule["properties"]["protocol"].as_str().unwrap_or_default();
        rule["properties"]["access"].as_str().is_some_and(|access| access.eq_ignore_ascii_case("Deny"))
            && is_inbound == wanted.is_inbound
            && before < wanted.from_priority
            && (protocol == ANY || protocol.eq_ignore_ascii_case(wanted.protocol))
            && prefixes(rule, "destinationPort", "Range").is_superset(&BTreeSet::from([ANY.to_owned()]))
            && prefixes(rule, "sourceAddress", "Prefix").contains(ANY)
    };
    let of_group = rules(group).iter().filter(|rule| wanted.iter().any(|wanted| refuses(rule, wanted)));
    of_group.map(name).collect()
}

/// Returns `true` if a group has a rule that no preparation has made.
pub(super) fn has_others(group: &Value) -> bool {
    rules(group).iter().any(|rule| !is_ours(rule))
}

fn rules(group: &Value) -> &[Value] {
    group["properties"]["securityRules"].as_array().map_or(&[], Vec::as_slice)
}

fn name(rule: &Value) -> &str {
    rule["name"].as_str().unwrap_or_default()
}

/// Returns `true` for a rule of a preparation, upstream's included: its name begins as theirs.
fn is_ours(rule: &Value) -> bool {
    let begins =
        |prefix: &str| name(rule).get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix));
    begins(INSIDE) || begins(CABLES)
}

fn priority(rule: &Value) -> Option<(bool, u64)> {
    let properties = &rule["properties"];
    let is_inbound = properties["direction"].as_str()?.eq_ignore_ascii_case("Inbound");
    Some((is_inbound, properties["priority"].as_u64()?))
}

/// Returns a priority that no rule of the same direction has: upstream's or the next after it, else one before it.
fn free(taken: &BTreeSet<(bool, u64)>, wanted: &WantedRule) -> Option<u64> {
    let after = wanted.from_priority..=LAST;
    let before = (FIRST..wanted.from_priority).rev();
    after.chain(before).find(|priority| !taken.contains(&(wanted.is_inbound, *priority)))
}

/// What a rule lets pass, however it is written. Its priority is no part of it.
#[derive(Debug, PartialEq, Eq)]
struct Meaning {
    words: [String; 3],
    source_ports: BTreeSet<String>,
    ports: BTreeSet<String>,
    sources: BTreeSet<String>,
    destinations: BTreeSet<String>,
}

fn meaning(rule: &Value) -> Meaning {
    let word = |field: &str| rule["properties"][field].as_str().unwrap_or_default().to_ascii_lowercase();
    Meaning {
        words: ["protocol", "access", "direction"].map(word),
        source_ports: prefixes(rule, "sourcePort", "Range"),
        ports: prefixes(rule, "destinationPort", "Range"),
        sources: prefixes(rule, "sourceAddress", "Prefix"),
        destinations: prefixes(rule, "destinationAddress", "Prefix"),
    }
}

/// Returns what stands in a field for one value and in the one for several, in one writing.
fn prefixes(rule: &Value, field: &str, of: &str) -> BTreeSet<String> {
    let one = &rule["properties"][format!("{field}{of}")];
    let plural = if of == "Prefix" { "Prefixes" } else { "Ranges" };
    let several = rule["properties"][format!("{field}{plural}")].as_array().map_or(&[][..], Vec::as_slice);
    let texts = std::iter::once(one).chain(several).filter_map(Value::as_str).filter(|text| !text.is_empty());
    texts.map(normal).collect()
}

fn normal(text: &str) -> String {
    if let Ok(network) = text.parse::<IpNet>() {
        return network.trunc().to_string();
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return IpNet::from(address).to_string();
    }
    match text.split_once('-') {
        Some((first, last)) if first == last => first.to_owned(),
        _ => text.to_ascii_lowercase(),
    }
}
