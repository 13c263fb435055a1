//! The walk from an export to its answer, as far as nobody has to be asked: a function of the evidence.
//!
//! A service that a step finds broken is not looked at by the next ones, so that each is named once, by the step that breaks it.

use std::collections::BTreeSet;

use trieste_control::steps::Outcome;

use super::evidence::{AGENT, DNS, Deployment, Evidence, KubeFacts};
use crate::discovery::{Name, Service};

/// A step of the walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) title: &'static str,
    pub(super) state: State,
}

/// What a step has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// What there is to say; nothing if all is well.
    Done(Vec<(Outcome, String)>),
    /// It has no meaning without Kubernetes.
    NotApplicable,
    /// What comes before it is broken.
    NotReached,
}

/// What the walk has come to.
pub(super) struct Walked {
    pub(super) steps: Vec<Step>,
    /// The services that should be answered.
    pub(super) well: Vec<Service>,
    /// Whether the cluster's own DNS should forward to the server, as far as could be seen.
    pub(super) is_forwarded: bool,
}

type Remarks = Vec<(Outcome, String)>;

/// Walks, for all services of the cluster or for one.
pub(super) fn walk(evidence: &Evidence, only: Option<&Name>) -> Walked {
    let all = evidence.discovery.services();
    let services = all.into_iter().filter(|service| only.is_none_or(|name| service.name == *name)).collect();
    let mut walker = Walker { evidence, services, broken: BTreeSet::new(), steps: Vec::new() };
    walker.exports(only);
    walker.each("Checking the conditions of exports", conditions);
    walker.agent();
    walker.each("Checking that the broker has the exports", published);
    walker.each("Checking the imports", imported);
    walker.each("Checking that endpoints are ready", ready);
    walker.each("Checking that gateways are connected to exporting clusters", connected);
    let is_forwarded = walker.kubernetes();
    let Walker { services, broken, steps, .. } = walker;
    let well = services.into_iter().filter(|service| !broken.contains(&service.name)).collect();
    Walked { steps, well, is_forwarded }
}

struct Walker<'e> {
    evidence: &'e Evidence,
    services: Vec<Service>,
    broken: BTreeSet<Name>,
    steps: Vec<Step>,
}

impl Walker<'_> {
    fn add(&mut self, title: &'static str, state: State) {
        self.steps.push(Step { title, state });
    }

    fn exports(&mut self, only: Option<&Name>) {
        let mut remarks = Remarks::new();
        match only {
            Some(name) if self.services.is_empty() => {
                let Name { namespace, name: service } = name;
                let text = format!(
                    "{name} is neither exported by this cluster nor imported from another: run `trieste export service \
                     {service} -n {namespace}` in a cluster that has it{}",
                    without_namespace(self.evidence, name)
                );
                remarks.push((Outcome::Failure, text));
            }
            None if self.services.is_empty() => {
                remarks.push((Outcome::Warning, "No services are exported or imported".to_owned()));
            }
            Some(_) | None => {}
        }
        self.add("Checking exports and imports", State::Done(remarks));
    }

    /// Checks each service that is not broken yet.
    fn each(&mut self, title: &'static str, check: fn(&Evidence, &Service) -> Remarks) {
        let left: Vec<&Service> =
            self.services.iter().filter(|service| !self.broken.contains(&service.name)).collect();
        if left.is_empty() {
            return self.add(title, State::NotReached);
        }
        let (mut remarks, mut broken) = (Remarks::new(), Vec::new());
        for service in left {
            let found = check(self.evidence, service);
            if found.iter().any(|(outcome, _)| *outcome == Outcome::Failure) {
                broken.push(service.name.clone());
            }
            let about = |(outcome, text)| (outcome, format!("{}: {text}", service.name));
            remarks.extend(found.into_iter().map(about));
        }
        self.broken.extend(broken);
        self.add(title, State::Done(remarks));
    }

    fn agent(&mut self) {
        let title = "Checking the agent";
        let Some(kube) = &self.evidence.kube else { return self.add(title, State::NotApplicable) };
        let remarks = kube.deployment(AGENT, &kube.agent);
        if has_failed(&remarks) {
            // What it has not done is not to be told of each service.
            let is_undone = |service: &&Service| {
                let checks = [published, imported, ready];
                service.condition("Valid").is_none() && service.export.is_some()
                    || checks.iter().any(|check| has_failed(&check(self.evidence, service)))
            };
            let undone = self.services.iter().filter(is_undone).map(|service| service.name.clone());
            self.broken.extend(undone.collect::<Vec<_>>());
        }
        self.add(title, State::Done(remarks));
    }

    /// Checks the DNS server and what the cluster's DNS forwards; returns whether both are well.
    fn kubernetes(&mut self) -> bool {
        let (server, forwards) =
            ("Checking the DNS server", "Checking that the cluster's DNS forwards to the DNS server");
        let Some(kube) = &self.evidence.kube else {
            self.add(server, State::NotApplicable);
            self.add(forwards, State::NotApplicable);
            return false;
        };
        let remarks = kube.server();
        let is_there = !has_failed(&remarks);
        self.add(server, State::Done(remarks));
        if !is_there {
            self.add(forwards, State::NotReached);
            return false;
        }
        let remarks = kube.forwarding();
        let is_forwarded = !has_failed(&remarks);
        self.add(forwards, State::Done(remarks));
        is_forwarded
    }
}

impl KubeFacts {
    fn deployment(&self, name: &str, found: &Result<Option<Deployment>, String>) -> Remarks {
        let namespace = &self.namespace;
        match found {
            Err(why) => vec![(Outcome::Warning, format!("Deployment {name} cannot be read: {why}"))],
            Ok(None) => vec![(
                Outcome::Failure,
                format!(
                    "there is no Deployment {name} in namespace {namespace}: is service discovery installed (`trieste \
                     join`), and is that its namespace (--namespace)?"
                ),
            )],
            Ok(Some(Deployment { ready: 0, wanted })) => vec![(
                Outcome::Failure,
                format!(
                    "Deployment {name}: none of {wanted} pods is ready: look at `kubectl -n {namespace} describe \
                     deployment {name}` and `kubectl -n {namespace} logs deployment/{name}`"
                ),
            )],
            Ok(Some(Deployment { ready, wanted })) if ready < wanted => {
                vec![(Outcome::Warning, format!("Deployment {name}: {ready} of {wanted} pods are ready"))]
            }
            Ok(Some(_)) => Vec::new(),
        }
    }

    fn server(&self) -> Remarks {
        let mut remarks = self.deployment(DNS, &self.dns);
        let namespace = &self.namespace;
        match &self.service {
            _ if has_failed(&remarks) => {}
            Err(why) => remarks.push((Outcome::Warning, format!("Service {DNS} cannot be read: {why}"))),
            Ok(Some(addresses)) if !addresses.is_empty() => {}
            Ok(_) => remarks.push((
                Outcome::Failure,
                format!(
                    "there is no Service {DNS} with a cluster IP in namespace {namespace}: nothing can be forwarded to \
                     the DNS server; `trieste join` makes it"
                ),
            )),
        }
        remarks
    }

    fn forwarding(&self) -> Remarks {
        let forwards = match &self.forwards {
            Err(why) => {
                return vec![(
                    Outcome::Warning,
                    format!("what the cluster's DNS forwards cannot be read: {why}"),
                )];
            }
            Ok(None) => {
                let text =
                    "the cluster's DNS is of no kind that is known; whether it forwards is seen by asking";
                return vec![(Outcome::Warning, text.to_owned())];
            }
            Ok(Some(forwards)) => forwards,
        };
        let Ok(Some(own)) = &self.service else { return Vec::new() };
        let list =
            |all: &[std::net::IpAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let check = |zone: &String| {
            let problem = match forwards.get(zone).filter(|servers| !servers.is_empty()) {
                None => format!("names of {zone} are not forwarded"),
                Some(servers) if servers.iter().any(|server| !own.contains(server)) => {
                    format!("names of {zone} are forwarded to {} instead", list(servers))
                }
                Some(_) => return None,
            };
            Some((
                Outcome::Failure,
                format!(
                    "{problem}: the cluster's DNS has to forward them to {}; `trieste join` writes that",
                    list(own)
                ),
            ))
        };
        self.zones.iter().filter_map(check).collect()
    }
}

/// Checks that the own export is valid, and agrees with the others'.
fn conditions(evidence: &Evidence, service: &Service) -> Remarks {
    if service.export.is_none() {
        return Vec::new();
    }
    let is_agent_known =
        evidence.kube.as_ref().is_none_or(|kube| !has_failed(&kube.deployment(AGENT, &kube.agent)));
    let Some(valid) = service.condition("Valid") else {
        let text = "the export has no conditions: the agent has not seen it; does it run, and what does its log say?";
        // An agent that is not there is the next step's.
        return if is_agent_known { vec![(Outcome::Failure, text.to_owned())] } else { Vec::new() };
    };
    if valid.is_bad() {
        let remedy = match valid.reason.as_str() {
            "NoService" | "ServiceUnavailable" => "make a service of this name with an address",
            // The reasons of the Multi-Cluster Services API, and an older agent's.
            "InvalidServiceType" | "UnsupportedServiceType" => {
                "services of type ClusterIP, headless ones among them, NodePort and LoadBalancer can be exported"
            }
            reason if reason.contains("GlobalIP") || reason.contains("IPPool") => {
                "`kubectl get globalingressips -A` says what Globalnet has for it"
            }
            _ => "correct the service or the export",
        };
        return vec![(Outcome::Failure, format!("{valid}: {remedy}"))];
    }
    let Some(conflict) = service.condition("Conflict").filter(|condition| condition.is_bad()) else {
        return Vec::new();
    };
    let is_excluded = conflict.reason.contains("ConflictingType")
        && service
            .condition("Ready")
            .is_some_and(|ready| ["Failed", "ExportFailed"].contains(&ready.reason.as_str()));
    let outcome = if is_excluded { Outcome::Failure } else { Outcome::Warning };
    vec![(outcome, format!("{conflict}: make the services of all clusters alike"))]
}

/// Checks that the broker has the own export.
fn published(_: &Evidence, service: &Service) -> Remarks {
    if service.export.is_none() {
        return Vec::new();
    }
    let Some(ready) = service.condition("Ready") else {
        let text = "the export has no condition Ready: the agent has not published it yet; look at its log";
        return vec![(Outcome::Failure, text.to_owned())];
    };
    if !ready.is_bad() {
        return Vec::new();
    }
    let remedy = match ready.reason.as_str() {
        "Failed" | "ExportFailed" => {
            "the broker refuses it: are its policy and this cluster's account up to date (`trieste deploy-broker`)?"
        }
        "NoServiceImport" => "it was withdrawn, and is not published again yet",
        _ => {
            "can the agent reach the broker (its log, its address in `trieste show brokers` on the broker's cluster)?"
        }
    };
    vec![(Outcome::Failure, format!("{ready}: {remedy}"))]
}

/// Checks that this cluster has the set's import.
fn imported(evidence: &Evidence, service: &Service) -> Remarks {
    let text = match (&service.problem, &service.import) {
        (Some(why), _) => {
            format!("the import cannot be used: {why}: correct the oldest export, of which it is made")
        }
        (None, Some(_)) => return Vec::new(),
        (None, None) => format!(
            "the broker has the export, and this cluster has no import: the agent's log says why{}",
            without_namespace(evidence, &service.name)
        ),
    };
    vec![(Outcome::Failure, text)]
}

/// Checks that something serves.
fn ready(_: &Evidence, service: &Service) -> Remarks {
    let clusters = service.clusters();
    let count = |cluster: &String| service.endpoints.get(cluster).copied();
    let (with, without): (Vec<String>, Vec<String>) =
        clusters.into_iter().partition(|cluster| count(cluster).is_some());
    let (up, down): (Vec<String>, Vec<String>) =
        with.into_iter().partition(|cluster| count(cluster).is_some_and(|endpoints| endpoints.ready() > 0));
    let outcome = if up.is_empty() { Outcome::Failure } else { Outcome::Warning };
    let mut remarks = Remarks::new();
    if !without.is_empty() {
        let text = format!(
            "no EndpointSlice of {} is here: do the agents there and here reach the broker?",
            without.join(", ")
        );
        remarks.push((outcome, text));
    }
    if !down.is_empty() {
        let text = format!(
            "no endpoint is ready in {}: do its pods there pass their readiness probes?",
            down.join(", ")
        );
        remarks.push((outcome, text));
    }
    if remarks.is_empty() && up.is_empty() {
        remarks.push((
            outcome,
            "no cluster exports it any more: the import is left over; look at the agent's log".to_owned(),
        ));
    }
    remarks
}

/// Checks that clusters with ready endpoints can be reached, and one of them is answered.
fn connected(evidence: &Evidence, service: &Service) -> Remarks {
    let Some(survey) = &service.survey else { return Vec::new() };
    let serving = survey.clusters.iter().filter(|cluster| cluster.is_ready);
    let unconnected: Vec<String> =
        serving.filter(|cluster| !cluster.is_up).map(|cluster| cluster.id.to_string()).collect();
    let is_answered = !(survey.ips.is_empty() && survey.v4.is_empty() && survey.v6.is_empty());
    let outcome = if is_answered { Outcome::Warning } else { Outcome::Failure };
    if !unconnected.is_empty() {
        let text = format!(
            "no gateway of this cluster is connected to {}: `trieste show connections` says why",
            unconnected.join(", ")
        );
        return vec![(outcome, text)];
    }
    if !is_answered {
        let text = "its routing is local-only, and nothing is ready in this cluster: choose another `trieste.io/routing`";
        return vec![(outcome, text.to_owned())];
    }
    let is_remote =
        survey.v4.iter().chain(&survey.v6).any(|id| Some(id.to_string()) != evidence.discovery.local);
    if is_remote && !evidence.discovery.has_active_gateway {
        let text = "no gateway of this cluster is active: other clusters are answered without knowing whether they can be \
                    reached";
        return vec![(Outcome::Warning, text.to_owned())];
    }
    Vec::new()
}

/// Says what to do about a namespace that is missing here.
fn without_namespace(evidence: &Evidence, name: &Name) -> String {
    let is_missing = evidence
        .kube
        .as_ref()
        .is_some_and(|kube| !kube.namespaces.is_empty() && !kube.namespaces.contains(&name.namespace));
    if is_missing {
        format!(
            "; and make the namespace {} here, without which nothing is imported, or join with --missing-namespaces",
            name.namespace
        )
    } else {
        String::new()
    }
}

fn has_failed(remarks: &[(Outcome, String)]) -> bool {
    remarks.iter().any(|(outcome, _)| *outcome == Outcome::Failure)
}
