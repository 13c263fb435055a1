//! The controller of the two stores: what it knows of both, and what is to be written to each because of it.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::conflicts::WriteConflicts;
use super::name::KINDS;
use super::plan::{self, OwnRefusal};
use super::removal::{Absence, RemovalGrace};
use super::side::Side;
use super::state::{Scope, SyncState};
use super::status::{LinkState, Snapshot, link_state, list_refused};
use super::withheld::{self, Key, Owner, Withheld};
use super::{Refused, SyncConfig, SyncMode, SyncStats};
use crate::api::Kind;
use crate::runner::{Context, Controller, Failure, Limits, QueueView, Rank, Reconciled, Watch, Write};
use crate::store::{StoreError, StoreEvent};

/// How long an object that a store does not take waits though nothing has changed: its schema or its policy may have.
const REFUSAL_WAIT: Duration = Duration::from_secs(60);

/// Our own cluster among those that are missed; no cluster has this ID.
const OURS: &str = "";

/// Returns the limits of a syncer.
pub(super) const fn limits(config: &SyncConfig) -> Limits {
    Limits {
        retry: (config.retry_initial, config.retry_max),
        limits_objects: false,
        write_within: config.answer_within,
        refusal_wait: Some(REFUSAL_WAIT),
        list_within: Some(config.answer_within),
        ..Limits::DEFAULT
    }
}

/// Copies our objects to the broker, and others' from it.
#[derive(Debug)]
pub(super) struct SyncController {
    state: SyncState,
    conflicts: WriteConflicts,
    removal_grace: RemovalGrace,
    local: Reading,
    broker: Reading,
    /// Objects that are to be written, as far as was decided.
    wanted: BTreeMap<Key, Rank>,
    /// The names that are being written, and the version of the copied object.
    in_flight: BTreeMap<Key, Option<String>>,
    /// Copies whose removal waits.
    withheld: Withheld,
    /// What all of these depend on, as it was when they were decided about last.
    circumstances: Option<Circumstances>,
    /// Objects that a store did not take the last time.
    rejected: BTreeMap<Key, Refused>,
    stats: SyncStats,
    refused: Option<Arc<Vec<Refused>>>,
    own_refusal: Option<OwnRefusal>,
    /// Whether there were events or answers since the last decisions.
    has_observed: bool,
    /// Whether the list of refused objects may be another one than before.
    refusals_changed: bool,
}

/// What every removal depends on, besides its owner's state.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Circumstances {
    is_read: bool,
    has_exported: bool,
    /// The kinds of which the broker has lost all others' objects, and those of which there is an original of ours.
    emptied: Vec<Kind>,
    original: Vec<Kind>,
}

/// How much of a store is read.
#[derive(Debug, Default)]
struct Reading {
    /// The kinds that were listed since the store could not be read.
    listed: BTreeSet<Kind>,
    /// Whether all kinds have been listed at some time.
    was_complete: bool,
}

impl Reading {
    fn observe(&mut self, kind: Kind, event: &StoreEvent) {
        match event {
            StoreEvent::Listed(_) => drop(self.listed.insert(kind)),
            StoreEvent::Unavailable(_) => self.listed.clear(),
            StoreEvent::Applied(_) | StoreEvent::Deleted(_) => {}
        }
        self.was_complete |= self.is_ready();
    }

    /// Returns `true` if everything is known, as far as the store's word goes.
    fn is_ready(&self) -> bool {
        KINDS.iter().all(|kind| self.listed.contains(kind))
    }
}

impl SyncController {
    /// Returns a controller that has observed nothing.
    pub(super) fn new(config: SyncConfig) -> Self {
        let scope = Scope {
            cluster_id: config.cluster_id,
            local_namespace: config.local_namespace,
            broker_namespace: config.broker_namespace,
            local_subnets: config.local_subnets,
            limits: config.limits,
            allowed: config.allowed,
            exports: config.mode == SyncMode::Both,
        };
        Self {
            state: SyncState::new(scope),
            conflicts: WriteConflicts::default(),
            removal_grace: RemovalGrace::new(config.empty_grace, config.departure_wait),
            local: Reading::default(),
            broker: Reading::default(),
            wanted: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            withheld: Withheld::default(),
            circumstances: None,
            rejected: BTreeMap::new(),
            stats: SyncStats::default(),
            refused: None,
            own_refusal: None,
            has_observed: false,
            refusals_changed: false,
        }
    }

    /// Asks for new decisions about removals that wait: of clusters that were missed and are back, and of all once a broker that
    /// lost everybody may have shown that it keeps what it is given.
    fn reconsider_removals(&mut self) {
        if !self.broker.is_ready() {
            self.removal_grace.reset();
        }
        for owner in self.state.take_arrived() {
            self.removal_grace.welcome(owner.0, &owner.1);
            for (_, name) in self.withheld.take_of(&owner) {
                self.state.touch(&name);
            }
        }
        let circumstances = self.circumstances();
        if self.circumstances.as_ref() == Some(&circumstances) {
            return;
        }
        for kind in &circumstances.original {
            self.removal_grace.welcome(*kind, OURS);
        }
        for (_, name) in self.withheld.take() {
            self.state.touch(&name);
        }
        self.circumstances = Some(circumstances);
    }

    /// Decides anew about the names whose decision may be another one, and adds their keys to those that have changed.
    fn decide_dirty(&mut self, changed: &mut Vec<Key>) {
        for name in self.state.take_dirty() {
            self.stats.decisions += 1;
            self.refusals_changed |= self.state.refresh_refused(&name);
            for side in Side::ALL {
                let key = (side, name.clone());
                self.refusals_changed |= self.rejected.remove(&key).is_some();
                match self.state.decide(side, &name) {
                    Some(write) => drop(self.wanted.insert(key.clone(), plan::rank(&write))),
                    None => drop(self.wanted.remove(&key)),
                }
                changed.push(key);
            }
        }
    }

    fn circumstances(&self) -> Circumstances {
        let of = |is_so: &dyn Fn(Kind) -> bool| KINDS.into_iter().filter(|kind| is_so(*kind)).collect();
        Circumstances {
            is_read: self.broker.is_ready(),
            has_exported: self.has_exported(),
            emptied: of(&|kind| self.state.is_emptied(kind)),
            original: of(&|kind| self.state.has_original(kind)),
        }
    }

    /// Brings what is published up to date.
    fn refresh_refusals(&mut self) {
        // Before the broker's objects are known it is not known either who is refused.
        if !self.local.was_complete || !self.broker.was_complete {
            return;
        }
        if std::mem::take(&mut self.refusals_changed) || self.refused.is_none() {
            self.refused = Some(Arc::new(list_refused(&self.state, self.rejected.values())));
        }
        self.own_refusal = plan::own_refusal(&self.state);
    }

    /// Returns `true` if the broker has taken everything of ours.
    fn has_exported(&self) -> bool {
        // Keys are sorted by side, the broker's last.
        let is_export = |key: Option<&Key>| key.is_some_and(|(side, _)| *side == Side::Broker);
        !is_export(self.wanted.keys().next_back()) && !is_export(self.in_flight.keys().next_back())
    }

    /// Asks whether a copy may be removed.
    ///
    /// # Errors
    /// Until when it is kept; `None` when that depends on something else than time.
    fn ask_removal(
        &mut self,
        (side, name): &Key,
        owner: &Owner,
        now: Instant,
    ) -> Result<(), Option<Instant>> {
        let (kind, origin) = owner;
        if *side == Side::Broker {
            // A gateway that starts with an empty store has yet to publish: its Cluster must not be removed and made
            // anew, or it is the youngest of all.
            return self.removal_grace.miss(*kind, origin, !self.state.has_original(*kind), now);
        }
        let absence = Absence {
            kind: *kind,
            origin,
            is_read: self.broker.is_ready(),
            has_ours: self.has_exported(),
            is_emptied: self.state.is_emptied(*kind),
            has_departed: self.state.has_departed(owner),
            is_urgent: self.state.is_urgent(name),
        };
        self.removal_grace.ask(&absence, now)
    }

    /// Takes in that a store is well and does not take this object.
    fn reject(&mut self, key: &Key, write: &Write, error: &StoreError) {
        let reason = if let StoreError::Invalid { source, .. } = error {
            source.to_string()
        } else if let StoreError::Denied { reason, .. } = error {
            reason.clone()
        } else {
            error.to_string()
        };
        let store = match key.0 {
            Side::Local => "local",
            Side::Broker => "broker's",
        };
        let origin = write.object().and_then(|object| object.metadata.origin());
        let refused = Refused {
            cluster: origin.unwrap_or_default().to_owned(),
            endpoint: Some(key.1.name.to_string()),
            reason: format!("the {store} store does not take it: {reason}"),
        };
        self.refusals_changed = true;
        self.rejected.insert(key.clone(), refused);
    }
}

impl Controller for SyncController {
    type Key = Key;
    type Status = Snapshot;
    type Input = Infallible;

    fn name(&self) -> &'static str {
        "broker-sync"
    }

    fn watches(&self) -> BTreeSet<Watch> {
        let scope = &self.state.scope;
        let sides = [(Side::Local, &scope.local_namespace), (Side::Broker, &scope.broker_namespace)];
        let of_side = |(side, namespace): (Side, &String)| {
            let namespace = namespace.clone();
            KINDS.map(move |kind| Watch::new(side.store(), kind, namespace.clone()))
        };
        sides.into_iter().flat_map(of_side).collect()
    }

    fn observe(&mut self, watch: &Watch, event: StoreEvent, _: Instant) -> Vec<Key> {
        self.has_observed = true;
        let side = if watch.store == Side::Local.store() { Side::Local } else { Side::Broker };
        match side {
            Side::Local => self.local.observe(watch.kind, &event),
            Side::Broker => self.broker.observe(watch.kind, &event),
        }
        self.state.learn(side, watch.kind, event);
        Vec::new()
    }

    fn drain_changed(&mut self, now: Instant) -> Vec<Key> {
        self.conflicts.expire(now);
        let mut changed = Vec::new();
        self.decide_dirty(&mut changed);
        // After the decisions: an export is done once nothing is left to be decided about it, and news of it and the answer to
        // its write may have come together.
        if std::mem::take(&mut self.has_observed) {
            self.reconsider_removals();
            self.decide_dirty(&mut changed);
        }
        if self.wanted.is_empty() && self.in_flight.is_empty() && self.withheld.is_empty() {
            self.removal_grace.clear_departed();
        }
        self.stats.judgements = self.state.claims.evaluated();
        self.refresh_refusals();
        changed
    }

    fn wants_lists(&mut self) -> BTreeSet<usize> {
        self.state.wants_list().then_some(Side::Broker.store()).into_iter().collect()
    }

    fn is_ready(&self, store: usize) -> bool {
        if store == Side::Broker.store() {
            return self.local.is_ready() && self.broker.is_ready();
        }
        // What the broker said last is good enough to repair a copy by.
        self.local.is_ready() && self.broker.was_complete
    }

    fn queue(&self, key: &Key) -> Option<(usize, Rank)> {
        self.wanted.get(key).map(|rank| (key.0.store(), *rank))
    }

    fn reconcile(&mut self, key: &Key, context: &Context) -> Reconciled {
        let ((side, name), now) = (key, context.now);
        self.withheld.remove(key);
        self.refusals_changed |= self.rejected.remove(key).is_some();
        let Some(write) = self.state.decide(*side, name) else {
            self.wanted.remove(key);
            return Reconciled::await_change();
        };
        if let Write::Delete(copy) = &write {
            let origin = if *side == Side::Broker { Some(OURS) } else { copy.metadata.origin() };
            let owner = withheld::owner(name.kind, origin);
            if let Err(until) = self.ask_removal(key, &owner, now) {
                self.wanted.remove(key);
                self.withheld.insert(key.clone(), owner);
                return until.map_or_else(Reconciled::await_change, |until| {
                    Reconciled::requeue(until.saturating_duration_since(now))
                });
            }
        }
        let is_copy = !matches!(write, Write::Delete(_));
        let source = self.state.source(*side, name).filter(|_| is_copy);
        let source = source.and_then(|source| source.metadata.resource_version.clone());
        self.wanted.insert(key.clone(), plan::rank(&write));
        if let Err(wait) = self.conflicts.ask(*side, name, source.as_deref(), now) {
            self.stats.write_conflicts += 1;
            return Reconciled::hold(conflict(*side, &write), wait);
        }
        self.in_flight.insert(key.clone(), source);
        Reconciled::write(vec![write])
    }

    fn classify(&self, write: &Write, error: &StoreError) -> Failure {
        match (write, error) {
            // A namespace that does not exist is no race, and whoever may not write one object may write none.
            (Write::Create(_), StoreError::NotFound(_)) | (_, StoreError::Forbidden { .. }) => {
                Failure::Unavailable
            }
            (_, error) => Failure::of(error),
        }
    }

    fn written(&mut self, key: &Key, write: &Write, outcome: Result<&StoreEvent, &StoreError>, _: Instant) {
        self.has_observed = true;
        let source = self.in_flight.remove(key).flatten();
        let error = match outcome {
            Ok(result) => {
                let version = match result {
                    StoreEvent::Applied(stored) => stored.metadata.resource_version.clone(),
                    StoreEvent::Deleted(_) | StoreEvent::Listed(_) | StoreEvent::Unavailable(_) => None,
                };
                self.state.written.record(key.0, &key.1, source.zip(version));
                return self.state.touch(&key.1);
            }
            Err(error) => error,
        };
        match self.classify(write, error) {
            Failure::Race => self.stats.races += 1,
            Failure::Refused => self.reject(key, write, error),
            Failure::Unavailable => self.stats.failures += 1,
        }
    }

    fn status(&self, view: &QueueView<'_>) -> Snapshot {
        let is_read = self.local.is_ready() && self.broker.is_ready();
        let link: Option<LinkState> = link_state(view, is_read);
        let writes = |side: Side| view.sent.get(side.store()).copied().unwrap_or_default();
        let stats = SyncStats {
            events: view.events,
            local_writes: writes(Side::Local),
            broker_writes: writes(Side::Broker),
            ..self.stats
        };
        let (refused, own_refusal) = (self.refused.clone(), self.own_refusal.clone());
        Snapshot { link, refused, own_refusal, stats, is_fenced: view.is_fenced }
    }
}

/// Returns why an object is left alone for a while.
fn conflict(side: Side, write: &Write) -> String {
    let key = write.key();
    match side {
        Side::Broker => format!(
            "{key} on the broker keeps being changed by somebody else; does another cluster use our ID?"
        ),
        Side::Local => format!(
            "{key} in the local store keeps being changed by somebody else; does another agent write there?"
        ),
    }
}

#[cfg(test)]
mod tests;
