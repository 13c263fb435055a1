//! Pods: flows of numbered packets, and a ledger of what became of them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use trieste_packet::checksum;

/// The second IPv4 and IPv6 protocol for experiments (RFC 3692; gateways keep the first to themselves): no checksum of
/// its own, no ports.
const PROTOCOL: u8 = 254;

/// The number of no flow: what has it must not arrive.
const FORGED: u64 = u64::MAX;

/// What became of a flow's packets.
#[derive(Debug, Clone)]
pub struct Ledger {
    /// Packets sent.
    pub sent: u64,
    /// Packets delivered; each counts once.
    pub delivered: u64,
    /// Packets delivered after a later one.
    pub overtaken: u64,
    /// The longest time between two deliveries, or from the start to the first, or from the last to the end.
    pub longest_gap: Duration,
    seen: BTreeSet<u64>,
    last: Instant,
}

/// A flow: a packet at every interval, from a pod of one gateway to a pod of another.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) from: usize,
    pub(crate) interval: Duration,
    pub(crate) next: Instant,
    pub(crate) until: Instant,
    pub(crate) ledger: Ledger,
    source: IpAddr,
    destination: IpAddr,
    bytes: usize,
}

impl Flow {
    pub(crate) fn new(
        from: usize,
        to: usize,
        is_v6: bool,
        interval: Duration,
        bytes: usize,
        now: Instant,
    ) -> Self {
        let pod = |gateway: usize| -> IpAddr {
            let network = u8::try_from(gateway + 1).expect("few gateways");
            if is_v6 {
                [0xfd00, u16::from(network), 0, 1, 0, 0, 0, 0x10].into()
            } else {
                [10, network, 1, 10].into()
            }
        };
        let ledger = Ledger {
            sent: 0,
            delivered: 0,
            overtaken: 0,
            longest_gap: Duration::ZERO,
            seen: BTreeSet::new(),
            last: now,
        };
        Self { from, interval, next: now, until: now, ledger, source: pod(from), destination: pod(to), bytes }
    }

    /// A packet of no flow, as a pod of gateway `from` would send it to one of `to`.
    pub(crate) fn forged(from: usize, to: usize, is_v6: bool, number: u64, now: Instant) -> Vec<u8> {
        Self::new(from, to, is_v6, Duration::ZERO, 64, now).packet(FORGED, number)
    }

    /// The next packet: its number is its payload's beginning, and decides the rest.
    pub(crate) fn send(&mut self, flow: u64) -> Vec<u8> {
        self.ledger.sent += 1;
        self.next += self.interval;
        self.packet(flow, self.ledger.sent)
    }

    fn packet(&self, flow: u64, number: u64) -> Vec<u8> {
        let mut payload = [flow.to_be_bytes(), number.to_be_bytes()].concat();
        payload.extend(
            (payload.len()..self.bytes).map(|at| (number as usize).wrapping_mul(31).wrapping_add(at) as u8),
        );
        let length = u16::try_from(payload.len()).expect("packets are small");
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, PROTOCOL, 0, 0];
                packet[2..4].copy_from_slice(&(length + 20).to_be_bytes());
                packet.extend([source.octets(), destination.octets()].concat());
                packet.extend(payload);
                checksum::fill_ipv4_header(&mut packet);
                packet
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut packet = vec![0x60, 0, 0, 0, 0, 0, PROTOCOL, 64];
                packet[4..6].copy_from_slice(&length.to_be_bytes());
                packet.extend([source.octets(), destination.octets()].concat());
                packet.extend(payload);
                packet
            }
            _ => unreachable!("both ends of a flow are of one family"),
        }
    }

    /// Takes a delivered packet: it was sent, is unchanged, and comes for the first time.
    pub(crate) fn receive(&mut self, flow: u64, number: u64, packet: &[u8], now: Instant) {
        assert!((1..=self.ledger.sent).contains(&number), "flow {flow} never sent packet {number}");
        assert_eq!(
            packet,
            self.packet(flow, number),
            "packet {number} of flow {flow} was changed on the way"
        );
        let ledger = &mut self.ledger;
        ledger.overtaken += u64::from(ledger.seen.last().is_some_and(|last| *last > number));
        assert!(ledger.seen.insert(number), "packet {number} of flow {flow} was delivered twice");
        ledger.delivered += 1;
        ledger.longest_gap = ledger.longest_gap.max(now - ledger.last);
        ledger.last = now;
    }

    /// Ends the flow's account, or begins a new one.
    pub(crate) fn settle(&mut self, now: Instant) -> Ledger {
        let mut ledger = self.ledger.clone();
        ledger.longest_gap = ledger.longest_gap.max(now - ledger.last);
        self.ledger.longest_gap = Duration::ZERO;
        self.ledger.last = now;
        ledger
    }
}

/// Flow and number of a packet that pods exchange; `None` for anything else.
pub(crate) fn label(packet: &[u8]) -> Option<(u64, u64)> {
    let header_bytes = if packet.first()? >> 4 == 4 { 20 } else { 40 };
    let word = |at: usize| Some(u64::from_be_bytes(packet.get(at..at + 8)?.try_into().ok()?));
    Some((word(header_bytes)?, word(header_bytes + 8)?))
}
