//! Leader election: which of a cluster's gateways is the active one.
//!
//! The record is a Kubernetes Lease, the rules are client-go's, so that upstream's gateways can be candidates beside
//! ours. A record is evaluated by when *we* saw it last change, never by the times in it. Beyond client-go:
//!
//! * The Lease is watched and not only polled: a release, an expiry, a deletion and a takeover count at once.
//! * A leader's own clock ends its leadership before another's can begin ([`Elector`] says why), also when the process
//!   was stopped for a while: [`Candidate::is_leader`] is asked before each write.
//! * It is given back on a planned stop.
//! * Who could not read the Lease for a renew deadline lets its holder have the lease duration anew: after an outage of
//!   the API server the old leader, whose path has carried traffic all the while, leads again.
//! * `leaseTransitions` is the [`Term`], a fence for writes: it grows with every change of holder, also when somebody
//!   edits the Lease by hand.
//!
//! **Assumed**: clocks run at equal rates, within what the lease duration leaves over the renew deadline; what they
//! show does not matter. A machine that sleeps as a whole stops its clock too; what it still writes then is refused,
//! because every write names the version it is based on, or is corrected by the newer term. Somebody who deletes the
//! Lease, or writes another holder into it without counting the transition, can make two terms share a number until
//! the renew deadline.

mod elector;
mod lease;
mod request;
mod run;
mod timings;

use std::fmt;
use std::time::{Duration, Instant};

pub use elector::Elector;
pub use lease::{Lease, LeaseSpec, MicroTime};
pub use request::{Failure, Request};
pub use run::{Candidate, DEFAULT_RELEASE_TIMEOUT, spawn};
pub use timings::{Timings, TimingsError};

/// The Lease of a cluster's gateways, upstream's name.
pub const GATEWAY_LEASE: &str = "submariner-gateway-lock";

/// The Lease of the gateway that gives out global IPs, upstream's name.
pub const GLOBALNET_LEASE: &str = "submariner-globalnet-lock";

/// The configuration of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionConfig {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub lease: String,
    /// This candidate's identity. A candidate with the same one takes over at once, as after a restart.
    pub identity: String,
    /// How long leadership lasts.
    pub timings: Timings,
}

impl ElectionConfig {
    /// Returns the election of a cluster's active gateway, with upstream's Lease and identity.
    pub fn gateway(namespace: impl Into<String>, hostname: &str, timings: Timings) -> Self {
        Self {
            namespace: namespace.into(),
            lease: GATEWAY_LEASE.to_owned(),
            identity: format!("{hostname}-submariner-gateway"),
            timings,
        }
    }

    /// Describes the election of who gives out global IPs, with upstream's Lease, identity and times, for a program that
    /// does nothing else.
    pub fn globalnet(namespace: impl Into<String>, hostname: &str) -> Self {
        let lease = GLOBALNET_LEASE.to_owned();
        Self { lease, ..Self::gateway(namespace, hostname, Timings::globalnet()) }
    }

    /// Describes the same election for a gateway that gives out global IPs itself. Only the active one is to be eligible.
    ///
    /// Its identity is another one than that of [`ElectionConfig::globalnet`], which a program of its own has that may
    /// run on the same node, ours or upstream's: of two candidates with one identity the one that may not lead gives
    /// back what the other holds.
    pub fn globalnet_of_gateway(namespace: impl Into<String>, hostname: &str) -> Self {
        Self { identity: format!("{hostname}-trieste-gateway"), ..Self::globalnet(namespace, hostname) }
    }
}

/// How often leadership has changed hands: the number of a term. A write of an older term must not be the last word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(i32);

impl Term {
    /// Ours: the highest term. Anything above was not counted but made up, and must not shut out everybody for ever.
    pub const MAX: Self = Self(1 << 30);

    /// Creates a term of this number; `None` for one that cannot be.
    pub fn new(number: i64) -> Option<Self> {
        i32::try_from(number).ok().map(Self).filter(|term| (Self(0)..=Self::MAX).contains(term))
    }

    /// Returns the number.
    pub fn number(self) -> i64 {
        self.0.into()
    }

    /// Returns the term after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1).min(Self::MAX)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A term of leadership, and until when it may be believed in without another renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// The term.
    pub term: Term,
    /// When the newest successful renewal was asked for: nobody else led at that time.
    pub renewed: Instant,
    valid_until: Instant,
}

impl Leadership {
    /// Creates the leadership that a write gives which was `sent` and `answered` at these times.
    fn new(term: Term, sent: Instant, answered: Instant, timings: &Timings) -> Self {
        let others_take_over = sent + timings.lease_duration();
        let expiry = answered + timings.renew_deadline();
        Self { term, renewed: sent, valid_until: expiry.min(others_take_over - timings.margin()) }
    }

    /// Returns `true` if it lasts at `now`.
    pub fn is_valid(&self, now: Instant) -> bool {
        now < self.valid_until
    }

    /// Returns for how much longer than `now` it lasts without another renewal.
    pub fn remaining(&self, now: Instant) -> Duration {
        self.valid_until.saturating_duration_since(now)
    }
}

/// An event of an election.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElectionEvent {
    /// This candidate leads, in this term; also when its term's number has been raised while it led.
    Acquired {
        /// The term.
        term: Term,
    },
    /// This candidate no longer leads.
    Lost {
        /// The term that has ended.
        term: Term,
        /// Why.
        reason: LossReason,
    },
    /// Somebody else, or this candidate, is named in the Lease.
    HolderChanged {
        /// The new holder; empty when there is none.
        holder: String,
    },
}

/// Why a leader leads no more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// It could not renew in time; why the last request failed, if it did and did not merely hang.
    RenewDeadline(Option<String>),
    /// The Lease names another holder, or nobody.
    TakenOver(String),
    /// It gave the Lease back.
    Released,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RenewDeadline(None) => f.write_str("the Lease was not renewed in time"),
            Self::RenewDeadline(Some(why)) => write!(f, "the Lease was not renewed in time: {why}"),
            Self::TakenOver(holder) if holder.is_empty() => {
                f.write_str("somebody cleared the Lease's holder")
            }
            Self::TakenOver(holder) => write!(f, "the Lease names {holder}"),
            Self::Released => f.write_str("the Lease was given back"),
        }
    }
}
