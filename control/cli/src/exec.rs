//! Running commands in pods.

use std::time::Duration;

use anyhow::{anyhow, bail};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, AttachedProcess};
use kube::{Api, Client};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

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
        Ok(Err(error)) => Err(anyhow!("no command can be run in pod {pod}: {}", innermost(&error))),
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
    let mut process = start(client, container, words).await?;
    let (stdout, stderr, status) = (process.stdout(), process.stderr(), process.take_status());
    let mut ran = Ran::default();
    let work = async {
        tokio::join!(read(stdout, &mut ran.stdout, limit), read(stderr, &mut ran.stderr, limit));
        match status {
            Some(status) => status.await,
            None => None,
        }
    };
    let Ok(status) = timeout(patience, work).await else {
        bail!("`{}` has not ended within {} s", words.join(" "), patience.as_secs())
    };
    ran.failure = status.as_ref().and_then(failure);
    Ok(ran)
}

/// Reads to the end, keeps the first `limit` bytes.
async fn read(from: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>, limit: usize) {
    let Some(mut from) = from else { return };
    let mut piece = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        let room = limit - into.len();
        into.extend_from_slice(&piece[..length.min(room)]);
    }
}

/// Why a command has failed, if it has.
pub(super) fn failure(status: &Status) -> Option<String> {
    let has_failed = status.status.as_deref() != Some("Success");
    has_failed.then(|| printable(status.message.as_deref().unwrap_or("it failed without a reason")))
}

/// The cause of an error that says something, in one line.
pub(super) fn innermost(error: &kube::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    printable(&cause.to_string())
}
