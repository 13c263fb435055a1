//! Internal Services, which answer under an exported service's global IP by kube-proxy where upstream translates, and
//! the copies of Endpoints that those without selector need.
//!
//! Our own translation goes straight to the exported service's cluster IP and needs neither; they are kept as upstream
//! makes them so that a cluster can go back, and its users and tools find what they look for.

use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

use super::facts::{Ingress, Service, ServiceKind};
use super::index::Index;
use super::ledger::Ledger;
use super::objects::{Objects, Scope};
use super::state::Problem;
use super::units::Name;
use super::writing::Writing;
use crate::api::{Kind, Object, ObjectMeta, finalizer, internal_service_name, label};
use crate::runner::Write;

/// Decides about the internal Service of a name, of which there is one for each exported service that has an address.
/// Returns what to write of the copy of Endpoints that it needs.
pub(super) fn decide(
    name: &Name,
    (objects, index, ledger): (&Objects, &Index, &Ledger),
    writing: &mut Writing,
) -> Option<Write> {
    let wanted = wanted(name, (objects, index, ledger));
    let (namespace, internal_name) = name;
    let existing = objects.get(Kind::Service, namespace, internal_name).map(Service::new);
    let is_ours = existing.is_some_and(|existing| {
        existing.stands_for().is_some() || existing.object.metadata.has_finalizer(finalizer::INTERNAL_SERVICE)
    });
    match (existing, &wanted) {
        (Some(existing), Some(_)) if existing.object.metadata.is_terminating() => {
            writing.extend(let_go(existing.object));
        }
        (Some(existing), Some(internal)) if is_ours => {
            let amended = internal.amend(existing.object);
            writing.extend((amended != *existing.object).then_some(Write::Update(amended)));
        }
        (Some(existing), Some(internal)) => writing.problem(Problem {
            name: "InternalServiceNameTaken",
            subject: existing.object.key().to_string(),
            message: format!("is not Globalnet's and has the name of {}'s internal service", internal.name()),
        }),
        (Some(existing), None) if is_ours => writing.extend(remove(existing.object, objects)),
        (Some(_), None) | (None, None) => {}
        (None, Some(internal)) => {
            let service = Object::new(Kind::Service, ObjectMeta::new(namespace, internal_name));
            writing.push(Write::Create(internal.amend(&service)));
        }
    }
    endpoints(name, wanted.as_ref(), objects)
}

/// Returns the scope that has to be known because of a Service: the Endpoints of a namespace with an internal one that has
/// no selector.
pub(super) fn needs_endpoints(object: &Object) -> Option<Scope> {
    let service = Service::new(object);
    let is_needed = service.stands_for().is_some() && !service.has_selector();
    is_needed.then(|| (Kind::CoreEndpoints, object.metadata.namespace.clone()))
}

/// An internal Service that there is to be.
struct Internal<'a> {
    service: Service<'a>,
    address: Ipv4Addr,
}

/// Returns the internal Service that there is to be of this name. Of two GlobalIngressIPs for one service, the first is
/// upstream's own.
fn wanted<'a>(name: &Name, (objects, index, ledger): (&'a Objects, &Index, &Ledger)) -> Option<Internal<'a>> {
    index.ingresses_behind(name).find_map(|ingress| {
        let ingress = Ingress::new(objects.get(Kind::GlobalIngressIp, &name.0, ingress)?)?;
        let service = objects.get(Kind::Service, &name.0, ingress.service).map(Service::new)?;
        let address = ledger.held(&ingress.object.key()).first()?;
        (service.kind() == ServiceKind::ClusterIp).then_some(Internal { service, address: *address })
    })
}

impl Internal<'_> {
    fn name(&self) -> &str {
        &self.service.object.metadata.name
    }

    /// Returns the internal Service as it is to be; the API server's additions stay.
    fn amend(&self, existing: &Object) -> Object {
        let mut object = existing.clone();
        object.metadata.labels.insert(label::EXPORTED_SERVICE_REF.to_owned(), self.name().to_owned());
        object.metadata.add_finalizer(finalizer::INTERNAL_SERVICE);
        let is_new = existing.metadata.resource_version.is_none();
        let exported = self.service.object.body.get("spec").and_then(Value::as_object);
        let spec = object.body.entry("spec").or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(spec) = spec else { return object };
        for field in ["ports", "selector"] {
            match exported.and_then(|exported| exported.get(field)) {
                Some(value) => drop(spec.insert(field.to_owned(), value.clone())),
                None => drop(spec.remove(field)),
            }
        }
        spec.insert("externalIPs".to_owned(), json!([self.address.to_string()]));
        if is_new {
            spec.insert("ipFamilyPolicy".to_owned(), Value::from("SingleStack"));
            spec.insert("ipFamilies".to_owned(), json!(["IPv4"]));
        }
        object
    }
}

/// Takes our finalizer off.
fn let_go(object: &Object) -> Option<Write> {
    let mut free = object.clone();
    free.metadata.remove_finalizer(finalizer::INTERNAL_SERVICE);
    (free != *object).then_some(Write::Update(free))
}

/// Removes an internal Service: its finalizer first, and the Service when no copy of Endpoints is left that only it tells of.
fn remove(object: &Object, objects: &Objects) -> Option<Write> {
    if let Some(write) = let_go(object) {
        return Some(write);
    }
    let ObjectMeta { namespace, name, .. } = &object.metadata;
    let has_copy = objects.get(Kind::CoreEndpoints, namespace, name).is_some_and(is_copy);
    (!object.metadata.is_terminating() && !has_copy).then(|| Write::Delete(object.clone()))
}

pub(super) fn is_copy(endpoints: &Object) -> bool {
    let original = endpoints.metadata.labels.get(label::CLONED_FROM);
    original.is_some_and(|original| internal_service_name(original) == endpoints.metadata.name)
}

/// Returns what to write so that an internal Service without selector leads where the exported one leads.
fn endpoints((namespace, name): &Name, wanted: Option<&Internal<'_>>, objects: &Objects) -> Option<Write> {
    let internal = wanted.filter(|internal| !internal.service.has_selector());
    let original = internal.and_then(|internal| objects.get(Kind::CoreEndpoints, namespace, internal.name()));
    let existing = objects.get(Kind::CoreEndpoints, namespace, name);
    let Some(original) = original else {
        return existing.filter(|existing| is_copy(existing)).cloned().map(Write::Delete);
    };
    let subsets = original.body.get("subsets").cloned().unwrap_or_else(|| json!([]));
    let mut copy = existing
        .cloned()
        .unwrap_or_else(|| Object::new(Kind::CoreEndpoints, ObjectMeta::new(namespace, name)));
    copy.metadata.labels.insert(label::CLONED_FROM.to_owned(), original.metadata.name.clone());
    let has_none = subsets.as_array().is_some_and(Vec::is_empty) && !copy.body.contains_key("subsets");
    if !has_none {
        copy.body.insert("subsets".to_owned(), subsets);
    }
    match existing {
        None => Some(Write::Create(copy)),
        Some(existing) => (copy != *existing).then_some(Write::Update(copy)),
    }
}
