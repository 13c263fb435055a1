//! Running commands in pods.

use std::time::Duration;

use anyhow::{anyhow, bail};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, AttachedProcess};
use kube::{Api, Client};
use tokio::time::timeout;
use trieste_control::cause::innermost;
use trieste_diagnose::agents::finish;

use super::output::printable;

/// Ours: how long a connection to a container may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A container.
#[derive(Debug, Clone, Copy)]
pub(super) struct Container<'a> {
    pub(super) namespace: &'a str,
    pub(super) pod: &'a str,
    pub(super) container: &'a str,
}

/// What a command did.
#[derive(Debug, Default)]
pub(super) struct Ran {
    /// At most as much as was asked for.
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    /// Why it failed, if it did.
    pub(super) failure: Option<String>,
}

/// Starts a command, without input.
///
/// # Errors
/// When the API server or the node refuses, or does not answer.
pub(super) async fn start(
    client: &Client,
    container: Container<'_>,
    words: &[&str],
) -> anyhow::Result<AttachedProcess> {
    let Container { namespace, pod, container } = container;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = AttachParams::default().container(container).stdin(false).stdout(true).stderr(true);
    match timeout(PATIENCE, pods.exec(pod, words.iter().copied(), &params)).await {
        Ok(Ok(process)) => Ok(process),
        Ok(Err(error)) => {
            Err(anyhow!("no command can be run in pod {pod}: {}", printable(&innermost(&error))))
        }
        Err(_) => bail!("pod {pod} does not answer within {} s; is its node up?", PATIENCE.as_secs()),
    }
}

/// Runs a command to its end and keeps at most `limit` bytes of each of its outputs.
///
/// # Errors
/// As [`start`], and when the command takes longer than `patience`.
pub(super) async fn run(
    client: &Client,
    container: Container<'_>,
    words: &[&str],
    limit: usize,
    patience: Duration,
) -> anyhow::Result<Ran> {
    let process = start(client, container, words).await?;
    let Some(ended) = finish(process, limit, patience).await else {
        bail!("`{}` has not ended within {} s", words.join(" "), patience.as_secs())
    };
    let failure = ended.status.as_ref().and_then(failure);
    Ok(Ran { stdout: ended.stdout, stderr: ended.stderr, failure })
}

/// Why a command has failed, if it has.
pub(super) fn failure(status: &Status) -> Option<String> {
    let has_failed = status.status.as_deref() != Some("Success");
    has_failed.then(|| printable(status.message.as_deref().unwrap_or("it failed without a reason")))
}
