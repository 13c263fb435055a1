//! What is settled about probes.

use std::net::IpAddr;
use std::time::Duration;

use super::probe::LONGEST_INTERVAL_MS;

/// How often a path that carries no packets is probed, if that is longer than the interval of one that does and there are
/// not many.
pub const IDLE_INTERVAL: Duration = Duration::from_millis(200);
/// How much longer that becomes with each watched path of a worker, so that all its idle paths together are probed some
/// 100 times a second, however many they are. Up to 20 paths it says nothing.
const IDLE_PACE: Duration = Duration::from_millis(10);

/// Returns how often a path that carries no packets is probed by a worker that watches so many.
pub(crate) fn idle_interval(watched: usize) -> Duration {
    let paced = IDLE_PACE.saturating_mul(u32::try_from(watched).unwrap_or(u32::MAX));
    paced.clamp(IDLE_INTERVAL, Duration::from_millis(LONGEST_INTERVAL_MS.into()))
}

/// How paths are probed; the same for all paths of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// How often a path that carries packets is probed, in whole milliseconds.
    pub interval: Duration,
    /// After how many intervals of silence a path that has shown no jitter is down.
    pub multiplier: u8,
    /// Whether the largest packet that gets through is found out (RFC 8899).
    pub probes_mtu: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { interval: Duration::from_millis(20), multiplier: 3, probes_mtu: true }
    }
}

/// What probing one path takes. Its far end has said that it understands probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// Source of what is sent inside the cable: ours, of the same family as `to`, and such that the cable takes it.
    pub from: IpAddr,
    /// Destination of what is sent inside the cable: an address of the far end's.
    pub to: IpAddr,
    /// Largest inner packet that the path could take, in bytes.
    pub most_bytes: u16,
    /// Whether it leads to a sibling. The cluster's nodes count on being told when one dies, so that its path is probed as
    /// quickly as the gateway's other paths whenever one of these carries packets.
    pub is_sibling: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_paths_are_probed_some_hundred_times_a_second_together() {
        for (watched, ms) in
            [(0, 200), (20, 200), (100, 1000), (300, 3000), (1000, 10_000), (1 << 40, 10_000)]
        {
            assert_eq!(idle_interval(watched), Duration::from_millis(ms), "{watched}");
        }
    }
}
