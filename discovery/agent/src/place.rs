//! Of which service an object is, and in what part: said by its kind, its labels and where it is.

use trieste_control::api::{GlobalIngressIp, Kind, Object, Resource as _, label, placed};

use crate::admit::LOCAL_SERVICE;
use crate::config::AgentConfig;
use crate::name::{self, ServiceName};
use crate::row::Slot;

/// Returns the service of an object in this cluster; `None` if it is of none.
pub(crate) fn here(config: &AgentConfig, object: &Object) -> Option<(ServiceName, Slot)> {
    if object.withheld.is_some() {
        // Nothing is said of it: neither what it is, nor that it may go.
        return None;
    }
    if object.kind == Kind::ServiceExport {
        Some((ServiceName::of(object), Slot::Export))
    } else if object.kind == Kind::Service {
        Some((ServiceName::of(object), Slot::Service))
    } else if object.kind == Kind::EndpointSlice {
        slice_here(config, object)
    } else if object.kind == Kind::ServiceImport {
        import_here(config, object)
    } else if object.kind == Kind::GlobalIngressIp {
        let service = GlobalIngressIp::from_object(object).ok()?.spec.service_ref?.name;
        Some((ServiceName::new(&object.metadata.namespace, service), Slot::Ingress))
    } else {
        None
    }
}

fn slice_here(config: &AgentConfig, slice: &Object) -> Option<(ServiceName, Slot)> {
    let namespace = &slice.metadata.namespace;
    if !name::is_exported_slice(slice) {
        let service = slice.metadata.labels.get(LOCAL_SERVICE)?;
        return Some((ServiceName::new(namespace, service), Slot::Source));
    }
    let is_own = name::source_cluster(slice)? == config.cluster_id;
    if let Some(placed) = placed(slice, &config.namespace) {
        let is_copy = !is_own && slice.metadata.origin().is_some();
        return ServiceName::of_labels(&placed).filter(|_| is_copy).map(|name| (name, Slot::DisplacedCopy));
    }
    if is_own && name::is_former(slice) && slice.metadata.origin().is_none() {
        let service = slice.metadata.labels.get(label::SERVICE_NAME)?;
        return Some((ServiceName::new(namespace, service), Slot::Own));
    }
    // A broker in this very cluster has its slices here too: they are in another namespace than they say.
    let name = ServiceName::of_labels(slice).filter(|name| name.namespace == *namespace)?;
    match (is_own, slice.metadata.origin()) {
        (true, None) => Some((name, Slot::Own)),
        (false, Some(_)) => Some((name, Slot::Copy)),
        (true, Some(_)) | (false, None) => None,
    }
}

fn import_here(config: &AgentConfig, import: &Object) -> Option<(ServiceName, Slot)> {
    if let Some(placed) = placed(import, &config.namespace) {
        return Some((ServiceName::of(&placed), Slot::DisplacedImport));
    }
    if import.metadata.annotations.contains_key(label::SERVICE_NAME) {
        // The broker's, where that is in this cluster.
        return None;
    }
    if !import.metadata.labels.contains_key(label::SERVICE_NAME) {
        return Some((ServiceName::of(import), Slot::Import));
    }
    let is_own = name::source_cluster(import)? == config.cluster_id;
    let name = ServiceName::of_labels(import)?;
    (is_own && import.metadata.namespace == config.namespace).then_some((name, Slot::LocalImport))
}

/// Returns the service of an object on the broker; `None` if it is of none.
pub(crate) fn on_broker(config: &AgentConfig, object: &Object) -> Option<(ServiceName, Slot)> {
    if object.kind == Kind::ServiceImport {
        let name = ServiceName::of_annotations(object)?;
        return (object.metadata.name == name.aggregate()).then_some((name, Slot::Aggregate));
    }
    if !name::is_exported_slice(object) && object.withheld.is_none() {
        return None;
    }
    let is_own = object.metadata.origin() == Some(config.cluster_id.as_str());
    let slot = if is_own { Slot::Published } else { Slot::Foreign };
    Some((ServiceName::of_labels(object).unwrap_or_else(|| ServiceName::of(object)), slot))
}
