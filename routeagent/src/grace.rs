//! How long a network stays closed after nobody claims it any more. Pure.
//!
//! An empty list, a cluster that is gone and an object that cannot be read look alike from here, and senders do not
//! stop because an object is gone. So a network that was closed stays closed for a while. The kernel's own routes
//! carry this across a restart: one of ours that nobody claims counts as vanished when it is first seen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ipnet::IpNet;

/// The time if no other is asked for.
pub const DEFAULT: Duration = Duration::from_mins(10);

/// The claims that have come and gone since the last pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turnover {
    /// Networks that nobody claimed before.
    pub came: BTreeSet<IpNet>,
    /// Networks that nobody claims any more.
    pub gone: BTreeSet<IpNet>,
}

/// Networks that were closed, and since when nobody claims them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grace {
    period: Duration,
    claimed: BTreeSet<IpNet>,
    vanished: BTreeMap<IpNet, Instant>,
}

impl Grace {
    /// Knows of nothing yet.
    #[must_use]
    pub fn new(period: Duration) -> Self {
        Self { period, claimed: BTreeSet::new(), vanished: BTreeMap::new() }
    }

    /// Records the claimed networks and those that the kernel refuses; returns those that stay closed without a claim.
    pub fn update(
        &mut self,
        now: Instant,
        claimed: BTreeSet<IpNet>,
        in_kernel: &BTreeSet<IpNet>,
    ) -> BTreeSet<IpNet> {
        for network in self.claimed.union(in_kernel) {
            self.vanished.entry(*network).or_insert(now);
        }
        self.claimed = claimed;
        self.expire(now, |network| in_kernel.contains(network))
    }

    /// Updates as [`Grace::update`] does, from what has changed since: the networks claimed and no longer claimed, and those
    /// that the kernel refuses now. `is_in_kernel` says of any network whether the kernel refuses it.
    pub fn follow(
        &mut self,
        now: Instant,
        turnover: &Turnover,
        newly_in_kernel: &BTreeSet<IpNet>,
        is_in_kernel: impl Fn(&IpNet) -> bool,
    ) -> BTreeSet<IpNet> {
        for network in turnover.gone.iter().chain(newly_in_kernel) {
            self.vanished.entry(*network).or_insert(now);
        }
        for network in &turnover.gone {
            self.claimed.remove(network);
        }
        self.claimed.extend(&turnover.came);
        self.expire(now, is_in_kernel)
    }

    /// Drops the networks that are claimed again or whose time is over; returns the others.
    fn expire(&mut self, now: Instant, is_in_kernel: impl Fn(&IpNet) -> bool) -> BTreeSet<IpNet> {
        let (period, claimed) = (self.period, &self.claimed);
        let is_over = |since: Instant| now.saturating_duration_since(since) >= period;
        // An expired network is kept until it was removed, so that its time does not start over.
        self.vanished.retain(|network, since| {
            !claimed.contains(network) && (!is_over(*since) || is_in_kernel(network))
        });
        let closed = self.vanished.iter().filter(|(_, since)| !is_over(**since));
        closed.map(|(network, _)| *network).collect()
    }
}

impl Default for Grace {
    fn default() -> Self {
        Self::new(DEFAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(60);

    #[test]
    fn what_vanishes_stays_closed_for_the_period_also_if_its_route_is_lost() {
        let (mut grace, start) = (Grace::new(PERIOD), Instant::now());
        assert_eq!(grace.update(start, nets(&["10.2.0.0/16"]), &nets(&[])), nets(&[]));
        let gone = start + PERIOD;
        assert_eq!(grace.update(gone, nets(&[]), &nets(&["10.2.0.0/16"])), nets(&["10.2.0.0/16"]));
        let late = gone + PERIOD.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!(grace.update(late, nets(&[]), &nets(&[])), nets(&["10.2.0.0/16"]));
        assert_eq!(grace.update(gone + PERIOD, nets(&[]), &nets(&["10.2.0.0/16"])), nets(&[]));
        // The removal failed: that is no reason to begin again.
        assert_eq!(grace.update(gone + PERIOD * 2, nets(&[]), &nets(&["10.2.0.0/16"])), nets(&[]));
    }

    #[test]
    fn after_a_restart_the_time_begins_with_what_the_kernel_has() {
        let (mut grace, start) = (Grace::new(PERIOD), Instant::now());
        let there = nets(&["10.2.0.0/16", "10.3.0.0/16"]);
        assert_eq!(grace.update(start, nets(&["10.3.0.0/16"]), &there), nets(&["10.2.0.0/16"]));
        assert_eq!(grace.update(start + PERIOD, nets(&["10.3.0.0/16"]), &there), nets(&[]));
    }

    #[test]
    fn what_returns_and_vanishes_again_has_the_whole_period() {
        let (mut grace, start) = (Grace::new(PERIOD), Instant::now());
        let net = nets(&["10.2.0.0/16"]);
        assert_eq!(grace.update(start, nets(&[]), &net), net);
        assert_eq!(grace.update(start + PERIOD / 2, net.clone(), &net), nets(&[]));
        assert_eq!(grace.update(start + PERIOD, nets(&[]), &net), net);
        assert_eq!(grace.update(start + PERIOD * 3 / 2, nets(&[]), &net), net);
    }

    #[test]
    fn without_a_period_nothing_stays() {
        let mut grace = Grace::new(Duration::ZERO);
        assert_eq!(grace.update(Instant::now(), nets(&[]), &nets(&["10.2.0.0/16"])), nets(&[]));
    }

    fn nets(texts: &[&str]) -> BTreeSet<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }
}
