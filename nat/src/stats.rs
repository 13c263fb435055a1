//! What a worker's translation holds, for metrics and people.

use std::net::Ipv4Addr;

use crate::refusal::{REFUSALS, Refusal};

/// Use of one global address by one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressStats {
    /// The global address.
    pub address: Ipv4Addr,
    /// Sessions with it.
    pub sessions: u32,
    /// TCP ports in use.
    pub tcp_ports: u32,
    /// UDP ports in use.
    pub udp_ports: u32,
    /// ICMP identifiers in use.
    pub icmp_ids: u32,
}

/// What a worker's translation holds and has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Sessions at present.
    pub sessions: u32,
    /// Mappings at present.
    pub mappings: u32,
    /// Sessions that there may be.
    pub session_limit: u32,
    /// Sessions begun.
    pub begun: u64,
    /// Sessions ended, by time or because the rules forbade them.
    pub ended: u64,
    /// Mappings that share their port with another.
    pub shared: u64,
    /// Changes that were not kept because nobody took them.
    pub changes_lost: u64,
    /// Packets refused, by [`Refusal`].
    pub refused: [u64; REFUSALS],
    /// Use of global addresses, in their order.
    pub addresses: Vec<AddressStats>,
}

impl Stats {
    /// Packets refused for a reason.
    #[must_use]
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.refused[refusal as usize]
    }
}
