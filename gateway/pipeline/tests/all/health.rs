//! Two ends of a path under virtual time: links that lose, delay, stop one way or both, and ends that stall.
//!
//! ```text
//!   Watcher A ── link: delay, loss, cut, spike ──▶ Watcher B
//!       ▲ ◀──────────────────────────────────────────  │
//!   Awake: a worker that does not run hears and sends nothing
//! ```

use std::time::{Duration, Instant};

use trieste_pipeline::PathState;
use trieste_pipeline::health::awake::Awake;
use trieste_pipeline::health::{Config, Probe, Watcher};
use trieste_simulator::{Link, Network, Queue, Random};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const DELAY: Duration = Duration::from_micros(500);
const LINK: Link = Link { delay: (DELAY, DELAY), ..Link::millis(0, 0) };

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
    /// What is on its way: to which end.
    queue: Queue<(usize, Option<Probe>)>,
    ends: [End; 2],
    network: Network,
    /// Largest packet that gets through from end 0 to 1, and back.
    sizes: [u16; 2],
    random: Random,
}

impl World {
    fn new(seed: u64, config: Config) -> Self {
        let queue = Queue::new();
        let start = queue.start();
        let end = |seed| End {
            watcher: Watcher::new(config, 1420, seed, start),
            awake: Awake::default(),
            due: start,
            stalled_until: start,
            history: vec![(start, PathState::Down)],
            inbox: Vec::new(),
        };
        let mut random = Random::new(seed);
        let ends = [end(random.draw()), end(random.draw())];
        Self { queue, ends, network: Network::new(2, LINK), sizes: [1500; 2], random }
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
        self.network.heal();
        for end in (0..2).filter(|end| is_cut[*end]) {
            self.network.cut(end, 1 - end, true);
        }
    }

    fn delay(&mut self, from: usize, delay: Duration) {
        self.network.link(from, 1 - from).delay = (delay, delay);
    }

    fn now(&self) -> Instant {
        self.queue.now()
    }

    fn stall(&mut self, end: usize, duration: Duration) {
        self.ends[end].stalled_until = self.queue.now() + duration;
    }

    /// Packets go both ways.
    fn traffic(&mut self) {
        for index in 0..2 {
            self.packet(index);
        }
    }

    /// A packet goes out at one end.
    fn packet(&mut self, index: usize) {
        let now = self.ends[index].awake.time(self.queue.now());
        self.ends[index].watcher.handle_traffic(now);
        self.send(index, None, 100);
        self.ends[index].due = self.queue.now();
    }

    fn send(&mut self, from: usize, probe: Option<Probe>, size: u16) {
        let now = self.queue.now();
        if size <= self.sizes[from] {
            for arrival in self.network.arrivals(from, 1 - from, now, &mut self.random) {
                self.queue.at(arrival, (1 - from, probe));
            }
        }
    }

    /// Runs for a while without packets.
    fn run(&mut self, duration: Duration) {
        let end = self.queue.now() + duration;
        loop {
            let arrival = self.queue.next();
            let wants = self.ends.iter().map(|end| end.due.max(end.stalled_until)).min().unwrap();
            let next = arrival.map_or(wants, |at| at.min(wants)).max(self.queue.now());
            if next > end {
                self.queue.advance(end);
                return;
            }
            self.queue.advance(next);
            while let Some((to, probe)) = self.queue.pop(next) {
                self.ends[to].inbox.push(probe);
            }
            for index in 0..2 {
                self.turn(index);
            }
        }
    }

    /// A worker's turn, if it runs and has anything to do: what has arrived, then what is due.
    fn turn(&mut self, index: usize) {
        let real = self.queue.now();
        let end = &mut self.ends[index];
        if real < end.stalled_until || (end.inbox.is_empty() && real < end.due) {
            return;
        }
        end.awake.notice(end.due, real);
        let now = end.awake.time(real);
        for probe in end.inbox.drain(..) {
            end.watcher.handle_arrival(now);
            if let Some(probe) = probe {
                end.watcher.handle_probe(&probe, now, real);
            } else {
                end.watcher.handle_traffic(now);
            }
        }
        end.watcher.handle_timeout(now);
        let mut sent = Vec::new();
        while let Some(outgoing) = end.watcher.poll_transmit(now, real) {
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
        let end = self.queue.now() + duration;
        while self.queue.now() < end {
            self.traffic();
            self.run(ms(10).min(end - self.queue.now()));
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
        let since = world.now();
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

/// Watches an idle path whose ends would have it probed so often, for ten seconds, and returns how many probes each sent;
/// then sees that it is found lost soon after packets want it.
fn idle_then_cut(seed: u64, intervals_ms: [u64; 2]) -> [u64; 2] {
    let mut world = World::calm(seed);
    for (end, interval) in world.ends.iter_mut().zip(intervals_ms) {
        end.watcher.set_idle_interval(ms(interval));
    }
    world.run(ms(5000));
    let sent = |world: &World| [0, 1].map(|end| world.ends[end].watcher.report(world.queue.now()).sent);
    let before = sent(&world);
    world.run(ms(10_000));
    let after = sent(&world);
    assert_eq!(world.failures(), 0, "seed {seed}");
    world.cut([true, true]);
    let since = world.now();
    world.run_busy(ms(300));
    for end in 0..2 {
        let detected = world.detected(end, since).unwrap();
        assert!(detected <= ms(90), "{detected:?}, seed {seed}");
    }
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn an_idle_path_is_probed_slowly_and_found_lost_soon_after_packets_want_it() {
    for seed in 0..100 {
        for sent in idle_then_cut(seed, [200, 200]) {
            assert!((50..70).contains(&sent), "{sent} probes in ten seconds, seed {seed}");
        }
    }
}

#[test]
fn an_end_with_many_paths_is_probed_as_rarely_as_it_probes() {
    for seed in 0..50 {
        for intervals_ms in [[200, 1500], [1500, 200], [1500, 1500]] {
            for sent in idle_then_cut(seed, intervals_ms) {
                // One or two more confirm the size.
                assert!((6..=12).contains(&sent), "{sent} probes in ten seconds, seed {seed}");
            }
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
            let end = world.random.below(2);
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
        let since = world.now();
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
            let delay = if round % 4 == 3 { ms(100) } else { DELAY };
            (0..2).for_each(|end| world.delay(end, delay));
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
            let delay = if round % 4 == 3 { ms(100) } else { DELAY };
            (0..2).for_each(|end| world.delay(end, delay));
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
        world.network.link(0, 1).loss = 20;
        world.run_busy(ms(60_000));
        assert_eq!(world.failures(), 0, "seed {seed}");
        let (a, b) = (
            world.ends[0].watcher.report(world.queue.now()),
            world.ends[1].watcher.report(world.queue.now()),
        );
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
        let end = world.now() + Duration::from_mins(minutes);
        while world.now() < end {
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
        let now = world.ends[0].awake.time(world.queue.now());
        world.ends[0].watcher.set_draining(is_draining, now);
        world.ends[0].due = world.queue.now();
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
        let now = world.ends[0].awake.time(world.queue.now());
        world.ends[0].watcher.set_draining(true, now);
        world.ends[0].due = world.queue.now();
        world.run_busy(ms(10));
        world.cut([true, true]);
        world.run_busy(ms(3000));
        assert_eq!(world.ends[1].watcher.state(), PathState::Down);
        // It has started anew, and says so for a while.
        world.cut([false, false]);
        world.run_busy(ms(500));
        assert_eq!(world.ends[1].watcher.state(), PathState::Draining);
        let now = world.ends[0].awake.time(world.queue.now());
        world.ends[0].watcher.set_draining(false, now);
        world.ends[0].due = world.queue.now();
        world.run_busy(ms(10));
        assert_eq!(world.ends[1].watcher.state(), PathState::Up);
    }
}

#[test]
fn a_smaller_path_is_found_and_a_black_hole_left() {
    for seed in 0..10 {
        let mut world = World::new(seed, Config::default());
        world.sizes[0] = 1350;
        world.run_busy(ms(20_000));
        let found = world.ends[0].watcher.mtu().unwrap();
        assert!((1342..=1350).contains(&found), "{found}, seed {seed}");
        assert_eq!(world.ends[1].watcher.mtu(), Some(1420));
        world.sizes[1] = 1300;
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
    let now = world.now();
    end.watcher = Watcher::new(Config::default(), 1420, 1234, now);
    end.due = now;
    end.stalled_until = now;
    end.history = vec![(now, PathState::Down)];
    world.ends[1] = end;
    world.run_busy(ms(2000));
    for end in &world.ends {
        assert_eq!(end.watcher.state(), PathState::Up);
    }
    let report = world.ends[0].watcher.report(world.queue.now());
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
                    world.stall(end, ms(length));
                }
                2 => {
                    let (delay, from) = (world.random.below(400), world.random.below(2));
                    world.delay(from, ms(delay));
                }
                3 => world.network.link(0, 1).loss = world.random.below(1000),
                _ => world.cut([false, false]),
            }
            let length = world.random.below(3000);
            if world.random.below(2) == 0 { world.run(ms(length)) } else { world.run_busy(ms(length)) }
        }
        world.network = Network::new(2, LINK);
        world.run_busy(Duration::from_secs(75));
        for end in &world.ends {
            assert_eq!(end.watcher.state(), PathState::Up, "seed {seed}, after {:?}", world.queue.elapsed());
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
            let end = world.random.below(2);
            world.packet(end);
        }
        assert_eq!(world.failures(), before, "seed {seed}");
    }
}

#[test]
fn a_far_end_that_comes_late_for_its_probes_makes_no_round_trip_longer() {
    let start = Queue::<()>::new().start();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let mut near = Watcher::new(Config::default(), 1420, 1, start);
    let mut far = Watcher::new(Config::default(), 1420, 2, start);
    for round in 0..20 {
        let asked = at(round * 400);
        let question = near.poll_transmit(asked, asked).unwrap().probe;
        // The far end wants to answer 200 ms later, and is called 130 ms too late: its awake time stands still meanwhile.
        let came = at(round * 400 + 1);
        let awake = start + Duration::from_millis(round * 270 + 1);
        far.handle_arrival(awake);
        far.handle_probe(&question, awake, came);
        let called = came + Duration::from_millis(330);
        let answer = far.poll_transmit(awake + Duration::from_millis(200), called).unwrap().probe;
        let back = called + Duration::from_millis(1);
        near.handle_arrival(back);
        near.handle_probe(&answer, back, back);
    }
    let trip = near.rtt().unwrap();
    assert!(trip <= Duration::from_millis(3), "{trip:?}");
}
