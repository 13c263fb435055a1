//! Which keys can be a part of a path.

use crate::api::{ObjectKey, check_namespace, check_object_name};
use crate::store::StoreError;

/// Checks kind and namespace against each other, and the namespace's (and, if there is one, the object's) name. Only
/// who means no single object may mean all namespaces.
///
/// # Errors
/// [`StoreError::Invalid`], with what is wrong.
pub(super) fn check_scope(key: &ObjectKey) -> Result<(), StoreError> {
    let shown = || ObjectKey::new(key.kind, key.namespace.escape_debug().to_string(), key.name.as_str());
    let outcome = match (key.kind.is_namespaced(), key.namespace.is_empty()) {
        (true, true) if key.name.is_empty() => Ok(()),
        (true, _) => check_namespace(&key.namespace).map_err(|error| error.to_string()),
        (false, true) => Ok(()),
        (false, false) => Err(format!("must be empty: a {} is in no namespace", key.kind)),
    };
    outcome.map_err(|reason| StoreError::invalid(&shown(), "metadata.namespace", reason))?;
    if key.name.is_empty() { Ok(()) } else { check_name(key) }
}

/// Checks an object's name.
///
/// # Errors
/// [`StoreError::Invalid`], with what is wrong.
pub(super) fn check_name(key: &ObjectKey) -> Result<(), StoreError> {
    let shown = || ObjectKey::new(key.kind, key.namespace.as_str(), key.name.escape_debug().to_string());
    check_object_name(&key.name)
        .map_err(|error| StoreError::invalid(&shown(), "metadata.name", error.to_string()))
}
