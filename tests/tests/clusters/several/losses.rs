//! The plug of a gateway's node is pulled: connections of services and of Globalnet go on by the other gateway.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use trieste_tests::clusters::{Cluster, Node};
use trieste_tests::flow::{Stream, TcpEcho};
use trieste_tests::globalnet::Site;
use trieste_tests::guard;
use trieste_tests::netns::Namespace;
use trieste_tests::table::Table;

use crate::shared::{SOON, Two};
use crate::sides::Side;

/// Connections of each kind: the chance that a gateway carries none of them is 1 in 4,096.
const STREAMS: usize = 12;
pub(crate) const BYTES: usize = 2000;
/// Where the pods listen, and the service of those without Globalnet.
const ECHO_PORT: u16 = 7100;

/// Returns the longest that a connection may stand: the loss is seen in a quarter of a second at most, then what TCP has lost comes
/// again after twice as long each time. The node is off meanwhile: who is bound to it never goes on.
pub(crate) fn stands() -> Duration {
    Duration::from_secs(30) + guard::slack()
}

/// Connections to a service, while a gateway of the server's cluster dies and then one of the client's.
pub(crate) fn of_services(two: &Two, sides: &[Side<'_>; 2], table: &Table) {
    let [east, west] = sides;
    let (_echo, to) = echo_service(west).unwrap();
    for (id, node) in [("west", west.cluster.node(3)), ("east", east.cluster.node(3))] {
        table.row(id, "connections to a service, gateway's node lost", || {
            lose(two, node, east.on_worker.pod.netns(), to)
        });
    }
}

/// Starts an echo server in the pod on the worker of a side, with a service.
///
/// # Errors
/// If the server or the service cannot be made.
pub(crate) fn echo_service(side: &Side<'_>) -> anyhow::Result<(TcpEcho, SocketAddr)> {
    let server = &side.on_worker.pod;
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "echo", "namespace": "default"},
        "spec": {"selector": {"app": server.name}, "ports": [{"port": ECHO_PORT}]}});
    let made = side.cluster.client().apply(&service)?;
    let ip: IpAddr = made["spec"]["clusterIP"].as_str().context("a service has an address")?.parse()?;
    Ok((TcpEcho::start(server.netns(), ECHO_PORT)?, SocketAddr::new(ip, ECHO_PORT)))
}

/// Connections that are translated at both ends, while a gateway of each cluster dies.
pub(crate) fn of_translations(two: &Two, east: &Site, west: &Site, table: &Table) {
    let server = &west.worker.server;
    let _echo = TcpEcho::start(&server.netns, ECHO_PORT).unwrap();
    let to = SocketAddr::new(server.headless.ip(), ECHO_PORT);
    for cluster in two.set.clusters.all() {
        table.row(cluster.name(), "translated connections, gateway's node lost", || {
            lose(two, cluster.node(3), &east.worker.plain.netns, to)
        });
    }
}

fn is_of(node: &Node, cluster: &Cluster) -> bool {
    cluster.nodes().iter().any(|one| std::ptr::eq(one, node))
}

/// Pulls the plug of a node while connections talk, and puts it in again.
fn lose(two: &Two, node: &Node, client: &Namespace, to: SocketAddr) -> anyhow::Result<String> {
    // A path that is held back leaves a gateway without its share of them.
    two.steady()?;
    let start = || (0..STREAMS).map(|_| Stream::start(client, to, BYTES)).collect::<Result<Vec<_>, _>>();
    let streams = start()?;
    let seen_as: Vec<_> = streams.iter().map(Stream::seen_as).collect();
    node.kill()?;
    let gone_on = streams.iter().try_for_each(|stream| stream.wait_on(stands()));
    let longest: Result<Vec<Duration>, _> = streams.into_iter().map(Stream::finish).collect();
    let opened = start().and_then(|streams| streams.into_iter().try_for_each(|one| one.finish().map(drop)));
    node.start()?;
    let cluster = two.set.clusters.all().iter().find(|cluster| is_of(node, cluster));
    cluster.context("a node has a cluster")?.wait_node(node, true, SOON)?;
    two.settle().context("the node to be a gateway again")?;
    gone_on?;
    opened?;
    let longest = longest?.into_iter().max().unwrap_or_default();
    Ok(format!("{} connections stood for {longest:.2?} at most", seen_as.len()))
}
