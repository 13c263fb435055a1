//! How many requests are answered: a bucket per source and one for all, in bounded memory.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Ours: one answer per this long and source. A peer asks twice in 2 s; ten peers may sit behind one NAT.
const SOURCE_INTERVAL: Duration = Duration::from_millis(100);
/// Ours: answers that a source may have at once.
const SOURCE_BURST: u32 = 20;
/// Ours: sources remembered at once.
const MAX_SOURCES: usize = 8192;

/// Limits for one group of sources.
#[derive(Debug)]
pub(super) struct Limiter {
    total: Bucket,
    total_interval: Duration,
    total_burst: u32,
    sources: BTreeMap<IpAddr, Bucket>,
}

impl Limiter {
    /// Creates a limit of `rate` answers a second to all sources together, and as many at once.
    pub(super) fn new(rate: u32) -> Self {
        Self {
            total: Bucket(None),
            total_interval: Duration::from_secs(1) / rate,
            total_burst: rate,
            sources: BTreeMap::new(),
        }
    }

    /// Returns `true` if an answer of this `cost` (1 for an ordinary one) may be sent; if so it is taken off.
    pub(super) fn admit(&mut self, source: IpAddr, cost: u32, now: Instant) -> bool {
        let key = network(source);
        if self.sources.len() >= MAX_SOURCES && !self.sources.contains_key(&key) {
            self.sources.retain(|_, bucket| bucket.is_used(now));
            if self.sources.len() >= MAX_SOURCES {
                return false;
            }
        }
        // All first: what it refuses costs no memory.
        let Some(total) = self.total.after(cost, self.total_interval, self.total_burst, now) else {
            return false;
        };
        let bucket = self.sources.entry(key).or_insert(Bucket(None));
        let Some(source) = bucket.after(cost, SOURCE_INTERVAL, SOURCE_BURST, now) else { return false };
        *bucket = source;
        self.total = total;
        true
    }
}

/// When the bucket will be full again (GCRA); `None` while it is.
#[derive(Debug, Clone, Copy)]
struct Bucket(Option<Instant>);

impl Bucket {
    fn is_used(self, now: Instant) -> bool {
        self.0.is_some_and(|full| full > now)
    }

    /// Returns the bucket without `cost`, if there was as much.
    fn after(self, cost: u32, interval: Duration, burst: u32, now: Instant) -> Option<Self> {
        let full = self.0.map_or(now, |full| full.max(now)) + interval * cost;
        (full - now <= interval * burst).then_some(Self(Some(full)))
    }
}

/// Returns the key of a source's bucket: an IPv6 host has a whole /64 to send from.
fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(limiter: &mut Limiter, sources: impl Iterator<Item = IpAddr>, now: Instant) -> usize {
        sources.filter(|source| limiter.admit(*source, 1, now)).count()
    }

    #[test]
    fn a_source_has_a_burst_and_then_ten_a_second() {
        let (mut limiter, start) = (Limiter::new(1000), Instant::now());
        let source: IpAddr = "192.0.2.1".parse().unwrap();
        let many = || std::iter::repeat_n(source, 100);
        assert_eq!(admitted(&mut limiter, many(), start), 20);
        assert_eq!(admitted(&mut limiter, many(), start + Duration::from_secs(1)), 10);
        assert!(
            limiter.admit("192.0.2.2".parse().unwrap(), 1, start + Duration::from_secs(1)),
            "another has its own"
        );
        assert!(
            !limiter.admit("192.0.2.3".parse().unwrap(), 21, start + Duration::from_secs(9)),
            "nobody has that much"
        );
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let (mut limiter, start) = (Limiter::new(1000), Instant::now());
        let many = (0..100).map(|host| Ipv6Addr::from_bits((0x2001_0db8 << 96) | host).into());
        assert_eq!(admitted(&mut limiter, many, start), 20);
    }

    #[test]
    fn all_sources_together_have_a_limit_and_memory_does_not_grow() {
        let (mut limiter, start) = (Limiter::new(200), Instant::now());
        let all = || (0..50_000_u32).map(|n| IpAddr::from(n.to_be_bytes()));
        assert_eq!(admitted(&mut limiter, all(), start), 200);
        assert_eq!(limiter.sources.len(), 200);
        for second in 1..100 {
            let moved = all().map(|ip| if let IpAddr::V4(v4) = ip { v4 } else { unreachable!() });
            let moved = moved.map(|ip| IpAddr::from((ip.to_bits() + second * 100_000).to_be_bytes()));
            assert_eq!(
                admitted(&mut limiter, moved.take(1000), start + Duration::from_secs(second.into())),
                200
            );
            assert!(limiter.sources.len() <= MAX_SOURCES);
        }
    }
}
