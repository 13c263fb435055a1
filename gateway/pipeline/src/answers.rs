//! ICMP errors made here: limited, and on their way to the inside.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use trieste_packet::wire::Inner;
use trieste_packet::{Batch, Checksum, Packet, PacketBuf, Pool, icmp};

use crate::counters::Counters;
use crate::tables::Tables;

/// ICMP errors per second and worker (the kernel's `icmp_msgs_per_sec`).
const ICMP_PER_SECOND: u32 = 1000;
/// ICMP errors at once (the kernel's `icmp_msgs_burst` is 50; one batch of a scan fits here).
const ICMP_BURST: u32 = 64;

/// What making an error needs besides the packet.
pub(crate) struct Answers<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) to_tun: &'a mut Batch,
    pub(crate) limiter: &'a mut IcmpLimiter,
    pub(crate) counters: &'a mut Counters,
    pub(crate) now: Instant,
}

impl Answers<'_> {
    /// Tells the source of `packet` what `write` writes, given our address and an empty buffer. Returns whether it was
    /// told: not where the packet may not be answered, the limit is reached, or nothing is free.
    pub(crate) fn tell(
        &mut self,
        packet: &Packet,
        inner: &Inner,
        pool: &mut Pool,
        write: impl FnOnce(IpAddr, &mut PacketBuf) -> bool,
    ) -> bool {
        let Some(from) = self.tables.icmp_source(inner.flow.source()) else { return false };
        if !icmp::may_answer(packet.bytes(), inner) || !self.limiter.take(self.now) {
            return false;
        }
        let Some(mut buf) = pool.alloc() else { return false };
        if !write(from, &mut buf) {
            pool.recycle(buf);
            return false;
        }
        let mut error = Packet::new(buf);
        error.decision = packet.decision;
        error.checksum = Checksum::Verified;
        match self.to_tun.push(error) {
            Ok(()) => {
                self.counters.made += 1;
                true
            }
            Err(error) => {
                pool.recycle(error.buf);
                false
            }
        }
    }
}

/// Limits the ICMP errors made here.
#[derive(Debug)]
pub(crate) struct IcmpLimiter {
    tokens: u32,
    refilled: Instant,
}

impl IcmpLimiter {
    pub(crate) fn new(now: Instant) -> Self {
        Self { tokens: ICMP_BURST, refilled: now }
    }

    /// Whether one more may be made.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.refilled);
        let step = Duration::from_secs(1) / ICMP_PER_SECOND;
        let earned = u32::try_from(elapsed.as_nanos() / step.as_nanos()).unwrap_or(u32::MAX);
        if earned > 0 {
            self.tokens = self.tokens.saturating_add(earned).min(ICMP_BURST);
            self.refilled = now;
        }
        let is_allowed = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        is_allowed
    }
}
