//! The protocol between a Globalnet process and the gateway.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use trieste_control::globalnet::{GlobalnetState, GlobalnetStatus, Problem};

/// Annotation of a Gateway object: the Ed25519 public key of its Globalnet process, in hexadecimal.
pub const ANNOTATION: &str = "trieste.io/globalnet-process";
/// The version of the protocol.
pub(super) const VERSION: u32 = 1;
/// Domain separation: signed first, so that no other signature is valid here.
pub(super) const PURPOSE: &[u8] = b"trieste globalnet process 1";
/// Bytes of what the gateway asks to sign.
pub(super) const CHALLENGE_BYTES: usize = 32;
/// Ours: longest first frame, and longest report. 100,000 pods with rules of their own take a tenth of it.
pub(super) const MAX_HELLO: u32 = 1 << 10;
pub(super) const MAX_REPORT: u32 = 64 << 20;

/// The gateway's first message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Challenge {
    pub(super) version: u32,
    /// The challenge to sign, in hexadecimal.
    pub(super) bytes: String,
}

impl Challenge {
    /// Returns what is signed.
    pub(super) fn message(&self) -> Vec<u8> {
        [PURPOSE, self.bytes.as_bytes()].concat()
    }
}

/// The process's first message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: u32,
    /// The signature, in hexadecimal.
    pub(super) signature: String,
}

/// The gateway's answer; a reason means a refusal.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<String>,
}

/// The state and status of the process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    /// The state to translate by, once it is complete.
    pub(super) state: Option<GlobalnetState>,
    /// The problems of the state.
    problems: Vec<ReportedProblem>,
    /// The controllers' status.
    pub(super) work: Work,
}

/// The controllers' status, in either process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Work {
    /// As [`trieste_control::admin::ControllersStatus::phase`].
    pub(crate) phase: String,
    /// Holder of the Lease.
    pub(crate) holder: String,
    /// Why they cannot do their work.
    pub(crate) problem: Option<String>,
    /// Objects that the store refuses, and why.
    pub(crate) refused: Vec<(String, String)>,
}

impl Work {
    /// Combines the status of the controllers and the election.
    pub(crate) fn of(status: &GlobalnetStatus, holder: String) -> Self {
        Self {
            phase: status.phase.as_str().to_owned(),
            holder,
            problem: status.problem.clone(),
            refused: status.refused.iter().map(|one| (one.subject.clone(), one.message.clone())).collect(),
        }
    }
}

/// A [`Problem`] in the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReportedProblem {
    name: String,
    subject: String,
    message: String,
}

impl Report {
    /// Returns the report of the controllers' state and status.
    pub(super) fn of(state: Option<&GlobalnetState>, status: &GlobalnetStatus, holder: String) -> Self {
        let sent = |problem: &Problem| ReportedProblem {
            name: problem.name.to_owned(),
            subject: problem.subject.clone(),
            message: problem.message.clone(),
        };
        Self {
            problems: state.into_iter().flat_map(|state| &state.problems).map(sent).collect(),
            state: state.cloned(),
            work: Work::of(status, holder),
        }
    }

    /// Puts the problems, which do not travel with it, back into the state.
    pub(super) fn whole(mut self) -> Self {
        if let Some(state) = &mut self.state {
            let problems = std::mem::take(&mut self.problems).into_iter();
            state.problems = problems
                .map(|ReportedProblem { name, subject, message }| Problem {
                    name: Problem::known(&name),
                    subject,
                    message,
                })
                .collect();
        }
        self
    }
}

/// Returns the name of the socket in the network namespace: one for each cluster, so that a node of several tests or
/// clusters has several.
pub(super) fn socket_name(namespace: &str, cluster: &str) -> String {
    let digest = hex(&Sha256::digest(format!("{namespace}/{cluster}").as_bytes()));
    format!("trieste-globalnet-{}", &digest[..16])
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs =
        text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2));
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// Sends one frame.
///
/// # Errors
/// The kernel's error.
pub(super) async fn send(stream: &mut (impl AsyncWrite + Unpin), what: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(what)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// Receives one frame of `most` bytes at most.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for one that is longer or malformed; what the kernel says.
pub(super) async fn receive<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    most: u32,
) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let length = u32::from_be_bytes(length);
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    if length > most {
        return Err(invalid(format!("a frame of {length} bytes, of which {most} are the most")));
    }
    // The announced size is not trusted: memory grows with the received bytes.
    let mut bytes = Vec::new();
    let read = stream.take(length.into()).read_to_end(&mut bytes).await?;
    if u32::try_from(read) != Ok(length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&bytes).map_err(|error| invalid(error.to_string()))
}
