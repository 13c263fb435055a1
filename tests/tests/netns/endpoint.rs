//! Where a gateway says that it is: an explicit address, interface or port, also by its Node object, and a public
//! address that nobody can tell.
//!
//! ```text
//!   east-gw1 eth0 172.31.1.1 ── br0 (WAN) ── 172.31.2.1 eth0 west-gw1
//!            eth1 172.30.1.1 ── br1 ──────── 172.30.2.1 eth1
//! ```

use std::time::{Duration, Instant};

use trieste_tests::capture::Capture;
use trieste_tests::cluster::{Cluster, Settings};
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::pair::{CONNECT_TIMEOUT, Pair};
use trieste_tests::topology::{Families, Plan, Topology};
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

const TIMEOUT: Duration = Duration::from_secs(30);
/// The MTU of the second network: a gateway goes by the one of its own interface.
const SECOND_MTU: u32 = 1400;
/// What a cable adds at most.
const OVERHEAD: u32 = 80;

#[test]
fn the_chosen_address_interface_and_port_carry_the_cable() {
    let Some(_turn) = root_test("the_chosen_address_interface_and_port_carry_the_cable") else { return };
    let lab = Lab::new().unwrap();
    let mut plan = lab.build(&Topology::two_clusters().with_underlay(Families::V4)).unwrap();
    add_second_network(&mut plan);
    let first = Capture::start(&lab, &plan.wan, "br0", "").unwrap();
    let mut settings = Settings::of(&lab);
    settings.udp_port = 4501;

    // By address, in the configuration.
    let mut east = Cluster::start(&lab, plan.cluster("east"), &settings).unwrap();
    let mut west = Cluster::start(&lab, plan.cluster("west"), &settings).unwrap();
    assert_connected(&plan, &east, &west, [4501, 4501]);

    // By interface, in the configuration.
    west.kill_gateway().unwrap();
    set_up_anew(&west, "endpoint-interface: eth1");
    west.start_gateway().unwrap();
    assert_connected(&plan, &east, &west, [4501, 4501]);

    // By interface and port, in the Node object.
    east.kill_gateway().unwrap();
    set_up_anew(&east, "node-name: east-gw1");
    put_node(
        &east,
        "  labels: {submariner.io/gateway: \"true\", gateway.submariner.io/udp-port: \"4502\"}\n  \
         annotations: {trieste.io/endpoint-interface: eth1}\n",
    );
    east.start_gateway().unwrap();
    assert_connected(&plan, &east, &west, [4502, 4501]);

    // By address, in the Node object; a port that is changed later waits for a restart, and says so.
    east.kill_gateway().unwrap();
    let address = |port: u16| {
        format!(
            "  labels: {{submariner.io/gateway: \"true\", gateway.submariner.io/udp-port: \"{port}\"}}\n  \
             annotations: {{trieste.io/endpoint-ip: 172.30.1.1}}\n"
        )
    };
    put_node(&east, &address(4503));
    east.start_gateway().unwrap();
    assert_connected(&plan, &east, &west, [4503, 4501]);
    put_node(&east, &address(4504));
    let message = condition(&east, "RestartNeeded");
    assert!(message.contains("udp-port is 4504, in use is 4503"), "{message}");
    assert_connected(&plan, &east, &west, [4503, 4501]);

    let frames = first.finish().unwrap();
    let kinds = frames.kinds(4501);
    assert!(kinds.cable == 0 && kinds.others.is_empty(), "on the network that was not chosen: {kinds}");
}

#[test]
fn a_public_address_that_nobody_can_tell_is_a_condition_and_the_private_one_connects() {
    let name = "a_public_address_that_nobody_can_tell_is_a_condition_and_the_private_one_connects";
    let Some(_turn) = root_test(name) else { return };
    let topology = Topology::two_clusters().with_underlay(Families::V4);
    let start = Instant::now();
    let resolvers = "public-ip: \"dns:gateway.example.invalid,api:ip.example.invalid\"";
    let pair = Pair::connected_with(&topology, &[resolvers, "nat-enabled: true"]).unwrap();
    eprintln!("without a public address: handshakes {} ms after an empty lab", start.elapsed().as_millis());

    for cluster in [&pair.east, &pair.west] {
        let process = cluster.gateway().unwrap().id();
        let message = condition(cluster, "PublicIpUnknown");
        eprintln!("{}: {message}", cluster.plan().id);
        for resolver in ["dns:gateway.example.invalid", "api:ip.example.invalid"] {
            assert!(message.contains(resolver), "{resolver} is missing in: {message}");
        }
        let status = cluster.status().unwrap();
        assert_eq!((status.endpoint.public_ip.as_str(), status.failure.as_str()), ("", ""));
        let found = &status.connections[0];
        assert_eq!(found.discovery.as_ref().unwrap().state, "private");
        let daemon = cluster.gateway().unwrap();
        assert_eq!((daemon.id(), daemon.log_text().matches("gateway runs").count()), (process, 1));
        assert!(process.is_running());
    }
    let target = pair.pod("west").v4().unwrap();
    assert_eq!(traffic::ping(pair.pod_namespace("east"), target, 3, &[]).unwrap().received, 3);
}

/// A second network, and addresses in it that the plan takes for the nodes' own from here on.
fn add_second_network(plan: &mut Plan) {
    plan.wan.ip("link add br1 type bridge mcast_snooping 0\nlink set br1 up\n").unwrap();
    for (number, cluster) in (1..).zip(&mut plan.clusters) {
        let node = &mut cluster.nodes[0];
        let name = node.namespace.name();
        plan.wan
            .ip(&format!(
                "link add second{number} type veth peer name eth1 netns {name}\n\
                 link set second{number} mtu {SECOND_MTU} master br1 up\n"
            ))
            .unwrap();
        let address = format!("172.30.{number}.1/16");
        node.namespace
            .ip(&format!("addr add {address} dev eth1\nlink set eth1 mtu {SECOND_MTU} up\n"))
            .unwrap();
        node.underlay = vec![address.parse().unwrap()];
    }
}

/// Takes the address out of a gateway's configuration and puts a line in.
fn set_up_anew(cluster: &Cluster, line: &str) {
    let path = cluster.config_path();
    let text = std::fs::read_to_string(&path).unwrap();
    let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with("private-ip:")).collect();
    std::fs::write(&path, format!("{}\n{line}\n", kept.join("\n"))).unwrap();
}

/// Writes the gateway's Node object into its cluster's store.
fn put_node(cluster: &Cluster, metadata: &str) {
    let folder = cluster.store().join("_cluster/nodes");
    std::fs::create_dir_all(&folder).unwrap();
    let name = &cluster.node().name;
    let text = format!("apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n{metadata}");
    let partial = folder.join(".partial");
    std::fs::write(&partial, text).unwrap();
    std::fs::rename(partial, folder.join(format!("{name}.yaml"))).unwrap();
}

fn assert_connected(plan: &Plan, east: &Cluster, west: &Cluster, ports: [u16; 2]) {
    let start = Instant::now();
    for (number, (cluster, peer)) in (0..).zip([(east, west), (west, east)]) {
        let status = eventually("the peer's port", CONNECT_TIMEOUT, || {
            let status = cluster.wait_handshakes(1, Duration::ZERO)?;
            let outer = status.connections[0].lane.outer_address;
            anyhow::ensure!(outer.is_some_and(|outer| outer.port() == ports[1 - number]), "{outer:?}");
            Ok(status)
        })
        .unwrap();
        let outer = status.connections[0].lane.outer_address.unwrap();
        assert_eq!(outer.ip(), peer.node().underlay_address());
        assert_eq!(status.connections[0].lane.path_mtu_bytes, Some(SECOND_MTU - OVERHEAD));
        let endpoint = &status.endpoint;
        assert_eq!(endpoint.private_ip, cluster.node().underlay_address().to_string());
        assert_eq!(endpoint.backend_config["udp-port"], ports[number].to_string());
    }
    let (from, to) = (plan.cluster("east").pod(0), plan.cluster("west").pod(0));
    eventually("pods to reach pods", CONNECT_TIMEOUT, || {
        let ping = traffic::ping(&from.namespace, to.v4().unwrap(), 3, &[])?;
        anyhow::ensure!(ping.received == 3, "{ping:?}");
        Ok(())
    })
    .unwrap();
    eprintln!("ports {ports:?}: connected after {} ms", start.elapsed().as_millis());
}

/// Waits for a condition; gives its sentence.
fn condition(cluster: &Cluster, name: &str) -> String {
    eventually(name, TIMEOUT, || {
        let conditions = cluster.status()?.conditions;
        let found = conditions.iter().find(|condition| condition.name == name);
        found.map(|found| found.message.clone()).ok_or_else(|| anyhow::anyhow!("only {conditions:?}"))
    })
    .unwrap()
}
