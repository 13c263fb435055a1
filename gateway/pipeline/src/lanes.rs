//! The lanes of one worker.

use std::net::SocketAddr;
use std::time::Instant;

use trieste_cables::{CableStats, Tunnel};
use trieste_packet::{CableId, LaneId};

use crate::health::awake::Awake;
use crate::health::{self, Watch};
use crate::probe::ProbeLimiter;
use crate::watching::Watching;

/// What the control plane tells a worker about its lanes. Traffic goes on meanwhile.
pub enum LaneCommand {
    /// Adds a lane.
    Add {
        /// Its id; the worker is its owner.
        lane: LaneId,
        /// For counters.
        cable: CableId,
        /// Both halves.
        tunnel: Box<dyn Tunnel>,
        /// How it is probed; `None` when its far end does not know how.
        watch: Option<Watch>,
    },
    /// The far end has begun to understand probes, does not any more, or has other addresses for them.
    Watch {
        /// The lane.
        lane: LaneId,
        /// How it is probed.
        watch: Option<Watch>,
    },
    /// Has every probe of this worker say that this gateway is about to stop, or that it is not any more.
    Draining(bool),
    /// Lets a lane open what still arrives until `until`, and removes it then. The tables stop sealing with it.
    Drain {
        /// The lane.
        lane: LaneId,
        /// When it ends.
        until: Instant,
    },
    /// The peer's Endpoint has a new address.
    SetPeer {
        /// The lane.
        lane: LaneId,
        /// The address.
        peer: Option<SocketAddr>,
    },
    /// Has the lane look for what its slow half told it: keys have come, or gone.
    Look {
        /// The lane.
        lane: LaneId,
    },
    /// Begins a handshake now.
    Rekey {
        /// The lane.
        lane: LaneId,
    },
}

impl std::fmt::Debug for LaneCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, lane) = match self {
            Self::Add { lane, .. } => ("Add", lane),
            Self::Drain { lane, .. } => ("Drain", lane),
            Self::SetPeer { lane, .. } => ("SetPeer", lane),
            Self::Look { lane } => ("Look", lane),
            Self::Rekey { lane } => ("Rekey", lane),
            Self::Watch { lane, .. } => ("Watch", lane),
            Self::Draining(is_draining) => return write!(f, "Draining({is_draining})"),
        };
        write!(f, "{name}({lane:?})")
    }
}

/// A lane's state, for status and metrics.
#[derive(Debug, Clone, Copy)]
pub struct LaneReport {
    /// Its id.
    pub lane: LaneId,
    /// Its cable.
    pub cable: CableId,
    /// What is known of the tunnel.
    pub stats: CableStats,
    /// Whether it only opens any more.
    pub is_draining: bool,
    /// The health of its path, where that is probed.
    pub health: Option<health::Report>,
}

/// One lane.
pub(crate) struct Slot {
    pub(crate) lane: LaneId,
    pub(crate) cable: CableId,
    pub(crate) tunnel: Box<dyn Tunnel>,
    pub(crate) ends: Option<Instant>,
    pub(crate) probes: ProbeLimiter,
    /// The health of its path, where that is probed.
    pub(crate) watching: Option<Box<Watching>>,
}

/// All lanes of a worker, sorted by id. There are as many as peers: hundreds at most.
#[derive(Default)]
pub(crate) struct Lanes {
    slots: Vec<Slot>,
}

impl Lanes {
    pub(crate) fn find(&mut self, lane: LaneId) -> Option<&mut Slot> {
        let index = self.slots.binary_search_by_key(&lane, |slot| slot.lane).ok()?;
        Some(&mut self.slots[index])
    }

    pub(crate) fn contains(&self, lane: LaneId) -> bool {
        self.slots.binary_search_by_key(&lane, |slot| slot.lane).is_ok()
    }

    /// Adds or replaces; a replaced slot is returned, so that what it holds can be counted.
    pub(crate) fn insert(&mut self, slot: Slot) -> Option<Slot> {
        match self.slots.binary_search_by_key(&slot.lane, |other| other.lane) {
            Ok(index) => Some(std::mem::replace(&mut self.slots[index], slot)),
            Err(index) => {
                self.slots.insert(index, slot);
                None
            }
        }
    }

    /// Removes the lanes whose time is over.
    pub(crate) fn take_ended(&mut self, now: Instant) -> Vec<Slot> {
        self.slots.extract_if(.., |slot| slot.ends.is_some_and(|ends| ends <= now)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The lane at a position, in the order of ids.
    pub(crate) fn at(&self, index: usize) -> Option<LaneId> {
        self.slots.get(index).map(|slot| slot.lane)
    }

    /// The slot at a position, in the order of ids.
    pub(crate) fn at_mut(&mut self, index: usize) -> Option<&mut Slot> {
        self.slots.get_mut(index)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut()
    }

    /// Finds a lane that has got the keys for what came before them.
    pub(crate) fn first_openable(&self) -> Option<LaneId> {
        self.slots.iter().find(|slot| slot.tunnel.has_openable()).map(|slot| slot.lane)
    }

    /// When the first lane wants attention.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|slot| earliest(slot.tunnel.poll_timeout(), slot.ends)).min()
    }

    /// Packets that await keys.
    pub(crate) fn held(&self, now: Instant) -> u64 {
        self.slots.iter().map(|slot| slot.tunnel.stats(now).held).sum()
    }

    pub(crate) fn reports<'a>(
        &'a self,
        now: Instant,
        awake: &'a Awake,
    ) -> impl Iterator<Item = LaneReport> + 'a {
        self.slots.iter().map(move |slot| LaneReport {
            lane: slot.lane,
            cable: slot.cable,
            stats: slot.tunnel.stats(now),
            is_draining: slot.ends.is_some(),
            health: slot.watching.as_ref().map(|watching| watching.report(now, awake)),
        })
    }
}

/// The earlier of two times, of those that there are.
pub(crate) fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
