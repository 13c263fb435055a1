//! Why a store did not do what it was asked.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::api::{ApiError, ObjectKey};

/// A store's refusal or failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such object.
    #[error("{0} does not exist")]
    NotFound(ObjectKey),
    /// There is such an object already.
    #[error("{0} exists already")]
    AlreadyExists(ObjectKey),
    /// Somebody else wrote first: read it again, and decide again.
    #[error("{key} has changed: version {expected} was expected, {found} was found")]
    Conflict {
        /// The object.
        key: ObjectKey,
        /// The version that the write was based on.
        expected: String,
        /// The newest version.
        found: String,
    },
    /// The object or its name is not allowed; the caller's fault.
    #[error("{key} is not valid: {source}")]
    Invalid {
        /// The object.
        key: ObjectKey,
        /// The reason why it is invalid.
        #[source]
        source: ApiError,
    },
    /// The store does not take this object from us, while others of its kind it does: a policy, a quota or a webhook
    /// says so. As with an invalid object, it is nobody else's business.
    #[error("{key} is refused: {reason}")]
    Denied {
        /// The object.
        key: ObjectKey,
        /// The store's reason.
        reason: String,
    },
    /// Another process holds the store's lock and does not let go. Is it stopped?
    #[error("{} has been locked by another process for {waited:?}", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long we waited.
        waited: Duration,
    },
    /// The store does not know us, or does not allow this: credentials have expired or were revoked, or a role is
    /// missing. Somebody has to change that; until then it is as if the store were away, so that it is tried again, and
    /// shown.
    #[error("may not {operation}: {source}")]
    Forbidden {
        /// The operation, for people.
        operation: String,
        /// The store's reason.
        #[source]
        source: io::Error,
    },
    /// The store cannot be reached, read or written.
    #[error("cannot {operation}: {source}")]
    Unavailable {
        /// The operation, for people: verb and object, such as `read directory /x`.
        operation: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

/// The reason why a server's certificate is not accepted, as the source of an [`io::Error`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CertificateRefused(pub String);

impl StoreError {
    /// Returns `true` if the store's certificate is not accepted: another authority, name or time than is trusted.
    #[must_use]
    pub fn is_certificate_refused(&self) -> bool {
        let refused =
            |source: &io::Error| source.get_ref().is_some_and(|inner| inner.is::<CertificateRefused>());
        matches!(self, Self::Unavailable { source, .. } if refused(source))
    }

    /// Returns `true` if the store, and not the request, is at fault: worth another try later.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Locked { .. } | Self::Forbidden { .. })
    }

    /// Returns `true` if the caller should read and decide again.
    pub fn is_race(&self) -> bool {
        matches!(self, Self::Conflict { .. } | Self::AlreadyExists(_) | Self::NotFound(_))
    }

    /// Returns `true` if the server has no such kind at all.
    #[must_use]
    pub fn is_unserved(&self) -> bool {
        matches!(self, Self::Unavailable { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    pub(crate) fn invalid(key: &ObjectKey, field: &str, reason: impl Into<String>) -> Self {
        Self::Invalid { key: key.clone(), source: ApiError::field(field, reason) }
    }
}
