//! The input of every driver: what the cluster set looks like and what this node is.
//!
//! Endpoints and Clusters of the store are parsed into these types once (`source.rs`); from here on a network is a
//! network and cannot be malformed.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::hostnet::{DEFAULT_CABLE_PORT, DEFAULT_NATT_PORT, VX_DEVICE};

/// Who this node is. Fixed for the life of the process.
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
    /// Name of the gateway's TUN device when the own Endpoint does not publish one.
    pub tun: String,
    /// Network plugin of the cluster as upstream names them (api §10.4), lower case; `generic` if unknown.
    pub plugin: String,
    /// Whether the cluster takes part by global addresses (`SUBMARINER_GLOBALCIDR` is not empty).
    pub has_globalnet: bool,
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
    /// Its private and public addresses.
    pub addresses: Vec<IpAddr>,
    /// The address its health check answers on; inside the cluster's networks.
    pub health_check: Option<IpAddr>,
    /// Device that its packets enter and leave by.
    pub interface: Option<String>,
    /// Port of its cables.
    pub cable_port: u16,
    /// Port of its NAT discovery.
    pub natt_port: u16,
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
            health_check: None,
            interface: None,
            cable_port: DEFAULT_CABLE_PORT,
            natt_port: DEFAULT_NATT_PORT,
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

/// An address of a device of this node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceAddress {
    /// Name of the device.
    pub device: String,
    /// Address and prefix length, host bits kept.
    pub network: IpNet,
}

/// The whole state a driver computes its wishes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterState {
    /// This node.
    pub node: Node,
    /// Endpoints of all clusters, the own one included.
    pub endpoints: Vec<Endpoint>,
    /// Clusters of the set, the own one included.
    pub clusters: Vec<Cluster>,
    /// Nodes of the own cluster, sorted; empty where there are no Node objects, as in a directory store.
    pub nodes: Vec<ClusterNode>,
    /// Addresses of this node's devices.
    pub addresses: BTreeSet<DeviceAddress>,
    /// Networks that nobody claims any more and that stay closed for now (`grace.rs`).
    pub lingering: BTreeSet<IpNet>,
}

impl ClusterState {
    /// Returns this node's own Endpoint, the newest if there are several; `None` unless the node is a gateway.
    #[must_use]
    pub fn own_endpoint(&self) -> Option<&Endpoint> {
        self.endpoints
            .iter()
            .filter(|e| e.cluster == self.node.cluster && e.hostname == self.node.hostname)
            .max_by_key(|e| (e.created, &e.name))
    }

    /// Returns the Endpoints of other clusters.
    pub fn remote_endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.iter().filter(|e| e.cluster != self.node.cluster)
    }

    /// Returns the device by which this node's gateway sends and receives, whether or not the node is a gateway.
    #[must_use]
    pub fn tun(&self) -> &str {
        self.own_endpoint().and_then(|e| e.interface.as_deref()).unwrap_or(&self.node.tun)
    }

    /// Returns the node's own networks: addresses of all devices but loopback and the ones that lead to remote
    /// clusters.
    pub fn own_networks(&self) -> impl Iterator<Item = &DeviceAddress> {
        let tun = self.tun();
        self.addresses.iter().filter(move |a| a.device != "lo" && a.device != VX_DEVICE && a.device != tun)
    }

    /// Returns the own cluster's pod and service networks.
    pub fn local_networks(&self) -> impl Iterator<Item = &IpNet> {
        self.node.pod_networks.iter().chain(&self.node.service_networks)
    }

    /// Says whether an address belongs to this node.
    #[must_use]
    pub fn is_own_address(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|a| a.network.addr() == address)
    }
}
