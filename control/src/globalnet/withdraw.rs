//! Leaving nothing behind that would stay for ever, or point at nobody.

use serde_json::Value;

use super::facts::{Ingress, Service};
use super::services::is_copy;
use crate::api::{ClusterGlobalEgressIp, Kind, Object, ObjectKey, finalizer};
use crate::election::GLOBALNET_LEASE;
use crate::store::{Store, StoreError, delete_if_exists, modify};

/// Removes what Globalnet has made in a cluster that is uninstalled: internal Services, whose finalizer nobody else
/// takes off, copies of Endpoints, GlobalIngressIPs of exports, the cluster's egress addresses and the Lease of
/// `namespace`. Users' objects stay. Can be run again.
///
/// # Errors
/// [`StoreError`]. Everything removed until then is gone.
pub async fn withdraw<S: Store>(store: &S, namespace: &str) -> Result<(), StoreError> {
    // First what makes the others, should a gateway still run.
    for object in store.list(Kind::GlobalIngressIp, "").await? {
        if Ingress::new(&object).is_some_and(|ingress| ingress.is_of_export()) {
            delete_if_exists(store, &object.key()).await?;
        }
    }
    for object in store.list(Kind::CoreEndpoints, "").await?.iter().filter(|object| is_copy(object)) {
        delete_if_exists(store, &object.key()).await?;
    }
    for object in store.list(Kind::Service, "").await? {
        let is_ours = Service::new(&object).stands_for().is_some();
        if is_ours || object.metadata.has_finalizer(finalizer::INTERNAL_SERVICE) {
            remove(store, &object).await?;
        }
    }
    let egress = ObjectKey::new(Kind::ClusterGlobalEgressIp, "", ClusterGlobalEgressIp::NAME);
    delete_if_exists(store, &egress).await?;
    delete_if_exists(store, &ObjectKey::new(Kind::Lease, namespace, GLOBALNET_LEASE)).await?;
    Ok(())
}

async fn remove<S: Store>(store: &S, object: &Object) -> Result<(), StoreError> {
    let key = object.key();
    if object.metadata.extra.get("finalizers").is_some_and(Value::is_array) {
        let free = |object: &mut Object| object.metadata.remove_finalizer(finalizer::INTERNAL_SERVICE);
        match modify(store, &key, free).await {
            // It was being deleted already.
            Ok(_) | Err(StoreError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    delete_if_exists(store, &key).await.map(drop)
}
