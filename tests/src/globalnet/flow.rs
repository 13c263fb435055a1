//! Who asks whom across clusters, and whose address the other must see.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;

use crate::capture::Capture;
use crate::lab::Lab;
use crate::netns::Namespace;
use crate::traffic::{self, Receipt};
use crate::wait::eventually;

/// Payload bytes: small, nearly a packet, and what has to be cut in pieces.
pub const SIZES: [usize; 4] = [64, 1400, 3000, 9000];

/// How long one exchange may take.
const TRAFFIC: Duration = Duration::from_secs(30);

/// How long it may take until gateways translate to addresses that were given, beside other tests.
const TRANSLATED: Duration = Duration::from_secs(120);

/// Who asks.
#[derive(Debug, Clone)]
pub struct Client {
    /// For messages.
    pub name: String,
    /// Where it lives.
    pub netns: Namespace,
    /// The addresses under which it may leave its cluster.
    pub leaves_as: Vec<Ipv4Addr>,
}

/// Who answers.
#[derive(Debug, Clone)]
pub struct Server {
    /// For messages.
    pub name: String,
    /// Where it lives.
    pub netns: Namespace,
    /// Its service's global address and port, as others reach it.
    pub service: SocketAddr,
    /// Its own global address and port, as a pod of a headless service.
    pub headless: SocketAddr,
}

/// Everybody on one node.
#[derive(Debug, Clone)]
pub struct Actors {
    /// A pod that nothing is said of.
    pub plain: Client,
    /// A pod of a namespace with addresses of its own.
    pub team: Client,
    /// A pod that addresses were chosen for by its label.
    pub chosen: Client,
    /// The node itself, as its host network's pods are.
    pub host: Client,
    /// A pod behind a service, and of a headless one.
    pub server: Server,
}

/// Everybody of one cluster.
#[derive(Debug, Clone)]
pub struct Site {
    /// On the node with the gateway.
    pub gateway: Actors,
    /// On a node without.
    pub worker: Actors,
}

impl Site {
    /// Waits until everybody who asks leaves as one of their own addresses: an object has them before gateways translate to
    /// them, and until then who asks leaves as any other of the cluster.
    ///
    /// # Errors
    /// If somebody does not soon.
    pub fn wait_translated(&self, other: &Self) -> anyhow::Result<()> {
        for actors in [&self.gateway, &self.worker] {
            for client in [&actors.plain, &actors.team, &actors.chosen, &actors.host] {
                eventually(&format!("{} to leave as one of its addresses", client.name), TRANSLATED, || {
                    client.expect(client.tcp(other.worker.server.service, SIZES[0])?)
                })?;
            }
        }
        Ok(())
    }
}

/// GN-1..12, from `east` but for the last one.
pub fn rows<'a>(east: &'a Site, west: &'a Site) -> Vec<Flow<'a>> {
    let (gw, ngw) = (&east.gateway, &east.worker);
    let service = |id, what, client, server: &'a Actors| Flow {
        id,
        what,
        client,
        server: &server.server,
        is_headless: false,
    };
    let headless = |id, what, client, server: &'a Actors| Flow {
        is_headless: true,
        ..service(id, what, client, server)
    };
    vec![
        service("GN-1", "pod nGW → service nGW", &ngw.plain, &west.worker),
        service("GN-2", "pod GW → service nGW", &gw.plain, &west.worker),
        service("GN-3", "pod GW → service GW", &gw.plain, &west.gateway),
        service("GN-4", "namespace's pod nGW → service nGW", &ngw.team, &west.worker),
        service("GN-5", "namespace's pod GW → service GW", &gw.team, &west.gateway),
        service("GN-6", "chosen pod nGW → service nGW", &ngw.chosen, &west.worker),
        service("GN-7", "chosen pod GW → service GW", &gw.chosen, &west.gateway),
        service("GN-8", "host nGW → service nGW", &ngw.host, &west.worker),
        service("GN-9", "host GW → service nGW", &gw.host, &west.worker),
        headless("GN-10", "pod nGW → headless pod nGW", &ngw.plain, &west.worker),
        headless("GN-11", "pod GW → headless pod GW", &gw.plain, &west.gateway),
        service("GN-12", "pod nGW → service nGW, the other way", &west.worker.plain, &east.worker),
    ]
}

/// Pods that ask for global addresses of their own cluster, where the gateway turns packets round (RFC 4787 section 6).
pub fn hairpins(site: &Site) -> Vec<Flow<'_>> {
    let (gw, ngw) = (&site.gateway, &site.worker);
    let flow = |id, what, client, server: &'static str, is_headless| {
        let server = if server == "gw" { &gw.server } else { &ngw.server };
        Flow { id, what, client, server, is_headless }
    };
    vec![
        flow("own-1", "pod nGW → own headless pod GW", &ngw.plain, "gw", true),
        flow("own-2", "pod GW → own headless pod nGW", &gw.plain, "ngw", true),
        flow("own-3", "chosen pod nGW → own headless pod nGW", &ngw.chosen, "ngw", true),
        flow("own-4", "pod nGW → own service GW", &ngw.plain, "gw", false),
    ]
}

/// One row: TCP and UDP with every size to a port, ICMP with every size to the server itself, always from one address.
#[derive(Debug, Clone, Copy)]
pub struct Flow<'a> {
    /// Its number in the list.
    pub id: &'a str,
    /// What it is, for people.
    pub what: &'a str,
    /// Who asks.
    pub client: &'a Client,
    /// Who answers.
    pub server: &'a Server,
    /// Whether the server is asked by its own address rather than by its service's.
    pub is_headless: bool,
}

impl Flow<'_> {
    /// Goes through it; returns the address that the server has seen.
    ///
    /// # Errors
    /// The first exchange that fails, or that comes from another address.
    pub fn check(&self, lab: &Lab) -> anyhow::Result<Ipv4Addr> {
        let to = if self.is_headless { self.server.headless } else { self.server.service };
        let first = self.client.tcp(to, SIZES[0])?;
        for bytes in SIZES {
            self.expect(first, self.client.tcp(to, bytes)?).with_context(|| format!("TCP, {bytes} bytes"))?;
            self.expect(first, self.client.udp(to, bytes)?).with_context(|| format!("UDP, {bytes} bytes"))?;
        }
        // A service's address answers no ping; its pod's does, and the source is chosen alike.
        self.ping(lab, first)?;
        Ok(first)
    }

    fn expect(&self, first: Ipv4Addr, seen: Ipv4Addr) -> anyhow::Result<()> {
        anyhow::ensure!(seen == first, "seen as {seen} after {first}: one source has one address");
        self.client.expect(seen)
    }

    /// Pings of all sizes; tcpdump in the server says where they came from.
    fn ping(&self, lab: &Lab, seen: Ipv4Addr) -> anyhow::Result<()> {
        let to = self.server.headless.ip();
        // Later fragments have no ICMP header, but the address.
        let capture = Capture::start(lab, &self.server.netns, "any", "icmp and icmp[icmptype] == icmp-echo")?;
        let mut sent = 0;
        for bytes in SIZES {
            let ping = traffic::ping_sized(&self.client.netns, to, bytes)
                .with_context(|| format!("ICMP from {} to {}", self.client.name, self.server.name))?;
            sent += ping.sent as usize;
        }
        let frames = capture.finish()?;
        let (ours, all) = (frames.count(&format!("src host {seen}"))?, frames.count("icmp")?);
        anyhow::ensure!(ours >= sent, "ICMP: of {all} requests ({sent} awaited) {ours} came from {seen}");
        Ok(())
    }
}

impl Client {
    /// Checks an address that it was seen as.
    ///
    /// # Errors
    /// If it is none of its own.
    pub fn expect(&self, seen: Ipv4Addr) -> anyhow::Result<()> {
        let (name, allowed) = (&self.name, &self.leaves_as);
        anyhow::ensure!(allowed.contains(&seen), "{name} is seen as {seen}, not as one of {}", list(allowed));
        Ok(())
    }

    /// Sends so many bytes over TCP; returns whose they seemed.
    ///
    /// # Errors
    /// If they do not arrive as they were, or in time.
    pub fn tcp(&self, to: SocketAddr, bytes: usize) -> anyhow::Result<Ipv4Addr> {
        let bytes = traffic::pattern(bytes);
        let receipt = traffic::send_tcp(&self.netns, to, &bytes, TRAFFIC);
        seen(receipt, &bytes)
            .with_context(|| format!("TCP from {} to {to}, {} bytes", self.name, bytes.len()))
    }

    /// Sends a datagram of so many bytes; returns whose it seemed.
    ///
    /// # Errors
    /// If it does not arrive as it was, or in time.
    pub fn udp(&self, to: SocketAddr, bytes: usize) -> anyhow::Result<Ipv4Addr> {
        let bytes = traffic::pattern(bytes);
        let receipt = traffic::send_udp(&self.netns, to, &bytes, TRAFFIC);
        seen(receipt, &bytes)
            .with_context(|| format!("UDP from {} to {to}, {} bytes", self.name, bytes.len()))
    }
}

fn seen(receipt: anyhow::Result<Receipt>, bytes: &[u8]) -> anyhow::Result<Ipv4Addr> {
    let receipt = receipt?;
    receipt.check_bytes(bytes)?;
    match receipt.seen_as.ip() {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(address) => anyhow::bail!("seen as {address}"),
    }
}

/// Addresses in one text; of a block its first and last.
pub fn list(addresses: &[Ipv4Addr]) -> String {
    let is_block = |pair: &[Ipv4Addr]| u32::from(pair[0]).checked_add(1) == Some(u32::from(pair[1]));
    match addresses {
        [first, .., last] if addresses.windows(2).all(is_block) => format!("{first}-{last}"),
        _ => addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_shown_by_its_ends() {
        let of = |last: &[u8]| last.iter().map(|last| Ipv4Addr::new(242, 1, 0, *last)).collect::<Vec<_>>();
        assert_eq!(list(&of(&[1, 2, 3])), "242.1.0.1-242.1.0.3");
        assert_eq!(list(&of(&[1, 3])), "242.1.0.1, 242.1.0.3");
        assert_eq!(list(&of(&[9])), "242.1.0.9");
    }
}
