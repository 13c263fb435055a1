//! Two clusters of three nodes with networks of their own, dual-stack: first bare, as joins and uninstalls leave them, then
//! joined with one gateway each, and with more. The lists of flows are those of upstream's end-to-end tests, with more
//! sizes, protocols and both families, and with the source address looked at everywhere.
//!
//! ```text
//!  east (kube-proxy on iptables)                         west (kube-proxy on nftables)
//!  east-1 worker, control plane ─┐                      ┌─ west-1 worker, control plane
//!  east-2 gateway ───────────────┼── encrypted cable ───┼─ west-2 gateway
//!  east-3 worker or gateway ─────┘                      └─ west-3 worker or gateway
//! ```
//!
//! Reverse path filters are strict on every node. Upstream's words: GW is the gateway's node, nGW any other.

mod bare;
mod dataplane;
mod demo;
mod diagnose;
mod faults;
mod names;
mod several;

use trieste_tests::clusters::{Cluster, Pod, PodShape};

/// The tests that share these clusters.
pub(crate) const TESTS: &[&str] = &[
    "plain::bare::clean::nothing_stays",
    "plain::bare::nodes::two_real_clusters_do_what_a_gateway_needs",
    "plain::dataplane::pods_reach_the_other_cluster_from_and_to_every_node_and_through_every_handover",
    "plain::demo::what_the_demo_says_can_be_tried_can_be",
    "plain::diagnose::the_broken_hop_is_named",
    "plain::faults::faults_heal_and_nothing_is_seen_in_clear",
    "plain::names::names_are_answered_in_both_clusters_and_follow_what_can_be_reached",
    "plain::several::every_way_there_goes_with_every_way_back_and_kube_proxy_does_not_mind",
];

/// A pod on each node, `on-NODE`: without any, a node has no bridge, and no address that health checks could use.
fn on_each(cluster: &Cluster) -> Vec<Pod> {
    let shapes = cluster.nodes().iter().map(|node| PodShape::on(node, &format!("on-{}", node.name())));
    cluster.start_pods(&shapes.collect::<Vec<_>>()).unwrap()
}
