//! Which worker a packet belongs to, and packets on their way there.
//!
//! The owner is a function of the packet and the tables: the owner of the lane that seals or opens it.

use trieste_packet::{LaneId, Packet, WorkerId};

/// A packet for another worker.
#[derive(Debug)]
pub struct Handoff {
    /// Who owns it.
    pub to: WorkerId,
    /// What is to be done with it.
    pub kind: HandoffKind,
    /// The packet or train.
    pub packet: Packet,
}

/// What the owner has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoffKind {
    /// Seal it; it has been classified.
    Seal,
    /// Open it; it is a data message for one of the owner's lanes.
    Open,
    /// Give it to this lane's slow half; it has passed the gate.
    Control(LaneId),
}
