//! The controller of Globalnet's objects, which carries out plans while this process leads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _};
use tokio::sync::watch;

use super::config::GlobalnetConfig;
use super::objects::Objects;
use super::planner::Planner;
use super::state::{GlobalnetState, Problem};
use crate::api::Kind;
use crate::election::{Candidate, Leadership, Term};
use crate::runner::{
    self, Context, Controller, Fence, Handle, Limits, Order, QueueView, Reconciled, Watch, port,
};
use crate::store::{Store, StoreEvent};

/// How far this gateway is with what it writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GlobalnetStatus {
    /// Its state.
    pub phase: GlobalnetPhase,
    /// The term, while it leads.
    pub term: Option<Term>,
    /// The reason why it cannot read or write at all, for people; `None` if it can.
    pub problem: Option<String>,
    /// Objects that the store does not take, and why.
    pub refused: Vec<Problem>,
    /// How many writes were done since start.
    pub writes: u64,
}

/// The state of a gateway's part in Globalnet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GlobalnetPhase {
    /// It does not know enough yet.
    #[default]
    Starting,
    /// This cluster is without Globalnet.
    Off,
    /// It translates, and another gateway writes.
    Standby,
    /// It leads and has something to write.
    Writing,
    /// It leads, and the store says all that it is to say.
    Settled,
}

impl GlobalnetPhase {
    /// Returns the phase as status documents have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Off => "off",
            Self::Standby => "standby",
            Self::Writing => "writing",
            Self::Settled => "settled",
        }
    }
}

/// Globalnet, running. Dropping it ends it; what it has written stays.
#[derive(Debug)]
pub struct GlobalnetHandle {
    /// The translation. `None` until all of it is known: the one from before a restart is to go on until then.
    pub state: watch::Receiver<Option<Arc<GlobalnetState>>>,
    /// How far it is.
    pub status: watch::Receiver<GlobalnetStatus>,
    /// The runner.
    pub runner: Handle,
}

/// Starts to watch the objects and to publish the state; and to write what is planned for as long as `candidate` leads
/// (see [`ElectionConfig::globalnet`](crate::election::ElectionConfig::globalnet)).
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<S: Store>(store: S, config: GlobalnetConfig, candidate: Candidate) -> GlobalnetHandle {
    let (state_sender, state) = watch::channel(None);
    let (status_sender, status) = watch::channel(GlobalnetStatus::default());
    let publish = move |snapshot: &Snapshot| {
        state_sender.send_if_modified(|state| {
            let has_changed = *state != snapshot.state;
            state.clone_from(&snapshot.state);
            has_changed
        });
        status_sender.send_if_modified(|status| {
            log(status, &snapshot.status);
            let has_changed = *status != snapshot.status;
            status.clone_from(&snapshot.status);
            has_changed
        });
    };
    let fence = Fence::Term { candidate, settle: TAKE_OVER };
    let controller = GlobalnetController::new(config);
    let runner =
        runner::spawn(controller, vec![port(store)], fence, stream::pending().boxed(), LIMITS, publish);
    GlobalnetHandle { state, status, runner }
}

/// Changes come in bursts, as when a deployment is scaled; and in a large cluster that changes all the time plans must
/// not take more than a quarter of a core.
const LIMITS: Limits = Limits {
    settle: Duration::from_millis(50),
    rest_factor: 3,
    max_rest: Duration::from_secs(5),
    max_writes: MAX_WRITES,
    ..Limits::DEFAULT
};
/// The most writes of one plan. Later changes wait for them.
const MAX_WRITES: usize = 1024;
/// How long a new leader observes before it writes: what its predecessor wrote last may still be on its way here.
const TAKE_OVER: Duration = Duration::from_secs(1);

/// Gives out global addresses and writes what follows from them.
#[derive(Debug)]
pub struct GlobalnetController {
    planner: Planner,
    state: Option<Arc<GlobalnetState>>,
    term: Option<Term>,
    phase: GlobalnetPhase,
    is_started: bool,
}

/// The published status.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The translation.
    pub state: Option<Arc<GlobalnetState>>,
    /// How far it is.
    pub status: GlobalnetStatus,
}

impl GlobalnetController {
    /// Returns a controller that has observed nothing.
    pub fn new(config: GlobalnetConfig) -> Self {
        Self {
            planner: Planner::new(config, Objects::default()),
            state: None,
            term: None,
            phase: GlobalnetPhase::Starting,
            is_started: false,
        }
    }

    /// Plans what has changed; what else the plan needs is watched from now on.
    fn plan(&mut self, context: &Context) {
        self.planner.update(context.wall);
        let state = self.planner.state();
        // Until all has been seen once, a rule without members would send pods out under other addresses than before.
        let is_usable = self.planner.is_complete() || self.state.is_some() && state.global_cidr.is_some();
        if is_usable {
            self.state = Some(Arc::clone(state));
        }
        self.phase = self.phase(context.leadership.is_some());
    }

    fn phase(&self, leads: bool) -> GlobalnetPhase {
        let has_writes = self.planner.has_writes();
        if !self.planner.is_complete() {
            GlobalnetPhase::Starting
        } else if self.planner.state().global_cidr.is_none() && !has_writes {
            GlobalnetPhase::Off
        } else if !leads {
            GlobalnetPhase::Standby
        } else if has_writes {
            GlobalnetPhase::Writing
        } else {
            GlobalnetPhase::Settled
        }
    }
}

impl Controller for GlobalnetController {
    type Key = ();
    type Status = Snapshot;
    type Input = std::convert::Infallible;

    fn name(&self) -> &'static str {
        "globalnet"
    }

    fn watches(&self) -> BTreeSet<Watch> {
        self.planner
            .needs()
            .iter()
            .map(|(kind, namespace)| Watch::new(0, *kind, namespace.as_str()))
            .collect()
    }

    fn observe(&mut self, watch: &Watch, event: StoreEvent, _: Instant) -> Vec<()> {
        let has_changed = self.planner.observe(&(watch.kind, watch.namespace.clone()), event);
        if has_changed { vec![()] } else { Vec::new() }
    }

    fn handle_leadership(&mut self, held: Option<&Leadership>, _: Instant) -> Vec<()> {
        let term = held.map(|held| held.term);
        let is_due = term != self.term || !self.is_started;
        (self.term, self.is_started) = (term, true);
        if is_due { vec![()] } else { Vec::new() }
    }

    fn reconcile(&mut self, (): &(), context: &Context) -> Reconciled {
        self.plan(context);
        if self.phase != GlobalnetPhase::Writing {
            return Reconciled::await_change();
        }
        let (writes, is_more) = self.planner.take_writes(MAX_WRITES);
        // Where none of these may be written now, the others need not wait.
        let requeue_after = is_more.then_some(Duration::ZERO);
        Reconciled { writes, order: Order::Independent, requeue_after, ..Reconciled::default() }
    }

    fn status(&self, view: &QueueView<'_>) -> Snapshot {
        let outage = view.outages.iter().find(|(watch, _)| watch.kind != Kind::ServiceExport);
        let outage = outage.map(|(_, reason)| *reason).filter(|_| self.phase != GlobalnetPhase::Off);
        let unavailable = view.unavailable.iter().flatten().next().copied();
        let is_writing = self.phase == GlobalnetPhase::Writing;
        let problem = unavailable.filter(|_| is_writing).or(outage);
        let refused = view.refused.iter().map(|(object, reason)| Problem {
            name: "GlobalnetWriteRefused",
            subject: object.to_string(),
            message: (*reason).to_owned(),
        });
        let status = GlobalnetStatus {
            phase: self.phase,
            term: view.leadership.map(|held| held.term),
            problem: problem.map(str::to_owned),
            refused: if is_writing { refused.collect() } else { Vec::new() },
            writes: view.writes,
        };
        Snapshot { state: self.state.clone(), status }
    }
}

fn log(before: &GlobalnetStatus, now: &GlobalnetStatus) {
    if let Some(problem) = now.problem.as_ref().filter(|problem| before.problem.as_ref() != Some(problem)) {
        tracing::warn!(problem, "cannot read or write Globalnet's objects");
    }
}
