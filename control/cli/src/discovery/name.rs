//! A service's name.

use trieste_control::api::Object;

/// Namespace and name of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Name {
    /// Returns the name of an object that has the service's own.
    pub(super) fn of(object: &Object) -> Self {
        let metadata = &object.metadata;
        Self { namespace: metadata.namespace.clone(), name: metadata.name.clone() }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
