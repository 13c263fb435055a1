#![forbid(unsafe_code)]
//! Globalnet translation: which global address and port stands for which address and port inside, and back.
//!
//! ```text
//!            Rules (immutable, from objects)                 Nat (one per worker)
//!  Facts ──▶ static pairs: services, the gateway ─────────▶ nothing kept
//!        ──▶ headless targets: one address, ports kept ───▶ session
//!        ──▶ egress rules: pods > namespace > cluster ────▶ mapping (inside ↔ outside) ─▶ session (with a remote)
//!                                                               │
//!                              Rewrite, Handle ◀────────────────┘
//! ```
//!
//! [`Nat::in2out`] and [`Nat::out2in`] decide once per flow; what they return is applied to every packet of the flow
//! and [`Nat::touch`] keeps its session alive. Nothing here opens a socket, reads a clock or draws randomness, and
//! everything that a packet can fill is bounded by [`Limits`]. IPv4 only: there is no global IPv6 address.

mod config;
mod copy;
mod explain;
mod facts;
mod fragment;
mod gateways;
mod icmp;
mod in2out;
mod index;
mod journal;
mod mapping;
mod nat;
mod out2in;
mod owner;
mod phase;
mod ports;
mod quarantine;
mod record;
mod refusal;
mod restore;
mod rewrite;
mod rules;
mod session;
mod share;
mod stats;
mod table;
mod unsolicited;
mod wheel;

pub use config::{Config, Limits, Timers};
pub use copy::Copied;
pub use explain::Explanation;
pub use facts::{Facts, Kind};
pub use fragment::{FragmentCounters, FragmentKey, FragmentLimits, Fragments};
pub use gateways::{Division, Gateway, MAX_GATEWAYS};
pub use icmp::Quote;
pub use nat::{Handle, Nat, Translation};
pub use owner::{BUCKETS, Bucket, OwnerKey};
pub use record::{Change, Cursor, Phase, RECORD_BYTES, Record};
pub use refusal::Refusal;
pub use rewrite::{Rewrite, Side};
pub use rules::{EgressKind, EgressRule, IngressKind, IngressRule, RuleId, Rules, RulesBuilder, RulesError};
pub use share::{SLOTS, Share, slot_of};
pub use stats::{AddressStats, Stats};
pub use unsolicited::Unsolicited;
