//! The writes that make both stores agree. Pure: the same views give the same plan, and the plan of the result is
//! empty. The running syncer decides event by event, by the same code.

use ipnet::IpNet;

use super::name::{KINDS, Name};
use super::side::Side;
use super::state::{Scope, SyncState};
use super::{Refused, SyncLimits};
use crate::api::{Kind, Object};
use crate::claims::Allowed;
use crate::runner::{Rank, Write};

/// All that a plan depends on.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// Our cluster's ID.
    pub cluster_id: &'a str,
    /// The namespace of our objects in the local store.
    pub local_namespace: &'a str,
    /// The namespace of everybody's objects in the broker's store.
    pub broker_namespace: &'a str,
    /// Our own CIDRs.
    pub local_subnets: &'a [IpNet],
    /// Which networks other members may claim.
    pub allowed: &'a Allowed,
    /// Clusters and Endpoints of the local namespace.
    pub local: &'a [&'a Object],
    /// Clusters and Endpoints of the broker's namespace.
    pub broker: &'a [&'a Object],
}

/// Returns the order of a write: deletions first, then Clusters, then Endpoints.
pub(super) fn rank(write: &Write) -> Rank {
    let (first, last) = if matches!(write, Write::Delete(_)) { (0, 1) } else { (2, 3) };
    let is_cluster = write.object().is_some_and(|object| object.kind == Kind::Cluster);
    if is_cluster { first } else { last }
}

/// The writes, in this order, and the objects that are not imported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Deletions first, then Clusters, then Endpoints.
    pub writes: Vec<(Side, Write)>,
    /// Foreign objects that are not imported, by cluster and name.
    pub refused: Vec<Refused>,
    /// Why the other members refuse our Endpoints, if they do.
    pub own_refusal: Option<OwnRefusal>,
}

/// Another cluster was there first with addresses of ours: the other members do not connect to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnRefusal {
    /// The other cluster.
    pub holder: String,
    /// Its addresses.
    pub held: IpNet,
    /// Our subnet that overlaps it.
    pub ours: IpNet,
}

impl std::fmt::Display for OwnRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { holder, held, ours } = self;
        write!(
            f,
            "cluster {holder} was there first with {held}, which overlaps our {ours}; other members refuse ours: \
             give one of the two other CIDRs, or use Globalnet"
        )
    }
}

/// Compares the two stores.
pub fn plan(view: &View<'_>) -> Plan {
    let mut state = SyncState::new(Scope {
        cluster_id: view.cluster_id.to_owned(),
        local_namespace: view.local_namespace.to_owned(),
        broker_namespace: view.broker_namespace.to_owned(),
        local_subnets: view.local_subnets.to_vec(),
        limits: SyncLimits::default(),
        allowed: view.allowed.clone(),
        exports: true,
    });
    for (side, objects) in [(Side::Local, view.local), (Side::Broker, view.broker)] {
        for object in objects.iter().filter(|object| KINDS.contains(&object.kind)) {
            state.put(side, Name::of(object), (*object).clone());
        }
    }
    let mut writes = Vec::new();
    for name in state.take_dirty() {
        state.refresh_refused(&name);
        let decide = |side| state.decide(side, &name).map(|write| (side, write));
        writes.extend(Side::ALL.into_iter().filter_map(decide));
    }
    writes.sort_by_key(|(_, write)| rank(write));
    Plan { writes, refused: refused(&state), own_refusal: own_refusal(&state) }
}

/// Returns all refusals, by cluster and name.
pub(super) fn refused(state: &SyncState) -> Vec<Refused> {
    let mut refused: Vec<Refused> = state.refused.values().cloned().collect();
    refused.sort_by(|a, b| (&a.cluster, &a.endpoint).cmp(&(&b.cluster, &b.endpoint)));
    refused.dedup();
    refused
}

pub(super) fn own_refusal(state: &SyncState) -> Option<OwnRefusal> {
    let conflict = state.own_conflict()?;
    Some(OwnRefusal { holder: conflict.holder.to_string(), held: conflict.held, ours: conflict.claimed })
}

#[cfg(test)]
mod tests;
