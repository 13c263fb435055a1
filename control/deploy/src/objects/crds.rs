//! The definitions of our kinds.

use serde_json::json;

use super::Manifest;
use super::names::{MANAGED_BY_LABEL, PART_OF_LABEL, TRIESTE, VERSION_LABEL};

/// The definition of the kind by which users export services, as the multi-cluster services API has it; for clusters to which
/// no service discovery has brought it. It has none of our labels: users' exports would go with it.
pub fn service_export() -> Manifest {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({
        "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
            "spec": anything, "status": anything,
        }}},
    });
    Manifest::new(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "serviceexports.multicluster.x-k8s.io"},
        "spec": {
            "group": "multicluster.x-k8s.io", "scope": "Namespaced",
            "names": {"plural": "serviceexports", "singular": "serviceexport", "kind": "ServiceExport",
                "listKind": "ServiceExportList", "shortNames": ["svcex"]},
            "versions": [version],
        },
    }))
}

/// The definitions of all kinds, as `trieste crds` prints them, with our labels.
pub fn definitions() -> Vec<Manifest> {
    let labels =
        [(PART_OF_LABEL, TRIESTE), (MANAGED_BY_LABEL, TRIESTE), (VERSION_LABEL, env!("CARGO_PKG_VERSION"))];
    let labelled = |definition| {
        let definition = Manifest::new(definition);
        labels.into_iter().fold(definition, |definition, (key, value)| definition.labelled(key, value))
    };
    trieste_control::api::crd::definitions().into_iter().map(labelled).collect()
}
