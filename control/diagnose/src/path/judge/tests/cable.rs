//! What is wrong between the gateways.

use trieste_control::admin::DropCount;

use super::*;

/// The cable is down, and datagrams to its port get lost both ways.
fn cable_silent(e: &mut Evidence) {
    cable_down(e);
    for number in [probe::CABLE_THERE, probe::CABLE_BACK] {
        lose_datagrams(e, number);
    }
}

#[test]
fn port_4500_is_blocked_by_the_network_or_by_a_node() {
    broken(cable_silent, Cause::CablePortBlocked, Hop::Cable);
    let node = |e: &mut Evidence| {
        cable_down(e);
        reports(&mut e.destination, "b-gw1", |report| report.filters.drops.push(drops_port("input", 4500)));
    };
    broken(node, Cause::CablePortBlocked, Hop::Cable);
}

#[test]
fn gateways_do_not_reach_each_other() {
    let change = |e: &mut Evidence| {
        cable_silent(e);
        for number in [probe::UNDERLAY_THERE, probe::UNDERLAY_BACK] {
            e.probes.insert(number, Ok(unanswered()));
        }
    };
    broken(change, Cause::UnderlayUnreachable, Hop::Cable);
}

#[test]
fn nat_does_not_pass_the_port_on() {
    let change = |e: &mut Evidence| {
        cable_silent(e);
        statuses(&mut e.source, |status| {
            status.connections[0].connection.using_ip = "203.0.113.5".to_owned()
        });
    };
    broken(change, Cause::NatWithoutPortForward, Hop::Cable);
    let remembered = |e: &mut Evidence| {
        cable_silent(e);
        e.probes.insert(probe::UNDERLAY_THERE, Ok(unanswered()));
        for endpoint in e.destination.endpoints.iter_mut().filter(|endpoint| endpoint.cluster_id == "b") {
            endpoint.public_ip = "203.0.113.5".to_owned();
        }
    };
    broken(remembered, Cause::NatWithoutPortForward, Hop::Cable);
}

#[test]
fn preshared_keys_differ() {
    let secrets = |e: &mut Evidence| {
        cable_down(e);
        e.same_preshared_key = Some(false);
    };
    broken(secrets, Cause::PresharedKeyMismatch, Hop::Cable);
    let handshakes = |e: &mut Evidence| {
        cable_down(e);
        e.same_preshared_key = None;
        let drop = |packets| DropCount { reason: "bad_tag".to_owned(), cable: None, worker: 0, packets };
        statuses(&mut e.source, |status| status.drops = vec![drop(5)]);
        later(&mut e.source, "a-gw1", |report| report.gateway.as_mut().unwrap().drops = vec![drop(8)]);
    };
    broken(handshakes, Cause::PresharedKeyMismatch, Hop::Cable);
}

#[test]
fn nat_discovery_is_blocked() {
    let mut evidence = healthy();
    lose_datagrams(&mut evidence, probe::DISCOVERY_THERE);
    statuses(&mut evidence.source, |status| {
        status.connections[0].discovery.as_mut().unwrap().state = "fallback".to_owned();
    });
    assert_eq!(verdict(&evidence), (Health::Impaired, Cause::NatDiscoveryBlocked, Hop::Cable));
    // Where the guess is wrong it is what breaks the cable.
    let change = |e: &mut Evidence| {
        *e = evidence;
        cable_down(e);
    };
    broken(change, Cause::NatDiscoveryBlocked, Hop::Cable);
}
