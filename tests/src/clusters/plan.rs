//! Which addresses the clusters have. Pure.
//!
//! | what | IPv4 | IPv6 |
//! |---|---|---|
//! | fabric's end of cluster number *c* | 172.31.*c*.254 | fd31:0:0:*c*::fe |
//! | its node *n* | 172.31.*c*.(10+*n*) | fd31:0:0:*c*::(10+*n*), decimal digits |
//! | pods of network *w* (a cluster's; two may share one) | 10.*w*0.0.0/16 | fd00:*w*0::/48 |
//! | node *n*'s share | 10.*w*0.*n*.0/24 | fd00:*w*0:0:*n*::/64 |
//! | services of network *w* | 10.*w*1.0.0/16 | fd00:*w*1::/112 |
//!
//! The API server has its cluster's first service address, DNS the tenth.

use std::net::IpAddr;

use anyhow::Context;
use ipnet::IpNet;

use crate::topology::Families;

/// The place of the API server's address in each service prefix: Kubernetes' own choice.
pub(super) const API_PLACE: u8 = 1;

/// The place of DNS: the usual one.
pub(super) const DNS_PLACE: u8 = 10;

/// How kube-proxy does its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyMode {
    /// Chains of iptables.
    Iptables,
    /// A table of nftables.
    Nftables,
}

impl ProxyMode {
    /// As kube-proxy's configuration calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Nftables => "nftables",
        }
    }
}

/// One cluster to build.
#[derive(Debug, Clone)]
pub struct ClusterShape {
    /// Its name, which is also its kubeconfig context; at most 8 characters.
    pub name: String,
    /// Its network number, 1 to 9: two clusters with the same one have the same pod and service prefixes.
    pub network: u8,
    /// Number of nodes, 1 to 9; the first one carries the control plane too.
    pub nodes: u8,
    /// What nodes, pods and services speak.
    pub families: Families,
    /// How kube-proxy does its work.
    pub proxy: ProxyMode,
    /// IP MTU of the nodes' links and of their pods, in bytes.
    pub mtu: u16,
}

impl ClusterShape {
    /// Two nodes, dual-stack, kube-proxy with nftables, MTU 1500.
    pub fn new(name: &str, network: u8) -> Self {
        Self {
            name: name.to_owned(),
            network,
            nodes: 2,
            families: Families::Dual,
            proxy: ProxyMode::Nftables,
            mtu: 1500,
        }
    }

    /// `east` with kube-proxy in its iptables mode and `west` in its nftables mode, two dual-stack nodes each.
    pub fn two() -> [Self; 2] {
        [Self::new("east", 1).with_proxy(ProxyMode::Iptables), Self::new("west", 2)]
    }

    /// The same with this many nodes.
    #[must_use]
    pub fn with_nodes(mut self, nodes: u8) -> Self {
        self.nodes = nodes;
        self
    }

    /// The same with these families.
    #[must_use]
    pub fn with_families(mut self, families: Families) -> Self {
        self.families = families;
        self
    }

    /// The same with another kube-proxy.
    #[must_use]
    pub fn with_proxy(mut self, proxy: ProxyMode) -> Self {
        self.proxy = proxy;
        self
    }

    /// The same with another MTU.
    #[must_use]
    pub fn with_mtu(mut self, mtu: u16) -> Self {
        self.mtu = mtu;
        self
    }
}

/// A cluster with its addresses.
#[derive(Debug, Clone)]
pub(super) struct ClusterPlan {
    pub(super) shape: ClusterShape,
    /// 1 for the first cluster.
    pub(super) number: u8,
    /// The fabric's addresses on the cluster's bridge.
    pub(super) routers: Vec<IpNet>,
    pub(super) pod_nets: Vec<IpNet>,
    pub(super) service_nets: Vec<IpNet>,
    pub(super) nodes: Vec<NodePlan>,
}

/// A node with its addresses; everywhere IPv4 first.
#[derive(Debug, Clone)]
pub(super) struct NodePlan {
    pub(super) name: String,
    /// 1 for the first node.
    pub(super) number: u8,
    pub(super) addresses: Vec<IpNet>,
    pub(super) pod_cidrs: Vec<IpNet>,
}

impl ClusterPlan {
    /// Gives a cluster its addresses; `number` is at least 1.
    ///
    /// # Errors
    /// If the shape is impossible.
    pub(super) fn new(number: u8, shape: &ClusterShape) -> anyhow::Result<Self> {
        let name = &shape.name;
        let is_name =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        anyhow::ensure!(is_name && name.len() <= 8, "{name:?} is no name of 1 to 8 small letters and digits");
        anyhow::ensure!((1..=9).contains(&shape.network), "{name}: network numbers go from 1 to 9");
        anyhow::ensure!((1..=9).contains(&shape.nodes), "{name}: a cluster has 1 to 9 nodes");
        anyhow::ensure!((1..=9).contains(&number), "there are 1 to 9 clusters");
        anyhow::ensure!(shape.mtu >= 1280, "{name}: IPv6 needs an MTU of 1280 bytes at least");
        let w = shape.network;
        let nets = |texts: [String; 2]| nets(shape.families, &texts);
        let mut nodes = Vec::new();
        for n in 1..=shape.nodes {
            nodes.push(NodePlan {
                name: format!("{name}-{n}"),
                number: n,
                addresses: nets([
                    format!("172.31.{number}.{}/24", 10 + n),
                    format!("fd31:0:0:{number}::{}/64", 10 + n),
                ])?,
                pod_cidrs: nets([format!("10.{w}0.{n}.0/24"), format!("fd00:{w}0:0:{n}::/64")])?,
            });
        }
        Ok(Self {
            shape: shape.clone(),
            number,
            routers: nets([format!("172.31.{number}.254/24"), format!("fd31:0:0:{number}::fe/64")])?,
            pod_nets: nets([format!("10.{w}0.0.0/16"), format!("fd00:{w}0::/48")])?,
            service_nets: nets([format!("10.{w}1.0.0/16"), format!("fd00:{w}1::/112")])?,
            nodes,
        })
    }

    /// Where the API server listens.
    pub(super) fn api(&self) -> IpAddr {
        self.nodes[0].addresses[0].addr()
    }

    /// Its bridge in the fabric.
    pub(super) fn bridge(&self) -> String {
        format!("br-{}", self.shape.name)
    }

    /// The service address at this place of each service prefix.
    pub(super) fn service_addresses(&self, place: u8) -> Vec<IpAddr> {
        self.service_nets.iter().map(|net| offset(net.network(), place)).collect()
    }

    /// `ip` commands for the fabric: the bridge and its addresses. Its own link address is fixed: otherwise it changes
    /// as ports come and go, and neighbours send to the old one for half a minute.
    pub(super) fn bridge_lines(&self) -> String {
        let bridge = self.bridge();
        let mut lines = format!(
            "link add {bridge} address 02:00:00:00:{:02x}:fe mtu {} type bridge mcast_snooping 0\n",
            self.number, self.shape.mtu
        );
        for router in &self.routers {
            lines.push_str(&format!("addr add {router} dev {bridge} nodad\n"));
        }
        lines + &format!("link set {bridge} up\n")
    }

    /// `ip` commands for a node that has its `eth0`: addresses, routes to the world and to other nodes' pods.
    pub(super) fn node_lines(&self, node: &NodePlan) -> String {
        let mut lines = String::new();
        for address in &node.addresses {
            lines.push_str(&format!("addr add {address} dev eth0 nodad\n"));
        }
        lines.push_str("link set eth0 up\n");
        for router in &self.routers {
            lines.push_str(&format!("route add default via {}\n", router.addr()));
        }
        for other in self.nodes.iter().filter(|other| other.number != node.number) {
            for (pods, next_hop) in other.pod_cidrs.iter().zip(&other.addresses) {
                lines.push_str(&format!("route add {pods} via {}\n", next_hop.addr()));
            }
        }
        lines
    }
}

impl NodePlan {
    /// Its port of the cluster's bridge in the fabric.
    pub(super) fn port(&self) -> String {
        format!("v-{}", self.name)
    }
}

fn nets(families: Families, texts: &[String; 2]) -> anyhow::Result<Vec<IpNet>> {
    let mut nets = Vec::new();
    for text in texts {
        let net: IpNet = text.parse().with_context(|| format!("{text} is no prefix"))?;
        if families.has(&net) {
            nets.push(net);
        }
    }
    Ok(nets)
}

fn offset(network: IpAddr, place: u8) -> IpAddr {
    match network {
        IpAddr::V4(address) => IpAddr::from((u32::from(address) + u32::from(place)).to_be_bytes()),
        IpAddr::V6(address) => IpAddr::from((u128::from(address) + u128::from(place)).to_be_bytes()),
    }
}

/// Several values in one, as Kubernetes' flags take them.
pub(super) fn joined<T: ToString>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_of_one_network_share_prefixes_and_no_node_address() {
        let east = ClusterPlan::new(1, &ClusterShape::new("east", 4)).unwrap();
        let west = ClusterPlan::new(2, &ClusterShape::new("west", 4)).unwrap();

        assert_eq!(joined(&east.pod_nets), "10.40.0.0/16,fd00:40::/48");
        assert_eq!((&east.pod_nets, &east.service_nets), (&west.pod_nets, &west.service_nets));
        assert_eq!(joined(&east.service_addresses(10)), "10.41.0.10,fd00:41::a");
        assert_eq!(joined(&west.nodes[1].addresses), "172.31.2.12/24,fd31:0:0:2::12/64");
        assert_eq!(east.api().to_string(), "172.31.1.11");
    }

    #[test]
    fn a_node_routes_to_the_pods_of_the_others_alone() {
        let plan = ClusterPlan::new(1, &ClusterShape::new("east", 1).with_families(Families::V4)).unwrap();

        let lines = plan.node_lines(&plan.nodes[1]);

        assert_eq!(
            lines,
            "addr add 172.31.1.12/24 dev eth0 nodad\nlink set eth0 up\nroute add default via 172.31.1.254\n\
             route add 10.10.1.0/24 via 172.31.1.11\n"
        );
    }

    #[test]
    fn impossible_shapes_are_refused() {
        for shape in [
            ClusterShape::new("a name", 1),
            ClusterShape::new("east", 0),
            ClusterShape::new("east", 1).with_nodes(0),
            ClusterShape::new("east", 1).with_mtu(1000),
        ] {
            assert!(ClusterPlan::new(1, &shape).is_err(), "{shape:?}");
        }
    }
}
