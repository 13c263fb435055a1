//! The reader's side of a capture: pcapng, in pieces, while packets come in.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use futures::Stream;
use tokio::time::{Interval, MissedTickBehavior, interval};
use trieste_control::admin::{CapturePoint, CaptureRequest};
use trieste_packet::CableId;

use super::hub::{CaptureError, CaptureHub};
use super::pcapng::{self, EnhancedPacket, LinkType, Statistics};
use super::queue::{Capture, Record};

/// How often the queue is looked at. Ours: short against what a person notices, long against a wake-up's cost.
const POLL_PERIOD: Duration = Duration::from_millis(20);
/// How often losses are reported, at most.
const STATISTICS_PERIOD: Duration = Duration::from_secs(1);
/// Size from which a chunk is sent on.
const CHUNK_BYTES: usize = 256 << 10;

/// A capture as a stream of bytes. Dropping it ends the capture.
///
/// The first chunk is the header, at once. Losses of an interface are reported with its next packet
/// (`epb_dropcount`), and in a statistics block: while packets are lost, once a second; and at the end, if the
/// gateway ends the capture.
pub struct CaptureStream {
    hub: Arc<CaptureHub>,
    capture: Arc<Capture>,
    snap_bytes: u32,
    ticks: Interval,
    phase: Phase,
    /// Time of the last report of losses, and their number per interface.
    reported_at: Instant,
    reported: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Header,
    Packets,
    Over,
}

impl fmt::Debug for CaptureStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureStream")
            .field("id", &self.capture.id)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

impl CaptureHub {
    /// Begins a capture. It ends when the stream is dropped.
    ///
    /// # Errors
    /// [`CaptureError`], when the request cannot be understood or there are too many.
    pub fn start(self: &Arc<Self>, request: &CaptureRequest) -> Result<CaptureStream, CaptureError> {
        let (capture, snap_bytes) = self.begin(request)?;
        Ok(CaptureStream::new(Arc::clone(self), capture, snap_bytes))
    }
}

impl CaptureStream {
    fn new(hub: Arc<CaptureHub>, capture: Arc<Capture>, snap_bytes: u32) -> Self {
        let mut ticks = interval(POLL_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let reported = vec![0; capture.points.len()];
        Self { hub, capture, snap_bytes, ticks, phase: Phase::Header, reported_at: Instant::now(), reported }
    }

    fn header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        pcapng::section_header(&mut out, concat!("trieste-gateway ", env!("CARGO_PKG_VERSION")));
        let link = LinkType::raw(self.capture.points.len());
        for point in &self.capture.points {
            pcapng::interface(&mut out, link, point.as_str(), description(*point), self.snap_bytes);
        }
        out
    }

    /// Returns the next part of the file: queued packets up to the size of a chunk, losses, the end.
    fn chunk(&mut self) -> Vec<u8> {
        // Read before the queue: what was pushed before the end is in the chunk before the end.
        let is_over = self.capture.is_over();
        let mut out = Vec::new();
        while out.len() < CHUNK_BYTES
            && let Some(record) = self.capture.pop()
        {
            self.packet(&mut out, &record);
        }
        let now = Instant::now();
        if is_over && out.is_empty() {
            self.statistics(&mut out, now, |_, _| true);
            self.phase = Phase::Over;
        } else if now.duration_since(self.reported_at) >= STATISTICS_PERIOD {
            self.statistics(&mut out, now, |lost, reported| lost > reported);
        }
        out
    }

    fn packet(&self, out: &mut Vec<u8>, record: &Record) {
        let comment = record
            .drop
            .map(|(reason, cable)| format!("reason={} cable={}", reason.as_str(), self.cable(cable)));
        let packet = EnhancedPacket {
            interface: narrow(record.interface),
            timestamp_ns: record.timestamp_ns,
            bytes: &record.bytes,
            original_bytes: narrow(record.original_bytes),
            direction: record.direction,
            queue: u32::from(record.worker),
            lost: record.lost,
            comment: comment.as_deref().unwrap_or(""),
        };
        pcapng::packet(out, &packet);
    }

    fn cable(&self, cable: CableId) -> String {
        match cable {
            CableId(0) => "none".to_owned(),
            cable => self.hub.cable_name(cable).unwrap_or_else(|| cable.0.to_string()),
        }
    }

    /// Writes the counters of the interfaces for which `is_due(lost, reported)` is `true`.
    fn statistics(&mut self, out: &mut Vec<u8>, now: Instant, is_due: impl Fn(u64, u64) -> bool) {
        self.reported_at = now;
        for (interface, (counters, reported)) in
            self.capture.counters.iter().zip(&mut self.reported).enumerate()
        {
            let lost = counters.lost.load(Ordering::Relaxed);
            if !is_due(lost, *reported) {
                continue;
            }
            *reported = lost;
            let comment = match lost {
                0 => String::new(),
                lost => format!("{lost} packets are missing: the reader was too slow"),
            };
            let statistics = Statistics {
                interface: narrow(interface),
                start_ns: self.capture.clock.started_ns,
                end_ns: self.capture.clock.nanoseconds(now),
                received: counters.wanted.load(Ordering::Relaxed),
                lost,
                comment: &comment,
            };
            pcapng::statistics(out, &statistics);
        }
    }
}

impl Stream for CaptureStream {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.phase {
            Phase::Header => {
                self.phase = Phase::Packets;
                return Poll::Ready(Some(Ok(self.header().into())));
            }
            Phase::Over => return Poll::Ready(None),
            Phase::Packets => {}
        }
        loop {
            let chunk = self.chunk();
            if !chunk.is_empty() {
                return Poll::Ready(Some(Ok(chunk.into())));
            }
            ready!(self.ticks.poll_tick(context));
        }
    }
}

impl Drop for CaptureStream {
    fn drop(&mut self) {
        self.hub.remove(&self.capture);
        // A worker that waits for packets keeps the capture until it wakes up; not what is queued in it.
        while self.capture.pop().is_some() {}
    }
}

fn description(point: CapturePoint) -> &'static str {
    match point {
        CapturePoint::OuterRx => "datagrams from peers; outer headers rebuilt",
        CapturePoint::Opened => "packets as a cable opened them",
        CapturePoint::InnerTx => "packets to the TUN device",
        CapturePoint::InnerRx => "packets from the TUN device",
        CapturePoint::OuterTx => "datagrams to peers; outer headers rebuilt",
        CapturePoint::Drops => "dropped packets; the comment says why",
    }
}

fn narrow(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
