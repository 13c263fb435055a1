//! Fragments: those that have no ports follow the one that has.
//!
//! Only the first fragment of a packet says which flow it belongs to. What is known of it is remembered under
//! what all fragments share (addresses, protocol, identification), and the others follow, in any order:
//!
//! ```text
//!  first ──▶ settle ──▶ those that waited, in the order they came
//!  later ──▶ follow ─┬─ settled ────▶ of the same flow
//!                    ├─ not yet ────▶ waits, for a bounded time, with a bounded number of others
//!                    └─ no room ────▶ lost, counted
//! ```
//!
//! **Whose they are.** Several workers may get fragments of one packet, and until the first has come nobody knows whose
//! the flow is. So all of them, the first one too, go to one *keeper*: a worker that is a function of the key, which
//! every worker computes alike. What came before the first waits there and nowhere else. From there each fragment goes
//! on to the flow's owner as what it is, a packet of the first one's flow: what is known of the first goes along, through
//! the same queue, so that the order stays, and the owner needs no store.
//!
//! **Bounds.** Entries are kept in rows, one for each keyed hash of a source address: a source that sends more
//! packets in fragments than a row has places pushes out its own (and those of the few that share its row), not
//! everybody's. What waits is bounded for each row and in all; when all places are taken, what has waited longest goes.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use trieste_packet::wire::{Inner, Transport, be16, protocol, version};
use trieste_packet::{DropReason, KeyedState, Packet};

//= https://www.rfc-editor.org/rfc/rfc791#section-3.2
//# The current recommendation for the initial timer setting is 15 seconds.
/// How long fragments follow their first: as long as a receiver would wait for them at least.
const FOLLOW: Duration = Duration::from_secs(15);
/// How long a fragment waits for its first. Ours: fragments of a packet leave their sender together, so that seconds
/// between them are loss and not reordering; a buffer is too good for longer.
const WAIT: Duration = Duration::from_secs(2);

/// What the fragments of one packet have in common (RFC 791 section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Identification, host order.
    pub identification: u16,
    /// Internet protocol number.
    pub protocol: u8,
}

impl FragmentKey {
    /// The key of an IPv4 fragment, which `inner` describes; `None` for what is no fragment.
    ///
    /// # Errors
    /// [`DropReason::NatFragment`] for a fragment that would write over the flags of a TCP header when the packet is
    /// put together: what was decided by the first would not hold for the whole.
    pub fn of(packet: &[u8], inner: &Inner) -> Result<Option<Self>, DropReason> {
        let Transport::Fragment { first } = inner.transport else { return Ok(None) };
        if version(packet) != 4 {
            return Ok(None);
        }
        //= https://www.rfc-editor.org/rfc/rfc1858#section-3.2.2
        //# IF FO=1 and PROTOCOL=TCP then
        //# DROP PACKET
        if !first && inner.flow.protocol == protocol::TCP && be16(packet, 6) & 0x1fff == 1 {
            return Err(DropReason::NatFragment);
        }
        let address = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
        Ok(Some(Self {
            source: address(12),
            destination: address(16),
            identification: be16(packet, 4),
            protocol: inner.flow.protocol,
        }))
    }
}

/// How much is remembered and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentLimits {
    /// Rows of the store; sources are spread over them. A power of two.
    pub rows: usize,
    /// Packets in fragments that a row remembers; more push out the oldest.
    pub packets_per_row: usize,
    /// Fragments that wait for their first, in all. Each keeps a buffer of the pool.
    pub waiting: usize,
    /// Of these, from the sources of one row.
    pub waiting_per_row: usize,
    /// How long a fragment waits for its first.
    pub wait: Duration,
    /// How long fragments follow their first.
    pub follow: Duration,
}

impl Default for FragmentLimits {
    /// 2048 packets, 32 of a row; 96 fragments wait (a quarter of a worker's buffers), 48 of a row: all of one packet of
    /// 64 KiB on Ethernet.
    fn default() -> Self {
        Self { rows: 64, packets_per_row: 32, waiting: 96, waiting_per_row: 48, wait: WAIT, follow: FOLLOW }
    }
}

/// What happened to fragments, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FragmentCounters {
    /// Firsts whose outcome was noted.
    pub settled: u64,
    /// Later ones that followed, those that had waited included.
    pub followed: u64,
    /// Later ones that had to wait.
    pub waited: u64,
    /// Lost because the first did not come in time.
    pub expired: u64,
    /// Lost because too many waited: of the row, or in all.
    pub crowded_out: u64,
}

/// What is known of one packet in fragments.
#[derive(Debug, Clone, Copy)]
struct Entry<V> {
    key: FragmentKey,
    /// What was decided for the first, if it has come.
    outcome: Option<V>,
    until: Instant,
}

impl<V: Copy> Entry<V> {
    /// What was decided, if that was not too long ago.
    fn valid(&self, now: Instant) -> Option<V> {
        self.outcome.filter(|_| now < self.until)
    }
}

/// A fragment that waits.
#[derive(Debug)]
struct Waiting {
    key: FragmentKey,
    row: usize,
    until: Instant,
    packet: Packet,
}

/// Outcomes of first fragments, and the fragments that wait for them.
///
/// `V` is what later fragments need to know of their first. Call [`Self::settle`] for every first, [`Self::follow`] for
/// the others, and [`Self::expire`] at [`Self::poll_timeout`]. All memory is allocated at the beginning.
#[derive(Debug)]
pub struct Fragments<V> {
    limits: FragmentLimits,
    hash: KeyedState,
    rows: Box<[Option<Entry<V>>]>,
    /// In the order of their deadlines, which is the order in which they came.
    waiting: VecDeque<Waiting>,
    counters: FragmentCounters,
}

impl<V: Copy> Fragments<V> {
    /// An empty store. `seed` keys the hash of sources, so that nobody outside can choose sources that share a row.
    #[must_use]
    pub fn new(limits: FragmentLimits, seed: u64) -> Self {
        let rows = limits.rows.max(1).next_power_of_two();
        let limits = FragmentLimits { rows, packets_per_row: limits.packets_per_row.max(1), ..limits };
        Self {
            limits,
            hash: KeyedState::new(seed),
            rows: vec![None; rows * limits.packets_per_row].into_boxed_slice(),
            waiting: VecDeque::with_capacity(limits.waiting),
            counters: FragmentCounters::default(),
        }
    }

    /// Notes what was decided for the first fragment of a packet and hands the fragments that waited for it to
    /// `release`, in the order they came. Send the first before them.
    pub fn settle(
        &mut self,
        key: FragmentKey,
        outcome: V,
        now: Instant,
        mut release: impl FnMut(Packet),
        lose: impl FnMut(Packet),
    ) {
        self.counters.settled += 1;
        let until = now + self.limits.follow;
        let entry = Entry { key, outcome: Some(outcome), until };
        match self.find(&key) {
            Some(at) => {
                let before = self.rows[at].replace(entry);
                if before.is_some_and(|before| before.outcome.is_none()) {
                    self.counters.followed += take(&mut self.waiting, &key, &mut release);
                }
            }
            None => self.insert(entry, now, lose),
        }
    }

    /// Gives a later fragment back with the outcome that it follows, or keeps it until its first comes. What is
    /// lost for want of room, this one or another, goes to `lose` (reason [`DropReason::NatFragment`]).
    pub fn follow(
        &mut self,
        key: FragmentKey,
        packet: Packet,
        now: Instant,
        mut lose: impl FnMut(Packet),
    ) -> Option<(V, Packet)> {
        let until = now + self.limits.wait;
        let entry = Entry { key, outcome: None, until };
        match self.find(&key) {
            Some(at) => match self.rows[at].and_then(|known| known.valid(now)) {
                Some(outcome) => {
                    self.counters.followed += 1;
                    return Some((outcome, packet));
                }
                None => self.rows[at] = Some(entry),
            },
            None => self.insert(entry, now, &mut lose),
        }
        let row = self.row(&key);
        let of_row = self.waiting.iter().filter(|waiting| waiting.row == row).count();
        if of_row >= self.limits.waiting_per_row || self.limits.waiting == 0 {
            self.counters.crowded_out += 1;
            lose(packet);
            return None;
        }
        if self.waiting.len() >= self.limits.waiting
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.counters.crowded_out += 1;
            lose(oldest.packet);
        }
        self.counters.waited += 1;
        self.waiting.push_back(Waiting { key, row, until, packet });
        None
    }

    /// Hands over what has waited too long; never more than may wait.
    pub fn expire(&mut self, now: Instant, mut lose: impl FnMut(Packet)) {
        while let Some(waiting) = self.waiting.pop_front_if(|waiting| waiting.until <= now) {
            self.counters.expired += 1;
            lose(waiting.packet);
        }
    }

    /// When [`Self::expire`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.front().map(|waiting| waiting.until)
    }

    /// Forgets everything and hands over what waits: tables changed, or the gateway stops.
    pub fn clear(&mut self, mut lose: impl FnMut(Packet)) {
        self.rows.fill(None);
        self.waiting.drain(..).for_each(|waiting| lose(waiting.packet));
    }

    /// Fragments that wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// What has happened.
    #[must_use]
    pub fn counters(&self) -> FragmentCounters {
        self.counters
    }

    fn row(&self, key: &FragmentKey) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "any bits of the hash will do")]
        let hash = self.hash.hash_one(u32::from(key.source)) as usize;
        hash & (self.limits.rows - 1)
    }

    fn places(&self, key: &FragmentKey) -> std::ops::Range<usize> {
        let start = self.row(key) * self.limits.packets_per_row;
        start..start + self.limits.packets_per_row
    }

    /// Where the packet's entry is, in time or not.
    fn find(&self, key: &FragmentKey) -> Option<usize> {
        self.places(key).find(|&at| self.rows[at].is_some_and(|entry| entry.key == *key))
    }

    /// Takes a free place of the row, or that of the entry that ends first; what waited there is lost.
    fn insert(&mut self, entry: Entry<V>, now: Instant, lose: impl FnMut(Packet)) {
        let until = |at: usize| self.rows[at].as_ref().map(|entry| entry.until);
        let Some(at) = self.places(&entry.key).min_by_key(|&at| until(at)) else { return };
        let before = self.rows[at].replace(entry);
        if let Some(before) = before
            && before.outcome.is_none()
        {
            let lost = take(&mut self.waiting, &before.key, lose);
            let counter =
                if before.until <= now { &mut self.counters.expired } else { &mut self.counters.crowded_out };
            *counter += lost;
        }
    }
}

/// Takes out what waits for the first of `key`, in order, and tells how many.
fn take(waiting: &mut VecDeque<Waiting>, key: &FragmentKey, mut give: impl FnMut(Packet)) -> u64 {
    let mut count = 0;
    let mut at = 0;
    while at < waiting.len() {
        if waiting[at].key != *key {
            at += 1;
        } else if let Some(taken) = waiting.remove(at) {
            give(taken.packet);
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests;
