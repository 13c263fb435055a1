//! The four rings that a socket shares with the kernel: single producer, single consumer, counters that wrap at 2^32.
//!
//! ```text
//!  fill        free frames        we ──▶ kernel      receive     frames that came     kernel ──▶ we
//!  transmit    frames to send     we ──▶ kernel      completion  frames that are sent kernel ──▶ we
//! ```
#![expect(
    unsafe_code,
    reason = "memory shared with the kernel; the invariant on `Ring` says who writes what"
)]

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::net::xdp::XdpRingOffset;

use super::umem::Mapping;

/// What a ring holds.
///
/// # Safety
/// Every pattern of bits must be a value.
pub(super) unsafe trait Entry: Copy {}

/// A frame's address in the fill and completion rings.
pub(super) type Address = u64;

/// A frame in the receive and transmit rings (`struct xdp_desc`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) address: Address,
    pub(super) bytes: u32,
    pub(super) options: u32,
}

// SAFETY: both are made of integers.
unsafe impl Entry for Address {}
// SAFETY: as above.
unsafe impl Entry for Descriptor {}

/// One ring.
///
/// Invariant: the pointers lead into `mapping`, aligned, with `size` entries behind `entries`; `size` is a power of two.
/// One counter is written by the kernel only, the other one by this value only, which also reads or writes no entry that
/// is the kernel's: those between the counters on the kernel's side.
#[derive(Debug)]
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    /// Keeps the memory.
    _mapping: Mapping,
}

// SAFETY: the pointers lead to memory that the value owns, so they may move along with it.
unsafe impl<T: Entry + Send> Send for Ring<T> {}

impl<T: Entry> Ring<T> {
    fn map(socket: impl AsFd, size: u32, at: XdpRingOffset, page: u64) -> io::Result<Self> {
        let too_odd = || io::Error::from_raw_os_error(libc::EINVAL);
        let narrow = |offset: u64| usize::try_from(offset).map_err(|_| too_odd());
        let entries = narrow(at.desc)?;
        let bytes = entries + size as usize * size_of::<T>();
        let offsets = [narrow(at.producer)?, narrow(at.consumer)?, narrow(at.flags.ok_or_else(too_odd)?)?];
        let fits = offsets.iter().all(|offset| offset % 4 == 0 && offset + 4 <= bytes);
        if !size.is_power_of_two() || !fits || entries % align_of::<T>() != 0 {
            return Err(too_odd());
        }
        let mapping = Mapping::ring(socket, bytes, page)?;
        // SAFETY: all offsets were compared with the mapping's length.
        let at = |offset: usize| unsafe { mapping.base().add(offset) };
        let [producer, consumer, flags] = offsets.map(|offset| at(offset).cast());
        let entries = at(entries).cast();
        Ok(Self { producer, consumer, flags, entries, size, _mapping: mapping })
    }

    fn counter(&self, which: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: by the invariant it points to an aligned counter that lives as long as `self`.
        unsafe { which.as_ref() }
    }

    fn entry(&self, position: u32) -> NonNull<T> {
        // SAFETY: masked, the position is below `size`.
        unsafe { self.entries.add((position & (self.size - 1)) as usize) }
    }

    /// Returns `true` if the kernel sleeps until it is woken.
    fn needs_wakeup(&self) -> bool {
        // Our counter has to be visible before: the kernel sets the flag, then looks at the ring once more.
        fence(Ordering::SeqCst);
        self.counter(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that we fill.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// What we have written, published or not.
    written: u32,
    /// Up to where the kernel had read when it was asked last.
    read: u32,
}

impl<T: Entry> Producer<T> {
    /// Maps a ring of `size` entries.
    pub(super) fn map(socket: impl AsFd, size: u32, at: XdpRingOffset, page: u64) -> io::Result<Self> {
        let ring = Ring::map(socket, size, at, page)?;
        let written = ring.counter(ring.producer).load(Ordering::Relaxed);
        let read = ring.counter(ring.consumer).load(Ordering::Acquire);
        Ok(Self { ring, written, read })
    }

    /// Returns how many entries the ring has.
    pub(super) fn size(&self) -> u32 {
        self.ring.size
    }

    /// Returns how many entries fit.
    pub(super) fn room(&mut self) -> u32 {
        let used = self.written.wrapping_sub(self.read);
        if used < self.ring.size {
            return self.ring.size - used;
        }
        self.ring.size - self.pending()
    }

    /// Returns how many entries the kernel has not read yet.
    pub(super) fn pending(&mut self) -> u32 {
        // Acquire: what the kernel has read may be written over.
        self.read = self.ring.counter(self.ring.consumer).load(Ordering::Acquire);
        self.written.wrapping_sub(self.read)
    }

    /// Returns `true` if there is anything that the kernel has not read.
    pub(super) fn has_pending(&self) -> bool {
        self.unread() > 0
    }

    /// Returns `true` if more than half of the entries are such: until then the kernel reports room in a transmit ring.
    pub(super) fn is_over_half(&self) -> bool {
        self.unread() > self.ring.size / 2
    }

    fn unread(&self) -> u32 {
        self.written.wrapping_sub(self.ring.counter(self.ring.consumer).load(Ordering::Relaxed))
    }

    /// Writes an entry, which the kernel sees after [`Self::publish`]. `false` if there is no room.
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.room() == 0 {
            return false;
        }
        // SAFETY: there is room, so the entry at `written` is ours.
        unsafe { self.ring.entry(self.written).write(entry) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Shows the kernel what was written.
    pub(super) fn publish(&self) {
        // Release: the entries are there before the counter says so.
        self.ring.counter(self.ring.producer).store(self.written, Ordering::Release);
    }

    /// Returns `true` if the kernel sleeps until it is woken.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that the kernel fills.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// What we have read, released or not.
    read: u32,
    /// Up to where the kernel had written when it was asked last.
    written: u32,
}

impl<T: Entry> Consumer<T> {
    /// Maps a ring of `size` entries.
    pub(super) fn map(socket: impl AsFd, size: u32, at: XdpRingOffset, page: u64) -> io::Result<Self> {
        let ring = Ring::map(socket, size, at, page)?;
        let read = ring.counter(ring.consumer).load(Ordering::Relaxed);
        Ok(Self { ring, read, written: read })
    }

    /// Takes the next entry. The kernel writes over it only after [`Self::release`].
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.read == self.written {
            // Acquire: the entries are there if the counter says so.
            self.written = self.ring.counter(self.ring.producer).load(Ordering::Acquire);
            if self.read == self.written {
                return None;
            }
        }
        // SAFETY: the kernel has written the entry at `read`, and every pattern of bits is a value.
        let entry = unsafe { self.ring.entry(self.read).read() };
        self.read = self.read.wrapping_add(1);
        Some(entry)
    }

    /// Gives what was taken back to the kernel.
    pub(super) fn release(&self) {
        // Release: we have read the entries before.
        self.ring.counter(self.ring.consumer).store(self.read, Ordering::Release);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    impl<T: Entry> Producer<T> {
        /// Marks the kernel as asleep until it is woken.
        pub(in super::super) fn fall_asleep(&self) {
            self.ring.counter(self.ring.flags).store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
        }
    }

    /// Makes a ring in memory of our own, with its other end.
    pub(in super::super) fn pair(start: u32) -> (Producer<Address>, Consumer<Address>) {
        let end = || {
            let mapping = Mapping::anonymous(4096).unwrap();
            let base = mapping.base();
            // SAFETY: inside of the mapping.
            let at = |offset| unsafe { base.add(offset) };
            let ring = Ring {
                producer: at(0).cast::<AtomicU32>(),
                consumer: at(64).cast(),
                flags: at(128).cast(),
                entries: at(192).cast::<Address>(),
                size: 8,
                _mapping: mapping,
            };
            ring.counter(ring.producer).store(start, Ordering::Relaxed);
            ring.counter(ring.consumer).store(start, Ordering::Relaxed);
            ring
        };
        let (ours, mut theirs) = (end(), end());
        (theirs.producer, theirs.consumer, theirs.flags, theirs.entries) =
            (ours.producer, ours.consumer, ours.flags, ours.entries);
        (
            Producer { ring: ours, written: start, read: start },
            Consumer { ring: theirs, read: start, written: start },
        )
    }

    #[test]
    fn entries_come_in_order_also_where_the_counters_wrap() {
        let (mut producer, mut consumer) = pair(u32::MAX - 10);
        let (mut next, mut seen) = (0u64, 0u64);
        for round in 0..40u32 {
            for _ in 0..=round % 8 {
                if producer.push(next) {
                    next += 1;
                }
            }
            assert_eq!(consumer.pop(), None, "nothing is there before it was published");
            producer.publish();
            while let Some(entry) = consumer.pop() {
                assert_eq!(entry, seen);
                seen += 1;
            }
            consumer.release();
        }
        assert_eq!(seen, next);
        assert!(next > 30);
    }

    #[test]
    fn a_full_ring_takes_no_more_until_the_other_end_releases() {
        let (mut producer, mut consumer) = pair(5);
        assert_eq!((0..20).filter(|entry| producer.push(*entry)).count(), 8);
        producer.publish();
        assert_eq!((consumer.pop(), producer.room()), (Some(0), 0));
        consumer.release();
        assert_eq!((producer.room(), producer.pending()), (1, 7));
        assert!(producer.push(99));
    }
}
