//! One schedule after the other.

use std::sync::Mutex;
use std::time::Duration;

use trieste_pipeline::health;
use trieste_simulator::{Random, seeds};

use super::gateway::Plan;
use super::ledger::Fate;
use super::schedule;
use super::world::World;

/// How long faults go on beginning.
const UNREST: Duration = Duration::from_millis(2500);
/// How long after the last fault everybody knows that it is over.
const SETTLE: Duration = Duration::from_millis(2500);
/// How often tables are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// What has become of the packets of a schedule.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    schedules: u64,
    faults: usize,
    packets: usize,
    lost: usize,
    dropped: usize,
    /// Datagrams of the hostile member.
    hostile: u64,
}

/// Runs schedules, without or with translation.
pub(crate) fn schedules(name: &str, count: u64, translates: bool) {
    let total = Mutex::new(Sum::default());
    seeds::each(name, count, |seed| {
        let one = schedule(seed, translates);
        let mut total = total.lock().unwrap();
        total.schedules += 1;
        total.faults += one.faults;
        total.packets += one.packets;
        total.lost += one.lost;
        total.dropped += one.dropped;
        total.hostile += one.hostile;
    });
    let total = total.into_inner().unwrap();
    println!("{total:?}");
    assert!(total.hostile > 100 * total.schedules, "the hostile member has sent {} datagrams", total.hostile);
}

fn schedule(seed: u64, translates: bool) -> Sum {
    let mut random = Random::new(seed);
    let plan = Plan { counts: [2 + random.below(2), 2], translates };
    let health = health::Config { probes_mtu: seed.is_multiple_of(8), ..health::Config::default() };
    let is_calm = random.below(3) == 0;
    let mut world = World::new(plan, health, random);
    // Paths that are known have shorter time-outs.
    let warm = Duration::from_millis(if is_calm { 10_500 } else { 700 });
    let start = world.now();
    world.advance(start + warm, &[]);
    world.set_sending(true);
    let from = world.now() + Duration::from_millis(100);
    let events = schedule::draw(&plan, &mut world.random, from, from + UNREST);
    if seeds::is_traced() {
        println!("seed {seed}: {plan:?}");
        for event in &events {
            let [from, until] = [event.from, event.until].map(|at| at - world.queue.start());
            println!("  {from:?} to {until:?}: {:?}", event.fault);
        }
    }
    let over = events.iter().map(|event| event.until).max().unwrap_or(from);
    let peace = over + SETTLE;
    let end = peace + Duration::from_millis(300);
    while world.now() < end {
        let next = (world.now() + LOOK).min(end);
        world.advance(next, &events);
        if translates {
            world.assert_one_owner();
        }
    }
    world.set_sending(false);
    world.advance(end + Duration::from_millis(300), &events);
    if seeds::is_traced() {
        world.ledger.print(world.queue.start());
        for gateway in world.places.iter().filter_map(|place| place.gateway.as_ref()) {
            let siblings: Vec<_> = gateway.fleet.siblings().collect();
            println!("  ready: {}, {:?}, {siblings:?}", gateway.fleet.is_ready(), gateway.line.sharing());
        }
    }
    world.assert_explained(&events, peace);
    let fates = || world.ledger.entries.iter().map(|entry| entry.fate);
    Sum {
        schedules: 1,
        faults: events.len(),
        packets: world.ledger.entries.len(),
        lost: fates().filter(|fate| matches!(fate, Some(Fate::Lost(..)))).count(),
        dropped: fates().filter(Option::is_none).count(),
        hostile: world.hostile_sent(),
    }
}
