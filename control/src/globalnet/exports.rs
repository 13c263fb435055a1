//! ServiceExports: which GlobalIngressIPs there are to be, and what their names, labels and annotations are.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{Ingress, Pod, Service, ServiceKind, endpoint_addresses, shown};
use super::index::{Index, LabelKey};
use super::objects::{Objects, Scope};
use super::state::Problem;
use super::units::{Name, Outputs, Target, Unit};
use super::writing::Writing;
use crate::api::{ApiError, GlobalIngressIp, Kind, Object, Resource, label};
use crate::runner::Write;
use crate::sets::remove;

/// Which services are exported, and what each of them asks for.
#[derive(Debug, Default)]
pub(super) struct Exports {
    exports: BTreeMap<Name, Export>,
    /// The services that ask for each GlobalIngressIP: several where names are cut, or a pod is of several services.
    wanted: BTreeMap<Name, BTreeSet<(String, Target)>>,
    /// Headless services by the first label that they select their pods by; `None` if they select all.
    selecting: BTreeMap<(String, Option<LabelKey>), BTreeSet<String>>,
}

/// The request of an exported service.
#[derive(Debug, Default)]
struct Export {
    /// The names of GlobalIngressIPs.
    wanted: BTreeMap<Target, String>,
    problems: BTreeSet<Target>,
    /// Whether its pods or endpoints are not known.
    is_unknown: bool,
    /// The scopes to be watched for it.
    scope: Option<Scope>,
    selects_by: Option<Option<LabelKey>>,
}

/// The result for one unit of an export: a GlobalIngressIP, a problem, or nothing.
type Wish = Option<Result<GlobalIngressIp, Problem>>;

impl Exports {
    /// Returns the exported services of a namespace; of all of them if it is empty.
    pub(super) fn of_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Name> {
        let of = self.exports.range((namespace.to_owned(), String::new())..).map(|(name, _)| name);
        of.take_while(move |(of, _)| namespace.is_empty() || of == namespace)
    }

    /// Returns the headless services that may select a pod with these labels.
    pub(super) fn selecting(&self, pod: &Object) -> BTreeSet<String> {
        let namespace = &pod.metadata.namespace;
        let labels = pod.metadata.labels.iter().map(|(key, value)| Some((key.clone(), value.clone())));
        let keys = labels.chain([None]).map(|label| (namespace.clone(), label));
        keys.filter_map(|key| self.selecting.get(&key)).flatten().cloned().collect()
    }

    /// Decides anew what a service asks for. Returns the GlobalIngressIPs that this may concern, and the scope that had
    /// to be known for it before, and has to be now.
    pub(super) fn update(
        &mut self,
        name: &Name,
        (objects, index): (&Objects, &Index),
        outputs: &mut Outputs,
    ) -> (BTreeSet<Name>, Option<Scope>, Option<Scope>) {
        let before = self.exports.remove(name).unwrap_or_default();
        let mut concerned = BTreeSet::new();
        for (target, ingress) in &before.wanted {
            self.unwish(name, target, ingress, &mut concerned);
        }
        if let Some(by) = before.selects_by {
            remove(&mut self.selecting, &(name.0.clone(), by), &name.1);
        }
        let after = exported(objects, name).map(|service| self.gather(&service, name, (objects, index)));
        let Some((mut export, wishes)) = after else {
            for target in before.problems {
                outputs.remove(&Unit::Export(name.clone(), target));
            }
            if before.is_unknown {
                concerned.extend(index.ingresses_of(name));
            }
            return (concerned, before.scope, None);
        };
        if export.is_unknown != before.is_unknown {
            concerned.extend(index.ingresses_of(name));
        }
        for (target, wish) in wishes {
            self.wish(name, &mut export, (target, wish), outputs, &mut concerned);
        }
        for target in before.problems.difference(&export.problems) {
            outputs.remove(&Unit::Export(name.clone(), target.clone()));
        }
        let scope = export.scope.clone();
        self.exports.insert(name.clone(), export);
        (concerned, before.scope, scope)
    }

    /// Decides anew what a headless service asks for one of its pods. Returns the GlobalIngressIPs that this may concern.
    pub(super) fn update_pod(
        &mut self,
        name: &Name,
        pod: &str,
        objects: &Objects,
        outputs: &mut Outputs,
    ) -> BTreeSet<Name> {
        let mut concerned = BTreeSet::new();
        let Some(mut export) = self.exports.remove(name) else { return concerned };
        if !export.is_unknown
            && let Some(service) = exported(objects, name)
        {
            let target = Target::Pod(pod.to_owned());
            if let Some(ingress) = export.wanted.remove(&target) {
                self.unwish(name, &target, &ingress, &mut concerned);
            }
            let had_problem = export.problems.remove(&target);
            let pod = objects.get(Kind::Pod, &name.0, pod).map(Pod::new);
            let wish = pod.and_then(|pod| wish_for_pod(&service, &pod));
            if had_problem && !matches!(wish, Some(Err(_))) {
                outputs.remove(&Unit::Export(name.clone(), target.clone()));
            }
            self.wish(name, &mut export, (target, wish), outputs, &mut concerned);
        }
        self.exports.insert(name.clone(), export);
        concerned
    }

    fn wish(
        &mut self,
        name: &Name,
        export: &mut Export,
        (target, wish): (Target, Wish),
        outputs: &mut Outputs,
        concerned: &mut BTreeSet<Name>,
    ) {
        match wish {
            Some(Ok(object)) => {
                let ingress = object.metadata.name;
                let place = (name.0.clone(), ingress.clone());
                self.wanted.entry(place.clone()).or_default().insert((name.1.clone(), target.clone()));
                concerned.insert(place);
                export.wanted.insert(target, ingress);
            }
            Some(Err(problem)) => {
                let writing = Writing::of_problems(vec![problem]);
                outputs.set(Unit::Export(name.clone(), target.clone()), writing);
                export.problems.insert(target);
            }
            None => {}
        }
    }

    fn unwish(&mut self, name: &Name, target: &Target, ingress: &str, concerned: &mut BTreeSet<Name>) {
        let place = (name.0.clone(), ingress.to_owned());
        remove(&mut self.wanted, &place, &(name.1.clone(), target.clone()));
        concerned.insert(place);
    }

    /// Returns what a service is, and what it asks for.
    fn gather(
        &mut self,
        service: &Service<'_>,
        name: &Name,
        (objects, index): (&Objects, &Index),
    ) -> (Export, Vec<(Target, Wish)>) {
        let mut export = Export::default();
        let mut wishes = Vec::new();
        match (service.kind(), service.has_selector()) {
            (ServiceKind::ClusterIp, has_selector) => {
                export.scope = (!has_selector).then(|| (Kind::CoreEndpoints, name.0.clone()));
                wishes.push((Target::Service, make(service, &Target::Service, objects)));
            }
            (ServiceKind::Headless, true) => {
                export.scope = Some((Kind::Pod, name.0.clone()));
                export.is_unknown = !objects.is_known(Kind::Pod, &name.0);
                let by = service.selector().first_key_value().map(|(key, value)| {
                    let label: LabelKey = ((*key).to_owned(), (*value).to_owned());
                    label
                });
                self.selecting.entry((name.0.clone(), by.clone())).or_default().insert(name.1.clone());
                if !export.is_unknown {
                    let pods = index.pods(objects, &name.0, by.as_ref());
                    wishes.extend(pods.map(|pod| {
                        (Target::Pod(pod.metadata.name.clone()), wish_for_pod(service, &Pod::new(pod)))
                    }));
                }
                export.selects_by = Some(by);
            }
            (ServiceKind::Headless, false) => {
                export.scope = Some((Kind::CoreEndpoints, name.0.clone()));
                export.is_unknown = !objects.is_known(Kind::CoreEndpoints, &name.0);
                if !export.is_unknown {
                    wishes = wish_for_endpoints(service, objects);
                }
            }
            (ServiceKind::Other, _) => wishes.push((Target::Service, Some(Err(not_exported(service))))),
        }
        (export, wishes)
    }

    /// Decides about the GlobalIngressIP of a name: one for each exported service, pod or endpoint, and no other.
    pub(super) fn decide(&self, name: &Name, objects: &Objects, writing: &mut Writing) {
        let (namespace, ingress) = name;
        let asking = self.wanted.get(name).into_iter().flatten();
        let candidates: Vec<GlobalIngressIp> = asking
            .filter_map(|(service, target)| {
                let service = exported(objects, &(namespace.clone(), service.clone()))?;
                make(&service, target, objects)?.ok()
            })
            .collect();
        let existing = objects.get(Kind::GlobalIngressIp, namespace, ingress);
        if let Some(existing) = existing.and_then(Ingress::new) {
            self.amend(&existing, &candidates, writing);
        }
        if existing.is_none()
            && let Some(first) = candidates.first()
        {
            writing.push(Write::Create(first.to_object()));
        }
        if candidates.len() > 1 {
            writing.problem(Problem {
                name: "GlobalIngressNameTaken",
                subject: format!("GlobalIngressIP {namespace}/{ingress}"),
                message: format!(
                    "{} exported services or pods share this name; one of them has it",
                    candidates.len()
                ),
            });
        }
    }

    fn amend(&self, existing: &Ingress<'_>, candidates: &[GlobalIngressIp], writing: &mut Writing) {
        let metadata = &existing.object.metadata;
        let of = (metadata.namespace.clone(), existing.service.to_owned());
        // Whether it cannot be told whether this one is to be.
        let is_unknown = self.exports.get(&of).is_some_and(|export| export.is_unknown);
        if metadata.is_terminating() || is_unknown && candidates.is_empty() {
            return;
        }
        match candidates.iter().find(|candidate| is_for(existing, candidate)) {
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
}

/// Returns the service of this name, if it is exported and is there. A service that Globalnet itself made is never
/// exported.
fn exported<'a>(objects: &'a Objects, (namespace, name): &Name) -> Option<Service<'a>> {
    objects.get(Kind::ServiceExport, namespace, name)?;
    let service = objects.get(Kind::Service, namespace, name).map(Service::new);
    service.filter(|service| service.stands_for().is_none())
}

/// Returns the GlobalIngressIP of a service, or of a pod or an address of it; `None` if there is none such.
fn make(service: &Service<'_>, target: &Target, objects: &Objects) -> Wish {
    let metadata = &service.object.metadata;
    let (namespace, name) = (&metadata.namespace, &metadata.name);
    let made = match target {
        Target::Service => GlobalIngressIp::for_service(namespace, name).map(|mut object| {
            object.metadata.labels.insert(label::ORIGINATING_NAMESPACE.to_owned(), namespace.clone());
            object
        }),
        Target::Pod(pod) => {
            let address = Pod::new(objects.get(Kind::Pod, namespace, pod)?).address()?;
            GlobalIngressIp::for_headless_pod(namespace, name, pod, address)
        }
        Target::Address(address) => GlobalIngressIp::for_headless_endpoints(namespace, name, name, *address),
    };
    Some(made.map_err(|error| cannot_make(service, &error)))
}

fn wish_for_pod(service: &Service<'_>, pod: &Pod<'_>) -> Wish {
    let is_published = pod.is_running() || service.publishes_not_ready();
    if !is_published || !service.selects(&pod.object.metadata.labels) {
        return None;
    }
    let metadata = &service.object.metadata;
    match pod.address() {
        Some(address) => {
            let pod = &pod.object.metadata.name;
            let made = GlobalIngressIp::for_headless_pod(&metadata.namespace, &metadata.name, pod, address);
            Some(made.map_err(|error| cannot_make(service, &error)))
        }
        None => pod.is_ipv6().then(|| Err(no_ipv6(service, &shown(pod.object)))),
    }
}

fn wish_for_endpoints(service: &Service<'_>, objects: &Objects) -> Vec<(Target, Wish)> {
    let metadata = &service.object.metadata;
    let endpoints = objects.get(Kind::CoreEndpoints, &metadata.namespace, &metadata.name);
    let Some(endpoints) = endpoints else { return Vec::new() };
    let (addresses, has_other) = endpoint_addresses(endpoints);
    let other = has_other.then(|| (Target::Service, Some(Err(no_ipv6(service, &shown(endpoints))))));
    let targets = addresses.into_iter().map(Target::Address);
    let made = targets.map(|target| {
        let wish = make(service, &target, objects);
        (target, wish)
    });
    other.into_iter().chain(made).collect()
}

fn not_exported(service: &Service<'_>) -> Problem {
    let of = service.type_name().chars().take(32).flat_map(char::escape_debug).collect::<String>();
    Problem {
        name: "ServiceNotExported",
        subject: service.object.key().to_string(),
        message: format!(
            "is exported and is of type {of}: with Globalnet only services of type ClusterIP are"
        ),
    }
}

fn cannot_make(service: &Service<'_>, error: &ApiError) -> Problem {
    Problem {
        name: "ServiceNotExported",
        subject: service.object.key().to_string(),
        message: format!("no GlobalIngressIP can be made: {error}"),
    }
}

/// Returns `true` if an object is for the same as a wanted one.
fn is_for(existing: &Ingress<'_>, wanted: &GlobalIngressIp) -> bool {
    let name = |reference: &Option<crate::api::LocalReference>| {
        reference.as_ref().map_or(String::new(), |reference| reference.name.clone())
    };
    existing.target == wanted.spec.target
        && existing.service == name(&wanted.spec.service_ref)
        && existing.pod == name(&wanted.spec.pod_ref)
}

/// Returns the object with the wanted one's annotations (a pod that came back has another address, and keeps its global
/// one), and the label by which it is found; `None` if it has them.
fn amend(existing: &Object, wanted: &GlobalIngressIp) -> Option<Object> {
    let mut amended = existing.clone();
    amended.metadata.annotations.extend(wanted.metadata.annotations.clone());
    if let Some(service) = wanted.metadata.labels.get(label::SERVICE_REF) {
        amended.metadata.labels.insert(label::SERVICE_REF.to_owned(), service.clone());
    }
    (!amended.same_content(existing)).then_some(amended)
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
