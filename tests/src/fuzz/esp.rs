//! ESP: datagrams of strangers, honest ones that were spoiled on the way, and whatever a peer with the right keys puts
//! inside.
//!
//! Nothing of a stranger's opens; what opens of an honest peer's is what it sealed, once; and no packet is lost without
//! being counted.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use trieste_cables::ipsec::link::link;
use trieste_cables::ipsec::selector::everything;
use trieste_cables::ipsec::{
    ChildMeter, ChildSa, EspCable, EspCableConfig, EspKeys, EspPath, EspSuite, LaneLink, LaneOrder, Limits,
    Outbound, Selectors, Spi,
};
use trieste_cables::{Jobs, Lane};
use trieste_packet::wire::Inner;
use trieste_packet::{Batch, CableId, Drops, LaneId, Layout, Outer, Packet, Pool, PoolConfig};

use super::Reader;

const LANE: LaneId = LaneId(0x100);
const KEY: [u8; 16] = [3; 16];
const SALT: [u8; 4] = [5; 4];

pub(super) fn target(data: &[u8]) {
    let now = Instant::now();
    let mut reader = Reader::new(data);
    let has_esn = reader.byte() & 1 == 1;
    let (mut east, mut west) = (End::new(now), End::new(now));
    east.add(child(1, has_esn, now));
    west.add(child(1, has_esn, now));
    let mut crafted = 1u64 << 40;
    while !reader.is_empty() {
        match reader.byte() % 6 {
            0 => {
                let length = usize::from(reader.u16() % 4096);
                let datagram = reader.take(length);
                assert!(west.open(datagram, Layout::SINGLE, now).is_empty(), "nothing of a stranger's opens");
            }
            1 => {
                let (stride, length) = (reader.u16(), usize::from(reader.u16() % 8192));
                let train = reader.take(length);
                let count =
                    u16::try_from(train.len().div_ceil(usize::from(stride.max(1)))).unwrap_or(u16::MAX);
                let layout = Layout::datagrams(stride, count.saturating_add(u16::from(stride % 3 == 0)));
                assert!(west.open(train, layout, now).is_empty(), "nor of a stranger's train");
            }
            2 | 3 => honest(&mut reader, &mut east, &mut west, now),
            4 => {
                let length = usize::from(reader.u16() % 2048);
                crafted += u64::from(reader.byte());
                let message = craft(crafted, has_esn, reader.take(length));
                for packet in west.open(&message, Layout::SINGLE, now) {
                    let total = usize::from(u16::try_from(packet.len()).expect("shorter than the message"));
                    assert!(total <= length, "a packet is not longer than what was inside");
                }
            }
            _ => {
                let spi = Spi::new(LANE, reader.byte() % 4);
                let order = match reader.byte() % 5 {
                    0 => LaneOrder::Retire(spi),
                    1 => LaneOrder::Remove(spi),
                    2 => LaneOrder::Seal(spi),
                    3 => LaneOrder::Down,
                    _ => LaneOrder::Add(Box::new(child(spi.index().max(2), has_esn, now))),
                };
                west.link.send(order);
            }
        }
    }
}

/// East seals a run of packets; on the way one byte of each may change, and the run may be cut or repeated.
fn honest(reader: &mut Reader<'_>, east: &mut End, west: &mut End, now: Instant) {
    let (length, count, spoil) = (usize::from(reader.u16() % 1600), reader.byte() % 5 + 1, reader.byte());
    let inner: Vec<u8> = packet(length, reader.byte());
    let packets = (0..count).map(|_| east.packet(&inner, Layout::SINGLE)).collect();
    for sealed in east.seal(packets, now) {
        let (mut bytes, layout) = sealed;
        let at = usize::from(reader.u16()) % bytes.len();
        if spoil & 1 == 1 {
            bytes[at] ^= spoil;
        }
        if spoil & 2 == 2 {
            bytes.truncate(at);
        }
        for _ in 0..=spoil >> 7 {
            let opened = west.open(&bytes, layout, now);
            assert!(opened.iter().all(|packet| *packet == inner), "what opens is what was sealed");
            assert!(opened.len() <= usize::from(count));
        }
    }
}

/// An IPv4 packet of at least 20 bytes.
fn packet(length: usize, fill: u8) -> Vec<u8> {
    let mut packet = vec![fill; length.max(20)];
    let total = u16::try_from(packet.len()).unwrap_or(u16::MAX).to_be_bytes();
    packet[..20].copy_from_slice(&[
        0x45, 0, total[0], total[1], 0, 1, 0x40, 0, 64, 253, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1,
    ]);
    packet
}

/// A message with the right keys around anything.
fn craft(sequence: u64, has_esn: bool, text: &[u8]) -> Vec<u8> {
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &KEY).expect("16 bytes"));
    let number = sequence.to_be_bytes();
    let nonce = [&SALT[..], &number].concat();
    let spi = Spi::new(LANE, 1).to_bytes();
    let authenticated = [&spi[..], if has_esn { &number[..] } else { &number[4..] }].concat();
    let mut text = text.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(&nonce).expect("12 bytes");
    key.seal_in_place_append_tag(nonce, Aad::from(authenticated), &mut text).expect("it is short");
    [&spi[..], &number[4..], &number, &text].concat()
}

fn child(index: u8, has_esn: bool, now: Instant) -> ChildSa {
    let keys = |seed: u8| EspKeys { key: KEY.map(|byte| byte ^ seed).to_vec().into(), salt: SALT };
    let all = vec![everything(true), everything(false)];
    ChildSa {
        inbound: Spi::new(LANE, index),
        outbound: Spi::new(LANE, index),
        suite: EspSuite::Aes128Gcm16,
        has_esn,
        // Both ends have the same keys in both directions, so that one can be given what the other would send.
        inbound_keys: keys(index ^ 1),
        outbound_keys: keys(index ^ 1),
        selectors: Selectors { local: all.clone(), remote: all },
        activation: if index == 3 { Outbound::AfterInbound } else { Outbound::Now },
        limits: Limits {
            soft_packets: 10,
            hard_packets: 200,
            soft_bytes: 1 << 16,
            hard_bytes: 1 << 20,
            hard_time: now + Duration::from_secs(3600),
        },
        meter: ChildMeter::new(now),
    }
}

/// A lane and what it works with.
struct End {
    cable: EspCable,
    link: LaneLink,
    pool: Pool,
    drops: Drops,
    consumed: u64,
    ivs: BTreeSet<Vec<u8>>,
}

impl End {
    fn new(now: Instant) -> Self {
        let (link, port, _) = link(LANE);
        let outer = Outer { peer: SocketAddr::from(([192, 0, 2, 1], 4500)), ..Outer::NONE };
        link.send(LaneOrder::Path(EspPath { outer, may_move: true }));
        Self {
            cable: EspCable::new(EspCableConfig { lane: LANE, cable: CableId(1), port }, now),
            link,
            pool: Pool::new(PoolConfig { slots: 8, slot_bytes: 16_384 }),
            drops: Drops::default(),
            consumed: 0,
            ivs: BTreeSet::new(),
        }
    }

    fn add(&self, child: ChildSa) {
        self.link.send(LaneOrder::Add(Box::new(child)));
    }

    fn packet(&mut self, bytes: &[u8], layout: Layout) -> Packet {
        let mut packet =
            Packet::new(self.pool.alloc_copy(bytes).expect("buffers come back after every step"));
        packet.layout = layout;
        packet
    }

    fn seal(&mut self, packets: Vec<Packet>, now: Instant) -> Vec<(Vec<u8>, Layout)> {
        let offered = packets.len() as u64 + self.drops.total();
        let mut sealed = Vec::new();
        let mut output = self.work(packets, |cable, jobs| cable.seal(jobs, now));
        let made = output.segments();
        for packet in output.drain() {
            for index in 0..usize::from(packet.layout.count) {
                let (start, end) = packet.segment_range(index);
                let message = &packet.bytes()[start..end];
                assert!(self.ivs.insert(message[8..16].to_vec()), "no IV comes twice");
            }
            sealed.push((packet.bytes().to_vec(), packet.layout));
        }
        assert_eq!(self.drops.total() + made, offered, "every packet is counted");
        sealed
    }

    /// The packets that came out, each on its own.
    fn open(&mut self, bytes: &[u8], layout: Layout, now: Instant) -> Vec<Vec<u8>> {
        let packet = self.packet(bytes, layout);
        let arrived = packet.segments() + self.drops.total() + self.consumed;
        let mut output = self.work(vec![packet], |cable, jobs| cable.open(jobs, now));
        assert_eq!(
            self.drops.total() + self.consumed + output.segments(),
            arrived,
            "every datagram is counted"
        );
        let mut opened = Vec::new();
        for packet in output.drain() {
            let count = usize::from(packet.layout.count);
            for index in (0..count).filter(|index| packet.layout.present >> index & 1 == 1) {
                let (start, end) = packet.segment_range(index);
                let slot = &packet.bytes()[start..end];
                // What is inside may be no packet beyond its length field; the pipeline looks at that.
                let total = Inner::parse(slot).map_or(slot.len(), |inner| usize::from(inner.total_bytes));
                opened.push(slot[..total].to_vec());
            }
        }
        opened
    }

    fn work(&mut self, packets: Vec<Packet>, job: impl FnOnce(&mut EspCable, &mut Jobs<'_>)) -> Batch {
        let (mut input, mut output) = (packets, Batch::with_limit(64));
        let mut jobs = Jobs {
            input: &mut input,
            output: &mut output,
            pool: &mut self.pool,
            drops: &mut self.drops,
            consumed: &mut self.consumed,
        };
        job(&mut self.cable, &mut jobs);
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn honest_and_crafted_packets_open_so_that_the_laws_are_worth_something() {
        let now = Instant::now();
        for has_esn in [false, true] {
            let (mut east, mut west) = (End::new(now), End::new(now));
            east.add(child(1, has_esn, now));
            west.add(child(1, has_esn, now));
            let inner = packet(100, 7);
            let packets = vec![east.packet(&inner, Layout::SINGLE)];
            let (sealed, layout) = east.seal(packets, now).pop().unwrap();
            assert_eq!(west.open(&sealed, layout, now), std::slice::from_ref(&inner));
            let message = craft(77, has_esn, &[&inner[..], &[1, 1, 4]].concat());
            assert_eq!(west.open(&message, Layout::SINGLE, now), [inner]);
        }
    }
}
