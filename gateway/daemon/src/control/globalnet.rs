//! Globalnet's part of the control loop's state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use trieste_control::globalnet::GlobalnetState;

use crate::globalnet::Controllers;
use crate::globalnet::sessions::SessionFiles;
use crate::globalnet::view::GlobalnetView;
use crate::tables::{Own, Owners};

/// Globalnet's parts that the loop uses.
pub(crate) struct Globalnet {
    /// The controllers; none without a global CIDR.
    pub(crate) controllers: Option<Controllers>,
    /// The state for admin socket and metrics.
    pub(crate) view: Arc<GlobalnetView>,
    /// Assignment of sessions to workers.
    pub(crate) owners: Owners,
    /// Where sessions are kept; none without a state directory.
    pub(crate) files: Option<SessionFiles>,
}

/// The input of rules for translation, present and last.
#[derive(Debug, Default)]
pub(super) struct RuleState {
    pub(super) state: Option<Arc<GlobalnetState>>,
    pub(super) is_remembered: bool,
    pub(super) own: Own,
    /// The input of the last rules, whose epoch is above zero.
    pub(super) compiled: Option<(Arc<GlobalnetState>, Own)>,
    pub(super) epoch: u64,
    /// Names of conditions that the state has asked for.
    pub(super) problems: BTreeSet<&'static str>,
    /// Since when this gateway has siblings and no share of the outside ports.
    pub(super) lacks_ports: Option<Instant>,
}

impl RuleState {
    /// Returns the state to remember over a restart.
    pub(super) fn remembered(&self) -> Option<GlobalnetState> {
        self.state.as_deref().cloned()
    }
}
