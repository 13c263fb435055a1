//! The objects that a gateway writes about itself, whether it leads or not: its Gateway every five seconds, its pod's
//! labels; and what it removes when it is uninstalled.
//!
//! The leader's objects of its cluster are in [`crate::leader`]. [`Publisher::announce`] writes the same once, for a
//! gateway that is alone: endpoints of our own cluster that are not this gateway's go first, then the Cluster is
//! written, then the Endpoint.

mod cadence;
mod fit;
mod pod_label;
mod reading;
mod tracker;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use tokio::time::{MissedTickBehavior, interval, timeout};

pub use fit::{Cut, MAX_STATUS_BYTES};
pub use pod_label::{NODE_LABEL, OwnPod, POD_LABEL_CONDITION, STATUS_LABEL, keep_pod_label, labelled_pod};
pub use reading::StatusReading;
pub use tracker::{GatewayTracker, GatewayWrite};

use crate::admin::Severity;
use crate::api::{
    ApiError, Cluster, ClusterSpec, Endpoint, EndpointSpec, HaStatus, Kind, Object, ObjectKey,
    PublishedStatus, Resource, annotation, ensure_valid_name, label,
};
use crate::conditions::Conditions;
use crate::store::{Store, StoreError, delete_if_exists, upsert};
use crate::timer::clock;

/// The condition that says that a Gateway object does not hold the whole status.
pub const GATEWAY_STATUS_CUT: &str = "GatewayStatusCut";

/// From the specification: how often a Gateway object is written.
pub const GATEWAY_INTERVAL: Duration = Duration::from_secs(5);

/// From the specification: a Gateway object that was not written for this long is a dead gateway's.
pub const GATEWAY_STALE_AFTER: Duration = Duration::from_secs(15);

/// Why something could not be published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// Our own description is not valid: the configuration is wrong.
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
    spared: Spared,
    conditions: Conditions,
}

/// Which of the other gateways' Gateway objects stay, however old, by name. The default is none.
#[derive(Clone)]
pub struct Spared(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl Spared {
    /// Creates a set of the endpoints of which `is_spared` returns `true`.
    pub fn new(is_spared: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_spared))
    }
}

impl Default for Spared {
    fn default() -> Self {
        Self::new(|_| false)
    }
}

impl fmt::Debug for Spared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spared")
    }
}

impl<S: Store> Publisher<S> {
    /// Creates a publisher for the gateway on `hostname` of the cluster `cluster_id`.
    pub fn new(
        store: S,
        namespace: impl Into<String>,
        cluster_id: impl Into<String>,
        hostname: impl Into<String>,
    ) -> Self {
        Self {
            store,
            namespace: namespace.into(),
            cluster_id: cluster_id.into(),
            hostname: hostname.into(),
            spared: Spared::default(),
            conditions: Conditions::new(),
        }
    }

    /// Sets what is wrong with the Gateway object among these conditions.
    #[must_use]
    pub fn with_conditions(mut self, conditions: Conditions) -> Self {
        self.conditions = conditions;
        self
    }

    /// Leaves some of the others' Gateway objects alone: those of gateways whose cable lives.
    #[must_use]
    pub fn sparing(mut self, spared: Spared) -> Self {
        self.spared = spared;
        self
    }

    /// Makes the store say that this is the cluster and this its endpoint. Doing it again changes nothing.
    ///
    /// # Errors
    /// [`PublishError`]. The writes until then stay; announcing again completes it.
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
        let mut tracker = GatewayTracker::new(&self.namespace, &self.hostname)?;
        let written = self.write_gateway(&mut tracker, &status, None, now).await?;
        Ok(written.expect("a tracker that has written nothing writes the whole object"))
    }

    /// Deletes this gateway's Gateway object. Gives `false` if there was none.
    ///
    /// # Errors
    /// [`PublishError::Store`].
    pub async fn remove_gateway(&self) -> Result<bool, PublishError> {
        let key = ObjectKey::new(Kind::Gateway, &self.namespace, ensure_valid_name(&self.hostname));
        Ok(delete_if_exists(&self.store, &key).await?)
    }

    // Not a controller of the runner: a beat is due although nothing differs, has to arrive where watches do not (it reads after a
    // lost race), and sets the time alone by one request. It drives [`GatewayTracker`], which decides.
    /// Keeps the Gateway object up to date, every five seconds from now, until `stop` is ready; then deletes it. While
    /// `status` says that this gateway is active, removes the objects of gateways that are dead: see [`GatewayTracker`].
    /// A failure is logged once, and tried again at the next tick. A status that does not fit into the object is the
    /// condition [`GATEWAY_STATUS_CUT`] meanwhile.
    pub async fn keep_gateway<R: StatusReading>(
        &self,
        mut status: impl FnMut() -> R,
        stop: impl Future<Output = ()>,
    ) {
        let mut stop = pin!(stop);
        let mut ticks = interval(GATEWAY_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reported = None;
        let mut tracker = match GatewayTracker::new(&self.namespace, &self.hostname) {
            Ok(tracker) => tracker,
            Err(error) => {
                report(Err(error.into()), &mut reported);
                return stop.await;
            }
        };
        let mut events = self.store.list_watch(Kind::Gateway, &self.namespace);
        let mut before = None;
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(event) = events.next() => tracker.handle_event(&event, clock()),
                _ = ticks.tick() => tokio::select! {
                    () = &mut stop => break,
                    outcome = self.beat(&mut tracker, status(), &mut before) => report(outcome, &mut reported),
                },
            }
        }
        match timeout(REMOVAL_TIMEOUT, self.remove_gateway()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "gateway object not removed"),
            Err(_) => {
                tracing::warn!(within = ?REMOVAL_TIMEOUT, "no answer to the removal of the gateway object")
            }
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

    /// Writes the status of one beat, and puts it into `before`, where that of the last beat is.
    async fn beat<R: StatusReading>(
        &self,
        tracker: &mut GatewayTracker,
        status: R,
        before: &mut Option<R>,
    ) -> Result<(), PublishError> {
        let ha_status = status.ha_status();
        let written = self.write_gateway(tracker, &status, before.as_ref(), Timestamp::now()).await;
        *before = Some(status);
        written?;
        let key = ObjectKey::new(Kind::Gateway, &self.namespace, ensure_valid_name(&self.hostname));
        match missing(tracker.cut()) {
            Some((severity, text)) => {
                self.conditions.set(GATEWAY_STATUS_CUT, severity, &key.to_string(), text);
            }
            None => drop(self.conditions.clear(GATEWAY_STATUS_CUT, &key.to_string())),
        }
        if ha_status != HaStatus::Active {
            return Ok(());
        }
        let is_dead = |object: &Object| !(self.spared.0)(&object.metadata.name);
        for object in tracker.stale(clock()).into_iter().filter(is_dead) {
            let key = object.key();
            let answer = bounded(&key, self.store.delete_version(&object)).await;
            tracker.handle_removed(&object, &answer, clock());
            match answer {
                Ok(()) => {
                    tracing::info!(object = %key, after = ?GATEWAY_STALE_AFTER, "stale gateway removed")
                }
                Err(error) if error.is_race() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Writes the Gateway object; again, from what the store has, when somebody else was faster. `before` is the status that the
    /// tracker was given last. Gives the object as stored, or nothing where the time was written alone.
    async fn write_gateway<R: StatusReading>(
        &self,
        tracker: &mut GatewayTracker,
        status: &R,
        before: Option<&R>,
        now: Timestamp,
    ) -> Result<Option<Object>, PublishError> {
        let key = ObjectKey::new(Kind::Gateway, &self.namespace, ensure_valid_name(&self.hostname));
        let is_same = before.is_some_and(|before| status.is_unchanged_since(before));
        let mut read = None;
        let mut races = 0;
        let mut refused = None;
        loop {
            let unchanged = if is_same { tracker.beat_unchanged(now) } else { None };
            let write = match unchanged {
                Some(write) => write,
                None => tracker.beat(read.get_or_insert_with(|| status.published()), now),
            };
            let answer = match write {
                GatewayWrite::Create(object) => whole(tracker, &key, self.store.create(object)).await,
                GatewayWrite::Update(object) => whole(tracker, &key, self.store.update(object)).await,
                GatewayWrite::Annotate { object, stamp } => {
                    let request = self.store.annotate(&object, annotation::UPDATE_TIMESTAMP, Some(&stamp));
                    let answer = bounded(&key, request).await;
                    if !tracker.handle_annotated(&answer, clock()) {
                        refused = answer.err();
                        continue;
                    }
                    answer.map(|_| None)
                }
            };
            match answer {
                Err(error) if error.is_race() && races < MAX_RACES => races += 1,
                answer => {
                    let written = answer?;
                    if let Some(error) = refused {
                        tracing::info!(%error, "the time cannot be written alone; every beat is a whole write");
                    }
                    return Ok(written);
                }
            }
            tracker.handle_read(bounded(&key, self.store.get(&key)).await?.as_ref());
        }
    }

    async fn put(&self, wanted: Object) -> Result<Object, StoreError> {
        upsert(&self.store, wanted, |existing, wanted| merge(existing, wanted.clone())).await
    }

    /// Removes our own cluster's other endpoints: they are from an earlier start, or of the gateway that we take over
    /// from.
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

/// Removes what an uninstalled cluster must not leave on the broker: the objects labelled with its ID, further Endpoints
/// of its gateways included.
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
            let further = object.metadata.labels.get(label::PATHS_CLUSTER_ID).map(String::as_str);
            if object.metadata.origin().or(further) == Some(cluster_id) {
                delete_if_exists(broker, &object.key()).await?;
            }
        }
    }
    Ok(())
}

/// Writes the whole Gateway object; the tracker has the answer.
async fn whole(
    tracker: &mut GatewayTracker,
    key: &ObjectKey,
    request: impl Future<Output = Result<Object, StoreError>>,
) -> Result<Option<Object>, StoreError> {
    let answer = bounded(key, request).await;
    tracker.handle_written(&answer, clock());
    answer.map(Some)
}

/// Describes what a published status lacks, if anything. How much that is changes all the time, and is not in the text.
fn missing(cut: Cut) -> Option<(Severity, &'static str)> {
    if cut.left_out.total() > 0 {
        let text = "there are more connections than the object has space for: those that are connected are left out first, \
                    and counted in the annotation trieste.io/connections-left-out; the rest is in short";
        return Some((Severity::Warning, text));
    }
    let text = "there are more connections than the object has space for: they are there in short, without round trips \
                and settings";
    (cut.shortened > 0).then_some((Severity::Info, text))
}

/// Makes an existing object say what is wanted. Labels, annotations and top-level fields that others put there stay.
fn merge(existing: &mut Object, wanted: Object) {
    existing.body.overlay(wanted.body);
    existing.metadata.annotations.extend(wanted.metadata.annotations);
    existing.metadata.labels.extend(wanted.metadata.labels);
}

/// Ours: how long to wait for an answer to one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Ours: how long a stop waits for the Gateway object to be deleted; others delete it otherwise.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Ours: how often a race is run again at once.
const MAX_RACES: usize = 5;

async fn bounded<T>(
    key: &ObjectKey,
    request: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(REQUEST_TIMEOUT, request).await.unwrap_or_else(|_| {
        let source = std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            format!("no answer within {REQUEST_TIMEOUT:?}"),
        );
        Err(StoreError::Unavailable { operation: format!("reach {key}"), source })
    })
}

fn report(outcome: Result<(), PublishError>, last_error: &mut Option<String>) {
    let error = outcome.err().map(|error| error.to_string());
    if error != *last_error {
        match &error {
            Some(error) => tracing::warn!(error, "gateway object not up to date"),
            None => tracing::info!("gateway object up to date again"),
        }
        *last_error = error;
    }
}

#[cfg(test)]
pub(crate) mod samples;
