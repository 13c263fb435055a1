//! The fields of an object that nobody has interpreted yet, shared between its copies.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::Kind;

/// The top-level fields of an object besides its type and metadata, by name. Copies share them until one of the copies is
/// changed, so that objects can be copied, and copies compared, at the cost of their metadata.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Body(Arc<Fields>);

/// The fields, and what was found out about them.
#[derive(Default)]
struct Fields {
    fields: Map<String, Value>,
    facts: BodyFacts,
}

/// What was found out about a body, for as long as it stays as it is: a large one is written with another annotation every
/// few seconds.
#[derive(Debug, Default)]
pub(crate) struct BodyFacts {
    /// Bytes that it takes in memory.
    pub(crate) bytes: OnceLock<usize>,
    /// Its nodes, if it is one that comes back from a document exactly as it is.
    pub(crate) plain_nodes: OnceLock<Option<usize>>,
    /// The kind whose shape it has: [`Object::check_shape`](super::Object::check_shape).
    pub(crate) shape: OnceLock<Kind>,
    /// The body as JSON on one line, if it is large and was written so.
    pub(crate) json: OnceLock<Vec<u8>>,
}

impl Clone for Fields {
    /// Returns a copy that is about to be changed.
    fn clone(&self) -> Self {
        Self { fields: self.fields.clone(), facts: BodyFacts::default() }
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.fields == other.fields
    }
}

/// Says that a body is equal to itself, so that copies are compared by where they are.
impl Eq for Fields {}

impl Body {
    /// Returns `true` if both are copies of one body that none of them has changed. Equal bodies may be apart.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Sets fields. Where copies share the body, those that are replaced are not copied first.
    pub(crate) fn overlay(&mut self, fields: Self) {
        if Arc::get_mut(&mut self.0).is_none() {
            let kept = self.iter().filter(|(name, _)| !fields.contains_key(*name));
            let kept: Map<_, _> = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
            *self = kept.into();
        }
        self.extend(fields);
    }

    /// Returns what was found out about it, to be completed.
    pub(crate) fn facts(&self) -> &BodyFacts {
        &self.0.facts
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.0.fields, f)
    }
}

impl Deref for Body {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.0.fields
    }
}

/// Ends the sharing: the fields are cloned if a copy has them too.
impl DerefMut for Body {
    fn deref_mut(&mut self) -> &mut Self::Target {
        let shared = Arc::make_mut(&mut self.0);
        shared.facts = BodyFacts::default();
        &mut shared.fields
    }
}

impl From<Map<String, Value>> for Body {
    fn from(fields: Map<String, Value>) -> Self {
        Self(Arc::new(Fields { fields, facts: BodyFacts::default() }))
    }
}

impl From<Body> for Map<String, Value> {
    fn from(body: Body) -> Self {
        Arc::unwrap_or_clone(body.0).fields
    }
}

impl IntoIterator for Body {
    type Item = (String, Value);
    type IntoIter = serde_json::map::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        Map::from(self).into_iter()
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.fields.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn copies_share_their_fields_until_one_is_changed() {
        let fields = Map::from_iter([("spec".to_owned(), json!({"a": [1, "b"]}))]);
        let body = Body::from(fields.clone());
        let mut copy = body.clone();
        assert!(copy.is_shared_with(&body) && copy == body);
        copy["spec"]["a"] = json!(2);
        assert!(!copy.is_shared_with(&body) && copy != body);
        assert_eq!(*body, fields);
        copy["spec"]["a"] = fields["spec"]["a"].clone();
        assert!(!copy.is_shared_with(&body) && copy == body, "equal, and apart");
        assert_eq!(Map::from(copy), fields);
        assert_eq!(body.into_iter().collect::<Map<_, _>>(), fields);
    }

    #[test]
    fn fields_are_set_in_a_shared_body_as_in_one_that_is_alone() {
        let body = |text: &str| Body::from(serde_json::from_str::<Map<_, _>>(text).unwrap());
        let before = body(r#"{"spec": 1, "status": {"a": 1, "b": 2}}"#);
        let (mut shared, mut alone) = (before.clone(), Body::from(Map::clone(&before)));
        for overlaid in [&mut shared, &mut alone] {
            overlaid.overlay(body(r#"{"status": {"a": 3}, "more": 4}"#));
        }
        assert_eq!(shared, body(r#"{"spec": 1, "status": {"a": 3}, "more": 4}"#));
        assert_eq!(shared, alone);
        assert_eq!(before, body(r#"{"spec": 1, "status": {"a": 1, "b": 2}}"#));
    }

    #[test]
    fn what_was_found_out_goes_with_the_copies_and_not_with_changes() {
        let mut body = Body::from(Map::from_iter([("spec".to_owned(), json!(1))]));
        body.facts().bytes.set(7).unwrap();
        let mut copy = body.clone();
        assert_eq!(copy.facts().bytes.get(), Some(&7));
        copy["spec"] = json!(2);
        assert_eq!((copy.facts().bytes.get(), body.facts().bytes.get()), (None, Some(&7)));
        body["spec"] = json!(3);
        assert_eq!(body.facts().bytes.get(), None, "also where nobody shares it");
    }
}
