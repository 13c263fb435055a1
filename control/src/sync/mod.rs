//! The broker, seen as a syncer between a cluster's local store and the store that all clusters share.
//!
//! ```text
//!    local store                                    broker's store
//!    own Cluster, Endpoint   ── label added ──▶     labelled with our ID
//!    labelled copies         ◀──── filter ────      labelled with others' IDs
//! ```
//!
//! * Which cluster an object is from is said by the label `submariner-io/clusterID`: originals have none, copies do.
//!   Labelled objects are never pushed, unlabelled ones never pulled, so nothing echoes.
//! * **Level-driven**: every change recomputes [`plan()`] from all that is known of both sides, and applies what it
//!   says. An event that is lost, doubled or late costs nothing; stale copies go at start because they are stale.
//! * **Refused** are foreign endpoints that claim addresses of ours, or of an older cluster, and those that make no
//!   sense. They are listed with the reason, for status.
//! * A broker that has **lost every other cluster at once** is not believed for [`SyncConfig::empty_grace`].
//! * While one side is away nothing is applied: a store that cannot be read is not an empty store. The broker is
//!   tried again with back-off and jitter, for ever; [`SyncHandle::state`] says since when, why, and when next.

mod apply;
mod backoff;
mod copy;
mod grace;
mod link;
mod plan;
mod rivals;
mod run;

use std::time::Duration;

use ipnet::IpNet;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use crate::admin::{BrokerLink, BrokerStatus as BrokerState, RefusedCluster as Refused};
pub use backoff::Backoff;
pub use plan::{Action, Plan, Side, View, plan};

use crate::store::Store;

/// What a syncer has to know.
#[derive(Debug, Clone)]
pub struct SyncConfig {
    /// Our cluster's ID.
    pub cluster_id: String,
    /// The namespace of our objects in the local store.
    pub local_namespace: String,
    /// The namespace of everybody's objects in the broker's store.
    pub broker_namespace: String,
    /// Our own CIDRs, pods and services: nobody else may claim them.
    pub local_subnets: Vec<IpNet>,
    /// How long to wait before the broker is tried for the second time.
    pub retry_initial: Duration,
    /// How long to wait at most between two tries.
    pub retry_max: Duration,
    /// How long the copies of others' objects are kept after the broker has lost all of them (of a kind) at once. One cluster
    /// that leaves while others stay is forgotten at once; the last other one, also if it leaves on purpose, after
    /// this time.
    pub empty_grace: Duration,
}

impl SyncConfig {
    /// A configuration with upstream's namespaces, and our times: half a second, doubling to ten, and a minute's
    /// grace.
    pub fn new(cluster_id: impl Into<String>, local_subnets: Vec<IpNet>) -> Self {
        Self {
            cluster_id: cluster_id.into(),
            local_namespace: "submariner-operator".to_owned(),
            broker_namespace: "submariner-k8s-broker".to_owned(),
            local_subnets,
            retry_initial: Duration::from_millis(500),
            retry_max: Duration::from_secs(10),
            empty_grace: Duration::from_secs(60),
        }
    }
}

/// The syncer.
#[derive(Debug)]
pub struct Syncer;

impl Syncer {
    /// Starts syncing in the background, on the current tokio runtime. Ends when the handle is dropped.
    ///
    /// Publish your own objects first: what is on the broker under our ID and not in the local store is stale, and is
    /// removed. The broker need not be there.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn<L: Store, B: Store>(local: L, broker: B, config: SyncConfig) -> SyncHandle {
        let (state_sender, state) = watch::channel(run::first_state());
        let (refused_sender, refused) = watch::channel(Vec::new());
        let task =
            tokio::spawn(run::run(local, broker, config, run::Outputs { state_sender, refused_sender }));
        SyncHandle { state, refused, task }
    }
}

/// A running syncer. Dropping it ends it.
#[derive(Debug)]
pub struct SyncHandle {
    /// Whether the broker answers; since when, why not, and when it is tried next.
    pub state: watch::Receiver<BrokerState>,
    /// Foreign objects that are not imported, and why; by cluster and name.
    pub refused: watch::Receiver<Vec<Refused>>,
    task: JoinHandle<()>,
}

impl SyncHandle {
    /// Ends the syncer and waits until it has.
    pub async fn stop(mut self) {
        self.task.abort();
        // It ended by being told to, which is what was wanted.
        let _ = (&mut self.task).await;
    }
}

impl Drop for SyncHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}
