//! What to write so that both stores agree. Pure: the same views give the same plan, and the plan of the result is
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

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Create this object.
    Create(Side, Object),
    /// Replace an object by this; its version is the one that the plan was based on.
    Update(Side, Object),
    /// Delete this version of this object.
    Delete(Side, Object),
}

impl Action {
    /// The object that is written or deleted.
    pub fn object(&self) -> &Object {
        match self {
            Self::Create(_, object) | Self::Update(_, object) | Self::Delete(_, object) => object,
        }
    }

    /// Returns the order of writes: deletions first, then Clusters, then Endpoints.
    pub(super) fn rank(&self) -> Rank {
        let (first, last) = if matches!(self, Self::Delete(..)) { (0, 1) } else { (2, 3) };
        if self.object().kind == Kind::Cluster { first } else { last }
    }
}

impl From<Action> for Write {
    fn from(action: Action) -> Self {
        match action {
            Action::Create(_, object) => Self::Create(object),
            Action::Update(_, object) => Self::Update(object),
            Action::Delete(_, object) => Self::Delete(object),
        }
    }
}

/// What to write, in this order, and what is not imported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Deletions first, then Clusters, then Endpoints.
    pub actions: Vec<Action>,
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
    /// What it holds.
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
    let mut actions = Vec::new();
    for name in state.take_dirty() {
        state.refresh_refused(&name);
        actions.extend(Side::ALL.into_iter().filter_map(|side| state.decide(side, &name)));
    }
    actions.sort_by_key(Action::rank);
    Plan { actions, refused: refused(&state), own_refusal: own_refusal(&state) }
}

/// Everything that is refused, by cluster and name.
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
