//! A cluster of the set, as the gateways see it: whether it can be reached, and how far it is.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
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

/// Values of [`Cluster::reach`].
const UNKNOWN: u8 = 0;
const UP: u8 = 1;
const DOWN: u8 = 2;

/// A cluster; every record of it refers to this one, so that a change of its state is one store for all services.
pub(crate) struct Cluster {
    id: Label,
    is_local: bool,
    reach: AtomicU8,
    /// Whether clusters count as connected that no gateway has a record of.
    are_unknown_up: Arc<AtomicBool>,
    rtt_micros: AtomicU32,
}

impl Cluster {
    /// Creates a cluster that no gateway has a record of.
    pub(crate) fn new(id: Label, is_local: bool, are_unknown_up: Arc<AtomicBool>) -> Self {
        let (reach, rtt_micros) = (AtomicU8::new(UNKNOWN), AtomicU32::new(UNMEASURED));
        Self { id, is_local, reach, are_unknown_up, rtt_micros }
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
        self.is_local
            || match self.reach.load(Ordering::Relaxed) {
                UP => true,
                UNKNOWN => self.are_unknown_up.load(Ordering::Relaxed),
                _ => false,
            }
    }

    /// Returns whether the gateways have a record of it.
    pub(crate) fn is_known(&self) -> bool {
        self.reach.load(Ordering::Relaxed) != UNKNOWN
    }

    /// Returns what to compare distances by, in microseconds: nothing for the local one, most for an unmeasured one.
    pub(crate) fn distance(&self) -> u32 {
        if self.is_local { 0 } else { self.rtt_micros.load(Ordering::Relaxed) }
    }

    /// Stores what the gateways have found; `None` if they have no record of it.
    pub(crate) fn set(&self, state: Option<ClusterState>) {
        let rtt = state.and_then(|state| state.rtt);
        let micros = rtt.map_or(UNMEASURED, |rtt| u32::try_from(rtt.as_micros()).unwrap_or(UNMEASURED - 1));
        let reach = match state.map(|state| state.is_up) {
            None => UNKNOWN,
            Some(true) => UP,
            Some(false) => DOWN,
        };
        self.rtt_micros.store(micros, Ordering::Relaxed);
        self.reach.store(reach, Ordering::Relaxed);
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
