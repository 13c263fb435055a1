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
    /// By name: siblings, and remote gateways.
    siblings: BTreeMap<String, CachedPeer>,
    remote: BTreeMap<String, CachedPeer>,
    /// How often all were read; marks what is still there.
    pass: u64,
    reads: u64,
}

/// The cached result of parsing an object.
#[derive(Debug)]
struct CachedPeer {
    endpoint: Arc<Endpoint>,
    result: Result<Arc<Peer>, String>,
    pass: u64,
}

impl CachedPeer {
    fn is_of(&self, endpoint: &Arc<Endpoint>) -> bool {
        if Arc::ptr_eq(&self.endpoint, endpoint) {
            return true;
        }
        let (known, newest) = (&self.endpoint.metadata, &endpoint.metadata);
        match (&known.resource_version, &newest.resource_version) {
            (Some(version), Some(of_newest)) => version == of_newest && known.uid == newest.uid,
            _ => self
                .result
                .as_ref()
                .is_ok_and(|peer| peer.spec == endpoint.spec && peer.created == newest.creation_timestamp),
        }
    }
}

impl Reader {
    /// Parses the remote gateways and siblings that have changed since the last call. An unchanged one costs a look-up, and
    /// its peer is the same [`Arc`] as before.
    pub fn read(
        &mut self,
        targets: &[Target],
        siblings: &[Member],
        local: &Local,
        kind: &dyn CableKind,
    ) -> Admitted {
        self.pass += 1;
        let mut admitted = Admitted::default();
        let by = (kind, &local.allowed);
        // A target is of another cluster, a sibling of ours: nobody is both.
        let is_near = |endpoint: &Endpoint| endpoint.spec.cluster_id == local.cluster_id;
        for sibling in siblings.iter().filter(|sibling| is_near(&sibling.endpoint)) {
            if let Some(peer) = self.read_one(&sibling.endpoint, Role::Sibling, by, &mut admitted.refused) {
                admitted.siblings.push(peer);
            }
        }
        let mut ages = BTreeMap::new();
        for target in targets {
            ages.insert(target.endpoint.spec.cluster_id.as_str(), target.since);
            let role = if target.is_for_all { Role::Member } else { Role::Sole };
            if !is_near(&target.endpoint)
                && let Some(peer) = self.read_one(&target.endpoint, role, by, &mut admitted.refused)
            {
                admitted.peers.push(peer);
            }
        }
        let pass = self.pass;
        self.siblings.retain(|_, cached| cached.pass == pass);
        self.remote.retain(|_, cached| cached.pass == pass);
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

    /// Returns what an Endpoint says; `None` if that is refused.
    fn read_one(
        &mut self,
        endpoint: &Arc<Endpoint>,
        role: Role,
        (kind, allowed): (&dyn CableKind, &Allowed),
        refused: &mut Vec<RefusedCluster>,
    ) -> Option<Arc<Peer>> {
        let cache = if role == Role::Sibling { &mut self.siblings } else { &mut self.remote };
        let known = cache.get_mut(endpoint.metadata.name.as_str());
        let cached = match known {
            Some(cached) => {
                if !cached.is_of(endpoint) {
                    self.reads += 1;
                    match (read(endpoint, role, kind, allowed), &cached.result) {
                        // Labels or annotations changed: nothing for us.
                        (Ok(peer), Ok(older)) if peer == **older => {}
                        (result, _) => cached.result = result.map(Arc::new),
                    }
                }
                cached
            }
            None => {
                self.reads += 1;
                let result = read(endpoint, role, kind, allowed).map(Arc::new);
                let cached = CachedPeer { endpoint: Arc::clone(endpoint), result, pass: 0 };
                cache.entry(endpoint.metadata.name.clone()).or_insert(cached)
            }
        };
        cached.pass = self.pass;
        if !Arc::ptr_eq(&cached.endpoint, endpoint) {
            cached.endpoint = Arc::clone(endpoint);
        }
        match &mut cached.result {
            Ok(peer) => {
                if peer.role != role {
                    Arc::make_mut(peer).role = role;
                }
                Some(Arc::clone(peer))
            }
            Err(reason) => {
                refused.push(RefusedCluster {
                    cluster: endpoint.spec.cluster_id.clone(),
                    endpoint: Some(endpoint.metadata.name.clone()),
                    reason: reason.clone(),
                });
                None
            }
        }
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
fn order(peers: &mut Vec<Arc<Peer>>, ages: &BTreeMap<&str, Option<Timestamp>>) {
    let age = |peer: &Peer| ages.get(peer.facts.cluster_id.as_str()).copied().flatten();
    let mut aged: Vec<(Option<Timestamp>, Arc<Peer>)> =
        peers.drain(..).map(|peer| (age(&peer), peer)).collect();
    aged.sort_by(|(of_a, a), (of_b, b)| {
        let within = |peer: &Peer| Reverse(peer.created);
        let clusters = of_a.cmp(of_b).then_with(|| a.facts.cluster_id.cmp(&b.facts.cluster_id));
        clusters.then_with(|| within(a).cmp(&within(b))).then_with(|| a.name.cmp(&b.name))
    });
    peers.extend(aged.into_iter().map(|(_, peer)| peer));
}

/// Refuses Endpoints with a duplicate key, which are indistinguishable on the wire, or a duplicate cable name. The first
/// stays, and siblings come before all others.
fn refuse_duplicates(admitted: &mut Admitted, identity_is: &str) {
    let mut keys: BTreeMap<&[u8; 32], &str> = BTreeMap::new();
    let mut cables: BTreeMap<&str, &str> = BTreeMap::new();
    let mut reasons = Vec::new();
    for peer in admitted.siblings.iter().chain(&admitted.peers) {
        let reason = if let Some(other) = keys.get(&peer.identity) {
            Some(format!("it has the same {identity_is} as Endpoint {other}"))
        } else if let Some(other) = cables.get(peer.facts.cable_name.as_str()) {
            // NAT discovery and health checks identify a peer by this name alone, so it has to be unique.
            let name = &peer.facts.cable_name;
            Some(format!("field `spec.cable_name`: `{name}` is already that of Endpoint {other}"))
        } else {
            keys.insert(&peer.identity, &peer.name);
            cables.insert(&peer.facts.cable_name, &peer.name);
            None
        };
        reasons.push(reason);
    }
    let mut reasons = reasons.into_iter();
    let refused = &mut admitted.refused;
    let mut is_first = |peer: &Arc<Peer>| match reasons.next().flatten() {
        Some(reason) => {
            refused.push(refusal(peer, reason));
            false
        }
        None => true,
    };
    admitted.siblings.retain(&mut is_first);
    admitted.peers.retain(&mut is_first);
}

/// Refuses Endpoints beyond the limit per cluster: the newest stay, of our own cluster the first by name.
fn refuse_excess(admitted: &mut Admitted) {
    // The last cluster, and how many of it came so far: peers are in the order of clusters.
    let mut last: Option<(Arc<Peer>, usize)> = None;
    let refused = &mut admitted.refused;
    admitted.peers.retain(|peer| {
        let count = match &mut last {
            Some((of, count)) if of.facts.cluster_id == peer.facts.cluster_id => {
                *count += 1;
                *count
            }
            other => {
                *other = Some((Arc::clone(peer), 1));
                1
            }
        };
        if count > MOST_PATHS {
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
