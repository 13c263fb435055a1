//! Building a snapshot.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};
use trieste_nat::Rules;
use trieste_packet::rendezvous::{DEFAULT_WEIGHT, MAX_WEIGHT};
use trieste_packet::{CableId, ClusterId, GatewayKey, LaneId, PathId, SiblingId};

use super::lpm::Lpm;
use super::{Globalnet, LaneEnd, LaneInfo, Path, RemoteCluster, Sibling, Tables, owner_of};

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

/// What there is to say of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathConfig {
    /// The lane that seals for it.
    pub lane: LaneId,
    /// The cable, for counters and for the path's state.
    pub cable: CableId,
    /// Largest inner IP packet, in bytes.
    pub mtu_bytes: u16,
    /// Names the gateway that it leads to, at every gateway alike.
    pub key: GatewayKey,
    /// Its share of the flows, against that of the others that lead to the same cluster; 1 to 1000, anything else is
    /// taken as the nearest of these.
    pub weight: u16,
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

    /// Adds the path to a cluster, added before, that has one gateway; and the lane behind it.
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
        let key = GatewayKey(u64::from(lane.0));
        self.path_among(cluster, &PathConfig { lane, cable, mtu_bytes, key, weight: DEFAULT_WEIGHT })
    }

    /// Adds one of several paths to a cluster that was added before, and the lane behind it.
    ///
    /// # Errors
    /// [`TablesError::TooMany`].
    pub fn path_among(&mut self, cluster: ClusterId, config: &PathConfig) -> Result<PathId, TablesError> {
        let id = self.add_path(LaneEnd::Cluster(cluster), config)?;
        if let Some(entry) = self.tables.clusters.get_mut(usize::from(cluster.0)) {
            entry.paths.push(id);
        }
        Ok(id)
    }

    /// Adds another gateway of our own cluster, and the lane to it. `name` is its cable's.
    ///
    /// # Errors
    /// [`TablesError::TooMany`].
    pub fn sibling(&mut self, name: &str, config: &PathConfig) -> Result<SiblingId, TablesError> {
        let index =
            u16::try_from(self.tables.siblings.len()).map_err(|_| TablesError::TooMany("siblings"))?;
        let id = SiblingId(index);
        let path = self.add_path(LaneEnd::Sibling(id), config)?;
        self.tables.siblings.push(Sibling { id, name: name.to_owned(), path });
        Ok(id)
    }

    /// Says which sibling leads.
    pub fn leader(&mut self, sibling: SiblingId) {
        self.tables.leader = self.tables.sibling(sibling).map(|sibling| sibling.path);
    }

    /// Has packets to this address take this path, whatever its state. Of several paths for an address the first counts.
    pub fn pin(&mut self, address: IpAddr, path: PathId) {
        self.tables.pins.push((address, path));
    }

    fn add_path(&mut self, end: LaneEnd, config: &PathConfig) -> Result<PathId, TablesError> {
        let index = u16::try_from(self.tables.paths.len()).map_err(|_| TablesError::TooMany("paths"))?;
        let id = PathId(index);
        let PathConfig { lane, cable, mtu_bytes, key, weight } = *config;
        let weight = weight.clamp(1, MAX_WEIGHT);
        self.tables.paths.push(Path { id, end, key, weight, lane, cable, owner: owner_of(lane), mtu_bytes });
        self.lane(lane, LaneInfo { end, mtu_bytes });
        Ok(id)
    }

    /// Adds a lane that only opens (any more): what it opens still belongs to who is at its far end.
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
        // Stable, so that the first of equal ones stays.
        self.tables.pins.sort_by_key(|entry| entry.0);
        self.tables.pins.dedup_by_key(|entry| entry.0);
        self.tables
    }
}
