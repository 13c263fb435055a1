//! Reads `nft -j list ruleset` and keeps what can stop a packet: rules that drop or refuse, chains that drop what they
//! do not accept, and our own counters. Sans-IO.
//!
//! iptables over nftables appears there too. What a rule asks for and is not understood is kept as `other`: such a
//! rule may or may not match, and only its counter tells.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Ours: most rules that are kept of each kind; a node with a busy network policy has hundreds.
const MAX_RULES: usize = 1024;
/// Ours: most chains that are followed.
const MAX_CHAINS: usize = 65_536;
/// Ours: longest rendering of a rule in bytes.
const MAX_TEXT: usize = 300;
/// The table of the route agent.
const OWN_TABLE: &str = "trieste";

/// A node's packet filters, as far as they stop packets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Filters {
    /// Whether they could be read.
    pub readable: bool,
    /// Named counters of tables of ours, such as `spoofed4`, in packets.
    pub counters: BTreeMap<String, u64>,
    /// Base chains that drop what they do not accept.
    pub closed: Vec<ClosedChain>,
    /// Rules that drop or refuse.
    pub drops: Vec<DropRule>,
    /// Rules that give packets another source.
    pub translations: Vec<DropRule>,
}

/// A base chain whose policy is to drop.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClosedChain {
    /// `family table chain`.
    pub name: String,
    /// `input`, `forward`, `output` and so on.
    pub hook: String,
}

/// A rule that ends a packet's way, or changes its source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DropRule {
    /// `family table chain`.
    pub chain: String,
    /// The hooks from which the chain is reached.
    pub hooks: BTreeSet<String>,
    /// What it asks for, all of which must hold.
    pub matches: Vec<Match>,
    /// The rule, for people.
    pub text: String,
    /// Its number in the chain's listing (`nft -a list ruleset`), by which it is removed.
    pub handle: u64,
    /// How many packets it took; absent without a counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
}

/// One thing that a rule asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Match {
    /// `saddr`, `daddr`, `sport`, `dport`, `protocol`, `iif`, `oif`, or `other`.
    pub field: String,
    /// Whether none of the values must hold.
    pub negated: bool,
    /// The values, any of which will do: addresses, networks, numbers, `a-b`, names.
    pub values: Vec<String>,
}

/// A packet, as rules look at it.
#[derive(Debug, Clone, Default)]
pub struct PacketFacts<'a> {
    /// Its source.
    pub source: Option<IpAddr>,
    /// Its destination.
    pub destination: Option<IpAddr>,
    /// `udp`, `icmp`, `icmpv6`, `tcp`.
    pub protocol: &'a str,
    /// Its destination port.
    pub port: Option<u16>,
    /// The device that it came by.
    pub from: Option<&'a str>,
    /// The device that it leaves by.
    pub to: Option<&'a str>,
}

/// Whether a rule takes a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Takes {
    /// It does not.
    No,
    /// It asks for something that is not known here.
    Perhaps,
    /// It does.
    Yes,
}

impl DropRule {
    /// Whether the rule takes a packet at a hook.
    #[must_use]
    pub fn takes(&self, hook: &str, packet: &PacketFacts<'_>) -> Takes {
        if !self.hooks.contains(hook) {
            return Takes::No;
        }
        self.matches.iter().map(|each| each.holds(packet)).min().unwrap_or(Takes::Yes)
    }
}

impl Match {
    fn holds(&self, packet: &PacketFacts<'_>) -> Takes {
        let any = |holds: &dyn Fn(&str) -> Option<bool>| {
            let found = self.values.iter().map(|value| holds(value)).collect::<Vec<_>>();
            match (found.contains(&Some(true)), found.contains(&None)) {
                (true, _) => Some(true),
                (false, true) => None,
                (false, false) => Some(false),
            }
        };
        let address = |address: Option<IpAddr>| any(&|value| contains(value, address?));
        let name = |name: Option<&str>| any(&|value| name.map(|name| is_device(value, name)));
        let found = match self.field.as_str() {
            "saddr" => address(packet.source),
            "daddr" => address(packet.destination),
            "protocol" => any(&|value| Some(is_protocol(value, packet.protocol))),
            "dport" => any(&|value| in_range(value, packet.port?)),
            "iif" => name(packet.from),
            "oif" => name(packet.to),
            _ => None,
        };
        match found {
            None => Takes::Perhaps,
            Some(found) if found != self.negated => Takes::Yes,
            Some(_) => Takes::No,
        }
    }
}

fn contains(value: &str, address: IpAddr) -> Option<bool> {
    if let Ok(net) = value.parse::<IpNet>() {
        return Some(net.contains(&address));
    }
    if let Some((first, last)) = value.split_once('-') {
        let (first, last) = (first.parse::<IpAddr>().ok()?, last.parse::<IpAddr>().ok()?);
        return Some(first <= address && address <= last);
    }
    Some(value.parse::<IpAddr>().ok()? == address)
}

fn in_range(value: &str, port: u16) -> Option<bool> {
    match value.split_once('-') {
        Some((first, last)) => Some((first.parse().ok()?..=last.parse().ok()?).contains(&port)),
        None => Some(value.parse::<u16>().ok()? == port),
    }
}

fn is_protocol(value: &str, protocol: &str) -> bool {
    let number = match protocol {
        "icmp" => "1",
        "tcp" => "6",
        "udp" => "17",
        "icmpv6" => "58",
        _ => "",
    };
    value == protocol || value == number || (value == "ipv6-icmp" && protocol == "icmpv6")
}

fn is_device(value: &str, name: &str) -> bool {
    value.strip_suffix('*').map_or(value == name, |start| name.starts_with(start))
}

/// Reads the whole ruleset.
#[must_use]
pub(super) fn parse(json: &Value) -> Filters {
    let entries = json.get("nftables").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut filters = Filters { readable: true, ..Filters::default() };
    let hooks = hooks(entries);
    for entry in entries {
        if let Some(counter) = entry.get("counter") {
            keep_counter(counter, &mut filters);
        } else if let Some(chain) = entry.get("chain") {
            keep_chain(chain, &mut filters);
        } else if let Some(rule) = entry.get("rule") {
            keep_rule(rule, &hooks, &mut filters);
        }
    }
    filters
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn keep_counter(counter: &Value, filters: &mut Filters) {
    let is_ours = text(counter, "table") == OWN_TABLE;
    if let (true, Some(packets)) = (is_ours, counter.get("packets").and_then(Value::as_u64)) {
        filters.counters.insert(text(counter, "name").to_owned(), packets);
    }
}

fn keep_chain(chain: &Value, filters: &mut Filters) {
    if text(chain, "policy") == "drop" && filters.closed.len() < MAX_RULES {
        let closed = ClosedChain { name: chain_name(chain, "name"), hook: text(chain, "hook").to_owned() };
        filters.closed.push(closed);
    }
}

fn chain_name(value: &Value, key: &str) -> String {
    let name = format!("{} {} {}", text(value, "family"), text(value, "table"), text(value, key));
    name.chars().take(MAX_TEXT).collect()
}

fn keep_rule(rule: &Value, hooks: &BTreeMap<String, BTreeSet<String>>, filters: &mut Filters) {
    // The source guard has counters of its own.
    if text(rule, "table") == OWN_TABLE && text(rule, "chain") == "source-guard" {
        return;
    }
    let expressions = expressions(rule);
    let has = |verdicts: &[&str]| {
        expressions.iter().any(|each| verdicts.iter().any(|verdict| each.get(verdict).is_some()))
    };
    let list = if has(&["drop", "reject"]) {
        &mut filters.drops
    } else if has(&["masquerade", "snat"]) {
        &mut filters.translations
    } else {
        return;
    };
    if list.len() < MAX_RULES {
        let chain = chain_name(rule, "chain");
        list.push(DropRule {
            hooks: hooks.get(&chain).cloned().unwrap_or_default(),
            chain,
            matches: expressions.iter().flat_map(matches).take(32).collect(),
            text: render(expressions),
            handle: rule.get("handle").and_then(Value::as_u64).unwrap_or(0),
            packets: expressions.iter().find_map(|each| each.get("counter")?.get("packets")?.as_u64()),
        });
    }
}

fn expressions(rule: &Value) -> &[Value] {
    rule.get("expr").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// From which hooks each chain is reached: those of the base chains that jump to it, directly or not.
fn hooks(entries: &[Value]) -> BTreeMap<String, BTreeSet<String>> {
    let mut jumps: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut waiting = Vec::new();
    for entry in entries.iter().take(4 * MAX_CHAINS) {
        if let Some(chain) = entry.get("chain").filter(|chain| !text(chain, "hook").is_empty()) {
            waiting.push((chain_name(chain, "name"), text(chain, "hook").to_owned()));
        }
        if let Some(rule) = entry.get("rule") {
            let from = chain_name(rule, "chain");
            let targets = expressions(rule).iter().flat_map(targets);
            let table = format!("{} {} ", text(rule, "family"), text(rule, "table"));
            jumps.entry(from).or_default().extend(targets.map(|target| format!("{table}{target}")));
        }
    }
    while let Some((chain, hook)) = waiting.pop() {
        if found.len() < MAX_CHAINS && found.entry(chain.clone()).or_default().insert(hook.clone()) {
            let next = jumps.get(&chain).into_iter().flatten();
            waiting.extend(next.map(|target| (target.clone(), hook.clone())));
        }
    }
    found
}

/// The chains that an expression goes to; a verdict map has many.
fn targets(expression: &Value) -> Vec<String> {
    let direct = ["jump", "goto"].into_iter().find_map(|verdict| expression.get(verdict));
    if let Some(target) = direct {
        return vec![text(target, "target").to_owned()];
    }
    let pairs = expression.get("vmap").and_then(|map| map.get("data")?.get("set")?.as_array());
    let pairs = pairs.map(Vec::as_slice).unwrap_or_default();
    pairs.iter().filter_map(|pair| pair.get(1)).flat_map(targets).collect()
}

/// What an expression asks for. Protocols that a field belongs to are asked for too.
fn matches(expression: &Value) -> Vec<Match> {
    let Some(asked) = expression.get("match") else {
        let is_harmless = ["counter", "drop", "reject", "comment", "log", "masquerade", "snat", "return"]
            .iter()
            .any(|word| expression.get(word).is_some());
        return if is_harmless { Vec::new() } else { vec![other()] };
    };
    let (left, negated) = (asked.get("left").unwrap_or(&Value::Null), text(asked, "op") == "!=");
    let values = asked.get("right").map(values).unwrap_or_default();
    let is_plain = matches!(text(asked, "op"), "==" | "!=" | "in");
    let (field, protocol) = field(left);
    let mut found = Vec::new();
    if let Some(protocol) = protocol {
        let values = vec![protocol.to_owned()];
        found.push(Match { field: "protocol".to_owned(), negated: false, values });
    }
    match field {
        Some(field) if is_plain && !values.is_empty() => {
            found.push(Match { field: field.to_owned(), negated, values });
        }
        _ => found.push(other()),
    }
    found
}

fn other() -> Match {
    Match { field: "other".to_owned(), ..Match::default() }
}

/// The field that a rule looks at, and the protocol that only has it.
fn field(left: &Value) -> (Option<&'static str>, Option<&str>) {
    if let Some(payload) = left.get("payload") {
        let protocol = text(payload, "protocol");
        let transport = matches!(protocol, "udp" | "tcp" | "icmp" | "icmpv6").then_some(protocol);
        let field = match text(payload, "field") {
            "saddr" => Some("saddr"),
            "daddr" => Some("daddr"),
            "dport" => Some("dport"),
            "sport" => Some("sport"),
            "protocol" | "nexthdr" => Some("protocol"),
            _ => None,
        };
        return (field, transport);
    }
    let key = left.get("meta").map(|meta| text(meta, "key")).unwrap_or_default();
    let field = match key {
        "iif" | "iifname" => Some("iif"),
        "oif" | "oifname" => Some("oif"),
        "l4proto" => Some("protocol"),
        _ => None,
    };
    (field, None)
}

/// The values on the right side; empty where they cannot be told (a named set).
fn values(right: &Value) -> Vec<String> {
    if let Some(list) = right.get("set").and_then(Value::as_array).or_else(|| right.as_array()) {
        return list.iter().take(256).flat_map(values).collect();
    }
    if let Some(prefix) = right.get("prefix") {
        let len = prefix.get("len").and_then(Value::as_u64).unwrap_or(u64::MAX);
        return vec![format!("{}/{len}", text(prefix, "addr"))];
    }
    if let Some([first, last]) = right.get("range").and_then(Value::as_array).map(Vec::as_slice) {
        return vec![format!("{}-{}", plain(first), plain(last))];
    }
    match right {
        Value::String(name) if name.starts_with('@') => Vec::new(),
        Value::String(_) | Value::Number(_) => vec![plain(right)],
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Vec::new(),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), |text| text.chars().take(MAX_TEXT).collect())
}

/// A rule in words close to nft's.
fn render(expressions: &[Value]) -> String {
    let mut text = expressions.iter().filter_map(render_one).collect::<Vec<_>>().join(" ");
    if text.len() > MAX_TEXT {
        text = text.chars().take(MAX_TEXT).collect();
    }
    text
}

fn render_one(expression: &Value) -> Option<String> {
    if let Some(asked) = expression.get("match") {
        let left = asked.get("left").unwrap_or(&Value::Null);
        let name = match (left.get("payload"), left.get("meta")) {
            (Some(payload), _) => format!("{} {}", text(payload, "protocol"), text(payload, "field")),
            (_, Some(meta)) => text(meta, "key").to_owned(),
            _ => left.as_object().and_then(|object| object.keys().next().cloned()).unwrap_or_default(),
        };
        let right = asked.get("right").map(values).unwrap_or_default();
        let right = if right.is_empty() { "…".to_owned() } else { right.join(", ") };
        let not = if text(asked, "op") == "!=" { "!= " } else { "" };
        return Some(format!("{name} {not}{right}"));
    }
    let word = expression.as_object()?.keys().next()?;
    match word.as_str() {
        "counter" | "comment" => None,
        "xt" => Some(format!("xt {}", text(&expression["xt"], "name"))),
        word => Some(word.to_owned()),
    }
}

#[cfg(test)]
mod tests;
