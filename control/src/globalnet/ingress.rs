//! GlobalIngressIP: which address, and what its status says.

use serde_json::Value;

use super::conditions::ConditionUpdate;
use super::facts::{Ingress, Service, ServiceKind};
use super::ledger::Ledger;
use super::objects::Objects;
use super::writing::Writing;
use crate::api::{ApiError, GlobalIngressIp, IngressTarget, Kind, Object, Resource};
use crate::runner::Write;

/// Plans the write of a GlobalIngressIP's status. Once an address is given nothing changes it but its loss.
pub(super) fn status(
    object: &Object,
    objects: &Objects,
    ledger: &mut Ledger,
    writing: &mut Writing,
) -> Result<(), ApiError> {
    let key = object.key();
    if !ledger.held(&key).is_empty() {
        return Ok(());
    }
    let Some(ingress) = Ingress::new(object) else {
        let target = object.body.get("spec").and_then(|spec| spec.get("target"));
        let target = target.and_then(Value::as_str).unwrap_or_default();
        return Err(ApiError::field("spec.target", format!("`{target}` is no target that is known")));
    };
    let (address, update) = if let Some(error) = ledger.broken(&key) {
        (None, ConditionUpdate::not_reserved(error))
    } else if !ingress.allocated().is_empty() {
        // There is no pool to say whether it may have it.
        return Ok(());
    } else {
        match check(&ingress, objects) {
            Target::Missing => return Ok(()),
            Target::Impossible(message) => (None, ConditionUpdate::invalid(message)),
            Target::Possible => match ledger.exchange(&key, 1) {
                Ok(addresses) => (addresses.first().copied(), ConditionUpdate::allocated_one()),
                Err(error) => (None, ConditionUpdate::no_address(&error)),
            },
        }
    };
    let before = GlobalIngressIp::from_object(object)?.status;
    let mut status = before.clone().unwrap_or_default();
    status.allocated_ip = address.map(|address| address.to_string()).unwrap_or_default();
    update.report(&mut status.conditions, writing.now);
    if before.as_ref() != Some(&status) {
        let mut updated = object.clone();
        updated.body.insert("status".to_owned(), serde_json::to_value(&status).unwrap_or(Value::Null));
        writing.push(Write::UpdateStatus(updated));
    }
    Ok(())
}

enum Target {
    /// It can be given an address.
    Possible,
    /// The target of the address is not there (yet).
    Missing,
    /// The target of the address cannot have one.
    Impossible(String),
}

fn check(ingress: &Ingress<'_>, objects: &Objects) -> Target {
    let namespace = &ingress.object.metadata.namespace;
    if ingress.target == IngressTarget::ClusterIpService {
        let service = objects.get(Kind::Service, namespace, ingress.service).map(Service::new);
        return match service.filter(|service| service.kind() == ServiceKind::ClusterIp) {
            None => Target::Missing,
            Some(service) if service.is_ipv6() => Target::Impossible(format!(
                "Global IPs are IPv4 addresses: service {} has no IPv4 cluster IP",
                ingress.service
            )),
            Some(_) => Target::Possible,
        };
    }
    match (ingress.inside(), ingress.noted()) {
        (Some(_), _) => Target::Possible,
        (None, None | Some("")) => Target::Missing,
        (None, Some(_)) => Target::Impossible(format!(
            "Global IPs are IPv4 addresses: annotation {} holds none that a pod can have",
            ingress.annotation().unwrap_or_default()
        )),
    }
}
