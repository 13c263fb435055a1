//! Both translations side by side, and how what they make of a packet is compared.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Instant;

use trieste_nat::{Config, EgressKind, IngressKind, OwnerKey, RulesBuilder};
use trieste_packet::checksum::{Sum, fill_ipv4_header, update16};
use trieste_packet::wire::{be16, be32, put16};
use trieste_tests::translator::{Translator, Way};

use super::kernel::Kernel;
use trieste_tests::translator::packets::{ACK, ICMP, SYN, TCP, UDP, query, reassembled, tcp, udp};

pub(crate) const POD: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 7);
pub(crate) const OTHER_POD: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 8);
pub(crate) const INSIDE_ROUTER: Ipv4Addr = Ipv4Addr::new(10, 1, 255, 254);
pub(crate) const GLOBAL: Ipv4Addr = Ipv4Addr::new(242, 0, 0, 1);
pub(crate) const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 5);
pub(crate) const SERVICE_GLOBAL: Ipv4Addr = Ipv4Addr::new(242, 0, 255, 254);
/// A pod that a rule selects, another one that is also behind a headless service, and their global addresses.
pub(crate) const SELECTED: Ipv4Addr = Ipv4Addr::new(10, 1, 3, 1);
pub(crate) const HEADLESS: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 1);
pub(crate) const SELECTED_GLOBAL: Ipv4Addr = Ipv4Addr::new(242, 0, 0, 9);
pub(crate) const HEADLESS_GLOBAL: Ipv4Addr = Ipv4Addr::new(242, 0, 255, 252);
pub(crate) const REMOTE: Ipv4Addr = Ipv4Addr::new(242, 1, 0, 9);
pub(crate) const OTHER_REMOTE: Ipv4Addr = Ipv4Addr::new(242, 1, 0, 10);
pub(crate) const REMOTE_ROUTER: Ipv4Addr = Ipv4Addr::new(242, 1, 255, 254);

/// The outside port (or identifier) of a flow, as the kernel chose it and as we did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    kernel: u16,
    ours: u16,
}

/// Both, with what has been learned of their ports.
pub(crate) struct Bed {
    kernel: Kernel,
    ours: Translator,
    now: Instant,
    /// By protocol, global address and our port: the kernel's.
    ports: BTreeMap<(u8, Ipv4Addr, u16), u16>,
    compared: u32,
}

type Packets = Vec<(Way, Vec<u8>)>;

impl Bed {
    pub(crate) fn new() -> Self {
        let mut rules = RulesBuilder::new(1, OwnerKey([9; 16]), RulesBuilder::owners_among(1));
        let cluster = rules.egress(EgressKind::Cluster, "cluster-egress", &[GLOBAL]).unwrap();
        rules.member(cluster, "10.1.0.0/16".parse().unwrap());
        let pods = rules.egress(EgressKind::Pods, "shop/some", &[SELECTED_GLOBAL]).unwrap();
        rules.member(pods, SELECTED.into());
        rules.member(pods, HEADLESS.into());
        rules.ingress(IngressKind::Service, "shop/web", SERVICE_GLOBAL, SERVICE).unwrap();
        rules.ingress(IngressKind::HeadlessPod, "shop/db-0", HEADLESS_GLOBAL, HEADLESS).unwrap();
        let now = Instant::now();
        let ours = Translator::new(Config::default(), rules.build(), 3, now);
        Self { kernel: Kernel::new(), ours, now, ports: BTreeMap::new(), compared: 0 }
    }

    /// Says how much was compared.
    pub(crate) fn report(&self, what: &str) {
        eprintln!("{what}: {} packets, the same by the kernel and by us", self.compared);
    }

    /// A packet leaves, translated; which outside port it has got.
    pub(crate) fn leaves(&mut self, what: &str, bytes: &[u8]) -> Flow {
        self.leaves_as(what, bytes, GLOBAL)
    }

    /// The same, with this global address.
    pub(crate) fn leaves_as(&mut self, what: &str, bytes: &[u8], global: Ipv4Addr) -> Flow {
        let (kernel, ours) = self.both(Way::Outbound, &[bytes.to_vec()], &[bytes.to_vec()]);
        let [(Way::Outbound, theirs)] = &kernel[..] else { panic!("{what}: the kernel made {kernel:02x?}") };
        let [(Way::Outbound, own)] = &ours[..] else { panic!("{what}: we made {ours:02x?}") };
        assert_eq!((source(theirs), source(own)), (global, global), "{what}: the kernel's address and ours");
        let flow = Flow { kernel: port_of(theirs), ours: port_of(own) };
        let known = *self.ports.entry((bytes[9], source(own), flow.ours)).or_insert(flow.kernel);
        assert_eq!(known, flow.kernel, "{what}: an inside end with two outside ports");
        self.assert_same(what, &kernel, &ours);
        flow
    }

    /// A packet leaves, translated; it has no port of its own.
    pub(crate) fn goes_out(&mut self, what: &str, bytes: &[u8]) {
        self.leave_in_pieces(what, &[bytes.to_vec()]);
    }

    /// Fragments leave, translated.
    pub(crate) fn leave_in_pieces(&mut self, what: &str, pieces: &[Vec<u8>]) {
        let (kernel, ours) = self.both(Way::Outbound, pieces, pieces);
        assert_eq!(ours.len(), 1, "{what}: we let it through");
        self.assert_same(what, &kernel, &ours);
    }

    /// A packet comes in to a flow's outside port, and is delivered.
    pub(crate) fn comes_in(&mut self, what: &str, flow: Flow, make: impl Fn(u16) -> Vec<u8>) {
        self.come_in_pieces(what, flow, |port| vec![make(port)]);
    }

    /// Fragments do.
    pub(crate) fn come_in_pieces(&mut self, what: &str, flow: Flow, make: impl Fn(u16) -> Vec<Vec<u8>>) {
        let (kernel, ours) = self.both(Way::Inbound, &make(flow.kernel), &make(flow.ours));
        assert_eq!(ours.len(), 1, "{what}: we let it through");
        self.assert_same(what, &kernel, &ours);
    }

    /// A packet comes in, to an address that has its ports to itself, and is delivered.
    pub(crate) fn goes_in(&mut self, what: &str, bytes: &[u8]) {
        self.comes_in(what, Flow { kernel: 0, ours: 0 }, |_| bytes.to_vec());
    }

    /// Neither lets a packet in.
    pub(crate) fn is_dropped_in(&mut self, what: &str, flow: Flow, make: impl Fn(u16) -> Vec<u8>) {
        self.differs_in(what, (false, false), flow, make);
    }

    /// Neither lets a packet out.
    pub(crate) fn is_dropped_out(&mut self, what: &str, bytes: &[u8]) {
        let (kernel, ours) = self.both(Way::Outbound, &[bytes.to_vec()], &[bytes.to_vec()]);
        assert_eq!((kernel, ours), (vec![], vec![]), "{what}: by the kernel and by us");
    }

    /// Whether the kernel and whether we let a packet in.
    pub(crate) fn differs_in(
        &mut self,
        what: &str,
        expected: (bool, bool),
        flow: Flow,
        make: impl Fn(u16) -> Vec<u8>,
    ) {
        let (kernel, ours) = self.both(Way::Inbound, &[make(flow.kernel)], &[make(flow.ours)]);
        let verdicts = (!kernel.is_empty(), !ours.is_empty());
        assert_eq!(verdicts, expected, "{what}: let in by the kernel, and by us");
    }

    fn both(&mut self, way: Way, to_kernel: &[Vec<u8>], to_ours: &[Vec<u8>]) -> (Packets, Packets) {
        let mut kernel: BTreeMap<Way, Vec<Vec<u8>>> = BTreeMap::new();
        for bytes in to_kernel {
            for (way, packet) in self.kernel.carry(way, bytes) {
                kernel.entry(way).or_default().push(packet);
            }
        }
        let mut ours = Vec::new();
        for bytes in to_ours {
            if let Ok(packets) = self.ours.carry(way, bytes, self.now) {
                ours.extend(packets);
            }
        }
        self.compared += 1;
        let kernel = kernel.into_iter().flat_map(|(way, packets)| {
            reassembled(packets).into_iter().map(move |packet| (way, with_ttl_restored(packet)))
        });
        (kernel.collect(), reassembled(ours).into_iter().map(|packet| (way, packet)).collect())
    }

    fn assert_same(&self, what: &str, kernel: &Packets, ours: &Packets) {
        let ours: Packets =
            ours.iter().map(|(way, packet)| (*way, self.with_the_kernels_port(packet.clone()))).collect();
        assert!(*kernel == ours, "{what}:\nkernel {kernel:02x?}\nours   {ours:02x?}");
    }

    /// Our packet with the port that the kernel chose in the place of ours, and sums to match.
    fn with_the_kernels_port(&self, mut packet: Vec<u8>) -> Vec<u8> {
        let start = usize::from(packet[0] & 15) * 4;
        let is_error = packet[9] == ICMP && !matches!(packet[start], 0 | 8 | 13 | 14);
        if !is_error {
            let global = source(&packet);
            self.exchange(&mut packet, start, 0, global);
            return packet;
        }
        let quoted = start + 8;
        let global = destination(&packet[quoted..]);
        if [GLOBAL, SELECTED_GLOBAL].contains(&global) {
            assert_eq!(
                Sum::ZERO.bytes(&packet[start..]).folded(),
                u16::MAX,
                "the error's own checksum is right"
            );
            let transport = usize::from(packet[quoted] & 15) * 4;
            self.exchange(&mut packet[quoted..], transport, 2, global);
            put16(&mut packet, start + 2, 0);
            let sum = Sum::ZERO.bytes(&packet[start..]).checksum();
            put16(&mut packet, start + 2, sum);
        }
        packet
    }

    /// Exchanges the port at `side` bytes of a transport header.
    fn exchange(&self, packet: &mut [u8], start: usize, side: usize, global: Ipv4Addr) {
        let (at, sum_at) = match packet[9] {
            TCP => (start + side, start + 16),
            UDP => (start + side, start + 6),
            ICMP => (start + 4, start + 2),
            _ => return,
        };
        let ours = be16(packet, at);
        let Some(&kernel) = self.ports.get(&(packet[9], global, ours)) else { return };
        put16(packet, at, kernel);
        if sum_at + 2 <= packet.len() && (packet[9] != UDP || be16(packet, sum_at) != 0) {
            let sum = update16(be16(packet, sum_at), ours, kernel);
            put16(packet, sum_at, if packet[9] == UDP && sum == 0 { u16::MAX } else { sum });
        }
    }
}

pub(crate) fn source(packet: &[u8]) -> Ipv4Addr {
    be32(packet, 12).into()
}

fn destination(packet: &[u8]) -> Ipv4Addr {
    be32(packet, 16).into()
}

/// The source port, or a query's identifier.
fn port_of(packet: &[u8]) -> u16 {
    let start = usize::from(packet[0] & 15) * 4;
    if packet[9] == ICMP { be16(packet, start + 4) } else { be16(packet, start) }
}

/// The kernel is a router, and counts hops.
fn with_ttl_restored(mut packet: Vec<u8>) -> Vec<u8> {
    packet[8] += 1;
    fill_ipv4_header(&mut packet);
    packet
}

/// A packet that left, as the other cluster saw it; built anew.
pub(crate) fn outside(sent: &[u8], port: u16) -> Vec<u8> {
    let to = (destination(sent), be16(sent, 22));
    match sent[9] {
        TCP => tcp((GLOBAL, port), to, sent[33], (be32(sent, 24), be32(sent, 28)), &sent[40..]),
        UDP => udp((GLOBAL, port), to, &sent[28..]),
        _ => query(sent[20], GLOBAL, to.0, port),
    }
}

/// What the other cluster answers.
pub(crate) fn answer(sent: &[u8], port: u16) -> Vec<u8> {
    let from = (destination(sent), be16(sent, 22));
    answer_to(sent, from, (GLOBAL, port))
}

/// The same, as it is delivered.
pub(crate) fn delivered(sent: &[u8]) -> Vec<u8> {
    let from = (destination(sent), be16(sent, 22));
    answer_to(sent, from, (source(sent), port_of(sent)))
}

fn answer_to(sent: &[u8], from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
    match sent[9] {
        TCP => tcp(from, to, SYN | ACK, (5, be32(sent, 24) + 1), b""),
        UDP => udp(from, to, b"answer"),
        _ => query(if sent[20] == 8 { 0 } else { 14 }, from.0, to.0, to.1),
    }
}
