//! What the pipeline decides by: an immutable snapshot, swapped in whole.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;
use trieste_nat::Rules;
use trieste_packet::{CableId, ClusterId, Decision, LaneId, PathId, WorkerId};

/// One way to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Its index.
    pub id: PathId,
    /// Where it leads.
    pub cluster: ClusterId,
    /// The lane that seals for it.
    pub lane: LaneId,
    /// The cable, for counters.
    pub cable: CableId,
    /// The worker that owns the lane.
    pub owner: WorkerId,
    /// Largest inner IP packet, in bytes.
    pub mtu_bytes: u16,
}

impl Path {
    /// What packets that take the path carry along.
    #[must_use]
    pub fn decision(&self) -> Decision {
        let Self { id, lane, cable, owner, mtu_bytes, .. } = *self;
        Decision { path: id, lane, cable, owner, mtu_bytes }
    }
}

/// A remote cluster: its subnets and the paths to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteCluster {
    /// Its index.
    pub id: ClusterId,
    /// Its name, for people.
    pub name: String,
    /// What may come from it and goes to it.
    pub subnets: Vec<IpNet>,
    /// All paths, healthy or not steered around yet.
    pub paths: Vec<PathId>,
}

/// What a packet that was opened by a lane may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneInfo {
    /// The cluster at its far end.
    pub cluster: ClusterId,
    /// Largest inner IP packet of its path, in bytes.
    pub mtu_bytes: u16,
}

/// Why tables could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TablesError {
    /// A subnet of a remote cluster overlaps one of ours.
    #[error("subnet {theirs} of cluster {cluster:?} overlaps our own {ours}")]
    OverlapsLocal {
        /// The remote cluster.
        cluster: String,
        /// Its subnet.
        theirs: IpNet,
        /// Our subnet.
        ours: IpNet,
    },
    /// Subnets of two remote clusters overlap.
    #[error(
        "subnet {subnet} of cluster {cluster:?} overlaps {other} of cluster {other_cluster:?}, which was there first"
    )]
    OverlapsRemote {
        /// The cluster that came later.
        cluster: String,
        /// Its subnet.
        subnet: IpNet,
        /// The cluster that was there first.
        other_cluster: String,
        /// Its subnet.
        other: IpNet,
    },
    /// More clusters or paths than indices.
    #[error("more than 65535 {0}")]
    TooMany(&'static str),
}

/// A trie for each address family.
#[derive(Debug, Clone)]
struct Lpm<T> {
    v4: PrefixMap<Ipv4Net, T>,
    v6: PrefixMap<Ipv6Net, T>,
}

impl<T> Default for Lpm<T> {
    fn default() -> Self {
        Self { v4: PrefixMap::new(), v6: PrefixMap::new() }
    }
}

impl<T> Lpm<T> {
    fn insert(&mut self, prefix: IpNet, value: T) {
        match prefix {
            IpNet::V4(v4) => self.v4.insert(v4.trunc(), value),
            IpNet::V6(v6) => self.v6.insert(v6.trunc(), value),
        };
    }

    /// An entry that shares an address with `prefix`. Prefixes nest or are disjoint: it holds `prefix`, or is in it.
    fn overlap(&self, prefix: IpNet) -> Option<(IpNet, &T)> {
        match prefix {
            IpNet::V4(v4) => {
                let v4 = v4.trunc();
                let found = self.v4.get_lpm(&v4).or_else(|| self.v4.children(&v4).next());
                found.map(|(other, value)| (IpNet::V4(other), value))
            }
            IpNet::V6(v6) => {
                let v6 = v6.trunc();
                let found = self.v6.get_lpm(&v6).or_else(|| self.v6.children(&v6).next());
                found.map(|(other, value)| (IpNet::V6(other), value))
            }
        }
    }

    fn longest(&self, address: IpAddr) -> Option<&T> {
        match address {
            IpAddr::V4(v4) => {
                let host = Ipv4Net::new(v4, 32).expect("32 is a valid length");
                self.v4.get_lpm(&host).map(|(_, value)| value)
            }
            IpAddr::V6(v6) => {
                let host = Ipv6Net::new(v6, 128).expect("128 is a valid length");
                self.v6.get_lpm(&host).map(|(_, value)| value)
            }
        }
    }
}

/// The snapshot. Holds ids only: lanes, counters and keys are the workers'.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    epoch: u64,
    local: Lpm<()>,
    remote: Lpm<ClusterId>,
    clusters: Vec<RemoteCluster>,
    paths: Vec<Path>,
    lanes: Vec<(LaneId, LaneInfo)>,
    identities: Vec<([u8; 32], LaneId)>,
    tunnel_addresses: Vec<(LaneId, IpAddr)>,
    icmp_v4: Option<Ipv4Addr>,
    icmp_v6: Option<Ipv6Addr>,
    globalnet: Option<Globalnet>,
}

/// What globalnet adds: the published IPv4 subnet holds global IPs then, and behind them are the inside networks.
#[derive(Debug, Clone)]
struct Globalnet {
    inside: Lpm<()>,
    rules: Arc<Rules>,
    gateway: Option<Ipv4Addr>,
}

impl Tables {
    /// Number of the snapshot; grows with every change.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the address is in one of our published subnets.
    #[must_use]
    pub fn is_local(&self, address: IpAddr) -> bool {
        self.local.longest(address).is_some()
    }

    /// The remote cluster that has the address.
    #[must_use]
    pub fn cluster_of(&self, address: IpAddr) -> Option<ClusterId> {
        self.remote.longest(address).copied()
    }

    /// A remote cluster by its index.
    #[must_use]
    pub fn cluster(&self, id: ClusterId) -> Option<&RemoteCluster> {
        self.clusters.get(usize::from(id.0))
    }

    /// All remote clusters.
    #[must_use]
    pub fn clusters(&self) -> &[RemoteCluster] {
        &self.clusters
    }

    /// A path by its index.
    #[must_use]
    pub fn path(&self, id: PathId) -> Option<&Path> {
        self.paths.get(usize::from(id.0))
    }

    /// All paths.
    #[must_use]
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// The set of paths for a packet from `source` to `destination`: empty when its source is not ours to send
    /// from, or its destination is nobody's.
    #[must_use]
    pub fn select(&self, source: IpAddr, destination: IpAddr) -> Selection<'_> {
        let Some(cluster) = self.cluster_of(destination).and_then(|id| self.cluster(id)) else {
            return Selection::NoRoute;
        };
        if !self.is_local(source) {
            return Selection::SourceNotLocal;
        }
        Selection::Paths(&cluster.paths)
    }

    /// The translation of all IPv4 packets that cross clusters; `None` without globalnet.
    #[must_use]
    pub fn rules(&self) -> Option<&Arc<Rules>> {
        self.globalnet.as_ref().map(|globalnet| &globalnet.rules)
    }

    /// Whether the address is in one of our inside networks, whose packets are translated. Never without globalnet.
    #[must_use]
    pub fn is_inside(&self, address: Ipv4Addr) -> bool {
        self.globalnet.as_ref().is_some_and(|globalnet| globalnet.inside.longest(address.into()).is_some())
    }

    /// The paths for an IPv4 packet from `source` that is translated on its way to `destination`.
    #[must_use]
    pub fn select_translated(&self, source: Ipv4Addr, destination: Ipv4Addr) -> Selection<'_> {
        let Some(cluster) = self.cluster_of(destination.into()).and_then(|id| self.cluster(id)) else {
            return Selection::NoRoute;
        };
        if !self.is_inside(source) {
            return Selection::SourceNotLocal;
        }
        Selection::Paths(&cluster.paths)
    }

    /// What is at the far end of a lane.
    #[must_use]
    pub fn lane(&self, lane: LaneId) -> Option<LaneInfo> {
        let index = self.lanes.binary_search_by_key(&lane, |entry| entry.0).ok()?;
        Some(self.lanes[index].1)
    }

    /// The lane that belongs to a peer's identity (its public key).
    #[must_use]
    pub fn lane_of_identity(&self, identity: &[u8; 32]) -> Option<LaneId> {
        let index = self.identities.binary_search_by(|entry| entry.0.cmp(identity)).ok()?;
        Some(self.identities[index].1)
    }

    /// Whether the address is one that the tunnel itself has at the far end of a lane.
    #[must_use]
    pub fn is_tunnel_address(&self, lane: LaneId, address: IpAddr) -> bool {
        self.tunnel_addresses.binary_search(&(lane, address)).is_ok()
    }

    /// Whether a peer's probe to this address is for the gateway itself.
    #[must_use]
    pub fn is_probed(&self, address: IpAddr) -> bool {
        let global = self.globalnet.as_ref().and_then(|globalnet| globalnet.gateway);
        self.icmp_source(address) == Some(address) || global.is_some_and(|global| address == global)
    }

    /// Our address of the same family as `to`'s, for ICMP made here: one that is routed inside the cluster.
    #[must_use]
    pub fn icmp_source(&self, to: IpAddr) -> Option<IpAddr> {
        if to.is_ipv4() { self.icmp_v4.map(IpAddr::V4) } else { self.icmp_v6.map(IpAddr::V6) }
    }
}

/// What classification found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection<'a> {
    /// The paths to choose from; may be empty when the cluster has none at present.
    Paths(&'a [PathId]),
    /// No remote cluster has the destination.
    NoRoute,
    /// The source is in none of our subnets.
    SourceNotLocal,
}

/// Builds a snapshot. Clusters that were added first win over later ones that overlap them.
#[derive(Debug, Default)]
pub struct TablesBuilder {
    tables: Tables,
}

impl TablesBuilder {
    /// Begins with our own subnets and our addresses inside them: the source of ICMP errors, the destination of
    /// probes.
    #[must_use]
    pub fn new(epoch: u64, local: &[IpNet], icmp_sources: &[IpAddr]) -> Self {
        let mut builder = Self { tables: Tables { epoch, ..Tables::default() } };
        for &subnet in local {
            builder.tables.local.insert(subnet, ());
        }
        for source in icmp_sources {
            match source {
                IpAddr::V4(v4) => builder.tables.icmp_v4 = Some(*v4),
                IpAddr::V6(v6) => builder.tables.icmp_v6 = Some(*v6),
            }
        }
        builder
    }

    /// Turns globalnet on: IPv4 packets from `inside`, our pod and service networks, are translated by `rules` on their
    /// way to a remote cluster, and packets for our published subnet on their way in. Remote clusters may have the same
    /// inside networks. `gateway` is the gateway's own global IP, which peers probe.
    #[must_use]
    pub fn globalnet(mut self, inside: &[Ipv4Net], rules: Arc<Rules>, gateway: Option<Ipv4Addr>) -> Self {
        let mut networks = Lpm::default();
        for &network in inside {
            networks.insert(IpNet::V4(network), ());
        }
        self.tables.globalnet = Some(Globalnet { inside: networks, rules, gateway });
        self
    }

    /// Adds a remote cluster; what it costs does not depend on how many there are. Without a path, packets for it
    /// are dropped.
    ///
    /// # Errors
    /// [`TablesError`] when one of its subnets overlaps ours or those of an earlier cluster; nothing of it is
    /// added then.
    pub fn cluster(&mut self, name: &str, subnets: &[IpNet]) -> Result<ClusterId, TablesError> {
        for &subnet in subnets {
            // With globalnet, what a cluster without it offers may be ours inside: its packets would pass for our pods'.
            let inside =
                self.tables.globalnet.as_ref().and_then(|globalnet| globalnet.inside.overlap(subnet));
            if let Some((ours, ())) = self.tables.local.overlap(subnet).or(inside) {
                return Err(TablesError::OverlapsLocal { cluster: name.to_owned(), theirs: subnet, ours });
            }
            if let Some((other, &earlier)) = self.tables.remote.overlap(subnet) {
                let other_cluster =
                    self.tables.cluster(earlier).map(|cluster| cluster.name.clone()).unwrap_or_default();
                let cluster = name.to_owned();
                return Err(TablesError::OverlapsRemote { cluster, subnet, other_cluster, other });
            }
        }
        let index =
            u16::try_from(self.tables.clusters.len()).map_err(|_| TablesError::TooMany("clusters"))?;
        let id = ClusterId(index);
        for &subnet in subnets {
            self.tables.remote.insert(subnet, id);
        }
        let cluster =
            RemoteCluster { id, name: name.to_owned(), subnets: subnets.to_vec(), paths: Vec::new() };
        self.tables.clusters.push(cluster);
        Ok(id)
    }

    /// Adds a path to a cluster that was added before, and the lane behind it.
    ///
    /// # Errors
    /// [`TablesError::TooMany`].
    pub fn path(
        &mut self,
        cluster: ClusterId,
        lane: LaneId,
        cable: CableId,
        mtu_bytes: u16,
    ) -> Result<PathId, TablesError> {
        let index = u16::try_from(self.tables.paths.len()).map_err(|_| TablesError::TooMany("paths"))?;
        let id = PathId(index);
        self.tables.paths.push(Path { id, cluster, lane, cable, owner: owner_of(lane), mtu_bytes });
        if let Some(entry) = self.tables.clusters.get_mut(usize::from(cluster.0)) {
            entry.paths.push(id);
        }
        self.lane(lane, LaneInfo { cluster, mtu_bytes });
        Ok(id)
    }

    /// Adds a lane that only opens (any more): what it opens still belongs to its cluster.
    pub fn lane(&mut self, lane: LaneId, info: LaneInfo) {
        self.tables.lanes.push((lane, info));
    }

    /// Says whose greetings belong to a lane.
    pub fn identity(&mut self, identity: [u8; 32], lane: LaneId) {
        self.tables.identities.push((identity, lane));
    }

    /// Says which address the tunnel itself has at the far end of a lane.
    pub fn tunnel_address(&mut self, lane: LaneId, address: IpAddr) {
        self.tables.tunnel_addresses.push((lane, address));
    }

    /// The finished snapshot.
    #[must_use]
    pub fn build(mut self) -> Tables {
        self.tables.lanes.sort_by_key(|entry| entry.0);
        self.tables.identities.sort_by_key(|entry| entry.0);
        self.tables.tunnel_addresses.sort_unstable();
        self.tables
    }
}

/// The worker that owns a lane: the low eight of its 24 bits.
#[must_use]
pub fn owner_of(lane: LaneId) -> WorkerId {
    WorkerId(u16::from(lane.0.to_le_bytes()[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn selection_looks_at_both_ends() {
        let mut builder = TablesBuilder::new(1, &[net("10.1.0.0/16"), net("fd01::/64")], &[]);
        let cluster = builder.cluster("b", &[net("10.2.0.0/16"), net("fd02::/64")]).unwrap();
        let path = builder.path(cluster, LaneId(0x0102), CableId(1), 1420).unwrap();
        let tables = builder.build();
        let paths = [path];
        assert_eq!(tables.select(ip("10.1.2.3"), ip("10.2.9.9")), Selection::Paths(&paths));
        assert_eq!(tables.select(ip("fd01::1"), ip("fd02::1")), Selection::Paths(&paths));
        assert_eq!(tables.select(ip("192.0.2.1"), ip("10.2.9.9")), Selection::SourceNotLocal);
        assert_eq!(tables.select(ip("10.1.2.3"), ip("10.3.0.1")), Selection::NoRoute);
        assert_eq!(tables.path(path).unwrap().owner, WorkerId(2));
        assert_eq!(tables.lane(LaneId(0x0102)).unwrap().cluster, cluster);
    }

    #[test]
    fn the_later_cluster_loses_an_overlap() {
        let mut builder = TablesBuilder::new(1, &[net("10.1.0.0/16")], &[]);
        builder.cluster("b", &[net("10.2.0.0/16")]).unwrap();
        assert!(matches!(
            builder.cluster("c", &[net("10.2.128.0/24")]),
            Err(TablesError::OverlapsRemote { .. })
        ));
        assert!(matches!(builder.cluster("d", &[net("10.0.0.0/8")]), Err(TablesError::OverlapsLocal { .. })));
        let wide = builder.cluster("e", &[net("10.2.0.0/15")]);
        let Err(TablesError::OverlapsRemote { other_cluster, other, .. }) = wide else { panic!("{wide:?}") };
        assert_eq!((other_cluster.as_str(), other), ("b", net("10.2.0.0/16")));
        assert!(matches!(
            builder.cluster("f", &[net("10.7.0.0/16"), net("10.2.0.0/16")]),
            Err(TablesError::OverlapsRemote { .. })
        ));
        let tables = builder.build();
        assert_eq!(tables.clusters().len(), 1);
        assert_eq!(tables.cluster_of(ip("10.2.128.1")), Some(ClusterId(0)));
        assert_eq!(tables.cluster_of(ip("10.7.0.1")), None, "nothing of a refused cluster is added");
    }

    #[test]
    fn a_cluster_without_a_path_keeps_its_addresses() {
        let mut builder = TablesBuilder::new(1, &[net("10.1.0.0/16")], &[]);
        builder.cluster("b", &[net("10.2.0.0/16")]).unwrap();
        let tables = builder.build();
        assert_eq!(tables.select(ip("10.1.0.1"), ip("10.2.0.1")), Selection::Paths(&[]));
    }

    #[test]
    fn tunnel_addresses_belong_to_their_lane() {
        let mut builder = TablesBuilder::new(1, &[], &[]);
        builder.tunnel_address(LaneId(0x0200), ip("192.0.2.1"));
        builder.tunnel_address(LaneId(0x0100), ip("241.0.2.1"));
        let tables = builder.build();
        assert!(tables.is_tunnel_address(LaneId(0x0200), ip("192.0.2.1")));
        assert!(!tables.is_tunnel_address(LaneId(0x0100), ip("192.0.2.1")));
        assert!(!tables.is_tunnel_address(LaneId(0x0300), ip("241.0.2.1")));
    }

    #[test]
    fn prefixes_are_cut_to_their_length() {
        let mut builder = TablesBuilder::new(1, &[net("10.1.0.7/16")], &[]);
        builder.cluster("b", &[net("10.2.3.4/16")]).unwrap();
        let tables = builder.build();
        assert!(tables.is_local(ip("10.1.200.1")));
        assert_eq!(tables.cluster_of(ip("10.2.200.1")), Some(ClusterId(0)));
    }

    #[test]
    fn with_globalnet_inside_networks_are_translated_and_nobody_elses() {
        let inside = ["10.1.0.0/16".parse().unwrap()];
        let owners = trieste_nat::RulesBuilder::owners_among(1);
        let rules = trieste_nat::RulesBuilder::new(1, trieste_nat::OwnerKey([1; 16]), owners).build();
        let gateway = Some(Ipv4Addr::new(242, 1, 255, 254));
        let mut builder = TablesBuilder::new(1, &[net("242.1.0.0/16")], &[ip("10.1.0.1")]).globalnet(
            &inside,
            Arc::new(rules),
            gateway,
        );
        builder.cluster("b", &[net("242.2.0.0/16")]).unwrap();
        let without = builder.cluster("c", &[net("10.1.128.0/17")]);
        assert!(
            matches!(without, Err(TablesError::OverlapsLocal { ours, .. }) if ours == net("10.1.0.0/16"))
        );
        let tables = builder.build();
        let [pod, remote] = [Ipv4Addr::new(10, 1, 0, 9), Ipv4Addr::new(242, 2, 0, 1)];
        assert!(tables.rules().is_some() && tables.is_inside(pod) && !tables.is_inside(remote));
        assert_eq!(tables.select_translated(pod, remote), Selection::Paths(&[]));
        assert_eq!(tables.select_translated(remote, remote), Selection::SourceNotLocal);
        assert_eq!(tables.select_translated(pod, pod), Selection::NoRoute);
        assert!(tables.is_probed(ip("242.1.255.254")) && tables.is_probed(ip("10.1.0.1")));
        assert!(!tables.is_probed(ip("242.1.0.1")));
    }
}
