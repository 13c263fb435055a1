//! What of another cluster is let in: an object on the broker may come from anybody who can write there.

use std::net::IpAddr;

use serde_json::Value;
use trieste_control::api::limits::MAX_SERVICE_PORTS;
use trieste_control::api::{Object, Resource as _, ServiceImport, check_cluster_id, check_namespace, label};

use crate::name::{self, ServiceName};

/// The label by which a slice belongs to a local service: the cluster's proxies send that service's clients there.
pub(crate) const LOCAL_SERVICE: &str = "kubernetes.io/service-name";
/// From Kubernetes: most endpoints of a slice, and most addresses of an endpoint.
const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;

/// Checks a slice of another cluster, on the broker.
///
/// # Errors
/// Why it is left alone.
pub(crate) fn check_slice(slice: &Object, own_cluster: &str) -> Result<(), String> {
    if let Some(reason) = &slice.withheld {
        return Err(reason.clone());
    }
    let origin = slice.metadata.origin().ok_or("has no cluster's label")?;
    check_cluster_id(origin).map_err(|error| error.to_string())?;
    if origin == own_cluster {
        return Err("is said to be this cluster's".to_owned());
    }
    if name::source_cluster(slice) != Some(origin) {
        return Err(format!("is cluster {origin}'s and says that it is another one's"));
    }
    if slice.metadata.labels.contains_key(LOCAL_SERVICE) {
        return Err(format!("has the label {LOCAL_SERVICE}, as slices of local services have"));
    }
    let service = ServiceName::of_labels(slice).ok_or("does not say of which service it is")?;
    check_namespace(&service.namespace).map_err(|error| error.to_string())?;
    let claimed = slice.metadata.labels.get(label::ORIGINATING_NAMESPACE);
    if claimed.is_some_and(|claimed| *claimed != service.namespace) {
        return Err("names two namespaces".to_owned());
    }
    check_endpoints(slice)
}

fn check_endpoints(slice: &Object) -> Result<(), String> {
    let list = |field: &str| slice.body.get(field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if list("ports").len() > MAX_SERVICE_PORTS {
        return Err(format!("has more than {MAX_SERVICE_PORTS} ports"));
    }
    let endpoints = list("endpoints");
    if endpoints.len() > MAX_ENDPOINTS {
        return Err(format!("has more than {MAX_ENDPOINTS} endpoints"));
    }
    let is_ipv4 = match slice.body.get("addressType").and_then(Value::as_str) {
        Some("IPv4") => true,
        Some("IPv6") => false,
        _ => return Err("has addresses of no family".to_owned()),
    };
    for endpoint in endpoints {
        let addresses = endpoint.get("addresses").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if addresses.len() > MAX_ADDRESSES {
            return Err(format!("has more than {MAX_ADDRESSES} addresses of one endpoint"));
        }
        for address in addresses {
            let text = address.as_str().unwrap_or_default();
            let address: IpAddr = text.parse().map_err(|_| "has an address that is none")?;
            if address.is_ipv4() != is_ipv4 || !is_reachable(address) {
                return Err(format!("has the address {address}, which no other cluster can reach"));
            }
        }
    }
    Ok(())
}

/// Returns whether somebody in another cluster can be reached there at all.
fn is_reachable(address: IpAddr) -> bool {
    let is_own = match address {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !(is_own || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

/// Checks an import of all clusters, on the broker.
///
/// # Errors
/// Why it is left alone.
pub(crate) fn check_aggregate(import: &Object) -> Result<(), String> {
    let typed = ServiceImport::from_object(import).map_err(|error| error.to_string())?;
    typed.parse().map_err(|error| error.to_string())?;
    Ok(())
}
