//! Why bytes are no message.

use super::NotifyKind;

/// Why bytes are not an IKEv2 message, or not one that may be acted on. All are the peer's doing, or an attacker's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Ends before what it announces.
    #[error("the message ends inside {0}")]
    Truncated(&'static str),
    /// A length or number that contradicts what is there, or is not one the field can have.
    #[error("{0} has an impossible length")]
    Length(&'static str),
    /// More of something than is reasonable.
    #[error("the message holds too many {0}")]
    TooMany(&'static str),
    /// The major version is not 2.
    #[error("the message is of IKE version {0}, not 2")]
    Version(u8),
    /// A payload that is not known and that must not be skipped.
    #[error("the message holds an unknown critical payload of type {0}")]
    UnsupportedCritical(u8),
    /// A protected payload where a clear one was expected, or the other way round, or one that is not the last.
    #[error("the message is encrypted where it must not be, or not encrypted where it must be")]
    Protection,
}

impl WireError {
    /// The notify that answers a request with this error, and its data, where the RFC has one.
    ///
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.5
    //# If the critical flag is set
    //# and the payload type is unrecognized, the message MUST be rejected
    //# and the response to the IKE request containing that payload MUST
    //# include a Notify payload UNSUPPORTED_CRITICAL_PAYLOAD
    #[must_use]
    pub fn answer(self) -> (NotifyKind, Vec<u8>) {
        match self {
            Self::UnsupportedCritical(kind) => (NotifyKind::UnsupportedCriticalPayload, vec![kind]),
            Self::Version(_) => (NotifyKind::InvalidMajorVersion, vec![super::header::MAJOR_VERSION]),
            Self::Truncated(_) | Self::Length(_) | Self::TooMany(_) | Self::Protection => {
                (NotifyKind::InvalidSyntax, Vec::new())
            }
        }
    }
}
