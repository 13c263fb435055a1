//! The controller of the cluster's Endpoint, which carries out what the [`Announcer`] plans while this gateway leads.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::stream::{StreamExt as _, select};
use tokio::sync::watch;

use super::Announcer;
use crate::api::{ClusterNetworks, EndpointSpec, Kind, Object};
use crate::election::{Candidate, Leadership, Term};
use crate::runner::{
    self, Context, Controller, Fence, FenceRequest, Handle, Limits, QueueView, Reconciled, Watch, port,
    values,
};
use crate::store::{Cache, Store, StoreEvent};

/// The configuration of a leader.
#[derive(Debug, Clone)]
pub struct LeaderConfig {
    /// The namespace of our objects.
    pub namespace: String,
    /// Our cluster's ID.
    pub cluster_id: String,
    /// Our cluster's networks, which may change at any time.
    pub networks: watch::Receiver<ClusterNetworks>,
}

/// A part of what is announced.
#[derive(Debug, Clone)]
pub enum LeaderInput {
    /// Our cluster's networks.
    Networks(ClusterNetworks),
    /// The specification of this gateway.
    Endpoint(Box<EndpointSpec>),
}

/// How far this gateway is as its cluster's one Endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaderStatus {
    /// The state.
    pub state: LeaderState,
    /// The term, while this gateway leads.
    pub term: Option<Term>,
    /// The obstacle, for people; `None` if there is none.
    pub problem: Option<String>,
}

/// Whether this gateway is its cluster's one Endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaderState {
    /// It does not lead.
    #[default]
    Standby,
    /// It leads, and the store does not say all of it yet.
    Announcing,
    /// It leads, and the store says so.
    Announced,
    /// It leads, but an object carries a newer term: nothing is written until our term has been raised above it.
    Fenced,
}

/// A running leader. Dropping it ends it; what it has written stays.
#[derive(Debug)]
pub struct LeaderHandle {
    /// How far it is.
    pub status: watch::Receiver<LeaderStatus>,
    /// The runner.
    pub runner: Handle,
}

/// Starts to keep this gateway its cluster's one Endpoint, for as long as `candidate` leads. `endpoint` may change at
/// any time.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<S: Store>(
    store: S,
    config: LeaderConfig,
    candidate: Candidate,
    endpoint: watch::Receiver<EndpointSpec>,
) -> LeaderHandle {
    let (sender, status) = watch::channel(LeaderStatus::default());
    let fence = Fence::Term { candidate, settle: Duration::ZERO };
    let publish = move |status: &LeaderStatus| {
        log(&sender.borrow(), status);
        sender.send_replace(status.clone());
    };
    let controller = EndpointController::new(&config);
    let networks = values(config.networks).map(LeaderInput::Networks);
    let input =
        select(networks, values(endpoint).map(|endpoint| LeaderInput::Endpoint(endpoint.into()))).boxed();
    let runner = runner::spawn(controller, vec![port(store)], fence, input, LIMITS, publish);
    LeaderHandle { status, runner }
}

/// The waits after a failure are short: traffic of the whole cluster may depend on it.
const LIMITS: Limits = Limits {
    retry: (Duration::from_millis(250), Duration::from_secs(10)),
    limits_objects: false,
    ..Limits::DEFAULT
};

/// Writes the cluster's Cluster and Endpoint, and removes its other Endpoints.
#[derive(Debug)]
pub struct EndpointController {
    namespace: String,
    announcer: Announcer,
    endpoint: Option<EndpointSpec>,
    clusters: Cache,
    endpoints: Cache,
    /// Kinds that cannot be read at present: nothing is planned meanwhile.
    unavailable: BTreeSet<Kind>,
    term: Option<Term>,
    wants_proof: bool,
    outcome: Outcome,
}

/// The result of the last plan.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// There was none in this term.
    Unplanned,
    /// Something is to be written that was not announced in this term.
    Writing,
    /// All is written, or was and is amended.
    Announced,
    /// Nothing may be written.
    Fenced(String),
    /// Nothing can be written.
    Invalid(String),
}

impl EndpointController {
    /// Returns a controller that has observed nothing.
    pub fn new(config: &LeaderConfig) -> Self {
        Self {
            announcer: Announcer::new(
                config.namespace.clone(),
                &config.cluster_id,
                &config.networks.borrow(),
            ),
            namespace: config.namespace.clone(),
            endpoint: None,
            clusters: Cache::new(),
            endpoints: Cache::new(),
            unavailable: BTreeSet::new(),
            term: None,
            wants_proof: false,
            outcome: Outcome::Unplanned,
        }
    }

    /// Returns `true` if all that a plan depends on is there, and new enough.
    fn is_complete(&self) -> bool {
        self.unavailable.is_empty() && self.clusters.is_complete() && self.endpoints.is_complete()
    }

    fn plan(&mut self, endpoint: &EndpointSpec, held: &Leadership, now: Instant) -> Reconciled {
        let objects: Vec<&Object> = self.clusters.objects().chain(self.endpoints.objects()).collect();
        let plan = match self.announcer.plan(endpoint, held, &objects, now) {
            Ok(plan) => plan,
            Err(error) => {
                self.outcome = Outcome::Invalid(format!("our own settings: {error}"));
                return Reconciled::await_change();
            }
        };
        if let Some(fence) = plan.fenced {
            let problem = format!("{} carries term {}, ours is {}", fence.object, fence.term, held.term);
            self.outcome = Outcome::Fenced(problem);
            return Reconciled { fence: Some(FenceRequest::RaiseTerm(fence.term)), ..Reconciled::default() };
        }
        self.wants_proof = plan.wants_proof;
        if plan.writes.is_empty() && !plan.wants_proof {
            self.announcer.announced();
            self.outcome = Outcome::Announced;
        } else if plan.wants_proof || self.outcome != Outcome::Announced {
            self.outcome = Outcome::Writing;
        }
        let fence = plan.wants_proof.then_some(FenceRequest::Confirm);
        Reconciled { writes: plan.writes, fence, ..Reconciled::default() }
    }
}

impl Controller for EndpointController {
    type Key = ();
    type Status = LeaderStatus;
    type Input = LeaderInput;

    fn name(&self) -> &'static str {
        "endpoint"
    }

    fn watches(&self) -> BTreeSet<Watch> {
        [Kind::Cluster, Kind::Endpoint].map(|kind| Watch::new(0, kind, &*self.namespace)).into()
    }

    fn observe(&mut self, watch: &Watch, event: StoreEvent, _: Instant) -> Vec<()> {
        let cache = if watch.kind == Kind::Cluster { &mut self.clusters } else { &mut self.endpoints };
        let has_returned = match event {
            StoreEvent::Unavailable(_) => {
                self.unavailable.insert(watch.kind);
                false
            }
            StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) => {
                self.unavailable.remove(&watch.kind)
            }
        };
        if cache.apply(&event) || has_returned { vec![()] } else { Vec::new() }
    }

    fn handle_input(&mut self, input: LeaderInput, _: Instant) -> Vec<()> {
        match input {
            LeaderInput::Networks(networks) => self.announcer.set_networks(&networks),
            LeaderInput::Endpoint(endpoint) => self.endpoint = Some(*endpoint),
        }
        vec![()]
    }

    fn handle_leadership(&mut self, held: Option<&Leadership>, _: Instant) -> Vec<()> {
        let term = held.map(|held| held.term);
        let is_due = self.wants_proof || term != self.term;
        if term != self.term {
            self.outcome = Outcome::Unplanned;
        }
        self.term = term;
        if is_due { vec![()] } else { Vec::new() }
    }

    fn reconcile(&mut self, (): &(), context: &Context) -> Reconciled {
        self.wants_proof = false;
        match (context.leadership, self.endpoint.clone()) {
            (Some(held), Some(endpoint)) if self.is_complete() => self.plan(&endpoint, &held, context.now),
            _ => Reconciled::await_change(),
        }
    }

    fn status(&self, view: &QueueView<'_>) -> LeaderStatus {
        let Some(held) = view.leadership else { return LeaderStatus::default() };
        let announcing = |problem: Option<&str>| (LeaderState::Announcing, problem.map(str::to_owned));
        let (state, problem) = match &self.outcome {
            Outcome::Fenced(problem) => (LeaderState::Fenced, Some(problem.clone())),
            Outcome::Invalid(problem) => announcing(Some(problem)),
            _ if !view.outages.is_empty() => announcing(view.outages.first().map(|(_, reason)| *reason)),
            _ if view.problem().is_some() => announcing(view.problem()),
            Outcome::Unplanned | Outcome::Writing => announcing(None),
            Outcome::Announced => (LeaderState::Announced, None),
        };
        LeaderStatus { state, term: Some(held.term), problem }
    }
}

fn log(before: &LeaderStatus, now: &LeaderStatus) {
    match &now.problem {
        Some(problem) if before.problem.as_ref() != Some(problem) => {
            tracing::warn!(problem, "cannot publish the cluster's Endpoint");
        }
        _ if now.state == LeaderState::Announced => tracing::info!("this gateway is its cluster's Endpoint"),
        _ => {}
    }
}
