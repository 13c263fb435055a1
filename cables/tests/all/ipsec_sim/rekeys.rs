//! A thousand new keys under load.

use std::time::Duration;

use trieste_cables::ipsec::ike::Lifetime;
use trieste_packet::DropReason;
use trieste_simulator::Link;

use super::network::Weather;
use super::shape::{self, Shape};
use super::traffic::Pace;
use super::world::World;

/// How many SAs are renewed in the large test.
const RENEWALS: u64 = 1000;
/// One in which no request loses all of its repetitions: then an IKE SA is given up, and packets are lost with reason.
const SEED: u64 = 0;

/// Loses and delays what renews keys, and only delays data.
const MEAN: Weather = Weather { ike: Link { loss: 200, ..ROUGH }, esp: ROUGH };
const ROUGH: Link = Link { copies: 150, late: 300, late_by: Duration::from_millis(400), ..Weather::FAIR.ike };

/// Gateways that renew their keys every other second; one of them with a key agreement of its own for child SAs.
fn restless(shape: Shape, seed: u64) -> World {
    let seconds = Duration::from_secs;
    let mut configs = [shape::config(), shape::config()];
    for (config, pfs) in configs.iter_mut().zip([true, false]) {
        config.child_lifetime = Lifetime { soft: seconds(4), hard: seconds(300) };
        config.ike_lifetime = Lifetime { soft: seconds(20), hard: seconds(600) };
        config.jitter_percent = 70;
        config.pfs = pfs;
    }
    World::new(shape, &configs, seed)
}

/// Renews `count` SAs under traffic and a mean network; no packet may be lost. Returns how many each end has renewed.
fn renew(shape: Shape, count: u64, seed: u64) -> (u64, u64, usize) {
    let mut world = restless(shape, seed);
    world.start_all();
    world.settle(Duration::from_secs(60));
    world.weather = MEAN;
    world.checker.made_by.clear();
    let ikes_before = world.checker.ike_sas.len();
    let first = world.next_serial + 1;
    world.begin_traffic(Pace { wait_ms: (20, 60), most: 3 });
    let renewals = |world: &World| {
        let ikes = world.checker.ike_sas.len() - ikes_before;
        (world.checker.made_by.values().sum::<u64>() + ikes as u64, ikes)
    };
    while renewals(&world).0 < count {
        world.run(Duration::from_secs(5));
        world.assert_bounded();
        assert!(world.age() < Duration::from_secs(20_000), "keys are not renewed\n{}", world.story());
    }
    world.pace = None;
    world.run(Duration::from_secs(3));
    let missing = world.checker.missing(first..=world.next_serial);
    let sent = world.next_serial + 1 - first;
    assert_eq!(missing, [], "lost of {sent} in {:?}; drops: {}", world.age(), drops(&world));
    // Copies are refused as such, and not because the SA that they are of is gone.
    assert_eq!(drops(&world), "", "dropped");
    let made = [0, 1].map(|gateway| world.checker.made_by.get(&gateway).copied().unwrap_or_default());
    let (_, ikes) = renewals(&world);
    println!(
        "{shape:?}: {} and {} child SAs and {ikes} IKE SAs renewed under {sent} packets in {:?}, {} IKE messages",
        made[0],
        made[1],
        world.age(),
        world.checker.ike_messages,
    );
    world.weather = Weather::FAIR;
    world.settle(Duration::from_secs(120));
    (made[0], made[1], ikes)
}

/// What was dropped for other reasons than that it came twice.
fn drops(world: &World) -> String {
    let all = world.gateways.iter().flat_map(|gateway| gateway.drops.iter());
    let lost = all.filter(|(_, reason, _)| *reason != DropReason::Replay);
    lost.map(|(_, reason, count)| format!("{reason:?} {count} ")).collect()
}

#[test]
fn a_thousand_renewals_under_load_lose_no_packet() {
    let (ours, theirs, ikes) = renew(Shape::Trieste, RENEWALS, SEED);
    let children = ours + theirs;
    assert!(ours * 10 > children * 3 && theirs * 10 > children * 3, "both begin: {ours} and {theirs}");
    assert!(ikes > 50, "IKE SAs are renewed as well: {ikes}");
}

#[test]
fn renewals_between_foreign_gateways_lose_no_packet() {
    renew(Shape::Foreign, 150, SEED);
    renew(Shape::Server, 150, SEED);
}

#[test]
fn a_pair_that_has_carried_enough_is_renewed_in_time() {
    let mut config = shape::config();
    config.child_packets = (100, 2000);
    config.child_bytes = (1 << 13, 1 << 18);
    let mut world = World::pair(Shape::Trieste, &config, 4);
    world.start_all();
    world.settle(Duration::from_secs(60));
    let first = world.next_serial + 1;
    world.begin_traffic(Pace { wait_ms: (20, 60), most: 3 });
    world.run(Duration::from_secs(60));
    world.pace = None;
    world.run(Duration::from_secs(1));
    assert_eq!(world.checker.missing(first..=world.next_serial), []);
    let made: u64 = world.checker.made_by.values().sum();
    assert!(made > 20, "renewed because of what they carried: {made}");
}
