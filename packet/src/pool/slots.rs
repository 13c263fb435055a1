//! Who holds which slot: reference counts, and the queue of slots whose last holder is gone.

use super::sync::{ArrayQueue, AtomicU32, Ordering, fence};

/// The slots of one region. The index of a slot is either in the queue of returned ones or held `references[slot]`
/// times.
pub(super) struct Slots {
    references: Box<[AtomicU32]>,
    returned: ArrayQueue<u32>,
}

impl Slots {
    /// Makes `count` slots that nobody holds.
    ///
    /// # Panics
    /// When there are 2^32 or more.
    pub(super) fn new(count: usize) -> Self {
        let references = (0..count).map(|_| AtomicU32::new(0)).collect();
        let returned = ArrayQueue::new(count.max(1));
        for slot in 0..count {
            let slot = u32::try_from(slot).expect("a region holds fewer than 2^32 slots");
            returned.push(slot).expect("the queue holds every slot");
        }
        Self { references, returned }
    }

    /// Returns the number of slots.
    pub(super) fn len(&self) -> usize {
        self.references.len()
    }

    /// Returns how many slots nobody holds.
    pub(super) fn returned(&self) -> usize {
        self.returned.len()
    }

    /// Takes a slot that nobody holds; the caller is its only holder. What earlier holders wrote has happened.
    #[inline]
    pub(super) fn take(&self) -> Option<u32> {
        let slot = self.returned.pop()?;
        self.references[slot as usize].store(1, Ordering::Relaxed);
        Some(slot)
    }

    /// Adds a holder; the caller is one already.
    #[inline]
    pub(super) fn share(&self, slot: u32) {
        // Relaxed suffices: a holder exists, so the count cannot reach zero meanwhile (as in `Arc`).
        self.references[slot as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns `true` if the caller is the only holder. What earlier ones wrote has happened then.
    #[inline]
    pub(super) fn is_alone(&self, slot: u32) -> bool {
        // Acquire: who shared the slot has written to it before releasing it.
        self.references[slot as usize].load(Ordering::Acquire) == 1
    }

    /// Removes the caller from the holders; the last one returns the slot.
    #[inline]
    pub(super) fn release(&self, slot: u32) {
        if self.references[slot as usize].fetch_sub(1, Ordering::Release) == 1 {
            // The next holder must see all writes of those who shared the slot.
            fence(Ordering::Acquire);
            let returned = self.returned.push(slot);
            debug_assert!(returned.is_ok(), "the queue holds every slot once");
        }
    }
}
