//! How a client behaves, and what it is doing.

use std::time::Duration;

use crate::tls::TlsFiles;
use crate::uuid::Uuid;

/// How a client behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOptions {
    /// The files of TLS, for remotes `ssl:`.
    pub tls: Option<TlsFiles>,
    /// Whether only the leader of a clustered database will do, as for OVN's own writers.
    pub leader_only: bool,
    /// The only cluster that will do, if it matters.
    pub cluster: Option<Uuid>,
    /// After how much silence the server is asked for a sign of life; after as much again it is given up.
    pub probe_interval: Duration,
    /// How long a transaction may take before it is cancelled.
    pub transact_timeout: Duration,
    /// How long to wait after all servers have failed for the first time; it doubles up to `max_wait`.
    pub first_wait: Duration,
    /// The longest wait.
    pub max_wait: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            tls: None,
            leader_only: true,
            cluster: None,
            probe_interval: Duration::from_secs(10),
            transact_timeout: Duration::from_secs(30),
            first_wait: Duration::from_millis(250),
            max_wait: Duration::from_secs(8),
        }
    }
}

/// What a client is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// It looks for a server that will do.
    Connecting,
    /// It has a session and a complete replica.
    Synced {
        /// The server.
        remote: String,
    },
    /// The last server that it tried failed; it goes on with the next.
    Failed {
        /// The server.
        remote: String,
        /// Why.
        error: String,
    },
}
