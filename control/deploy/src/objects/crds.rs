//! The definitions of our kinds.

use serde_json::json;

use super::Manifest;
use super::names::{DEFINITION, MANAGED_BY_LABEL, PART_OF_LABEL, TRIESTE, VERSION_LABEL};

/// Returns the definition of the kind by which users export services, as the multi-cluster services API has it; for clusters to
/// which nobody has brought it. It has none of our labels, but a mark: it goes with us once no user's export is left.
pub fn service_export() -> Manifest {
    multi_cluster("ServiceExport", "svcex", &[("Age", "date", ".metadata.creationTimestamp")])
}

/// Returns the definition of the kind of imported services, likewise.
pub fn service_import() -> Manifest {
    let columns = [
        ("Type", "string", ".spec.type"),
        ("IP", "string", ".spec.ips"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ];
    multi_cluster("ServiceImport", "svcim", &columns)
}

fn multi_cluster(kind: &str, short: &str, columns: &[(&str, &str, &str)]) -> Manifest {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let columns: Vec<_> = columns
        .iter()
        .map(|(name, kind, path)| json!({"name": name, "type": kind, "jsonPath": path}))
        .collect();
    // The newer version has the same fields. The older one is stored: upstream's definition, which may come in the place of this
    // one, has that alone.
    let version = |name: &str, is_stored: bool| {
        json!({
            "name": name, "served": true, "storage": is_stored, "subresources": {"status": {}},
            "additionalPrinterColumns": columns,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                "spec": anything, "status": anything,
            }}},
        })
    };
    let singular = kind.to_ascii_lowercase();
    let plural = format!("{singular}s");
    Manifest::new(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.multicluster.x-k8s.io"),
            "annotations": {DEFINITION: TRIESTE},
        },
        "spec": {
            "group": "multicluster.x-k8s.io", "scope": "Namespaced",
            "names": {"plural": plural, "singular": singular, "kind": kind,
                "listKind": format!("{kind}List"), "shortNames": [short]},
            "versions": [version("v1alpha1", true), version("v1beta1", false)],
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
