//! One capture: what it wants, and the bounded queue between workers and the reader.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crossbeam::queue::ArrayQueue;
use trieste_control::admin::CapturePoint;
use trieste_packet::{CableId, DropReason};

use super::filter::Filter;
use super::pcapng::Direction;

/// Packets that wait for the reader; ours: 40 ms at 200 000 packets a second, twice the reader's period.
pub(super) const QUEUE_PACKETS: usize = 8192;
/// Bytes that wait for the reader; ours: what a full queue of full-sized packets takes, so that trains of dropped
/// packets cannot take more.
pub(super) const QUEUE_BYTES: usize = 16 << 20;

const POINTS: usize = CapturePoint::ALL.len();

/// A packet on its way to the reader.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) interface: usize,
    pub(super) direction: Direction,
    pub(super) worker: u16,
    pub(super) timestamp_ns: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) original_bytes: usize,
    /// Packets of the same interface that were lost since the one before.
    pub(super) lost: u64,
    pub(super) drop: Option<(DropReason, CableId)>,
}

/// Counters of one interface of a capture.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Packets that passed the filter.
    pub(super) wanted: AtomicU64,
    /// Those of them that found the queue full.
    pub(super) lost: AtomicU64,
    /// Lost ones that no record has reported yet.
    unreported: AtomicU64,
}

/// Wall-clock time by a clock that never jumps: read once when the capture begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    started: Instant,
    pub(super) started_ns: u64,
}

impl Clock {
    fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), started_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Returns a time in nanoseconds since 1970. A batch's time may be from shortly before the capture began.
    pub(super) fn nanoseconds(&self, now: Instant) -> u64 {
        let distance = |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        match now.checked_duration_since(self.started) {
            Some(after) => self.started_ns.saturating_add(distance(after)),
            None => self.started_ns.saturating_sub(distance(self.started - now)),
        }
    }
}

/// A running capture, shared by the workers' taps and its reader.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) id: u64,
    /// The points, in the order of their interfaces.
    pub(super) points: Vec<CapturePoint>,
    pub(super) filter: Filter,
    pub(super) snap_bytes: usize,
    pub(super) clock: Clock,
    pub(super) counters: [Counters; POINTS],
    queue: ArrayQueue<Record>,
    queued_bytes: AtomicUsize,
    is_over: AtomicBool,
}

impl Capture {
    pub(super) fn new(id: u64, points: Vec<CapturePoint>, filter: Filter, snap_bytes: usize) -> Self {
        Self {
            id,
            points,
            filter,
            snap_bytes,
            clock: Clock::start(),
            counters: Default::default(),
            queue: ArrayQueue::new(QUEUE_PACKETS),
            queued_bytes: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// Returns the interface of a point; `None` if the capture does not include it or is over.
    pub(super) fn interface(&self, point: CapturePoint) -> Option<usize> {
        let interface = self.points.iter().position(|&wanted| wanted == point)?;
        (!self.is_over.load(Ordering::Relaxed)).then_some(interface)
    }

    /// Queues a record whose bytes `make` copies, `bytes` of them; without room, copies nothing and counts it.
    /// Never waits.
    pub(super) fn push(&self, interface: usize, bytes: usize, make: impl FnOnce() -> Record) -> bool {
        let counters = &self.counters[interface];
        counters.wanted.fetch_add(1, Ordering::Relaxed);
        let queued = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if queued + bytes <= QUEUE_BYTES && !self.queue.is_full() {
            let unreported = counters.unreported.swap(0, Ordering::Relaxed);
            let record = Record { lost: unreported, ..make() };
            debug_assert_eq!(record.bytes.len(), bytes, "what was reserved is what is queued");
            let Err(refused) = self.queue.push(record) else { return true };
            counters.unreported.fetch_add(refused.lost, Ordering::Relaxed);
        }
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        counters.unreported.fetch_add(1, Ordering::Relaxed);
        counters.lost.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Removes and returns the oldest record.
    pub(super) fn pop(&self) -> Option<Record> {
        let record = self.queue.pop()?;
        self.queued_bytes.fetch_sub(record.bytes.len(), Ordering::Relaxed);
        Some(record)
    }

    /// Ends the capture: taps that still exist see nothing any more.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
