//! Packets that cross workers: the one place where they do.
//!
//! Every worker has an inbox, a bounded lock-free queue that all others push to. A full inbox hands the packet
//! back; the caller counts it. Whoever has pushed wakes the owner once per batch, not once per packet.

mod exchange;
#[cfg(test)]
mod model;
mod sync;

pub use exchange::Exchange;
