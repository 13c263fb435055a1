//! Checks `slots.rs` under every interleaving of its holders, and under every value that the memory model lets a load
//! return: the same source, compiled against loom's atomics. Bytes of packets are relaxed atomics here, since a load of
//! one that returns an old value is what a missing Acquire or Release would let happen.

#[path = "slots.rs"]
#[expect(clippy::duplicate_mod, reason = "the same source, on loom's atomics")]
mod slots;

/// loom's atomics, and a queue on its mutex that orders a `pop` after its `push` as crossbeam's does.
mod sync {
    use std::collections::VecDeque;

    use loom::sync::Mutex;
    pub(super) use loom::sync::atomic::{AtomicU32, Ordering, fence};

    pub(super) struct ArrayQueue<T> {
        items: Mutex<VecDeque<T>>,
        limit: usize,
    }

    impl<T> ArrayQueue<T> {
        pub(super) fn new(limit: usize) -> Self {
            Self { items: Mutex::new(VecDeque::new()), limit }
        }

        pub(super) fn push(&self, item: T) -> Result<(), T> {
            let mut items = self.items.lock().unwrap();
            if items.len() == self.limit {
                return Err(item);
            }
            items.push_back(item);
            Ok(())
        }

        pub(super) fn pop(&self) -> Option<T> {
            self.items.lock().unwrap().pop_front()
        }

        pub(super) fn len(&self) -> usize {
            self.items.lock().unwrap().len()
        }
    }
}

use loom::sync::Arc;
use loom::thread;
use slots::Slots;
use sync::{AtomicU32, Ordering};

/// One slot and a byte of each of two halves that are written by different holders.
struct Shared {
    slots: Slots,
    front: AtomicU32,
    back: AtomicU32,
}

impl Shared {
    /// Makes them, the slot held twice.
    fn held_twice() -> (Arc<Self>, u32) {
        let shared =
            Arc::new(Self { slots: Slots::new(1), front: AtomicU32::new(0), back: AtomicU32::new(0) });
        let slot = shared.slots.take().unwrap();
        shared.slots.share(slot);
        (shared, slot)
    }

    /// Starts a holder that writes to the front and releases the slot.
    fn write_front(shared: &Arc<Self>, slot: u32) -> thread::JoinHandle<()> {
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            shared.front.store(1, Ordering::Relaxed);
            shared.slots.release(slot);
        })
    }
}

#[test]
fn who_takes_a_slot_again_sees_what_every_holder_wrote() {
    loom::model(|| {
        let (shared, slot) = Shared::held_twice();
        let front = Shared::write_front(&shared, slot);
        let back = Arc::clone(&shared);
        let back = thread::spawn(move || {
            back.back.store(1, Ordering::Relaxed);
            back.slots.release(slot);
        });
        if let Some(again) = shared.slots.take() {
            assert_eq!(again, slot);
            assert!(shared.slots.is_alone(again));
            assert_eq!(shared.front.load(Ordering::Relaxed), 1, "the front's holder wrote before releasing");
            assert_eq!(shared.back.load(Ordering::Relaxed), 1, "the back's holder wrote before releasing");
            shared.slots.release(again);
        }
        front.join().unwrap();
        back.join().unwrap();
        assert_eq!(shared.slots.returned(), 1);
        assert!(shared.slots.take().is_some() && shared.slots.take().is_none(), "a slot returns once");
    });
}

#[test]
fn who_is_alone_sees_what_the_other_holder_wrote() {
    loom::model(|| {
        let (shared, slot) = Shared::held_twice();
        let front = Shared::write_front(&shared, slot);
        if shared.slots.is_alone(slot) {
            assert_eq!(shared.front.load(Ordering::Relaxed), 1, "the other holder wrote before releasing");
        }
        assert_eq!(shared.slots.returned(), 0, "a slot that is held has not returned");
        front.join().unwrap();
        assert!(shared.slots.is_alone(slot));
    });
}

#[test]
fn a_slot_that_is_shared_while_another_holder_leaves_stays_held() {
    loom::model(|| {
        let (shared, slot) = Shared::held_twice();
        let front = Shared::write_front(&shared, slot);
        shared.slots.share(slot);
        shared.slots.release(slot);
        assert_eq!((shared.slots.len(), shared.slots.returned()), (1, 0));
        shared.slots.release(slot);
        front.join().unwrap();
        assert_eq!(shared.slots.returned(), 1);
    });
}
