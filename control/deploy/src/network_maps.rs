//! The gateways' Roles in namespaces of network plugins, where the cluster's networks stand in ConfigMaps.

use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::{MANAGED_BY_LABEL, NETWORK_MAPS, TRIESTE};
use crate::objects::rbac::network_map_namespaces;
use crate::server::Server;

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Finds those that are there, in the order in which they go. Who may not list them there has made none.
///
/// # Errors
/// [`DeployError`] if the server does not answer.
pub(crate) async fn roles(server: &Server) -> Result<Vec<ObjectRef>, DeployError> {
    let selector = format!("labelSelector={}%3D{TRIESTE}", MANAGED_BY_LABEL.replace('/', "%2F"));
    let mut all = Vec::new();
    for kind in ["RoleBinding", "Role"] {
        for namespace in network_map_namespaces() {
            match server.list(RBAC, kind, Some(namespace), &selector).await {
                Ok(found) => all.extend(found.iter().filter_map(ObjectRef::of)),
                Err(DeployError::Api { code: Some(403), .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    all.retain(|place| place.name == NETWORK_MAPS);
    Ok(all)
}
