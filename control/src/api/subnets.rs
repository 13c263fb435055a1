//! Addresses and CIDRs: reading them from text, and whether two lists claim the same addresses.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{ApiError, limits};

/// Reads a list of CIDRs, host bits cleared, order and duplicates kept.
///
/// # Errors
/// [`ApiError::Field`] naming `field` and the index of the first entry that is no CIDR, or that lies in a block which
/// no cluster can own: loopback, link-local, multicast or unspecified. Or naming `field` alone, when it has more than
/// [`limits::MAX_CIDRS`] entries.
pub fn parse_cidrs(field: &str, texts: &[String]) -> Result<Vec<IpNet>, ApiError> {
    limits::check_list(field, texts.len(), limits::MAX_CIDRS)?;
    let parse = |(index, text): (usize, &String)| {
        let at = || format!("{field}[{index}]");
        let net: IpNet = text
            .parse()
            .map_err(|_| ApiError::field(at(), format!("`{text}` is not a CIDR such as 10.1.0.0/16")))?;
        if !is_ownable(&net) {
            let reason = format!("`{text}` is loopback, link-local, multicast or unspecified space");
            return Err(ApiError::field(at(), reason));
        }
        Ok(net.trunc())
    };
    texts.iter().enumerate().map(parse).collect()
}

/// Returns what a cluster's Endpoints publish: its global networks alone if there are any, else those of services, then those of
/// pods (api §3).
pub fn published<T: Clone>(global: &[T], services: &[T], pods: &[T]) -> Vec<T> {
    if global.is_empty() { [services, pods].concat() } else { global.to_vec() }
}

/// Reads the address of a host.
///
/// # Errors
/// [`ApiError::Field`] naming `field` when the text is no address, or one at which nobody else reaches a host: loopback,
/// link-local, broadcast, multicast or unspecified.
pub(super) fn parse_ip(field: &str, text: &str) -> Result<IpAddr, ApiError> {
    let address: IpAddr =
        text.parse().map_err(|_| ApiError::field(field, format!("`{text}` is not an IP address")))?;
    let canonical = address.to_canonical();
    let is_of_a_link = match canonical {
        IpAddr::V4(a) => a.is_link_local() || a.is_broadcast() || a.octets()[0] == 0,
        IpAddr::V6(a) => a.is_unicast_link_local() || a.is_unspecified(),
    };
    if canonical.is_multicast() || canonical.is_loopback() || is_of_a_link {
        let reason = format!("`{text}` is not the address of a host that others can reach");
        return Err(ApiError::field(field, reason));
    }
    Ok(address)
}

/// Returns the first pair of networks, one of each list, that have an address in common.
pub fn overlap(left: &[IpNet], right: &[IpNet]) -> Option<(IpNet, IpNet)> {
    left.iter().find_map(|l| right.iter().find(|r| l.contains(*r) || r.contains(l)).map(|r| (*l, *r)))
}

/// Returns `true` if a cluster may claim this network. The default route passes: an exit cluster is legitimate.
fn is_ownable(net: &IpNet) -> bool {
    if net.prefix_len() == 0 {
        return true;
    }
    match net.network() {
        IpAddr::V4(a) => {
            !(a.is_loopback() || a.is_link_local() || a.is_multicast() || a.octets()[0] == 0)
                || (a.octets()[0] == 0 && net.prefix_len() < 8)
        }
        IpAddr::V6(a) => {
            !(a.is_loopback() || a.is_unicast_link_local() || a.is_multicast() || a.is_unspecified())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_bad_cidr_is_named_by_field_and_index() {
        let error = parse_cidrs("spec.subnets", &texts(&["10.0.0.0/8", "10.1.0.0/33"])).unwrap_err();
        assert_eq!(error.field_path(), Some("spec.subnets[1]"));
        assert!(error.to_string().contains("10.1.0.0/33"), "{error}");
    }

    #[test]
    fn host_bits_are_cleared() {
        let nets = parse_cidrs("x", &texts(&["10.1.2.3/16", "fd00:1::5/64"])).unwrap();
        assert_eq!(nets, ["10.1.0.0/16".parse().unwrap(), "fd00:1::/64".parse().unwrap()]);
    }

    #[test]
    fn space_that_no_cluster_owns_is_refused() {
        for text in
            ["127.0.0.0/8", "169.254.1.0/24", "224.0.0.0/4", "0.0.0.0/8", "::1/128", "fe80::/64", "ff02::/16"]
        {
            assert!(parse_cidrs("x", &texts(&[text])).is_err(), "{text} was accepted");
        }
        for text in ["0.0.0.0/0", "::/0", "0.0.0.0/1", "10.0.0.0/8", "242.0.0.0/8", "fd00::/8"] {
            assert!(parse_cidrs("x", &texts(&[text])).is_ok(), "{text} was refused");
        }
    }

    #[test]
    fn an_address_that_nobody_else_reaches_is_no_hosts() {
        for text in [
            "127.0.0.1",
            "::1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "255.255.255.255",
            "224.0.0.1",
            "ff02::1",
            "169.254.1.1",
            "fe80::1",
            "::ffff:127.0.0.1",
            "10.0.0.256",
        ] {
            let error = parse_ip("spec.private_ip", text).unwrap_err();
            assert_eq!(error.field_path(), Some("spec.private_ip"), "{text}");
        }
        for text in ["10.0.0.1", "192.0.2.1", "2001:db8::1", "fd00::1"] {
            assert!(parse_ip("x", text).is_ok(), "{text}");
        }
    }

    #[test]
    fn overlap_finds_containment_in_either_direction_and_within_a_family_only() {
        let nets = |list: &[&str]| parse_cidrs("x", &texts(list)).unwrap();
        assert!(overlap(&nets(&["10.0.0.0/8"]), &nets(&["192.168.0.0/16", "10.2.0.0/16"])).is_some());
        assert!(overlap(&nets(&["10.2.3.0/24"]), &nets(&["10.2.0.0/16"])).is_some());
        assert!(
            overlap(&nets(&["10.1.0.0/16", "fd00:1::/64"]), &nets(&["10.2.0.0/16", "fd00:2::/64"])).is_none()
        );
        assert!(overlap(&nets(&["0.0.0.0/0"]), &nets(&["fd00::/8"])).is_none());
    }
}
