//! The lanes of one worker.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use trieste_cables::{CableStats, Tunnel};
use trieste_packet::{CableId, LaneId};

use crate::deadlines::{Deadlines, Entry};
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
    /// When its timers are called.
    timer: Entry,
    /// Whether it is among those that wait for their turn to send.
    is_queued: bool,
    /// Whether it is among those whose reports may have changed.
    is_touched: bool,
}

impl Slot {
    /// Makes a lane that is not called yet.
    pub(crate) fn new(lane: LaneId, cable: CableId, tunnel: Box<dyn Tunnel>, now: Instant) -> Self {
        let probes = ProbeLimiter::new(now);
        Self {
            lane,
            cable,
            tunnel,
            ends: None,
            probes,
            watching: None,
            timer: None,
            is_queued: false,
            is_touched: false,
        }
    }

    /// Returns when its timers want to be called.
    fn poll_timeout(&self) -> Option<Instant> {
        earliest(self.tunnel.poll_timeout(), self.ends)
    }

    /// Returns its state.
    pub(crate) fn report(&self, now: Instant, awake: &Awake) -> LaneReport {
        LaneReport {
            lane: self.lane,
            cable: self.cable,
            stats: self.tunnel.stats(now),
            is_draining: self.ends.is_some(),
            health: self.watching.as_ref().map(|watching| watching.report(now, awake)),
        }
    }

    /// Returns `true` if its timers want to be called before they will be.
    pub(crate) fn is_called_late(&self) -> bool {
        self.poll_timeout().is_some_and(|due| self.timer.is_none_or(|timer| due < timer))
    }
}

/// Times in reports, of which some are ages, are that old at most where nothing happens to a lane.
const REPORTS_AGE: Duration = Duration::from_secs(1);

/// What all lanes have together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    /// Packets that await keys.
    pub(crate) held: u64,
    /// Lanes whose peers are tried rarely.
    pub(crate) silent: u64,
    /// Attempts that had to wait.
    pub(crate) deferred: u64,
}

impl Totals {
    /// Returns the sums over lanes with these statistics.
    pub(crate) fn of(stats: impl Iterator<Item = CableStats>) -> Self {
        stats.fold(Self::default(), |mut sum, stats| {
            sum.add(&stats);
            sum
        })
    }

    fn add(&mut self, stats: &CableStats) {
        self.held += stats.held;
        self.silent += u64::from(stats.is_silent);
        self.deferred += stats.deferred;
    }

    /// Takes a lane with these statistics out, which was counted.
    fn remove(&mut self, stats: &CableStats) {
        self.held -= stats.held;
        self.silent -= u64::from(stats.is_silent);
        self.deferred -= stats.deferred;
    }
}

/// All lanes of a worker, sorted by id. There are as many as peers: what is done for all of them at once is a command's, or
/// a report's once a second, never a packet's or a time-out's.
#[derive(Default)]
pub(crate) struct Lanes {
    slots: Vec<Slot>,
    timers: Deadlines,
    /// Lanes that may have something to send of their own accord, in the order of their turns.
    queue: VecDeque<LaneId>,
    /// Those whose timers are being called; empty between calls.
    pub(crate) due: Vec<LaneId>,
    /// Lanes whose reports may have changed since they were updated last.
    touched: Vec<LaneId>,
    /// When all reports were made; `None` if that must be done again, since there are other lanes.
    reported: Option<Instant>,
    /// The sums over the reports.
    totals: Totals,
}

impl Lanes {
    /// Returns a lane, to which anything may be done.
    pub(crate) fn find(&mut self, lane: LaneId) -> Option<&mut Slot> {
        let index = self.slots.binary_search_by_key(&lane, |slot| slot.lane).ok()?;
        let slot = &mut self.slots[index];
        if !std::mem::replace(&mut slot.is_touched, true) {
            self.touched.push(lane);
        }
        Some(slot)
    }

    pub(crate) fn contains(&self, lane: LaneId) -> bool {
        self.slots.binary_search_by_key(&lane, |slot| slot.lane).is_ok()
    }

    /// Adds or replaces; a replaced slot is returned, so that what it holds can be counted.
    pub(crate) fn insert(&mut self, slot: Slot) -> Option<Slot> {
        let lane = slot.lane;
        self.reported = None;
        let replaced = match self.slots.binary_search_by_key(&lane, |other| other.lane) {
            Ok(index) => {
                let mut replaced = std::mem::replace(&mut self.slots[index], slot);
                self.timers.set(lane, &mut replaced.timer, None);
                Some(replaced)
            }
            Err(index) => {
                self.slots.insert(index, slot);
                None
            }
        };
        self.set_timer(lane);
        replaced
    }

    /// Sets when a lane's timers are called: when they want to be.
    pub(crate) fn set_timer(&mut self, lane: LaneId) {
        let Ok(index) = self.slots.binary_search_by_key(&lane, |slot| slot.lane) else { return };
        let slot = &mut self.slots[index];
        let due = slot.poll_timeout();
        self.timers.set(lane, &mut slot.timer, due);
    }

    /// Takes the lanes whose timers are due, to be put back into `due` afterwards.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<LaneId> {
        let mut due = std::mem::take(&mut self.due);
        due.clear();
        self.timers.due(now, &mut due);
        due
    }

    /// Removes a lane if its time is over.
    pub(crate) fn take_ended(&mut self, lane: LaneId, now: Instant) -> Option<Slot> {
        let index = self.slots.binary_search_by_key(&lane, |slot| slot.lane).ok()?;
        self.slots[index].ends.filter(|ends| *ends <= now)?;
        self.reported = None;
        let mut ended = self.slots.remove(index);
        self.timers.set(lane, &mut ended.timer, None);
        Some(ended)
    }

    /// Adds a lane to those that wait for their turn to send.
    pub(crate) fn enqueue(&mut self, lane: LaneId) {
        let Ok(index) = self.slots.binary_search_by_key(&lane, |slot| slot.lane) else { return };
        if !std::mem::replace(&mut self.slots[index].is_queued, true) {
            self.queue.push_back(lane);
        }
    }

    /// Takes the lane whose turn it is.
    pub(crate) fn dequeue(&mut self) -> Option<LaneId> {
        let lane = self.queue.pop_front()?;
        if let Some(slot) = self.find(lane) {
            slot.is_queued = false;
        }
        Some(lane)
    }

    /// Returns `true` if lanes wait for their turn.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.reported = None;
        self.slots.iter_mut()
    }

    /// When the first lane wants attention.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first()
    }

    /// Adds up what lanes hold, and how they try their peers.
    pub(crate) fn totals(&self, now: Instant) -> Totals {
        Totals::of(self.slots.iter().map(|slot| slot.tunnel.stats(now)))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    /// Brings reports up to date that this method made: those of lanes that anything was done to since, and once a second
    /// all of them. Returns the sums over all.
    pub(crate) fn update_reports(
        &mut self,
        reports: &mut Vec<LaneReport>,
        now: Instant,
        report: impl Fn(&Slot) -> LaneReport,
    ) -> Totals {
        let is_fresh = self.reported.is_some_and(|at| now.saturating_duration_since(at) < REPORTS_AGE);
        if !is_fresh || reports.len() != self.slots.len() {
            reports.clear();
            reports.extend(self.slots.iter().map(&report));
            self.slots.iter_mut().for_each(|slot| slot.is_touched = false);
            self.touched.clear();
            self.reported = Some(now);
            self.totals = Totals::of(reports.iter().map(|report| report.stats));
            return self.totals;
        }
        for lane in self.touched.drain(..) {
            let Ok(index) = self.slots.binary_search_by_key(&lane, |slot| slot.lane) else { continue };
            let slot = &mut self.slots[index];
            slot.is_touched = false;
            if let Some(known) = reports.get_mut(index) {
                let newest = report(slot);
                self.totals.remove(&known.stats);
                self.totals.add(&newest.stats);
                *known = newest;
            }
        }
        self.totals
    }
}

/// The earlier of two times, of those that there are.
pub(crate) fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
