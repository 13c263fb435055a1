//! A cluster under test: its gateway and its route agent, as real processes on its gateway node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use ipnet::IpNet;
use trieste_control::admin::{self, GatewayStatus};

use crate::command::Run;
use crate::daemon::Daemon;
use crate::installation::{self, Installation};
use crate::lab::Lab;
use crate::programs;
use crate::topology::{ClusterPlan, NodePlan};
use crate::wait::eventually;

/// The namespace of a cluster's own objects.
pub const NAMESPACE: &str = "submariner-operator";
/// The namespace of the objects on the broker.
pub const BROKER_NAMESPACE: &str = "submariner-k8s-broker";
/// The text from which every gateway of a lab makes its preshared key.
pub const PSK: &str = "the lab's preshared key";

/// The 32 bytes that a gateway makes of [`PSK`], base64: what a foreign peer is told.
pub fn psk_base64() -> String {
    use base64::Engine as _;
    use sha2::Digest as _;
    base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(PSK))
}

/// How a lab's gateways are set up, beyond what the topology says.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The broker's directory; `None` to run without a broker.
    pub broker: Option<PathBuf>,
    /// UDP port of the cable.
    pub udp_port: u16,
    /// Further lines for the gateway's configuration file.
    pub extra: Vec<String>,
    /// The same for one node's gateway: the node's name, and the line.
    pub of_node: Vec<(String, String)>,
    /// Words before the gateway's and the route agent's own: a program that confines them, say. `DIRECTORY` in a word
    /// is the cluster's own directory.
    pub wrap: Vec<String>,
    /// Nodes of a mesh whose clocks are off, and by how many seconds.
    pub clocks: Vec<(String, i64)>,
    /// Whether route agents are given the names of their Node objects, as in pods: then they keep RouteAgent objects, and with
    /// several gateways all of the cluster follow its services.
    pub names_nodes: bool,
    /// By cluster ID: the API servers that are its own store and its broker; a cluster without has directories.
    pub api: BTreeMap<String, ApiAccess>,
}

/// Kubeconfigs of those who need one in a cluster.
#[derive(Debug, Clone)]
pub struct ApiAccess {
    /// Of its gateways, for its own API server.
    pub gateway: PathBuf,
    /// Of its route agents, for the same.
    pub route_agent: PathBuf,
    /// Of its gateways, for the broker's.
    pub broker: PathBuf,
}

impl Settings {
    /// Every cluster of the lab on one broker, a directory of the lab.
    pub fn of(lab: &Lab) -> Self {
        Self {
            broker: Some(lab.directory().join("broker")),
            udp_port: 4500,
            extra: Vec::new(),
            of_node: Vec::new(),
            wrap: Vec::new(),
            clocks: Vec::new(),
            names_nodes: false,
            api: BTreeMap::new(),
        }
    }
}

/// A cluster whose gateway and route agent run.
#[derive(Debug)]
pub struct Cluster {
    own: Installation,
    lab: Lab,
    gateway: Option<Daemon>,
    route_agent: Option<Daemon>,
    workers: Vec<Daemon>,
}

impl Cluster {
    /// Writes the configuration, and starts the route agent and the gateway.
    ///
    /// # Errors
    /// If a program is not built or cannot start.
    pub fn start(lab: &Lab, plan: &ClusterPlan, settings: &Settings) -> anyhow::Result<Self> {
        let directory = lab.directory().join(&plan.id);
        std::fs::create_dir_all(&directory)?;
        if let Some(broker) = &settings.broker {
            std::fs::create_dir_all(broker)?;
        }
        let here = directory.to_string_lossy();
        let wrap = settings.wrap.iter().map(|word| word.replace("DIRECTORY", &here)).collect();
        let own = Installation {
            plan: plan.clone(),
            node: plan.gateway().clone(),
            store: directory.join("state/store"),
            state: directory.join("state"),
            directory,
            wrap,
            api: settings.api.get(&plan.id).cloned(),
            names_node: settings.names_nodes,
        };
        let mut cluster =
            Self { own, lab: lab.clone(), gateway: None, route_agent: None, workers: Vec::new() };
        cluster.configure(settings)?;
        std::fs::create_dir_all(cluster.store())?;
        cluster.start_route_agent()?;
        // Elsewhere, and where what it may do is confined, a gateway that starts does not depend on it.
        if settings.api.is_empty() && settings.wrap.is_empty() {
            cluster.wait_until_guarded()?;
        }
        cluster.start_gateway()?;
        Ok(cluster)
    }

    /// Waits for the route agent's packet filter. With a directory store a gateway lets packets in as soon as it runs; before
    /// the node is closed, answers would leave in clear.
    fn wait_until_guarded(&self) -> anyhow::Result<()> {
        eventually("the node's packet filter", Duration::from_secs(30), || {
            let table = self.node().namespace.run("nft").args(["list", "table", "inet", "trieste"]);
            table.stdout().map(drop)
        })
    }

    /// Writes the gateway's configuration, which it reads when it starts.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn configure(&self, settings: &Settings) -> anyhow::Result<()> {
        self.own.configure(settings)
    }

    /// Writes the object that says the cluster's networks: those that it was started with, and extra ones.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn announce(&self, extra: &str) -> anyhow::Result<()> {
        installation::announce(&self.store(), &self.own.plan, extra)
    }

    /// Writes the object with the settings of the cluster's programs: these and no others.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn set(&self, settings: &[(&str, &str)]) -> anyhow::Result<()> {
        installation::set(&self.store(), settings)
    }

    /// Starts the gateway, for the first time or after [`Cluster::kill_gateway`].
    ///
    /// # Errors
    /// If it cannot start.
    pub fn start_gateway(&mut self) -> anyhow::Result<()> {
        let run = self.own.gateway_run()?;
        self.gateway = Some(Daemon::start(&self.lab, &format!("{}-gateway", self.plan().id), &run)?);
        Ok(())
    }

    /// Starts the route agent, for the first time or after [`Cluster::kill_route_agent`].
    ///
    /// # Errors
    /// If it cannot start.
    pub fn start_route_agent(&mut self) -> anyhow::Result<()> {
        let run = self.route_agent_command()?;
        self.route_agent = Some(Daemon::start(&self.lab, &format!("{}-routeagent", self.plan().id), &run)?);
        Ok(())
    }

    /// The route agent's command line on the gateway node; tests add `--once` or `--uninstall`.
    ///
    /// # Errors
    /// If it is not built.
    pub fn route_agent_command(&self) -> anyhow::Result<Run> {
        Ok(self.own.route_agent_run()?.arg("--pass-file").arg(self.store().with_extension("pass.json")))
    }

    /// Puts Node objects of all nodes into the store, and starts route agents on those without a gateway: from here on their
    /// pods reach the gateway, and it reaches them.
    ///
    /// # Errors
    /// If one of them cannot start.
    pub fn start_workers(&mut self) -> anyhow::Result<()> {
        installation::put_nodes(&self.store(), self.plan())?;
        for node in self.own.plan.workers() {
            let folder = self.own.directory.join(&node.name);
            std::fs::create_dir_all(&folder)?;
            let own = Installation { node: node.clone(), ..self.own.clone() };
            let run = own.route_agent_run()?.arg("--pass-file").arg(folder.join("pass.json"));
            let run = run.env("TRIESTE_STATE_DIR", &folder);
            self.workers.push(Daemon::start(&self.lab, &format!("{}-routeagent", node.name), &run)?);
        }
        Ok(())
    }

    /// Ends the gateway as a crash would.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill_gateway(&mut self) -> anyhow::Result<()> {
        self.gateway.take().context("the gateway does not run")?.kill()
    }

    /// Ends the route agent as a crash would.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill_route_agent(&mut self) -> anyhow::Result<()> {
        self.route_agent.take().context("the route agent does not run")?.kill()
    }

    /// Ends both as an operator would, and fails unless both end by themselves and without complaint.
    ///
    /// # Errors
    /// If one of them does not.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        for (daemon, name) in [(self.gateway.take(), "gateway"), (self.route_agent.take(), "route agent")] {
            let ended = daemon.with_context(|| format!("the {name} does not run"))?.stop()?;
            anyhow::ensure!(ended, "the {name} did not end by itself with exit status 0 when asked to");
        }
        Ok(())
    }

    /// Removes both from the node, as an operator would: each program with `--uninstall`.
    ///
    /// # Errors
    /// If one of them fails.
    pub fn uninstall(&self) -> anyhow::Result<()> {
        self.route_agent_command()?.arg("--uninstall").stdout()?;
        let gateway = programs::path("trieste-gateway")?;
        let run = self.node().namespace.run(&gateway.to_string_lossy());
        run.arg("--config").arg(self.config_path()).arg("--uninstall").stdout()?;
        Ok(())
    }

    /// The route agent's process.
    ///
    /// # Errors
    /// If it does not run.
    pub fn route_agent(&self) -> anyhow::Result<&Daemon> {
        self.route_agent.as_ref().context("the route agent does not run")
    }

    /// The gateway's process.
    ///
    /// # Errors
    /// If it does not run.
    pub fn gateway(&self) -> anyhow::Result<&Daemon> {
        self.gateway.as_ref().context("the gateway does not run")
    }

    /// The node that it runs on.
    pub fn node(&self) -> &NodePlan {
        &self.own.node
    }

    /// Its addresses and names.
    pub fn plan(&self) -> &ClusterPlan {
        &self.own.plan
    }

    /// The directory of its own objects.
    pub fn store(&self) -> PathBuf {
        self.own.store.clone()
    }

    /// The gateway's admin socket.
    pub fn socket(&self) -> PathBuf {
        self.own.socket()
    }

    /// The gateway's configuration file.
    pub fn config_path(&self) -> PathBuf {
        self.own.config_path()
    }

    /// Asks the gateway for its status.
    ///
    /// # Errors
    /// If it does not answer, or in a way that is not understood.
    pub fn status(&self) -> anyhow::Result<GatewayStatus> {
        self.check()?;
        self.own.status()
    }

    /// Waits until every cable has shaken hands and there are at least `count`: packets go through from here on.
    ///
    /// # Errors
    /// If that does not happen within `timeout`; the error shows how far it got.
    pub fn wait_handshakes(&self, count: usize, timeout: Duration) -> anyhow::Result<GatewayStatus> {
        let status = self.wait_cables("have shaken hands", count, timeout, |cable| {
            cable.lane.last_handshake_age_s.is_some()
        })?;
        if self.route_agent.is_some() {
            eventually("routes into the cables", timeout, || self.check_routes(&status))?;
        }
        Ok(status)
    }

    /// Fails unless the node routes into the cables what is for the networks of every far end. A cable may be up before the
    /// route agent has the Endpoint: until then packets for a network that the node does not know leave by its default route.
    ///
    /// # Errors
    /// The first network that has no such route.
    pub fn check_routes(&self, status: &GatewayStatus) -> anyhow::Result<()> {
        let endpoints = status.connections.iter().map(|cable| &cable.connection.endpoint);
        for net in endpoints.flat_map(|endpoint| &endpoint.subnets) {
            let net: IpNet = net.parse().with_context(|| format!("{net} is no network"))?;
            let family = if net.addr().is_ipv4() { "-4" } else { "-6" };
            let address = net.hosts().next().unwrap_or_else(|| net.addr()).to_string();
            let route = self.node().namespace.run("ip").args([family, "route", "get", &address]);
            let route = route.output()?.stdout;
            anyhow::ensure!(
                route.contains("dev submariner"),
                "{net} has no route into the cables: {}",
                route.trim_end()
            );
        }
        Ok(())
    }

    /// Waits until every connection is reported as connected and there are at least `count`. By upstream's rules a
    /// connection is judged only every ten seconds, by the bytes that moved.
    ///
    /// # Errors
    /// If that does not happen within `timeout`; the error shows how far it got.
    pub fn wait_connected(&self, count: usize, timeout: Duration) -> anyhow::Result<GatewayStatus> {
        self.own.wait_connected(count, timeout, || self.check())
    }

    fn wait_cables(
        &self,
        what: &str,
        count: usize,
        timeout: Duration,
        is_good: impl Fn(&admin::CableStatus) -> bool,
    ) -> anyhow::Result<GatewayStatus> {
        self.own.wait_cables(what, count, timeout, || self.check(), is_good)
    }

    /// Fails when the gateway has ended by itself.
    fn check(&self) -> anyhow::Result<()> {
        self.gateway.as_ref().map_or(Ok(()), Daemon::check)
    }

    /// A run of the command `trieste` against this gateway.
    ///
    /// # Errors
    /// If it is not built.
    pub fn trieste(&self, words: &[&str]) -> anyhow::Result<Run> {
        self.own.trieste(words)
    }
}
