//! Why a packet is translated as it is, for people.

use std::net::Ipv4Addr;

use crate::owner::Bucket;
use crate::refusal::Refusal;
use crate::rewrite::Rewrite;
use trieste_packet::WorkerId;

/// What would happen to a packet, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What is written into it, or why it is dropped.
    pub outcome: Result<Rewrite, Refusal>,
    /// Whether a session or mapping that is there already decided; else a new one would be made.
    pub is_live: bool,
    /// The global address that is used, where one is.
    pub global: Option<Ipv4Addr>,
    /// The bucket that the packet belongs to.
    pub bucket: Bucket,
    /// The worker that owns the bucket.
    pub owner: WorkerId,
    /// What was looked at, in order; one sentence each.
    pub steps: Vec<String>,
}
