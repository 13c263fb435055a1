//! First packets of TCP connections that nobody inside waits for: held before anything is said about them.
//!
//! The other end may be opening at the same moment (simultaneous open): then its SYN follows within seconds, the
//! connection exists, and an error would have killed it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::facts::Facts;

/// Bytes of a held packet that are kept: a header of full length and eight bytes, what an ICMP error has to quote.
const QUOTE_BYTES: usize = 68;

/// The beginning of a packet that came unasked, and that nobody has asked for since.
#[derive(Debug, Clone, Copy)]
pub struct Unsolicited {
    /// The packet's facts, as it came.
    pub flow: Facts,
    quote: [u8; QUOTE_BYTES],
    quoted: usize,
    due: Instant,
}

impl Unsolicited {
    /// The packet's first bytes, as it came: enough for an ICMP error to quote.
    #[must_use]
    pub fn packet(&self) -> &[u8] {
        &self.quote[..self.quoted]
    }
}

/// A bounded queue of them, oldest first.
#[derive(Debug)]
pub(crate) struct Held {
    queue: VecDeque<Unsolicited>,
    limit: usize,
    wait: Duration,
}

impl Held {
    pub(crate) fn new(limit: usize, wait: Duration) -> Self {
        Self { queue: VecDeque::with_capacity(limit), limit, wait }
    }

    /// Holds further packets for this long.
    pub(crate) fn set_wait(&mut self, wait: Duration) {
        self.wait = wait;
    }

    /// Holds a packet; `false` when there are as many as there may be.
    pub(crate) fn push(&mut self, flow: &Facts, packet: &[u8], now: Instant) -> bool {
        if self.queue.len() >= self.limit {
            return false;
        }
        let mut quote = [0; QUOTE_BYTES];
        let quoted = packet.len().min(QUOTE_BYTES);
        quote[..quoted].copy_from_slice(&packet[..quoted]);
        self.queue.push_back(Unsolicited { flow: *flow, quote, quoted, due: now + self.wait });
        true
    }

    /// The oldest that has waited long enough.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Unsolicited> {
        if self.queue.front()?.due > now {
            return None;
        }
        self.queue.pop_front()
    }
}
