//! Reverse names: which address a name below `in-addr.arpa` or `ip6.arpa` stands for, and in which zone it lies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::name::QueryName;

/// Where a reverse name lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reverse {
    /// The address, if the name has all of its labels and no more.
    pub(crate) address: Option<IpAddr>,
    /// Whether nothing can have this name: it has more labels than an address, or one that is no digit.
    pub(crate) is_vacant: bool,
    /// The number of labels below the apex of its zone.
    pub(crate) below: usize,
}

/// Finds the zone of a reverse name among networks of clusterset IPs. Zones are cut at whole labels: a network of 20 bits
/// is sixteen zones of three labels.
pub(crate) fn find(networks: &[IpNet], name: &QueryName) -> Option<Reverse> {
    let labels = name.labels();
    let is_arpa = labels >= 2 && name.label(labels - 1) == b"arpa";
    let (bits, octets, most) = match name.label(labels.saturating_sub(2)) {
        b"in-addr" if is_arpa => (8, decimal as fn(&[u8]) -> Option<u8>, 4),
        b"ip6" if is_arpa => (4, nibble as fn(&[u8]) -> Option<u8>, 32),
        _ => return None,
    };
    let digits = labels - 2;
    let mut bytes = [0_u8; 16];
    let mut parsed = 0;
    for index in 0..digits.min(most) {
        let Some(digit) = octets(name.label(digits - 1 - index)) else { break };
        parsed += 1;
        match bits {
            8 => bytes[index] = digit,
            _ => bytes[index / 2] |= digit << (4 - 4 * (index % 2)),
        }
    }
    let [a, b, c, d, ..] = bytes;
    let address = match bits {
        8 => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        _ => IpAddr::V6(Ipv6Addr::from(bytes)),
    };
    let network = networks.iter().find(|network| network.contains(&address))?;
    let zone_digits = usize::from(network.prefix_len()).div_ceil(bits);
    let is_address = parsed == most && digits == most;
    (parsed >= zone_digits).then(|| Reverse {
        address: is_address.then_some(address),
        is_vacant: parsed < digits,
        below: digits - zone_digits,
    })
}

/// Parses an octet of IPv4: no leading zeros, so that an address has one name.
fn decimal(label: &[u8]) -> Option<u8> {
    if label.len() > 1 && label.starts_with(b"0") || !label.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(label).ok()?.parse().ok()
}

/// Parses four bits of IPv6.
fn nibble(label: &[u8]) -> Option<u8> {
    match label {
        [digit @ b'0'..=b'9'] => Some(digit - b'0'),
        [digit @ b'a'..=b'f'] => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::tests::query_name;

    fn networks() -> Vec<IpNet> {
        ["243.0.16.0/20", "fd00:1::/36"].iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn addresses_of_both_families_are_parsed() {
        let networks = networks();
        let address = |text| find(&networks, &query_name(text)).and_then(|reverse| reverse.address);
        assert_eq!(address("1.17.0.243.in-addr.arpa"), Some("243.0.17.1".parse().unwrap()));
        let nibbles = format!("{}1.0.0.0.0.0.d.f.ip6.arpa", "0.".repeat(24));
        assert_eq!(nibbles.matches('.').count(), 33);
        let six = format!("8.{}1.0.0.0.0.0.d.f.ip6.arpa", "0.".repeat(23));
        assert_eq!(address(&six), Some("fd00:1::8".parse().unwrap()));
        assert_eq!(address("1.32.0.243.in-addr.arpa"), None, "another network");
        assert_eq!(address("01.17.0.243.in-addr.arpa"), None, "a leading zero");
        assert_eq!(address("256.17.0.243.in-addr.arpa"), None);
        assert_eq!(address("17.0.243.in-addr.arpa"), None, "half of an address");
    }

    #[test]
    fn zones_are_cut_at_whole_labels() {
        let networks = networks();
        let below = |text| find(&networks, &query_name(text)).map(|reverse| reverse.below);
        assert_eq!(below("17.0.243.in-addr.arpa"), Some(0));
        assert_eq!(below("1.17.0.243.in-addr.arpa"), Some(1));
        assert_eq!(below("9.1.17.0.243.in-addr.arpa"), Some(2), "below an address");
        assert_eq!(below("x.17.0.243.in-addr.arpa"), Some(1), "no digit");
        assert!(find(&networks, &query_name("x.17.0.243.in-addr.arpa")).is_some_and(|found| found.is_vacant));
        assert_eq!(below("0.243.in-addr.arpa"), None, "above the zone");
        assert_eq!(below("arpa"), None);
    }
}
