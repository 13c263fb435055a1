//! A cluster with OVN-Kubernetes and one without: real gateways and their cable, the route agent, the worker that writes OVN's
//! database, and a real OVN with its data plane.
//!
//! ```text
//!   east pod ─▶ br-int, OVN's routers ─▶ ovn-k8s-mp0 ─▶ table 150 ─▶ gateway ══ WAN bridge ══ gateway ─▶ west pod
//!        rows: trieste-plugin-sync ◀─ GatewayRoutes ◀─ route agent
//! ```

use std::net::SocketAddr;

use trieste_tests::capture::Capture;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::netns::Namespace;
use trieste_tests::ovn::pair::{OvnPair, SOON};
use trieste_tests::pair::CONNECT_TIMEOUT;
use trieste_tests::topology::{Families, Topology};
use trieste_tests::traffic::{self, Responder, pattern};
use trieste_tests::wait::eventually;

/// Inner addresses of both clusters, in tcpdump's words.
pub(super) const INNER: &str =
    "net 10.1.0.0/16 or net 10.2.0.0/16 or net 10.101.0.0/16 or net fd00:1::/48 or net fd00:2::/48";

pub(super) fn targets(addresses: &[std::net::IpAddr], port: u16) -> Vec<SocketAddr> {
    addresses.iter().map(|address| SocketAddr::new(*address, port)).collect()
}

/// Sends to each of these; all have to arrive with the sender's own address.
pub(super) fn reach(from: &Namespace, to: &[SocketAddr]) {
    let bytes = pattern(200_000);
    for target in to {
        let receipt =
            eventually("an answer", CONNECT_TIMEOUT, || traffic::send_tcp(from, *target, &bytes, SOON));
        receipt
            .unwrap()
            .check(&bytes)
            .unwrap_or_else(|error| panic!("{} to {target}: {error:#}", from.name()));
    }
}

#[test]
fn plugin_ovn_pods_behind_a_real_ovn_talk_with_another_cluster_and_nothing_leaves_in_clear() {
    let name = "plugin_ovn_pods_behind_a_real_ovn_talk_with_another_cluster_and_nothing_leaves_in_clear";
    let Some(_turn) = root_test(name) else { return };
    let lab = Lab::new().unwrap();
    let plan = lab.build(&Topology::two_clusters().with_underlay(Families::V4)).unwrap();
    let mut pair = OvnPair::start(&lab, &plan, &[]).unwrap_or_else(|error| {
        lab.show_logs();
        panic!("{error:#}")
    });
    let wire = Capture::start(&lab, &plan.wan, "br0", "").unwrap();
    pair.wait_policies().unwrap();

    // Out and in, both families, addresses kept; the node itself too.
    let [east, west] =
        ["east", "west"].map(|cluster| Responder::start(pair.pod_namespace(cluster, 0)).unwrap());
    let there = targets(&plan.cluster("west").pod(0).ips(), west.port());
    let here = targets(&plan.cluster("east").pod(0).ips(), east.port());
    reach(pair.pod_namespace("east", 0), &there);
    reach(pair.pod_namespace("east", 1), &there);
    reach(&pair.east.node().namespace, &there);
    reach(pair.pod_namespace("west", 0), &here);
    reach(&pair.west.node().namespace, &here);

    // A service of OVN's load balancer, whose back end is a pod.
    let address = plan.cluster("east").service_cidrs[0].hosts().nth(9).unwrap();
    let backend = SocketAddr::new(plan.cluster("east").pod(0).v4().unwrap(), east.port());
    let service = SocketAddr::new(address, 80);
    pair.ovn.add_service("web", service, backend).unwrap();
    reach(pair.pod_namespace("west", 0), &[service]);

    // Somebody removes what leads to the other cluster while the worker is dead: nothing arrives, and nothing leaves.
    pair.sync.take().unwrap().kill().unwrap();
    pair.remove_policies().unwrap();
    assert_eq!(pair.count_policies().unwrap(), 0);
    for target in &there {
        let sent = traffic::send_tcp(pair.pod_namespace("east", 0), *target, b"x", SOON);
        assert!(sent.is_err(), "{target}");
    }
    pair.start_sync().unwrap();
    pair.wait_policies().unwrap();
    reach(pair.pod_namespace("east", 0), &there);

    // The gateway is killed: packets come to its node and are refused there.
    pair.east.kill_gateway().unwrap();
    for target in &there {
        let sent = traffic::send_tcp(pair.pod_namespace("east", 0), *target, b"x", SOON);
        assert!(sent.is_err(), "{target}");
    }
    pair.east.start_gateway().unwrap();
    reach(pair.pod_namespace("east", 0), &there);

    // Nothing of ours stays in the database.
    pair.sync.take().unwrap().stop().unwrap();
    pair.sync_run().unwrap().arg("--uninstall").finish().unwrap();
    assert_eq!(pair.count_policies().unwrap(), 0);
    let left =
        pair.ovn.nbctl(&["--bare", "--columns=external_ids", "list", "Logical_Router_Policy"]).unwrap();
    assert_eq!(left.trim(), "", "rows are left");
    let frames = wire.finish().unwrap();
    assert_eq!(frames.count(INNER).unwrap(), 0, "inner addresses on the underlay: {}", frames.kinds(4500));
}

#[test]
fn plugin_ovn_every_other_cable_carries_pods_behind_ovn() {
    let Some(_turn) = root_test("plugin_ovn_every_other_cable_carries_pods_behind_ovn") else { return };
    for cable in ["ipsec", "vxlan"] {
        let lab = Lab::new().unwrap();
        let plan = lab.build(&Topology::two_clusters().with_underlay(Families::V4)).unwrap();
        let pair = OvnPair::start(&lab, &plan, &[format!("cable-driver: {cable}")]).unwrap_or_else(|error| {
            lab.show_logs();
            panic!("{cable}: {error:#}")
        });
        pair.wait_policies().unwrap();
        for (from, to) in [("east", "west"), ("west", "east")] {
            let responder = Responder::start(pair.pod_namespace(to, 0)).unwrap();
            reach(pair.pod_namespace(from, 0), &targets(&pair.pod(to, 0).ips(), responder.port()));
        }
    }
}
