//! What a command in a pod prints, however much it is.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::AttachedProcess;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// A command that has ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// The first bytes of what it printed, at most as many as were asked for.
    pub stdout: Vec<u8>,
    /// The same of what it complained about.
    pub stderr: Vec<u8>,
    /// How it ended, if the node has said so.
    pub status: Option<Status>,
}

/// Reads a command's outputs to their ends, and keeps at most `limit` bytes of each; `None` if that takes longer than
/// `within`.
pub async fn finish(mut process: AttachedProcess, limit: usize, within: Duration) -> Option<Ended> {
    let (stdout, stderr, status) = (process.stdout(), process.stderr(), process.take_status());
    let mut ended = Ended::default();
    let read = async {
        futures::join!(keep(stdout, &mut ended.stdout, limit), keep(stderr, &mut ended.stderr, limit));
        match status {
            Some(status) => status.await,
            None => None,
        }
    };
    let status = timeout(within, read).await.ok()?;
    Some(Ended { status, ..ended })
}

/// Reads to the end, keeps the first `limit` bytes.
pub(super) async fn keep(from: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>, limit: usize) {
    let Some(mut from) = from else { return };
    let mut piece = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        let room = limit - into.len();
        into.extend_from_slice(&piece[..length.min(room)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn more_than_the_limit_is_read_and_not_kept() {
        let (long, mut kept) = (vec![b'x'; 200 << 10], Vec::new());
        let mut from = long.as_slice();
        keep(Some(&mut from), &mut kept, 100_000).await;
        assert_eq!((kept.len(), from.len()), (100_000, 0));
    }
}
