//! Services of a cluster that has no kube-proxy: nodes with back ends translate what its gateway sends them.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Instant;

use anyhow::Context;
use serde_json::json;
use trieste_tests::clusters::Node;
use trieste_tests::flow::Stream;
use trieste_tests::lab::Lab;
use trieste_tests::table::Table;
use trieste_tests::wait::eventually;

use super::{connected, flows};
use crate::several::losses::{BYTES, echo_service, stands};
use crate::shared::{SOON, in_parallel, without_proxy};
use crate::sides::{SERVICE_PORT, Side};

/// The gateway's program, as its container starts it.
const GATEWAY: &str = "trieste-gateway";
/// What it delivers by, remembered for the next one.
const REMEMBERED: &str = "/var/lib/trieste/services.json";

/// Pods of east ask services of west, whose nodes have no kube-proxy meanwhile.
pub(crate) fn run(lab: &Lab, sides: &[Side<'_>; 2], table: &Table) {
    let west = &sides[1];
    without_proxy(west.cluster, || {
        let own = &west.on_gateway;
        table.row("SV-2", "pod of the cluster → its own service: nobody translates", || {
            let answered = own.service.iter().any(|ip| own.pod.tcp((*ip, SERVICE_PORT).into(), 64).is_ok());
            anyhow::ensure!(!answered, "kube-proxy, or what it has made, is still there");
            Ok("no answer".to_owned())
        });
        flows::to_services(lab, sides, table);
        as_with_ipvs(lab, sides, table);
        table.row("SV-6", "a service without back ends: refused at once", || without_backends(sides));
        table.row(
            "SV-4",
            "the only gateway's process killed, no API server: a connection to a service",
            || killed(sides),
        );
    });
    eventually("kube-proxy to translate again", SOON, || {
        let own = &west.on_gateway;
        own.pod.tcp((own.service[0], SERVICE_PORT).into(), 64)
    })
    .unwrap();
}

/// All flows to services once more, whose addresses every node has.
fn as_with_ipvs(lab: &Lab, sides: &[Side<'_>; 2], table: &Table) {
    let west = &sides[1];
    let all: Vec<IpAddr> =
        west.actors().iter().flat_map(|(_, actor)| actor.service.iter().copied()).collect();
    let nodes: Vec<&Node> = west.cluster.nodes().iter().collect();
    in_parallel(&nodes, |node| node.hold_cluster_ips("add", &all).unwrap());
    let own = &west.on_worker;
    table.row("SV-3", "nodes have all cluster IPs, as with IPVS", || {
        let there = own.node.exec(&["ip", "-brief", "address"])?;
        anyhow::ensure!(there.contains(&format!("{}/", own.service[0])), "{there}");
        Ok(format!("{} addresses", all.len()))
    });
    flows::to_services(lab, sides, table);
    in_parallel(&nodes, |node| node.hold_cluster_ips("delete", &all).unwrap());
}

/// Nobody has to wait for what nobody serves.
fn without_backends([east, west]: &[Side<'_>; 2]) -> anyhow::Result<String> {
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "nobody", "namespace": "default"},
        "spec": {"selector": {"app": "nobody"}, "ports": [{"port": SERVICE_PORT}]}});
    let made = west.cluster.client().apply(&service)?;
    let ip: IpAddr = made["spec"]["clusterIP"].as_str().context("a service has an address")?.parse()?;
    let to = SocketAddr::new(ip, SERVICE_PORT);
    let started = Instant::now();
    let answer = east.on_worker.pod.netns().enter(|| Ok(TcpStream::connect_timeout(&to, stands())))?;
    let error = answer.err().context("somebody has answered")?;
    anyhow::ensure!(error.kind() == ErrorKind::ConnectionRefused, "{error}");
    Ok(format!("after {:.2?}", started.elapsed()))
}

/// A connection outlives the process of the only gateway, and new ones are possible, while nobody can say what serves.
fn killed(sides: &[Side<'_>; 2]) -> anyhow::Result<String> {
    let [east, west] = sides;
    let gateway = west.on_gateway.node;
    let (_echo, to) = echo_service(west)?;
    let connection = Stream::start(east.on_worker.pod.netns(), to, BYTES)?;
    connection.wait_on(stands()).context("before")?;
    eventually("the gateway to remember the service", SOON, || {
        let remembered = gateway.exec(&["cat", REMEMBERED])?;
        anyhow::ensure!(remembered.contains(&format!("\"{}\"", to.ip())), "{remembered}");
        Ok(())
    })?;
    gateway.cut_api()?;
    let done = killed_without_api(east, gateway, to, &connection);
    gateway.restore_api()?;
    done?;
    let longest = connection.finish()?;
    connected(sides)?;
    Ok(format!("at most {longest:.2?} without an answer"))
}

fn killed_without_api(
    east: &Side<'_>,
    gateway: &Node,
    to: SocketAddr,
    connection: &Stream,
) -> anyhow::Result<()> {
    let process = || gateway.exec(&["pgrep", "-x", GATEWAY]);
    let before = process()?;
    gateway.exec(&["pkill", "-KILL", "-x", GATEWAY])?;
    eventually("another process of the gateway", SOON, || {
        let now = process()?;
        anyhow::ensure!(now != before, "it is the same");
        Ok(())
    })?;
    connection.wait_on(stands())?;
    let another = Stream::start(east.on_gateway.pod.netns(), to, BYTES).context("a new connection")?;
    another.wait_on(stands())?;
    another.finish().map(drop)
}
