//! What is known of the other gateways.

use std::sync::Arc;
use std::time::Instant;

use crate::api::{Endpoint, Kind, NameError, Object, check_object_name, ensure_valid_name, label};

/// What the names of further Endpoints begin with.
pub const FURTHER_PREFIX: &str = "trieste-";

/// Returns the namespace of the own store in which siblings publish themselves.
pub fn paths_namespace(namespace: &str) -> String {
    format!("{namespace}-paths")
}

/// Returns the name of a gateway's further Endpoint.
///
/// # Errors
/// [`NameError`] when the cable's name is empty or too long.
pub fn further_name(cable_name: &str) -> Result<String, NameError> {
    let name = ensure_valid_name(cable_name);
    if name.is_empty() {
        return Err(NameError { name, reason: "needs a cable name" });
    }
    let name = format!("{FURTHER_PREFIX}{name}");
    check_object_name(&name)?;
    Ok(name)
}

/// A gateway, as its further Endpoint tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The object. Its name is not that of the sole Endpoint of the same gateway; the cable's name is. Lists share it.
    pub endpoint: Arc<Endpoint>,
}

impl Member {
    /// Reads a further Endpoint. `None` if this is none, or if its name, label and content do not say the same.
    pub fn read(object: &Object) -> Option<Self> {
        use crate::api::Resource as _;

        if object.kind != Kind::Endpoint || !object.metadata.name.starts_with(FURTHER_PREFIX) {
            return None;
        }
        let cluster = object.metadata.labels.get(label::PATHS_CLUSTER_ID)?;
        let endpoint = Endpoint::from_object(object).ok()?;
        let name = further_name(&endpoint.spec.cable_name).ok()?;
        let is_consistent = endpoint.spec.cluster_id == *cluster
            && name == endpoint.metadata.name
            && endpoint.metadata.origin().is_none();
        is_consistent.then(|| Self { endpoint: Arc::new(endpoint) })
    }

    /// Returns its cluster.
    pub fn cluster_id(&self) -> &str {
        &self.endpoint.spec.cluster_id
    }

    /// Returns its cable: who it is.
    pub fn cable_name(&self) -> &str {
        &self.endpoint.spec.cable_name
    }
}

/// The other gateways. A function of the objects alone: the same for every gateway that sees the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Whether this cluster's gateways are all active. If not, it is as if there were no others: one carries everything,
    /// as with upstream.
    pub is_multi: bool,
    /// The other gateways of this cluster, by cable name. Empty unless all are active.
    pub siblings: Vec<Member>,
    /// How far this gateway's own Endpoint is in the own store.
    pub publication: Publication,
    /// The gateways of remote clusters, by cluster and cable name.
    pub remote: Arc<[Member]>,
    /// Which shares of the outside ports are ours; `None` until that is known, and where this cluster has one active
    /// gateway, which has all of them.
    pub slots: Option<NatSlots>,
}

/// How far this gateway's further Endpoint is in the own store, where its siblings and its cluster's route agents find it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Publication {
    /// It is not known to be there.
    #[default]
    Pending,
    /// It is there, or nothing is to be there.
    Done,
    /// The store refuses it.
    Refused,
}

/// Shares of the outside ports of translation, held by this gateway and nobody else: share `s` are the ports with
/// `(port >> 6) & 7 == s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatSlots {
    /// The shares, bit `s` for share `s`.
    pub held: u8,
    /// Until when they are sure to be ours, on the monotonic clock. Past that new mappings may not be made: somebody
    /// else may have them. Moves on as long as the own store answers.
    pub until: Instant,
}
