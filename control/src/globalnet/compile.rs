//! From the objects to what translation needs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::egress::first_selector;
use super::facts::{Ingress, Pod, Service, shown};
use super::ledger::Ledger;
use super::objects::Objects;
use super::state::{EgressKind, EgressRule, GlobalnetState, IngressKind, IngressPair, Problem};
use crate::api::{
    ClusterGlobalEgressIp, GlobalEgressIp, IngressTarget, Kind, LabelSelector, Object, ObjectKey, Resource,
    SelectorError,
};

/// The translations, by the key that finds them. Only addresses that objects hold rightly count.
#[derive(Debug, Default)]
pub(super) struct Rules {
    egress: BTreeMap<(EgressKind, String), EgressRule>,
    ingress: BTreeMap<Ipv4Addr, IngressPair>,
    gateways: BTreeMap<String, Ipv4Addr>,
    /// The entries of each object.
    parts: BTreeMap<ObjectKey, Parts>,
}

/// The entries of one object.
#[derive(Debug, Default, PartialEq)]
struct Parts {
    rule: Option<EgressRule>,
    pair: Option<IngressPair>,
    gateway: Option<(String, Ipv4Addr)>,
}

impl Rules {
    /// Puts in what objects say, instead of what they said before. Returns whether that is something else, and the
    /// problems of each.
    pub(super) fn update(
        &mut self,
        keys: BTreeSet<ObjectKey>,
        objects: &Objects,
        (ledger, inside): (&Ledger, &[Ipv4Net]),
        mut report: impl FnMut(ObjectKey, Vec<Problem>),
    ) -> bool {
        let mut others = Vec::new();
        for key in keys {
            let object = objects.at(&key);
            let mut problems = Vec::new();
            let parts = object
                .map(|object| parts(object, objects, (ledger, inside), &mut problems))
                .unwrap_or_default();
            report(key.clone(), problems);
            let is_same = match self.parts.get(&key) {
                Some(before) => *before == parts,
                None => parts == Parts::default(),
            };
            if !is_same {
                others.push((key, parts));
            }
        }
        let has_changed = !others.is_empty();
        // An address may go from one to another.
        for (key, _) in &others {
            self.take_out(key);
        }
        for (key, parts) in others {
            self.put_in(key, parts);
        }
        has_changed
    }

    /// Returns what is translated.
    pub(super) fn state(
        &self,
        inside: Vec<Ipv4Net>,
        ledger: &Ledger,
        problems: Vec<Problem>,
    ) -> GlobalnetState {
        GlobalnetState {
            global_cidr: ledger.cidr(),
            inside,
            egress: self.egress.values().cloned().collect(),
            ingress: self.ingress.values().cloned().collect(),
            gateways: self.gateways.iter().map(|(name, address)| (name.clone(), *address)).collect(),
            pool: ledger.fill(),
            problems,
        }
    }

    fn take_out(&mut self, key: &ObjectKey) {
        let Some(Parts { rule, pair, gateway }) = self.parts.remove(key) else { return };
        if let Some(rule) = rule {
            self.egress.remove(&(rule.kind, rule.name));
        }
        if let Some(pair) = pair {
            self.ingress.remove(&pair.global);
        }
        if let Some((name, _)) = gateway {
            self.gateways.remove(&name);
        }
    }

    fn put_in(&mut self, key: ObjectKey, parts: Parts) {
        if let Some(rule) = &parts.rule {
            self.egress.insert((rule.kind, rule.name.clone()), rule.clone());
        }
        if let Some(pair) = &parts.pair {
            self.ingress.insert(pair.global, pair.clone());
        }
        if let Some((name, address)) = &parts.gateway {
            self.gateways.insert(name.clone(), *address);
        }
        if parts != Parts::default() {
            self.parts.insert(key, parts);
        }
    }
}

fn parts(
    object: &Object,
    objects: &Objects,
    (ledger, inside): (&Ledger, &[Ipv4Net]),
    problems: &mut Vec<Problem>,
) -> Parts {
    let mut parts = Parts::default();
    if object.kind == Kind::GlobalEgressIp {
        parts.rule = egress(object, objects, ledger, problems);
    } else if object.kind == Kind::GlobalIngressIp {
        if let Some(ingress) = Ingress::new(object) {
            (parts.pair, parts.rule) = pair(&ingress, objects, ledger);
        }
    } else if object.kind == Kind::ClusterGlobalEgressIp {
        if object.metadata.name == ClusterGlobalEgressIp::NAME {
            parts.rule = rule(EgressKind::Cluster, object, inside.to_vec(), ledger);
        }
    } else if object.kind == Kind::Gateway {
        let address = ledger.held(&object.key()).first();
        parts.gateway = address.map(|address| (object.metadata.name.clone(), *address));
    }
    parts
}

fn egress(
    object: &Object,
    objects: &Objects,
    ledger: &Ledger,
    problems: &mut Vec<Problem>,
) -> Option<EgressRule> {
    if ledger.held(&object.key()).is_empty() {
        return None;
    }
    // What cannot be read has been told of where its status is written.
    let egress = GlobalEgressIp::from_object(object).ok()?;
    let selector = first_selector(object, egress.spec.pod_selector.as_ref());
    let kind = if selector.is_some() { EgressKind::Pods } else { EgressKind::Namespace };
    match members(objects, &object.metadata.namespace, &selector.unwrap_or_default()) {
        Ok(members) => rule(kind, object, members, ledger),
        Err(error) => {
            problems.push(Problem {
                name: "PodSelectorInvalid",
                subject: object.key().to_string(),
                message: format!("{error}; no pod has its addresses"),
            });
            None
        }
    }
}

/// Returns the pods of a namespace that a selector picks. Pods on their node's network leave with their node's address.
fn members(
    objects: &Objects,
    namespace: &str,
    selector: &LabelSelector,
) -> Result<Vec<Ipv4Net>, SelectorError> {
    let mut members = BTreeSet::new();
    // Told of also while there are no pods.
    selector.matches(&BTreeMap::new())?;
    for pod in objects.inside(Kind::Pod, namespace).map(Pod::new) {
        if !pod.is_on_host_network()
            && let Some(address) = pod.address()
            && selector.matches(&pod.object.metadata.labels)?
        {
            members.insert(Ipv4Net::from(address));
        }
    }
    Ok(members.into_iter().collect())
}

fn rule(kind: EgressKind, object: &Object, members: Vec<Ipv4Net>, ledger: &Ledger) -> Option<EgressRule> {
    let mut addresses = ledger.held(&object.key()).to_vec();
    addresses.sort_unstable();
    (!addresses.is_empty()).then(|| EgressRule { kind, name: shown(object), addresses, members })
}

fn pair(
    ingress: &Ingress<'_>,
    objects: &Objects,
    ledger: &Ledger,
) -> (Option<IngressPair>, Option<EgressRule>) {
    let global = ledger.held(&ingress.object.key()).first().copied();
    let namespace = &ingress.object.metadata.namespace;
    let (kind, inside) = match ingress.target {
        IngressTarget::ClusterIpService => {
            let service = objects.get(Kind::Service, namespace, ingress.service);
            (IngressKind::Service, service.and_then(|service| Service::new(service).cluster_ip()))
        }
        IngressTarget::HeadlessServicePod => (IngressKind::HeadlessPod, ingress.inside()),
        IngressTarget::HeadlessServiceEndpoints => (IngressKind::HeadlessEndpoints, ingress.inside()),
    };
    let (Some(global), Some(inside)) = (global, inside) else { return (None, None) };
    let egress = match kind {
        IngressKind::Service => None,
        IngressKind::HeadlessPod => Some(EgressKind::HeadlessPod),
        IngressKind::HeadlessEndpoints => Some(EgressKind::HeadlessEndpoints),
    };
    let rule = egress.and_then(|kind| rule(kind, ingress.object, vec![Ipv4Net::from(inside)], ledger));
    (Some(IngressPair { kind, name: shown(ingress.object), global, inside }), rule)
}
