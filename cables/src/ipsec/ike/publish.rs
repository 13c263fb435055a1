//! What the engine shows to the gates.

use std::net::IpAddr;
use std::sync::Arc;

use super::Directory;
use super::engine::IkeEngine;
use super::peer::Peer;

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

    /// Lists where peers are.
    pub(super) fn peer_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.peers.values().flat_map(Peer::addresses).map(|address| address.to_canonical())
    }
}
