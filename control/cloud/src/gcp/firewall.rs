//! Firewall rules: what is wanted, and in what one that was found differs from it.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::names::{GATEWAY_TAG, cables_rule, cables_v6_rule, inside_rule};
use crate::rules::{From, Rule, To, Traffic, Wanted};

/// The rules of one cluster.
#[derive(Debug)]
pub(super) struct Cluster<'c> {
    /// What their names begin with.
    pub(super) infra_id: &'c str,
    /// Their network, as in `projects/p-1/global/networks/east-network`.
    pub(super) network: &'c str,
    /// The tags of its nodes.
    pub(super) nodes: &'c [String],
}

/// Returns `true` if a rule is wanted that names the cluster's nodes.
pub(super) fn names_nodes(wanted: &Wanted) -> bool {
    let all = wanted.cables().into_iter().chain(wanted.inside());
    all.into_iter().any(|rule| rule.to == To::Nodes || rule.from == From::Nodes)
}

/// Returns the rules that are wanted. One rule has sources of one family of addresses
/// (<https://cloud.google.com/firewall/docs/using-firewalls>), and names of nodes stand in a rule of their own.
pub(super) fn wanted_rules(wanted: &Wanted, cluster: &Cluster<'_>) -> Vec<Value> {
    let of = |family: Family| {
        let all = wanted.cables().into_iter();
        all.filter(|rule| Family::of(rule) == family).collect::<Vec<_>>()
    };
    let infra_id = cluster.infra_id;
    let mut first = of(Family::V4);
    first.extend(of(Family::Nodes));
    let rules = [
        (cables_rule(infra_id), first),
        (cables_v6_rule(infra_id), of(Family::V6)),
        (inside_rule(infra_id), wanted.inside()),
    ];
    rules
        .into_iter()
        .filter(|(_, rules)| !rules.is_empty())
        .map(|(name, rules)| body(&name, &rules, cluster))
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
    Nodes,
}

impl Family {
    fn of(rule: &Rule) -> Self {
        match rule.from {
            From::Network(IpNet::V4(_)) => Self::V4,
            From::Network(IpNet::V6(_)) => Self::V6,
            From::Nodes => Self::Nodes,
        }
    }
}

/// Returns one rule as the API has it (<https://cloud.google.com/compute/docs/reference/rest/v1/firewalls>).
fn body(name: &str, rules: &[Rule], cluster: &Cluster<'_>) -> Value {
    let traffic: BTreeSet<Traffic> = rules.iter().map(|rule| rule.traffic).collect();
    let port = |traffic: &Traffic| match traffic {
        Traffic::Udp(port) => Some(port.to_string()),
        Traffic::Esp => None,
    };
    let ports: Vec<String> = traffic.iter().filter_map(port).collect();
    let mut allowed = Vec::new();
    if !ports.is_empty() {
        allowed.push(json!({"IPProtocol": "udp", "ports": ports}));
    }
    if traffic.contains(&Traffic::Esp) {
        allowed.push(json!({"IPProtocol": "esp"}));
    }
    let mut body = json!({
        "name": name, "network": cluster.network, "direction": "INGRESS", "allowed": allowed,
    });
    let networks: BTreeSet<IpNet> = rules.iter().filter_map(|rule| network(rule.from)).collect();
    if networks.is_empty() {
        body["sourceTags"] = json!(cluster.nodes);
    } else {
        let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
        body["sourceRanges"] = json!(networks);
    }
    let is_to_nodes = rules.iter().any(|rule| rule.to == To::Nodes);
    body["targetTags"] = if is_to_nodes { json!(cluster.nodes) } else { json!([GATEWAY_TAG]) };
    body
}

const fn network(from: From) -> Option<IpNet> {
    match from {
        From::Network(network) => Some(network),
        From::Nodes => None,
    }
}

/// What a rule that was found needs.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Difference {
    /// Nothing.
    None,
    /// This merge patch (RFC 7386).
    Patch(Value),
    /// To be made anew: its network, its direction, and whether it allows or denies cannot be changed.
    Anew,
}

/// The fields that choose sources and targets. All that a rule has of them has an effect.
const SELECTORS: [&str; 6] = [
    "sourceRanges",
    "destinationRanges",
    "sourceTags",
    "targetTags",
    "sourceServiceAccounts",
    "targetServiceAccounts",
];

/// Compares a rule that was found with the one that is wanted. Priority and logging are whoever's that set them.
pub(super) fn difference(found: &Value, wanted: &Value) -> Difference {
    let has_denied = found["denied"].as_array().is_some_and(|denied| !denied.is_empty());
    let differs = |field: &str| text(found, field) != text(wanted, field);
    if has_denied || differs("network") || differs("direction") {
        return Difference::Anew;
    }
    let mut patch = Map::new();
    if allowed(found) != allowed(wanted) {
        patch.insert("allowed".to_owned(), wanted["allowed"].clone());
    }
    for field in SELECTORS {
        if set(found, field) != set(wanted, field) {
            patch.insert(field.to_owned(), wanted.get(field).cloned().unwrap_or(Value::Null));
        }
    }
    if found["disabled"] == true {
        patch.insert("disabled".to_owned(), json!(false));
    }
    if patch.is_empty() { Difference::None } else { Difference::Patch(Value::Object(patch)) }
}

/// Returns a text; of a network's URL what follows the API's address.
fn text<'v>(rule: &'v Value, field: &str) -> &'v str {
    let text = rule[field].as_str().unwrap_or_default();
    text.find("projects/").and_then(|at| text.get(at..)).unwrap_or(text)
}

fn set(rule: &Value, field: &str) -> BTreeSet<String> {
    let texts = rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
    let normal = |text: &str| {
        let network = text.parse::<IpNet>().map(|network| network.trunc().to_string());
        network.unwrap_or_else(|_| text.to_owned())
    };
    texts.map(normal).collect()
}

/// Returns protocols with their ports. A protocol may stand more than once, by name or by number.
fn allowed(rule: &Value) -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    for entry in rule["allowed"].as_array().into_iter().flatten() {
        let protocol = match entry["IPProtocol"].as_str().unwrap_or_default() {
            "17" => "udp".to_owned(),
            "50" => "esp".to_owned(),
            "51" => "ah".to_owned(),
            other => other.to_ascii_lowercase(),
        };
        let ports: Vec<&str> =
            entry["ports"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if ports.is_empty() {
            all.insert((protocol.clone(), String::new()));
        }
        all.extend(ports.into_iter().map(|port| (protocol.clone(), port.to_owned())));
    }
    all
}

/// Describes a rule, as in "udp 4500, 500, esp from 0.0.0.0/0 to submariner-io-gateway-node".
pub(super) fn in_words(rule: &Value) -> String {
    let list = |field: &str| {
        let texts = rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.collect::<Vec<_>>().join(", ")
    };
    let entry = |entry: &Value| {
        let ports = entry["ports"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let ports: Vec<&str> = ports.collect();
        let protocol = entry["IPProtocol"].as_str().unwrap_or_default();
        format!("{protocol} {}", ports.join(", ")).trim_end().to_owned()
    };
    let allowed: Vec<String> = rule["allowed"].as_array().into_iter().flatten().map(entry).collect();
    let ranges = list("sourceRanges");
    let from = if ranges.is_empty() { list("sourceTags") } else { ranges };
    format!("{} from {from} to {}", allowed.join(", "), list("targetTags"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Value {
        let nodes = ["n".to_owned()];
        let cluster = Cluster { infra_id: "east", network: "projects/p/global/networks/n", nodes: &nodes };
        let rules = wanted_rules(&Wanted::default(), &cluster);
        rules.into_iter().next().unwrap()
    }

    #[test]
    fn what_differs_is_patched() {
        let with = |fields: Value| {
            let mut found = rule();
            found.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            found
        };
        let allowed = rule()["allowed"].clone();
        let by_number = json!([{"IPProtocol": "50"}, {"IPProtocol": "UDP", "ports": ["4500"]},
            {"IPProtocol": "17", "ports": ["4490", "500"]}]);
        let cases = [
            (json!({}), Difference::None),
            (json!({"priority": 900, "logConfig": {"enable": true}, "disabled": false}), Difference::None),
            (json!({"network": "https://x/compute/v1/projects/p/global/networks/n"}), Difference::None),
            (json!({"allowed": by_number}), Difference::None),
            (json!({"sourceTags": []}), Difference::None),
            (json!({"disabled": true}), Difference::Patch(json!({"disabled": false}))),
            (json!({"allowed": [{"IPProtocol": "all"}]}), Difference::Patch(json!({"allowed": allowed}))),
            (json!({"sourceTags": ["x"]}), Difference::Patch(json!({"sourceTags": null}))),
            (
                json!({"sourceRanges": ["10.0.0.0/8"], "targetTags": null}),
                Difference::Patch(json!({"sourceRanges": ["0.0.0.0/0"], "targetTags": [GATEWAY_TAG]})),
            ),
            (json!({"network": "projects/p/global/networks/other"}), Difference::Anew),
            (json!({"direction": "EGRESS"}), Difference::Anew),
            (json!({"denied": [{"IPProtocol": "udp"}]}), Difference::Anew),
        ];
        for (fields, expected) in cases {
            assert_eq!(difference(&with(fields.clone()), &rule()), expected, "{fields}");
        }
    }

    #[test]
    fn nonsense_is_a_difference_and_no_panic() {
        for found in [json!(null), json!([]), json!({"allowed": 7, "network": 7, "direction": []})] {
            assert_eq!(difference(&found, &rule()), Difference::Anew, "{found}");
        }
    }
}
