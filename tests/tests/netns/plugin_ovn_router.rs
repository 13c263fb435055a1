//! The original proposal's topology of OVN-Kubernetes: as in [`super::plugin_ovn`], but packets between OVN and the gateway's node
//! pass a router of Submariner's own and the node's external bridge.
//!
//! ```text
//!   east pod ─▶ ovn_cluster_router ─▶ submariner_router .7 ─▶ ext_NODE ─▶ br-local .1 ─▶ table 150 ─▶ gateway ══ gateway ─▶ west pod
//!   west pod ─▶ gateway ══ gateway ─▶ table 149 ─▶ br-local ─▶ submariner_router: load balancer ─▶ ovn_cluster_router ─▶ east pod
//! ```

use std::net::SocketAddr;

use trieste_tests::capture::Capture;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::netns::Namespace;
use trieste_tests::ovn::external::BRIDGE;
use trieste_tests::ovn::pair::{OvnPair, OvnTopology, SOON};
use trieste_tests::topology::{Families, Topology};
use trieste_tests::traffic::{self, Responder};

use super::plugin_ovn::{INNER, reach, targets};

/// Networks of the other cluster, in tcpdump's words.
const REMOTE: &str = "net 10.2.0.0/16 or net fd00:2::/48";
/// The MAC address of `submariner_router` on the bridge.
const ROUTER: &str = "ether host 00:60:2f:00:00:02";

fn start(lab: &Lab, cable: &str) -> OvnPair {
    let plan = lab.build(&Topology::two_clusters().with_underlay(Families::V4)).unwrap();
    let extra = [format!("cable-driver: {cable}")];
    OvnPair::start_with(lab, &plan, &extra, OvnTopology::SubmarinerRouter).unwrap_or_else(|error| {
        lab.show_logs();
        panic!("{cable}: {error:#}")
    })
}

/// Returns what of the route agent's is on a node: its rules, routes and filter.
fn left_on(node: &Namespace) -> String {
    let commands = [
        ("ip", "rule", "lookup 1"),
        ("ip", "-6 rule", "lookup 1"),
        ("ip", "route show table all", "table 1"),
        ("ip", "route show", "unreachable"),
        ("ip", "-6 route show table all", "table 1"),
        ("nft", "list tables", "trieste"),
    ];
    let lines = commands.into_iter().flat_map(|(program, words, ours)| {
        let told = node.run(program).args(words.split(' ')).stdout().unwrap();
        told.lines().filter(|line| line.contains(ours)).map(str::to_owned).collect::<Vec<_>>()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Fails if anything arrives.
fn reach_nothing(pair: &OvnPair, to: &[SocketAddr]) {
    for target in to {
        let sent = traffic::send_tcp(pair.pod_namespace("east", 0), *target, b"x", SOON);
        assert!(sent.is_err(), "{target}");
    }
}

#[test]
fn plugin_ovn_router_pods_talk_by_the_external_bridge_and_nothing_leaves_in_clear_or_stays() {
    let name = "plugin_ovn_router_pods_talk_by_the_external_bridge_and_nothing_leaves_in_clear_or_stays";
    let Some(_turn) = root_test(name) else { return };
    let lab = Lab::new().unwrap();
    let mut pair = start(&lab, "wireguard");
    let plan = pair.plan().clone();
    let wire = Capture::start(&lab, &plan.wan, "br0", "").unwrap();
    pair.wait_policies().unwrap();
    let node = pair.east.node().namespace.clone();
    let devices = [BRIDGE, "ovn-k8s-mp0"].map(|device| Capture::start(&lab, &node, device, REMOTE).unwrap());

    // Out and in, both families, addresses kept; the node itself too.
    let [east, west] =
        ["east", "west"].map(|cluster| Responder::start(pair.pod_namespace(cluster, 0)).unwrap());
    let there = targets(&plan.cluster("west").pod(0).ips(), west.port());
    let here = targets(&plan.cluster("east").pod(0).ips(), east.port());
    reach(pair.pod_namespace("east", 0), &there);
    reach(pair.pod_namespace("east", 1), &there);
    reach(&node, &there);
    reach(pair.pod_namespace("west", 0), &here);
    reach(&pair.west.node().namespace, &here);

    // A service of OVN's load balancer, whose back end is a pod.
    let address = plan.cluster("east").service_cidrs[0].hosts().nth(9).unwrap();
    let backend = SocketAddr::new(plan.cluster("east").pod(0).v4().unwrap(), east.port());
    let service = SocketAddr::new(address, 80);
    pair.ovn.add_service("web", service, backend).unwrap();
    reach(pair.pod_namespace("west", 0), &[service]);

    // All of it passed the bridge and the proposal's router, and none of it the management port.
    let [bridge, port] = devices.map(|capture| capture.finish().unwrap());
    assert_ne!(bridge.count(ROUTER).unwrap(), 0);
    assert_eq!((bridge.count(&format!("not {ROUTER}")).unwrap(), port.frames.len()), (0, 0));

    // Somebody removes what leads to the other cluster while the worker is dead: nothing arrives, and nothing leaves.
    pair.sync.take().unwrap().kill().unwrap();
    pair.remove_policies().unwrap();
    reach_nothing(&pair, &there);
    pair.start_sync().unwrap();
    pair.wait_policies().unwrap();
    reach(pair.pod_namespace("east", 0), &there);

    // The gateway is killed: packets come to its node and are refused there.
    pair.east.kill_gateway().unwrap();
    reach_nothing(&pair, &there);
    pair.east.start_gateway().unwrap();
    reach(pair.pod_namespace("east", 0), &there);

    let frames = wire.finish().unwrap();
    assert_eq!(frames.count(INNER).unwrap(), 0, "inner addresses on the underlay: {}", frames.kinds(4500));

    // Nothing of ours stays, in the database or on the node.
    assert_ne!(left_on(&node), "");
    pair.sync.take().unwrap().stop().unwrap();
    pair.sync_run().unwrap().arg("--uninstall").finish().unwrap();
    let rows = pair.ovn.nbctl(&["show"]).unwrap();
    assert!(!rows.contains("subm"), "{rows}");
    assert_eq!(pair.ovn.nbctl(&["lr-policy-list", "ovn_cluster_router"]).unwrap().trim(), "");
    pair.east.stop().unwrap();
    pair.east.uninstall().unwrap();
    assert_eq!(left_on(&node), "");
}

#[test]
fn plugin_ovn_router_every_other_cable_carries_pods_behind_the_external_bridge() {
    let name = "plugin_ovn_router_every_other_cable_carries_pods_behind_the_external_bridge";
    let Some(_turn) = root_test(name) else { return };
    for cable in ["ipsec", "vxlan"] {
        let lab = Lab::new().unwrap();
        let pair = start(&lab, cable);
        pair.wait_policies().unwrap();
        for (from, to) in [("east", "west"), ("west", "east")] {
            let responder = Responder::start(pair.pod_namespace(to, 0)).unwrap();
            reach(pair.pod_namespace(from, 0), &targets(&pair.pod(to, 0).ips(), responder.port()));
        }
    }
}
