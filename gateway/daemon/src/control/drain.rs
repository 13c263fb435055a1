//! How far this gateway has handed its flows over.

use std::time::Instant;

use jiff::Timestamp;

/// How far this gateway has handed its flows over.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// Whether somebody has asked for it.
    pub(super) is_asked: bool,
    /// Whether this gateway is about to stop.
    pub(super) is_leaving: bool,
    pub(super) since: Option<Timestamp>,
    /// When this gateway has started, until its node is ready for it.
    pub(super) started: Option<Instant>,
    /// Since when the node's route agent can know of this gateway.
    pub(super) published: Option<Instant>,
    /// Whether it is known by now who the others are.
    pub(super) has_members: bool,
    /// The last announcement: whether other gateways are preferred.
    pub(super) declines: Option<bool>,
    /// Since when this gateway could carry what its siblings carry, and by when it is taken for ready anyway.
    pub(super) carries_since: Option<Instant>,
    pub(super) ready_by: Option<Instant>,
    /// How many packets had come, and since when no more have.
    pub(super) packets: u64,
    pub(super) quiet_since: Option<Instant>,
}

impl Drain {
    /// Returns `true` if flows have to be handed over.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_asked || self.is_leaving
    }
}
