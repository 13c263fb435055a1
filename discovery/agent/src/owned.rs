//! Addresses that another cluster gives and that are not its own, or not this service's: they are left out of what is copied. And
//! where on an import the addresses stand that are the whole set's.

use std::net::IpAddr;

use serde_json::Value;
use trieste_control::api::{Object, annotation};
use trieste_control::sync::{Networks, NotIts};

use crate::family::{Family, PerFamily};
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

/// Returns all addresses of an import that stand for the service in all clusters, wherever they are written.
pub(crate) fn clusterset_ips(import: &Object) -> Vec<IpAddr> {
    specified(import).into_iter().chain(annotated(import)).collect()
}

/// Returns the address of a family that stands for an import's service in all clusters.
pub(crate) fn clusterset_ip(import: &Object, family: Family) -> Option<IpAddr> {
    clusterset_ips(import).into_iter().find(|ip| Family::of(*ip) == family)
}

/// Sets the addresses of an import on the broker, where upstream's definition lets `spec.ips` have one: IPv4 there, and IPv6 in
/// our annotation.
pub(crate) fn set_clusterset_ips(import: &mut Object, ips: PerFamily<Option<IpAddr>>) {
    annotate(import, ips[Family::V6]);
    specify(import, &ips[Family::V4].into_iter().collect::<Vec<_>>());
}

/// Lets a copy of an import have these addresses for all clusters, which it has one way or the other, and no others: all of them in
/// `spec.ips`, as the Multi-Cluster Services API has them, or the first alone where the definition here does not take two.
pub(crate) fn copy_clusterset_ips(copy: &mut Object, ips: PerFamily<Option<IpAddr>>, takes_two: bool) {
    if ips[Family::V6].is_none() {
        annotate(copy, None);
    }
    let all: Vec<IpAddr> = ips.iter().filter_map(|(_, ip)| *ip).collect();
    let most = if takes_two { all.len() } else { 1 };
    specify(copy, &all[..most.min(all.len())]);
}

/// Returns the addresses in the specification of an import.
fn specified(import: &Object) -> Vec<IpAddr> {
    let ips = import.body.get("spec").and_then(|spec| spec.get("ips")).and_then(Value::as_array);
    ips.into_iter().flatten().filter_map(parse).collect()
}

/// Returns the address in our annotation of an import.
fn annotated(import: &Object) -> Option<IpAddr> {
    let text = import.metadata.annotations.get(annotation::CLUSTERSET_IPV6)?;
    text.parse().ok().map(IpAddr::V6)
}

/// Sets the addresses in the specification of an import; where it has them, nothing is touched.
fn specify(import: &mut Object, ips: &[IpAddr]) {
    let has_any = import.body.get("spec").is_some_and(|spec| spec.get("ips").is_some());
    if specified(import) == ips && has_any != ips.is_empty() {
        return;
    }
    if let Some(Value::Object(spec)) = import.body.get_mut("spec") {
        match ips {
            [] => drop(spec.remove("ips")),
            ips => drop(spec.insert("ips".to_owned(), ips.iter().map(ToString::to_string).collect())),
        }
    }
}

fn annotate(import: &mut Object, ip: Option<IpAddr>) {
    let annotations = &mut import.metadata.annotations;
    match ip {
        Some(ip) => drop(annotations.insert(annotation::CLUSTERSET_IPV6.to_owned(), ip.to_string())),
        None => drop(annotations.remove(annotation::CLUSTERSET_IPV6)),
    }
}

fn addresses(endpoint: &Value) -> impl Iterator<Item = IpAddr> {
    let addresses = endpoint.get("addresses").and_then(Value::as_array);
    addresses.into_iter().flatten().filter_map(parse)
}

fn parse(address: &Value) -> Option<IpAddr> {
    address.as_str()?.parse().ok()
}
