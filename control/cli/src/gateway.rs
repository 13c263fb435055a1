//! Which gateway a command asks: the one of this node, by its socket, or one of a cluster, by a command in its pod.

use std::time::Duration;

use anyhow::bail;
use kube::Client;
use kube::api::AttachedProcess;
use serde_json::Value;

use super::api::{Api, text};
use super::contexts::KubeArgs;
use super::exec::{self, Container};
use super::output::printable;
use super::socket::{self, SocketArgs};
use trieste_control::admin::STATUS_PATH;
use trieste_control::publish::STATUS_LABEL;
use trieste_deploy::objects::names::GATEWAY;

/// Ours: how long a gateway's status may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Largest status that is read, in bytes.
const MAX_STATUS: usize = 64 << 20;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct GatewayArgs {
    /// The gateway on this node of a cluster [default: the active one, if a cluster is named below; else this node's]
    #[arg(conflicts_with = "socket")]
    node: Option<String>,
    #[command(flatten)]
    pub(super) socket: SocketArgs,
    #[command(flatten)]
    kube: KubeArgs,
}

/// A gateway's pod.
pub(super) struct GatewayPod {
    client: Client,
    namespace: String,
    pub(super) name: String,
}

impl GatewayArgs {
    /// Returns the cluster that these say, if any.
    pub(super) const fn kube(&self) -> &KubeArgs {
        &self.kube
    }

    /// Whether a gateway of a cluster is meant, and not the one of this node.
    pub(super) const fn is_of_cluster(&self) -> bool {
        self.node.is_some() || self.kube.is_asked()
    }

    /// The gateway that these say; of a cluster the active one.
    pub(super) fn of(socket: &SocketArgs, kube: &KubeArgs) -> Self {
        Self { node: None, socket: socket.clone(), kube: kube.clone() }
    }

    /// A gateway's status document.
    ///
    /// # Errors
    /// When the gateway does not answer.
    pub(super) async fn status(&self) -> anyhow::Result<Vec<u8>> {
        self.document(STATUS_PATH, &["trieste", "status", "--output", "json"]).await
    }

    /// A document of a gateway: by its path on the socket, or by the command that prints it, in the gateway's pod.
    ///
    /// # Errors
    /// When the gateway does not answer.
    pub(super) async fn document(&self, path: &str, words: &[&str]) -> anyhow::Result<Vec<u8>> {
        if !self.is_of_cluster() {
            return Ok(socket::get(&self.socket.path(), path).await?.to_vec());
        }
        let pod = self.pod().await?;
        let ran = exec::run(&pod.client, pod.container(), words, MAX_STATUS, PATIENCE).await?;
        match ran.failure {
            None => Ok(ran.stdout),
            Some(failure) => bail!("{}", pod.explain(&failure, &ran.stderr)),
        }
    }

    /// The pod of the gateway that is meant.
    ///
    /// # Errors
    /// When there is none, or it cannot be told which.
    pub(super) async fn pod(&self) -> anyhow::Result<GatewayPod> {
        let target = self.kube.target()?;
        let client = target.client().await?;
        let namespace = self.kube.namespace.clone();
        let pods = Api::new(client.clone()).items(&format!("/api/v1/namespaces/{namespace}/pods")).await?;
        let name = choose(&pods, self.node.as_deref(), &namespace)?;
        Ok(GatewayPod { client, namespace, name })
    }
}

impl GatewayPod {
    /// Starts a command in it.
    ///
    /// # Errors
    /// When the API server or the node refuses.
    pub(super) async fn start(&self, words: &[&str]) -> anyhow::Result<AttachedProcess> {
        exec::start(&self.client, self.container(), words).await
    }

    /// Why a command in it has failed: its own words, if it has any.
    pub(super) fn explain(&self, failure: &str, stderr: &[u8]) -> String {
        let said = String::from_utf8_lossy(stderr);
        let said = said.lines().rfind(|line| !line.trim().is_empty());
        let why = said.map_or(failure, |line| line.strip_prefix("error: ").unwrap_or(line));
        format!("pod {}: {}; does it run an image of Trieste?", self.name, printable(why))
    }

    fn container(&self) -> Container<'_> {
        Container { namespace: &self.namespace, pod: &self.name, container: GATEWAY }
    }
}

/// The pod on a node; without one the active gateway's, or the only one.
fn choose(pods: &[Value], node: Option<&str>, namespace: &str) -> anyhow::Result<String> {
    let label = |pod: &Value, key: &str| pod["metadata"]["labels"][key].as_str().map(str::to_owned);
    let runs = |pod: &&Value| {
        label(pod, "app").as_deref() == Some(GATEWAY) && text(pod, "/status/phase") == "Running"
    };
    let running: Vec<&Value> = pods.iter().filter(runs).collect();
    let is_active = |pod: &&&Value| label(pod, STATUS_LABEL).as_deref() == Some("active");
    let chosen = match node {
        Some(node) => running.iter().find(|pod| text(pod, "/spec/nodeName") == node),
        None if running.len() == 1 => running.first(),
        None => running.iter().find(is_active),
    };
    if let Some(pod) = chosen {
        return Ok(text(pod, "/metadata/name").to_owned());
    }
    let nodes: Vec<String> = running.iter().map(|pod| printable(text(pod, "/spec/nodeName"))).collect();
    match (nodes.as_slice(), node) {
        ([], _) => {
            bail!("no gateway's pod runs in namespace {namespace}; is that its namespace (--namespace)?")
        }
        (_, Some(node)) => {
            bail!("no gateway's pod runs on node {node}; there are some on: {}", nodes.join(", "))
        }
        (_, None) => {
            bail!("no gateway says that it is the active one; name one of the nodes {}", nodes.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(node: &str, phase: &str, state: &str) -> Value {
        json!({"metadata": {"name": format!("pod-{node}"), "labels": {"app": GATEWAY, STATUS_LABEL: state}},
            "spec": {"nodeName": node}, "status": {"phase": phase}})
    }

    #[test]
    fn the_active_gateway_is_asked_unless_a_node_is_named() {
        let pods = [
            pod("gw1", "Running", "passive"),
            pod("gw2", "Running", "active"),
            pod("gw3", "Pending", "active"),
        ];
        assert_eq!(choose(&pods, None, "n").unwrap(), "pod-gw2");
        assert_eq!(choose(&pods, Some("gw1"), "n").unwrap(), "pod-gw1");
        assert_eq!(choose(&pods[..1], None, "n").unwrap(), "pod-gw1");
        let error = choose(&pods, Some("gw3"), "n").unwrap_err().to_string();
        assert!(error.contains("node gw3") && error.contains("gw1, gw2"), "{error}");
        assert!(choose(&[], None, "n").unwrap_err().to_string().contains("namespace n"));
    }
}
