//! The same with Globalnet: clusters whose pods have the same addresses.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use trieste_tests::flow::{Conversations, Echo, FlowOutage, FlowSpec};
use trieste_tests::globalnet::Objects;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::mesh::Mesh;
use trieste_tests::mesh::scenario::{Scenario, Target};
use trieste_tests::topology::Topology;
use trieste_tests::wait::eventually;

use super::{INTERVAL, PORT, undisturbed};

const BAR: Duration = Duration::from_secs(2);

#[test]
fn translated_flows_and_connections_survive_the_loss_of_a_gateway() {
    let name = "translated_flows_and_connections_survive_the_loss_of_a_gateway";
    let Some(_turn) = root_test(name) else { return };
    let lab = Lab::new().unwrap();
    let topology = Topology::two_alike().with_nodes(2, 1).with_pods(2);
    let mut mesh = Mesh::start(&lab, &topology, &[]).unwrap();
    mesh.interval = INTERVAL;
    let servers = serve(&mesh);
    let _echoes: Vec<Echo> = mesh
        .plan
        .cluster("west")
        .nodes
        .iter()
        .map(|node| Echo::start(&node.pods[0].namespace, PORT).unwrap())
        .collect();
    mesh.settle().unwrap();
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
                    let is_slow = |flow: &&FlowOutage| Duration::from_micros(flow.longest_us.into()) >= BAR;
                    trial.outages.flows.iter().filter(is_slow).map(|flow| format!("{flow:?}")).collect()
                },
            );
            assert!(slow.is_empty(), "{scenario}: {slow:#?}");
        }
    }

    talks.finish().unwrap();
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
