//! All objects in, what to write and what to translate out. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::config::GlobalnetConfig;
use super::objects::{Objects, Scope};
use super::planner::Planner;
use super::state::GlobalnetState;
use crate::runner::Write;

/// All that a plan depends on.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The namespace of Cluster and Gateway objects.
    pub namespace: &'a str,
    /// This cluster's ID.
    pub cluster_id: &'a str,
    /// The name of this gateway's own Gateway object, if the gateway has an address inside of the cluster at which it can
    /// be pinged; without one it needs no global IP.
    pub gateway: Option<&'a str>,
    /// All objects of the scopes that an earlier plan needed.
    pub objects: &'a Objects,
    /// The time, for conditions that change.
    pub now: Timestamp,
}

/// The plan for a view.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The writes, by the gateway that leads; one write per object at most. None of them depends on another.
    pub writes: Vec<Write>,
    /// The translation.
    pub state: GlobalnetState,
    /// The scopes to be watched. Only if all of them are known is the state whole.
    pub needs: BTreeSet<Scope>,
    /// Whether all that is needed is known.
    pub is_complete: bool,
}

/// Compares what there is with what there should be. Level-driven: the same view gives the same plan, whatever happened
/// before, and once all writes are done the plan is empty.
pub fn plan(view: &View<'_>) -> Outcome {
    let config = GlobalnetConfig {
        namespace: view.namespace.to_owned(),
        cluster_id: view.cluster_id.to_owned(),
        gateway: view.gateway.map(str::to_owned),
    };
    let mut planner = Planner::new(config, view.objects.clone());
    planner.update(view.now);
    let (writes, _) = planner.take_writes(usize::MAX);
    Outcome {
        writes,
        state: GlobalnetState::clone(planner.state()),
        needs: planner.needs().clone(),
        is_complete: planner.is_complete(),
    }
}
