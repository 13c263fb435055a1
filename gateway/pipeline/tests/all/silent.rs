//! A line with a thousand lanes whose peers answer nobody: what it does follows what is due, and not the lanes.
#![expect(clippy::disallowed_methods, reason = "an Instant cannot be made from a number")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use trieste_cables::{Cable, CableEvent, CableStats, Jobs, Lane, Overhead, Transmit};
use trieste_packet::{CableId, Drops, LaneId, Outer};
use trieste_pipeline::health::Watch;
use trieste_pipeline::{LaneCommand, Pipeline};

use crate::support;

const LANES: u32 = 1000;
const SECOND: Duration = Duration::from_secs(1);

/// A cable without keys that wants to be called once a minute, and counts how often anybody does anything with it.
struct Quiet {
    calls: Arc<AtomicU64>,
    due: Instant,
    events: Vec<CableEvent>,
}

impl Quiet {
    fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

impl Cable for Quiet {
    fn handle_datagram(&mut self, _: &[u8], _: &Outer, _: Instant, _: &mut Drops) {}
    fn handle_timeout(&mut self, now: Instant, _: &mut Drops) {
        self.called();
        if now >= self.due {
            self.due += 60 * SECOND;
        }
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.called();
        Some(self.due)
    }
    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.called();
        None
    }
    fn poll_event(&mut self) -> Option<CableEvent> {
        self.called();
        self.events.pop()
    }
    fn rekey(&mut self, _: Instant) {}
    fn set_peer(&mut self, _: Option<SocketAddr>, now: Instant) {
        self.due = now + SECOND / 2;
    }
    fn stats(&self, _: Instant) -> CableStats {
        self.called();
        CableStats::default()
    }
}

impl Lane for Quiet {
    fn overhead(&self) -> Overhead {
        Overhead { message_bytes: 0 }
    }
    fn seal(&mut self, jobs: &mut Jobs<'_>, _: Instant) {
        assert!(jobs.input.is_empty(), "a probe for a lane without keys");
    }
    fn open(&mut self, jobs: &mut Jobs<'_>, _: Instant) {
        jobs.input.clear();
    }
}

/// A line with such lanes, all of which are watched, their calls so far, and when that was.
fn line() -> (Pipeline, Arc<AtomicU64>, Instant) {
    let mut line = support::end(1).line;
    let now = Instant::now();
    let calls = Arc::new(AtomicU64::new(0));
    let address = |text: &str| text.parse().unwrap();
    let watch = Watch {
        from: address("10.1.0.1"),
        to: address("10.2.0.1"),
        most_bytes: support::MTU,
        is_sibling: false,
    };
    for number in 0..LANES {
        // Spread over a minute.
        let due = now + SECOND + 60 * SECOND * number / LANES;
        let tunnel = Box::new(Quiet { calls: Arc::clone(&calls), due, events: Vec::new() });
        let (lane, cable) = (LaneId((number + 1) << 8), CableId(u16::try_from(number + 1).unwrap()));
        line.command(LaneCommand::Add { lane, cable, tunnel, watch: Some(watch) }, now);
    }
    (line, calls, now)
}

#[test]
fn a_turn_costs_what_is_due_and_lanes_without_keys_are_not_probed() {
    let (mut line, calls, start) = line();
    line.handle_timeout(start);
    line.handle_probes(start + Duration::from_millis(2));
    assert_eq!(line.poll_probes(), None, "nothing to probe");
    let before = calls.load(Ordering::Relaxed);
    let (mut now, mut turns) = (start, 0);
    loop {
        now = line.poll_timeout().unwrap().max(now);
        if now > start + 61 * SECOND {
            break;
        }
        line.handle_timeout(now);
        line.handle_probes(now);
        turns += 1;
    }
    let called = calls.load(Ordering::Relaxed) - before;
    // Each lane is called once: its timers, when it wants to be called next, twice in all, and whether it has anything.
    assert!((u64::from(LANES) * 5..u64::from(LANES) * 8).contains(&called), "{called} calls");
    assert!((900..=1010).contains(&turns), "{turns} turns");
}

#[test]
fn reports_cost_the_lanes_that_were_called_and_once_a_second_all() {
    let (mut line, calls, start) = line();
    line.handle_timeout(start);
    let (ms, mut reports) = (Duration::from_millis, Vec::new());
    let mut publish = |line: &mut Pipeline, now: Instant| {
        let before = calls.load(Ordering::Relaxed);
        let counters = line.publish(&mut reports, now);
        let called = calls.load(Ordering::Relaxed) - before;
        assert_eq!(counters, line.snapshot(now));
        let told = reports.iter().map(|report| (report.lane, report.is_draining));
        assert!(told.eq(line.reports(now).map(|report| (report.lane, report.is_draining))));
        called
    };
    assert_eq!(publish(&mut line, start), u64::from(LANES));
    assert_eq!(publish(&mut line, start + ms(1)), 0);
    line.command(LaneCommand::Drain { lane: LaneId(7 << 8), until: start + ms(20) }, start + ms(10));
    assert_eq!(publish(&mut line, start + ms(10)), 1);
    line.handle_timeout(start + ms(20));
    assert_eq!(publish(&mut line, start + ms(20)), u64::from(LANES) - 1, "there are other lanes");
    assert_eq!(publish(&mut line, start + ms(900)), 0);
    assert_eq!(publish(&mut line, start + ms(1020)), u64::from(LANES) - 1, "ages grow");
}

#[test]
fn commands_and_ends_of_lanes_keep_their_time() {
    let (mut line, _, start) = line();
    line.handle_timeout(start);
    let lane = LaneId(LANES << 8);
    line.command(LaneCommand::SetPeer { lane, peer: None }, start);
    assert_eq!(line.poll_timeout(), Some(start + SECOND / 2), "the lane wants to be called sooner");
    line.handle_timeout(start + SECOND / 2);
    line.command(LaneCommand::Drain { lane, until: start + SECOND * 3 / 4 }, start + SECOND / 2);
    assert_eq!(line.poll_timeout(), Some(start + SECOND * 3 / 4));
    line.handle_timeout(start + SECOND * 3 / 4);
    assert_eq!(line.reports(start).count(), LANES as usize - 1);
    assert_eq!(line.poll_timeout(), Some(start + SECOND));
    // What is put in a lane's place is called by its own time.
    let calls = Arc::new(AtomicU64::new(0));
    let due = start + SECOND * 4 / 5;
    let tunnel = Box::new(Quiet { calls: Arc::clone(&calls), due, events: vec![CableEvent::LaneUp] });
    let add = LaneCommand::Add { lane: LaneId(1 << 8), cable: CableId(1), tunnel, watch: None };
    line.command(add, start + SECOND * 3 / 4);
    assert_eq!(line.poll_timeout(), Some(due));
}
