//! Whether a foreign object makes sense by itself. Read once per version of the object.

use ipnet::IpNet;
use serde_json::Value;

use super::SyncLimits;
use crate::api::{
    ApiError, Cluster, Endpoint, Kind, Object, Resource, check_cluster_id, check_object_name, label,
};
use crate::claims::Allowed;
use crate::store::size;

/// Ours: most labels, and most annotations, of a foreign object; they are compared with every change.
const MAX_ENTRIES: usize = 64;
/// Ours: most CIDRs of an Endpoint; each costs a route on every node.
const MAX_SUBNETS: usize = crate::api::limits::MAX_CIDRS;

/// Reads what a foreign object of cluster `origin` claims: an Endpoint its subnets, a Cluster nothing.
///
/// A claim that no member may have must not win over one that a younger member has a right to, and so is none.
///
/// # Errors
/// Why the object is refused: the field, and what is wrong with it.
pub(super) fn read(
    object: &Object,
    origin: &str,
    limits: &SyncLimits,
    allowed: &Allowed,
) -> Result<Vec<IpNet>, ApiError> {
    check_object_name(&object.metadata.name)
        .map_err(|error| ApiError::field("metadata.name", error.to_string()))?;
    check_cluster_id(origin).map_err(|error| {
        ApiError::field(format!("metadata.labels.{}", label::CLUSTER_ID), error.to_string())
    })?;
    check_size(object, limits)?;
    let (cluster_id, subnets) = if object.kind == Kind::Endpoint {
        let facts = Endpoint::from_object(object)?.spec.parse()?;
        (facts.cluster_id, facts.subnets)
    } else {
        (Cluster::from_object(object)?.spec.parse()?.cluster_id, Vec::new())
    };
    // Nobody may speak for another cluster, least of all for ours.
    if cluster_id != origin {
        let reason = format!("is `{cluster_id}`, but the object is labelled `{origin}`");
        return Err(ApiError::field("spec.cluster_id", reason));
    }
    allowed.check_subnets(&subnets)?;
    Ok(subnets)
}

fn check_size(object: &Object, limits: &SyncLimits) -> Result<(), ApiError> {
    let entries = [
        ("metadata.labels", object.metadata.labels.len(), MAX_ENTRIES),
        ("metadata.annotations", object.metadata.annotations.len(), MAX_ENTRIES),
        ("spec.subnets", subnets_of(object), MAX_SUBNETS),
    ];
    for (field, count, most) in entries {
        if count > most {
            return Err(ApiError::field(field, format!("has {count} entries, must have at most {most}")));
        }
    }
    let most = limits.object_bytes;
    if size::of_object(object, most) <= most {
        return Ok(());
    }
    let field = size::heaviest(object, most);
    Err(ApiError::field(field, format!("is too large: an object may take {most} bytes in all")))
}

fn subnets_of(object: &Object) -> usize {
    let subnets = object.body.get("spec").and_then(|spec| spec.get("subnets")).and_then(Value::as_array);
    subnets.map_or(0, Vec::len)
}
