//! Which objects come back from their documents exactly as they are.

use serde_json::Value;

use super::{IDENTITY, MAX_DEPTH, MAX_IDENTITY_BYTES, TYPE};
use crate::api::{Body, Object, label};
use crate::store::size;

/// From serde-saphyr: most lists, maps, keys and other values of a YAML document.
const MAX_NODES: usize = 250_000;
/// Ours: more memory than decoding counts besides what [`size::of_object`] does: the names of three fields of metadata, and a
/// map of annotations.
const UNCOUNTED_BYTES: usize = 2 * size::NODE;
/// The fields of metadata besides [`IDENTITY`] that are not kept with the unknown ones.
const KNOWN: [&str; 4] = ["generateName", "labels", "annotations", "managedFields"];

/// Returns `true` if an object is exactly what is decoded from its document within `most` bytes of memory, whether the
/// document is JSON or YAML. Such an object is far from every bound, and has no number that formats round differently; of
/// others the answer is `false`, though they may come back as they are.
pub(in crate::store) fn is_exact(object: &Object, most: usize) -> bool {
    let metadata = &object.metadata;
    let origin = metadata.labels.get(label::CLUSTER_ID);
    let texts = [Some(&metadata.name), Some(&metadata.namespace), metadata.uid.as_ref(), origin];
    let is_known = |key: &String| IDENTITY.contains(&key.as_str()) || KNOWN.contains(&key.as_str());
    let is_type = |key: &String| key == "metadata" || TYPE.contains(&key.as_str());
    let mut nodes = MAX_NODES / 2;
    object.withheld.is_none()
        && object.api_version == object.kind.api_version()
        // A store sets the time where a document says none.
        && metadata.creation_timestamp.is_some()
        && texts.into_iter().flatten().all(|text| text.len() <= MAX_IDENTITY_BYTES / 2)
        && !metadata.extra.keys().any(is_known)
        && !object.body.keys().any(is_type)
        && metadata.labels.len() + metadata.annotations.len() < MAX_NODES / 8
        && metadata.extra.values().all(|value| is_plain(value, MAX_DEPTH, &mut nodes))
        && plain_nodes(&object.body).is_some_and(|body| body <= nodes)
        && size::of_object(object, most).saturating_add(UNCOUNTED_BYTES) <= most
}

/// Returns how many nodes a body has, if all its fields are plain: found out once for all its copies.
fn plain_nodes(body: &Body) -> Option<usize> {
    *body.facts().plain_nodes.get_or_init(|| {
        let mut left = MAX_NODES / 2;
        body.values().all(|value| is_plain(value, MAX_DEPTH, &mut left)).then_some(MAX_NODES / 2 - left)
    })
}

/// Returns `true` if a value has no fraction, no more than `depth` levels and no more than `nodes` nodes, which it takes.
fn is_plain(value: &Value, depth: usize, nodes: &mut usize) -> bool {
    let mut has_space = |count: usize| {
        let left = nodes.checked_sub(count);
        *nodes = left.unwrap_or(0);
        left.is_some()
    };
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => has_space(1),
        Value::Number(number) => !number.is_f64() && has_space(1),
        Value::Array(values) => {
            depth > 0 && has_space(1) && values.iter().all(|value| is_plain(value, depth - 1, nodes))
        }
        Value::Object(fields) => {
            depth > 0
                && has_space(1 + fields.len())
                && fields.values().all(|value| is_plain(value, depth - 1, nodes))
        }
    }
}
