//! Commands to a worker.

use tokio::sync::oneshot;
use trieste_cables::Transmit;
use trieste_pipeline::{LaneCommand, Trace, TraceQuestion};

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
    /// To end: no more packets are taken in, and what is queued is sent.
    Stop,
}

/// A packet that somebody asks about.
#[derive(Debug)]
pub struct TraceJob {
    /// The packet.
    pub question: TraceQuestion,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Trace>,
}
