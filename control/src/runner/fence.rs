//! The right to write, asked before every write.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::election::{Candidate, Leadership, Term};

/// Whether a controller may write at a moment.
#[derive(Clone, Default)]
pub enum Fence {
    /// It may always: what it writes is its own, or its versions are protection enough.
    #[default]
    Open,
    /// While the candidate leads, from `settle` after it began to: what its predecessor wrote last may still be on its
    /// way here. A plan of one term is not carried on in another.
    Term {
        /// The candidate.
        candidate: Candidate,
        /// How long a new leader observes before it writes.
        settle: Duration,
    },
    /// While this returns `true`. When it does not and something is to be written, the controller ends.
    Guard(Arc<dyn Fn() -> bool + Send + Sync>),
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Open => "Fence::Open",
            Self::Term { .. } => "Fence::Term",
            Self::Guard(_) => "Fence::Guard",
        })
    }
}

/// The request of a plan to the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceRequest {
    /// A renewal soon, as proof that nobody else leads: [`Candidate::confirm`].
    Confirm,
    /// A term above this one, which was found on an object: [`Candidate::raise_term`].
    RaiseTerm(Term),
}

/// A right to write, as of a moment; the same right is equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permit {
    /// Without an election.
    Open,
    /// Within this term.
    Term(Term),
}

impl Fence {
    /// Returns the fence of a candidate that observes for `settle` after it began to lead; without one, an open fence.
    #[must_use]
    pub fn of(candidate: Option<Candidate>, settle: Duration) -> Self {
        candidate.map_or(Self::Open, |candidate| Self::Term { candidate, settle })
    }

    /// Returns the right to write at `now`; `None` if there is none.
    pub(super) fn permit(&self, now: Instant) -> Option<Permit> {
        match self {
            Self::Open => Some(Permit::Open),
            Self::Term { candidate, .. } => candidate.term(now).map(Permit::Term),
            Self::Guard(may_write) => may_write().then_some(Permit::Open),
        }
    }

    /// Returns the leadership at `now`, where there is an election.
    pub(super) fn leadership(&self, now: Instant) -> Option<Leadership> {
        match self {
            Self::Term { candidate, .. } => candidate.leadership().borrow().filter(|held| held.is_valid(now)),
            Self::Open | Self::Guard(_) => None,
        }
    }

    /// Returns the time that a new leader observes before it writes.
    pub(super) fn settle(&self) -> Duration {
        match self {
            Self::Term { settle, .. } => *settle,
            Self::Open | Self::Guard(_) => Duration::ZERO,
        }
    }

    /// Returns what says that the leadership has changed, where there is an election.
    pub(super) fn changes(&self) -> Option<watch::Receiver<Option<Leadership>>> {
        match self {
            Self::Term { candidate, .. } => Some(candidate.leadership()),
            Self::Open | Self::Guard(_) => None,
        }
    }

    /// Returns `true` if who has no right to write does not get one again.
    pub(super) const fn is_final(&self) -> bool {
        matches!(self, Self::Guard(_))
    }

    /// Passes a request to the election, where there is one.
    pub(super) fn request(&self, request: FenceRequest) {
        match (self, request) {
            (Self::Term { candidate, .. }, FenceRequest::Confirm) => candidate.confirm(),
            (Self::Term { candidate, .. }, FenceRequest::RaiseTerm(found)) => candidate.raise_term(found),
            (Self::Open | Self::Guard(_), _) => {}
        }
    }
}
