//! Outer packets past the kernel's stack (`io`): with the rights that pods have for it, with fewer, and when the interface goes.

use std::time::Duration;

use trieste_control::admin::{GatewayStatus, XdpStatus, XdpWorker};
use trieste_tests::cluster::Cluster;
use trieste_tests::guard::root_test;
use trieste_tests::pair::Pair;
use trieste_tests::topology::{Families, Topology};
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

use crate::least_privilege::confined;

const PATIENCE: Duration = Duration::from_secs(20);

fn connected(io: &str, rights: &str) -> Pair {
    let topology = Topology::two_clusters().with_underlay(Families::V4);
    Pair::connected_confined(&topology, &[&format!("io: {io}")], &confined(rights)).unwrap()
}

fn ping(pair: &Pair) -> anyhow::Result<()> {
    let to = pair.pod("west").v4().unwrap();
    let ping = traffic::ping(pair.pod_namespace("east"), to, 3, &["-s", "1300"])?;
    anyhow::ensure!(ping.received == 3, "{} of 3 from {to}", ping.received);
    Ok(())
}

fn xdp(cluster: &Cluster) -> anyhow::Result<XdpStatus> {
    cluster.status()?.xdp.ok_or_else(|| anyhow::anyhow!("the status says nothing of AF_XDP"))
}

fn received(xdp: &XdpStatus) -> u64 {
    let count = |worker: &XdpWorker| worker.received_in_place + worker.received_copied;
    xdp.workers.iter().map(count).sum()
}

fn steps(xdp: &XdpStatus) -> Vec<(&str, &str)> {
    xdp.steps.iter().map(|step| (step.mode.as_str(), step.cause.as_str())).collect()
}

fn conditions(status: &GatewayStatus) -> Vec<(&str, &str)> {
    let of_rings = |name: &str| name == "XdpUnavailable" || name == "CapabilityMissing";
    let all = status.conditions.iter().map(|one| (one.name.as_str(), one.subject.as_str()));
    all.filter(|(name, _)| of_rings(name)).collect()
}

#[test]
fn four_rights_are_enough_to_pass_the_stack_and_an_interface_that_comes_back_is_taken_again() {
    let name = "four_rights_are_enough_to_pass_the_stack_and_an_interface_that_comes_back_is_taken_again";
    let Some(_turn) = root_test(name) else { return };
    let pair = connected("af-xdp", ",+net_admin,+net_raw,+bpf,+ipc_lock");
    eventually("pods to reach each other", PATIENCE, || ping(&pair)).unwrap();
    for cluster in [&pair.east, &pair.west] {
        let status = cluster.status().unwrap();
        assert_eq!(conditions(&status), []);
        let xdp = status.xdp.unwrap();
        assert_eq!((xdp.interface.as_str(), xdp.mode.as_str()), ("eth0", "native"));
        assert_eq!(steps(&xdp), [("zero-copy", "not_supported")], "{xdp:?}");
        assert!(received(&xdp) > 0 && !xdp.is_aside, "{xdp:?}");
    }

    let gateway = pair.plan.cluster("west").gateway();
    let (node, port, wan) = (gateway.namespace.name(), &gateway.port, &pair.plan.wan);
    gateway.namespace.ip("link del eth0").unwrap();
    eventually("the loss to be noticed", PATIENCE, || {
        anyhow::ensure!(xdp(&pair.west)?.mode == "sockets");
        Ok(())
    })
    .unwrap();
    wan.ip(&format!(
        "link add eth0 netns {node} type veth peer name {port}\nlink set {port} mtu 1500 master br0 up"
    ))
    .unwrap();
    let addresses: String =
        gateway.underlay.iter().map(|address| format!("addr add {address} dev eth0\n")).collect();
    gateway.namespace.ip(&format!("link set eth0 mtu 1500 up\n{addresses}")).unwrap();
    eventually("pods to reach each other again", PATIENCE, || ping(&pair)).unwrap();
    eventually("packets to come by the rings again", PATIENCE, || {
        ping(&pair)?;
        let xdp = xdp(&pair.west)?;
        let reopened: Vec<u64> = xdp.workers.iter().map(|worker| worker.reopened).collect();
        anyhow::ensure!(xdp.mode == "native" && reopened == [1], "{xdp:?}");
        let before = received(&xdp);
        ping(&pair)?;
        eventually("the counters to be published", PATIENCE, || {
            anyhow::ensure!(received(&self::xdp(&pair.west)?) >= before + 3);
            Ok(())
        })
    })
    .unwrap();
}

#[test]
fn where_the_stack_cannot_or_should_not_be_passed_sockets_carry_everything_and_the_status_says_why() {
    let name =
        "where_the_stack_cannot_or_should_not_be_passed_sockets_carry_everything_and_the_status_says_why";
    let Some(_turn) = root_test(name) else { return };
    let two = ",+net_admin,+net_raw";
    let four = ",+net_admin,+net_raw,+bpf,+ipc_lock";
    let of_auto = [("zero-copy", "not_supported"), ("native", "not_wanted"), ("generic", "not_wanted")];
    let lacking = [("CapabilityMissing", "BPF"), ("XdpUnavailable", "eth0")];
    for (io, rights, wanted_steps, wanted_conditions) in [
        ("af-xdp", two, &[("zero-copy", "not_permitted")][..], &lacking[..]),
        ("auto", four, &of_auto[..], &[][..]),
    ] {
        let pair = connected(io, rights);
        eventually("pods to reach each other", PATIENCE, || ping(&pair)).unwrap();
        let status = pair.east.status().unwrap();
        let mut found = conditions(&status);
        found.sort_unstable();
        assert_eq!(found, wanted_conditions, "{io}");
        let xdp = status.xdp.as_ref().unwrap();
        assert_eq!((xdp.mode.as_str(), xdp.workers.len()), ("sockets", 0), "{xdp:?}");
        assert_eq!(steps(xdp), wanted_steps, "{io}");
    }
}
