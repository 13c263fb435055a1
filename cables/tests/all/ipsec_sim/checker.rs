//! Reads every frame and every opened packet, with a decryption of its own, and knows what must never be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::time::Instant;

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use trieste_cables::ipsec::{ChildSa, EspSuite, Selectors, Spi};

use super::inner;
use super::network::{Kind, kind};

/// A key that a gateway seals with.
struct SealingKey {
    aead: LessSafeKey,
    salt: [u8; 4],
    child: ChildSa,
    /// IV of the newest frame: they only ever grow, so none comes twice.
    last_iv: Option<u64>,
    packets: u64,
    bytes: u64,
}

/// What was put in at one gateway for another.
struct Sent {
    from: usize,
    to: usize,
    bytes: Vec<u8>,
    sealed: u64,
    opened: u64,
}

/// The checker.
#[derive(Default)]
pub(crate) struct Checker {
    keys: Vec<SealingKey>,
    /// By gateway and SPI on the wire, newest last.
    by_spi: BTreeMap<(usize, Spi), Vec<usize>>,
    /// Key and salt, and which gateway seals with them. No other ever may.
    owners: BTreeMap<(Vec<u8>, [u8; 4]), (usize, Spi)>,
    sent: BTreeMap<u64, Sent>,
    /// Pairs of IKE SPIs seen on the wire, of SAs that were answered.
    pub(crate) ike_sas: BTreeSet<(u64, u64)>,
    pub(crate) ike_messages: u64,
    pub(crate) esp_messages: u64,
    pub(crate) keepalives: u64,
    /// Which keys sealed since this was last emptied: gateway and outbound SPI.
    pub(crate) in_use: BTreeSet<(usize, Spi)>,
    /// Child SAs made by exchanges of each gateway.
    pub(crate) made_by: BTreeMap<usize, u64>,
}

impl Checker {
    /// A gateway's lane was given a pair.
    pub(crate) fn added(&mut self, gateway: usize, child: &ChildSa) {
        let material = (child.outbound_keys.key.to_vec(), child.outbound_keys.salt);
        let owner = (gateway, child.outbound);
        if let Some(known) = self.owners.get(&material) {
            // The same pair again is harmless: a lane keeps the one it has.
            assert_eq!(*known, owner, "two SAs seal with one key");
            return;
        }
        self.owners.insert(material, owner);
        assert!(child.inbound.0 > 255 && child.outbound.0 > 255, "SPIs 0 to 255 are reserved: {child:?}");
        let algorithm = match child.suite {
            EspSuite::Aes128Gcm16 => &AES_128_GCM,
            EspSuite::Aes256Gcm16 => &AES_256_GCM,
            EspSuite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key =
            UnboundKey::new(algorithm, &child.outbound_keys.key).expect("keys are of the suite's length");
        self.by_spi.entry(owner).or_default().push(self.keys.len());
        self.keys.push(SealingKey {
            aead: LessSafeKey::new(key),
            salt: child.outbound_keys.salt,
            child: child.clone(),
            last_iv: None,
            packets: 0,
            bytes: 0,
        });
    }

    /// A packet that is about to be sealed.
    pub(crate) fn offer(&mut self, from: usize, to: usize, serial: u64, bytes: &[u8]) {
        let sent = Sent { from, to, bytes: bytes.to_vec(), sealed: 0, opened: 0 };
        assert!(self.sent.insert(serial, sent).is_none(), "serial numbers are given once");
    }

    /// A frame as it leaves a gateway.
    pub(crate) fn leaves(&mut self, gateway: usize, payload: &[u8], is_raw: bool, now: Instant) {
        assert!(!inner::is_readable(payload), "gateway {gateway} sent a packet in the clear");
        match kind(payload, is_raw) {
            Kind::Keepalive => self.keepalives += 1,
            Kind::Ike => self.ike(payload),
            Kind::Esp => self.esp(gateway, payload, now),
        }
    }

    fn ike(&mut self, payload: &[u8]) {
        self.ike_messages += 1;
        assert!(payload.len() >= 32, "an IKE message has a header: {payload:?}");
        let spi = |at: usize| u64::from_be_bytes(*payload[at..].first_chunk().unwrap());
        let length = u32::from_be_bytes(*payload[28..].first_chunk().unwrap());
        assert_eq!(length as usize, payload.len() - 4, "the length in an IKE header is its own");
        if spi(12) != 0 {
            self.ike_sas.insert((spi(4), spi(12)));
        }
    }

    fn esp(&mut self, gateway: usize, payload: &[u8], now: Instant) {
        self.esp_messages += 1;
        let spi = Spi::from_bytes(*payload.first_chunk().unwrap());
        assert!(spi.0 > 255, "SPI {spi} on the wire");
        let candidates = self.by_spi.get(&(gateway, spi)).cloned().unwrap_or_default();
        let opened = candidates.iter().rev().find_map(|&index| {
            let key = &self.keys[index];
            Some((index, key.open(payload)?))
        });
        let (index, packet) =
            opened.unwrap_or_else(|| panic!("gateway {gateway} sealed with no key of {spi}"));
        self.keys[index].count(payload, packet.len(), now);
        self.in_use.insert((gateway, spi));
        let serial = inner::serial(&packet).expect("only numbered packets are sent");
        let sent = self.sent.get_mut(&serial).expect("it was offered");
        assert_eq!(sent.bytes, packet, "a packet is sealed as it is");
        assert_eq!(sent.from, gateway);
        sent.sealed += 1;
        assert_eq!(sent.sealed, 1, "packet {serial} was sealed twice");
        let (source, destination) = ends(&packet);
        let selectors: &Selectors = &self.keys[index].child.selectors;
        assert!(selectors.covers(source, destination), "{source} to {destination} is not for {selectors}");
    }

    /// A packet as it comes out of a lane whose other end is `peer`.
    pub(crate) fn arrives(&mut self, gateway: usize, peer: usize, packet: &[u8]) {
        let serial = inner::serial(packet).expect("nobody else sends packets");
        let sent = self.sent.get_mut(&serial).expect("it was offered");
        assert_eq!((sent.from, sent.to), (peer, gateway), "packet {serial} went astray");
        assert_eq!(sent.bytes, packet, "packet {serial} arrived changed");
        sent.opened += 1;
        assert_eq!(sent.opened, 1, "packet {serial} arrived {} times", sent.opened);
    }

    /// Whether a packet arrived.
    pub(crate) fn has_arrived(&self, serial: u64) -> bool {
        self.sent.get(&serial).is_some_and(|sent| sent.opened == 1)
    }

    /// Serial numbers of packets, of these, that were not opened, with what became of them.
    pub(crate) fn missing(&self, serials: RangeInclusive<u64>) -> Vec<(u64, &'static str)> {
        let lost = self.sent.range(serials).filter(|(_, sent)| sent.opened == 0);
        lost.map(|(serial, sent)| (*serial, if sent.sealed == 0 { "not sealed" } else { "not opened" }))
            .collect()
    }

    /// Packets sealed by each key of a gateway with its child SA.
    pub(crate) fn sealed_by(&self, gateway: usize) -> Vec<(&ChildSa, u64)> {
        let owned = self.by_spi.iter().filter(|((owner, _), _)| *owner == gateway);
        owned
            .flat_map(|(_, keys)| keys)
            .map(|index| (&self.keys[*index].child, self.keys[*index].packets))
            .collect()
    }
}

impl SealingKey {
    /// The inner packet, if this key sealed it. No simulation lasts for 2^32 packets of one key.
    fn open(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let (head, rest) = payload.split_at_checked(16)?;
        let mut aad = head[..4].to_vec();
        if self.child.has_esn {
            aad.extend([0; 4]);
        }
        aad.extend(&head[4..8]);
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.salt);
        nonce[4..].copy_from_slice(&head[8..16]);
        let mut text = rest.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let text = self.aead.open_in_place(nonce, Aad::from(aad), &mut text).ok()?;
        let [front @ .., padding, next_header] = text else { panic!("no trailer") };
        assert_eq!(*next_header, 4, "IPv4 inside");
        let packet = front.len().checked_sub(usize::from(*padding)).expect("padding is inside of the packet");
        Some(front[..packet].to_vec())
    }

    fn count(&mut self, payload: &[u8], inner_bytes: usize, now: Instant) {
        let sequence = u32::from_be_bytes(*payload[4..].first_chunk().unwrap());
        let iv = u64::from_be_bytes(*payload[8..].first_chunk().unwrap());
        assert!(self.last_iv < Some(iv), "IV {iv} behind {:?} of {}", self.last_iv, self.child.outbound);
        assert_eq!(u64::from(sequence), self.packets + 1, "sequence numbers go up by one");
        assert!(now < self.child.limits.hard_time, "sealed after the hard limit: {:?}", self.child);
        assert!(self.packets < self.child.limits.hard_packets, "too many packets: {:?}", self.child);
        assert!(self.bytes < self.child.limits.hard_bytes, "too many bytes: {:?}", self.child);
        self.last_iv = Some(iv);
        self.packets += 1;
        self.bytes += inner_bytes as u64;
    }
}

fn ends(packet: &[u8]) -> (IpAddr, IpAddr) {
    let address = |at: usize| IpAddr::from(Ipv4Addr::from(*packet[at..].first_chunk::<4>().unwrap()));
    (address(12), address(16))
}

mod tests {
    use std::time::Duration;

    use crate::ipsec_sim::inner;
    use crate::ipsec_sim::shape::{self, Shape};
    use crate::ipsec_sim::world::World;

    /// Gateways that have settled, a packet that is offered, and the frame that it becomes.
    fn sealed() -> (World, Vec<u8>, Vec<u8>) {
        let mut world = World::pair(Shape::Trieste, &shape::config(), 1);
        world.start_all();
        world.settle(Duration::from_secs(30));
        let packet = inner::packet(1, shape::host(0, 0, 1), shape::host(1, 0, 1), 8);
        world.checker.offer(0, 1, 1, &packet);
        let (lane, now) = (world.gateways[0].lane_to(1).unwrap(), world.now());
        let (_, frame) = world.gateways[0].seal(lane, std::slice::from_ref(&packet), now).remove(0);
        (world, packet, frame)
    }

    #[test]
    #[should_panic(expected = "IV 1 behind Some(1)")]
    fn an_iv_that_comes_twice_is_noticed() {
        let (mut world, _, frame) = sealed();
        let now = world.now();
        world.checker.leaves(0, &frame, false, now);
        world.checker.leaves(0, &frame, false, now);
    }

    #[test]
    #[should_panic(expected = "sealed with no key")]
    fn a_frame_that_is_not_authentic_is_noticed() {
        let (mut world, _, mut frame) = sealed();
        frame[20] ^= 1;
        let now = world.now();
        world.checker.leaves(0, &frame, false, now);
    }

    #[test]
    #[should_panic(expected = "in the clear")]
    fn a_packet_in_the_clear_is_noticed() {
        let (mut world, packet, _) = sealed();
        let now = world.now();
        world.checker.leaves(0, &packet, true, now);
    }

    #[test]
    #[should_panic(expected = "arrived 2 times")]
    fn a_packet_that_arrives_twice_is_noticed() {
        let (mut world, packet, _) = sealed();
        world.checker.arrives(1, 0, &packet);
        world.checker.arrives(1, 0, &packet);
    }
}
