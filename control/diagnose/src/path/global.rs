//! With Globalnet: the addresses under which other clusters reach the ends of a connection.
//!
//! A cluster with a global network is reached by global ingress IPs alone: one of each exported service that has a
//! cluster IP, and one of each pod of an exported headless service (upstream's `GlobalIngressIP`).

use std::net::IpAddr;

use trieste_control::api::{GlobalIngressIp, IngressTarget, annotation};

use super::request::PodRef;

/// Whom a global ingress IP belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    /// A service with a cluster IP.
    Service(PodRef),
    /// A pod of a headless service.
    Pod(PodRef),
    /// An address of a headless service without selector.
    Address(Option<IpAddr>),
}

/// Returns a pod's global ingress IP: the one that it has as a pod of a service, if that is asked for.
pub(super) fn of_pod(all: &[GlobalIngressIp], pod: &PodRef, service: Option<&str>) -> Option<IpAddr> {
    let is_meant = |ingress: &&GlobalIngressIp| {
        ingress.spec.target == IngressTarget::HeadlessServicePod
            && ingress.metadata.namespace == pod.namespace
            && ingress.spec.pod_ref.as_ref().is_some_and(|own| own.name == pod.name)
            && service.is_none_or(|service| is_of(ingress, service))
    };
    all.iter().filter(is_meant).find_map(allocated)
}

/// Returns a service's global ingress IP.
pub(super) fn of_service(all: &[GlobalIngressIp], service: &PodRef) -> Option<IpAddr> {
    let is_meant = |ingress: &&GlobalIngressIp| {
        ingress.spec.target == IngressTarget::ClusterIpService
            && ingress.metadata.namespace == service.namespace
            && is_of(ingress, &service.name)
    };
    all.iter().filter(is_meant).find_map(allocated)
}

/// Returns whom an address belongs to, if it is a global ingress IP.
pub(super) fn holder(all: &[GlobalIngressIp], address: IpAddr) -> Option<Holder> {
    let ingress = all.iter().find(|ingress| allocated(ingress) == Some(address))?;
    let named = |name: &str| PodRef { namespace: ingress.metadata.namespace.clone(), name: name.to_owned() };
    match ingress.spec.target {
        IngressTarget::ClusterIpService => {
            Some(Holder::Service(named(&ingress.spec.service_ref.as_ref()?.name)))
        }
        IngressTarget::HeadlessServicePod => Some(Holder::Pod(named(&ingress.spec.pod_ref.as_ref()?.name))),
        IngressTarget::HeadlessServiceEndpoints | _ => {
            let inside = ingress.metadata.annotations.get(annotation::HEADLESS_ENDPOINTS_IP);
            Some(Holder::Address(inside.and_then(|address| address.parse().ok())))
        }
    }
}

fn is_of(ingress: &GlobalIngressIp, service: &str) -> bool {
    ingress.spec.service_ref.as_ref().is_some_and(|own| own.name == service)
}

fn allocated(ingress: &GlobalIngressIp) -> Option<IpAddr> {
    ingress.status.as_ref()?.allocated_ip.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(mut ingress: GlobalIngressIp, address: &str) -> GlobalIngressIp {
        let status =
            trieste_control::api::IngressStatus { allocated_ip: address.to_owned(), ..Default::default() };
        ingress.status = Some(status);
        ingress
    }

    fn named(name: &str) -> PodRef {
        PodRef { namespace: "shop".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn addresses_are_found_by_their_owners_and_owners_by_their_addresses() {
        let inside = [10, 1, 0, 7].into();
        let all = [
            given(GlobalIngressIp::for_service("shop", "web").unwrap(), "242.1.0.1"),
            given(GlobalIngressIp::for_headless_pod("shop", "db", "db-0", inside).unwrap(), "242.1.0.2"),
            given(GlobalIngressIp::for_headless_pod("shop", "cache", "db-0", inside).unwrap(), "242.1.0.3"),
            given(
                GlobalIngressIp::for_headless_endpoints("shop", "old", "old", inside).unwrap(),
                "242.1.0.4",
            ),
            GlobalIngressIp::for_service("shop", "new").unwrap(),
        ];
        let ip = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        assert_eq!(of_service(&all, &named("web")), ip("242.1.0.1"));
        assert_eq!(of_service(&all, &named("new")), None, "it has no address yet");
        assert_eq!(of_service(&all, &named("db")), None, "headless");
        assert_eq!(of_pod(&all, &named("db-0"), None), ip("242.1.0.2"));
        assert_eq!(of_pod(&all, &named("db-0"), Some("cache")), ip("242.1.0.3"));
        assert_eq!(of_pod(&all, &named("web"), None), None);
        let elsewhere = PodRef { namespace: "other".to_owned(), name: "db-0".to_owned() };
        assert_eq!(of_pod(&all, &elsewhere, None), None);

        let held = |text: &str| holder(&all, text.parse().unwrap());
        assert_eq!(held("242.1.0.1"), Some(Holder::Service(named("web"))));
        assert_eq!(held("242.1.0.3"), Some(Holder::Pod(named("db-0"))));
        assert_eq!(held("242.1.0.4"), Some(Holder::Address(ip("10.1.0.7"))));
        assert_eq!(held("242.1.0.9"), None);
    }
}
