//! Internal Services, which answer under an exported service's global IP by kube-proxy where upstream translates, and
//! the copies of Endpoints that those without selector need.
//!
//! Our own translation goes straight to the exported service's cluster IP and needs neither; they are kept as upstream
//! makes them so that a cluster can go back, and its users and tools find what they look for.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

use super::facts::{Ingress, Service, ServiceKind};
use super::ledger::Ledger;
use super::objects::Objects;
use super::plan::Writing;
use super::state::Problem;
use crate::api::{IngressTarget, Kind, Object, ObjectMeta, finalizer, internal_service_name, label};
use crate::runner::Write;

/// What to write so that there is an internal Service for each exported service that has an address, and no other.
pub(super) fn plan(objects: &Objects, ledger: &Ledger, writing: &mut Writing) {
    let wanted = wanted(objects, ledger);
    for existing in objects.of(Kind::Service).map(Service::new) {
        let metadata = &existing.object.metadata;
        let place = (metadata.namespace.clone(), metadata.name.clone());
        let is_ours = existing.stands_for().is_some() || metadata.has_finalizer(finalizer::INTERNAL_SERVICE);
        match wanted.get(&place) {
            Some(_) if metadata.is_terminating() => writing.extend(let_go(existing.object)),
            Some(internal) if is_ours => {
                let amended = internal.amend(existing.object);
                writing.extend((amended != *existing.object).then_some(Write::Update(amended)));
            }
            Some(internal) => writing.problem(Problem {
                name: "InternalServiceNameTaken",
                subject: existing.object.key().to_string(),
                message: format!(
                    "is not Globalnet's and has the name of {}'s internal service",
                    internal.name()
                ),
            }),
            None if is_ours => writing.extend(remove(existing.object, objects)),
            None => {}
        }
    }
    for ((namespace, name), internal) in &wanted {
        if objects.get(Kind::Service, namespace, name).is_none() {
            let service = Object::new(Kind::Service, ObjectMeta::new(namespace, name));
            writing.push(Write::Create(internal.amend(&service)));
        }
    }
    endpoints(objects, &wanted, writing);
}

/// An internal Service that there is to be.
struct Internal<'a> {
    service: Service<'a>,
    address: Ipv4Addr,
}

fn wanted<'a>(objects: &'a Objects, ledger: &Ledger) -> BTreeMap<(String, String), Internal<'a>> {
    let mut wanted = BTreeMap::new();
    for ingress in objects.of(Kind::GlobalIngressIp).filter_map(Ingress::new) {
        let namespace = &ingress.object.metadata.namespace;
        let service = objects.get(Kind::Service, namespace, ingress.service).map(Service::new);
        if ingress.target == IngressTarget::ClusterIpService
            && let Some(service) = service.filter(|service| service.kind() == ServiceKind::ClusterIp)
            && let Some(address) = ledger.held(&ingress.object.key()).first()
        {
            let place = (namespace.clone(), internal_service_name(ingress.service));
            // Of two for one service, the first is upstream's own.
            wanted.entry(place).or_insert(Internal { service, address: *address });
        }
    }
    wanted
}

impl Internal<'_> {
    fn name(&self) -> &str {
        &self.service.object.metadata.name
    }

    /// The internal Service as it is to be; what the API server has added stays.
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

/// Namespaces whose Endpoints have to be known: those with an internal service that has no selector.
pub(super) fn needs_endpoints(objects: &Objects) -> impl Iterator<Item = String> {
    let internal = objects.of(Kind::Service).map(Service::new);
    let internal = internal.filter(|service| service.stands_for().is_some() && !service.has_selector());
    internal.map(|service| service.object.metadata.namespace.clone())
}

/// What to write so that each internal Service without selector leads where the exported one leads.
fn endpoints(objects: &Objects, wanted: &BTreeMap<(String, String), Internal<'_>>, writing: &mut Writing) {
    let original = |namespace: &str, name: &str| {
        let internal = wanted.get(&(namespace.to_owned(), name.to_owned()));
        let internal = internal.filter(|internal| !internal.service.has_selector())?;
        objects.get(Kind::CoreEndpoints, namespace, internal.name())
    };
    for copy in objects.of(Kind::CoreEndpoints).filter(|object| is_copy(object)) {
        let ObjectMeta { namespace, name, .. } = &copy.metadata;
        if original(namespace, name).is_none() {
            writing.push(Write::Delete(copy.clone()));
        }
    }
    for (namespace, name) in wanted.keys() {
        let Some(original) = original(namespace, name) else { continue };
        let subsets = original.body.get("subsets").cloned().unwrap_or_else(|| json!([]));
        let existing = objects.get(Kind::CoreEndpoints, namespace, name);
        let mut copy = existing
            .cloned()
            .unwrap_or_else(|| Object::new(Kind::CoreEndpoints, ObjectMeta::new(namespace, name)));
        copy.metadata.labels.insert(label::CLONED_FROM.to_owned(), original.metadata.name.clone());
        let has_none = subsets.as_array().is_some_and(Vec::is_empty) && !copy.body.contains_key("subsets");
        if !has_none {
            copy.body.insert("subsets".to_owned(), subsets);
        }
        match existing {
            None => writing.push(Write::Create(copy)),
            Some(existing) if copy != *existing => writing.push(Write::Update(copy)),
            Some(_) => {}
        }
    }
}
