//! The path matrix: every pair of gateways there with every pair back, for TCP and UDP, between pods on workers and on
//! gateway nodes; and ICMP.
//!
//! Flows differ in their ports alone, and spread by themselves over all ways there are: from a pod on a worker to one on a
//! worker, sixteen. A pod on a gateway's node leaves by that gateway, so that fewer are left.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use trieste_tests::guard::root_test;
use trieste_tests::mesh::carriers::{Protocol, Way};
use trieste_tests::traffic::{self, Responder};

use super::{Bed, PORT};

const TIMEOUT: Duration = Duration::from_secs(10);
/// So many flows of each kind: the chance that one of sixteen equally likely ways is missing is below 1 in 1,000.
const FLOWS: u16 = 160;

#[test]
fn every_way_there_goes_with_every_way_back() {
    let Some(_turn) = root_test("every_way_there_goes_with_every_way_back") else { return };
    let bed = Bed::start(&[]);
    // By the kernel's own choice all flows of two pods would take one gateway.
    for node in bed.mesh.plan.clusters.iter().flat_map(|cluster| &cluster.nodes) {
        node.namespace.run("sysctl").args(["-qw", "net.ipv4.fib_multipath_hash_policy=1"]).stdout().unwrap();
    }
    // Gateways' nodes come first, the worker last.
    for (from, to, ways) in [(2, 2, 16), (0, 2, 8), (2, 1, 8), (1, 0, 4)] {
        let (client, server) = (bed.mesh.pod("east", from, 1), bed.mesh.pod("west", to, 1));
        let _responder = Responder::start_on(&server.namespace, PORT).unwrap();
        bed.carriers.forget().unwrap();
        let address = server.v4().unwrap();
        let target = SocketAddr::new(address, PORT);
        for size in [1, 1372, 8000] {
            let bytes = traffic::pattern(size);
            for _ in 0..FLOWS / 3 {
                traffic::send_udp(&client.namespace, target, &bytes, TIMEOUT).unwrap().check(&bytes).unwrap();
                traffic::send_tcp(&client.namespace, target, &bytes, TIMEOUT).unwrap().check(&bytes).unwrap();
            }
        }
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            let seen: BTreeSet<Way> = bed.carriers.ways(protocol, 0).unwrap().into_values().collect();
            eprintln!("{} {} to {}: {} ways", protocol.name(), client.name, server.name, seen.len());
            assert_eq!(seen.len(), ways, "{seen:#?}");
        }
        for size in [56, 1372, 8000] {
            traffic::ping_sized(&client.namespace, address, size).unwrap();
        }
    }
}
