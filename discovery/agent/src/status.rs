//! How far an agent is, for those who read it.

use std::sync::Arc;

use trieste_control::api::ObjectKey;

use crate::sync_lag::Lag;

/// The status of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentStatus {
    /// Whether both stores are known.
    pub is_complete: bool,
    /// Whether, in addition, nothing is left to be written.
    pub is_settled: bool,
    /// How many services this cluster exports.
    pub exports: usize,
    /// How many services are imported, this cluster's own among them.
    pub imports: usize,
    /// One reason why something is not written, if there is one.
    pub problem: Option<String>,
    /// Why the certificate of the broker's server is not accepted, if it is not.
    pub refused_certificate: Option<String>,
    /// Objects of other clusters that are left alone; not all if they are many.
    pub refused: Vec<RefusedObject>,
    /// The latest changes of conditions, the oldest first.
    pub transitions: Arc<Vec<Transition>>,
    /// How long changes of this cluster take until they are on the broker.
    pub to_broker: Lag,
    /// How long changes of the broker take until they are in this cluster.
    pub to_cluster: Lag,
}

/// A change of a condition of a ServiceExport, which was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// Its number: the first is 1, and each is one more.
    pub number: u64,
    /// The export.
    pub export: ObjectKey,
    /// The export's incarnation.
    pub uid: Option<String>,
    /// Whether all is as it should be, as far as this condition goes.
    pub is_good: bool,
    /// The condition's reason.
    pub reason: String,
    /// The condition's message.
    pub message: String,
}

/// An object of another cluster that is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedObject {
    /// Its kind, namespace and name.
    pub object: String,
    /// Why.
    pub reason: String,
}
