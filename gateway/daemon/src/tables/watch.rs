//! The addresses between which a cable's path is probed.

use std::net::IpAddr;

use ipnet::IpNet;
use trieste_pipeline::health::Watch;

use super::{Local, Peer, Role};

/// A cable before something about it has changed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Before<'a> {
    /// How its path is probed.
    pub watch: Option<Watch>,
    /// Our published subnets, those that have been for longest first.
    pub local: &'a [IpNet],
    /// The peer's, as it published them.
    pub remote: &'a [IpNet],
}

impl Peer {
    /// Returns how the path to it is probed; `None` if its far end does not support that. Between clusters probes use the first
    /// addresses of published subnets of one family, IPv4 before IPv6, which every kind of cable accepts. Where subnets change
    /// they stay what they were, if they can, or move to a subnet that both ends have had before: a cable whose ends agree on
    /// networks does not carry others yet.
    #[must_use]
    pub fn watch(&self, local: &Local, before: &Before<'_>) -> Option<Watch> {
        let ours =
            |is_ipv4| end(&local.site.subnets, before.local, before.watch.map(|watch| watch.from), is_ipv4);
        let theirs =
            |is_ipv4| end(&self.facts.subnets, before.remote, before.watch.map(|watch| watch.to), is_ipv4);
        let is_ipv4_first = before.watch.is_none_or(|watch| watch.from.is_ipv4());
        let (from, to) = match self.role {
            Role::Sole => None,
            Role::Sibling => Some((local.site.private_ip, self.facts.private_ip)),
            Role::Member => [is_ipv4_first, !is_ipv4_first]
                .into_iter()
                .find_map(|is_ipv4| ours(is_ipv4).zip(theirs(is_ipv4))),
        }?;
        let is_possible = from.is_ipv4() == to.is_ipv4();
        let is_sibling = self.role == Role::Sibling;
        is_possible.then_some(Watch { from, to, most_bytes: local.path_mtu, is_sibling })
    }
}

/// Returns an end's address of a family.
fn end(subnets: &[IpNet], before: &[IpNet], known: Option<IpAddr>, is_ipv4: bool) -> Option<IpAddr> {
    let of_family = || subnets.iter().filter(|subnet| subnet.addr().is_ipv4() == is_ipv4);
    let kept = known.filter(|address| of_family().any(|subnet| subnet.contains(address)));
    let common = || before.iter().find_map(|former| of_family().find(|subnet| former.contains(*subnet)));
    let first = || common().or_else(|| of_family().next()).map(IpNet::network);
    kept.or_else(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_stays_while_it_is_published_and_moves_to_what_was_published_before() {
        let nets =
            |texts: &[&str]| -> Vec<IpNet> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        let before = nets(&["10.1.0.0/16", "10.2.0.0/16", "fd01::/16"]);
        let known: IpAddr = "10.1.0.0".parse().unwrap();
        for (now, expected) in [
            (&["10.9.0.0/16", "10.2.0.0/16", "10.1.0.0/16"][..], Some("10.1.0.0")),
            (&["10.9.0.0/16", "10.2.0.0/16"], Some("10.2.0.0")),
            (&["10.9.0.0/16", "10.0.0.0/15"], Some("10.1.0.0")),
            (&["10.9.0.0/16", "10.2.3.0/24"], Some("10.2.3.0")),
            (&["10.9.0.0/16", "fd01::/16"], Some("10.9.0.0")),
            (&["fd01::/16"], None),
        ] {
            let found = end(&nets(now), &before, Some(known), true);
            assert_eq!(found.map(|address| address.to_string()).as_deref(), expected, "{now:?}");
        }
        assert_eq!(end(&before, &[], None, true), Some(known));
        assert_eq!(end(&before, &[], None, false), Some("fd01::".parse().unwrap()));
    }
}
