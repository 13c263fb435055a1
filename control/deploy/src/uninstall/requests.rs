//! Objects that the operator carries out: it would make anew what is removed.

use serde_json::Value;
use trieste_control::api::{Fabric, OPERATOR_API_VERSION, OWN_API_VERSION, TKESTACK_API_VERSION};

use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::server::Server;

/// Returns the Fabrics, of either group, and the objects of upstream's kinds, for which something is installed by the operator.
pub(super) async fn requests(server: &Server) -> Result<Vec<String>, DeployError> {
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
        let mut finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        finalizers.any(|finalizer| Fabric::FINALIZERS.iter().any(|ours| finalizer == ours))
    };
    let places = all.iter().filter(is_begun).filter_map(ObjectRef::of);
    Ok(places.map(|place| place.to_string()).collect())
}
