//! Virtual time, a bad network and seeds: what every simulation is made of.
//!
//! ```text
//!   seeds::each ─ seed ─▶ Random ─▶ Network: loss, delay, copies, cuts ─▶ Queue: clock and events ─▶ the world under test
//! ```
//!
//! A world owns a [`Queue`] and a [`Random`], and nothing else decides what happens: the same seed makes the same world,
//! on every platform.
#![forbid(unsafe_code)]

mod network;
mod queue;
mod random;
pub mod seeds;

pub use network::{Link, Network};
pub use queue::Queue;
pub use random::Random;
