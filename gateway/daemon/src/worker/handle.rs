//! The handle of a worker: commands to it, and its published state.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam::channel::Sender;
use trieste_cables::CableEvent;
use trieste_io::RingState;
use trieste_io::poll::Waker;
use trieste_packet::{CableId, DropReason, LaneId, WorkerId};
use trieste_pipeline::{Counters, LaneReport};

use super::PublishedSessions;
use super::command::Command;
use super::panic::panic_message;
use crate::globalnet::sessions::changes::ChangeQueue;

/// A worker's published state.
#[derive(Debug, Clone, Default)]
pub struct Published {
    /// Counters.
    pub counters: Counters,
    /// Drop counters above zero.
    pub drops: Vec<(CableId, DropReason, u64)>,
    /// Lanes.
    pub lanes: Vec<LaneReport>,
    /// Translated sessions.
    pub sessions: PublishedSessions,
    /// How often the worker came back after a panic.
    pub restarts: u64,
    /// How often it came late for its probes, and for how long in all.
    pub stalls: (u64, Duration),
    /// The newest panic's message, or the device error that ended it.
    pub last_error: Option<String>,
    /// Its AF_XDP rings, if it has any.
    pub rings: Option<RingState>,
    /// Whether it has ended.
    pub is_stopped: bool,
}

/// The outside of a worker, shared with the control plane.
#[derive(Debug, Clone)]
pub struct WorkerHandle {
    /// Its number.
    pub id: WorkerId,
    /// The CPU it is pinned to.
    pub cpu: Option<usize>,
    pub(super) commands: Sender<Command>,
    pub(super) waker: Option<Waker>,
    pub(super) changes: Option<Arc<ChangeQueue>>,
    pub(super) view: Arc<SharedState>,
    pub(super) sent: Arc<AtomicU64>,
    pub(super) begun: Instant,
}

#[derive(Debug, Default)]
pub(super) struct SharedState {
    pub(super) published: Mutex<Arc<Published>>,
    pub(super) events: Mutex<Vec<(LaneId, CableEvent)>>,
    pub(super) handled: AtomicU64,
    /// When it last began a turn, in nanoseconds since it was made.
    pub(super) beat: AtomicU64,
}

impl WorkerHandle {
    /// Sends a command to the worker.
    pub fn command(&self, command: Command) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        // A worker that has ended needs no telling.
        let _ = self.commands.send(command);
        self.wake();
    }

    /// Ends the worker's waiting.
    pub fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Returns the queue of changes of its sessions, if there is one.
    #[must_use]
    pub fn changes(&self) -> Option<&Arc<ChangeQueue>> {
        self.changes.as_ref()
    }

    /// Returns `true` if all commands so far have been executed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let is_stopped = self.view.published.lock().unwrap_or_else(PoisonError::into_inner).is_stopped;
        is_stopped || self.view.handled.load(Ordering::Acquire) >= self.sent.load(Ordering::Relaxed)
    }

    /// Returns how long ago the worker last began a turn. It does so every second, whether there is anything to do or not.
    #[must_use]
    pub fn silence(&self, now: Instant) -> Duration {
        let beat = Duration::from_nanos(self.view.beat.load(Ordering::Relaxed));
        now.saturating_duration_since(self.begun).saturating_sub(beat)
    }

    /// Runs the worker's whole life, and sees to it that its end is known however it ends. Gives why it ended, unless it
    /// was told to.
    ///
    /// # Errors
    /// The device's error, or the panic's message.
    pub fn watch_over(&self, life: impl FnOnce() -> io::Result<()>) -> Result<(), String> {
        let why = match catch_unwind(AssertUnwindSafe(life)) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic_message(&*panic),
        };
        let mut published = self.view.published.lock().unwrap_or_else(PoisonError::into_inner);
        let published = Arc::make_mut(&mut published);
        published.is_stopped = true;
        published.last_error = Some(why.clone());
        Err(why)
    }

    /// Returns the worker's published state; up to 0.1 s old while it is busy.
    #[must_use]
    pub fn published(&self) -> Arc<Published> {
        Arc::clone(&self.view.published.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the worker's published state without its lanes, which is short and may be kept: a worker copies what somebody
    /// still reads.
    #[must_use]
    pub fn numbers(&self) -> Published {
        let published = self.view.published.lock().unwrap_or_else(PoisonError::into_inner);
        Published {
            counters: published.counters,
            drops: published.drops.clone(),
            lanes: Vec::new(),
            sessions: published.sessions.clone(),
            restarts: published.restarts,
            stalls: published.stalls,
            last_error: published.last_error.clone(),
            rings: published.rings.clone(),
            is_stopped: published.is_stopped,
        }
    }

    /// Returns its counters alone: the rest is as long as there are lanes.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.view.published.lock().unwrap_or_else(PoisonError::into_inner).counters
    }

    /// Returns the events of its lanes since the last call.
    #[must_use]
    pub fn take_events(&self) -> Vec<(LaneId, CableEvent)> {
        std::mem::take(&mut *self.view.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
