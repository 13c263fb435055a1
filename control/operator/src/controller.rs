//! The controller: which Fabric a part belongs to, what is to be carried out, and what became of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serde_json::Value;
use trieste_control::api::{Fabric, FabricPhase, FabricSpec, Gateway, Kind, Object, Resource as _};
use trieste_control::runner::{Context, Controller, QueueView, Reconciled, Watch, Write};
use trieste_control::store::{Cache, StoreError, StoreEvent};
use trieste_deploy::objects::names::{MANAGED_BY_LABEL, NAMESPACE, TRIESTE};

use crate::holders::holder;
use crate::order::{Order, Outcome, Part, Report, Task};
use crate::status::{self, PodSet, View};
use crate::translate::join_source;

/// How far the operator is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OperatorStatus {
    /// What is to be carried out, in this order.
    pub orders: Vec<Order>,
    /// The number of Fabrics in each phase.
    pub phases: BTreeMap<&'static str, u64>,
    /// Whether the Fabrics have been read.
    pub is_complete: bool,
    /// Whether nothing is left to be written to Fabrics.
    pub is_settled: bool,
    /// Why something cannot be written, if that is so.
    pub problem: Option<String>,
}

/// Keeps finalizers and status of Fabrics, and says what is to be carried out.
#[derive(Debug, Default)]
pub struct FabricController {
    fabrics: Cache,
    daemon_sets: Cache,
    deployments: Cache,
    gateways: Cache,
    /// The newest report about each part of each incarnation.
    reports: BTreeMap<(String, Part), Report>,
    /// The generations of DaemonSets and Deployments that were last seen.
    generations: BTreeMap<Kind, BTreeMap<String, Option<i64>>>,
    revision: u64,
}

impl FabricController {
    /// Returns a controller that has observed nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the Fabrics that can be read. What the definition lets through can.
    fn fabrics(&self) -> Vec<Fabric> {
        self.fabrics.objects().filter_map(|object| Fabric::from_object(object).ok()).collect()
    }

    fn names(&self) -> Vec<String> {
        self.fabrics.objects().map(|object| object.metadata.name.clone()).collect()
    }

    /// Returns `true` once a member is installed.
    fn has_member(&self) -> bool {
        let is_installed =
            |report: &Report| report.part == Part::Member && matches!(report.outcome, Outcome::Installed(_));
        self.reports.values().any(is_installed)
    }

    fn report(&self, fabric: &Fabric, part: Part) -> Option<&Report> {
        self.reports.get(&(fabric.metadata.uid.clone()?, part))
    }

    /// Returns `true` if the newest report says that nothing is left, and is about what the Fabric says now: a part that was
    /// begun again since has another generation.
    fn is_removed(&self, fabric: &Fabric, part: Part) -> bool {
        let is_now = |report: &&Report| Some(report.generation) == fabric.metadata.generation;
        self.report(fabric, part).filter(is_now).is_some_and(|report| report.outcome == Outcome::Removed)
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

    /// Returns the finalizers that a Fabric is to have, of ours.
    fn finalizers(&self, fabric: &Fabric, all: &[Fabric]) -> Vec<(Part, bool)> {
        let wanted = |part: Part| {
            let is_holder = holder(all, part).is_some_and(|held| held.metadata.name == fabric.metadata.name);
            let has_it = fabric.metadata.has_finalizer(part.finalizer());
            is_holder && (part.is_wanted_by(fabric) || (has_it && !self.is_removed(fabric, part)))
        };
        Part::ALL.map(|part| (part, wanted(part))).into()
    }

    /// Returns the order about a part, if there is one.
    fn order(&self, all: &[Fabric], part: Part) -> Option<Order> {
        let fabric = holder(all, part).filter(|fabric| fabric.metadata.has_finalizer(part.finalizer()))?;
        let task = if part.is_wanted_by(fabric) {
            Task::Install(Box::new(of_part(&fabric.spec, part)))
        } else if self.is_removed(fabric, part) {
            return None;
        } else {
            Task::Remove
        };
        let joined_with = fabric.status.as_ref().and_then(|status| status.join_info.clone());
        let join_info = match (part, &task) {
            (Part::Broker, _) => None,
            (Part::Member, Task::Install(_)) => join_source(&fabric.spec),
            (Part::Member, Task::Remove) => joined_with.or_else(|| join_source(&fabric.spec)),
        };
        Some(Order {
            fabric: fabric.metadata.name.clone(),
            uid: fabric.metadata.uid.clone()?,
            generation: fabric.metadata.generation.unwrap_or_default(),
            part,
            task,
            join_info,
            broker_url: fabric.spec.join_config.as_ref().and_then(|config| config.broker_url.clone()),
            force: fabric
                .metadata
                .annotations
                .get(Fabric::FORCE_REMOVAL)
                .is_some_and(|value| value == "true"),
            revision: self.revision,
        })
    }

    /// Returns all orders: a member leaves before its broker goes, and a broker is there before its member comes.
    fn orders(&self) -> Vec<Order> {
        let all = self.fabrics();
        let mut orders: Vec<Order> = Part::ALL.iter().filter_map(|part| self.order(&all, *part)).collect();
        orders.sort_by_key(|order| match (&order.task, order.part) {
            (Task::Remove, Part::Member) => 0,
            (Task::Remove, Part::Broker) => 1,
            (Task::Install(_), Part::Broker) => 2,
            (Task::Install(_), Part::Member) => 3,
        });
        orders
    }

    fn view<'v>(&'v self, fabric: &'v Fabric, all: &'v [Fabric]) -> View<'v> {
        let holders = Part::ALL.map(|part| holder(all, part));
        let reports = Part::ALL.map(|part| self.report(fabric, part));
        let sets = self.daemon_sets.objects().chain(self.deployments.objects());
        let gateways = self.gateways.objects().filter_map(|object| Gateway::from_object(object).ok());
        let gateways = self.gateways.is_complete().then(|| gateways.collect());
        View { fabric, holders, reports, sets: sets.map(pod_set).collect(), gateways }
    }
}

/// Returns what of a spec a part goes by: a change of the other one does not concern it.
fn of_part(spec: &FabricSpec, part: Part) -> FabricSpec {
    match part {
        Part::Broker => FabricSpec { broker_config: spec.broker_config.clone(), ..FabricSpec::default() },
        Part::Member => FabricSpec { join_config: spec.join_config.clone(), ..FabricSpec::default() },
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
    type Key = String;
    type Status = OperatorStatus;
    type Input = Report;

    fn name(&self) -> &'static str {
        "fabric"
    }

    fn watches(&self) -> BTreeSet<Watch> {
        let inside = [Kind::DaemonSet, Kind::Deployment].map(|kind| Watch::new(0, kind, NAMESPACE));
        // Before a member is installed gateways have no definition.
        let gateways = self.has_member().then(|| Watch::new(0, Kind::Gateway, NAMESPACE));
        inside.into_iter().chain(gateways).chain([Watch::new(0, Kind::Fabric, "")]).collect()
    }

    fn does_without(&self, watch: &Watch, _error: &StoreError) -> bool {
        // Gateways have no definition any more when a member goes.
        watch.kind != Kind::Fabric
    }

    fn observe(&mut self, watch: &Watch, event: StoreEvent, _now: Instant) -> Vec<String> {
        let caches = [
            (Kind::Fabric, &mut self.fabrics),
            (Kind::DaemonSet, &mut self.daemon_sets),
            (Kind::Deployment, &mut self.deployments),
            (Kind::Gateway, &mut self.gateways),
        ];
        let cache = caches.into_iter().find(|(kind, _)| *kind == watch.kind);
        let changed = cache.map(|(_, cache)| cache.changes(event)).unwrap_or_default();
        if changed.is_empty() {
            return Vec::new();
        }
        if matches!(watch.kind, Kind::DaemonSet | Kind::Deployment) {
            self.compare_generations(watch.kind);
        }
        // Which Fabric has a part depends on all of them.
        let mut names = self.names();
        if watch.kind == Kind::Fabric {
            names.extend(changed);
            let live: BTreeSet<&str> =
                self.fabrics.objects().filter_map(|object| object.metadata.uid.as_deref()).collect();
            self.reports.retain(|(uid, _), _| live.contains(uid.as_str()));
        }
        names
    }

    fn handle_input(&mut self, report: Report, _now: Instant) -> Vec<String> {
        let name = report.fabric.clone();
        if (report.part, &report.outcome) == (Part::Member, &Outcome::Removed) {
            self.gateways = Cache::new();
        }
        self.reports.insert((report.uid.clone(), report.part), report);
        vec![name]
    }

    fn reconcile(&mut self, name: &String, context: &Context) -> Reconciled {
        let Some(object) = self.fabrics.get(name) else { return Reconciled::await_change() };
        let Ok(fabric) = Fabric::from_object(object) else { return Reconciled::await_change() };
        let all = self.fabrics();
        let mut wanted = object.clone();
        for (part, is_wanted) in self.finalizers(&fabric, &all) {
            match is_wanted {
                // Nothing new is kept from going.
                true if fabric.metadata.is_terminating() => {}
                true => wanted.metadata.add_finalizer(part.finalizer()),
                false => wanted.metadata.remove_finalizer(part.finalizer()),
            }
        }
        if finalizers(&wanted) != finalizers(object) {
            return Reconciled::write(vec![Write::Update(wanted)]);
        }
        let status = status::of(&self.view(&fabric, &all), context.wall);
        if fabric.status.as_ref() == Some(&status) {
            return Reconciled::await_change();
        }
        let Ok(status) = serde_json::to_value(&status) else { return Reconciled::await_change() };
        wanted.body.insert("status".to_owned(), status);
        Reconciled::write(vec![Write::UpdateStatus(wanted)])
    }

    fn status(&self, queue: &QueueView<'_>) -> OperatorStatus {
        let mut phases: BTreeMap<&'static str, u64> = BTreeMap::new();
        for fabric in self.fabrics() {
            let phase = fabric.status.map(|status| status.phase).unwrap_or_default();
            *phases.entry(phase_name(phase)).or_default() += 1;
        }
        OperatorStatus {
            orders: self.orders(),
            phases,
            is_complete: self.fabrics.is_complete(),
            is_settled: self.fabrics.is_complete() && queue.is_idle,
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
