//! Inner packets as pods send them: TCP over IPv4 with timestamps, checksum left to a device.

use trieste_packet::wire::{put16, put32};
use trieste_packet::{Checksum, Layout, LayoutKind, Packet, Pool, checksum};

/// Bytes of the IPv4 header, and of the TCP header with its timestamp option.
const IP_BYTES: u16 = 20;
const TCP_BYTES: u16 = 32;
/// Both together: what stands in front of the payload.
pub(crate) const HEADER_BYTES: u16 = IP_BYTES + TCP_BYTES;
/// Largest IPv4 packet, and so the largest train.
const MAX_TRAIN_BYTES: usize = 65_535;

/// What the packets of a measurement look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes of each inner IP packet on the wire.
    pub(crate) bytes: u16,
    /// Packets per train; 1 stands for single packets.
    pub(crate) segments: u16,
    /// Number of flows that take turns.
    pub(crate) flows: u32,
}

impl Shape {
    /// Single packets.
    pub(crate) fn single(bytes: u16, flows: u32) -> Self {
        Self { bytes, segments: 1, flows }
    }

    /// Trains of 44 packets, or as many as fit into 64 KiB.
    pub(crate) fn train(bytes: u16, flows: u32) -> Self {
        let payload = usize::from(bytes - HEADER_BYTES);
        let most = (MAX_TRAIN_BYTES - usize::from(HEADER_BYTES)) / payload;
        Self { bytes, segments: u16::try_from(most.min(44)).unwrap_or(44), flows }
    }

    /// Payload bytes of each packet.
    pub(crate) fn payload_bytes(&self) -> u16 {
        self.bytes - HEADER_BYTES
    }

    /// Bytes of a whole train, or of a single packet.
    pub(crate) fn total_bytes(&self) -> usize {
        usize::from(HEADER_BYTES) + usize::from(self.segments) * usize::from(self.payload_bytes())
    }

    /// How many of these make up at least `packets` packets.
    pub(crate) fn trains(&self, packets: usize) -> usize {
        packets.div_ceil(usize::from(self.segments))
    }
}

/// Makes packets, flow after flow.
#[derive(Debug)]
pub(crate) struct Source {
    shape: Shape,
    bytes: Vec<u8>,
    next: u32,
}

impl Source {
    /// Packets of this shape from 10.1.0.0/16 to 10.2.0.1.
    pub(crate) fn new(shape: Shape) -> Self {
        Self::to(shape, [10, 2, 0, 1])
    }

    /// The same to another address.
    pub(crate) fn to(shape: Shape, destination: [u8; 4]) -> Self {
        let mut bytes = vec![0u8; shape.total_bytes()];
        bytes[..12].copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0]);
        let total = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        put16(&mut bytes, 2, total);
        bytes[12..16].copy_from_slice(&[10, 1, 0, 0]);
        bytes[16..20].copy_from_slice(&destination);
        // Port 80, acknowledgement, eight words of header, ACK, window, timestamp option.
        put16(&mut bytes, 22, 80);
        put32(&mut bytes, 28, 1);
        bytes[32..36].copy_from_slice(&[0x80, 0x10, 0x20, 0]);
        bytes[40..44].copy_from_slice(&[1, 1, 8, 10]);
        for (index, byte) in bytes[usize::from(HEADER_BYTES)..].iter_mut().enumerate() {
            *byte = index.to_le_bytes()[0].wrapping_mul(31);
        }
        Self { shape, bytes, next: 0 }
    }

    /// The next packet or train, in a buffer of `pool`; `None` when it has none left.
    pub(crate) fn packet(&mut self, pool: &mut Pool) -> Option<Packet> {
        let flow = self.next % self.shape.flows.max(1);
        self.next = self.next.wrapping_add(1);
        let [_, _, high, low] = flow.to_be_bytes();
        self.bytes[14..16].copy_from_slice(&[high, low]);
        put16(&mut self.bytes, 20, 1024 + u16::try_from(flow >> 16).unwrap_or(0));
        checksum::fill_ipv4_header(&mut self.bytes);
        let transport_bytes = self.bytes.len() - usize::from(IP_BYTES);
        let pseudo = checksum::pseudo_sum(&self.bytes, 6, transport_bytes).folded();
        put16(&mut self.bytes, 36, pseudo);
        let mut packet = Packet::new(pool.alloc_copy(&self.bytes)?);
        packet.checksum = Checksum::Partial { start: IP_BYTES, field: IP_BYTES + 16 };
        if self.shape.segments > 1 {
            packet.layout =
                Layout::train(LayoutKind::Tcp, HEADER_BYTES, self.shape.payload_bytes(), self.shape.segments);
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieste_packet::PoolConfig;
    use trieste_packet::segment::Segmenter;
    use trieste_packet::wire::Inner;

    #[test]
    fn the_packets_are_valid_and_of_as_many_flows_as_asked_for() {
        for shape in [Shape::single(64, 3), Shape::single(9000, 70_000), Shape::train(1420, 2)] {
            let mut pool = Pool::new(PoolConfig { slots: 1, ..PoolConfig::default() });
            let mut source = Source::new(shape);
            let mut flows = std::collections::HashSet::new();
            for _ in 0..2 * shape.flows {
                let mut packet = source.packet(&mut pool).unwrap();
                let mut count = 0;
                let mut segmenter = Segmenter::new(&mut packet).unwrap();
                while let Some(segment) = segmenter.next_segment() {
                    count += 1;
                    assert_eq!(segment.len(), usize::from(shape.bytes));
                    assert!(checksum::transport_is_valid(segment, 20));
                    flows.insert(Inner::parse(segment).unwrap().flow);
                }
                assert_eq!(count, shape.segments);
            }
            assert_eq!(flows.len(), shape.flows as usize);
        }
    }

    #[test]
    fn trains_have_44_packets_where_they_fit() {
        assert_eq!(Shape::train(1420, 1).segments, 44);
        assert_eq!(Shape::train(9000, 1).segments, 7);
        assert_eq!(Shape::train(1420, 1).trains(1024), 24);
    }
}
