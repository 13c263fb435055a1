//! Globalnet where one of two clusters with the same addresses has OVN-Kubernetes: real gateways and their cable, the route agent,
//! the worker that writes OVN's database, and a real OVN with its data plane.
//!
//! ```text
//!   east pod 10.1.1.11 ─▶ OVN: policy for 242.2.0.0/16 ─▶ ovn-k8s-mp0 ─▶ gateway: from 242.1.0.x ══ gateway ─▶ west service
//!   west pod 10.1.1.11 ─▶ gateway ══ gateway: to 10.101.0.10 ─▶ table 149 ─▶ ovn-k8s-mp0 ─▶ OVN's load balancer ─▶ east pod
//! ```

use std::net::SocketAddr;

use trieste_tests::capture::{Cable, Capture};
use trieste_tests::globalnet::Client;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::ovn::globalnet::GlobalOvnPair;
use trieste_tests::ovn::pair::{OvnTopology, SOON};
use trieste_tests::pair::CONNECT_TIMEOUT;
use trieste_tests::table::Table;
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

/// Inner and global addresses of both clusters, in tcpdump's words.
const INNER: &str = "net 10.1.0.0/16 or net 10.101.0.0/16 or net 242.0.0.0/8";
/// Enough for the connection's window to grow beyond every queue on the way.
const LARGE: usize = 4 << 20;

/// The cables, their forms on the wire, and the largest TCP segment that may be offered: what the cable leaves of 1500, and no
/// more than the management port carries.
const CABLES: [(&str, Cable, u16); 3] =
    [("wireguard", Cable::WireGuard, 1340), ("ipsec", Cable::Ipsec, 1340), ("vxlan", Cable::Vxlan, 1360)];

fn start(lab: &Lab, cable: &str, topology: OvnTopology) -> GlobalOvnPair {
    GlobalOvnPair::start(lab, &format!("cable-driver: {cable}"), topology).unwrap_or_else(|error| {
        lab.show_logs();
        panic!("{cable}: {error:#}")
    })
}

/// Goes through all that pods and nodes ask each other.
fn check_flows(lab: &Lab, scene: &GlobalOvnPair, about: &str) {
    let table = Table::default();
    for flow in scene.flows() {
        table.row(flow.id, flow.what, || Ok(format!("seen as {}", flow.check(lab)?)));
    }
    for (id, what, client) in scene.clients_of_balancer() {
        table.row(id, what, || Ok(format!("seen as {}", scene.ask_balancer(client)?)));
    }
    eprintln!("{about}:\n{table}");
    table.assert_no_failure();
}

/// Sends much over TCP; no segment that is offered to either end is larger than `largest`.
fn send_much(lab: &Lab, scene: &GlobalOvnPair, largest: u16) {
    let ways = [(&scene.east, &scene.west), (&scene.west, &scene.east)];
    for (from, to) in ways.map(|(from, to)| (&from.plain, &to.server)) {
        let captures =
            [&from.netns, &to.netns].map(|netns| Capture::start(lab, netns, "eth0", "tcp").unwrap());
        let seen = from.tcp(to.service, LARGE).unwrap();
        assert!(from.leaves_as.contains(&seen), "{} is seen as {seen}", from.name);
        for capture in captures {
            let frames = capture.finish().unwrap();
            // What comes from the other cluster has a global source, and the size is the first of its options.
            let offer = "src net 242.0.0.0/8 and tcp[tcpflags] & tcp-syn != 0 and tcp[20:2] = 0x0204";
            let larger = frames.count(&format!("{offer} and tcp[22:2] > {largest}")).unwrap();
            assert_eq!((frames.count(offer).unwrap(), larger), (1, 0), "{} to {}", from.name, to.name);
        }
    }
}

/// Fails if anything arrives.
fn reach_nothing(client: &Client, to: SocketAddr) {
    let sent = traffic::send_tcp(&client.netns, to, b"x", SOON);
    assert!(sent.is_err(), "{} reaches {to}", client.name);
}

/// Waits until something arrives, from an address that the client may have.
fn reach(client: &Client, to: SocketAddr) {
    let seen = eventually("an answer", CONNECT_TIMEOUT, || {
        Ok(traffic::send_tcp(&client.netns, to, b"x", SOON)?.seen_as.ip())
    });
    let seen = seen.unwrap();
    let allowed = client.leaves_as.iter().any(|own| seen == std::net::IpAddr::from(*own));
    assert!(allowed, "{} is seen as {seen}", client.name);
}

#[test]
fn plugin_ovn_globalnet_reaches_services_and_pods_of_a_cluster_with_the_same_addresses_by_every_cable() {
    let name =
        "plugin_ovn_globalnet_reaches_services_and_pods_of_a_cluster_with_the_same_addresses_by_every_cable";
    let Some(_turn) = root_test(name) else { return };
    for (cable, on_the_wire, largest) in CABLES {
        let lab = Lab::new().unwrap();
        let scene = start(&lab, cable, OvnTopology::ClusterRouter);
        let wire = Capture::start(&lab, &scene.pair.plan().wan, "br0", "").unwrap();

        check_flows(&lab, &scene, cable);
        send_much(&lab, &scene, largest);

        let frames = wire.finish().unwrap();
        let kinds = frames.kinds_with(on_the_wire, 4500);
        assert_eq!(frames.count(INNER).unwrap(), 0, "{cable}: addresses of pods on the underlay: {kinds}");
    }
}

#[test]
fn plugin_ovn_globalnet_passes_a_router_of_submariners_own_alike() {
    let Some(_turn) = root_test("plugin_ovn_globalnet_passes_a_router_of_submariners_own_alike") else {
        return;
    };
    let lab = Lab::new().unwrap();
    let scene = start(&lab, "wireguard", OvnTopology::SubmarinerRouter);
    let wire = Capture::start(&lab, &scene.pair.plan().wan, "br0", "").unwrap();

    check_flows(&lab, &scene, "by the external bridge");
    send_much(&lab, &scene, 1340);

    let frames = wire.finish().unwrap();
    assert_eq!(frames.count(INNER).unwrap(), 0, "addresses of pods on the underlay: {}", frames.kinds(4500));
}

#[test]
fn plugin_ovn_globalnet_leads_to_global_networks_alone_and_nothing_leaves_in_clear_when_something_dies() {
    let name =
        "plugin_ovn_globalnet_leads_to_global_networks_alone_and_nothing_leaves_in_clear_when_something_dies";
    let Some(_turn) = root_test(name) else { return };
    let lab = Lab::new().unwrap();
    let mut scene = start(&lab, "wireguard", OvnTopology::ClusterRouter);
    let wire = Capture::start(&lab, &scene.pair.plan().wan, "br0", "").unwrap();
    let (pod, node) = (scene.east.plain.clone(), scene.east.host.clone());
    let targets = [scene.west.server.service, scene.west.server.headless];

    // The other cluster's global network and the own one, whose packets the gateway turns round; none of pods and services, which
    // both clusters have alike.
    assert_eq!(
        GlobalOvnPair::gateway_routes(&scene.pair.east).unwrap(),
        [r#"east: ["242.1.0.0/16"] via ["10.1.1.2"]"#, r#"west: ["242.2.0.0/16"] via ["10.1.1.2"]"#]
    );
    let policies = scene.pair.ovn.nbctl(&["lr-policy-list", "ovn_cluster_router"]).unwrap();
    let matches: Vec<&str> =
        policies.lines().filter_map(|line| line.split_once("ip4.dst == ")).map(|(_, rest)| rest).collect();
    assert_eq!(matches.len(), 4, "{policies}");
    assert!(
        matches.iter().all(|rest| rest.starts_with("242.1.0.0/16") || rest.starts_with("242.2.0.0/16")),
        "{policies}"
    );

    // The worker is killed, and somebody removes what leads to the gateway.
    scene.pair.sync.take().unwrap().kill().unwrap();
    scene.pair.remove_policies().unwrap();
    targets.iter().for_each(|target| reach_nothing(&pod, *target));
    scene.pair.start_sync().unwrap();
    scene.pair.wait_policies().unwrap();
    targets.iter().for_each(|target| reach(&pod, *target));

    // The gateway is killed: packets come to its node and are refused there.
    scene.pair.east.kill_gateway().unwrap();
    for client in [&pod, &node] {
        targets.iter().for_each(|target| reach_nothing(client, *target));
    }
    scene.pair.east.start_gateway().unwrap();
    for client in [&pod, &node] {
        targets.iter().for_each(|target| reach(client, *target));
    }
    reach(&scene.west.plain, scene.east.server.service);

    // Nothing of ours stays in the database.
    scene.pair.sync.take().unwrap().stop().unwrap();
    scene.pair.sync_run().unwrap().arg("--uninstall").finish().unwrap();
    let left = scene.pair.ovn.nbctl(&["lr-policy-list", "ovn_cluster_router"]).unwrap();
    assert!(!left.contains("242."), "{left}");
    let frames = wire.finish().unwrap();
    let kinds = frames.kinds(4500);
    assert_eq!(frames.count(INNER).unwrap(), 0, "addresses of pods on the underlay: {kinds}");
}
