//! The same with Globalnet: clusters whose pods have the same addresses.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use trieste_control::members::paths_namespace;
use trieste_tests::cluster::NAMESPACE;
use trieste_tests::flow::{Conversations, Echo, FlowSpec, Probing};
use trieste_tests::globalnet::Objects;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::mesh::Mesh;
use trieste_tests::mesh::scenario::{Scenario, Target};
use trieste_tests::topology::Topology;
use trieste_tests::wait::eventually;

use super::{INTERVAL, PORT, undisturbed};

#[test]
fn translated_flows_and_connections_survive_the_loss_of_a_gateway() {
    let name = "translated_flows_and_connections_survive_the_loss_of_a_gateway";
    let Some(_turn) = root_test(name) else { return };
    let (mut mesh, servers, _echoes) = start();
    let flows = flows(&mesh, &servers);
    let [client, server] = ["east", "west"].map(|cluster| mesh.pod(cluster, 2, 0).clone());
    let to = |port| SocketAddr::new(servers[2].into(), port);
    let talks = eventually("a connection", Duration::from_secs(20), || {
        Conversations::start(&client.namespace, &server.namespace, to, 6)
    })
    .unwrap();

    for (cluster, gateway) in [("east", 0), ("west", 1)] {
        for scenario in [Scenario::Kill, Scenario::Restart] {
            let target = Target { cluster: cluster.to_owned(), gateway };
            let slow = undisturbed(
                &mut mesh,
                |mesh| mesh,
                |mesh| {
                    let trial = mesh.trial(scenario, &target, &flows, None, Duration::from_secs(2)).unwrap();
                    eprintln!("{scenario} {cluster}-gw{}: {}", gateway + 1, trial.outages.line());
                    mesh.settle().unwrap();
                    super::slow(&trial.outages)
                },
            );
            assert!(slow.is_empty(), "{scenario}: {slow:#?}");
        }
    }

    talks.finish().unwrap();
}

/// A gateway has carried its cluster alone for a while, with all ports. Another one comes: all pods' new and old connections
/// go on, and it takes its part.
#[test]
fn a_gateway_that_comes_translates_nothing_before_it_can_and_then_its_part() {
    let name = "a_gateway_that_comes_translates_nothing_before_it_can_and_then_its_part";
    let Some(_turn) = root_test(name) else { return };
    let (mut mesh, servers, _echoes) = start();
    let [client, server] = ["east", "west"].map(|cluster| mesh.pod(cluster, 2, 0).clone());

    // Its shares are free before it is gone: when that is seen, whoever stays takes them.
    let leases = mesh.side("east").store().join(paths_namespace(NAMESPACE)).join("leases");
    let held_by = |gateway: usize, mesh: &Mesh| -> Vec<PathBuf> {
        let host = &mesh.side("east").gateway_node(gateway).name;
        let all = std::fs::read_dir(&leases).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains(host))).collect()
    };
    let free = |mesh: &Mesh| held_by(1, mesh).iter().for_each(|lease| std::fs::remove_file(lease).unwrap());
    free(&mesh);
    mesh.side_mut("east").stop_gateway(1, Duration::from_secs(5)).unwrap();
    mesh.side("east").forget_gateway(1).unwrap();
    // It may have taken one more meanwhile.
    free(&mesh);
    eventually("the other gateway to have all ports", Duration::from_secs(40), || {
        let held = held_by(0, &mesh);
        anyhow::ensure!(held.len() == 8, "{held:?}");
        Ok(())
    })
    .unwrap();

    let flows = flows(&mesh, &servers);
    let probing = Probing::start_every(INTERVAL, &flows).unwrap();
    probing.wait_through(Duration::from_secs(20)).unwrap();
    let began = probing.now();
    mesh.side_mut("east").start_gateway(1).unwrap();
    let to = |port| SocketAddr::new(servers[2].into(), port);
    let mut connections = 0;
    eventually("the new gateway to have its part", Duration::from_secs(30), || {
        let talks = Conversations::start(&client.namespace, &server.namespace, to, 4)?;
        connections += talks.finish()?.len();
        let sharing = translation(&mesh, 1)?["sharing"].clone();
        anyhow::ensure!(sharing["slots"].as_array().is_some_and(|slots| !slots.is_empty()), "{sharing}");
        anyhow::ensure!(sharing["buckets"].as_u64() > Some(0), "{sharing}");
        Ok(())
    })
    .unwrap();
    // Its part carries new connections too.
    let talks = Conversations::start(&client.namespace, &server.namespace, to, 16).unwrap();
    connections += talks.finish().unwrap().len();

    let outages = probing.since(began).unwrap();
    assert_eq!(outages.lost(), 0, "{connections} connections; {}", outages.line());
    let drops = mesh.side("east").status(1).unwrap().drops;
    let not_ready = drops.iter().filter(|drop| drop.reason == "nat_not_ready" && drop.packets > 0).count();
    assert_eq!(not_ready, 0, "{drops:?}");
    mesh.settle().unwrap();
}

/// Two clusters whose pods have the same addresses, all paths up; west's global addresses, and who answers there.
fn start() -> (Mesh, Vec<Ipv4Addr>, Vec<Echo>) {
    let lab = Lab::new().unwrap();
    let topology = Topology::two_alike().with_nodes(2, 1).with_pods(2);
    let mut mesh = Mesh::start(&lab, &topology, &[]).unwrap();
    mesh.interval = INTERVAL;
    let servers = serve(&mesh);
    let west = &mesh.plan.cluster("west").nodes;
    let echoes = west.iter().map(|node| Echo::start(&node.pods[0].namespace, PORT).unwrap()).collect();
    mesh.settle().unwrap();
    (mesh, servers, echoes)
}

/// What a gateway of east says of translation.
fn translation(mesh: &Mesh, gateway: usize) -> anyhow::Result<serde_json::Value> {
    let run = mesh.side("east").trieste(gateway, &["show", "globalnet", "--output", "json"])?;
    Ok(serde_json::from_str(&run.output()?.stdout)?)
}

/// Exports the first pod of each of west's nodes; their global addresses.
fn serve(mesh: &Mesh) -> Vec<Ipv4Addr> {
    let west = mesh.side("west");
    let objects = Objects::at(west.store());
    objects.namespace("default").unwrap();
    let nodes = &west.plan().nodes;
    for (number, node) in nodes.iter().enumerate() {
        let std::net::IpAddr::V4(address) = node.pods[0].v4().unwrap() else { unreachable!() };
        objects.pod("default", &format!("server-{number}"), "db", address).unwrap();
    }
    objects.service("db", ("app", "db"), None).unwrap();
    objects.export("db").unwrap();
    (0..nodes.len()).map(|number| objects.ingress_of(&format!("pod-server-{number}")).unwrap()).collect()
}

/// Flows from every node of east to every server.
fn flows(mesh: &Mesh, servers: &[Ipv4Addr]) -> Vec<FlowSpec> {
    let nodes = &mesh.plan.cluster("east").nodes;
    let pairs = nodes.iter().flat_map(|node| servers.iter().map(move |server| (node, *server)));
    pairs
        .map(|(node, server)| FlowSpec {
            name: format!("{} to {server}", node.name),
            from: node.pods[0].namespace.clone(),
            to: SocketAddr::new(server.into(), PORT),
            port: 0,
        })
        .collect()
}
