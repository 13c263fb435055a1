//! What each source address may send in a second.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use trieste_packet::HashKey;

/// Counters of a row. Ours: with a thousand sources in one second an honest one shares both of its counters with
/// others in 5 of 100 cases, and then has as much less as those send.
const ROW: u32 = 4096;
/// How many times the share of a /64 all of a /48 has. Ours: a site has a /48, whose hosts are several members at
/// most, and a flooder gets a /48 as easily as a /64.
pub(crate) const SITE_SHARES: u32 = 4;

/// A table of fixed size that counts messages by source and second: an IPv4 address, or a /64 and the /48 that it is in,
/// since a host has all of a /64 and a site all of a /48. Members behind one NAT have one share, which is why a share is
/// worth several members that begin at once; who is above it asks again a second later.
///
/// Each source has a counter in either of two rows, of which the smaller one decides (a count-min sketch with conservative
/// update). Sources that fall together share what they may send, so that nobody gets more by being many; which ones do
/// nobody can choose who does not know the key. What is refused is not counted.
#[derive(Debug)]
pub(crate) struct Shares {
    key: HashKey,
    limit: u32,
    counters: Box<[Counter]>,
    started: Instant,
}

/// What was sent in a second.
#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    second: u32,
    messages: u32,
}

/// The counters of a source, one in each row.
type Counters = [usize; 2];

impl Shares {
    /// Makes shares of `limit` messages per second. `key` is secret.
    pub(crate) fn new(key: HashKey, limit: u32, started: Instant) -> Self {
        let counters = vec![Counter::default(); 2 * ROW as usize].into();
        Self { key, limit, counters, started }
    }

    /// Counts a message of `source` if it is within its share; returns `true` if it is.
    pub(crate) fn is_within(&mut self, source: IpAddr, now: Instant) -> bool {
        let second = now.saturating_duration_since(self.started).as_secs();
        // Counters begin with second 0 and nothing sent, which is what is true of it.
        let second = u32::try_from(second).unwrap_or(u32::MAX);
        let (narrow, wide) = match source.to_canonical() {
            IpAddr::V4(v4) => (self.counters_of(v4.to_bits().into(), 32), None),
            IpAddr::V6(v6) => {
                let network = first_half(v6);
                (self.counters_of(network, 64), Some(self.counters_of(network >> 16, 48)))
            }
        };
        let sent = self.sent(narrow, second);
        let sent_by_site = wide.map_or(0, |wide| self.sent(wide, second));
        if sent >= self.limit || sent_by_site >= self.limit.saturating_mul(SITE_SHARES) {
            return false;
        }
        self.set(narrow, second, sent + 1);
        if let Some(wide) = wide {
            self.set(wide, second, sent_by_site + 1);
        }
        true
    }

    fn counters_of(&self, network: u64, bits: u64) -> Counters {
        let hash = self.key.hash(network, bits);
        #[expect(clippy::cast_possible_truncation, reason = "both halves are taken, one by one")]
        let (low, high) = (hash as u32, (hash >> 32) as u32);
        [(low % ROW) as usize, (ROW + high % ROW) as usize]
    }

    fn sent(&self, counters: Counters, second: u32) -> u32 {
        let of = |at: usize| {
            let counter = self.counters[at];
            if counter.second == second { counter.messages } else { 0 }
        };
        of(counters[0]).min(of(counters[1]))
    }

    /// Raises the counters to `messages`: those that others have raised further stay.
    fn set(&mut self, counters: Counters, second: u32, messages: u32) {
        for at in counters {
            let counter = &mut self.counters[at];
            if counter.second != second {
                *counter = Counter { second, messages: 0 };
            }
            counter.messages = counter.messages.max(messages);
        }
    }
}

/// Returns whose an address is: itself, or its /64 for IPv6.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(u128::from(first_half(v6)) << 64).into(),
    }
}

fn first_half(address: Ipv6Addr) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = address.octets();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    const LIMIT: u32 = 20;

    #[expect(clippy::disallowed_methods, reason = "an Instant cannot be made from a number")]
    fn shares(seed: u64) -> (Shares, Instant) {
        let now = Instant::now();
        (Shares::new(HashKey::new(seed), LIMIT, now), now)
    }

    /// How many of `count` messages are within the shares of their sources.
    fn passed(shares: &mut Shares, sources: impl Iterator<Item = IpAddr>, now: Instant) -> u32 {
        sources.map(|source| u32::from(shares.is_within(source, now))).sum()
    }

    fn v4(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    fn v6(site: u128, network: u128, host: u128) -> IpAddr {
        Ipv6Addr::from_bits(0x2001 << 112 | site << 80 | network << 64 | host).into()
    }

    #[test]
    fn sources_that_take_turns_have_no_more_than_their_shares() {
        // Alike in the low bits of their addresses, which were once all that told them apart.
        let pair = [v4(0x0a00_0001), v4(0x0b00_0001)];
        for seed in 0..50 {
            let (mut shares, now) = shares(seed);
            let turns = pair.into_iter().cycle().take(10_000);
            assert!(passed(&mut shares, turns, now) <= 2 * LIMIT, "seed {seed}");
        }
    }

    #[test]
    fn a_share_comes_back_with_every_second_and_refusals_use_nothing_up() {
        let (mut shares, now) = shares(1);
        for second in 0..3 {
            let now = now + Duration::from_secs(second);
            assert_eq!(passed(&mut shares, std::iter::repeat_n(v4(7), 1000), now), LIMIT);
        }
        let mapped = "::ffff:0.0.0.7".parse().unwrap();
        assert!(!shares.is_within(mapped, now + Duration::from_secs(2)), "it is the same source");
    }

    #[test]
    fn a_host_has_one_share_of_its_network_and_a_site_four() {
        let (mut shares, now) = shares(1);
        assert_eq!(passed(&mut shares, (0..1000).map(|host| v6(1, 1, host)), now), LIMIT);
        assert_eq!(
            passed(&mut shares, (0..1000).map(|network| v6(1, network, 1)), now),
            LIMIT * (SITE_SHARES - 1)
        );
        assert_eq!(passed(&mut shares, (0..1000).map(|host| v6(2, 1, host)), now), LIMIT);
    }

    #[test]
    fn many_sources_leave_others_their_shares() {
        let mut short = 0;
        for seed in 0..200 {
            let (mut shares, now) = shares(seed);
            // A thousand that send all that they can.
            let flood = (0..1000 * (LIMIT + 5)).map(|number| v4(0x0a00_0000 + number % 1000));
            assert!(passed(&mut shares, flood, now) <= 1000 * LIMIT);
            let honest = passed(&mut shares, std::iter::repeat_n(v4(7), 3), now);
            short += u32::from(honest < 3);
        }
        assert!(short <= 200 / 8, "{short} of 200");
        let (mut shares, now) = shares(1);
        passed(&mut shares, (0..1_000_000).map(|number| v6(1, number % 65_536, number)), now);
        assert_eq!(passed(&mut shares, std::iter::repeat_n(v6(2, 1, 1), 100), now), LIMIT, "a site's flood");
    }
}
