//! Any kind of object, its body left as JSON, and the bridge to the typed kinds.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ApiError, Body, Kind, ObjectMeta, label};

/// Longest name, and longest ID of a cluster, in Kubernetes.
const MAX_NAME_CHARS: usize = 253;
const MAX_ID_CHARS: usize = 63;

/// Gives `text`, or its beginning if it has more than `most` characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The name of an object: kind, namespace, name. Ordered, so that walks over objects are deterministic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Kind.
    pub kind: Kind,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// Creates a key of these three parts.
    pub fn new(kind: Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return write!(f, "{} {}", self.kind, self.name);
        }
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// An object of any kind: typed metadata, and a body (`spec`, `status`, …) that nobody has interpreted yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Group and version: [`Kind::api_version`].
    #[serde(rename = "apiVersion")]
    pub api_version: String,
    /// Kind.
    pub kind: Kind,
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Every other top-level field.
    #[serde(flatten)]
    pub body: Body,
    /// Why a store kept nothing but who the object is: it makes no sense, or it, or its member's or all objects of its kind, take
    /// too much memory. Never written.
    #[serde(skip)]
    pub withheld: Option<String>,
}

impl Object {
    /// Creates an object without a body.
    pub fn new(kind: Kind, metadata: ObjectMeta) -> Self {
        Self {
            api_version: kind.api_version().to_owned(),
            kind,
            metadata,
            body: Body::default(),
            withheld: None,
        }
    }

    /// Returns identity and version of this object, and nothing else of it: enough to delete this very version.
    #[must_use]
    pub fn stub(&self) -> Self {
        let metadata = ObjectMeta {
            uid: self.metadata.uid.clone(),
            resource_version: self.metadata.resource_version.clone(),
            ..ObjectMeta::new(&self.metadata.namespace, &self.metadata.name)
        };
        Self::new(self.kind, metadata)
    }

    /// Returns who this object is, whose, since when and in which version, and nothing else: what has to be remembered of
    /// one that is not kept. Texts that are longer than such texts can be are cut.
    #[must_use]
    pub fn outline(&self) -> Self {
        let origin = self.metadata.labels.get_key_value(label::CLUSTER_ID);
        let mut outline = Self { withheld: self.withheld.clone(), ..self.stub() };
        outline.metadata.name = cut(&self.metadata.name, MAX_NAME_CHARS);
        outline.metadata.labels.extend(origin.map(|(key, id)| (key.clone(), cut(id, MAX_ID_CHARS))));
        outline.metadata.creation_timestamp = self.metadata.creation_timestamp;
        outline
    }

    /// Returns the [`Object::outline`] of an object that is withheld for this reason.
    #[must_use]
    pub fn withhold(&self, reason: impl Into<String>) -> Self {
        Self { withheld: Some(reason.into()), ..self.outline() }
    }

    /// Returns the key of this object.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.kind, &self.metadata.namespace, &self.metadata.name)
    }

    /// Reads an object from a JSON document. One of a kind's newer version has the kind's own afterwards.
    ///
    /// # Errors
    /// [`ApiError::Field`] when apiVersion, kind or metadata are missing or of the wrong type. The body is not looked
    /// at: [`Object::check_shape`] does that.
    pub fn from_value(value: Value) -> Result<Self, ApiError> {
        let mut object: Self =
            serde_path_to_error::deserialize(value).map_err(|error| ApiError::from_serde(&error))?;
        object.kind = object.kind.of_api_version(&object.api_version);
        let expected = object.kind.api_version();
        if !object.kind.has_api_version(&object.api_version) {
            let reason = format!("is `{}`, expected `{expected}`", object.api_version);
            return Err(ApiError::field("apiVersion", reason));
        }
        expected.clone_into(&mut object.api_version);
        Ok(object)
    }

    /// Returns the object as one JSON document.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("keys are strings and values are JSON already")
    }

    /// Returns `true` if body, labels and annotations of two objects are equal. Names, versions and times are not
    /// compared.
    pub fn same_content(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.body == other.body
            && self.metadata.labels == other.metadata.labels
            && self.metadata.annotations == other.metadata.annotations
    }
}

/// A typed kind.
pub trait Resource: Serialize + DeserializeOwned {
    /// Its kind.
    const KIND: Kind;

    /// Returns its metadata.
    fn metadata(&self) -> &ObjectMeta;

    /// Reads the typed kind out of an object.
    ///
    /// # Errors
    /// [`ApiError`] when the object is of another kind or withheld, or a field is missing or of the wrong type.
    fn from_object(object: &Object) -> Result<Self, ApiError> {
        if object.kind != Self::KIND {
            return Err(ApiError::WrongKind { expected: Self::KIND, found: object.kind });
        }
        if let Some(reason) = &object.withheld {
            return Err(ApiError::Withheld(reason.clone()));
        }
        serde_path_to_error::deserialize(object.to_value()).map_err(|error| ApiError::from_serde(&error))
    }

    /// Converts it to an object.
    fn to_object(&self) -> Object {
        let mut value = serde_json::to_value(self).expect("keys are strings and values are JSON");
        if let Value::Object(fields) = &mut value {
            fields.insert("apiVersion".to_owned(), Value::from(Self::KIND.api_version()));
            fields.insert("kind".to_owned(), Value::from(Self::KIND.as_str()));
        }
        Object::from_value(value).expect("a typed kind has kind and metadata")
    }
}
