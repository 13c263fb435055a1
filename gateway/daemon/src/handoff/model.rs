//! Checks that no wake-up is lost, under every interleaving of workers that send to one that sleeps: the source of the
//! inboxes, compiled against loom's mutex. A worker that is never woken is a deadlock, which loom reports; in a gateway
//! it would be a packet that waits for the worker's next timer.

#[path = "exchange.rs"]
#[expect(clippy::duplicate_mod, reason = "the same source, on loom's types")]
#[expect(unreachable_pub, reason = "as in the product")]
mod exchange;

mod sync {
    use std::collections::VecDeque;

    use loom::sync::{Arc, Condvar, Mutex};

    /// A bounded queue on a mutex, which orders a `pop` after its `push` as crossbeam's does. Two packets fill it, so
    /// that three can find it full.
    pub(super) struct ArrayQueue<T>(Mutex<VecDeque<T>>);

    impl<T> ArrayQueue<T> {
        pub(super) fn new(_: usize) -> Self {
            Self(Mutex::new(VecDeque::new()))
        }

        pub(super) fn push(&self, item: T) -> Result<(), T> {
            let mut items = self.0.lock().unwrap();
            if items.len() == 2 {
                return Err(item);
            }
            items.push_back(item);
            Ok(())
        }

        pub(super) fn pop(&self) -> Option<T> {
            self.0.lock().unwrap().pop_front()
        }
    }

    /// An eventfd behind a level-triggered epoll: a wait ends when there was a wake-up since the last one ended.
    #[derive(Clone)]
    #[expect(unreachable_pub, reason = "as the product's, which the inboxes' own interface names")]
    pub struct Waker(Arc<(Mutex<bool>, Condvar)>);

    impl Waker {
        pub(super) fn new() -> Self {
            Self(Arc::new((Mutex::new(false), Condvar::new())))
        }

        pub(super) fn wake(&self) {
            *self.0.0.lock().unwrap() = true;
            self.0.1.notify_one();
        }

        pub(super) fn wait(&self) {
            let mut is_woken = self.0.0.lock().unwrap();
            while !*is_woken {
                is_woken = self.0.1.wait(is_woken).unwrap();
            }
            *is_woken = false;
        }
    }
}

use exchange::Exchange;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use sync::Waker;
use trieste_packet::WorkerId;

const OWNER: WorkerId = WorkerId(0);

/// Lets workers send that many packets each, while the owner takes up to `budget` in a turn and sleeps after a turn
/// without any, as `Worker::run` does, until every packet was taken or refused.
fn check(senders: usize, packets: usize, budget: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let waker = Waker::new();
        let exchange = Arc::new(Exchange::new(vec![Some(waker.clone())]));
        let refused = Arc::new(AtomicUsize::new(0));
        let senders: Vec<_> = (0..senders)
            .map(|_| {
                let (exchange, refused, waker) = (Arc::clone(&exchange), Arc::clone(&refused), waker.clone());
                thread::spawn(move || {
                    let batch = (0..packets).map(|packet| (OWNER, packet));
                    exchange.send(batch, |_| {
                        refused.fetch_add(1, Ordering::SeqCst);
                        // Not the exchange's: it tells this model's owner that one packet less will come.
                        waker.wake();
                    });
                })
            })
            .collect();
        let all = senders.len() * packets;
        let mut taken = 0;
        while taken + refused.load(Ordering::SeqCst) < all {
            let count = std::iter::from_fn(|| exchange.take(OWNER)).take(budget).count();
            taken += count;
            if count == 0 {
                waker.wait();
            }
        }
        for sender in senders {
            sender.join().unwrap();
        }
        assert!(exchange.take(OWNER).is_none(), "every packet was taken or refused");
    });
}

#[test]
fn a_worker_that_sleeps_is_woken_for_every_packet() {
    check(1, 1, 64);
}

#[test]
fn two_senders_lose_no_wake_up() {
    check(2, 1, 64);
}

#[test]
fn a_batch_is_taken_over_several_turns_after_one_wake_up() {
    check(1, 2, 1);
}

#[test]
fn a_full_inbox_refuses_and_its_owner_is_woken_for_the_rest() {
    check(1, 3, 1);
}
