//! From the objects to what translation needs.

use std::collections::BTreeSet;

use ipnet::Ipv4Net;

use super::egress::first_selector;
use super::facts::{Ingress, Pod, Service, shown};
use super::ledger::Ledger;
use super::objects::Objects;
use super::state::{EgressKind, EgressRule, GlobalnetState, IngressKind, IngressPair, Problem};
use crate::api::{
    ClusterGlobalEgressIp, GlobalEgressIp, IngressTarget, Kind, LabelSelector, Object, Resource,
    SelectorError,
};

/// Fills in rules, pairs and gateways. Only what objects hold rightly counts.
pub(super) fn compile(objects: &Objects, namespace: &str, ledger: &Ledger, state: &mut GlobalnetState) {
    for object in objects.of(Kind::GlobalEgressIp) {
        egress(object, objects, ledger, state);
    }
    for ingress in objects.of(Kind::GlobalIngressIp).filter_map(Ingress::new) {
        pair(&ingress, objects, ledger, state);
    }
    cluster(objects, ledger, state);
    for gateway in objects.inside(Kind::Gateway, namespace) {
        let address = ledger.held(&gateway.key()).first();
        state.gateways.extend(address.map(|address| (gateway.metadata.name.clone(), *address)));
    }
    state.egress.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    state.ingress.sort_by_key(|pair| pair.global);
    state.pool = ledger.fill();
}

fn cluster(objects: &Objects, ledger: &Ledger, state: &mut GlobalnetState) {
    let Some(object) = objects.get(Kind::ClusterGlobalEgressIp, "", ClusterGlobalEgressIp::NAME) else {
        return;
    };
    let members = state.inside.clone();
    rule(EgressKind::Cluster, object, members, ledger, state);
}

fn egress(object: &Object, objects: &Objects, ledger: &Ledger, state: &mut GlobalnetState) {
    if ledger.held(&object.key()).is_empty() {
        return;
    }
    // What cannot be read has been told of where its status is written.
    let Ok(egress) = GlobalEgressIp::from_object(object) else { return };
    let selector = first_selector(object, egress.spec.pod_selector.as_ref());
    let kind = if selector.is_some() { EgressKind::Pods } else { EgressKind::Namespace };
    match members(objects, &object.metadata.namespace, &selector.unwrap_or_default()) {
        Ok(members) => rule(kind, object, members, ledger, state),
        Err(error) => state.problems.push(Problem {
            name: "PodSelectorInvalid",
            subject: object.key().to_string(),
            message: format!("{error}; no pod has its addresses"),
        }),
    }
}

/// The pods of a namespace that a selector picks. Those on their node's network leave with their node's address.
fn members(
    objects: &Objects,
    namespace: &str,
    selector: &LabelSelector,
) -> Result<Vec<Ipv4Net>, SelectorError> {
    let mut members = BTreeSet::new();
    // Told of also while there are no pods.
    selector.matches(&std::collections::BTreeMap::new())?;
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

fn rule(
    kind: EgressKind,
    object: &Object,
    members: Vec<Ipv4Net>,
    ledger: &Ledger,
    state: &mut GlobalnetState,
) {
    let mut addresses = ledger.held(&object.key()).to_vec();
    addresses.sort_unstable();
    if !addresses.is_empty() {
        state.egress.push(EgressRule { kind, name: shown(object), addresses, members });
    }
}

fn pair(ingress: &Ingress<'_>, objects: &Objects, ledger: &Ledger, state: &mut GlobalnetState) {
    let Some(global) = ledger.held(&ingress.object.key()).first().copied() else { return };
    let namespace = &ingress.object.metadata.namespace;
    let (kind, inside) = match ingress.target {
        IngressTarget::ClusterIpService => {
            let service = objects.get(Kind::Service, namespace, ingress.service);
            (IngressKind::Service, service.and_then(|service| Service::new(service).cluster_ip()))
        }
        IngressTarget::HeadlessServicePod => (IngressKind::HeadlessPod, ingress.inside()),
        IngressTarget::HeadlessServiceEndpoints => (IngressKind::HeadlessEndpoints, ingress.inside()),
    };
    let Some(inside) = inside else { return };
    let egress = match kind {
        IngressKind::Service => None,
        IngressKind::HeadlessPod => Some(EgressKind::HeadlessPod),
        IngressKind::HeadlessEndpoints => Some(EgressKind::HeadlessEndpoints),
    };
    if let Some(egress) = egress {
        rule(egress, ingress.object, vec![Ipv4Net::from(inside)], ledger, state);
    }
    state.ingress.push(IngressPair { kind, name: shown(ingress.object), global, inside });
}
