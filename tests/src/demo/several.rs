//! `./dev demo --gateways 2 --workers 1`: every gateway carries flows; one is killed under traffic, another drained.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;

use super::screen::Screen;
use super::{CONNECT_TIMEOUT, Options, end};
use crate::flow::{Conversations, Echo, FlowSpec, Talk};
use crate::lab::Lab;
use crate::mesh::Mesh;
use crate::mesh::carriers::Carriers;
use crate::mesh::scenario::{Scenario, Target, Trial};
use crate::programs;
use crate::topology::{ClusterPlan, Topology};

/// UDP port of the echo in every pod.
const PORT: u16 = 7777;
/// Own port of the first flow.
const FIRST_PORT: u16 = 20_000;
/// Flows from each node of east to each of west.
const FLOWS_PER_WAY: u16 = 2;
/// TCP connections that talk from beginning to end.
const TALKS: usize = 8;
const WATCHED: Duration = Duration::from_secs(2);

/// Runs it in a lab.
pub(super) fn run_in(lab: &Lab, screen: &Screen, options: &Options) -> anyhow::Result<()> {
    let (gateways, workers) = (options.gateways, options.workers);
    screen.heading(&format!(
        "Two clusters, {gateways} active gateways and {workers} workers each (lab {})",
        lab.id()
    ));
    let topology = Topology::two_clusters().with_nodes(gateways, workers).with_pods(2);
    let title = "nodes as network namespaces, a gateway or a worker in each, pods on all; started";
    let cable = format!("cable-driver: {}", options.cable);
    let io = format!("io: {}", options.io);
    let mut mesh = screen.step_with(title, || {
        let mesh = Mesh::start(lab, &topology, &[&cable, &io])?;
        Ok((mesh.plan.clusters.iter().map(describe).collect(), mesh))
    })?;
    screen.step("every gateway has a path to every gateway of the other cluster", || {
        mesh.wait_traffic()?;
        mesh.settle()?;
        paths(&mesh)
    })?;
    let mut echoes = Vec::new();
    for node in mesh.plan.clusters.iter().flat_map(|cluster| &cluster.nodes) {
        echoes.push(Echo::start(&node.pods[0].namespace, PORT)?);
    }
    let carriers = Carriers::watch(&mesh, PORT)?;
    let talks = converse(&mesh)?;

    screen.heading("Gateways come and go; each flow sends a datagram every millisecond");
    let title = "a gateway of east is killed (SIGKILL)";
    injure(screen, &mut mesh, &carriers, title, Scenario::Kill)?;
    screen.step("it is started again, and has all of its paths", || {
        mesh.settle()?;
        Ok(vec![])
    })?;
    let node = mesh.side("east").gateway_node(0).name.clone();
    let title = format!("east $ trieste drain {node}");
    injure(screen, &mut mesh, &carriers, &title, Scenario::Drain)?;
    screen.step(&format!("east $ trieste drain {node} --undo"), || {
        mesh.settle()?;
        Ok(vec![])
    })?;
    screen.step(&format!("{TALKS} TCP connections that were there from the beginning"), || {
        let talks = talks.finish().context("a connection did not survive")?;
        let longest = talks.iter().map(|talk| talk.longest).max().unwrap_or_default();
        let answers: u64 = talks.iter().map(|talk: &Talk| talk.answers).sum();
        Ok(vec![format!(
            "all survived: {answers} questions answered, the slowest after {:.0} ms",
            longest.as_secs_f64() * 1e3
        )])
    })?;

    screen.heading("What a gateway of east says");
    screen.step("it has judged its cables (it does so every ten seconds)", || {
        mesh.side("east").wait_connected(0, gateways.into(), CONNECT_TIMEOUT)?;
        Ok(vec![])
    })?;
    for words in [["show", "gateways"], ["show", "connections"]] {
        let run = mesh.side("east").trieste(0, &words)?;
        screen.line(&format!("$ trieste {}", words.join(" ")));
        screen.quote(&run.stdout()?);
    }
    drop(echoes);
    if options.keep {
        lab.keep()?;
        screen.heading("Left up. Things to try:");
        for line in suggestions(lab, &mesh)? {
            screen.line(&line);
        }
        return Ok(());
    }
    end(lab, screen, "everything removed again", mesh)
}

fn describe(cluster: &ClusterPlan) -> String {
    let names = |nodes: &[crate::topology::NodePlan]| {
        nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>().join(", ")
    };
    format!("{:<5} gateways {}; workers {}", cluster.id, names(cluster.gateways()), names(cluster.workers()))
}

/// One line for each gateway.
fn paths(mesh: &Mesh) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    for side in &mesh.sides {
        for (number, node) in side.plan().gateways().iter().enumerate() {
            let status = side.status(number)?;
            let names = status.connections.iter().map(|cable| cable.connection.endpoint.hostname.as_str());
            lines.push(format!("{} → {}", node.name, names.collect::<Vec<_>>().join(", ")));
        }
    }
    Ok(lines)
}

/// TCP connections between the pods that are farthest from the gateways.
fn converse(mesh: &Mesh) -> anyhow::Result<Conversations> {
    let last = |cluster: &str| {
        let nodes = &mesh.plan.cluster(cluster).nodes;
        nodes.last().and_then(|node| node.pods.last()).context("every node has pods")
    };
    let (from, to) = (last("east")?, last("west")?);
    let address = to.v4().context("the demo's pods have IPv4")?;
    Conversations::start(&from.namespace, &to.namespace, |port| SocketAddr::new(address, port), TALKS)
}

/// Probes flows from all nodes of east to all of west while something is done to east's first gateway.
fn injure(
    screen: &Screen,
    mesh: &mut Mesh,
    carriers: &Carriers,
    title: &str,
    scenario: Scenario,
) -> anyhow::Result<()> {
    let target = Target { cluster: "east".to_owned(), gateway: 0 };
    let flows = flows(mesh)?;
    screen.step(title, || {
        let trial = mesh.trial(scenario, &target, &flows, Some(carriers), WATCHED)?;
        tell(mesh, carriers, &trial, scenario)
    })
}

fn tell(mesh: &Mesh, carriers: &Carriers, trial: &Trial, scenario: Scenario) -> anyhow::Result<Vec<String>> {
    let all = trial.outages.flows.len();
    let mut lines = Vec::new();
    for node in mesh.plan.clusters.iter().flat_map(|cluster| cluster.gateways()) {
        let flows: BTreeSet<u16> = carriers.of(&node.name)?;
        lines.push(format!("{} has carried {} of {all} flows", node.name, flows.len()));
    }
    let (count, lost) = (trial.affected().count(), trial.affected().map(|flow| flow.lost).sum::<u32>());
    let longest = trial.affected().map(|flow| flow.longest_us).max().unwrap_or_default();
    anyhow::ensure!(count > 0, "the gateway carried no flow");
    lines.push(if scenario == Scenario::Drain {
        format!("the {count} flows that it carried went elsewhere: {lost} datagrams lost")
    } else {
        let longest = f64::from(longest) / 1e3;
        format!("the {count} flows that it carried were back after {longest:.0} ms at most ({lost} datagrams lost)")
    });
    let (count, lost) = (trial.others().count(), trial.others().map(|flow| flow.lost).sum::<u32>());
    lines.push(format!("the {count} other flows lost {lost}"));
    Ok(lines)
}

fn flows(mesh: &Mesh) -> anyhow::Result<Vec<FlowSpec>> {
    let is_east = |name: &str| mesh.plan.cluster("east").nodes.iter().any(|node| node.name == name);
    let mut flows = Vec::new();
    let ways: Vec<_> = mesh.ways().into_iter().filter(|(from, _)| is_east(&from.name)).collect();
    let count = ways.len() * usize::from(FLOWS_PER_WAY);
    for ((from, to), port) in ways.into_iter().cycle().take(count).zip(FIRST_PORT..) {
        let address = to.pods[0].v4().context("the demo's pods have IPv4")?;
        flows.push(FlowSpec {
            name: format!("{} to {}", from.name, to.name),
            from: from.pods[0].namespace.clone(),
            to: SocketAddr::new(address, PORT),
            port,
        });
    }
    Ok(flows)
}

fn suggestions(lab: &Lab, mesh: &Mesh) -> anyhow::Result<Vec<String>> {
    let east = mesh.side("east");
    let trieste = programs::path("trieste")?;
    let (pod, node) = (mesh.pod("east", 0, 0), east.gateway_node(0));
    let target = mesh.pod("west", 0, 0).v4().context("the demo's pods have IPv4")?;
    let socket = east.socket(0)?;
    Ok(vec![
        format!("ip netns exec {} ping {target}", pod.namespace.name()),
        format!("{} show connections --socket {}", trieste.display(), socket.display()),
        format!("kill -9 {}      (the gateway on {})", east.gateway(0)?.id().pid, node.name),
        format!("ip netns exec {} ip route show table 150", node.namespace.name()),
        format!("tail -f {}/*.log", lab.directory().join("logs").display()),
        String::new(),
        "./dev clean      removes it all".to_owned(),
    ])
}
