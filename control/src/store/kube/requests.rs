//! Counters of requests to an API server: what was asked, and how it went.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;

/// The verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Reads all objects, a page at a time.
    List,
    /// Opens a stream of changes.
    Watch,
    /// Reads one object.
    Get,
    /// Creates.
    Create,
    /// Replaces.
    Update,
    /// Changes a part.
    Patch,
    /// Deletes.
    Delete,
    /// Asks for a sign of life.
    Probe,
}

/// How a request went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The server did it (2xx).
    Done,
    /// The server says that the request is wrong, late or about nothing (4xx).
    Refused,
    /// The server does not know or allow us (401, 403).
    Denied,
    /// The server asks us to slow down (429).
    Throttled,
    /// The server failed (5xx, or an answer that makes no sense).
    Failed,
    /// No answer: no connection, no TLS, out of time.
    Lost,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 8] = [
        Self::List,
        Self::Watch,
        Self::Get,
        Self::Create,
        Self::Update,
        Self::Patch,
        Self::Delete,
        Self::Probe,
    ];

    /// Returns the verb as a metric label and in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Watch => "watch",
            Self::Get => "get",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Probe => "probe",
        }
    }
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 6] =
        [Self::Done, Self::Refused, Self::Denied, Self::Throttled, Self::Failed, Self::Lost];

    /// Returns the outcome as a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Denied => "denied",
            Self::Throttled => "throttled",
            Self::Failed => "failed",
            Self::Lost => "lost",
        }
    }

    pub(super) fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            200..=299 => Self::Done,
            401 | 403 => Self::Denied,
            429 => Self::Throttled,
            400..=499 => Self::Refused,
            _ => Self::Failed,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How many requests there were since the store was made; each try counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    counts: [[u64; Outcome::ALL.len()]; Verb::ALL.len()],
}

impl Requests {
    /// Requests of one verb that went so.
    pub fn count(&self, verb: Verb, outcome: Outcome) -> u64 {
        self.counts[verb as usize][outcome as usize]
    }

    /// Requests of one verb, however they went.
    pub fn of(&self, verb: Verb) -> u64 {
        self.counts[verb as usize].iter().sum()
    }

    /// Counts all requests.
    pub fn total(&self) -> u64 {
        Verb::ALL.into_iter().map(|verb| self.of(verb)).sum()
    }

    /// Returns every count, zeros included, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (Verb, Outcome, u64)> {
        Verb::ALL.into_iter().flat_map(move |verb| {
            Outcome::ALL.into_iter().map(move |outcome| (verb, outcome, self.count(verb, outcome)))
        })
    }
}

#[derive(Default)]
pub(super) struct Counters([[AtomicU64; Outcome::ALL.len()]; Verb::ALL.len()]);

impl Counters {
    pub(super) fn add(&self, verb: Verb, outcome: Outcome) {
        self.0[verb as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Requests {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests { counts: self.0.each_ref().map(|outcomes| outcomes.each_ref().map(read)) }
    }
}
