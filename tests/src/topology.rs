//! Which namespaces, links and addresses a lab has. Pure: a description goes in, `ip` commands come out.
//!
//! | what | IPv4 | IPv6 |
//! |---|---|---|
//! | underlay (bridge in the WAN namespace) | 172.31.0.0/16, router 172.31.255.254 | fd00:31::/64, router ::ffff |
//! | API server of cluster *c* on it (`kubernetes`), the broker's | 172.31.*c*.100, 172.31.250.100 | fd00:31::*c*:100, fd00:31::250:100 |
//! | members of `trieste-bench scale` that answer, and behind it 198.19.0.0/16 | 172.31.251.100 | fd00:31::251:100 |
//! | node *n* of cluster number *c* on it | 172.31.*c*.*n* | fd00:31::*c*:*n* |
//! | pods of network *w* (a cluster's; two may share one) | 10.*w*.0.0/16 | fd00:*w*::/48 |
//! | node *n*'s share, its bridge, its pod *p* | 10.*w*.*n*.0/24, .1, .(9+*p*) | fd00:*w*:0:*n*::/64, ::1, ::(9+*p*) |
//! | services of network *w* | 10.(100+*w*).0.0/16 | fd00:1*w*::/112 |
//! | global addresses of cluster *c*, if it has any | 242.*c*.0.0/16 | |
//!
//! Every node has a default route to the WAN router, so that a packet which nobody guards would leave in clear.

use std::fmt::Write as _;
use std::net::IpAddr;

use anyhow::Context;
use ipnet::IpNet;

use crate::netns::Namespace;

/// Which IP versions something has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv4 alone.
    V4,
    /// IPv6 alone.
    V6,
    /// Both.
    Dual,
}

impl Families {
    pub(crate) fn has(self, address: &IpNet) -> bool {
        match self {
            Self::V4 => matches!(address, IpNet::V4(_)),
            Self::V6 => matches!(address, IpNet::V6(_)),
            Self::Dual => true,
        }
    }
}

/// What to build.
#[derive(Debug, Clone)]
pub struct Topology {
    /// The clusters, at most 9.
    pub clusters: Vec<ClusterShape>,
    /// What nodes speak between clusters.
    pub underlay: Families,
    /// IP MTU of the underlay in bytes.
    pub underlay_mtu: u16,
}

/// One cluster to build.
#[derive(Debug, Clone)]
pub struct ClusterShape {
    /// Its cluster ID.
    pub id: String,
    /// Its network number, 1 to 9: two clusters with the same one overlap.
    pub network: u8,
    /// Number of nodes, at least 1; the first ones are gateways.
    pub nodes: u8,
    /// How many of them are gateway nodes, at least 1; the others are workers.
    pub gateways: u8,
    /// Pods on each node.
    pub pods: u8,
    /// What its pods speak.
    pub inner: Families,
    /// Whether other clusters know it by global addresses.
    pub is_global: bool,
}

impl Topology {
    /// Two clusters, `east` and `west`, each one gateway node with two pods; everything dual-stack, MTU 1500.
    pub fn two_clusters() -> Self {
        let cluster = |id: &str, network| ClusterShape {
            id: id.to_owned(),
            network,
            nodes: 1,
            gateways: 1,
            pods: 2,
            inner: Families::Dual,
            is_global: false,
        };
        Self {
            clusters: vec![cluster("east", 1), cluster("west", 2)],
            underlay: Families::Dual,
            underlay_mtu: 1500,
        }
    }

    /// Two clusters whose pods and services have the same addresses, known to each other by global ones.
    pub fn two_alike() -> Self {
        let mut topology = Self::two_clusters().with_underlay(Families::V4);
        for cluster in &mut topology.clusters {
            cluster.network = 1;
            cluster.inner = Families::V4;
            cluster.is_global = true;
        }
        topology
    }

    /// The same with this many pods on each node.
    #[must_use]
    pub fn with_pods(mut self, pods: u8) -> Self {
        for cluster in &mut self.clusters {
            cluster.pods = pods;
        }
        self
    }

    /// The same with this many gateway nodes and workers in every cluster.
    #[must_use]
    pub fn with_nodes(mut self, gateways: u8, workers: u8) -> Self {
        for cluster in &mut self.clusters {
            cluster.gateways = gateways;
            cluster.nodes = gateways.saturating_add(workers);
        }
        self
    }

    /// The same with a third cluster, `north`.
    #[must_use]
    pub fn with_north(mut self) -> Self {
        let north = ClusterShape { id: "north".to_owned(), network: 3, ..self.clusters[0].clone() };
        self.clusters.push(north);
        self
    }

    /// The same with one family everywhere.
    #[must_use]
    pub fn of_family(mut self, family: Families) -> Self {
        for cluster in &mut self.clusters {
            cluster.inner = family;
        }
        self.with_underlay(family)
    }

    /// The same with another underlay.
    #[must_use]
    pub fn with_underlay(mut self, underlay: Families) -> Self {
        self.underlay = underlay;
        self
    }
}

/// A topology with names and addresses.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The namespace with the underlay's bridge `br0`.
    pub wan: Namespace,
    /// The clusters, in the order asked for.
    pub clusters: Vec<ClusterPlan>,
    underlay_mtu: u16,
    underlay: Families,
}

/// A cluster with names and addresses.
#[derive(Debug, Clone)]
pub struct ClusterPlan {
    /// Its cluster ID.
    pub id: String,
    /// Pod prefixes, IPv4 first.
    pub pod_cidrs: Vec<IpNet>,
    /// Service prefixes, IPv4 first.
    pub service_cidrs: Vec<IpNet>,
    /// Global prefixes; none unless other clusters know it by those.
    pub global_cidrs: Vec<IpNet>,
    /// Its nodes; the first ones are gateways.
    pub nodes: Vec<NodePlan>,
    gateways: usize,
}

/// A node: `eth0` on the underlay, bridge `cni0` for its pods.
#[derive(Debug, Clone)]
pub struct NodePlan {
    /// Its host name, such as `east-gw1`.
    pub name: String,
    /// Where it lives.
    pub namespace: Namespace,
    /// Addresses of `eth0`, IPv4 first.
    pub underlay: Vec<IpNet>,
    /// Addresses of `cni0`, IPv4 first.
    pub bridge: Vec<IpNet>,
    /// Its pods.
    pub pods: Vec<PodPlan>,
    /// The other end of `eth0`, a port of the underlay's bridge.
    pub port: String,
}

/// A pod: one interface, `eth0`, default routes to its node.
#[derive(Debug, Clone)]
pub struct PodPlan {
    /// Its name, such as `east-gw1-pod1`.
    pub name: String,
    /// Where it lives.
    pub namespace: Namespace,
    /// Addresses of `eth0`, IPv4 first.
    pub addresses: Vec<IpNet>,
    port: String,
}

impl Plan {
    /// Gives names (all starting with `lab_id`) and addresses.
    ///
    /// # Errors
    /// If there are more clusters, nodes or pods than the address plan has room for.
    pub fn new(lab_id: &str, topology: &Topology) -> anyhow::Result<Self> {
        anyhow::ensure!((1..=9).contains(&topology.clusters.len()), "a lab has 1 to 9 clusters");
        let mut clusters = Vec::new();
        for (number, shape) in (1_u8..).zip(&topology.clusters) {
            clusters.push(ClusterPlan::new(lab_id, number, shape, topology.underlay)?);
        }
        Ok(Self {
            wan: Namespace::named(format!("{lab_id}-wan")),
            clusters,
            underlay_mtu: topology.underlay_mtu,
            underlay: topology.underlay,
        })
    }

    /// IP MTU of the underlay in bytes.
    pub fn underlay_mtu(&self) -> u16 {
        self.underlay_mtu
    }

    /// Which of these addresses the underlay speaks.
    pub(crate) fn on_underlay(&self, addresses: &[IpNet]) -> Vec<IpNet> {
        addresses.iter().filter(|address| self.underlay.has(address)).copied().collect()
    }

    /// The cluster of this ID.
    ///
    /// # Panics
    /// If there is none: the caller asked for it.
    pub fn cluster(&self, id: &str) -> &ClusterPlan {
        self.clusters
            .iter()
            .find(|cluster| cluster.id == id)
            .expect("the caller named a cluster of its own plan")
    }

    fn nodes(&self) -> impl Iterator<Item = &NodePlan> {
        self.clusters.iter().flat_map(|cluster| &cluster.nodes)
    }

    /// Names of all namespaces, without the lab's prefix.
    pub(crate) fn namespace_suffixes(&self) -> Vec<String> {
        let mut suffixes = vec!["wan".to_owned()];
        for node in self.nodes() {
            suffixes.push(node.name.clone());
            suffixes.extend(node.pods.iter().map(|pod| pod.name.clone()));
        }
        suffixes
    }

    /// Kernel parameters to set before links exist: nodes forward.
    pub(crate) fn sysctls(&self) -> Vec<(&Namespace, Vec<(&'static str, &'static str)>)> {
        let forward = vec![("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")];
        self.nodes().map(|node| (&node.namespace, forward.clone())).collect()
    }

    /// `ip` commands for all links, to run outside of the namespaces: each veth pair is born in its two.
    pub(crate) fn links(&self) -> String {
        let mut lines = String::new();
        let wan = self.wan.name();
        let _ = writeln!(lines, "link add br0 netns {wan} type bridge mcast_snooping 0");
        for node in self.nodes() {
            let (name, port) = (node.namespace.name(), &node.port);
            let _ = writeln!(lines, "link add eth0 netns {name} type veth peer name {port} netns {wan}");
            let _ = writeln!(lines, "link add cni0 netns {name} type bridge mcast_snooping 0");
            for pod in &node.pods {
                let (pod_name, port) = (pod.namespace.name(), &pod.port);
                let _ =
                    writeln!(lines, "link add eth0 netns {pod_name} type veth peer name {port} netns {name}");
            }
        }
        lines
    }

    /// `ip` commands per namespace: bridge ports, addresses, routes.
    pub(crate) fn addresses(&self) -> Vec<(&Namespace, String)> {
        let mut all = vec![(&self.wan, self.wan_lines())];
        for cluster in &self.clusters {
            for node in &cluster.nodes {
                all.push((&node.namespace, self.node_lines(cluster, node)));
                all.extend(node.pods.iter().map(|pod| (&pod.namespace, pod_lines(node, pod))));
            }
        }
        all
    }

    fn wan_lines(&self) -> String {
        let mut lines = format!("link set br0 mtu {} up\n", self.underlay_mtu);
        for router in routers().iter().filter(|router| self.underlay.has(router)) {
            let _ = writeln!(lines, "addr add {router} dev br0");
        }
        for node in self.nodes() {
            let _ = writeln!(lines, "link set {} mtu {} master br0 up", node.port, self.underlay_mtu);
        }
        lines
    }

    fn node_lines(&self, cluster: &ClusterPlan, node: &NodePlan) -> String {
        let mut lines = format!("link set eth0 mtu {} up\nlink set cni0 up\n", self.underlay_mtu);
        for pod in &node.pods {
            let _ = writeln!(lines, "link set {} master cni0 up", pod.port);
        }
        for address in &node.underlay {
            let _ = writeln!(lines, "addr add {address} dev eth0");
        }
        for address in &node.bridge {
            let _ = writeln!(lines, "addr add {address} dev cni0");
        }
        for router in routers().iter().filter(|router| self.underlay.has(router)) {
            let _ = writeln!(lines, "route add default via {} dev eth0", router.addr());
        }
        for other in cluster.nodes.iter().filter(|other| other.name != node.name) {
            for bridge in &other.bridge {
                if let Some(via) = next_hop(bridge, other) {
                    let _ = writeln!(lines, "route add {} via {via} dev eth0", bridge.trunc());
                }
            }
        }
        lines
    }
}

impl ClusterPlan {
    fn new(lab_id: &str, number: u8, shape: &ClusterShape, underlay: Families) -> anyhow::Result<Self> {
        anyhow::ensure!((1..=9).contains(&shape.network), "cluster {}: network is 1 to 9", shape.id);
        anyhow::ensure!((1..=9).contains(&shape.nodes), "cluster {}: 1 to 9 nodes", shape.id);
        anyhow::ensure!(
            (1..=shape.nodes).contains(&shape.gateways),
            "cluster {}: 1 to {} gateways",
            shape.id,
            shape.nodes
        );
        anyhow::ensure!(shape.pods <= 90, "cluster {}: at most 90 pods on a node", shape.id);
        let network = shape.network;
        let of_family = |texts: [String; 2]| -> anyhow::Result<Vec<IpNet>> {
            let nets: Result<Vec<IpNet>, _> = texts.iter().map(|text| text.parse()).collect();
            Ok(nets?.into_iter().filter(|net| shape.inner.has(net)).collect())
        };
        let mut nodes = Vec::new();
        for n in 1..=shape.nodes {
            let role = if n <= shape.gateways { "gw" } else { "worker" };
            let name = format!("{}-{role}{n}", shape.id);
            let mut pods = Vec::new();
            for p in 1..=shape.pods {
                let host = 9 + p;
                pods.push(PodPlan {
                    namespace: Namespace::named(format!("{lab_id}-{name}-pod{p}")),
                    name: format!("{name}-pod{p}"),
                    addresses: of_family([
                        format!("10.{network}.{n}.{host}/24"),
                        format!("fd00:{network}:0:{n}::{host}/64"),
                    ])?,
                    port: format!("pod{p}"),
                });
            }
            let underlay_nets: Vec<IpNet> =
                [format!("172.31.{number}.{n}/16").parse(), format!("fd00:31::{number}:{n}/64").parse()]
                    .into_iter()
                    .collect::<Result<_, _>>()
                    .context("an underlay address")?;
            nodes.push(NodePlan {
                namespace: Namespace::named(format!("{lab_id}-{name}")),
                name,
                underlay: underlay_nets.into_iter().filter(|net| underlay.has(net)).collect(),
                bridge: of_family([format!("10.{network}.{n}.1/24"), format!("fd00:{network}:0:{n}::1/64")])?,
                pods,
                port: format!("c{number}n{n}"),
            });
        }
        Ok(Self {
            id: shape.id.clone(),
            pod_cidrs: of_family([format!("10.{network}.0.0/16"), format!("fd00:{network}::/48")])?,
            service_cidrs: of_family([
                format!("10.{}.0.0/16", 100 + network),
                format!("fd00:1{network}::/112"),
            ])?,
            global_cidrs: if shape.is_global {
                vec![format!("242.{number}.0.0/16").parse()?]
            } else {
                Vec::new()
            },
            nodes,
            gateways: usize::from(shape.gateways),
        })
    }

    /// The node that its gateway runs on; the first if there are several.
    pub fn gateway(&self) -> &NodePlan {
        &self.nodes[0]
    }

    /// All nodes that gateways run on.
    pub fn gateways(&self) -> &[NodePlan] {
        &self.nodes[..self.gateways]
    }

    /// The other nodes.
    pub fn workers(&self) -> &[NodePlan] {
        &self.nodes[self.gateways..]
    }

    /// Pod number `index` (from 0) of the gateway node.
    ///
    /// # Panics
    /// If there is none.
    pub fn pod(&self, index: usize) -> &PodPlan {
        &self.gateway().pods[index]
    }

    /// Everything that is reachable behind it, as Endpoints list it: global addresses alone if it has any, else services
    /// first, then pods.
    pub fn subnets(&self) -> Vec<IpNet> {
        if !self.global_cidrs.is_empty() {
            return self.global_cidrs.clone();
        }
        self.service_cidrs.iter().chain(&self.pod_cidrs).copied().collect()
    }
}

impl NodePlan {
    /// The port of the underlay's bridge, in the WAN's namespace, that its `eth0` is plugged into.
    pub fn wan_port(&self) -> &str {
        &self.port
    }

    /// The address that it is reached by from other nodes: IPv4 if it has one.
    pub fn underlay_address(&self) -> IpAddr {
        self.underlay[0].addr()
    }
}

impl PodPlan {
    /// Its addresses, IPv4 first.
    pub fn ips(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(IpNet::addr).collect()
    }

    /// Returns the name of its veth's other end, in its node's namespace.
    pub(crate) fn port(&self) -> &str {
        &self.port
    }

    /// Its IPv4 address.
    pub fn v4(&self) -> Option<IpAddr> {
        self.ips().into_iter().find(IpAddr::is_ipv4)
    }

    /// Its IPv6 address.
    pub fn v6(&self) -> Option<IpAddr> {
        self.ips().into_iter().find(IpAddr::is_ipv6)
    }
}

fn pod_lines(node: &NodePlan, pod: &PodPlan) -> String {
    let mut lines = String::from("link set eth0 up\n");
    for (address, router) in pod.addresses.iter().zip(&node.bridge) {
        let _ = writeln!(lines, "addr add {address} dev eth0");
        let _ = writeln!(lines, "route add default via {} dev eth0", router.addr());
    }
    lines
}

/// How a node of the same cluster is reached: over its own family if it has that, IPv4 also over IPv6 (RFC 5549);
/// the kernel does not know the reverse.
fn next_hop(destination: &IpNet, node: &NodePlan) -> Option<String> {
    let is_v4 = |net: &IpNet| matches!(net, IpNet::V4(_));
    let same = node.underlay.iter().find(|net| is_v4(net) == is_v4(destination));
    match (same, node.underlay_address()) {
        (Some(net), _) => Some(net.addr().to_string()),
        (None, IpAddr::V6(address)) => Some(format!("inet6 {address}")),
        (None, IpAddr::V4(_)) => None,
    }
}

/// The WAN's own addresses, where every default route points.
fn routers() -> [IpNet; 2] {
    ["172.31.255.254/16", "fd00:31::ffff/64"].map(|text| text.parse().expect("the text is a prefix"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clusters_have_the_documented_addresses() {
        let plan = Plan::new("tl000000", &Topology::two_clusters()).unwrap();

        let west = plan.cluster("west");
        assert_eq!(west.subnets().len(), 4);
        assert_eq!(west.gateway().underlay_address().to_string(), "172.31.2.1");
        assert_eq!(west.pod(1).v4().unwrap().to_string(), "10.2.1.11");
        assert_eq!(west.pod(1).v6().unwrap().to_string(), "fd00:2:0:1::11");
        assert!(west.pod_cidrs.iter().any(|cidr| cidr.contains(&west.pod(0).v6().unwrap())));
    }

    #[test]
    fn alike_clusters_differ_in_their_global_addresses_alone() {
        let plan = Plan::new("tl000000", &Topology::two_alike()).unwrap();

        let (east, west) = (plan.cluster("east"), plan.cluster("west"));
        assert_eq!((&east.pod_cidrs, &east.service_cidrs), (&west.pod_cidrs, &west.service_cidrs));
        assert_eq!(east.pod(0).ips(), west.pod(0).ips());
        assert_eq!(east.subnets()[0].to_string(), "242.1.0.0/16");
        assert_eq!(west.subnets()[0].to_string(), "242.2.0.0/16");
        assert_ne!(east.gateway().underlay_address(), west.gateway().underlay_address());
    }

    #[test]
    fn gateways_come_first_and_workers_after_them() {
        let topology = Topology::two_clusters().with_nodes(2, 1);
        let plan = Plan::new("tl000000", &topology).unwrap();

        let east = plan.cluster("east");
        let names = |nodes: &[NodePlan]| nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(east.gateways()), ["east-gw1", "east-gw2"]);
        assert_eq!(names(east.workers()), ["east-worker3"]);
        assert!(Plan::new("tl000000", &topology.with_nodes(0, 2)).is_err());
    }

    #[test]
    fn every_name_fits_the_kernel() {
        let mut topology = Topology::two_clusters();
        topology.clusters[0].nodes = 9;
        topology.clusters[0].pods = 90;
        let plan = Plan::new("tl000000", &topology).unwrap();

        for node in plan.nodes() {
            assert!(node.port.len() <= 15);
            assert!(node.pods.iter().all(|pod| pod.port.len() <= 15));
        }
        let suffixes = plan.namespace_suffixes();
        let distinct: std::collections::BTreeSet<_> = suffixes.iter().collect();
        assert_eq!(distinct.len(), suffixes.len());
    }

    #[test]
    fn an_ipv6_underlay_has_no_ipv4_at_all() {
        let plan = Plan::new("tl000000", &Topology::two_clusters().with_underlay(Families::V6)).unwrap();

        let east = plan.cluster("east").gateway();
        assert_eq!(east.underlay.len(), 1);
        let (_, lines) =
            plan.addresses().into_iter().find(|(namespace, _)| **namespace == east.namespace).unwrap();
        assert!(!lines.contains("172.31"), "{lines}");
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let mut topology = Topology::two_clusters();
        topology.clusters[1].network = 10;

        assert!(Plan::new("tl000000", &topology).is_err());
    }
}
