//! Translated sessions that are kept over a restart.

use std::path::Path;

use jiff::Timestamp;
use trieste_nat::OwnerKey;

use crate::config::{Config, Psk};
use crate::globalnet::sessions::{Restored, SessionFiles};
use crate::globalnet::{key, sessions};
use crate::tables::Owners;

/// The assignment of sessions to workers, the session files, and the last process's sessions.
pub(super) struct KeptSessions {
    pub(super) owners: Owners,
    /// Where they are kept; none without a state directory, or without a global CIDR.
    pub(super) files: Option<SessionFiles>,
    pub(super) restored: Restored,
}

impl KeptSessions {
    /// Reads the sessions of the process before.
    pub(super) fn read(config: &Config, state_dir: Option<&Path>) -> Self {
        let key = key::derive(&config.cluster_id, config.psk.as_ref().map(Psk::expose));
        let owners = Owners { key: OwnerKey(key), workers: config.workers };
        let most = usize::try_from(config.globalnet.max_sessions).unwrap_or(usize::MAX);
        let most = most.saturating_mul(usize::from(config.workers));
        let files = state_dir
            .filter(|_| config.has_globalnet())
            .map(|dir| SessionFiles::new(dir, key::fingerprint(&key), most));
        let restored = files
            .as_ref()
            .map(|files| sessions::restore(files, &config.globalnet, Timestamp::now()))
            .unwrap_or_default();
        Self { owners, files, restored }
    }
}
