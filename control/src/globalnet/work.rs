//! The plan for the objects of a cluster with Globalnet, unit by unit.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::Ipv4Net;
use jiff::Timestamp;

use super::allocation::Allocations;
use super::clusters;
use super::compile::Rules;
use super::config::GlobalnetConfig;
use super::exports::Exports;
use super::index::Index;
use super::ledger::Ledger;
use super::objects::{Changes, Objects, Scope};
use super::pool::Pool;
use super::services;
use super::state::{GlobalnetState, Problem};
use super::units::{Name, Outputs, Unit};
use super::writing::Writing;
use crate::api::{ClusterFacts, ClusterGlobalEgressIp, Kind, Object, ObjectKey, Resource};
use crate::runner::Write;

/// From the specification: how many addresses the cluster as a whole has where nobody says otherwise.
const DEFAULT_CLUSTER_EGRESS: i64 = 8;

/// Everything that was planned.
#[derive(Debug)]
pub(super) struct Work {
    own: ClusterFacts,
    inside: Vec<Ipv4Net>,
    index: Index,
    ledger: Ledger,
    exports: Exports,
    allocations: Allocations,
    rules: Rules,
    outputs: Outputs,
    /// How many objects need each scope to be known.
    needs: BTreeMap<Scope, usize>,
    /// Whether the state has to be made.
    is_new: bool,
    were_exports_known: bool,
    steps: u64,
}

/// The units to be planned again.
#[derive(Debug, Default)]
struct Due {
    exports: BTreeSet<Name>,
    pods: BTreeMap<Name, BTreeSet<String>>,
    ingresses: BTreeSet<Name>,
    internals: BTreeSet<Name>,
    addresses: BTreeSet<ObjectKey>,
    rules: BTreeSet<ObjectKey>,
}

impl Work {
    /// Returns one of a cluster of which no object is known.
    pub(super) fn new(config: &GlobalnetConfig, own: &ClusterFacts) -> Self {
        let pool = Pool::new(&own.global_cidr.first().map(ToString::to_string).unwrap_or_default());
        let mut outputs = Outputs::default();
        let mut writing = Writing::new(Timestamp::UNIX_EPOCH);
        let subject = format!("Cluster {}/{}", config.namespace, config.cluster_id);
        if let Err(error) = &pool {
            let message = format!("no global IP can be given out: {error}");
            writing.problem(Problem { name: "GlobalCidrUnusable", subject: subject.clone(), message });
        }
        let mut ledger = Ledger::new(pool);
        if let Some(message) = clusters::overlap_with_own(own) {
            ledger.close(message.clone());
            writing.problem(Problem { name: "GlobalCidrOverlap", subject, message });
        }
        outputs.set(Unit::OwnCluster, writing);
        Self {
            own: own.clone(),
            inside: clusters::inside(own),
            index: Index::default(),
            ledger,
            exports: Exports::default(),
            allocations: Allocations::default(),
            rules: Rules::default(),
            outputs,
            needs: BTreeMap::new(),
            is_new: true,
            were_exports_known: false,
            steps: 0,
        }
    }

    /// Returns the scopes that have to be followed beside those that always are.
    pub(super) fn needs(&self) -> impl Iterator<Item = &Scope> {
        self.needs.keys()
    }

    /// Returns `true` if there is something to write.
    pub(super) fn has_writes(&self, objects: &Objects) -> bool {
        self.outputs.has_writes(are_exports_known(objects))
    }

    /// Returns writes as [`Planner::take_writes`](super::planner::Planner::take_writes) does.
    pub(super) fn take_writes(&mut self, objects: &Objects, most: usize) -> (Vec<Write>, bool) {
        self.outputs.take_writes(most, are_exports_known(objects))
    }

    /// Returns how many units were decided about.
    pub(super) const fn steps(&self) -> u64 {
        self.steps
    }

    /// Plans what depends on what has changed. Returns what to translate if it may be something else than before.
    pub(super) fn update(
        &mut self,
        config: &GlobalnetConfig,
        objects: &Objects,
        changes: &Changes,
        now: Timestamp,
    ) -> Option<GlobalnetState> {
        let fill = self.ledger.fill();
        if self.is_new || changes.has_any_of(Kind::Cluster) {
            let mut writing = Writing::new(now);
            clusters::report_overlaps(config, &self.own, objects, &mut writing);
            self.outputs.set(Unit::OtherClusters, writing);
        }
        if self.is_new || changes.has_any_of(Kind::ClusterGlobalEgressIp) {
            self.cluster_egress(objects, now);
        }
        let mut due = Due::default();
        for (key, before) in &changes.objects {
            self.take_in(config, objects, (key, before.as_ref()), &mut due);
        }
        for (kind, namespace) in &changes.scopes {
            if matches!(kind, Kind::Pod | Kind::CoreEndpoints) {
                due.exports.extend(self.exports.of_namespace(namespace).cloned());
            }
        }
        for key in self.ledger.settle() {
            self.holder_changed(key, objects, &mut due);
        }
        let have_rules_changed = self.decide(objects, now, due);
        let are_known = are_exports_known(objects);
        let is_other = have_rules_changed
            | self.outputs.take_has_other_problems()
            | std::mem::take(&mut self.is_new)
            | (std::mem::replace(&mut self.were_exports_known, are_known) != are_known)
            | (self.ledger.fill() != fill);
        is_other.then(|| {
            let mut problems = self.outputs.problems(are_known);
            if !are_known {
                problems.push(exports_unknown());
                problems.sort();
            }
            self.rules.state(self.inside.clone(), &self.ledger, problems)
        })
    }

    /// Takes in a change of an object, and notes what depends on it.
    fn take_in(
        &mut self,
        config: &GlobalnetConfig,
        objects: &Objects,
        (key, before): (&ObjectKey, Option<&Object>),
        due: &mut Due,
    ) {
        let after = objects.at(key);
        let name = || (key.namespace.clone(), key.name.clone());
        if key.kind == Kind::Service {
            self.service_changed((&name(), before, after), due);
        } else if key.kind == Kind::ServiceExport {
            due.exports.insert(name());
        } else if key.kind == Kind::Pod {
            self.pod_changed(objects, (&key.name, before, after), due);
        } else if key.kind == Kind::CoreEndpoints {
            due.exports.insert(name());
            due.internals.insert(name());
            let internal = crate::api::internal_service_name(&key.name);
            due.internals.insert((key.namespace.clone(), internal));
        } else if key.kind == Kind::GlobalIngressIp {
            due.internals.extend(self.index.update_ingress(before, after));
            due.ingresses.insert(name());
            self.holds((key, after), due);
        } else if key.kind == Kind::GlobalEgressIp {
            let pods = |object: Option<&Object>| object.map(|_| (Kind::Pod, key.namespace.clone()));
            self.need(pods(before), pods(after));
            self.holds((key, after), due);
        } else if key.kind == Kind::ClusterGlobalEgressIp {
            self.holds((key, after), due);
        } else if key.kind == Kind::Gateway && key.namespace == config.namespace {
            self.ledger.enter(key, after);
            due.rules.insert(key.clone());
            if config.gateway.as_ref() == Some(&key.name) {
                due.addresses.insert(key.clone());
            }
        }
    }

    /// Takes in what an object says it holds.
    fn holds(&mut self, (key, after): (&ObjectKey, Option<&Object>), due: &mut Due) {
        self.ledger.enter(key, after);
        due.addresses.insert(key.clone());
        due.rules.insert(key.clone());
    }

    fn service_changed(
        &mut self,
        (name, before, after): (&Name, Option<&Object>, Option<&Object>),
        due: &mut Due,
    ) {
        self.ledger.answer(before, after);
        self.need(before.and_then(services::needs_endpoints), after.and_then(services::needs_endpoints));
        due.exports.insert(name.clone());
        due.internals.insert(name.clone());
        let mut is_named = false;
        for (namespace, ingress) in self.index.ingresses_of(name) {
            let key = ObjectKey::new(Kind::GlobalIngressIp, namespace, ingress);
            due.addresses.insert(key.clone());
            due.rules.insert(key);
            is_named = true;
        }
        if is_named {
            let internal = crate::api::internal_service_name(&name.1);
            due.internals.insert((name.0.clone(), internal));
        }
    }

    fn pod_changed(
        &mut self,
        objects: &Objects,
        (name, before, after): (&str, Option<&Object>, Option<&Object>),
        due: &mut Due,
    ) {
        self.index.update_pod(before, after);
        let Some(namespace) = before.or(after).map(|pod| &pod.metadata.namespace) else { return };
        for service in [before, after].into_iter().flatten().flat_map(|pod| self.exports.selecting(pod)) {
            let pods = due.pods.entry((namespace.clone(), service)).or_default();
            pods.insert(name.to_owned());
        }
        due.rules.extend(objects.inside(Kind::GlobalEgressIp, namespace).map(Object::key));
    }

    /// Notes what depends on what an object holds.
    fn holder_changed(&self, key: ObjectKey, objects: &Objects, due: &mut Due) {
        if let Some(object) = objects.at(&key).filter(|_| key.kind == Kind::GlobalIngressIp) {
            due.internals.extend(Index::internal_of(object));
        }
        // Of the gateways only our own is given anything, and it is noted where its object changes.
        if key.kind != Kind::Gateway || self.allocations.has(&key) {
            due.addresses.insert(key.clone());
        }
        due.rules.insert(key);
    }

    /// Decides about what is due. Returns whether what is translated has changed.
    fn decide(&mut self, objects: &Objects, now: Timestamp, mut due: Due) -> bool {
        for name in &due.exports {
            let (concerned, before, after) =
                self.exports.update(name, (objects, &self.index), &mut self.outputs);
            self.need(before, after);
            due.ingresses.extend(concerned);
            due.pods.remove(name);
        }
        for (name, pods) in &due.pods {
            for pod in pods {
                due.ingresses.extend(self.exports.update_pod(name, pod, objects, &mut self.outputs));
            }
        }
        for name in &due.ingresses {
            let mut writing = Writing::new(now);
            self.exports.decide(name, objects, &mut writing);
            self.outputs.set(Unit::Ingress(name.clone()), writing);
        }
        for name in &due.internals {
            let (mut internal, mut copy) = (Writing::new(now), Writing::new(now));
            copy.extend(services::decide(name, (objects, &self.index, &self.ledger), &mut internal));
            self.outputs.set(Unit::Internal(name.clone()), internal);
            self.outputs.set(Unit::Copy(name.clone()), copy);
        }
        let pods: usize = due.pods.values().map(BTreeSet::len).sum();
        let mut steps = due.exports.len() + pods + due.ingresses.len() + due.internals.len();
        steps += due.addresses.len() + due.rules.len();
        let outputs = &mut self.outputs;
        let has_changed =
            self.rules.update(due.rules, objects, (&self.ledger, &self.inside), |key, problems| {
                outputs.set(Unit::Rule(key), Writing::of_problems(problems));
            });
        for key in &due.addresses {
            let ledger = &mut self.ledger;
            self.allocations.update(key, (objects, ledger), now, &mut self.outputs);
        }
        steps += self.allocations.serve(objects, &mut self.ledger, now, &mut self.outputs);
        self.steps += u64::try_from(steps).unwrap_or(u64::MAX);
        has_changed
    }

    fn cluster_egress(&mut self, objects: &Objects, now: Timestamp) {
        let mut writing = Writing::new(now);
        if objects.get(Kind::ClusterGlobalEgressIp, "", ClusterGlobalEgressIp::NAME).is_none() {
            writing.push(Write::Create(ClusterGlobalEgressIp::new(DEFAULT_CLUSTER_EGRESS).to_object()));
        }
        self.outputs.set(Unit::ClusterEgress, writing);
    }

    /// Counts what needs a scope.
    fn need(&mut self, before: Option<Scope>, after: Option<Scope>) {
        if before == after {
            return;
        }
        if let Some(scope) = after {
            *self.needs.entry(scope).or_default() += 1;
        }
        if let Some(scope) = before
            && let Some(count) = self.needs.get_mut(&scope)
        {
            *count -= 1;
            if *count == 0 {
                self.needs.remove(&scope);
            }
        }
    }
}

fn are_exports_known(objects: &Objects) -> bool {
    objects.is_known(Kind::ServiceExport, "")
}

fn exports_unknown() -> Problem {
    let message = "ServiceExports cannot be read (is their definition installed?): services are neither exported nor \
                   unexported";
    let subject = "ServiceExport".to_owned();
    Problem { name: "ServiceExportsUnknown", subject, message: message.to_owned() }
}
