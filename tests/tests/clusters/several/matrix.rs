//! The path matrix: connections and datagrams of one client until every way was seen that there is. From a worker to a
//! worker there are sixteen; a gateway's node leaves by its own gateway, and answers by it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use trieste_tests::clusters::RESPONDER_PORT;
use trieste_tests::globalnet::Site;
use trieste_tests::guard;
use trieste_tests::mesh::carriers::{Carriers, Protocol, Way};
use trieste_tests::netns::Namespace;
use trieste_tests::table::Table;
use trieste_tests::traffic::{self, Receipt};

use super::traces;
use crate::shared::Two;
use crate::sides::{SERVICE_PORT, Side};

const PROTOCOLS: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];
/// Flows between two looks at the ways that were seen.
const AT_ONCE: usize = 80;
/// Flows after which a way that was not seen does not exist: the chance to miss one of sixteen is below 1 in 100,000, even
/// if it gets half its share, as with Globalnet, whose owners of ports have more or less of them.
const MOST: usize = 600;
const BYTES: usize = 300;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Who asks, and whose address the server may see.
struct Caller<'a> {
    netns: &'a Namespace,
    seen_as: Vec<IpAddr>,
}

/// What flows of one protocol have taken.
struct Taken {
    protocol: Protocol,
    flows: usize,
    ways: BTreeSet<Way>,
}

/// Pods of both clusters, with pods and services of each other, by their own addresses.
pub(crate) fn between_pods(two: &Two, sides: &[Side<'_>; 2], carriers: &Carriers, table: &Table) {
    for (number, (from, to)) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])].into_iter().enumerate() {
        for (what, client, server, ways) in [
            ("nGW → nGW", &from.on_worker, &to.on_worker, 16),
            ("nGW → GW", &from.on_worker, &to.on_gateway, 8),
            ("GW → nGW", &from.on_gateway, &to.on_worker, 8),
            ("GW → GW", &from.on_gateway, &to.on_gateway, 4),
        ] {
            let caller = Caller { netns: client.pod.netns(), seen_as: client.pod.addresses.clone() };
            let targets = [
                ("pod", server.pod.addresses[0], RESPONDER_PORT),
                ("service", server.service[0], SERVICE_PORT),
            ];
            for (kind, ip, port) in targets {
                table.row(from.cluster.name(), &format!("ways {kind} {what}"), || {
                    let told = caller.ways(two, carriers, SocketAddr::new(ip, port), number, ways)?;
                    traces::none_between(two, client, server)?;
                    Ok(told)
                });
            }
        }
    }
}

/// The same with Globalnet.
pub(crate) fn between_sites(two: &Two, sites: &[&Site; 2], carriers: &Carriers, table: &Table) {
    for (number, (from, to)) in [(sites[0], sites[1]), (sites[1], sites[0])].into_iter().enumerate() {
        for (what, client, server, ways) in [
            ("nGW → nGW", &from.worker, &to.worker, 16),
            ("nGW → GW", &from.worker, &to.gateway, 8),
            ("GW → nGW", &from.gateway, &to.worker, 8),
            ("GW → GW", &from.gateway, &to.gateway, 4),
        ] {
            let seen_as = client.plain.leaves_as.iter().copied().map(IpAddr::from).collect();
            let caller = Caller { netns: &client.plain.netns, seen_as };
            // A pod's own global address and port have one owner, by which all comes in.
            let (pod, service) = (server.server.headless, server.server.service);
            for (kind, to, ways) in [("headless", pod, ways / 2), ("service", service, ways)] {
                table.row(["east", "west"][number], &format!("ways {kind} {what}"), || {
                    caller.ways(two, carriers, to, number, ways)
                });
            }
        }
    }
}

impl Caller<'_> {
    /// Asks until every way was seen. Each question has to arrive from the right address, and none may be asked twice: what
    /// connection tracking refuses, a SYN or its answer, comes again a second later, and is counted by the client's kernel.
    ///
    /// A way whose path is not used does not exist for as long: one that is missing counts if every path was used all the
    /// time, and is asked for from the start if one has changed meanwhile.
    fn ways(
        &self,
        two: &Two,
        carriers: &Carriers,
        to: SocketAddr,
        from: usize,
        ways: usize,
    ) -> anyhow::Result<String> {
        // Where other tests hold a gateway up, one may be late, or lost with a path that is left meanwhile; what connection
        // tracking refuses is the share of ways that it does not know.
        let late = if guard::is_alone() { 0 } else { 3 };
        let attempt = || {
            carriers.forget()?;
            let before = traces::repeated_handshakes(self.netns)?;
            let asked = PROTOCOLS.map(|protocol| self.ways_of(protocol, carriers, to, from, ways));
            Ok((asked, traces::repeated_handshakes(self.netns)? - before))
        };
        let ([tcp, udp], repeated) = two.undisturbed(attempt, |result| {
            let Ok(([Ok(tcp), Ok(udp)], repeated)) = result else { return None };
            let (tcp, udp) = (tcp.ways.len(), udp.ways.len());
            (tcp < ways || udp < ways || *repeated > late)
                .then(|| format!("{tcp} and {udp} of {ways} ways, {repeated} SYNs sent again,"))
        })?;
        anyhow::ensure!(repeated <= late, "{repeated} SYNs were sent again");
        let (tcp, udp) = (tcp?.flows_for(ways)?, udp?.flows_for(ways)?);
        Ok(format!("{ways} ways with {tcp} TCP connections, {udp} of UDP"))
    }

    /// Asks until every way was seen, or one that was not does not exist.
    fn ways_of(
        &self,
        protocol: Protocol,
        carriers: &Carriers,
        to: SocketAddr,
        from: usize,
        ways: usize,
    ) -> anyhow::Result<Taken> {
        let mut known_as = BTreeMap::new();
        loop {
            for number in 0..AT_ONCE {
                let receipt = self
                    .ask(protocol, to)
                    .with_context(|| format!("{} number {number} to {to}", protocol.name()))?;
                known_as.insert(receipt.sent_from.port(), receipt.seen_as.port());
            }
            let seen = carriers.ways_known_as(protocol, from, |port| known_as.get(&port).copied())?;
            let taken = Taken { protocol, flows: known_as.len(), ways: seen.into_values().collect() };
            if taken.ways.len() >= ways || taken.flows >= MOST {
                return Ok(taken);
            }
        }
    }

    fn ask(&self, protocol: Protocol, to: SocketAddr) -> anyhow::Result<Receipt> {
        let bytes = traffic::pattern(BYTES);
        let receipt = match protocol {
            Protocol::Tcp => traffic::send_tcp(self.netns, to, &bytes, TIMEOUT),
            Protocol::Udp => traffic::send_udp(self.netns, to, &bytes, TIMEOUT),
        }?;
        receipt.check_bytes(&bytes)?;
        let seen = receipt.seen_as.ip();
        anyhow::ensure!(self.seen_as.contains(&seen), "seen as {seen}, not as one of {:?}", self.seen_as);
        Ok(receipt)
    }
}

impl Taken {
    /// Returns how many flows it took, if they went all ways.
    fn flows_for(self, ways: usize) -> anyhow::Result<usize> {
        let (name, count) = (self.protocol.name(), self.ways.len());
        // Where other tests hold gateways up, a path may be left meanwhile: that is one way more.
        let is_all = count == ways || count > ways && !guard::is_alone();
        anyhow::ensure!(is_all, "{name} went {count} of {ways} ways: {:?}", self.ways);
        Ok(self.flows)
    }
}
