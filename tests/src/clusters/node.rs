//! One node: its namespaces, its power switch, and doing things inside.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use ipnet::IpNet;
use nix::sys::signal::Signal;

use super::groups::Groups;
use super::plan::{API_PLACE, ClusterPlan, DNS_PLACE, NodePlan, joined};
use super::programs::{self, Programs};
use crate::command::Run;
use crate::daemon::Daemon;
use crate::lab::Lab;
use crate::netns::{self, Namespace};
use crate::process::ProcessId;
use crate::registry;
use crate::wait::eventually;

/// kube-proxy, as `node.sh` starts it.
const PROXY: &str = "kube-proxy --config=";
/// Where API servers listen.
const API_PORT: u16 = 6443;

/// The nftables table that keeps a node from the API server.
const API_CUT: &str = "no-api";

/// How long a node's first process may take to make its root.
const START: Duration = Duration::from_secs(60);

/// A node of a real cluster.
#[derive(Debug)]
pub struct Node {
    shared: Arc<Surroundings>,
    plan: NodePlan,
    namespace: Namespace,
    folder: PathBuf,
    groups: Groups,
    power: Mutex<Option<Power>>,
}

/// What all nodes of a cluster share.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) lab: Lab,
    pub(super) fabric: Namespace,
    pub(super) programs: Programs,
    pub(super) plan: ClusterPlan,
    /// The cluster's folder.
    pub(super) folder: PathBuf,
    /// Archives that a node imports when it starts.
    pub(super) images: PathBuf,
}

impl Surroundings {
    /// Returns the folder of each node.
    pub(super) fn node_folders(&self) -> impl Iterator<Item = PathBuf> {
        self.plan.nodes.iter().map(|node| self.folder.join(&node.name))
    }
}

#[derive(Debug)]
struct Power {
    /// `unshare`, which waits for the node's first process.
    parent: Daemon,
    first: ProcessId,
}

impl Node {
    /// A node that is off.
    pub(super) fn new(shared: &Arc<Surroundings>, plan: &NodePlan) -> anyhow::Result<Self> {
        let id = shared.lab.id();
        Ok(Self {
            shared: Arc::clone(shared),
            plan: plan.clone(),
            namespace: Namespace::named(format!("{id}-{}", plan.name)),
            folder: shared.folder.join(&plan.name),
            groups: Groups::named(&format!("{id}-{}", plan.name))?,
            power: Mutex::new(None),
        })
    }

    /// Its name, such as `east-1`; also its host name.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// Its addresses, IPv4 first.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.plan.addresses.iter().map(IpNet::addr).collect()
    }

    /// Its own pod prefixes, IPv4 first.
    pub fn pod_cidrs(&self) -> &[IpNet] {
        &self.plan.pod_cidrs
    }

    /// Its network namespace; another one after [`Node::kill`] and [`Node::start`], under the same name.
    pub fn netns(&self) -> &Namespace {
        &self.namespace
    }

    /// Its port of the cluster's bridge in the fabric: pull it, or capture there what the node sends.
    pub fn port(&self) -> String {
        self.plan.port()
    }

    /// Its files: `log/` has one file for each of its programs, `var/` is its `/var`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether it is on.
    pub fn is_on(&self) -> bool {
        self.power.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// A program to run inside: in all its namespaces, with its files.
    ///
    /// # Errors
    /// If it is off.
    pub fn command(&self, program: &str) -> anyhow::Result<Run> {
        let power = self.power.lock().unwrap_or_else(PoisonError::into_inner);
        let first = power.as_ref().with_context(|| format!("node {} is off", self.plan.name))?.first;
        Ok(Run::new("nsenter")
            .args(["--target", &first.pid.to_string(), "--all", "--", program])
            .env("PATH", "/opt/lab/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .timeout(Duration::from_secs(60)))
    }

    /// Runs a program inside and returns its standard output.
    ///
    /// # Errors
    /// If the node is off, or the program fails.
    pub fn exec(&self, words: &[&str]) -> anyhow::Result<String> {
        let (program, arguments) = words.split_first().context("a command has at least one word")?;
        self.command(program)?.args(arguments).stdout().with_context(|| format!("on node {}", self.plan.name))
    }

    /// Takes kube-proxy and all that it has made from the node, but what leads to the API server, until [`Node::restore_proxy`].
    ///
    /// # Errors
    /// If that fails.
    pub fn remove_proxy(&self) -> anyhow::Result<()> {
        let plan = &self.shared.plan;
        // Stopped, not ended: its keeper would start another one.
        self.exec(&["pkill", "-STOP", "-f", PROXY])?;
        self.exec(&["trieste-kubernetes", "kube-proxy", "--cleanup"])?;
        let (service, api) = (plan.service_addresses(API_PLACE)[0], plan.api());
        let protocol = if service.is_ipv4() { "ip" } else { "ip6" };
        let to_api =
            format!("{protocol} daddr {service} tcp dport 443 dnat to {}", SocketAddr::new(api, API_PORT));
        let chain = |hook: &str| format!("chain {hook} {{ type nat hook {hook} priority -100; {to_api}; }}");
        let (hosts, pods) = (chain("output"), chain("prerouting"));
        let table = format!("table {protocol} stand-in {{ {hosts}; {pods}; }}");
        self.command("nft")?.args(["-f", "-"]).input(table).finish()
    }

    /// Gives the node its kube-proxy back, after [`Node::remove_proxy`].
    ///
    /// # Errors
    /// If that fails.
    pub fn restore_proxy(&self) -> anyhow::Result<()> {
        self.exec(&["pkill", "-KILL", "-f", PROXY])?;
        let protocol = if self.shared.plan.api().is_ipv4() { "ip" } else { "ip6" };
        self.exec(&["nft", "delete", "table", protocol, "stand-in"]).map(drop)
    }

    /// Adds addresses of services to the node, as kube-proxy in IPVS mode does, or deletes them (`change`).
    ///
    /// # Errors
    /// If that fails.
    pub fn hold_cluster_ips(&self, change: &str, addresses: &[IpAddr]) -> anyhow::Result<()> {
        let address =
            |address: &IpAddr| self.exec(&["ip", "address", change, &address.to_string(), "dev", "lo"]);
        addresses.iter().try_for_each(|one| address(one).map(drop))
    }

    /// Has the node's programs not reach the API server, nor any answer come from it.
    ///
    /// # Errors
    /// If that fails.
    pub fn cut_api(&self) -> anyhow::Result<()> {
        let chain = |hook: &str, end: &str| {
            format!("chain {hook} {{ type filter hook {hook} priority 0; tcp {end} {API_PORT} drop; }}")
        };
        let (sent, received) = (chain("output", "dport"), chain("input", "sport"));
        let table = format!("table inet {API_CUT} {{ {sent}; {received}; }}");
        self.command("nft")?.args(["-f", "-"]).input(table).finish()
    }

    /// Lets them reach it again.
    ///
    /// # Errors
    /// If that fails.
    pub fn restore_api(&self) -> anyhow::Result<()> {
        self.exec(&["nft", "delete", "table", "inet", API_CUT]).map(drop)
    }

    /// Power on: cables plugged in, programs started. Returns before the kubelet is ready.
    ///
    /// # Errors
    /// If it is on, or does not start: the error shows its log.
    pub fn start(&self) -> anyhow::Result<()> {
        let mut power = self.power.lock().unwrap_or_else(PoisonError::into_inner);
        anyhow::ensure!(power.is_none(), "node {} is on", self.plan.name);
        let name = &self.plan.name;
        self.shared.lab.namespace(name)?;
        self.plug_in()?;
        for folder in &self.groups.folders {
            self.shared.lab.adopt_group(folder)?;
        }
        self.groups.make()?;
        std::fs::create_dir_all(&self.folder)?;
        let announced = self.folder.join("pid");
        if announced.exists() {
            std::fs::remove_file(&announced)?;
        }
        let parent = Daemon::start(&self.shared.lab, &format!("node-{name}"), &self.first_process())?;
        let first = eventually(&format!("node {name} to make its root"), START, || {
            parent.check()?;
            let text = std::fs::read_to_string(&announced)?;
            ProcessId::of(text.trim().parse()?)
        })?;
        self.shared.lab.adopt_process(first)?;
        *power = Some(Power { parent, first });
        Ok(())
    }

    /// A veth pair from the fabric; the link address outlives a power cut, as on a machine.
    fn plug_in(&self) -> anyhow::Result<()> {
        let shared = &self.shared;
        let (fabric, node, mtu) = (shared.fabric.name(), self.namespace.name(), shared.plan.shape.mtu);
        let (port, bridge) = (self.plan.port(), shared.plan.bridge());
        let address = format!("02:00:00:00:{:02x}:{:02x}", shared.plan.number, self.plan.number);
        netns::ip(&format!(
            "link add {port} netns {fabric} mtu {mtu} type veth \
             peer name eth0 netns {node} mtu {mtu} address {address}\n"
        ))?;
        shared.fabric.ip(&format!("link set {port} master {bridge} up"))?;
        self.namespace.ip(&shared.plan.node_lines(&self.plan))
    }

    fn first_process(&self) -> Run {
        let (shared, plan) = (&self.shared, &self.shared.plan);
        // Hierarchies with several controllers have commas in their names.
        let folders: Vec<_> = self.groups.folders.iter().map(|folder| folder.display().to_string()).collect();
        let addresses = self.addresses();
        let services = plan.service_addresses(DNS_PLACE);
        Run::new("bash")
            .arg(programs::node_script())
            .args(["enter", self.namespace.name()])
            .env("NODE", &self.plan.name)
            .env("BIN", &shared.programs.bin)
            .env("RUNTIME", &shared.programs.runtime)
            .env("DIR", &self.folder)
            .env("CLUSTER_DIR", &shared.folder)
            .env("IMAGES", &shared.images)
            .env("CGROUPS", self.groups.hierarchies.join(" "))
            .env("CGROUP_DIRS", folders.join(" "))
            .env("NODE_IPS", joined(&addresses))
            .env("API", plan.api().to_string())
            .env("POD_NETS", joined(&plan.pod_nets))
            .env("SVC_NETS", joined(&plan.service_nets))
            .env("POD_CIDRS", joined(&self.plan.pod_cidrs))
            .env("DNS_IP", services[0].to_string())
            .env("MTU", plan.shape.mtu.to_string())
            .env("PROXY_MODE", plan.shape.proxy.as_str())
            .env("CONTROL", if self.plan.number == 1 { "1" } else { "0" })
    }

    /// Power off, as by pulling the plug: processes, devices, routes and tables are gone, `/var` stays.
    ///
    /// # Errors
    /// If it is off, or something of it stays.
    pub fn kill(&self) -> anyhow::Result<()> {
        let power = self.power.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Power { parent, first } = power.with_context(|| format!("node {} is off", self.plan.name))?;
        // First: a machine without power does not say goodbye to its connections. A namespace goes only a moment later.
        self.shared.fabric.run("ip").args(["link", "del", &self.plan.port()]).finish()?;
        // The kernel ends everything else of a process namespace before its first process is gone.
        first.signal(Signal::SIGKILL)?;
        anyhow::ensure!(first.wait_end(START), "node {} does not end", self.plan.name);
        parent.kill()?;
        Run::new("ip").args(["netns", "del", self.namespace.name()]).finish()?;
        for folder in &self.groups.folders {
            registry::remove_group(folder)?;
        }
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.is_on() && !self.shared.lab.is_kept() {
            // The lab's own removal reports what cannot be removed.
            let _ = self.kill();
        }
    }
}
