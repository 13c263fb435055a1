//! What a gateway writes about itself: its Cluster and Endpoint once, its Gateway every five seconds.
//!
//! The order of writes is upstream's, since peers react to each of them: endpoints of our own cluster that are not
//! this gateway's go first, then the Cluster is written, then the Endpoint. This is the rule for one active gateway
//! per cluster: a gateway that announces itself takes the cluster over.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{MissedTickBehavior, interval};

use crate::api::{
    ApiError, Cluster, ClusterSpec, Endpoint, EndpointSpec, Gateway, HaStatus, Kind, Object, ObjectKey,
    PublishedStatus, Resource, annotation, ensure_valid_name,
};
use crate::store::{Store, StoreError, delete_if_exists, upsert};

/// From the specification: how often a Gateway object is written.
pub const GATEWAY_INTERVAL: Duration = Duration::from_secs(5);

/// From the specification: a Gateway object that was not written for this long is a dead gateway's.
pub const GATEWAY_STALE_AFTER: Duration = Duration::from_secs(15);

/// Why something could not be published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// What we would say of ourselves is not valid: the configuration is wrong.
    #[error("cannot publish: {0}")]
    Invalid(#[from] ApiError),
    /// The store would not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Writes one gateway's objects into one store and namespace.
#[derive(Debug, Clone)]
pub struct Publisher<S> {
    store: S,
    namespace: String,
    cluster_id: String,
    hostname: String,
}

impl<S: Store> Publisher<S> {
    /// A publisher for the gateway on `hostname` of the cluster `cluster_id`.
    pub fn new(
        store: S,
        namespace: impl Into<String>,
        cluster_id: impl Into<String>,
        hostname: impl Into<String>,
    ) -> Self {
        Self { store, namespace: namespace.into(), cluster_id: cluster_id.into(), hostname: hostname.into() }
    }

    /// Makes the store say that this is the cluster and this its endpoint. Doing it again changes nothing.
    ///
    /// # Errors
    /// [`PublishError`]. What was written until then stays; announcing again completes it.
    pub async fn announce(&self, cluster: &ClusterSpec, endpoint: &EndpointSpec) -> Result<(), PublishError> {
        let cluster = Cluster::new(&self.namespace, cluster.clone())?;
        let wanted = Endpoint::new(&self.namespace, endpoint.clone())?;
        self.remove_other_endpoints(endpoint).await?;
        self.put(cluster.to_object()).await?;
        self.put(wanted.to_object()).await?;
        Ok(())
    }

    /// Writes the Gateway object: `status`, and the time as annotation. Other annotations stay.
    ///
    /// # Errors
    /// [`PublishError`].
    pub async fn put_gateway(&self, status: PublishedStatus, now: Timestamp) -> Result<Object, PublishError> {
        let mut gateway = Gateway::new(&self.namespace, &self.hostname, status)?;
        let stamp = (annotation::UPDATE_TIMESTAMP.to_owned(), now.as_second().to_string());
        gateway.metadata.annotations.extend([stamp]);
        Ok(upsert(&self.store, gateway.to_object(), merge).await?)
    }

    /// Deletes this gateway's Gateway object. Gives `false` if there was none.
    ///
    /// # Errors
    /// [`PublishError::Store`].
    pub async fn remove_gateway(&self) -> Result<bool, PublishError> {
        let key = ObjectKey::new(Kind::Gateway, &self.namespace, ensure_valid_name(&self.hostname));
        Ok(delete_if_exists(&self.store, &key).await?)
    }

    /// Deletes other gateways' Gateway objects that have not been written for 15 s, or do not say when they were.
    /// The active gateway's duty.
    ///
    /// # Errors
    /// [`PublishError::Store`].
    pub async fn remove_stale_gateways(&self, now: Timestamp) -> Result<(), PublishError> {
        let own = ensure_valid_name(&self.hostname);
        for object in self.store.list(Kind::Gateway, &self.namespace).await? {
            if object.metadata.name != own && is_stale(&object, now) {
                delete_if_exists(&self.store, &object.key()).await?;
            }
        }
        Ok(())
    }

    /// Keeps the Gateway object up to date, every five seconds from now, until `stop` is ready; then deletes it.
    /// A failure is logged once, and tried again at the next tick.
    pub async fn keep_gateway(
        &self,
        mut status: impl FnMut() -> PublishedStatus,
        stop: impl Future<Output = ()>,
    ) {
        let mut stop = pin!(stop);
        let mut ticks = interval(GATEWAY_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_error = None;
        loop {
            tokio::select! {
                () = &mut stop => break,
                _ = ticks.tick() => {}
            }
            let outcome = self.beat(status()).await;
            report(outcome, &mut last_error);
        }
        if let Err(error) = self.remove_gateway().await {
            tracing::warn!(%error, "the Gateway object stays behind: {error}");
        }
    }

    /// Removes what an uninstalled gateway must not leave in its own cluster's store: its Gateway, and all Clusters
    /// and Endpoints of the namespace, copies included.
    ///
    /// # Errors
    /// [`PublishError::Store`]. Doing it again removes the rest.
    pub async fn withdraw(&self) -> Result<(), PublishError> {
        self.remove_gateway().await?;
        for kind in [Kind::Endpoint, Kind::Cluster] {
            for object in self.store.list(kind, &self.namespace).await? {
                delete_if_exists(&self.store, &object.key()).await?;
            }
        }
        Ok(())
    }

    async fn beat(&self, status: PublishedStatus) -> Result<(), PublishError> {
        let is_active = status.ha_status == HaStatus::Active;
        let now = Timestamp::now();
        self.put_gateway(status, now).await?;
        if is_active { self.remove_stale_gateways(now).await } else { Ok(()) }
    }

    async fn put(&self, wanted: Object) -> Result<Object, StoreError> {
        upsert(&self.store, wanted, merge).await
    }

    /// Our own cluster's other endpoints are from an earlier start, or of the gateway that we take over from.
    async fn remove_other_endpoints(&self, own: &EndpointSpec) -> Result<(), StoreError> {
        for object in self.store.list(Kind::Endpoint, &self.namespace).await? {
            let is_copy = object.metadata.origin().is_some();
            let Ok(other) = Endpoint::from_object(&object) else { continue };
            if !is_copy && other.spec.cluster_id == self.cluster_id && !other.spec.is_same_endpoint(own) {
                delete_if_exists(&self.store, &object.key()).await?;
            }
        }
        Ok(())
    }
}

/// Removes what an uninstalled cluster must not leave on the broker: the objects labelled with its ID.
///
/// # Errors
/// [`StoreError`]. Doing it again removes the rest.
pub async fn withdraw_from_broker<B: Store>(
    broker: &B,
    namespace: &str,
    cluster_id: &str,
) -> Result<(), StoreError> {
    for kind in [Kind::Endpoint, Kind::Cluster] {
        for object in broker.list(kind, namespace).await? {
            if object.metadata.origin() == Some(cluster_id) {
                delete_if_exists(broker, &object.key()).await?;
            }
        }
    }
    Ok(())
}

/// Makes an existing object say what is wanted. Labels and annotations that others put there stay.
fn merge(existing: &mut Object, wanted: &Object) {
    existing.body.clone_from(&wanted.body);
    let metadata = &mut existing.metadata;
    metadata.annotations.extend(wanted.metadata.annotations.iter().map(|(k, v)| (k.clone(), v.clone())));
    metadata.labels.extend(wanted.metadata.labels.iter().map(|(k, v)| (k.clone(), v.clone())));
}

fn is_stale(object: &Object, now: Timestamp) -> bool {
    let Some(updated) = Gateway::from_object(object).ok().and_then(|gateway| gateway.updated()) else {
        return true;
    };
    now > updated && now.duration_since(updated).unsigned_abs() >= GATEWAY_STALE_AFTER
}

fn report(outcome: Result<(), PublishError>, last_error: &mut Option<String>) {
    let error = outcome.err().map(|error| error.to_string());
    if error != *last_error {
        match &error {
            Some(error) => tracing::warn!("the Gateway object is not up to date: {error}"),
            None => tracing::info!("the Gateway object is up to date again"),
        }
        *last_error = error;
    }
}
