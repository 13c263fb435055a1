//! What a packet is, and nothing about where it goes.
//!
//! ```text
//!  Pool ──alloc──▶ PacketBuf ──wrapped by──▶ Packet { bytes, layout, checksum, outer, decision }
//!   ▲                                            │ many
//!   └───────── dropped or recycled ──────────────┴──▶ Batch, the unit every stage works on
//! ```
//!
//! A [`Packet`] may be a *train*: one header followed by many segments, as the kernel hands them over with
//! segmentation offload. Decisions are taken once per train; [`segment`] cuts it into segments and
//! [`coalesce`] builds it again. Nothing here opens a socket, reads a clock or draws randomness.

pub mod checksum;
pub mod coalesce;
mod drop_reason;
mod flow;
pub mod fragment;
pub mod icmp;
mod keyed_hash;
mod packet;
pub mod pool;
pub mod rendezvous;
pub mod segment;
pub mod siphash;
mod split_mix;
mod token_bucket;
pub mod wire;

mod batch;

pub use batch::{Batch, MAX_BATCH};
pub use drop_reason::{DropReason, Drops, Witness};
pub use flow::FlowKey;
pub use keyed_hash::{HashKey, KeyedHasher, KeyedState, fold};
pub use packet::{
    CableId, Checksum, ClusterId, Decision, LaneId, Layout, LayoutKind, Outer, Packet, PathId, SiblingId,
    WorkerId,
};
pub use pool::{PacketBuf, Pool, PoolConfig};
pub use rendezvous::GatewayKey;
pub use split_mix::SplitMix64;
pub use token_bucket::{Allowance, TokenBucket};
