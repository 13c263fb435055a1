//! A gateway dies and comes back without any memory.

use std::collections::BTreeSet;
use std::time::Duration;

use trieste_simulator::Random;

use super::network::Weather;
use super::shape::{self, Shape};
use super::traffic::Pace;
use super::world::{Action, World};

/// Deaths of each gateway in each kind of cable set.
const DEATHS: u64 = 6;

/// From the start of the last of the gateways that died until a packet of every pair of subnets has come through in both
/// directions.
fn recovery(shape: Shape, victims: &[usize], loss: u64, seed: u64) -> Duration {
    let mut random = Random::new(seed);
    let mut world = World::pair(shape, &shape::config(), seed);
    world.start_all();
    world.settle(Duration::from_secs(60));
    world.begin_traffic(Pace { wait_ms: (50, 200), most: 2 });
    world.run(random.millis(1000, 20_000));
    world.weather = Weather::losing(loss);
    victims.iter().for_each(|victim| world.act(Action::Kill(*victim)));
    world.run(random.millis(200, 10_000));
    victims.iter().for_each(|victim| world.act(Action::Start(*victim)));
    let born = world.now();
    let mut open: BTreeSet<usize> = (0..2 * shape::subnet_pairs().count()).collect();
    while !is_usable(&mut world, &mut open) {
        assert!(world.now() < born + Duration::from_secs(240), "no recovery\n{}", world.story());
    }
    let took = world.now() - born;
    world.weather = Weather::FAIR;
    world.settle(Duration::from_secs(240));
    world.assert_usable();
    took
}

/// Tries packets until one of each pair of subnets and direction has come through, for at most a second; those that have
/// are struck off.
fn is_usable(world: &mut World, open: &mut BTreeSet<usize>) -> bool {
    for _ in 0..10 {
        let probes = world.probe();
        world.run(Duration::from_millis(100));
        open.retain(|index| !world.checker.has_arrived(probes.start() + *index as u64));
        if open.is_empty() {
            return true;
        }
    }
    false
}

/// Shortest, middle and longest of the recoveries.
fn recoveries(shape: Shape, victims: &[usize], loss: u64) -> Duration {
    let mut all: Vec<Duration> = (0..DEATHS).map(|seed| recovery(shape, victims, loss, seed)).collect();
    all.sort();
    let (shortest, middle, longest) = (all[0], all[all.len() / 2], all[all.len() - 1]);
    println!(
        "{shape:?}, {victims:?} die, {loss} of 1000 lost: {shortest:.1?} to {longest:.1?}, mostly {middle:.1?}"
    );
    longest
}

#[test]
fn whoever_begins_recovers_within_seconds() {
    let all: [&[usize]; 3] = [&[0], &[1], &[0, 1]];
    for (shape, deaths) in
        [(Shape::Trieste, &all[..]), (Shape::Foreign, &all[..]), (Shape::Server, &all[..1])]
    {
        for victims in deaths {
            assert!(recoveries(shape, victims, 0) < Duration::from_secs(5));
            // Of a thousand exchanges one loses all its repetitions, and is begun anew when it has been given up.
            assert!(recoveries(shape, victims, 200) < shape::config().give_up + Duration::from_secs(30));
        }
    }
}

/// A server does not begin. Its client notices the silence after the interval of signs of life, and believes it when
/// the request has been given up.
#[test]
fn a_server_that_forgot_is_noticed() {
    let config = shape::config();
    let bound = config.dpd_interval + config.give_up + Duration::from_secs(35);
    assert!(recoveries(Shape::Server, &[1], 0) < bound);
}
