//! One object, as an API server takes it.

use std::fmt;

use serde_json::{Value, json};
use trieste_control::api::ClusterNetworks;

use super::names::{MANAGED_BY_LABEL, PART_OF_LABEL, TRIESTE, VERSION_LABEL};

/// One object, as an API server takes it: `apiVersion`, `kind`, `metadata` and the rest.
#[derive(Clone, PartialEq, Eq)]
pub struct Manifest(Value);

impl Manifest {
    /// The object of this document. Keys are put in order, so that the same object is always the same text.
    pub fn new(mut value: Value) -> Self {
        value.sort_all_objects();
        Self(value)
    }

    /// An object of this kind and name with our labels, in a namespace unless that is empty.
    pub(super) fn make(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        let mut metadata = json!({
            "name": name,
            "labels": {
                PART_OF_LABEL: TRIESTE,
                MANAGED_BY_LABEL: TRIESTE,
                VERSION_LABEL: env!("CARGO_PKG_VERSION"),
            },
        });
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        Self::new(json!({"apiVersion": api_version, "kind": kind, "metadata": metadata}))
    }

    /// The same object with another top-level field.
    #[must_use]
    pub(super) fn with(mut self, field: &str, value: Value) -> Self {
        self.0[field] = value;
        Self::new(self.0)
    }

    /// The same object with another label.
    #[must_use]
    pub(super) fn labelled(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = json!(value);
        Self::new(self.0)
    }

    /// The same object with another annotation.
    #[must_use]
    pub(super) fn annotated(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][key] = json!(value);
        Self::new(self.0)
    }

    /// Group and version.
    pub fn api_version(&self) -> &str {
        self.text("apiVersion")
    }

    /// The kind.
    pub fn kind(&self) -> &str {
        self.text("kind")
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The namespace; `None` for an object of the whole cluster.
    pub fn namespace(&self) -> Option<&str> {
        self.0["metadata"]["namespace"].as_str()
    }

    /// The document.
    pub fn as_value(&self) -> &Value {
        &self.0
    }

    /// The document.
    pub fn into_value(self) -> Value {
        self.0
    }

    /// Whether the object holds secrets.
    pub fn is_secret(&self) -> bool {
        self.kind() == "Secret"
    }

    /// Returns `true` if gateways write the object as well, as that of the cluster's networks.
    pub fn is_of_gateways_too(&self) -> bool {
        self.kind() == "ConfigMap" && self.name() == ClusterNetworks::OBJECT
    }

    /// The same object to be shown: of a Secret the keys, but not what they hold.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let mut shown = self.0.clone();
        if self.is_secret() {
            for field in ["data", "stringData"] {
                let values = shown.get_mut(field).and_then(Value::as_object_mut);
                values
                    .into_iter()
                    .flat_map(|map| map.values_mut())
                    .for_each(|value| *value = json!("REDACTED"));
            }
        }
        Self(shown)
    }

    /// One YAML document, secrets included.
    pub fn to_yaml(&self) -> String {
        let mut text = serde_saphyr::to_string(&self.0).expect("JSON values have a YAML form");
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }

    fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_default()
    }
}

/// Several objects as one YAML text, secrets included.
pub fn to_yaml<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> String {
    manifests.into_iter().map(|manifest| format!("---\n{}", manifest.to_yaml())).collect()
}

impl From<Manifest> for Value {
    fn from(manifest: Manifest) -> Self {
        manifest.0
    }
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind(), self.name()),
            None => write!(f, "{} {}", self.kind(), self.name()),
        }
    }
}

/// Kind and name alone: some objects are secrets.
impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Manifest({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_says_what_it_is_and_hides_what_it_keeps() {
        let secret = Manifest::make("v1", "Secret", "ns", "key").with("data", json!({"psk": "aHVzaA=="}));

        assert_eq!((secret.api_version(), secret.kind(), secret.name()), ("v1", "Secret", "key"));
        assert_eq!(secret.namespace(), Some("ns"));
        assert_eq!(format!("{secret:?}"), "Manifest(Secret ns/key)");
        assert!(secret.to_yaml().contains("aHVzaA=="));
        let shown = secret.redacted().to_yaml();
        assert!(shown.contains("psk") && !shown.contains("aHVzaA=="), "{shown}");
    }

    #[test]
    fn several_objects_are_one_text() {
        let object = Manifest::make("v1", "Namespace", "", "ns");
        let text = to_yaml([&object, &object]);
        assert_eq!(text.matches("---\napiVersion: v1\nkind: Namespace\nmetadata:\n").count(), 2, "{text}");
    }
}
