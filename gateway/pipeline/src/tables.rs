//! What the pipeline decides by: an immutable snapshot, swapped in whole.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use trieste_nat::Rules;
use trieste_packet::{CableId, ClusterId, Decision, GatewayKey, LaneId, PathId, SiblingId, WorkerId};

use crate::steer::Candidate;

mod build;
mod lpm;

pub use build::{PathConfig, TablesBuilder, TablesError};
use lpm::Lpm;

/// What is at the far end of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneEnd {
    /// A gateway of a remote cluster.
    Cluster(ClusterId),
    /// Another gateway of our own cluster.
    Sibling(SiblingId),
}

/// One way to a gateway: of a remote cluster, or a sibling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Its index.
    pub id: PathId,
    /// Where it leads.
    pub end: LaneEnd,
    /// Names the gateway that it leads to, at every gateway alike.
    pub key: GatewayKey,
    /// Its share of the flows, against that of the others that lead to the same cluster; 1 to 1000.
    pub weight: u16,
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

    /// What steering looks at.
    #[must_use]
    pub fn candidate(&self) -> Candidate {
        let Self { id, cable, key, weight, .. } = *self;
        Candidate { path: id, cable, key, weight }
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
    /// All paths, healthy or not: one for each of its gateways.
    pub paths: Vec<PathId>,
}

/// Another gateway of our own cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sibling {
    /// Its index.
    pub id: SiblingId,
    /// Its cable's name, for people.
    pub name: String,
    /// The path to it; the path's key is the sibling's.
    pub path: PathId,
}

/// What a packet that was opened by a lane may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneInfo {
    /// Who is at its far end.
    pub end: LaneEnd,
    /// Largest inner IP packet of its path, in bytes.
    pub mtu_bytes: u16,
}

/// The snapshot. Holds ids only: lanes, counters and keys are the workers'.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    epoch: u64,
    local: Lpm<()>,
    remote: Lpm<ClusterId>,
    clusters: Vec<RemoteCluster>,
    paths: Vec<Path>,
    siblings: Vec<Sibling>,
    /// The path to the sibling that leads.
    leader: Option<PathId>,
    /// Addresses that are reached by one path only, sorted.
    pins: Vec<(IpAddr, PathId)>,
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

    /// Whether packets for us with this source may come by a lane with this far end: a cluster sends from its own subnets,
    /// a sibling passes on what any cluster has sent.
    #[must_use]
    pub fn may_send(&self, from: LaneEnd, source: IpAddr) -> bool {
        match (from, self.cluster_of(source)) {
            (LaneEnd::Cluster(cluster), Some(of)) => of == cluster,
            (LaneEnd::Sibling(_), of) => of.is_some(),
            (LaneEnd::Cluster(_), None) => false,
        }
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

    /// All paths, those to siblings among them.
    #[must_use]
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// The other gateways of our own cluster.
    #[must_use]
    pub fn siblings(&self) -> &[Sibling] {
        &self.siblings
    }

    /// A sibling by its index.
    #[must_use]
    pub fn sibling(&self, id: SiblingId) -> Option<&Sibling> {
        self.siblings.get(usize::from(id.0))
    }

    /// The path to the sibling that leads, if one does: it alone has paths to clusters that know one gateway of ours.
    #[must_use]
    pub fn leader(&self) -> Option<PathId> {
        self.leader
    }

    /// Whether a path leads to a sibling.
    #[must_use]
    pub fn is_relay(&self, path: PathId) -> bool {
        self.path(path).is_some_and(|path| matches!(path.end, LaneEnd::Sibling(_)))
    }

    /// The path that packets to this address take, whatever its state: the address is that of the gateway at its far
    /// end, and probes of it are to find out about this path.
    #[must_use]
    pub fn pinned(&self, address: IpAddr) -> Option<PathId> {
        let index = self.pins.binary_search_by_key(&address, |entry| entry.0).ok()?;
        Some(self.pins[index].1)
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

    /// Whether another gateway of our own cluster is at the far end of a lane.
    #[must_use]
    pub(crate) fn is_siblings(&self, lane: LaneId) -> bool {
        self.lane(lane).is_some_and(|lane| matches!(lane.end, LaneEnd::Sibling(_)))
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

/// The worker that owns a lane: the low eight of its 24 bits.
#[must_use]
pub fn owner_of(lane: LaneId) -> WorkerId {
    WorkerId(u16::from(lane.0.to_le_bytes()[0]))
}

#[cfg(test)]
mod tests;
