//! The memory that an object takes.
//!
//! An upper estimate, for bounds: `serde_json` keeps maps as B-trees, whose nodes have space for eleven entries and are at
//! least half full but for the first, and every text and node is an allocation of its own.

use serde_json::{Map, Value};

use crate::api::{Body, Object};

/// Bytes of a value by itself, as an array holds it.
pub(super) const VALUE: usize = 32;
/// Bytes of a node of a map.
pub(super) const NODE: usize = 640;
/// The bytes that an allocation takes beside its own.
const ALLOCATION: usize = 16;
/// Entries for which a node has to be reckoned at least.
const LEAST_ENTRIES: usize = 5;

/// Gives the bytes of a text on the heap.
pub(super) fn of_text(text: &str) -> usize {
    text.len() + ALLOCATION
}

/// Gives the bytes of one more entry of a map: its part of a node, and its key.
pub(super) fn entry(key: &str) -> usize {
    NODE / LEAST_ENTRIES + of_text(key)
}

/// Gives what an object costs in memory, in bytes; no more is counted than is needed to exceed `most`.
pub(crate) fn of_object(object: &Object, most: usize) -> usize {
    parts(object).into_iter().map(|(_, size)| size(object, most)).fold(0, usize::saturating_add)
}

/// Names the part of an object that costs most.
pub(crate) fn heaviest(object: &Object, most: usize) -> &'static str {
    let heaviest = parts(object).into_iter().max_by_key(|(_, size)| size(object, most));
    heaviest.map_or("metadata", |(field, _)| field)
}

type Size = fn(&Object, usize) -> usize;

fn parts(_: &Object) -> [(&'static str, Size); 4] {
    [
        ("metadata.labels", |object, most| of_texts(object.metadata.labels.iter(), most)),
        ("metadata.annotations", |object, most| of_texts(object.metadata.annotations.iter(), most)),
        ("metadata", |object, most| {
            let prefix = object.metadata.generate_name.as_deref().map_or(0, of_text);
            of_fields(&object.metadata.extra, most).saturating_add(prefix)
        }),
        ("spec", |object, most| of_body(&object.body, most)),
    ]
}

/// Gives what a body costs: counted once for all its copies.
fn of_body(body: &Body, most: usize) -> usize {
    let known = &body.facts().bytes;
    known.get().copied().unwrap_or_else(|| {
        let bytes = of_fields(body, most);
        // Of one that exceeds it, not all was counted.
        if bytes <= most {
            let _ = known.set(bytes);
        }
        bytes
    })
}

fn of_texts<'a>(entries: impl Iterator<Item = (&'a String, &'a String)>, most: usize) -> usize {
    until(entries.map(|(key, value)| entry(key) + of_text(value)), most)
}

fn of_fields(fields: &Map<String, Value>, most: usize) -> usize {
    until(fields.iter().map(|(key, value)| entry(key) + of_value(value, most)), most)
}

/// Gives what a value holds beside itself. The parser has bounded how deep values nest.
pub(crate) fn of_value(value: &Value, most: usize) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => of_text(text),
        Value::Array(values) => until(values.iter().map(|value| VALUE + of_value(value, most)), most),
        Value::Object(fields) => NODE.saturating_add(of_fields(fields, most)),
    }
}

/// Adds up until `most` is exceeded.
fn until(sizes: impl Iterator<Item = usize>, most: usize) -> usize {
    let mut sum = 0usize;
    for size in sizes {
        sum = sum.saturating_add(size);
        if sum > most {
            break;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{Kind, ObjectMeta, label};
    use crate::store::MEMBER_OBJECT_BYTES;

    #[test]
    fn an_endpoint_has_space_for_all_the_subnets_that_it_may_have() {
        let mut metadata = ObjectMeta::new("submariner-k8s-broker", "east-submariner-cable-east-172-31-1-1");
        metadata.labels.insert(label::CLUSTER_ID.to_owned(), "east".to_owned());
        let object = Object::new(Kind::Endpoint, metadata);
        let config =
            ["natt-discovery-port", "preferred-server", "publicKey", "udp-port", "usingLoadBalancer"];
        let config: Map<String, Value> =
            config.into_iter().map(|key| (key.to_owned(), json!("x".repeat(44)))).collect();
        let mut spec = json!({"cluster_id": "east", "cable_name": "submariner-cable-east-172-31-1-1",
            "hostname": "east-gw1", "private_ip": "172.31.1.1", "public_ip": "203.0.113.1", "nat_enabled": true,
            "healthCheckIP": "10.1.1.1", "backend": "wireguard", "backend_config": config, "subnets": ["10.1.0.0/16"]});
        let size = |spec: &Value| {
            let mut object = object.clone();
            object.body.insert("spec".to_owned(), spec.clone());
            of_object(&object, usize::MAX)
        };
        let small = size(&spec);
        assert!((3_000..6_000).contains(&small), "{small} bytes");
        let subnets: Vec<String> = (0..256).map(|net| format!("fd00:1234:5678:{net:04x}::/64")).collect();
        spec["subnets"] = json!(subnets);
        let large = size(&spec);
        assert!(large < MEMBER_OBJECT_BYTES * 3 / 4, "{large} bytes");
    }
}
