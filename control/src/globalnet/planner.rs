//! A plan that is kept, and follows what changes.
//!
//! ```text
//!   changed objects ──▶ Work: which units depend on them ──▶ those units anew ──▶ Outputs (writes, problems)
//!                                                                        └──────▶ Rules ──▶ GlobalnetState
//! ```
//!
//! Its result is a function of the objects alone, as if all of it had been planned at once: nothing depends on the
//! order of what happened. It costs what depends on what has changed, beside the [`GlobalnetState`], which is made anew
//! whenever it differs.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::clusters;
use super::config::GlobalnetConfig;
use super::objects::{Changes, Objects, Scope};
use super::state::{GlobalnetState, Problem};
use super::work::Work;
use crate::api::{ApiError, ClusterFacts, Kind};
use crate::runner::Write;
use crate::store::StoreEvent;

/// The objects, and what follows from them.
#[derive(Debug)]
pub struct Planner {
    config: GlobalnetConfig,
    objects: Objects,
    /// Our own cluster; `None` before the first plan.
    own: Option<Result<Option<ClusterFacts>, ApiError>>,
    /// The plan, while all is known that a plan needs at least.
    work: Option<Work>,
    needs: BTreeSet<Scope>,
    is_complete: bool,
    state: Arc<GlobalnetState>,
}

impl Planner {
    /// Returns one that has planned nothing yet.
    pub fn new(config: GlobalnetConfig, objects: Objects) -> Self {
        Self {
            config,
            objects,
            own: None,
            work: None,
            needs: BTreeSet::new(),
            is_complete: false,
            state: Arc::default(),
        }
    }

    /// Takes in an event about a scope. Returns `true` if it changes anything.
    pub fn observe(&mut self, scope: &Scope, event: StoreEvent) -> bool {
        self.objects.handle(scope, event)
    }

    /// Returns the scopes that have to be followed, as of the last update. Only if all of them are known is the state
    /// whole.
    pub const fn needs(&self) -> &BTreeSet<Scope> {
        &self.needs
    }

    /// Returns `true` if all that is needed is known.
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns what to translate.
    pub const fn state(&self) -> &Arc<GlobalnetState> {
        &self.state
    }

    /// Returns `true` if there is something to write.
    pub fn has_writes(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.has_writes(&self.objects))
    }

    /// Returns what to write by the gateway that leads: at most so many writes that were not returned yet, or also all
    /// others if these are fewer; and whether more of the former are left. One write per object at most; none of them
    /// depends on another.
    pub fn take_writes(&mut self, most: usize) -> (Vec<Write>, bool) {
        self.work.as_mut().map(|work| work.take_writes(&self.objects, most)).unwrap_or_default()
    }

    /// Returns how many units were decided about since the start.
    pub fn steps(&self) -> u64 {
        self.work.as_ref().map_or(0, Work::steps)
    }

    /// Plans the units that depend on changes. Scopes that are no longer needed are removed.
    pub fn update(&mut self, now: Timestamp) {
        let needed = self.needs.clone();
        let changes = self.objects.take_changes();
        self.apply(&changes, now);
        let unneeded: Vec<Scope> = needed.difference(&self.needs).cloned().collect();
        if !unneeded.is_empty() {
            unneeded.iter().for_each(|scope| self.objects.remove_scope(scope));
            let changes = self.objects.take_changes();
            self.apply(&changes, now);
        }
    }

    fn apply(&mut self, changes: &Changes, now: Timestamp) {
        if self.own.is_none() || changes.has_any_of(Kind::Cluster) {
            let own = clusters::own(&self.config, &self.objects);
            if self.own.as_ref() != Some(&own) {
                self.work = None;
                self.own = Some(own);
            }
        }
        let namespace = self.config.namespace.clone();
        self.needs = BTreeSet::from([(Kind::Cluster, namespace.clone())]);
        self.is_complete = false;
        let own = match &self.own {
            Some(Ok(Some(own))) if !own.global_cidr.is_empty() => own,
            Some(Ok(Some(_))) => {
                self.is_complete = true;
                return self.rest(None);
            }
            Some(Err(error)) => {
                let problem = invalid_cluster(&self.config, error);
                return self.rest(Some(problem));
            }
            Some(Ok(None)) | None => return self.rest(None),
        };
        self.needs.extend(base(&namespace));
        if !self.needs.iter().all(|scope| is_known(&self.objects, scope)) {
            return self.rest(None);
        }
        let everything = self.work.is_none().then(|| self.objects.everything());
        let changes = everything.as_ref().unwrap_or(changes);
        let work = self.work.get_or_insert_with(|| Work::new(&self.config, own));
        if let Some(state) = work.update(&self.config, &self.objects, changes, now)
            && *self.state != state
        {
            self.state = Arc::new(state);
        }
        self.needs.extend(work.needs().cloned());
        self.is_complete = self.needs.iter().all(|scope| is_known(&self.objects, scope));
    }

    /// Plans nothing for now.
    fn rest(&mut self, problem: Option<Problem>) {
        self.work = None;
        let state = GlobalnetState { problems: problem.into_iter().collect(), ..GlobalnetState::default() };
        if *self.state != state {
            self.state = Arc::new(state);
        }
    }
}

fn invalid_cluster(config: &GlobalnetConfig, error: &ApiError) -> Problem {
    let subject = format!("Cluster {}/{}", config.namespace, config.cluster_id);
    Problem { name: "ObjectInvalid", subject, message: error.to_string() }
}

/// Returns the scopes that a cluster with Globalnet needs always.
fn base(namespace: &str) -> [Scope; 6] {
    let scope = |kind: Kind, namespace: &str| (kind, namespace.to_owned());
    [
        scope(Kind::Gateway, namespace),
        scope(Kind::ClusterGlobalEgressIp, ""),
        scope(Kind::GlobalEgressIp, ""),
        scope(Kind::GlobalIngressIp, ""),
        scope(Kind::Service, ""),
        scope(Kind::ServiceExport, ""),
    ]
}

/// Returns `true` if a scope is known, or a plan can do without. Not every cluster has the definition of ServiceExport: as
/// long as it cannot be read, what was made for exports stays, and nothing is added.
fn is_known(objects: &Objects, (kind, namespace): &Scope) -> bool {
    *kind == Kind::ServiceExport || objects.is_known(*kind, namespace)
}
