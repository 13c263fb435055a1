//! The definition of our own kind. Unlike upstream's kinds, which keep what they do not know, it is strict: defaults stand in
//! it, a null is no value, and a field that it does not have is a mistake.

use serde_json::{Value, json};

use super::super::{Fabric, Kind};
use super::structural::user_schema;

/// Returns the definition of [`Fabric`].
pub fn fabric() -> Value {
    let kind = Kind::Fabric;
    let column = |name: &str, kind: &str, path: &str, description: &str| json!({"name": name, "type": kind, "jsonPath": path, "description": description});
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", kind.plural(), kind.group())},
        "spec": {
            "group": kind.group(),
            "names": {"kind": kind.as_str(), "listKind": format!("{kind}List"), "plural": kind.plural(), "singular": "fabric"},
            "scope": "Cluster",
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
                "schema": {"openAPIV3Schema": user_schema::<Fabric>()},
            }],
        },
    });
    definition.sort_all_objects();
    definition
}
