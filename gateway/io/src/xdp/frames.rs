//! Frames: a pool whose memory the kernel shares, and those of its buffers that the kernel has.

use std::io;

use trieste_packet::pool::HEADROOM;
use trieste_packet::{PacketBuf, Pool, PoolConfig};

use super::umem::Mapping;

/// Free bytes that the kernel leaves in front of what it receives (`XDP_PACKET_HEADROOM`).
pub(super) const KERNEL_HEADROOM: usize = 256;

/// Sizes of a frame that the kernel takes everywhere, smaller first.
const FRAME_BYTES: [usize; 2] = [2048, 4096];

/// Returns the bytes of frames for packets of up to `packet_bytes` bytes; the largest if none suffices.
pub(super) fn frame_bytes(packet_bytes: usize) -> usize {
    let fits = |bytes: &usize| bytes - KERNEL_HEADROOM >= packet_bytes;
    FRAME_BYTES.into_iter().find(fits).unwrap_or(FRAME_BYTES[1])
}

/// The frames of one worker.
///
/// A frame is in the pool, in somebody's hands as a [`PacketBuf`], or the kernel's: then its buffer is in `held`, and
/// nobody touches its bytes.
#[derive(Debug)]
pub(super) struct Frames {
    pool: Pool,
    held: Box<[Option<PacketBuf>]>,
    bytes: usize,
    /// Where the memory is, for the kernel.
    base: u64,
}

impl Frames {
    /// Makes `count` frames of `bytes` bytes.
    pub(super) fn new(count: usize, bytes: usize) -> io::Result<Self> {
        let mapping = Mapping::anonymous(count * bytes)?;
        let base = mapping.base().as_ptr() as u64;
        let pool = Pool::adopt(Box::new(mapping), bytes);
        let held = (0..count).map(|_| None).collect();
        Ok(Self { pool, held, bytes, base })
    }

    /// Makes a pool without a frame.
    pub(super) fn none() -> Self {
        let [bytes, _] = FRAME_BYTES;
        Self {
            pool: Pool::new(PoolConfig { slots: 0, slot_bytes: bytes }),
            held: Box::default(),
            bytes,
            base: 0,
        }
    }

    /// Returns the memory's address and length, and the bytes of a frame.
    pub(super) fn memory(&self) -> (u64, u64, u32) {
        let length = self.held.len() * self.bytes;
        (self.base, length as u64, u32::try_from(self.bytes).unwrap_or(u32::MAX))
    }

    /// Returns the largest frame that can be sent or received.
    pub(super) fn most(&self) -> usize {
        self.bytes - KERNEL_HEADROOM
    }

    /// Returns how many frames are in the pool.
    pub(super) fn available(&self) -> usize {
        self.pool.available()
    }

    /// Takes a free frame for ourselves.
    pub(super) fn alloc(&mut self) -> Option<PacketBuf> {
        self.pool.alloc()
    }

    /// Puts a buffer back.
    pub(super) fn recycle(&mut self, buf: PacketBuf) {
        self.pool.recycle(buf);
    }

    /// Takes a free frame for the kernel to fill, and returns its address.
    pub(super) fn give(&mut self) -> Option<u64> {
        let buf = self.pool.alloc()?;
        let (slot, _) = self.pool.place(&buf)?;
        *self.held.get_mut(slot)? = Some(buf);
        Some((slot * self.bytes) as u64)
    }

    /// Returns `true` if the buffer is a frame of ours that nobody shares.
    pub(super) fn is_ours(&self, buf: &PacketBuf) -> bool {
        self.pool.place(buf).is_some()
    }

    /// Hands a filled frame to the kernel to send, and returns the address of its bytes.
    ///
    /// # Errors
    /// Hands the buffer back if it is no frame of ours.
    pub(super) fn hold(&mut self, buf: PacketBuf) -> Result<u64, PacketBuf> {
        let Some((slot, at)) = self.pool.place(&buf) else { return Err(buf) };
        match self.held.get_mut(slot) {
            Some(held) => {
                *held = Some(buf);
                Ok(at as u64)
            }
            None => Err(buf),
        }
    }

    /// Takes the frame at `address` back from the kernel.
    pub(super) fn take_back(&mut self, address: u64) -> Option<PacketBuf> {
        let slot = usize::try_from(address).ok()? / self.bytes;
        self.held.get_mut(slot)?.take()
    }

    /// Takes a frame that the kernel has filled: `bytes` bytes from `address` on.
    pub(super) fn take_filled(&mut self, address: u64, bytes: u32) -> Option<PacketBuf> {
        let mut buf = self.take_back(address)?;
        let start = usize::try_from(address).ok()? % self.bytes;
        let grown = (start + bytes as usize).checked_sub(HEADROOM).filter(|grown| *grown <= buf.tailroom());
        match (grown, start.checked_sub(HEADROOM)) {
            (Some(grown), Some(skipped)) if skipped <= grown => {
                buf.extend(grown);
                buf.advance(skipped);
                Some(buf)
            }
            _ => {
                self.pool.recycle(buf);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_in_one_hand_at_a_time() {
        let mut frames = Frames::new(4, 2048).unwrap();
        let addresses: Vec<u64> = std::iter::from_fn(|| frames.give()).collect();
        assert_eq!((addresses.len(), frames.available()), (4, 0));
        let buf = frames.take_filled(addresses[0] + 256, 60).unwrap();
        assert_eq!((buf.len(), buf.headroom()), (60, 256));
        assert!(frames.take_back(addresses[0]).is_none(), "it is ours now");
        assert!(frames.take_back(9 << 20).is_none(), "there is no such frame");
        let address = frames.hold(buf).unwrap();
        assert_eq!(address, addresses[0] + 256);
        let buf = frames.take_back(address).unwrap();
        frames.recycle(buf);
        assert_eq!(frames.available(), 1);
    }

    #[test]
    fn what_the_kernel_cannot_have_meant_is_no_frame() {
        let mut frames = Frames::new(1, 2048).unwrap();
        for (offset, bytes) in [(0, 60), (256, 1793), (2047, u32::MAX)] {
            let address = frames.give().unwrap();
            assert!(frames.take_filled(address + offset, bytes).is_none(), "{offset} {bytes}");
            assert_eq!(frames.available(), 1, "it is back in the pool");
        }
    }

    #[test]
    fn buffers_of_other_pools_are_not_given_to_the_kernel() {
        let mut frames = Frames::new(1, 2048).unwrap();
        let mut other = Pool::new(PoolConfig { slots: 1, slot_bytes: 2048 });
        let buf = other.alloc().unwrap();
        assert!(!frames.is_ours(&buf));
        assert!(frames.hold(buf).is_err());
        let mut whole = frames.alloc().unwrap();
        whole.extend(100);
        let part = whole.split_to(50);
        assert!(!frames.is_ours(&whole), "its other part is somebody's");
        drop(part);
        assert!(frames.is_ours(&whole));
    }

    #[test]
    fn frames_are_as_small_as_packets_allow() {
        assert_eq!([1514, 1792, 1793, 9014].map(frame_bytes), [2048, 2048, 4096, 4096]);
    }
}
