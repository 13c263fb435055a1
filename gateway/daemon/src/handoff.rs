//! Packets that cross workers: the one place where they do.
//!
//! Every worker has an inbox, a bounded lock-free queue that all others push to. A full inbox hands the packet
//! back; the caller counts it. Whoever has pushed wakes the owner once per batch, not once per packet.

use crossbeam::queue::ArrayQueue;
use trieste_io::poll::Waker;
use trieste_packet::WorkerId;
use trieste_pipeline::Handoff;

/// Trains that wait in one inbox. Ours: more than a socket call brings, so that one busy turn loses nothing.
const INBOX_LIMIT: usize = 512;

/// The inboxes of all workers.
pub struct Exchange {
    inboxes: Vec<Inbox>,
}

struct Inbox {
    queue: ArrayQueue<Handoff>,
    waker: Option<Waker>,
}

impl Exchange {
    /// One inbox per waker, in the order of the workers; `None` for a worker that is polled by hand (tests).
    #[must_use]
    pub fn new(wakers: Vec<Option<Waker>>) -> Self {
        let inbox = |waker| Inbox { queue: ArrayQueue::new(INBOX_LIMIT), waker };
        Self { inboxes: wakers.into_iter().map(inbox).collect() }
    }

    /// Puts a packet into its owner's inbox.
    ///
    /// # Errors
    /// Hands it back when the inbox is full or there is no such worker.
    #[expect(
        clippy::result_large_err,
        reason = "a full queue hands the packet back; boxing it would allocate per packet"
    )]
    pub fn send(&self, handoff: Handoff) -> Result<(), Handoff> {
        match self.inboxes.get(usize::from(handoff.to.0)) {
            Some(inbox) => inbox.queue.push(handoff),
            None => Err(handoff),
        }
    }

    /// Wakes a worker, so that it looks into its inbox.
    pub fn wake(&self, worker: WorkerId) {
        if let Some(waker) = self.inboxes.get(usize::from(worker.0)).and_then(|inbox| inbox.waker.as_ref()) {
            waker.wake();
        }
    }

    /// The next packet in a worker's inbox.
    #[must_use]
    pub fn take(&self, worker: WorkerId) -> Option<Handoff> {
        self.inboxes.get(usize::from(worker.0))?.queue.pop()
    }
}
