//! Whose messages are worth something in a flood: what the gates of all workers read, and the engine alone writes.

use std::net::IpAddr;

use crate::shares::network;

/// The SPIs that IKE messages can be for, and the addresses of peers. A snapshot, replaced in whole when it changes: a
/// few times in an hour, and with every handshake.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Our SPIs of IKE SAs, sorted.
    pub(super) sas: Vec<u64>,
    /// Our SPIs of IKE_SA_INITs of ours that are not answered, sorted.
    pub(super) attempts: Vec<u64>,
    /// Our SPIs of half-open IKE SAs, sorted, and whose they are.
    pub(super) half_open: Vec<(u64, IpAddr)>,
    /// Where peers are, canonical, in no order.
    pub(super) addresses: Vec<IpAddr>,
}

/// What an IKE message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// An IKE SA, or an attempt of ours. Nobody can guess such an SPI: who names it is the peer, or is on the way to it.
    Established,
    /// A half-open IKE SA of the sender: of anybody who has sent an IKE_SA_INIT.
    HalfOpen,
}

impl Directory {
    /// Makes one of these IKE SAs, half-open ones and peers.
    #[cfg(test)]
    pub(crate) fn new(sas: Vec<u64>, half_open: Vec<(u64, IpAddr)>, addresses: Vec<IpAddr>) -> Self {
        Self { sas, attempts: Vec::new(), half_open, addresses }
    }

    /// Finds what a message of `from` is for that has this SPI of ours, if it is for anything.
    #[must_use]
    pub fn receiver(&self, spi: u64, from: IpAddr) -> Option<Receiver> {
        if self.sas.binary_search(&spi).is_ok() || self.attempts.binary_search(&spi).is_ok() {
            return Some(Receiver::Established);
        }
        // Only from where it was begun: otherwise whoever has one could name it in the name of others, who are many, and
        // would have the share of each.
        let at = self.half_open.binary_search_by_key(&spi, |(spi, _)| *spi).ok()?;
        let (_, source) = self.half_open.get(at)?;
        (*source == network(from)).then_some(Receiver::HalfOpen)
    }

    /// Returns `true` if there is a peer at this address.
    #[must_use]
    pub fn has_peer_at(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address.to_canonical())
    }
}
