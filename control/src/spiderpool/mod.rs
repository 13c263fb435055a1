//! Spiderpool's lists of networks that lead from pods to their node, as far as several programs go by them: the worker that keeps
//! them, `join` and `diagnose`. Pure.

mod record;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

pub use record::{ANNOTATION, Record, Recorded, Room, UNMANAGED, whole};

/// Reads an entry of a list as Spiderpool does that checks it: an address is a network of its own.
#[must_use]
pub fn entry(text: &str) -> Option<IpNet> {
    let text = text.trim();
    let of_address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse::<IpNet>().ok().map(|network| network.trunc()).or_else(of_address)
}

/// Returns the networks of SpiderIPPools that are not inside of what a cluster announces, each with the first pool's name. A family
/// of which nothing is announced is left out on purpose.
#[must_use]
pub fn unannounced<'a>(
    pools: impl IntoIterator<Item = (IpNet, &'a str)>,
    announced: &[IpNet],
) -> BTreeMap<IpNet, &'a str> {
    // Two halves are the whole.
    let announced = IpNet::aggregate(&announced.to_vec());
    let mut missing = BTreeMap::new();
    for (network, name) in pools {
        let is_family = |net: &&IpNet| net.addr().is_ipv4() == network.addr().is_ipv4();
        let mut of_family = announced.iter().filter(is_family).peekable();
        if of_family.peek().is_some() && !of_family.any(|net| net.contains(&network)) {
            missing.entry(network).or_insert(name);
        }
    }
    missing
}
