//! The definitions of what people write for the operator. Unlike upstream's kinds, which keep what they do not know, they are strict:
//! defaults stand in them, a null is no value, and a field that they do not have is a mistake.

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::super::{Fabric, Kind, TkestackResource};
use super::envelope::envelope;
use super::structural::user_schema;

/// Returns the definition of [`Fabric`].
pub fn fabric() -> Value {
    definition::<Fabric>(Kind::Fabric)
}

/// Returns the definitions of [`TkestackResource`] under both names.
pub fn tkestack() -> [Value; 2] {
    let phase = json!({"type": "string", "enum": ["Running", "Failed"],
        "description": "Running or Failed; missing while neither is so."});
    [Kind::TkestackFabric, Kind::Knitnet].map(|kind| {
        let mut definition = definition::<TkestackResource>(kind);
        let properties = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        properties["status"]["properties"]["phase"] = phase.clone();
        if kind == Kind::Knitnet {
            properties["spec"]["default"] = json!({"action": "broker"});
            properties["spec"]["properties"]["action"]["default"] = json!("broker");
        }
        definition.sort_all_objects();
        definition
    })
}

fn definition<T: JsonSchema>(kind: Kind) -> Value {
    let column = |name: &str, kind: &str, path: &str, description: &str| json!({"name": name, "type": kind, "jsonPath": path, "description": description});
    let version = json!({
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
    });
    envelope(kind, &version)
}
