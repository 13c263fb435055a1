//! The input of every driver: what the cluster set looks like and what this node is.
//!
//! Endpoints and Clusters of the store are parsed into these types once (`source.rs`); from here on a network is a
//! network and cannot be malformed.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use trieste_control::api::NoticeKey;
use trieste_control::claims::Allowed;
use trieste_control::devices::UPSTREAM_VXLAN_CABLE;
use trieste_control::notice::{GatewayIdentity, GatewayKey, PublicKey};
use trieste_control::services::{Frontend, Service};

use crate::constants::{DEFAULT_CABLE_PORT, DEFAULT_NATT_PORT, VX_DEVICE};
use crate::family::Family;

/// Addresses that stand for "the rest of the world", as where upstream looks for the default route's device.
const DEFAULT_ROUTE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888)),
];

/// MTU where no device is known, bytes of IP packet.
const ETHERNET_MTU: u32 = 1500;

/// Identity and settings of this node, fixed for the life of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Own cluster.
    pub cluster: String,
    /// Host name, compared with an Endpoint's to find out whether this node is a gateway.
    pub hostname: String,
    /// Pod networks of the own cluster.
    pub pod_networks: Vec<IpNet>,
    /// Service networks of the own cluster.
    pub service_networks: Vec<IpNet>,
    /// Other networks of the own cluster: of pods' second devices, of machines beside it.
    pub extra_networks: Vec<IpNet>,
    /// Name of the gateway's TUN device when the own Endpoint does not publish one.
    pub tun: String,
    /// Network plugin of the cluster as upstream names them (api §10.4), lower case; `generic` if unknown.
    pub plugin: String,
    /// UDP port of the gateways' notices; 0 where there are none.
    pub notice_port: u16,
    /// Whether OVN-Kubernetes' packets pass a router of Submariner's own and the external bridge of the gateway's node.
    pub has_submariner_router: bool,
    /// Whether a worker writes the network plugin's database (`trieste-plugin-sync`), by this node's settings.
    pub has_synchronizer: bool,
    /// Whether the cluster takes part by global addresses (`SUBMARINER_GLOBALCIDR` is not empty).
    pub has_globalnet: bool,
    /// The set's range of clusterset IPs; none where nodes do not lead them.
    pub clusterset_range: Vec<IpNet>,
    /// Networks that members of the set may claim.
    pub allowed: Allowed,
    /// Addresses that none of them may claim, and whose they are.
    pub protected: BTreeMap<IpAddr, String>,
}

/// A node of the own cluster, from a Node object.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterNode {
    /// Name of the object.
    pub name: String,
    /// What the node calls itself: its label `kubernetes.io/hostname`, else its name. Compared with an Endpoint's
    /// host name.
    pub hostname: String,
    /// Its addresses of type `InternalIP`, both families.
    pub addresses: BTreeSet<IpAddr>,
    /// The pod networks that it was given (`spec.podCIDRs`, else `spec.podCIDR`); empty with plugins that hand out
    /// addresses on their own.
    pub pod_networks: BTreeSet<IpNet>,
    /// The value of its annotation `submariner.io/tcp-clamp-mss`, bytes of TCP payload.
    pub clamp_mss: Option<u16>,
    /// Its addresses on the switch between OVN-Kubernetes' zones (`k8s.ovn.org/node-transit-switch-port-ifaddr`), one of each
    /// family at most.
    pub transit_addresses: BTreeSet<IpAddr>,
    /// Whether it has the taint that keeps pods off until it is closed (`taint.rs`).
    pub is_tainted: bool,
}

/// One gateway of some cluster, from an Endpoint object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Name of the object, for messages.
    pub name: String,
    /// Cluster the gateway belongs to.
    pub cluster: String,
    /// Host name of the gateway node.
    pub hostname: String,
    /// Creation time of the object, nanoseconds since the Unix epoch; the lowest number if it has none.
    pub created: i128,
    /// Networks reachable behind it, host bits zero.
    pub subnets: Vec<IpNet>,
    /// Its private and public addresses, in this order.
    pub addresses: Vec<IpAddr>,
    /// Its cable driver, lower case.
    pub backend: String,
    /// The one that its cluster set changes from, which it has besides.
    pub former_backend: Option<String>,
    /// The address its health check answers on; inside the cluster's networks.
    pub health_check: Option<IpAddr>,
    /// Device that its packets enter and leave by.
    pub interface: Option<String>,
    /// Port of its cables.
    pub cable_port: u16,
    /// Port of its NAT discovery.
    pub natt_port: u16,
    /// Its cable's name, which identifies it in objects of any name.
    pub cable_name: String,
    /// Whether its cluster supports several active gateways.
    pub has_multipath: bool,
    /// Whether a gateway of ours wrote it.
    pub is_triestes: bool,
    /// The key of its notices.
    pub notice_key: Option<NoticeKey>,
}

impl Endpoint {
    /// Makes an Endpoint without addresses or networks, with the default ports.
    #[must_use]
    pub fn new(name: &str, cluster: &str, hostname: &str) -> Self {
        Self {
            name: name.to_owned(),
            cluster: cluster.to_owned(),
            hostname: hostname.to_owned(),
            created: 0,
            subnets: Vec::new(),
            addresses: Vec::new(),
            backend: "wireguard".to_owned(),
            former_backend: None,
            health_check: None,
            interface: None,
            cable_port: DEFAULT_CABLE_PORT,
            natt_port: DEFAULT_NATT_PORT,
            cable_name: format!("{cluster}-{hostname}"),
            has_multipath: false,
            is_triestes: false,
            notice_key: None,
        }
    }

    /// Compares two by what the store sorts them by.
    pub(crate) fn in_order(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }

    /// Returns which gateway it is, for notices.
    #[must_use]
    pub fn key(&self) -> GatewayKey {
        GatewayKey::of_cable(&self.cable_name)
    }

    /// Returns the drivers of its cables.
    pub fn backends(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.backend).chain(&self.former_backend).map(String::as_str)
    }

    /// Returns the gateway's own address, at which its cluster's nodes reach it.
    #[must_use]
    pub fn private_address(&self) -> Option<IpAddr> {
        self.addresses.first().copied()
    }

    /// Returns the device by which the gateway's packets enter and leave, if it has one: upstream's IPsec has none.
    /// An Endpoint of ours names it.
    #[must_use]
    pub fn device<'a>(&'a self, configured: &'a str) -> Option<&'a str> {
        match (self.interface.as_deref(), self.backend.as_str()) {
            (Some(name), _) => Some(name),
            (None, "vxlan") => Some(UPSTREAM_VXLAN_CABLE),
            (None, "libreswan") => None,
            (None, _) => Some(configured),
        }
    }
}

/// A member of the cluster set, from a Cluster object. It outlives its Endpoints: while a gateway fails over its
/// cluster has none for a moment, and the fail-closed routes must not go with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Its id.
    pub id: String,
    /// Creation time of the object, nanoseconds since the Unix epoch; the lowest number if it has none.
    pub created: i128,
    /// The networks under which other clusters reach it.
    pub networks: Vec<IpNet>,
}

impl Cluster {
    /// Compares two by what the store sorts them by.
    pub(crate) fn in_order(&self, other: &Self) -> Ordering {
        self.id.cmp(&other.id)
    }
}

/// An address of a device of this node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceAddress {
    /// Name of the device.
    pub device: String,
    /// Address and prefix length, host bits kept.
    pub network: IpNet,
}

/// The kernel's route to an address by the main table, as `ip route get` shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedRoute {
    /// Name of the device.
    pub device: String,
    /// The next router, unless the address is on the device's own network.
    pub via: Option<IpAddr>,
    /// The address that the node would use as source.
    pub source: Option<IpAddr>,
}

/// Services whose packets gateways send to the nodes with back ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Services {
    /// Whether gateways do so.
    pub is_wanted: bool,
    /// Whether requests and answers of one flow may pass different gateways.
    pub is_asymmetric: bool,
    /// The services with back ends on this node; `None` while they are not known.
    pub here: Option<Arc<BTreeMap<Frontend, Service>>>,
}

/// The input from which a driver computes the desired state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterState {
    /// This node.
    pub node: Node,
    /// Endpoints of all clusters, the own one included.
    pub endpoints: Vec<Endpoint>,
    /// The own cluster's active gateways, from their further Endpoints; empty if only one is active.
    pub members: Vec<Endpoint>,
    /// Those of them that are to be used, as far as notices say (`notices.rs`); `None` if nothing is known.
    pub live: Option<BTreeSet<GatewayKey>>,
    /// Whether this kernel supports groups of next hops.
    pub has_nexthops: bool,
    /// Whether the node filters strictly by reverse path, whatever a device's own setting below 2 says.
    pub is_strict: bool,
    /// Clusters of the set, the own one included.
    pub clusters: Vec<Cluster>,
    /// Nodes of the own cluster, sorted; empty where there are no Node objects, as in a directory store.
    pub nodes: Vec<ClusterNode>,
    /// Addresses of the own cluster's API servers.
    pub servers: BTreeSet<IpAddr>,
    /// Addresses of servers that are known by a name, and whose they are (`names.rs`).
    pub named: BTreeMap<IpAddr, String>,
    /// Addresses of this node's devices.
    pub addresses: BTreeSet<DeviceAddress>,
    /// MTUs of this node's devices, bytes of IP packet.
    pub mtus: BTreeMap<String, u32>,
    /// The kernel's routes to the addresses of [`ClusterState::lookup_addresses`].
    pub resolved_routes: BTreeMap<IpAddr, ResolvedRoute>,
    /// Networks that nobody claims any more and that stay closed for now (`grace.rs`).
    pub lingering: BTreeSet<IpNet>,
    /// Networks of pods of this node whose device is down or gone, and that stay closed for now.
    pub unplugged: BTreeSet<IpNet>,
    /// Services with back ends on this node.
    pub services: Services,
    /// Whether the active gateway's node is another one and has another route agent than ours (`deliverer.rs`).
    pub is_agent_foreign: bool,
}

/// Returns the Endpoint of a cluster's active gateway: the newest.
#[must_use]
pub fn active_endpoint<'a>(endpoints: &'a [Endpoint], cluster: &str) -> Option<&'a Endpoint> {
    endpoints.iter().filter(|e| e.cluster == cluster).max_by_key(|e| (e.created, &e.name))
}

/// Returns the Endpoint of every cluster's active gateway by the cluster's ID: the newest.
#[must_use]
pub fn active_endpoints<'a>(
    endpoints: impl IntoIterator<Item = &'a Endpoint>,
) -> BTreeMap<&'a str, &'a Endpoint> {
    let mut active: BTreeMap<&str, &Endpoint> = BTreeMap::new();
    for endpoint in endpoints {
        let newest = active.entry(&endpoint.cluster).or_insert(endpoint);
        if (endpoint.created, &endpoint.name) >= (newest.created, &newest.name) {
            *newest = endpoint;
        }
    }
    active
}

impl ClusterState {
    /// Returns the Endpoint of the own cluster's active gateway: the newest.
    #[must_use]
    pub fn active_endpoint(&self) -> Option<&Endpoint> {
        active_endpoint(&self.endpoints, &self.node.cluster)
    }

    /// Returns all active gateways of the own cluster, by the names of their cables: its members, and the one that
    /// upstream's members know.
    #[must_use]
    pub fn gateways(&self) -> Vec<&Endpoint> {
        let all = self.active_endpoint().into_iter().chain(&self.members);
        let by_name: BTreeMap<&str, &Endpoint> =
            all.map(|gateway| (gateway.cable_name.as_str(), gateway)).collect();
        by_name.into_values().collect()
    }

    /// Returns the Endpoint that stands for all of them, in what they have in common.
    #[must_use]
    pub fn any_gateway(&self) -> Option<&Endpoint> {
        self.active_endpoint().or_else(|| self.members.first())
    }

    /// Returns `true` if the own cluster has several active gateways.
    #[must_use]
    pub fn has_several_gateways(&self) -> bool {
        !self.members.is_empty() && self.gateways().len() > 1
    }

    /// Returns the gateways that are to be used: all of them, unless notices say something else.
    #[must_use]
    pub fn live(&self) -> BTreeSet<GatewayKey> {
        let all = || self.gateways().into_iter().map(Endpoint::key).collect();
        self.live.clone().unwrap_or_else(all)
    }

    /// Returns `true` if the own cluster's gateways send notices. So does one alone: when a second one comes, it is known that
    /// the first is there, and the second has to say first that it is ready.
    #[must_use]
    pub fn has_notices(&self) -> bool {
        !self.members.is_empty()
    }

    /// Returns the gateways whose notices are accepted, with their addresses and keys.
    #[must_use]
    pub fn notice_senders(&self) -> BTreeMap<GatewayKey, GatewayIdentity> {
        let gateways = self.gateways().into_iter().filter(|_| self.has_notices());
        let known = |gateway: &Endpoint| {
            let key = gateway.notice_key.map(PublicKey);
            Some((gateway.key(), GatewayIdentity { address: gateway.private_address()?, key }))
        };
        gateways.filter_map(known).collect()
    }

    /// Returns this node's own Endpoint; `None` unless the node is an active gateway.
    #[must_use]
    pub fn own_endpoint(&self) -> Option<&Endpoint> {
        let is_own = |gateway: &&Endpoint| gateway.hostname == self.node.hostname;
        self.members.iter().find(is_own).or_else(|| self.active_endpoint().filter(is_own))
    }

    /// Returns what Kubernetes says about this node.
    #[must_use]
    pub fn own_node(&self) -> Option<&ClusterNode> {
        self.nodes.iter().find(|node| self.is_this_node(node))
    }

    /// Returns the other nodes of the own cluster.
    pub fn other_nodes(&self) -> impl Iterator<Item = &ClusterNode> {
        self.nodes.iter().filter(|node| !self.is_this_node(node))
    }

    fn is_this_node(&self, node: &ClusterNode) -> bool {
        node.hostname == self.node.hostname
    }

    /// Returns the Endpoints of other clusters.
    pub fn remote_endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.iter().filter(|e| e.cluster != self.node.cluster)
    }

    /// Returns the device by which this node's gateway sends and receives, or would if it were one; `None` where the
    /// active gateway is this node and has no device.
    #[must_use]
    pub fn tun(&self) -> Option<&str> {
        match self.own_endpoint() {
            Some(own) => own.device(&self.node.tun),
            None => Some(&self.node.tun),
        }
    }

    /// Returns the node's own networks: addresses of all devices but loopback and the ones that lead to remote
    /// clusters.
    pub fn own_networks(&self) -> impl Iterator<Item = &DeviceAddress> {
        let tun = self.tun();
        self.addresses
            .iter()
            .filter(move |a| a.device != "lo" && a.device != VX_DEVICE && Some(a.device.as_str()) != tun)
    }

    /// Returns this node's address in a pod network, with its device: the network plugin's.
    #[must_use]
    pub fn plugin_address(&self, family: Family) -> Option<&DeviceAddress> {
        let is_of_pods = |address| self.node.pod_networks.iter().any(|net| net.contains(&address));
        self.own_networks()
            .find(|own| Family::of(own.network.addr()) == family && is_of_pods(own.network.addr()))
    }

    /// Returns the source address for this node's own packets of a family: a gateway's health-check address, else the
    /// node's address in a pod network, which is what the peers accept. The kernel refuses one that is not its own.
    #[must_use]
    pub fn source_address(&self, family: Family) -> Option<IpAddr> {
        let health_check = self.own_endpoint().and_then(|own| own.health_check);
        health_check
            .filter(|address| self.is_own_address(*address) && Family::of(*address) == family)
            .or_else(|| self.plugin_address(family).map(|own| own.network.addr()))
    }

    /// Returns the networks that this node alone has pods in: those of the devices, bridges mostly, that the network
    /// plugin gave an address with a network. Not one that leads to other nodes as well.
    #[must_use]
    pub fn bridged_networks(&self) -> BTreeSet<IpNet> {
        let is_default = |device: &str| self.default_devices().any(|default| default == device);
        let is_of_nodes = |net: &IpNet| {
            self.nodes.iter().flat_map(|node| &node.addresses).any(|address| net.contains(address))
        };
        let is_within_pods = |net: &IpNet| self.node.pod_networks.iter().any(|all| all.contains(net));
        self.own_networks()
            .filter(|own| !is_default(&own.device))
            .map(|own| own.network.trunc())
            .filter(|net| net.prefix_len() < net.max_prefix_len() && is_within_pods(net) && !is_of_nodes(net))
            .collect()
    }

    /// Returns the address at which the cluster's other nodes reach this one, of the family at which the active
    /// gateway is reached: what its Endpoint publishes, else what its Node object says, else what it would send from.
    #[must_use]
    pub fn underlay_address(&self) -> Option<IpAddr> {
        let family = self.any_gateway().and_then(Endpoint::private_address).map(Family::of);
        let published = self.own_endpoint().and_then(Endpoint::private_address);
        let registered = self.own_node().into_iter().flat_map(|node| &node.addresses).copied();
        let default = DEFAULT_ROUTE.iter().filter_map(|address| self.resolved_routes.get(address)?.source);
        let mut candidates = published.into_iter().chain(registered).chain(default);
        candidates.find(|address| {
            self.is_own_address(*address) && family.is_none_or(|family| family == Family::of(*address))
        })
    }

    /// Returns the devices by which this node reaches others: those of the default routes, and those with an address at
    /// which others know it. Not one with an address of a pod network: pods are behind that.
    #[must_use]
    pub fn uplinks(&self) -> BTreeSet<String> {
        let registered = self.own_node().into_iter().flat_map(|node| &node.addresses).copied();
        let known: BTreeSet<_> = self.underlay_address().into_iter().chain(registered).collect();
        let with_address =
            self.addresses.iter().filter(|a| known.contains(&a.network.addr())).map(|a| &a.device);
        let has_pods = |device: &&String| {
            let mut own = self.addresses.iter().filter(|a| a.device == **device).map(|a| a.network.addr());
            own.any(|address| self.node.pod_networks.iter().any(|net| net.contains(&address)))
        };
        with_address.chain(self.default_devices()).filter(|device| !has_pods(device)).cloned().collect()
    }

    /// Returns the MTU of the device that has the node's own address, else of the default route's, else Ethernet's.
    #[must_use]
    pub fn underlay_mtu(&self) -> u32 {
        let own = self.underlay_address();
        let with_address = self.addresses.iter().find(|a| Some(a.network.addr()) == own).map(|a| &a.device);
        let device = with_address.or_else(|| self.default_devices().next());
        device.and_then(|device| self.mtus.get(device)).copied().unwrap_or(ETHERNET_MTU)
    }

    /// Returns the addresses whose routes drivers need: one that stands for the default route of each family, and, where an
    /// upstream gateway has no device, the remote gateways, since their own networks must not be routed to them.
    #[must_use]
    pub fn lookup_addresses(&self) -> BTreeSet<IpAddr> {
        let mut addresses: BTreeSet<IpAddr> = DEFAULT_ROUTE.into();
        if self.own_endpoint().is_some() && self.tun().is_none() {
            addresses.extend(self.remote_endpoints().filter_map(|e| e.addresses.last()));
        }
        addresses
    }

    /// Returns the default route of a family, if there is one.
    #[must_use]
    pub fn default_route(&self, family: Family) -> Option<&ResolvedRoute> {
        self.resolved_routes.get(DEFAULT_ROUTE.iter().find(|address| Family::of(**address) == family)?)
    }

    /// Returns the devices of the default routes, IPv4's first.
    fn default_devices(&self) -> impl Iterator<Item = &String> {
        Family::ALL.iter().filter_map(|family| self.default_route(*family)).map(|route| &route.device)
    }

    /// Returns the own cluster's networks: of pods, of services, and others.
    pub fn local_networks(&self) -> impl Iterator<Item = &IpNet> {
        self.node.local_networks()
    }

    /// Returns `true` if an address belongs to this node.
    #[must_use]
    pub fn is_own_address(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|a| a.network.addr() == address)
    }
}
