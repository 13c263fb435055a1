//! Definitions of our kinds for an API server (`CustomResourceDefinition`), made from the types beside.
//!
//! Names, short names, scopes, printer columns, status subresources, required fields and limits are upstream's, so that
//! either party's definitions may be installed in a cluster and either party's programs run on them. One difference is
//! deliberate. Upstream's definitions make the API server drop every field that they do not name; wherever our types
//! keep unknown fields, ours say `x-kubernetes-preserve-unknown-fields`. A newer member's fields then survive in a
//! cluster where ours are installed. Every object that upstream's definitions accept, ours accept too: no word lists
//! where upstream has none (a newer release may know another state of a connection), and a field is required only if
//! it is in every release of upstream.
//!
//! The files in `control/crds/` are the output of `trieste crds`, with and without `--tkestack`; the test
//! `control/tests/all/crds.rs` says when they are stale.

mod envelope;
mod fabric;
mod structural;

use envelope::envelope;
pub use fabric::{fabric, tkestack};
use serde_json::{Value, json};

use super::{
    Broker, Cluster, ClusterGlobalEgressIp, Endpoint, Gateway, GatewayRoute, GlobalEgressIp, GlobalIngressIp,
    Kind, NonGatewayRoute, Resource, RouteAgent, ServiceDiscovery, Submariner,
};

/// The first lines of each file.
const HEADER: &str = "\
# Generated from the types in control/src/api by `trieste crds`; do not edit. To make it anew:
# cargo run -p trieste-cli -- crds";

/// Returns the definitions of all kinds of group `submariner.io`, in the order of [`Kind::SUBMARINER`], each a whole
/// object that an API server takes.
pub fn definitions() -> Vec<Value> {
    vec![
        definition::<Cluster>(&[]),
        definition::<Endpoint>(&[]),
        definition::<Gateway>(&[Column {
            name: "HA Status",
            path: ".status.haStatus",
            description: "Whether the gateway carries traffic",
        }]),
        definition::<RouteAgent>(&[]),
        definition::<GatewayRoute>(&[]),
        definition::<NonGatewayRoute>(&[]),
        definition::<ClusterGlobalEgressIp>(&[]),
        definition::<GlobalEgressIp>(&[]),
        definition::<GlobalIngressIp>(&[Column {
            name: "IP",
            path: ".status.allocatedIP",
            description: "The global address given",
        }]),
        definition::<Submariner>(&[]),
        definition::<Broker>(&[]),
        definition::<ServiceDiscovery>(&[]),
    ]
}

/// A definition as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionFile {
    /// The file's name: `submariner.io_<plural>.yaml`.
    pub name: String,
    /// One YAML document, with comments on how it was made.
    pub text: String,
}

/// Returns the definitions as files, in the order of [`definitions`], and that of our own kind.
pub fn files() -> Vec<DefinitionFile> {
    let own = [(Kind::Fabric, fabric())];
    let all = Kind::SUBMARINER.into_iter().zip(definitions()).chain(own);
    all.map(|(kind, definition)| file(kind, &definition, "")).collect()
}

/// Returns the definitions of [`tkestack`] as files.
pub fn tkestack_files() -> Vec<DefinitionFile> {
    let all = [Kind::TkestackFabric, Kind::Knitnet].into_iter().zip(tkestack());
    all.map(|(kind, definition)| file(kind, &definition, " --tkestack")).collect()
}

/// Makes a file; `flags` are those of the command that does.
fn file(kind: Kind, definition: &Value, flags: &str) -> DefinitionFile {
    let body = serde_saphyr::to_string(definition).expect("JSON values have a YAML form");
    let end = if body.ends_with('\n') { "" } else { "\n" };
    DefinitionFile {
        name: format!("{}_{}.yaml", kind.group(), kind.plural()),
        text: format!("{HEADER}{flags} --directory control/crds\n---\n{body}{end}"),
    }
}

/// A column that `kubectl get` shows beside the name.
struct Column {
    name: &'static str,
    path: &'static str,
    description: &'static str,
}

fn definition<T: Resource + schemars::JsonSchema>(columns: &[Column]) -> Value {
    let kind = T::KIND;
    let mut version = json!({
        "name": kind.version(),
        "served": true,
        "storage": true,
        "schema": {"openAPIV3Schema": structural::root_schema::<T>()},
    });
    if kind.has_status_subresource() {
        version["subresources"] = json!({"status": {}});
    }
    if !columns.is_empty() {
        version["additionalPrinterColumns"] = columns.iter().map(Column::to_value).collect();
    }
    envelope(kind, &version)
}

impl Column {
    fn to_value(&self) -> Value {
        json!({"name": self.name, "type": "string", "jsonPath": self.path, "description": self.description})
    }
}
