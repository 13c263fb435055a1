//! What was found out about a connection, before anybody judges it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_control::admin::{CableStatus, GatewayStatus};
use trieste_control::api::{Connection, EndpointSpec, HaStatus, PublishedStatus};
use trieste_control::devices::{TUN, UPSTREAM_VXLAN_CABLE};

use crate::agents::AgentError;
use crate::node::document::NodeReport;
use crate::node::{SendReport, WatchReport};

/// Probes, by what they ask. The number travels in the packet.
pub mod probe {
    /// Small pings from the source pod's address to the destination.
    pub const PING: u16 = 1;
    /// Pings of growing size on the same way.
    pub const SIZES: u16 = 2;
    /// A datagram from the source gateway to the other's cable port.
    pub const CABLE_THERE: u16 = 3;
    /// The same from the other side.
    pub const CABLE_BACK: u16 = 4;
    /// Pings between the gateways' own addresses, from the source's.
    pub const UNDERLAY_THERE: u16 = 5;
    /// From the destination's.
    pub const UNDERLAY_BACK: u16 = 6;
    /// A datagram to NAT discovery's port of the destination gateway.
    pub const DISCOVERY_THERE: u16 = 7;
    /// Of the source gateway.
    pub const DISCOVERY_BACK: u16 = 8;
    /// A ping from a pod of its own beside the source.
    pub const POD: u16 = 9;
    /// A TCP connection to a service, from there.
    pub const SERVICE: u16 = 10;
    /// Those of [`SIZES`] that were lost, once more: late answers to the first are none to these.
    pub const SIZES_REPEATED: u16 = 11;
    /// Those from one gateway's node to the other's.
    pub const BETWEEN_GATEWAYS: [u16; 6] =
        [CABLE_THERE, CABLE_BACK, UNDERLAY_THERE, UNDERLAY_BACK, DISCOVERY_THERE, DISCOVERY_BACK];
}

/// Which end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Where it begins.
    Source,
    /// Where it goes to.
    Destination,
}

impl Side {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }
}

/// Everything that was found out.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// The cluster where the connection begins.
    pub source: Cluster,
    /// The cluster where it goes to.
    pub destination: Cluster,
    /// What the destination was asked for as, if it is a service.
    pub service: Option<ServiceFacts>,
    /// What became of each probe that was sent.
    pub probes: BTreeMap<u16, Result<SendReport, String>>,
    /// Whether both sides' gateways have the same preshared key; absent if it could not be compared.
    pub same_preshared_key: Option<bool>,
    /// What could not be seen, and why.
    pub notes: Vec<String>,
}

impl Evidence {
    /// One side.
    #[must_use]
    pub const fn side(&self, side: Side) -> &Cluster {
        match side {
            Side::Source => &self.source,
            Side::Destination => &self.destination,
        }
    }

    /// Says of each side which gateway of the other one is looked at.
    pub(super) fn pair_gateways(&mut self) {
        self.source.far_gateway = self.destination.gateway_hostname().map(str::to_owned);
        self.destination.far_gateway = self.source.gateway_hostname().map(str::to_owned);
    }

    /// Returns the address of the pod at one end as the cluster of the other end, or its own one, knows it. With
    /// Globalnet the two differ.
    #[must_use]
    pub fn address(&self, end: Side, known_to: Side) -> Option<IpAddr> {
        let cluster = self.side(end);
        if end != known_to && cluster.is_global { cluster.pod.outside } else { cluster.pod.address }
    }

    /// Returns the address under which the source's cluster reaches the service.
    #[must_use]
    pub fn service_address(&self) -> Option<IpAddr> {
        let service = self.service.as_ref()?;
        if self.destination.is_global { service.outside } else { service.address }
    }

    /// Chooses one family for both ends, where both have one in common: the first of the source's that the destination has
    /// too. Of global IPs there are IPv4 ones alone.
    pub(super) fn choose_family(&mut self) {
        let global = self.destination.pod.outside.or_else(|| self.service.as_ref()?.outside);
        let to = match (global, &self.service) {
            (Some(global), _) if self.destination.is_global => vec![global],
            (_, Some(service)) if !service.addresses.is_empty() => service.addresses.clone(),
            _ => self.destination.pod.addresses.clone(),
        };
        let is_common = |own: &&IpAddr| to.iter().any(|other| other.is_ipv4() == own.is_ipv4());
        let Some(is_v4) = self.source.pod.addresses.iter().find(is_common).map(IpAddr::is_ipv4) else {
            return;
        };
        let service = self.service.as_mut().map(|service| (&mut service.address, &service.addresses));
        let pods =
            [&mut self.source.pod, &mut self.destination.pod].map(|pod| (&mut pod.address, &pod.addresses));
        for (address, all) in pods.into_iter().chain(service) {
            *address = all.iter().copied().find(|one| one.is_ipv4() == is_v4).or(*address);
        }
    }

    /// A probe's result, if it was sent.
    #[must_use]
    pub fn probe(&self, probe: u16) -> Option<&SendReport> {
        self.probes.get(&probe)?.as_ref().ok()
    }
}

/// One side of the connection.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// Whether its API server was asked.
    pub visible: bool,
    /// Its ID in the cluster set; empty if not known.
    pub id: String,
    /// The words that make `kubectl` talk to it, such as ` --context a`.
    pub kubectl: String,
    /// The namespace of its gateway.
    pub namespace: String,
    /// Whether it knows the kinds of a cluster set and has such a namespace.
    pub joined: bool,
    /// The pod at this end.
    pub pod: PodFacts,
    /// The node that the pod is on.
    pub worker: Option<String>,
    /// The node of the gateway that is looked at: the leader's, or the one that the probes went by.
    pub gateway: Option<String>,
    /// All gateways that carry traffic, the leader first.
    pub active_gateways: Vec<GatewayNode>,
    /// The host name of the other side's gateway that is looked at: which of several cables is meant.
    pub far_gateway: Option<String>,
    /// Nodes, by name.
    pub nodes: BTreeMap<String, Node>,
    /// Nodes that are labelled as gateways.
    pub gateway_nodes: Vec<String>,
    /// Pods of the gateway: node, and why they do not work.
    pub gateway_pods: Vec<(String, Option<String>)>,
    /// Endpoints that its store has, its own and others'.
    pub endpoints: Vec<EndpointSpec>,
    /// Gateways, as they publish themselves; not those that have not done so for a while.
    pub gateways: Vec<PublishedStatus>,
    /// Networks that it has, by its Cluster object or its Endpoint.
    pub networks: Vec<IpNet>,
    /// Whether it takes part in Globalnet.
    pub is_global: bool,
    /// Network policies that choose the pod, and which directions they rule.
    pub policies: Vec<PolicyFacts>,
    /// What about the pod network is special: delivery by the network plugin.
    pub network_plugin: String,
}

/// A gateway that carries traffic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GatewayNode {
    /// Its node.
    pub node: String,
    /// What it calls itself in Endpoints.
    pub hostname: String,
}

/// A pod, or the lack of one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// `namespace/name`; an address where no pod was asked for.
    pub name: String,
    /// Whether it was asked for and is not there.
    pub missing: bool,
    /// Why it is not ready.
    pub not_ready: Option<String>,
    /// Its address, of the family that is spoken.
    pub address: Option<IpAddr>,
    /// All that it has, the first one first.
    pub addresses: Vec<IpAddr>,
    /// With Globalnet, the address under which other clusters know it: its global ingress IP, or the source that its
    /// packets arrive with.
    pub outside: Option<IpAddr>,
    /// Whether it has its node's own network.
    pub host_network: bool,
    /// Whether there is a pod at all, and not only an address.
    pub known: bool,
}

/// A node.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Why it is not ready.
    pub not_ready: Option<String>,
    /// Its addresses inside the cluster.
    pub addresses: Vec<IpAddr>,
    /// The networks of its pods, as Kubernetes gave them out.
    pub pod_networks: Vec<IpNet>,
    /// Why it could not be asked.
    pub problem: Option<AgentError>,
    /// Its report from before the probes.
    pub before: Option<NodeReport>,
    /// Its report from after them.
    pub after: Option<NodeReport>,
    /// What it saw.
    pub watch: Option<WatchReport>,
}

/// A service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceFacts {
    /// `namespace/name`.
    pub name: String,
    /// Whether it is not there.
    pub missing: bool,
    /// Its address, of the family that is spoken.
    pub address: Option<IpAddr>,
    /// All that it has, the first one first.
    pub addresses: Vec<IpAddr>,
    /// Its global ingress IP, with Globalnet and once it is exported.
    pub outside: Option<IpAddr>,
    /// Its first TCP port.
    pub port: Option<u16>,
    /// How many endpoints are ready.
    pub ready: usize,
    /// How many are not.
    pub not_ready: usize,
}

/// A network policy that chooses a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyFacts {
    /// `namespace/name`.
    pub name: String,
    /// Whether it rules what comes.
    pub ingress: bool,
    /// Whether it rules what goes.
    pub egress: bool,
}

impl Node {
    /// Both reports, the older first.
    pub fn reports(&self) -> impl Iterator<Item = &NodeReport> {
        self.before.iter().chain(&self.after)
    }

    /// How much a counter of the kernel grew while probes were on their way.
    #[must_use]
    pub fn grew(&self, read: impl Fn(&NodeReport) -> Option<u64>) -> Option<u64> {
        let (before, after) = (read(self.before.as_ref()?)?, read(self.after.as_ref()?)?);
        Some(after.saturating_sub(before))
    }

    /// The gateway's newest status on this node.
    #[must_use]
    pub fn gateway(&self) -> Option<&GatewayStatus> {
        self.after
            .as_ref()
            .and_then(|report| report.gateway.as_ref())
            .or_else(|| self.before.as_ref()?.gateway.as_ref())
    }
}

impl Cluster {
    /// The pod's node, as evidence.
    #[must_use]
    pub fn worker(&self) -> Option<&Node> {
        self.nodes.get(self.worker.as_ref()?)
    }

    /// The active gateway's node, as evidence.
    #[must_use]
    pub fn gateway(&self) -> Option<&Node> {
        self.nodes.get(self.gateway.as_ref()?)
    }

    /// Whether pod and gateway share a node.
    #[must_use]
    pub fn is_on_gateway(&self) -> bool {
        self.worker.is_some() && self.worker == self.gateway
    }

    /// Returns the nodes of all gateways that carry traffic, as evidence.
    pub fn gateway_evidence(&self) -> impl Iterator<Item = (&GatewayNode, &Node)> {
        self.active_gateways.iter().filter_map(|gateway| Some((gateway, self.nodes.get(&gateway.node)?)))
    }

    /// Returns the names of the nodes of all gateways that carry traffic.
    pub fn gateway_names(&self) -> impl Iterator<Item = &str> {
        let leader = self.gateway.as_deref().filter(|_| self.active_gateways.is_empty());
        self.active_gateways.iter().map(|gateway| gateway.node.as_str()).chain(leader)
    }

    /// Returns what the gateway that is looked at calls itself.
    #[must_use]
    pub fn gateway_hostname(&self) -> Option<&str> {
        let node = self.gateway.as_ref()?;
        self.active_gateways
            .iter()
            .find(|gateway| gateway.node == *node)
            .map(|gateway| gateway.hostname.as_str())
    }

    /// The Endpoint of its own gateway that is looked at.
    #[must_use]
    pub fn endpoint(&self) -> Option<&EndpointSpec> {
        let host = self.gateway_hostname();
        first(self.endpoints.iter().filter(|endpoint| endpoint.cluster_id == self.id), |endpoint| {
            Some(endpoint.hostname.as_str()) == host
        })
    }

    /// What it knows of another cluster: of the gateway there that is looked at, if it can.
    #[must_use]
    pub fn endpoint_of(&self, cluster: &str) -> Option<&EndpointSpec> {
        let connected = self.connection(cluster).map(|connection| &connection.endpoint);
        let stored = self.endpoints.iter().filter(|endpoint| endpoint.cluster_id == cluster);
        first(stored.chain(connected.filter(|endpoint| self.is_far(endpoint))), |endpoint| {
            self.is_far(endpoint)
        })
    }

    fn is_far(&self, endpoint: &EndpointSpec) -> bool {
        self.far_gateway.as_deref() == Some(endpoint.hostname.as_str())
    }

    /// Its gateway that is looked at, as published.
    #[must_use]
    pub fn active(&self) -> Option<&PublishedStatus> {
        let host = self.gateway_hostname();
        first(self.gateways.iter().filter(|gateway| gateway.ha_status == HaStatus::Active), |gateway| {
            Some(gateway.local_endpoint.hostname.as_str()) == host
        })
    }

    /// The status of its gateway that is looked at, if that could be asked.
    #[must_use]
    pub fn status(&self) -> Option<&GatewayStatus> {
        self.gateway()?.gateway()
    }

    /// The cable to another cluster's gateway that is looked at, as its owner says.
    #[must_use]
    pub fn cable(&self, cluster: &str) -> Option<&CableStatus> {
        let cables = self.status()?.connections.iter();
        first(cables.filter(|cable| cable.connection.endpoint.cluster_id == cluster), |cable| {
            self.is_far(&cable.connection.endpoint)
        })
    }

    /// The connection to another cluster's gateway that is looked at, as its owner says or publishes.
    #[must_use]
    pub fn connection(&self, cluster: &str) -> Option<&Connection> {
        let own = self.cable(cluster).map(|cable| &cable.connection);
        let published = || {
            let all = self.active()?.connections.iter();
            first(all.filter(|connection| connection.endpoint.cluster_id == cluster), |connection| {
                self.is_far(&connection.endpoint)
            })
        };
        own.or_else(published)
    }

    /// Networks of nodes' pods that the cluster does not publish: no other cluster reaches pods there.
    ///
    /// Some plugins give pods addresses of their own accord, and Globalnet publishes others on purpose; a family of which
    /// nothing is published is left out on purpose too.
    #[must_use]
    pub fn unpublished(&self) -> Vec<(&str, IpNet)> {
        let subnets = self.endpoint().map(|endpoint| endpoint.subnets.as_slice()).unwrap_or_default();
        let published: Vec<IpNet> = subnets.iter().filter_map(|net| net.parse().ok()).collect();
        if !self.network_plugin.is_empty() || self.is_global {
            return Vec::new();
        }
        let is_missing = |net: &IpNet| {
            let same = |other: &IpNet| other.addr().is_ipv4() == net.addr().is_ipv4();
            published.iter().any(same) && !published.iter().any(|other| other.contains(net))
        };
        let all =
            self.nodes.iter().flat_map(|(name, node)| node.pod_networks.iter().map(move |net| (name, net)));
        all.filter(|(_, net)| is_missing(net)).map(|(name, net)| (name.as_str(), *net)).collect()
    }

    /// The gateway's device.
    #[must_use]
    pub fn tunnel_device(&self) -> &str {
        let config = self.endpoint().map(|endpoint| &endpoint.backend_config);
        let named = config.and_then(|config| config.get("interface-name"));
        match (named, self.endpoint()) {
            (Some(name), _) => name,
            (None, Some(endpoint)) if endpoint.backend == "vxlan" => UPSTREAM_VXLAN_CABLE,
            (None, _) => TUN,
        }
    }
}

/// Returns the first that is meant, or else the first.
fn first<T>(all: impl Iterator<Item = T>, is_meant: impl Fn(&T) -> bool) -> Option<T> {
    let mut one = None;
    for each in all {
        if is_meant(&each) {
            return Some(each);
        }
        one = one.or(Some(each));
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(subnets: &[&str], pods: &[&str]) -> Cluster {
        let subnets = subnets.iter().map(|net| (*net).to_owned()).collect();
        let endpoint = EndpointSpec { cluster_id: "a".to_owned(), subnets, ..EndpointSpec::default() };
        let pod_networks = pods.iter().map(|net| net.parse().unwrap()).collect();
        let node = Node { pod_networks, ..Node::default() };
        Cluster {
            id: "a".to_owned(),
            nodes: [("w1".to_owned(), node)].into(),
            endpoints: vec![endpoint],
            ..Cluster::default()
        }
    }

    #[test]
    fn pods_of_a_node_that_is_not_published_are_found() {
        let found = cluster(&["10.1.0.0/16"], &["10.2.1.0/24", "fd00:1::/64"]);
        assert_eq!(found.unpublished(), [("w1", "10.2.1.0/24".parse().unwrap())]);
        assert!(cluster(&["10.1.0.0/16"], &["10.1.1.0/24"]).unpublished().is_empty());
    }

    #[test]
    fn where_published_networks_are_others_on_purpose_nothing_is_missing() {
        let found = cluster(&["242.0.0.0/16"], &["10.1.1.0/24"]);
        assert!(Cluster { is_global: true, ..found.clone() }.unpublished().is_empty());
        assert!(Cluster { network_plugin: "calico".to_owned(), ..found }.unpublished().is_empty());
    }
}
