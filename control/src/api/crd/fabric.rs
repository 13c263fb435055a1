//! The definitions of what people write for the operator. Unlike upstream's kinds, which keep what they do not know, they are strict:
//! defaults stand in them, a null is no value, and a field that they do not have is a mistake.

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::super::{Fabric, Kind, Knitnet, TkestackFabric};
use super::structural::user_schema;

/// Returns the definition of [`Fabric`].
pub fn fabric() -> Value {
    definition::<Fabric>(Kind::Fabric)
}

/// Returns the definitions of [`TkestackFabric`] and [`Knitnet`].
pub fn tkestack() -> [Value; 2] {
    let mut all = [definition::<TkestackFabric>(Kind::TkestackFabric), definition::<Knitnet>(Kind::Knitnet)];
    for definition in &mut all {
        let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/phase";
        let description = "Running or Failed; missing while neither is so.";
        if let Some(phase) = definition.pointer_mut(schema) {
            *phase = json!({"type": "string", "enum": ["Running", "Failed"], "description": description});
        }
    }
    all
}

fn definition<T: JsonSchema>(kind: Kind) -> Value {
    let column = |name: &str, kind: &str, path: &str, description: &str| json!({"name": name, "type": kind, "jsonPath": path, "description": description});
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
            "versions": [{
                "name": kind.version(),
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Phase", "string", ".status.phase", "In one word how far it is"),
                    column("Cluster ID", "string", ".status.clusterID", "The cluster's ID in the set"),
                    column("Broker", "string", ".status.broker", "The broker that the cluster is a member of"),
                    column("Reason", "string", ".status.conditions[?(@.type==\"Ready\")].reason", "Why it is ready, or is not"),
                    column("Version", "string", ".status.version", "The version that is installed"),
                    column("Age", "date", ".metadata.creationTimestamp", "Since when it exists"),
                ],
                "schema": {"openAPIV3Schema": user_schema::<T>()},
            }],
        },
    });
    definition.sort_all_objects();
    definition
}
