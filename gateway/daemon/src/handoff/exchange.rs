//! The inboxes of all workers, and who is woken when.

use trieste_packet::WorkerId;
use trieste_pipeline::Handoff;

use super::sync::{ArrayQueue, Waker};

/// Trains that wait in one inbox. Ours: more than a socket call brings, so that one busy turn loses nothing.
const INBOX_LIMIT: usize = 512;

/// The inboxes of all workers.
///
/// An owner that has found its inbox empty may wait for its waker, and needs no other end of its wait: a wake-up follows
/// every packet, and one that comes before the wait ends it at once.
pub struct Exchange<T = Handoff> {
    inboxes: Vec<Inbox<T>>,
}

struct Inbox<T> {
    queue: ArrayQueue<T>,
    waker: Option<Waker>,
}

impl<T> Exchange<T> {
    /// Makes one inbox per waker, in the order of the workers; `None` for a worker that is polled by hand (tests).
    #[must_use]
    pub fn new(wakers: Vec<Option<Waker>>) -> Self {
        let inbox = |waker| Inbox { queue: ArrayQueue::new(INBOX_LIMIT), waker };
        Self { inboxes: wakers.into_iter().map(inbox).collect() }
    }

    /// Puts packets into the inboxes of their owners, then wakes each of these once. Hands those to `refused` whose
    /// owner has a full inbox, or is none of the workers.
    pub fn send(&self, packets: impl IntoIterator<Item = (WorkerId, T)>, mut refused: impl FnMut(T)) {
        let mut is_due = [false; 256];
        for (to, packet) in packets {
            let result = match self.inboxes.get(usize::from(to.0)) {
                Some(inbox) => inbox.queue.push(packet),
                None => Err(packet),
            };
            match result {
                Ok(()) => is_due[usize::from(to.0) % 256] = true,
                Err(packet) => refused(packet),
            }
        }
        for (inbox, _) in self.inboxes.iter().zip(is_due).filter(|(_, is_due)| *is_due) {
            if let Some(waker) = &inbox.waker {
                waker.wake();
            }
        }
    }

    /// Takes the next packet out of a worker's inbox.
    #[must_use]
    pub fn take(&self, worker: WorkerId) -> Option<T> {
        self.inboxes.get(usize::from(worker.0))?.queue.pop()
    }
}
