//! What one change costs on a gateway's node of a large cluster, without the kernel: `--nocapture` shows the times.

use std::net::Ipv4Addr;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::*;
use crate::change::Change;
use crate::observed::{Observed, ObservedRoute};
use crate::plan::plan;
use crate::plan::tests::model;

/// The longest that a processor may think about one pass (issue), unoptimised.
const WITHIN: Duration = Duration::from_secs(1);
/// Networks of remote clusters.
const NETWORKS: u32 = 100;

/// A gateway of a cluster of so many nodes, each with pods.
fn large(nodes: u32) -> ClusterState {
    let remote: Vec<String> = (0..NETWORKS).map(|number| remote(number).to_string()).collect();
    let mut state = gateway(&remote.iter().map(String::as_str).collect::<Vec<_>>());
    state.node.pod_networks = vec!["10.0.0.0/8".parse().unwrap()];
    state.endpoints[0].addresses = vec!["172.31.0.0".parse().unwrap()];
    state.addresses = [address("eth0", "172.31.0.0/16"), address("cni0", "10.0.0.1/24")].into();
    state.nodes = (0..nodes).map(node).collect();
    state
}

fn remote(number: u32) -> IpNet {
    IpNet::new(Ipv4Addr::from(0x6440_0000 + (number << 8)).into(), 24).unwrap()
}

fn node(number: u32) -> ClusterNode {
    let name = if number == 0 { "a-gw1".to_owned() } else { format!("node-{number:05}") };
    let pods = IpNet::new(Ipv4Addr::from(0x0a00_0000 + (number << 8)).into(), 24).unwrap();
    ClusterNode {
        hostname: name.clone(),
        name,
        addresses: [Ipv4Addr::from(0xac1f_0000 + number).into()].into(),
        pod_networks: [pods].into(),
        ..ClusterNode::default()
    }
}

/// The kernel once everything is made.
fn settled(desired: &Desired) -> Observed {
    let mut made = plan(&desired.hostnet, &Observed::default());
    let mut observed = Observed::default();
    // The model looks at all routes for each that is added.
    made.changes.retain(|change| {
        let Change::AddRoute(route) = change else { return true };
        observed.routes.push(ObservedRoute::from_route(route));
        false
    });
    model::apply(observed, &made)
}

/// How long this thread has had a processor.
fn worked() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap())
}

#[test]
fn one_change_is_written_alone_within_a_second_in_a_cluster_of_ten_thousand_nodes() {
    for count in [10, 100, 1_000, 10_000] {
        let state = large(count);
        let desired = KubeProxy.desired(&state);
        assert!(desired.hostnet.routes.len() > count as usize, "{}", desired.hostnet.routes.len());
        let observed = settled(&desired);

        let mut another_network = state.clone();
        another_network.endpoints[1].subnets[7] = remote(NETWORKS);
        let mut one_more = state.clone();
        one_more.nodes.push(node(count));
        let mut moved = state.clone();
        moved.nodes[5].pod_networks = [IpNet::new(Ipv4Addr::new(10, 255, 0, 0).into(), 24).unwrap()].into();
        let steps = [
            ("nothing new", state, 0),
            ("another remote network", another_network, 8),
            ("one more node", one_more, 5),
            ("a node's pods moved", moved, 3),
        ];
        for (what, state, most) in steps {
            let began = worked();
            let desired = KubeProxy.desired(&state);
            let plan = plan(&desired.hostnet, &observed);
            let took = worked() - began;
            println!(
                "{count} nodes, {NETWORKS} networks, {what}: {} changes after {took:?}",
                plan.changes.len()
            );
            let changes: Vec<String> = plan.changes.iter().map(ToString::to_string).collect();
            assert!(
                (most == 0) == changes.is_empty() && changes.len() <= most,
                "{count}, {what}: {changes:?}"
            );
            assert!(took < WITHIN, "{count} nodes, {what}: {took:?}");
        }
    }
}
