//! The controller: what it watches, and which service is planned when.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::{Duration, Instant};

use trieste_control::api::{Kind, Object, ObjectKey};
use trieste_control::election::{Leadership, Term};
use trieste_control::runner::{
    Context, Controller, Failure, Limits, Order, QueueView, Rank, Reconciled, Watch, Write,
};
use trieste_control::store::{StoreError, StoreEvent};

use crate::accepted::Accepted;
use crate::config::AgentConfig;
use crate::family::{Family, PerFamily};
use crate::holds::Holds;
use crate::name::{BROKER, Key, LOCAL, ServiceName};
use crate::plan::{self, View};
use crate::publish_grace::PublishGrace;
use crate::rate_limit::RateLimit;
use crate::row::{Row, Slot};
use crate::state::{State, is_unneeded};
use crate::status::{AgentStatus, RefusedObject};
use crate::sync_lag::SyncLag;
use crate::taken::Taken;
use crate::transitions::Transitions;

/// Ours: how long copies stay when the broker has nothing of anybody else any more: it may have lost its objects.
pub const EMPTY_GRACE: Duration = Duration::from_secs(60);

/// The limits of an agent. What a store does not take depends on the object in most cases; and one slice may change with every
/// pod, so that it is the service that has a [`RateLimit`], not the object.
pub(crate) const LIMITS: Limits = Limits {
    refusal_wait: Some(Duration::from_secs(60)),
    max_writes: 4096,
    limits_objects: false,
    ..Limits::DEFAULT
};

/// Exports this cluster's services, and imports those of others.
#[derive(Debug)]
pub struct AgentController {
    state: State,
    /// Since when the broker has had nothing of anybody else, while there are copies here; and whether that was so in a list.
    emptied_since: Option<Instant>,
    /// Services of which a copy is kept for that reason.
    kept: BTreeSet<ServiceName>,
    /// Why the broker does not take what is written for a service.
    failures: BTreeMap<ServiceName, String>,
    /// Services whose failure has changed since the last plan.
    changed: BTreeSet<ServiceName>,
    /// What is planned again since a store has turned out not to keep all.
    again: BTreeSet<Key>,
    rate_limit: RateLimit,
    accepted: Accepted,
    holds: Holds,
    publish_grace: PublishGrace,
    transitions: Transitions,
    taken: Taken,
    /// Services of which something is not written for that reason.
    held: BTreeSet<ServiceName>,
    /// What is planned for a service that nothing is known of any more.
    nothing: Row,
    /// The term in which this agent leads.
    term: Option<Term>,
    sync_lag: SyncLag,
    /// Why the broker's certificate is not accepted.
    refused_certificate: Option<String>,
}

impl AgentController {
    /// Returns a controller that has observed nothing.
    pub fn new(config: AgentConfig) -> Self {
        Self {
            state: State::new(config),
            emptied_since: None,
            kept: BTreeSet::new(),
            failures: BTreeMap::new(),
            changed: BTreeSet::new(),
            again: BTreeSet::new(),
            rate_limit: RateLimit::default(),
            accepted: Accepted::default(),
            holds: Holds::default(),
            publish_grace: PublishGrace::default(),
            transitions: Transitions::new(),
            taken: Taken::default(),
            held: BTreeSet::new(),
            nothing: Row::default(),
            term: None,
            sync_lag: SyncLag::default(),
            refused_certificate: None,
        }
    }

    fn view<'a>(&'a self, name: &'a ServiceName) -> View<'a> {
        let (state, config) = (&self.state, &self.state.config);
        let aggregate = ObjectKey::new(Kind::ServiceImport, &config.broker_namespace, name.aggregate());
        let local = name.local_import(&config.cluster_id);
        View {
            name,
            config,
            row: state.row(name).unwrap_or(&self.nothing),
            networks: &state.networks,
            has_namespace: state.has_namespace(&name.namespace),
            has_read_broker: state.has_read_broker,
            keeps_copies: self.emptied_since.is_some() && !config.withdraws,
            other_aggregate: state.other_holder(BROKER, aggregate, name),
            other_import: state.other_holder(
                LOCAL,
                ObjectKey::new(Kind::ServiceImport, &config.namespace, local),
                name,
            ),
            taken: self.taken.of(name),
            ip_problems: state.ip_problems(name),
            promises: PerFamily::new(|family| state.clusterset.promise(name, family)),
            lacking: PerFamily::new(|family| state.clusterset.lacking(name, family)),
            failure: self.failures.get(name).map(String::as_str),
            dropped: [self.accepted.dropped(LOCAL), self.accepted.dropped(BROKER)],
            takes_two_ips: self.accepted.takes_two_ips(),
        }
    }

    /// Notes whether the broker's certificate is accepted, as far as an event shows it.
    fn note_certificate(&mut self, event: &StoreEvent) {
        match event {
            StoreEvent::Unavailable(error) if error.is_certificate_refused() => {
                if self.refused_certificate.is_none() {
                    tracing::warn!(%error, "the broker's certificate is not accepted");
                }
                self.refused_certificate = Some(error.to_string());
            }
            StoreEvent::Unavailable(_) => {}
            StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) | _ => {
                self.refused_certificate = None;
            }
        }
    }

    /// Notes whether the broker has lost what others had there. One that loses it one by one is believed: that is what clusters
    /// do that export nothing any more.
    fn note_emptied(&mut self, is_list: bool, now: Instant) {
        if !self.state.is_emptied() {
            if self.emptied_since.take().is_some() {
                self.changed.append(&mut self.kept);
            }
        } else if is_list && self.emptied_since.is_none() && self.state.has_read_broker {
            tracing::warn!(
                "the broker has lost all other clusters' services; the copies are kept for a while"
            );
            self.emptied_since = Some(now);
        }
    }

    /// Notes that an object on the broker has the name of one that was to be made. Returns why the export cannot go on, if it
    /// cannot: slices have other names then, an import has not.
    fn note_in_the_way(&mut self, name: &ServiceName, object: &ObjectKey) -> Option<String> {
        let holder = self.state.slot_of(BROKER, object);
        if object.kind == Kind::EndpointSlice {
            self.taken.note_slice(name, &object.name, holder == Some(Slot::Foreign));
            self.changed.insert(name.clone());
            return None;
        }
        // What is read is another service's, which the plan finds out, or one's that was faster.
        let is_stuck = holder.is_none() && self.taken.note_import(name, &object.name);
        is_stuck.then(|| format!("an object that is no import of it has its name: {object}"))
    }

    /// Finds addresses for all clusters for a service that is to get some from here.
    fn allot(&mut self, name: &ServiceName) {
        let needed = plan::needs_addresses(&self.view(name));
        for family in Family::ALL {
            let has_changed = match needed[family] {
                true => self.state.give_address(name, family),
                false => self.state.clusterset.settle(name, family),
            };
            if has_changed {
                self.changed.insert(name.clone());
            }
        }
    }

    fn plan_local(&mut self, name: &ServiceName, context: &Context) -> Reconciled {
        let left =
            self.emptied_since.map(|since| (since + EMPTY_GRACE).saturating_duration_since(context.now));
        if left == Some(Duration::ZERO) {
            self.emptied_since = None;
            self.changed.append(&mut self.kept);
        }
        let plan::Local { mut writes, is_keeping, is_on_its_way } =
            plan::local(&self.view(name), context.wall);
        if is_keeping {
            self.kept.insert(name.clone());
        } else {
            self.kept.remove(name);
        }
        let mut requeue_after = left.filter(|_| is_keeping);
        let mut is_held = false;
        if let Some(left) = self.publish_grace.left(name, is_on_its_way, context.now) {
            writes.retain(|write| write.key().kind != Kind::ServiceExport);
            requeue_after = sooner(requeue_after, left);
        }
        writes.retain(|write| match self.holds.wait(&write.key(), context.now) {
            None => true,
            Some(wait) => {
                is_held = true;
                requeue_after = sooner(requeue_after, wait);
                false
            }
        });
        if is_held {
            self.held.insert(name.clone());
        } else {
            self.held.remove(name);
        }
        Reconciled { writes, order: Order::Independent, requeue_after, ..Reconciled::default() }
    }
}

impl Controller for AgentController {
    type Key = Key;
    type Status = AgentStatus;
    type Input = Infallible;

    fn name(&self) -> &'static str {
        "service-discovery"
    }

    fn watches(&self) -> BTreeSet<Watch> {
        let of_store = |(store, namespace): (usize, &str)| {
            let namespace = namespace.to_owned();
            self.state.kinds(store).iter().map(move |kind| Watch::new(store, *kind, namespace.clone()))
        };
        let broker = (BROKER, self.state.config.broker_namespace.as_str());
        [(LOCAL, ""), broker].into_iter().flat_map(of_store).collect()
    }

    fn does_without(&self, watch: &Watch, error: &StoreError) -> bool {
        is_unneeded(watch.store, watch.kind, error)
    }

    fn observe(&mut self, watch: &Watch, event: StoreEvent, now: Instant) -> Vec<Key> {
        if watch.store == BROKER {
            self.note_certificate(&event);
        }
        let is_list = matches!(event, StoreEvent::Listed(_)) && watch.store == BROKER;
        let touched = self.state.observe(watch.store, watch.kind, event);
        self.note_emptied(is_list, now);
        touched.iter().for_each(|name| self.sync_lag.begin(watch.store, name, now));
        touched.iter().flat_map(Key::both).collect()
    }

    fn handle_leadership(&mut self, held: Option<&Leadership>, _: Instant) -> Vec<Key> {
        // Each renewal comes here; what was not written meanwhile, the runner plans again by itself.
        let term = held.map(|held| held.term);
        let is_new = term.is_some() && term != self.term;
        self.term = term;
        if is_new { self.state.names().flat_map(Key::both).collect() } else { Vec::new() }
    }

    fn drain_changed(&mut self, _: Instant) -> Vec<Key> {
        let changed = std::mem::take(&mut self.changed).into_iter().map(Key::Local);
        let served = self.state.clusterset.take_served();
        let served = served.iter().flat_map(Key::both);
        changed.chain(std::mem::take(&mut self.again)).chain(served).collect()
    }

    fn queue(&self, key: &Key) -> Option<(usize, Rank)> {
        Some((key.store(), 0))
    }

    fn is_ready(&self, store: usize) -> bool {
        self.state.is_complete(LOCAL) && (store == LOCAL || self.state.is_complete(BROKER))
    }

    fn reconcile(&mut self, key: &Key, context: &Context) -> Reconciled {
        let mut planned = match key {
            Key::Local(name) => {
                self.transitions.discard(name);
                self.plan_local(name, context)
            }
            Key::Broker(name) => {
                if self.state.row(name).is_none_or(|row| row.export.is_none()) {
                    self.taken.clear(name);
                }
                self.allot(name);
                let writes = plan::broker(&self.view(name));
                if writes.is_empty() {
                    self.taken.settle(name);
                }
                if writes.is_empty() && self.failures.remove(name).is_some() {
                    self.changed.insert(name.clone());
                }
                Reconciled::write(writes)
            }
        };
        let store = key.store();
        planned.writes.retain(|write| !self.accepted.is_known(store, write));
        if planned.writes.is_empty() {
            if store == BROKER || !self.held.contains(key.service()) {
                self.sync_lag.end(key);
            }
            return planned;
        }
        if let Some(wait) = self.rate_limit.take(key, context.now) {
            return Reconciled::hold("it changes all the time".to_owned(), wait);
        }
        if let Key::Local(name) = key {
            let is_export = |object: &&Object| object.kind == Kind::ServiceExport;
            let written = planned.writes.iter().filter_map(Write::object).find(is_export);
            let export = self.state.row(name).and_then(|row| row.export.as_ref());
            if let Some((before, after)) = export.zip(written) {
                self.transitions.plan(name, before, after);
            }
        }
        planned
    }

    fn written(&mut self, key: &Key, write: &Write, outcome: Result<&StoreEvent, &StoreError>, now: Instant) {
        if let Ok(result) = outcome {
            self.sync_lag.write(key, now);
            if self.accepted.note(key.store(), write, result) {
                self.again.insert(key.clone());
            }
        }
        if let (Key::Local(name), Kind::ServiceExport) = (key, write.key().kind) {
            self.transitions.finish(name, outcome.is_ok(), now);
        }
        let Key::Broker(name) = key else {
            if outcome.is_err_and(|error| self.classify(write, error) == Failure::Refused)
                && self.accepted.note_refused(write)
            {
                self.again.insert(key.clone());
                return;
            }
            return match outcome {
                Ok(_) => self.holds.end(&write.key()),
                Err(error) => self.holds.begin(&write.key(), self.classify(write, error), now),
            };
        };
        if write.key().kind == Kind::ServiceImport {
            let is_unconfirmed =
                outcome.is_err_and(|error| self.classify(write, error) == Failure::Unavailable);
            self.state.clusterset.note_unconfirmed(name, is_unconfirmed);
        }
        let failure = match outcome {
            Err(StoreError::AlreadyExists(object)) => match self.note_in_the_way(name, object) {
                Some(failure) => Some(failure),
                None => return,
            },
            Err(error) if self.classify(write, error) == Failure::Refused => Some(error.to_string()),
            Err(_) => return,
            Ok(_) => None,
        };
        let has_changed = match failure {
            Some(reason) => self.failures.insert(name.clone(), reason.clone()) != Some(reason),
            None => self.failures.remove(name).is_some(),
        };
        if has_changed {
            self.changed.insert(name.clone());
        }
    }

    fn status(&self, view: &QueueView<'_>) -> AgentStatus {
        let refused = self
            .state
            .refused()
            .map(|(object, reason)| RefusedObject { object: object.to_string(), reason: reason.to_owned() });
        let is_complete = self.state.is_complete(LOCAL) && self.state.is_complete(BROKER);
        AgentStatus {
            is_complete,
            is_settled: is_complete && view.is_idle && self.held.is_empty(),
            exports: self.state.count(Slot::LocalImport),
            imports: self.state.count(Slot::Import) + self.state.count(Slot::DisplacedImport),
            problem: view.problem().map(str::to_owned),
            refused_certificate: self.refused_certificate.clone(),
            refused: refused.collect(),
            transitions: self.transitions.latest(),
            to_broker: self.sync_lag.of(BROKER),
            to_cluster: self.sync_lag.of(LOCAL),
        }
    }
}

/// Returns the shorter of two waits, the first of which there may be none.
fn sooner(known: Option<Duration>, wait: Duration) -> Option<Duration> {
    Some(known.map_or(wait, |known| known.min(wait)))
}
