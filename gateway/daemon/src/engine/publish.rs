//! Tables for the workers, made when they are others than before.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::{Engine, Published};
use crate::tables::{self, Networks, Peer, Reader, Row, Rows};

impl Engine {
    /// Publishes tables if they have changed: new ones make every flow decide again.
    pub(super) fn publish(&mut self) {
        let next = Published {
            subnets: self.local.site.subnets.clone(),
            rows: self.rows(),
            icmp_sources: self.local.icmp_sources.clone(),
            rules: self.local.translation.as_ref().map(|translation| translation.rules.epoch()),
        };
        if self.published.as_ref() == Some(&next) {
            return;
        }
        self.epoch += 1;
        let (tables, _) = tables::build(self.epoch, &self.local, &next.rows);
        self.tables.store(Arc::new(tables));
        self.published = Some(next);
    }

    fn row(&self, peer: &Arc<Peer>) -> Row {
        Row { peer: Arc::clone(peer), lane: self.lane(&peer.facts.cable_name) }
    }

    /// Returns the gateways of remote clusters with their cables.
    pub(super) fn remote_rows(&self) -> Vec<Row> {
        self.wanted.iter().map(|peer| self.row(peer)).collect()
    }

    /// Returns all gateways with their cables.
    fn rows(&self) -> Rows {
        let cut = self.cut.iter().filter(|cut| cut.opens);
        Rows {
            remote: self.remote_rows(),
            siblings: self.siblings().iter().map(|peer| self.row(peer)).collect(),
            leaving: cut.map(|cut| (cut.far.clone(), cut.lane.lane)).collect(),
            leader: self.leader.clone(),
        }
    }

    /// Sets the networks that our Endpoint publishes. Tables follow at once: what is no more among them is neither let out
    /// nor in, before anybody else learns of it. Cables whose ends agree on networks follow: those that can while they carry
    /// packets at once, the others with [`Engine::converge`], which makes them anew.
    pub fn set_subnets(&mut self, subnets: Vec<IpNet>) {
        if self.local.site.subnets == subnets {
            return;
        }
        self.subnets_by_age = by_age(&self.subnets_by_age, &subnets);
        self.local.site.subnets = subnets;
        // Who overlaps us is judged anew.
        self.reader = Reader::default();
        self.networks = Networks::default();
        self.publish();
        for cable in self.cables.iter_mut() {
            cable.is_outdated |= self.kind.is_bound_to_networks(&cable.peer.site());
            cable.set_networks(&*self.kind, &self.local.site);
        }
    }

    /// Sets our own addresses inside the published subnets, which a network plugin may assign long after the gateway has
    /// started.
    pub fn set_icmp_sources(&mut self, sources: Vec<IpAddr>) {
        if self.has_icmp_sources && self.local.icmp_sources == sources {
            return;
        }
        self.has_icmp_sources = true;
        let wants =
            |is_v4: bool| self.local.site.subnets.iter().any(|subnet| subnet.addr().is_ipv4() == is_v4);
        for (is_v4, family) in [(true, "IPv4"), (false, "IPv6")] {
            if wants(is_v4) && sources.iter().all(|source| source.is_ipv4() != is_v4) {
                tracing::warn!(
                    family,
                    "this node has no address to send ICMP errors from: packets that are too big for a path are dropped \
                     without an answer to their sender; give an interface an address of this family"
                );
            }
        }
        tracing::info!(?sources, "source addresses of ICMP errors set");
        self.local.icmp_sources = sources;
        self.publish();
    }
}

/// Returns subnets in the order in which they have been published, those that are part of a former one in its turn.
fn by_age(former: &[IpNet], subnets: &[IpNet]) -> Vec<IpNet> {
    let mut found: Vec<IpNet> = Vec::with_capacity(subnets.len());
    let known = former.iter().flat_map(|former| subnets.iter().filter(|subnet| former.contains(*subnet)));
    for subnet in known.chain(subnets) {
        if !found.contains(subnet) {
            found.push(*subnet);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_that_have_been_published_for_longest_come_first() {
        let nets =
            |texts: &[&str]| -> Vec<IpNet> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        let start = nets(&["10.1.0.0/16", "10.2.0.0/16", "10.5.0.0/16"]);
        let then = by_age(&start, &nets(&["10.3.0.0/16", "10.2.0.0/16", "10.5.0.0/16"]));
        assert_eq!(then, nets(&["10.2.0.0/16", "10.5.0.0/16", "10.3.0.0/16"]));
        assert_eq!(
            by_age(&then, &nets(&["10.3.0.0/16", "10.5.0.0/16"])),
            nets(&["10.5.0.0/16", "10.3.0.0/16"])
        );
        assert_eq!(by_age(&[], &start), start);
    }
}
