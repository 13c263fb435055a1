//! A lane that seals and opens with one key, and packets for it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use trieste_cables::ipsec::link::link;
use trieste_cables::ipsec::selector::everything;
use trieste_cables::ipsec::{
    ChildMeter, ChildSa, EspCable, EspCableConfig, EspKeys, EspPath, EspSuite, LaneOrder, Limits, Outbound,
    Selectors, Spi,
};
use trieste_cables::{Jobs, Lane as _};
use trieste_packet::segment::Segmenter;
use trieste_packet::wire::{be16, put16};
use trieste_packet::{
    Batch, CableId, Checksum, Drops, LaneId, Layout, LayoutKind, Outer, Packet, Pool, PoolConfig, checksum,
};

const LANE: LaneId = LaneId(0x0001_0200);
/// Both directions'.
pub(super) const SPI: Spi = Spi(0x0102_0001);
/// How many of [`packets`] are segments of one train.
const SEGMENTS: u16 = 5;
const SEGMENT_BYTES: u16 = 700;

pub(super) struct Lane {
    cable: EspCable,
    pool: Pool,
    drops: Drops,
    /// Key and salt.
    pub(super) keying: Vec<u8>,
}

impl Lane {
    pub(super) fn new(suite: EspSuite, has_esn: bool) -> Self {
        let (now, (slow_half, port, _)) = (Instant::now(), link(LANE));
        let key: Vec<u8> = (1..).take(suite.key_bytes()).collect();
        let keys = EspKeys { key: key.clone().into(), salt: [0xa1, 0xb2, 0xc3, 0xd4] };
        let all = vec![everything(true), everything(false)];
        let limits = Limits::until(now + Duration::from_secs(3600));
        slow_half.send(LaneOrder::Add(Box::new(ChildSa {
            inbound: SPI,
            outbound: SPI,
            suite,
            has_esn,
            inbound_keys: keys.clone(),
            outbound_keys: keys.clone(),
            selectors: Selectors { local: all.clone(), remote: all },
            activation: Outbound::Now,
            limits,
            meter: ChildMeter::new(now),
        })));
        let outer = Outer { peer: SocketAddr::from(([192, 0, 2, 2], 4500)), ..Outer::NONE };
        slow_half.send(LaneOrder::Path(EspPath { outer, may_move: false }));
        Self {
            cable: EspCable::new(EspCableConfig { lane: LANE, cable: CableId(1), port }, now),
            pool: Pool::new(PoolConfig { slots: 64, ..PoolConfig::default() }),
            drops: Drops::default(),
            keying: [&key[..], &keys.salt].concat(),
        }
    }

    /// Seals [`packets`], of which the last ones go in as a train; the messages in order.
    pub(super) fn seal(&mut self, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let singles = packets.len() - usize::from(SEGMENTS);
        let mut input: Vec<Packet> = packets[..singles]
            .iter()
            .map(|packet| Packet::new(self.pool.alloc_copy(packet).unwrap()))
            .collect();
        input.push(train(&mut self.pool));
        let sealed = self.work(input, |cable, jobs| cable.seal(jobs, Instant::now()));
        let mut messages = Vec::new();
        for packet in &sealed {
            for index in 0..usize::from(packet.layout.count) {
                let (start, end) = packet.segment_range(index);
                messages.push(packet.bytes()[start..end].to_vec());
            }
        }
        messages
    }

    /// Opens messages; the packets in order.
    pub(super) fn open(&mut self, messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let input =
            messages.iter().map(|message| Packet::new(self.pool.alloc_copy(message).unwrap())).collect();
        let opened = self.work(input, |cable, jobs| cable.open(jobs, Instant::now()));
        let mut packets = Vec::new();
        for packet in &opened {
            let count = usize::from(packet.layout.count);
            for index in (0..count).filter(|index| packet.layout.present >> index & 1 == 1) {
                let (start, end) = packet.segment_range(index);
                let slot = &packet.bytes()[start..end];
                let total = if slot[0] >> 4 == 4 { be16(slot, 2) } else { 40 + be16(slot, 4) };
                packets.push(slot[..usize::from(total)].to_vec());
            }
        }
        packets
    }

    fn work(&mut self, packets: Vec<Packet>, job: impl FnOnce(&mut EspCable, &mut Jobs<'_>)) -> Vec<Packet> {
        let (mut input, mut output, mut consumed) = (packets, Batch::new(), 0);
        let mut jobs = Jobs {
            input: &mut input,
            output: &mut output,
            pool: &mut self.pool,
            drops: &mut self.drops,
            consumed: &mut consumed,
        };
        job(&mut self.cable, &mut jobs);
        assert_eq!((self.drops.total(), consumed), (0, 0));
        output.drain().collect()
    }
}

/// UDP over IPv4 and IPv6 with payloads that need every length of padding, and the segments of a TCP train.
pub(super) fn packets() -> Vec<Vec<u8>> {
    let lengths = [0, 1, 2, 3, 4, 500, 1000, 1000, 1371, 8000];
    let mut packets: Vec<Vec<u8>> =
        lengths.iter().flat_map(|&length| [udp(4, length), udp(6, length)]).collect();
    let mut pool = Pool::new(PoolConfig { slots: 1, ..PoolConfig::default() });
    let mut train = train(&mut pool);
    let mut segmenter = Segmenter::new(&mut train).unwrap();
    while let Some(segment) = segmenter.next_segment() {
        packets.push(segment.to_vec());
    }
    packets
}

fn udp(version: u8, length: usize) -> Vec<u8> {
    let mut packet = ip(version, 17, 8 + length);
    let transport = packet.len();
    packet.extend([0x10, 0, 0x20, 0, 0, 0, 0, 0]);
    packet.extend((0..length).map(|index| index.to_le_bytes()[0]));
    let transport_bytes = packet.len() - transport;
    put16(&mut packet, transport + 4, u16::try_from(transport_bytes).unwrap());
    let sum = checksum::pseudo_sum(&packet, 17, transport_bytes).bytes(&packet[transport..]).checksum();
    put16(&mut packet, transport + 6, if sum == 0 { 0xffff } else { sum });
    packet
}

fn train(pool: &mut Pool) -> Packet {
    let payload = usize::from(SEGMENTS * SEGMENT_BYTES);
    let mut bytes = ip(4, 6, 20 + payload);
    bytes.extend([0, 80, 0x20, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
    bytes.extend((0..payload).map(|index| (index * 7).to_le_bytes()[0]));
    let pseudo = checksum::pseudo_sum(&bytes, 6, 20 + payload).folded();
    put16(&mut bytes, 36, pseudo);
    let mut packet = Packet::new(pool.alloc_copy(&bytes).unwrap());
    packet.layout = Layout::train(LayoutKind::Tcp, 40, SEGMENT_BYTES, SEGMENTS);
    packet.checksum = Checksum::Partial { start: 20, field: 36 };
    packet
}

/// A header from 10.1.0.1 to 10.2.0.1, or from fd00:1::1 to fd00:2::1.
fn ip(version: u8, protocol: u8, payload: usize) -> Vec<u8> {
    if version == 6 {
        let address = |cluster: u8| [0xfd, 0, 0, cluster, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
        put16(&mut header, 4, u16::try_from(payload).unwrap());
        header.extend(address(1));
        header.extend(address(2));
        return header;
    }
    let mut header = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1];
    put16(&mut header, 2, u16::try_from(20 + payload).unwrap());
    checksum::fill_ipv4_header(&mut header);
    header
}
