//! The probe on the wire: the body of a message of kind [`crate::inside::Kind::PathProbe`].
//!
//! ```text
//!   0      1      2          4      8          12        16       20       24     26       28        30        32
//!   │ flags│ zero │ interval │ boot │ sequence │ sent at │ echoed │ age of │ loss │ MTU    │ MTU     │ idle    │
//!   │      │      │ in ms    │      │          │ in µs   │ sent at│ echo   │  ‰   │ probe  │ heard   │ in ms   │
//! ```
//!
//! Numbers are in network order. What is longer comes from a newer gateway: the rest is not looked at.

use std::time::Duration;

use trieste_packet::wire::{be16, be32, put16, put32};

/// Bytes of a probe's body.
pub const BODY_BYTES: usize = 32;
/// Longest interval that is believed: no sender waits longer, and a path's silence has to have an end.
pub(super) const LONGEST_INTERVAL_MS: u16 = 10_000;
/// An echo's age when there is none.
const NO_ECHO: u32 = u32::MAX;

const HEARS: u8 = 1;
const DRAINING: u8 = 1 << 1;
const ACTIVE: u8 = 1 << 2;
const FAST: u8 = 1 << 3;

/// What one end says of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// It hears the receiver.
    pub hears: bool,
    /// It is about to stop, or has just started: flows are to take other paths.
    pub is_draining: bool,
    /// It has lately seen packets on the path, either way.
    pub is_active: bool,
    /// `interval` is the one of paths that are used.
    pub is_fast: bool,
    /// Longest time until its next probe, in whole milliseconds, 1 to 10 000.
    pub interval: Duration,
    /// A number that changes when it restarts.
    pub boot: u32,
    /// The number of this probe; one that is padded has that of the probe before.
    pub sequence: u32,
    /// When it was sent, by its own clock in microseconds.
    pub sent_us: u32,
    /// The newest `sent_us` that it has heard, and how many microseconds ago.
    pub echo: Option<(u32, u32)>,
    /// How many of a thousand probes it misses, lately.
    pub loss_permille: u16,
    /// The number of this padded probe; 0 for one that is not.
    pub mtu_probe: u16,
    /// The number of the newest padded probe that it has heard; 0 before the first.
    pub mtu_heard: u16,
    /// The shortest interval at which it would be probed while the path carries nothing (RFC 5880 section 6.8.1:
    /// `RequiredMinRxInterval`), in whole milliseconds, at most 10 000. Zero from gateways that do not say.
    pub idle_interval: Duration,
}

impl Probe {
    /// Reads a body. `None` when it is malformed.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (body, _) = body.split_first_chunk::<BODY_BYTES>()?;
        let (flags, interval_ms) = (body[0], be16(body, 2));
        let echo_age = be32(body, 20);
        (1..=LONGEST_INTERVAL_MS).contains(&interval_ms).then(|| Self {
            hears: flags & HEARS != 0,
            is_draining: flags & DRAINING != 0,
            is_active: flags & ACTIVE != 0,
            is_fast: flags & FAST != 0,
            interval: Duration::from_millis(interval_ms.into()),
            boot: be32(body, 4),
            sequence: be32(body, 8),
            sent_us: be32(body, 12),
            echo: (echo_age != NO_ECHO).then_some((be32(body, 16), echo_age)),
            loss_permille: be16(body, 24).min(1000),
            mtu_probe: be16(body, 26),
            mtu_heard: be16(body, 28),
            idle_interval: Duration::from_millis(be16(body, 30).min(LONGEST_INTERVAL_MS).into()),
        })
    }

    /// Writes a body.
    #[must_use]
    pub fn emit(&self) -> [u8; BODY_BYTES] {
        let mut body = [0; BODY_BYTES];
        let flags = [
            (self.hears, HEARS),
            (self.is_draining, DRAINING),
            (self.is_active, ACTIVE),
            (self.is_fast, FAST),
        ];
        body[0] = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum();
        put16(&mut body, 2, whole_ms(self.interval).max(1));
        put32(&mut body, 4, self.boot);
        put32(&mut body, 8, self.sequence);
        put32(&mut body, 12, self.sent_us);
        let (echoed, age) = self.echo.unwrap_or((0, NO_ECHO));
        put32(&mut body, 16, echoed);
        put32(&mut body, 20, age);
        put16(&mut body, 24, self.loss_permille);
        put16(&mut body, 26, self.mtu_probe);
        put16(&mut body, 28, self.mtu_heard);
        put16(&mut body, 30, whole_ms(self.idle_interval));
        body
    }
}

/// Returns an interval in milliseconds, the longest one at most.
fn whole_ms(interval: Duration) -> u16 {
    u16::try_from(interval.as_millis()).unwrap_or(u16::MAX).min(LONGEST_INTERVAL_MS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_probe_is_read_as_it_was_written(
            flags in 0u8..16, intervals in (1u64..=10_000, 0u64..=10_000), numbers: [u32; 5], loss in 0u16..=1000,
            mtu: (u16, u16),
        ) {
            let [boot, sequence, sent_us, echoed, age] = numbers;
            let probe = Probe {
                hears: flags & 1 != 0,
                is_draining: flags & 2 != 0,
                is_active: flags & 4 != 0,
                is_fast: flags & 8 != 0,
                interval: Duration::from_millis(intervals.0),
                boot,
                sequence,
                sent_us,
                echo: (age != u32::MAX).then_some((echoed, age)),
                loss_permille: loss,
                mtu_probe: mtu.0,
                mtu_heard: mtu.1,
                idle_interval: Duration::from_millis(intervals.1),
            };
            prop_assert_eq!(Probe::parse(&probe.emit()), Some(probe));
            let longer = [&probe.emit()[..], b"later"].concat();
            prop_assert_eq!(Probe::parse(&longer), Some(probe));
        }

        #[test]
        fn whatever_is_read_can_be_written_again(body: Vec<u8>) {
            if let Some(probe) = Probe::parse(&body) {
                prop_assert_eq!(Probe::parse(&probe.emit()), Some(probe));
            }
        }
    }

    #[test]
    fn what_is_short_or_promises_an_impossible_interval_is_refused() {
        assert_eq!(Probe::parse(&[0; BODY_BYTES - 1]), None);
        assert_eq!(Probe::parse(&[0; BODY_BYTES]), None, "an interval of nothing");
        let mut body = [0; BODY_BYTES];
        body[2..4].copy_from_slice(&10_001u16.to_be_bytes());
        assert_eq!(Probe::parse(&body), None);
    }
}
