//! A device made of two bounded queues in memory, for tests and benches.

use std::io;
use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use trieste_packet::{Batch, Drops, Packet, Pool};

use crate::{Capabilities, Offloads, PacketIo, RECV_BYTES};

/// One end of a cable in memory: what one end sends, the other receives, layout, checksum state, outer header and
/// decision included. Nothing is copied, cut or checked.
#[derive(Debug)]
pub struct MemoryDevice {
    incoming: Arc<ArrayQueue<Packet>>,
    outgoing: Arc<ArrayQueue<Packet>>,
    capabilities: Capabilities,
}

impl MemoryDevice {
    /// Makes two ends with room for `limit` packets (trains count once) in each direction; at least 1.
    #[must_use]
    pub fn pair(limit: usize) -> (Self, Self) {
        let forth = Arc::new(ArrayQueue::new(limit.max(1)));
        let back = Arc::new(ArrayQueue::new(limit.max(1)));
        let capabilities = Capabilities {
            mtu_bytes: 65_535,
            headroom: 0,
            offloads: Offloads::TUN.with(Offloads::UDP),
            max_segments: u16::MAX,
            max_train_bytes: 65_535,
        };
        let near = Self { incoming: Arc::clone(&back), outgoing: Arc::clone(&forth), capabilities };
        (near, Self { incoming: forth, outgoing: back, capabilities })
    }

    /// Lets this end claim other capabilities. It goes on taking everything.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Packets that wait to be received at this end.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.incoming.len()
    }
}

impl PacketIo for MemoryDevice {
    fn recv(&mut self, _: &mut Pool, batch: &mut Batch, _: &mut Drops) -> io::Result<usize> {
        let (mut received, mut bytes) = (0, 0);
        while !batch.is_full() && bytes < RECV_BYTES {
            let Some(packet) = self.incoming.pop() else { break };
            received += count(&packet);
            bytes += packet.buf.len();
            batch.push(packet).expect("the batch was not full");
        }
        Ok(received)
    }

    fn send(&mut self, batch: &mut Batch, _: &mut Pool, _: &mut Drops) -> io::Result<usize> {
        // The other end only makes room, so as many as fit now will fit.
        let fit = batch.len().min(self.outgoing.capacity() - self.outgoing.len());
        let mut sent = 0;
        for packet in batch.drain_front(fit) {
            sent += count(&packet);
            self.outgoing.push(packet).expect("one sender, and the room was counted");
        }
        Ok(sent)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }
}

fn count(packet: &Packet) -> usize {
    usize::try_from(packet.segments()).expect("at most 2^16 segments")
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieste_packet::{Layout, PoolConfig};

    fn batch_of(pool: &mut Pool, count: u8) -> Batch {
        let mut batch = Batch::new();
        for number in 0..count {
            batch.push(Packet::new(pool.alloc_copy(&[number]).unwrap())).unwrap();
        }
        batch
    }

    #[test]
    fn packets_arrive_in_order_and_a_full_queue_hands_the_rest_back() {
        let mut pool = Pool::new(PoolConfig { slots: 8, slot_bytes: 256 });
        let mut drops = Drops::default();
        let (mut near, mut far) = MemoryDevice::pair(3);
        let mut batch = batch_of(&mut pool, 5);
        assert_eq!(near.send(&mut batch, &mut pool, &mut drops).unwrap(), 3);
        assert_eq!(near.send(&mut batch, &mut pool, &mut drops).unwrap(), 0);
        assert_eq!((batch.len(), far.waiting()), (2, 3));

        let mut got = Batch::new();
        assert_eq!(far.recv(&mut pool, &mut got, &mut drops).unwrap(), 3);
        assert_eq!(near.send(&mut batch, &mut pool, &mut drops).unwrap(), 2);
        assert_eq!(far.recv(&mut pool, &mut got, &mut drops).unwrap(), 2);
        let order: Vec<u8> = got.drain().map(|packet| packet.bytes()[0]).collect();
        assert_eq!(order, [0, 1, 2, 3, 4]);
        assert_eq!((drops.total(), pool.available()), (0, 8));
    }

    #[test]
    fn trains_count_by_their_segments() {
        let mut pool = Pool::new(PoolConfig { slots: 2, slot_bytes: 512 });
        let mut drops = Drops::default();
        let (mut near, mut far) = MemoryDevice::pair(1);
        let mut batch = Batch::new();
        let mut packet = Packet::new(pool.alloc_copy(&[7; 250]).unwrap());
        packet.layout = Layout::datagrams(100, 3);
        batch.push(packet).unwrap();
        assert_eq!(near.send(&mut batch, &mut pool, &mut drops).unwrap(), 3);
        assert_eq!(far.recv(&mut pool, &mut batch, &mut drops).unwrap(), 3);
    }
}
