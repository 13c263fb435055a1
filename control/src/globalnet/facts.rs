//! The fields that a plan reads of other components' objects. A field that is missing or of the wrong type is absent:
//! writers of such objects have an API server that checks them, or see that nothing happens.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;

use crate::api::{IngressTarget, Object, annotation, label};

fn at<'a>(object: &'a Object, part: &str, field: &str) -> Option<&'a Value> {
    object.body.get(part)?.get(field)
}

fn text<'a>(object: &'a Object, part: &str, field: &str) -> &'a str {
    at(object, part, field).and_then(Value::as_str).unwrap_or_default()
}

fn texts<'a>(value: Option<&'a Value>, field: Option<&str>) -> impl Iterator<Item = &'a str> {
    let entries = value.and_then(Value::as_array).into_iter().flatten();
    entries.filter_map(move |entry| match field {
        Some(field) => entry.get(field)?.as_str(),
        None => entry.as_str(),
    })
}

/// Parses an address that something in a cluster can have: no IPv6, and nothing that only means something on one
/// machine.
fn inside_address(text: &str) -> Option<Ipv4Addr> {
    let address: Ipv4Addr = text.parse().ok()?;
    let is_one = !(address.is_unspecified()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast());
    is_one.then_some(address)
}

/// A pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pod<'a> {
    pub(super) object: &'a Object,
    phase: &'a str,
}

impl<'a> Pod<'a> {
    pub(super) fn new(object: &'a Object) -> Self {
        Self { object, phase: text(object, "status", "phase") }
    }

    /// Returns its IPv4 address, while it is its own: the address of a pod that has ended is given to another one.
    pub(super) fn address(&self) -> Option<Ipv4Addr> {
        if matches!(self.phase, "Succeeded" | "Failed") {
            return None;
        }
        let first = text(self.object, "status", "podIP");
        let others = texts(at(self.object, "status", "podIPs"), Some("ip"));
        std::iter::once(first).chain(others).find_map(inside_address)
    }

    /// Returns `true` if it has an address of the other family only.
    pub(super) fn is_ipv6(&self) -> bool {
        let address = text(self.object, "status", "podIP").parse::<IpAddr>();
        self.address().is_none() && address.is_ok_and(|address| address.is_ipv6())
    }

    pub(super) fn is_running(&self) -> bool {
        self.phase == "Running"
    }

    /// Returns `true` if its address is its node's.
    pub(super) fn is_on_host_network(&self) -> bool {
        at(self.object, "spec", "hostNetwork").and_then(Value::as_bool).unwrap_or(false)
    }
}

/// A service.
#[derive(Debug, Clone, Copy)]
pub(super) struct Service<'a> {
    pub(super) object: &'a Object,
}

/// How a service is reached inside of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceKind {
    /// By a cluster IP.
    ClusterIp,
    /// Each pod, or endpoint, by its own.
    Headless,
    /// NodePort, LoadBalancer, ExternalName: not exported.
    Other,
}

impl<'a> Service<'a> {
    pub(super) fn new(object: &'a Object) -> Self {
        Self { object }
    }

    pub(super) fn kind(&self) -> ServiceKind {
        match (text(self.object, "spec", "type"), text(self.object, "spec", "clusterIP")) {
            ("ClusterIP" | "", "None") => ServiceKind::Headless,
            ("ClusterIP" | "", _) => ServiceKind::ClusterIp,
            _ => ServiceKind::Other,
        }
    }

    /// Returns its type as it is written.
    pub(super) fn type_name(&self) -> &'a str {
        text(self.object, "spec", "type")
    }

    /// Returns its IPv4 cluster IP.
    pub(super) fn cluster_ip(&self) -> Option<Ipv4Addr> {
        let first = text(self.object, "spec", "clusterIP");
        let others = texts(at(self.object, "spec", "clusterIPs"), None);
        std::iter::once(first).chain(others).find_map(inside_address)
    }

    /// Returns `true` if it has a cluster IP of the other family only.
    pub(super) fn is_ipv6(&self) -> bool {
        let address = text(self.object, "spec", "clusterIP").parse::<IpAddr>();
        self.cluster_ip().is_none() && address.is_ok_and(|address| address.is_ipv6())
    }

    pub(super) fn selector(&self) -> BTreeMap<&'a str, &'a str> {
        let selector = at(self.object, "spec", "selector").and_then(Value::as_object);
        let pairs = selector.into_iter().flatten();
        pairs.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect()
    }

    pub(super) fn has_selector(&self) -> bool {
        let selector = at(self.object, "spec", "selector").and_then(Value::as_object);
        selector.is_some_and(|selector| !selector.is_empty())
    }

    /// Returns `true` if it selects a pod with these labels.
    pub(super) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector().iter().all(|(key, value)| labels.get(*key).is_some_and(|found| found == value))
    }

    pub(super) fn publishes_not_ready(&self) -> bool {
        at(self.object, "spec", "publishNotReadyAddresses").and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn external_ips(&self) -> impl Iterator<Item = &'a str> {
        texts(at(self.object, "spec", "externalIPs"), None)
    }

    /// Returns the exported service that it is the internal one of, by its label.
    pub(super) fn stands_for(&self) -> Option<&'a str> {
        self.object.metadata.labels.get(label::EXPORTED_SERVICE_REF).map(String::as_str)
    }
}

/// Returns the addresses of an Endpoints object that are ready, each once, ascending, and whether some are of the other
/// family.
pub(super) fn endpoint_addresses(object: &Object) -> (Vec<Ipv4Addr>, bool) {
    let subsets = object.body.get("subsets").and_then(Value::as_array);
    let addresses =
        subsets.into_iter().flatten().flat_map(|subset| texts(subset.get("addresses"), Some("ip")));
    let (mut found, mut has_other) = (Vec::new(), false);
    for address in addresses {
        match inside_address(address) {
            Some(address) => found.push(address),
            None => has_other = true,
        }
    }
    found.sort_unstable();
    found.dedup();
    (found, has_other)
}

/// A GlobalIngressIP.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ingress<'a> {
    pub(super) object: &'a Object,
    pub(super) target: IngressTarget,
    pub(super) service: &'a str,
    pub(super) pod: &'a str,
}

impl<'a> Ingress<'a> {
    /// Reads a GlobalIngressIP; `None` if its target is unknown.
    pub(super) fn new(object: &'a Object) -> Option<Self> {
        let target = match text(object, "spec", "target") {
            "ClusterIPService" => IngressTarget::ClusterIpService,
            "HeadlessServicePod" => IngressTarget::HeadlessServicePod,
            "HeadlessServiceEndpoints" => IngressTarget::HeadlessServiceEndpoints,
            _ => return None,
        };
        let name = |field| {
            let name = at(object, "spec", field).and_then(|reference| reference.get("name"));
            name.and_then(Value::as_str).unwrap_or_default()
        };
        Some(Self { object, target, service: name("serviceRef"), pod: name("podRef") })
    }

    /// Returns the address given, as it is written; empty if there is none.
    pub(super) fn allocated(&self) -> &'a str {
        text(self.object, "status", "allocatedIP")
    }

    /// Returns the annotation that has a headless target's address.
    pub(super) fn annotation(&self) -> Option<&'static str> {
        match self.target {
            IngressTarget::ClusterIpService => None,
            IngressTarget::HeadlessServicePod => Some(annotation::HEADLESS_POD_IP),
            IngressTarget::HeadlessServiceEndpoints => Some(annotation::HEADLESS_ENDPOINTS_IP),
        }
    }

    /// Returns a headless target's address as it is annotated.
    pub(super) fn noted(&self) -> Option<&'a str> {
        self.object.metadata.annotations.get(self.annotation()?).map(String::as_str)
    }

    /// Returns a headless target's address.
    pub(super) fn inside(&self) -> Option<Ipv4Addr> {
        inside_address(self.noted()?)
    }

    /// Returns `true` if it was made for an export, here or by upstream, and not by somebody who wanted an address.
    pub(super) fn is_of_export(&self) -> bool {
        match self.target {
            IngressTarget::ClusterIpService => self.object.metadata.name == self.service,
            IngressTarget::HeadlessServicePod | IngressTarget::HeadlessServiceEndpoints => {
                self.object.metadata.labels.contains_key(label::SERVICE_REF)
            }
        }
    }
}

/// Returns an object's name in rules and messages: `namespace/name`.
pub(super) fn shown(object: &Object) -> String {
    let metadata = &object.metadata;
    if metadata.namespace.is_empty() {
        return metadata.name.clone();
    }
    format!("{}/{}", metadata.namespace, metadata.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, rest: &Value) -> Object {
        let mut value =
            json!({"apiVersion": "v1", "kind": kind, "metadata": {"namespace": "ns", "name": "x"}});
        value.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        Object::from_value(value).unwrap()
    }

    #[test]
    fn a_pods_address_is_its_ipv4_one_while_it_lives() {
        let pod = |status: Value| object("Pod", &json!({ "status": status }));
        let address = |status| Pod::new(&pod(status)).address().map(|address| address.to_string());
        assert_eq!(address(json!({"phase": "Running", "podIP": "10.0.0.1"})).as_deref(), Some("10.0.0.1"));
        let dual = json!({"podIP": "fd00::1", "podIPs": [{"ip": "fd00::1"}, {"ip": "10.0.0.2"}]});
        assert_eq!(address(dual).as_deref(), Some("10.0.0.2"));
        for none in [
            json!({"phase": "Succeeded", "podIP": "10.0.0.1"}),
            json!({"phase": "Failed", "podIP": "10.0.0.1"}),
            json!({"podIP": "127.0.0.1"}),
            json!({"podIP": 7}),
            json!(null),
        ] {
            assert_eq!(address(none.clone()), None, "{none}");
        }
        assert!(Pod::new(&pod(json!({"podIP": "fd00::1"}))).is_ipv6());
    }

    #[test]
    fn services_are_told_apart_by_type_and_cluster_ip() {
        let service = |spec: Value| object("Service", &json!({ "spec": spec }));
        for (spec, kind) in [
            (json!({"type": "ClusterIP", "clusterIP": "100.0.0.1"}), ServiceKind::ClusterIp),
            (json!({}), ServiceKind::ClusterIp),
            (json!({"clusterIP": "None"}), ServiceKind::Headless),
            (json!({"type": "LoadBalancer", "clusterIP": "100.0.0.1"}), ServiceKind::Other),
            (json!({"type": "ExternalName"}), ServiceKind::Other),
        ] {
            assert_eq!(Service::new(&service(spec.clone())).kind(), kind, "{spec}");
        }
        let dual = service(json!({"clusterIP": "fd00::1", "clusterIPs": ["fd00::1", "100.0.0.9"]}));
        assert_eq!(Service::new(&dual).cluster_ip(), Some("100.0.0.9".parse().unwrap()));
        assert!(Service::new(&service(json!({"clusterIP": "fd00::1"}))).is_ipv6());
    }

    #[test]
    fn endpoint_addresses_are_given_once_and_in_order() {
        let endpoints = object(
            "Endpoints",
            &json!({"subsets": [
                {"addresses": [{"ip": "10.0.0.9"}, {"ip": "10.0.0.2"}], "notReadyAddresses": [{"ip": "10.0.0.1"}]},
                {"addresses": [{"ip": "10.0.0.2"}, {"ip": "fd00::1"}]},
            ]}),
        );
        let (addresses, has_other) = endpoint_addresses(&endpoints);
        let expected: Vec<Ipv4Addr> = ["10.0.0.2", "10.0.0.9"].map(|ip| ip.parse().unwrap()).to_vec();
        assert_eq!((addresses, has_other), (expected, true));
    }
}
