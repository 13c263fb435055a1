//! Which captures run.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trieste_control::admin::{CapturePoint, CaptureRequest, UnknownWord};
use trieste_packet::{CableId, Witness};
use trieste_pipeline::Tap;

use super::filter::Filter;
use super::outer::LocalEnd;
use super::queue::Capture;
use super::tap::{DropWitness, WorkerTap};

/// Most captures at once. Ours: each costs every worker a copy of every packet it wants.
pub const MAX_CAPTURES: usize = 4;
/// Bytes kept of a packet unless asked otherwise: more than any packet has. tcpdump's own default.
pub const DEFAULT_SNAP_BYTES: u32 = 262_144;

/// Finds a cable's name for the comments of dropped packets.
type CableName = Box<dyn Fn(CableId) -> Option<String> + Send + Sync>;

/// Taps of a worker's packets: on the line, and where they are dropped; `None` without a capture there.
pub type Watchers = (Option<Box<dyn Tap>>, Option<Box<dyn Witness>>);

/// Why a capture cannot begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The request names a point that does not exist.
    #[error("point: {0}")]
    Point(#[from] UnknownWord),
    /// There are enough already.
    #[error(
        "{MAX_CAPTURES} captures are running, and more would slow the packets down; end one of them first"
    )]
    TooMany,
    /// The gateway ends.
    #[error("the gateway is stopping")]
    Stopping,
}

/// Counters of captures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CaptureCounters {
    /// Captures that run at this moment.
    pub running: u64,
    /// Packets, since start, that a capture wanted and that are not in it, because its reader was too slow.
    pub lost: u64,
}

/// Which captures run. Shared by workers, which take taps from it, and the admin socket, which takes streams.
pub struct CaptureHub {
    local: LocalEnd,
    cable_name: Option<CableName>,
    generation: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    captures: Vec<Arc<Capture>>,
    next_id: u64,
    /// Lost by captures that have ended.
    lost: u64,
    is_stopping: bool,
}

impl fmt::Debug for CaptureHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureHub")
            .field("local", &self.local)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl CaptureHub {
    /// Returns a hub without captures. `private_ip` is shown as this gateway's outer address where it is unknown, `udp_port` as
    /// its port.
    #[must_use]
    pub fn new(private_ip: IpAddr, udp_port: u16) -> Self {
        Self {
            local: LocalEnd { address: private_ip, port: udp_port },
            cable_name: None,
            generation: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Sets how cables are named in comments, instead of by number.
    #[must_use]
    pub fn with_cable_names(
        mut self,
        name: impl Fn(CableId) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.cable_name = Some(Box::new(name));
        self
    }

    /// Returns a number that changes whenever a capture begins or ends; 0 before the first. One relaxed load.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Returns the taps of a worker's packets. Call it when [`Self::generation`], read before, has changed. Takes a lock, and
    /// allocates memory for a train.
    pub fn attach(&self, worker: u16) -> Watchers {
        let captures = self.state().captures.clone();
        let includes = |at_drops: bool| {
            let is_wanted = |point: &CapturePoint| (*point == CapturePoint::Drops) == at_drops;
            let captures: Vec<_> =
                captures.iter().filter(|capture| capture.points.iter().any(is_wanted)).cloned().collect();
            (!captures.is_empty()).then_some(captures)
        };
        let tap = includes(false)
            .map(|captures| Box::new(WorkerTap::new(captures, self.local, worker)) as Box<dyn Tap>);
        let witness = includes(true)
            .map(|captures| Box::new(DropWitness::new(captures, self.local, worker)) as Box<dyn Witness>);
        (tap, witness)
    }

    /// Begins a capture, which goes on until it is removed. Returns its queue, and the bytes kept of a packet.
    ///
    /// # Errors
    /// [`CaptureError`], when the request cannot be understood or there are too many.
    pub(super) fn begin(&self, request: &CaptureRequest) -> Result<(Arc<Capture>, u32), CaptureError> {
        let mut points = request.points()?;
        points.sort_unstable();
        points.dedup();
        let snap_bytes = request.snaplen.filter(|&bytes| bytes > 0).unwrap_or(DEFAULT_SNAP_BYTES);
        let snap_bytes = snap_bytes.min(DEFAULT_SNAP_BYTES);
        let mut state = self.state();
        if state.is_stopping {
            return Err(CaptureError::Stopping);
        }
        if state.captures.len() >= MAX_CAPTURES {
            return Err(CaptureError::TooMany);
        }
        let id = state.next_id;
        state.next_id += 1;
        let kept = usize::try_from(snap_bytes).expect("usize has at least 32 bits");
        let capture = Arc::new(Capture::new(id, points, Filter::new(request), kept));
        state.captures.push(Arc::clone(&capture));
        drop(state);
        self.generation.fetch_add(1, Ordering::Release);
        Ok((capture, snap_bytes))
    }

    /// Ends all captures, so that their streams finish, and refuses new ones.
    pub fn stop(&self) {
        let mut state = self.state();
        state.is_stopping = true;
        for capture in &state.captures {
            capture.end();
        }
        drop(state);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Returns the counters of captures.
    pub fn counters(&self) -> CaptureCounters {
        let state = self.state();
        let lost: u64 = state.captures.iter().map(|capture| lost(capture)).sum();
        CaptureCounters { running: state.captures.len() as u64, lost: state.lost + lost }
    }

    /// Takes a capture out; its taps go when the workers see the new generation.
    pub(super) fn remove(&self, capture: &Capture) {
        capture.end();
        let mut state = self.state();
        state.captures.retain(|other| other.id != capture.id);
        state.lost += lost(capture);
        drop(state);
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub(super) fn cable_name(&self, cable: CableId) -> Option<String> {
        self.cable_name.as_ref().and_then(|name| name(cable))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lost(capture: &Capture) -> u64 {
    capture.counters.iter().map(|counters| counters.lost.load(Ordering::Relaxed)).sum()
}
