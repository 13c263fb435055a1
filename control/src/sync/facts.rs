//! Whether a foreign object makes sense by itself. Read once per version of the object.

use ipnet::IpNet;
use serde_json::Value;

use super::SyncLimits;
use crate::api::{
    ApiError, Cluster, Endpoint, Kind, Object, ObjectMeta, Resource, check_cluster_id, check_object_name,
    label,
};

/// Ours: most labels, and most annotations, of a foreign object; they are compared with every change.
const MAX_ENTRIES: usize = 64;
/// Ours: most CIDRs of an Endpoint; each costs a route on every node.
const MAX_SUBNETS: usize = 256;
/// Ours: what a JSON value, or an entry of a map, costs in memory beside its text.
const VALUE_BYTES: usize = 32;

/// What a foreign object of cluster `origin` claims: an Endpoint its subnets, a Cluster nothing.
///
/// # Errors
/// Why the object is refused: the field, and what is wrong with it.
pub(super) fn read(object: &Object, origin: &str, limits: &SyncLimits) -> Result<Vec<IpNet>, ApiError> {
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
    Ok(subnets)
}

/// The least that has to be remembered of an object that is refused for its size or number.
pub(super) fn stub(object: &Object) -> Object {
    let metadata = &object.metadata;
    let origin = metadata.labels.get_key_value(label::CLUSTER_ID).map(|(key, id)| (key.clone(), cut(id, 63)));
    Object::new(
        object.kind,
        ObjectMeta {
            labels: origin.into_iter().collect(),
            creation_timestamp: metadata.creation_timestamp,
            resource_version: metadata.resource_version.clone(),
            uid: metadata.uid.clone(),
            ..ObjectMeta::new(&metadata.namespace, cut(&metadata.name, 253))
        },
    )
}

/// `text`, or its beginning if it has more than `most` characters.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// What an object costs in memory, in bytes; no more is counted than is needed to exceed `most`.
pub(super) fn weigh(object: &Object, most: usize) -> usize {
    parts(object).into_iter().map(|(_, weight)| weight(object, most)).fold(0, usize::saturating_add)
}

type Weight = fn(&Object, usize) -> usize;

fn parts(_: &Object) -> [(&'static str, Weight); 4] {
    [
        ("metadata.labels", |object, most| of_map(object.metadata.labels.iter(), most)),
        ("metadata.annotations", |object, most| of_map(object.metadata.annotations.iter(), most)),
        ("metadata", |object, most| {
            let prefix = object.metadata.generate_name.as_ref().map_or(0, String::len);
            of_values(object.metadata.extra.iter(), most).saturating_add(prefix)
        }),
        ("spec", |object, most| of_values(object.body.iter(), most)),
    ]
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
    if weigh(object, most) <= most {
        return Ok(());
    }
    let heaviest = parts(object).into_iter().max_by_key(|(_, weight)| weight(object, most));
    let field = heaviest.map_or("metadata", |(field, _)| field);
    Err(ApiError::field(field, format!("is too large: an object may take {most} bytes in all")))
}

fn subnets_of(object: &Object) -> usize {
    let subnets = object.body.get("spec").and_then(|spec| spec.get("subnets")).and_then(Value::as_array);
    subnets.map_or(0, Vec::len)
}

fn of_map<'a>(entries: impl Iterator<Item = (&'a String, &'a String)>, most: usize) -> usize {
    let mut sum = 0usize;
    for (key, value) in entries {
        sum = sum.saturating_add(key.len() + value.len() + VALUE_BYTES);
        if sum > most {
            break;
        }
    }
    sum
}

fn of_values<'a>(entries: impl Iterator<Item = (&'a String, &'a Value)>, most: usize) -> usize {
    let mut sum = 0usize;
    for (key, value) in entries {
        sum = sum.saturating_add(key.len()).saturating_add(of_value(value, most));
        if sum > most {
            break;
        }
    }
    sum
}

/// The parser has bounded how deep values nest.
fn of_value(value: &Value, most: usize) -> usize {
    let inner = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => {
            let mut sum = 0usize;
            for value in values {
                sum = sum.saturating_add(of_value(value, most));
                if sum > most {
                    break;
                }
            }
            sum
        }
        Value::Object(fields) => of_values(fields.iter(), most),
    };
    inner.saturating_add(VALUE_BYTES)
}
