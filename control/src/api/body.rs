//! The fields of an object that nobody has interpreted yet, shared between its copies.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// The top-level fields of an object besides its type and metadata, by name. Copies share them until one of the copies is
/// changed, so that objects can be copied, and copies compared, at the cost of their metadata.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Body(Arc<Map<String, Value>>);

impl Body {
    /// Returns `true` if both are copies of one body that none of them has changed. Equal bodies may be apart.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Deref for Body {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Ends the sharing: the fields are cloned if a copy has them too.
impl DerefMut for Body {
    fn deref_mut(&mut self) -> &mut Self::Target {
        Arc::make_mut(&mut self.0)
    }
}

impl From<Map<String, Value>> for Body {
    fn from(fields: Map<String, Value>) -> Self {
        Self(Arc::new(fields))
    }
}

impl From<Body> for Map<String, Value> {
    fn from(body: Body) -> Self {
        Arc::unwrap_or_clone(body.0)
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
        self.0.serialize(serializer)
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
}
