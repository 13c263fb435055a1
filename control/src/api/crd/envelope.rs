//! What a definition has around its only version.

use serde_json::{Value, json};

use super::super::Kind;

/// Returns the definition of a kind with this version.
pub(super) fn envelope(kind: Kind, version: &Value) -> Value {
    let mut names = json!({
        "kind": kind.as_str(),
        "listKind": format!("{}List", kind.as_str()),
        "plural": kind.plural(),
        "singular": kind.as_str().to_lowercase(),
    });
    if !kind.short_names().is_empty() {
        names["shortNames"] = json!(kind.short_names());
    }
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", kind.plural(), kind.group())},
        "spec": {
            "group": kind.group(),
            "names": names,
            "scope": if kind.is_namespaced() { "Namespaced" } else { "Cluster" },
            "versions": [version],
        },
    });
    definition.sort_all_objects();
    definition
}
