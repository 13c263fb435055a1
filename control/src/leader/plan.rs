//! The writes that make this gateway its cluster's one Endpoint. Pure.

use ipnet::IpNet;
use serde::Serialize;
use serde_json::{Map, Value};

use super::TERM_ANNOTATION;
use crate::api::{
    ApiError, Cluster, ClusterSpec, Endpoint, EndpointSpec, Kind, Object, ObjectKey, ObjectMeta, Resource,
    annotation, label,
};
use crate::election::Term;
use crate::runner::Write;

/// All that a plan depends on.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The namespace of our objects.
    pub namespace: &'a str,
    /// The specification of our cluster.
    pub cluster: &'a ClusterSpec,
    /// Those of its pods' networks that are not pods'.
    pub extra: &'a [IpNet],
    /// The specification of this gateway.
    pub endpoint: &'a EndpointSpec,
    /// The term in which this gateway leads.
    pub term: Term,
    /// Whether the Endpoint may be created if it is not there; see [`super::Announcer`].
    pub may_create: bool,
    /// Clusters and Endpoints of the namespace.
    pub local: &'a [&'a Object],
}

/// A term newer than ours, and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The newer term.
    pub term: Term,
    /// The object that carries it.
    pub object: ObjectKey,
}

/// The writes, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Deletions, then the Cluster, then the Endpoint.
    pub writes: Vec<Write>,
    /// Why nothing may be written.
    pub fenced: Option<Fence>,
    /// Whether the Endpoint would have been created, had it been allowed.
    pub wants_proof: bool,
}

/// Compares the namespace with what it should say.
///
/// # Errors
/// [`ApiError`] when no objects can be made of our own specs: the configuration is wrong.
pub fn plan(view: &View<'_>) -> Result<Plan, ApiError> {
    let cluster = Cluster::new(view.namespace, view.cluster.clone())?;
    let mut cluster = object(Kind::Cluster, cluster.metadata, &cluster.spec);
    let endpoint = Endpoint::new(view.namespace, view.endpoint.clone())?;
    let endpoint = object(Kind::Endpoint, endpoint.metadata, &endpoint.spec);
    if let Some(fenced) = fence(view, &cluster.key()) {
        return Ok(Plan { fenced: Some(fenced), ..Plan::default() });
    }
    let (cluster_key, endpoint_key) = (cluster.key(), endpoint.key());
    let find = |key: &ObjectKey| view.local.iter().copied().find(|object| object.key() == *key);
    let mut plan = Plan::default();
    cluster.metadata.annotations.extend(extra(view.extra, find(&cluster_key)));

    // Whoever put it there: what has our name and is not our endpoint is in the way.
    let kept = find(&endpoint_key).filter(|object| is_endpoint(object, view.endpoint));
    let is_other = |object: &Object| is_own_cluster(object, view.cluster) || object.key() == endpoint_key;
    let others =
        view.local.iter().copied().filter(|object| object.kind == Kind::Endpoint && is_other(object));
    let others = others.filter(|object| kept.is_none_or(|kept| kept.key() != object.key()));
    plan.writes.extend(others.cloned().map(Write::Delete));

    plan.writes.extend(put(find(&cluster_key), cluster, CLUSTER_FIELDS, view.term));
    let write = put(kept, endpoint, ENDPOINT_FIELDS, view.term);
    plan.wants_proof = matches!(write, Some(Write::Create(_))) && !view.may_create;
    if !plan.wants_proof {
        plan.writes.extend(write);
    }
    Ok(plan)
}

/// Returns the annotation with the networks that are not pods'; empty where there were some and there are none now.
fn extra(networks: &[IpNet], existing: Option<&Object>) -> Option<(String, String)> {
    let name = annotation::EXTRA_CIDRS;
    let had_some = existing.is_some_and(|object| object.metadata.annotations.contains_key(name));
    let texts: Vec<String> = networks.iter().map(IpNet::to_string).collect();
    (had_some || !networks.is_empty()).then(|| (name.to_owned(), texts.join(",")))
}

/// Returns an object with such a specification.
pub(crate) fn object(kind: Kind, metadata: ObjectMeta, spec: &impl Serialize) -> Object {
    let mut object = Object::new(kind, metadata);
    let spec = serde_json::to_value(spec).expect("its keys are strings and its values are JSON");
    object.body.insert("spec".to_owned(), spec);
    object
}

/// Returns the newest term above ours on our cluster's own objects.
fn fence(view: &View<'_>, cluster: &ObjectKey) -> Option<Fence> {
    let own = view.local.iter().filter(|object| {
        is_own_cluster(object, view.cluster) && (object.kind == Kind::Endpoint || object.key() == *cluster)
    });
    let newer = own.filter_map(|object| {
        let term = term_of(object).filter(|term| *term > view.term)?;
        Some(Fence { term, object: object.key() })
    });
    newer.max_by_key(|fence| fence.term)
}

/// Returns the term that an object was written in; `None` on upstream's, and where it cannot be.
pub(super) fn term_of(object: &Object) -> Option<Term> {
    Term::new(object.metadata.annotations.get(TERM_ANNOTATION)?.parse().ok()?)
}

/// Returns `true` if this is an original of our own cluster. Its other fields may be of any shape.
fn is_own_cluster(object: &Object, cluster: &ClusterSpec) -> bool {
    let id = || object.body.get("spec")?.get("cluster_id")?.as_str();
    object.metadata.origin().is_none() && id() == Some(&cluster.cluster_id)
}

/// Returns `true` if this is an original that stands for the same endpoint, by upstream's rule.
fn is_endpoint(object: &Object, own: &EndpointSpec) -> bool {
    let spec = Endpoint::from_object(object).map(|endpoint| endpoint.spec);
    object.metadata.origin().is_none() && spec.is_ok_and(|spec| spec.is_same_endpoint(own))
}

/// Plans the write that makes `existing` equal to the wanted object, and notes the term; `None` if it is.
fn put(existing: Option<&Object>, mut wanted: Object, fields: &[&str], term: Term) -> Option<Write> {
    wanted.metadata.annotations.insert(TERM_ANNOTATION.to_owned(), term.to_string());
    make(existing, wanted, fields)
}

/// Plans the write that makes `existing` equal to the wanted object; `None` if it is. `fields` are those of its
/// specification that are ours.
pub(crate) fn make(existing: Option<&Object>, mut wanted: Object, fields: &[&str]) -> Option<Write> {
    let Some(existing) = existing else { return Some(Write::Create(wanted)) };
    let mut amended = existing.clone();
    amended.metadata.annotations.extend(wanted.metadata.annotations);
    amended.metadata.labels.extend(wanted.metadata.labels);
    amended.metadata.labels.remove(label::CLUSTER_ID);
    amended.metadata.labels.remove(label::ORIGINATING_NAMESPACE);
    let mut spec = match amended.body.remove("spec") {
        Some(Value::Object(spec)) => spec,
        _ => Map::new(),
    };
    spec.retain(|field, _| !fields.contains(&field.as_str()));
    if let Some(Value::Object(ours)) = wanted.body.remove("spec") {
        spec.extend(ours);
    }
    amended.body.insert("spec".to_owned(), Value::Object(spec));
    (!amended.same_content(existing)).then_some(Write::Update(amended))
}

/// Our fields of a cluster; other fields, such as a newer upstream's, stay.
const CLUSTER_FIELDS: &[&str] = &["cluster_id", "color_codes", "service_cidr", "cluster_cidr", "global_cidr"];

/// Our fields of an endpoint; other fields, such as a newer upstream's plural addresses, stay.
pub(crate) const ENDPOINT_FIELDS: &[&str] = &[
    "cluster_id",
    "cable_name",
    "healthCheckIP",
    "hostname",
    "subnets",
    "private_ip",
    "public_ip",
    "nat_enabled",
    "backend",
    "backend_config",
];

#[cfg(test)]
mod tests;
