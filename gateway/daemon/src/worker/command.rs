//! Commands to a worker.

use tokio::sync::oneshot;
use trieste_cables::Transmit;
use trieste_pipeline::{LaneCommand, NatConfig, Trace, TraceQuestion, health};

use super::Restore;

/// A command to a worker.
#[derive(Debug)]
pub enum Command {
    /// About a lane.
    Lane(LaneCommand),
    /// To send a datagram of the slow half that all cables share.
    Transmit(Transmit),
    /// To take over sessions of the process before.
    Restore(Restore),
    /// To say what becomes of a packet.
    Trace(TraceJob),
    /// To probe paths, and to translate, by other settings.
    Settings(Box<WorkerSettings>),
    /// To end: no more packets are taken in, and what is queued is sent.
    Stop,
}

/// Settings of a worker that may change while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerSettings {
    /// How paths are probed.
    pub health: health::Config,
    /// Timers and limits of translation.
    pub nat: NatConfig,
}

/// A packet that somebody asks about.
#[derive(Debug)]
pub struct TraceJob {
    /// The packet.
    pub question: TraceQuestion,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Trace>,
}
