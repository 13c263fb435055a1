//! The requests of an elector to its driver, and the answers.

use super::Lease;

/// A request to the store, one at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// Read the Lease, from the store itself and not from a cache; answer with [`super::Elector::handle_read`].
    Read,
    /// Create the Lease; answer with [`super::Elector::handle_written`].
    Create(Lease),
    /// Replace the Lease if it still has the version in this one's metadata; answer with [`super::Elector::handle_written`].
    Update(Lease),
}

/// Why a request did not do what it was meant to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Somebody else was faster: the Lease has another version, exists already, or not any more.
    Race,
    /// The store did not answer, or refused; whether a write was applied is not known.
    Store(String),
}
