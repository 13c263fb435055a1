//! Two clusters, of which `east` has OVN-Kubernetes on several nodes.
//!
//! ```text
//!  east-gw1 ─┐ br-geneve                ┌─ eth0 ─┐
//!  east-gw2 ─┼─ Geneve between br-ints  │        ├─ WAN bridge ── west-gw1
//!  worker3  ─┘ (a bridge of its own)    └─ eth0 ─┘ cables
//! ```
//!
//! Beside that every node has a way out of OVN in clear, by its external bridge (`external.rs`).
//!
//! All nodes in one zone, whose databases are on the first node and reached by TCP, or each node in a zone of its own
//! (`zone.rs`). Every node has a worker that writes OVN's database; where there is one zone, one of them is elected.

use anyhow::Context;
use serde_json::{Map, Value, json};

use crate::cluster::Settings;
use crate::command::Run;
use crate::daemon::Daemon;
use crate::lab::Lab;
use crate::mesh::{Mesh, Side};
use crate::netns::{self, Namespace};
use crate::ovn::OvnNode;
use crate::ovn::pair::{OvnTopology, sync_on, with_ovn};
use crate::pair::CONNECT_TIMEOUT;
use crate::topology::{Plan, Topology};
use crate::wait::eventually;
use crate::{flow, put_whole};

/// The bridge between the nodes in the WAN's namespace, and each node's own, which has its address.
pub const GENEVE: &str = "br-geneve";
/// What pods have with a Geneve header around their packets.
const POD_MTU: u16 = 1400;

/// Which parts of the cluster have a database of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zones {
    /// None.
    One,
    /// Each node: OVN-Kubernetes' interconnect.
    EachNode,
}

/// Both clusters. The fields are in the order in which they have to end.
#[derive(Debug)]
pub struct OvnNodes {
    workers: Vec<Option<Daemon>>,
    /// The clusters.
    pub mesh: Mesh,
    /// OVN of each of east's nodes.
    pub ovn: Vec<OvnNode>,
    zones: Zones,
    topology: OvnTopology,
}

impl OvnNodes {
    /// Starts two gateway nodes and a worker in `east` and one gateway node in `west`, and waits until every pod reaches those of
    /// the other cluster.
    ///
    /// # Errors
    /// The first thing that does not work.
    pub fn start(lab: &Lab, zones: Zones, topology: OvnTopology) -> anyhow::Result<Self> {
        let mut shape = Topology::two_clusters().with_pods(1);
        if let Some(east) = shape.clusters.first_mut() {
            (east.nodes, east.gateways) = (3, 2);
        }
        let plan = lab.build(&shape)?;
        let ovn = install(lab, &plan, zones)?;
        for node in &ovn {
            node.add_external(plan.cluster("east"))?;
            node.add_source(plan.cluster("east"))?;
        }
        let mut settings = Settings::of(lab);
        let west = Side::start(lab, plan.cluster("west"), &settings)?;
        settings.wrap = with_ovn(topology);
        let east = Side::start(lab, plan.cluster("east"), &settings)?;
        annotate(&east, zones)?;
        let mesh = Mesh { sides: vec![east, west], plan, lab: lab.clone(), interval: flow::INTERVAL };
        let mut nodes = Self { workers: Vec::new(), mesh, ovn, zones, topology };
        for node in 0..nodes.ovn.len() {
            nodes.workers.push(None);
            nodes.start_worker(node)?;
        }
        let outcome = nodes.mesh.wait_traffic();
        outcome.map_err(|error| error.context(nodes.describe()))?;
        Ok(nodes)
    }

    /// Describes the switches of all nodes.
    fn describe(&self) -> String {
        self.ovn.iter().map(OvnNode::describe).collect()
    }

    /// Starts the worker of a node, from 0.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_worker(&mut self, node: usize) -> anyhow::Result<()> {
        let name = format!("{}-plugin-sync", self.mesh.plan.cluster("east").nodes[node].name);
        self.workers[node] = Some(Daemon::start(&self.mesh.lab, &name, &self.worker_run(node)?)?);
        Ok(())
    }

    /// Ends the worker of a node, from 0, as a crash would.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill_worker(&mut self, node: usize) -> anyhow::Result<()> {
        self.workers[node].take().context("the worker does not run")?.kill()
    }

    /// Ends all workers, and removes what they have written. Returns what of theirs is left.
    ///
    /// # Errors
    /// If one does not end or remove.
    pub fn uninstall_workers(&mut self) -> anyhow::Result<String> {
        let mut left = String::new();
        self.workers.clear();
        for node in 0..self.ovn.len() {
            self.worker_run(node)?.arg("--uninstall").stdout()?;
        }
        for node in self.ovn.iter().filter(|node| node.has_databases()) {
            left += &node.nbctl(&["lr-policy-list", "ovn_cluster_router"])?;
            left += &node.nbctl(&[
                "--bare",
                "--columns=nexthop",
                "find",
                "Logical_Router_Static_Route",
                "external_ids!={}",
            ])?;
            left += &node.nbctl(&["--bare", "find", "Logical_Router", "name=submariner_router"])?;
        }
        Ok(left.trim().to_owned())
    }

    fn worker_run(&self, node: usize) -> anyhow::Result<Run> {
        let (east, own) = (self.mesh.side("east"), &self.ovn[node]);
        let program = crate::programs::path("trieste-plugin-sync")?.to_string_lossy().into_owned();
        let first = east.plan().gateway().underlay_address();
        let [northbound, southbound] = match self.zones {
            Zones::One => [6641, 6642].map(|port| format!("tcp:{first}:{port}")),
            Zones::EachNode => [own.northbound(), own.southbound()],
        };
        let node = &east.plan().nodes[node];
        Ok(sync_on(node.namespace.run(&program), &self.mesh.lab, east.plan(), node, &east.store())
            .args(["--identity", &node.name, "--ovn-topology", self.topology.name()])
            .args(["--ovn-northbound", &northbound, "--ovn-southbound", &southbound]))
    }

    /// Waits until the databases lead to this gateway, by its number from 0, and to no other, and until
    /// switches have followed.
    ///
    /// # Errors
    /// If they do not within [`CONNECT_TIMEOUT`].
    pub fn wait_led_to(&self, gateway: usize) -> anyhow::Result<()> {
        let count = self.mesh.plan.cluster("west").subnets().len();
        for (index, node) in self.ovn.iter().enumerate().filter(|(_, node)| node.has_databases()) {
            let ports = |number: usize| [format!("10.1.{number}.2"), format!("fd00:1:0:{number}::2")];
            let is_other = self.zones == Zones::EachNode && index != gateway;
            let by = if is_other { super::zone::transit(gateway + 1) } else { ports(gateway + 1) };
            let all: Vec<String> = (1..=self.ovn.len()).flat_map(ports).collect();
            eventually(&format!("{count} policies by {by:?}"), CONNECT_TIMEOUT, || {
                let policies = node.next_hops("Logical_Router_Policy", "action=reroute")?;
                let right = policies.iter().filter(|hop| by.contains(hop)).count();
                anyhow::ensure!(right == count && policies.len() == count, "policies by {policies:?}");
                let mut routes = node.next_hops("Logical_Router_Static_Route", "policy!=src-ip")?;
                routes.retain(|hop| all.contains(hop));
                let wanted = if is_other { 0 } else { count };
                let right = routes.iter().filter(|hop| by.contains(hop)).count();
                anyhow::ensure!(right == wanted && routes.len() == wanted, "routes by {routes:?}");
                Ok(())
            })?;
            node.nbctl(&["--wait=hv", "sync"])?;
        }
        Ok(())
    }
}

/// Makes every node of `east` one of OVN-Kubernetes.
fn install(lab: &Lab, plan: &Plan, zones: Zones) -> anyhow::Result<Vec<OvnNode>> {
    let east = plan.cluster("east");
    plan.wan.ip(&format!("link add {GENEVE} type bridge mcast_snooping 0\nlink set {GENEVE} up\n"))?;
    let mut nodes: Vec<OvnNode> = Vec::new();
    for number in 1..=east.nodes.len() {
        let node = match nodes.first() {
            Some(first) if zones == Zones::One => first.join(lab, east, number)?,
            Some(_) | None => OvnNode::install_on(lab, east, number)?,
        };
        node.add_geneve(&plan.wan)?;
        // Other nodes' pods are OVN's to reach, not the underlay's.
        for network in &east.pod_cidrs {
            let family = if network.addr().is_ipv4() { "-4" } else { "-6" };
            let run = node.namespace().run("ip").args([family, "route", "flush", "root"]);
            run.args([network.to_string().as_str(), "dev", "eth0"]).finish()?;
        }
        for pod in &node.node.pods {
            pod.namespace.ip(&format!("link set eth0 mtu {POD_MTU}"))?;
        }
        nodes.push(node);
    }
    if zones == Zones::EachNode {
        super::zone::connect(&nodes)?;
    }
    Ok(nodes)
}

/// Gives Node objects what OVN-Kubernetes does.
fn annotate(east: &Side, zones: Zones) -> anyhow::Result<()> {
    for (number, node) in (1..).zip(&east.plan().nodes) {
        let file = east.store().join("_cluster/nodes").join(format!("{}.yaml", node.name));
        let mut object: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        let subnets: Vec<String> = node.bridge.iter().map(|network| network.trunc().to_string()).collect();
        let mut annotations = Map::new();
        let mut add = |name: &str, value: String| {
            annotations.insert(format!("k8s.ovn.org/{name}"), Value::String(value));
        };
        add("node-subnets", json!({ "default": subnets }).to_string());
        if zones == Zones::EachNode {
            let [v4, v6] = super::zone::transit(number);
            let addresses = json!({"ipv4": format!("{v4}/16"), "ipv6": format!("{v6}/64")});
            add("zone-name", node.name.clone());
            add("node-transit-switch-port-ifaddr", addresses.to_string());
        }
        let metadata = object["metadata"].as_object_mut().context("a Node has metadata")?;
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
        put_whole(&file, &object.to_string())?;
    }
    Ok(())
}

impl OvnNode {
    /// Returns the node's address by which others' switches reach its own.
    pub(super) fn geneve_address(&self) -> String {
        format!("192.0.2.{}", self.number)
    }

    /// Connects the node's switch with those of others. A tunnel of the data plane in user space leaves by a bridge of the same,
    /// which has the tunnel's address.
    fn add_geneve(&self, wan: &Namespace) -> anyhow::Result<()> {
        let (node, number) = (self.namespace(), self.number);
        let (own, far) = (node.name(), wan.name());
        netns::ip(&format!("link add geneve0 netns {own} type veth peer name geneve{number} netns {far}\n"))?;
        wan.ip(&format!("link set geneve{number} master {GENEVE} up"))?;
        node.ip("link set geneve0 up")?;
        self.vsctl(&["add-br", GENEVE, "--", "set", "bridge", GENEVE, "datapath_type=netdev"])?;
        self.vsctl(&["add-port", GENEVE, "geneve0"])?;
        let address = self.geneve_address();
        node.ip(&format!("addr add {address}/24 dev {GENEVE}\nlink set {GENEVE} up\n"))
    }

    fn next_hops(&self, table: &str, condition: &str) -> anyhow::Result<Vec<String>> {
        let hops = self.nbctl(&["--bare", "--columns=nexthop", "find", table, condition])?;
        Ok(hops.split_whitespace().map(str::to_owned).collect())
    }

    /// Returns `true` if the zone's databases are on this node.
    fn has_databases(&self) -> bool {
        self.zone == self.directory
    }
}
