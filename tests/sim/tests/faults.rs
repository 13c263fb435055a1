//! What two and three gateways do on networks good and bad, in virtual time. Every world also checks the laws of
//! `trieste_sim`: packets are accounted for, arrive unchanged, and arrive once.

use std::time::Duration;

use trieste_sim::{BAD, GOOD, World};
use trieste_simulator::{Link, seeds};

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Two gateways with a flow in each direction, IPv4 there and IPv6 back, after the first handshake.
fn settled(seed: u64, link: Link) -> (World, usize, usize) {
    let mut world = World::new(seed, 2, 1, GOOD);
    world.rest(seconds(1));
    world.network.set_links(link);
    let (there, back) = (world.flow(0, 1, false, millis(10), 200), world.flow(1, 0, true, millis(10), 1000));
    (world, there, back)
}

#[test]
fn ten_minutes_on_a_good_network_lose_nothing_over_all_rekeys() {
    let (mut world, there, back) = settled(1, GOOD);

    world.run(seconds(600));
    let gaps = [there, back].map(|flow| world.ledger(flow).longest_gap);
    world.rest(seconds(1));

    assert!(gaps.iter().all(|gap| *gap < millis(50)), "{gaps:?}");
    for flow in [there, back] {
        let ledger = world.ledger(flow);
        assert_eq!(
            (ledger.delivered, ledger.overtaken),
            (ledger.sent, 0),
            "{} of {}",
            ledger.delivered,
            ledger.sent
        );
    }
    // One at the start and one every 120 s; counted at both ends, and twice where both initiate at once.
    let handshakes = world.handshakes(0) + world.handshakes(1);
    assert!((10..=24).contains(&handshakes), "{handshakes} handshakes in ten minutes");
}

#[test]
fn packets_before_the_first_handshake_wait_and_arrive() {
    let mut world = World::new(2, 2, 1, Link::millis(100, 100));
    let flow = world.flow(0, 1, false, millis(10), 100);

    world.run(millis(500));
    world.rest(seconds(1));

    let ledger = world.ledger(flow);
    assert_eq!(
        (ledger.delivered, ledger.overtaken),
        (ledger.sent, 0),
        "{} of {}",
        ledger.delivered,
        ledger.sent
    );
}

#[test]
fn what_waits_for_a_peer_that_is_away_is_bounded() {
    let mut world = World::new(3, 2, 1, GOOD);
    world.kill(1);
    let flow = world.flow(0, 1, false, millis(1), 1000);

    world.run(seconds(60));

    assert!(world.held(0) <= 128, "{} packets are held", world.held(0));
    assert!(world.dropped(0) + 128 >= world.ledger(flow).sent);
}

#[test]
fn a_bad_network_costs_what_it_loses_and_no_more() {
    seeds::each("a_bad_network_costs_what_it_loses_and_no_more", 5, |seed| {
        let (mut world, there, back) = settled(seed, BAD);

        world.run(seconds(300));
        let gaps = [there, back].map(|flow| world.ledger(flow).longest_gap);
        world.rest(seconds(2));

        assert!(gaps.iter().all(|gap| *gap < millis(300)), "seed {seed}: {gaps:?}");
        for flow in [there, back] {
            let ledger = world.ledger(flow);
            let lost_per_mille = (ledger.sent - ledger.delivered) * 1000 / ledger.sent;
            assert!((60..150).contains(&lost_per_mille), "seed {seed}: {lost_per_mille} of 1000 lost");
        }
    });
}

#[test]
fn a_network_that_doubles_everything_late_delivers_everything_once() {
    let link = Link { copies: 1000, copy_delay: seconds(3), ..GOOD };
    let (mut world, there, back) = settled(6, link);

    world.run(seconds(200));
    world.rest(seconds(5));

    for flow in [there, back] {
        let ledger = world.ledger(flow);
        assert_eq!(ledger.delivered, ledger.sent);
    }
    assert!(world.dropped(1) >= world.ledger(there).sent, "the second copies are counted as dropped");
}

#[test]
fn a_restarted_gateway_is_back_after_one_handshake() {
    seeds::each("a_restarted_gateway_is_back_after_one_handshake", 5, |seed| {
        let (mut world, there, back) = settled(seed, GOOD);
        world.run(seconds(5));

        world.kill(1);
        world.run(seconds(3));
        world.restart(1);
        world.ledger(there);
        world.run(seconds(10));

        for flow in [there, back] {
            let gap = world.ledger(flow).longest_gap;
            assert!(gap < seconds(6), "seed {seed}: traffic stopped for {gap:?}");
        }
    });
}

#[test]
fn after_a_long_partition_traffic_is_back_within_seconds() {
    let (mut world, there, back) = settled(7, GOOD);
    world.run(seconds(5));
    world.network.cut(0, 1, true);
    world.network.cut(1, 0, true);
    world.run(seconds(400));

    world.network.heal();
    let before: Vec<_> = [there, back].map(|flow| world.ledger(flow).delivered).into();
    world.run(seconds(30));

    for (flow, before) in [there, back].into_iter().zip(before) {
        let ledger = world.ledger(flow);
        // 3000 packets are sent in 30 s; a handshake is tried every 5 s.
        assert!(
            ledger.delivered - before > 2000,
            "{} of 3000 after the partition",
            ledger.delivered - before
        );
    }
}

#[test]
fn a_partition_of_one_direction_heals_too() {
    let (mut world, there, back) = settled(8, GOOD);
    world.run(seconds(5));
    world.network.cut(1, 0, true);
    world.run(seconds(240));

    world.network.heal();
    world.run(seconds(30));
    world.ledger(there);
    world.ledger(back);
    world.run(seconds(10));

    for flow in [there, back] {
        assert!(world.ledger(flow).longest_gap < seconds(1));
    }
}

#[test]
fn a_peer_that_moves_is_followed() {
    let (mut world, there, back) = settled(9, GOOD);
    world.run(seconds(5));

    world.move_to(1, "198.51.100.7:61000");
    world.ledger(there);
    world.run(seconds(5));

    for flow in [there, back] {
        assert!(world.ledger(flow).longest_gap < millis(100), "the next packet of the peer shows the way");
    }
}

#[test]
fn an_idle_cable_is_ready_when_it_is_needed() {
    let (mut world, there, _) = settled(10, GOOD);
    world.run(seconds(1));
    world.rest(seconds(900));

    let before = world.ledger(there);
    world.run(seconds(2));
    world.rest(seconds(1));

    let after = world.ledger(there);
    assert_eq!(after.delivered - before.delivered, after.sent - before.sent);
}

#[test]
fn three_gateways_with_two_workers_each_carry_a_full_mesh() {
    seeds::each("three_gateways_with_two_workers_each_carry_a_full_mesh", 3, |seed| {
        let mut world = World::new(seed, 3, 2, GOOD);
        world.rest(seconds(1));
        let pairs = [(0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)];
        let flows: Vec<_> =
            pairs.iter().map(|(from, to)| world.flow(*from, *to, from < to, millis(20), 300)).collect();

        world.run(seconds(300));
        world.rest(seconds(1));

        for flow in flows {
            let ledger = world.ledger(flow);
            assert_eq!(ledger.delivered, ledger.sent, "seed {seed}, flow {flow}");
        }
    });
}

#[test]
fn whatever_happens_the_laws_hold_and_peace_brings_traffic_back() {
    seeds::each("whatever_happens_the_laws_hold_and_peace_brings_traffic_back", 5, |seed| {
        let (mut world, there, back) = settled(seed, BAD);
        for _ in 0..40 {
            match world.random.below(8) {
                0 => world.restart(0),
                1 => world.restart(1),
                2 => world.network.cut(0, 1, true),
                3 => world.network.cut(1, 0, true),
                4 => world.network.heal(),
                5 => world.network.set_links(Link { loss: 500, ..BAD }),
                6 => world.network.set_links(GOOD),
                _ => world.network.set_links(BAD),
            }
            let pause = world.random.below(20_000);
            world.run(millis(pause));
        }

        world.network.heal();
        world.network.set_links(GOOD);
        world.run(seconds(30));
        world.ledger(there);
        world.ledger(back);
        world.run(seconds(10));

        for flow in [there, back] {
            let gap = world.ledger(flow).longest_gap;
            assert!(gap < seconds(1), "seed {seed}: traffic stopped for {gap:?} in peace");
        }
    });
}

#[test]
fn a_gateway_that_starts_after_ten_minutes_is_up_at_once_and_stays_up() {
    seeds::each("a_gateway_that_starts_after_ten_minutes_is_up_at_once_and_stays_up", 3, |seed| {
        let mut world = World::new(seed, 2, 1, GOOD);
        world.kill(1);
        world.rest(seconds(600));
        world.restart(1);
        world.rest(millis(50));
        let (there, back) =
            (world.flow(0, 1, false, millis(10), 200), world.flow(1, 0, true, millis(10), 1000));

        // Long enough for sessions that were thought older than they are to end too early.
        world.run(seconds(400));
        world.rest(seconds(1));

        for flow in [there, back] {
            let ledger = world.ledger(flow);
            assert_eq!(ledger.delivered, ledger.sent, "seed {seed}, flow {flow}");
        }
    });
}

#[test]
fn after_ten_silent_minutes_a_healed_network_is_used_within_half_a_minute_and_by_a_packet_in_seconds() {
    for has_traffic in [false, true] {
        let (mut world, there, back) = settled(11, GOOD);
        world.run(seconds(5));
        world.network.cut(0, 1, true);
        world.network.cut(1, 0, true);
        world.rest(seconds(600));
        world.network.heal();
        if !has_traffic {
            // Both ends try every twenty seconds.
            world.rest(seconds(22));
        }
        let _ = [there, back].map(|flow| world.ledger(flow));

        world.run(seconds(20));

        for flow in [there, back] {
            let gap = world.ledger(flow).longest_gap;
            let most = if has_traffic { seconds(6) } else { millis(50) };
            assert!(gap <= most, "traffic {has_traffic}: {gap:?}");
        }
    }
}
