//! The worker: carries out one part after the other, again and again.
//!
//! An order that was carried out is repeated when it says something else, when something has changed in the cluster, and after
//! a while in any case: that is how hand edits of objects without a generation are found. One that failed is repeated with
//! growing waits. Only the leader works; when the term ends, a pass is dropped where it stands, as if the process had been
//! killed, and the next one begins from what it finds.

mod broker;
mod cloud;
mod deployment_info;
mod events;
mod failure;
mod join_data;
mod keeps;
mod member;
mod remark;
mod tkestack;
mod tools;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use rand_core::OsRng;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};
use trieste_control::backoff::Backoff;
use trieste_control::election::Leadership;
use trieste_control::recorder::Recorder;
use trieste_control::steps::{Outcome as StepOutcome, Record};
use trieste_control::timer::clock;
use trieste_deploy::Journal;

use crate::RETRY;
use crate::controller::OperatorStatus;
use crate::order::{Facts, Order, Outcome, Part, Reason, Report, Task, Wanted};
use events::Repairs;
use failure::Failure;
pub use tools::{Connect, THIS_CLUSTER, Tools};

/// Counters of a worker. Cheap to clone; clones share them.
#[derive(Debug, Clone, Default)]
pub struct WorkerMetrics(Arc<Mutex<Counts>>);

/// What is counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Passes by part and outcome.
    pub passes: BTreeMap<(&'static str, &'static str), u64>,
    /// Objects that were not as they should be, and are again.
    pub repairs: u64,
}

impl WorkerMetrics {
    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, part: Part, outcome: &Outcome, repairs: u64) {
        let name = match outcome {
            Outcome::Installed(_) => "installed",
            Outcome::Removed => "removed",
            Outcome::Free => "free",
            Outcome::Chosen(_) => "chosen",
            Outcome::Waiting(_) => "waiting",
            Outcome::Failed(_) => "failed",
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.passes.entry((part.as_str(), name)).or_default() += 1;
        counts.repairs += repairs;
    }
}

/// How long after a pass the next one begins that has no other reason than a change of objects: whoever undoes what the operator
/// does is not answered faster.
const SPACING: Duration = Duration::from_secs(10);
/// The most warnings of a pass that are published.
const MOST_WARNINGS: usize = 16;
/// The most that a pass may take. Its steps have limits of their own; a server that never comes to an end has this one.
const PASS_LIMIT: Duration = Duration::from_secs(1800);

/// What became of an order.
struct Done {
    outcome: Outcome,
    /// What somebody should see to.
    warnings: Vec<String>,
    /// What was changed in the cloud.
    changes: Vec<String>,
}

/// An order that was tried.
struct Tried {
    order: Order,
    outcome: Outcome,
    /// When that ended.
    ended: Instant,
    /// When it is tried again.
    due: Instant,
    /// How long it waits when it fails.
    backoff: Backoff,
    /// What somebody should see to.
    warnings: Vec<String>,
}

impl Tried {
    /// Returns when an order is tried again. A change of objects alone is a reason for what is to be there, not for what is to go,
    /// since removing changes them itself, and not for a cloud, which they are no part of.
    fn due_for(&self, order: &Order) -> Instant {
        if !self.order.wants_the_same(order) {
            return self.ended;
        }
        match order.task {
            Task::Install(_) if self.order.revision != order.revision && order.part != Part::Cloud => {
                self.due.min(self.ended + SPACING)
            }
            Task::Install(_) | Task::Remove | Task::Check { .. } => self.due,
        }
    }

    /// Returns `true` if what was done is all that this order wants, so that a difference is somebody else's doing.
    fn has_settled(&self, order: &Order) -> bool {
        let is_same = self.order.uid == order.uid && self.order.task == order.task;
        is_same && matches!(self.outcome, Outcome::Installed(_))
    }
}

/// A worker.
pub struct Worker {
    tools: Tools,
    journal: Journal,
    recorder: Recorder,
    metrics: WorkerMetrics,
    reports: UnboundedSender<Report>,
    tried: BTreeMap<(String, Part), Tried>,
    repairs: Repairs,
}

impl Worker {
    /// Returns a worker that reports there, and records what happens to Fabrics.
    pub fn new(
        tools: Tools,
        recorder: Recorder,
        metrics: WorkerMetrics,
        reports: UnboundedSender<Report>,
    ) -> Self {
        let journal = Journal::default();
        let tools = Tools { server: tools.server.for_operator(journal.clone()), ..tools };
        Self {
            tools,
            journal,
            recorder,
            metrics,
            reports,
            tried: BTreeMap::new(),
            repairs: Repairs::default(),
        }
    }

    /// Works while there is a leadership, or always without an election; until the controller has ended.
    pub async fn run(
        mut self,
        mut status: watch::Receiver<OperatorStatus>,
        mut leadership: Option<watch::Receiver<Option<Leadership>>>,
    ) {
        loop {
            let orders = status.borrow_and_update().orders.clone();
            let leads = leadership.as_mut().is_none_or(|held| leads(*held.borrow_and_update()));
            self.tried.retain(|key, _| orders.iter().any(|order| key_of(order) == *key));
            let due = orders.iter().filter(|_| leads).find(|order| self.is_due(order)).cloned();
            let Some(order) = due else {
                // Whoever leads anew begins anew: another operator may have worked meanwhile.
                if !leads {
                    self.tried.clear();
                }
                let tried = |order: &Order| Some(self.tried.get(&key_of(order))?.due_for(order));
                let next = orders.iter().filter(|_| leads).filter_map(tried).min();
                tokio::select! {
                    changed = status.changed() => if changed.is_err() { return },
                    () = term_changes(leadership.as_mut()) => {}
                    () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                }
                continue;
            };
            let done = tokio::select! {
                done = self.execute(&order) => done,
                () = term_ends(leadership.clone()) => {
                    warn!(object = %order.source, part = order.part.as_str(), "leadership lost, pass dropped");
                    self.journal.drain();
                    continue;
                }
            };
            if self.finish(order, done).is_err() {
                return;
            }
        }
    }

    fn is_due(&self, order: &Order) -> bool {
        self.tried.get(&key_of(order)).is_none_or(|tried| Instant::now() >= tried.due_for(order))
    }

    /// Returns what was found out about a part when it was carried out the last time, if that was a success.
    fn earlier(&self, order: &Order) -> Option<&Facts> {
        match &self.tried.get(&key_of(order))?.outcome {
            Outcome::Installed(facts) => Some(facts),
            Outcome::Removed
            | Outcome::Free
            | Outcome::Chosen(_)
            | Outcome::Waiting(_)
            | Outcome::Failed(_) => None,
        }
    }

    /// Returns what became of an order.
    async fn execute(&self, order: &Order) -> Done {
        let mut steps = Record::default();
        let pass = async {
            if let Some(waiting) = upstream::standing_back(&self.tools, order).await? {
                return Ok(Outcome::Waiting(waiting));
            }
            match (order.part, &order.task) {
                (_, Task::Check { .. }) => Ok(Outcome::Free),
                (_, Task::Install(wanted)) => self.install(order, wanted, &mut steps).await,
                (Part::Broker, Task::Remove) => broker::remove(&self.tools, order, &mut steps).await,
                (Part::Cloud, Task::Remove) => cloud::remove(&self.tools, order, &mut steps).await,
                (Part::Member, Task::Remove) => {
                    let order = tkestack::with_join_info(&self.tools, order.clone()).await?;
                    member::remove(&self.tools, &order, &mut steps).await
                }
                (Part::ServiceDiscovery, Task::Remove) => {
                    upstream::remove_service_discovery(&self.tools, &mut steps).await
                }
            }
        };
        let outcome = match timeout(PASS_LIMIT, pass).await {
            Ok(done) => done.unwrap_or_else(|failure: Failure| Outcome::Failed(failure.reason_for(order))),
            Err(_) => Outcome::Failed(Reason {
                reason: "NotInTime",
                message: format!(
                    "it was not done within {} minutes, and begins anew",
                    PASS_LIMIT.as_secs() / 60
                ),
            }),
        };
        let changes = if order.part == Part::Cloud { cloud::changes(&steps) } else { Vec::new() };
        Done { outcome, warnings: warnings(&steps), changes }
    }

    async fn install(&self, order: &Order, wanted: &Wanted, steps: &mut Record) -> Result<Outcome, Failure> {
        match (order.part, wanted) {
            (Part::Broker, Wanted::Fabric(spec)) => {
                // It may have been published for another resource, which the broker belonged to.
                tkestack::withdraw(&self.tools.server).await?;
                broker::install(&self.tools, spec, steps).await
            }
            (Part::Cloud, Wanted::Fabric(spec)) => {
                cloud::install(&self.tools, order, spec, self.earlier(order), steps).await
            }
            (Part::Member, Wanted::Fabric(spec)) => member::install(&self.tools, order, spec, steps).await,
            // No Fabric has it.
            (Part::ServiceDiscovery, Wanted::Fabric(_)) => Ok(Outcome::Removed),
            (_, Wanted::Upstream(content)) => upstream::install(&self.tools, content, steps).await,
            (_, Wanted::Tkestack(content)) => {
                tkestack::install(&self.tools, order, content, self.earlier(order), steps).await
            }
        }
    }

    /// Takes in what became of an order, and reports it.
    fn finish(&mut self, order: Order, done: Done) -> Result<(), ()> {
        let Done { mut outcome, warnings, changes } = done;
        let key = key_of(&order);
        let before = self.tried.remove(&key);
        let known = before.as_ref().map(|tried| tried.warnings.clone()).unwrap_or_default();
        for text in warnings.iter().filter(|text| !known.contains(text)) {
            warn!(object = %order.source, part = order.part.as_str(), text, "part carried out with a warning");
            events::warning(&self.recorder, &order, text);
        }
        events::changed(&self.recorder, &order, &changes);
        let has_settled = before.as_ref().is_some_and(|tried| tried.has_settled(&order));
        let repaired = self.repairs.take(&self.journal.drain(), has_settled);
        for text in &repaired {
            events::repaired(&self.recorder, &order, text);
        }
        if let Outcome::Installed(facts) = &mut outcome {
            facts.contested = self.repairs.contested();
            facts.warnings.clone_from(&warnings);
        }
        if before.as_ref().is_none_or(|tried| !is_same_outcome(&tried.outcome, &outcome)) {
            events::outcome(&self.recorder, &order, &outcome);
            info!(object = %order.source, part = order.part.as_str(), outcome = ?outcome, "part carried out");
        }
        self.metrics.count(order.part, &outcome, repaired.len() as u64);
        let fresh = || Backoff::new(RETRY.0, RETRY.1);
        let mut backoff = before.map_or_else(fresh, |tried| tried.backoff);
        let until = match &outcome {
            Outcome::Installed(facts) if facts.awaits.is_some() => SPACING,
            Outcome::Chosen(_) => SPACING,
            Outcome::Waiting(_) if matches!(order.task, Task::Check { .. }) => self.tools.resync,
            Outcome::Waiting(_) | Outcome::Failed(_) => backoff.next_wait(&mut OsRng),
            Outcome::Installed(_) | Outcome::Free => {
                backoff.reset();
                self.tools.resync
            }
            Outcome::Removed => {
                backoff.reset();
                RETRY.0
            }
        };
        let report = Report {
            source: order.source.clone(),
            uid: order.uid.clone(),
            generation: order.generation,
            part: order.part,
            outcome: outcome.clone(),
        };
        let ended = Instant::now();
        self.tried.insert(key, Tried { order, outcome, warnings, ended, due: ended + until, backoff });
        self.reports.unbounded_send(report).map_err(drop)
    }
}

/// Returns the warnings among what was remarked.
fn warnings(steps: &Record) -> Vec<String> {
    let remarks = steps.steps.iter().flat_map(|step| &step.remarks);
    let warnings =
        remarks.filter(|(outcome, _)| *outcome == StepOutcome::Warning).map(|(_, text)| text.clone());
    let distinct: BTreeSet<String> = warnings.collect();
    distinct.into_iter().take(MOST_WARNINGS).collect()
}

fn key_of(order: &Order) -> (String, Part) {
    (order.uid.clone(), order.part)
}

fn is_same_outcome(before: &Outcome, after: &Outcome) -> bool {
    match (before, after) {
        (Outcome::Installed(_), Outcome::Installed(_)) => true,
        _ => before == after,
    }
}

fn leads(held: Option<Leadership>) -> bool {
    held.is_some_and(|held| held.is_valid(clock()))
}

/// Waits until the leadership changes; for ever without an election.
async fn term_changes(leadership: Option<&mut watch::Receiver<Option<Leadership>>>) {
    let changed = match leadership {
        Some(held) => held.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        std::future::pending::<()>().await;
    }
}

/// Waits until the leadership ends; for ever without an election.
async fn term_ends(leadership: Option<watch::Receiver<Option<Leadership>>>) {
    let Some(mut held) = leadership else { return std::future::pending().await };
    loop {
        let now = *held.borrow_and_update();
        let Some(now) = now.filter(|held| held.is_valid(clock())) else { return };
        let end = Instant::now() + now.remaining(clock());
        tokio::select! {
            changed = held.changed() => if changed.is_err() { return },
            () = sleep_until(end) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use trieste_control::api::{Kind, ObjectKey};
    use trieste_control::steps::Steps as _;

    use super::*;

    fn order(task: Task, revision: u64) -> Order {
        let part = Part::Member;
        Order {
            source: ObjectKey::new(Kind::Fabric, "", "east"),
            uid: "u1".to_owned(),
            generation: 1,
            part,
            task,
            join_info: None,
            cloud: None,
            is_cloud_assumed: false,
            broker_url: None,
            force: false,
            revision,
        }
    }

    fn tried(order: Order, due: Duration) -> Tried {
        let ended = Instant::now();
        let outcome = Outcome::Installed(Box::default());
        Tried {
            order,
            outcome,
            warnings: Vec::new(),
            ended,
            due: ended + due,
            backoff: Backoff::new(RETRY.0, RETRY.1),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_undoes_what_the_operator_does_is_answered_no_faster_than_every_ten_seconds() {
        let install = || Task::Install(Box::new(Wanted::Fabric(Box::default())));
        let done = tried(order(install(), 1), Duration::from_secs(120));
        let wait = |next: &Order| done.due_for(next) - done.ended;
        assert_eq!(wait(&order(install(), 1)), Duration::from_secs(120));
        assert_eq!(wait(&order(install(), 2)), SPACING);
        let edited = Order { generation: 2, ..order(install(), 1) };
        assert_eq!(wait(&edited), Duration::ZERO);
        let cloud = |revision| Order { part: Part::Cloud, ..order(install(), revision) };
        let done = tried(cloud(1), Duration::from_secs(120));
        assert_eq!(done.due_for(&cloud(2)) - done.ended, Duration::from_secs(120));
    }

    #[tokio::test(start_paused = true)]
    async fn a_removal_that_waits_for_a_node_is_not_begun_anew_by_what_it_changes_itself() {
        let waiting = tried(order(Task::Remove, 1), Duration::from_secs(60));
        let wait = |next: &Order| waiting.due_for(next) - waiting.ended;
        assert_eq!(wait(&order(Task::Remove, 7)), Duration::from_secs(60));
        assert_eq!(wait(&Order { force: true, ..order(Task::Remove, 7) }), Duration::ZERO);
    }

    #[test]
    fn warnings_are_published_once_each_and_successes_are_not() {
        let mut steps = Record::default();
        steps.begin("a");
        for (outcome, text) in
            [(StepOutcome::Warning, "b"), (StepOutcome::Success, "c"), (StepOutcome::Warning, "b")]
        {
            steps.remark(outcome, text);
        }
        assert_eq!(warnings(&steps), ["b"]);
    }
}
