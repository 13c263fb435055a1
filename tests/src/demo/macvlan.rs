//! `--plugin macvlan`: pods with a macvlan device beside their cluster's own network, on every node of east.

use std::net::SocketAddr;

use super::screen::Screen;
use super::{MARKER, Options, describe, end, seen_by};
use crate::capture::Capture;
use crate::lab::Lab;
use crate::macvlan::{MacvlanPair, NETWORKS, SERVICE_PORT};
use crate::netns::Namespace;
use crate::topology::Topology;
use crate::traffic::Responder;

/// Inner addresses of both clusters, in tcpdump's words.
const INNER: &str = "net 10.1.0.0/16 or net 10.2.0.0/16 or net 172.20.1.0/24 or net fd00:1::/48 or net fd00:2::/48 or net fd00:20::/64";

pub(super) fn run_in(lab: &Lab, screen: &Screen, options: &Options) -> anyhow::Result<()> {
    screen.heading(&format!("East's pods have macvlan devices, west's have not (lab {})", lab.id()));
    let plan =
        screen.step_with("network namespaces: a WAN, two nodes in each cluster, their pods", || {
            let plan = lab.build(&Topology::two_clusters().with_nodes(1, 1))?;
            Ok((plan.clusters.iter().map(describe).collect(), plan))
        })?;
    let pair = screen.step_with(
        "macvlan devices on a second network of east's nodes; gateways, route agents",
        || {
            let pair = MacvlanPair::start(lab, &plan, &[format!("cable-driver: {}", options.cable)])?;
            pair.mesh.wait_traffic()?;
            let lines = pair
                .pods
                .iter()
                .map(|pod| format!("{}: {}, {}", pod.name, pod.addresses[0], pod.addresses[1]));
            Ok((lines.collect(), pair))
        },
    )?;
    // The VXLAN between east's own nodes is on this bridge as well.
    let wire = Capture::start(lab, &plan.wan, "br0", "not udp port 4800")?;

    screen.heading("East announces the pods' networks, as `trieste join --extra-cidrs` does");
    pair.announce(&NETWORKS)?;
    for pod in &pair.pods {
        let responder = Responder::start(&pod.namespace)?;
        let targets: Vec<SocketAddr> = pair.targets();
        let services = pair.services.iter().map(|ip| SocketAddr::new(*ip, SERVICE_PORT));
        let own = pod.addresses.map(|address| SocketAddr::new(address, responder.port()));
        let west = &plan.cluster("west").pod(0).namespace;
        screen.step(&format!("{} → pods of west", pod.name), || ask(&pod.namespace, targets))?;
        screen.step(&format!("{} → services of west, by their cluster IPs", pod.name), || {
            ask(&pod.namespace, services.collect())
        })?;
        screen.step(&format!("a pod of west → {}", pod.name), || ask(west, own.to_vec()))?;
    }
    let frames = wire.finish()?;
    screen.step("nothing of it was between the clusters in clear", || {
        let inner = frames.count(INNER)?;
        let is_hidden = !options.encrypts() || frames.count_with(MARKER) == 0;
        anyhow::ensure!(inner == 0 && is_hidden, "{inner} packets with inner addresses");
        Ok(vec![format!("{} frames, no packet with an address of a pod", frames.frames.len())])
    })?;

    if options.keep {
        lab.keep()?;
        screen.heading("Left up. Things to try:");
        let node = plan.cluster("east").gateway().namespace.name();
        screen.line(&format!("ip netns exec {} ip route", pair.pods[0].namespace.name()));
        screen.line(&format!("ip netns exec {node} tcpdump -ni eth1"));
        screen.line(&format!("ip netns exec {node} nft list set inet trieste beside4"));
        return Ok(());
    }
    end(lab, screen, "everything removed again", pair)
}

/// Sends to each of these; returns what each of them saw.
fn ask(from: &Namespace, to: Vec<SocketAddr>) -> anyhow::Result<Vec<String>> {
    to.into_iter().map(|to| Ok(format!("{to} saw {}", seen_by(from, to)?))).collect()
}
