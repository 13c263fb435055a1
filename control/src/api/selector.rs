//! Kubernetes' label selector and its reference to an object beside.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::lenient::null_as_default;

/// Which objects are meant, by their labels. An empty selector means all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct LabelSelector {
    /// Labels that an object must have, all of them.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// What else must hold of an object's labels, all of it.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<LabelRequirement>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A selector that says nothing that can be: its operator is unknown, or its values do not fit it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the selector's requirement on label `{key}` cannot be: `{operator}` with {values} values")]
pub struct SelectorError {
    key: String,
    operator: String,
    values: usize,
}

impl LabelSelector {
    /// Returns `true` if the selector matches these labels.
    ///
    /// # Errors
    /// [`SelectorError`] for a requirement that an API server would refuse.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> Result<bool, SelectorError> {
        let mut matches = self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value));
        for requirement in &self.match_expressions {
            matches &= requirement.holds(labels)?;
        }
        Ok(matches)
    }
}

impl LabelRequirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> Result<bool, SelectorError> {
        let value = labels.get(&self.key);
        let is_listed = || value.is_some_and(|value| self.values.contains(value));
        match (self.operator.as_str(), self.values.is_empty()) {
            ("In", false) => Ok(is_listed()),
            ("NotIn", false) => Ok(!is_listed()),
            ("Exists", true) => Ok(value.is_some()),
            ("DoesNotExist", true) => Ok(value.is_none()),
            _ => Err(SelectorError {
                key: self.key.escape_debug().take(64).collect(),
                operator: self.operator.escape_debug().take(64).collect(),
                values: self.values.len(),
            }),
        }
    }
}

/// What must hold of one label.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelRequirement {
    /// The label's key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values that `In` and `NotIn` speak of; empty with the other two.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<String>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A reference to an object in the same namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct LocalReference {
    /// The object's name.
    #[serde(default)]
    pub name: String,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl LocalReference {
    /// Creates a reference to the object of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), extra: Map::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(text: &str) -> LabelSelector {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn selectors_select_as_kubernetes_does() {
        let labels = BTreeMap::from([("app", "web"), ("tier", "front")].map(|(k, v)| (k.into(), v.into())));
        for (text, is_meant) in [
            ("{}", true),
            (r#"{"matchLabels": {"app": "web", "tier": "front"}}"#, true),
            (r#"{"matchLabels": {"app": "web", "tier": "back"}}"#, false),
            (r#"{"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "web"]}]}"#, true),
            (r#"{"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}"#, false),
            (r#"{"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["web"]}]}"#, true),
            (r#"{"matchExpressions": [{"key": "x", "operator": "In", "values": [""]}]}"#, false),
            (r#"{"matchExpressions": [{"key": "app", "operator": "Exists"}]}"#, true),
            (r#"{"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}"#, false),
            (
                r#"{"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}"#,
                false,
            ),
        ] {
            assert_eq!(selector(text).matches(&labels), Ok(is_meant), "{text}");
        }
    }

    #[test]
    fn a_requirement_that_cannot_be_is_an_error_and_not_a_match() {
        for expression in [
            r#"{"key": "app", "operator": "Like", "values": ["w"]}"#,
            r#"{"key": "app", "operator": "In"}"#,
            r#"{"key": "app", "operator": "Exists", "values": ["web"]}"#,
        ] {
            let selector = selector(&format!(r#"{{"matchExpressions": [{expression}]}}"#));
            let error = selector.matches(&BTreeMap::new()).unwrap_err();
            assert!(error.to_string().contains("`app`"), "{error}");
        }
    }
}
