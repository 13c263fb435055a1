//! Content of a node's RouteAgent object: upstream's status. Pure.
//!
//! | this node | remote gateway | status | message |
//! |---|---|---|---|
//! | health checks are off | any | `none` | `Health check is not enabled` |
//! | a gateway node | any | `none` | `Health check is not performed on gateway nodes` |
//! | any other | without health-check address | `none` | `Health checker IP is not configured` |
//! | without an address in the pod networks | any | `none` | says so (ours) |
//! | any other | not judged yet | empty | none |
//! | any other | answers | `connected`, with round trips | none |
//! | any other | does not answer, or cannot be asked | `error` | the pinger's |

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use trieste_control::admin::Severity;
use trieste_control::api::{
    ConnectionStatus, EndpointSpec, LatencyRtt, NodeCondition, RemoteEndpoint, RouteAgentStatus,
};
use trieste_control::health::{PingerStatus, PingerView};

use crate::condition::Condition;
use crate::constants::VX_DEVICE;
use crate::state::{DeviceAddress, Node};
use crate::view::ClusterView;

/// Our version as the object has it; with a `v`, as upstream's.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
/// Ours: most conditions in one object.
const MAX_CONDITIONS: usize = 32;
/// Ours: longest message of one condition, in characters.
const MAX_MESSAGE: usize = 400;
/// Ours: longest `statusFailure`, in characters.
const MAX_FAILURE: usize = 1_000;
/// Ours: how many bytes of remote endpoints go into one object. An API server takes 1.5 MB, and one Endpoint may have
/// a quarter of that.
const MAX_REMOTE_BYTES: usize = 1_000_000;

/// How this node checks remote gateways.
#[derive(Debug, Clone)]
pub enum Checking {
    /// Not at all.
    Off,
    /// It is a gateway node, whose gateway does that.
    Gateway,
    /// It has no address that an answer would come back to.
    NoSource,
    /// It pings; the results by cable name.
    Pings(Arc<BTreeMap<String, PingerView>>),
}

/// The part of a RouteAgent object that is ours to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// Its status.
    pub status: RouteAgentStatus,
    /// Its annotation of conditions, empty if there is none.
    pub conditions: Vec<NodeCondition>,
    /// Its annotation of where the node takes packets for services.
    pub services: Option<String>,
}

impl Content {
    /// Puts together what is known.
    #[must_use]
    pub fn new(remotes: &[EndpointSpec], checking: &Checking, conditions: Vec<NodeCondition>) -> Self {
        let mut conditions = conditions;
        let mut remote_endpoints = Vec::new();
        let mut bytes = 0;
        for spec in remotes {
            bytes += serde_json::to_vec(spec).map_or(0, |text| text.len());
            if bytes > MAX_REMOTE_BYTES {
                conditions.push(too_large(remotes.len() - remote_endpoints.len()));
                break;
            }
            remote_endpoints.push(remote(spec, checking));
        }
        let status_failure = failure(&conditions);
        let version = VERSION.to_owned();
        let status =
            RouteAgentStatus { version, status_failure, remote_endpoints, ..RouteAgentStatus::default() };
        Self { status, conditions: bounded(conditions), services: None }
    }

    /// Returns `true` if two differ in round-trip times at most: any other change is written at once.
    #[must_use]
    pub fn is_same_but_latency(&self, other: &Self) -> bool {
        let Self { status, conditions, services } = self;
        let RouteAgentStatus { version, status_failure, remote_endpoints, extra } = status;
        let is_same = |(this, that): (&RemoteEndpoint, &RemoteEndpoint)| {
            let RemoteEndpoint { status, status_message, spec, latency_rtt: _, extra } = this;
            (status, status_message, spec, extra)
                == (&that.status, &that.status_message, &that.spec, &that.extra)
        };
        let theirs = &other.status;
        (conditions, services) == (&other.conditions, &other.services)
            && (version, status_failure, extra) == (&theirs.version, &theirs.status_failure, &theirs.extra)
            && remote_endpoints.len() == theirs.remote_endpoints.len()
            && remote_endpoints.iter().zip(&theirs.remote_endpoints).all(is_same)
    }
}

/// Returns `true` if the node is a gateway's: one of its own cluster's Endpoints carries its host name.
#[must_use]
pub fn is_gateway(view: &ClusterView, node: &Node) -> bool {
    view.endpoints
        .iter()
        .chain(&view.members)
        .any(|endpoint| endpoint.cluster == node.cluster && endpoint.hostname == node.hostname)
}

/// Returns the addresses that probes leave from, one per family: the node's first ones inside the pod networks, which
/// are what remote gateways accept and answer to. As long as those in use are still there, they are kept.
#[must_use]
pub fn sources(addresses: &BTreeSet<DeviceAddress>, node: &Node, in_use: &[IpAddr]) -> Vec<IpAddr> {
    let is_foreign = |device: &str| device == "lo" || device == VX_DEVICE || device == node.tun;
    let candidates: Vec<IpAddr> = addresses
        .iter()
        .filter(|own| !is_foreign(&own.device))
        .map(|own| own.network.addr())
        .filter(|address| node.pod_networks.iter().any(|network| network.contains(address)))
        .collect();
    [true, false]
        .into_iter()
        .filter_map(|is_v4| {
            let is_one = |address: &&IpAddr| address.is_ipv4() == is_v4 && candidates.contains(address);
            in_use.iter().find(is_one).or_else(|| candidates.iter().find(is_one)).copied()
        })
        .collect()
}

/// Turns the route agent's conditions into those of the object, the worst first.
#[must_use]
pub fn node_conditions<'a>(conditions: impl IntoIterator<Item = &'a Condition>) -> Vec<NodeCondition> {
    let mut node_conditions: Vec<NodeCondition> = conditions
        .into_iter()
        .map(|condition| NodeCondition {
            name: condition.name().to_owned(),
            severity: condition.severity(),
            message: condition.to_string(),
        })
        .collect();
    node_conditions.sort_by_key(|condition| std::cmp::Reverse(condition.severity));
    node_conditions
}

fn remote(spec: &EndpointSpec, checking: &Checking) -> RemoteEndpoint {
    let (status, message, latency_rtt) = verdict(spec, checking);
    RemoteEndpoint {
        status,
        status_message: message.to_owned(),
        spec: spec.clone(),
        latency_rtt,
        ..RemoteEndpoint::default()
    }
}

fn verdict<'a>(
    spec: &EndpointSpec,
    checking: &'a Checking,
) -> (Option<ConnectionStatus>, &'a str, Option<LatencyRtt>) {
    let none = |message| (Some(ConnectionStatus::None), message, None);
    let views = match checking {
        Checking::Off => return none("Health check is not enabled"),
        Checking::Gateway => return none("Health check is not performed on gateway nodes"),
        Checking::NoSource | Checking::Pings(_) if spec.health_check_address().is_empty() => {
            return none("Health checker IP is not configured");
        }
        Checking::NoSource => {
            return none(
                "Health check is not possible: this node has no address in the cluster's pod networks",
            );
        }
        Checking::Pings(views) => views,
    };
    // A pinger of the address that the endpoint had before says nothing about this one.
    let is_current = |view: &&PingerView| spec.health_check_address().parse() == Ok(view.ip);
    let Some(view) = views.get(&spec.cable_name).filter(is_current) else { return (None, "", None) };
    match view.status {
        PingerStatus::Connected => {
            (Some(ConnectionStatus::Connected), "", Some(LatencyRtt::from(view.latency.unwrap_or_default())))
        }
        PingerStatus::Unknown if view.message.is_empty() => (None, "", None),
        PingerStatus::Unknown | PingerStatus::Error => (Some(ConnectionStatus::Error), &view.message, None),
    }
}

fn failure(conditions: &[NodeCondition]) -> String {
    let errors = conditions.iter().filter(|condition| condition.severity == Severity::Error);
    let texts: Vec<&str> = errors.map(|condition| condition.message.as_str()).collect();
    shortened(&texts.join("; "), MAX_FAILURE)
}

fn bounded(mut conditions: Vec<NodeCondition>) -> Vec<NodeCondition> {
    let left_out = conditions.len().saturating_sub(MAX_CONDITIONS);
    conditions.truncate(MAX_CONDITIONS);
    conditions
        .iter_mut()
        .for_each(|condition| condition.message = shortened(&condition.message, MAX_MESSAGE));
    if left_out > 0 {
        let message = format!("and {left_out} more; the route agent's log has all of them");
        conditions.push(NodeCondition { name: "Others".to_owned(), severity: Severity::Info, message });
    }
    conditions
}

fn too_large(left_out: usize) -> NodeCondition {
    NodeCondition {
        name: "TooLarge".to_owned(),
        severity: Severity::Warning,
        message: format!(
            "{left_out} remote gateways are not in this object: it would be larger than a server takes"
        ),
    }
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests;
