//! The networks of the own cluster, which may change while the gateway runs: a ConfigMap says them, and everything that goes
//! by them follows.
//!
//! ```text
//!   ConfigMap trieste-networks ─▶ Found ─┬─▶ tables and cables: what is let out, and in
//!                                        ├─▶ Cluster, Endpoint ─▶ local store ─▶ route agents; broker ─▶ other clusters
//!                                        └─▶ syncer (who claims ours), services, addresses of this node
//! ```
//!
//! Without the object those of the settings count. One that cannot be in force changes nothing, and is checked again every few
//! seconds: what it wants may become free, and all gateways of a cluster come to the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::BoxStream;
use ipnet::IpNet;
use trieste_control::admin::Severity;
use trieste_control::api::{
    Cluster, ClusterNetworks, Endpoint, Kind, Object, ObjectKey, Resource as _, ensure_valid_name, overlap,
    parse_cidrs,
};
use trieste_control::leader::TERM_ANNOTATION;
use trieste_control::store::{AnyStore, Store as _, StoreError, StoreEvent};

use super::Control;
use super::announcement::Announcement;
use crate::config::Config;
use crate::engine::Engine;
use crate::memory::Remembered;
use crate::{node, state, stores};

/// How long a change waits to learn which networks clusters have that have no gateway at present.
const CLUSTERS_TIMEOUT: Duration = Duration::from_secs(2);
/// The condition of an object that has no effect.
const NOT_IN_FORCE: &str = "NetworksNotInForce";
/// The cable of which upstream's gateways take no change under a known key (wireformat §3).
const BY_KEY: &str = "wireguard";

/// What another cluster has.
#[derive(Debug)]
struct Claim {
    cluster: String,
    networks: Vec<IpNet>,
}

/// Returns the object's place.
fn key(config: &Config) -> ObjectKey {
    ObjectKey::new(Kind::ConfigMap, &config.namespace, ClusterNetworks::OBJECT)
}

/// Returns the networks at start: those of the object, if it is there and can be in force, else those that were, as the own
/// Cluster object says. Without the object those of the settings; where the store does not answer, what was in force when it
/// did.
pub(crate) async fn at_start(
    config: &Config,
    store: &AnyStore,
    memory: Option<&Remembered>,
) -> ClusterNetworks {
    let remembered = memory.and_then(|memory| memory.networks.as_ref());
    // Those of settings are of no use under other settings.
    let is_valid =
        |of_settings: &Option<ClusterNetworks>| of_settings.as_ref().is_none_or(|of| *of == config.networks);
    let remembered = remembered.filter(|known| is_valid(&known.settings));
    let global = &config.networks.global;
    let found =
        stores::ask_at_start("networks", remembered.is_some(), async || ask(config, store).await).await;
    let found = found.unwrap_or_else(|| {
        remembered.map(|known| ClusterNetworks { global: global.clone(), ..known.in_force.clone() })
    });
    found.unwrap_or_else(|| config.networks.clone())
}

/// Asks the store for the networks; `None` if it has none, or none for this account.
async fn ask(config: &Config, store: &AnyStore) -> Result<Option<ClusterNetworks>, StoreError> {
    let object = match store.get(&key(config)).await {
        // An account of upstream's.
        Err(StoreError::Forbidden { .. }) => return Ok(None),
        object => object?,
    };
    let Some(object) = object else { return Ok(None) };
    let clusters = store.list(Kind::Cluster, &config.namespace).await?;
    // Globalnet's are the settings' always.
    let global = &config.networks.global;
    let name = ensure_valid_name(&config.cluster_id);
    let own = clusters.iter().find(|cluster| cluster.metadata.name == name);
    let own = own.and_then(ClusterNetworks::announced);
    let own = own.map(|networks| ClusterNetworks { global: global.clone(), ..networks });
    if own.as_ref().is_some_and(|own| names(&object, own)) {
        return Ok(own);
    }
    let endpoints = store.list(Kind::Endpoint, &config.namespace).await?;
    let endpoints = endpoints.iter().filter_map(|object| Endpoint::from_object(object).ok()).map(Arc::new);
    let claims = claims(&config.cluster_id, &endpoints.collect::<Vec<_>>(), &clusters);
    // It says so once this gateway follows it. What it did not say before is not in force now either.
    match accept(&object, own.as_ref(), &claims, config) {
        Ok(networks) => Ok(Some(networks)),
        Err(_) => Ok(own),
    }
}

/// Returns `true` if an object says no other networks than these.
fn names(object: &Object, networks: &ClusterNetworks) -> bool {
    ClusterNetworks::read(object, &networks.global).is_ok_and(|named| named == *networks)
}

/// Returns the networks of an object, if they can be in force.
///
/// # Errors
/// Why not, for people.
fn accept(
    object: &Object,
    before: Option<&ClusterNetworks>,
    claims: &[Claim],
    config: &Config,
) -> Result<ClusterNetworks, String> {
    let networks =
        ClusterNetworks::read(object, &config.networks.global).map_err(|error| error.to_string())?;
    let added = added(&networks, before);
    if let Some(problem) = added.iter().find_map(|added| claimed(claims, added)) {
        return Err(problem);
    }
    // Members take an Endpoint as a whole: one network that they do not allow would cost the cluster all others. What it had
    // when it joined, they were told of.
    let not_allowed = || added.iter().find_map(|added| Some((added, config.allowed.check(added).err()?)));
    match before.and_then(|_| not_allowed()) {
        Some((network, why)) => Err(format!("{network}: {why}")),
        None => Ok(networks),
    }
}

/// Returns what is published of networks, and was not before.
fn added(networks: &ClusterNetworks, before: Option<&ClusterNetworks>) -> Vec<IpNet> {
    let before = before.map(ClusterNetworks::published).unwrap_or_default();
    networks.published().into_iter().filter(|net| !before.contains(net)).collect()
}

impl Control<'_> {
    /// Follows the object.
    pub(super) fn follow_networks(&self) -> BoxStream<'static, StoreEvent> {
        self.store.watch_one(&key(self.config)).boxed()
    }

    /// Takes an event of the object. Returns `true` if the networks are others than before.
    pub(super) async fn take_networks(&mut self, event: StoreEvent, engine: &mut Engine) -> bool {
        let object = match event {
            StoreEvent::Unavailable(error @ StoreError::Forbidden { .. }) => {
                let message = format!("{error}; the networks that this gateway was started with count");
                self.conditions.put(NOT_IN_FORCE, Severity::Info, "", Some(message));
                return false;
            }
            StoreEvent::Applied(object) => Some(object),
            StoreEvent::Listed(objects) => objects.into_iter().next(),
            StoreEvent::Deleted(_) => None,
            StoreEvent::Unavailable(_) | _ => return false,
        };
        self.state.announcement = Announcement { is_due: object.is_some(), object };
        if !self.state.announcement.is_due {
            // Those in force stay: a cluster does not lose its networks with an object.
            self.conditions.put(NOT_IN_FORCE, Severity::Warning, "", None);
        }
        self.renew_networks(engine).await
    }

    /// Checks the object, if that is due and it is known whose other networks are. Returns `true` if the networks are others
    /// than before.
    pub(super) async fn renew_networks(&mut self, engine: &mut Engine) -> bool {
        if !self.state.announcement.is_due || !self.state.mirror.is_complete() {
            return false;
        }
        let Some(object) = self.state.announcement.object.clone() else { return false };
        if names(&object, &self.state.found.networks) {
            self.conditions.put(NOT_IN_FORCE, Severity::Warning, "", None);
            self.state.announcement.is_due = false;
            return false;
        }
        let (endpoints, _) = self.state.mirror.read();
        let clusters = self.store.list(Kind::Cluster, &self.config.namespace);
        let Ok(Ok(clusters)) = tokio::time::timeout(CLUSTERS_TIMEOUT, clusters).await else { return false };
        let claims = claims(&self.config.cluster_id, &endpoints, &clusters);
        let accepted = accept(&object, Some(&self.state.found.networks), &claims, self.config);
        let problem = accepted.as_ref().err();
        let message = problem.map(|problem| format!("{problem}; the networks before stay in force"));
        self.conditions.put(NOT_IN_FORCE, Severity::Warning, "", message);
        self.state.announcement.is_due = accepted.is_err();
        let Ok(networks) = accepted else { return false };
        self.use_networks(networks, &endpoints, engine);
        true
    }

    fn use_networks(&mut self, networks: ClusterNetworks, endpoints: &[Arc<Endpoint>], engine: &mut Engine) {
        tracing::info!(
            pods = ?networks.pods,
            services = ?networks.services,
            extra = ?networks.extra,
            "the cluster's networks change"
        );
        let has_more = !added(&networks, Some(&self.state.found.networks)).is_empty();
        let is_published_otherwise = networks.published() != self.state.found.networks.published();
        engine.set_subnets(networks.published());
        engine.set_icmp_sources(node::icmp_sources(self.config, &networks, self.node.private_ip));
        self.networks.send_replace(networks.clone());
        self.state.found.inside = node::inside(&networks);
        self.state.found.networks = networks;
        self.reach_upstream((is_published_otherwise, has_more), endpoints);
        self.publish_endpoint();
        self.watch_health(engine);
        // A start that gets no answer goes on with them.
        self.state.is_dirty = true;
        self.remember(engine);
    }

    /// Makes gateways that are not Trieste's take over what is published: they ignore other networks in an Endpoint that is the
    /// same to them (behaviour §3.6), so that its settings change too, or with WireGuard its key, for which this gateway
    /// starts again. Where there are none the key stays.
    fn reach_upstream(
        &mut self,
        (is_published_otherwise, has_more): (bool, bool),
        endpoints: &[Arc<Endpoint>],
    ) {
        let is_foreign = |endpoint: &&Arc<Endpoint>| {
            is_published_otherwise
                && endpoint.spec.cluster_id != self.config.cluster_id
                && !is_triestes(endpoint)
        };
        let foreign: Vec<&Arc<Endpoint>> = endpoints.iter().filter(is_foreign).collect();
        let by_key = foreign.iter().find(|endpoint| endpoint.spec.backend == BY_KEY);
        self.state.found.is_renewed |= foreign.iter().any(|endpoint| endpoint.spec.backend != BY_KEY);
        match by_key {
            // Less than was published is refused here anyhow. One that takes the lead has another key.
            Some(endpoint) if has_more && self.candidate.is_leader(Instant::now()) => {
                let reason = format!(
                    "this cluster has more networks, and cluster {}, whose gateway is not Trieste's, takes them over with \
                     another WireGuard key alone: this gateway starts again with one",
                    endpoint.spec.cluster_id
                );
                self.state.restart = Some(reason);
            }
            Some(_) => {}
            None if self.memory.is_some() => {
                let facts = self.node.key_facts(&self.state.found.networks);
                if let Err(error) = state::keep_key_for(&self.config.state_dir, &facts) {
                    tracing::warn!(%error, "cannot save the parameters of the WireGuard key: the next start makes another one");
                }
            }
            None => {}
        }
    }
}

/// Returns what other clusters have: by their Endpoints, and by the copies of their Cluster objects, which stay while they have
/// no gateway.
fn claims(own: &str, endpoints: &[Arc<Endpoint>], clusters: &[Object]) -> Vec<Claim> {
    let of_endpoint = |endpoint: &Arc<Endpoint>| {
        let networks = parse_cidrs("spec.subnets", &endpoint.spec.subnets).ok()?;
        Some(Claim { cluster: endpoint.spec.cluster_id.clone(), networks })
    };
    let of_cluster = |object: &Object| {
        let facts = Cluster::from_object(object).ok()?.spec.parse().ok()?;
        let networks = facts.published_subnets();
        Some(Claim { cluster: facts.cluster_id, networks })
    };
    let claims = endpoints.iter().filter_map(of_endpoint).chain(clusters.iter().filter_map(of_cluster));
    claims.filter(|claim| claim.cluster != own).collect()
}

/// Says which other cluster has a network that overlaps one of ours; `None` if none has.
fn claimed(claims: &[Claim], added: &IpNet) -> Option<String> {
    claims.iter().find_map(|Claim { cluster, networks }| {
        let (_, theirs) = overlap(&[*added], networks)?;
        Some(format!("{added} overlaps {theirs} of cluster {cluster}"))
    })
}

/// Returns `true` if an Endpoint was written by Trieste.
fn is_triestes(endpoint: &Endpoint) -> bool {
    endpoint.spec.supports_paths() || endpoint.metadata.annotations.contains_key(TERM_ANNOTATION)
}

#[cfg(test)]
mod tests;
