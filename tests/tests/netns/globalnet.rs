//! Clusters with the same addresses reach each other: GN-1..12 of upstream's end-to-end tests, with more sizes and
//! protocols, and with the source address looked at everywhere; and pods reach global addresses of their own cluster. Nodes are namespaces, the objects lie in a directory.
//!
//! ```text
//!   east (242.1.0.0/16): pods 10.1.0.0/16                    west (242.2.0.0/16): pods 10.1.0.0/16
//!     east-gw1      server, plain, team, chosen ─┐          ┌─ west-gw1      the same
//!     east-worker2  server, plain, team, chosen ─┴── cable ─┴─ west-worker2  the same
//! ```

use std::time::{Duration, Instant};

use trieste_tests::capture::{Cable, Capture, LEAVES_A_CLUSTER};
use trieste_tests::flow::{Stream, TcpEcho};
use trieste_tests::globalnet::{Scene, hairpins, rows};
use trieste_tests::guard::root_test;
use trieste_tests::pair::CONNECT_TIMEOUT;
use trieste_tests::table::Table;

#[test]
fn clusters_with_the_same_addresses_reach_services_and_pods_by_global_ones() {
    let name = "clusters_with_the_same_addresses_reach_services_and_pods_by_global_ones";
    let Some(_turn) = root_test(name) else { return };
    let clock = Instant::now();
    let scene = Scene::start(&[]).unwrap();
    eprintln!("all addresses given after {:.1?}", clock.elapsed());
    let (lab, table) = (&scene.pair.lab, Table::default());
    let wire = Capture::start(lab, &scene.pair.plan.wan, "br0", LEAVES_A_CLUSTER).unwrap();

    for row in rows(&scene.east, &scene.west).into_iter().chain(hairpins(&scene.east)) {
        table.row(row.id, row.what, || Ok(format!("seen as {}", row.check(lab)?)));
    }

    let kinds = wire.finish().unwrap().kinds_with(Cable::WireGuard, 4500);
    eprintln!("all checked after {:.1?}, {} frames on the wire:\n{table}", clock.elapsed(), kinds.cable);
    table.assert_no_failure();
    assert!(kinds.others.is_empty(), "between the nodes: {kinds}");
}

/// Clients, each with its own address and port, whose connections a killed gateway must not cost.
const STREAMS: usize = 12;
const BLOCK: usize = 16 << 10;

#[test]
fn connections_through_nat_go_on_after_the_gateway_was_killed_under_load() {
    let name = "connections_through_nat_go_on_after_the_gateway_was_killed_under_load";
    let Some(_turn) = root_test(name) else { return };
    let mut scene = Scene::start(&[]).unwrap();
    let server = scene.west.worker.server.clone();
    let echo = TcpEcho::start(&server.netns, 0).unwrap();
    let to = std::net::SocketAddr::new(server.headless.ip(), echo.port());
    let nodes = [&scene.east.gateway, &scene.east.worker];
    let clients: Vec<_> =
        nodes.iter().flat_map(|node| [&node.plain, &node.team, &node.chosen, &node.host]).cloned().collect();
    let streams: Vec<_> = (0..STREAMS)
        .map(|number| {
            let client = &clients[number % clients.len()];
            let stream = Stream::start(&client.netns, to, BLOCK).unwrap();
            let std::net::IpAddr::V4(seen) = stream.seen_as().ip() else { panic!("IPv4 was asked for") };
            assert!(client.leaves_as.contains(&seen), "{} is seen as {seen}", client.name);
            stream
        })
        .collect();
    streams.iter().for_each(|stream| stream.wait_on(CONNECT_TIMEOUT).unwrap());

    // Each side's gateway in turn: the one that translates sources, and the one that translates destinations.
    for side in ["east", "west"] {
        // What is written down is not written at every packet.
        std::thread::sleep(Duration::from_secs(2));
        let cluster = if side == "east" { &mut scene.pair.east } else { &mut scene.pair.west };
        cluster.kill_gateway().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        cluster.start_gateway().unwrap();
        let restarted = Instant::now();
        for stream in &streams {
            stream.wait_on(Duration::from_secs(60)).unwrap();
        }
        eprintln!("all of {STREAMS} connections go on {:.1?} after {side}'s restart", restarted.elapsed());
    }

    assert_eq!(echo.accepted(), STREAMS as u64, "a connection was made anew");
    let longest = streams.into_iter().map(|stream| stream.finish().unwrap()).max();
    eprintln!("the longest round took {longest:.1?}");
}
