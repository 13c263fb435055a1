//! The packet path between TUN and cables, without IO.
//!
//! ```text
//!  from TUN ─▶ outbound: parse ▸ classify (in2out) ▸ clamp MSS ▸ fit MTU ▸ owner ▸ seal ─▶ to the wire
//!  to TUN ◀─ inbound: clamp MSS ◂ ECN ◂ (out2in) classify, source check ◂ coalesce ◂ open ◂ demux ◀─ from the wire
//!   └─▶ a service with a back end at another node: VXLAN ─▶ to the wire
//!                                         └─▶ a probe from a tunnel address: its reply ▸ seal ─▶ to the wire
//! ```
//!
//! With globalnet ([`Tables::rules`]) IPv4 packets are translated where they are classified, by one look at the flow
//! cache, on the worker that owns the flow's translation.
//!
//! A [`Pipeline`] belongs to one worker. It takes batches, the time of the batch, and the immutable [`Tables`];
//! it leaves packets in its output batches. It opens no socket, reads no clock and takes no lock.
//!
//! TTL: the host's stack forwards a packet once on each side of the cable and decrements there; the pipeline is
//! part of that hop and leaves the inner TTL alone. The outer TTL is the host's default (RFC 2003 section 3.1).

#![forbid(unsafe_code)]

mod answers;
mod board;
mod classify;
mod counters;
mod deadlines;
mod demux;
mod ecn;
mod flow;
mod globalnet;
pub mod health;
mod inbound;
pub mod inside;
mod lanes;
mod mtu;
mod outbound;
mod owner;
mod pipeline;
mod probe;
mod quote;
mod relay;
mod seal;
pub mod services;
mod steer;
mod tables;
mod tap;
mod trace;
mod watching;

pub use board::{Board, PathState};
pub use counters::{Conservation, Counters};
pub use ecn::decapsulate as ecn_decapsulate;
pub use globalnet::{EXPIRY_PER_BATCH, Fleet, SharingStats, SiblingStanding};
pub use lanes::{LaneCommand, LaneReport};
pub use owner::{Crossing, Handoff, HandoffKind};
pub use pipeline::{Config, Pipeline};
pub use steer::{Candidate, decide as steer};
pub use tables::{
    LaneEnd, LaneInfo, Path, PathConfig, RemoteCluster, Selection, Sibling, Tables, TablesBuilder,
    TablesError, owner_of,
};
pub use tap::{Point, Tap};
pub use trace::{Trace, TraceQuestion, TraceStep};
pub use trieste_nat::Config as NatConfig;
