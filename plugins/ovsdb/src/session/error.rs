//! Why a session ended.

use crate::outcome::Failure;
use crate::schema::InvalidSchema;
use crate::server::Unsuitable;
use crate::session::outbox::Full;
use crate::spec::SchemaError;
use crate::updates::UpdateError;
use crate::wire::WireError;

/// Why a session ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The server sent no messages.
    #[error("invalid message: {0}")]
    Wire(#[from] WireError),
    /// The server did what the protocol does not allow.
    #[error("protocol violated: {0}")]
    Protocol(&'static str),
    /// The server's update does not fit the replica, or does not fit into it.
    #[error(transparent)]
    Update(#[from] UpdateError),
    /// The server gave no sign of life, or no answer.
    #[error("server is silent")]
    Silent,
    /// The server took too long until everything was there.
    #[error("server did not send the database in time")]
    SetupTimeout,
    /// The server does not read what it is sent.
    #[error("server does not read")]
    NotReading,
    /// The server does not have the database.
    #[error("server has no database {name} (it has {found})")]
    NoDatabase {
        /// The database.
        name: String,
        /// Those that it has.
        found: String,
    },
    /// The server refused a request.
    #[error("{request} refused: {failure}{}{details}", if details.is_empty() { "" } else { ": " })]
    Refused {
        /// The request.
        request: &'static str,
        /// Why.
        failure: Failure,
        /// The server's words.
        details: String,
    },
    /// The server's schema is none.
    #[error(transparent)]
    InvalidSchema(#[from] InvalidSchema),
    /// The database does not have what is needed.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// Another server may do.
    #[error(transparent)]
    Unsuitable(#[from] Unsuitable),
    /// The database was replaced, or has another schema: everything is to be read anew.
    #[error("database was replaced")]
    DatabaseChanged,
}

impl SessionError {
    /// Returns `true` if the server works and is not the one to ask.
    pub const fn is_for_another_server(&self) -> bool {
        matches!(self, Self::Unsuitable(_) | Self::DatabaseChanged)
    }
}

impl From<Full> for SessionError {
    fn from(Full: Full) -> Self {
        Self::NotReading
    }
}
