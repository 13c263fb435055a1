//! Objects that the operator carries out: it would make anew what a command removes, and undo what one changes.

use serde_json::Value;
use trieste_control::api::{OPERATOR_API_VERSION, OWN_API_VERSION, TKESTACK_API_VERSION};

use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::server::Server;

/// Returns the Fabrics, of either group, and the objects of upstream's kinds, that have one of these finalizers: something is installed
/// for them.
pub(crate) async fn carried_out(server: &Server, finalizers: &[&str]) -> Result<Vec<ObjectRef>, DeployError> {
    let mut all = server.list(OWN_API_VERSION, "Fabric", None, "").await?;
    for kind in ["Broker", "Submariner", "ServiceDiscovery"] {
        all.extend(server.list(OPERATOR_API_VERSION, kind, None, "").await?);
    }
    for kind in ["Fabric", "Knitnet"] {
        match server.list(TKESTACK_API_VERSION, kind, None, "").await {
            Ok(found) => all.extend(found),
            // Nor may an operator of a former version, whose rights have no such kinds.
            Err(DeployError::Api { code: Some(403), .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let is_begun = |object: &&Value| {
        let mut own = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        own.any(|finalizer| finalizers.iter().any(|ours| finalizer == ours))
    };
    Ok(all.iter().filter(is_begun).filter_map(ObjectRef::of).collect())
}
