//! Runs `trieste node …` in the route agent's pods.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::channel::oneshot;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, AttachedProcess, ListParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use trieste_control::cause::innermost;

use super::answer::{Lines, document, first_line};
use super::output::{finish, keep};
use super::{AgentError, Agents, Watching, lock};
use crate::node::document::NodeReport;
use crate::node::{HeadReport, SendReport, SendRequest, Transport, WatchLine, WatchReport, WatchRequest};

/// Name of the route agent's container, and its label `app`.
const ROUTE_AGENT: &str = "submariner-routeagent";
/// Ours: what an answer may take beyond the time that the work itself takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// Ours: longest answer in bytes.
const MAX_ANSWER: usize = 32 << 20;

/// The nodes of a cluster, by way of its API server.
pub struct KubeAgents {
    client: Client,
    namespace: String,
    pods: OnceCell<BTreeMap<String, Found>>,
}

/// The image of a route agent, and what it is pulled by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentImage {
    /// Its reference.
    pub name: String,
    /// Names of the Secrets by which it is pulled.
    pub pull_secrets: Vec<String>,
}

/// A node's pod of the route agent.
#[derive(Debug, Clone)]
struct Found {
    name: String,
    image: AgentImage,
    /// Why it cannot be used.
    problem: Option<String>,
}

impl KubeAgents {
    /// Looks for route agents in a namespace.
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned(), pods: OnceCell::new() }
    }

    /// The image that a node's route agent runs, which probe pods use too; `None` if none runs there.
    ///
    /// # Errors
    /// When the pods cannot be listed.
    pub async fn image(&self, node: &str) -> Result<Option<AgentImage>, AgentError> {
        Ok(self.pods(node).await?.get(node).map(|found| found.image.clone()))
    }

    /// Asks an HTTP server from a node for the head of a page.
    ///
    /// # Errors
    /// When the node cannot be asked.
    pub async fn head(&self, node: &str, to: SocketAddr, path: &str) -> Result<HeadReport, AgentError> {
        let words = vec!["head".to_owned(), format!("--to={to}"), format!("--path={path}")];
        self.ask(node, words, PATIENCE).await
    }

    /// The pods, listed once.
    async fn pods(&self, node: &str) -> Result<&BTreeMap<String, Found>, AgentError> {
        let list = || async {
            let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
            let params = ListParams::default().labels(&format!("app={ROUTE_AGENT}"));
            let list = timeout(PATIENCE, pods.list(&params)).await;
            let list = list.map_err(|_| silent(node, PATIENCE))?;
            let list = list.map_err(|error| AgentError::Transport {
                node: node.to_owned(),
                why: format!("the pods of namespace {} cannot be listed: {error}", self.namespace),
            })?;
            Ok(list.items.iter().filter_map(found).fold(BTreeMap::new(), keep_best))
        };
        self.pods.get_or_try_init(list).await
    }

    async fn pod(&self, node: &str) -> Result<&str, AgentError> {
        match self.pods(node).await?.get(node) {
            None => Err(AgentError::NoPod { node: node.to_owned(), namespace: self.namespace.clone() }),
            Some(Found { name, problem: Some(why), .. }) => Err(AgentError::NotReady {
                node: node.to_owned(),
                namespace: self.namespace.clone(),
                pod: name.clone(),
                why: why.clone(),
            }),
            Some(found) => Ok(&found.name),
        }
    }

    /// With `attended` the command has a standard input, which ends when the process here is dropped.
    async fn start(
        &self,
        node: &str,
        words: Vec<String>,
        attended: bool,
    ) -> Result<AttachedProcess, AgentError> {
        let pod = self.pod(node).await?;
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
        let params =
            AttachParams::default().container(ROUTE_AGENT).stdin(attended).max_stdout_buf_size(256 << 10);
        let command = ["trieste".to_owned(), "node".to_owned()].into_iter().chain(words);
        let started = pods.exec(pod, command.collect::<Vec<_>>(), &params);
        match timeout(PATIENCE, started).await {
            Ok(Ok(process)) => Ok(process),
            Ok(Err(error)) => Err(self.explain(node, pod, &error)),
            Err(_) => Err(silent(node, PATIENCE)),
        }
    }

    fn explain(&self, node: &str, pod: &str, error: &kube::Error) -> AgentError {
        let why = innermost(error);
        let is_forbidden =
            matches!(error, kube::Error::Api(status) if status.code == 403 || status.code == 401);
        if is_forbidden || why.contains("403") {
            let namespace = self.namespace.clone();
            return AgentError::Forbidden { namespace, pod: pod.to_owned(), why: first_line(why.as_bytes()) };
        }
        AgentError::Transport { node: node.to_owned(), why: first_line(why.as_bytes()) }
    }

    /// Runs a command to its end and reads its document.
    async fn ask<T: DeserializeOwned>(
        &self,
        node: &str,
        words: Vec<String>,
        within: Duration,
    ) -> Result<T, AgentError> {
        let process = self.start(node, words, false).await?;
        let Some(ended) = finish(process, MAX_ANSWER, within).await else { return Err(silent(node, within)) };
        judge(node, ended.status.as_ref(), &ended.stderr)?;
        document(&ended.stdout).map_err(|why| AgentError::Refused { node: node.to_owned(), why })
    }
}

fn silent(node: &str, waited: Duration) -> AgentError {
    AgentError::Silent { node: node.to_owned(), seconds: waited.as_secs() }
}

/// A pod's node and what is to know of it.
fn found(pod: &Pod) -> Option<(String, Found)> {
    let spec = pod.spec.as_ref()?;
    let container = spec.containers.iter().find(|container| container.name == ROUTE_AGENT);
    let image = container.or_else(|| spec.containers.first()).and_then(|container| container.image.clone());
    let secrets = spec.image_pull_secrets.iter().flatten().map(|secret| secret.name.clone());
    let image = AgentImage { name: image.unwrap_or_default(), pull_secrets: secrets.collect() };
    Some((spec.node_name.clone()?, Found { name: pod.metadata.name.clone()?, image, problem: problem(pod) }))
}

/// During a rolling update there are two pods on a node.
fn keep_best(mut pods: BTreeMap<String, Found>, (node, pod): (String, Found)) -> BTreeMap<String, Found> {
    if pods.get(&node).is_none_or(|known| known.problem.is_some()) {
        pods.insert(node, pod);
    }
    pods
}

fn problem(pod: &Pod) -> Option<String> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted".to_owned());
    }
    let status = pod.status.as_ref()?;
    let phase = status.phase.as_deref().unwrap_or("Unknown");
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let container = containers.iter().find(|container| container.name == ROUTE_AGENT);
    let state = container.and_then(|container| container.state.as_ref());
    if state.is_some_and(|state| state.running.is_some()) {
        return None;
    }
    let reason = state.and_then(|state| {
        let waiting = state.waiting.as_ref().and_then(|waiting| waiting.reason.clone());
        waiting.or_else(|| state.terminated.as_ref().and_then(|ended| ended.reason.clone()))
    });
    Some(reason.map_or_else(|| format!("it is {phase}"), |reason| format!("it is {phase} ({reason})")))
}

/// Whether the command succeeded; its complaint if not.
fn judge(node: &str, status: Option<&Status>, complaint: &[u8]) -> Result<(), AgentError> {
    let Some(status) = status.filter(|status| status.status.as_deref() != Some("Success")) else {
        return Ok(());
    };
    let message = status.message.as_deref().unwrap_or_default();
    let is_missing = ["not found", "no such file"].iter().any(|word| message.to_lowercase().contains(word));
    // The container runtime says so before the command could say anything.
    if is_missing && complaint.is_empty() {
        return Err(AgentError::NotOurs { node: node.to_owned() });
    }
    let why = if complaint.is_empty() { first_line(message.as_bytes()) } else { first_line(complaint) };
    Err(AgentError::Refused { node: node.to_owned(), why })
}

impl Agents for KubeAgents {
    async fn report(&self, node: &str) -> Result<NodeReport, AgentError> {
        self.ask(node, vec!["report".to_owned()], PATIENCE).await
    }

    async fn send(&self, node: &str, request: &SendRequest) -> Result<SendReport, AgentError> {
        let within = PATIENCE + Duration::from_millis(request.wait_ms.into());
        self.ask(node, send_words(request), within).await
    }

    async fn watch(&self, node: &str, request: &WatchRequest) -> Result<Watching, AgentError> {
        let mut process = self.start(node, watch_words(request), true).await?;
        let (ready, is_ready) = oneshot::channel();
        let within = PATIENCE + Duration::from_secs(request.seconds.into());
        let report = Arc::new(Mutex::new(WatchReport::default()));
        let seen = Arc::clone(&report);
        let task = tokio::spawn(async move {
            let mut ready = Some(ready);
            let (stdout, stderr) = (process.stdout(), process.stderr());
            let status = process.take_status();
            let mut complaint = Vec::new();
            let follow = async {
                futures::join!(follow(stdout, &seen, &mut ready), keep(stderr, &mut complaint, MAX_ANSWER));
                match status {
                    Some(status) => status.await,
                    None => None,
                }
            };
            // What was seen until then counts.
            let status = timeout(within, follow).await.unwrap_or_default();
            if let Some(ready) = ready {
                // Nobody waits any more if the run was given up.
                let _ = ready.send(Err((status, complaint)));
            }
        });
        match timeout(PATIENCE, is_ready).await {
            Ok(Ok(Ok(()))) => Ok(Watching::running(report, task)),
            Ok(Ok(Err((status, complaint)))) => {
                judge(node, status.as_ref(), &complaint)?;
                let why = "the watch ended before it began".to_owned();
                Err(AgentError::Refused { node: node.to_owned(), why })
            }
            Ok(Err(_)) | Err(_) => {
                task.abort();
                Err(silent(node, PATIENCE))
            }
        }
    }
}

type Ready = oneshot::Sender<Result<(), (Option<Status>, Vec<u8>)>>;

/// Reads lines until there are no more; says when the watch is ready.
async fn follow(
    from: Option<impl AsyncRead + Unpin>,
    report: &Mutex<WatchReport>,
    ready: &mut Option<Ready>,
) {
    let Some(mut from) = from else { return };
    let (mut lines, mut buffer) = (Lines::default(), vec![0; 64 << 10]);
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        for line in lines.take(&buffer[..length]) {
            // A line of a newer version says nothing to us.
            let Ok(line) = serde_json::from_slice::<WatchLine>(&line) else { continue };
            if matches!(line, WatchLine::Ready { .. })
                && let Some(ready) = ready.take()
            {
                let _ = ready.send(Ok(()));
            }
            lock(report).take(line);
        }
    }
}

/// Without ports the node counts those that it counts anyway: an empty list is no value of a flag.
fn watch_words(request: &WatchRequest) -> Vec<String> {
    let (run, seconds) = (request.run.to_string(), request.seconds.to_string());
    let mut words =
        ["watch", "--attended", "--token", &run, "--seconds", &seconds].map(str::to_owned).to_vec();
    if !request.ports.is_empty() {
        let ports = request.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        words.extend(["--ports".to_owned(), ports]);
    }
    words
}

/// The words of `trieste node send`.
pub(super) fn send_words(request: &SendRequest) -> Vec<String> {
    let mut words = vec!["send".to_owned(), format!("--token={}", request.run)];
    let protocol = match request.transport {
        Transport::Icmp => "icmp",
        Transport::Udp => "udp",
        Transport::Tcp => "tcp",
    };
    words.push(format!("--probe={}", request.probe));
    words.push(format!("--to={}", request.destination));
    words.push(format!("--protocol={protocol}"));
    words.push(format!("--port={}", request.port));
    words.push(format!("--wait={}", request.wait_ms));
    words.extend(request.source.map(|source| format!("--source={source}")));
    if !request.sizes.is_empty() {
        let sizes = request.sizes.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        words.push(format!("--sizes={sizes}"));
    }
    if request.plain {
        words.push("--plain".to_owned());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(status: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "ra-1"}, "status": status,
            "spec": {"nodeName": "w1", "imagePullSecrets": [{"name": "registry"}], "containers": [{"name": ROUTE_AGENT, "image": "trieste:1"}]}}))
        .unwrap()
    }

    #[test]
    fn a_pod_that_runs_can_be_used() {
        let running = json!({"phase": "Running", "containerStatuses": [{"name": ROUTE_AGENT, "ready": true,
            "image": "", "imageID": "", "restartCount": 0, "state": {"running": {}}}]});
        let (node, found) = found(&pod(&running)).unwrap();
        assert_eq!((node.as_str(), found.image.name.as_str(), found.problem), ("w1", "trieste:1", None));
        assert_eq!(found.image.pull_secrets, ["registry"]);
    }

    #[test]
    fn a_pod_that_does_not_run_says_why() {
        let waiting = json!({"phase": "Running", "containerStatuses": [{"name": ROUTE_AGENT, "ready": false,
            "image": "", "imageID": "", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]});
        assert_eq!(problem(&pod(&waiting)).unwrap(), "it is Running (CrashLoopBackOff)");
        assert_eq!(problem(&pod(&json!({"phase": "Pending"}))).unwrap(), "it is Pending");
    }

    #[test]
    fn of_two_pods_on_a_node_the_one_that_works_is_asked() {
        let make = |name: &str, problem: Option<&str>| {
            let problem = problem.map(str::to_owned);
            ("w1".to_owned(), Found { name: name.to_owned(), image: AgentImage::default(), problem })
        };
        let pods = [make("old", Some("ends")), make("new", None), make("third", Some("waits"))];
        let best = pods.into_iter().fold(BTreeMap::new(), keep_best);
        assert_eq!(best["w1"].name, "new");
    }

    #[test]
    fn a_command_that_is_not_there_means_an_image_of_others() {
        let failure = |message: &str| Status {
            status: Some("Failure".to_owned()),
            message: Some(message.to_owned()),
            ..Status::default()
        };
        let missing = failure("exec: \"trieste\": executable file not found in $PATH");
        assert_eq!(judge("w1", Some(&missing), b""), Err(AgentError::NotOurs { node: "w1".to_owned() }));
        let ended = failure("command terminated with non-zero exit code");
        let error = judge("w1", Some(&ended), b"error: cannot capture packets").unwrap_err();
        assert_eq!(error.to_string(), "node w1: cannot capture packets");
        assert_eq!(judge("w1", None, b""), Ok(()));
    }
}
