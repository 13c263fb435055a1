//! Sets of lanes whose peers answer nobody, in virtual time.

use std::collections::BTreeMap;

use super::*;

/// Lanes of one gateway, and what each has done.
struct Set {
    start: Instant,
    now: Instant,
    budget: Arc<AttemptBudget>,
    timers: Vec<AttemptTimer>,
    queue: BTreeMap<(Instant, usize), ()>,
    attempts: Vec<(Instant, usize)>,
    silences: usize,
}

impl Set {
    fn new(lanes: usize) -> Self {
        #[expect(clippy::disallowed_methods, reason = "an Instant cannot be made from a number")]
        let start = Instant::now();
        let budget = AttemptBudget::new(start);
        let mut set = Self {
            start,
            now: start,
            timers: Vec::new(),
            queue: BTreeMap::new(),
            attempts: Vec::new(),
            silences: 0,
            budget,
        };
        for lane in 0..lanes {
            set.add(lane as u64);
        }
        set
    }

    fn add(&mut self, seed: u64) {
        let mut timer = AttemptTimer::new(Arc::clone(&self.budget), seed, self.now);
        timer.begin(self.now);
        self.attempts.push((self.now, self.timers.len()));
        self.timers.push(timer);
        self.arm(self.timers.len() - 1);
    }

    /// Has a lane called when it wants to be.
    fn arm(&mut self, lane: usize) {
        self.queue.retain(|(_, other), ()| *other != lane);
        if let Some(due) = self.timers[lane].poll_timeout() {
            self.queue.insert((due.max(self.now), lane), ());
        }
    }

    /// Lets time go by, from one time-out to the next.
    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some((&(due, lane), ())) = self.queue.first_key_value() {
            if due > end {
                break;
            }
            self.queue.pop_first();
            self.now = due;
            loop {
                match self.timers[lane].poll(due) {
                    Due::Nothing => break,
                    Due::Attempt => self.attempts.push((due, lane)),
                    Due::Silence => self.silences += 1,
                }
            }
            let next = self.timers[lane].poll_timeout();
            if let Some(next) = next {
                assert!(next > due, "a time-out at which nothing is due");
                self.queue.insert((next, lane), ());
            }
        }
        self.now = end;
    }

    /// Attempts of the last `span`.
    fn newest(&self, span: Duration) -> usize {
        self.attempts.iter().filter(|(at, _)| *at > self.now - span).count()
    }

    /// The longest time between two attempts of one lane from `from` on.
    fn longest_gap(&self, from: Instant) -> Duration {
        let mut last = vec![from; self.timers.len()];
        let mut longest = Duration::ZERO;
        for &(at, lane) in self.attempts.iter().filter(|(at, _)| *at >= from) {
            longest = longest.max(at - last[lane]);
            last[lane] = at;
        }
        last.iter().map(|last| self.now - *last).fold(longest, Duration::max)
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn silent_lanes_share_a_rate_that_does_not_grow_with_them() {
    let per_minute = [10u32, 100, 300, 1000, 1900].map(|lanes| {
        let mut set = Set::new(lanes as usize);
        set.run(seconds(240));
        assert_eq!(set.silences, lanes as usize);
        let from = set.now;
        set.run(seconds(600));
        let longest = set.longest_gap(from);
        // The last of a round may have asked for its turn just when the first of the next did.
        let bound = seconds(22).max(SILENT_RATE * lanes + seconds(1));
        assert!(longest <= bound && longest <= LONGEST_INTERVAL, "{lanes} lanes: {longest:?}");
        set.newest(seconds(600)).div_ceil(10)
    });
    // Alone, each is tried every 20 to 21 s; all together 16 times a second.
    assert!((28..=30).contains(&per_minute[0]), "{per_minute:?}");
    assert!((285..=300).contains(&per_minute[1]), "{per_minute:?}");
    assert!(per_minute.iter().all(|attempts| *attempts <= 961), "{per_minute:?}");
    assert!(per_minute[3] >= 955 && per_minute[4] >= 955, "the rate is used: {per_minute:?}");
}

#[test]
fn however_many_lanes_are_silent_each_is_tried_within_two_minutes() {
    let mut set = Set::new(3000);
    set.run(seconds(400));
    let from = set.now;
    set.run(seconds(600));
    assert!(set.longest_gap(from) <= LONGEST_INTERVAL + seconds(1), "{:?}", set.longest_gap(from));
    let per_second = set.newest(seconds(600)) as f64 / 600.0;
    assert!((24.9..=25.1).contains(&per_second), "{per_second}: less than twice what a thousand lanes take");
}

#[test]
fn a_lane_alone_is_tried_eagerly_then_every_five_seconds_then_every_twenty() {
    let mut set = Set::new(1);
    set.run(seconds(180));
    let at: Vec<u128> = set.attempts.iter().map(|(at, _)| (*at - set.start).as_millis()).collect();
    assert_eq!(at[..5], [0, 250, 750, 1750, 3750]);
    let waits: Vec<u128> = at.windows(2).skip(4).map(|pair| pair[1] - pair[0]).collect();
    let fast = waits.iter().take_while(|wait| (5000..=5313).contains(*wait)).count();
    assert!((17..=18).contains(&fast), "{waits:?}");
    assert!((10_000..=10_625).contains(&waits[fast]), "{waits:?}");
    assert!(waits[fast + 1..].iter().all(|wait| (20_000..=21_250).contains(wait)), "{waits:?}");
    assert_eq!(set.timers[0].deferred(), 0);
}

#[test]
fn a_thousand_new_lanes_are_tried_at_once_and_then_twenty_times_a_second() {
    let mut set = Set::new(1000);
    assert_eq!(set.attempts.len(), 1000);
    set.run(seconds(89));
    let later = set.attempts.len() - 1000;
    assert!((1_870..=1_880).contains(&later), "{later} more in 89 s: a burst, and the rate");
    for second in 1..89 {
        let from = set.start + seconds(second);
        let count = set.attempts.iter().filter(|(at, _)| *at > from && *at <= from + seconds(1)).count();
        assert!(count <= 21, "{count} attempts in second {second}");
    }
    let mut counts = vec![0; 1000];
    set.attempts.iter().for_each(|(_, lane)| counts[*lane] += 1);
    assert!(counts.iter().all(|count| (2..=4).contains(count)), "each has its turn");
}

#[test]
fn twenty_new_lanes_have_the_schedule_of_one() {
    let mut set = Set::new(20);
    set.run(seconds(4));
    assert_eq!(set.attempts.len(), 100);
    assert!(set.timers.iter().all(|timer| timer.deferred() == 0));
}

#[test]
fn a_peer_that_speaks_or_is_sent_to_does_not_wait_for_those_that_say_nothing() {
    for has_spoken in [false, true] {
        let mut set = Set::new(1000);
        // The debt of a thousand first attempts is paid, and all wait for a repetition.
        set.run(seconds(20));
        let lane =
            (0..1000).rfind(|lane| set.attempts.iter().all(|(at, other)| other != lane || *at == set.start));
        let (lane, from) = (lane.unwrap(), set.now);
        for _ in 0..200 {
            if has_spoken {
                set.timers[lane].expect_peer(set.now);
            } else {
                set.timers[lane].want(set.now);
            }
            set.arm(lane);
            set.run(Duration::from_millis(100));
        }
        let of_lane: Vec<_> = set
            .attempts
            .iter()
            .filter(|(at, other)| *at > from && *other == lane)
            .map(|(at, _)| *at)
            .collect();
        let soonest = if has_spoken { RETRY_AFTER } else { Duration::ZERO };
        assert!((soonest..=soonest + seconds(1)).contains(&(of_lane[0] - from)), "{:?}", of_lane[0] - from);
        assert!(of_lane.windows(2).all(|pair| pair[1] - pair[0] <= seconds(6)), "{of_lane:?}");
        assert!(set.newest(seconds(20)) <= 20 * 21, "all others have what they had");
    }
}

#[test]
fn lanes_that_take_turns_have_their_first_soon_and_later_ones_share_the_rate_of_repeats() {
    let mut set = Set::new(0);
    let timer = |seed| AttemptTimer::new(Arc::clone(&set.budget), seed, set.now);
    let mut timers: Vec<_> = (0..300).map(timer).collect();
    let mut turns = |until: Duration| {
        let mut turns = 0;
        while set.now < set.start + until {
            turns += timers.iter_mut().filter_map(|timer| timer.take_turn(set.now).then_some(())).count();
            set.now += Duration::from_millis(10);
        }
        turns
    };
    // Each asks again as soon as it had its turn.
    let burst = turns(Duration::from_millis(20));
    assert!((200..=202).contains(&burst), "{burst}: a burst of first turns, and one of repeats");
    let first = turns(seconds(2));
    assert!((235..=245).contains(&first), "{first}: 200 other first turns, and 40 repeats");
    let later = turns(seconds(12));
    assert!((198..=202).contains(&later), "{later}: 20 a second");
    timers[299].want(set.now);
    assert!(timers[299].take_turn(set.now), "packets wait");
    timers[299].stop();
    assert!(timers[299].take_turn(set.now) && timers[299].turn().is_none(), "it begins anew");
}

#[test]
fn packets_that_wait_for_a_silent_peer_bring_an_attempt_soon_and_not_more_often_than_new_lanes_have() {
    let mut set = Set::new(1000);
    set.run(seconds(600));
    let (from, lane) = (set.now, 7);
    // Somebody sends for a minute, a packet every 100 ms.
    for _ in 0..600 {
        set.timers[lane].want(set.now);
        set.arm(lane);
        set.run(Duration::from_millis(100));
    }
    let of_lane: Vec<_> =
        set.attempts.iter().filter(|(at, other)| *at > from && *other == lane).map(|(at, _)| *at).collect();
    assert!(of_lane[0] - from <= seconds(6), "{:?}", of_lane[0] - from);
    assert!(of_lane.windows(2).all(|pair| pair[1] - pair[0] >= RETRY_AFTER), "{of_lane:?}");
    assert!((11..=13).contains(&of_lane.len()), "{}", of_lane.len());
    // All others have what they had.
    assert!(set.newest(seconds(60)) <= 961 + 13, "{}", set.newest(seconds(60)));
    // Everybody waits for everybody.
    let from = set.now;
    for _ in 0..60 {
        for lane in 0..1000 {
            set.timers[lane].want(set.now);
            set.arm(lane);
        }
        set.run(seconds(1));
    }
    let (all, gap) = (set.newest(seconds(60)), set.longest_gap(from));
    assert!(all <= 100 * 60 + 100 + 16 * 60, "{all} attempts in a minute");
    assert!(gap <= seconds(12), "each has its turn: {gap:?}");
}

#[test]
fn a_lane_that_is_tried_time_and_again_takes_nothing_from_others() {
    let mut set = Set::new(1000);
    set.run(seconds(400));
    let from = set.now;
    let hostile = 3;
    // Its peer begins handshakes of which nothing comes, and moves all the time.
    for round in 0..300 {
        if round % 2 == 0 {
            set.timers[hostile].expect_peer(set.now);
        } else {
            set.timers[hostile].begin(set.now);
        }
        set.arm(hostile);
        set.run(seconds(1));
    }
    let mut counts = vec![0; 1000];
    set.attempts.iter().filter(|(at, _)| *at > from).for_each(|(_, lane)| counts[*lane] += 1);
    counts.remove(hostile);
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least >= 4 && most - least <= 1, "{least} to {most} attempts in five minutes");
}

#[test]
fn silent_lanes_are_counted_while_they_are_there() {
    let mut set = Set::new(3);
    set.run(seconds(100));
    let silent = |set: &Set| set.budget.silent.load(Ordering::Relaxed);
    assert_eq!(silent(&set), 3);
    set.timers[0].stop();
    assert_eq!(silent(&set), 2);
    set.timers[1].begin(set.now);
    assert_eq!(silent(&set), 1);
    set.timers.clear();
    assert_eq!(silent(&set), 0);
}

#[test]
fn a_lane_is_off_until_it_begins_and_after_its_peer_has_answered() {
    let mut set = Set::new(1);
    set.timers[0].stop();
    let timer = &mut set.timers[0];
    assert_eq!((timer.poll(set.now + seconds(500)), timer.poll_timeout()), (Due::Nothing, None));
    timer.want(set.now);
    assert!(!timer.is_on() && timer.poll_timeout().is_none());
    // Lost, and given up by its own protocol.
    timer.fall_silent(set.now);
    assert!(timer.is_on() && timer.is_silent());
    assert_eq!(timer.poll(set.now + seconds(4)), Due::Nothing);
    assert_eq!(timer.poll(set.now + seconds(6)), Due::Attempt);
}
