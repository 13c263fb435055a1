//! What a network does to what is sent through it.

use std::time::{Duration, Instant};

use crate::Random;

/// The properties of one way through a network. Parts are of 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Least and most time under way; by the difference one overtakes another.
    pub delay: (Duration, Duration),
    /// How many are lost.
    pub loss: u64,
    /// How many arrive twice or three times.
    pub copies: u64,
    /// By how much each copy but the first may be later.
    pub copy_delay: Duration,
    /// How many are late.
    pub late: u64,
    /// By how much these may be late.
    pub late_by: Duration,
}

impl Link {
    /// A way that loses nothing and takes `low` to `high` milliseconds.
    #[must_use]
    pub const fn millis(low: u64, high: u64) -> Self {
        Self {
            delay: (Duration::from_millis(low), Duration::from_millis(high)),
            loss: 0,
            copies: 0,
            copy_delay: Duration::ZERO,
            late: 0,
            late_by: Duration::ZERO,
        }
    }

    /// Returns after which times copies of what is sent arrive; none when it is lost.
    pub fn arrivals(&self, random: &mut Random) -> Vec<Duration> {
        if random.chance(self.loss) {
            return Vec::new();
        }
        let count = if random.chance(self.copies) { random.between(2, 3) } else { 1 };
        (0..count).map(|copy| self.arrival(copy > 0, random)).collect()
    }

    fn arrival(&self, is_copy: bool, random: &mut Random) -> Duration {
        let (low, high) = self.delay;
        let mut wait = low + random.up_to(high - low);
        if random.chance(self.late) {
            wait += random.up_to(self.late_by);
        }
        if is_copy { wait + random.up_to(self.copy_delay) } else { wait }
    }
}

/// The ways between places that are known by number, each with faults of its own.
#[derive(Debug, Clone)]
pub struct Network {
    places: usize,
    ways: Vec<Way>,
}

#[derive(Debug, Clone, Copy)]
struct Way {
    link: Link,
    /// How many faults cut it, and how many slow it down: they may overlap.
    cuts: u32,
    slows: u32,
    extra: Duration,
    last: Option<Instant>,
}

impl Network {
    /// Joins each of so many places to every other.
    #[must_use]
    pub fn new(places: usize, link: Link) -> Self {
        let way = Way { link, cuts: 0, slows: 0, extra: Duration::ZERO, last: None };
        Self { places, ways: vec![way; places * places] }
    }

    /// Gives access to the properties of one way.
    pub fn link(&mut self, from: usize, to: usize) -> &mut Link {
        &mut self.way(from, to).link
    }

    /// Gives all ways these properties.
    pub fn set_links(&mut self, link: Link) {
        self.ways.iter_mut().for_each(|way| way.link = link);
    }

    /// Cuts one way, or takes one cut back.
    pub fn cut(&mut self, from: usize, to: usize, is_cut: bool) {
        count(&mut self.way(from, to).cuts, is_cut);
    }

    /// Takes all cuts back.
    pub fn heal(&mut self) {
        self.ways.iter_mut().for_each(|way| way.cuts = 0);
    }

    /// Returns `true` if nothing gets through.
    #[must_use]
    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.ways[from * self.places + to].cuts > 0
    }

    /// Makes one way take longer, or takes that back.
    pub fn slow(&mut self, from: usize, to: usize, extra: Duration, is_slow: bool) {
        let way = self.way(from, to);
        count(&mut way.slows, is_slow);
        way.extra = if way.slows == 0 { Duration::ZERO } else { extra };
    }

    /// Returns `true` if it takes longer than usual.
    #[must_use]
    pub fn is_slow(&self, from: usize, to: usize) -> bool {
        self.ways[from * self.places + to].slows > 0
    }

    /// Returns when copies of what is sent at `now` arrive; none when it is lost.
    pub fn arrivals(&mut self, from: usize, to: usize, now: Instant, random: &mut Random) -> Vec<Instant> {
        let way = self.way(from, to);
        if way.cuts > 0 {
            return Vec::new();
        }
        way.link.arrivals(random).into_iter().map(|wait| now + wait + way.extra).collect()
    }

    /// As [`Self::arrivals`] for one that is never lost, and does not overtake those before it.
    pub fn in_order(&mut self, from: usize, to: usize, now: Instant, random: &mut Random) -> Instant {
        let way = self.way(from, to);
        let arrival = now + way.link.arrival(false, random) + way.extra;
        *way.last.insert(way.last.map_or(arrival, |last| last.max(arrival)))
    }

    fn way(&mut self, from: usize, to: usize) -> &mut Way {
        &mut self.ways[from * self.places + to]
    }
}

fn count(of: &mut u32, is_more: bool) {
    *of = if is_more { *of + 1 } else { *of - 1 };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 10,000 arrive this often, and the longest time under way.
    fn fates(link: Link) -> ([usize; 4], Duration) {
        let (mut random, mut times, mut longest) = (Random::new(5), [0; 4], Duration::ZERO);
        for _ in 0..10_000 {
            let arrivals = link.arrivals(&mut random);
            times[arrivals.len()] += 1;
            longest = arrivals.into_iter().max().unwrap_or_default().max(longest);
        }
        (times, longest)
    }

    #[test]
    fn a_link_loses_and_copies_as_many_as_it_says() {
        assert_eq!(fates(Link::millis(5, 5)), ([0, 10_000, 0, 0], Duration::from_millis(5)));
        let ([lost, _, twice, thrice], _) = fates(Link { loss: 100, copies: 200, ..Link::millis(1, 2) });
        assert!((800..1200).contains(&lost), "{lost}");
        assert!(
            (1600..2000).contains(&(twice + thrice)) && twice.abs_diff(thrice) < 200,
            "{twice}, {thrice}"
        );
    }

    #[test]
    fn what_is_late_is_late_by_no_more_than_it_says() {
        let link = Link { late: 500, late_by: Duration::from_millis(100), ..Link::millis(1, 2) };
        let (_, longest) = fates(link);
        assert!(longest > Duration::from_millis(90) && longest <= Duration::from_millis(102), "{longest:?}");
    }

    #[test]
    fn a_way_is_cut_until_every_cut_of_it_is_over() {
        let (mut network, mut random, now) =
            (Network::new(2, Link::millis(1, 1)), Random::new(1), Instant::now());
        network.cut(0, 1, true);
        network.cut(0, 1, true);
        network.cut(0, 1, false);
        assert!(network.is_cut(0, 1) && !network.is_cut(1, 0));
        assert_eq!(network.arrivals(0, 1, now, &mut random), []);
        assert_eq!(network.arrivals(1, 0, now, &mut random), [now + Duration::from_millis(1)]);
        network.heal();
        assert!(!network.is_cut(0, 1));
    }

    #[test]
    fn in_order_nothing_overtakes_what_went_when_the_way_was_slow() {
        let (mut network, mut random, now) =
            (Network::new(2, Link::millis(1, 1)), Random::new(1), Instant::now());
        network.slow(0, 1, Duration::from_millis(50), true);
        let first = network.in_order(0, 1, now, &mut random);
        network.slow(0, 1, Duration::from_millis(50), false);
        assert_eq!(network.in_order(0, 1, now, &mut random), first);
        assert_eq!(first, now + Duration::from_millis(51));
    }
}
