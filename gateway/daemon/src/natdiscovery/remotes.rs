//! Which remote gateways discovery has been asked for: what is new and what is gone, without a copy of all.

use std::collections::BTreeMap;
use std::sync::Arc;

use trieste_control::natdiscovery::Remote;

use super::Discovery;
use crate::tables::Peer;

/// The remote gateways that discovery looks for, by cable name.
#[derive(Debug, Default)]
pub(crate) struct Remotes {
    known: BTreeMap<String, (Arc<Peer>, u64)>,
    /// How often they were set; marks those that are still there.
    pass: u64,
    /// Whether some were refused the last time.
    has_refused: bool,
}

impl Remotes {
    /// Sets the gateways that discovery looks for. Costs much for those that have changed only. No two have the
    /// same cable name.
    pub(crate) fn follow(&mut self, discovery: &Discovery, peers: &[Arc<Peer>]) {
        self.pass += 1;
        let mut new = Vec::new();
        for peer in peers {
            let name = peer.facts.cable_name.as_str();
            match self.known.get_mut(name) {
                Some((known, pass)) => {
                    *pass = self.pass;
                    if !Arc::ptr_eq(known, peer) {
                        *known = Arc::clone(peer);
                        new.push(Remote::new(&peer.facts, &peer.spec));
                    }
                }
                None => {
                    self.known.insert(name.to_owned(), (Arc::clone(peer), self.pass));
                    new.push(Remote::new(&peer.facts, &peer.spec));
                }
            }
        }
        let mut gone = Vec::new();
        if self.known.len() > peers.len() {
            let pass = self.pass;
            gone.extend(self.known.extract_if(.., |_, (_, of)| *of != pass).map(|(name, _)| name));
        }
        if gone.is_empty() && new.is_empty() && !self.has_refused {
            return;
        }
        let refused = discovery.update(&gone, &new);
        self.has_refused = !refused.is_empty();
        for name in refused {
            self.known.remove(&name);
        }
    }
}
