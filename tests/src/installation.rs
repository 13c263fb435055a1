//! One node's share of a cluster: where its gateway and its route agent keep their things, how they are started and asked.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ipnet::IpNet;
use trieste_control::admin::{self, GatewayStatus};
use trieste_control::api::ConnectionStatus;

use crate::clock;
use crate::cluster::{ApiAccess, BROKER_NAMESPACE, NAMESPACE, PSK, Settings};
use crate::command::Run;
use crate::programs;
use crate::topology::{ClusterPlan, NodePlan};
use crate::wait::eventually;

/// Our programs on one node. Several nodes of a cluster share its store and nothing else.
#[derive(Debug, Clone)]
pub(crate) struct Installation {
    /// The cluster.
    pub(crate) plan: ClusterPlan,
    /// The node.
    pub(crate) node: NodePlan,
    /// The directory of the cluster's own objects.
    pub(crate) store: PathBuf,
    /// What the gateway keeps over a restart.
    pub(crate) state: PathBuf,
    /// Its configuration and its socket.
    pub(crate) directory: PathBuf,
    /// Words before those of our programs.
    pub(crate) wrap: Vec<String>,
    /// The API servers that take the place of both directories.
    pub(crate) api: Option<ApiAccess>,
    /// Whether the route agent is given the name of its Node object.
    pub(crate) names_node: bool,
}

impl Installation {
    /// The gateway's admin socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("gateway.sock")
    }

    /// The gateway's configuration file.
    pub(crate) fn config_path(&self) -> PathBuf {
        self.directory.join("gateway.yaml")
    }

    /// Writes that file, which the gateway reads when it starts.
    pub(crate) fn configure(&self, settings: &Settings) -> anyhow::Result<()> {
        std::fs::write(self.config_path(), self.config(settings))?;
        Ok(())
    }

    /// The gateway's command line.
    pub(crate) fn gateway_run(&self) -> anyhow::Result<Run> {
        Ok(self.program("trieste-gateway")?.arg("--config").arg(self.config_path()))
    }

    /// The route agent's command line, without its files.
    pub(crate) fn route_agent_run(&self) -> anyhow::Result<Run> {
        let store = self.api.as_ref().map(|api| format!("kube:{}", api.route_agent.display()));
        let run = self
            .program("trieste-routeagent")?
            .args(["--store", &store.unwrap_or_else(|| format!("dir:{}", self.store.display()))])
            .args(["--namespace", NAMESPACE, "--cluster-id", &self.plan.id, "--hostname", &self.node.name])
            .args(["--cluster-cidrs", &list(&self.plan.pod_cidrs)])
            .args(["--service-cidrs", &list(&self.plan.service_cidrs)]);
        let run = if self.names_node { run.args(["--node-name", &self.node.name]) } else { run };
        Ok(match self.plan.global_cidrs.as_slice() {
            [] => run,
            global => run.args(["--global-cidrs", &list(global)]),
        })
    }

    /// The file of the node's clock, which is off if there is one.
    pub(crate) fn clock(&self) -> PathBuf {
        self.directory.join("clock")
    }

    /// One of our programs on the node, confined as the settings say, with the node's clock.
    fn program(&self, name: &str) -> anyhow::Result<Run> {
        let path = programs::path(name)?.to_string_lossy().into_owned();
        let clock = if self.clock().exists() { clock::words(&self.clock())? } else { Vec::new() };
        let mut words = self.wrap.iter().cloned().chain(clock).chain([path]);
        let first = words.next().context("there is always a program")?;
        Ok(self.node.namespace.run(&first).args(words))
    }

    /// A run of the command `trieste` against the gateway.
    pub(crate) fn trieste(&self, words: &[&str]) -> anyhow::Result<Run> {
        Ok(Run::new(programs::path("trieste")?).args(words).arg("--socket").arg(self.socket()))
    }

    /// Asks the gateway for its status.
    pub(crate) fn status(&self) -> anyhow::Result<GatewayStatus> {
        let body = get(&self.socket(), admin::STATUS_PATH)?;
        serde_json::from_str(&body).context("the status document")
    }

    /// Waits until every cable is good and there are at least `count`; `check` fails when the gateway has ended.
    pub(crate) fn wait_cables(
        &self,
        what: &str,
        count: usize,
        timeout: Duration,
        check: impl Fn() -> anyhow::Result<()>,
        is_good: impl Fn(&admin::CableStatus) -> bool,
    ) -> anyhow::Result<GatewayStatus> {
        eventually(&format!("cables of {}", self.node.name), timeout, || {
            check()?;
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

    /// Waits until every connection is reported as connected and there are at least `count`. By upstream's rules a
    /// connection is judged only every ten seconds, by the bytes that moved.
    pub(crate) fn wait_connected(
        &self,
        count: usize,
        timeout: Duration,
        check: impl Fn() -> anyhow::Result<()>,
    ) -> anyhow::Result<GatewayStatus> {
        let is_connected =
            |cable: &admin::CableStatus| cable.connection.status == ConnectionStatus::Connected;
        self.wait_cables("are connected", count, timeout, check, is_connected)
    }

    /// Where the objects of the cluster and of the set are.
    fn stores(&self, settings: &Settings) -> Vec<String> {
        let own = self.api.as_ref().map(|api| format!("kube:{}", api.gateway.display()));
        let broker = match &self.api {
            Some(api) => Some(format!("kube:{}", api.broker.display())),
            None => settings.broker.as_ref().map(|broker| format!("dir:{}", broker.display())),
        };
        let mut lines =
            vec![format!("store: {}", own.unwrap_or_else(|| format!("dir:{}", self.store.display())))];
        if let Some(broker) = broker {
            lines.extend([format!("broker: {broker}"), format!("broker-namespace: {BROKER_NAMESPACE}")]);
        }
        // As with directories: there is nobody outside of the lab to be asked.
        lines.extend(self.api.is_some().then(|| "air-gapped: true".to_owned()));
        lines
    }

    fn config(&self, settings: &Settings) -> String {
        let quote =
            |nets: &[IpNet]| nets.iter().map(|net| format!("\"{net}\"")).collect::<Vec<_>>().join(", ");
        let mut lines = vec![
            format!("cluster-id: {}", self.plan.id),
            format!("cluster-cidrs: [{}]", quote(&self.plan.pod_cidrs)),
            format!("service-cidrs: [{}]", quote(&self.plan.service_cidrs)),
            format!("namespace: {NAMESPACE}"),
            format!("hostname: {}", self.node.name),
            format!("private-ip: \"{}\"", self.node.underlay_address()),
            format!("udp-port: {}", settings.udp_port),
            format!("psk: \"{PSK}\""),
            format!("state-dir: {}", self.state.display()),
            format!("admin-socket: {}", self.socket().display()),
        ];
        if !self.plan.global_cidrs.is_empty() {
            lines.push(format!("global-cidrs: [{}]", quote(&self.plan.global_cidrs)));
        }
        lines.extend(self.stores(settings));
        lines.extend(settings.extra.iter().cloned());
        let own = settings.of_node.iter().filter(|(node, _)| *node == self.node.name);
        lines.extend(own.map(|(_, line)| line.clone()));
        lines.join("\n") + "\n"
    }
}

/// Writes the object that says a cluster's networks into its directory: those that it was started with, and extra ones.
pub(crate) fn announce(store: &Path, plan: &ClusterPlan, extra: &str) -> anyhow::Result<()> {
    let (pods, services) = (list(&plan.pod_cidrs), list(&plan.service_cidrs));
    let folder = store.join(NAMESPACE).join("configmaps");
    std::fs::create_dir_all(&folder)?;
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: trieste-networks, namespace: {NAMESPACE}}}\n\
         data: {{pods: '{pods}', services: '{services}', extra: '{extra}'}}\n"
    );
    put_whole(&folder.join("trieste-networks.yaml"), &text)
}

/// Writes the object with the settings of a cluster's programs into its directory.
pub(crate) fn set(store: &Path, settings: &[(&str, &str)]) -> anyhow::Result<()> {
    let folder = store.join(NAMESPACE).join("configmaps");
    std::fs::create_dir_all(&folder)?;
    let data: serde_json::Map<String, serde_json::Value> =
        settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": "trieste-settings", "namespace": NAMESPACE},
    });
    put_whole(&folder.join("trieste-settings.yaml"), &object.to_string())
}

/// Puts Node objects of all nodes of a cluster into its directory.
pub(crate) fn put_nodes(store: &Path, plan: &ClusterPlan) -> anyhow::Result<()> {
    let folder = store.join("_cluster/nodes");
    std::fs::create_dir_all(&folder)?;
    for node in &plan.nodes {
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
    Ok(())
}

fn describe(cable: &admin::CableStatus) -> String {
    let connection = &cable.connection;
    format!("{} {} {}", connection.endpoint.cluster_id, connection.status.as_str(), connection.status_message)
}

fn list(nets: &[IpNet]) -> String {
    nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Writes a file complete or not at all, as everything that others watch.
///
/// # Errors
/// If its folder cannot be written.
pub fn put_whole(file: &Path, text: &str) -> anyhow::Result<()> {
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
