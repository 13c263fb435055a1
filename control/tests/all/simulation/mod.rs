//! Electors, leaders, Gateway objects and syncers of several clusters, under a virtual clock and a seed.
//!
//! Each schedule has two or three clusters of two or three gateways and a broker. For 25 seconds things go wrong:
//! partitions, pauses, kills, restarts, planned releases, late, lost, reordered and dropped messages, writes that are
//! applied although their answer is lost or their sender is gone, hands on Leases and objects. Clocks show anything,
//! but all run at one rate, which is what the election assumes. Then nothing goes wrong any more, until everything has settled.
//! One more member is [`hostile`].
//!
//! * At every moment: never two leaders in a cluster. After a hand on the Lease, which no election can survive, not for
//!   longer than the last leader's renewal lasts.
//! * In the end: see [`verdict`].
#![expect(
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    reason = "a simulation that cannot go on has failed"
)]

mod hostile;
mod node;
mod store;
mod verdict;
mod world;

use trieste_simulator::seeds;
use world::{QUIET, SETTLED, World};

/// How many schedules are run; each costs a ninth of a second of work.
const SCHEDULES: u64 = 250;

#[test]
fn whatever_goes_wrong_there_is_one_leader_and_in_the_end_one_endpoint() {
    seeds::each("whatever_goes_wrong_there_is_one_leader_and_in_the_end_one_endpoint", SCHEDULES, |seed| {
        assert_eq!(schedule(seed), Ok(()));
    });
}

#[test]
fn the_same_seed_makes_the_same_world() {
    let run = |seed| {
        let mut world = World::new(seed);
        world.run_until(SETTLED).expect("this one goes well");
        world.stores.iter().map(|store| format!("{:?}{:?}", store.objects, store.lease)).collect::<Vec<_>>()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn the_hostile_member_does_all_that_it_can() {
    let mut all = hostile::Deeds::default();
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.run_until(QUIET).expect("whatever it does there is one leader");
        let deeds = world.hostile.deeds;
        all.claims += deeds.claims;
        all.forgeries += deeds.forgeries;
        all.squats += deeds.squats;
        all.floods += deeds.floods;
        all.changes += deeds.changes;
        all.deletions += deeds.deletions;
    }
    let all = [all.claims, all.forgeries, all.squats, all.floods, all.changes, all.deletions];
    assert!(all.iter().all(|deeds| *deeds > 0), "{all:?}");
}

/// Runs one schedule until everything has settled.
fn schedule(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed);
    let mut limit = QUIET;
    loop {
        world.run_until(limit)?;
        match verdict::check(&world) {
            Err(_) if limit < SETTLED => limit += 5_000,
            verdict => return verdict,
        }
    }
}
