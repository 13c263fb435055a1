//! Buffers and who owns them.
//!
//! A [`Region`] is one piece of memory cut into slots of equal size. A [`Pool`] hands slots out as
//! [`PacketBuf`]s and belongs to one worker; buffers may travel to another worker and come back by being
//! dropped there. The region does not care who made its memory ([`Memory`]), so that memory shared with a
//! device can be adopted later.
//!
//! ```text
//!  slot: | headroom | packet bytes … | tailroom |
//!        lo         start            end        hi
//! ```
//!
//! This module is the only one of the crate with `unsafe`. Its invariant stands on [`Region`].
#![expect(
    unsafe_code,
    reason = "buffers of one slot alias one region; the invariant on `Region` keeps them disjoint"
)]

#[cfg(test)]
mod model;
mod slots;
mod sync;

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use slots::Slots;

/// Bytes left free in front of a fresh packet: room for the largest outer header and a device's own header.
pub const HEADROOM: usize = 128;

/// Bytes per slot of the default pool: a 64 KiB super-packet, headroom, and an odd number of cache lines,
/// so that the headers of successive slots do not fall into the same cache sets.
pub const TRAIN_SLOT_BYTES: usize = 1061 * 64;

/// Memory that a region lives in.
///
/// # Safety
/// `as_ptr` must return the same pointer every time, valid for reads and writes of `len` bytes until the value
/// is dropped, and nothing else may access those bytes while the value lives.
pub unsafe trait Memory: Send + Sync {
    /// Start of the memory.
    fn as_ptr(&self) -> NonNull<u8>;
    /// Length in bytes.
    fn len(&self) -> usize;
    /// Whether there is no memory at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Zeroed heap memory; pages become resident when they are first written.
struct Heap {
    base: NonNull<u8>,
    len: usize,
}

impl Heap {
    fn new(len: usize) -> Self {
        let memory: &'static mut [u8] = Box::leak(vec![0u8; len].into_boxed_slice());
        Self { base: NonNull::from(&mut *memory).cast(), len }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let slice = std::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.len);
        // SAFETY: `base` and `len` came from `Box::leak` in `new`, and this value owned them alone since.
        drop(unsafe { Box::from_raw(slice) });
    }
}

// SAFETY: `Heap` owns its allocation alone, for as long as it lives, at a fixed address.
unsafe impl Memory for Heap {
    fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }
    fn len(&self) -> usize {
        self.len
    }
}
// SAFETY: the pointer is to owned heap memory without thread affinity; access goes through `Region`.
unsafe impl Send for Heap {}
// SAFETY: as above; a shared `Heap` gives out only its address.
unsafe impl Sync for Heap {}

/// Memory cut into slots.
///
/// Invariant: a slot that is held is covered by as many [`PacketBuf`]s as it has holders (those that wait in a pool
/// count), whose ranges `lo..hi` do not overlap. A buffer touches no byte outside its range.
pub struct Region {
    /// Where `memory` starts; kept here because asking it is a dynamic call.
    base: NonNull<u8>,
    memory: Box<dyn Memory>,
    slot_bytes: usize,
    slots: Slots,
}

impl Region {
    fn new(memory: Box<dyn Memory>, slot_bytes: usize) -> Self {
        let slots = Slots::new(memory.len() / slot_bytes);
        Self { base: memory.as_ptr(), memory, slot_bytes, slots }
    }

    fn slot_ptr(&self, slot: u32) -> *mut u8 {
        let offset = slot as usize * self.slot_bytes;
        debug_assert!(offset + self.slot_bytes <= self.memory.len());
        // SAFETY: `slot` is below the number of slots, so the offset lies inside the memory.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

// SAFETY: `base` points into `memory`, which may be sent; bytes are only reached through `PacketBuf`s, which the
// invariant keeps apart.
unsafe impl Send for Region {}
// SAFETY: as above; what a shared `Region` changes by itself is atomic.
unsafe impl Sync for Region {}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("slots", &self.slots.len())
            .field("slot_bytes", &self.slot_bytes)
            .finish()
    }
}

/// Size of a pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolConfig {
    /// Number of slots.
    pub slots: usize,
    /// Bytes per slot, headroom and tailroom included.
    pub slot_bytes: usize,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self { slots: 384, slot_bytes: TRAIN_SLOT_BYTES }
    }
}

/// A worker's buffers. While buffers are recycled, taking one touches nothing shared.
///
/// What was recycled last is taken first: its memory is most likely in a cache. Lanes fill their outputs to the end,
/// whereas a received packet may have been a single one that touched the first lines only. So an output gets what
/// was recycled last only if that was filled as well, and else a buffer that was an output before.
#[derive(Debug)]
pub struct Pool {
    region: Arc<Region>,
    free: Vec<PacketBuf>,
    free_outputs: Vec<PacketBuf>,
}

impl Pool {
    /// Makes a pool on fresh memory.
    #[must_use]
    pub fn new(config: PoolConfig) -> Self {
        Self::adopt(Box::new(Heap::new(config.slots * config.slot_bytes)), config.slot_bytes)
    }

    /// Makes a pool on memory made elsewhere, cut into slots of `slot_bytes`.
    ///
    /// # Panics
    /// When `slot_bytes` does not exceed [`HEADROOM`].
    #[must_use]
    pub fn adopt(memory: Box<dyn Memory>, slot_bytes: usize) -> Self {
        assert!(
            slot_bytes > HEADROOM && u32::try_from(slot_bytes).is_ok(),
            "a slot holds headroom and a packet"
        );
        let region = Arc::new(Region::new(memory, slot_bytes));
        let free = Vec::with_capacity(region.slots.len());
        let free_outputs = Vec::with_capacity(region.slots.len());
        Self { region, free, free_outputs }
    }

    /// Takes an empty buffer with [`HEADROOM`] bytes in front, or `None` when all are out.
    pub fn alloc(&mut self) -> Option<PacketBuf> {
        if self.free.is_empty() {
            self.reclaim();
        }
        let buf = self.free.pop().or_else(|| self.free_outputs.pop())?;
        Some(self.fresh(buf, false))
    }

    /// Takes an empty buffer for a train that is about to be made; else as [`Self::alloc`].
    pub fn alloc_output(&mut self) -> Option<PacketBuf> {
        let half = PacketBuf::offset(self.region.slot_bytes / 2);
        if let Some(buf) = self.free.pop_if(|buf| buf.end > half) {
            return Some(self.fresh(buf, false));
        }
        let buf = if let Some(buf) = self.free_outputs.pop() { buf } else { self.alloc()? };
        Some(self.fresh(buf, true))
    }

    /// Takes over what was dropped elsewhere.
    #[cold]
    fn reclaim(&mut self) {
        while let Some(slot) = self.region.slots.take() {
            let region = Arc::clone(&self.region);
            self.free.push(PacketBuf { region, slot, lo: 0, hi: 0, start: 0, end: 0, is_output: false });
        }
    }

    /// Gives a buffer that covers its slot alone the whole slot.
    fn fresh(&self, mut buf: PacketBuf, is_output: bool) -> PacketBuf {
        buf.lo = 0;
        buf.hi = PacketBuf::offset(self.region.slot_bytes);
        buf.start = PacketBuf::offset(HEADROOM);
        buf.end = buf.start;
        buf.is_output = is_output;
        buf
    }

    /// Takes a buffer that holds a copy of `bytes`, or `None` when all are out or `bytes` do not fit.
    pub fn alloc_copy(&mut self, bytes: &[u8]) -> Option<PacketBuf> {
        let mut buf = self.alloc()?;
        if buf.tailroom() < bytes.len() {
            return None;
        }
        buf.extend(bytes.len()).copy_from_slice(bytes);
        Some(buf)
    }

    /// Puts a buffer back; the same as dropping it, without the detour over the shared queue.
    pub fn recycle(&mut self, buf: PacketBuf) {
        // A buffer of another worker's pool goes home by being dropped: its slot number means nothing here.
        let is_ours = Arc::ptr_eq(&self.region, &buf.region);
        if is_ours && self.region.slots.is_alone(buf.slot) {
            if buf.is_output { self.free_outputs.push(buf) } else { self.free.push(buf) }
        }
    }

    /// Returns the slot of a buffer that covers one of this pool's alone, and where in the memory its bytes start: what a
    /// device that shares the memory is given.
    #[must_use]
    pub fn place(&self, buf: &PacketBuf) -> Option<(usize, usize)> {
        let is_ours = Arc::ptr_eq(&self.region, &buf.region) && self.region.slots.is_alone(buf.slot);
        is_ours.then(|| (buf.slot as usize, buf.slot as usize * self.region.slot_bytes + buf.start as usize))
    }

    /// Buffers that could be taken now, not counting those that other workers give back meanwhile.
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.len() + self.free_outputs.len() + self.region.slots.returned()
    }

    /// Number of slots in all.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.region.slots.len()
    }

    /// Bytes that a fresh buffer can hold behind its headroom.
    #[must_use]
    pub fn packet_capacity(&self) -> usize {
        self.region.slot_bytes - HEADROOM
    }
}

/// Bytes of a packet inside a slot: region, offset and length, and the part of the slot that is its own.
pub struct PacketBuf {
    region: Arc<Region>,
    slot: u32,
    lo: u32,
    hi: u32,
    start: u32,
    end: u32,
    /// Which of its pool's lists it came from.
    is_output: bool,
}

impl PacketBuf {
    /// Number of packet bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether there are no packet bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Free bytes in front of the packet.
    #[must_use]
    pub fn headroom(&self) -> usize {
        (self.start - self.lo) as usize
    }

    /// Free bytes behind the packet.
    #[must_use]
    pub fn tailroom(&self) -> usize {
        (self.hi - self.end) as usize
    }

    /// The packet's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start..end` lies in `lo..hi`, which by the invariant is this buffer's alone.
        unsafe {
            std::slice::from_raw_parts(self.region.slot_ptr(self.slot).add(self.start as usize), self.len())
        }
    }

    /// The packet's bytes, writable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.len();
        // SAFETY: as in `bytes`, and `&mut self` makes this the only borrow.
        unsafe {
            std::slice::from_raw_parts_mut(self.region.slot_ptr(self.slot).add(self.start as usize), len)
        }
    }

    /// Asks the CPU to fetch the packet's first `bytes` bytes, or all if there are fewer. A hint: what is touched
    /// soon is then not waited for. Costs about half a nanosecond for each cache line.
    #[inline]
    pub fn prefetch(&self, bytes: usize) {
        for line in self.bytes()[..bytes.min(self.len())].chunks(CACHE_LINE) {
            prefetch_line(line);
        }
    }

    /// Grows the packet by `count` bytes at its end and returns them, with whatever they held before.
    ///
    /// # Panics
    /// When the tailroom is shorter.
    pub fn extend(&mut self, count: usize) -> &mut [u8] {
        assert!(count <= self.tailroom(), "extend by {count} with tailroom {}", self.tailroom());
        let old = self.len();
        self.end += Self::offset(count);
        &mut self.bytes_mut()[old..]
    }

    /// Grows the packet by `count` bytes at its front and returns them.
    ///
    /// # Panics
    /// When the headroom is shorter.
    pub fn prepend(&mut self, count: usize) -> &mut [u8] {
        assert!(count <= self.headroom(), "prepend {count} with headroom {}", self.headroom());
        self.start -= Self::offset(count);
        &mut self.bytes_mut()[..count]
    }

    /// Removes `count` bytes from the front; they become headroom.
    ///
    /// # Panics
    /// When the packet is shorter.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "advance {count} of {}", self.len());
        self.start += Self::offset(count);
    }

    /// Shortens the packet to `len` bytes; longer values change nothing.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.end = self.start + Self::offset(len);
        }
    }

    /// Splits the first `at` bytes off. Headroom goes with the front, tailroom stays here.
    ///
    /// # Panics
    /// When the packet is shorter than `at`.
    #[must_use]
    pub fn split_to(&mut self, at: usize) -> Self {
        assert!(at <= self.len(), "split at {at} of {}", self.len());
        self.region.slots.share(self.slot);
        let cut = self.start + Self::offset(at);
        let front = Self {
            region: Arc::clone(&self.region),
            slot: self.slot,
            lo: self.lo,
            hi: cut,
            start: self.start,
            end: cut,
            is_output: self.is_output,
        };
        self.lo = cut;
        self.start = cut;
        front
    }

    fn offset(count: usize) -> u32 {
        u32::try_from(count).expect("checked against a slot, which is smaller than 4 GiB")
    }
}

/// Bytes of a cache line, on the machines that matter.
const CACHE_LINE: usize = 64;

#[inline]
fn prefetch_line(line: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch accesses nothing that the program could notice, and SSE is part of every x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

impl Drop for PacketBuf {
    fn drop(&mut self) {
        self.region.slots.release(self.slot);
    }
}

impl fmt::Debug for PacketBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketBuf")
            .field("slot", &self.slot)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Pool {
        Pool::new(PoolConfig { slots: 2, slot_bytes: 256 })
    }

    #[test]
    fn buffers_come_back_when_dropped_or_recycled() {
        let mut pool = small();
        let a = pool.alloc().unwrap();
        let b = pool.alloc().unwrap();
        assert!(pool.alloc().is_none());
        drop(a);
        pool.recycle(b);
        assert_eq!(pool.available(), 2);
        assert!(pool.alloc().is_some());
    }

    #[test]
    fn split_parts_share_a_slot_until_the_last_is_gone() {
        let mut pool = small();
        let mut back = pool.alloc_copy(b"headpayload").unwrap();
        let mut front = back.split_to(4);
        front.bytes_mut()[0] = b'H';
        assert_eq!((front.bytes(), back.bytes()), (&b"Head"[..], &b"payload"[..]));
        assert_eq!((front.tailroom(), back.headroom()), (0, 0));
        pool.recycle(front);
        assert_eq!(pool.available(), 1);
        pool.recycle(back);
        assert_eq!(pool.available(), 2);
    }

    #[test]
    fn room_is_moved_between_packet_and_ends() {
        let mut pool = small();
        let mut buf = pool.alloc_copy(b"abc").unwrap();
        buf.prepend(2).copy_from_slice(b"__");
        assert_eq!(buf.bytes(), b"__abc");
        buf.advance(3);
        buf.truncate(1);
        assert_eq!(buf.bytes(), b"b");
        assert_eq!(buf.headroom(), HEADROOM + 1);
        assert_eq!(buf.headroom() + buf.len() + buf.tailroom(), 256);
    }

    #[test]
    fn buffers_return_from_other_threads() {
        let mut pool = Pool::new(PoolConfig { slots: 64, slot_bytes: 256 });
        let all: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
        assert_eq!(all.len(), 64);
        std::thread::spawn(move || drop(all)).join().unwrap();
        assert_eq!(pool.available(), 64);
        let again: Vec<_> = std::iter::from_fn(|| pool.alloc_copy(b"x")).collect();
        assert_eq!(again.len(), 64);
    }

    #[test]
    fn a_buffer_of_another_pool_goes_home() {
        let mut large = Pool::new(PoolConfig { slots: 8, slot_bytes: 256 });
        let mut small = small();
        let foreign: Vec<_> = std::iter::from_fn(|| large.alloc()).collect();
        for buf in foreign {
            small.recycle(buf);
        }
        assert_eq!((large.available(), small.available()), (8, 2));
    }

    #[test]
    fn packets_larger_than_a_slot_are_refused() {
        let mut pool = small();
        assert!(pool.alloc_copy(&[0; 256]).is_none());
        assert_eq!(pool.available(), 2);
    }
}
