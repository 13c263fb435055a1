//! Gateways, pods and a bad network under a virtual clock.
//!
//! ```text
//!   flows ─▶ Gateway (pipeline, one per worker) ─▶ Network (seeded) ─▶ Gateway ─▶ flows' ledgers
//!                         └────────────── World: one heap of events, one clock ──────────────┘
//! ```
//!
//! The laws that hold in every world, whatever its network does, are checked after every event: packets are
//! accounted for, what is delivered was sent, arrives unchanged, and arrives once.
#![forbid(unsafe_code)]

mod gateway;
mod network;
mod random;
mod traffic;
mod world;

pub use network::Network;
pub use traffic::Ledger;
pub use world::World;
