//! The networks of the own cluster, which may change while the gateway runs: a ConfigMap says them, and everything that goes
//! by them follows.
//!
//! ```text
//!   ConfigMap trieste-networks ─▶ Found ─┬─▶ tables and cables: what is let out, and in
//!                                        ├─▶ Cluster, Endpoint ─▶ local store ─▶ route agents; broker ─▶ other clusters
//!                                        └─▶ syncer (who claims ours), services, addresses of this node
//! ```
//!
//! Without the object those of the settings count. One that makes no sense, or is deleted, changes nothing.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use ipnet::IpNet;
use trieste_control::admin::Severity;
use trieste_control::api::{
    ClusterNetworks, Endpoint, Kind, ObjectKey, Resource as _, ensure_valid_name, overlap, parse_cidrs,
};
use trieste_control::claims::Allowed;
use trieste_control::leader::TERM_ANNOTATION;
use trieste_control::store::{AnyStore, Store as _, StoreError, StoreEvent};

use super::Control;
use crate::config::Config;
use crate::engine::Engine;
use crate::memory::Remembered;
use crate::{node, state};

/// How often a start asks for the object.
const RETRY: Duration = Duration::from_millis(250);
/// How long a start waits for the object where its networks are remembered, and where they are not.
const TIMEOUT_REMEMBERED: Duration = Duration::from_millis(250);
const TIMEOUT: Duration = Duration::from_secs(5);
/// The condition of an object that has no effect.
const NOT_IN_FORCE: &str = "NetworksNotInForce";
/// The condition of networks that others take in no Endpoint unless they were told to.
const NOT_FOR_ALL: &str = "NetworksNotForAll";
/// The cable of which upstream's gateways take no change under a known key (wireformat §3).
const BY_KEY: &str = "wireguard";

/// Returns the object's place.
fn key(config: &Config) -> ObjectKey {
    ObjectKey::new(Kind::ConfigMap, &config.namespace, ClusterNetworks::OBJECT)
}

/// Returns the networks at start: those of the object, if it is there and makes sense, also beside other clusters; else those
/// that were in force, as the own Cluster object says or as they are remembered; else those of the settings.
pub(crate) async fn at_start(
    config: &Config,
    store: &AnyStore,
    memory: Option<&Remembered>,
) -> ClusterNetworks {
    // Globalnet's are the settings' always.
    let global = &config.networks.global;
    let remembered = memory.and_then(|memory| memory.networks.clone());
    let remembered = remembered.map(|networks| ClusterNetworks { global: global.clone(), ..networks });
    let timeout = if remembered.is_some() { TIMEOUT_REMEMBERED } else { TIMEOUT };
    let asked = async {
        loop {
            match ask(config, store).await {
                Ok(found) => return found,
                Err(error) => tracing::debug!(%error, "the cluster's networks cannot be read yet"),
            }
            tokio::time::sleep(RETRY).await;
        }
    };
    let found = tokio::time::timeout(timeout, asked).await.unwrap_or_default();
    found.or(remembered).unwrap_or_else(|| config.networks.clone())
}

/// Asks the store for the networks; `None` if it says none that make sense, or only to others than this account.
async fn ask(config: &Config, store: &AnyStore) -> Result<Option<ClusterNetworks>, StoreError> {
    let object = match store.get(&key(config)).await {
        // An account of upstream's.
        Err(StoreError::Forbidden { .. }) => return Ok(None),
        object => object?,
    };
    let Some(object) = object else { return Ok(None) };
    let endpoints = store.list(Kind::Endpoint, &config.namespace).await?;
    let endpoints = endpoints.iter().filter_map(|object| Endpoint::from_object(object).ok());
    let others: Vec<Arc<Endpoint>> =
        endpoints.filter(|other| other.spec.cluster_id != config.cluster_id).map(Arc::new).collect();
    let global = &config.networks.global;
    let is_free =
        |networks: &ClusterNetworks| networks.published().iter().all(|net| claimed(&others, net).is_none());
    if let Some(networks) = ClusterNetworks::read(&object, global).ok().filter(is_free) {
        return Ok(Some(networks));
    }
    // It says so once this gateway follows it. What it did not say before is not in force now either.
    let own = ObjectKey::new(Kind::Cluster, &config.namespace, ensure_valid_name(&config.cluster_id));
    let own = store.get(&own).await?.and_then(|own| ClusterNetworks::announced(&own));
    Ok(own.map(|networks| ClusterNetworks { global: global.clone(), ..networks }))
}

impl Control<'_> {
    /// Follows the object.
    pub(super) fn follow_networks(&self) -> BoxStream<'static, StoreEvent> {
        self.store.watch_one(&key(self.config)).boxed()
    }

    /// Takes an event of the object. Returns `true` if the networks are others than before.
    pub(super) fn take_networks(&mut self, event: StoreEvent, engine: &mut Engine) -> bool {
        self.state.networks_event = Some(event);
        self.renew_networks(engine)
    }

    /// Takes over the networks that the object says, once it is known whose others are. Returns `true` if they are others than
    /// before.
    pub(super) fn renew_networks(&mut self, engine: &mut Engine) -> bool {
        if !self.state.mirror.is_complete() {
            return false;
        }
        let Some(event) = self.state.networks_event.take() else { return false };
        let object = match event {
            StoreEvent::Unavailable(error @ StoreError::Forbidden { .. }) => {
                let message = format!("{error}; the networks that this gateway was started with count");
                self.conditions.put(NOT_IN_FORCE, Severity::Info, "", Some(message));
                return false;
            }
            StoreEvent::Applied(object) => Some(object),
            StoreEvent::Listed(objects) => objects.into_iter().next(),
            // Those in force stay: a cluster does not lose its networks with an object.
            StoreEvent::Deleted(_) | StoreEvent::Unavailable(_) | _ => return false,
        };
        let Some(object) = object else { return false };
        let others = self.others();
        let read = ClusterNetworks::read(&object, &self.config.networks.global);
        let read = read.map_err(|error| error.to_string()).and_then(|networks| {
            let added = self.added(&networks);
            match added.iter().find_map(|added| claimed(&others, added)) {
                Some(problem) => Err(problem),
                None => Ok((networks, added)),
            }
        });
        let problem =
            read.as_ref().err().map(|problem| format!("{problem}; the networks before stay in force"));
        self.conditions.put(NOT_IN_FORCE, Severity::Warning, "", problem);
        let Ok((networks, added)) = read else { return false };
        if networks == self.state.found.networks {
            return false;
        }
        self.use_networks(networks, &added, &others, engine);
        true
    }

    /// Returns what is published of networks, and is not so far.
    fn added(&self, networks: &ClusterNetworks) -> Vec<IpNet> {
        let before = self.state.found.networks.published();
        networks.published().into_iter().filter(|net| !before.contains(net)).collect()
    }

    /// Returns the Endpoints of other clusters.
    fn others(&mut self) -> Vec<Arc<Endpoint>> {
        let (mut endpoints, _) = self.state.mirror.read();
        endpoints.retain(|endpoint| endpoint.spec.cluster_id != self.config.cluster_id);
        endpoints
    }

    fn use_networks(
        &mut self,
        networks: ClusterNetworks,
        added: &[IpNet],
        others: &[Arc<Endpoint>],
        engine: &mut Engine,
    ) {
        tracing::info!(
            pods = ?networks.pods,
            services = ?networks.services,
            extra = ?networks.extra,
            "the cluster's networks change"
        );
        let unusual = networks.published().iter().find_map(|net| Allowed::default().check(net).err());
        let message = unusual.map(|unusual| {
            format!(
                "{unusual}; other clusters refuse this one unless it is allowed there (allow-remote-cidrs)"
            )
        });
        self.conditions.put(NOT_FOR_ALL, Severity::Warning, "", message);
        let is_published_otherwise = networks.published() != self.state.found.networks.published();
        engine.set_subnets(networks.published());
        engine.set_icmp_sources(node::icmp_sources(self.config, &networks));
        self.networks.send_replace(networks.clone());
        self.state.found.inside = node::inside(&networks);
        self.state.found.networks = networks;
        if is_published_otherwise {
            self.reach_upstream(!added.is_empty(), others, engine);
        }
        self.publish_endpoint();
        self.watch_health(engine);
    }

    /// Makes gateways that are not Trieste's take over what is published: they ignore other networks in an Endpoint that is the
    /// same to them (behaviour §3.6), so that its settings change too, or with WireGuard its key, for which this gateway
    /// starts again. Where there are none the key stays.
    fn reach_upstream(&mut self, has_more: bool, others: &[Arc<Endpoint>], engine: &Engine) {
        let foreign: Vec<&Endpoint> =
            others.iter().map(|endpoint| &**endpoint).filter(|endpoint| !is_triestes(endpoint)).collect();
        let by_key = foreign.iter().find(|endpoint| endpoint.spec.backend == BY_KEY);
        self.state.found.is_renewed = foreign.iter().any(|endpoint| endpoint.spec.backend != BY_KEY);
        match by_key {
            // Less than was published is refused here anyhow. One that takes the lead has another key.
            Some(endpoint) if has_more && engine.is_active() => {
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

/// Says which other cluster has a network that overlaps one of ours; `None` if none has.
fn claimed(others: &[Arc<Endpoint>], added: &IpNet) -> Option<String> {
    others.iter().find_map(|endpoint| {
        let theirs = parse_cidrs("spec.subnets", &endpoint.spec.subnets).ok()?;
        let (_, theirs) = overlap(&[*added], &theirs)?;
        Some(format!("{added} overlaps {theirs} of cluster {}", endpoint.spec.cluster_id))
    })
}

/// Returns `true` if an Endpoint was written by Trieste.
fn is_triestes(endpoint: &Endpoint) -> bool {
    endpoint.spec.supports_paths() || endpoint.metadata.annotations.contains_key(TERM_ANNOTATION)
}
