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
    /// Take what is its of what a sibling says of its sessions, and pass it on.
    Sessions {
        /// Workers that are still to see it after this one.
        left: u16,
        /// Whether the workers before did all that it says.
        is_all_done: bool,
    },
}

impl HandoffKind {
    /// Which way a packet goes that is to be translated.
    pub(crate) fn crossing(self) -> Option<Crossing> {
        match self {
            Self::Translate(crossing, _) => Some(crossing),
            Self::Seal | Self::Open | Self::Control(_) | Self::Sessions { .. } => None,
        }
    }
}

/// Which way a packet is translated. What a sibling has sent, because its translation is ours, goes no further than to
/// the worker that owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crossing {
    /// Outbound: its source.
    Out,
    /// Inbound, from a peer: its destination.
    In,
    /// From inside to one of our own global IPs: its source has been translated, its destination is to be.
    Back,
    /// Outbound, from a sibling.
    RelayedOut,
    /// Inbound, from a sibling.
    RelayedIn,
    /// From inside to one of our own global IPs, from the sibling that has translated its source.
    RelayedBack,
}

impl Crossing {
    /// In an order in which each of them may bring forth the next.
    pub(crate) const ALL: [Self; 6] =
        [Self::Out, Self::RelayedOut, Self::In, Self::RelayedIn, Self::Back, Self::RelayedBack];

    /// Whether the source is translated.
    pub(crate) fn is_outbound(self) -> bool {
        matches!(self, Self::Out | Self::RelayedOut)
    }

    /// Whether a sibling has sent it.
    pub(crate) fn is_relayed(self) -> bool {
        matches!(self, Self::RelayedOut | Self::RelayedIn | Self::RelayedBack)
    }
}
