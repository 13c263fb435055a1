//! Whose messages are worth something in a flood: what the gates of all workers read, and the engine alone writes.

use std::net::IpAddr;
use std::sync::Arc;

use super::engine::IkeEngine;
use super::peer::Peer;
use crate::shares::network;

/// The SPIs that IKE messages can be for, and the addresses of peers. A snapshot, replaced in whole when it changes: a
/// few times in an hour, and with every handshake.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Our SPIs of IKE SAs, sorted.
    sas: Vec<u64>,
    /// Our SPIs of IKE_SA_INITs of ours that are not answered, sorted.
    attempts: Vec<u64>,
    /// Our SPIs of half-open IKE SAs, sorted, and whose they are.
    half_open: Vec<(u64, IpAddr)>,
    /// Where peers are, canonical, in no order.
    addresses: Vec<IpAddr>,
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
    /// A directory of these IKE SAs, half-open ones and peers.
    #[cfg(test)]
    pub(crate) fn new(sas: Vec<u64>, half_open: Vec<(u64, IpAddr)>, addresses: Vec<IpAddr>) -> Self {
        Self { sas, attempts: Vec::new(), half_open, addresses }
    }

    /// What a message of `from` is for that has this SPI of ours, if it is for anything.
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

impl IkeEngine {
    /// Publishes the directory, if it has changed. Before anything is sent that makes peers use what is new in it.
    pub(super) fn publish_directory(&self) {
        let shown = self.load.directory.load();
        let is_same = shown.sas.iter().eq(self.sas.keys())
            && shown.attempts.iter().eq(self.attempts.keys())
            && shown.half_open.iter().copied().eq(self.half_open.sources())
            && shown.addresses.iter().copied().eq(self.peer_addresses());
        if is_same {
            return;
        }
        self.load.directory.store(Arc::new(Directory {
            sas: self.sas.keys().copied().collect(),
            attempts: self.attempts.keys().copied().collect(),
            half_open: self.half_open.sources().collect(),
            addresses: self.peer_addresses().collect(),
        }));
    }

    fn peer_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.peers.values().flat_map(Peer::addresses).map(|address| address.to_canonical())
    }
}
