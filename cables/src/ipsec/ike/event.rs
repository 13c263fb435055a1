//! What the slow half tells its shell.

use trieste_packet::LaneId;

/// Something that happened to a cable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IkeEvent {
    /// The first child SA of the lane is there: packets can be sealed.
    Up {
        /// The lane.
        lane: LaneId,
    },
    /// No child SA of the lane is left. Attempts go on by themselves.
    Down {
        /// The lane.
        lane: LaneId,
        /// Why, for people.
        reason: String,
    },
    /// A negotiation of an IKE SA failed; it is tried again.
    Failed {
        /// The lane.
        lane: LaneId,
        /// Why, in the words of the peer's notify where it sent one: `AUTHENTICATION_FAILED (peer)`.
        reason: String,
    },
    /// A child SA could not be made or renewed; it is tried again. Others of the lane are not concerned.
    ChildFailed {
        /// The lane.
        lane: LaneId,
        /// The subnets it is for, as [`Selectors`](crate::ipsec::Selectors) read.
        selectors: String,
        /// Why, in the words of the peer's notify where it sent one: `TS_UNACCEPTABLE (peer)`.
        reason: String,
    },
    /// Orders wait for the lane: its worker is to be woken.
    Poke(LaneId),
}
