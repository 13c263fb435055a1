//! A pair of SAs ends at its hard limit, even if nobody answers who could renew it.

use std::time::Duration;

use trieste_cables::ipsec::ike::{EngineConfig, Lifetime};

use super::network::{LOST, Weather};
use super::shape::{self, Shape};
use super::traffic::Pace;
use super::world::World;

const PACE: Pace = Pace { wait_ms: (20, 60), most: 2 };

/// Gateways that agreed once, under traffic, and whose IKE messages get lost from then on.
fn deaf(config: &EngineConfig, seed: u64) -> World {
    let mut world = World::pair(Shape::Trieste, config, seed);
    world.start_all();
    world.settle(Duration::from_secs(30));
    world.weather.ike = LOST;
    world.begin_traffic(PACE);
    world
}

/// The checker sees that no key is used beyond its limits. No new ones are made, so nothing is sealed any more; and when
/// they hear each other again, all is well again.
fn assert_ended(world: &mut World) {
    let before = world.checker.esp_messages;
    assert!(before > 0, "they did seal");
    world.run(Duration::from_secs(40));
    assert_eq!(world.checker.esp_messages, before, "nothing is sealed after the hard limit");
    for gateway in &world.gateways {
        assert!(gateway.drops.total() + gateway.held(world.now()) > 0, "there was something to seal");
    }
    world.pace = None;
    world.weather = Weather::FAIR;
    world.settle(Duration::from_secs(180));
    world.assert_usable();
}

#[test]
fn a_pair_that_cannot_be_renewed_ends_at_its_hard_limit_of_time() {
    let mut config = shape::config();
    config.child_lifetime = Lifetime { soft: Duration::from_secs(15), hard: Duration::from_secs(25) };
    let mut world = deaf(&config, 1);
    world.run(Duration::from_secs(20));
    let before = world.checker.esp_messages;
    world.run(Duration::from_secs(2));
    assert!(world.checker.esp_messages > before, "it seals until then");
    world.run(Duration::from_secs(5));
    assert_ended(&mut world);
}

#[test]
fn a_pair_that_cannot_be_renewed_ends_at_its_hard_limit_of_packets() {
    let mut config = shape::config();
    config.child_packets = (200, 300);
    let mut world = deaf(&config, 2);
    world.run(Duration::from_secs(12));
    assert_sealed(&world, 300);
    assert_ended(&mut world);
}

#[test]
fn a_pair_that_cannot_be_renewed_ends_at_its_hard_limit_of_bytes() {
    let mut config = shape::config();
    config.child_bytes = (16_000, 24_000);
    let mut world = deaf(&config, 3);
    world.run(Duration::from_secs(12));
    assert_ended(&mut world);
}

/// Both gateways have used their one key up to the last packet, and no further.
fn assert_sealed(world: &World, packets: u64) {
    for gateway in 0..2 {
        let counts: Vec<u64> =
            world.checker.sealed_by(gateway).into_iter().map(|(_, packets)| packets).collect();
        assert_eq!(counts, [packets]);
    }
}
