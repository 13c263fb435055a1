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
pub mod pair;

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
/// The management port's MAC address.
const PORT_MAC: &str = "0a:58:0a:80:00:02";
/// The router's on the node's switch.
const ROUTER_MAC: &str = "0a:58:0a:80:00:01";

/// OVN of one node. The fields are in the order in which they have to end.
#[derive(Debug)]
pub struct OvnNode {
    daemons: Vec<Daemon>,
    directory: PathBuf,
    node: NodePlan,
}

impl OvnNode {
    /// Makes a node of a cluster, on which nothing of ours runs yet, one of OVN-Kubernetes.
    ///
    /// # Errors
    /// If a program of OVN is missing or does not start.
    pub fn install(lab: &Lab, cluster: &ClusterPlan) -> anyhow::Result<Self> {
        let node = cluster.gateway().clone();
        let directory = lab.directory().join("ovn");
        std::fs::create_dir_all(&directory)?;
        let mut ovn = Self { daemons: Vec::new(), directory, node };
        ovn.start_databases(lab)?;
        ovn.start_switch(lab)?;
        ovn.move_pods()?;
        ovn.add_topology(cluster)?;
        ovn.nbctl(&["--wait=hv", "sync"])?;
        Ok(ovn)
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
            self.nbctl(&["lb-add", &name, &frontend.to_string(), &backend.to_string(), protocol])?;
            self.nbctl(&["ls-lb-add", &self.node.name, &name])?;
        }
        self.nbctl(&["--wait=hv", "sync"]).map(drop)
    }

    fn start_databases(&mut self, lab: &Lab) -> anyhow::Result<()> {
        for (name, schema) in [
            ("nb", "/usr/share/ovn/ovn-nb.ovsschema"),
            ("sb", "/usr/share/ovn/ovn-sb.ovsschema"),
            ("conf", "/usr/share/openvswitch/vswitch.ovsschema"),
        ] {
            let file = self.path(&format!("{name}.db"));
            self.program("ovsdb-tool").arg("create").arg(&file).arg(schema).finish()?;
            let remote = format!("--remote=p{}", self.address(name));
            let run = self.daemon("ovsdb-server", name).arg(remote).arg(file);
            self.daemons.push(Daemon::start(lab, &format!("ovsdb-{name}"), &run)?);
            eventually(&format!("ovsdb-server of {name}"), START, || {
                self.program("ovsdb-client").args(["list-dbs", &self.address(name)]).finish()
            })?;
        }
        let run = self.daemon("ovn-northd", "northd");
        let run = run.arg(format!("--ovnnb-db={}", self.address("nb")));
        let run = run.arg(format!("--ovnsb-db={}", self.address("sb")));
        self.daemons.push(Daemon::start(lab, "ovn-northd", &run)?);
        self.nbctl(&["init"])?;
        self.program("ovn-sbctl").arg(format!("--db={}", self.address("sb"))).arg("init").finish()
    }

    /// Starts Open vSwitch without the kernel's module, and OVN's controller of it.
    fn start_switch(&mut self, lab: &Lab) -> anyhow::Result<()> {
        self.vsctl(&["--no-wait", "init"])?;
        let settings = [
            format!("external_ids:system-id={}", self.node.name),
            format!("external_ids:hostname={}", self.node.name),
            format!("external_ids:ovn-remote={}", self.address("sb")),
            "external_ids:ovn-encap-type=geneve".to_owned(),
            "external_ids:ovn-encap-ip=127.0.0.1".to_owned(),
            "external_ids:ovn-bridge-datapath-type=netdev".to_owned(),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        self.vsctl(&[&["--no-wait", "set", "Open_vSwitch", "."], &settings[..]].concat())?;
        let conf = self.address("conf");
        for (program, more) in [("ovs-vswitchd", Some("--disable-system")), ("ovn-controller", None)] {
            let run = self.wrapped(self.node.namespace.run(program)).args(["--no-chdir"]);
            // Not every version of ovn-controller can be told where its control socket is; it is in the folder.
            let run = run.args(more).arg(&conf);
            self.daemons.push(Daemon::start(lab, program, &run)?);
        }
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
        let mut lines = format!("link set {port} address {PORT_MAC} mtu 1400 up\n");
        for network in &self.node.bridge {
            let (router, own) = (network.addr(), nth(network, 2)?);
            let nodad = if own.is_ipv4() { "" } else { " nodad" };
            let _ = writeln!(lines, "addr add {own}/{} dev {port}{nodad}", network.prefix_len());
            let all = IpNet::new(network.addr(), if network.addr().is_ipv4() { 16 } else { 48 })?.trunc();
            let _ = writeln!(lines, "route add {all} via {router} dev {port}");
        }
        node.ip(&lines)
    }

    fn add_topology(&self, cluster: &ClusterPlan) -> anyhow::Result<()> {
        let (node, words) = (self.node.name.as_str(), |texts: &[String]| texts.join(" "));
        let router: Vec<String> = self.node.bridge.iter().map(ToString::to_string).collect();
        let mut lines = vec![
            "lr-add ovn_cluster_router".to_owned(),
            "ls-add join".to_owned(),
            "lrp-add ovn_cluster_router rtoj-ovn_cluster_router 0a:58:64:40:00:01 100.64.0.1/16 fd98::1/64"
                .to_owned(),
            format!("lr-add GR_{node}"),
            format!("set Logical_Router GR_{node} options:chassis={node}"),
            format!("lrp-add GR_{node} rtoj-GR_{node} 0a:58:64:40:00:02 100.64.0.2/16 fd98::2/64"),
            format!("ls-add {node}"),
            format!("lrp-add ovn_cluster_router rtos-{node} {ROUTER_MAC} {}", words(&router)),
        ];
        for (switch, port, to) in [
            ("join", "jtor-ovn_cluster_router".to_owned(), "rtoj-ovn_cluster_router".to_owned()),
            ("join", format!("jtor-GR_{node}"), format!("rtoj-GR_{node}")),
            (node, format!("stor-{node}"), format!("rtos-{node}")),
        ] {
            lines.extend([
                format!("lsp-add {switch} {port}"),
                format!("lsp-set-type {port} router"),
                format!("lsp-set-addresses {port} router"),
                format!("lsp-set-options {port} router-port={to}"),
            ]);
        }
        for network in &self.node.bridge {
            let way = if network.addr().is_ipv4() { "100.64.0.2" } else { "fd98::2" };
            lines.push(format!("--policy=src-ip lr-route-add ovn_cluster_router {} {way}", network.trunc()));
        }
        let commands = lines.iter().flat_map(|line| std::iter::once("--").chain(line.split(' ')));
        self.nbctl(&commands.collect::<Vec<_>>())?;
        let own: anyhow::Result<Vec<String>> =
            self.node.bridge.iter().map(|network| Ok(nth(network, 2)?.to_string())).collect();
        self.add_port(&format!("k8s-{node}"), &format!("{PORT_MAC} {}", words(&own?)))?;
        for pod in &self.node.pods {
            let addresses: Vec<String> = pod.ips().iter().map(ToString::to_string).collect();
            self.add_port(&pod.name, &format!("{} {}", mac(pod)?, words(&addresses)))?;
        }
        anyhow::ensure!(!cluster.pod_cidrs.is_empty(), "cluster {} has no pods", cluster.id);
        Ok(())
    }

    fn add_port(&self, name: &str, addresses: &str) -> anyhow::Result<()> {
        let node = &self.node.name;
        self.nbctl(&["lsp-add", node, name, "--", "lsp-set-addresses", name, addresses]).map(drop)
    }

    fn vsctl(&self, words: &[&str]) -> anyhow::Result<String> {
        let run = self.program("ovs-vsctl").arg(format!("--db={}", self.address("conf")));
        run.arg("--timeout=30").args(words).stdout()
    }

    fn daemon(&self, program: &str, name: &str) -> Run {
        let control = format!("--unixctl={}", self.path(&format!("{name}.ctl")).display());
        self.program(program).args(["--no-chdir", &control])
    }

    fn program(&self, name: &str) -> Run {
        self.wrapped(Run::new(name))
    }

    fn wrapped(&self, run: Run) -> Run {
        let variables = ["OVS_RUNDIR", "OVN_RUNDIR", "OVS_LOGDIR", "OVN_LOGDIR"];
        variables.into_iter().fold(run, |run, variable| run.env(variable, &self.directory))
    }

    fn address(&self, database: &str) -> String {
        format!("unix:{}", self.path(&format!("{database}.sock")).display())
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

fn mac(pod: &PodPlan) -> anyhow::Result<String> {
    let shown = pod.namespace.run("ip").args(["-o", "link", "show", "eth0"]).stdout()?;
    let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether").skip(1);
    Ok(words.next().with_context(|| format!("no address in {shown:?}"))?.to_owned())
}
