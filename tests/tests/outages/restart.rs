//! Faults that pass: a gateway that ends and comes back or stands still, a link that flaps, a peer that moves.
//! Each says how long traffic may stop.

use std::net::SocketAddr;
use std::time::Duration;

use trieste_tests::fault::Fault;
use trieste_tests::flow::{Flow, FlowOutage};
use trieste_tests::guard::root_test;
use trieste_tests::pair::Pair;
use trieste_tests::topology::Families;
use trieste_tests::traffic::{self, Responder};
use trieste_tests::wait::eventually;

const INTERVAL: Duration = Duration::from_millis(5);
const MOMENT: Duration = Duration::from_millis(300);

#[test]
fn a_gateway_that_is_asked_to_end_comes_back_with_the_same_key() {
    let Some(_turn) = root_test("a_gateway_that_is_asked_to_end_comes_back_with_the_same_key") else {
        return;
    };
    let mut pair = Pair::connected(Families::V4).unwrap();
    let before = pair.east.status().unwrap().endpoint.backend_config;

    pair.east.stop().unwrap();
    pair.east.start_route_agent().unwrap();
    pair.east.start_gateway().unwrap();
    let status = pair.east.wait_handshakes(1, Duration::from_secs(10)).unwrap();

    assert_eq!(status.endpoint.backend_config.get("publicKey"), before.get("publicKey"));
    let west = pair.pod("west").v4().unwrap();
    assert_eq!(traffic::ping(pair.pod_namespace("east"), west, 3, &[]).unwrap().received, 3);
}

#[test]
fn a_gateway_that_stands_still_goes_on_where_it_was() {
    let Some(_turn) = root_test("a_gateway_that_stands_still_goes_on_where_it_was") else { return };
    let pair = Pair::connected(Families::V4).unwrap();

    let seen = probed(&pair, || {
        pair.west.gateway().unwrap().pause().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        pair.west.gateway().unwrap().resume().unwrap();
    });

    assert!(seen.longest() < Duration::from_millis(1000), "{seen:?}");
    assert!(seen.answered() * 100 >= seen.sent * 95, "{seen:?}");
}

#[test]
fn a_link_that_flaps_is_survived() {
    let Some(_turn) = root_test("a_link_that_flaps_is_survived") else { return };
    let pair = Pair::connected(Families::V4).unwrap();
    let node = &pair.west.node().namespace;

    let seen = probed(&pair, || {
        let fault = Fault::link_down(node, "eth0").unwrap();
        std::thread::sleep(MOMENT);
        drop(fault);
        // The kernel takes the default route away with the link; a real node's network manager puts it back.
        node.ip("route replace default via 172.31.255.254 dev eth0").unwrap();
        std::thread::sleep(Duration::from_secs(3));
    });

    // Address resolution is retried after a second.
    assert!(seen.longest() < Duration::from_secs(3), "{seen:?}");
}

#[test]
fn a_peer_that_moves_to_another_address_is_followed() {
    let Some(_turn) = root_test("a_peer_that_moves_to_another_address_is_followed") else { return };
    let pair = Pair::connected(Families::V4).unwrap();
    let node = &pair.west.node().namespace;

    let seen = probed(&pair, || {
        node.ip("addr del 172.31.2.1/16 dev eth0\naddr add 172.31.2.77/16 dev eth0\n\
             route replace default via 172.31.255.254 dev eth0")
            .unwrap();
        // West has to send for east to learn of it: the answers to the prober cannot, its questions are lost.
        let east = pair.pod("east").v4().unwrap();
        eventually("west to be heard again", Duration::from_secs(15), || {
            let ping = traffic::ping(pair.pod_namespace("west"), east, 1, &[])?;
            anyhow::ensure!(ping.received == 1, "no answer");
            Ok(())
        })
        .unwrap();
    });

    assert!(seen.longest() < Duration::from_secs(5), "{seen:?}");
    eventually("the status to follow", Duration::from_secs(5), || {
        let outer = pair.east.status()?.connections[0].lane.outer_address;
        anyhow::ensure!(outer == Some("172.31.2.77:4500".parse()?), "{outer:?}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn tcp_survives_a_lossy_underlay() {
    let Some(_turn) = root_test("tcp_survives_a_lossy_underlay") else { return };
    let pair = Pair::connected(Families::V4).unwrap();
    let responder = Responder::start(pair.pod_namespace("west")).unwrap();
    let faults = [&pair.east, &pair.west]
        .map(|cluster| Fault::lose_every(&cluster.node().namespace, "eth0", 50).unwrap());
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();

    for address in pair.pod("west").ips() {
        let target = SocketAddr::new(address, responder.port());
        let receipt =
            traffic::send_tcp(pair.pod_namespace("east"), target, &bytes, Duration::from_secs(60)).unwrap();
        receipt.check(&bytes).unwrap();
    }

    assert!(faults.iter().all(|fault| fault.hits().unwrap() > 0));
}

/// Probes from east to west while something happens, and a moment before and after.
fn probed(pair: &Pair, happening: impl FnOnce()) -> FlowOutage {
    let to = (pair.pod_namespace("west"), pair.pod("west").v4().unwrap());
    let flow = Flow::start(pair.pod_namespace("east"), to, b"are you there", INTERVAL).unwrap();
    std::thread::sleep(MOMENT);
    happening();
    std::thread::sleep(MOMENT);
    flow.finish()
}
