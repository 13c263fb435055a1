//! Whose addresses are known: the one thing by which a datagram is somebody's. Shared by the gates of all workers.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use trieste_packet::LaneId;
use trieste_vxlan::Mac;

/// A peer, and where its datagrams may come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownPeer {
    pub(super) lane: LaneId,
    pub(super) vtep: Ipv4Addr,
    /// Its station's address, where it says that it derives it from the VTEP address.
    pub(super) mac: Option<Mac>,
    /// Where it is reached.
    pub(super) chosen: Option<IpAddr>,
    /// Its own address.
    pub(super) private: IpAddr,
}

/// The peers that there are, and an index of their addresses.
#[derive(Debug, Default)]
pub(super) struct Table {
    peers: Vec<KnownPeer>,
    /// Address and position in `peers`, sorted.
    index: Vec<(IpAddr, usize)>,
}

impl Table {
    fn new(peers: Vec<KnownPeer>) -> Self {
        let addresses = |peer: &KnownPeer| [peer.chosen, Some(peer.private)].into_iter().flatten();
        let mut index: Vec<(IpAddr, usize)> = peers
            .iter()
            .enumerate()
            .flat_map(|(position, peer)| {
                addresses(peer).map(move |address| (address.to_canonical(), position))
            })
            .collect();
        index.sort_unstable();
        index.dedup();
        Self { peers, index }
    }

    /// The lane of whoever sends frames of the station `source` from `address`. Where several peers share an address,
    /// behind one NAT for instance, only those whose stations are known beforehand can be told apart, and one more.
    pub(super) fn find(&self, address: IpAddr, source: Mac) -> Option<LaneId> {
        let address = address.to_canonical();
        let first = self.index.partition_point(|entry| entry.0 < address);
        let here = || self.index[first..].iter().take_while(|entry| entry.0 == address);
        let peers = || here().filter_map(|&(_, position)| self.peers.get(position));
        let mut all = peers();
        let one = all.next()?;
        if all.next().is_none() {
            return Some(one.lane);
        }
        if let Some(peer) = peers().find(|peer| peer.mac == Some(source)) {
            return Some(peer.lane);
        }
        let mut others = peers().filter(|peer| peer.mac.is_none());
        let other = others.next()?;
        others.next().is_none().then_some(other.lane)
    }
}

/// The table, as all who change it share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Known(Arc<ArcSwap<Table>>);

impl Known {
    /// Adds a peer; an earlier lane to the same VTEP gets no more datagrams.
    pub(super) fn add(&self, peer: &KnownPeer) {
        self.0.rcu(|table| {
            let others = table.peers.iter().filter(|other| other.vtep != peer.vtep);
            Table::new(others.chain([peer]).cloned().collect())
        });
    }

    /// Follows a peer to where it is reached.
    pub(super) fn set_chosen(&self, lane: LaneId, chosen: IpAddr) {
        self.0.rcu(|table| {
            let mut peers = table.peers.clone();
            for peer in peers.iter_mut().filter(|peer| peer.lane == lane) {
                peer.chosen = Some(chosen);
            }
            Table::new(peers)
        });
    }

    /// Forgets a peer.
    pub(super) fn remove(&self, lane: LaneId) {
        self.0
            .rcu(|table| Table::new(table.peers.iter().filter(|peer| peer.lane != lane).cloned().collect()));
    }

    /// A way to read it that costs next to nothing.
    pub(super) fn reader(&self) -> Cache<Arc<ArcSwap<Table>>, Arc<Table>> {
        Cache::new(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(lane: u32, last: u8, mac: Option<Mac>, chosen: &str) -> KnownPeer {
        KnownPeer {
            lane: LaneId(lane),
            vtep: Ipv4Addr::new(241, 0, 0, last),
            mac,
            chosen: Some(chosen.parse().unwrap()),
            private: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
        }
    }

    fn find(known: &Known, address: &str, source: Mac) -> Option<u32> {
        known.reader().load().find(address.parse().unwrap(), source).map(|lane| lane.0)
    }

    const ANY: Mac = Mac([2, 0, 0, 0, 0, 9]);

    #[test]
    fn a_peer_is_known_by_the_address_that_was_chosen_and_its_own() {
        let known = Known::default();
        known.add(&peer(1, 1, None, "192.0.2.1"));
        known.add(&peer(2, 2, None, "192.0.2.2"));
        for (address, lane) in [
            ("192.0.2.1", Some(1)),
            ("10.0.0.1", Some(1)),
            ("::ffff:192.0.2.2", Some(2)),
            ("192.0.2.3", None),
        ] {
            assert_eq!(find(&known, address, ANY), lane, "{address}");
        }
        known.set_chosen(LaneId(2), "192.0.2.3".parse().unwrap());
        assert_eq!((find(&known, "192.0.2.3", ANY), find(&known, "192.0.2.2", ANY)), (Some(2), None));
        known.remove(LaneId(1));
        assert_eq!((find(&known, "192.0.2.1", ANY), find(&known, "10.0.0.2", ANY)), (None, Some(2)));
    }

    #[test]
    fn peers_behind_one_address_are_told_apart_by_their_stations() {
        let known = Known::default();
        let [one, two] = [1, 2].map(|last| Mac::of_vtep(Ipv4Addr::new(241, 0, 0, last)));
        known.add(&peer(1, 1, Some(one), "192.0.2.1"));
        known.add(&peer(2, 2, Some(two), "192.0.2.1"));
        assert_eq!((find(&known, "192.0.2.1", one), find(&known, "192.0.2.1", two)), (Some(1), Some(2)));
        assert_eq!(find(&known, "192.0.2.1", ANY), None);
        known.add(&peer(3, 3, None, "192.0.2.1"));
        assert_eq!(find(&known, "192.0.2.1", ANY), Some(3), "the only one whose station nobody knows");
        known.add(&peer(4, 4, None, "192.0.2.1"));
        assert_eq!(find(&known, "192.0.2.1", ANY), None);
    }

    #[test]
    fn a_newer_lane_to_a_vtep_takes_over() {
        let known = Known::default();
        known.add(&peer(1, 1, None, "192.0.2.1"));
        known.add(&peer(2, 1, None, "192.0.2.1"));
        assert_eq!(find(&known, "192.0.2.1", ANY), Some(2));
        known.remove(LaneId(1));
        assert_eq!(find(&known, "192.0.2.1", ANY), Some(2), "the end of the older one changes nothing");
    }
}
