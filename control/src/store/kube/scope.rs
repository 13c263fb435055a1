//! Which keys can be a part of a path, and which objects of a path a request is about.

use crate::api::{ObjectKey, check_namespace, check_object_name};
use crate::https::escaped;
use crate::store::StoreError;

/// The objects that a list or a watch is about.
pub(super) struct Selection {
    /// Their kind and namespace; the one object, if there is a name.
    pub(super) key: ObjectKey,
    /// The name and the value of a label that they have.
    pub(super) label: Option<(String, String)>,
}

impl Selection {
    /// Selects whatever a key says.
    pub(super) fn of(key: ObjectKey) -> Self {
        Self { key, label: None }
    }

    /// Returns the parameters of a request that select them, each with an `&` behind it.
    pub(super) fn query(&self) -> String {
        let mut query = String::new();
        if !self.key.name.is_empty() {
            query += &format!("fieldSelector=metadata.name%3D{}&", escaped(&self.key.name));
        }
        if let Some((name, value)) = &self.label {
            query += &format!("labelSelector={}%3D{}&", escaped(name), escaped(value));
        }
        query
    }
}

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
