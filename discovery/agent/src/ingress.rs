//! Global addresses of exported services, of their pods and of their endpoints.

use std::collections::BTreeMap;

use trieste_control::api::{
    Condition, ConditionStatus, GlobalIngressIp, IngressTarget, Object, Resource as _, annotation,
};

use crate::service::Invalid;

/// The global addresses of one service.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GlobalAddresses {
    /// Of the service itself, or why it has none.
    pub(crate) service: Option<Result<String, Invalid>>,
    /// By the name of the pod.
    pub(crate) pods: BTreeMap<String, String>,
    /// By the endpoint's own address.
    pub(crate) endpoints: BTreeMap<String, String>,
}

/// Why a service has no global address yet.
const REASON: &str = "ServiceGlobalIPUnavailable";

impl GlobalAddresses {
    /// Reads the objects of one service.
    pub(crate) fn read<'a>(objects: impl Iterator<Item = &'a Object>) -> Self {
        let mut addresses = Self::default();
        for ingress in objects.filter_map(|object| GlobalIngressIp::from_object(object).ok()) {
            let allocated = ingress.status.as_ref().map(|status| status.allocated_ip.as_str());
            let allocated = allocated.filter(|ip| !ip.is_empty()).map(str::to_owned);
            match ingress.spec.target {
                IngressTarget::ClusterIpService => {
                    addresses.service = Some(allocated.ok_or_else(|| reason(&ingress)));
                }
                IngressTarget::HeadlessServicePod => {
                    let pod = ingress.spec.pod_ref.as_ref().map(|pod| pod.name.clone());
                    addresses.pods.extend(pod.zip(allocated));
                }
                IngressTarget::HeadlessServiceEndpoints => {
                    let own = ingress.metadata.annotations.get(annotation::HEADLESS_ENDPOINTS_IP).cloned();
                    addresses.endpoints.extend(own.zip(allocated));
                }
                _ => {}
            }
        }
        addresses
    }

    /// Returns the service's address.
    pub(crate) fn of_service(&self) -> Result<String, Invalid> {
        let none = || Err(Invalid::new(REASON, "Service doesn't have a global IP yet"));
        self.service.clone().unwrap_or_else(none)
    }
}

/// Returns why nothing is allocated: what Globalnet says, if it does.
fn reason(ingress: &GlobalIngressIp) -> Invalid {
    let is_refusal =
        |condition: &&Condition| condition.kind == "Allocated" && condition.status == ConditionStatus::False;
    let refusal = ingress.status.iter().flat_map(|status| &status.conditions).find(is_refusal);
    match refusal.filter(|refusal| !refusal.reason.is_empty()) {
        Some(refusal) => Invalid::new(&refusal.reason, &refusal.message),
        None => Invalid::new(REASON, "Service doesn't have a global IP yet"),
    }
}
