//! What flows leave behind in kernels: entries of connection tracking, and counts of handshakes that were repeated.

use std::net::IpAddr;

use anyhow::Context;
use trieste_tests::clusters::Node;
use trieste_tests::netns::Namespace;

use crate::shared::Two;
use crate::sides::Actor;

/// Nodes that a flow only passes through know nothing of it.
///
/// # Errors
/// The entries of those that do.
pub(crate) fn none_between(two: &Two, client: &Actor<'_>, server: &Actor<'_>) -> anyhow::Result<()> {
    let at_ends = [client.node.name(), server.node.name()];
    let nodes = two.set.clusters.all().iter().flat_map(|cluster| cluster.nodes());
    let theirs: Vec<IpAddr> = server.pod.addresses.iter().chain(&server.service).copied().collect();
    for node in nodes.filter(|node| !at_ends.contains(&node.name())) {
        let found = entries(node, &client.pod.addresses, &theirs)?;
        anyhow::ensure!(
            found.is_empty(),
            "{} tracks {} connections that it only passes on, such as {}",
            node.name(),
            found.len(),
            found[0]
        );
    }
    Ok(())
}

/// A node's entries between these addresses.
fn entries(node: &Node, clients: &[IpAddr], servers: &[IpAddr]) -> anyhow::Result<Vec<String>> {
    let text = node.netns().run("cat").arg("/proc/net/nf_conntrack").stdout()?;
    let has = |line: &str, those: &[IpAddr]| {
        let is_one = |word: &str| {
            let address = word.strip_prefix("src=").or_else(|| word.strip_prefix("dst="));
            address.and_then(|text| text.parse().ok()).is_some_and(|address| those.contains(&address))
        };
        line.split(' ').any(is_one)
    };
    let between = |line: &&str| has(line, clients) && has(line, servers);
    Ok(text.lines().filter(between).map(str::to_owned).collect())
}

/// How many SYNs and answers to SYNs have been sent again in a network namespace.
///
/// # Errors
/// If the kernel does not say.
pub(crate) fn repeated_handshakes(netns: &Namespace) -> anyhow::Result<u64> {
    let text = netns.run("cat").arg("/proc/net/netstat").stdout()?;
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = lines.next().zip(lines.next()).context("netstat has counts of TCP")?;
    let mut pairs = names.split(' ').zip(values.split(' '));
    let (_, value) = pairs.find(|(name, _)| *name == "TCPSynRetrans").context("TCPSynRetrans is counted")?;
    value.parse().context("a count is a number")
}
