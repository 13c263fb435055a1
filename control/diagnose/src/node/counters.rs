//! The kernel's own counters of packets that went no further: `/proc/net/snmp` and `/proc/net/netstat`.

use std::collections::BTreeMap;
use std::path::Path;

/// What tells of a broken hop.
const WANTED: [&str; 8] = [
    "IPReversePathFilter",
    "InAddrErrors",
    "InNoRoutes",
    "OutNoRoutes",
    "ForwDatagrams",
    "InDiscards",
    "OutDiscards",
    "FragFails",
];

/// Reads what is there; in packets since the node's start.
pub(super) fn read(folder: &Path) -> BTreeMap<String, u64> {
    let texts =
        ["snmp", "netstat"].map(|name| std::fs::read_to_string(folder.join(name)).unwrap_or_default());
    texts.iter().flat_map(|text| parse(text)).collect()
}

/// Of a table like `/proc/net/snmp`, every counter: protocol, name, number. Pairs of lines: names, then numbers, both
/// behind the protocol.
#[must_use]
pub fn table(text: &str) -> Vec<(&str, &str, &str)> {
    let lines: Vec<&str> = text.lines().take(64).collect();
    let (pairs, _) = lines.as_chunks::<2>();
    let counters = pairs.iter().flat_map(|[names, numbers]| {
        let protocol = names.split(':').next().unwrap_or_default();
        names.split(' ').zip(numbers.split(' ')).map(move |(name, number)| (protocol, name, number))
    });
    counters.collect()
}

fn parse(text: &str) -> Vec<(String, u64)> {
    table(text)
        .into_iter()
        .filter(|(_, name, _)| WANTED.contains(name))
        .filter_map(|(_, name, number)| Some((name.to_owned(), number.parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let text =
            "TcpExt: SyncookiesSent IPReversePathFilter\nTcpExt: 1 42\nIpExt: InNoRoutes X\nIpExt: 3 -1\n";
        let expected = [("IPReversePathFilter".to_owned(), 42), ("InNoRoutes".to_owned(), 3)];
        assert_eq!(parse(text), expected);
        assert!(parse("nonsense\n").is_empty());
    }
}
