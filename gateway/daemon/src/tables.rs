//! Where API objects become data-plane tables; the one place where they do. Globalnet's are in `globalnet.rs`.
//!
//! Which remote Endpoints are connected to, and in which order clusters come first where their subnets overlap, is a
//! function of the objects alone, so that every gateway of a cluster decides alike.
//!
//! ```text
//!   Endpoints ─▶ Reader (each version read once) ─▶ Admitted ─┬▶ cables ─▶ build ─▶ Tables
//!   NAT discovery ─▶ Choice by cable name ───────────────────┘
//! ```
//!
//! Everything here costs n log n for n Endpoints.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use jiff::Timestamp;
use trieste_cables::{CableKind, Site};
use trieste_control::admin::RefusedCluster;
use trieste_control::api::{Endpoint, EndpointFacts, EndpointSpec};
use trieste_packet::{CableId, LaneId};
use trieste_pipeline::{LaneInfo, Tables, TablesBuilder};

mod globalnet;

pub use globalnet::{Own, Owners, Translation, compile, owner_of};

/// Upstream's cable port, for Endpoints that do not name theirs.
const DEFAULT_PORT: u16 = 4500;
/// First octet of the address that upstream's VXLAN cable gives its device; the others are the private address's
/// (wireformat §2).
const VTEP_NETWORK: u8 = 241;
/// Most Endpoints of one cluster that are connected to, the newest first. Ours: a cluster has one, or one for each of
/// a few gateways; a broken peer must not cost a cable for each object that it writes.
const ENDPOINTS_PER_CLUSTER: usize = 8;

/// What this gateway is.
#[derive(Debug, Clone)]
pub struct Local {
    /// Our cluster's ID.
    pub cluster_id: String,
    /// Our end of all cables.
    pub site: Site,
    /// Our addresses inside them, for ICMP errors and for probes: at most one of each family.
    pub icmp_sources: Vec<IpAddr>,
    /// Largest inner packet of a path, in bytes.
    pub path_mtu: u16,
    /// What is translated on its way to other clusters and back; `None` without Globalnet.
    pub translation: Option<Arc<Translation>>,
}

/// Which of a peer's addresses its cable is to use, as NAT discovery found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The address.
    pub ip: IpAddr,
    /// Whether there is NAT on the way.
    pub use_nat: bool,
}

/// Choices by cable name. An Endpoint whose cable has none is not connected to yet.
pub type Choices = BTreeMap<String, Choice>;

/// The choice for a peer that does not answer NAT discovery, by what its Endpoint says (wireformat §1.5): the public
/// address if it is joined with NAT in mind or behind a load balancer, else the private one.
#[must_use]
pub fn fallback_choice(facts: &EndpointFacts, spec: &EndpointSpec) -> Choice {
    match facts.public_ip {
        Some(public) if spec.nat_enabled || spec.uses_load_balancer() => Choice { ip: public, use_nat: true },
        _ => Choice { ip: facts.private_ip, use_nat: false },
    }
}

/// [`fallback_choice`] for all Endpoints that can be read, where nobody runs NAT discovery.
#[must_use]
pub fn fallback_choices(endpoints: &[Endpoint]) -> Choices {
    let choice = |endpoint: &Endpoint| {
        let facts = endpoint.spec.parse().ok()?;
        let choice = fallback_choice(&facts, &endpoint.spec);
        Some((facts.cable_name, choice))
    };
    endpoints.iter().filter_map(choice).collect()
}

/// A remote Endpoint that may be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The object's name.
    pub name: String,
    /// The object's spec.
    pub spec: EndpointSpec,
    /// The spec's values, checked.
    pub facts: EndpointFacts,
    /// Who it is on the wire.
    pub identity: [u8; 32],
    /// When the object was made.
    pub created: Option<Timestamp>,
}

impl Peer {
    /// Its end of the cable.
    #[must_use]
    pub fn site(&self) -> Site {
        site(&self.facts, &self.spec)
    }

    /// Where its cable ends.
    #[must_use]
    pub fn address(&self, choice: Choice) -> SocketAddr {
        SocketAddr::new(choice.ip, self.facts.udp_port.unwrap_or(DEFAULT_PORT))
    }

    /// Addresses that the far end of the tunnel itself may have, in none of its subnets: those of the node, and that
    /// of upstream's VXLAN device.
    pub fn tunnel_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let vtep = match self.facts.private_ip {
            IpAddr::V4(v4) => {
                let [_, b, c, d] = v4.octets();
                Some(IpAddr::V4(Ipv4Addr::new(VTEP_NETWORK, b, c, d)))
            }
            IpAddr::V6(_) => None,
        };
        let others = self.spec.private_ips.iter().chain(&self.spec.public_ips);
        let others = others.filter_map(|text| text.parse::<IpAddr>().ok());
        let own = [Some(self.facts.private_ip), self.facts.public_ip, vtep];
        let all: BTreeSet<IpAddr> = own.into_iter().flatten().chain(others).collect();
        all.into_iter()
    }
}

/// Remote Endpoints, sorted into those to connect to and those not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admitted {
    /// To connect to: oldest cluster first, and within a cluster the newest Endpoint first.
    pub peers: Vec<Arc<Peer>>,
    /// Not, and why.
    pub refused: Vec<RefusedCluster>,
}

/// Reads remote Endpoints, each version of an object once.
#[derive(Debug, Default)]
pub struct Reader {
    known: BTreeMap<String, Known>,
    reads: u64,
}

/// What an object was found to say.
#[derive(Debug)]
struct Known {
    resource_version: Option<String>,
    uid: Option<String>,
    result: Result<Arc<Peer>, String>,
}

impl Known {
    fn is_of(&self, endpoint: &Endpoint) -> bool {
        let metadata = &endpoint.metadata;
        match (&self.resource_version, &metadata.resource_version) {
            (Some(known), Some(newest)) => known == newest && self.uid == metadata.uid,
            _ => self
                .result
                .as_ref()
                .is_ok_and(|peer| peer.spec == endpoint.spec && peer.created == metadata.creation_timestamp),
        }
    }
}

impl Reader {
    /// Reads the remote Endpoints among `endpoints`, which are all that there are.
    pub fn read(&mut self, endpoints: &[Endpoint], local: &Local, kind: &dyn CableKind) -> Admitted {
        let mut admitted = Admitted::default();
        let mut before = std::mem::take(&mut self.known);
        for endpoint in endpoints.iter().filter(|endpoint| endpoint.spec.cluster_id != local.cluster_id) {
            let name = &endpoint.metadata.name;
            let known = match before.remove(name) {
                Some(known) if known.is_of(endpoint) => known,
                older => self.read_one(endpoint, older, kind),
            };
            match &known.result {
                Ok(peer) => admitted.peers.push(Arc::clone(peer)),
                Err(reason) => admitted.refused.push(RefusedCluster {
                    cluster: endpoint.spec.cluster_id.clone(),
                    endpoint: Some(name.clone()),
                    reason: reason.clone(),
                }),
            }
            self.known.insert(name.clone(), known);
        }
        order(&mut admitted.peers);
        refuse_doubles(&mut admitted);
        refuse_crowds(&mut admitted);
        admitted
    }

    /// How often an object was read since the start: once for each version of each remote Endpoint.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads
    }

    fn read_one(&mut self, endpoint: &Endpoint, older: Option<Known>, kind: &dyn CableKind) -> Known {
        self.reads += 1;
        let result = match (read(endpoint, kind), older.map(|known| known.result)) {
            // Labels or annotations changed: nothing for us.
            (Ok(peer), Some(Ok(older))) if peer == *older => Ok(older),
            (result, _) => result.map(Arc::new),
        };
        let metadata = &endpoint.metadata;
        Known { resource_version: metadata.resource_version.clone(), uid: metadata.uid.clone(), result }
    }
}

fn read(endpoint: &Endpoint, kind: &dyn CableKind) -> Result<Peer, String> {
    let spec = &endpoint.spec;
    let facts = spec.parse().map_err(|error| error.to_string())?;
    if facts.backend != kind.name() {
        return Err(format!("its cable driver is {:?}, ours is {:?}", facts.backend, kind.name()));
    }
    if facts.subnets.is_empty() {
        return Err("it publishes no subnets".to_owned());
    }
    let identity = kind.identity(&site(&facts, spec)).map_err(|error| error.to_string())?;
    Ok(Peer {
        name: endpoint.metadata.name.clone(),
        spec: spec.clone(),
        identity,
        created: endpoint.metadata.creation_timestamp,
        facts,
    })
}

/// An Endpoint's end of a cable.
#[must_use]
pub fn site(facts: &EndpointFacts, spec: &EndpointSpec) -> Site {
    Site {
        cable_name: facts.cable_name.clone(),
        private_ip: facts.private_ip,
        subnets: facts.subnets.clone(),
        backend_config: spec.backend_config.clone(),
    }
}

/// Oldest cluster first, by its oldest Endpoint; within a cluster the newest Endpoint first. Names break ties.
fn order(peers: &mut [Arc<Peer>]) {
    let mut ages: BTreeMap<String, Option<Timestamp>> = BTreeMap::new();
    for peer in peers.iter() {
        let age = ages.entry(peer.facts.cluster_id.clone()).or_insert(peer.created);
        *age = (*age).min(peer.created);
    }
    peers.sort_by_cached_key(|peer| {
        let cluster = &peer.facts.cluster_id;
        (ages.get(cluster).copied(), cluster.clone(), Reverse(peer.created), peer.name.clone())
    });
}

/// Two Endpoints with one key cannot be told apart on the wire, two with one cable name nowhere else: the first stays.
fn refuse_doubles(admitted: &mut Admitted) {
    let mut keys: BTreeMap<[u8; 32], String> = BTreeMap::new();
    let mut cables: BTreeMap<String, String> = BTreeMap::new();
    let refused = &mut admitted.refused;
    admitted.peers.retain(|peer| {
        if let Some(other) = keys.get(&peer.identity) {
            refused.push(refusal(peer, format!("it has the same key as Endpoint {other}")));
            return false;
        }
        // NAT discovery and health checks know a peer by this name alone: nobody may take another's.
        if let Some(other) = cables.get(&peer.facts.cable_name) {
            let reason = format!(
                "field `spec.cable_name`: `{}` is already that of Endpoint {other}",
                peer.facts.cable_name
            );
            refused.push(refusal(peer, reason));
            return false;
        }
        keys.insert(peer.identity, peer.name.clone());
        cables.insert(peer.facts.cable_name.clone(), peer.name.clone());
        true
    });
}

/// Of a cluster with too many Endpoints the newest stay.
fn refuse_crowds(admitted: &mut Admitted) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let refused = &mut admitted.refused;
    admitted.peers.retain(|peer| {
        let count = counts.entry(peer.facts.cluster_id.clone()).or_default();
        *count += 1;
        if *count > ENDPOINTS_PER_CLUSTER {
            let reason =
                format!("its cluster has {ENDPOINTS_PER_CLUSTER} newer ones: delete those that are gone");
            refused.push(refusal(peer, reason));
            return false;
        }
        true
    });
}

fn refusal(peer: &Peer, reason: String) -> RefusedCluster {
    RefusedCluster { cluster: peer.facts.cluster_id.clone(), endpoint: Some(peer.name.clone()), reason }
}

/// The numbers of a cable that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Its lane.
    pub lane: LaneId,
    /// Its counters.
    pub cable: CableId,
}

/// An Endpoint for the tables, with its cable if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The Endpoint.
    pub peer: Arc<Peer>,
    /// Its cable.
    pub lane: Option<Lane>,
}

/// The Endpoint of a cluster that carries its traffic: the newest that has a cable, else the newest. `cluster` is the
/// rows of one cluster, newest first.
#[must_use]
pub fn carrier(cluster: &[Row]) -> Option<&Row> {
    cluster.iter().find(|row| row.lane.is_some()).or_else(|| cluster.first())
}

/// The rows of each cluster, in order.
pub fn clusters(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|a, b| a.peer.facts.cluster_id == b.peer.facts.cluster_id)
}

/// Builds the tables for Endpoints and their cables, in the order of [`Reader::read`]. Clusters whose subnets overlap
/// ours or an older cluster's are left out and named. Of a cluster's cables the newest carries its traffic; the
/// others only open. A cluster without a cable keeps its subnets: packets for it are dropped, and nobody else gets
/// them. `leaving` are lanes that were cut a moment ago, by cluster: they only open.
#[must_use]
pub fn build(
    epoch: u64,
    local: &Local,
    rows: &[Row],
    leaving: &[(String, LaneId)],
) -> (Tables, Vec<RefusedCluster>) {
    let mut builder = TablesBuilder::new(epoch, &local.site.subnets, &local.icmp_sources);
    if let Some(Translation { inside, rules, gateway, .. }) = local.translation.as_deref() {
        builder = builder.globalnet(inside, Arc::clone(rules), *gateway);
    }
    let mut refused = Vec::new();
    let mut ids = BTreeMap::new();
    for group in clusters(rows) {
        let Some(carrier) = carrier(group) else { continue };
        let cluster_id = &carrier.peer.facts.cluster_id;
        let result = builder.cluster(cluster_id, &carrier.peer.facts.subnets).and_then(|cluster| {
            if let Some(lane) = carrier.lane {
                builder.path(cluster, lane.lane, lane.cable, local.path_mtu)?;
            }
            Ok(cluster)
        });
        let cluster = match result {
            Ok(cluster) => cluster,
            Err(error) => {
                let cluster = cluster_id.clone();
                refused.push(RefusedCluster { cluster, endpoint: None, reason: error.to_string() });
                continue;
            }
        };
        ids.insert(cluster_id.as_str(), cluster);
        for row in group {
            let Some(Lane { lane, .. }) = row.lane else { continue };
            builder.identity(row.peer.identity, lane);
            for address in row.peer.tunnel_addresses() {
                builder.tunnel_address(lane, address);
            }
            if !std::ptr::eq(row, carrier) {
                builder.lane(lane, LaneInfo { cluster, mtu_bytes: local.path_mtu });
            }
        }
    }
    for (cluster, lane) in leaving {
        if let Some(&cluster) = ids.get(cluster.as_str()) {
            builder.lane(*lane, LaneInfo { cluster, mtu_bytes: local.path_mtu });
        }
    }
    (builder.build(), refused)
}

#[cfg(test)]
mod tests;
