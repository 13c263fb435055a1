//! `--plugin ovn`: a cluster whose pods are behind OVN's routers, and one whose pods are behind their nodes.

use std::net::SocketAddr;

use anyhow::Context;

use super::screen::Screen;
use super::{MARKER, Options, describe, end, seen_by};
use crate::capture::Capture;
use crate::lab::Lab;
use crate::ovn::pair::{OvnPair, SOON};
use crate::topology::Topology;
use crate::traffic::{self, Responder};

/// Inner addresses of both clusters, in tcpdump's words.
const INNER: &str = "net 10.1.0.0/16 or net 10.2.0.0/16 or net fd00:1::/48 or net fd00:2::/48";

pub(super) fn run_in(lab: &Lab, screen: &Screen, options: &Options) -> anyhow::Result<()> {
    screen.heading(&format!("East has OVN-Kubernetes' network, west has not (lab {})", lab.id()));
    let plan = screen.step_with("network namespaces: a WAN, two gateway nodes, four pods", || {
        let plan = lab.build(&Topology::two_clusters())?;
        Ok((plan.clusters.iter().map(describe).collect(), plan))
    })?;
    let mut pair = screen.step_with("a real OVN under east's pods; gateways, route agents, trieste-plugin-sync", || {
        let extra = [format!("cable-driver: {}", options.cable)];
        let pair = OvnPair::start(lab, &plan, &extra)?;
        let lines = vec![
            "Open vSwitch in user space, ovn-controller, ovn-northd and both databases".to_owned(),
            "without Kubernetes: objects are in directories, and OVN-Kubernetes' part of the topology is made by hand".to_owned(),
        ];
        Ok((lines, pair))
    })?;
    let wire = Capture::start(lab, &plan.wan, "br0", "")?;

    screen.heading("What trieste-plugin-sync has written");
    pair.wait_policies()?;
    screen.line("$ ovn-nbctl lr-policy-list ovn_cluster_router");
    screen.quote(&pair.ovn.nbctl(&["lr-policy-list", "ovn_cluster_router"])?);

    screen.heading("Traffic between a pod behind OVN and one that is not");
    show_traffic(screen, &pair)?;

    screen.heading("Somebody removes the policies that lead to west, while the worker is dead");
    pair.sync.take().context("the worker runs")?.kill()?;
    pair.remove_policies()?;
    screen.step(
        "pods of east reach west no more: OVN drops it, since the other half of the policies is there",
        || {
            let responder = Responder::start(pair.pod_namespace("west", 0))?;
            for ip in pair.pod("west", 0).ips() {
                let to = SocketAddr::new(ip, responder.port());
                let sent = traffic::send_tcp(pair.pod_namespace("east", 0), to, MARKER, SOON);
                anyhow::ensure!(sent.is_err(), "{to} was reached");
            }
            Ok(vec![])
        },
    )?;
    pair.start_sync()?;
    screen.step("the worker is started and repairs them", || {
        pair.wait_policies()?;
        Ok(vec![])
    })?;
    show_traffic(screen, &pair)?;
    let frames = wire.finish()?;
    screen.step("nothing of it was on the WAN in clear", || {
        let inner = frames.count(INNER)?;
        let is_hidden = !options.encrypts() || frames.count_with(MARKER) == 0;
        anyhow::ensure!(inner == 0 && is_hidden, "{inner} packets with inner addresses");
        Ok(vec![format!("{} frames, no packet with an address of a pod", frames.frames.len())])
    })?;

    if options.keep {
        lab.keep()?;
        screen.heading("Left up. Things to try:");
        let node = pair.ovn.namespace().name();
        screen.line(&format!("ovn-nbctl --db={} lr-policy-list ovn_cluster_router", pair.ovn.northbound()));
        screen.line(&format!("ip netns exec {node} ip route show table 150"));
        screen.line(&format!("ip netns exec {node} tcpdump -ni ovn-k8s-mp0"));
        return Ok(());
    }
    end(lab, screen, "everything removed again", pair)
}

fn show_traffic(screen: &Screen, pair: &OvnPair) -> anyhow::Result<()> {
    for (from, to) in [("east", "west"), ("west", "east")] {
        let responder = Responder::start(pair.pod_namespace(to, 0))?;
        let (client, server) = (pair.pod(from, 0), pair.pod(to, 0));
        screen.step(&format!("{} → {}, TCP, both families", client.name, server.name), || {
            let mut lines = Vec::new();
            for ip in server.ips() {
                let seen = seen_by(&client.namespace, SocketAddr::new(ip, responder.port()))?;
                lines.push(format!("{ip} saw {seen}: the pod's own address"));
            }
            Ok(lines)
        })?;
    }
    Ok(())
}
