//! Which worker a packet belongs to, and packets on their way there.
//!
//! The owner is a function of the packet and the tables: the owner of the lane that seals or opens it; with globalnet,
//! before that or after it, the owner of the flow's translation, and of fragments the worker where they gather.

use trieste_nat::Facts;
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
    /// Translate it. What is known of its flow goes along; a fragment of which nothing is known yet gathers there.
    Translate(Crossing, Option<Facts>),
}

impl HandoffKind {
    /// Which way a packet goes that is to be translated.
    pub(crate) fn crossing(self) -> Option<Crossing> {
        match self {
            Self::Translate(crossing, _) => Some(crossing),
            Self::Seal | Self::Open | Self::Control(_) => None,
        }
    }
}

/// Which way a packet is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crossing {
    /// Outbound: its source.
    Out,
    /// Inbound, from a peer: its destination.
    In,
    /// From inside to one of our own global IPs: its source has been translated, its destination is to be.
    Back,
}

impl Crossing {
    /// In an order in which each of them may bring forth the next.
    pub(crate) const ALL: [Self; 3] = [Self::Out, Self::In, Self::Back];
}
