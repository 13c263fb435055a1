//! Several nodes with a real OVN each, Geneve between them: as in [`super::plugin_ovn`], but pods on other nodes than the gateway's,
//! and a gateway that moves to another node.
//!
//! ```text
//!   pod of worker3 ─▶ ovn_cluster_router ─▶ Geneve ─▶ ovn-k8s-mp0 of the gateway's node ─▶ gateway ══ WAN bridge ══ gateway ─▶ west pod
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use trieste_control::api::HaStatus;
use trieste_tests::capture::Capture;
use trieste_tests::flow::{Echo, FlowSpec, Probing};
use trieste_tests::guard::{self, root_test};
use trieste_tests::lab::Lab;
use trieste_tests::ovn::nodes::{GENEVE, OvnNodes, Zones};
use trieste_tests::ovn::pair::OvnTopology;
use trieste_tests::traffic::{self, Responder, pattern};
use trieste_tests::wait::eventually;

use super::plugin_ovn::{INNER, reach, targets};

/// How long another gateway may take until it leads: upstream's lease, and more.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The port of a service and of the pod behind it.
const PORT: u16 = 8080;
/// How often each flow asks.
const INTERVAL: Duration = Duration::from_millis(10);

fn start(lab: &Lab, zones: Zones, topology: OvnTopology) -> OvnNodes {
    OvnNodes::start(lab, zones, topology).unwrap_or_else(|error| {
        lab.show_logs();
        panic!("{error:#}")
    })
}

/// Sends from and to the pod of each node, and the nodes themselves, both families.
fn check_pods(nodes: &OvnNodes) {
    let (east, west) = (nodes.mesh.plan.cluster("east"), nodes.mesh.plan.cluster("west"));
    let far = Responder::start(&west.pod(0).namespace).unwrap();
    let there = targets(&west.pod(0).ips(), far.port());
    for node in &east.nodes {
        reach(&node.pods[0].namespace, &there);
        reach(&node.namespace, &there);
        let near = Responder::start(&node.pods[0].namespace).unwrap();
        reach(&west.pod(0).namespace, &targets(&node.pods[0].ips(), near.port()));
    }
}

/// Sends datagrams in pieces to and from a pod behind the worker's switch, and to a service with that pod behind it, which is made
/// if it `is_new`.
fn check_more(nodes: &OvnNodes, is_new: bool) {
    let [near, far] =
        [("east", 2), ("west", 0)].map(|(cluster, node)| nodes.mesh.pod(cluster, node, 0).clone());
    let bytes = pattern(5000);
    let responder = Responder::start(&near.namespace).unwrap();
    let other = Responder::start(&far.namespace).unwrap();
    for (from, to, port) in [(&far, &near, responder.port()), (&near, &far, other.port())] {
        for target in targets(&to.ips(), port) {
            let receipt = traffic::send_udp(&from.namespace, target, &bytes, TIMEOUT).unwrap();
            receipt.check(&bytes).unwrap();
        }
    }
    let backend = SocketAddr::new(near.v4().unwrap(), PORT);
    let _backend = Responder::start_on(&near.namespace, PORT).unwrap();
    if is_new {
        nodes.ovn.iter().for_each(|node| node.add_service("web", service(nodes), backend).unwrap());
    }
    reach(&far.namespace, &[service(nodes)]);
}

/// Returns the address and port of a service, which has the worker's pod behind it.
fn service(nodes: &OvnNodes) -> SocketAddr {
    let network = nodes.mesh.plan.cluster("east").service_cidrs[0];
    SocketAddr::new(network.hosts().nth(9).unwrap(), PORT)
}

/// Fails unless pods of the worker have a way out in clear: what is for the other cluster could leave by it.
fn check_way_out(nodes: &OvnNodes) {
    let pod = &nodes.mesh.pod("east", 2, 0).namespace;
    for router in ["172.31.255.254", "fd00:31::ffff"] {
        eventually(router, TIMEOUT, || {
            let ping = traffic::ping(pod, router.parse()?, 1, &[])?;
            anyhow::ensure!(ping.received == 1, "no answer");
            Ok(())
        })
        .unwrap();
    }
}

/// Returns which of east's gateways leads.
fn leader(nodes: &OvnNodes) -> usize {
    let east = nodes.mesh.side("east");
    let leads =
        |gateway: usize| east.status(gateway).is_ok_and(|status| status.ha_status == HaStatus::Active);
    eventually("one leader", TIMEOUT, || {
        let [first, second] = [leads(0), leads(1)];
        anyhow::ensure!(first != second, "{first} {second}");
        Ok(usize::from(second))
    })
    .unwrap()
}

/// Ends the leader while pods of the worker ask one of the other cluster, and waits until answers come by the other gateway.
/// Returns which one leads.
fn move_gateway(nodes: &mut OvnNodes, what: &str, end: impl Fn(&mut OvnNodes, usize)) -> usize {
    let far = nodes.mesh.pod("west", 0, 0).clone();
    let echo = Echo::start(&far.namespace, 0).unwrap();
    let flows = far.ips().into_iter().map(|ip| FlowSpec {
        name: format!("worker3 to {ip}"),
        from: nodes.mesh.pod("east", 2, 0).namespace.clone(),
        to: SocketAddr::new(ip, echo.port()),
        port: 0,
    });
    let probing = Probing::start_every(INTERVAL, &flows.collect::<Vec<_>>()).unwrap();
    probing.wait_through(TIMEOUT).unwrap();
    let (mark, start, former) = (probing.now(), Instant::now(), leader(nodes));
    end(nodes, former);
    let now = eventually("another leader", TIMEOUT, || {
        let now = leader(nodes);
        anyhow::ensure!(now != former, "it is the former one");
        Ok(now)
    });
    probing.wait_through(TIMEOUT).unwrap();
    let outages = probing.since(mark).unwrap();
    eprintln!("{what}, {:.1} s: {}", start.elapsed().as_secs_f64(), outages.line());
    now.unwrap()
}

/// Moves the gateway from node to node, asked to and not, and checks afterwards what it did before.
fn check_moves(nodes: &mut OvnNodes) {
    let stop = |nodes: &mut OvnNodes, gateway: usize| {
        nodes.mesh.side_mut("east").stop_gateway(gateway, TIMEOUT).unwrap();
    };
    let first = leader(nodes);
    let second = move_gateway(nodes, "gateway asked to end", stop);
    check_pods(nodes);
    nodes.mesh.side_mut("east").start_gateway(first).unwrap();
    eventually("a second gateway", TIMEOUT, || nodes.mesh.side("east").status(first).map(drop)).unwrap();
    // As when its node is lost, but for the node.
    let kill = |nodes: &mut OvnNodes, gateway: usize| {
        nodes.mesh.side_mut("east").kill_gateway(gateway).unwrap();
        nodes.kill_worker(gateway).unwrap();
    };
    assert_eq!(move_gateway(nodes, "gateway and worker killed", kill), first);
    nodes.start_worker(second).unwrap();
    check_pods(nodes);
}

fn run(zones: Zones, topology: OvnTopology) {
    let lab = Lab::new().unwrap();
    let mut nodes = start(&lab, zones, topology);
    let wan = nodes.mesh.plan.wan.clone();
    let [wire, between] = ["br0", GENEVE].map(|device| Capture::start(&lab, &wan, device, "").unwrap());
    let wait_led = |nodes: &OvnNodes| match topology {
        OvnTopology::ClusterRouter => nodes.wait_led_to(leader(nodes)).unwrap(),
        OvnTopology::SubmarinerRouter => {}
    };

    check_way_out(&nodes);
    wait_led(&nodes);
    check_pods(&nodes);
    check_more(&nodes, true);
    assert_ne!(between.finish().unwrap().count("udp port 6081").unwrap(), 0, "nothing passed between nodes");
    check_moves(&mut nodes);
    wait_led(&nodes);
    check_more(&nodes, false);

    // Nothing of ours stays in any database.
    assert_eq!(nodes.uninstall_workers().unwrap(), "");
    let frames = wire.finish().unwrap();
    assert_eq!(frames.count(INNER).unwrap(), 0, "inner addresses on the underlay: {}", frames.kinds(4500));
}

#[test]
fn plugin_ovn_nodes_pods_of_every_node_pass_the_gateways_which_moves() {
    let Some(_turn) = root_test("plugin_ovn_nodes_pods_of_every_node_pass_the_gateways_which_moves") else {
        return;
    };
    run(Zones::One, OvnTopology::ClusterRouter);
}

#[test]
fn plugin_ovn_nodes_pods_of_every_node_pass_submariners_router_which_moves() {
    let name = "plugin_ovn_nodes_pods_of_every_node_pass_submariners_router_which_moves";
    if std::env::var_os("TRIESTE_NIGHTLY").is_none() {
        // Beside other tests the worker's pod found no answer for a minute, once in five runs.
        return guard::skip(name, "its cause of failing beside other tests is not found; --nightly runs it");
    }
    let Some(_turn) = root_test(name) else { return };
    run(Zones::One, OvnTopology::SubmarinerRouter);
}

#[test]
fn plugin_ovn_nodes_pods_of_every_zone_pass_the_gateways_which_moves() {
    let Some(_turn) = root_test("plugin_ovn_nodes_pods_of_every_zone_pass_the_gateways_which_moves") else {
        return;
    };
    run(Zones::EachNode, OvnTopology::ClusterRouter);
}
