//! Why a cloud is not prepared, each with what to do next.

use trieste_deploy::DeployError;

/// Why a cloud is not prepared, or not to the end. Whatever was done stays; the same command goes on from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloudError {
    /// A cloud's service refused, or did not answer.
    #[error("{service}: {operation}: {reason}")]
    Api {
        /// Which service, such as `EC2 in eu-west-1`.
        service: String,
        /// What was asked of it.
        operation: String,
        /// The HTTP status, where the answer has one that it is recognised by.
        status: Option<u16>,
        /// Its own code for the refusal, such as `UnauthorizedOperation`; empty if it did not answer.
        code: String,
        /// What it answered, or why there is no answer. Never a credential.
        reason: String,
    },
    /// The credentials may not do what is to be done. Nothing was changed.
    #[error("nothing was changed: the credentials may not {}", .0.join("; nor "))]
    Denied(Vec<String>),
    /// There are no credentials, or they cannot be used.
    #[error("{what}")]
    Credentials {
        /// What is missing or wrong.
        what: String,
        /// What to do.
        next: String,
    },
    /// What was asked for cannot be had here.
    #[error("{what}")]
    Refused {
        /// What, and why.
        what: String,
        /// What to do.
        next: String,
    },
    /// The cloud took every change, and is not as it should be.
    #[error("{service} took every change, and these are still to be made: {}", changes.join("; "))]
    Unsettled {
        /// Which service.
        service: String,
        /// What is still to be done.
        changes: Vec<String>,
    },
    /// The cluster itself refused.
    #[error(transparent)]
    Cluster(#[from] DeployError),
}

impl CloudError {
    /// Refuses what cannot be had here, for a reason, and names what to do instead.
    pub fn refused(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Refused { what: what.into(), next: next.into() }
    }

    /// Names what is missing or wrong with credentials, and what to do.
    pub fn credentials(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Credentials { what: what.into(), next: next.into() }
    }

    /// Returns `true` if a service refused with this HTTP status.
    pub fn has_status(&self, wanted: u16) -> bool {
        matches!(self, Self::Api { status: Some(status), .. } if *status == wanted)
    }

    /// Returns what to do next.
    pub fn next(&self) -> String {
        match self {
            Self::Api { code, .. } if code.is_empty() => {
                "check that this machine reaches the cloud's API (HTTPS_PROXY names a proxy), then repeat the command".to_owned()
            }
            Self::Api { .. } => "see to what the service answered, then repeat the command: it goes on from there".to_owned(),
            Self::Denied(_) => {
                "give the credentials these rights (docs/operations/cloud.md lists all of them), then repeat the command".to_owned()
            }
            Self::Credentials { next, .. } | Self::Refused { next, .. } => next.clone(),
            Self::Unsettled { .. } => {
                "repeat the command in a minute; if it is still so, somebody else may be changing the same rules".to_owned()
            }
            Self::Cluster(error) => error.next(),
        }
    }
}
