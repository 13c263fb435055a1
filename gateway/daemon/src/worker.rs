//! The worker loop: one thread, one TUN queue, one set of sockets, one pipeline; run to completion.
//!
//! ```text
//!   commands ─▶┐
//!   inbox ────▶│ turn: wire ▸ inbound ▸ TUN,  TUN ▸ outbound ▸ wire,  timers ──▶ published view
//!   stop ─────▶┘   nothing to do: wait for a descriptor, a wake-up or the next timer
//! ```
//!
//! A panic inside a turn costs the packets that were in its hands and nothing else: lanes keep their keys, the
//! other workers do not notice, and the next turn begins at once. One that panics turn after turn ends, and so does one
//! that panics elsewhere: that is always reported ([`WorkerHandle::watch_over`]), and the process is restarted.

mod command;
mod handle;
mod panic;
mod publish;
mod sessions;
mod turn;
mod wait;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::Receiver;
use tokio::sync::watch;
use trieste_io::PacketIo;
use trieste_io::poll::Waker;
use trieste_packet::{Batch, WorkerId};
use trieste_pipeline::Pipeline;

use crate::capture::CaptureHub;
use crate::globalnet::sessions::changes::ChangeQueue;
use crate::handoff::Exchange;
use handle::SharedState;
use sessions::Sessions;

pub use command::{Command, TraceJob, WorkerSettings};
pub use handle::{Published, WorkerHandle};
pub(crate) use panic::panic_message;
pub use sessions::{PublishedSessions, Restore};
pub use wait::DeviceWait;

/// The longest wait of an idle worker: a lane's timers are finer when there is a lane.
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// Turns in a row that may panic. Ours: a packet that nobody could read costs one; what panics time and again does so over
/// what the worker holds, which only a new process can leave behind.
const PANICS: u32 = 16;

/// A worker, on its own thread once it runs.
pub struct Worker<T, W> {
    id: WorkerId,
    pipeline: Pipeline,
    tun: T,
    wire: W,
    exchange: Arc<Exchange>,
    hub: Option<Arc<CaptureHub>>,
    hub_generation: u64,
    commands: Receiver<Command>,
    view: Arc<SharedState>,
    sessions: Sessions,
    paths_generation: u64,
    paths_changed: watch::Sender<u64>,
    batch: Batch,
    next_publish: Instant,
    next_timer: Instant,
    begun: Instant,
    restarts: u64,
    panics_in_a_row: u32,
    last_error: Option<String>,
    is_stopping: bool,
}

/// The parts of a worker.
pub struct WorkerParts<T, W> {
    /// Its number.
    pub id: WorkerId,
    /// The CPU that it will be pinned to.
    pub cpu: Option<usize>,
    /// The packet path.
    pub pipeline: Pipeline,
    /// The inside.
    pub tun: T,
    /// The outside.
    pub wire: W,
    /// The inboxes.
    pub exchange: Arc<Exchange>,
    /// Captures, if there can be any.
    pub hub: Option<Arc<CaptureHub>>,
    /// The queue of changes of its sessions, if there is one.
    pub changes: Option<Arc<ChangeQueue>>,
    /// Ends its waiting.
    pub waker: Option<Waker>,
    /// Receives the path table's generation whenever the state of a path changes; one for all workers.
    pub paths_changed: watch::Sender<u64>,
}

impl<T: PacketIo, W: PacketIo> Worker<T, W> {
    /// Returns a worker and its handle.
    #[must_use]
    pub fn new(parts: WorkerParts<T, W>, now: Instant) -> (Self, WorkerHandle) {
        let (commands, receiver) = crossbeam::channel::unbounded();
        let view = Arc::new(SharedState::default());
        let handle = WorkerHandle {
            id: parts.id,
            cpu: parts.cpu,
            commands,
            waker: parts.waker,
            changes: parts.changes.clone(),
            view: Arc::clone(&view),
            sent: Arc::default(),
            begun: now,
        };
        let worker = Self {
            id: parts.id,
            pipeline: parts.pipeline,
            tun: parts.tun,
            wire: parts.wire,
            exchange: parts.exchange,
            hub: parts.hub,
            hub_generation: 0,
            commands: receiver,
            view,
            sessions: Sessions::new(parts.changes, now),
            paths_generation: 0,
            paths_changed: parts.paths_changed,
            batch: Batch::new(),
            next_publish: now,
            next_timer: now,
            begun: now,
            restarts: 0,
            panics_in_a_row: 0,
            last_error: None,
            is_stopping: false,
        };
        (worker, handle)
    }

    /// Runs until a command stops it, or a device fails.
    ///
    /// # Errors
    /// The device's error.
    pub fn run(mut self, mut wait: impl FnMut(&mut Self, Duration) -> io::Result<()>) -> io::Result<()> {
        let result = loop {
            let now = Instant::now();
            match self.guarded_turn(now) {
                Ok(_) if self.is_stopping => break Ok(()),
                Ok(true) => {}
                Ok(false) => {
                    let probes = self.pipeline.poll_probes().unwrap_or(self.next_timer);
                    let timer = self.next_timer.min(probes).saturating_duration_since(now).min(IDLE_WAIT);
                    if let Err(error) = wait(&mut self, timer) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = &result {
            self.last_error = Some(error.to_string());
        }
        self.publish(Instant::now(), true);
        result
    }

    /// Runs one turn; a panic is caught, counted and reported. Returns `true` if there was anything to do.
    ///
    /// # Errors
    /// A device's fatal error.
    pub fn guarded_turn(&mut self, now: Instant) -> io::Result<bool> {
        match catch_unwind(AssertUnwindSafe(|| self.turn(now))) {
            Ok(result) => {
                self.panics_in_a_row = 0;
                result
            }
            Err(panic) => {
                self.restarts += 1;
                self.panics_in_a_row += 1;
                let message = panic_message(&*panic);
                if self.panics_in_a_row >= PANICS {
                    return Err(io::Error::other(format!(
                        "{PANICS} turns in a row have panicked: {message}"
                    )));
                }
                self.last_error = Some(message);
                self.batch.drain();
                self.pipeline.recover(now);
                self.publish(now, false);
                Ok(true)
            }
        }
    }

    /// Replaces the worker's socket and returns the old one; datagrams that wait are sent by the new one.
    pub fn replace_wire(&mut self, wire: W) -> W {
        std::mem::replace(&mut self.wire, wire)
    }
}
