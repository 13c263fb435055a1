//! Names: of services, and of the objects that are made of them.

use std::fmt;

use trieste_control::api::{Kind, Object, annotation, label};
use trieste_control::hash::fnv1a;

/// The longest part of a service's name in the name of a slice; Kubernetes' service names are no longer.
const MAX_PREFIX: usize = 63;

/// A service, by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    /// Its namespace, the same in all clusters.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ServiceName {
    /// Creates a name of these two parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Returns the namespace and name of an object that has the service's own.
    pub(crate) fn of(object: &Object) -> Self {
        Self::new(&object.metadata.namespace, &object.metadata.name)
    }

    /// Returns the service that an import of one cluster, or a slice, says in its labels that it is of.
    pub(crate) fn of_labels(object: &Object) -> Option<Self> {
        let labels = &object.metadata.labels;
        Some(Self::new(labels.get(label::SOURCE_NAMESPACE)?, labels.get(label::SERVICE_NAME)?))
    }

    /// Returns the service that an import of all clusters says in its annotations that it is of.
    pub(crate) fn of_annotations(object: &Object) -> Option<Self> {
        let annotations = &object.metadata.annotations;
        Some(Self::new(annotations.get(label::SOURCE_NAMESPACE)?, annotations.get(label::SERVICE_NAME)?))
    }

    /// Returns the name of the import of all clusters on the broker. Two services can have the same: then the first has it.
    pub(crate) fn aggregate(&self) -> String {
        format!("{}-{}", self.name, self.namespace)
    }

    /// Returns the name of a cluster's own import.
    pub(crate) fn local_import(&self, cluster_id: &str) -> String {
        format!("{}-{}-{cluster_id}", self.name, self.namespace)
    }

    /// Returns the beginning of the names of its slices, as a store is told it.
    pub(crate) fn slice_prefix(&self) -> String {
        let end = self.name.char_indices().nth(MAX_PREFIX).map_or(self.name.len(), |(end, _)| end);
        format!("{}-", &self.name[..end])
    }

    /// Returns the name of a slice of a cluster, made of what that cluster calls `source`: the same after every restart, and
    /// another one than any other slice on the broker has. What nobody else can tell beforehand is `secret`.
    pub(crate) fn slice(&self, cluster_id: &str, source: &str, secret: &str) -> String {
        let parts = [cluster_id, &self.namespace, &self.name, source, secret];
        let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
        format!("{}{:016x}", self.slice_prefix(), fnv1a(bytes))
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The unit that is reconciled by itself: what one store says of one service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// In this cluster's store.
    Local(ServiceName),
    /// In the broker's.
    Broker(ServiceName),
}

impl Key {
    /// Returns the number of the store.
    pub(crate) const fn store(&self) -> usize {
        match self {
            Self::Local(_) => LOCAL,
            Self::Broker(_) => BROKER,
        }
    }

    /// Returns the service.
    pub(crate) const fn service(&self) -> &ServiceName {
        match self {
            Self::Local(name) | Self::Broker(name) => name,
        }
    }

    /// Returns the keys of a service.
    pub(crate) fn both(name: &ServiceName) -> [Self; 2] {
        [Self::Local(name.clone()), Self::Broker(name.clone())]
    }
}

/// Number of this cluster's store.
pub(crate) const LOCAL: usize = 0;
/// Number of the broker's.
pub(crate) const BROKER: usize = 1;

/// Returns `true` if a slice is one of service discovery's, of whichever cluster.
pub(crate) fn is_exported_slice(object: &Object) -> bool {
    object.kind == Kind::EndpointSlice
        && object.metadata.labels.get(label::MANAGED_BY).is_some_and(|by| by == label::LIGHTHOUSE_AGENT)
}

/// Returns `true` if an exported slice is of a release of Lighthouse that did not say in labels of which namespace it is.
pub(crate) fn is_former(slice: &Object) -> bool {
    !slice.metadata.labels.contains_key(label::SOURCE_NAMESPACE)
}

/// Returns the cluster whose part of a service a slice or an import is.
pub(crate) fn source_cluster(object: &Object) -> Option<&str> {
    object.metadata.labels.get(label::SOURCE_CLUSTER).map(String::as_str)
}

/// Returns the annotation of the time at which a cluster began to export.
pub(crate) fn timestamp_key(cluster_id: &str) -> String {
    format!("{}{cluster_id}", annotation::TIMESTAMP_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_have_names_of_their_own_that_stay() {
        let web = ServiceName::new("shop", "web");
        let name = web.slice("east", "IPv4", "1");
        assert_eq!(name, web.slice("east", "IPv4", "1"));
        assert!(name.starts_with("web-") && name.len() == 20, "{name}");
        let others = [
            web.slice("west", "IPv4", "1"),
            web.slice("east", "IPv6", "1"),
            web.slice("east", "IPv4", "2"),
            ServiceName::new("shopw", "eb").slice("east", "IPv4", "1"),
            ServiceName::new("other", "web").slice("east", "IPv4", "1"),
        ];
        assert!(others.iter().all(|other| *other != name));
        let long = ServiceName::new("ns", "é".repeat(200)).slice("east", "IPv4", "1");
        assert_eq!(long.chars().count(), 63 + 1 + 16);
    }
}
