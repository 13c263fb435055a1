//! What goes wrong when clusters are changed, each with what to do next.

use crate::broker_info::BrokerInfoError;
use crate::preflight::Finding;

/// Why a cluster was not changed, or not to the end. Whatever was done stays; the same command goes on from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeployError {
    /// An API server refused, or did not answer.
    #[error("{server}: {doing}: {reason}")]
    Api {
        /// Which server, such as `cluster "east"`.
        server: String,
        /// What was asked of it.
        doing: String,
        /// The HTTP status, if it answered.
        code: Option<u16>,
        /// What it said, or why there is no answer.
        reason: String,
    },
    /// Somebody else has set fields of an object to other values.
    #[error("{server}: {object} is also managed by others: {}", owners.join("; "))]
    Conflict {
        /// Which server.
        server: String,
        /// Which object.
        object: String,
        /// Who owns which field, one text per field.
        owners: Vec<String>,
    },
    /// A requirement is not met. Nothing has been changed.
    #[error("nothing was changed: {} of the checks before failed", .0.len())]
    Unmet(Vec<Finding>),
    /// Something did not come about in time.
    #[error("{what} within {seconds} seconds{}", list(state))]
    NotInTime {
        /// What was waited for, as in "the gateway was not ready".
        what: String,
        /// How long.
        seconds: u64,
        /// How things stood then, one text per thing.
        state: Vec<String>,
        /// What to do.
        next: String,
    },
    /// A server that is needed does not answer, or not at present.
    #[error("{what}")]
    Unreachable {
        /// Which server, what was asked of it, and why there is no answer.
        what: String,
        /// What to do.
        next: String,
    },
    /// What was asked for makes no sense, or not here.
    #[error("{what}")]
    Refused {
        /// What makes no sense and why.
        what: String,
        /// What to do.
        next: String,
    },
    /// The join file cannot be used.
    #[error(transparent)]
    BrokerInfo(#[from] BrokerInfoError),
}

impl DeployError {
    /// What was asked for makes no sense, for a reason, and what to do instead.
    pub fn refused(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Refused { what: what.into(), next: next.into() }
    }

    /// What to do next: a command, or a sentence that has one.
    pub fn next(&self) -> String {
        match self {
            Self::Api { code: Some(401), .. } => {
                "the credentials are not accepted: kubectl auth whoami says whose they are".to_owned()
            }
            Self::Api { code: Some(403), .. } => {
                "these credentials lack the right: kubectl auth can-i --list says which there are".to_owned()
            }
            Self::Api { code: None, .. } => {
                "kubectl cluster-info says whether the API server can be reached; \
                then repeat the command, it goes on where it stopped"
                    .to_owned()
            }
            Self::Api { .. } => "repeat the command, it goes on where it stopped".to_owned(),
            Self::Conflict { .. } => {
                "repeat the command with --force-conflicts to take these fields over".to_owned()
            }
            Self::Unmet(findings) => {
                findings.first().map_or_else(String::new, |finding| finding.next.clone())
            }
            Self::NotInTime { next, .. } | Self::Unreachable { next, .. } | Self::Refused { next, .. } => {
                next.clone()
            }
            Self::BrokerInfo(error) => error.next(),
        }
    }

    /// Returns `true` if a server was away, or busy: the same may succeed a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Api { code: None | Some(429 | 500..), .. })
    }

    /// Whether a server answered that there is no such object, kind or namespace.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Api { code: Some(404), .. })
    }
}

fn list(state: &[String]) -> String {
    state.iter().map(|line| format!("\n  {line}")).collect()
}
