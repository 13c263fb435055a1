//! ServiceExports: which GlobalIngressIPs there are to be, and what their names, labels and annotations are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::facts::{Ingress, Pod, Service, ServiceKind, endpoint_addresses, shown};
use super::objects::{Objects, Scope};
use super::plan::Writing;
use super::state::Problem;
use crate::api::{GlobalIngressIp, Kind, Object, Resource, label};
use crate::runner::Write;

/// Which namespaces' pods and endpoints have to be known to tell.
pub(super) fn needs(objects: &Objects) -> BTreeSet<Scope> {
    let needs = exported(objects).filter_map(|service| {
        let kind = match (service.kind(), service.has_selector()) {
            (ServiceKind::Headless, true) => Kind::Pod,
            (ServiceKind::Headless | ServiceKind::ClusterIp, false) => Kind::CoreEndpoints,
            (ServiceKind::ClusterIp, true) | (ServiceKind::Other, _) => return None,
        };
        Some((kind, service.object.metadata.namespace.clone()))
    });
    needs.collect()
}

/// The services that are exported and are there. What Globalnet itself has made is not exported, whoever says so.
fn exported(objects: &Objects) -> impl Iterator<Item = Service<'_>> {
    let exports = objects.of(Kind::ServiceExport).map(|export| &export.metadata);
    let services = exports.filter_map(|export| objects.get(Kind::Service, &export.namespace, &export.name));
    services.map(Service::new).filter(|service| service.stands_for().is_none())
}

/// What to write so that there is a GlobalIngressIP for each exported service, pod or endpoint, and for no other.
pub(super) fn plan(objects: &Objects, writing: &mut Writing) {
    let wanted = Wanted::gather(objects, writing);
    for existing in objects.of(Kind::GlobalIngressIp).filter_map(Ingress::new) {
        let metadata = &existing.object.metadata;
        let place = (metadata.namespace.clone(), metadata.name.clone());
        let candidates = wanted.objects.get(&place).map_or(&[][..], Vec::as_slice);
        if metadata.is_terminating() || wanted.is_unknown(&existing) && candidates.is_empty() {
            continue;
        }
        match candidates.iter().find(|candidate| is_for(&existing, candidate)) {
            Some(candidate) => writing.extend(amend(existing.object, candidate).map(Write::Update)),
            None if existing.is_of_export() => writing.push(Write::Delete(existing.object.clone())),
            None if !candidates.is_empty() => writing.problem(Problem {
                name: "GlobalIngressNameTaken",
                subject: existing.object.key().to_string(),
                message: "has the name of an exported service's or pod's own, which has no global IP now; rename it"
                    .to_owned(),
            }),
            None => {}
        }
    }
    for ((namespace, name), candidates) in &wanted.objects {
        if objects.get(Kind::GlobalIngressIp, namespace, name).is_none()
            && let Some(first) = candidates.first()
        {
            writing.push(Write::Create(first.to_object()));
        }
        if candidates.len() > 1 {
            writing.problem(Problem {
                name: "GlobalIngressNameTaken",
                subject: format!("GlobalIngressIP {namespace}/{name}"),
                message: format!(
                    "{} exported services or pods share this name; one of them has it",
                    candidates.len()
                ),
            });
        }
    }
}

/// Whether an object is for the same as a wanted one.
fn is_for(existing: &Ingress<'_>, wanted: &GlobalIngressIp) -> bool {
    let name = |reference: &Option<crate::api::LocalReference>| {
        reference.as_ref().map_or(String::new(), |reference| reference.name.clone())
    };
    existing.target == wanted.spec.target
        && existing.service == name(&wanted.spec.service_ref)
        && existing.pod == name(&wanted.spec.pod_ref)
}

/// The object with the wanted one's annotations (a pod that came back has another address, and keeps its global one), and
/// the label by which it is found.
fn amend(existing: &Object, wanted: &GlobalIngressIp) -> Option<Object> {
    let mut amended = existing.clone();
    amended.metadata.annotations.extend(wanted.metadata.annotations.clone());
    if let Some(service) = wanted.metadata.labels.get(label::SERVICE_REF) {
        amended.metadata.labels.insert(label::SERVICE_REF.to_owned(), service.clone());
    }
    (!amended.same_content(existing)).then_some(amended)
}

#[derive(Default)]
struct Wanted {
    /// By namespace and name; several where names are cut, or a pod is of several services.
    objects: BTreeMap<(String, String), Vec<GlobalIngressIp>>,
    /// Headless services whose pods or endpoints are not known.
    unknown: BTreeSet<(String, String)>,
}

impl Wanted {
    fn gather(objects: &Objects, writing: &mut Writing) -> Self {
        let mut wanted = Self::default();
        for service in exported(objects) {
            match (service.kind(), service.has_selector()) {
                (ServiceKind::ClusterIp, _) => wanted.cluster_ip(&service, writing),
                (ServiceKind::Headless, true) => wanted.pods(&service, objects, writing),
                (ServiceKind::Headless, false) => wanted.endpoints(&service, objects, writing),
                (ServiceKind::Other, _) => writing.problem(Problem {
                    name: "ServiceNotExported",
                    subject: service.object.key().to_string(),
                    message: format!(
                        "is exported and is of type {}: with Globalnet only services of type ClusterIP are",
                        service.type_name().chars().take(32).flat_map(char::escape_debug).collect::<String>()
                    ),
                }),
            }
        }
        wanted
    }

    /// Whether it cannot be told whether this one is to be.
    fn is_unknown(&self, existing: &Ingress<'_>) -> bool {
        let namespace = existing.object.metadata.namespace.clone();
        self.unknown.contains(&(namespace, existing.service.to_owned()))
    }

    fn cluster_ip(&mut self, service: &Service<'_>, writing: &mut Writing) {
        let metadata = &service.object.metadata;
        let made = GlobalIngressIp::for_service(&metadata.namespace, &metadata.name).map(|mut object| {
            let namespace = metadata.namespace.clone();
            object.metadata.labels.insert(label::ORIGINATING_NAMESPACE.to_owned(), namespace);
            object
        });
        self.add(service, made, writing);
    }

    fn pods(&mut self, service: &Service<'_>, objects: &Objects, writing: &mut Writing) {
        let metadata = &service.object.metadata;
        let (namespace, name) = (&metadata.namespace, &metadata.name);
        if !objects.is_known(Kind::Pod, namespace) {
            self.unknown.insert((namespace.clone(), name.clone()));
            return;
        }
        for pod in objects.inside(Kind::Pod, namespace).map(Pod::new) {
            let is_published = pod.is_running() || service.publishes_not_ready();
            if !is_published || !service.selects(&pod.object.metadata.labels) {
                continue;
            }
            if let Some(address) = pod.address() {
                let pod = &pod.object.metadata.name;
                self.add(service, GlobalIngressIp::for_headless_pod(namespace, name, pod, address), writing);
            } else if pod.is_ipv6() {
                writing.problem(no_ipv6(service, &shown(pod.object)));
            }
        }
    }

    fn endpoints(&mut self, service: &Service<'_>, objects: &Objects, writing: &mut Writing) {
        let metadata = &service.object.metadata;
        let (namespace, name) = (&metadata.namespace, &metadata.name);
        if !objects.is_known(Kind::CoreEndpoints, namespace) {
            self.unknown.insert((namespace.clone(), name.clone()));
            return;
        }
        let Some(endpoints) = objects.get(Kind::CoreEndpoints, namespace, name) else { return };
        let (addresses, has_other) = endpoint_addresses(endpoints);
        if has_other {
            writing.problem(no_ipv6(service, &shown(endpoints)));
        }
        for address in addresses {
            let made =
                |address: Ipv4Addr| GlobalIngressIp::for_headless_endpoints(namespace, name, name, address);
            self.add(service, made(address), writing);
        }
    }

    fn add(
        &mut self,
        service: &Service<'_>,
        made: Result<GlobalIngressIp, crate::api::ApiError>,
        writing: &mut Writing,
    ) {
        match made {
            Ok(object) => {
                let place = (object.metadata.namespace.clone(), object.metadata.name.clone());
                self.objects.entry(place).or_default().push(object);
            }
            Err(error) => writing.problem(Problem {
                name: "ServiceNotExported",
                subject: service.object.key().to_string(),
                message: format!("no GlobalIngressIP can be made: {error}"),
            }),
        }
    }
}

fn no_ipv6(service: &Service<'_>, who: &str) -> Problem {
    Problem {
        name: "Ipv6NotExported",
        subject: service.object.key().to_string(),
        message: format!(
            "{who} has an address that is not an IPv4 one of a pod: global IPs are IPv4 addresses"
        ),
    }
}
