//! Two ends of a path under virtual time: links that lose, delay, stop one way or both, and ends that stall.
//!
//! ```text
//!   Watcher A ── link: delay, loss, cut, spike ──▶ Watcher B
//!       ▲ ◀──────────────────────────────────────────  │
//!   Awake: a worker that does not run hears and sends nothing
//! ```
#![expect(clippy::disallowed_methods, reason = "an arbitrary start to count from")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use trieste_pipeline::PathState;
use trieste_pipeline::health::awake::Awake;
use trieste_pipeline::health::{Config, Probe, Watcher};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value ^ (value >> 29)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.draw() % most
    }
}

/// One way of the link.
#[derive(Clone, Copy)]
struct Way {
    delay: Duration,
    loss_permille: u64,
    is_cut: bool,
    /// Largest packet that gets through.
    size: u16,
}

const WAY: Way = Way { delay: Duration::from_micros(500), loss_permille: 0, is_cut: false, size: 1500 };

struct End {
    watcher: Watcher,
    awake: Awake,
    /// When its worker wants to run, by the wall.
    due: Instant,
    stalled_until: Instant,
    /// States it has been in, and since when.
    history: Vec<(Instant, PathState)>,
    inbox: Vec<Option<Probe>>,
}

struct World {
    start: Instant,
    now: Instant,
    ends: [End; 2],
    /// From end 0 to 1, and back.
    ways: [Way; 2],
    flying: BTreeMap<(Instant, u64), (usize, Option<Probe>)>,
    count: u64,
    random: Random,
}

impl World {
    fn new(seed: u64, config: Config) -> Self {
        let start = Instant::now();
        let end = |seed| End {
            watcher: Watcher::new(config, 1420, seed, start),
            awake: Awake::default(),
            due: start,
            stalled_until: start,
            history: vec![(start, PathState::Down)],
            inbox: Vec::new(),
        };
        let mut random = Random(seed);
        let ends = [end(random.draw()), end(random.draw())];
        Self { start, now: start, ends, ways: [WAY; 2], flying: BTreeMap::new(), count: 0, random }
    }

    /// A world whose path is up and has been calm for 11 s, with packets going both ways now and then.
    fn calm(seed: u64) -> Self {
        let mut world = Self::new(seed, Config::default());
        world.run(ms(11_000));
        for end in &world.ends {
            assert_eq!(end.watcher.state(), PathState::Up);
        }
        world
    }

    fn cut(&mut self, is_cut: [bool; 2]) {
        for (way, is_cut) in self.ways.iter_mut().zip(is_cut) {
            way.is_cut = is_cut;
        }
    }

    fn stall(&mut self, end: usize, duration: Duration) {
        self.ends[end].stalled_until = self.now + duration;
    }

    /// Packets go both ways.
    fn traffic(&mut self) {
        for index in 0..2 {
            self.packet(index);
        }
    }

    /// A packet goes out at one end.
    fn packet(&mut self, index: usize) {
        let now = self.ends[index].awake.time(self.now);
        self.ends[index].watcher.handle_traffic(now);
        self.send(index, None, 100);
        self.ends[index].due = self.now;
    }

    fn send(&mut self, from: usize, probe: Option<Probe>, size: u16) {
        let way = self.ways[from];
        if way.is_cut || size > way.size || self.random.below(1000) < way.loss_permille {
            return;
        }
        self.count += 1;
        self.flying.insert((self.now + way.delay, self.count), (1 - from, probe));
    }

    /// Runs for a while without packets.
    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let arrival = self.flying.first_key_value().map(|((at, _), _)| *at);
            let wants = self.ends.iter().map(|end| end.due.max(end.stalled_until)).min().unwrap();
            let next = arrival.map_or(wants, |at| at.min(wants)).max(self.now);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= next) {
                let (to, probe) = entry.remove();
                self.ends[to].inbox.push(probe);
            }
            for index in 0..2 {
                self.turn(index);
            }
        }
    }

    /// A worker's turn, if it runs and has anything to do: what has arrived, then what is due.
    fn turn(&mut self, index: usize) {
        let real = self.now;
        let end = &mut self.ends[index];
        if real < end.stalled_until || (end.inbox.is_empty() && real < end.due) {
            return;
        }
        end.awake.notice(end.due, real);
        let now = end.awake.time(real);
        for probe in end.inbox.drain(..) {
            end.watcher.handle_arrival(now);
            if let Some(probe) = probe {
                end.watcher.handle_probe(&probe, now);
            } else {
                end.watcher.handle_traffic(now);
            }
        }
        end.watcher.handle_timeout(now);
        let mut sent = Vec::new();
        while let Some(outgoing) = end.watcher.poll_transmit(now) {
            sent.push((Probe::parse(&outgoing.probe.emit()), outgoing.padded_to.unwrap_or(60)));
        }
        end.due = end.awake.real(end.watcher.poll_timeout(now)).max(real + ms(1));
        let state = end.watcher.state();
        if end.history.last().unwrap().1 != state {
            end.history.push((real, state));
        }
        for (probe, size) in sent {
            self.send(index, probe, size);
        }
    }

    /// Runs with packets both ways every 10 ms.
    fn run_busy(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.traffic();
            self.run(ms(10).min(end - self.now));
        }
    }

    /// How long after `since` an end first left `Up`, if it did.
    fn detected(&self, end: usize, since: Instant) -> Option<Duration> {
        let down =
            self.ends[end].history.iter().find(|(at, state)| *at >= since && *state == PathState::Down);
        down.map(|(at, _)| *at - since)
    }

    fn failures(&self) -> usize {
        let downs =
            |end: &End| end.history.iter().skip(1).filter(|(_, state)| *state == PathState::Down).count();
        self.ends.iter().map(downs).sum()
    }
}

#[test]
fn a_path_comes_up_at_once_and_its_size_and_round_trip_are_found() {
    for seed in 0..50 {
        let mut world = World::new(seed, Config::default());
        world.run(ms(50));
        for end in &world.ends {
            assert_eq!(end.watcher.state(), PathState::Up, "seed {seed}");
        }
        world.run(ms(1000));
        for end in &world.ends {
            assert_eq!(end.watcher.mtu(), Some(1420), "seed {seed}");
            let rtt = end.watcher.rtt().unwrap();
            assert!(rtt >= ms(1) && rtt < ms(3), "{rtt:?}, seed {seed}");
        }
    }
}

/// Cuts a busy path at a random moment, in the way that `cut` says; gives how long each end took to see it.
fn detections(seeds: std::ops::Range<u64>, cut: [bool; 2]) -> Vec<Duration> {
    let mut all = Vec::new();
    for seed in seeds {
        let mut world = World::calm(seed);
        world.run_busy(ms(100));
        let pause = world.random.below(20);
        world.run(ms(pause));
        let since = world.now;
        world.cut(cut);
        // Packets go on: the inside does not know.
        world.run_busy(ms(300));
        for end in 0..2 {
            all.push(
                world.detected(end, since).unwrap_or_else(|| panic!("end {end} saw nothing, seed {seed}")),
            );
        }
    }
    all.sort_unstable();
    all
}

#[test]
fn a_lost_path_is_seen_by_both_ends_within_80_ms_whichever_way_is_cut() {
    for cut in [[true, true], [true, false], [false, true]] {
        let all = detections(0..100, cut);
        let (median, last) = (all[all.len() / 2], all.last().unwrap());
        println!("cut {cut:?}: median {median:?}, longest {last:?}");
        assert!(median <= ms(76) && *last <= ms(80), "cut {cut:?}: median {median:?}, longest {last:?}");
    }
}

#[test]
fn an_idle_path_is_probed_slowly_and_found_lost_soon_after_packets_want_it() {
    for seed in 0..100 {
        let mut world = World::calm(seed);
        world.run(ms(5000));
        let before: Vec<u64> = world.ends.iter().map(|end| end.watcher.report(world.now).sent).collect();
        world.run(ms(10_000));
        for (end, before) in world.ends.iter().zip(before) {
            let sent = end.watcher.report(world.now).sent - before;
            assert!((50..70).contains(&sent), "{sent} probes in ten seconds, seed {seed}");
        }
        world.cut([true, true]);
        let since = world.now;
        world.run_busy(ms(300));
        for end in 0..2 {
            let detected = world.detected(end, since).unwrap();
            assert!(detected <= ms(90), "{detected:?}, seed {seed}");
        }
    }
}

#[test]
fn stalls_of_50_ms_at_either_end_cause_no_failover() {
    for seed in 0..20 {
        let mut world = World::calm(seed);
        for _ in 0..200 {
            let pause = 60 + world.random.below(200);
            world.run_busy(ms(pause));
            let end = usize::try_from(world.random.below(2)).unwrap();
            world.stall(end, ms(50));
        }
        assert_eq!(world.failures(), 0, "seed {seed}");
    }
}

#[test]
fn own_stalls_of_any_length_are_not_taken_for_the_far_ends_silence() {
    for seed in 0..100 {
        let mut world = World::calm(seed);
        let length = 100 + world.random.below(3000);
        world.stall(0, ms(length));
        world.run(ms(length + 1));
        let since = world.now;
        world.run(ms(200));
        // The far end has seen silence, and says so; what this end saw of its own is nothing.
        assert!(world.ends[1].history.iter().any(|(_, state)| *state == PathState::Down), "seed {seed}");
        let own = world.detected(0, since - ms(2));
        assert!(own.is_none_or(|after| after < ms(4)), "{own:?}: only what the far end says, seed {seed}");
        world.run(ms(2000));
        assert_eq!(world.ends[0].watcher.state(), PathState::Up, "seed {seed}");
    }
}

#[test]
fn recurring_delays_of_100_ms_are_learnt_from_the_first_and_never_matter_on_a_path_that_began_with_them() {
    for seed in 0..10 {
        let mut world = World::new(seed, Config::default());
        for round in 0..200 {
            let delay = if round % 4 == 3 { ms(100) } else { WAY.delay };
            for way in &mut world.ways {
                way.delay = delay;
            }
            let length = 50 + world.random.below(500);
            world.run_busy(ms(length));
        }
        assert_eq!(world.failures(), 0, "from the start, seed {seed}");

        let mut world = World::calm(seed);
        let mut learnt = 0;
        for round in 0..300 {
            if round == 20 {
                learnt = world.failures();
            }
            for way in &mut world.ways {
                way.delay = if round % 4 == 3 { ms(100) } else { WAY.delay };
            }
            let length = 50 + world.random.below(500);
            world.run_busy(ms(length));
        }
        assert!(learnt <= 4, "{learnt} at both ends, seed {seed}");
        assert_eq!(world.failures(), learnt, "seed {seed}");
    }
}

#[test]
fn a_lossy_path_is_used_and_its_loss_is_known_at_both_ends() {
    for seed in 0..5 {
        let mut world = World::calm(seed);
        world.ways[0].loss_permille = 20;
        world.run_busy(ms(60_000));
        assert_eq!(world.failures(), 0, "seed {seed}");
        let (a, b) = (world.ends[0].watcher.report(world.now), world.ends[1].watcher.report(world.now));
        assert_eq!(a.loss_in_permille, 0);
        assert!(b.missing > 20 && b.received > 2000, "{b:?}, seed {seed}");
        assert!(a.loss_out_permille.abs_diff(b.loss_in_permille) < 40, "seed {seed}");
    }
}

#[test]
fn a_flapping_path_fails_a_bounded_number_of_times_because_it_is_held() {
    for seed in 0..3 {
        let mut world = World::calm(seed);
        let minutes = 20;
        let mut uses = 0;
        let end = world.now + Duration::from_mins(minutes);
        while world.now < end {
            world.cut([true, true]);
            world.run_busy(ms(300));
            world.cut([false, false]);
            let length = 500 + world.random.below(3000);
            world.run_busy(ms(length));
        }
        for end in &world.ends {
            uses = uses.max(end.history.iter().filter(|(_, state)| *state == PathState::Up).count());
        }
        // Flaps every two seconds for twenty minutes are about 600.
        assert!(uses <= 6, "the path was used {uses} times, seed {seed}");
        world.run_busy(Duration::from_secs(61));
        for end in &world.ends {
            assert_eq!(end.watcher.state(), PathState::Up, "it is used in the end, seed {seed}");
        }
    }
}

#[test]
fn a_flap_of_300_ms_holds_the_path_for_a_second() {
    let mut world = World::calm(1);
    world.run_busy(ms(100));
    world.cut([true, true]);
    world.run_busy(ms(300));
    world.cut([false, false]);
    world.run_busy(ms(50));
    for end in &world.ends {
        assert_eq!(end.watcher.state(), PathState::Held);
    }
    world.run_busy(ms(1000));
    for end in &world.ends {
        assert_eq!(end.watcher.state(), PathState::Up);
    }
}

#[test]
fn draining_is_known_at_the_far_end_after_one_way_and_taken_back() {
    let mut world = World::calm(2);
    world.run(ms(5000));
    for (is_draining, expected) in [(true, PathState::Draining), (false, PathState::Up)] {
        let now = world.ends[0].awake.time(world.now);
        world.ends[0].watcher.set_draining(is_draining, now);
        world.ends[0].due = world.now;
        world.run(ms(2));
        assert_eq!(world.ends[1].watcher.state(), expected);
        assert_eq!(world.ends[0].watcher.state(), PathState::Up);
    }
}

#[test]
fn a_far_end_that_said_it_would_stop_is_used_as_soon_as_it_is_back() {
    let mut world = World::calm(4);
    world.run_busy(ms(5000));
    for _ in 0..3 {
        let now = world.ends[0].awake.time(world.now);
        world.ends[0].watcher.set_draining(true, now);
        world.ends[0].due = world.now;
        world.run_busy(ms(10));
        world.cut([true, true]);
        world.run_busy(ms(3000));
        assert_eq!(world.ends[1].watcher.state(), PathState::Down);
        // It has started anew, and says so for a while.
        world.cut([false, false]);
        world.run_busy(ms(500));
        assert_eq!(world.ends[1].watcher.state(), PathState::Draining);
        let now = world.ends[0].awake.time(world.now);
        world.ends[0].watcher.set_draining(false, now);
        world.ends[0].due = world.now;
        world.run_busy(ms(10));
        assert_eq!(world.ends[1].watcher.state(), PathState::Up);
    }
}

#[test]
fn a_smaller_path_is_found_and_a_black_hole_left() {
    for seed in 0..10 {
        let mut world = World::new(seed, Config::default());
        world.ways[0].size = 1350;
        world.run_busy(ms(20_000));
        let found = world.ends[0].watcher.mtu().unwrap();
        assert!((1342..=1350).contains(&found), "{found}, seed {seed}");
        assert_eq!(world.ends[1].watcher.mtu(), Some(1420));
        world.ways[1].size = 1300;
        world.run_busy(ms(30_000));
        let found = world.ends[1].watcher.mtu().unwrap();
        assert!((1292..=1300).contains(&found), "{found}, seed {seed}");
        assert_eq!(world.failures(), 0, "padded probes that are lost are no silence, seed {seed}");
    }
}

#[test]
fn a_far_end_that_restarts_is_another_one() {
    let mut world = World::calm(3);
    world.run_busy(ms(100));
    let fresh = World::new(99, Config::default());
    let [mut end, _] = fresh.ends;
    let now = world.now;
    end.watcher = Watcher::new(Config::default(), 1420, 1234, now);
    end.due = now;
    end.stalled_until = now;
    end.history = vec![(now, PathState::Down)];
    world.ends[1] = end;
    world.run_busy(ms(2000));
    for end in &world.ends {
        assert_eq!(end.watcher.state(), PathState::Up);
    }
    let report = world.ends[0].watcher.report(world.now);
    assert_eq!((report.missing, report.loss_in_permille), (0, 0));
}

#[test]
fn whatever_happens_nothing_panics_and_a_whole_link_ends_up() {
    for seed in 0..40 {
        let mut world = World::new(seed, Config::default());
        for _ in 0..60 {
            match world.random.below(6) {
                0 => {
                    let bits = world.random.below(4);
                    world.cut([bits & 1 != 0, bits & 2 != 0]);
                }
                1 => {
                    let (end, length) = (world.random.below(2), world.random.below(2000));
                    world.stall(usize::try_from(end).unwrap(), ms(length));
                }
                2 => {
                    let delay = ms(world.random.below(400));
                    world.ways[usize::try_from(world.random.below(2)).unwrap()].delay = delay;
                }
                3 => world.ways[0].loss_permille = world.random.below(1000),
                _ => world.cut([false, false]),
            }
            let length = world.random.below(3000);
            if world.random.below(2) == 0 { world.run(ms(length)) } else { world.run_busy(ms(length)) }
        }
        world.ways = [WAY; 2];
        world.run_busy(Duration::from_secs(75));
        for end in &world.ends {
            assert_eq!(
                end.watcher.state(),
                PathState::Up,
                "seed {seed}, after {:?}",
                world.now - world.start
            );
        }
    }
}

#[test]
fn packets_now_and_then_on_a_path_that_works_are_no_reason_to_give_it_up() {
    for seed in 0..100 {
        let mut world = World::calm(seed);
        if seed % 2 == 1 {
            world.cut([true, true]);
            world.run(ms(1600));
            world.cut([false, false]);
            world.run(ms(100));
        }
        let before = world.failures();
        for _ in 0..100 {
            let pause = world.random.below(4000);
            world.run(ms(pause));
            let end = usize::try_from(world.random.below(2)).unwrap();
            world.packet(end);
        }
        assert_eq!(world.failures(), before, "seed {seed}");
    }
}
