//! How OVN-Kubernetes is laid out: its zones, and where their northbound databases are.
//!
//! A zone is a part of a cluster that has a northbound database of its own. With interconnect every node is one; without it
//! there is one database for all nodes. Sources and their order are upstream's (behaviour 6.3).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use trieste_control::api::annotation::OVN_ZONE;

use super::Observed;
use super::flags::variable;
use super::observe::OVN_DATABASE as DATABASE;

/// OpenShift's namespace of OVN-Kubernetes.
const OPENSHIFT: &str = "openshift-ovn-kubernetes";
/// OpenShift's name and port of the Service, which it serves over TLS alone.
const OPENSHIFT_ADDRESS: &str = "ssl:ovnkube-db.openshift-ovn-kubernetes.svc.cluster.local:9641";
/// OVN's port of northbound databases.
const PORT: u16 = 6641;
/// The socket of a node's own database with interconnect.
const SOCKET: &str = "unix:/var/run/ovn-ic/ovnnb_db.sock";
/// Those that the node of a database for all nodes may have, in two generations of OVN.
const CENTRAL_SOCKETS: &str = "unix:/var/run/openvswitch/ovnnb_db.sock or unix:/var/run/ovn/ovnnb_db.sock";
/// Most zones that are named.
const MOST: usize = 8;

/// How OVN-Kubernetes is laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ovn {
    /// Which zones there are.
    pub zones: Zones,
    /// What tells so.
    pub zones_source: String,
    /// The northbound database of all nodes, `tcp:HOST:PORT` or `ssl:HOST:PORT`; `None` where there is none that is known, and
    /// databases are at unix sockets of their nodes.
    pub northbound: Option<String>,
    /// What tells so.
    pub northbound_source: String,
}

/// Which zones there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Zones {
    /// One, of all nodes.
    One,
    /// Each node is one.
    OnePerNode,
    /// Several, of which these have several nodes, or a node of another name; nodes that name none are the zone with the empty
    /// name.
    Several(Vec<String>),
}

impl Ovn {
    /// Returns the zones and what tells so, for people.
    pub fn shown_zones(&self) -> String {
        let zones = match &self.zones {
            Zones::One => "one for all nodes".to_owned(),
            Zones::OnePerNode => "one per node".to_owned(),
            Zones::Several(names) => format!("several, with several nodes: {}", listed(names)),
        };
        format!("{zones} ({})", self.zones_source)
    }

    /// Returns where the databases are and what tells so, for people.
    pub fn shown_databases(&self) -> String {
        let place = match (&self.northbound, &self.zones) {
            (Some(address), _) => address,
            (None, Zones::One) => CENTRAL_SOCKETS,
            (None, Zones::OnePerNode | Zones::Several(_)) => SOCKET,
        };
        format!("{place} ({})", self.northbound_source)
    }

    /// Returns what somebody should look at.
    pub(super) fn warning(&self) -> Option<String> {
        let Zones::Several(names) = &self.zones else { return None };
        Some(format!(
            "OVN-Kubernetes has several zones, and not every node is one: {}. Of such a zone the database is written where a node \
             has its socket; this was not tried",
            listed(names)
        ))
    }
}

/// The DaemonSets by which OVN-Kubernetes is found.
pub(super) const DAEMON_SETS: [&str; 2] = ["ovnkube-node", "ovnkube-db"];

/// Returns the layout of a cluster whose plugin is OVN-Kubernetes.
pub(super) fn layout(observed: &Observed) -> Ovn {
    let (zones, zones_source) = zones(&observed.nodes);
    let (northbound, northbound_source) = match zones {
        Zones::One => central(observed),
        Zones::OnePerNode => (None, "each node's own".to_owned()),
        Zones::Several(_) => (None, "on the node that has it".to_owned()),
    };
    Ovn { zones, zones_source, northbound, northbound_source }
}

/// Returns the zones, and what tells so.
fn zones(nodes: &[Value]) -> (Zones, String) {
    let mut zones: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    // OVN-Kubernetes runs on no other nodes, and gives them no zone.
    for node in nodes.iter().filter(|node| is_linux(node)) {
        let zone = node["metadata"]["annotations"][OVN_ZONE].as_str().unwrap_or_default();
        zones.entry(zone).or_default().push(node["metadata"]["name"].as_str().unwrap_or_default());
    }
    let source = format!("the nodes' annotation {OVN_ZONE}");
    let shared: Vec<String> = zones
        .iter()
        .filter(|(zone, nodes)| nodes.as_slice() != [**zone])
        .map(|(zone, _)| (*zone).to_owned())
        .collect();
    match (zones.len(), shared.as_slice()) {
        (0, _) => (Zones::One, format!("no node has the annotation {OVN_ZONE}")),
        (1, [zone]) if zone.is_empty() => (Zones::One, format!("no node has the annotation {OVN_ZONE}")),
        (1, [_]) => (Zones::One, source),
        (_, []) => (Zones::OnePerNode, source),
        _ => (Zones::Several(shared), source),
    }
}

fn is_linux(node: &Value) -> bool {
    node["metadata"]["labels"]["kubernetes.io/os"].as_str().is_none_or(|system| system == "linux")
}

/// Returns the address of the database of all nodes, if it has one in the network, and what tells so.
fn central(observed: &Observed) -> (Option<String>, String) {
    let named = |object: &&Value| object["metadata"]["name"] == DATABASE;
    let mut services = observed.services.iter().filter(named);
    if services.any(|service| service["metadata"]["namespace"] == OPENSHIFT) {
        return (Some(OPENSHIFT_ADDRESS.to_owned()), format!("Service {OPENSHIFT}/{DATABASE}"));
    }
    // Anybody who may make a pod can give it that label: only OVN-Kubernetes' own namespace counts.
    let plugin = observed.daemon_sets.iter().map(|set| &set["metadata"]);
    let plugin = plugin.filter(|of| of["name"].as_str().is_some_and(|name| DAEMON_SETS.contains(&name)));
    let namespaces: BTreeSet<&str> = plugin.filter_map(|of| of["namespace"].as_str()).collect();
    let is_plugins = |pod: &&Value| {
        let of = &pod["metadata"];
        of["labels"]["name"] == DATABASE
            && of["namespace"].as_str().is_some_and(|name| namespaces.contains(name))
    };
    let pod = observed.database_pods.iter().find(is_plugins);
    let Some(pod) = pod else {
        return (None, "on the node that has it; no Service or pod of a database was found".to_owned());
    };
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    // OVN-Kubernetes' own switch; what is not "no" is on, as upstream reads it.
    let has_tls = variable(pod, "OVN_SSL_ENABLE").is_some_and(|value| !value.eq_ignore_ascii_case("no"));
    let protocol = if has_tls { "ssl" } else { "tcp" };
    let address = format!("{protocol}:{DATABASE}.{}:{PORT}", text("namespace"));
    (Some(address), format!("pod {}/{}", text("namespace"), text("name")))
}

/// Returns names for people, of which the empty one is that of nodes that name no zone.
fn listed(names: &[String]) -> String {
    let shown = names.iter().take(MOST).map(|name| match name.as_str() {
        "" => "nodes without a zone".to_owned(),
        name => name.escape_debug().to_string(),
    });
    let more = names.len().saturating_sub(MOST);
    let list = shown.collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{list} and {more} more") } else { list }
}
