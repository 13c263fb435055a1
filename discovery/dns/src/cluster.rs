//! A cluster of the set, as the gateways see it: whether it can be reached, and how far it is.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::label::Label;

/// Round-trip time of a cluster that nobody has measured.
const UNMEASURED: u32 = u32::MAX;

/// Whether a cluster can be reached, and how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterState {
    /// Whether a path to it is up.
    pub is_up: bool,
    /// Round-trip time, once measured.
    pub rtt: Option<Duration>,
}

impl Default for ClusterState {
    /// Returns the state of a cluster that no gateway has a record of: it counts as connected, as upstream has it.
    fn default() -> Self {
        Self { is_up: true, rtt: None }
    }
}

/// A cluster; every record of it refers to this one, so that a change of its state is one store for all services.
pub(crate) struct Cluster {
    id: Label,
    is_local: bool,
    is_up: AtomicBool,
    rtt_micros: AtomicU32,
}

impl Cluster {
    /// Creates a cluster that counts as connected.
    pub(crate) fn new(id: Label, is_local: bool) -> Self {
        Self { id, is_local, is_up: AtomicBool::new(true), rtt_micros: AtomicU32::new(UNMEASURED) }
    }

    /// Returns its id.
    pub(crate) fn id(&self) -> &Label {
        &self.id
    }

    /// Returns whether it is the one that asks.
    pub(crate) fn is_local(&self) -> bool {
        self.is_local
    }

    /// Returns whether it can be reached; the local one always can.
    pub(crate) fn is_up(&self) -> bool {
        self.is_local || self.is_up.load(Ordering::Relaxed)
    }

    /// Returns what to compare distances by, in microseconds: nothing for the local one, most for an unmeasured one.
    pub(crate) fn distance(&self) -> u32 {
        if self.is_local { 0 } else { self.rtt_micros.load(Ordering::Relaxed) }
    }

    /// Stores what the gateways have found.
    pub(crate) fn set(&self, state: ClusterState) {
        let micros =
            state.rtt.map_or(UNMEASURED, |rtt| u32::try_from(rtt.as_micros()).unwrap_or(UNMEASURED - 1));
        self.rtt_micros.store(micros, Ordering::Relaxed);
        self.is_up.store(state.is_up, Ordering::Relaxed);
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("id", &self.id)
            .field("is_local", &self.is_local)
            .field("is_up", &self.is_up())
            .field("distance", &self.distance())
            .finish()
    }
}
