//! A node of OVN-Kubernetes, without Kubernetes: a real OVN with its data plane in user space, and the part of
//! OVN-Kubernetes' topology that packets between clusters meet.
//!
//! ```text
//!   pod ─── pod's port ┐                                        ┌ rtos-NODE ─ ovn_cluster_router ─ join ─ GR_NODE ─ nowhere
//!   pod ─── pod's port ┼─ logical switch NODE (br-int) ──────────┘
//!   node ── ovn-k8s-mp0 ┘   the node's second address; the router has the first
//! ```
//!
//! Pods of the lab keep their addresses: their veths move from the node's bridge to Open vSwitch. Everything that is not for
//! the cluster goes to the gateway router, as in OVN-Kubernetes' shared gateway mode, and from there nowhere.

pub mod external;
pub mod globalnet;
pub mod nodes;
pub mod pair;
mod zone;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ipnet::IpNet;

use crate::command::Run;
use crate::daemon::Daemon;
use crate::lab::Lab;
use crate::netns::Namespace;
use crate::topology::{ClusterPlan, NodePlan, PodPlan};
use crate::wait::eventually;

/// How long a daemon may take until it answers.
const START: Duration = Duration::from_secs(60);
/// The switch between gateway routers and the cluster's own: IPv4, IPv6 and the start of MAC addresses there. Its own router has
/// the first address.
const JOIN: [&str; 3] = ["100.64.0.", "fd98::", "0a:58:64:40:00:"];

/// OVN of one node, with the databases unless another node of its zone has them. The fields are in the order in which they have to end.
#[derive(Debug)]
pub struct OvnNode {
    daemons: Vec<Daemon>,
    directory: PathBuf,
    /// Where the sockets of the zone's databases are.
    zone: PathBuf,
    node: NodePlan,
    /// The node's number in its cluster, from 1.
    number: usize,
}

impl OvnNode {
    /// Makes a node of a cluster, on which nothing of ours runs yet, one of OVN-Kubernetes.
    ///
    /// # Errors
    /// If a program of OVN is missing or does not start.
    pub fn install(lab: &Lab, cluster: &ClusterPlan) -> anyhow::Result<Self> {
        Self::install_on(lab, cluster, 1)
    }

    /// Makes a node of a cluster, by its number from 1, one of OVN-Kubernetes, with a zone of its own.
    ///
    /// # Errors
    /// If a program of OVN is missing or does not start.
    pub fn install_on(lab: &Lab, cluster: &ClusterPlan, number: usize) -> anyhow::Result<Self> {
        let mut ovn = Self::new(lab, cluster, number)?;
        ovn.start_databases(lab)?;
        ovn.add_router()?;
        ovn.set_up(lab)?;
        Ok(ovn)
    }

    /// Makes another node of the cluster one of OVN-Kubernetes, in this one's zone.
    ///
    /// # Errors
    /// If a program of OVN does not start.
    pub fn join(&self, lab: &Lab, cluster: &ClusterPlan, number: usize) -> anyhow::Result<Self> {
        let mut other = Self { zone: self.zone.clone(), ..Self::new(lab, cluster, number)? };
        other.set_up(lab)?;
        Ok(other)
    }

    fn new(lab: &Lab, cluster: &ClusterPlan, number: usize) -> anyhow::Result<Self> {
        let node = number.checked_sub(1).and_then(|index| cluster.nodes.get(index));
        let node = node.with_context(|| format!("cluster {} has no node {number}", cluster.id))?.clone();
        let directory = lab.directory().join(format!("ovn{number}"));
        std::fs::create_dir_all(&directory)?;
        Ok(Self { daemons: Vec::new(), zone: directory.clone(), directory, node, number })
    }

    fn set_up(&mut self, lab: &Lab) -> anyhow::Result<()> {
        self.start_switch(lab)?;
        self.move_pods()?;
        self.add_topology()?;
        self.nbctl(&["--wait=hv", "sync"]).map(drop)
    }

    /// Returns the address of the northbound database.
    pub fn northbound(&self) -> String {
        self.address("nb")
    }

    /// Returns the address of the southbound database.
    pub fn southbound(&self) -> String {
        self.address("sb")
    }

    /// Runs ovn-nbctl.
    ///
    /// # Errors
    /// What it says.
    pub fn nbctl(&self, words: &[&str]) -> anyhow::Result<String> {
        let run = self.program("ovn-nbctl").arg(format!("--db={}", self.address("nb")));
        run.args(["--timeout=30"]).args(words).stdout()
    }

    /// Makes a service of OVN's load balancer, TCP and UDP: a virtual address and port, and one of a pod.
    ///
    /// # Errors
    /// What ovn-nbctl says.
    pub fn add_service(&self, name: &str, frontend: SocketAddr, backend: SocketAddr) -> anyhow::Result<()> {
        for protocol in ["tcp", "udp"] {
            let name = format!("{name}-{protocol}");
            self.nbctl(&[
                "--may-exist",
                "lb-add",
                &name,
                &frontend.to_string(),
                &backend.to_string(),
                protocol,
            ])?;
            self.nbctl(&["ls-lb-add", &self.node.name, &name])?;
        }
        self.nbctl(&["--wait=hv", "sync"]).map(drop)
    }

    /// Starts the zone's databases, which other nodes reach by TCP, and the switch's.
    fn start_databases(&mut self, lab: &Lab) -> anyhow::Result<()> {
        self.start_database(lab, "nb", "/usr/share/ovn/ovn-nb.ovsschema", &["--remote=ptcp:6641"])?;
        self.start_database(lab, "sb", "/usr/share/ovn/ovn-sb.ovsschema", &["--remote=ptcp:6642"])?;
        let run = self.daemon("ovn-northd", "northd");
        let run = run.arg(format!("--ovnnb-db={}", self.address("nb")));
        let run = run.arg(format!("--ovnsb-db={}", self.address("sb")));
        self.start_daemon(lab, "northd", &run)?;
        self.nbctl(&["init"])?;
        self.sbctl(&["init"]).map(drop)
    }

    fn start_database(&mut self, lab: &Lab, name: &str, schema: &str, more: &[&str]) -> anyhow::Result<()> {
        let file = self.path(&format!("{name}.db"));
        self.program("ovsdb-tool").arg("create").arg(&file).arg(schema).finish()?;
        let remote = format!("--remote=p{}", self.address(name));
        let run = self.daemon("ovsdb-server", name).arg(remote).args(more).arg(file);
        self.start_daemon(lab, &format!("ovsdb-{name}"), &run)?;
        eventually(&format!("ovsdb-server of {name}"), START, || {
            self.program("ovsdb-client").args(["list-dbs", &self.address(name)]).finish()
        })
    }

    fn start_daemon(&mut self, lab: &Lab, name: &str, run: &Run) -> anyhow::Result<()> {
        self.daemons.push(Daemon::start(lab, &format!("ovn{}-{name}", self.number), run)?);
        Ok(())
    }

    /// Starts Open vSwitch without the kernel's module, and OVN's controller of it.
    fn start_switch(&mut self, lab: &Lab) -> anyhow::Result<()> {
        self.start_database(lab, "conf", "/usr/share/openvswitch/vswitch.ovsschema", &[])?;
        self.vsctl(&["--no-wait", "init"])?;
        let settings = [
            format!("external_ids:system-id={}", self.node.name),
            format!("external_ids:hostname={}", self.node.name),
            format!("external_ids:ovn-remote={}", self.address("sb")),
            "external_ids:ovn-encap-type=geneve".to_owned(),
            // From the start, so that no tunnel of another node has to follow it.
            format!("external_ids:ovn-encap-ip={}", self.geneve_address()),
            "external_ids:ovn-bridge-datapath-type=netdev".to_owned(),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        self.vsctl(&[&["--no-wait", "set", "Open_vSwitch", "."], &settings[..]].concat())?;
        let conf = self.address("conf");
        let run = self.daemon("ovs-vswitchd", "ovs-vswitchd").args(["--disable-system", &conf]);
        self.start_daemon(lab, "ovs-vswitchd", &run)?;
        // Not every version of ovn-controller can be told where its control socket is; it is in the folder.
        let run = self.wrapped(self.node.namespace.run("ovn-controller")).args(["--no-chdir", &conf]);
        self.start_daemon(lab, "ovn-controller", &run)?;
        eventually("ovn-controller to make br-int", START, || self.vsctl(&["br-exists", "br-int"])).map(drop)
    }

    /// Moves the pods' veths from the node's bridge, which goes, to Open vSwitch, and gives the node its management port.
    fn move_pods(&self) -> anyhow::Result<()> {
        let node = &self.node.namespace;
        for pod in &self.node.pods {
            node.ip(&format!("link set {} nomaster", pod.port()))?;
        }
        node.ip("link del cni0")?;
        for pod in &self.node.pods {
            let id = format!("external_ids:iface-id={}", pod.name);
            self.vsctl(&["add-port", "br-int", pod.port(), "--", "set", "interface", pod.port(), &id])?;
            // The switch takes packets as they are: sums that a device would have computed would be missing.
            pod.namespace.run("ethtool").args(["-K", "eth0", "tx", "off"]).finish()?;
        }
        let (port, id) = ("ovn-k8s-mp0", format!("external_ids:iface-id=k8s-{}", self.node.name));
        self.vsctl(&["add-port", "br-int", port, "--", "set", "interface", port, "type=internal", &id])?;
        let mut lines = format!("link set {port} address {} mtu 1400 up\n", self.switch_mac(2));
        for network in &self.node.bridge {
            let (router, own) = (network.addr(), nth(network, 2)?);
            let nodad = if own.is_ipv4() { "" } else { " nodad" };
            let _ = writeln!(lines, "addr add {own}/{} dev {port}{nodad}", network.prefix_len());
            let all = IpNet::new(network.addr(), if network.addr().is_ipv4() { 16 } else { 48 })?.trunc();
            let _ = writeln!(lines, "route add {all} via {router} dev {port}");
        }
        node.ip(&lines)
    }

    /// Makes what the nodes of a zone share.
    fn add_router(&self) -> anyhow::Result<()> {
        let [v4, v6, mac] = JOIN;
        self.nbctl_lines(&[
            "lr-add ovn_cluster_router".to_owned(),
            "ls-add join".to_owned(),
            format!("lrp-add ovn_cluster_router rtoj-ovn_cluster_router {mac}01 {v4}1/16 {v6}1/64"),
        ])?;
        self.connect("join", "jtor-ovn_cluster_router", "rtoj-ovn_cluster_router")
    }

    /// Makes the node's switch and gateway router.
    fn add_topology(&self) -> anyhow::Result<()> {
        let (node, words) = (self.node.name.as_str(), |texts: &[String]| texts.join(" "));
        let router: Vec<String> = self.node.bridge.iter().map(ToString::to_string).collect();
        let ([v4, v6, mac], own) = (JOIN, self.number + 1);
        let mut lines = vec![
            format!("lr-add GR_{node}"),
            format!("set Logical_Router GR_{node} options:chassis={node}"),
            format!("lrp-add GR_{node} rtoj-GR_{node} {mac}{own:02x} {v4}{own}/16 {v6}{own}/64"),
            format!("ls-add {node}"),
            format!("lrp-add ovn_cluster_router rtos-{node} {} {}", self.switch_mac(1), words(&router)),
        ];
        for network in &self.node.bridge {
            let way = if network.addr().is_ipv4() { v4 } else { v6 };
            let network = network.trunc();
            lines.push(format!("--policy=src-ip lr-route-add ovn_cluster_router {network} {way}{own}"));
        }
        self.nbctl_lines(&lines)?;
        self.connect("join", &format!("jtor-GR_{node}"), &format!("rtoj-GR_{node}"))?;
        self.connect(node, &format!("stor-{node}"), &format!("rtos-{node}"))?;
        let own: anyhow::Result<Vec<String>> =
            self.node.bridge.iter().map(|network| Ok(nth(network, 2)?.to_string())).collect();
        self.add_port(&format!("k8s-{node}"), &format!("{} {}", self.switch_mac(2), words(&own?)))?;
        for pod in &self.node.pods {
            let addresses: Vec<String> = pod.ips().iter().map(ToString::to_string).collect();
            self.add_port(&pod.name, &format!("{} {}", mac_of(pod)?, words(&addresses)))?;
        }
        Ok(())
    }

    /// Connects a switch with a router's port.
    fn connect(&self, switch: &str, port: &str, to: &str) -> anyhow::Result<()> {
        self.nbctl_lines(&[
            format!("lsp-add {switch} {port}"),
            format!("lsp-set-type {port} router"),
            format!("lsp-set-addresses {port} router"),
            format!("lsp-set-options {port} router-port={to}"),
        ])
    }

    /// Runs commands of ovn-nbctl in one transaction.
    fn nbctl_lines(&self, lines: &[String]) -> anyhow::Result<()> {
        let commands = lines.iter().flat_map(|line| std::iter::once("--").chain(line.split(' ')));
        self.nbctl(&commands.collect::<Vec<_>>()).map(drop)
    }

    /// Returns a MAC address on the node's switch by the host's number.
    fn switch_mac(&self, host: u8) -> String {
        format!("0a:58:0a:80:{:02x}:{host:02x}", self.number)
    }

    fn add_port(&self, name: &str, addresses: &str) -> anyhow::Result<()> {
        let node = &self.node.name;
        self.nbctl(&["lsp-add", node, name, "--", "lsp-set-addresses", name, addresses]).map(drop)
    }

    fn sbctl(&self, words: &[&str]) -> anyhow::Result<String> {
        self.program("ovn-sbctl").arg(format!("--db={}", self.address("sb"))).args(words).stdout()
    }

    fn vsctl(&self, words: &[&str]) -> anyhow::Result<String> {
        let run = self.program("ovs-vsctl").arg(format!("--db={}", self.address("conf")));
        run.arg("--timeout=30").args(words).stdout()
    }

    /// Returns by which ways the node's switch sends and takes tunnels, and what it does with packets at present, for the message
    /// of a failed test.
    fn describe(&self) -> String {
        let control = format!("--target={}", self.path("ovs-vswitchd.ctl").display());
        let mut text = format!("--- the switch of {}\n", self.node.name);
        for words in [
            &["tnl/ports/show", "-v"][..],
            &["tnl/neigh/show"],
            &["ovs/route/show"],
            &["dpctl/dump-flows", "-m"],
        ] {
            let shown = self.program("ovs-appctl").arg(&control).args(words).stdout();
            text += &shown.unwrap_or_else(|error| format!("{words:?}: {error:#}\n"));
        }
        let run = |program: &str| self.namespace().run(program);
        for shown in [
            run("ip").args(["neigh", "show", "dev", nodes::GENEVE]).stdout(),
            run("nstat").arg("-as").stdout(),
        ] {
            text += &shown.unwrap_or_else(|error| format!("{error:#}\n"));
        }
        text
    }

    fn daemon(&self, program: &str, name: &str) -> Run {
        let control = format!("--unixctl={}", self.path(&format!("{name}.ctl")).display());
        self.wrapped(self.node.namespace.run(program)).args(["--no-chdir", &control])
    }

    fn program(&self, name: &str) -> Run {
        self.wrapped(Run::new(name))
    }

    fn wrapped(&self, run: Run) -> Run {
        let variables = ["OVS_RUNDIR", "OVN_RUNDIR", "OVS_LOGDIR", "OVN_LOGDIR"];
        variables.into_iter().fold(run, |run, variable| run.env(variable, &self.directory))
    }

    fn address(&self, database: &str) -> String {
        let folder = if database == "conf" { &self.directory } else { &self.zone };
        format!("unix:{}", folder.join(format!("{database}.sock")).display())
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.directory).join(name)
    }

    /// Returns the node's namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.node.namespace
    }
}

/// Returns an address of a network by its number.
fn nth(network: &IpNet, number: usize) -> anyhow::Result<std::net::IpAddr> {
    let mut hosts = network.trunc().hosts().filter(|host| *host != network.network());
    hosts.nth(number - 1).with_context(|| format!("{network} is too small"))
}

fn mac_of(pod: &PodPlan) -> anyhow::Result<String> {
    let shown = pod.namespace.run("ip").args(["-o", "link", "show", "eth0"]).stdout()?;
    let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether").skip(1);
    Ok(words.next().with_context(|| format!("no address in {shown:?}"))?.to_owned())
}
