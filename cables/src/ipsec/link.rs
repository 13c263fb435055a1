//! What the slow half and a lane tell each other.
//!
//! Orders are taken in by the lane at the start of every batch. An order that was sent before the IKE message that makes
//! the peer use it is therefore obeyed before the peer's first packet is looked at, whichever worker owns the lane.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded, unbounded};
use trieste_packet::{LaneId, Outer};
use zeroize::Zeroizing;

use super::{EspSuite, Selectors, Spi};
use crate::attempts::AttemptTimer;

/// Most pieces of news of one lane that wait for the slow half; more say nothing that these do not.
const NEWS_LIMIT: usize = 16;

/// The keys of one direction: cipher key and salt. Wiped when dropped, never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct EspKeys {
    /// [`EspSuite::key_bytes`] bytes.
    pub key: Zeroizing<Vec<u8>>,
    /// The salt.
    pub salt: [u8; EspSuite::SALT_BYTES],
}

impl fmt::Debug for EspKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EspKeys(..)")
    }
}

/// When a new child SA is sealed with. It opens from the moment it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outbound {
    /// At once: the peer is known to have it.
    Now,
    /// When the first packet was opened with it, or on [`LaneOrder::Seal`]: until then the peer may not have it
    /// (RFC 7296 section 2.8, the side that answered the rekeying).
    AfterInbound,
}

/// A pair of ESP SAs, one for each direction.
#[derive(Debug, Clone)]
pub struct ChildSa {
    /// Ours: what the peer seals with. Carries the lane; names the pair.
    pub inbound: Spi,
    /// The peer's: what we seal with.
    pub outbound: Spi,
    /// The AEAD of both.
    pub suite: EspSuite,
    /// Whether sequence numbers have 64 bits (ESN).
    pub has_esn: bool,
    /// Keys for what we open.
    pub inbound_keys: EspKeys,
    /// Keys for what we seal.
    pub outbound_keys: EspKeys,
    /// What it is for.
    pub selectors: Selectors,
    /// When it is sealed with. Of several that are for a packet, the newest that may seal does.
    pub activation: Outbound,
    /// When to ask for a new pair, and when to use this one no more.
    pub limits: Limits,
    /// Counters that both halves read.
    pub meter: Arc<ChildMeter>,
}

/// Limits of one direction of a child SA. Past the soft one it is renewed, past the hard one it is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Packets, soft. Ours are far below what sequence numbers and the AEAD allow.
    pub soft_packets: u64,
    /// Packets, hard.
    pub hard_packets: u64,
    /// Bytes, soft.
    pub soft_bytes: u64,
    /// Bytes, hard.
    pub hard_bytes: u64,
    /// The moment from which it neither seals nor opens. (The soft limit of time is the slow half's own.)
    pub hard_time: Instant,
}

impl Limits {
    /// Returns limits of time alone.
    #[must_use]
    pub const fn until(hard_time: Instant) -> Self {
        let most = u64::MAX;
        Self { soft_packets: most, hard_packets: most, soft_bytes: most, hard_bytes: most, hard_time }
    }
}

/// Where and how ESP packets are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EspPath {
    /// Destination, our own address. Port 0 stands for raw ESP (IP protocol 50), any other for UDP encapsulation.
    pub outer: Outer,
    /// Whether the peer may move: it is behind a NAT, and an authentic packet from elsewhere means that its mapping
    /// has changed (RFC 7296 section 2.23).
    pub may_move: bool,
}

/// What the slow half tells a lane.
#[derive(Debug, Clone)]
pub enum LaneOrder {
    /// A pair with this inbound SPI has been asked for: the peer may seal with it before its answer is here. What comes
    /// waits, some of it, until the pair is added.
    Expect(Spi),
    /// Nothing comes of that pair.
    Abandon(Spi),
    /// Adds a pair. One with the same inbound SPI is replaced.
    Add(Box<ChildSa>),
    /// Seals with a pair that was added with [`Outbound::AfterInbound`].
    Seal(Spi),
    /// Seals no more with a pair (named by its inbound SPI); it still opens. If another one is for the same packets, that
    /// one seals from here on, whatever its activation.
    Retire(Spi),
    /// Removes a pair.
    Remove(Spi),
    /// Where to send from here on.
    Path(EspPath),
    /// The peer did not answer for as long as the cable tries: what is held is of no use any more.
    Down,
}

/// What a lane tells the slow half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneNews {
    /// An authentic packet came from another address, which is followed.
    Moved {
        /// The lane.
        lane: LaneId,
        /// The address and ours.
        from: Outer,
    },
    /// A pair has passed a soft or hard limit in packets or bytes.
    Worn {
        /// The inbound SPI.
        child: Spi,
    },
}

impl LaneNews {
    /// The address in it.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Moved { from, .. } => Some(from.peer),
            Self::Worn { .. } => None,
        }
    }
}

/// Counters of a pair, written by its lane once a batch and read by anybody.
#[derive(Debug)]
pub struct ChildMeter {
    made: Instant,
    /// Bytes of inner packets opened.
    pub rx_bytes: AtomicU64,
    /// Packets opened.
    pub rx_packets: AtomicU64,
    /// Bytes of inner packets sealed.
    pub tx_bytes: AtomicU64,
    /// Packets sealed.
    pub tx_packets: AtomicU64,
    /// Packets that did not verify.
    pub bad: AtomicU64,
    /// Packets seen before, or too old.
    pub replayed: AtomicU64,
    /// Nanoseconds from `made` to the newest packet opened, plus one; 0 stands for none.
    last_rx: AtomicU64,
    /// The same of packets sealed.
    last_tx: AtomicU64,
    /// Whether the lane seals with it at present.
    pub is_sealing: AtomicBool,
}

impl ChildMeter {
    /// All zero, for a pair that is made at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self {
            made: now,
            rx_bytes: AtomicU64::new(0),
            rx_packets: AtomicU64::new(0),
            tx_bytes: AtomicU64::new(0),
            tx_packets: AtomicU64::new(0),
            bad: AtomicU64::new(0),
            replayed: AtomicU64::new(0),
            last_rx: AtomicU64::new(0),
            last_tx: AtomicU64::new(0),
            is_sealing: AtomicBool::new(false),
        })
    }

    /// When the pair was made.
    #[must_use]
    pub fn made(&self) -> Instant {
        self.made
    }

    /// Counts a batch that was opened. For the lane's owner alone.
    pub fn opened(&self, packets: u64, bytes: u64, now: Instant) {
        add(&self.rx_packets, packets);
        add(&self.rx_bytes, bytes);
        self.last_rx.store(self.stamp(now), Ordering::Relaxed);
    }

    /// Counts a batch that was sealed. For the lane's owner alone.
    pub fn sealed(&self, packets: u64, bytes: u64, now: Instant) {
        add(&self.tx_packets, packets);
        add(&self.tx_bytes, bytes);
        self.last_tx.store(self.stamp(now), Ordering::Relaxed);
    }

    /// Counts packets of a batch that were not opened. For the lane's owner alone.
    pub fn refused(&self, bad: u64, replayed: u64) {
        add(&self.bad, bad);
        add(&self.replayed, replayed);
    }

    /// When a packet was last opened.
    #[must_use]
    pub fn last_rx(&self) -> Option<Instant> {
        self.moment(self.last_rx.load(Ordering::Relaxed))
    }

    /// When a packet was last sealed.
    #[must_use]
    pub fn last_tx(&self) -> Option<Instant> {
        self.moment(self.last_tx.load(Ordering::Relaxed))
    }

    fn stamp(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.made).as_nanos())
            .unwrap_or(u64::MAX - 1)
            .saturating_add(1)
    }

    fn moment(&self, stamp: u64) -> Option<Instant> {
        Some(self.made + Duration::from_nanos(stamp.checked_sub(1)?))
    }
}

/// One writer: no need to lock the memory bus for it.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

/// The slow half's end of the link to a lane.
#[derive(Debug, Clone)]
pub struct LaneLink {
    /// The lane.
    pub lane: LaneId,
    orders: Sender<LaneOrder>,
    flags: Arc<LaneFlags>,
}

/// What a lane and the slow half say by the by.
#[derive(Debug, Default)]
struct LaneFlags {
    /// Whether packets wait for a peer without SAs.
    is_wanted: AtomicBool,
    /// Whether the peer has been silent for so long that it is tried rarely.
    is_silent: AtomicBool,
    /// How often an attempt to reach it had to wait for its turn.
    deferred: AtomicU64,
}

impl LaneLink {
    /// Returns `true` if packets have waited for the peer since the last call.
    pub(super) fn take_wanted(&self) -> bool {
        self.flags.is_wanted.load(Ordering::Relaxed) && self.flags.is_wanted.swap(false, Ordering::Relaxed)
    }

    /// Shows the lane how the peer is tried: whether rarely, and how often that had to wait.
    pub(super) fn show(&self, attempts: &AttemptTimer) {
        self.flags.is_silent.store(attempts.is_silent(), Ordering::Relaxed);
        self.flags.deferred.store(attempts.deferred(), Ordering::Relaxed);
    }

    /// Gives an order. A lane that is gone needs none.
    pub fn send(&self, order: LaneOrder) {
        let _ = self.orders.send(order);
    }
}

/// The lane's end of the link.
#[derive(Debug)]
pub struct LanePort {
    /// The lane.
    pub lane: LaneId,
    orders: Receiver<LaneOrder>,
    news: Sender<LaneNews>,
    flags: Arc<LaneFlags>,
}

impl LanePort {
    /// Notes that packets wait for a peer without SAs.
    pub(super) fn want(&self) {
        self.flags.is_wanted.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the peer has been silent for so long that it is tried rarely.
    pub(super) fn is_silent(&self) -> bool {
        self.flags.is_silent.load(Ordering::Relaxed)
    }

    /// Returns how often an attempt to reach the peer had to wait for its turn.
    pub(super) fn deferred(&self) -> u64 {
        self.flags.deferred.load(Ordering::Relaxed)
    }

    /// The next order, if there is one.
    #[must_use]
    pub fn take(&self) -> Option<LaneOrder> {
        self.orders.try_recv().ok()
    }

    /// Tells something; lost when too much waits already.
    pub fn tell(&self, news: LaneNews) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.news.try_send(news) {}
    }
}

/// Links a lane with the slow half. The slow half gives few orders: each answers an exchange of its own.
#[must_use]
pub fn link(lane: LaneId) -> (LaneLink, LanePort, Receiver<LaneNews>) {
    let (orders, taken) = unbounded();
    let (news, told) = bounded(NEWS_LIMIT);
    let flags = Arc::new(LaneFlags::default());
    let link = LaneLink { lane, orders, flags: Arc::clone(&flags) };
    (link, LanePort { lane, orders: taken, news, flags }, told)
}
