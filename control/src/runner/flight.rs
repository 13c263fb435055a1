//! Plans that are being written, and the answers to their writes.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use super::fence::Permit;
use super::{Order, Rank, Write};
use crate::api::ObjectKey;
use crate::store::{StoreError, StoreEvent};

/// The store that a plan is written to, and its key; a key has one plan at a time.
pub(super) type FlightKey<K> = (usize, K);

/// A plan that is being written.
pub(super) struct Flight {
    pub(super) rank: Rank,
    pub(super) permit: Permit,
    pub(super) order: Order,
    pub(super) writes: VecDeque<Write>,
    /// The objects whose writes have not been answered.
    pub(super) under_way: BTreeSet<ObjectKey>,
    pub(super) started: Instant,
    pub(super) tried: usize,
    /// Whether the store has answered one of the writes.
    pub(super) is_answered: bool,
    /// When the next of the writes that were left out may be tried.
    pub(super) next_try: Option<Instant>,
    pub(super) end: End,
}

/// How a plan ends when what is under way has been answered.
pub(super) enum End {
    /// All that could be was written.
    Written,
    /// The right to write was lost.
    Fenced,
    /// The store does not answer, for this reason.
    Unavailable(String),
    /// A write lost a race, and the later ones depended on it.
    Conflict,
    /// A write was refused, and the later ones depended on it.
    Refused,
}

/// A write that was answered.
pub(super) struct Completed<K> {
    pub(super) key: FlightKey<K>,
    pub(super) write: Write,
    pub(super) outcome: Result<StoreEvent, StoreError>,
}

impl Flight {
    /// Returns a plan of these writes of which none is under way.
    pub(super) fn new(
        writes: Vec<Write>,
        (rank, order, permit): (Rank, Order, Permit),
        started: Instant,
        next_try: Option<Instant>,
    ) -> Self {
        Self {
            rank,
            permit,
            order,
            writes: writes.into(),
            under_way: BTreeSet::new(),
            started,
            tried: 0,
            is_answered: false,
            next_try,
            end: End::Written,
        }
    }

    pub(super) fn try_at(&mut self, at: Instant) {
        self.next_try = Some(self.next_try.map_or(at, |next| next.min(at)));
    }

    /// Leaves out what has not been sent.
    pub(super) fn stop(&mut self, end: End) {
        self.writes.clear();
        if matches!(self.end, End::Written) {
            self.end = end;
        }
    }
}
