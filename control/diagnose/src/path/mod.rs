//! The walk along one connection, from a pod of one cluster to a pod of another and back.
//!
//! ```text
//!   source pod ─▶ its node ─▶ vx-submariner ─▶ gateway ─▶ cable ─▶ gateway ─▶ vx-submariner ─▶ node ─▶ pod
//!        ▲                                                                                            │
//!        └────────────────────────────────────── and back ────────────────────────────────────────────┘
//! ```
//!
//! Probes locate: they are watched on every node of the way, and the hop behind the last sight is the broken one. State
//! explains: what is wrong on that hop is the reason. Where there is nothing to probe with, or from, state alone judges.
//!
//! * [`gather`](gather()) — asks both clusters and their nodes, sends the probes;
//! * `read` — what the API servers know, before that;
//! * `global` — of that, the addresses that Globalnet gives;
//! * [`evidence`] — what came of it;
//! * [`judge`](judge()) — a pure function of the evidence;
//! * [`verdict`] — what it says.

pub mod evidence;
mod gather;
mod global;
mod judge;
mod read;
mod request;
mod trace;
pub mod verdict;

pub use evidence::Evidence;
pub use gather::{gather, give_up};
pub use judge::judge;
pub use request::{Destination, PathRequest, PodRef, SideRequest};
pub use verdict::{Cause, Diagnosis, Finding, Health, Hop};
