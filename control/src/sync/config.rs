//! The configuration of a syncer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::claims::Allowed;
use crate::store::MEMBER_OBJECT_BYTES;

/// The configuration of a syncer.
#[derive(Debug, Clone)]
pub struct SyncConfig {
    /// Our cluster's ID.
    pub cluster_id: String,
    /// The namespace of our objects in the local store.
    pub local_namespace: String,
    /// The namespace of everybody's objects in the broker's store.
    pub broker_namespace: String,
    /// The CIDRs that our Endpoints publish: nobody else may claim them. With Globalnet these are the global CIDRs
    /// alone.
    pub local_subnets: Vec<IpNet>,
    /// Which networks other members may claim; an Endpoint that claims anything else is refused.
    pub allowed: Allowed,
    /// Which way objects travel.
    pub mode: SyncMode,
    /// Whether this gateway may still write; asked before each write.
    pub guard: WriteGuard,
    /// How much of others' is taken.
    pub limits: SyncLimits,
    /// How long to wait before the broker is tried for the second time.
    pub retry_initial: Duration,
    /// How long to wait at most between two tries.
    pub retry_max: Duration,
    /// How long a request, or the first list after a start or a gap, may take before the store counts as away.
    pub answer_within: Duration,
    /// How long the copies of a cluster's objects are kept after its last one (of a kind) has gone from the broker. A
    /// namespace that is deleted loses its objects one by one; a gateway that takes over has replaced its endpoint
    /// long before.
    pub departure_wait: Duration,
    /// How long the copies of others' objects are kept after the broker has lost all of them (of a kind). One cluster
    /// that leaves while others stay is forgotten after [`SyncConfig::departure_wait`]; the last other one, also if it
    /// leaves on purpose, after this time, and only on a broker that has taken our own objects.
    pub empty_grace: Duration,
}

impl SyncConfig {
    /// Creates a configuration with upstream's namespaces, both ways, and our times: half a second, doubling to ten,
    /// ten for an answer, three for a departure and a minute for an emptied broker.
    pub fn new(cluster_id: impl Into<String>, local_subnets: Vec<IpNet>) -> Self {
        Self {
            cluster_id: cluster_id.into(),
            local_namespace: "submariner-operator".to_owned(),
            broker_namespace: "submariner-k8s-broker".to_owned(),
            local_subnets,
            allowed: Allowed::default(),
            mode: SyncMode::default(),
            guard: WriteGuard::default(),
            limits: SyncLimits::default(),
            retry_initial: Duration::from_millis(500),
            retry_max: Duration::from_secs(10),
            answer_within: Duration::from_secs(10),
            departure_wait: Duration::from_secs(3),
            empty_grace: Duration::from_secs(60),
        }
    }
}

/// Which way objects travel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncMode {
    /// Ours to the broker, others' from it: the leader's mode.
    #[default]
    Both,
    /// Others' from the broker, and nothing is written there: for a passive gateway whose local store is its own, such
    /// as a directory. One that shares its cluster's store with the leader needs no syncer at all.
    FollowOnly,
}

/// The most that is taken of others' objects. More are refused and shown, and nothing else is affected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncLimits {
    /// Most bytes of one object, as it lies in memory.
    pub object_bytes: usize,
    /// Most objects of one cluster, of both kinds together.
    pub objects_per_cluster: usize,
    /// Most objects of all other clusters.
    pub objects: usize,
}

impl Default for SyncLimits {
    /// Returns our limits: 32 KiB (an Endpoint takes 1-2), 64 and 4096: at most 128 MiB, whatever others write.
    fn default() -> Self {
        Self { object_bytes: MEMBER_OBJECT_BYTES, objects_per_cluster: 64, objects: 4096 }
    }
}

/// Asks whether this gateway may still write: the fence of the election of the leader. Must be cheap.
#[derive(Clone)]
pub struct WriteGuard(Arc<dyn Fn() -> bool + Send + Sync>);

impl WriteGuard {
    /// Creates a guard that asks `may_write`.
    pub fn new(may_write: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(may_write))
    }

    /// Returns `true` if a write may be started at this moment.
    pub fn may_write(&self) -> bool {
        (self.0)()
    }
}

impl Default for WriteGuard {
    /// Creates a guard that always permits: where nobody is elected.
    fn default() -> Self {
        Self::new(|| true)
    }
}

impl fmt::Debug for WriteGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriteGuard")
    }
}
