//! The flow tests that cross clusters, by address: pods and nodes to pods, and to services with a pod or a node behind
//! them, over both families.

use std::net::{IpAddr, SocketAddr};

use anyhow::Context;
use trieste_tests::clusters::{Pod, RESPONDER_PORT};
use trieste_tests::table::Table;
use trieste_tests::traffic::Receipt;

use crate::sides::{Actor, SERVICE_PORT, Side};

/// Payload bytes: small, nearly a packet, and what has to be cut in pieces; and enough small ones that every gateway has
/// some.
const SIZES: [usize; 10] = [64, 1400, 3000, 9000, 64, 64, 64, 64, 64, 64];
const PINGS: [usize; 3] = [64, 1400, 9000];
/// Pairs of gateways that a flow may take.
const WAYS: usize = 4;

/// Sends so many bytes and hears what became of them.
type Ask = fn(&Pod, SocketAddr, usize) -> anyhow::Result<Receipt>;

/// Everybody of each cluster with everybody of the other; what one client does, at the same time.
pub(crate) fn run(sides: &[Side<'_>; 2], table: &Table) {
    for (from, to) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
        let id = from.cluster.name();
        for (who, client) in from.actors() {
            std::thread::scope(|scope| {
                for (whom, server) in to.actors() {
                    if !server.is_host {
                        let what = format!("{who} → {whom}");
                        scope.spawn(move || table.row(id, &what, || to_pod(client, server)));
                    }
                    let what = format!("{who} → service {whom}");
                    scope.spawn(move || table.row(id, &what, || to_service(client, server)));
                }
            });
        }
    }
}

fn to_pod(client: &Actor<'_>, server: &Actor<'_>) -> anyhow::Result<String> {
    for ip in &server.pod.addresses {
        exchange(client, SocketAddr::new(*ip, RESPONDER_PORT), &[Pod::tcp, Pod::udp])?;
        for bytes in PINGS {
            ping(client, *ip, bytes)?;
        }
        if !client.is_host {
            client.pod.ping_pod(&server.pod, *ip, 64, client.pod.address_like(*ip)?)?;
        }
    }
    Ok("TCP, UDP, ICMP".to_owned())
}

/// Every run of ping is another flow and may take another way, of whose MTU it has to be told first.
fn ping(client: &Actor<'_>, ip: IpAddr, bytes: usize) -> anyhow::Result<()> {
    let learnt = (1..WAYS).any(|_| client.pod.ping(ip, bytes).is_ok());
    if learnt { Ok(()) } else { client.pod.ping(ip, bytes).map(drop) }
}

fn to_service(client: &Actor<'_>, server: &Actor<'_>) -> anyhow::Result<String> {
    // A node that is asked over UDP answers from another of its addresses, unless its server minds.
    let protocols: &[Ask] = if server.is_host { &[Pod::tcp] } else { &[Pod::tcp, Pod::udp] };
    for ip in &server.service {
        exchange(client, SocketAddr::new(*ip, SERVICE_PORT), protocols)?;
    }
    Ok(if server.is_host { "TCP" } else { "TCP, UDP" }.to_owned())
}

fn exchange(client: &Actor<'_>, to: SocketAddr, protocols: &[Ask]) -> anyhow::Result<()> {
    for (number, bytes) in SIZES.into_iter().enumerate() {
        for ask in protocols {
            let receipt = ask(&client.pod, to, bytes).with_context(|| format!("exchange {number}"))?;
            client.expects(receipt.seen_as.ip()).with_context(|| format!("exchange {number} with {to}"))?;
        }
    }
    Ok(())
}
