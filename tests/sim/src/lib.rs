//! Gateways, pods and a bad network under a virtual clock.
//!
//! ```text
//!   flows ─▶ Gateway (pipeline, one per worker) ─▶ Network (seeded) ─▶ Gateway ─▶ flows' ledgers
//!                         └───────────── World: one queue of events, one clock ──────────────┘
//! ```
//!
//! The laws that hold in every world, whatever its network does, are checked after every event: packets are
//! accounted for, what is delivered was sent, arrives unchanged, and arrives once. One more member than asked for is hostile.
#![forbid(unsafe_code)]

mod gateway;
mod hostile;
mod traffic;
mod world;

pub use traffic::Ledger;
pub use world::{BAD, GOOD, World};
