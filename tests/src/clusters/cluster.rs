//! One real cluster, and what one does with it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use ipnet::IpNet;
use serde_json::{Value, json};
use trieste_control::publish::STATUS_LABEL;

use super::fabric::{in_parallel, put_file};
use super::node::{Node, Surroundings};
use super::plan::{DNS_PLACE, ProxyMode};
use super::programs::DNS_MANIFEST;
use super::set::MEMBER;
use crate::command::{Output, Run};
use crate::kubernetes::Client;
use crate::lab::Lab;
use crate::wait::eventually;

/// How long anything may take to get ready on a machine that is busy with something else.
pub(super) const READY: Duration = Duration::from_secs(120);

/// The label of nodes that may run a gateway.
const GATEWAY_LABEL: &str = "submariner.io/gateway";

/// A real cluster.
#[derive(Debug)]
pub struct Cluster {
    shared: Arc<Surroundings>,
    kubeconfig: PathBuf,
    client: Client,
    nodes: Vec<Node>,
}

impl Cluster {
    /// Starts its nodes and waits until it is ready.
    pub(super) fn up(shared: &Arc<Surroundings>) -> anyhow::Result<Self> {
        let kubeconfig = shared.folder.join("kubeconfig");
        let nodes: anyhow::Result<Vec<_>> =
            shared.plan.nodes.iter().map(|plan| Node::new(shared, plan)).collect();
        let client = Client::new(Some(&shared.fabric), &kubeconfig)?;
        let cluster = Self { shared: Arc::clone(shared), kubeconfig, client, nodes: nodes? };
        for node in &cluster.nodes {
            node.start()?;
        }
        cluster.wait_api()?;
        cluster.install_dns()?;
        cluster.introduce_nodes()?;
        cluster.wait_ready()?;
        Ok(cluster)
    }

    /// The lab that it belongs to.
    pub(crate) fn lab(&self) -> &Lab {
        &self.shared.lab
    }

    /// Its name, also that of its kubeconfig context.
    pub fn name(&self) -> &str {
        &self.shared.plan.shape.name
    }

    /// Its nodes; the first one carries the control plane too.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node of this number, from 1.
    ///
    /// # Panics
    /// If there is none: the caller asked for it.
    pub fn node(&self, number: usize) -> &Node {
        self.nodes.get(number.wrapping_sub(1)).expect("the caller asked for this many nodes")
    }

    /// Its nodes with the label of a gateway, and those without.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub fn gateways_and_workers(&self) -> anyhow::Result<(Vec<&Node>, Vec<&Node>)> {
        let list = self
            .client
            .list(&format!("/api/v1/nodes?labelSelector={}%3Dtrue", GATEWAY_LABEL.replace('/', "%2F")))?;
        let is_gateway = |node: &&Node| list.iter().any(|object| object["metadata"]["name"] == node.name());
        Ok(self.nodes.iter().partition(is_gateway))
    }

    /// Gives a node the label of a gateway, or takes it away.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub fn label_gateway(&self, node: &Node, is_gateway: bool) -> anyhow::Result<()> {
        let label = if is_gateway { json!("true") } else { Value::Null };
        let change = json!({"metadata": {"labels": {GATEWAY_LABEL: label}}});
        self.client.patch(&format!("/api/v1/nodes/{}", node.name()), &change).map(drop)
    }

    /// The node of the gateway that leads: all gateways may be active, one holds the Lease and wears the label for it.
    ///
    /// # Errors
    /// If none does or several do, or the API server does not answer.
    pub fn leader(&self) -> anyhow::Result<String> {
        let selector = STATUS_LABEL.replace('/', "%2F");
        let path = format!("/api/v1/namespaces/{MEMBER}/pods?labelSelector={selector}%3Dactive");
        let pods = self.client.list(&path)?;
        let here = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let nodes: Vec<_> = here.filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
        anyhow::ensure!(nodes.len() == 1, "gateways that lead: {nodes:?}");
        Ok(nodes[0].to_owned())
    }

    /// Fails unless there is a gateway on each node that is labelled and on, and on no other, and all are ready: each would
    /// carry what the others do.
    ///
    /// # Errors
    /// If it is otherwise, or the API server does not answer.
    pub fn gateways_carry(&self) -> anyhow::Result<()> {
        let selector = GATEWAY_LABEL.replace('/', "%2F");
        let labelled = self.client.list(&format!("/api/v1/nodes?labelSelector={selector}%3Dtrue"))?;
        let is_on = |name: &str| self.nodes().iter().any(|node| node.name() == name && node.is_on());
        let labelled = labelled.iter().filter_map(|node| node["metadata"]["name"].as_str());
        let wanted: BTreeSet<&str> = labelled.filter(|name| is_on(name)).collect();
        let path = format!("/api/v1/namespaces/{MEMBER}/pods?labelSelector=app%3Dsubmariner-gateway");
        let pods = self.client.list(&path)?;
        let is_ready = |pod: &&Value| {
            let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let is_there = pod["metadata"]["deletionTimestamp"].is_null();
            is_there && conditions.any(|said| said["type"] == "Ready" && said["status"] == "True")
        };
        let nodes = pods.iter().filter(is_ready).filter_map(|pod| pod["spec"]["nodeName"].as_str());
        let ready: BTreeSet<&str> = nodes.filter(|name| is_on(name)).collect();
        anyhow::ensure!(ready == wanted, "gateways are ready on {ready:?} and should be on {wanted:?}");
        Ok(())
    }

    /// The name and the restarts of our pod of this kind on a node, which is ready.
    ///
    /// # Errors
    /// If there is none that is, or the API server does not answer.
    pub fn own_pod(&self, app: &str, node: &Node) -> anyhow::Result<(String, u64)> {
        let path = format!(
            "/api/v1/namespaces/{MEMBER}/pods?labelSelector=app%3D{app}&fieldSelector=spec.nodeName%3D{}",
            node.name()
        );
        let pods = self.client.list(&path)?;
        let found = pods.iter().find(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let pod = found.with_context(|| format!("{app} has no pod on {}", node.name()))?;
        let container = &pod["status"]["containerStatuses"][0];
        anyhow::ensure!(container["ready"] == true, "{app} on {} is not ready", node.name());
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        Ok((name.to_owned(), container["restartCount"].as_u64().unwrap_or_default()))
    }

    /// Prefixes of its pods, IPv4 first.
    pub fn pod_nets(&self) -> &[IpNet] {
        &self.shared.plan.pod_nets
    }

    /// Prefixes of its services, IPv4 first.
    pub fn service_nets(&self) -> &[IpNet] {
        &self.shared.plan.service_nets
    }

    /// Returns the name server that its pods ask.
    pub fn name_server(&self) -> IpAddr {
        self.shared.plan.service_addresses(DNS_PLACE)[0]
    }

    /// How its kube-proxy does its work.
    pub fn proxy(&self) -> ProxyMode {
        self.shared.plan.shape.proxy
    }

    /// The bridge in the fabric that its nodes are plugged into.
    pub fn bridge(&self) -> String {
        self.shared.plan.bridge()
    }

    /// Where its API server listens.
    pub fn api(&self) -> IpAddr {
        self.shared.plan.api()
    }

    /// Its files: `kubeconfig`, `pki/`, `conf/`, and a folder for each node.
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// A kubeconfig with a context for each cluster, this one's current. Its addresses are reachable from the fabric and
    /// from all nodes, not from this process: see [`Cluster::command`].
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client of its API server, as administrator, for this process.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A program to run in the fabric, with this cluster's kubeconfig; a minute to finish.
    pub fn command(&self, program: impl AsRef<Path>) -> Run {
        let program = program.as_ref().to_string_lossy().into_owned();
        let home = self.shared.lab.directory();
        let run = self.shared.fabric.run(&program).env("KUBECONFIG", &self.kubeconfig).env("HOME", home);
        run.timeout(Duration::from_secs(60))
    }

    /// Runs kubectl, whatever its exit status.
    ///
    /// # Errors
    /// If it takes longer than a minute.
    pub fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        self.kubectl_run().args(arguments).output()
    }

    /// The program that is kubectl if its first argument says so.
    pub fn kubectl_path(&self) -> PathBuf {
        self.shared.programs.kubernetes()
    }

    /// kubectl to be given arguments, input or another time-out.
    pub fn kubectl_run(&self) -> Run {
        self.command(self.shared.programs.kubernetes()).arg("kubectl")
    }

    /// Applies a manifest: YAML or JSON, any number of objects.
    ///
    /// # Errors
    /// If the server refuses one: the error has kubectl's words.
    pub fn apply(&self, manifest: &str) -> anyhow::Result<String> {
        self.kubectl_run().args(["apply", "-f", "-"]).input(manifest).stdout()
    }

    /// Imports an image into all nodes that are on, and into the others when they start. `path` is an archive (OCI or
    /// Docker layout), or a folder with an OCI layout.
    ///
    /// # Errors
    /// If it cannot be read or imported.
    pub fn load_image(&self, path: &Path) -> anyhow::Result<()> {
        let archive = self.archive(path)?;
        let nodes: Vec<_> = self.nodes.iter().filter(|node| node.is_on()).collect();
        in_parallel(&nodes, |node| {
            let import = node.command("ctr")?.args(["-n", "k8s.io", "images", "import"]).arg(&archive);
            import
                .timeout(READY)
                .stdout()
                .with_context(|| format!("importing an image into {}", node.name()))?;
            let mark = archive.file_name().context("an archive has a name")?;
            std::fs::write(node.folder().join("var/lib/imported").join(mark), "")?;
            Ok(())
        })
        .map(drop)
    }

    /// The image as one file where all nodes see it.
    fn archive(&self, path: &Path) -> anyhow::Result<PathBuf> {
        let name = path.file_name().with_context(|| format!("{} is no image", path.display()))?;
        let name = name.to_string_lossy().trim_end_matches(".tar").to_owned();
        let archive = self.shared.images.join(format!("{name}-{}.tar", self.name()));
        if archive.exists() {
            std::fs::remove_file(&archive)?; // it may be another name of the caller's file
        }
        if path.is_dir() {
            let tar = Run::new("tar").arg("-C").arg(path).arg("-cf").arg(&archive).arg(".");
            tar.timeout(READY).stdout()?;
        } else {
            put_file(path, &archive)?;
        }
        Ok(archive)
    }

    /// Waits until all nodes that are on are ready, and DNS answers on each of them.
    ///
    /// # Errors
    /// If that takes more than two minutes: the error tells what the cluster says.
    pub fn wait_ready(&self) -> anyhow::Result<()> {
        let nodes = || self.nodes.iter().filter(|node| node.is_on());
        for node in nodes() {
            self.wait_node(node, true, READY)?;
        }
        self.wait_rollout("kube-system", "deployment/coredns")?;
        for node in nodes() {
            for address in self.shared.plan.service_addresses(DNS_PLACE) {
                self.wait(&format!("DNS at {address} on {}", node.name()), READY, || {
                    let server = SocketAddr::new(address, 53);
                    node.netns()
                        .enter(|| Ok(TcpStream::connect_timeout(&server, Duration::from_secs(1)).map(drop)?))
                })?;
            }
        }
        Ok(())
    }

    /// Waits until the control plane says that a node is ready, or that it is not.
    ///
    /// # Errors
    /// If that takes longer than `timeout`: the error tells what the cluster says.
    pub fn wait_node(&self, node: &Node, is_ready: bool, timeout: Duration) -> anyhow::Result<()> {
        let state = if is_ready { "ready" } else { "not ready" };
        self.wait(&format!("node {} to be {state}", node.name()), timeout, || {
            let object = self.client.get(&format!("/api/v1/nodes/{}", node.name()))?;
            let condition = condition(&object, "Ready").unwrap_or_default();
            anyhow::ensure!((condition["status"] == "True") == is_ready, "its condition is {condition}");
            Ok(())
        })
    }

    /// Waits until all pods that match a label selector (`app=web`; everything for "") are ready, and there are any.
    ///
    /// # Errors
    /// If they are not within two minutes: the error tells what the cluster says.
    pub fn wait_pods(&self, namespace: &str, selector: &str) -> anyhow::Result<Vec<Value>> {
        let query = selector.replace('=', "%3D").replace(',', "%2C");
        let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={query}");
        self.wait(&format!("pods {selector} of {namespace} to be ready"), READY, || {
            let pods = self.client.list(&path)?;
            anyhow::ensure!(!pods.is_empty(), "there are none");
            for pod in &pods {
                let name = &pod["metadata"]["name"];
                let is_ready = condition(pod, "Ready").is_some_and(|condition| condition["status"] == "True");
                let is_going = !pod["metadata"]["deletionTimestamp"].is_null();
                anyhow::ensure!(is_ready && !is_going, "pod {name} is not ready");
            }
            Ok(pods)
        })
    }

    /// Waits until a workload (`daemonset/web`, `deployment/web`) runs everywhere as it was last described.
    ///
    /// # Errors
    /// If it does not within two minutes: the error tells what the cluster says.
    pub fn wait_rollout(&self, namespace: &str, workload: &str) -> anyhow::Result<()> {
        let (kind, name) = workload.split_once('/').context("a workload is KIND/NAME")?;
        let path = format!("/apis/apps/v1/namespaces/{namespace}/{kind}s/{name}");
        self.wait(&format!("{workload} of {namespace}"), READY, || is_rolled_out(&self.client.get(&path)?))
    }

    /// Waits for anything; a failure tells what the cluster says about its nodes and pods.
    ///
    /// # Errors
    /// The last error of `attempt`, once `timeout` is over.
    pub fn wait<T>(
        &self,
        what: &str,
        timeout: Duration,
        attempt: impl FnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let what = format!("{what} in {}", self.name());
        eventually(&what, timeout, attempt).map_err(|error| error.context(self.explain()))
    }

    fn wait_api(&self) -> anyhow::Result<()> {
        self.wait("the API server", READY, || self.client.text("/readyz").map(drop))
    }

    fn install_dns(&self) -> anyhow::Result<()> {
        let addresses = self.shared.plan.service_addresses(DNS_PLACE);
        let policy = if addresses.len() == 2 { "RequireDualStack" } else { "SingleStack" };
        let manifest = DNS_MANIFEST
            .replace("@DNS_IP@", &json!(addresses[0]).to_string())
            .replace("@DNS_IPS@", &json!(addresses).to_string())
            .replace("@POLICY@", policy);
        self.apply(&manifest).map(drop)
    }

    /// What kubeadm and a cloud's controller do: the control plane's label, and each node's pod prefixes.
    fn introduce_nodes(&self) -> anyhow::Result<()> {
        for (number, node) in self.nodes.iter().enumerate() {
            let path = format!("/api/v1/nodes/{}", node.name());
            let mut change = json!({"spec": {"podCIDR": node.pod_cidrs()[0], "podCIDRs": node.pod_cidrs()}});
            if number == 0 {
                change["metadata"] = json!({"labels": {"node-role.kubernetes.io/control-plane": ""}});
            }
            self.wait(&format!("node {} to register", node.name()), READY, || {
                self.client.patch(&path, &change).map(drop)
            })?;
        }
        Ok(())
    }
}

/// The condition of this type in an object's status.
pub(crate) fn condition(object: &Value, kind: &str) -> Option<Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind).cloned()
}

/// Whether all that a Deployment or DaemonSet wants is there, new and ready, and the controller knows the latest wish.
fn is_rolled_out(object: &Value) -> anyhow::Result<()> {
    let status = &object["status"];
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let is_seen = number(&status["observedGeneration"]) >= number(&object["metadata"]["generation"]);
    let (wanted, counts) = match object["kind"].as_str() {
        Some("DaemonSet") => (
            number(&status["desiredNumberScheduled"]),
            [
                &status["updatedNumberScheduled"],
                &status["numberAvailable"],
                &status["currentNumberScheduled"],
            ],
        ),
        _ => (
            number(&object["spec"]["replicas"]),
            [&status["updatedReplicas"], &status["availableReplicas"], &status["replicas"]],
        ),
    };
    let is_there = wanted > 0 && counts.into_iter().all(|count| number(count) == wanted);
    anyhow::ensure!(is_seen && is_there, "its status is {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_is_over_when_all_pods_are_new_and_available() {
        let daemon_set = |updated: u64, generation: u64| {
            json!({"kind": "DaemonSet", "metadata": {"generation": generation}, "status": {
                "observedGeneration": 2, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
                "updatedNumberScheduled": updated, "numberAvailable": 2}})
        };

        assert!(is_rolled_out(&daemon_set(2, 2)).is_ok());
        assert!(is_rolled_out(&daemon_set(1, 2)).is_err());
        assert!(is_rolled_out(&daemon_set(2, 3)).is_err());
        assert!(is_rolled_out(&json!({"kind": "Deployment", "spec": {"replicas": 1}})).is_err());
    }
}
