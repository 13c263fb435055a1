//! Security groups and their rules, as Neutron has them (<https://docs.openstack.org/api-ref/network/v2/#security-groups-security-groups>).

use std::fmt;

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::rules::Traffic;

/// The description of groups and rules that a preparation makes: in groups of others, rules with it are ours, and none else.
pub const MADE_BY: &str = "made by trieste cloud prepare";
/// The descriptions that upstream's tool gives its two groups; its rules have none.
const UPSTREAM: [&str; 2] = ["Submariner Gateway", "Submariner Internal"];

/// The names of a cluster's groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The gateways', which upstream's tool gives the same name.
    pub gateways: String,
    /// The one for what passes between nodes, likewise.
    pub internal: String,
    /// Those that OpenShift's installer gives workers and control plane.
    pub nodes: [String; 2],
}

impl Names {
    /// Returns the names in a cluster with this infrastructure ID.
    pub fn of(infra_id: &str) -> Self {
        Self {
            gateways: format!("{infra_id}-submariner-gw-sg"),
            internal: format!("{infra_id}-submariner-internal-sg"),
            nodes: [format!("{infra_id}-worker"), format!("{infra_id}-master")],
        }
    }

    /// Returns all of them.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        [&self.gateways, &self.internal].into_iter().chain(&self.nodes).map(String::as_str)
    }

    /// Returns `true` if a group of this name is made by a preparation, and goes with it.
    pub fn is_made(&self, name: &str) -> bool {
        name == self.gateways || name == self.internal
    }
}

/// A version of IP, as rules have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns Neutron's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Returns the family of a network.
    pub const fn of(network: &IpNet) -> Self {
        match network {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }

    fn everywhere(self) -> Option<IpNet> {
        let text = match self {
            Self::V4 => "0.0.0.0/0",
            Self::V6 => "::/0",
        };
        text.parse().ok()
    }
}

/// A group that is or will be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRef {
    /// Its name.
    pub name: String,
    /// Its ID; `None` until it has been made.
    pub id: Option<String>,
}

/// From where something comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remote {
    /// A network.
    Network(IpNet),
    /// Ports that have a group.
    Group(GroupRef),
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Group(group) => write!(f, "{}", group.name),
        }
    }
}

/// A rule that lets something in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRule {
    /// The version of IP.
    pub family: Family,
    /// What.
    pub traffic: Traffic,
    /// From where.
    pub remote: Remote,
}

impl fmt::Display for GroupRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} over {} from {}", self.traffic, self.family.as_str(), self.remote)
    }
}

impl GroupRule {
    /// Returns `true` if the rule names groups that are still to be made.
    pub const fn waits(&self) -> bool {
        match &self.remote {
            Remote::Network(_) => false,
            Remote::Group(group) => group.id.is_none(),
        }
    }

    /// Returns `true` if both let the same pass.
    pub fn equals(&self, other: &Self) -> bool {
        let same_remote = match (&self.remote, &other.remote) {
            (Remote::Network(one), Remote::Network(other)) => one == other,
            (Remote::Group(one), Remote::Group(other)) => one.id.is_some() && one.id == other.id,
            (Remote::Network(_), Remote::Group(_)) | (Remote::Group(_), Remote::Network(_)) => false,
        };
        same_remote && self.family == other.family && self.traffic == other.traffic
    }

    /// Returns the body that makes it in a group.
    pub fn body(&self, group_id: &str) -> Value {
        let mut rule = json!({
            "security_group_id": group_id,
            "direction": "ingress",
            "ethertype": self.family.as_str(),
            "description": MADE_BY,
        });
        match self.traffic {
            Traffic::Udp(port) => {
                rule["protocol"] = json!("udp");
                rule["port_range_min"] = json!(port);
                rule["port_range_max"] = json!(port);
            }
            Traffic::Esp => rule["protocol"] = json!("esp"),
        }
        match &self.remote {
            Remote::Network(network) => rule["remote_ip_prefix"] = json!(network.to_string()),
            Remote::Group(group) => rule["remote_group_id"] = json!(group.id),
        }
        json!({"security_group_rule": rule})
    }
}

/// A rule that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRule {
    /// Its ID.
    pub id: String,
    /// What it lets pass; `None` if it is of a kind that no preparation needs.
    pub rule: Option<GroupRule>,
    /// Whether a preparation has made it, ours or upstream's.
    pub is_prepared: bool,
}

/// A group that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its ID.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its rules.
    pub rules: Vec<FoundRule>,
}

impl Group {
    /// Returns a group of Neutron's; `None` without ID or name.
    pub fn parse(group: &Value) -> Option<Self> {
        let (id, name) = (group["id"].as_str()?, group["name"].as_str()?);
        let is_upstreams = group["description"].as_str().is_some_and(|text| UPSTREAM.contains(&text));
        let rules = group["security_group_rules"].as_array().into_iter().flatten();
        let rules = rules.filter_map(|rule| found_rule(rule, is_upstreams.then_some(id))).collect();
        Some(Self { id: id.to_owned(), name: name.to_owned(), rules })
    }

    /// Returns how others name it.
    pub fn reference(&self) -> GroupRef {
        GroupRef { name: self.name.clone(), id: Some(self.id.clone()) }
    }
}

/// Returns a rule of Neutron's. `of_upstreams` is the group's ID if upstream's tool has made it.
fn found_rule(rule: &Value, of_upstreams: Option<&str>) -> Option<FoundRule> {
    let id = rule["id"].as_str()?.to_owned();
    let description = rule["description"].as_str().unwrap_or_default();
    let by_upstream = description.is_empty() && of_upstreams.is_some_and(|group| is_of_upstream(rule, group));
    Some(FoundRule { id, rule: group_rule(rule), is_prepared: description == MADE_BY || by_upstream })
}

fn group_rule(rule: &Value) -> Option<GroupRule> {
    if rule["direction"] != "ingress" || !rule["remote_address_group_id"].is_null() {
        return None;
    }
    let family = match rule["ethertype"].as_str()? {
        "IPv4" => Family::V4,
        "IPv6" => Family::V6,
        _ => return None,
    };
    // A protocol is stored as it was named: by its name or by its number.
    let protocol = rule["protocol"].as_str()?.to_lowercase();
    let port = |name: &str| rule[name].as_u64().and_then(|port| u16::try_from(port).ok());
    let traffic = match protocol.as_str() {
        "udp" | "17" => {
            let (first, last) = (port("port_range_min")?, port("port_range_max")?);
            (first == last).then_some(Traffic::Udp(first))?
        }
        "esp" | "50" => Traffic::Esp,
        _ => return None,
    };
    let remote = match (rule["remote_group_id"].as_str(), rule["remote_ip_prefix"].as_str()) {
        (Some(id), _) => Remote::Group(GroupRef { name: id.to_owned(), id: Some(id.to_owned()) }),
        (None, Some(network)) => Remote::Network(network.parse::<IpNet>().ok()?.trunc()),
        (None, None) => Remote::Network(family.everywhere()?),
    };
    Some(GroupRule { family, traffic, remote })
}

/// Returns `true` if a rule has the form of those that upstream's tool makes: one UDP port, ESP or AH over IPv4, from everywhere
/// or from the group itself.
fn is_of_upstream(rule: &Value, group: &str) -> bool {
    let of_ah = rule["protocol"] == "ah" && rule["direction"] == "ingress" && rule["ethertype"] == "IPv4";
    let from = match (rule["remote_group_id"].as_str(), rule["remote_ip_prefix"].as_str()) {
        (Some(id), _) => id == group,
        (None, network) => network.is_none_or(|network| network == "0.0.0.0/0"),
    };
    from && (of_ah || group_rule(rule).is_some_and(|rule| rule.family == Family::V4))
}
