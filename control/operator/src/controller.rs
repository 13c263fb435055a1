//! The controller: which object a part belongs to, what is to be carried out, and what became of it.

mod cloud;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serde_json::{Map, Value};
use tracing::warn;
use trieste_control::api::{
    CloudPrepareConfig, FabricPhase, Gateway, Kind, Object, ObjectKey, Resource as _,
};
use trieste_control::runner::{Context, Controller, QueueView, Reconciled, Watch, Write};
use trieste_control::store::{Cache, StoreError, StoreEvent};
use trieste_deploy::objects::names::{
    MANAGED_BY_LABEL, NAMESPACE, TRIESTE, UPSTREAM_FINALIZER, UPSTREAM_OPERATOR,
};

use crate::holders::holder;
use crate::kinds::{KINDS, Others, is_of_upstream};
use crate::order::{Order, Outcome, Part, Reason, Report, Task};
use crate::source::Source;
use crate::sources::Sources;
use crate::status::{self, PodSet, View};
use crate::translate::join_source;
use wanted::wanted;

/// How far the operator is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OperatorStatus {
    /// What is to be carried out, in this order.
    pub orders: Vec<Order>,
    /// The number of Fabrics in each phase.
    pub phases: BTreeMap<&'static str, u64>,
    /// Whether the Fabrics have been read.
    pub is_complete: bool,
    /// Whether nothing is left to be written to objects.
    pub is_settled: bool,
    /// Why something cannot be written, if that is so.
    pub problem: Option<String>,
}

/// Keeps finalizers and status of Fabrics, and of objects of others' kinds, and says what is to be carried out.
///
/// Of upstream's kinds it keeps its hands off while upstream's operator runs: nothing is written to them then but that its own
/// finalizers are taken off. It begins with one once the worker has reported that no such operator is anywhere.
#[derive(Debug, Default)]
pub struct FabricController {
    others: Others,
    sources: Sources,
    daemon_sets: Cache,
    deployments: Cache,
    gateways: Cache,
    /// The newest report about each part of each incarnation.
    reports: BTreeMap<(String, Part), Report>,
    /// The generations of DaemonSets and Deployments that were last seen.
    generations: BTreeMap<Kind, BTreeMap<String, Option<i64>>>,
    revision: u64,
    /// What is prepared in clouds, by object.
    clouds: BTreeMap<String, CloudPrepareConfig>,
    /// The status of objects of others' kinds as it was written last: a definition of theirs drops conditions, and to write them again
    /// before the next pass is of no use.
    written: BTreeMap<ObjectKey, Map<String, Value>>,
}

impl FabricController {
    /// Returns a controller that has observed nothing; of Fabrics, and of other kinds.
    pub fn new(others: Others) -> Self {
        Self { others, ..Self::default() }
    }

    fn objects(&self) -> impl Iterator<Item = &Object> {
        self.sources.objects()
    }

    /// Returns the objects that can be read, but for those for which upstream's operator is responsible. What the definition lets
    /// through can be read.
    fn all(&self) -> Vec<Source> {
        let all = self.objects().filter_map(Source::of);
        all.filter(|source| !self.stands_back(source)).collect()
    }

    /// Returns `true` if it is known of every kind that is watched which objects there are.
    fn is_settled(&self) -> bool {
        let mut watched = KINDS.iter().filter(|(kind, _)| self.others.has(*kind));
        watched.all(|(kind, _)| self.sources.is_settled(*kind))
    }

    fn keys(&self) -> Vec<ObjectKey> {
        self.objects().map(Object::key).collect()
    }

    /// Returns `true` once a member was begun.
    fn has_member(&self) -> bool {
        self.objects().any(|object| object.metadata.has_finalizer(Part::Member.finalizer()))
    }

    fn report(&self, source: &Source, part: Part) -> Option<&Report> {
        self.reports.get(&(source.metadata.uid.clone()?, part))
    }

    /// Returns `true` if upstream's operator was seen to run in the member's namespace.
    fn is_operator_seen(&self) -> bool {
        self.deployments.get(UPSTREAM_OPERATOR).is_some_and(|set| {
            let replicas = set.body.get("spec").and_then(|spec| spec["replicas"].as_u64()).unwrap_or(1);
            replicas > 0 && !set.metadata.is_terminating()
        })
    }

    /// Returns `true` if upstream's operator is responsible for an object.
    fn stands_back(&self, source: &Source) -> bool {
        let Some(part) = source.main_part() else { return false };
        let is_reported = self.report(source, part).is_some_and(
            |report| matches!(&report.outcome, Outcome::Waiting(why) if why.reason == Reason::UPSTREAM_OPERATOR),
        );
        is_reported || self.is_operator_seen()
    }

    /// Returns `true` if the operator is responsible for an object: always for a Fabric; for others as soon as it is known that
    /// upstream's operator is not.
    fn is_responsible(&self, source: &Source) -> bool {
        let Some(part) = source.main_part() else { return true };
        let is_checked = self.deployments.is_complete() && self.report(source, part).is_some();
        is_checked && !self.stands_back(source)
    }

    /// Returns `true` if the newest report says that nothing is left, and is about what the object says now: a part that was
    /// begun again since has another generation.
    fn is_removed(&self, source: &Source, part: Part) -> bool {
        let is_now = |report: &&Report| Some(report.generation) == source.metadata.generation;
        self.report(source, part).filter(is_now).is_some_and(|report| report.outcome == Outcome::Removed)
    }

    /// Takes in which of our sets of pods have changed but for their status. Counts once for all of them.
    fn compare_generations(&mut self, kind: Kind) {
        let cache = if kind == Kind::DaemonSet { &self.daemon_sets } else { &self.deployments };
        let is_ours =
            |set: &&Object| set.metadata.labels.get(MANAGED_BY_LABEL).is_some_and(|by| by == TRIESTE);
        let sets = cache.objects().filter(is_ours);
        let now = sets.map(|set| (set.metadata.name.clone(), set.metadata.generation)).collect();
        let known = self.generations.entry(kind).or_default();
        if *known != now {
            *known = now;
            self.revision += 1;
        }
    }

    /// Returns the finalizers that an object is to have, of ours; none says that they stay as they are.
    fn finalizers(&self, source: &Source, all: &[Source]) -> Vec<(Part, bool)> {
        if !self.is_responsible(source) {
            let parts = Part::ALL.into_iter().filter(|_| self.stands_back(source));
            return parts.map(|part| (part, false)).collect();
        }
        let wanted = |part: Part| {
            let is_holder = holder(all, part).is_some_and(|held| held.key == source.key);
            let is_begun = source.has_begun(part);
            let is_late = part == Part::Member && self.waits_for_cloud(source, all);
            is_holder && !is_late && (source.wants(part) || (is_begun && !self.is_removed(source, part)))
        };
        Part::ALL.map(|part| (part, wanted(part))).into()
    }

    /// Returns an object with the finalizers that it is to have.
    fn with_finalizers(&self, object: &Object, source: &Source, all: &[Source]) -> Object {
        let mut wanted = object.clone();
        for (part, is_wanted) in self.finalizers(source, all) {
            match is_wanted {
                // Nothing new is kept from going, nor begun before it is known which objects have something already.
                true if source.metadata.is_terminating() || !self.is_settled() => {}
                true => wanted.metadata.add_finalizer(part.finalizer()),
                false => wanted.metadata.remove_finalizer(part.finalizer()),
            }
        }
        let is_left = Part::ALL.iter().any(|part| wanted.metadata.has_finalizer(part.finalizer()));
        let was_begun = Part::ALL.iter().any(|part| source.has_begun(*part));
        if source.is_of_upstream()
            && source.metadata.is_terminating()
            && self.is_responsible(source)
            && was_begun
            && !is_left
        {
            // Nobody else will: there is no operator of upstream's (any more). Of what was never begun here something of upstream's
            // may be left, which is its own operator's to remove.
            wanted.metadata.remove_finalizer(UPSTREAM_FINALIZER);
        }
        wanted
    }

    /// Returns the order about a part, if there is one.
    fn order(&self, all: &[Source], part: Part) -> Option<Order> {
        let source =
            holder(all, part).filter(|source| source.has_begun(part) && self.is_responsible(source))?;
        let is_cloud = part == Part::Cloud;
        let task = if source.wants(part) && !(is_cloud && self.is_replaced(source)) {
            Task::Install(Box::new(wanted(source, part, all)))
        } else if self.is_removed(source, part) || (is_cloud && Self::is_member_leaving(all)) {
            return None;
        } else {
            Task::Remove
        };
        let own = source.fabric().and_then(|fabric| join_source(&fabric.spec));
        let join_info = match (part, &task) {
            (Part::Member, Task::Install(_)) => own,
            (Part::Member, Task::Remove) => source.joined_with().or(own),
            (Part::Broker | Part::Cloud | Part::ServiceDiscovery, _) | (Part::Member, Task::Check { .. }) => {
                None
            }
        };
        self.ordered(source, part, task, join_info)
    }

    fn ordered(
        &self,
        source: &Source,
        part: Part,
        task: Task,
        join_info: Option<trieste_control::api::BrokerInfoRef>,
    ) -> Option<Order> {
        let join = source.fabric().and_then(|fabric| fabric.spec.join_config.as_ref());
        let force = source.metadata.annotations.get(trieste_control::api::Fabric::FORCE_REMOVAL);
        Some(Order {
            source: source.key.clone(),
            uid: source.metadata.uid.clone()?,
            generation: source.metadata.generation.unwrap_or_default(),
            part,
            task,
            join_info,
            cloud: (part == Part::Cloud).then(|| self.cloud_of(source)).flatten(),
            is_cloud_assumed: part == Part::Cloud && self.is_cloud_assumed(source),
            broker_url: join.and_then(|config| config.broker_url.clone()),
            force: force.is_some_and(|value| value == "true"),
            revision: self.revision,
        })
    }

    /// Returns what is to be found out before anything is begun for an object of upstream's kinds.
    fn checks(&self) -> Vec<Order> {
        let is_seen = self.is_operator_seen();
        let open = self.objects().filter_map(Source::of).filter(|source| !self.is_responsible(source));
        let check = |source: Source| {
            let order = self.ordered(&source, source.main_part()?, Task::Check { is_seen }, None)?;
            // What is edited meanwhile changes nothing about that.
            Some(Order { generation: 0, revision: 0, ..order })
        };
        open.filter(|_| self.deployments.is_complete()).filter_map(check).collect()
    }

    /// Returns all orders: a member leaves before its broker goes, and a broker is there, and the cloud prepared, before a member
    /// comes.
    fn orders(&self) -> Vec<Order> {
        let all = self.all();
        let mut orders: Vec<Order> = Part::ALL.iter().filter_map(|part| self.order(&all, *part)).collect();
        orders.sort_by_key(|order| match (&order.task, order.part) {
            (Task::Remove, Part::ServiceDiscovery) => 0,
            (Task::Remove, Part::Member) => 1,
            (Task::Remove, Part::Cloud) => 2,
            (Task::Remove, Part::Broker) => 3,
            (Task::Install(_) | Task::Check { .. }, Part::Broker) => 4,
            (Task::Install(_) | Task::Check { .. }, Part::Cloud) => 5,
            (Task::Install(_) | Task::Check { .. }, Part::Member) => 6,
            (Task::Install(_) | Task::Check { .. }, Part::ServiceDiscovery) => 7,
        });
        self.checks().into_iter().chain(orders).collect()
    }

    /// Takes in an event about objects that say what the cluster is to be. Returns what is to be looked at again.
    fn observe_source(&mut self, kind: Kind, event: StoreEvent) -> Vec<ObjectKey> {
        if let StoreEvent::Unavailable(error @ StoreError::Forbidden { .. }) = &event {
            warn!(%kind, %error, "resources cannot be read, apply the operator.yaml of this version");
        }
        let was_settled = self.sources.is_settled(kind);
        let changed = self.sources.changes(kind, event);
        if changed.is_empty() && was_settled == self.sources.is_settled(kind) {
            return Vec::new();
        }
        let live: BTreeSet<String> =
            self.objects().filter_map(|object| object.metadata.uid.clone()).collect();
        self.reports.retain(|(uid, _), _| live.contains(uid));
        self.clouds.retain(|uid, _| live.contains(uid));
        // Which object has a part depends on all of them.
        let keys: BTreeSet<ObjectKey> = self.keys().into_iter().collect();
        self.written.retain(|key, _| keys.contains(key));
        keys.into_iter().chain(changed).collect()
    }

    fn view<'v>(&'v self, source: &'v Source, all: &'v [Source]) -> View<'v> {
        let holders = Part::ALL.map(|part| holder(all, part));
        let reports = Part::ALL.map(|part| self.report(source, part));
        let sets = self.daemon_sets.objects().chain(self.deployments.objects());
        let sets = sets.filter(|set| set.metadata.name != UPSTREAM_OPERATOR).map(pod_set).collect();
        let gateways = self.gateways.objects().filter_map(|object| Gateway::from_object(object).ok());
        let gateways = self.gateways.is_complete().then(|| gateways.collect());
        View { source, holders, reports, sets, daemon_sets: self.daemon_sets.objects().collect(), gateways }
    }

    /// Returns the status that an object is to have; `None` if it has it.
    fn status_of(
        &self,
        object: &Object,
        source: &Source,
        all: &[Source],
        context: &Context,
    ) -> Option<Value> {
        let view = self.view(source, all);
        if let Some(fabric) = source.fabric() {
            let status = status::of(&view, &fabric.status.clone().unwrap_or_default(), context.wall);
            let changed = Some(&status).filter(|status| fabric.status.as_ref() != Some(*status));
            return changed.and_then(|status| serde_json::to_value(status).ok());
        }
        let found = object.body.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
        let written = self.written.get(&source.key);
        let mut before = found.clone();
        if let Some(conditions) = written.and_then(|written| written.get("conditions")) {
            before.entry("conditions").or_insert_with(|| conditions.clone());
        }
        let status = if source.is_of_upstream() {
            status::of_upstream(&view, &before, context.wall)
        } else {
            status::of_tkestack(&view, before, context.wall)
        };
        (status != found && Some(&status) != written).then_some(Value::Object(status))
    }
}

/// Returns how far a DaemonSet or Deployment is.
fn pod_set(object: &Object) -> PodSet {
    let status = object.body.get("status").cloned().unwrap_or_default();
    let spec = object.body.get("spec").cloned().unwrap_or_default();
    let number = |field: &str| status[field].as_u64().unwrap_or(0);
    let is_current = status["observedGeneration"].as_i64() >= object.metadata.generation;
    let (wanted, updated, ready) = if object.kind == Kind::DaemonSet {
        (number("desiredNumberScheduled"), number("updatedNumberScheduled"), number("numberReady"))
    } else {
        (spec["replicas"].as_u64().unwrap_or(1), number("updatedReplicas"), number("readyReplicas"))
    };
    let is_ready = is_current && updated >= wanted && ready >= wanted;
    PodSet { name: object.metadata.name.clone(), wanted, ready, is_ready }
}

impl Controller for FabricController {
    type Key = ObjectKey;
    type Status = OperatorStatus;
    type Input = Report;

    fn name(&self) -> &'static str {
        "fabric"
    }

    fn watches(&self) -> BTreeSet<Watch> {
        let inside = [Kind::DaemonSet, Kind::Deployment].map(|kind| Watch::new(0, kind, NAMESPACE));
        // Before a member is begun gateways have no definition.
        let gateways = self.has_member().then(|| Watch::new(0, Kind::Gateway, NAMESPACE));
        let sources = KINDS.into_iter().filter(|(kind, _)| self.others.has(*kind));
        let sources = sources.map(|(kind, namespace)| Watch::new(0, kind, namespace));
        inside.into_iter().chain(gateways).chain(sources).collect()
    }

    fn does_without(&self, watch: &Watch, _error: &StoreError) -> bool {
        // Gateways have no definition any more when a member goes, and others' kinds where nobody has brought them.
        watch.kind != Kind::Fabric
    }

    fn observe(&mut self, watch: &Watch, event: StoreEvent, _now: Instant) -> Vec<ObjectKey> {
        if KINDS.iter().any(|(kind, _)| *kind == watch.kind) {
            return self.observe_source(watch.kind, event);
        }
        let sets = [
            (Kind::DaemonSet, &mut self.daemon_sets),
            (Kind::Deployment, &mut self.deployments),
            (Kind::Gateway, &mut self.gateways),
        ];
        let Some((_, cache)) = sets.into_iter().find(|(kind, _)| *kind == watch.kind) else {
            return Vec::new();
        };
        let was_complete = cache.is_complete();
        if cache.changes(event).is_empty() && was_complete == cache.is_complete() {
            return Vec::new();
        }
        if matches!(watch.kind, Kind::DaemonSet | Kind::Deployment) {
            self.compare_generations(watch.kind);
        }
        self.keys()
    }

    fn handle_input(&mut self, report: Report, _now: Instant) -> Vec<ObjectKey> {
        if (report.part, &report.outcome) == (Part::Member, &Outcome::Removed) {
            self.gateways = Cache::new();
        }
        self.record_cloud(&report);
        self.written.remove(&report.source);
        // Who holds a part may depend on it.
        let mut keys = if is_of_upstream(report.source.kind) { self.keys() } else { Vec::new() };
        keys.push(report.source.clone());
        self.reports.insert((report.uid.clone(), report.part), report);
        keys
    }

    fn written(
        &mut self,
        key: &ObjectKey,
        write: &Write,
        outcome: Result<&StoreEvent, &StoreError>,
        _now: Instant,
    ) {
        let Write::UpdateStatus(object) = write else { return };
        let status = object.body.get("status").and_then(Value::as_object);
        if let Some(status) = status.filter(|_| key.kind != Kind::Fabric && outcome.is_ok()) {
            self.written.insert(key.clone(), status.clone());
        }
    }

    fn reconcile(&mut self, key: &ObjectKey, context: &Context) -> Reconciled {
        let Some(object) = self.sources.get(key) else { return Reconciled::await_change() };
        let Some(source) = Source::of(object) else { return Reconciled::await_change() };
        let all = self.all();
        let mut wanted = self.with_finalizers(object, &source, &all);
        if finalizers(&wanted) != finalizers(object) {
            return Reconciled::write(vec![Write::Update(wanted)]);
        }
        if !self.is_responsible(&source) {
            return Reconciled::await_change();
        }
        let Some(status) = self.status_of(object, &source, &all, context) else {
            return Reconciled::await_change();
        };
        wanted.body.insert("status".to_owned(), status);
        Reconciled::write(vec![Write::UpdateStatus(wanted)])
    }

    fn status(&self, queue: &QueueView<'_>) -> OperatorStatus {
        let mut phases: BTreeMap<&'static str, u64> = BTreeMap::new();
        for source in self.objects().filter_map(Source::of) {
            let Some(fabric) = source.fabric() else { continue };
            let phase = fabric.status.as_ref().map(|status| status.phase).unwrap_or_default();
            *phases.entry(phase_name(phase)).or_default() += 1;
        }
        let is_complete = self.sources.has_listed(Kind::Fabric);
        OperatorStatus {
            orders: self.orders(),
            phases,
            is_complete,
            is_settled: is_complete && queue.is_idle,
            problem: queue.problem().map(str::to_owned),
        }
    }
}

/// Returns the finalizers of an object; none is the same as an empty list.
fn finalizers(object: &Object) -> Vec<Value> {
    let list = object.metadata.extra.get("finalizers").and_then(Value::as_array);
    list.cloned().unwrap_or_default()
}

const fn phase_name(phase: FabricPhase) -> &'static str {
    match phase {
        FabricPhase::Pending => "Pending",
        FabricPhase::Deploying => "Deploying",
        FabricPhase::Running => "Running",
        FabricPhase::Failed => "Failed",
        FabricPhase::Removing => "Removing",
    }
}
