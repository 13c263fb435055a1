//! What an uninstalled cluster must not leave.

use super::{SLOT_PREFIX, paths_namespace};
use crate::api::Kind;
use crate::store::{Store, StoreError, delete_if_exists};

/// Removes what gateways have told one another in the own store, and their claims. `namespace` is that of the cluster's
/// other objects. Where nothing may be looked for, nothing was told.
///
/// # Errors
/// [`StoreError`]. Doing it again removes the rest.
pub async fn withdraw<S: Store>(store: &S, namespace: &str) -> Result<(), StoreError> {
    let namespace = paths_namespace(namespace);
    for kind in [Kind::Endpoint, Kind::Lease] {
        let objects = match store.list(kind, &namespace).await {
            Err(StoreError::Forbidden { .. }) => continue,
            objects => objects?,
        };
        let is_ours = |name: &str| kind == Kind::Endpoint || name.starts_with(SLOT_PREFIX);
        for object in objects.iter().filter(|object| is_ours(&object.metadata.name)) {
            delete_if_exists(store, &object.key()).await?;
        }
    }
    Ok(())
}
