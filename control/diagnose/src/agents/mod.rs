//! How nodes are reached: `trieste node …`, run in the pods of the route agent by way of the API server.
//!
//! Nothing listens on a node for this, and whoever may run a diagnosis is decided by Kubernetes: it takes the right to
//! `create` `pods/exec` in the namespace of the route agents.

mod answer;
mod exec;
mod output;
mod probe_pod;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinHandle;

use crate::node::document::NodeReport;
use crate::node::{SendReport, SendRequest, WatchReport, WatchRequest};

pub use exec::{AgentImage, KubeAgents};
pub use output::{Ended, finish};
pub use probe_pod::{ProbePod, ProbePodError, Sweep, probe_from_pod, sweep_probe_pods};

/// The nodes of one cluster.
pub trait Agents: Sync {
    /// What a node says about itself.
    fn report(&self, node: &str) -> impl Future<Output = Result<NodeReport, AgentError>> + Send;

    /// Starts to watch on a node; ready when it looks.
    fn watch(
        &self,
        node: &str,
        request: &WatchRequest,
    ) -> impl Future<Output = Result<Watching, AgentError>> + Send;

    /// Sends a probe from a node.
    fn send(
        &self,
        node: &str,
        request: &SendRequest,
    ) -> impl Future<Output = Result<SendReport, AgentError>> + Send;
}

/// A watch that looks. It ends by itself after the seconds that were asked for.
#[derive(Debug)]
pub struct Watching {
    report: Arc<Mutex<WatchReport>>,
    task: Option<JoinHandle<()>>,
}

impl Watching {
    /// A watch that has seen something and sees no more.
    #[must_use]
    pub fn ended(report: WatchReport) -> Self {
        Self { report: Arc::new(Mutex::new(report)), task: None }
    }

    /// A watch whose task writes down what it sees.
    fn running(report: Arc<Mutex<WatchReport>>, task: JoinHandle<()>) -> Self {
        Self { report, task: Some(task) }
    }

    /// Takes what was seen until now, and ends it.
    #[must_use]
    pub fn stop(mut self) -> WatchReport {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        std::mem::take(&mut *lock(&self.report))
    }
}

/// Nobody panics while holding it; if somebody did, what was written so far would do.
fn lock(report: &Mutex<WatchReport>) -> MutexGuard<'_, WatchReport> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a node says nothing. Each says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// No route agent runs there.
    #[error(
        "no pod of the route agent runs on node {node}: look at `kubectl -n {namespace} get daemonset \
         submariner-routeagent` and at the node's taints"
    )]
    NoPod {
        /// The node.
        node: String,
        /// Where it was looked for.
        namespace: String,
    },
    /// One is there, and does not run.
    #[error(
        "the route agent on node {node} is not ready: {why}; see `kubectl -n {namespace} describe pod {pod}` and \
         `kubectl -n {namespace} logs {pod}`"
    )]
    NotReady {
        /// The node.
        node: String,
        /// Its namespace.
        namespace: String,
        /// The pod.
        pod: String,
        /// What Kubernetes says.
        why: String,
    },
    /// We may not run commands in it.
    #[error(
        "commands may not be run in pod {namespace}/{pod} ({why}): a diagnosis needs `create` on `pods/exec` in \
         namespace {namespace}"
    )]
    Forbidden {
        /// Its namespace.
        namespace: String,
        /// The pod.
        pod: String,
        /// The API server's word.
        why: String,
    },
    /// The pod's image has no `trieste`.
    #[error(
        "the route agent on node {node} is not Trieste's (its image has no `trieste`): this node's part of the way \
         can only be judged from outside"
    )]
    NotOurs {
        /// The node.
        node: String,
    },
    /// The program in the pod says no.
    #[error("node {node}: {why}")]
    Refused {
        /// The node.
        node: String,
        /// Its words.
        why: String,
    },
    /// The API server, the kubelet or the way there fails.
    #[error("node {node} cannot be asked: {why}; do the API server and the node's kubelet work?")]
    Transport {
        /// The node.
        node: String,
        /// What failed.
        why: String,
    },
    /// It has not answered in time.
    #[error(
        "node {node} has not answered within {seconds} s; do the API server and the node's kubelet work?"
    )]
    Silent {
        /// The node.
        node: String,
        /// How long was waited.
        seconds: u64,
    },
}

impl AgentError {
    /// Whether the route agent itself is what is broken.
    #[must_use]
    pub const fn is_agent_down(&self) -> bool {
        matches!(self, Self::NoPod { .. } | Self::NotReady { .. })
    }
}
