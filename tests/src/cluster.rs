//! A cluster under test: its gateway and its route agent, as real processes on its gateway node.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use trieste_control::admin::{self, GatewayStatus};

use crate::command::Run;
use crate::daemon::Daemon;
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
    /// Words before the gateway's and the route agent's own: a program that confines them, say. `DIRECTORY` in a word
    /// is the cluster's own directory.
    pub wrap: Vec<String>,
}

impl Settings {
    /// Every cluster of the lab on one broker, a directory of the lab.
    pub fn of(lab: &Lab) -> Self {
        Self {
            broker: Some(lab.directory().join("broker")),
            udp_port: 4500,
            extra: Vec::new(),
            wrap: Vec::new(),
        }
    }
}

/// A cluster whose gateway and route agent run.
#[derive(Debug)]
pub struct Cluster {
    plan: ClusterPlan,
    lab: Lab,
    directory: PathBuf,
    wrap: Vec<String>,
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
        let mut cluster = Self {
            plan: plan.clone(),
            lab: lab.clone(),
            directory,
            wrap,
            gateway: None,
            route_agent: None,
            workers: Vec::new(),
        };
        cluster.configure(settings)?;
        std::fs::create_dir_all(cluster.store())?;
        cluster.start_route_agent()?;
        cluster.start_gateway()?;
        Ok(cluster)
    }

    /// Writes the gateway's configuration, which it reads when it starts.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn configure(&self, settings: &Settings) -> anyhow::Result<()> {
        std::fs::write(self.config_path(), self.config(settings))?;
        Ok(())
    }

    /// Starts the gateway, for the first time or after [`Cluster::kill_gateway`].
    ///
    /// # Errors
    /// If it cannot start.
    pub fn start_gateway(&mut self) -> anyhow::Result<()> {
        let run = self.program("trieste-gateway")?.arg("--config").arg(self.config_path());
        self.gateway = Some(Daemon::start(&self.lab, &format!("{}-gateway", self.plan.id), &run)?);
        Ok(())
    }

    /// Starts the route agent, for the first time or after [`Cluster::kill_route_agent`].
    ///
    /// # Errors
    /// If it cannot start.
    pub fn start_route_agent(&mut self) -> anyhow::Result<()> {
        let run = self.route_agent_command()?;
        self.route_agent = Some(Daemon::start(&self.lab, &format!("{}-routeagent", self.plan.id), &run)?);
        Ok(())
    }

    /// The route agent's command line on the gateway node; tests add `--once` or `--uninstall`.
    ///
    /// # Errors
    /// If it is not built.
    pub fn route_agent_command(&self) -> anyhow::Result<Run> {
        let run = self.route_agent_on(self.node())?;
        Ok(run.arg("--pass-file").arg(self.store().with_extension("pass.json")))
    }

    fn route_agent_on(&self, node: &NodePlan) -> anyhow::Result<Run> {
        let run = self
            .program_on(node, "trieste-routeagent")?
            .args(["--store", &format!("dir:{}", self.store().display())])
            .args(["--namespace", NAMESPACE, "--cluster-id", &self.plan.id, "--hostname", &node.name])
            .args(["--cluster-cidrs", &list(&self.plan.pod_cidrs)])
            .args(["--service-cidrs", &list(&self.plan.service_cidrs)]);
        Ok(match self.plan.global_cidrs.as_slice() {
            [] => run,
            global => run.args(["--global-cidrs", &list(global)]),
        })
    }

    /// Puts Node objects of all nodes into the store, and starts route agents on those without a gateway: from here on their
    /// pods reach the gateway, and it reaches them.
    ///
    /// # Errors
    /// If one of them cannot start.
    pub fn start_workers(&mut self) -> anyhow::Result<()> {
        let folder = self.store().join("_cluster/nodes");
        std::fs::create_dir_all(&folder)?;
        for node in &self.plan.nodes {
            let pods: Vec<_> = node.bridge.iter().map(|net| net.trunc().to_string()).collect();
            let addresses: Vec<_> = node
                .underlay
                .iter()
                .map(|net| serde_json::json!({"type": "InternalIP", "address": net.addr()}))
                .collect();
            let object = serde_json::json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": node.name, "labels": {"kubernetes.io/hostname": node.name}},
                "spec": {"podCIDR": pods.first(), "podCIDRs": pods},
                "status": {"addresses": addresses},
            });
            put_whole(&folder.join(format!("{}.yaml", node.name)), &object.to_string())?;
        }
        for node in self.plan.workers() {
            let folder = self.directory.join(&node.name);
            std::fs::create_dir_all(&folder)?;
            let run = self.route_agent_on(node)?.arg("--pass-file").arg(folder.join("pass.json"));
            let run = run.env("TRIESTE_STATE_DIR", &folder);
            self.workers.push(Daemon::start(&self.lab, &format!("{}-routeagent", node.name), &run)?);
        }
        Ok(())
    }

    /// One of our programs on the gateway node, confined as the settings say.
    fn program(&self, name: &str) -> anyhow::Result<Run> {
        self.program_on(self.node(), name)
    }

    fn program_on(&self, node: &NodePlan, name: &str) -> anyhow::Result<Run> {
        let path = programs::path(name)?.to_string_lossy().into_owned();
        let mut words = self.wrap.iter().cloned().chain([path]);
        let first = words.next().context("there is always a program")?;
        Ok(node.namespace.run(&first).args(words))
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
        self.plan.gateway()
    }

    /// Its addresses and names.
    pub fn plan(&self) -> &ClusterPlan {
        &self.plan
    }

    /// The directory of its own objects.
    pub fn store(&self) -> PathBuf {
        self.directory.join("state/store")
    }

    /// The gateway's admin socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("gateway.sock")
    }

    /// The gateway's configuration file.
    pub fn config_path(&self) -> PathBuf {
        self.directory.join("gateway.yaml")
    }

    /// Asks the gateway for its status.
    ///
    /// # Errors
    /// If it does not answer, or in a way that is not understood.
    pub fn status(&self) -> anyhow::Result<GatewayStatus> {
        if let Some(gateway) = &self.gateway {
            gateway.check()?;
        }
        let body = get(&self.socket(), admin::STATUS_PATH)?;
        serde_json::from_str(&body).context("the status document")
    }

    /// Waits until every cable has shaken hands and there are at least `count`: packets go through from here on.
    ///
    /// # Errors
    /// If that does not happen within `timeout`; the error shows how far it got.
    pub fn wait_handshakes(&self, count: usize, timeout: Duration) -> anyhow::Result<GatewayStatus> {
        self.wait_cables("have shaken hands", count, timeout, |cable| {
            cable.lane.last_handshake_age_s.is_some()
        })
    }

    /// Waits until every connection is reported as connected and there are at least `count`. By upstream's rules a
    /// connection is judged only every ten seconds, by the bytes that moved.
    ///
    /// # Errors
    /// If that does not happen within `timeout`; the error shows how far it got.
    pub fn wait_connected(&self, count: usize, timeout: Duration) -> anyhow::Result<GatewayStatus> {
        let connected = trieste_control::api::ConnectionStatus::Connected;
        self.wait_cables("are connected", count, timeout, |cable| cable.connection.status == connected)
    }

    fn wait_cables(
        &self,
        what: &str,
        count: usize,
        timeout: Duration,
        is_good: impl Fn(&admin::CableStatus) -> bool,
    ) -> anyhow::Result<GatewayStatus> {
        eventually(&format!("cables of {}", self.plan.id), timeout, || {
            let status = self.status()?;
            let good = status.connections.iter().filter(|cable| is_good(cable)).count();
            let (all, refused) = (&status.connections, &status.refused);
            anyhow::ensure!(
                good >= count && good == all.len(),
                "{good} of {count} {what}: {:?}; refused: {refused:?}",
                all.iter().map(describe).collect::<Vec<_>>()
            );
            Ok(status)
        })
    }

    /// A run of the command `trieste` against this gateway.
    ///
    /// # Errors
    /// If it is not built.
    pub fn trieste(&self, words: &[&str]) -> anyhow::Result<Run> {
        Ok(Run::new(programs::path("trieste")?).args(words).arg("--socket").arg(self.socket()))
    }

    fn config(&self, settings: &Settings) -> String {
        let quote = |nets: &[ipnet::IpNet]| {
            nets.iter().map(|net| format!("\"{net}\"")).collect::<Vec<_>>().join(", ")
        };
        let state = self.directory.join("state");
        let mut lines = vec![
            format!("cluster-id: {}", self.plan.id),
            format!("cluster-cidrs: [{}]", quote(&self.plan.pod_cidrs)),
            format!("service-cidrs: [{}]", quote(&self.plan.service_cidrs)),
            format!("namespace: {NAMESPACE}"),
            format!("hostname: {}", self.node().name),
            format!("private-ip: \"{}\"", self.node().underlay_address()),
            format!("udp-port: {}", settings.udp_port),
            format!("psk: \"{PSK}\""),
            format!("state-dir: {}", state.display()),
            format!("store: dir:{}", self.store().display()),
            format!("admin-socket: {}", self.socket().display()),
        ];
        if !self.plan.global_cidrs.is_empty() {
            lines.push(format!("global-cidrs: [{}]", quote(&self.plan.global_cidrs)));
        }
        if let Some(broker) = &settings.broker {
            lines.push(format!("broker: dir:{}", broker.display()));
            lines.push(format!("broker-namespace: {BROKER_NAMESPACE}"));
        }
        lines.extend(settings.extra.iter().cloned());
        lines.join("\n") + "\n"
    }
}

fn describe(cable: &admin::CableStatus) -> String {
    let connection = &cable.connection;
    format!("{} {} {}", connection.endpoint.cluster_id, connection.status.as_str(), connection.status_message)
}

fn list(nets: &[ipnet::IpNet]) -> String {
    nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Writes a file complete or not at all, as everything that others watch.
pub(crate) fn put_whole(file: &Path, text: &str) -> anyhow::Result<()> {
    let name = file.file_name().context("a file has a name")?.to_string_lossy();
    let partial = file.with_file_name(format!(".{name}.partial"));
    std::fs::write(&partial, text).with_context(|| format!("writing {}", partial.display()))?;
    std::fs::rename(&partial, file)?;
    Ok(())
}

/// One request over a unix socket: the body of the answer.
pub(crate) fn get(socket: &Path, path: &str) -> anyhow::Result<String> {
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("connecting to {}", socket.display()))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    // HTTP/1.0: the answer ends with the connection and is never chunked.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: gateway\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("reading the answer to {path}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let status = head.lines().next().unwrap_or_default();
    anyhow::ensure!(status.contains(" 200 "), "{path}: {status}: {body}");
    Ok(body.to_owned())
}
