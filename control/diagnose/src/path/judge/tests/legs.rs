//! What is wrong between a pod and its gateway.

use super::*;
use crate::agents::AgentError;

#[test]
fn route_agent_does_not_work_on_the_worker() {
    let change = |e: &mut Evidence| {
        let node = e.source.nodes.get_mut("a-w1").unwrap();
        (node.before, node.after, node.watch) = (None, None, None);
        let namespace = "submariner-operator".to_owned();
        node.problem = Some(AgentError::NoPod { node: "a-w1".to_owned(), namespace });
        e.probes.insert(probe::PING, Err("no pod".to_owned()));
        e.probes.remove(&probe::SIZES);
    };
    broken(change, Cause::RouteAgentDown, Hop::SourceNode);
}

#[test]
fn route_of_the_worker_is_removed() {
    let change = |e: &mut Evidence| {
        reports(&mut e.source, "a-w1", |report| report.routes.truncate(1));
        lost_before(e, Way::There, Stop::LeavesWorker);
    };
    broken(change, Cause::RouteMissing, Hop::SourceNode);
}

#[test]
fn vxlan_device_is_removed_or_switched_off() {
    let removed = |e: &mut Evidence| {
        reports(&mut e.source, "a-w1", |report| report.links.retain(|link| link.name != VX_DEVICE));
        lost_before(e, Way::There, Stop::LeavesWorker);
    };
    broken(removed, Cause::VxlanDeviceMissing, Hop::SourceNode);
    let down = |e: &mut Evidence| {
        reports(&mut e.source, "a-gw1", |report| report.links[1].up = false);
        lost_before(e, Way::There, Stop::EntersGateway);
    };
    broken(down, Cause::VxlanDeviceDown, Hop::SourceGateway);
    let remote = |e: &mut Evidence| {
        reports(&mut e.destination, "b-w1", |report| report.links[1].up = false);
        lost_before(e, Way::There, Stop::EntersWorker);
    };
    broken(remote, Cause::VxlanDeviceDown, Hop::DestinationNode);
}

#[test]
fn forwarding_entry_is_missing() {
    let change = |e: &mut Evidence| {
        reports(&mut e.destination, "b-gw1", |report| report.neighbours.clear());
        lost_before(e, Way::There, Stop::ForwardedCarried);
    };
    broken(change, Cause::ForwardingEntryMissing, Hop::DestinationVxlan);
}

#[test]
fn port_4800_is_blocked_by_the_network_or_by_a_node() {
    let network = |e: &mut Evidence| lost_before(e, Way::There, Stop::ArrivesCarried);
    broken(network, Cause::VxlanPortBlocked, Hop::SourceVxlan);
    let node = |e: &mut Evidence| {
        reports(&mut e.source, "a-gw1", |report| report.filters.drops.push(drops_port("input", 4800)));
        lost_before(e, Way::There, Stop::EntersGateway);
    };
    broken(node, Cause::VxlanPortBlocked, Hop::SourceVxlan);
    let way_out = |e: &mut Evidence| {
        reports(&mut e.source, "a-w1", |report| report.filters.drops.push(drops_port("output", 4800)));
        lost_before(e, Way::There, Stop::LeavesCarried);
    };
    broken(way_out, Cause::VxlanPortBlocked, Hop::SourceVxlan);
}

#[test]
fn reverse_path_filter_is_strict() {
    let change = |e: &mut Evidence| {
        let key = "ipv4/conf/vx-submariner/rp_filter";
        reports(&mut e.source, "a-gw1", |report| drop(report.sysctls.insert(key.to_owned(), "1".to_owned())));
        later(&mut e.source, "a-gw1", |report| *report.counters.get_mut("IPReversePathFilter").unwrap() = 3);
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(change, Cause::ReversePathFilter, Hop::SourceGateway);
}

#[test]
fn node_does_not_forward() {
    let off = |report: &mut crate::node::document::NodeReport| {
        report.sysctls.insert("ipv4/ip_forward".to_owned(), "0".to_owned());
    };
    let gateway = |e: &mut Evidence| {
        reports(&mut e.source, "a-gw1", off);
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(gateway, Cause::ForwardingOff, Hop::SourceGateway);
    // Probes that a node sends itself are not forwarded by it; the answer is.
    let worker = |e: &mut Evidence| {
        reports(&mut e.source, "a-w1", off);
        lost_before(e, Way::Back, Stop::Delivered);
    };
    broken(worker, Cause::ForwardingOff, Hop::SourceNode);
}

#[test]
fn rule_or_table_is_removed() {
    let rule = |e: &mut Evidence| {
        reports(&mut e.source, "a-gw1", |report| report.rules.retain(|rule| rule.table != "150"));
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(rule, Cause::RuleMissing, Hop::SourceGateway);
    let table = |e: &mut Evidence| {
        reports(&mut e.source, "a-gw1", |report| report.routes.retain(|route| route.table != "150"));
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(table, Cause::RouteMissing, Hop::SourceGateway);
    let delivery = |e: &mut Evidence| {
        reports(&mut e.destination, "b-gw1", |report| report.routes.retain(|route| route.table != "149"));
        lost_before(e, Way::There, Stop::LeavesGateway);
    };
    broken(delivery, Cause::RouteMissing, Hop::DestinationGateway);
}

#[test]
fn tunnel_device_is_down_or_gone() {
    let down = |e: &mut Evidence| {
        reports(&mut e.source, "a-gw1", |report| report.links[2].up = false);
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(down, Cause::TunnelDeviceDown, Hop::SourceGateway);
    let gone = |e: &mut Evidence| {
        reports(&mut e.source, "a-gw1", |report| drop(report.links.pop()));
        lost_before(e, Way::There, Stop::EntersTunnel);
    };
    broken(gone, Cause::TunnelDeviceMissing, Hop::SourceGateway);
}

#[test]
fn pod_does_not_answer() {
    broken(|e| lost_before(e, Way::There, Stop::Answered), Cause::PodSilent, Hop::DestinationPod);
}

#[test]
fn the_way_back_is_walked_too() {
    let change = |e: &mut Evidence| {
        reports(&mut e.destination, "b-w1", |report| report.routes.truncate(1));
        lost_before(e, Way::Back, Stop::LeavesWorker);
    };
    broken(change, Cause::RouteMissing, Hop::DestinationNode);
    let mut evidence = healthy();
    change(&mut evidence);
    assert_eq!(judge(&evidence).verdict.unwrap().way, Way::Back);
}

#[test]
fn a_pod_beside_the_source_is_cut_off() {
    let change = |e: &mut Evidence| drop(e.probes.insert(probe::POD, Ok(unanswered())));
    broken(change, Cause::PodCutOff, Hop::SourceNode);
    let forwarding = |e: &mut Evidence| {
        change(e);
        reports(&mut e.source, "a-w1", |report| report.filters.drops.push(drops_pings("forward")));
    };
    broken(forwarding, Cause::FilterDrop, Hop::SourceNode);
}
