//! Pods with a macvlan device beside their cluster's own network, as Spiderpool's coordinator leaves them.
//!
//! ```text
//!   node ── eth1 ─────────────── 172.20.1.0/24, fd00:20::/64 ─── other nodes of the cluster
//!    │        └ net1 (macvlan) ┐
//!    └── mac0 ──────── veth0 ──┴ pod: other clusters' networks lead to veth0
//!        table 500: the pod's addresses, since a parent cannot reach its own macvlan devices
//! ```

use std::net::{IpAddr, SocketAddr};

use anyhow::Context;
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::cluster::Settings;
use crate::installation;
use crate::lab::Lab;
use crate::mesh::Mesh;
use crate::netns::Namespace;
use crate::topology::{ClusterPlan, NodePlan, Plan};
use crate::traffic::Responder;

/// The networks that these pods are in, IPv4's first.
pub const NETWORKS: [&str; 2] = ["172.20.1.0/24", "fd00:20::/64"];
/// The port of [`MacvlanPair::services`].
pub const SERVICE_PORT: u16 = 80;
/// Spiderpool's table with the pods' addresses, and the priority of the rule that asks it.
const POD_TABLE: &str = "500";
const POD_PRIORITY: &str = "1000";

/// A pod with a macvlan device.
#[derive(Debug)]
pub struct MacvlanPod {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: Namespace,
    /// The addresses of its macvlan device, IPv4's first.
    pub addresses: [IpAddr; 2],
}

impl MacvlanPod {
    /// Makes a node's pod. The node has its address in these networks already.
    fn add(lab: &Lab, node: &NodePlan, number: usize) -> anyhow::Result<Self> {
        let name = format!("{}-mac", node.name);
        let namespace = lab.namespace(&name)?;
        let host = 100 + number;
        let (v4, v6) = (format!("172.20.1.{host}"), format!("fd00:20::{host}"));
        let (inside, mac) = (namespace.name(), format!("02:00:00:00:20:{number:02x}"));
        node.namespace.ip(&format!(
            "link add mac0 type veth peer name veth0 netns {inside}\n\
             link set mac0 up\naddress add fe80::1/64 dev mac0 nodad\n\
             link add link eth1 name net1 netns {inside} type macvlan mode bridge\n"
        ))?;
        namespace.ip(&format!(
            "link set veth0 address {mac} up\nlink set net1 up\n\
             address add {v4}/24 dev net1\naddress add {v6}/64 dev net1 nodad\n"
        ))?;
        // An answer comes by the one, and its question went by the other.
        let loose = [("ipv4/conf/all/rp_filter", "0"), ("ipv4/conf/net1/rp_filter", "0")];
        namespace.sysctl(&loose)?;
        // IPv6 answers for the addresses of the device that is asked alone, so neighbours are written down.
        for (address, family) in [(&v4, "-4"), (&v6, "-6")] {
            node.namespace.ip(&format!(
                "neigh replace {address} lladdr {mac} dev mac0 nud permanent\n\
                 route add {address} dev mac0 table {POD_TABLE}\n"
            ))?;
            let rule = [family, "rule", "add", "lookup", POD_TABLE, "priority", POD_PRIORITY];
            node.namespace.run("ip").args(rule).stdout()?;
        }
        Ok(Self { name, namespace, addresses: [v4.parse()?, v6.parse()?] })
    }

    /// Leads networks to the node, as `hijackCIDR` does.
    fn lead(&self, node: &NodePlan, networks: &[IpNet]) -> anyhow::Result<()> {
        let [v4, v6] = self.addresses;
        let router = node.bridge.iter().map(IpNet::addr).find(IpAddr::is_ipv4);
        let router = router.context("pods of the node have IPv4")?;
        let mut lines = format!("route add {router} dev veth0 src {v4}\n");
        for network in networks {
            let (via, source) = match network {
                IpNet::V4(_) => (router.to_string(), v4),
                IpNet::V6(_) => ("fe80::1".to_owned(), v6),
            };
            lines.push_str(&format!("route add {network} via {via} dev veth0 src {source}\n"));
        }
        self.namespace.ip(&lines)
    }
}

/// `east`, every node of which has such a pod, and `west`. The fields are in the order in which they have to end.
#[derive(Debug)]
pub struct MacvlanPair {
    /// Both clusters.
    pub mesh: Mesh,
    /// East's pods, in the order of its nodes.
    pub pods: Vec<MacvlanPod>,
    /// What the pods of west's services answer by.
    pub responders: Vec<Responder>,
    /// The cluster IPs of west's services.
    pub services: Vec<IpAddr>,
}

impl MacvlanPair {
    /// Starts both in a lab whose first two clusters are `east` and `west`, with these lines in the gateways' configuration.
    /// Nothing is announced yet.
    ///
    /// # Errors
    /// The first thing that does not work.
    pub fn start(lab: &Lab, plan: &Plan, extra: &[String]) -> anyhow::Result<Self> {
        let (east, west) = (plan.cluster("east"), plan.cluster("west"));
        connect(lab, east)?;
        let mut pods = Vec::new();
        for (node, number) in east.nodes.iter().zip(1..) {
            let pod = MacvlanPod::add(lab, node, number)?;
            pod.lead(node, &west.subnets())?;
            pods.push(pod);
        }
        let mut settings = Settings::of(lab);
        settings.extra.extend(extra.iter().cloned());
        // Route agents deliver services then.
        settings.names_nodes = true;
        let mesh = Mesh::start_in(lab, plan.clone(), &settings)?;
        let mut pair = Self { mesh, pods, responders: Vec::new(), services: Vec::new() };
        for node in &west.nodes {
            pair.responders.push(Responder::start(&node.pods[0].namespace)?);
        }
        pair.serve(west)?;
        Ok(pair)
    }

    /// Announces the pods' networks, or none.
    ///
    /// # Errors
    /// If the object cannot be written.
    pub fn announce(&self, networks: &[&str]) -> anyhow::Result<()> {
        let east = self.mesh.side("east");
        installation::announce(&east.store(), east.plan(), &networks.join(","))
    }

    /// The pods of west that answer.
    pub fn targets(&self) -> Vec<SocketAddr> {
        let nodes = self.mesh.plan.cluster("west").nodes.iter().zip(&self.responders);
        let of_node = |(node, responder): (&NodePlan, &Responder)| {
            let port = responder.port();
            node.pods[0].ips().into_iter().map(move |ip| SocketAddr::new(ip, port)).collect::<Vec<_>>()
        };
        nodes.flat_map(of_node).collect()
    }

    /// Has the pod of west's last node be a service of each family.
    fn serve(&mut self, west: &ClusterPlan) -> anyhow::Result<()> {
        let (node, responder) =
            west.nodes.iter().zip(&self.responders).next_back().context("west has nodes")?;
        let store = self.mesh.side("west").store();
        for (network, pod) in west.service_cidrs.iter().zip(node.pods[0].ips()) {
            let address = network.hosts().nth(10).context("the service network is larger")?;
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            let name = format!("web-{}", family.to_lowercase());
            let ports = |port: u16| json!([{"name": "http", "protocol": "TCP", "port": port}]);
            let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"},
                "spec": {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address], "ports": ports(SERVICE_PORT)}});
            let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": format!("{name}-1"), "namespace": "shop", "labels": {"kubernetes.io/service-name": name}},
                "addressType": family, "ports": ports(responder.port()),
                "endpoints": [{"addresses": [pod], "nodeName": node.name, "conditions": {"ready": true}}]});
            for (plural, object) in [("services", &service), ("endpointslices", &slice)] {
                put(&store.join("shop").join(plural), object)?;
            }
            self.services.push(address);
        }
        Ok(())
    }
}

/// Connects a cluster's nodes by a second network, the parent of macvlan devices.
fn connect(lab: &Lab, cluster: &ClusterPlan) -> anyhow::Result<()> {
    let lan = lab.namespace("lan")?;
    lan.ip("link add br0 type bridge mcast_snooping 0\nlink set br0 up\n")?;
    for (node, number) in cluster.nodes.iter().zip(1..) {
        let name = node.namespace.name();
        lan.ip(&format!(
            "link add port{number} type veth peer name eth1 netns {name}\nlink set port{number} master br0 up\n"
        ))?;
        node.namespace.ip(&format!(
            "link set eth1 up\naddress add 172.20.1.{number}/24 dev eth1\naddress add fd00:20::{number}/64 dev eth1 nodad\n"
        ))?;
    }
    Ok(())
}

fn put(folder: &std::path::Path, object: &Value) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let name = object["metadata"]["name"].as_str().context("objects have names")?;
    installation::put_whole(&folder.join(format!("{name}.yaml")), &object.to_string())
}
