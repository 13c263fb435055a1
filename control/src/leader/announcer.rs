//! A leader's memory: whether an Endpoint that is missing was there before.

use std::time::Instant;

use ipnet::IpNet;

use super::{Plan, View, plan};
use crate::api::{ApiError, ClusterNetworks, ClusterSpec, EndpointSpec, Kind, Object, endpoint_object_name};
use crate::election::{Leadership, Term};

/// Plans for one gateway, over the terms in which it leads.
///
/// While a leadership is valid nobody else leads, as long as clocks run at equal rates and nobody edits the Lease. Where
/// that does not hold, a successor deletes our Endpoint; to make it again then would undo that. So an Endpoint that was
/// there and is gone is only made again after the Lease was renewed later than that: a renewal that succeeds is a proof
/// that there is no successor.
#[derive(Debug)]
pub struct Announcer {
    namespace: String,
    cluster: ClusterSpec,
    extra: Vec<IpNet>,
    term: Option<Term>,
    was_there: bool,
    missing_since: Option<Instant>,
}

impl Announcer {
    /// Creates an announcer of a cluster with these networks, in this namespace.
    pub fn new(namespace: impl Into<String>, cluster_id: &str, networks: &ClusterNetworks) -> Self {
        Self {
            namespace: namespace.into(),
            cluster: networks.cluster(cluster_id),
            extra: networks.extra.clone(),
            term: None,
            was_there: false,
            missing_since: None,
        }
    }

    /// Announces these networks of our cluster from now on.
    pub fn set_networks(&mut self, networks: &ClusterNetworks) {
        self.cluster = networks.cluster(&self.cluster.cluster_id);
        self.extra.clone_from(&networks.extra);
    }

    /// Plans the writes at `now`, in a leadership that is valid. `local` are the Clusters and Endpoints of the
    /// namespace.
    ///
    /// # Errors
    /// As [`plan()`].
    pub fn plan(
        &mut self,
        endpoint: &EndpointSpec,
        leadership: &Leadership,
        local: &[&Object],
        now: Instant,
    ) -> Result<Plan, ApiError> {
        let name = endpoint_object_name(&endpoint.cluster_id, &endpoint.cable_name)
            .map_err(|error| ApiError::field("spec.cable_name", error.to_string()))?;
        let is_there =
            local.iter().any(|object| object.kind == Kind::Endpoint && object.metadata.name == name);
        self.observe(is_there, leadership.term, now);
        plan(&View {
            namespace: &self.namespace,
            cluster: &self.cluster,
            extra: &self.extra,
            endpoint,
            term: leadership.term,
            may_create: self.missing_since.is_none_or(|since| leadership.renewed > since),
            local,
        })
    }

    /// Takes in that all that was planned is done: the Endpoint is there.
    pub fn announced(&mut self) {
        self.was_there = true;
        self.missing_since = None;
    }

    fn observe(&mut self, is_there: bool, term: Term, now: Instant) {
        if self.term != Some(term) {
            // Taking the Lease was the proof.
            self.term = Some(term);
            self.was_there = false;
            self.missing_since = None;
        }
        if is_there {
            self.was_there = true;
            self.missing_since = None;
        } else if self.was_there && self.missing_since.is_none() {
            self.missing_since = Some(now);
        }
    }
}
