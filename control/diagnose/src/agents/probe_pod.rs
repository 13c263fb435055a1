//! A pod that lives for one probe: what an application on the node and in the namespace of another one meets.
//!
//! It asks for nothing (the restricted pod security profile takes it), carries none of the labels of the pod that it
//! stands beside (a Service or a ReplicaSet would take it for its own), ends by itself, and is deleted in any case.
//! Network policies that choose pods by labels do therefore not mean it; those that mean a whole namespace do.

use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, LogParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::answer::{document, first_line};
use super::exec::send_words;
use crate::node::token::Run;
use crate::node::{SendReport, SendRequest};

/// Ours: how long the pod may take to start and to end.
const PATIENCE: Duration = Duration::from_secs(45);
/// Ours: older ones wait for nobody any more; clocks differ.
const STALE_SECONDS: i64 = 120;
/// Ours: how long it may take to start. The route agent on the node has the same image, so that nothing is to be pulled.
const START: Duration = Duration::from_secs(10);
/// Ours: how often its phase is looked at.
const LOOK: Duration = Duration::from_millis(150);
/// The label by which probe pods are found.
const NAME_LABEL: &str = "app.kubernetes.io/name=trieste-probe";
/// The label that says which run a probe pod belongs to.
const RUN_LABEL: &str = "trieste.io/run";
/// Some user that is not root.
const USER: i64 = 65_532;

/// Where the pod runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbePod {
    /// The namespace.
    pub namespace: String,
    /// The node.
    pub node: String,
    /// The image, which has `trieste`.
    pub image: String,
    /// Names of Secrets by which the image is pulled, if the namespace has such.
    pub pull_secrets: Vec<String>,
}

/// Why there is no probe from a pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProbePodError {
    /// It cannot be made.
    #[error("no probe pod can be made in namespace {namespace}: {why}")]
    Create {
        /// The namespace.
        namespace: String,
        /// The API server's word.
        why: String,
    },
    /// It did not run.
    #[error("the probe pod {pod} has not ended within {seconds} s: {why}")]
    Unfinished {
        /// Its name.
        pod: String,
        /// How long was waited.
        seconds: u64,
        /// Its phase, and why.
        why: String,
    },
    /// It ran and says nothing that makes sense.
    #[error("the probe pod {pod} says: {why}")]
    Answer {
        /// Its name.
        pod: String,
        /// Its words.
        why: String,
    },
}

impl ProbePod {
    /// The object. Its name ends with the run and the probe, so that no two are alike.
    fn manifest(&self, request: &SendRequest) -> serde_json::Value {
        let command = ["trieste", "node"].map(str::to_owned).into_iter().chain(send_words(request));
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": self.name(request), "namespace": self.namespace,
                "labels": {
                    "app.kubernetes.io/name": "trieste-probe", "app.kubernetes.io/part-of": "trieste",
                    "app.kubernetes.io/managed-by": "trieste", "submariner.io/transient": "true",
                    RUN_LABEL: request.run.to_string(),
                },
                "annotations": {"sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled"},
            },
            "spec": {
                "nodeName": self.node, "restartPolicy": "Never", "activeDeadlineSeconds": PATIENCE.as_secs(),
                "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "tolerations": [{"operator": "Exists"}],
                "imagePullSecrets": self.pull_secrets.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                    "sysctls": [{"name": "net.ipv4.ping_group_range", "value": "0 2147483647"}],
                },
                "containers": [{
                    "name": "probe", "image": self.image, "imagePullPolicy": "IfNotPresent",
                    "command": command.collect::<Vec<_>>(),
                    "securityContext": {
                        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "resources": {
                        "requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"},
                    },
                }],
            },
        })
    }

    fn name(&self, request: &SendRequest) -> String {
        format!("trieste-probe-{}-{}", request.run, request.probe)
    }
}

/// Sends a probe from a pod of its own, and deletes the pod.
///
/// # Errors
/// [`ProbePodError`]; the pod is deleted then too, or ended by its deadline and swept by the next run.
pub async fn probe_from_pod(
    client: &Client,
    place: &ProbePod,
    request: &SendRequest,
) -> Result<SendReport, ProbePodError> {
    let request = SendRequest { plain: true, ..request.clone() };
    let pods = Api::<Pod>::namespaced(client.clone(), &place.namespace);
    let refused = |why: String| ProbePodError::Create { namespace: place.namespace.clone(), why };
    let pod = serde_json::from_value(place.manifest(&request)).map_err(|error| refused(error.to_string()))?;
    let created = tokio::time::timeout(PATIENCE, pods.create(&PostParams::default(), &pod)).await;
    let created = created.map_err(|_| refused("the API server does not answer".to_owned()))?;
    created.map_err(|error| refused(first_line(error.to_string().as_bytes())))?;
    let name = place.name(&request);
    let report = answer(&pods, &name).await;
    // Its deadline ends it, whatever becomes of this.
    delete(&pods, &name).await;
    report
}

/// Which probe pods are taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// Those that outlived their run, whoever made them.
    Stale,
    /// Those of a run.
    Of(Run),
}

/// Takes probe pods of a namespace away; what cannot be taken away is told in the log.
pub async fn sweep_probe_pods(client: &Client, namespace: &str, which: Sweep) {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let labels = match which {
        Sweep::Stale => NAME_LABEL.to_owned(),
        Sweep::Of(run) => format!("{NAME_LABEL},{RUN_LABEL}={run}"),
    };
    let params = ListParams::default().labels(&labels);
    let list = match tokio::time::timeout(START, pods.list(&params)).await {
        Ok(Ok(list)) => list,
        Ok(Err(error)) => return tracing::warn!(%error, namespace, "probe pods cannot be listed"),
        Err(_) => return tracing::warn!(namespace, "probe pods cannot be listed in time"),
    };
    let now = Timestamp::now();
    let doomed = list.items.iter().filter(|pod| matches!(which, Sweep::Of(_)) || is_stale(pod, now));
    let names = doomed.filter_map(|pod| pod.metadata.name.as_deref());
    join_all(names.map(|name| delete(&pods, name))).await;
}

/// Whether a probe pod has outlived every run that could wait for it.
fn is_stale(pod: &Pod, now: Timestamp) -> bool {
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    created.is_some_and(|created| now.duration_since(created).as_secs() > STALE_SECONDS)
}

async fn delete(pods: &Api<Pod>, name: &str) {
    let at_once = DeleteParams::default().grace_period(0);
    // One that has gone by itself is all right too.
    if let Ok(Err(error)) = tokio::time::timeout(PATIENCE, pods.delete(name, &at_once)).await
        && !matches!(&error, kube::Error::Api(status) if status.code == 404)
    {
        tracing::warn!(%error, pod = name, "the probe pod cannot be deleted");
    }
}

async fn answer(pods: &Api<Pod>, name: &str) -> Result<SendReport, ProbePodError> {
    let begin = Instant::now();
    let mut patience = START;
    let mut why = "nothing is known of it".to_owned();
    while begin.elapsed() < patience {
        sleep(LOOK).await;
        let Ok(Ok(pod)) = tokio::time::timeout(PATIENCE, pods.get(name)).await else { continue };
        let (phase, reason) = phase(&pod);
        why = reason;
        if phase == "Running" {
            patience = PATIENCE;
        }
        if phase != "Succeeded" && phase != "Failed" {
            continue;
        }
        let logs = tokio::time::timeout(PATIENCE, pods.logs(name, &LogParams::default())).await;
        let failed = |why: String| ProbePodError::Answer { pod: name.to_owned(), why };
        let logs = logs.map_err(|_| failed("its log cannot be had in time".to_owned()))?;
        let logs = logs.map_err(|error| failed(format!("its log cannot be read: {error}")))?;
        if phase == "Failed" {
            return Err(failed(if logs.is_empty() { why } else { first_line(logs.as_bytes()) }));
        }
        return document(logs.trim().as_bytes()).map_err(failed);
    }
    Err(ProbePodError::Unfinished { pod: name.to_owned(), seconds: patience.as_secs(), why })
}

fn phase(pod: &Pod) -> (String, String) {
    let Some(status) = &pod.status else { return (String::new(), "it has no status".to_owned()) };
    let phase = status.phase.clone().unwrap_or_default();
    let waiting = status.container_statuses.iter().flatten().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        Some(format!("{}: {}", waiting.reason.as_deref()?, waiting.message.as_deref().unwrap_or_default()))
    });
    let why = waiting.or_else(|| status.message.clone()).unwrap_or_else(|| format!("it is {phase}"));
    (phase, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Transport;
    use crate::node::token::Run;

    fn request() -> SendRequest {
        SendRequest {
            run: Run([1, 2, 3, 4, 5, 6]),
            probe: 9,
            destination: [10, 2, 0, 1].into(),
            source: None,
            transport: Transport::Icmp,
            port: 0,
            sizes: vec![100, 1400],
            wait_ms: 1000,
            plain: true,
        }
    }

    fn place() -> ProbePod {
        ProbePod {
            namespace: "shop".to_owned(),
            node: "w1".to_owned(),
            image: "trieste:1".to_owned(),
            pull_secrets: vec!["registry".to_owned()],
        }
    }

    #[test]
    fn a_probe_pod_is_a_valid_pod_without_privileges() {
        let pod: Pod = serde_json::from_value(place().manifest(&request())).unwrap();
        assert_eq!(pod.metadata.name.as_deref(), Some("trieste-probe-010203040506-9"));
        let labels = pod.metadata.labels.unwrap();
        assert_eq!(labels["submariner.io/transient"], "true");
        assert_eq!(labels[RUN_LABEL], "010203040506");
        assert!(NAME_LABEL.ends_with(&labels["app.kubernetes.io/name"]));
        let spec = pod.spec.unwrap();
        assert_eq!(
            (spec.node_name.as_deref(), spec.automount_service_account_token),
            (Some("w1"), Some(false))
        );
        assert_eq!(spec.image_pull_secrets.as_ref().unwrap()[0].name, "registry");
        let context = spec.containers[0].security_context.as_ref().unwrap();
        assert_eq!(context.capabilities.as_ref().unwrap().drop, Some(vec!["ALL".to_owned()]));
        assert_eq!(spec.security_context.unwrap().run_as_non_root, Some(true));
        assert!(spec.containers[0].command.as_ref().unwrap().contains(&"--plain".to_owned()));
    }

    #[test]
    fn only_what_nobody_waits_for_any_more_is_stale() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"creationTimestamp": "2026-11-21T18:00:00Z"}}))
                .unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!(!is_stale(&pod, at("2026-11-21T18:01:30Z")) && is_stale(&pod, at("2026-11-21T18:02:30Z")));
    }
}
