//! Decoding objects that others wrote, within a bound of memory.
//!
//! The memory that a document takes has little to do with its length: `[{"a":0},…]` takes some eighty times its own
//! bytes. So memory is counted while a document is decoded, and what comes after the bound is read over and not kept.
//! The object is there all the same, without body, labels (but for the cluster's ID) and annotations, and says that it
//! is too large.

mod exact;

use std::cell::Cell;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Number, Value};

pub(super) use self::exact::is_exact;
use super::size;
use crate::api::{ApiError, label};

/// Most bytes in memory of one object that the members of a set write: a Cluster or an Endpoint. Ours; an Endpoint with 256
/// subnets takes half of it.
pub const MEMBER_OBJECT_BYTES: usize = 32 << 10;
/// Most bytes in memory of any other object. Ours: etcd takes 1.5 MiB of JSON.
pub(crate) const OBJECT_BYTES: usize = 16 << 20;
/// Longest text in metadata that says who an object is. Ours: Kubernetes' names have at most 253 bytes.
const MAX_IDENTITY_BYTES: usize = 1024;
/// Most levels of lists and maps inside of one field. Ours: a Pod's affinity has twelve; parsers give up at 64 levels of a YAML
/// document, and at 128 of a JSON document.
const MAX_DEPTH: usize = 60;
/// The texts in metadata that say who an object is, and in which version.
const IDENTITY: [&str; 6] =
    ["name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation"];

/// The texts that say what an object is.
const TYPE: [&str; 2] = ["apiVersion", "kind"];

/// A document, decoded within `LIMIT` bytes of memory.
#[derive(Debug)]
pub(super) struct Bounded<const LIMIT: usize> {
    /// All of an object, or what says who it is and nothing else. Of a document that is no object, an empty value of its type.
    pub(super) document: Value,
    /// Why nothing but that was kept, if so, with the field in which a bound was reached.
    pub(super) exceeded: Option<String>,
}

/// Tells why an object's body is not kept, where it is too large by itself.
pub(super) fn too_large(field: &str, most: usize) -> String {
    let reason = format!("is too large: an object may take {most} bytes in all");
    ApiError::field(field, reason).to_string()
}

/// Tells why an object's body is not kept, where it nests too deep.
fn too_deep(field: &str) -> String {
    ApiError::field(field, format!("nests deeper than {MAX_DEPTH} levels")).to_string()
}

/// Describes why a document cannot be decoded, without anything that it holds: errors about a field's type quote its value,
/// which may be long, or a secret.
pub(super) fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match error.classify() {
        Category::Data => match text.rsplit_once(", expected ") {
            Some((_, expected)) => format!("expected {expected}"),
            None if text.starts_with("missing field `") => text,
            None => format!("invalid data at line {} column {}", error.line(), error.column()),
        },
        Category::Io | Category::Syntax | Category::Eof => text,
    }
}

impl<'de, const LIMIT: usize> Deserialize<'de> for Bounded<LIMIT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Document::<LIMIT>)
    }
}

struct Document<const LIMIT: usize>;

impl<'de, const LIMIT: usize> Visitor<'de> for Document<LIMIT> {
    type Value = Bounded<LIMIT>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Bounded { document: Value::Null, exceeded: None })
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        self.visit_none()
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Bounded { document: Value::Bool(false), exceeded: None })
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        self.visit_bool(false)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
        self.visit_bool(false)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        self.visit_bool(false)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Bounded { document: Value::String(String::new()), exceeded: None })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Bounded { document: Value::Array(Vec::new()), exceeded: None })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let budget = Budget::of(LIMIT);
        let (mut fields, mut exceeded) = (Map::new(), None);
        while let Some(key) = map.next_key::<String>()? {
            if TYPE.contains(&key.as_str()) {
                match identity(&mut map)? {
                    Some(value) => drop(fields.insert(key, value)),
                    None => exceeded = exceeded.or(Some(key)),
                }
                continue;
            }
            if key == "metadata" {
                let (value, field) = map.next_value_seed(Metadata { budget: &budget })?;
                exceeded = exceeded.or(field);
                fields.insert(key, value);
                continue;
            }
            let value = map.next_value_seed(Part { budget: &budget })?;
            if budget.take(size::entry(&key)) {
                fields.insert(key, value);
            } else {
                exceeded = exceeded.or(Some(key));
            }
        }
        let exceeded = exceeded.map(|field| budget.reason(&field, LIMIT));
        if exceeded.is_some() {
            fields.retain(|key, _| key == "metadata" || TYPE.contains(&key.as_str()));
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|key, _| key == "labels" || IDENTITY.contains(&key.as_str()));
                if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
                    labels.retain(|key, _| key == label::CLUSTER_ID);
                }
            }
        }
        Ok(Bounded { document: Value::Object(fields), exceeded })
    }
}

/// Reads a text that says what, or who, an object is: at no cost. Gives nothing of one that is longer than such texts are.
fn identity<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<Value>, A::Error> {
    let own = Budget::of(MAX_IDENTITY_BYTES);
    let value = map.next_value_seed(Part { budget: &own })?;
    Ok((!own.is_spent()).then_some(value))
}

/// The bytes of memory that may still be taken, and how deep the value that is read nests.
struct Budget {
    left: Cell<usize>,
    depth: Cell<usize>,
}

impl Budget {
    fn of(bytes: usize) -> Self {
        Self { left: Cell::new(bytes), depth: Cell::new(0) }
    }

    /// Enters a list or a map. Gives `false` if that is one level too many: then nothing is kept from there on.
    fn descend(&self) -> bool {
        let depth = self.depth.get().saturating_add(1);
        self.depth.set(depth);
        if depth > MAX_DEPTH {
            self.left.set(0);
        }
        depth <= MAX_DEPTH
    }

    /// Leaves what was entered. One level too many stays, as the reason for what is not kept.
    fn ascend(&self) {
        let depth = self.depth.get();
        if depth <= MAX_DEPTH {
            self.depth.set(depth.saturating_sub(1));
        }
    }

    /// Tells why not all was kept of an object that may take `most` bytes.
    fn reason(&self, field: &str, most: usize) -> String {
        if self.depth.get() > MAX_DEPTH { too_deep(field) } else { too_large(field, most) }
    }

    /// Takes `bytes`; gives `false`, from then on, if there are not so many.
    fn take(&self, bytes: usize) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(bytes));
        bytes < left
    }

    fn is_spent(&self) -> bool {
        self.left.get() == 0
    }
}

/// Metadata: what says who the object is comes at no cost, and whatever else there is.
struct Metadata<'a> {
    budget: &'a Budget,
}

impl<'de> DeserializeSeed<'de> for Metadata<'_> {
    type Value = (Value, Option<String>);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Metadata<'_> {
    type Value = (Value, Option<String>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object's metadata")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok((Value::Null, None))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok((Value::Bool(false), None))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        self.visit_bool(false)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
        self.visit_bool(false)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        self.visit_bool(false)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        self.visit_bool(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok((Value::Array(Vec::new()), None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut fields, mut exceeded) = (Map::new(), None);
        while let Some(key) = map.next_key::<String>()? {
            if key == "managedFields" {
                // Who wrote which field: half of an object's size, and of no use to us.
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if IDENTITY.contains(&key.as_str()) {
                match identity(&mut map)? {
                    Some(value) => drop(fields.insert(key, value)),
                    None => exceeded = exceeded.or_else(|| Some(format!("metadata.{key}"))),
                }
                continue;
            }
            let value = if key == "labels" {
                map.next_value_seed(Labels { budget: self.budget })?
            } else {
                map.next_value_seed(Part { budget: self.budget })?
            };
            if !self.budget.take(size::entry(&key)) {
                exceeded = exceeded.or_else(|| Some(format!("metadata.{key}")));
            }
            fields.insert(key, value);
        }
        Ok((Value::Object(fields), exceeded))
    }
}

/// Labels: the one that names a cluster is kept in any case, unless it is longer than such texts are.
struct Labels<'a> {
    budget: &'a Budget,
}

impl<'de> DeserializeSeed<'de> for Labels<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Labels<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Bool(false))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Value, E> {
        self.visit_bool(false)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Value, E> {
        self.visit_bool(false)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Value, E> {
        self.visit_bool(false)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Value, E> {
        self.visit_bool(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Array(Vec::new()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut labels = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == label::CLUSTER_ID {
                if let Some(value) = identity(&mut map)? {
                    labels.insert(key, value);
                }
                continue;
            }
            let value = map.next_value_seed(Part { budget: self.budget })?;
            if self.budget.take(size::entry(&key)) {
                labels.insert(key, value);
            }
        }
        Ok(Value::Object(labels))
    }
}

/// Any value; nothing of it once the budget is spent.
struct Part<'a> {
    budget: &'a Budget,
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.budget.is_spent() {
            return IgnoredAny::deserialize(deserializer).map(|_| Value::Null);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        let is_kept = self.budget.take(size::of_text(value));
        Ok(if is_kept { Value::String(value.to_owned()) } else { Value::Null })
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        let is_kept = self.budget.take(size::of_text(&value));
        Ok(if is_kept { Value::String(value) } else { Value::Null })
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        if !self.budget.descend() {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut values = Vec::new();
        while let Some(value) = seq.next_element_seed(Part { budget: self.budget })? {
            if self.budget.take(size::VALUE) {
                values.push(value);
            }
        }
        self.budget.ascend();
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        if !self.budget.descend() || !self.budget.take(size::NODE) {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            self.budget.ascend();
            return Ok(Value::Null);
        }
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value_seed(Part { budget: self.budget })?;
            if self.budget.take(size::entry(&key)) {
                fields.insert(key, value);
            }
        }
        self.budget.ascend();
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests;
