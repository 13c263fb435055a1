//! The broker, seen as a syncer between a cluster's local store and the store that all clusters share.
//!
//! ```text
//!    local store                                    broker's store
//!    own Cluster, Endpoint   ── label added ──▶     labelled with our ID
//!    labelled copies         ◀──── filter ────      labelled with others' IDs
//!
//!    events ─▶ state (all that is known) ─▶ decide (one name, one write) ─▶ runner (order, back-off, writes)
//! ```
//!
//! * Which cluster an object is from is said by the label `submariner-io/clusterID`: originals have none, copies do.
//!   Labelled objects are never pushed, unlabelled ones never pulled, so nothing echoes.
//! * **Level-driven**: an event only says which name to decide about again, from all that is known of both sides. One
//!   that is lost, doubled or late costs nothing; stale copies go at start because they are stale. [`plan()`] is the
//!   same decision for every name at once.
//! * **Refused** are foreign endpoints that claim addresses of ours, or of an older cluster; those that make no sense;
//!   and what is beyond [`SyncLimits`]. They are listed with the reason, for status. Where we are the later one
//!   ourselves, [`SyncHandle::own_refusal`] says so.
//! * A store that takes all objects but one (its schema, a policy or a quota says no) is well: the one is listed as
//!   refused with the store's reason, tried again when there is news of it, and every minute.
//! * Objects count as equal when body, labels and annotations are; annotations that begin with [`OWN_ANNOTATIONS`]
//!   travel along, but are not put back where somebody dropped them.
//! * A broker that has **lost every other cluster** is not believed for [`SyncConfig::empty_grace`].
//! * While the broker is away nothing is removed: a store that cannot be read is not an empty store. It is tried again
//!   with back-off and jitter, for ever; [`SyncHandle::state`] says since when, why, and when next.
//! * Every write names the version that it replaces or removes, has a time limit, and is asked of the
//!   [guard](WriteGuard) first.

mod claims;
mod config;
mod conflicts;
mod controller;
mod copy;
mod decide;
mod facts;
mod grace;
mod handle;
mod name;
mod networks;
mod plan;
mod quota;
mod removal;
mod side;
mod state;
mod status;
mod withheld;
mod written;

pub use crate::admin::{BrokerLink, BrokerStatus as BrokerState, RefusedCluster as Refused};
pub use config::{SyncConfig, SyncLimits, SyncMode, WriteGuard};
pub use copy::OWN_ANNOTATIONS;
pub use handle::{SyncHandle, Syncer};
pub use networks::{Networks, NotIts};
pub use plan::{OwnRefusal, Plan, View, plan};
pub use side::Side;
pub use status::SyncStats;
