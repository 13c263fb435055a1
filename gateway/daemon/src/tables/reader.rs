//! Which Endpoints there are cables to, and which not and why. Each version of an object is read once.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use trieste_cables::{CableKind, Site, drivers};
use trieste_control::admin::RefusedCluster;
use trieste_control::api::{Endpoint, EndpointFacts, EndpointSpec};
use trieste_control::claims::Allowed;
use trieste_control::members::{MOST_PATHS, Member, Target};

use super::{Local, Peer, Role, ends};

/// Most siblings that there are cables to: with ours as many gateways as a cluster may have.
const MOST_SIBLINGS: usize = MOST_PATHS - 1;

/// Endpoints, sorted into those to connect to and those not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Of remote clusters, to connect to: oldest cluster first, and within a cluster the newest Endpoint first.
    pub peers: Vec<Arc<Peer>>,
    /// Of our own cluster, by cable name.
    pub siblings: Vec<Arc<Peer>>,
    /// Endpoints that are not connected to, and why.
    pub refused: Vec<RefusedCluster>,
}

/// Parses Endpoints, each version of an object once.
#[derive(Debug, Default)]
pub struct Reader {
    /// By whether it is a sibling's, and by name.
    cache: BTreeMap<(bool, String), CachedPeer>,
    reads: u64,
}

/// The cached result of parsing an object.
#[derive(Debug)]
struct CachedPeer {
    resource_version: Option<String>,
    uid: Option<String>,
    result: Result<Arc<Peer>, String>,
}

impl CachedPeer {
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
    /// Parses all remote gateways and siblings.
    pub fn read(
        &mut self,
        targets: &[Target],
        siblings: &[Member],
        local: &Local,
        kind: &dyn CableKind,
    ) -> Admitted {
        let mut admitted = Admitted::default();
        let mut before = std::mem::take(&mut self.cache);
        let siblings = siblings.iter().map(|sibling| (&*sibling.endpoint, Role::Sibling));
        let ages = targets.iter().map(|target| (target.endpoint.spec.cluster_id.as_str(), target.since));
        let ages: BTreeMap<&str, Option<Timestamp>> = ages.collect();
        let targets = targets
            .iter()
            .map(|target| (&target.endpoint, if target.is_for_all { Role::Member } else { Role::Sole }));
        // A target is of another cluster, a sibling of ours: nobody is both.
        let is_in_place = |(endpoint, role): &(&Endpoint, Role)| {
            (endpoint.spec.cluster_id == local.cluster_id) == (*role == Role::Sibling)
        };
        for (endpoint, role) in siblings.chain(targets).filter(is_in_place) {
            let key = (role == Role::Sibling, endpoint.metadata.name.clone());
            let mut cached = match before.remove(&key) {
                Some(cached) if cached.is_of(endpoint) => cached,
                older => self.read_one(endpoint, role, older, (kind, &local.allowed)),
            };
            match &mut cached.result {
                Ok(peer) => {
                    if peer.role != role {
                        Arc::make_mut(peer).role = role;
                    }
                    let all =
                        if role == Role::Sibling { &mut admitted.siblings } else { &mut admitted.peers };
                    all.push(Arc::clone(peer));
                }
                Err(reason) => admitted.refused.push(RefusedCluster {
                    cluster: endpoint.spec.cluster_id.clone(),
                    endpoint: Some(endpoint.metadata.name.clone()),
                    reason: reason.clone(),
                }),
            }
            self.cache.insert(key, cached);
        }
        admitted.siblings.sort_by(|a, b| a.facts.cable_name.cmp(&b.facts.cable_name));
        order(&mut admitted.peers, &ages);
        refuse_duplicates(&mut admitted, kind.identity_is());
        refuse_excess(&mut admitted);
        admitted
    }

    /// Returns how often objects were parsed since the start: once for each version of each Endpoint.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads
    }

    fn read_one(
        &mut self,
        endpoint: &Endpoint,
        role: Role,
        older: Option<CachedPeer>,
        (kind, allowed): (&dyn CableKind, &Allowed),
    ) -> CachedPeer {
        self.reads += 1;
        let result = match (read(endpoint, role, kind, allowed), older.map(|cached| cached.result)) {
            // Labels or annotations changed: nothing for us.
            (Ok(peer), Some(Ok(older))) if peer == *older => Ok(older),
            (result, _) => result.map(Arc::new),
        };
        let metadata = &endpoint.metadata;
        CachedPeer { resource_version: metadata.resource_version.clone(), uid: metadata.uid.clone(), result }
    }
}

fn read(endpoint: &Endpoint, role: Role, kind: &dyn CableKind, allowed: &Allowed) -> Result<Peer, String> {
    let spec = &endpoint.spec;
    let facts = spec.parse().map_err(|error| error.to_string())?;
    if role != Role::Sibling {
        allowed.check_subnets(&facts.subnets).map_err(|error| error.to_string())?;
    }
    let (ours, theirs) = (kind.names(), spec.drivers().collect::<Vec<_>>());
    let driver = drivers::common(&ours, &theirs).ok_or_else(|| {
        format!("its cable driver is {:?}, ours is {:?}", theirs.join(" or "), ours.join(" or "))
    })?;
    if facts.subnets.is_empty() {
        return Err("it publishes no subnets".to_owned());
    }
    let end = ends(role, site(&facts, spec, driver));
    let identity = kind.identity(&end).map_err(|error| error.to_string())?;
    Ok(Peer {
        driver: driver.to_owned(),
        role,
        name: endpoint.metadata.name.clone(),
        spec: spec.clone(),
        identity,
        created: endpoint.metadata.creation_timestamp,
        facts,
    })
}

/// Returns an Endpoint's end of a cable of this driver.
#[must_use]
pub fn site(facts: &EndpointFacts, spec: &EndpointSpec, driver: &str) -> Site {
    Site {
        cable_name: facts.cable_name.clone(),
        private_ip: facts.private_ip,
        public_ip: facts.public_ip,
        subnets: facts.subnets.clone(),
        driver: driver.to_owned(),
        backend_config: drivers::settings(driver, &facts.backend, spec.backend_config.clone()),
    }
}

/// Sorts peers: oldest cluster first, by `ages`; within a cluster the newest Endpoint first. Names break ties.
fn order(peers: &mut [Arc<Peer>], ages: &BTreeMap<&str, Option<Timestamp>>) {
    peers.sort_by_cached_key(|peer| {
        let cluster = &peer.facts.cluster_id;
        (ages.get(cluster.as_str()).copied(), cluster.clone(), Reverse(peer.created), peer.name.clone())
    });
}

/// Refuses Endpoints with a duplicate key, which are indistinguishable on the wire, or a duplicate cable name. The first
/// stays, and siblings come before all others.
fn refuse_duplicates(admitted: &mut Admitted, identity_is: &str) {
    let mut keys: BTreeMap<[u8; 32], String> = BTreeMap::new();
    let mut cables: BTreeMap<String, String> = BTreeMap::new();
    let refused = &mut admitted.refused;
    let mut is_first = |peer: &mut Arc<Peer>| {
        if let Some(other) = keys.get(&peer.identity) {
            refused.push(refusal(peer, format!("it has the same {identity_is} as Endpoint {other}")));
            return false;
        }
        // NAT discovery and health checks identify a peer by this name alone, so it has to be unique.
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
    };
    admitted.siblings.retain_mut(&mut is_first);
    admitted.peers.retain_mut(&mut is_first);
}

/// Refuses Endpoints beyond the limit per cluster: the newest stay, of our own cluster the first by name.
fn refuse_excess(admitted: &mut Admitted) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let refused = &mut admitted.refused;
    admitted.peers.retain(|peer| {
        let count = counts.entry(peer.facts.cluster_id.clone()).or_default();
        *count += 1;
        if *count > MOST_PATHS {
            let reason = format!("its cluster has {MOST_PATHS} newer ones: delete those that are gone");
            refused.push(refusal(peer, reason));
            return false;
        }
        true
    });
    for peer in admitted.siblings.drain(MOST_SIBLINGS.min(admitted.siblings.len())..) {
        let reason = format!("a cluster has at most {MOST_PATHS} gateways: delete those that are gone");
        refused.push(refusal(&peer, reason));
    }
}

fn refusal(peer: &Peer, reason: String) -> RefusedCluster {
    RefusedCluster { cluster: peer.facts.cluster_id.clone(), endpoint: Some(peer.name.clone()), reason }
}
