//! Services and EndpointSlices, read down to what delivery needs, and joined.
//!
//! An object that cannot be read costs itself alone. Everything is bounded: writers of objects must not fill the
//! gateway's memory.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::claims::{Claims, NamespacedName};
use super::{Backend, Frontend, Protocol, Service};
use crate::api::{Kind, Object};
use crate::sets;
use crate::store::StoreEvent;

/// Ours: most back ends of one address and port.
const MOST_BACKENDS_OF_ONE: usize = 5_000;
/// Ours: most ports of one service, and of one slice (Kubernetes allows 100).
const MOST_PORTS: usize = 100;
/// From Kubernetes: most endpoints of one slice.
const MOST_ENDPOINTS: usize = 1_000;
/// The label that names a slice's service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The objects, indexed: what stands behind an address and port is worked out when it is asked for, and an event says which
/// of them it concerns.
#[derive(Debug, Default)]
pub struct ServiceIndex {
    services: BTreeMap<NamespacedName, Row>,
    slices: BTreeMap<NamespacedName, Slice>,
    /// Slices by service.
    of_service: BTreeMap<NamespacedName, BTreeSet<String>>,
    claims: Claims,
    has_services: bool,
    has_slices: bool,
}

/// A service that has cluster IPs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    addresses: Vec<IpAddr>,
    ports: Vec<(String, Protocol, u16)>,
    keeps_clients: bool,
}

/// A slice of one service's endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slice {
    service: NamespacedName,
    is_ipv4: bool,
    ports: Vec<(String, Protocol, u16)>,
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Endpoint {
    address: IpAddr,
    node: Option<Arc<str>>,
    is_ready: bool,
    is_serving: bool,
    is_terminating: bool,
}

impl ServiceIndex {
    /// Takes in an event of one of the two kinds, in all namespaces. Gives `true` if something may follow from it.
    pub fn take(&mut self, kind: Kind, event: &StoreEvent) -> bool {
        match event {
            StoreEvent::Listed(objects) => self.list(kind, objects),
            StoreEvent::Applied(object) => self.put(kind, object),
            StoreEvent::Deleted(object) => self.remove(kind, &namespaced_name(object)),
            StoreEvent::Unavailable(_) => false,
        }
    }

    /// Returns all addresses and ports.
    pub fn frontends(&self) -> impl Iterator<Item = &Frontend> {
        self.claims.frontends()
    }

    /// Returns the addresses and ports whose back ends may be others than when this was asked before.
    pub fn take_changed(&mut self) -> BTreeSet<Frontend> {
        self.claims.take_changed()
    }

    /// Returns `true` if there are more addresses and ports than fit.
    pub fn is_cut(&self) -> bool {
        !self.claims.left_out().is_empty()
    }

    /// Returns the service at an address and port; `None` if there is none. It may have no back ends.
    pub fn service(&self, at: &Frontend) -> Option<Service> {
        let owner = self.claims.owner(at)?;
        let row = self.services.get(owner)?;
        let (name, ..) = row.ports.iter().find(|port| (port.1, port.2) == (at.protocol, at.port))?;
        let backends = self.backends(owner, at.address.is_ipv4(), (name, at.protocol));
        Some(Service { keeps_clients: row.keeps_clients, backends })
    }

    /// Returns `true` if all objects are known.
    pub fn is_complete(&self) -> bool {
        self.has_services && self.has_slices
    }

    /// Returns `true` if all slices are known.
    pub fn has_slices(&self) -> bool {
        self.has_slices
    }

    /// Returns the service that a known slice of a namespace is of.
    pub fn service_of(&self, namespace: &str, slice: &str) -> Option<(&str, &str)> {
        let slice = self.slices.get(&(namespace.to_owned(), slice.to_owned()))?;
        Some((&slice.service.0, &slice.service.1))
    }

    /// Returns the back ends for new connections to a port of a service, by the port's name: those that kube-proxy would take.
    pub fn backends_of(
        &self,
        (namespace, service): (&str, &str),
        is_ipv4: bool,
        port: (&str, Protocol),
    ) -> Vec<Backend> {
        let service = (namespace.to_owned(), service.to_owned());
        let mut backends = self.backends(&service, is_ipv4, port);
        backends.retain(|backend| backend.is_used);
        backends
    }

    /// Puts what is listed, and removes what is not.
    fn list(&mut self, kind: Kind, objects: &[Object]) -> bool {
        let is_slices = kind == Kind::EndpointSlice;
        let listed: BTreeSet<NamespacedName> = objects.iter().map(namespaced_name).collect();
        let known: Vec<NamespacedName> = if is_slices {
            self.slices.keys().cloned().collect()
        } else {
            self.services.keys().cloned().collect()
        };
        let gone = known.iter().filter(|name| !listed.contains(name));
        let mut is_changed = gone.fold(false, |is_changed, name| self.remove(kind, name) | is_changed);
        for object in objects {
            is_changed |= self.put(kind, object);
        }
        let has = if is_slices { &mut self.has_slices } else { &mut self.has_services };
        is_changed | !std::mem::replace(has, true)
    }

    fn put(&mut self, kind: Kind, object: &Object) -> bool {
        let name = namespaced_name(object);
        if kind == Kind::EndpointSlice {
            let Some(slice) = Slice::read(object) else { return self.remove(kind, &name) };
            if self.slices.get(&name) == Some(&slice) {
                return false;
            }
            self.remove(kind, &name);
            self.of_service.entry(slice.service.clone()).or_default().insert(name.1.clone());
            self.touch(&slice.service);
            self.slices.insert(name, slice);
            return true;
        }
        let Some(row) = Row::read(object) else { return self.remove(kind, &name) };
        if self.services.get(&name) == Some(&row) {
            return false;
        }
        if let Some(before) = self.services.get(&name) {
            self.claims.remove(&name, before.frontends());
        }
        self.claims.add(&name, row.frontends());
        self.services.insert(name, row);
        self.admit();
        true
    }

    fn remove(&mut self, kind: Kind, name: &NamespacedName) -> bool {
        if kind == Kind::EndpointSlice {
            let Some(slice) = self.slices.remove(name) else { return false };
            sets::remove(&mut self.of_service, &slice.service, &name.1);
            self.touch(&slice.service);
            return true;
        }
        let Some(row) = self.services.remove(name) else { return false };
        self.claims.remove(name, row.frontends());
        self.admit();
        true
    }

    fn touch(&mut self, service: &NamespacedName) {
        let row = self.services.get(service).into_iter();
        self.claims.touch(row.flat_map(Row::frontends));
    }

    /// Gives the room that there is to the services that were left out.
    fn admit(&mut self) {
        for name in self.claims.left_out().clone() {
            if !self.claims.has_room() {
                return;
            }
            let row = self.services.get(&name).cloned();
            self.claims.remove(&name, row.iter().flat_map(Row::frontends));
            self.claims.add(&name, row.iter().flat_map(Row::frontends));
        }
    }

    /// Returns the back ends of one port in one family, sorted; those beyond 5,000 are left out.
    fn backends(
        &self,
        service: &NamespacedName,
        is_ipv4: bool,
        (name, protocol): (&str, Protocol),
    ) -> Vec<Backend> {
        let names = self.of_service.get(service).into_iter().flatten();
        let slices = names.filter_map(|name| self.slices.get(&(service.0.clone(), name.clone())));
        let mut found: Vec<(&Endpoint, u16)> = Vec::new();
        for slice in slices.filter(|slice| slice.is_ipv4 == is_ipv4) {
            let port = slice.ports.iter().find(|port| port.0 == name && port.1 == protocol);
            let Some(&(_, _, port)) = port else { continue };
            found.extend(slice.endpoints.iter().map(|endpoint| (endpoint, port)));
        }
        // As kube-proxy: where none is ready, those that still serve while they end.
        let has_ready = found.iter().any(|(endpoint, _)| endpoint.is_ready);
        let is_used = |endpoint: &Endpoint| {
            if has_ready { endpoint.is_ready } else { endpoint.is_serving && endpoint.is_terminating }
        };
        let mut backends: Vec<Backend> = found
            .into_iter()
            .map(|(endpoint, port)| Backend {
                address: endpoint.address,
                port,
                node: endpoint.node.clone(),
                is_used: is_used(endpoint),
                is_serving: endpoint.is_ready || endpoint.is_serving && endpoint.is_terminating,
            })
            .collect();
        // A pod may be in two slices while it moves from one to the other: what is used goes first.
        backends.sort_by_key(|backend| (backend.address, backend.port, !backend.is_used));
        backends.dedup_by_key(|backend| (backend.address, backend.port));
        backends.truncate(MOST_BACKENDS_OF_ONE);
        backends
    }
}

impl Row {
    /// Returns its addresses and ports.
    fn frontends(&self) -> impl Iterator<Item = Frontend> + '_ {
        let of = |port: &(String, Protocol, u16)| (port.1, port.2);
        self.ports.iter().map(of).flat_map(|(protocol, port)| {
            self.addresses.iter().map(move |&address| Frontend { address, protocol, port })
        })
    }

    /// Reads a service; `None` if it has no cluster IP: a headless one, or another name for something else.
    fn read(object: &Object) -> Option<Self> {
        let spec = object.body.get("spec")?.as_object()?;
        if text(spec, "type") == Some("ExternalName") {
            return None;
        }
        let many = spec.get("clusterIPs").and_then(Value::as_array).into_iter().flatten();
        let one = spec.get("clusterIP").into_iter();
        let mut addresses: Vec<IpAddr> =
            many.take(2).chain(one).filter_map(|address| address.as_str()?.parse().ok()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.is_empty() {
            return None;
        }
        let keeps_clients = text(spec, "sessionAffinity") == Some("ClientIP");
        Some(Self { addresses, ports: ports(spec.get("ports")), keeps_clients })
    }
}

impl Slice {
    fn read(object: &Object) -> Option<Self> {
        let service = object.metadata.labels.get(SERVICE_NAME)?;
        let is_ipv4 = match object.body.get("addressType")?.as_str()? {
            "IPv4" => true,
            "IPv6" => false,
            _ => return None,
        };
        let endpoints = object.body.get("endpoints").and_then(Value::as_array).into_iter().flatten();
        Some(Self {
            service: (object.metadata.namespace.clone(), service.clone()),
            is_ipv4,
            ports: ports(object.body.get("ports")),
            endpoints: endpoints
                .take(MOST_ENDPOINTS)
                .filter_map(Endpoint::read)
                .filter(|endpoint| endpoint.address.is_ipv4() == is_ipv4)
                .collect(),
        })
    }
}

impl Endpoint {
    fn read(value: &Value) -> Option<Self> {
        let endpoint = value.as_object()?;
        // All of them stand for the same pod; kube-proxy looks at the first as well.
        let address = endpoint.get("addresses")?.as_array()?.first()?.as_str()?.parse().ok()?;
        let conditions = endpoint.get("conditions").and_then(Value::as_object);
        let condition = |name: &str| conditions.and_then(|all| all.get(name)).and_then(Value::as_bool);
        // What is not said is to be taken so (EndpointConditions).
        let is_ready = condition("ready").unwrap_or(true);
        Some(Self {
            address,
            node: text(endpoint, "nodeName").map(Arc::from),
            is_ready,
            is_serving: condition("serving").unwrap_or(is_ready),
            is_terminating: condition("terminating").unwrap_or(false),
        })
    }
}

/// Returns name, protocol and number of each port of a list that has all three.
fn ports(list: Option<&Value>) -> Vec<(String, Protocol, u16)> {
    let list = list.and_then(Value::as_array).into_iter().flatten().take(MOST_PORTS);
    list.filter_map(|port| {
        let port = port.as_object()?;
        let number = port.get("port")?.as_u64().and_then(|number| u16::try_from(number).ok())?;
        let protocol = Protocol::of(text(port, "protocol").unwrap_or("TCP"))?;
        Some((text(port, "name").unwrap_or_default().to_owned(), protocol, number))
    })
    .collect()
}

fn text<'a>(object: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    object.get(field).and_then(Value::as_str)
}

fn namespaced_name(object: &Object) -> NamespacedName {
    (object.metadata.namespace.clone(), object.metadata.name.clone())
}

#[cfg(test)]
mod tests;
