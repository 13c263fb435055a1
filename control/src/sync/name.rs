//! The name of an object on both sides: the namespaces differ, kind and name do not.

use std::sync::Arc;

use crate::api::{Kind, Object};

/// The kinds that are synced, in the order in which they are written.
pub(super) const KINDS: [Kind; 2] = [Kind::Cluster, Kind::Endpoint];

/// Kind and name of an object. Cheap to copy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) kind: Kind,
    pub(super) name: Arc<str>,
}

impl Name {
    pub(super) fn new(kind: Kind, name: &str) -> Self {
        Self { kind, name: Arc::from(name) }
    }

    pub(super) fn of(object: &Object) -> Self {
        Self::new(object.kind, &object.metadata.name)
    }
}
