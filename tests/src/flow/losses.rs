//! What the kernel itself has lost in a namespace: the first question when a test misses a packet.

use std::path::Path;

use trieste_diagnose::node::counters;

use crate::netns::Namespace;

/// Of `snmp`, the counters that are losses.
const LOSSES: [&str; 10] = [
    "InHdrErrors",
    "InDiscards",
    "OutDiscards",
    "OutNoRoutes",
    "ReasmTimeout",
    "ReasmFails",
    "FragFails",
    "InErrors",
    "RcvbufErrors",
    "SndbufErrors",
];

/// The counters of losses of this namespace that are not zero, as `Ip.ReasmFails 2` or `eth0 tx-dropped 7`.
///
/// # Errors
/// If the namespace is gone.
pub(crate) fn of(namespace: &Namespace) -> anyhow::Result<Vec<String>> {
    namespace.enter(|| {
        let read = |name: &str| std::fs::read_to_string(Path::new("/proc/thread-self/net").join(name));
        let mut losses = in_snmp(&read("snmp")?);
        losses.extend(on_links(&read("dev")?));
        Ok(losses)
    })
}

/// How many packets the kernel has dropped since it started as a processor's queue of them was full, whoever's they were.
///
/// # Errors
/// If the kernel does not tell.
pub(crate) fn backlog() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/net/softnet_stat")?;
    let dropped = text.lines().filter_map(|line| line.split_whitespace().nth(1));
    Ok(dropped.filter_map(|number| u64::from_str_radix(number, 16).ok()).sum())
}

fn in_snmp(text: &str) -> Vec<String> {
    let counters = counters::table(text).into_iter();
    let lost = counters.filter(|(_, name, number)| LOSSES.contains(name) && *number != "0");
    lost.map(|(protocol, name, number)| format!("{protocol}.{name} {number}")).collect()
}

/// A line for each link: bytes, packets, errors and dropped of what came, and four fields later of what went.
fn on_links(text: &str) -> Vec<String> {
    let mut losses = Vec::new();
    for (link, numbers) in text.lines().filter_map(|line| line.split_once(':')) {
        let numbers: Vec<_> = numbers.split_whitespace().collect();
        for (name, at) in [("rx-errors", 2), ("rx-dropped", 3), ("tx-errors", 10), ("tx-dropped", 11)] {
            if let Some(number) = numbers.get(at).filter(|number| **number != "0") {
                losses.push(format!("{} {name} {number}", link.trim()));
            }
        }
    }
    losses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_lost_is_told() {
        let snmp =
            "Ip: Forwarding InDiscards ReasmFails\nIp: 2 0 3\nUdp: InDatagrams RcvbufErrors\nUdp: 9 12\n";
        assert_eq!(in_snmp(snmp), ["Ip.ReasmFails 3", "Udp.RcvbufErrors 12"]);
        let dev = "Inter-| Receive | Transmit\n face |bytes packets errs drop fifo\n    lo: 1 2 0 0 0 0 0 0 5 6 0 0 0 0 0 0\n  eth0: 1 2 0 4 0 0 0 0 5 6 0 7 0 0 0 0\n";
        assert_eq!(on_links(dev), ["eth0 rx-dropped 4", "eth0 tx-dropped 7"]);
        assert_eq!(in_snmp("Ip: only\n"), Vec::<String>::new());
    }
}
