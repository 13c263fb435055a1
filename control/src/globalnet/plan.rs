//! All objects in, what to write and what to translate out. Pure.

use std::collections::BTreeSet;

use ipnet::{IpNet, Ipv4Net};
use jiff::Timestamp;

use super::ledger::Ledger;
use super::objects::{Objects, Scope};
use super::pool::Pool;
use super::state::{GlobalnetState, Problem};
use super::{compile, egress, exports, gateways, ingress, services};
use crate::api::{ApiError, Cluster, ClusterFacts, ClusterGlobalEgressIp, Kind, Object, ObjectKey, Resource};
use crate::runner::Write;

/// From the specification: how many addresses the cluster as a whole has where nobody says otherwise.
const DEFAULT_CLUSTER_EGRESS: i64 = 8;

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

/// What follows from a view.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What to write, by the gateway that leads; one write per object at most. None of them depends on another.
    pub writes: Vec<Write>,
    /// What to translate.
    pub state: GlobalnetState,
    /// What has to be followed. Only if all of it is known is the state whole.
    pub needs: BTreeSet<Scope>,
    /// Whether all that is needed is known.
    pub is_complete: bool,
}

/// Where parts of a plan put what they come to.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) now: Timestamp,
    writes: Vec<Write>,
    problems: Vec<Problem>,
}

impl Writing {
    pub(super) fn push(&mut self, write: Write) {
        self.writes.push(write);
    }

    pub(super) fn extend(&mut self, write: Option<Write>) {
        self.writes.extend(write);
    }

    pub(super) fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// An object that has not the shape of its kind is left alone, and told of.
    fn check(&mut self, object: &Object, outcome: Result<(), ApiError>) {
        if let Err(error) = outcome {
            let subject = object.key().to_string();
            self.problem(Problem { name: "ObjectInvalid", subject, message: error.to_string() });
        }
    }
}

/// Compares what there is with what there should be. Level-driven: the same view gives the same plan, whatever happened
/// before, and once all writes are done the plan is empty.
pub fn plan(view: &View<'_>) -> Outcome {
    let mut outcome =
        Outcome { needs: BTreeSet::from([scope(Kind::Cluster, view.namespace)]), ..Outcome::default() };
    let cluster = match own_cluster(view) {
        Ok(Some(cluster)) => cluster,
        Ok(None) => return outcome,
        Err(error) => {
            let subject = format!("Cluster {}/{}", view.namespace, view.cluster_id);
            outcome.state.problems.push(Problem {
                name: "ObjectInvalid",
                subject,
                message: error.to_string(),
            });
            return outcome;
        }
    };
    if cluster.global_cidr.is_empty() {
        outcome.is_complete = true;
        return outcome;
    }
    outcome.needs.extend(base(view.namespace));
    if !outcome
        .needs
        .iter()
        .all(|(kind, namespace)| is_optional(*kind) || view.objects.is_known(*kind, namespace))
    {
        return outcome;
    }
    outcome.needs.extend(of_services(view.objects));
    let is_known = |(kind, namespace): &Scope| is_optional(*kind) || view.objects.is_known(*kind, namespace);
    outcome.is_complete = outcome.needs.iter().all(is_known);
    write_and_compile(view, &cluster, &mut outcome);
    outcome
}

fn scope(kind: Kind, namespace: &str) -> Scope {
    (kind, namespace.to_owned())
}

/// What a cluster with Globalnet needs always.
fn base(namespace: &str) -> [Scope; 6] {
    [
        scope(Kind::Gateway, namespace),
        scope(Kind::ClusterGlobalEgressIp, ""),
        scope(Kind::GlobalEgressIp, ""),
        scope(Kind::GlobalIngressIp, ""),
        scope(Kind::Service, ""),
        scope(Kind::ServiceExport, ""),
    ]
}

/// Not every cluster has the definition of this kind. As long as it cannot be read, what was made for exports stays, and
/// nothing is added.
fn is_optional(kind: Kind) -> bool {
    kind == Kind::ServiceExport
}

/// Pods and Endpoints, of those namespaces only where somebody asks for them: a cluster has many.
fn of_services(objects: &Objects) -> BTreeSet<Scope> {
    let mut needs = exports::needs(objects);
    let egress = objects.of(Kind::GlobalEgressIp);
    needs.extend(egress.map(|object| scope(Kind::Pod, &object.metadata.namespace)));
    needs.extend(services::needs_endpoints(objects).map(|namespace| (Kind::CoreEndpoints, namespace)));
    needs
}

fn own_cluster(view: &View<'_>) -> Result<Option<ClusterFacts>, ApiError> {
    let clusters = view.objects.inside(Kind::Cluster, view.namespace);
    for object in clusters.filter(|object| object.metadata.origin().is_none()) {
        let Ok(cluster) = Cluster::from_object(object) else { continue };
        if cluster.spec.cluster_id == view.cluster_id {
            return cluster.spec.parse().map(Some);
        }
    }
    Ok(None)
}

fn write_and_compile(view: &View<'_>, cluster: &ClusterFacts, outcome: &mut Outcome) {
    let objects = view.objects;
    let mut writing = Writing { now: view.now, writes: Vec::new(), problems: Vec::new() };
    let global = cluster.global_cidr.first().map(ToString::to_string).unwrap_or_default();
    let pool = Pool::new(&global);
    if let Err(error) = &pool {
        let subject = format!("Cluster {}/{}", view.namespace, view.cluster_id);
        let message = format!("no global IP can be given out: {error}");
        writing.problem(Problem { name: "GlobalCidrUnusable", subject, message });
    }
    let state = &mut outcome.state;
    state.global_cidr = pool.as_ref().ok().map(Pool::cidr);
    state.inside = inside(cluster);
    let mut ledger = Ledger::reserve(pool, objects, view.namespace);
    overlaps(view, cluster, &mut ledger, &mut writing);

    allocate(view, &mut ledger, &mut writing);
    if objects.get(Kind::ClusterGlobalEgressIp, "", ClusterGlobalEgressIp::NAME).is_none() {
        writing.push(Write::Create(ClusterGlobalEgressIp::new(DEFAULT_CLUSTER_EGRESS).to_object()));
    }
    if objects.is_known(Kind::ServiceExport, "") {
        exports::plan(objects, &mut writing);
    } else {
        let message = "ServiceExports cannot be read (is their definition installed?): services are neither exported \
                       nor unexported";
        let subject = "ServiceExport".to_owned();
        writing.problem(Problem { name: "ServiceExportsUnknown", subject, message: message.to_owned() });
    }
    services::plan(objects, &ledger, &mut writing);
    compile::compile(objects, view.namespace, &ledger, state);
    state.problems.append(&mut writing.problems);
    state.problems.sort();
    state.problems.dedup();
    outcome.writes = one_per_object(writing.writes);
}

/// Statuses and gateways, in the order in which the objects were made: who has waited longest is served first.
fn allocate(view: &View<'_>, ledger: &mut Ledger, writing: &mut Writing) {
    let objects = view.objects;
    const ORDER: [Kind; 4] =
        [Kind::ClusterGlobalEgressIp, Kind::Gateway, Kind::GlobalEgressIp, Kind::GlobalIngressIp];
    let rank = |object: &Object| ORDER.iter().position(|kind| *kind == object.kind);
    let own = view.gateway.and_then(|name| objects.get(Kind::Gateway, view.namespace, name));
    let kinds = [Kind::ClusterGlobalEgressIp, Kind::GlobalEgressIp, Kind::GlobalIngressIp];
    let mut queue: Vec<&Object> = kinds.into_iter().flat_map(|kind| objects.of(kind)).chain(own).collect();
    // The sort keeps the order of namespaces and names.
    queue.sort_by_key(|object| (object.metadata.creation_timestamp.unwrap_or(Timestamp::MAX), rank(object)));
    for object in queue.into_iter().filter(|object| !object.metadata.is_terminating()) {
        let done = if object.kind == Kind::ClusterGlobalEgressIp {
            egress::cluster(object, ledger, writing)
        } else if object.kind == Kind::GlobalEgressIp {
            egress::namespaced(object, ledger, writing)
        } else if object.kind == Kind::GlobalIngressIp {
            ingress::status(object, objects, ledger, writing)
        } else {
            gateways::own(object, ledger, writing);
            Ok(())
        };
        writing.check(object, done);
    }
}

/// An object that two parts of the plan write is written by the first; the other comes to it in the next plan. A deletion
/// goes before everything.
fn one_per_object(writes: Vec<Write>) -> Vec<Write> {
    let doomed: BTreeSet<ObjectKey> =
        writes.iter().filter(|write| matches!(write, Write::Delete(_))).map(Write::key).collect();
    let mut seen = BTreeSet::new();
    let is_first = |write: &Write| {
        let key = write.key();
        (matches!(write, Write::Delete(_)) || !doomed.contains(&key)) && seen.insert(key)
    };
    let mut writes = writes;
    let mut is_first = is_first;
    writes.retain(|write| is_first(write));
    writes
}

fn inside(cluster: &ClusterFacts) -> Vec<Ipv4Net> {
    let nets = cluster.cluster_cidr.iter().chain(&cluster.service_cidr);
    let mut inside: Vec<Ipv4Net> = nets
        .filter_map(|net| match net {
            IpNet::V4(net) => Some(*net),
            IpNet::V6(_) => None,
        })
        .collect();
    inside.sort_unstable();
    inside.dedup();
    inside
}

/// Tells whose networks our global CIDR overlaps. Our own: then nothing more is given out. Another cluster's: then one of
/// the two has to change, and which one is not for us to say.
fn overlaps(view: &View<'_>, own: &ClusterFacts, ledger: &mut Ledger, writing: &mut Writing) {
    let Some(global) = own.global_cidr.first() else { return };
    let overlap =
        |nets: &[IpNet]| nets.iter().copied().find(|net| net.contains(global) || global.contains(net));
    let insides = [own.cluster_cidr.as_slice(), &own.service_cidr].concat();
    if let Some(net) = overlap(&insides) {
        let message = format!(
            "the global CIDR {global} overlaps {net}, which is this cluster's own: choose another global CIDR"
        );
        ledger.close(message.clone());
        let subject = format!("Cluster {}/{}", view.namespace, view.cluster_id);
        writing.problem(Problem { name: "GlobalCidrOverlap", subject, message });
    }
    for object in view.objects.inside(Kind::Cluster, view.namespace) {
        let Ok(other) = Cluster::from_object(object) else { continue };
        // A broken one is told of by who copied it.
        let Ok(facts) = other.spec.parse() else { continue };
        if facts.cluster_id == own.cluster_id {
            continue;
        }
        let theirs = [facts.global_cidr.as_slice(), &facts.cluster_cidr, &facts.service_cidr].concat();
        if let Some(net) = overlap(&theirs) {
            writing.problem(Problem {
                name: "GlobalCidrOverlap",
                subject: object.key().to_string(),
                message: format!(
                    "the global CIDR {global} overlaps {net} of cluster {}: packets between the two go astray; choose \
                     another global CIDR for one of them",
                    facts.cluster_id
                ),
            });
        }
    }
}
