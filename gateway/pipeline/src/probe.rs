//! Probes that a peer sends from its tunnel address, answered here.
//!
//! Upstream's health check pings our address inside the published subnets. Its source is normally the peer's address
//! inside its own subnets; such a request goes to the host, whose answer takes the tunnel like any packet. But it may
//! also be an address that the tunnel itself has at the far end, in none of its cluster's subnets: the host's answer
//! would then take the default route, in clear. So the reply is made here and sealed by the lane that the request came
//! by. Nothing else may come from such an address.

use std::time::{Duration, Instant};

use trieste_packet::wire::Inner;
use trieste_packet::{Allowance, Checksum, DropReason, Drops, Packet, Pool, TokenBucket, icmp};

use crate::counters::Counters;
use crate::lanes::Lanes;
use crate::tables::{Tables, owner_of};

/// Replies of one lane, ten a second. Ours: upstream's health check sends one, ours may send five; two seconds' worth at once.
const REPLIES: Allowance = Allowance { burst: 20, interval: Duration::from_millis(100) };

/// What becomes of an inbound packet that does not go on to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is dropped.
    Drop(DropReason),
    /// It is a probe, to be answered.
    Answer,
}

/// What to do with a packet that may not come in for `reason`: it may be a probe if its source is in none of its peer's
/// subnets.
pub(crate) fn judge(packet: &Packet, inner: &Inner, tables: &Tables, reason: DropReason) -> Fate {
    if reason != DropReason::SourceNotAllowed {
        return Fate::Drop(reason);
    }
    let asks_us = tables.is_probed(inner.flow.destination());
    if asks_us
        && icmp::is_echo_request(packet.bytes(), inner)
        && packet.largest_packet_bytes() <= usize::from(packet.decision.mtu_bytes)
        && tables.is_tunnel_address(packet.decision.lane, inner.flow.source())
    {
        Fate::Answer
    } else {
        Fate::Drop(DropReason::SourceNotAllowed)
    }
}

/// What answering needs besides the packet.
pub(crate) struct Probes<'a> {
    pub(crate) lanes: &'a mut Lanes,
    pub(crate) replies: &'a mut Vec<Packet>,
    pub(crate) pool: &'a mut Pool,
    pub(crate) counters: &'a mut Counters,
    pub(crate) now: Instant,
}

impl Probes<'_> {
    /// Turns a request into a reply that waits to be sealed. It is counted as consumed, its reply as made.
    pub(crate) fn answer(&mut self, mut packet: Packet, drops: &mut Drops) {
        let lane = packet.decision.lane;
        let is_allowed = self.lanes.find(lane).is_some_and(|slot| slot.probes.take(self.now));
        if !is_allowed {
            drops.discard(packet, DropReason::IcmpLimit, self.pool);
            return;
        }
        let is_answered =
            Inner::parse(packet.bytes()).is_ok_and(|inner| icmp::echo_reply(packet.buf.bytes_mut(), &inner));
        if !is_answered {
            drops.discard(packet, DropReason::SourceNotAllowed, self.pool);
            return;
        }
        packet.checksum = Checksum::Verified;
        packet.decision.owner = owner_of(lane);
        self.counters.control_in += 1;
        self.counters.made += 1;
        self.counters.probes_answered += 1;
        self.replies.push(packet);
    }
}

/// Limits the replies of one lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProbeLimiter(TokenBucket);

impl ProbeLimiter {
    /// A limiter that allows a burst.
    pub(crate) fn new(now: Instant) -> Self {
        Self(TokenBucket::new(REPLIES, now))
    }

    fn take(&mut self, now: Instant) -> bool {
        self.0.take(REPLIES, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an arbitrary start, from which the test counts")]
    fn a_burst_is_answered_and_then_ten_a_second() {
        let start = Instant::now();
        let mut limiter = ProbeLimiter::new(start);
        let mut allowed = |ms: u64, asked: u32| {
            let now = start + Duration::from_millis(ms);
            (0..asked).filter(|_| limiter.take(now)).count()
        };
        assert_eq!(allowed(0, 100), 20);
        assert_eq!(allowed(99, 5), 0);
        assert_eq!(allowed(150, 5), 1);
        assert_eq!(allowed(200, 5), 1);
        assert_eq!(allowed(1200, 50), 10);
        assert_eq!(allowed(3_600_000, 50), 20);
    }
}
