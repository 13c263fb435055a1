//! Addresses that another cluster gives and that are not its own, or not this service's: they are left out of what is copied.

use std::net::IpAddr;

use serde_json::Value;
use trieste_control::api::Object;
use trieste_control::sync::{Networks, NotIts};

use crate::slices::list;

/// Returns what is wrong with the addresses of another cluster's slice; `None` if nothing is.
pub(crate) fn problem(slice: &Object, networks: &Networks) -> Option<String> {
    let origin = slice.metadata.origin()?;
    let refused = |address: IpAddr| Some((address, networks.check(origin, address).err()?));
    let mut refused = list(slice, "endpoints").iter().flat_map(addresses).filter_map(refused);
    let (address, reason) = refused.next()?;
    Some(describe(origin, address, &reason, refused.count()))
}

fn describe(origin: &str, address: IpAddr, reason: &NotIts, more: usize) -> String {
    let more = if more == 0 { String::new() } else { format!(", and {more} more are left out") };
    format!("has the address {address} of cluster {origin}: {reason}{more}")
}

/// Leaves out of a copy of a cluster's slice what is not that cluster's.
pub(crate) fn restrict(slice: &mut Object, origin: &str, networks: &Networks) {
    let is_owned = |address: IpAddr| networks.check(origin, address).is_ok();
    if list(slice, "endpoints").iter().flat_map(addresses).all(is_owned) {
        return;
    }
    let Some(Value::Array(endpoints)) = slice.body.get_mut("endpoints") else { return };
    endpoints.retain_mut(|endpoint| {
        let Some(Value::Array(addresses)) = endpoint.get_mut("addresses") else { return true };
        addresses.retain(|address| parse(address).is_some_and(is_owned));
        !addresses.is_empty()
    });
}

/// Leaves out of a copy of an import the address for all clusters.
pub(crate) fn without_ips(import: &mut Object) {
    if let Some(Value::Object(spec)) = import.body.get_mut("spec") {
        spec.remove("ips");
    }
}

/// Returns the addresses of an import that stand for the service in all clusters.
pub(crate) fn clusterset_ips(import: &Object) -> Vec<IpAddr> {
    let ips = import.body.get("spec").and_then(|spec| spec.get("ips")).and_then(Value::as_array);
    ips.into_iter().flatten().filter_map(parse).collect()
}

fn addresses(endpoint: &Value) -> impl Iterator<Item = IpAddr> {
    let addresses = endpoint.get("addresses").and_then(Value::as_array);
    addresses.into_iter().flatten().filter_map(parse)
}

fn parse(address: &Value) -> Option<IpAddr> {
    address.as_str()?.parse().ok()
}
